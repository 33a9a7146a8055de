//! Whether files are those of the public set that they are taken for.

use super::digest::Digest;
use super::idx::{self, Idx};
use super::known::{File, Known};
use anyhow::{Result, anyhow};
use std::path::Path;

/// Reads an IDX file that must be the `at`-th of the set's; `count` and `shape` are its dimensions.
///
/// # Errors
/// It cannot be read, or is another file.
pub(super) fn read_idx(set: Known, at: usize, path: &Path, root: &Path, count: usize, shape: &[usize]) -> Result<Idx> {
    let dims: Vec<Option<usize>> = [count].iter().chain(shape).map(|d| Some(*d)).collect();
    let read = idx::read_digested(path, &dims).map_err(|e| match e.is::<idx::OtherShape>() {
        true => anyhow!("{e}: {}", not_the_set(set, root)),
        false => e,
    })?;
    let packed = set.files().iter().find(|f| f.name.strip_suffix(".gz") == Some(set.content()[at].name));
    // Files are read as they were published, nearly always, and those are smaller packed.
    if !packed.is_some_and(|f| read.file.is(f.sha256)) {
        check(set, &set.content()[at], path, root, &read.idx.digest())?;
    }
    Ok(read.idx)
}

/// That the content of the file at `path`, which has this digest, is that of `file`.
///
/// # Errors
/// It is not.
pub(super) fn check(set: Known, file: &File, path: &Path, root: &Path, digest: &Digest) -> Result<()> {
    if digest.is(file.sha256) {
        return Ok(());
    }
    let (place, title) = (path.display(), set.title());
    Err(match Known::identify(digest) {
        Some((other, _)) if other != set => anyhow!(
            "{place} is a file of {}, not of {title}: either say `source = \"{}\"` in `[data]`, or let `root` be the folder \
             with the files of {title}",
            other.title(),
            other.name()
        ),
        Some((_, name)) => anyhow!(
            "{place} holds what belongs into `{name}`: the files of {title} have been mixed up; delete them and fetch them \
             again (`{}`)",
            set.fetch_command(root)
        ),
        None => {
            anyhow!("{place} is not {title}'s `{}` (its SHA-256 is {digest}): {}", file.name, not_the_set(set, root))
        }
    })
}

/// What to do about a file that is none of the set.
pub(super) fn not_the_set(set: Known, root: &Path) -> String {
    format!(
        "it is damaged, or not of {}. Delete it and fetch it again (`{}`); for a set of your own in this \
         format say `verify = false` in `[data]`",
        set.title(),
        set.fetch_command(root)
    )
}
