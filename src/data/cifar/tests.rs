//! Small sets in CIFAR-10's format, whole and damaged.

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
        TEN.files.iter().enumerate().rev().map(|(i, f)| (format!("{}/{f}", TEN.folder), records(2, i as u8))).collect();
    list.insert(2, (format!("{}/readme.html", TEN.folder), b"hello".to_vec()));
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

/// A set of one's own in CIFAR-10's format.
fn own(root: &Path) -> Files {
    Files { root: root.into(), verify: false }
}

fn quiet() -> impl FnMut(Event<'_>) {
    |_| ()
}

fn check(root: &Path) {
    let set = open(Variant::Ten, &own(root), &mut quiet()).unwrap();
    assert_eq!((set.train.len(), set.val.len()), (10, 2));
    let labels: Vec<_> = (0..10).map(|i| set.train.label(i).unwrap()).collect();
    assert_eq!(labels, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
    // Sample 1 of the first file, row 2, column 3.
    assert_eq!(set.train.bytes(1, 0).unwrap()[(2 * SIDE + 3) * 3..][..3], [1, 2, 3]);
    assert_eq!(set.val.label(0), Some(5));
}

#[test]
fn reads_folders_and_archives() {
    for kind in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        match kind {
            0 => fs::write(dir.path().join(TEN.archives[0]), gz(&tar(&files()))).unwrap(),
            1 => fs::write(dir.path().join(TEN.archives[1]), xz(&tar(&files()))).unwrap(),
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

fn names(root: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(root).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

/// Unpacks the archive as that of the public set would be.
fn unpacked(root: &Path, archive: &str, progress: &mut dyn FnMut(Event)) -> Result<Unpacked> {
    unpack::unpack(&TEN, &root.join(archive), &own(root), progress)
}

#[test]
fn an_archive_is_unpacked_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(TEN.archives[1]), xz(&tar(&files()))).unwrap();
    let mut events = Vec::new();
    let done = unpacked(dir.path(), TEN.archives[1], &mut |e| events.push(format!("{e:?}"))).unwrap();
    assert!(matches!(done, Unpacked::There(folder) if folder == dir.path().join(TEN.folder)));
    assert!(events[0].starts_with("Unpacking { file: \"cifar-10-binary.tar.xz\", done: 0, total: "), "{events:?}");
    assert_eq!(events.last().unwrap(), "Unpacked { file: \"cifar-10-binary.tar.xz\" }");
    assert_eq!(names(dir.path()), [TEN.folder, TEN.archives[1]]);
    assert_eq!(names(&dir.path().join(TEN.folder)), TEN.files, "nothing else of the archive");
    // The archive is not needed again.
    fs::remove_file(dir.path().join(TEN.archives[1])).unwrap();
    open(Variant::Ten, &own(dir.path()), &mut |e| panic!("{e:?}")).unwrap();
    check(dir.path());
}

#[test]
fn a_set_of_ones_own_stays_in_its_archive_which_may_change() {
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join(TEN.archives[0]);
    fs::write(&archive, gz(&tar(&files()))).unwrap();
    check(dir.path());
    assert_eq!(names(dir.path()), [TEN.archives[0]]);
    let mut list = files();
    list[0].1 = records(3, 9);
    fs::write(&archive, gz(&tar(&list))).unwrap();
    let set = open(Variant::Ten, &own(dir.path()), &mut quiet()).unwrap();
    assert_eq!((set.val.len(), set.val.label(0)), (3, Some(9)));
}

#[test]
fn a_damaged_archive_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let whole = gz(&tar(&files()));
    // The damage is at the end, after all files have been written.
    fs::write(dir.path().join(TEN.archives[0]), &whole[..whole.len() - 3]).unwrap();
    let error = unpacked(dir.path(), TEN.archives[0], &mut quiet()).map(|_| ()).unwrap_err();
    assert!(format!("{error:#}").contains("damaged or cut short"), "{error:#}");
    assert_eq!(names(dir.path()), [TEN.archives[0]]);
}

#[test]
fn a_file_that_is_lacking_is_unpacked_and_no_other_touched() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(TEN.archives[0]), gz(&tar(&files()))).unwrap();
    unpacked(dir.path(), TEN.archives[0], &mut quiet()).unwrap();
    let folder = dir.path().join(TEN.folder);
    fs::remove_file(folder.join(TEN.files[2])).unwrap();
    fs::write(folder.join(TEN.files[5]), records(3, 7)).unwrap();
    fs::write(folder.join("mine.txt"), "mine").unwrap();
    unpacked(dir.path(), TEN.archives[0], &mut quiet()).unwrap();
    let set = open(Variant::Ten, &own(dir.path()), &mut quiet()).unwrap();
    assert_eq!((set.train.len(), set.val.len(), set.val.label(0)), (10, 3, Some(7)));
    assert_eq!(fs::read(folder.join("mine.txt")).unwrap(), b"mine");
    assert_eq!(names(dir.path()), [TEN.folder, TEN.archives[0]]);
}

