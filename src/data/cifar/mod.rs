//! CIFAR-10 and CIFAR-100 (Krizhevsky 2009), the binary versions: records of one label or two and 32×32 bytes each of red, green and
//! blue. Files to train on and one to test on, in a folder or still in the archive.

mod archive;
mod format;
mod unpack;
mod verified;

use super::digest::Digest;
use super::progress::Event;
use super::{DataSpec, Dataset, Describes, Files, Footprint, Known, MissingFiles, Split, Values, verify};
use crate::bulk::interleave;
use crate::files::{self, Opened};
use crate::graph::DType;
use anyhow::{Context, Result, bail, ensure};
use archive::{MAX_UNPACKED, for_each_file};
use format::{CLASSES_10, CLASSES_20, CLASSES_100, Format, HUNDRED, PIXELS, SIDE, TEN};
use std::io::Read;
use std::path::{Path, PathBuf};
use unpack::Unpacked;
use verified::Verified;

/// What unpacking `xz` takes, by its largest preset.
const XZ: usize = 65 << 20;

/// Which labels are learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// CIFAR-10.
    Ten,
    /// CIFAR-100, its classes.
    Fine,
    /// CIFAR-100, its superclasses.
    Coarse,
}

impl Variant {
    /// CIFAR-100, its superclasses if `coarse`.
    pub(super) fn hundred(coarse: bool) -> Self {
        if coarse { Variant::Coarse } else { Variant::Fine }
    }

    fn format(self) -> &'static Format {
        match self {
            Variant::Ten => &TEN,
            Variant::Fine | Variant::Coarse => &HUNDRED,
        }
    }

    /// Which label of a record.
    fn label(self) -> usize {
        match self {
            Variant::Ten | Variant::Coarse => 0,
            Variant::Fine => 1,
        }
    }

    fn classes(self) -> &'static [&'static str] {
        match self {
            Variant::Ten => &CLASSES_10,
            Variant::Coarse => &CLASSES_20,
            Variant::Fine => &CLASSES_100,
        }
    }
}

/// The set in a folder.
pub(super) struct Cifar<'a>(pub Variant, pub &'a Files);

impl Describes for Cifar<'_> {
    fn describe(&self) -> Result<DataSpec> {
        Ok(self.1.counted(spec(self.0)))
    }

    fn open(&self, progress: &mut dyn FnMut(Event)) -> Result<Dataset> {
        open(self.0, self.1, progress)
    }

    fn footprint(&self) -> Footprint {
        // An archive is unpacked before the samples are held, if it can be. Vectors that grow may hold twice their content.
        let set = self.0.format();
        let unpacked = complete(set, &folders(set, &self.1.root)).is_some();
        let file = set.largest();
        Footprint::of(&spec(self.0), if unpacked { file } else { 2 * file + XZ })
    }

    fn public(&self) -> Option<(Known, PathBuf)> {
        Some((self.0.format().known, self.1.root.clone()))
    }
}

/// What the samples look like.
pub fn spec(variant: Variant) -> DataSpec {
    let names = variant.classes();
    DataSpec {
        train: Some(50_000),
        val: Some(10_000),
        ..DataSpec::labelled(DType::U8, [SIDE, SIDE, 3], names.len()).named(names.iter().copied())
    }
}

/// Reads the set from the folder of its archive in its root, from the root itself, or from the archive in the root (of CIFAR-10
/// `cifar-10-binary.tar.gz` or `.tar.xz`), in this order. The public set's archive is unpacked into the folder
/// first, if it can be.
///
/// # Errors
/// Files are missing ([`MissingFiles`]), damaged, or, if that is asked for, not of the set.
pub fn open(variant: Variant, files: &Files, progress: &mut dyn FnMut(Event)) -> Result<Dataset> {
    let set = variant.format();
    let folders = folders(set, &files.root);
    let parts = if let Some(folder) = complete(set, &folders) {
        from_folder(variant, folder, files)?
    } else if let Some(archive) = set.archives.iter().map(|name| files.root.join(name)).find(|p| files::is_there(p)) {
        from_archive_or_unpacked(variant, &archive, files, progress)?
    } else {
        return Err(missing(set, &folders, &files.root).into());
    };
    let [train, test] = parts.map(|part| Split::labelled(Values::Bytes(part.pixels), [SIDE, SIDE, 3], part.labels));
    Ok(match files.verify {
        true => Dataset::known(set.known, spec(variant), train?, test?),
        false => Dataset::new(spec(variant), train?, test?),
    })
}

