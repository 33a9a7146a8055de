//! The CPU kernels of `runner`, written once over vectors of any width ([`simd`]), and shared among the threads of a pool
//! ([`run::threads`]) in tasks that cut sums by their shapes alone, so that results do not depend on the number of threads.
//!
//! [`lower`] chooses the kernel of a node, and [`run::frame`] is how a kernel gets at its operands. Modules name those before
//! them alone: `simd`, `info`, `run`, `gemm`, `fusions`, `ops`, `lower`, `narrow`, `peak`. The engine runs programs of them; kernels take
//! long to build, and as a package of their own they are built once, whatever changes around them.
#![allow(clippy::needless_range_loop, reason = "a kernel's index runs over several arrays at once")]

pub mod fusions;
pub mod gemm;
mod info;
pub mod lower;
pub mod narrow;
pub mod ops;
pub mod peak;
pub mod run;
pub mod simd;

pub use info::{CpuInfo, cpu_info};

use runner_core::{collective, failure, graph, plan, random, shards, system};
