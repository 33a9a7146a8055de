//! The archive that a set comes in: a tar, compressed by gzip or xz.
//!
//! It is read to the end of its compressed stream, where the checksums are, before anything in it is believed. Nothing is
//! taken into memory but the files of the set, and no more is unpacked than the set could be.

use super::format::Format;
use crate::data::progress::Event;
use crate::files::{self, Contained, contained};
use anyhow::{Context, Result, bail, ensure};
use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

/// Most bytes that an archive may unpack to: six times a set.
pub(super) const MAX_UNPACKED: u64 = 1 << 30;
/// How much of a file is read at a time, between two reports of progress.
const PIECE: usize = 1 << 20;

/// Hands each file of the set in the archive (by its place in [`Format::files`]) to `take`, if `check` is content with its size.
///
/// # Errors
/// The archive cannot be read, is damaged, lacks a file or has one twice; `check` or `take` fails.
pub(super) fn for_each_file(
    set: &Format,
    path: &Path,
    check: &dyn Fn(usize, u64) -> Result<()>,
    progress: &mut dyn FnMut(Event),
    take: &mut dyn FnMut(usize, Vec<u8>) -> Result<()>,
) -> Result<()> {
    let place = path.display();
    let (title, source) = (set.known.title(), set.known.name());
    let damaged =
        || format!("{place} is damaged or cut short: delete it and fetch it again (`runner data fetch {source}`)");
    let opened = files::open(path)?;
    let total = opened.size;
    let done = Rc::new(Cell::new(0));
    let counting = Counting { inner: opened.file, count: Rc::clone(&done) };
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let mut report = || progress(Event::Unpacking { file: &name, done: done.get(), total });
    report();
    let mut archive = tar::Archive::new(plain(BufReader::with_capacity(1 << 20, counting)).with_context(damaged)?);
    let mut seen = vec![false; set.files.len()];
    // Raw: the headers before a file that give it a longer name, or other attributes, are passed over as files are. They
    // would be taken into memory as large as they claim, and no file of the set needs one.
    let mut entries = archive.entries().with_context(damaged)?.raw(true);
    while let Some(entry) = contained(|| Ok(entries.next())).with_context(damaged)? {
        let entry = entry.with_context(damaged)?;
        report();
        let name = contained(|| Ok(entry.path()?.file_name().map(|n| n.to_string_lossy().into_owned())));
        let name = name.with_context(damaged)?;
        let Some(i) = set.files.iter().position(|f| Some(*f) == name.as_deref()) else { continue };
        if !entry.header().entry_type().is_file() {
            continue;
        }
        ensure!(!seen[i], "{place} holds {} twice: it is not {title}'s archive", set.files[i]);
        seen[i] = true;
        let bytes = entry.size();
        check(i, bytes)?;
        ensure!(bytes <= MAX_UNPACKED, "{place}: {} is larger than a file of {title} can be", set.files[i]);
        let mut records = Vec::new();
        if records.try_reserve_exact(bytes as usize).is_err() {
            bail!("{place}: there is not enough memory for {} ({bytes} bytes)", set.files[i]);
        }
        let mut entry = Contained::new(entry);
        while entry.by_ref().take(PIECE as u64).read_to_end(&mut records).with_context(damaged)? > 0 {
            report();
        }
        ensure!(records.len() as u64 == bytes, damaged());
        take(i, records)?;
    }
    if let Some(i) = seen.iter().position(|seen| !seen) {
        bail!("{place} holds no {}: it is not {title}'s binary version, or is cut short", set.files[i]);
    }
    // The checksums stand at the end.
    let mut rest = archive.into_inner();
    let mut buffer = vec![0; PIECE];
    while rest.read(&mut buffer).with_context(damaged)? > 0 {
        report();
    }
    Ok(())
}

/// The content of the archive. Its first bytes decide the format, not its name.
fn plain(mut file: impl BufRead + 'static) -> io::Result<Box<dyn Read>> {
    let start = file.fill_buf()?;
    let inner: Box<dyn Read> = if start.starts_with(&[0xfd, b'7', b'z', b'X', b'Z', 0]) {
        // The limit is for what a damaged header may claim; `xz -9` needs 65 MiB.
        Box::new(Contained::new(lzma_rust2::XzReader::new_mem_limit(file, true, 512 << 10)))
    } else if start.starts_with(&[0x1f, 0x8b]) {
        Box::new(Contained::new(flate2::bufread::MultiGzDecoder::new(file)))
    } else {
        return Err(io::Error::other("it is compressed neither by gzip nor by xz"));
    };
    Ok(Box::new(Bounded { inner, left: MAX_UNPACKED }))
}

/// Counts what is read. What interrupts a read ends nothing: not all decoders that read from here know that.
struct Counting<R> {
    inner: R,
    count: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = loop {
            match self.inner.read(out) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => break done?,
            }
        };
        self.count.set(self.count.get() + n as u64);
        Ok(n)
    }
}

/// Fails where more comes than there may be.
struct Bounded<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(out)?;
        self.left = self
            .left
            .checked_sub(n as u64)
            .ok_or_else(|| io::Error::other(format!("it unpacks to more than {MAX_UNPACKED} bytes")))?;
        Ok(n)
    }
}
