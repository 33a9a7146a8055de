use super::super::store::{Changes, Column, Key, Rows};
use super::super::{Source, Transform, describe, footprint, open};
use super::*;
use image::{DynamicImage, ImageFormat, RgbImage};
use std::fs;
use std::io::Cursor;
use tempfile::TempDir;

/// A PNG file of one colour.
fn png(colour: u8) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    let picture = DynamicImage::from(RgbImage::from_pixel(3, 2, image::Rgb([colour, 2, 3])));
    picture.write_to(&mut out, ImageFormat::Png).unwrap();
    out.into_inner()
}

fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, *bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

fn options(place: &TempDir, pattern: &str) -> WebDatasetOptions {
    let shards = place.path().join(pattern);
    WebDatasetOptions { shards, val_shards: None, classes: None, label_key: "label".into(), strict: false }
}

fn write(place: &TempDir, name: &str, files: &[(&str, &[u8])]) {
    fs::write(place.path().join(name), tar(files)).unwrap();
}

fn error(options: &WebDatasetOptions) -> String {
    format!("{:#}", open(&Source::WebDataset(options.clone())).unwrap_err())
}

fn labels(split: &Split) -> Vec<i32> {
    (0..split.len()).map(|i| split.label(i).unwrap()).collect()
}

/// The red of a sample.
fn red(split: &Split, sample: usize) -> Result<u8, String> {
    let mut slot = vec![0; 12];
    let crop = Transform::RandomCrop { size: [2, 2], padding: [0; 4] };
    let changes = [Changes { field: 0, of_masks: false, transforms: vec![crop], sides: [0, 0], pixel: 3 }];
    let columns = [Some(Column { offset: 0, bytes: 12 })];
    let key = Key { seed: 0, epoch: 0, sample: 0 };
    split.write(sample, &mut Rows::new(&mut slot, &columns, 0, &changes, key)).map_err(|e| e.to_string())?;
    Ok(slot[0])
}