#[cfg(unix)]
#[test]
fn what_a_killed_process_left_is_removed_and_what_another_does_is_not() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(TEN.archives[0]), gz(&tar(&files()))).unwrap();
    let [left, busy, strange] =
        ["part-1", "part-2", "part-x"].map(|end| dir.path().join(format!("{}.{end}", TEN.folder)));
    for folder in [&left, &busy, &strange] {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join(TEN.files[0]), "half").unwrap();
    }
    let at_work = fs::File::open(&busy).unwrap();
    at_work.lock().unwrap();
    unpacked(dir.path(), TEN.archives[0], &mut quiet()).unwrap();
    check(dir.path());
    assert!(!left.exists() && busy.join(TEN.files[0]).exists() && strange.exists());
}

#[cfg(unix)]
#[test]
fn an_unwritable_folder_is_reported_and_left_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(TEN.archives[0]), gz(&tar(&files()))).unwrap();
    // A file stands where the folder should be, which stops even those whom no permission stops.
    fs::write(dir.path().join(TEN.folder), "in the way").unwrap();
    let done = unpacked(dir.path(), TEN.archives[0], &mut quiet()).unwrap();
    assert!(matches!(done, Unpacked::Unwritable(why) if why.contains("cannot write into")));
    assert_eq!(names(dir.path()), [TEN.folder, TEN.archives[0]]);
    // The archive can be read all the same.
    check(dir.path());
}

/// Every single flipped bit of an archive is found, or changes nothing that is read: before the checksum at the stream's
/// end has been seen, nothing is believed.
#[test]
fn no_flipped_bit_changes_what_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(TEN.archives[0]);
    for whole in [gz(&tar(&files())), xz(&tar(&files()))] {
        fs::write(&path, &whole).unwrap();
        let expected = from_archive(Variant::Ten, &path, &own(dir.path()), &mut quiet()).unwrap();
        let mut refused = 0;
        // Every byte, and of each another bit.
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            fs::write(&path, &flipped).unwrap();
            match from_archive(Variant::Ten, &path, &own(dir.path()), &mut quiet()) {
                Ok(parts) => assert!(
                    parts.iter().zip(&expected).all(|(a, b)| a.pixels == b.pixels && a.labels == b.labels),
                    "byte {at}"
                ),
                Err(_) => refused += 1,
            }
        }
        // Xz has a checksum for everything. In gzip some bits are only a date, and repeated bytes can be written in two ways.
        let least = if whole.starts_with(b"\xfd7zXZ") { whole.len() } else { whole.len() / 2 };
        assert!(refused >= least, "{refused} of {}", whole.len());
        // Cut anywhere, too, it is refused.
        for length in [0, 5, whole.len() / 2, whole.len() - 9, whole.len() - 1] {
            fs::write(&path, &whole[..length]).unwrap();
            assert!(from_archive(Variant::Ten, &path, &own(dir.path()), &mut quiet()).is_err(), "{length} bytes");
        }
    }
}

