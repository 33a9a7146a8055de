//! CIFAR-10 (Krizhevsky 2009), the binary version: records of one label and 32×32 bytes each of red, green and blue.
//! Five files to train on and one to test on, in a folder or still in the archive.

use super::{DataSpec, Dataset, Inputs, MissingFiles, Split, TargetSpec, Targets};
use crate::graph::{DType, Shape};
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

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
/// Far more than a file of the set holds: something that unpacks to more is not of this set.
const MAX_FILE: u64 = 1 << 30;

/// What the samples look like.
pub fn spec() -> DataSpec {
    let names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];
    DataSpec {
        input: [SIDE, SIDE, 3].into(),
        dtype: DType::U8,
        targets: TargetSpec::Classes(10),
        classes_exact: true,
        class_names: Some(names.map(String::from).to_vec()),
        train: Some(50_000),
        val: Some(10_000),
    }
}

/// Reads the set from the folder `cifar-10-batches-bin` in `root`, from `root` itself, or from the archive
/// `cifar-10-binary.tar.gz` or `.tar.xz` in `root`, in this order.
///
/// # Errors
/// Files are missing ([`MissingFiles`]) or damaged.
pub fn open(root: &Path) -> Result<Dataset> {
    let folders = [root.join(FOLDER), root.to_path_buf()];
    let parts = if let Some(folder) = folders.iter().find(|f| FILES.iter().all(|name| f.join(name).is_file())) {
        from_folder(folder)?
    } else if let Some(archive) = ARCHIVES.iter().map(|name| root.join(name)).find(|p| p.is_file()) {
        from_archive(&archive)?
    } else {
        return Err(missing(&folders).into());
    };
    let [train, test] = parts.map(|part| {
        let n = part.labels.len();
        Split::new(Inputs::Bytes(part.pixels), Targets::Classes(part.labels), spec().input, Shape::default(), n)
    });
    Ok(Dataset::new(spec(), train?, test?))
}

