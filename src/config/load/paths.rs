//! Where the files are that a configuration names: paths that hold wherever a command is started, and how people are shown
//! them.

use std::path::{Component, Path, PathBuf};

use crate::config::text::diagnostics::{SourceKind, Sources, Span};
use crate::files::pattern;

/// Folders above a configuration in which the files that it names are looked for: `configs/` and one folder inside of it
/// stand side by side with `models/`.
const FOLDERS_ABOVE: usize = 2;

/// The same place from any folder: from the root on, without `.`, and without `..` after folders that are there. After
/// a link `..` leads to where the link points, so there it stays. What has no such form (the current folder is gone, or
/// is no Unicode, which a configuration could not hold) stays as it is.
pub fn absolute(path: &Path) -> PathBuf {
    let Ok(whole) = std::path::absolute(path) else { return path.to_path_buf() };
    let mut clean = PathBuf::new();
    for part in whole.components() {
        let folder = || {
            matches!(clean.components().next_back(), Some(Component::Normal(_) | Component::RootDir))
                && clean.symlink_metadata().is_ok_and(|meta| meta.is_dir())
        };
        match part {
            // Above the root is the root.
            Component::ParentDir if folder() => drop(clean.pop()),
            part => clean.push(part),
        }
    }
    if clean.to_str().is_some() { clean } else { path.to_path_buf() }
}

/// The shorter way to say it: from the current folder, or as it is. Both lead to the same place for as long as the
/// program runs, for it never leaves its folder.
pub fn shown(path: &Path) -> PathBuf {
    let short = std::env::current_dir().ok().and_then(|here| from(&here, path));
    short.filter(|short| short.as_os_str().len() < path.as_os_str().len()).unwrap_or_else(|| path.to_path_buf())
}

/// The way from `here`, which has no links in it, to `path`.
fn from(here: &Path, path: &Path) -> Option<PathBuf> {
    if path.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    let common = here.components().zip(path.components()).take_while(|(a, b)| a == b).count();
    if common == 0 {
        return None;
    }
    let up = here.components().skip(common).map(|_| Component::ParentDir);
    let way: PathBuf = up.chain(path.components().skip(common)).collect();
    Some(if way.as_os_str().is_empty() { PathBuf::from(".") } else { way })
}

/// Where a file that a value names is, or one of those that its pattern stands for: beside the file that names it, from the current directory, or in one of the
/// two folders above that file, whichever has it first; as written if none has. Absolute, so that it is the same file
/// from wherever it is looked for later.
pub(super) fn place(sources: &Sources, written: &str, span: Span) -> PathBuf {
    match sources.get(span.source).kind {
        SourceKind::Effective if Path::new(written).is_absolute() => PathBuf::from(written),
        SourceKind::Effective => absolute(Path::new(written)),
        SourceKind::File | SourceKind::Program | SourceKind::Set => absolute(&locate(sources, written, span)),
    }
}

/// The same, as messages show it.
pub(super) fn locate(sources: &Sources, written: &str, span: Span) -> PathBuf {
    let beside = beside(sources, written, span);
    let here = PathBuf::from(written);
    // `**` would go through all that lies below the folders above.
    let above = if written.contains("**") { Vec::new() } else { above(sources, written, span) };
    [beside, here.clone()].into_iter().chain(above).find(|place| pattern::is_any_there(place)).unwrap_or(here)
}

/// A path taken from the folder of the file that names it; from the current directory on the command line.
pub(super) fn beside(sources: &Sources, written: &str, span: Span) -> PathBuf {
    let source = sources.get(span.source);
    match (source.kind, Path::new(&source.name).parent()) {
        (SourceKind::File, Some(folder)) => folder.join(written),
        _ => PathBuf::from(written),
    }
}

/// The same path from the folders above that of the file that names it, the nearest first; nothing on the command line.
pub(super) fn above(sources: &Sources, written: &str, span: Span) -> Vec<PathBuf> {
    let source = sources.get(span.source);
    if source.kind != SourceKind::File {
        return Vec::new();
    }
    // The name may be as short as `mnist.toml`. Only the full path has the folders above the current directory.
    let Ok(file) = Path::new(&source.name).canonicalize() else { return Vec::new() };
    file.ancestors().skip(2).take(FOLDERS_ABOVE).map(|folder| folder.join(written)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn relative_paths_become_absolute_and_clean() {
        let here = std::env::current_dir().expect("there");
        assert_eq!(absolute(Path::new("src/../Cargo.toml")), here.join("Cargo.toml"));
        assert_eq!(absolute(Path::new("./src/./config/../config/")), here.join("src/config"));
        assert_eq!(absolute(Path::new("src/../src/../src/x")), here.join("src/x"));
        // Not there: nothing is known of it.
        assert_eq!(absolute(Path::new("nowhere/../x")), here.join("nowhere/../x"));
        assert_eq!(absolute(Path::new("/../..")), Path::new("/"));
        assert_eq!(absolute(Path::new("")), Path::new(""));
        let once = absolute(Path::new("nowhere/../../src/../x"));
        assert_eq!(absolute(&once), once);
    }

    #[cfg(unix)]
    #[test]
    fn what_a_link_leads_to_is_not_lost() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("far/away")).expect("made");
        std::os::unix::fs::symlink("far/away", dir.path().join("link")).expect("made");
        let path = dir.path().join("link/../x");
        assert_eq!(absolute(&path), path, "it is `far/x`, not `x`");
        assert_eq!(absolute(&dir.path().join("far/away/../x")), dir.path().join("far/x"));
        // A `..` that stays protects those after it.
        let path = dir.path().join("link/../../x");
        assert_eq!(absolute(&path), path);
    }

    #[test]
    fn people_are_shown_the_shorter_form() {
        let here = std::env::current_dir().expect("there");
        assert_eq!(shown(&here.join("data/mnist")), Path::new("data/mnist"));
        assert_eq!(shown(&here), Path::new("."));
        assert_eq!(shown(Path::new("data/mnist")), Path::new("data/mnist"));
        assert_eq!(shown(Path::new("/x")), Path::new("/x"));
        assert_eq!(from(Path::new("/a/b/c"), Path::new("/a/b/d/e")), Some("../d/e".into()));
        assert_eq!(from(Path::new("/a/b"), Path::new("/a/b/../c")), None);
    }
}
