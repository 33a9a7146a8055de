//! The scripts that check a machine with a GPU: what is planted in one family takes no result of another, nothing is lost
//! when a stage is ended, and figures come only from what ran. Programs of a bundle are stood for by a shell script.

#![cfg(target_os = "linux")]

mod bundle;
mod figures;
mod peer;
mod quick;
mod stages;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{fs, io};

/// The project's folder.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether the scripts can be run here; says why, if not.
fn ready() -> bool {
    let wanted = "import sys; sys.exit(sys.version_info < (3, 11))";
    let found = Command::new("python3").args(["-c", wanted]).output().is_ok_and(|o| o.status.success());
    if !found {
        eprintln!("skipped: python3 is not there, or older than 3.11");
    }
    found
}

/// A folder with a bundle of stand-ins, and one for what comes out.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("bundle/bin");
        fs::create_dir_all(&bin).unwrap();
        for name in ["runner", "ops", "golden_cuda", "cuda", "cuda_cli"] {
            copy(&root().join("tests/suites/gpu_scripts/stand_in.sh"), &bin.join(name)).unwrap();
        }
        fs::create_dir(dir.path().join("temporary")).unwrap();
        fs::write(dir.path().join("bundle/manifest.json"), r#"{"commit": "0123abc", "programs": {}}"#).unwrap();
        Place { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The command of a stage, not yet started; words are split at spaces.
    fn stage(&self, args: &str) -> Command {
        let mut command = Command::new("bash");
        command.arg(root().join("scripts/gpu_check.sh")).arg(self.path("bundle")).args(args.split_whitespace());
        for name in
            ["DEVICE", "SCALE", "STEPS", "BATCH", "JOBS", "FAMILY_SECONDS", "MODELS", "PRECISIONS", "RUNNER_TEST_DATA"]
        {
            command.env_remove(name);
        }
        // No `compute-sanitizer` nor `nvidia-smi` of this machine.
        command.env("PATH", path_without_tools()).env("OUT", self.path("out")).env("PLANTED", self.dir.path());
        // A script that is killed leaves its folder.
        command.env("TMPDIR", self.path("temporary"));
        command.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(self.dir.path());
        command
    }

    fn read(&self, name: &str) -> String {
        let path = self.path(name);
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// The results of a stage.
    fn results(&self, stage: &str) -> Results {
        let text = self.read(&format!("out/{stage}/results.jsonl"));
        Results(text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"))).collect())
    }
}

/// What a stage has written.
struct Results(Vec<Value>);

impl Results {
    /// Verdict and note of a family.
    fn of(&self, part: &str, name: &str) -> (&str, &str) {
        let found = self.0.iter().find(|r| r["part"] == part && r["name"] == name);
        let found = found.unwrap_or_else(|| panic!("no {part} {name}: {:?}", self.0));
        (found["verdict"].as_str().unwrap(), found["note"].as_str().unwrap())
    }

    /// The verdict of a part, if it has ended.
    fn ended(&self, part: &str) -> Option<&str> {
        self.0.iter().find(|r| r["end"] == part).map(|r| r["verdict"].as_str().unwrap())
    }
}

/// Copies with permissions; a file that is open for writing cannot be run, so it is closed by a process of its own.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let done = Command::new("cp").arg(from).arg(to).status()?;
    if done.success() { Ok(()) } else { Err(io::Error::other("cp")) }
}

/// The folders of programs but those that have NVIDIA's tools.
fn path_without_tools() -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let plain = |folder: &PathBuf| !["compute-sanitizer", "nvidia-smi"].iter().any(|tool| folder.join(tool).exists());
    std::env::join_paths(std::env::split_paths(&path).filter(plain)).unwrap()
}

/// Runs Python code that has the scripts at hand.
fn python(code: &str, args: &[&Path]) -> Output {
    let mut command = Command::new("python3");
    command.args(["-B", "-c", code]).args(args).env("PYTHONPATH", root().join("scripts"));
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
