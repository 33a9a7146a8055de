//! Paths that hold wherever a command is started, and how people are shown them.

use std::path::{Component, Path, PathBuf};

/// The same place from any folder: from the root on, without `.`, and without `..` behind folders that are there. Behind
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

#[cfg(test)]
mod tests {
    use super::*;

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
        // A `..` that stays protects those behind it.
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