/// Where the files may be.
fn folders(set: &Format, root: &Path) -> [PathBuf; 2] {
    [root.join(set.folder), root.to_path_buf()]
}

/// The folder that has all files. A name that stands for no file is reported when it is opened.
fn complete<'a>(set: &Format, folders: &'a [PathBuf; 2]) -> Option<&'a PathBuf> {
    folders.iter().find(|f| set.files.iter().all(|name| files::is_there(&f.join(name))))
}

/// What is lacking: single files of a folder that has some of them, else all.
fn missing(set: &Format, folders: &[PathBuf; 2], root: &Path) -> MissingFiles {
    let lacking = |f: &PathBuf| -> Vec<String> {
        set.files.iter().filter(|name| !files::is_there(&f.join(name))).map(|name| format!("`{name}`")).collect()
    };
    let mut files = folders.iter().map(lacking).min_by_key(Vec::len).unwrap_or_default();
    files.push(format!("nor the archive `{}` or `{}`", set.archives[0], set.archives[1]));
    let fetch = set.known.fetch_command(root);
    MissingFiles { source: set.known.name(), files, folders: folders.to_vec(), fetch }
}

/// Images of one part of the set, channels last.
#[derive(Default)]
struct Part {
    pixels: Vec<u8>,
    labels: Vec<i32>,
}

impl Part {
    /// Adds the records of one file.
    fn add(&mut self, variant: Variant, records: &[u8], name: &str) -> Result<()> {
        let set = variant.format();
        let bytes = set.record();
        ensure!(
            !records.is_empty() && records.len().is_multiple_of(bytes),
            "{name} is damaged or cut short: {} bytes are not a whole number of records of {bytes} bytes; delete it \
             and fetch it again (`runner data fetch {}`)",
            records.len(),
            set.known.name()
        );
        self.pixels.reserve_exact(records.len() / bytes * 3 * PIXELS);
        for (i, record) in records.chunks_exact(bytes).enumerate() {
            let (labels, pixels) = record.split_at(set.labels.len());
            for (label, classes) in labels.iter().zip(set.labels) {
                ensure!(
                    usize::from(*label) < *classes,
                    "{name}: label {label} of record {i} is not within 0 .. {}: the file is damaged",
                    classes - 1
                );
            }
            self.labels.push(i32::from(labels[variant.label()]));
            interleave(pixels, &mut self.pixels);
        }
        Ok(())
    }
}

/// Training and test part from the files' contents, in the order of [`Format::files`].
struct Parts {
    variant: Variant,
    train: Part,
    test: Part,
}

impl Parts {
    fn new(variant: Variant) -> Self {
        let mut train = Part::default();
        train.pixels.reserve_exact(50_000 * 3 * PIXELS);
        Parts { variant, train, test: Part::default() }
    }

    fn add(&mut self, file: usize, records: &[u8], name: &str) -> Result<()> {
        let last = file + 1 == self.variant.format().files.len();
        if last { self.test.add(self.variant, records, name) } else { self.train.add(self.variant, records, name) }
    }
}

/// That the `i`-th file has as many bytes as that of the public set, if it must be that.
fn check_size(set: &Format, i: usize, place: &Path, files: &Files, bytes: u64) -> Result<()> {
    let expected = set.content()[i].bytes;
    ensure!(
        !files.verify || bytes == expected,
        "{} holds {bytes} bytes where {}'s has {expected}: {}",
        place.display(),
        set.known.title(),
        verify::not_the_set(set.known, &files.root)
    );
    Ok(())
}

