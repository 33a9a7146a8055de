//! Where the user's caches are.

use std::ffi::OsString;
use std::path::PathBuf;

/// Our folder among the user's caches; `None` where the environment names none.
pub fn folder() -> Option<PathBuf> {
    folder_of(&|name| std::env::var_os(name))
}

/// The same, of an environment.
pub fn folder_of(var: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // What is not absolute counts for nothing, as the specification of these folders says.
    let absolute = |name| var(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(caches.join("runner"))
}
