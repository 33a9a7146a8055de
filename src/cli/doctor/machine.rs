//! The system, and what it allows this process.

use super::read;
use crate::cli::human_bytes;
use crate::system;
use std::path::Path;

/// Limits of `/proc/self/limits` that runs have met.
const LIMITS: [(&str, &str); 5] = [
    ("Max open files", "open files"),
    ("Max address space", "address space"),
    ("Max data size", "data size"),
    ("Max file size", "file size"),
    ("Max locked memory", "locked memory"),
];

/// Kernel, distribution, C library, and whether this is a container.
pub fn system() -> Vec<(String, String)> {
    let mut rows = vec![("platform".to_owned(), format!("{} {}", std::env::consts::OS, std::env::consts::ARCH))];
    let mut add = |name: &str, value: Option<String>| rows.extend(value.map(|value| (name.to_owned(), value)));
    add("kernel", system::kernel());
    add("distribution", system::release());
    add("C library", c_library());
    let container = [("/.dockerenv", "Docker"), ("/run/.containerenv", "Podman")];
    add("container", container.into_iter().find(|(path, _)| Path::new(path).exists()).map(|(_, name)| name.to_owned()));
    rows
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn c_library() -> Option<String> {
    // SAFETY: the function takes nothing, and returns a text that lasts as long as the program.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    Some(format!("GNU {}", version.to_string_lossy()))
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn c_library() -> Option<String> {
    cfg!(target_env = "musl").then(|| "musl, linked in".to_owned())
}

/// What control groups leave of the processors, and limits of the process that are not `unlimited`.
pub fn limits() -> Vec<(String, String)> {
    let mut rows = Vec::new();
    let group = read("/proc/self/cgroup").unwrap_or_default();
    let inside =
        group.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").trim_start_matches('/').to_owned();
    let quota = [format!("/sys/fs/cgroup/{inside}/cpu.max"), "/sys/fs/cgroup/cpu.max".to_owned()];
    if let Some(quota) = quota.into_iter().find_map(read).and_then(|text| share(&text)) {
        rows.push(("processors".to_owned(), quota));
    }
    let text = read("/proc/self/limits").unwrap_or_default();
    rows.extend(LIMITS.into_iter().filter_map(|(name, short)| Some((short.to_owned(), limit(&text, name)?))));
    rows
}

/// What `/proc/self/limits` says in the line of `name`, its soft limit; nothing if that is none.
fn limit(text: &str, name: &str) -> Option<String> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let [soft, _, unit @ ..] = &words[..] else { return None };
    // `unlimited` is no number.
    let number: usize = soft.parse().ok()?;
    Some(if unit == ["bytes"] { human_bytes(number) } else { number.to_string() })
}

/// What `cpu.max` says: microseconds of so many that may be used; nothing if there is no limit.
fn share(text: &str) -> Option<String> {
    let (quota, period) = text.split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0.0).then(|| format!("the control group may use {:.2} of them", quota / period))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_processors_are_read() {
        assert_eq!(share("150000 100000").as_deref(), Some("the control group may use 1.50 of them"));
        assert_eq!([share("max 100000"), share(""), share("1 0")], [None, None, None]);
        assert!(system()[0].1.contains(std::env::consts::ARCH));
    }

    #[test]
    fn limits_have_their_units() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max file size             unlimited            unlimited            bytes     \n\
                    Max open files            1024                 524288               files     \n\
                    Max locked memory         8388608              8388608              bytes     \n\
                    Max address space         17179869184          unlimited            bytes     \n\
                    Max nice priority         0                    0                              \n";
        let limits = LIMITS.map(|(name, _)| limit(text, name));
        let limits = limits.each_ref().map(Option::as_deref);
        assert_eq!(limits, [Some("1024"), Some("16.0 GiB"), None, None, Some("8.0 MiB")]);
        assert_eq!(limit(text, "Max nice priority").as_deref(), Some("0"));
    }
}