fn from_folder(variant: Variant, folder: &Path, files: &Files) -> Result<[Part; 2]> {
    let set = variant.format();
    let mut parts = Parts::new(variant);
    let mut verified = Verified::of(folder);
    for (i, name) in set.files.iter().enumerate() {
        let path = folder.join(name);
        let records = read_file(set, &path, i, files, &mut verified)?;
        parts.add(i, &records, &path.display().to_string())?;
    }
    verified.save();
    Ok([parts.train, parts.test])
}

/// The content of the `i`-th file, verified if it has not been before.
fn read_file(set: &Format, path: &Path, i: usize, files: &Files, verified: &mut Verified) -> Result<Vec<u8>> {
    let Opened { mut file, size, metadata } = files::open(path)?;
    check_size(set, i, path, files, size)?;
    let place = path.display();
    ensure!(size <= MAX_UNPACKED, "{place} is larger than a file of {} can be", set.known.title());
    let mut records = Vec::new();
    if records.try_reserve_exact(size as usize).is_err() {
        bail!("there is not enough memory for {place} ({size} bytes)");
    }
    let context = || format!("cannot read {place}");
    file.by_ref().take(size).read_to_end(&mut records).with_context(context)?;
    let known = &set.content()[i];
    if files.verify && !verified.knows(known, &metadata) {
        verify::check(set.known, known, path, &files.root, &Digest::of(&[&records]))?;
        verified.add(known, &metadata);
    }
    Ok(records)
}

/// The public set is unpacked once, to be read from the folder from then on. It is always the same; a set of one's own may
/// have changed by the next run, of which the folder would know nothing.
fn from_archive_or_unpacked(
    variant: Variant,
    path: &Path,
    files: &Files,
    progress: &mut dyn FnMut(Event),
) -> Result<[Part; 2]> {
    if files.verify {
        match unpack::unpack(variant.format(), path, files, progress)? {
            Unpacked::There(folder) => return from_folder(variant, &folder, files),
            Unpacked::Unwritable(why) => {
                let text = format!("{why}: {} will be unpacked anew by every run, which takes seconds", path.display());
                progress(Event::Note { text: &text });
            }
        }
    }
    from_archive(variant, path, files, progress)
}

fn from_archive(variant: Variant, path: &Path, files: &Files, progress: &mut dyn FnMut(Event)) -> Result<[Part; 2]> {
    let set = variant.format();
    let mut parts = Parts::new(variant);
    // Files that come out of order wait for their turn.
    let mut waiting: Vec<Option<Vec<u8>>> = vec![None; set.files.len()];
    let mut next = 0;
    let mut take = |file: usize, records: Vec<u8>| {
        if files.verify {
            let known = &set.content()[file];
            verify::check(set.known, known, &path.join(set.files[file]), &files.root, &Digest::of(&[&records]))?;
        }
        waiting[file] = Some(records);
        while let Some(records) = waiting.get_mut(next).and_then(Option::take) {
            parts.add(next, &records, &format!("{} in {}", set.files[next], path.display()))?;
            next += 1;
        }
        Ok(())
    };
    let check = |i: usize, bytes| check_size(set, i, &path.join(set.files[i]), files, bytes);
    for_each_file(set, path, &check, progress, &mut take)?;
    let name = path.file_name().map(|n| n.to_string_lossy()).unwrap_or_default();
    progress(Event::Unpacked { file: &name });
    Ok([parts.train, parts.test])
}

/// Unpacks the archive that was downloaded into `root`, and sees that what is there then is the set.
pub(super) fn unpack(variant: Variant, root: &Path, progress: &mut dyn FnMut(Event)) -> Result<()> {
    let set = variant.format();
    let files = Files::at(root);
    let folder = root.join(set.folder);
    if !set.files.iter().all(|name| files::is_there(&folder.join(name)))
        && let Unpacked::Unwritable(why) = unpack::unpack(set, &root.join(set.archives[0]), &files, progress)?
    {
        bail!(why);
    }
    let mut verified = Verified::of(&folder);
    for (i, name) in set.files.iter().enumerate() {
        read_file(set, &folder.join(name), i, &files, &mut verified)?;
    }
    verified.save();
    Ok(())
}

#[cfg(test)]
mod tests;
