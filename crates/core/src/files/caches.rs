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
    let of_system = || match std::env::consts::OS {
        "windows" => absolute("LOCALAPPDATA"),
        "macos" => Some(absolute("HOME")?.join("Library/Caches")),
        _ => Some(absolute("HOME")?.join(".cache")),
    };
    Some(absolute("XDG_CACHE_HOME").or_else(of_system)?.join("runner"))
}

/// Why there is no [`folder`], for a message.
pub fn why_none() -> &'static str {
    if cfg!(windows) {
        "neither XDG_CACHE_HOME nor LOCALAPPDATA names one"
    } else {
        "neither XDG_CACHE_HOME nor HOME names one"
    }
}
