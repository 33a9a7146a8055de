//! The program with a GPU, on the emulated driver or with `RUNNER_TEST_GPU=1` on a real one; and without one that it could use.

mod bench;
#[path = "../../support/emulator/mod.rs"]
mod emulator;
mod faults;
mod heads;
mod kernels;
mod libraries;
mod memory;
mod plans;
mod ranks;
mod selection;
mod steps;
#[allow(dead_code)]
#[path = "../../support/command.rs"]
mod support;
mod text;

use std::path::Path;
use std::process::Output;
use support::{Done, Place};

/// Runs `runner args` with the libraries in `folder` (a `LD_LIBRARY_PATH`) before those of the system, in an environment with
/// `env`.
fn run_with(place: &Place, folder: &Path, args: &str, env: &[(&str, &str)]) -> Done {
    let mut command = place.command(args);
    command.env("LD_LIBRARY_PATH", folder);
    // What is kept for later starts is no business of the machine's user.
    command.env("XDG_CACHE_HOME", place.path("caches")).env_remove("RUNNER_CUDA_CACHE").envs(env.iter().copied());
    // Which GPU of a machine is used is decided outside.
    if !emulator::on_gpu() && !env.iter().any(|(name, _)| *name == "CUDA_VISIBLE_DEVICES") {
        command.env_remove("CUDA_VISIBLE_DEVICES");
    }
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let done = Done { code: status.code(), out: text(stdout), err: text(stderr) };
    assert!(!done.err.contains("panicked"), "`runner {args}`: {done:?}");
    done
}

/// Runs to the end, which must be a good one.
fn ok_with(place: &Place, folder: &Path, args: &str, env: &[(&str, &str)]) -> Done {
    let done = run_with(place, folder, args, env);
    assert_eq!(done.code, Some(0), "`runner {args}`: {done:?}");
    done
}
