//! Where tests find the project's files and its program: where they were built, or where a bundle that was made elsewhere
//! has been unpacked (`scripts/gpu_check.sh`).

// Every test binary has its own copy and uses a part of it.
#![allow(dead_code)]

use std::path::PathBuf;

/// The project's folder. `RUNNER_TEST_ROOT` names another than the one that this binary was built in.
pub fn root() -> PathBuf {
    std::env::var_os("RUNNER_TEST_ROOT").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

/// The program. `RUNNER_TEST_BINARY` names another than the one that was built with this binary.
pub fn program() -> PathBuf {
    std::env::var_os("RUNNER_TEST_BINARY").map_or_else(|| env!("CARGO_BIN_EXE_runner").into(), PathBuf::from)
}
