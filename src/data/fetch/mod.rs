//! Downloading: from a list of mirrors, checked by SHA-256, continued where a connection broke.
//!
//! A file is written to `NAME.part` and renamed once its checksum is right, so a file under its own name is whole.

mod http;
mod offered;

pub use http::Busy;
pub use offered::{Offered, offered};

pub use super::known::Known;

use super::cifar;
use super::digest::Digesting;
use super::known::File as KnownFile;
use super::progress::Event;
use crate::files::{self, durable};
use crate::terminal::masked;
use anyhow::{Context, Result, anyhow, bail};
use std::fmt;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// Downloads the files of `set` into the folder `root`, which is made if need be. `mirrors` are base addresses, to which
/// a file's name is added, tried in order; if there are none, those that are built in are. Files that are there and
/// whole are left alone.
///
/// # Errors
/// A file could be had from no mirror (all reasons are listed), or could not be written.
pub fn download(set: Known, root: &Path, mirrors: &[String], progress: &mut dyn FnMut(Event)) -> Result<()> {
    let built_in: Vec<String>;
    let mirrors = if mirrors.is_empty() {
        built_in = set.mirrors().iter().map(|m| m.to_string()).collect();
        &built_in
    } else {
        mirrors
    };
    for file in set.files() {
        get(&Wanted::from(file), root, mirrors, progress).map_err(|error| match error.is::<Nowhere>() {
            true => anyhow!(
                "{error}\nCheck the network, give other `mirrors`, or put the file into {} by hand",
                root.display()
            ),
            false => error,
        })?;
    }
    match set {
        Known::Mnist | Known::FashionMnist => Ok(()),
        // An archive is unpacked once, not in every run.
        Known::Cifar10 => cifar::unpack(cifar::Variant::Ten, root, progress),
        Known::Cifar100 => cifar::unpack(cifar::Variant::Fine, root, progress),
    }
}

/// Makes the folder, if it is not there. If that cannot be found out, the error is the reason for it.
fn make_folder(root: &Path) -> io::Result<()> {
    match std::fs::create_dir_all(root) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => match files::uninterrupted(|| std::fs::metadata(root))? {
            metadata if metadata.is_dir() => Ok(()),
            _ => Err(e),
        },
        done => done,
    }
}

/// Attempts at one mirror in a row, as long as each brings something.
const ATTEMPTS: usize = 5;

/// A file to bring, and how it is known to be the right one.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Its name, on the mirrors and here.
    pub name: &'a str,
    /// Its size.
    pub bytes: u64,
    /// What its SHA-256 begins with, in hexadecimal digits; all of it, where all is known.
    pub sha256: &'a str,
    /// A secret that the mirror, and nothing that it leads to, is to know: `Authorization: Bearer`.
    pub token: Option<&'a str>,
}

impl<'a> From<&'a KnownFile> for Wanted<'a> {
    fn from(file: &'a KnownFile) -> Self {
        Wanted { name: file.name, bytes: file.bytes, sha256: file.sha256, token: None }
    }
}

