//! Which folders are those of runs.

use super::datum::natural;
use super::folder::is_run;
use crate::config::nearest;
use crate::train::files::folder::file;
use anyhow::{Context, Result};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Where `train` puts its runs.
pub const RUNS: &str = "runs";
/// Folders within folders that are searched.
const DEPTH: usize = 8;

/// The folders of runs below `root`, or that itself, in the order of their names. Links are not followed.
///
/// # Errors
/// `root` cannot be read.
pub fn below(root: &Path) -> Result<Vec<PathBuf>> {
    if is_run(root) {
        return Ok(vec![root.to_path_buf()]);
    }
    let entries = fs::read_dir(root).with_context(|| format!("cannot read the folder `{}`", root.display()))?;
    let mut found = Vec::new();
    folders(entries).iter().for_each(|folder| search(folder, DEPTH, &mut found));
    found.sort_by(|a, b| natural(&a.to_string_lossy(), &b.to_string_lossy()));
    Ok(found)
}

fn search(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    if is_run(folder) {
        found.push(folder.to_path_buf());
    } else if depth > 0
        && let Ok(entries) = fs::read_dir(folder)
    {
        folders(entries).iter().for_each(|folder| search(folder, depth - 1, found));
    }
}

fn folders(entries: fs::ReadDir) -> Vec<PathBuf> {
    let is_folder = |entry: &fs::DirEntry| {
        entry.file_type().is_ok_and(|kind| kind.is_dir()) && !entry.file_name().to_string_lossy().starts_with('.')
    };
    entries.filter_map(Result::ok).filter(is_folder).map(|entry| entry.path()).collect()
}

/// The folder of the run that a word of the command line stands for: it, or the folder of one of its files.
///
/// # Errors
/// It is none: what it is instead, and which run was probably meant.
pub fn named(path: &Path) -> Result<PathBuf, String> {
    if is_run(path) {
        return Ok(path.to_path_buf());
    }
    let shown = path.display();
    if let Err(error) = fs::metadata(path)
        && !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
    {
        return Err(format!("cannot read `{shown}`: {error}"));
    }
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    };
    if path.is_file() {
        return match is_run(parent) {
            true => Ok(parent.to_path_buf()),
            false => Err(format!("`{shown}` is a file, not the folder of a run{}", suggestion(path))),
        };
    }
    if path.is_dir() {
        let inside = below(path).unwrap_or_default();
        return Err(match &inside[..] {
            [] => format!(
                "`{shown}` is not the folder of a run: it has neither `{}` nor `{}`{}",
                file::METRICS,
                file::LAST,
                suggestion(path)
            ),
            [one] => format!("`{shown}` is not the folder of a run, but has one in it\nhelp: name `{}`", one.display()),
            [.., last] => format!(
                "`{shown}` is not the folder of a run, but has {} in it\nhelp: name one of them, as `{}`; `runner runs {shown}` lists them",
                inside.len(),
                last.display()
            ),
        });
    }
    Err(format!("there is no run `{shown}`{}", suggestion(path)))
}

/// A line of help for a path at which there is no run: the run that was probably meant, or how to find it. Nothing if there are no
/// runs.
pub fn suggestion(path: &Path) -> String {
    let known: Vec<String> =
        below(Path::new(RUNS)).unwrap_or_default().iter().map(|path| path.to_string_lossy().into_owned()).collect();
    let word = path.to_string_lossy();
    let inside = format!("{RUNS}/{word}");
    let near = known.iter().find(|name| **name == inside).map(String::as_str);
    match near.or_else(|| nearest(&word, known.iter().map(String::as_str))) {
        Some(near) => format!("\nhelp: did you mean `{near}`?"),
        None if known.is_empty() => String::new(),
        None => "\nhelp: `runner runs` lists the runs that there are".into(),
    }
}
