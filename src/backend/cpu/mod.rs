//! The CPU backend.

pub mod conv;
pub mod gemm;
pub mod linear;
pub mod simd;
pub mod threads;