/// A file that says how large it is and holds zeros, as the header of `kind`.
fn zeros(kind: tar::EntryType, name: &str, size: u64) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.set_path(name).unwrap();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o644);
    header.set_cksum();
    header.as_bytes().to_vec()
}

/// Gzipped: these bytes, then so many megabytes of zeros.
fn bomb(head: &[u8], megabytes: usize) -> Vec<u8> {
    let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    e.write_all(head).unwrap();
    let zeros = vec![0; 1 << 20];
    (0..megabytes).for_each(|_| e.write_all(&zeros).unwrap());
    e.finish().unwrap()
}

#[test]
fn archives_that_unpack_to_gigabytes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(TEN.archives[0]);
    let error = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        format!("{:#}", open(Variant::Ten, &own(dir.path()), &mut quiet()).unwrap_err())
    };
    // A header before a file that claims two gigabytes, and has them: it is passed over, until it is too much.
    for kind in [tar::EntryType::XHeader, tar::EntryType::XGlobalHeader, tar::EntryType::GNULongName] {
        let text = error(&bomb(&zeros(kind, "pax", 2 << 30), 1030));
        assert!(text.contains("more than 1073741824 bytes"), "{text}");
    }
    // One that claims them and has not.
    let text = error(&bomb(&zeros(tar::EntryType::XHeader, "pax", 1 << 40), 1));
    assert!(text.contains("damaged"), "{text}");
    // A file of the set: refused by its size.
    let text = error(&bomb(&zeros(tar::EntryType::Regular, TEN.files[0], 2 << 30), 1));
    assert!(text.contains("larger than a file of CIFAR-10 can be"), "{text}");
    // For the public set, much sooner.
    fs::write(&path, bomb(&zeros(tar::EntryType::Regular, TEN.files[0], 30_000_000), 1)).unwrap();
    let text = format!("{:#}", open(Variant::Ten, &Files::at(dir.path()), &mut quiet()).unwrap_err());
    assert!(text.contains("holds 30000000 bytes where CIFAR-10's has 30730000"), "{text}");
}

#[test]
fn a_file_that_comes_twice_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut list = files();
    list.push(list[0].clone());
    fs::write(dir.path().join(TEN.archives[0]), gz(&tar(&list))).unwrap();
    let text = format!("{:#}", open(Variant::Ten, &own(dir.path()), &mut quiet()).unwrap_err());
    assert!(text.contains("holds test_batch.bin twice"), "{text}");
}

/// Files of the right size and of nothing else: what they hold decides, and once is enough for that.
#[test]
fn verified_files_are_remembered_until_they_change() {
    let dir = tempfile::tempdir().unwrap();
    let known = &Known::Cifar10.content()[0];
    let path = dir.path().join(TEN.files[0]);
    fs::write(&path, vec![0; known.bytes as usize]).unwrap();
    let read = |verified: &mut Verified| read_file(&TEN, &path, 0, &Files::at(dir.path()), verified);
    let text = format!("{:#}", read(&mut Verified::of(dir.path())).unwrap_err());
    assert!(text.contains("is not CIFAR-10's `data_batch_1.bin` (its SHA-256 is "), "{text}");
    // As if it had been verified: it is not hashed again, which would refuse it.
    let remember = || {
        let mut verified = Verified::of(dir.path());
        verified.add(known, &fs::metadata(&path).unwrap());
        verified.save();
    };
    remember();
    let bytes = read(&mut Verified::of(dir.path())).unwrap();
    // Written anew, with the same size and the old date: it is another file.
    let date = fs::metadata(&path).unwrap().modified().unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, &bytes).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(date).unwrap();
    if cfg!(unix) {
        assert!(read(&mut Verified::of(dir.path())).is_err(), "replaced");
    }
    remember();
    assert!(read(&mut Verified::of(dir.path())).is_ok());
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(date + std::time::Duration::from_secs(1))
        .unwrap();
    assert!(read(&mut Verified::of(dir.path())).is_err(), "another date");
    // A memory that is damaged, or of another file's checksum, is none.
    remember();
    let memory = dir.path().join(".verified.json");
    let text = fs::read_to_string(&memory).unwrap();
    for wrong in ["", "{", "[]", &text.replace(known.sha256, &"0".repeat(64)), &text.replace("inode", "node")] {
        fs::write(&memory, wrong).unwrap();
        assert!(read(&mut Verified::of(dir.path())).is_err(), "{wrong}");
    }
    // One that cannot be written is no obstacle.
    fs::remove_file(&memory).unwrap();
    fs::create_dir(&memory).unwrap();
    remember();
    assert!(read(&mut Verified::of(dir.path())).is_err());
}

