//! A run's folder: where it is, what lies in it, and that one run at a time writes there.

mod lock;
mod staging;

pub use lock::{InUse, never_elsewhere};

use crate::checkpoint::{self, FileKind};
use crate::files::durable;
use anyhow::{Context, Result, bail};
use lock::{Lock, Refused};
use std::fs;
use std::path::{Path, PathBuf};

/// The files of a run, by name.
pub mod file {
    /// The effective configuration.
    pub const CONFIG: &str = "config.toml";
    /// One JSON object a line.
    pub const METRICS: &str = "metrics.jsonl";
    /// The same as a table.
    pub const CSV: &str = "metrics.csv";
    /// The folder of event files.
    pub const TENSORBOARD: &str = "tensorboard";
    /// The newest checkpoint.
    pub const LAST: &str = "last.safetensors";
    /// The best checkpoint by the monitored figure.
    pub const BEST: &str = "best.safetensors";
    /// The page about the run, if one was asked for.
    pub const REPORT: &str = "report.html";
}

/// Whether a run leaves files of this name.
pub fn is_run_file(name: &str) -> bool {
    FileKind::of(name).is_some() || [file::CONFIG, file::METRICS, file::CSV, file::TENSORBOARD].contains(&name)
}

/// The folder of a run.
#[derive(Debug)]
pub struct Folder {
    /// Its path.
    pub path: PathBuf,
    /// The path is the next free number, which another run may take in the meantime.
    numbered: bool,
    /// An earlier run is still there, and the files of this one lie apart from it.
    staged: bool,
    lock: Option<Lock>,
    /// Why there is no lock, though there should be.
    unlocked: Option<String>,
}

/// A new run cannot be in this folder.
#[derive(Debug)]
pub enum Taken {
    /// It holds another run.
    Run(PathBuf),
    /// It holds a file or folder of this path, whose name is that of a file of a run, and no run.
    File(PathBuf),
    /// It is this, or lies below it, which is no folder.
    NoFolder(PathBuf),
}

impl std::fmt::Display for Taken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Taken::Run(folder) => write!(
                f,
                "`{0}` already holds a run\nhelp: continue it with `runner train --resume {0}`, start anew in its place with --force, \
                 or choose another folder with --out",
                folder.display()
            ),
            Taken::File(file) => write!(
                f,
                "`{}` is there, and a run in this folder would write to that name\nhelp: choose another folder with --out, or move it",
                file.display()
            ),
            Taken::NoFolder(file) => {
                write!(f, "`{}` is no folder, and a run is one\nhelp: choose another with --out", file.display())
            }
        }
    }
}

/// What a new run may find in its folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaces {
    /// No file of a run.
    Nothing,
    /// A run, whose files it replaces.
    Run,
    /// A folder of runs, such as folds, with a configuration of its own.
    Runs,
}

impl std::error::Error for Taken {}

impl Folder {
    fn at(path: PathBuf, numbered: bool) -> Folder {
        Folder { path, numbered, staged: false, lock: None, unlocked: None }
    }

    /// The folder for a new run: `out`, else the next number under `runs/<name>`. A folder that is there is locked; it may
    /// hold what the new run `replaces`. Nothing else is changed on disk.
    ///
    /// # Errors
    /// [`InUse`], [`Taken`]; the folder or `runs/<name>` cannot be read.
    pub fn new(out: Option<&Path>, name: &str, replaces: Replaces) -> Result<Folder> {
        let mut folder = match out {
            Some(p) => Folder::at(p.to_path_buf(), false),
            // Whether the number is still free then, shows when the folder is made.
            None => return Folder::numbered(&Path::new("runs").join(name)),
        };
        if folder.path.is_dir() {
            folder.lock()?;
        }
        folder.expect_free(replaces)?;
        Ok(folder)
    }

    fn expect_free(&self, replaces: Replaces) -> Result<()> {
        if let Some(there) = self.path.ancestors().find(|path| path.exists()).filter(|there| !there.is_dir()) {
            return Err(Taken::NoFolder(there.to_owned()).into());
        }
        let taken = match (self.holds_run()?, replaces) {
            (true, Replaces::Nothing) => Some(Taken::Run(self.path.clone())),
            (true, Replaces::Run | Replaces::Runs) | (false, Replaces::Runs) => None,
            // A user's own `config.toml`, or event files of another program.
            (false, Replaces::Nothing | Replaces::Run) => self.run_files()?.into_iter().next().map(Taken::File),
        };
        taken.map_or(Ok(()), |taken| Err(taken.into()))
    }

    /// The folder of the next number in `parent`.
    fn numbered(parent: &Path) -> Result<Folder> {
        Ok(Folder::at(next_number(parent)?, true))
    }

    /// Refuses a folder, one that is named, that [`Folder::new`] would refuse for the run in it. Nothing is changed on disk.
    ///
    /// # Errors
    /// [`Taken`].
    pub fn require_free(out: Option<&Path>, replaces: Replaces) -> Result<()> {
        out.map_or(Ok(()), |path| Folder::at(path.to_path_buf(), false).expect_free(replaces))
    }

