use super::super::store::{Changes, Column, Key, Rows};
use super::super::{Source, Transform, describe, footprint, open};
use super::*;
use image::RgbImage;
use std::fs;
use tempfile::TempDir;

/// A picture of one colour.
fn picture(path: &Path, side: u32, colour: u8) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    RgbImage::from_pixel(side, side + 1, image::Rgb([colour, 2, 3])).save(path).unwrap();
}

fn folder(files: &[&str]) -> TempDir {
    let place = tempfile::tempdir().unwrap();
    for (i, file) in files.iter().enumerate() {
        picture(&place.path().join(file), 3 + i as u32, i as u8);
    }
    place
}

fn source(place: &TempDir) -> Source {
    Source::ImageFolder(ImageFolderOptions { root: place.path().into(), ..ImageFolderOptions::default() })
}

fn named(place: &TempDir, classes: &[&str]) -> Source {
    let classes = Some(classes.iter().map(|name| name.to_string()).collect());
    Source::ImageFolder(ImageFolderOptions {
        root: place.path().into(),
        classes,
        strict: false,
        ..ImageFolderOptions::default()
    })
}

fn labels(split: &Split) -> Vec<i32> {
    (0..split.len()).map(|i| split.label(i).unwrap()).collect()
}

/// The first pixel of a sample, brought to 2 × 2 pixels.
fn pixel(split: &Split, sample: usize) -> Result<[u8; 3], String> {
    let mut slot = vec![0; 12];
    let crop = Transform::RandomCrop { size: [2, 2], padding: [0; 4] };
    let changes = [Changes { field: 0, of_masks: false, transforms: vec![crop], sides: [0, 0], pixel: 3 }];
    let key = Key { seed: 0, epoch: 0, sample: 0 };
    let columns = [Some(Column { offset: 0, bytes: 12 })];
    let mut rows = Rows::new(&mut slot, &columns, 0, &changes, key);
    split.write(sample, &mut rows).map_err(|e| e.to_string())?;
    Ok([slot[0], slot[1], slot[2]])
}

const ALL: [&str; 6] =
    ["train/b/2.png", "train/a/x/9.PNG", "train/a/1.png", "train/b/1.bmp", "val/b/5.png", "test/a/7.png"];

#[test]
fn parts_classes_and_order() {
    let place = folder(&ALL);
    let spec = describe(&source(&place)).unwrap();
    assert_eq!(
        (spec.class_names().map(<[String]>::to_vec), spec.train, spec.val),
        (Some(vec!["a".into(), "b".into()]), Some(4), Some(1))
    );
    assert!(spec.only_input().unwrap().is_of_any_size());
    let set = open(&source(&place)).unwrap();
    assert_eq!(
        (set.spec, set.notes),
        (
            spec,
            vec![
                format!("`{}` has classes without images: `a`", place.path().join("val").display()),
                format!("`{}` has classes without images: `b`", place.path().join("test").display())
            ]
        )
    );
    // By the names of classes, and of files within, those in folders below last.
    assert_eq!(labels(&set.train), [0, 0, 1, 1]);
    let colours: Vec<u8> = (0..4).map(|i| pixel(&set.train, i).unwrap()[0]).collect();
    assert_eq!(colours, [2, 1, 3, 0]);
    assert_eq!((labels(&set.val), labels(set.test.as_ref().unwrap())), (vec![1], vec![0]));
    assert_eq!(
        footprint(&source(&place)).held,
        [&set.train, &set.val, &set.test.unwrap()].map(|s| s.held_bytes()).iter().sum::<usize>()
    );
}

#[test]
fn one_folder_is_all_there_is() {
    let place = folder(&["dogs/1.png", "cats/1.png", "cats/2.png"]);
    let set = open(&source(&place)).unwrap();
    assert_eq!((labels(&set.train), set.val.len(), set.test.is_none()), (vec![0, 0, 1], 0, true));
    assert_eq!(set.spec.class_names().unwrap(), ["cats", "dogs"]);
}

