//! The emulated CUDA driver does what a driver does, and tells what a GPU would not.

#[path = "../emulator/mod.rs"]
mod emulator;

mod errors;
mod gpu;
mod kernels;
mod order;
mod sanitizer;