    /// The folder of a run to continue, locked: `path`, else the newest under `runs/<name>`.
    ///
    /// # Errors
    /// There is none; [`InUse`].
    pub fn existing(path: Option<&Path>, name: &str) -> Result<Folder> {
        let path = match path {
            Some(p) if p.as_os_str().is_empty() => PathBuf::from("."),
            Some(p) => p.to_path_buf(),
            None => {
                let parent = Path::new("runs").join(name);
                let newest = numbers(&parent)?.into_iter().max();
                let Some(n) = newest else {
                    bail!("there is no run under `{}` to continue\nhelp: name its folder with --out", parent.display())
                };
                parent.join(n.to_string())
            }
        };
        match fs::metadata(&path) {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) => bail!("there is no run to continue in `{}`: it is not a folder", path.display()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                bail!("there is no run to continue in `{}`: no such folder", path.display())
            }
            Err(e) => {
                return Err(e).with_context(|| format!("cannot look at the run's folder `{}`", path.display()));
            }
        }
        let mut folder = Folder::at(path, false);
        folder.lock()?;
        folder.recover()?;
        Ok(folder)
    }

    /// Whether a run has left files there.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn holds_run(&self) -> Result<bool> {
        let ready = staging::is_ready(&self.path)
            .with_context(|| format!("cannot look for a run in `{}`", self.path.display()))?;
        // Other names, such as `config.toml`, may be those of files of the user.
        Ok(ready || [file::METRICS, file::LAST].iter().any(|name| self.path.join(name).is_file()))
    }

    /// Makes the folder ready for a new run. An earlier run in it, which only `force` allows, stays whole until
    /// [`Folder::saved`]. To be called when nothing else can fail.
    ///
    /// # Errors
    /// The folder cannot be made or written; [`InUse`] and [`Taken`], if another was faster.
    pub fn claim(&mut self, force: bool) -> Result<()> {
        if let (true, Some(parent)) = (self.numbered, self.path.parent().map(Path::to_path_buf)) {
            let cannot = || format!("cannot make the folder `{}`", parent.display());
            durable::create_folders(&parent).with_context(cannot)?;
            // Another run may take the number, or look into the new folder, at any instant: the later one goes on to the next.
            loop {
                match fs::create_dir(&self.path) {
                    Ok(()) => match self.lock() {
                        Err(e) if e.is::<InUse>() => {}
                        locked => break locked?,
                    },
                    Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                    Err(e) => {
                        let cannot = || format!("cannot make the run's folder `{}`", self.path.display());
                        return Err(e).with_context(cannot);
                    }
                }
                self.path = next_number(&parent)?;
            }
            durable::sync_if_readable(&parent).with_context(cannot)?;
        } else {
            durable::create_folders(&self.path)
                .with_context(|| format!("cannot make the run's folder `{}`", self.path.display()))?;
        }
        self.lock()?;
        self.recover()?;
        self.remove_unfinished()?;
        if !self.holds_run()? {
            return Ok(());
        }
        if !force {
            return Err(Taken::Run(self.path.clone()).into());
        }
        let cannot = || format!("cannot start anew in `{}`", self.path.display());
        if let Some(path) = staging::in_the_way(&self.path).with_context(cannot)? {
            bail!(
                "`{}` is a folder, where a run has a file\nhelp: move it, or choose another folder with --out",
                path.display()
            );
        }
        staging::begin(&self.path).with_context(cannot)?;
        self.staged = true;
        Ok(())
    }

    /// Whether an earlier run is still there, and will be until this one has saved a checkpoint.
    pub fn keeps_another(&self) -> bool {
        self.staged
    }

    /// To be called when the run has its first durable checkpoint, `last`: from now on the folder is its own.
    ///
    /// # Errors
    /// The files of the earlier run cannot be removed, or those of this one not moved.
    pub fn saved(&mut self) -> Result<bool> {
        if !self.staged {
            return Ok(false);
        }
        // Done or not, what is ready is not to be thrown away.
        self.staged = false;
        staging::commit(&self.path)
            .with_context(|| format!("cannot put the new run in the place of the one in `{}`", self.path.display()))?;
        Ok(true)
    }

    /// Why the folder has no lock, if that is worth a warning; only the first time.
    pub fn unlocked(&mut self) -> Option<String> {
        self.unlocked.take()
    }

    /// Gives the folder back to other processes.
    pub fn unlock(&mut self) {
        self.lock = None;
    }

    fn lock(&mut self) -> Result<()> {
        if self.lock.is_some() {
            return Ok(());
        }
        let path = self.path.display();
        match Lock::take(&self.path) {
            Ok(lock) => self.lock = Some(lock),
            Err(Refused::InUse(held)) => return Err(held.into()),
            Err(Refused::NoLocks(e)) => {
                self.unlocked =
                    Some(format!("`{path}` cannot be locked ({e}): see to it that no other run writes there"));
            }
            Err(Refused::Failed(e)) => {
                return Err(e).with_context(|| format!("cannot lock the run's folder: `{path}/{}`", lock::LOCK));
            }
        }
        Ok(())
    }

    /// Finishes the replacement of an older run, if the run that began it was killed.
    fn recover(&self) -> Result<()> {
        staging::recover(&self.path)
            .with_context(|| format!("cannot finish what was begun in `{}`", self.path.display()))
    }

    /// Removes what writes that were cut off have left.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn remove_unfinished(&self) -> Result<()> {
        let remove = || {
            checkpoint::remove_unfinished(&self.path)?;
            for entry in fs::read_dir(&self.path)? {
                let entry = entry?;
                let name = entry.file_name();
                let of = name.to_str().and_then(durable::written_as);
                if of.is_some_and(|of| [file::CONFIG, file::METRICS, file::CSV].contains(&of)) {
                    durable::remove(&entry.path())?;
                }
            }
            Ok::<(), std::io::Error>(())
        };
        remove().with_context(|| format!("cannot remove unfinished files in `{}`", self.path.display()))
    }

    /// Removes all `step-N` checkpoints but the newest `keep`.
    ///
    /// # Errors
    /// The folder cannot be read, or a file cannot be removed.
    pub fn prune(&self, keep: usize) -> Result<()> {
        checkpoint::prune(&self.place(), keep)
            .map(|_| ())
            .with_context(|| format!("cannot remove old checkpoints in `{}`", self.path.display()))
    }

    /// Removes the checkpoints of a later place in the run than `epoch` and `batch`, from where another course is taken:
    /// they would be taken for its newest. The names of the removed.
    ///
    /// # Errors
    /// The folder cannot be read, or a file cannot be removed.
    pub fn remove_later(&self, epoch: u64, batch: u64) -> Result<Vec<String>> {
        self.remove_checkpoints(|meta| (meta.epoch, meta.batch) > (epoch, batch))
    }

    /// Removes a `best` that no epoch's end has brought about: the evaluation at `max_steps` stands in for one, and a run
    /// that goes on has not seen it. To be called when `last` is there.
    ///
    /// # Errors
    /// As for [`Folder::remove_later`].
    pub fn remove_provisional_best(&self) -> Result<()> {
        // A `best` of an epoch's end knows what it is the best of.
        let best = self.file(file::BEST);
        if best.is_file() && checkpoint::verify(&best).is_ok_and(|meta| meta.best.is_none()) {
            durable::remove(&best).with_context(|| format!("cannot remove `{}`", best.display()))?;
        }
        Ok(())
    }

    fn remove_checkpoints(&self, unwanted: impl Fn(&checkpoint::Meta) -> bool) -> Result<Vec<String>> {
        let mut removed = Vec::new();
        for file in self.run_files()?.into_iter().filter(|f| f.extension().is_some_and(|e| e == "safetensors")) {
            // What cannot be read is never taken for anything.
            if checkpoint::verify(&file).is_ok_and(|meta| unwanted(&meta)) {
                fs::remove_file(&file).with_context(|| format!("cannot remove `{}`", file.display()))?;
                removed.extend(file.file_name().map(|n| n.to_string_lossy().into_owned()));
            }
        }
        Ok(removed)
    }

    /// The path of a file of this run.
    pub fn file(&self, name: &str) -> PathBuf {
        self.place().join(name)
    }

    /// Where the files of this run are, for now.
    fn place(&self) -> PathBuf {
        if self.staged { self.path.join(staging::NEW) } else { self.path.clone() }
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
            if is_run_file(&entry.file_name().to_string_lossy()) {
                found.push(entry.path());
            }
        }
        Ok(found)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.staged {
            // The run has ended without a checkpoint; the earlier one goes on being there.
            let _ = staging::discard(&self.path);
        }
    }
}

/// Whether a folder looks like that of a run.
pub fn is_run(folder: &Path) -> bool {
    Folder::at(folder.to_path_buf(), false).holds_run().unwrap_or(false)
}

/// Whether a process is at work in the folder of a run.
pub fn is_at_work(folder: &Path) -> bool {
    lock::is_held(folder)
}

/// Where the files are of a new run that was taking the place of the one in a folder, if a process was killed, or is at work, in between.
pub fn takes_its_place(folder: &Path) -> Option<PathBuf> {
    staging::is_ready(folder).unwrap_or(false).then(|| folder.join(staging::NEW))
}

/// Whether the last process that was at work in the folder of a run did not live to say so.
pub fn was_killed(folder: &Path) -> bool {
    folder.join(lock::LOCK).is_file()
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
    let next = n
        .checked_add(1)
        .with_context(|| format!("there is no number after {n} for a folder in `{}`", parent.display()))?;
    Ok(parent.join(next.to_string()))
}

#[cfg(test)]
mod tests;