#[test]
fn samples_of_all_shards_in_their_order() {
    let place = tempfile::tempdir().unwrap();
    let pictures: Vec<Vec<u8>> = (0..5).map(png).collect();
    let of = |i: usize| &pictures[i][..];
    // A label before its image, a dot within the ending, JSON, upper case.
    write(&place, "t-00.tar", &[("a/1.png", of(0)), ("a/1.cls", b"2"), ("a/2.cls", b" 0\n"), ("a/2.PNG", of(1))]);
    write(
        &place,
        "t-01.tar",
        &[("3.jpeg", of(2)), ("3.json", b"{\"label\": 1}"), ("3.seg.png", of(4)), ("3.txt", b"x")],
    );
    write(&place, "v.tar", &[("1.json", b"{\"label\": 5}"), ("1.cls", b"1"), ("1.png", of(3))]);
    let source = Source::WebDataset(WebDatasetOptions {
        val_shards: Some(place.path().join("v.tar")),
        ..options(&place, "t-{00..01}.tar")
    });
    let spec = describe(&source).unwrap();
    let held = footprint(&source).held;
    let set = open(&source).unwrap();
    assert_eq!((&set.spec, held), (&spec, set.train.held_bytes() + set.val.held_bytes()));
    assert_eq!(
        (spec.labels().map(|c| (c.number, c.exact)), spec.train, spec.val),
        (Some((3, false)), Some(3), Some(1))
    );
    assert_eq!((labels(&set.train), labels(&set.val)), (vec![2, 0, 1], vec![1]));
    assert_eq!((0..3).map(|i| red(&set.train, i).unwrap()).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(red(&set.val, 0), Ok(3));
    assert_eq!(set.notes.len(), 1);
    assert!(
        set.notes[0].ends_with("neither images nor labels, which are left out: `3.seg.png`, `3.txt`"),
        "{:?}",
        set.notes
    );
}

/// As Python's `tarfile` writes names that are long or not ASCII, and dates with fractions of a second.
#[test]
fn names_and_sizes_in_headers_of_their_own() {
    let place = tempfile::tempdir().unwrap();
    let picture = png(9);
    let long = format!("{}/{}", "d".repeat(120), "ü".repeat(30));
    let mut builder = tar::Builder::new(Vec::new());
    for (ending, bytes) in [("png", &picture[..]), ("cls", b"0")] {
        let name = format!("{long}.{ending}");
        let records =
            [("mtime", b"1.5".as_slice()), ("path", name.as_bytes()), ("size", &bytes.len().to_string().into_bytes())];
        builder.append_pax_extensions(records).unwrap();
        let mut header = tar::Header::new_ustar();
        header.set_path(format!("short.{ending}")).unwrap();
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        builder.append(&header, bytes).unwrap();
    }
    fs::write(place.path().join("a.tar"), builder.into_inner().unwrap()).unwrap();
    // GNU's way.
    let mut builder = tar::Builder::new(Vec::new());
    for (ending, bytes) in [("png", &picture[..]), ("cls", b"1")] {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        builder.append_data(&mut header, format!("{long}.{ending}"), bytes).unwrap();
    }
    fs::write(place.path().join("b.tar"), builder.into_inner().unwrap()).unwrap();
    for name in ["a.tar", "b.tar"] {
        let scanned = shard::scan(&place.path().join(name), "label").unwrap();
        assert_eq!(scanned.samples.iter().map(|s| s.key.as_str()).collect::<Vec<_>>(), [long.as_str()]);
    }
    let set = open(&Source::WebDataset(options(&place, "*.tar"))).unwrap();
    assert_eq!((labels(&set.train), red(&set.train, 1)), (vec![0, 1], Ok(9)));
}

#[test]
fn labels_are_numbers_or_names() {
    let place = tempfile::tempdir().unwrap();
    let picture = png(0);
    write(
        &place,
        "a.tar",
        &[("1.png", &picture), ("1.json", b"{\"kind\": \"bee\"}"), ("2.png", &picture), ("2.cls", b"0")],
    );
    let named = |names: &[&str]| WebDatasetOptions {
        classes: Some(Labels::Names(names.iter().map(|name| name.to_string()).collect())),
        label_key: "kind".into(),
        ..options(&place, "a.tar")
    };
    let set = open(&Source::WebDataset(named(&["ant", "bee"]))).unwrap();
    assert_eq!((labels(&set.train), set.spec.class_names().unwrap().len()), (vec![1, 0], 2));
    let message = error(&named(&["ant", "wasp"]));
    assert!(message.contains("a.tar`: the sample `1`: its label `bee` is none of `classes`"), "{message}");
    let message = error(&WebDatasetOptions { classes: None, ..named(&[]) });
    assert!(message.contains("its label `bee` is a name: give the names of all classes"), "{message}");
    write(&place, "b.tar", &[("1.png", &picture), ("1.cls", b"3")]);
    let message = error(&WebDatasetOptions { classes: Some(Labels::Number(3)), ..options(&place, "b.tar") });
    assert!(message.contains("its label 3 is not within 0 .. 2"), "{message}");
    let nowhere = WebDatasetOptions { classes: Some(Labels::Number(3)), ..options(&place, "none.tar") };
    assert_eq!(describe(&Source::WebDataset(nowhere)).unwrap().labels().map(|c| c.number), Some(3));
}

#[test]
fn archives_that_are_wrong_are_errors_that_say_what() {
    let place = tempfile::tempdir().unwrap();
    let picture = png(0);
    let whole = tar(&[("1.png", &picture), ("1.cls", b"0")]);
    let long_header = {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::XHeader);
        header.set_size(1 << 40);
        header.set_cksum();
        header.as_bytes().to_vec()
    };
    let flipped = {
        let mut bytes = whole.clone();
        bytes[3] ^= 1;
        bytes
    };
    let packed = {
        let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut e, &whole).unwrap();
        e.finish().unwrap()
    };
    for (bytes, part) in [
        (whole[..600].to_vec(), "is cut short: `1.png` is to have"),
        (whole[..1100].to_vec(), "it ends within the header at byte 1024"),
        (Vec::new(), "is cut short, or no tar archive: it ends within the header at byte 0"),
        (vec![7; 2048], "there is no header at byte 0"),
        (flipped, "there is no header at byte 0"),
        (packed, "unpack it with `gunzip`"),
        (long_header, "is cut short: `` is to have 1099511627776 bytes"),
        (tar(&[("1.png", &picture)]), "the sample `1` has no label: neither `1.cls` nor `label` in `1.json`"),
        (tar(&[("1.cls", b"1")]), "the sample `1` has no image: files with the endings jpg"),
        (tar(&[("1.png", &picture), ("1.json", b"{\"x\": 1}")]), "the sample `1` has no label"),
        (tar(&[("1.png", &picture), ("1.json", b"{")]), "`1.json`: is no JSON object"),
        (tar(&[("1.png", &picture), ("1.cls", b"0"), ("1.jpg", &picture)]), "has two images called `1`"),
        (
            tar(&[("1.cls", b"0"), ("1.png", &picture), ("1.cls", b"1")]),
            "the sample `1` has two files with the ending `cls`: `1.cls`, whose header is at byte 2048, is the second",
        ),
        (
            tar(&[("1.json", b"{\"label\": 1}"), ("1.png", &picture), ("1.JSON", b"{}")]),
            "the sample `1` has two files with the ending `json`",
        ),
        ([whole.clone(), whole.clone()].concat(), "goes on after its end, at byte"),
        (tar(&[("1.txt", b"x")]), "holds no samples"),
        (tar(&[]), "holds no samples"),
    ] {
        fs::write(place.path().join("a.tar"), bytes).unwrap();
        let found = error(&options(&place, "a.tar"));
        assert!(found.contains(part) && found.contains("a.tar`"), "{part}: {found}");
    }
    // Without the empty blocks at the end, it is whole.
    fs::write(place.path().join("a.tar"), &whole[..whole.len() - 1024]).unwrap();
    let set = open(&Source::WebDataset(options(&place, "a.tar"))).unwrap();
    assert_eq!((set.train.len(), set.notes.len()), (1, 1));
    assert!(set.notes[0].contains("if it was cut off, samples are missing after `1.cls`"), "{:?}", set.notes);
    assert!(error(&options(&place, "none.tar")).contains("none.tar` is not there"));
}

