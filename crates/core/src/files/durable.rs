//! Writing a file so that at any instant the old one or the new one is there, and that it lasts.

use super::unfinished::Listed;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Between the name and the process of a file that is being written.
const TEMPORARY: &str = ".tmp-";

/// Replaces a file or a link, or makes a new file, with what `fill` writes. The content is written in the same folder under the
/// name `.NAME.tmp-PID`, made durable and renamed.
///
/// # Errors
/// That of `fill`; the disk is full, or the like. The old file is whole then.
pub fn replace<E: From<io::Error>>(path: &Path, fill: impl FnOnce(&mut File) -> Result<(), E>) -> Result<(), E> {
    replace_like(path, None, |file| fill(file).map(|()| true)).map(|_| ())
}

/// As [`replace`], with the mode, the owner and the group of the `old` file; if `fill` says that there is nothing to be written, all stays
/// as it was. True if it was replaced.
///
/// # Errors
/// As for [`replace`]; owner and group cannot be kept.
pub(super) fn replace_like<E: From<io::Error>>(
    path: &Path,
    old: Option<&Metadata>,
    fill: impl FnOnce(&mut File) -> Result<bool, E>,
) -> Result<bool, E> {
    let temporary = temporary_name(path)?;
    let _listed = Listed::new(&temporary);
    let result = (|| -> Result<bool, E> {
        let mut file = create(&temporary)?;
        if let Some(old) = old {
            keep_access(&file, old)?;
        }
        if !fill(&mut file)? {
            return Ok(false);
        }
        file.sync_all()?;
        drop(file);
        fs::rename(&temporary, path)?;
        Ok(true)
    })();
    if !matches!(result, Ok(true)) {
        // The first error is the one worth reporting.
        let _ = fs::remove_file(&temporary);
    }
    let replaced = result?;
    if replaced {
        sync(folder_of(path))?;
    }
    Ok(replaced)
}

/// Gives a new file the owner, the group and the mode of an old one.
fn keep_access(file: &File, old: &Metadata) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, fchown};
        let new = file.metadata()?;
        if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
            fchown(file, Some(old.uid()), Some(old.gid())).map_err(|e| {
                let why = format!("the file there belongs to another user or group, which cannot be kept: {e}");
                io::Error::new(e.kind(), why)
            })?;
        }
    }
    file.set_permissions(old.permissions())
}

/// [`replace`] by `content`.
///
/// # Errors
/// As for [`replace`].
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    replace(path, |file| file.write_all(content))
}

/// Makes a new file, never one that a link leads to.
pub fn create(path: &Path) -> io::Result<File> {
    remove(path)?;
    File::create_new(path)
}

/// Removes a file, or a link itself, if there is one.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Where the new content of a file is written first.
pub fn temporary_name(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "no file's name"))?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!("{TEMPORARY}{}", std::process::id()));
    Ok(path.with_file_name(hidden))
}

/// Removes what is being written under such names, for a process that ends at once. It takes no memory and no lock: a handler of a signal may call it.
pub use super::unfinished::remove_all as remove_unfinished;

/// The name that a file would have been given once it had been written; `None` if `name` is not that of an unfinished one.
pub fn written_as(name: &str) -> Option<&str> {
    let (name, process) = name.strip_prefix('.')?.rsplit_once(TEMPORARY)?;
    (!process.is_empty() && process.bytes().all(|b| b.is_ascii_digit())).then_some(name)
}

/// The folder that a path is in.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes a folder, and those that it lies in, so that they last.
///
/// # Errors
/// One of them cannot be made.
pub fn create_folders(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|p| !p.as_os_str().is_empty() && !p.exists()).collect();
    fs::create_dir_all(path)?;
    let sync = |folder: &Path| {
        // The caller knows of the folders that it makes, not of the one around them.
        sync_if_readable(folder).map_err(|e| io::Error::new(e.kind(), format!("`{}`: {e}", folder.display())))
    };
    missing.iter().rev().try_for_each(|made| sync(folder_of(made)))
}

/// As [`sync`]; a folder in which one may make names and not read them is left to the file system.
pub fn sync_if_readable(folder: &Path) -> io::Result<()> {
    match sync(folder) {
        Err(e) if e.kind() == ErrorKind::PermissionDenied => Ok(()),
        done => done,
    }
}

/// Makes what was made, renamed or removed in `folder` last: the entries of a folder are data of the folder.
///
/// # Errors
/// The folder cannot be opened, or the disk refuses.
pub fn sync(folder: &Path) -> io::Result<()> {
    // Elsewhere folders cannot be opened for this; the file system orders its own journal.
    #[cfg(unix)]
    {
        // The folder of a bare name is the current one.
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        File::open(folder)?.sync_all()?;
    }
    let _ = folder;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        for text in ["one", "two, longer", ""] {
            write(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        fs::create_dir(dir.path().join("folder")).unwrap();
        assert!(write(&dir.path().join("folder"), b"x").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "what was begun is removed");
    }

    #[cfg(unix)]
    #[test]
    fn links_are_replaced_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, target) = (dir.path().join("config.toml"), dir.path().join("mine"));
        fs::write(&target, "mine").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        std::os::unix::fs::symlink(&target, temporary_name(&path).unwrap()).unwrap();
        write(&path, b"ours").unwrap();
        assert_eq!(
            (fs::read_to_string(&path).unwrap(), fs::read_to_string(&target).unwrap()),
            ("ours".into(), "mine".into())
        );
    }

    #[test]
    fn folders_are_made_with_all_that_they_lie_in() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/c");
        for _ in 0..2 {
            create_folders(&path).unwrap();
            assert!(path.is_dir());
        }
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(create_folders(&dir.path().join("file/b")).is_err());
    }

    #[test]
    fn unfinished_files_are_known_by_their_names() {
        let name = temporary_name(Path::new("r/config.toml")).unwrap();
        assert_eq!(written_as(name.file_name().unwrap().to_str().unwrap()), Some("config.toml"));
        for other in ["config.toml", ".config.toml.tmp-", ".config.toml.tmp-7x", "config.toml.tmp-7", ".x.toml.tmp-7"] {
            assert_ne!(written_as(other), Some("config.toml"), "{other}");
        }
    }
}
