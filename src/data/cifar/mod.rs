//! CIFAR-10 (Krizhevsky 2009), the binary version: records of one label and 32×32 bytes each of red, green and blue.
//! Five files to train on and one to test on, in a folder or still in the archive.

mod archive;
mod unpack;
mod verified;

use super::digest::Digest;
use super::progress::Event;
use super::{DataSpec, Dataset, Describes, Files, Footprint, Known, MissingFiles, Split, Values, verify};
use crate::files::{self, Opened};
use crate::graph::DType;
use anyhow::{Context, Result, anyhow, bail, ensure};
use archive::{MAX_UNPACKED, for_each_file};
use std::io::Read;
use std::path::{Path, PathBuf};
use unpack::Unpacked;
use verified::Verified;

/// The folder in the archive.
const FOLDER: &str = "cifar-10-batches-bin";
/// The names that the archive may have.
const ARCHIVES: [&str; 2] = ["cifar-10-binary.tar.gz", "cifar-10-binary.tar.xz"];
/// The files in the folder, the test set last.
const FILES: [&str; 6] = [
    "data_batch_1.bin",
    "data_batch_2.bin",
    "data_batch_3.bin",
    "data_batch_4.bin",
    "data_batch_5.bin",
    "test_batch.bin",
];

const SIDE: usize = 32;
const PIXELS: usize = SIDE * SIDE;
const RECORD: usize = 1 + 3 * PIXELS;

/// A record file, as read.
const FILE: usize = 30_730_000;
/// What unpacking `xz` takes, by its largest preset.
const XZ: usize = 65 << 20;

/// The set in a folder.
pub(super) struct Cifar10<'a>(pub &'a Files);

impl Describes for Cifar10<'_> {
    fn describe(&self) -> Result<DataSpec> {
        Ok(self.0.counted(spec()))
    }

    fn open(&self, progress: &mut dyn FnMut(Event)) -> Result<Dataset> {
        open(self.0, progress)
    }

    fn footprint(&self) -> Footprint {
        // An archive is unpacked before the samples are held, if it can be. Vectors that grow may hold twice their content.
        let unpacked = complete(&folders(&self.0.root)).is_some();
        Footprint::of(&spec(), if unpacked { FILE } else { 2 * FILE + XZ })
    }

    fn public(&self) -> Option<(Known, PathBuf)> {
        Some((Known::Cifar10, self.0.root.clone()))
    }
}

/// What the samples look like.
pub fn spec() -> DataSpec {
    let names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];
    DataSpec {
        class_names: Some(names.map(String::from).to_vec()),
        train: Some(50_000),
        val: Some(10_000),
        ..DataSpec::labelled(DType::U8, [SIDE, SIDE, 3], 10)
    }
}

/// Reads the set from the folder `cifar-10-batches-bin` in its root, from the root itself, or from the archive
/// `cifar-10-binary.tar.gz` or `.tar.xz` in the root, in this order. The public set's archive is unpacked into the folder
/// first, if it can be.
///
/// # Errors
/// Files are missing ([`MissingFiles`]), damaged, or, if that is asked for, not of the set.
pub fn open(files: &Files, progress: &mut dyn FnMut(Event)) -> Result<Dataset> {
    let folders = folders(&files.root);
    let parts = if let Some(folder) = complete(&folders) {
        from_folder(folder, files)?
    } else if let Some(archive) = ARCHIVES.iter().map(|name| files.root.join(name)).find(|p| files::is_there(p)) {
        from_archive_or_unpacked(&archive, files, progress)?
    } else {
        return Err(missing(&folders, &files.root).into());
    };
    let [train, test] = parts.map(|part| Split::labelled(Values::Bytes(part.pixels), [SIDE, SIDE, 3], part.labels));
    Ok(match files.verify {
        true => Dataset::known(Known::Cifar10, spec(), train?, test?),
        false => Dataset::new(spec(), train?, test?),
    })
}

/// Where the files may be.
fn folders(root: &Path) -> [PathBuf; 2] {
    [root.join(FOLDER), root.to_path_buf()]
}

/// The folder that has all files. A name that stands for no file is reported when it is opened.
fn complete(folders: &[PathBuf; 2]) -> Option<&PathBuf> {
    folders.iter().find(|f| FILES.iter().all(|name| files::is_there(&f.join(name))))
}

/// What is lacking: single files of a folder that has some of them, else all.
fn missing(folders: &[PathBuf; 2], root: &Path) -> MissingFiles {
    let lacking = |f: &PathBuf| -> Vec<String> {
        FILES.iter().filter(|name| !files::is_there(&f.join(name))).map(|name| format!("`{name}`")).collect()
    };
    let mut files = folders.iter().map(lacking).min_by_key(Vec::len).unwrap_or_default();
    files.push(format!("nor the archive `{}` or `{}`", ARCHIVES[0], ARCHIVES[1]));
    let fetch = Known::Cifar10.fetch_command(root);
    MissingFiles { source: "cifar10", files, folders: folders.to_vec(), fetch }
}

/// Images of one part of the set, channels last.
#[derive(Default)]
struct Part {
    pixels: Vec<u8>,
    labels: Vec<i32>,
}

impl Part {
    /// Adds the records of one file.
    fn add(&mut self, records: &[u8], name: &str) -> Result<()> {
        ensure!(
            !records.is_empty() && records.len().is_multiple_of(RECORD),
            "{name} is damaged or cut short: {} bytes are not a whole number of records of {RECORD} bytes; delete it \
             and fetch it again (`runner data fetch cifar10`)",
            records.len()
        );
        self.pixels.reserve_exact(records.len() / RECORD * 3 * PIXELS);
        for (i, record) in records.chunks_exact(RECORD).enumerate() {
            ensure!(
                record[0] < 10,
                "{name}: label {} of record {i} is not within 0 .. 9: the file is damaged",
                record[0]
            );
            self.labels.push(i32::from(record[0]));
            let (red, rest) = record[1..].split_at(PIXELS);
            let (green, blue) = rest.split_at(PIXELS);
            let pixels = red.iter().zip(green).zip(blue);
            self.pixels.extend(pixels.flat_map(|((r, g), b)| [*r, *g, *b]));
        }
        Ok(())
    }
}

