//! Unpacking the archive into a folder next to it, once, so that later starts need not.

use super::archive::for_each_file;
use super::check_size;
use super::format::Format;
use super::verified::Verified;
use crate::data::digest::Digest;
use crate::data::progress::Event;
use crate::data::{Files, verify};
use crate::files::durable;
use anyhow::Result;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Between the folder's name and the process that unpacks.
const PART: &str = ".part-";

/// What came of it.
pub(super) enum Unpacked {
    /// The folder has all files.
    There(PathBuf),
    /// The archive may be whole, but nothing can be written here: why.
    Unwritable(String),
}

/// Unpacks `archive` into [`Format::folder`] in the set's root. It is written beside its place, made durable and renamed: a
/// folder of that name is whole. Of one that lacks files, these are added and no other is touched.
///
/// # Errors
/// The archive cannot be read, is damaged, or not of the set.
pub(super) fn unpack(set: &Format, archive: &Path, files: &Files, progress: &mut dyn FnMut(Event)) -> Result<Unpacked> {
    let (root, folder) = (&files.root, files.root.join(set.folder));
    remove_stale(set, root);
    let part = root.join(format!("{}{PART}{}", set.folder, std::process::id()));
    let result = begin(&part).map_err(Stop::Write).and_then(|_lock| {
        fill(set, archive, &part, files, progress)?;
        finish(set, &part, &folder).map_err(Stop::Write)
    });
    // What is left of it; nothing, if all went well.
    let _ = fs::remove_dir_all(&part);
    match result {
        Ok(()) => {
            let name = archive.file_name().map(|n| n.to_string_lossy()).unwrap_or_default();
            progress(Event::Unpacked { file: &name });
            Ok(Unpacked::There(folder))
        }
        Err(Stop::Write(e)) => Ok(Unpacked::Unwritable(format!("cannot write into `{}`: {e}", root.display()))),
        Err(Stop::Archive(e)) => Err(e),
    }
}

/// Why it was given up.
enum Stop {
    /// Something cannot be written.
    Write(io::Error),
    /// The archive is not right.
    Archive(anyhow::Error),
}

/// Makes the folder to unpack into. It is locked as long as the result lives: the kernel lets go of it when the process
/// ends, however it does. Where folders cannot be locked, nothing that a killed process leaves is ever removed.
fn begin(part: &Path) -> io::Result<Option<File>> {
    fs::create_dir(part)?;
    Ok(lock(part))
}

/// The lock of a folder; `None` if another process holds it, or there are no such locks.
fn lock(folder: &Path) -> Option<File> {
    let folder = File::open(folder).ok()?;
    folder.try_lock().ok()?;
    Some(folder)
}

fn fill(set: &Format, archive: &Path, part: &Path, files: &Files, progress: &mut dyn FnMut(Event)) -> Result<(), Stop> {
    let mut verified = Verified::of(part);
    let mut unwritten = None;
    let content = set.content();
    let mut take = |i: usize, records: Vec<u8>| -> Result<()> {
        if files.verify {
            let place = archive.join(set.files[i]);
            verify::check(set.known, &content[i], &place, &files.root, &Digest::of(&[&records]))?;
        }
        match write(&part.join(set.files[i]), &records) {
            Ok(metadata) if files.verify => verified.add(&content[i], &metadata),
            Ok(_) => {}
            Err(e) => {
                unwritten = Some(e);
                anyhow::bail!("not written");
            }
        }
        Ok(())
    };
    let check = |i: usize, bytes| check_size(set, i, &archive.join(set.files[i]), files, bytes);
    let read = for_each_file(set, archive, &check, progress, &mut take);
    match (read, unwritten) {
        (_, Some(e)) => Err(Stop::Write(e)),
        (Err(e), None) => Err(Stop::Archive(e)),
        (Ok(()), None) => {
            verified.save();
            Ok(())
        }
    }
}

/// Writes a file and waits until it is on the disk.
fn write(path: &Path, bytes: &[u8]) -> io::Result<fs::Metadata> {
    let mut file = File::create_new(path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    file.metadata()
}

/// Gives the folder its name, or what it has to one that lacks it.
fn finish(set: &Format, part: &Path, folder: &Path) -> io::Result<()> {
    durable::sync(part)?;
    if fs::rename(part, folder).is_err() {
        for name in set.files.iter().filter(|name| !folder.join(name).exists()) {
            fs::rename(part.join(name), folder.join(name))?;
        }
        durable::sync(folder)?;
    }
    durable::sync(durable::folder_of(folder))
}

/// Removes what processes that were killed have left in `root`. Whose lock is held is still at work.
fn remove_stale(set: &Format, root: &Path) {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(set.folder).and_then(|rest| rest.strip_prefix(PART));
        if process.is_some_and(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
            && let Some(_lock) = lock(&entry.path())
        {
            // It is only in the way of the disk's space.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
