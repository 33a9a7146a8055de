//! A configuration that comes through a pipe. A command may read its configuration several times, and a pipe gives its text once.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// What the pipes have given that this process has read.
static READ: Mutex<BTreeMap<(PathBuf, u64), Vec<u8>>> = Mutex::new(BTreeMap::new());

/// At most `most` bytes of a file, or of what a pipe gives or has given before.
///
/// # Errors
/// It cannot be read.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let metadata = fs::metadata(path)?;
    let read = || {
        let mut bytes = Vec::new();
        File::open(path)?.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    if metadata.is_file() || metadata.is_dir() {
        return read();
    }
    let mut known = READ.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (path.to_owned(), number(&metadata));
    if let Some(bytes) = known.get(&key) {
        return Ok(bytes.clone());
    }
    let bytes = read()?;
    known.insert(key, bytes.clone());
    Ok(bytes)
}

/// The inode: another pipe of the same name has another one.
fn number(metadata: &Metadata) -> u64 {
    #[cfg(unix)]
    return std::os::unix::fs::MetadataExt::ino(metadata);
    #[cfg(not(unix))]
    {
        let _ = metadata;
        0
    }
}