/// Training and test part from the files' contents, in the order of [`FILES`].
struct Parts {
    train: Part,
    test: Part,
}

impl Parts {
    fn new() -> Self {
        let mut train = Part::default();
        train.pixels.reserve_exact(50_000 * 3 * PIXELS);
        Parts { train, test: Part::default() }
    }

    fn add(&mut self, file: usize, records: &[u8], name: &str) -> Result<()> {
        if file + 1 == FILES.len() { self.test.add(records, name) } else { self.train.add(records, name) }
    }
}

/// The bytes that every file must have, if they are those of the public set.
fn member_size(files: &Files) -> Option<u64> {
    files.verify.then(|| Known::Cifar10.content()[0].bytes)
}

fn wrong_size(place: &Path, files: &Files, bytes: u64) -> anyhow::Error {
    let hint = verify::not_the_set(Known::Cifar10, &files.root);
    anyhow!(
        "{} holds {bytes} bytes where CIFAR-10's has {}: {hint}",
        place.display(),
        Known::Cifar10.content()[0].bytes
    )
}

fn from_folder(folder: &Path, files: &Files) -> Result<[Part; 2]> {
    let mut parts = Parts::new();
    let mut verified = Verified::of(folder);
    for (i, name) in FILES.iter().enumerate() {
        let path = folder.join(name);
        let records = read_file(&path, i, files, &mut verified)?;
        parts.add(i, &records, &path.display().to_string())?;
    }
    verified.save();
    Ok([parts.train, parts.test])
}

/// The content of the `i`-th file, verified if it has not been before.
fn read_file(path: &Path, i: usize, files: &Files, verified: &mut Verified) -> Result<Vec<u8>> {
    let Opened { mut file, size, metadata } = files::open(path)?;
    if member_size(files).is_some_and(|expected| expected != size) {
        return Err(wrong_size(path, files, size));
    }
    let place = path.display();
    ensure!(size <= MAX_UNPACKED, "{place} is larger than a file of CIFAR-10 can be");
    let mut records = Vec::new();
    if records.try_reserve_exact(size as usize).is_err() {
        bail!("there is not enough memory for {place} ({size} bytes)");
    }
    let context = || format!("cannot read {place}");
    file.by_ref().take(size).read_to_end(&mut records).with_context(context)?;
    let known = &Known::Cifar10.content()[i];
    if files.verify && !verified.knows(known, &metadata) {
        verify::check(Known::Cifar10, known, path, &files.root, &Digest::of(&[&records]))?;
        verified.add(known, &metadata);
    }
    Ok(records)
}

/// The public set is unpacked once, to be read from the folder from then on. It is always the same; a set of one's own may
/// have changed by the next run, of which the folder would know nothing.
fn from_archive_or_unpacked(path: &Path, files: &Files, progress: &mut dyn FnMut(Event)) -> Result<[Part; 2]> {
    if files.verify {
        match unpack::unpack(path, files, progress)? {
            Unpacked::There(folder) => return from_folder(&folder, files),
            Unpacked::Unwritable(why) => {
                let text = format!("{why}: {} will be unpacked anew by every run, which takes seconds", path.display());
                progress(Event::Note { text: &text });
            }
        }
    }
    from_archive(path, files, progress)
}

fn from_archive(path: &Path, files: &Files, progress: &mut dyn FnMut(Event)) -> Result<[Part; 2]> {
    let mut parts = Parts::new();
    // Files that come out of order wait for their turn.
    let mut waiting: [Option<Vec<u8>>; FILES.len()] = Default::default();
    let mut next = 0;
    let mut take = |file: usize, records: Vec<u8>| {
        if files.verify {
            let known = &Known::Cifar10.content()[file];
            verify::check(Known::Cifar10, known, &path.join(FILES[file]), &files.root, &Digest::of(&[&records]))?;
        }
        waiting[file] = Some(records);
        while let Some(records) = waiting.get_mut(next).and_then(Option::take) {
            parts.add(next, &records, &format!("{} in {}", FILES[next], path.display()))?;
            next += 1;
        }
        Ok(())
    };
    let wrong = |i: usize, bytes| wrong_size(&path.join(FILES[i]), files, bytes);
    for_each_file(path, member_size(files), &wrong, progress, &mut take)?;
    let name = path.file_name().map(|n| n.to_string_lossy()).unwrap_or_default();
    progress(Event::Unpacked { file: &name });
    Ok([parts.train, parts.test])
}

/// Unpacks the archive that was downloaded into `root`, and sees that what is there then is the set.
pub(super) fn unpack(root: &Path, progress: &mut dyn FnMut(Event)) -> Result<()> {
    let files = Files::at(root);
    let folder = root.join(FOLDER);
    if !FILES.iter().all(|name| files::is_there(&folder.join(name)))
        && let Unpacked::Unwritable(why) = unpack::unpack(&root.join(ARCHIVES[0]), &files, progress)?
    {
        bail!(why);
    }
    let mut verified = Verified::of(&folder);
    for (i, name) in FILES.iter().enumerate() {
        read_file(&folder.join(name), i, &files, &mut verified)?;
    }
    verified.save();
    Ok(())
}

#[cfg(test)]
mod tests;