#[test]
fn faults_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = || format!("{:#}", open(Variant::Ten, &own(dir.path()), &mut quiet()).unwrap_err());
    let text = error();
    assert!(text.contains("cifar-10-binary.tar.gz") && text.contains("data_batch_1.bin"), "{text}");
    assert!(open(Variant::Ten, &own(dir.path()), &mut quiet()).unwrap_err().is::<MissingFiles>());

    let archive = dir.path().join(TEN.archives[0]);
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
    fs::write(dir.path().join(TEN.archives[1]), b"no archive at all").unwrap();
    assert!(error().contains("damaged"), "{}", error());
}

/// CIFAR-100's records have two labels, of which one is learnt.
#[test]
fn records_with_two_labels() {
    let dir = tempfile::tempdir().unwrap();
    let record = |labels: [u8; 2], red: u8| [&labels[..], &[red; PIXELS], &[0; 2 * PIXELS]].concat();
    let file = |name: &str, records: &[Vec<u8>]| (format!("{}/{name}", HUNDRED.folder), records.concat());
    let list = [
        file("train.bin", &[record([4, 0], 7), record([19, 99], 8), record([0, 50], 9)]),
        file("test.bin", &[record([1, 98], 5)]),
        (format!("{}/fine_label_names.txt", HUNDRED.folder), b"apple\n".to_vec()),
    ];
    fs::write(dir.path().join(HUNDRED.archives[0]), gz(&tar(&list))).unwrap();
    for (variant, train, val, classes) in [(Variant::Fine, [0, 99, 50], 98, 100), (Variant::Coarse, [4, 19, 0], 1, 20)]
    {
        let set = open(variant, &own(dir.path()), &mut quiet()).unwrap();
        assert_eq!([0, 1, 2].map(|i| set.train.label(i).unwrap()), train);
        assert_eq!((set.val.len(), set.val.label(0).unwrap()), (1, val));
        assert_eq!([0, 1, 2].map(|i| set.train.bytes(i, 0).unwrap()[0]), [7, 8, 9]);
        let names = set.spec.class_names().unwrap().to_vec();
        assert!(names.len() == classes && names.is_sorted(), "{names:?}");
    }
    // Both labels must be such.
    for labels in [[20, 0], [0, 100]] {
        let wrong = [file("train.bin", &[record(labels, 0)]), list[1].clone()];
        fs::write(dir.path().join(HUNDRED.archives[0]), gz(&tar(&wrong))).unwrap();
        let text = format!("{:#}", open(Variant::Fine, &own(dir.path()), &mut quiet()).unwrap_err());
        assert!(text.contains("of record 0 is not within 0 .. "), "{text}");
    }
    // Held to the public set, its files must have their sizes, which differ.
    let text = format!("{:#}", open(Variant::Fine, &Files::at(dir.path()), &mut quiet()).unwrap_err());
    assert!(text.contains("holds 3074 bytes where CIFAR-100's has 153700000"), "{text}");
    let none = open(Variant::Coarse, &own(&dir.path().join("none")), &mut quiet()).unwrap_err();
    assert!(
        none.to_string().contains("`train.bin`") && none.to_string().contains("runner data fetch cifar100"),
        "{none}"
    );
}
