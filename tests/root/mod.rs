//! Where tests find the project's files and its program: where they were built, or where a bundle that was made elsewhere
//! has been unpacked (`scripts/gpu_check.sh`). And how tests of many cases are gone on with after one that ended a process.

// Every test binary has its own copy and uses a part of it.
#![allow(dead_code)]

use std::path::PathBuf;
use std::process::Command;

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

/// Cases one after the other, each told of before it is run, so that one that ends the process, or the use of the GPU, is
/// known by its name. `RUNNER_TEST_AFTER` names such a case: those up to it are left out.
pub struct Cases {
    after: Option<String>,
}

impl Cases {
    /// Before the first.
    pub fn begin() -> Cases {
        Cases { after: std::env::var("RUNNER_TEST_AFTER").ok() }
    }

    /// Whether the case of this name is to be run, next.
    pub fn wants(&mut self, name: &str) -> bool {
        if self.after.is_none() {
            println!("case {name}");
            return true;
        }
        self.after.take_if(|after| after == name);
        false
    }

    /// Behind the last: what is wrong now was found by comparing, and not by a case that could not be run.
    pub fn done(self) {
        assert_eq!(self.after, None, "RUNNER_TEST_AFTER: there is no such case");
        println!("cases done");
    }
}

/// The project's folder. `RUNNER_TEST_ROOT` names another than the one that this binary was built in.
pub fn root() -> PathBuf {
    std::env::var_os("RUNNER_TEST_ROOT").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}

/// The program. `RUNNER_TEST_BINARY` names another than the one that was built with this binary.
pub fn program() -> PathBuf {
    std::env::var_os("RUNNER_TEST_BINARY").map_or_else(|| env!("CARGO_BIN_EXE_runner").into(), PathBuf::from)
}
