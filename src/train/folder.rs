//! A run's folder: where it is, and what lies in it.

use crate::checkpoint::{self, FileKind};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// The files of a run, by name.
pub mod file {
    /// The effective configuration.
    pub const CONFIG: &str = "config.toml";
    /// One JSON object a line.
    pub const METRICS: &str = "metrics.jsonl";
    /// The newest checkpoint.
    pub const LAST: &str = "last.safetensors";
    /// The best checkpoint by the monitored figure.
    pub const BEST: &str = "best.safetensors";
}

/// The folder of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    /// Its path.
    pub path: PathBuf,
    /// The path is the next free number, which another run may take in the meantime.
    numbered: bool,
}

impl Folder {
    /// The folder for a new run: `out`, else the next number under `runs/<name>`. Nothing is changed on disk.
    ///
    /// # Errors
    /// `runs/<name>` cannot be read.
    pub fn new(out: Option<&Path>, name: &str) -> Result<Folder> {
        Ok(match out {
            Some(p) => Folder { path: p.to_path_buf(), numbered: false },
            None => Folder { path: next_number(&Path::new("runs").join(name))?, numbered: true },
        })
    }

    /// Whether a run has left files there.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn holds_run(&self) -> Result<bool> {
        Ok(!self.run_files()?.is_empty())
    }

    /// Makes the folder, and removes the files of an earlier run in it; others are left alone. To be called when nothing
    /// else can fail that would make the removal a loss.
    ///
    /// # Errors
    /// The folder cannot be made, or a file cannot be removed.
    pub fn claim(&mut self) -> Result<()> {
        for file in self.run_files()? {
            fs::remove_file(&file).with_context(|| format!("cannot remove `{}`", file.display()))?;
        }
        if let (true, Some(parent)) = (self.numbered, self.path.parent().map(Path::to_path_buf)) {
            fs::create_dir_all(&parent).with_context(|| format!("cannot make the folder `{}`", parent.display()))?;
            while let Err(e) = fs::create_dir(&self.path) {
                if e.kind() != std::io::ErrorKind::AlreadyExists {
                    return Err(e).with_context(|| format!("cannot make the run's folder `{}`", self.path.display()));
                }
                self.path = next_number(&parent)?;
            }
            return Ok(());
        }
        fs::create_dir_all(&self.path)
            .with_context(|| format!("cannot make the run's folder `{}`", self.path.display()))?;
        self.remove_unfinished()
    }

    /// Removes what writes that were cut off have left.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn remove_unfinished(&self) -> Result<()> {
        checkpoint::remove_unfinished(&self.path)
            .map(|_| ())
            .with_context(|| format!("cannot remove unfinished checkpoints in `{}`", self.path.display()))
    }

    /// Removes all `step-N` checkpoints but the newest `keep`.
    ///
    /// # Errors
    /// The folder cannot be read, or a file cannot be removed.
    pub fn prune(&self, keep: usize) -> Result<()> {
        checkpoint::prune(&self.path, keep)
            .map(|_| ())
            .with_context(|| format!("cannot remove old checkpoints in `{}`", self.path.display()))
    }

    /// Removes the checkpoints of a later place in the run than `epoch` and `batch`, from where another course is taken:
    /// they would be taken for its newest. The names of the removed.
    ///
    /// # Errors
    /// The folder cannot be read, or a file cannot be removed.
    pub fn remove_later(&self, epoch: u64, batch: u64) -> Result<Vec<String>> {
        let mut removed = Vec::new();
        for file in self.run_files()?.into_iter().filter(|f| f.extension().is_some_and(|e| e == "safetensors")) {
            // What cannot be read is never taken for anything.
            let later = checkpoint::verify(&file).is_ok_and(|meta| (meta.epoch, meta.batch) > (epoch, batch));
            if later {
                fs::remove_file(&file).with_context(|| format!("cannot remove `{}`", file.display()))?;
                removed.extend(file.file_name().map(|n| n.to_string_lossy().into_owned()));
            }
        }
        Ok(removed)
    }

    /// The folder of a run to continue: `out`, else that of `checkpoint`, else the newest under `runs/<name>`.
    ///
    /// # Errors
    /// There is none.
    pub fn existing(out: Option<&Path>, checkpoint: Option<&Path>, name: &str) -> Result<Folder> {
        let path = match (out, checkpoint.and_then(Path::parent)) {
            (Some(p), _) => p.to_path_buf(),
            (None, Some(p)) if p.as_os_str().is_empty() => PathBuf::from("."),
            (None, Some(p)) => p.to_path_buf(),
            (None, None) => {
                let parent = Path::new("runs").join(name);
                let newest = numbers(&parent)?.into_iter().max();
                let Some(n) = newest else {
                    bail!("there is no run under `{}` to continue\nhelp: name its folder with --out", parent.display())
                };
                parent.join(n.to_string())
            }
        };
        if !path.is_dir() {
            bail!("there is no run to continue in `{}`: no such folder", path.display());
        }
        Ok(Folder { path, numbered: false })
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The files that a run has left there.
    fn run_files(&self) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        let entries = match fs::read_dir(&self.path) {
            Ok(e) => e,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(found),
            Err(e) => return Err(e).with_context(|| format!("cannot read the folder `{}`", self.path.display())),
        };
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot read the folder `{}`", self.path.display()))?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if FileKind::of(&name).is_some() || name == file::CONFIG || name == file::METRICS {
                found.push(entry.path());
            }
        }
        Ok(found)
    }
}

fn numbers(parent: &Path) -> Result<Vec<u32>> {
    match fs::read_dir(parent) {
        Ok(entries) => Ok(entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e).with_context(|| format!("cannot read the folder `{}`", parent.display())),
    }
}

fn next_number(parent: &Path) -> Result<PathBuf> {
    let n = numbers(parent)?.into_iter().max().unwrap_or(0);
    Ok(parent.join((n + 1).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_files_of_a_run_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("run");
        let mut folder = Folder::new(Some(&out), "x").unwrap();
        assert!(!out.exists() && !folder.holds_run().unwrap());
        folder.claim().unwrap();
        assert!(!folder.holds_run().unwrap(), "an empty folder is fine");
        let ours = [file::METRICS, file::LAST, "step-12.safetensors", ".last.safetensors.tmp-7"];
        let others = ["notes.txt", "step-x.safetensors"];
        for name in ours.iter().chain(&others) {
            fs::write(folder.file(name), "").unwrap();
        }
        assert!(folder.holds_run().unwrap());
        folder.claim().unwrap();
        assert!(ours.iter().all(|n| !folder.file(n).exists()) && others.iter().all(|n| folder.file(n).exists()));
    }

    #[test]
    fn a_number_that_another_run_has_taken_is_left_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let next = || Folder { path: next_number(dir.path()).unwrap(), numbered: true };
        let (mut a, mut b) = (next(), next());
        a.claim().unwrap();
        b.claim().unwrap();
        assert_eq!((a.path, b.path), (dir.path().join("1"), dir.path().join("2")));
    }

    #[test]
    fn runs_are_numbered() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(next_number(dir.path()).unwrap(), dir.path().join("1"));
        for n in ["1", "9", "10", "x"] {
            fs::create_dir(dir.path().join(n)).unwrap();
        }
        assert_eq!(next_number(dir.path()).unwrap(), dir.path().join("11"));
    }
}
