//! One transfer over HTTP, continued where an earlier one ended.

use super::Failure;
use crate::files;
use anyhow::{Context, Result};
use std::fmt;
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use ureq::http::{StatusCode, header};

/// Another program is downloading the same file.
#[derive(Debug)]
pub struct Busy(PathBuf);

impl Busy {
    /// The file that holds what has come so far.
    pub fn part(&self) -> &Path {
        &self.0
    }

    /// The number of the process that downloads it, where the system has it.
    pub fn holder(&self) -> Option<u32> {
        #[cfg(target_os = "linux")]
        {
            use std::os::unix::fs::MetadataExt;
            let inode = std::fs::metadata(&self.0).ok()?.ino();
            holder_in(&std::fs::read_to_string("/proc/locks").ok()?, inode)
        }
        #[cfg(not(target_os = "linux"))]
        None
    }
}

/// The process that holds the lock of a file, in the list of all locks: `1: FLOCK ADVISORY WRITE 1234 08:01:5678 0 EOF`.
#[cfg(target_os = "linux")]
fn holder_in(locks: &str, inode: u64) -> Option<u32> {
    let ending = format!(":{inode}");
    let holds = |words: &[&str]| words.get(1) == Some(&"FLOCK") && words.get(5).is_some_and(|of| of.ends_with(&ending));
    let mut all = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    // 0 is one of another container.
    all.find(|words| holds(words))?.get(4)?.parse().ok().filter(|process| *process > 0)
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is being downloaded by another program: wait for it", self.0.display())
    }
}

impl std::error::Error for Busy {}

/// A file that is not whole yet.
pub(super) struct Part {
    file: File,
    path: PathBuf,
}

impl Part {
    /// Opens the file, or makes it. It is locked, since two programs that write to it would spoil it.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        // Some file systems know no locks; the checksum finds what goes wrong there.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(Busy(path.to_path_buf()).into());
        }
        Ok(Part { file, path: path.to_path_buf() })
    }

    /// Bytes that are there.
    pub fn len(&self) -> Result<u64> {
        let data = files::uninterrupted(|| self.file.metadata());
        Ok(data.with_context(|| format!("cannot read {}", self.path.display()))?.len())
    }

    /// Waits until what has been received is on the disk.
    pub fn sync(&self) -> Result<()> {
        self.file.sync_all().with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Discards what has been received.
    pub fn clear(&mut self) -> Result<()> {
        self.file.set_len(0).with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.seek(SeekFrom::End(0)).and_then(|_| self.file.write_all(bytes));
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// Brings the rest of a file of `total` bytes from `url` to `part`, with `token` where one is asked for. `progress` hears the bytes that are there, and
/// whether this is the transfer's begin. On a failure, `part` holds what has come so far.
pub(super) fn transfer(
    url: &str,
    token: Option<&str>,
    part: &mut Part,
    total: u64,
    progress: &mut dyn FnMut(u64, bool),
) -> Result<(), Failure> {
    let mut done = part.len().map_err(Failure::Local)?;
    if done > total {
        part.clear().map_err(Failure::Local)?;
        done = 0;
    }
    if done == total {
        progress(done, true);
        return Ok(());
    }
    let mut request = agent(url, true).get(url).header(header::ACCEPT_ENCODING, "identity");
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    if done > 0 {
        request = request.header(header::RANGE, format!("bytes={done}-"));
    }
    let mut response = request.call().map_err(|e| Failure::Remote(e.to_string()))?;
    match response.status() {
        StatusCode::PARTIAL_CONTENT if done > 0 => {
            let range = response.headers().get(header::CONTENT_RANGE).and_then(|v| v.to_str().ok()).unwrap_or("");
            if !range.starts_with(&format!("bytes {done}-")) {
                part.clear().map_err(Failure::Local)?;
                return Err(Failure::Remote(format!("sent the range `{range}` where bytes {done}- were asked for")));
            }
        }
        // The server knows no ranges: all of the file comes again.
        StatusCode::OK => {
            part.clear().map_err(Failure::Local)?;
            done = 0;
        }
        // The server has nothing from that offset on: the partial file is not a part of this one.
        StatusCode::RANGE_NOT_SATISFIABLE if done > 0 => {
            part.clear().map_err(Failure::Local)?;
            return Err(Failure::Remote("has a shorter file than the one that was begun".into()));
        }
        status => return Err(Failure::Remote(format!("answered {status}"))),
    }
    progress(done, true);
    let mut body = response.body_mut().with_config().limit(u64::MAX).reader();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let n = match body.read(&mut buffer) {
            Ok(n) => n,
            Err(e) => return Err(Failure::Remote(format!("broke off after {done} of {total} bytes: {e}"))),
        };
        if n == 0 {
            break;
        }
        if done + n as u64 > total {
            part.clear().map_err(Failure::Local)?;
            return Err(Failure::Remote(format!("sent more than the file's {total} bytes: not the file asked for")));
        }
        part.append(&buffer[..n]).map_err(Failure::Local)?;
        done += n as u64;
        progress(done, false);
    }
    if done < total {
        return Err(Failure::Remote(format!("ended after {done} of {total} bytes")));
    }
    Ok(())
}

/// What speaks HTTP, and maybe goes where an answer leads. Limits are for silence, not for the whole: a slow network may take its time.
pub(super) fn agent(url: &str, follows: bool) -> ureq::Agent {
    let mut config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_connect(Some(Duration::from_secs(20)))
        .timeout_recv_response(Some(Duration::from_secs(60)))
        .timeout_per_read(Some(Duration::from_secs(60)))
        .user_agent(concat!("runner/", env!("CARGO_PKG_VERSION")));
    if !follows {
        config = config.max_redirects(0).max_redirects_will_error(false);
    }
    // A proxy cannot reach this machine's own servers.
    let host = url.split("://").nth(1).unwrap_or("").split(['/', ':']).next();
    if matches!(host, Some("127.0.0.1" | "localhost")) {
        config = config.proxy(None);
    }
    config.build().new_agent()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::holder_in;

    #[test]
    fn the_list_of_locks_has_who_holds_one() {
        let list = "1: POSIX  ADVISORY  WRITE 77 08:01:99 0 EOF\n2: FLOCK  ADVISORY  WRITE 4321 08:01:5678 0 EOF\n\
                    2: -> FLOCK  ADVISORY  WRITE 55 08:01:5678 0 EOF\n3: FLOCK  ADVISORY  WRITE 0 08:01:7 0 EOF\n";
        assert_eq!([5678, 99, 7, 678].map(|inode| holder_in(list, inode)), [Some(4321), None, None, None]);
        assert_eq!(holder_in("what else", 1), None);
    }
}
