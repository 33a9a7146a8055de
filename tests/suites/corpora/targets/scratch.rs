//! Places for files.

use std::cell::OnceCell;
use std::path::Path;

thread_local! {
    static FOLDER: OnceCell<tempfile::TempDir> = const { OnceCell::new() };
}

/// Hands a file with these bytes to `look`. The same place serves again and again.
pub fn with_file<T>(bytes: &[u8], look: impl FnOnce(&Path) -> T) -> T {
    FOLDER.with(|folder| {
        let folder = folder.get_or_init(|| tempfile::tempdir().expect("a folder"));
        let path = folder.path().join("input");
        std::fs::write(&path, bytes).expect("a file");
        look(&path)
    })
}

/// Hands a folder of its own that holds one file to `look`.
pub fn with_folder<T>(name: &str, bytes: &[u8], look: impl FnOnce(&Path) -> T) -> T {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join(name), bytes).expect("a file");
    look(folder.path())
}
