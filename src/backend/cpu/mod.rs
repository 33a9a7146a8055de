//! The CPU backend.

pub mod simd;
pub mod threads;