/// Under whatever name: what is validated on would be known.
#[test]
fn a_shard_on_both_sides_is_noted() {
    let place = tempfile::tempdir().unwrap();
    for (name, label) in [("a.tar", b"0"), ("b.tar", b"1")] {
        write(&place, name, &[("1.png", &png(1)), ("1.cls", label)]);
    }
    let notes = |train: &str, val: &str| {
        let val_shards = Some(place.path().join(val));
        let options = WebDatasetOptions { val_shards, ..options(&place, train) };
        open(&Source::WebDataset(options)).unwrap().notes
    };
    assert!(notes("a.tar", "b.tar").is_empty());
    let both = notes("a.tar", "{a,b}.tar");
    assert!(both[0].contains("a.tar` is in `shards` and in `val_shards`: the 1 photo that it has"), "{both:?}");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("a.tar", place.path().join("c.tar")).unwrap();
        let both = notes("a.tar", "c.tar");
        assert!(both[0].contains("c.tar` is in `shards`"), "{both:?}");
        let both = notes("{a,b}.tar", "{b,c}.tar");
        assert!(both[0].contains("2 shards, such as") && both[0].contains("the 2 photos that they have"), "{both:?}");
    }
}

#[test]
fn an_image_that_cannot_be_read_is_named() {
    let place = tempfile::tempdir().unwrap();
    write(&place, "a.tar", &[("x/1.png", b"no image"), ("x/1.cls", b"0")]);
    let set = open(&Source::WebDataset(options(&place, "a.tar"))).unwrap();
    let message = red(&set.train, 0).unwrap_err();
    assert!(message.contains(&format!("`{}/x/1.png`: ", place.path().join("a.tar").display())), "{message}");
    assert!(set.train.skips_unreadable());
    // Another archive in its place is noticed, as its bytes are not those that were found.
    write(&place, "a.tar", &[]);
    assert!(red(&set.train, 0).unwrap_err().contains("is another file than when the run began"));
    let strict = WebDatasetOptions { strict: true, ..options(&place, "b.tar") };
    write(&place, "b.tar", &[("1.png", &png(1)), ("1.cls", b"0")]);
    assert!(!open(&Source::WebDataset(strict)).unwrap().train.skips_unreadable());
}

#[test]
fn endings_begin_at_the_first_dot_of_a_name() {
    let place = tempfile::tempdir().unwrap();
    let picture = png(1);
    // Not at that of a folder.
    write(
        &place,
        "a.tar",
        &[("v1.0/a.png", &picture), ("v1.0/a.cls", b"0"), ("v1.1/a.png", &picture), ("v1.1/a.cls", b"1")],
    );
    assert_eq!(labels(&open(&Source::WebDataset(options(&place, "a.tar"))).unwrap().train), [0, 1]);
}

/// An archive that ends anywhere is an error, or says that samples may be missing.
#[test]
fn no_archive_that_is_cut_off_is_shorter_in_silence() {
    let place = tempfile::tempdir().unwrap();
    let picture = png(1);
    let whole = tar(&[("1.png", &picture), ("1.cls", b"0"), ("2.png", &picture), ("2.cls", b"1")]);
    let (mut refused, mut noted) = (0, 0);
    for length in 0..whole.len() {
        fs::write(place.path().join("a.tar"), &whole[..length]).unwrap();
        match open(&Source::WebDataset(options(&place, "a.tar"))) {
            Err(_) => refused += 1,
            Ok(set) if set.train.len() < 2 => {
                assert!(set.notes.iter().any(|note| note.contains("if it was cut off")), "{length} bytes");
                noted += 1;
            }
            // Only the empty blocks after the last sample are lacking.
            Ok(_) => assert!(length >= whole.len() - 1024, "{length} bytes"),
        }
    }
    assert!(refused > 3000 && noted > 0, "{refused} {noted}");
}
