//! A run's folder: where it is, and what lies in it.

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
}

impl Folder {
    /// The folder for a new run: `out`, else the next number under `runs/<name>`. With `force` the files of an earlier
    /// run in `out` are removed; others are left alone.
    ///
    /// # Errors
    /// `out` holds a run already, or the folder cannot be made.
    pub fn create(out: Option<&Path>, name: &str, force: bool) -> Result<Folder> {
        let path = match out {
            Some(p) => p.to_path_buf(),
            None => next_number(&Path::new("runs").join(name))?,
        };
        let folder = Folder { path };
        let old = folder.run_files()?;
        if !old.is_empty() {
            if !force {
                bail!(
                    "`{}` already holds a run\nhelp: continue it with --resume, start anew in its place with --force, or choose another \
                     folder with --out",
                    folder.path.display()
                );
            }
            for file in old {
                fs::remove_file(&file).with_context(|| format!("cannot remove `{}`", file.display()))?;
            }
        }
        fs::create_dir_all(&folder.path)
            .with_context(|| format!("cannot make the run's folder `{}`", folder.path.display()))?;
        Ok(folder)
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
        Ok(Folder { path })
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
            let checkpoint = name.ends_with(".safetensors")
                && (name == file::LAST || name == file::BEST || name.starts_with("step-"));
            if checkpoint || name == file::CONFIG || name == file::METRICS {
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
    fn a_folder_with_a_run_is_refused_unless_forced() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("run");
        let folder = Folder::create(Some(&out), "x", false).unwrap();
        assert!(Folder::create(Some(&out), "x", false).is_ok(), "an empty folder is fine");
        fs::write(folder.file(file::METRICS), "").unwrap();
        fs::write(folder.file("notes.txt"), "mine").unwrap();
        let e = Folder::create(Some(&out), "x", false).unwrap_err().to_string();
        assert!(e.contains("already holds a run") && e.contains("--resume"), "{e}");
        Folder::create(Some(&out), "x", true).unwrap();
        assert!(!folder.file(file::METRICS).exists() && folder.file("notes.txt").exists());
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