#[test]
fn classes_that_are_named_have_that_order_and_need_no_files() {
    let place = folder(&ALL);
    let set = open(&named(&place, &["b", "a"])).unwrap();
    assert_eq!(labels(&set.train), [0, 0, 1, 1]);
    let one = open(&named(&place, &["b"])).unwrap();
    assert_eq!((one.spec.labels().map(|c| c.number), one.train.len()), (Some(1), 2));
    let left_out = "folders that are no classes, which are left out: `a`";
    assert!(one.notes.iter().any(|line| line.contains(left_out)), "{:?}", one.notes);
    // Folders of other names beside the validation images are left out, too.
    picture(&place.path().join("val/c/1.png"), 3, 0);
    assert_eq!(labels(&open(&named(&place, &["b"])).unwrap().val), [0]);
    let nowhere = ImageFolderOptions {
        root: "nowhere".into(),
        classes: Some(vec!["x".into(), "y".into()]),
        ..ImageFolderOptions::default()
    };
    let spec = describe(&Source::ImageFolder(nowhere.clone())).unwrap();
    assert_eq!((spec.labels().map(|c| c.number), spec.train, spec.class_names().unwrap().len()), (Some(2), None, 2));
    let error = format!("{:#}", open(&Source::ImageFolder(nowhere)).unwrap_err());
    assert!(error.contains("cannot read the photos in `nowhere`: "), "{error}");
}

/// A slip of the pen would train on fewer classes than are there.
#[test]
fn a_class_without_photos_beside_a_folder_that_is_left_out_is_an_error() {
    for below in ["", "train/"] {
        let place = folder(&[&format!("{below}ants/1.png")[..], &format!("{below}bees/1.png")]);
        let error = format!("{:#}", open(&named(&place, &["ants", "bess"])).unwrap_err());
        for part in ["no photos of the class `bess`", "photos in `bees`", "did you mean `bees`?"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        // One that has none yet, and a part of the folders, are as they are asked for.
        assert_eq!(labels(&open(&named(&place, &["bees", "wasps", "ants"])).unwrap().train), [0, 2]);
        assert_eq!(labels(&open(&named(&place, &["bees"])).unwrap().train), [0]);
    }
    // Other parts may lack some.
    let place = folder(&["train/a/1.png", "train/b/1.png", "val/a/1.png", "val/c/1.png"]);
    assert_eq!(labels(&open(&named(&place, &["a", "b"])).unwrap().val), [0]);
}

#[cfg(unix)]
#[test]
fn files_that_are_left_out_are_noted() {
    let place = folder(&["cats/1.png", "dogs/1.png", "loose.png", "dogs/.hidden.png"]);
    fs::write(place.path().join("cats/notes.txt"), "no image").unwrap();
    fs::create_dir(place.path().join("birds")).unwrap();
    fs::create_dir(place.path().join(".git")).unwrap();
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(place.path(), place.path().join("cats/all")).unwrap();
        std::os::unix::fs::symlink(place.path().join("dogs"), place.path().join("cats/more")).unwrap();
    }
    let set = open(&source(&place)).unwrap();
    let text = set.notes.join("\n");
    for part in ["images in no class, which are left out: `loose.png`", "`cats/notes.txt`"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(
        (set.spec.class_names().unwrap().to_vec(), set.spec.empty_folders),
        (vec!["cats".into(), "dogs".into()], vec!["birds".to_owned()])
    );
    if cfg!(unix) {
        assert!(text.contains("links to folders that are there already, which are left out: `cats/all`"), "{text}");
        assert_eq!(labels(&set.train), [0, 0, 1], "a link to another folder is followed");
    }
}

/// Folders that link to one another forwards: 2⁴⁰ ways through forty folders, and no circle.
#[cfg(unix)]
#[test]
fn each_folder_is_entered_once() {
    use std::os::unix::fs::symlink;
    let place = folder(&["b/1.png", "a/f0/1.png", "a/f39/2.png", "a/z/3.png", "a/0.png", "a/real/deep/4.png"]);
    let at = |name: &str| place.path().join(name);
    for i in 0..39 {
        fs::create_dir_all(at(&format!("a/f{i}"))).unwrap();
        for name in ["x", "y"] {
            symlink(format!("../f{}", i + 1), at(&format!("a/f{i}/{name}"))).unwrap();
        }
    }
    // Elsewhere, twice; and into the middle of what is there.
    fs::create_dir(at("elsewhere")).unwrap();
    fs::copy(at("b/1.png"), at("elsewhere/5.png")).unwrap();
    fs::rename(at("elsewhere"), place.path().join(".elsewhere")).unwrap();
    symlink("../.elsewhere", at("a/link")).unwrap();
    symlink("../.elsewhere", at("a/more")).unwrap();
    symlink("real/deep", at("a/again")).unwrap();
    let listing = super::scan::list(place.path(), None).unwrap();
    let images: Vec<String> = listing.images.iter().map(|image| image.display().to_string()).collect();
    let expected =
        ["a/0.png", "a/f0/1.png", "a/f39/2.png", "a/link/5.png", "a/real/deep/4.png", "a/z/3.png", "b/1.png"];
    assert_eq!(images, expected);
    assert!(listing.notes.join("\n").contains("links to folders that are there already"), "{:?}", listing.notes);
}

#[test]
fn wrong_folders_are_errors_that_say_what_to_do() {
    let error = |source: &Source| format!("{:#}", open(source).unwrap_err());
    let place = folder(&["train/a/1.png", "val/c/1.png"]);
    assert!(error(&source(&place)).contains("has a folder `c`"), "{}", error(&source(&place)));
    // A class whose name is that of a part.
    let vehicles = folder(&["train/1.png", "plane/1.png", "car/1.png"]);
    let message = error(&source(&vehicles));
    assert!(
        message.contains("by its name it is taken for the folder of all photos")
            && message.contains("`car` and `plane`"),
        "{message}"
    );
    let empty = tempfile::tempdir().unwrap();
    assert!(error(&source(&empty)).contains("there are no folders in"));
    fs::create_dir(empty.path().join("a")).unwrap();
    assert!(error(&source(&empty)).contains("hold no images: files with the endings jpg"));
    let file = Source::ImageFolder(ImageFolderOptions {
        root: place.path().join("train/a/1.png"),
        ..ImageFolderOptions::default()
    });
    assert!(error(&file).contains("is a file; `root` is a folder"));
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::ffi::OsStrExt;
        let name = std::ffi::OsStr::from_bytes(b"caf\xe9");
        fs::create_dir(place.path().join("train").join(name)).unwrap();
        assert!(error(&source(&place)).contains("must be UTF-8"), "{}", error(&source(&place)));
    }
}

