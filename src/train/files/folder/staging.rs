//! A new run in the place of an old one: until its first checkpoint is durable, its files lie in a folder of their own,
//! and the old run is whole. Then they take the old one's place, in steps that can be gone on with after a crash at any
//! instant: `ready.json` lists the new run's files, and is removed when all is done.

use super::{file, is_run_file};
use crate::files::durable;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The folder of the new run's files, in the run's.
pub const NEW: &str = ".new";
/// The list of what is to be put in the old run's place.
const READY: &str = "ready.json";

#[derive(Debug, Serialize, Deserialize)]
struct Ready {
    files: Vec<String>,
}

/// Takes steps, as many as it may: tests stop where a crash would.
#[derive(Debug, Clone)]
struct Steps(usize);

impl Steps {
    fn all() -> Steps {
        Steps(usize::MAX)
    }

    fn take(&mut self, step: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.0 = self.0.checked_sub(1).ok_or_else(|| io::Error::new(ErrorKind::Interrupted, "cut off"))?;
        step()
    }
}

/// Makes the folder for the files of a new run.
pub fn begin(run: &Path) -> io::Result<()> {
    fs::create_dir(run.join(NEW))
}

/// Whether a new run waits to take its place.
pub fn is_ready(run: &Path) -> io::Result<bool> {
    let new = run.join(NEW);
    match new.symlink_metadata() {
        // Through a link, nothing of ours.
        Ok(meta) => Ok(meta.is_dir() && is_there(&new.join(READY))?),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Whether there is something of this name. If that cannot be found out, it is an error, not a no.
fn is_there(path: &Path) -> io::Result<bool> {
    match path.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Puts the files of the new run, among them a durable checkpoint, in the place of the old one's.
pub fn commit(run: &Path) -> io::Result<()> {
    commit_in(run, &mut Steps::all())
}

/// After a crash: completes a replacement that was ready, and removes one that was not.
pub fn recover(run: &Path) -> io::Result<()> {
    recover_in(run, &mut Steps::all())
}

/// Removes the new run's files.
pub fn discard(run: &Path) -> io::Result<()> {
    let new = run.join(NEW);
    match new.symlink_metadata() {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(&new),
        Ok(_) => fs::remove_file(&new),
    }
}

fn commit_in(run: &Path, steps: &mut Steps) -> io::Result<()> {
    let new = run.join(NEW);
    let files = names(&new)?;
    let text = serde_json::to_string(&Ready { files: files.clone() })?;
    steps.take(|| durable::sync(run))?;
    steps.take(|| durable::write(&new.join(READY), text.as_bytes()))?;
    finish(run, &files, steps)
}

fn recover_in(run: &Path, steps: &mut Steps) -> io::Result<()> {
    if !is_there(&run.join(NEW))? {
        return Ok(());
    }
    if !is_ready(run)? {
        return discard(run);
    }
    let ready = fs::read(run.join(NEW).join(READY))?;
    // It is durable before it has its name: one that cannot be read is none of ours.
    match serde_json::from_slice::<Ready>(&ready) {
        Ok(Ready { files }) if files.iter().all(|name| is_run_file(name)) => finish(run, &files, steps),
        _ => discard(run),
    }
}

/// Every step may have been taken before. Whatever is missing in the new folder is in its place already; and as long as
/// the list is there, the new run has written nothing else.
fn finish(run: &Path, files: &[String], steps: &mut Steps) -> io::Result<()> {
    let new = run.join(NEW);
    let waits = |name: &str| is_there(&new.join(name));
    let place = |name: &str| -> io::Result<()> {
        if waits(name)? {
            if name == file::TENSORBOARD {
                // A folder takes the place of an empty one alone.
                remove(&run.join(name))?;
            }
            fs::rename(new.join(name), run.join(name))?;
        }
        Ok(())
    };
    let sync = || durable::sync(run).and_then(|()| durable::sync(&new));
    // A folder never has the configuration of one run and the weights of another.
    if waits(file::CONFIG)? {
        steps.take(|| durable::remove(&run.join(file::CONFIG)))?;
        steps.take(sync)?;
    }
    for old in names(run)?.iter().filter(|name| !files.contains(name)) {
        steps.take(|| remove(&run.join(old)))?;
    }
    steps.take(|| place(file::LAST))?;
    for name in files.iter().filter(|name| *name != file::LAST && *name != file::CONFIG) {
        steps.take(|| place(name))?;
    }
    steps.take(sync)?;
    steps.take(|| place(file::CONFIG))?;
    steps.take(sync)?;
    steps.take(|| durable::remove(&new.join(READY)))?;
    steps.take(|| durable::sync(&new))?;
    steps.take(|| fs::remove_dir_all(&new))?;
    steps.take(|| durable::sync(run))
}

/// Removes a file, or the folder of event files with all that is in it.
fn remove(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        _ => durable::remove(path),
    }
}

/// The names of a run's files in a folder, sorted.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        // A page about the run is made by another command, and goes with it.
        let of_run = |name: &String| is_run_file(name) || name == file::REPORT;
        found.extend(entry?.file_name().into_string().ok().filter(of_run));
    }
    found.sort_unstable();
    Ok(found)
}

