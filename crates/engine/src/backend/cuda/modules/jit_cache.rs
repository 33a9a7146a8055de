//! The cache in which the driver keeps what it has compiled: whether it can.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The kernels of a program take about this much of it.
const NEEDED: u64 = 32 << 20;

/// Why the driver compiles PTX anew at every start, with what can be done; `None` if it need not, as far as can be seen.
pub fn problem() -> Option<String> {
    problem_in(&|name| std::env::var_os(name))
}

fn problem_in(var: &dyn Fn(&str) -> Option<OsString>) -> Option<String> {
    let text = |name: &str| var(name).map(|v| v.to_string_lossy().trim().to_owned()).filter(|v| !v.is_empty());
    if text("CUDA_CACHE_DISABLE").is_some_and(|v| v != "0") {
        return Some("CUDA_CACHE_DISABLE is set: unset it".into());
    }
    if let Some(bytes) = text("CUDA_CACHE_MAXSIZE").and_then(|v| v.parse::<u64>().ok()).filter(|bytes| *bytes < NEEDED)
    {
        return Some(format!("CUDA_CACHE_MAXSIZE is {bytes}, too little: set it to {NEEDED} or more"));
    }
    let path = |name: &str| var(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let Some(folder) = path("CUDA_CACHE_PATH").or_else(|| Some(path("HOME")?.join(".nv/ComputeCache"))) else {
        return Some("there is no HOME for its cache: set CUDA_CACHE_PATH to a folder that can be written".into());
    };
    // What is not there yet is made by the driver.
    let there = folder.ancestors().find(|at| at.exists()).unwrap_or(Path::new("/"));
    let writable = there.is_dir() && can_be_written(there);
    (!writable).then(|| {
        format!("its cache cannot be written in {}: set CUDA_CACHE_PATH to a folder that can be", folder.display())
    })
}

#[cfg(unix)]
fn can_be_written(folder: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(folder.as_os_str().as_bytes()) else { return false };
    // SAFETY: a string with a zero byte at its end.
    unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) == 0 }
}

#[cfg(not(unix))]
fn can_be_written(folder: &Path) -> bool {
    folder.metadata().is_ok_and(|m| !m.permissions().readonly())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(set: &[(&str, &Path)]) -> Option<String> {
        problem_in(&|name| set.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_os_str().to_owned()))
    }

    #[test]
    fn what_keeps_the_driver_from_its_cache_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let home = ("HOME", dir.path());
        assert_eq!(with(&[home]), None);
        assert_eq!(with(&[home, ("CUDA_CACHE_DISABLE", Path::new("0"))]), None);
        assert!(with(&[home, ("CUDA_CACHE_DISABLE", Path::new("1"))]).unwrap().contains("CUDA_CACHE_DISABLE is set"));
        assert!(
            with(&[home, ("CUDA_CACHE_MAXSIZE", Path::new("1000"))]).unwrap().contains("CUDA_CACHE_MAXSIZE is 1000")
        );
        assert_eq!(with(&[home, ("CUDA_CACHE_MAXSIZE", Path::new("1073741824"))]), None);
        assert!(with(&[]).unwrap().contains("CUDA_CACHE_PATH"));
        let elsewhere = dir.path().join("made/by/the/driver");
        assert_eq!(with(&[("HOME", Path::new("/proc")), ("CUDA_CACHE_PATH", &elsewhere)]), None);
        // A file where a folder should be, and a read-only file system.
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(with(&[home, ("CUDA_CACHE_PATH", &file.join("cache"))]).unwrap().contains("cannot be written in"));
        if cfg!(target_os = "linux") {
            assert!(with(&[("HOME", Path::new("/proc/self"))]).unwrap().contains("/proc/self/.nv/ComputeCache"));
        }
    }
}