#[test]
fn a_model_that_is_trained_knows_its_classes() {
    let place = folder(&["train/b/1.png", "train/c/1.png", "val/c/1.png"]);
    let classes = Some(["a", "b", "c"].map(String::from).to_vec());
    let options = ImageFolderOptions { root: place.path().into(), classes, trained: true, strict: false };
    let set = open(&Source::ImageFolder(options.clone())).unwrap();
    assert_eq!((labels(&set.train), labels(&set.val)), (vec![1, 2], vec![2]));
    // An empty folder is no class, and so none that is unknown.
    fs::create_dir(place.path().join("val/d")).unwrap();
    assert!(open(&Source::ImageFolder(options.clone())).is_ok());
    picture(&place.path().join("val/d/1.png"), 3, 0);
    let error = format!("{:#}", open(&Source::ImageFolder(options)).unwrap_err());
    for part in ["does not know the class `d`", "trained on `a`, `b` and `c`", "the data has `c` and `d`"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[cfg(unix)]
#[test]
fn a_file_that_cannot_be_read_is_named() {
    let place = folder(&["a/1.png", "b/2.png"]);
    let broken = place.path().join("a/0.jpg");
    for content in [&b""[..], b"no image at all", b"\xff\xd8\xff\xe0broken"] {
        fs::write(&broken, content).unwrap();
        let set = open(&source(&place)).unwrap();
        let error = pixel(&set.train, 0).unwrap_err();
        assert!(error.starts_with("`a/0.jpg`: "), "{error}");
        assert!(pixel(&set.train, 1).is_ok() && set.train.skips_unreadable());
    }
    let strict = ImageFolderOptions { root: place.path().into(), strict: true, ..ImageFolderOptions::default() };
    assert!(!open(&Source::ImageFolder(strict)).unwrap().train.skips_unreadable());
}

#[test]
fn other_files_have_another_fingerprint() {
    let place = folder(&ALL);
    let print = || open(&source(&place)).unwrap().fingerprint;
    let before = print();
    assert_eq!(before, print());
    fs::rename(place.path().join("train/a/1.png"), place.path().join("train/b/3.png")).unwrap();
    assert_eq!(before.difference(&print()).unwrap(), "the training inputs and the training targets");
    fs::rename(place.path().join("train/b/3.png"), place.path().join("train/a/1.png")).unwrap();
    picture(&place.path().join("val/b/5.png"), 40, 9);
    assert_eq!(before.difference(&print()).unwrap(), "the held-out inputs");
}
