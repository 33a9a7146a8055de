use super::super::transforms::{Interpolation, Size, Window, transform};
use super::index::Row;
use super::*;
use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicUsize;

const RESIZE: Transform =
    Transform::Resize { size: Size::Shorter(12), interpolation: Interpolation::Bilinear, antialias: true };
const CROP: Transform = Transform::CenterCrop { size: [10, 10] };
const FLIP: Transform = Transform::RandomHorizontalFlip { p: 0.5 };
const RANDOM_CROP: Transform = Transform::RandomResizedCrop {
    size: [8, 8],
    scale: [0.08, 1.0],
    ratio: [0.75, 1.33],
    interpolation: Interpolation::Bilinear,
    antialias: true,
};

fn golden(name: &str) -> Vec<u8> {
    fs::read(format!("{}/tests/golden/jpeg/{name}.jpg", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// A file as it was when it was read, and what it holds.
fn stamped(folder: &Path, name: &str, bytes: &[u8]) -> Stamp {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    Stamp::of(&fs::metadata(path).unwrap()).unwrap()
}

/// What a chain of transforms makes of a photo, by way of the area, and how often the photo was decoded for it.
fn through(area: &Area, list: &[Transform], sample: usize, stamp: Stamp, file: &[u8], seed: u64) -> (Image, bool) {
    let mut draws = Stream::new(seed, Purpose::Augment, 0, sample as u64);
    let rest = &list[area.done()..];
    let mut go = |image: &Image| transform_source(rest, &mut draws, image).unwrap();
    if let Some(image) = area.look(sample, Some(stamp), &mut go) {
        return (image, false);
    }
    let photo = Photo::new(file).unwrap();
    match area.add(sample, Some(stamp), &photo, &mut go) {
        Some(image) => (image, true),
        None => (transform_source(list, &mut draws, &photo).unwrap(), true),
    }
}

fn without(list: &[Transform], sample: usize, file: &[u8], seed: u64) -> Image {
    let mut draws = Stream::new(seed, Purpose::Augment, 0, sample as u64);
    transform_source(list, &mut draws, &Photo::new(file).unwrap()).unwrap()
}

fn located(sample: usize, take: &mut dyn FnMut(&[u8])) {
    take(&sample.to_le_bytes());
}

fn area(cache: &Cache, list: &[Transform]) -> Arc<Area> {
    cache.prepare("train", "/photos", list, 4, &located).unwrap();
    cache.area("train", list).unwrap()
}

/// Of sound, damaged and uncommon files, in memory, on a disk, and on a disk by another run.
#[test]
fn what_is_kept_comes_to_the_same_bits() {
    let place = tempfile::tempdir().unwrap();
    let sound = golden("420-37x53-edges");
    let damaged = [&sound[..sound.len() * 3 / 4], b"\xff\xd9"].concat();
    let files = [sound, damaged, golden("other-progressive"), golden("444-17x9-noise")];
    let stamps = [0, 1, 2, 3].map(|i| stamped(place.path(), &i.to_string(), &files[i]));
    let lists = [&[RESIZE, CROP][..], &[RESIZE, CROP, FLIP], &[RESIZE, RANDOM_CROP], &[RANDOM_CROP, FLIP], &[CROP]];
    for (number, list) in lists.into_iter().enumerate() {
        let disk = Keep::Disk(place.path().join(format!("cache {number}")));
        let caches = [Keep::Memory, disk.clone()].map(|keep| Cache::new(keep, 1 << 20));
        for cache in &caches {
            let area = area(cache, list);
            for seed in 0..3 {
                for (i, file) in files.iter().enumerate() {
                    let (found, decoded) = through(&area, list, i, stamps[i], file, seed);
                    assert_eq!(found, without(list, i, file, seed), "{i} {list:?}");
                    // What is left of a damaged one depends on the window.
                    assert_eq!(decoded, seed == 0 || i == 1, "{i} {seed} {list:?}");
                }
            }
            assert_eq!((cache.kept().images, cache.kept().full), (3, false));
        }
        drop(caches);
        let later = Cache::new(disk, 1 << 20);
        let area = area(&later, list);
        assert_eq!(later.kept().images, 3);
        assert_eq!(through(&area, list, 0, stamps[0], &files[0], 7), (without(list, 0, &files[0], 7), false));
    }
}

#[test]
fn a_file_that_has_changed_is_decoded_anew() {
    let place = tempfile::tempdir().unwrap();
    let (old, new) = (golden("444-17x9-noise"), golden("444-17x9-edges"));
    let list = [RESIZE, CROP];
    let open = || {
        let cache = Cache::new(Keep::Disk(place.path().join("cache")), 1 << 20);
        (area(&cache, &list), cache)
    };
    let stamp = stamped(place.path(), "a", &old);
    let (first, _cache) = open();
    through(&first, &list, 0, stamp, &old, 0);
    drop((first, _cache));
    let changed = stamped(place.path(), "a", &new);
    assert_ne!(stamp, changed);
    let (second, cache) = open();
    assert_eq!(through(&second, &list, 0, changed, &new, 0), (without(&list, 0, &new, 0), true));
    assert_eq!(cache.kept().images, 1, "in the place of the old one");
    assert!(!through(&second, &list, 0, changed, &new, 0).1, "the new one is kept");
    drop((second, cache));
    let (third, _cache) = open();
    assert!(!through(&third, &list, 0, changed, &new, 0).1, "and found later");
}

/// The budget is spent once, and what there is no room for comes to the same.
#[test]
fn no_more_is_kept_than_there_is_room_for() {
    let place = tempfile::tempdir().unwrap();
    let file = golden("420-37x53-edges");
    let stamp = stamped(place.path(), "a", &file);
    let list = [RESIZE, CROP];
    let one = 10 * 10 * 3 + index::OVERHEAD;
    for keep in [Keep::Memory, Keep::Disk(place.path().join("cache"))] {
        let cache = Cache::new(keep, 2 * one + one / 2);
        let area = area(&cache, &list);
        for round in 0..2 {
            for sample in 0..4 {
                let (found, decoded) = through(&area, &list, sample, stamp, &file, 0);
                assert_eq!((found, decoded), (without(&list, sample, &file, 0), round == 0 || sample > 1));
            }
        }
        assert_eq!(cache.kept(), Kept { images: 2, bytes: 2 * one, limit: 2 * one + one / 2, full: true });
    }
    let none = Cache::new(Keep::Memory, 1);
    let area = area(&none, &[RANDOM_CROP]);
    assert!(through(&area, &[RANDOM_CROP], 0, stamp, &file, 0).1 && none.kept().images == 0);
}

/// Wherever a run is killed: whatever is left of the two files, what is found in them is right.
#[test]
fn what_is_left_of_the_files_is_never_wrong() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("cache");
    let files = ["420-37x53-edges", "444-17x9-noise", "grey-37x53-noise", "422-16x33-edges"].map(golden);
    let stamps = [0, 1, 2, 3].map(|i| stamped(place.path(), &i.to_string(), &files[i]));
    let list = [RESIZE, CROP];
    let fill = |cache: &Cache| {
        let area = area(cache, &list);
        let mut decoded = 0;
        for (i, file) in files.iter().enumerate() {
            let (found, anew) = through(&area, &list, i, stamps[i], file, 0);
            assert_eq!(found, without(&list, i, file, 0));
            decoded += usize::from(anew);
        }
        assert_eq!(cache.kept().images, 4, "what is made anew counts once");
        decoded
    };
    let open = || Cache::new(Keep::Disk(folder.clone()), 1 << 20);
    assert_eq!((fill(&open()), fill(&open())), (4, 0));
    let path = |ending: &str| {
        let mut all = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        all.find(|path| path.extension().is_some_and(|e| e == ending)).unwrap()
    };
    let (pixels, index) = (path("pixels"), path("index"));
    let whole = [&pixels, &index].map(|path| fs::read(path).unwrap());
    let tried = RefCell::new(0);
    let damaged = |content: [&[u8]; 2]| {
        fs::write(&pixels, content[0]).unwrap();
        fs::write(&index, content[1]).unwrap();
        *tried.borrow_mut() += 1;
        let anew = fill(&open());
        assert_eq!(fill(&open()), 0, "what was lacking is there");
        anew
    };
    // Cut off anywhere, and with bytes that never came to the disk.
    for length in (0..whole[1].len()).step_by(13) {
        assert!(damaged([&whole[0], &whole[1][..length]]) > 0, "{length}");
    }
    for length in (0..whole[0].len()).step_by(97) {
        assert!(damaged([&whole[0][..length], &whole[1]]) > 0, "{length}");
        let zeros = [&whole[0][..length], &vec![0; whole[0].len() - length]].concat();
        assert!(damaged([&zeros, &whole[1]]) > 0, "{length}");
    }
    for at in (0..whole[1].len()).step_by(7) {
        let mut other = whole[1].clone();
        other[at] ^= 0x40;
        assert!(damaged([&whole[0], &other]) > 0, "{at}");
    }
    // A row of another shape, whose hashes are right.
    let header = index::HEADER.len();
    let (row, rest) = whole[1][header..].split_first_chunk().unwrap();
    for shape in [[5, 20, 3], [300, 1, 1], [0, 10, 3]] {
        let mut row = Row { shape, ..Row::read(row).unwrap() };
        row.pixels = index::hash(&whole[0][row.offset as usize..row.end() as usize]);
        assert!(damaged([&whole[0], &[&whole[1][..header], &row.to_bytes(), rest].concat()]) > 0, "{shape:?}");
    }
    // Rows in another order than their pixels, as threads may write them: what is added later comes after all of these.
    let (header_bytes, rows) = whole[1].split_at(header);
    let size = rows.len() / 4;
    let turned: Vec<u8> = rows.chunks_exact(size).skip(1).rev().flatten().copied().collect();
    assert_eq!(damaged([&whole[0], &[header_bytes, &turned].concat()]), 1);
    // Pixels without a row are given up.
    assert_eq!(damaged([&[&whole[0][..], &[7; 1000]].concat(), &whole[1]]), 0);
    assert_eq!(fs::read(&pixels).unwrap(), whole[0]);
    assert!(tried.into_inner() > 100);
}

/// Also in a cache that has room for no other photo.
#[test]
fn damaged_pixels_are_replaced_where_they_are() {
    let place = tempfile::tempdir().unwrap();
    let (file, list) = (golden("420-37x53-edges"), [RESIZE, CROP]);
    let stamp = stamped(place.path(), "a", &file);
    let whole = 4 * (10 * 10 * 3 + index::OVERHEAD);
    let run = |limit: u64| {
        let cache = Cache::new(Keep::Disk(place.path().join("cache")), limit);
        let area = area(&cache, &list);
        let made = (0..4).filter(|sample| through(&area, &list, *sample, stamp, &file, 0).1).count();
        (made, cache.kept().images, cache.kept().bytes)
    };
    assert_eq!(run(whole), (4, 4, whole));
    let files = || fs::read_dir(place.path().join("cache")).unwrap().map(|entry| entry.unwrap().path());
    let pixels = files().find(|path| path.extension().unwrap() == "pixels").unwrap();
    let sound = fs::read(&pixels).unwrap();
    for round in 1..4 {
        let mut damaged = sound.clone();
        damaged[300..900].fill(0);
        fs::write(&pixels, damaged).unwrap();
        let limit = whole + round * 2 * index::OVERHEAD;
        assert_eq!(run(limit), (2, 4, limit), "{round}");
        assert_eq!(fs::read(&pixels).unwrap(), sound, "{round}");
        assert_eq!(run(limit).0, 0, "{round}");
    }
}

/// Two runs at once: one adds, the other reads, and both come to the same.
#[test]
fn one_run_adds_and_others_read() {
    let place = tempfile::tempdir().unwrap();
    let file = golden("420-37x53-edges");
    let stamp = stamped(place.path(), "a", &file);
    let list = [RESIZE, CROP];
    let caches = [0, 1].map(|_| Cache::new(Keep::Disk(place.path().join("cache")), 1 << 20));
    let areas = [&caches[0], &caches[1]].map(|cache| area(cache, &list));
    for sample in 0..4 {
        for area in &areas {
            assert_eq!(through(area, &list, sample, stamp, &file, 0).0, without(&list, sample, &file, 0));
        }
    }
    assert_eq!([&caches[0], &caches[1]].map(|cache| cache.kept().images), [4, 0]);
    assert_eq!(caches[0].trouble(), None);
    assert!(caches[1].trouble().unwrap().contains("another run adds photos"), "a warning");
    assert_eq!(caches[1].trouble(), None, "once");
    drop((areas, caches));
    let later = Cache::new(Keep::Disk(place.path().join("cache")), 1 << 20);
    assert!(!through(&area(&later, &list), &list, 3, stamp, &file, 0).1);
}

#[test]
fn other_transforms_folders_and_parts_have_files_of_their_own() {
    let place = tempfile::tempdir().unwrap();
    let cache = Cache::new(Keep::Disk(place.path().join("cache")), 1 << 20);
    let made = AtomicUsize::new(0);
    let count = || fs::read_dir(place.path().join("cache")).unwrap().count();
    for (name, folder, list) in [
        ("train", "/a", &[RESIZE][..]),
        ("val", "/a", &[RESIZE]),
        ("train", "/a", &[RESIZE, CROP]),
        ("train", "/a", &[]),
    ] {
        cache.prepare(name, folder, list, 1, &located).unwrap();
        assert_eq!(count(), 2 + made.fetch_add(2, Ordering::Relaxed));
    }
    let elsewhere = Cache::new(Keep::Disk(place.path().join("cache")), 1 << 20);
    elsewhere.prepare("train", "/b", &[RESIZE], 1, &located).unwrap();
    assert_eq!(count(), 10);
    // What follows the first draw does not matter.
    cache.prepare("train", "/a", &[RESIZE, FLIP], 1, &located).unwrap();
    assert_eq!(count(), 10);
}

#[test]
fn a_folder_that_cannot_be_used_is_named() {
    let place = tempfile::tempdir().unwrap();
    let taken = place.path().join("taken");
    fs::write(&taken, "a file").unwrap();
    let cache = Cache::new(Keep::Disk(taken.join("cache")), 1 << 20);
    let error = format!("{:#}", cache.prepare("train", "/a", &[RESIZE], 1, &located).unwrap_err());
    assert!(error.contains(&taken.join("cache").display().to_string()) && error.contains("`cache_dir`"), "{error}");
}

#[test]
fn what_draws_nothing_is_kept_and_no_more() {
    assert_eq!([&[RESIZE, CROP, FLIP][..], &[RANDOM_CROP, RESIZE], &[], &[CROP]].map(fixed), [2, 0, 0, 1]);
    let image = Image { sides: [30, 20], channels: 3, pixels: vec![7; 1800] };
    let mut draws = Stream::new(0, Purpose::Augment, 0, 0);
    let window = Window { at: [0, 0], sides: [1, 1] };
    let out = transform(&[RESIZE, CROP], &mut draws, image);
    assert_eq!((out.rows(window).count(), draws.next_u32()), (1, Stream::new(0, Purpose::Augment, 0, 0).next_u32()));
}
