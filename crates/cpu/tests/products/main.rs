//! Matrix products and convolutions against plain loops, on every level of instructions. As a program of its own it is linked with
//! the kernels; inside of the package it would have them compiled once more.

mod bf16;
mod conv;
mod conv_bf16;
mod linear;
mod plain;
#[path = "../../src/gemm/reference.rs"]
mod reference;
mod widths;

use runner_core::{graph, plan, random};
use runner_cpu::{gemm, ops, run, simd};
