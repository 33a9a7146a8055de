//! Which checkpoints a run's folder keeps, and which one a resumed run takes.

use super::error::CheckpointError;
use super::format::{peek_step, verify};
use super::meta::Meta;
use crate::files::durable;
use std::cmp::Reverse;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A checkpoint's part in the run, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// `last.safetensors`: the newest state, always replaced.
    Last,
    /// `best.safetensors`: the best by the monitored figure.
    Best,
    /// `step-N.safetensors`: after N steps.
    Step(u64),
}

impl FileKind {
    /// The part that a file's name stands for; `None` for other files, such as the temporary ones of interrupted writes.
    pub fn of(name: &str) -> Option<FileKind> {
        let stem = name.strip_suffix(".safetensors")?;
        match stem {
            "last" => Some(FileKind::Last),
            "best" => Some(FileKind::Best),
            _ => {
                let step = stem.strip_prefix("step-")?.parse().ok()?;
                // Only the spelling that is written: not `step-007`, not `step-+7`.
                Some(FileKind::Step(step)).filter(|k| k.to_string() == name)
            }
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileKind::Last => write!(f, "last.safetensors"),
            FileKind::Best => write!(f, "best.safetensors"),
            FileKind::Step(n) => write!(f, "step-{n}.safetensors"),
        }
    }
}

/// The names among `names` that are `step-N` checkpoints older than the newest `keep`, oldest first.
pub fn superseded<'a>(names: impl IntoIterator<Item = &'a str>, keep: usize) -> Vec<&'a str> {
    let mut steps: Vec<(u64, &str)> = names
        .into_iter()
        .filter_map(|name| match FileKind::of(name) {
            Some(FileKind::Step(n)) => Some((n, name)),
            _ => None,
        })
        .collect();
    steps.sort_unstable();
    steps.truncate(steps.len().saturating_sub(keep));
    steps.into_iter().map(|(_, name)| name).collect()
}

/// Deletes the `step-N` checkpoints in `folder` older than the newest `keep`; returns what it deleted.
///
/// # Errors
/// The folder cannot be read or a file cannot be deleted.
pub fn prune(folder: &Path, keep: usize) -> io::Result<Vec<PathBuf>> {
    let names = names(folder)?;
    let mut deleted = Vec::new();
    for name in superseded(names.iter().map(String::as_str), keep) {
        let path = folder.join(name);
        fs::remove_file(&path)?;
        deleted.push(path);
    }
    Ok(deleted)
}

/// Deletes what writes that were cut off have left in `folder`; returns what it deleted. For a run that begins, as long
/// as no other writes there.
///
/// # Errors
/// The folder cannot be read or a file cannot be deleted.
pub fn remove_unfinished(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut deleted = Vec::new();
    for name in names(folder)? {
        if durable::written_as(&name).and_then(FileKind::of).is_some() {
            let path = folder.join(name);
            fs::remove_file(&path)?;
            deleted.push(path);
        }
    }
    Ok(deleted)
}

/// The newest checkpoint of a run.
#[derive(Debug)]
pub struct Newest {
    /// Its file and the run's state; `None` if no whole checkpoint was found.
    pub found: Option<(PathBuf, Meta)>,
    /// Newer ones, or ones of unknown age, that were refused.
    pub refused: Vec<CheckpointError>,
}

/// The checkpoint in `folder` with the most steps, among those that are whole. At equal steps `last` comes before
/// `step-N` before `best`. Only names that a run writes are looked at.
///
/// # Errors
/// The folder cannot be read.
pub fn newest_whole(folder: &Path) -> io::Result<Newest> {
    let mut candidates = Vec::new();
    let mut refused = Vec::new();
    for name in names(folder)? {
        let Some(kind) = FileKind::of(&name) else { continue };
        let path = folder.join(&name);
        let rank = match kind {
            FileKind::Last => 0,
            FileKind::Step(_) => 1,
            FileKind::Best => 2,
        };
        match peek_step(&path) {
            Ok(step) => candidates.push((Reverse(step), rank, path)),
            Err(e) => refused.push(e),
        }
    }
    candidates.sort();
    for (_, _, path) in candidates {
        match verify(&path) {
            Ok(meta) => return Ok(Newest { found: Some((path, meta)), refused }),
            Err(e) => refused.push(e),
        }
    }
    Ok(Newest { found: None, refused })
}

fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        // A name that is no UTF-8 is none of ours.
        names.extend(entry?.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::super::{Meta, Tensor, write};
    use super::*;

    fn save(folder: &Path, kind: FileKind, step: u64) -> PathBuf {
        let path = folder.join(kind.to_string());
        let mut meta = Meta::new("seed = 1", 1);
        meta.step = step;
        write(&path, &[Tensor::from_f32([2], &[step as f32, 1.0]).view("w")], &meta).unwrap();
        path
    }

    #[test]
    fn names_are_distinguished() {
        for kind in [FileKind::Last, FileKind::Best, FileKind::Step(0), FileKind::Step(u64::MAX)] {
            assert_eq!(FileKind::of(&kind.to_string()), Some(kind));
        }
        for name in [
            "step-007.safetensors",
            "step-+7.safetensors",
            "step-.safetensors",
            "step-99999999999999999999.safetensors",
            ".last.safetensors.tmp-12",
            "last.safetensors.tmp-12",
            "last",
            "other.safetensors",
            "",
        ] {
            assert_eq!(FileKind::of(name), None, "{name}");
        }
    }

    #[test]
    fn the_newest_steps_are_kept() {
        let names =
            ["step-9.safetensors", "step-100.safetensors", "last.safetensors", "step-20.safetensors", "notes.txt"];
        assert_eq!(superseded(names, 1), ["step-9.safetensors", "step-20.safetensors"]);
        assert_eq!(superseded(names, 3), [""; 0]);
        assert_eq!(superseded(names, 0).len(), 3);
    }

    #[test]
    fn prune_touches_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        for n in [1, 2, 10, 11] {
            save(dir.path(), FileKind::Step(n), n);
        }
        save(dir.path(), FileKind::Last, 11);
        fs::write(dir.path().join("step-1.txt"), "notes").unwrap();
        let deleted = prune(dir.path(), 2).unwrap();
        assert_eq!(deleted, [dir.path().join("step-1.safetensors"), dir.path().join("step-2.safetensors")]);
        assert_eq!(
            names(dir.path()).unwrap(),
            ["last.safetensors", "step-1.txt", "step-10.safetensors", "step-11.safetensors"]
        );
    }

    #[test]
    fn broken_and_unfinished_files_are_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let old = save(dir.path(), FileKind::Step(5), 5);
        save(dir.path(), FileKind::Best, 5);
        let flipped = save(dir.path(), FileKind::Last, 9);
        let cut = save(dir.path(), FileKind::Step(8), 8);
        let mut bytes = fs::read(&flipped).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&flipped, &bytes).unwrap();
        fs::write(&cut, &bytes[..20]).unwrap();
        // A crash in the middle of a write leaves this.
        fs::write(dir.path().join(".last.safetensors.tmp-77"), &bytes[..bytes.len() / 2]).unwrap();
        let newest = newest_whole(dir.path()).unwrap();
        let (path, checkpoint) = newest.found.unwrap();
        assert_eq!((path, checkpoint.step), (old, 5));
        let mut refused: Vec<PathBuf> = newest.refused.into_iter().map(|e| e.path).collect();
        refused.sort();
        assert_eq!(refused, [flipped, cut]);
    }

    #[test]
    fn what_a_crash_left_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        save(dir.path(), FileKind::Last, 1);
        let left = [".last.safetensors.tmp-77", ".step-5.safetensors.tmp-1234"];
        let others =
            [".last.safetensors.tmp-", ".notes.txt.tmp-77", "last.safetensors.tmp-77", ".last.safetensors.tmp-7x"];
        for name in left.iter().chain(&others) {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(remove_unfinished(dir.path()).unwrap(), left.map(|name| dir.path().join(name)));
        assert_eq!(names(dir.path()).unwrap().len(), 1 + others.len());
    }

    #[test]
    fn last_is_preferred_at_equal_steps() {
        let dir = tempfile::tempdir().unwrap();
        save(dir.path(), FileKind::Best, 3);
        save(dir.path(), FileKind::Step(3), 3);
        let last = save(dir.path(), FileKind::Last, 3);
        assert_eq!(newest_whole(dir.path()).unwrap().found.unwrap().0, last);
        let empty = tempfile::tempdir().unwrap();
        assert!(newest_whole(empty.path()).unwrap().found.is_none());
    }
}