/// Files of a run in the way that are no files, and so could not be replaced.
pub fn in_the_way(run: &Path) -> io::Result<Option<PathBuf>> {
    let folders = names(run)?.into_iter().filter(|name| name != file::TENSORBOARD).map(|name| run.join(name));
    Ok(folders.into_iter().find(|path| path.symlink_metadata().is_ok_and(|meta| meta.is_dir())))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: [&str; 5] =
        ["best.safetensors", "config.toml", "last.safetensors", "metrics.jsonl", "step-5.safetensors"];

    fn fill(folder: &Path, names: &[&str], text: &str) {
        names.iter().for_each(|name| fs::write(folder.join(name), text).unwrap());
    }

    /// A folder with an old run and a user's notes, and a new run that has just saved `names`.
    fn staged(names: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fill(dir.path(), &OLD, "old");
        fill(dir.path(), &["notes.txt"], "mine");
        begin(dir.path()).unwrap();
        fill(&dir.path().join(NEW), names, "new");
        dir
    }

    /// Names and contents.
    fn content(folder: &Path) -> Vec<(String, String)> {
        let mut all: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap())
            .filter(|e| e.file_name() != NEW)
            .map(|e| (e.file_name().into_string().unwrap(), fs::read_to_string(e.path()).unwrap()))
            .collect();
        all.sort();
        all
    }

    fn expected(names: &[&str], text: &str) -> Vec<(String, String)> {
        let mut all: Vec<_> = names.iter().map(|n| (n.to_string(), text.to_string())).collect();
        all.push(("notes.txt".into(), "mine".into()));
        all.sort();
        all
    }

    #[test]
    fn a_crash_at_any_step_leaves_one_run_whole() {
        for new in [
            &["config.toml", "last.safetensors", "metrics.jsonl"][..],
            &["best.safetensors", "config.toml", "last.safetensors", "metrics.jsonl"],
            &["config.toml", "last.safetensors", "metrics.jsonl", "step-3.safetensors", "step-5.safetensors"],
        ] {
            let mut crashes = 0;
            loop {
                let dir = staged(new);
                let run = dir.path();
                let mut steps = Steps(crashes);
                let done = commit_in(run, &mut steps).is_ok();
                let config = fs::read_to_string(run.join(file::CONFIG)).ok();
                let last = fs::read_to_string(run.join(file::LAST)).unwrap();
                assert!(config.is_none_or(|text| text == last), "they belong together");
                // What follows may be cut off as well.
                for again in 0..3 {
                    let _ = recover_in(run, &mut Steps(again));
                }
                recover(run).unwrap();
                let whole = if crashes < 2 { expected(&OLD, "old") } else { expected(new, "new") };
                assert_eq!(content(run), whole, "cut off after {crashes} steps");
                assert!(!run.join(NEW).exists());
                if done {
                    break;
                }
                crashes += 1;
            }
            assert!(crashes > 10, "{crashes}");
        }
    }

    #[test]
    fn what_is_not_ready_is_removed() {
        let dir = staged(&["config.toml", "metrics.jsonl"]);
        fill(&dir.path().join(NEW), &[".ready.json.tmp-7"], "{");
        recover(dir.path()).unwrap();
        assert_eq!(content(dir.path()), expected(&OLD, "old"));
        recover(dir.path()).unwrap();
        // A list that names other files than a run's is not followed.
        begin(dir.path()).unwrap();
        for list in ["{\"files\":[\"../x\"]}", "{\"files\":[\"notes.txt\"]}", "nonsense"] {
            fill(&dir.path().join(NEW), &[READY], list);
            recover(dir.path()).unwrap();
            assert_eq!(content(dir.path()), expected(&OLD, "old"));
            begin(dir.path()).unwrap();
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_link_in_its_place_is_removed_alone() {
        let dir = tempfile::tempdir().unwrap();
        let far = dir.path().join("far");
        fs::create_dir(&far).unwrap();
        fill(&far, &[READY, "last.safetensors"], "{\"files\":[]}");
        let run = dir.path().join("run");
        fs::create_dir(&run).unwrap();
        std::os::unix::fs::symlink(&far, run.join(NEW)).unwrap();
        recover(&run).unwrap();
        assert!(!run.join(NEW).is_symlink() && far.join("last.safetensors").exists());
    }
}
