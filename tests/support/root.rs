//! Where tests find the project's files and its program: where they were built, or where a bundle that was made elsewhere
//! has been unpacked (`scripts/gpu_check.sh`). And how tests of many cases are gone on with after one that ended a process.

// Every test binary has its own copy and uses a part of it.
#![allow(dead_code)]

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Has a command heed the signals that ask for an end, which a shell has what it starts in the background ignore: what is ignored stays so.
pub fn heeding_signals(command: &mut Command) -> &mut Command {
    #[cfg(unix)]
    // SAFETY: between fork and exec it makes plain system calls, which allocate nothing.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(command, || {
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::signal(signal, libc::SIG_DFL);
            }
            Ok(())
        });
    }
    command
}

/// Cases one after the other, each named before it is run, so that one that ends the process, or the use of the GPU, is
/// known by its name. `RUNNER_TEST_AFTER` names such a case: those up to it are left out. With `RUNNER_TEST_SECONDS` no case
/// begins after so many seconds; they are then taken from all over the list, so that a part of them stands for all.
pub struct Cases {
    after: Option<String>,
    end: Option<Instant>,
    left_out: usize,
}

impl Cases {
    /// Before the first; puts the cases in the order that they are to be run in.
    pub fn begin<T>(cases: &mut Vec<T>) -> Cases {
        let seconds = std::env::var("RUNNER_TEST_SECONDS").ok().map(|text| text.parse().expect("RUNNER_TEST_SECONDS"));
        if seconds.is_some() {
            spread(cases);
        }
        let end = seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
        Cases { after: std::env::var("RUNNER_TEST_AFTER").ok(), end, left_out: 0 }
    }

    /// Whether the case of this name is to be run, next.
    pub fn wants(&mut self, name: &str) -> bool {
        if self.after.is_some() {
            self.after.take_if(|after| after == name);
            return false;
        }
        if self.end.is_some_and(|end| Instant::now() > end) {
            self.left_out += 1;
            return false;
        }
        println!("case {name}");
        true
    }

    /// After the last: what is wrong now was found by comparing, and not by a case that could not be run.
    pub fn done(self) {
        assert_eq!(self.after, None, "RUNNER_TEST_AFTER: there is no such case");
        if self.left_out > 0 {
            println!("cases left out: {}", self.left_out);
        }
        println!("cases done");
    }
}

/// Puts a list in an order whose first elements, however many, are taken evenly from all of it: by the fractional parts of the
/// multiples of the golden ratio.
pub fn spread<T>(list: &mut Vec<T>) {
    let ratio = (5f64.sqrt() - 1.0) / 2.0;
    let mut keyed: Vec<_> = std::mem::take(list).into_iter().enumerate().collect();
    keyed.sort_by(|(i, _), (j, _)| (*i as f64 * ratio).fract().total_cmp(&(*j as f64 * ratio).fract()));
    list.extend(keyed.into_iter().map(|(_, element)| element));
}

/// The project's folder. `RUNNER_TEST_ROOT` names another than the one that this binary was built in.
pub fn root() -> PathBuf {
    let built_in = || PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    // Tests of `crates/mpi` are built two folders below it.
    let below = || if PROGRAM.is_some() { built_in() } else { built_in().join("../..") };
    std::env::var_os("RUNNER_TEST_ROOT").map_or_else(below, PathBuf::from)
}

/// The program of the package at the root, if this is a test of that.
const PROGRAM: Option<&str> = option_env!("CARGO_BIN_EXE_runner");

/// The program. `RUNNER_TEST_BINARY` names another than the one that was built with this binary.
pub fn program() -> PathBuf {
    let built = || PROGRAM.or(option_env!("CARGO_BIN_EXE_runner-mpi")).expect("the package has a program").into();
    std::env::var_os("RUNNER_TEST_BINARY").map_or_else(built, PathBuf::from)
}