/// Brings one file into the folder `root`, which is made if need be, unless it is there and whole. `mirrors` are base addresses, to
/// which its name is added, tried in order.
///
/// # Errors
/// It could be had from no mirror (all reasons are listed), or could not be written.
pub fn get(file: &Wanted, root: &Path, mirrors: &[String], progress: &mut dyn FnMut(Event)) -> Result<()> {
    make_folder(root).with_context(|| format!("cannot make the folder {}", root.display()))?;
    let path = root.join(file.name);
    if path.is_file() && file.matches(&path)? {
        progress(Event::Present { file: file.name });
        return Ok(());
    }
    let part_path = root.join(format!("{}.part", file.name));
    let mut part = http::Part::open(&part_path)?;
    let mut failures = Vec::new();
    for mirror in mirrors {
        let url = format!("{}/{}", mirror.trim_end_matches('/'), file.name);
        for _ in 0..ATTEMPTS {
            let before = part.len()?;
            match attempt(file, &url, &mut part, &part_path, progress) {
                Ok(()) => {
                    // A file under its own name is whole, even if the power fails now.
                    part.sync()?;
                    std::fs::rename(&part_path, &path)
                        .with_context(|| format!("cannot rename {} to {}", part_path.display(), path.display()))?;
                    durable::sync(root).with_context(|| format!("cannot write into {}", root.display()))?;
                    progress(Event::Finished { file: file.name });
                    return Ok(());
                }
                Err(Failure::Local(e)) => return Err(e),
                Err(Failure::Remote(reason)) => {
                    progress(Event::Failed { file: file.name, url: &url, reason: &reason });
                    // These words are kept in files, too.
                    failures.push(masked(&format!("{url}: {reason}")));
                    let after = part.len()?;
                    // Worth another attempt here: more has come, or what had come from elsewhere was thrown away.
                    let again = after > before || (after == 0 && before > 0);
                    if !again {
                        break;
                    }
                }
            }
        }
    }
    // What has come is kept for another attempt, and what is empty is not.
    if part.len()? == 0 {
        let _ = std::fs::remove_file(&part_path);
    }
    if failures.is_empty() {
        bail!("{}: no mirror is known to download it from", file.name);
    }
    failures.dedup();
    let from = if mirrors.len() > 1 { " from any mirror" } else { "" };
    Err(Nowhere(format!("could not download {}{from}:\n  {}", file.name, failures.join("\n  "))).into())
}

/// A file could be had from none of the addresses: which, and why. What may be done about it the caller knows.
#[derive(Debug)]
pub struct Nowhere(String);

impl fmt::Display for Nowhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Nowhere {}

/// Why an attempt failed.
enum Failure {
    /// The other side, or the way there: another attempt may do.
    Remote(String),
    /// This machine: nothing helps.
    Local(anyhow::Error),
}

fn attempt(
    file: &Wanted,
    url: &str,
    part: &mut http::Part,
    part_path: &Path,
    progress: &mut dyn FnMut(Event),
) -> Result<(), Failure> {
    http::transfer(url, file.token, part, file.bytes, &mut |done, first| {
        let (file, total) = (file.name, file.bytes);
        progress(if first { Event::Started { file, url, done, total } } else { Event::Progress { file, done, total } });
    })?;
    let matches = file.matches(part_path).map_err(Failure::Local)?;
    // Where there is no checksum, a page that asks for a password would be kept for ever.
    let page = matches && file.sha256.is_empty() && is_page(part_path).map_err(Failure::Local)?;
    if matches && !page {
        return Ok(());
    }
    part.clear().map_err(Failure::Local)?;
    let what = if page { "is a web page, or empty," } else { "has the wrong checksum" };
    Err(Failure::Remote(format!("what came {what} and was thrown away")))
}

/// Whether a file is empty, or a page for people.
fn is_page(path: &Path) -> Result<bool> {
    let mut start = Vec::new();
    let read = files::open(path)?.file.take(64).read_to_end(&mut start);
    read.with_context(|| format!("cannot read {}", path.display()))?;
    let start = start.trim_ascii_start().to_ascii_lowercase();
    Ok(start.is_empty() || [&b"<!doctype"[..], b"<html", b"<?xml"].iter().any(|page| start.starts_with(page)))
}

impl Wanted<'_> {
    /// Whether the file at `path` is this one.
    fn matches(&self, path: &Path) -> Result<bool> {
        let opened = files::open(path)?;
        if opened.size != self.bytes {
            return Ok(false);
        }
        let mut reader = Digesting::new(BufReader::with_capacity(1 << 16, opened.file));
        io::copy(&mut reader, &mut io::sink()).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(reader.digest().begins_with(self.sha256))
    }
}

#[cfg(test)]
mod tests;
