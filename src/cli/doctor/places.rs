//! What a folder is on: the file system, and how much of it is free.

use super::read;
use crate::cli::human_bytes;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A folder that is written to.
pub struct Place {
    path: PathBuf,
    /// It is not there, and something above it was looked at.
    missing: bool,
    kind: Option<String>,
    free: Option<u64>,
    writable: bool,
}

impl Place {
    /// Looks at a folder, or at the first one above it that is there.
    pub fn of(path: PathBuf) -> Place {
        let there = path.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/")).to_path_buf();
        let missing = there != path;
        let real = there.canonicalize().unwrap_or_else(|_| there.clone());
        let kind = read("/proc/self/mountinfo").and_then(|mounts| file_system(&mounts, &real));
        // Modes do not show it if the file system is read-only or the user is root.
        let writable = tempfile::tempfile_in(&there).is_ok();
        Place { kind, free: free(&real), writable, missing, path }
    }

    /// A line of the page.
    pub fn text(&self) -> String {
        let mut parts = vec![self.kind.clone().unwrap_or_else(|| "unknown".into())];
        parts.extend(self.free.map(|free| format!("{} free", human_bytes(free as usize))));
        parts.extend((!self.writable).then(|| "cannot be written".to_owned()));
        parts.extend(self.missing.then(|| "not there yet".to_owned()));
        format!("{}: {}", self.path.display(), parts.join(", "))
    }

    /// The same for programs.
    pub fn json(&self, what: &str) -> Value {
        json!({
            "what": what,
            "path": self.path.to_string_lossy(),
            "type": self.kind,
            "free": self.free,
            "writable": self.writable,
            "there": !self.missing,
        })
    }
}

/// The type of the file system that a folder is on, by the lines of `/proc/self/mountinfo`: that of the innermost mount, and of several at one place the last.
fn file_system(mounts: &str, folder: &Path) -> Option<String> {
    let of_line = |line: &str| {
        let (before, behind) = line.split_once(" - ")?;
        let mount = PathBuf::from(unescaped(before.split(' ').nth(4)?));
        folder
            .starts_with(&mount)
            .then(|| (mount.components().count(), behind.split(' ').next().unwrap_or_default().to_owned()))
    };
    mounts.lines().filter_map(of_line).max_by_key(|(depth, _)| *depth).map(|(_, kind)| kind)
}

/// Spaces and the like are octal numbers there.
fn unescaped(text: &str) -> String {
    ["\\040", "\\011", "\\134"]
        .into_iter()
        .zip([" ", "\t", "\\"])
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Bytes that may still be written.
#[cfg(unix)]
fn free(path: &Path) -> Option<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: all bytes 0 are a valid value of this structure of numbers.
    let mut stats: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends in a zero byte, and the structure is ours.
    let done = unsafe { libc::statvfs(path.as_ptr(), &mut stats) };
    #[allow(clippy::unnecessary_cast)]
    (done == 0).then(|| stats.f_bavail as u64 * stats.f_frsize as u64)
}

#[cfg(not(unix))]
fn free(_: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_counts() {
        let mounts = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
            31 22 0:5 / /mnt/my\\040disk rw - nfs4 server:/x rw\n\
            32 22 0:6 / /mnt/my\\040disk/in rw shared:2 - tmpfs tmpfs rw\n33 22 0:7 / /tmp rw - tmpfs t rw\n34 22 0:8 / /tmp rw - xfs t rw\n";
        let kind = |path: &str| file_system(mounts, Path::new(path)).unwrap();
        assert_eq!(
            ["/", "/home", "/mnt/my disk", "/mnt/my disk/in/x", "/mnt/my"].map(kind),
            ["ext4", "ext4", "nfs4", "tmpfs", "ext4"]
        );
        assert_eq!(kind("/tmp/x"), "xfs");
        assert_eq!(file_system("nonsense", Path::new("/")), None);
        let place = tempfile::tempdir().unwrap();
        let text = Place::of(place.path().join("none")).text();
        assert!(text.contains("not there yet") && !text.contains("cannot be written"), "{text}");
    }
}
