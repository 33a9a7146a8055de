//! The CUDA kernels: their sources (`cuda/`), what they were compiled to ahead of time (`packed/`), and the code that finds it.
//!
//! Nothing here needs a GPU, a driver or a compiler. `tests/suites/kernels` of the workspace makes `packed/` from `cuda/`, and fails
//! where one of its files is older than the sources.

pub mod cubin;
mod kept;
mod module;
pub mod ptx;

pub use module::Module;