/// What is lacking: single files of a folder that has some of them, else all.
fn missing(folders: &[PathBuf; 2]) -> MissingFiles {
    let lacking = |f: &PathBuf| -> Vec<String> {
        FILES.iter().filter(|name| !f.join(name).is_file()).map(|name| format!("`{name}`")).collect()
    };
    let mut files = folders.iter().map(lacking).min_by_key(Vec::len).unwrap_or_default();
    files.push(format!("nor the archive `{}` or `{}`", ARCHIVES[0], ARCHIVES[1]));
    MissingFiles { source: "cifar10", files, folders: folders.to_vec() }
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

fn from_folder(folder: &Path) -> Result<[Part; 2]> {
    let mut parts = Parts::new();
    for (i, name) in FILES.iter().enumerate() {
        let path = folder.join(name);
        let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        let records = read_bounded(file, &path.display().to_string())?;
        parts.add(i, &records, &path.display().to_string())?;
    }
    Ok([parts.train, parts.test])
}

fn from_archive(path: &Path) -> Result<[Part; 2]> {
    let mut parts = Parts::new();
    // Files that come out of order wait for their turn.
    let mut waiting: [Option<Vec<u8>>; FILES.len()] = Default::default();
    let mut next = 0;
    for_each_file(path, &mut |file, records| {
        waiting[file] = Some(records);
        while let Some(records) = waiting.get_mut(next).and_then(Option::take) {
            parts.add(next, &records, &format!("{} in {}", FILES[next], path.display()))?;
            next += 1;
        }
        Ok(next < FILES.len())
    })?;
    if next < FILES.len() {
        bail!("{} holds no {}: it is not CIFAR-10's binary version, or is cut short", path.display(), FILES[next]);
    }
    Ok([parts.train, parts.test])
}

/// Hands each file of the set in the archive (by its place in [`FILES`]) to `take`, until that returns false.
fn for_each_file(path: &Path, take: &mut dyn FnMut(usize, Vec<u8>) -> Result<bool>) -> Result<()> {
    let damaged = || {
        format!(
            "{} is damaged or cut short: delete it and fetch it again (`runner data fetch cifar10`)",
            path.display()
        )
    };
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let file = BufReader::with_capacity(1 << 20, file);
    let plain: Box<dyn Read> = if path.extension().is_some_and(|e| e == "xz") {
        // The limit is for what a damaged header may claim; `xz -9` needs 65 MiB.
        Box::new(lzma_rust2::XzReader::new_mem_limit(file, true, 512 << 10))
    } else {
        Box::new(flate2::bufread::MultiGzDecoder::new(file))
    };
    let mut archive = tar::Archive::new(plain);
    for entry in archive.entries().with_context(damaged)? {
        let entry = entry.with_context(damaged)?;
        let name = entry.path().with_context(damaged)?.file_name().map(|n| n.to_string_lossy().into_owned());
        if let Some(i) = FILES.iter().position(|f| Some(*f) == name.as_deref())
            && entry.header().entry_type().is_file()
        {
            let records = read_bounded(entry, FILES[i]).with_context(damaged)?;
            if !take(i, records)? {
                break;
            }
        }
    }
    Ok(())
}

fn read_bounded(from: impl Read, name: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_FILE + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    ensure!(bytes.len() as u64 <= MAX_FILE, "{name} is larger than a file of CIFAR-10 can be");
    Ok(bytes)
}

/// Unpacks the archive in `root` into [`FOLDER`] beside it, if it is not there, so that later runs need not decompress.
pub(super) fn unpack(root: &Path) -> Result<()> {
    let (part, folder) = (root.join(format!("{FOLDER}.part")), root.join(FOLDER));
    if folder.exists() {
        return Ok(());
    }
    std::fs::create_dir_all(&part).with_context(|| format!("cannot make the folder {}", part.display()))?;
    for_each_file(&root.join(ARCHIVES[0]), &mut |file, records| {
        let path = part.join(FILES[file]);
        std::fs::write(&path, records).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(true)
    })?;
    std::fs::rename(&part, &folder).with_context(|| format!("cannot rename to {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;

    /// `n` records; red is the record's number, green the row, blue the column.
    fn records(n: usize, label: u8) -> Vec<u8> {
        let mut out = Vec::new();
        for i in 0..n {
            out.push(label);
            out.extend([i as u8; PIXELS]);
            out.extend((0..PIXELS).map(|p| (p / SIDE) as u8));
            out.extend((0..PIXELS).map(|p| (p % SIDE) as u8));
        }
        out
    }

    fn tar(files: &[(String, Vec<u8>)]) -> Vec<u8> {
        let mut b = tar::Builder::new(Vec::new());
        for (name, bytes) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            header.set_cksum();
            b.append_data(&mut header, name, &bytes[..]).unwrap();
        }
        b.into_inner().unwrap()
    }

    fn files() -> Vec<(String, Vec<u8>)> {
        // In an order of their own, with a file that is none of the set.
        let mut list: Vec<_> =
            FILES.iter().enumerate().rev().map(|(i, f)| (format!("{FOLDER}/{f}"), records(2, i as u8))).collect();
        list.insert(2, (format!("{FOLDER}/readme.html"), b"hello".to_vec()));
        list
    }

    fn gz(bytes: &[u8]) -> Vec<u8> {
        let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        e.write_all(bytes).unwrap();
        e.finish().unwrap()
    }

    fn xz(bytes: &[u8]) -> Vec<u8> {
        let mut w = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(0)).unwrap();
        w.write_all(bytes).unwrap();
        w.finish().unwrap()
    }

    fn check(root: &Path) {
        let set = open(root).unwrap();
        assert_eq!((set.train.len(), set.val.len()), (10, 2));
        let labels: Vec<_> = (0..10).map(|i| set.train.label(i).unwrap()).collect();
        assert_eq!(labels, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
        // Sample 1 of the first file, row 2, column 3.
        assert_eq!(set.train.input(1)[(2 * SIDE + 3) * 3..][..3], [1, 2, 3]);
        assert_eq!(set.val.label(0), Some(5));
    }

    #[test]
    fn reads_folders_and_archives() {
        for kind in 0..4 {
            let dir = tempfile::tempdir().unwrap();
            match kind {
                0 => fs::write(dir.path().join(ARCHIVES[0]), gz(&tar(&files()))).unwrap(),
                1 => fs::write(dir.path().join(ARCHIVES[1]), xz(&tar(&files()))).unwrap(),
                _ => {
                    for (name, bytes) in files() {
                        let name = if kind == 2 { &name[..] } else { name.rsplit('/').next().unwrap() };
                        let path = dir.path().join(name);
                        fs::create_dir_all(path.parent().unwrap()).unwrap();
                        fs::write(path, bytes).unwrap();
                    }
                }
            }
            check(dir.path());
        }
    }

    #[test]
    fn unpacks_beside_the_archive() {
        let dir = tempfile::tempdir().unwrap();
        let archive = dir.path().join(ARCHIVES[0]);
        fs::write(&archive, gz(&tar(&files()))).unwrap();
        unpack(dir.path()).unwrap();
        fs::remove_file(archive).unwrap();
        check(dir.path());
    }

    #[test]
    fn faults_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = || format!("{:#}", open(dir.path()).unwrap_err());
        let text = error();
        assert!(text.contains("cifar-10-binary.tar.gz") && text.contains("data_batch_1.bin"), "{text}");
        assert!(open(dir.path()).unwrap_err().is::<MissingFiles>());

        let archive = dir.path().join(ARCHIVES[0]);
        let whole = gz(&tar(&files()));
        fs::write(&archive, &whole[..whole.len() / 2]).unwrap();
        assert!(error().contains("cut short"), "{}", error());
        fs::write(&archive, gz(&tar(&files()[1..]))).unwrap();
        assert!(error().contains("holds no test_batch.bin"), "{}", error());
        let mut list = files();
        list[0].1.truncate(3000);
        fs::write(&archive, gz(&tar(&list))).unwrap();
        assert!(error().contains("3000 bytes are not a whole number"), "{}", error());
        list[0].1 = records(1, 11);
        fs::write(&archive, gz(&tar(&list))).unwrap();
        assert!(error().contains("label 11 of record 0"), "{}", error());
        fs::write(&archive, b"no archive at all").unwrap();
        assert!(error().contains("damaged"), "{}", error());
        fs::remove_file(&archive).unwrap();
        fs::write(dir.path().join(ARCHIVES[1]), b"no archive at all").unwrap();
        assert!(error().contains("damaged"), "{}", error());
    }
}
