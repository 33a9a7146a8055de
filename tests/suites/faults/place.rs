//! Running the program in a folder of its own, with faults.

use crate::faults::Fault;
use crate::library::library;
use crate::operation::{self, Operation};
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A folder that is looked at, beside one that is not; removed at the end.
pub struct Place {
    dir: tempfile::TempDir,
}

/// How a program ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// `None` if a signal ended it.
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ended {
    /// Something that was not thought of ended it.
    pub fn panicked(&self) -> bool {
        ["panicked", "RUST_BACKTRACE", "memory allocation of"].iter().any(|word| self.err.contains(word))
    }
}

impl Place {
    pub fn new() -> Place {
        let place = Place { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(place.path()).unwrap();
        place
    }

    /// A place with one file.
    pub fn with(name: &str, content: &str) -> Place {
        let place = Place::new();
        fs::write(place.file(name), content).unwrap();
        place
    }

    /// Another place with the same files.
    pub fn copy(&self) -> Place {
        let new = Place { dir: tempfile::tempdir().unwrap() };
        copy(&self.path(), &new.path());
        new
    }

    /// The folder that is looked at, without links.
    pub fn path(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("place")
    }

    /// A path in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// The command, to be run in the folder; words are split at spaces. Temporary files go to the folder `tmp` there, or else to one that is not looked at.
    pub fn command(&self, args: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_runner"));
        command.args(args.split_whitespace()).current_dir(self.path()).stdin(Stdio::null());
        // A signal that is ignored where tests are run would stay ignored.
        // SAFETY: between fork and exec it makes a plain system call, which allocates nothing.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                Ok(())
            });
        }
        let temporary = Some(self.file("tmp")).filter(|folder| folder.is_dir());
        let temporary = temporary.unwrap_or_else(|| self.dir.path().join("temporary"));
        fs::create_dir_all(&temporary).unwrap();
        command.env("TMPDIR", temporary);
        command
    }

    /// Runs without faults and without a record.
    pub fn run(&self, args: &str) -> Ended {
        finish(&mut self.command(args))
    }

    /// Runs to a good end.
    pub fn ok(&self, args: &str) -> Ended {
        let ended = self.run(args);
        assert_eq!(ended.code, Some(0), "`runner {args}`: {ended:?}");
        ended
    }

    /// Runs with the library; what was done to the folder. `data`: with the bytes that are written.
    pub fn recorded(&self, args: &str, fault: Option<(usize, Fault)>, data: bool) -> (Ended, Vec<Operation>) {
        let mut command = self.preloaded(args);
        if let Some((n, fault)) = fault {
            command.env("RUNNER_FAULT", fault.for_preload(n));
        }
        if data {
            command.env("RUNNER_FAULT_DATA", "1");
        }
        let ended = finish(&mut command);
        (ended, operation::read(&self.log()))
    }

    /// Runs with the `n`th allocation of at least `bytes` bytes refused (0: none); all allocations of that size.
    pub fn refused(&self, args: &str, n: usize, bytes: usize) -> (Ended, Vec<Operation>) {
        let mut command = self.preloaded(args);
        command.env("RUNNER_FAULT_ALLOC", format!("{n}:{bytes}"));
        let ended = finish(&mut command);
        let mut allocations = operation::read(&self.log());
        allocations.retain(|o| o.name == "allocation");
        (ended, allocations)
    }

    fn preloaded(&self, args: &str) -> Command {
        let library = library().expect("a test that needs the library has asked for it");
        let _ = fs::remove_file(self.log());
        let mut command = self.command(args);
        command.env("LD_PRELOAD", library).env("RUNNER_FAULT_DIR", self.path()).env("RUNNER_FAULT_LOG", self.log());
        command
    }
}

/// Runs to the end.
pub fn finish(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ended {
        code: output.status.code(),
        signal: output.status.signal(),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

/// Copies a folder with all that is in it.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}
