use super::super::{Source, describe, footprint, open};
use super::*;
use crate::graph::DType;
use crate::graph::op::{ElementwiseLoss, Loss};
use image::RgbImage;
use std::fs;
use tempfile::TempDir;

/// A folder with small pictures of these names.
fn folder(pictures: &[&str]) -> TempDir {
    let place = tempfile::tempdir().unwrap();
    for name in pictures {
        let path = place.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        RgbImage::from_pixel(3, 2, image::Rgb([1, 2, 3])).save(path).unwrap();
    }
    place
}

const PICTURES: [&str; 4] = ["1.png", "2.png", "more/3.png", "4.png"];

fn options(place: &TempDir, list: &str, content: impl AsRef<[u8]>) -> ImageListOptions {
    let path = place.path().join(list);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    ImageListOptions {
        sample_weight: None,
        path,
        val_path: None,
        root: None,
        image_column: None,
        label_columns: Vec::new(),
        kind: Kind::Class,
        classes: None,
        trained: false,
        strict: false,
    }
}

fn set(options: &ImageListOptions) -> Dataset {
    let source = Source::ImageList(options.clone());
    let described = describe(&source).unwrap();
    let held = footprint(&source).held;
    let set = open(&source).unwrap();
    assert_eq!(set.spec, described);
    let splits = [Some(&set.train), Some(&set.val), set.test.as_ref()];
    assert_eq!(held, splits.into_iter().flatten().map(Split::held_bytes).sum::<usize>());
    set
}

fn error(options: &ImageListOptions) -> String {
    format!("{:#}", open(&Source::ImageList(options.clone())).unwrap_err())
}

fn labels(split: &Split) -> Vec<i32> {
    (0..split.len()).map(|i| split.label(i).unwrap()).collect()
}

fn names(set: &Dataset) -> Vec<&str> {
    set.spec.class_names().into_iter().flatten().map(String::as_str).collect()
}

fn values(split: &Split) -> Vec<f32> {
    let bytes = (0..split.len()).flat_map(|i| split.bytes(i, 1).unwrap().to_vec()).collect::<Vec<u8>>();
    bytes.chunks_exact(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect()
}

#[test]
fn the_same_list_in_every_format() {
    let place = folder(&PICTURES);
    for (name, text) in [
        ("a.csv", "file_name,label\n1.png,cat\n2.png,ant\nmore/3.png,cat\n"),
        // A mark at the begin, lines that end as on Windows, quotes, other columns, an empty line.
        (
            "b.csv",
            "\u{feff}id,\"file_name\",label\r\n7,\"1.png\",\"cat\"\r\n8,2.png,ant\r\n\r\n\"9,\n\",\"more/3.png\", cat \r\n",
        ),
        ("c.tsv", "file_name\tlabel\n1.png\tcat\n2.png\tant\nmore/3.png\tcat"),
        (
            "d.jsonl",
            "{\"file_name\": \"1.png\", \"label\": \"cat\"}\n\n{\"label\": \"ant\", \"file_name\": \"2.png\"}\n{\"file_name\": \"more/3.png\", \"label\": \"cat\", \"x\": {}}",
        ),
    ] {
        let set = set(&options(&place, name, text));
        assert_eq!((labels(&set.train), names(&set), set.val.len()), (vec![1, 0, 1], vec!["ant", "cat"], 0), "{name}");
        assert!(set.notes.is_empty() && set.test.is_none());
    }
}

#[test]
fn classes_that_are_numbers_are_in_their_order() {
    let place = folder(&PICTURES);
    let one = set(&options(&place, "a.csv", "image,class\n1.png,10\n2.png,9\n4.png,0\n"));
    assert_eq!((labels(&one.train), names(&one)), (vec![2, 1, 0], vec!["0", "9", "10"]));
    // With names they are their numbers, unless names are numbers, too.
    let named = |classes: &[&str], text: &str| ImageListOptions {
        classes: Some(classes.iter().map(|name| name.to_string()).collect()),
        ..options(&place, "a.csv", text)
    };
    assert_eq!(labels(&set(&named(&["x", "y"], "file,label\n1.png,1\n2.png,x\n")).train), [1, 0]);
    let message = error(&named(&["5", "6"], "file,label\n1.png,5\n2.png,0\n"));
    assert!(message.contains("a.csv`, line 3: `0` is no class: the classes are `5`, `6`"), "{message}");
    // What the model depends on is known without the file.
    let nowhere = ImageListOptions { path: "nowhere.csv".into(), ..named(&["x", "y"], "") };
    assert_eq!(describe(&Source::ImageList(nowhere)).unwrap().labels().map(|c| c.number), Some(2));
}

#[test]
fn parts_by_a_column_by_another_list_and_by_folders() {
    let place = folder(&PICTURES);
    let text = "file_name,label,split\n1.png,b,train\n2.png,a,Train\n4.png,a,validation\nmore/3.png,b,test\n";
    let by_column = set(&options(&place, "all.csv", text));
    assert_eq!((labels(&by_column.train), labels(&by_column.val)), (vec![1, 0], vec![0]));
    assert_eq!(labels(by_column.test.as_ref().unwrap()), [1]);

    let val = options(&place, "val.csv", "file_name,label\n4.png,a\n").path;
    let two = |text| ImageListOptions { val_path: Some(val.clone()), ..options(&place, "train.csv", text) };
    let by_lists = set(&two("file_name,label\n1.png,b\n2.png,a\n"));
    assert_eq!((labels(&by_lists.train), labels(&by_lists.val)), (vec![1, 0], vec![0]));
    let message = error(&two("file_name,label,split\n1.png,b,train\n2.png,a,val\n"));
    assert!(message.contains("line 3: `split` says `val`, and there is another list"), "{message}");
    let message = error(&two("file_name,label\n1.png,b\n"));
    assert!(message.contains("val.csv`, line 2: `a` is no class: no photo that is trained on has it"), "{message}");

    let place = folder(&["train/1.png", "Valid/1.png"]);
    for part in ["train", "Valid"] {
        options(&place, &format!("{part}/metadata.jsonl"), "{\"file_name\": \"1.png\", \"label\": 0}");
    }
    let by_folders = set(&ImageListOptions { path: place.path().into(), ..options(&place, "other.txt", "") });
    assert_eq!((by_folders.train.len(), by_folders.val.len(), names(&by_folders)), (1, 1, vec!["0"]));
}

#[test]
fn several_classes_and_numbers_are_floats() {
    let place = folder(&PICTURES);
    let several = |list: &str, text: &str| ImageListOptions {
        kind: Kind::Classes { separator: "|".into() },
        ..options(&place, list, text)
    };
    for (list, text) in [
        ("a.csv", "file_name,label\n1.png,sun|sea\n2.png,\n4.png,tree | sun\n"),
        (
            "a.jsonl",
            "{\"file_name\":\"1.png\",\"label\":[\"sun\",\"sea\"]}\n{\"file_name\":\"2.png\",\"label\":[]}\n{\"file_name\":\"4.png\",\"label\":[\"tree\",\"sun\"]}",
        ),
    ] {
        let set = set(&several(list, text));
        assert_eq!(names(&set), ["sea", "sun", "tree"]);
        assert_eq!(values(&set.train), [1., 1., 0., 0., 0., 0., 0., 1., 1.]);
        assert_eq!(set.spec.fields[1].shape, [3].into());
    }
    // `null` says that there is none; of a line without the key nothing is known.
    let jsonl = "{\"file_name\":\"1.png\",\"label\":[\"a\"]}\n{\"file_name\":\"2.png\",\"label\":null}\n{\"file_name\":\"4.png\"}";
    let two = jsonl.rsplit_once('\n').unwrap().0;
    assert_eq!(values(&set(&several("a.jsonl", two)).train), [1., 0.]);
    let message = error(&several("a.jsonl", jsonl));
    assert!(message.contains("line 3: there is no label: the key `label` is not there"), "{message}");
    let message = error(&several("a.csv", "file_name,label\n1.png,a||b\n"));
    assert!(message.contains("line 2: `label` has an empty class in it"), "{message}");
    let message = error(&options(&place, "a.jsonl", "{\"file_name\":\"1.png\",\"label\":[\"a\"]}"));
    assert!(
        message.contains("`label` is a list: for several classes a photo say `label_kind = \"classes\"`"),
        "{message}"
    );

    let numbers = |columns: &[&str], text: &str| ImageListOptions {
        kind: Kind::Numbers { range: None },
        label_columns: columns.iter().map(|name| name.to_string()).collect(),
        ..options(&place, "a.csv", text)
    };
    let two = set(&numbers(&["x", "y"], "y,file_name,x\n1,1.png,2.5\n-3e2,2.png,0\n"));
    assert_eq!(two.spec.fields[1].columns, ["x", "y"]);
    assert_eq!((values(&two.train), &two.spec.fields[1].shape), (vec![2.5, 1., 0., -300.], &[2].into()));
    assert_eq!(two.spec.class_names(), None);
    for (text, part) in [
        ("file_name,x,y\n1.png,a,1\n", "line 2: `x` is `a`, which is no number"),
        ("file_name,x,y\n1.png,1,\n", "line 2: there is no label: `y` is empty"),
        ("file_name,x,y\n1.png,1,nan\n", "line 2: `y` is `nan`, which is no number"),
    ] {
        assert!(error(&numbers(&["x", "y"], text)).contains(part), "{}", error(&numbers(&["x", "y"], text)));
    }
    let range = Loss::from(ElementwiseLoss::PoissonNll).target_range();
    let counts =
        ImageListOptions { kind: Kind::Numbers { range }, ..numbers(&["n"], "file_name,n\n1.png,0\n2.png,-2\n") };
    let message = error(&counts);
    assert!(
        message.contains("line 3: `n` is `-2`, and the loss `poisson_nll` is for numbers of at least 0"),
        "{message}"
    );
}

#[test]
fn wrong_lists_are_errors_with_their_line() {
    let place = folder(&PICTURES);
    let long = format!("file_name,label\n1.png,a\n2.png,\"{}\n", "x".repeat(2 << 20));
    let commas = format!("file_name,label\n{}\n", ",".repeat(2 << 20));
    for (list, text, part) in [
        ("a.csv", "name,label\n1.png,a\n", "has no column `file_name` or `image` or"),
        ("a.csv", "name,label\n1.png,a\n", "its columns are `name`, `label`; name the right one with `image_column`"),
        (
            "a.csv",
            "file_name,mask\n1.png,1m.png\n",
            "`label_column` in `[data]`, or write `label_kind = \"mask\"` there",
        ),
        ("a.csv", "file_name,kind\n1.png,a\n", "no column `label` or `class`: its columns are `file_name`, `kind`"),
        ("a.csv", "file_name,label,label\n1.png,a,b\n", "has the column `label` twice"),
        ("a.csv", "file_name,label\n1.png,a\n2.png,\n", "line 3: there is no label: `label` is empty"),
        ("a.csv", "file_name,label\n,a\n", "line 2: there is no photo: `file_name` names none"),
        ("a.csv", "file_name,label\n1.png,a,b\n", "line 2 has 3 cells, and the table has 2 columns"),
        ("a.csv", "file_name,label\n1.png,\"a\n2.png,b\n", "line 2, column 7: a quote opens here that is not closed"),
        (
            "a.csv",
            "file_name,label\r\n1.png,a\r\n2.png,\"b\r\n",
            "line 3, column 7: a quote opens here that is not closed",
        ),
        ("a.csv", "file_name,label\n1.png,\"a\n2.png,\"b\"\n", "line 3, column 8: a cell goes on after the quote"),
        ("a.csv", "file_name,label\n1.png, \"a\"\n", "line 2, column 8: a space stands before the quote"),
        ("a.csv", "file_name,label\r\n\r\n1.png,a\r\n2.png\r\n", "line 4 has 1 cell, and the table has 2"),
        ("a.csv", &long, "line 3, column 7: a quote opens here that is not closed"),
        ("a.csv", &commas, "line 2 has more than 1048576 bytes"),
        ("a.csv", "file_name;label\n1.png;a\n", "the columns have semicolons between them, and commas are expected"),
        ("a.csv", "file_name\tlabel\n1.png\ta\n", "the columns have tabs between them, and commas are expected"),
        ("a.tsv", "file_name,label\n1.png,a\n", "the columns have commas between them, and tabs are expected"),
        ("a.csv", "file_name,label\nmore\\3.png,a\n", "they have `\\` in them, which is a part of a name here"),
        ("a.csv", "file_name,label\n", "names no photos to train on"),
        ("a.csv", "", "is empty: it has no columns"),
        ("a.csv", "file_name,label,split\n1.png,a,dev2\n", "line 2: `split` is `dev2`: `train`, `val` or `test`"),
        ("a.jsonl", "", "is empty"),
        ("a.jsonl", "{\"file_name\":\"1.png\",\"label\":1}\n{\"file_name\"", "line 2, column 12: no JSON object"),
        (
            "a.jsonl",
            "{\"file_name\":\"1.png\",\"label\":1,\"label\":2}",
            "line 1, column 41: no JSON object on a line of its own: the key `label` stands in it twice",
        ),
        ("a.jsonl", "[1]", "line 1, column 0: no JSON object on a line of its own: invalid type: sequence"),
        ("a.jsonl", "{\"file_name\":\"1.png\",\"label\":{}}", "line 1: `label`: is an object"),
        ("a.txt", "", "its name must end in .csv, .tsv, .jsonl or .parquet"),
    ]
    .into_iter()
    // On Windows `\\` stands between folders.
    .filter(|(_, text, _)| cfg!(unix) || !text.contains('\\'))
    {
        let found = error(&options(&place, list, text));
        assert!(found.contains(part) && found.contains(list), "{part}: {found}");
    }
    let message = error(&options(&place, "a.csv", b"file_name,label\n1.png,caf\xe9\n"));
    assert!(message.contains("line 2: the byte 0xe9 is not UTF-8: save the file as UTF-8"), "{message}");
    assert!(error(&options(&place, "a.csv", b"\xff\xfef\0\0\xdc")).contains("begins as UTF-16"));
    let given = ImageListOptions { image_column: Some("x".into()), ..options(&place, "a.csv", "file_name,label\n") };
    assert!(error(&given).contains("has no column `x`: its columns are `file_name`, `label`"), "{}", error(&given));
    let none = ImageListOptions { path: place.path().into(), ..options(&place, "a.csv", "") };
    assert!(error(&none).contains("has no list: `metadata.csv`"), "{}", error(&none));
}

#[test]
fn photos_that_are_not_there_are_counted_and_named() {
    let place = folder(&PICTURES);
    let mut text = "file_name,label\n".to_owned();
    (0..58).for_each(|_| text += "1.png,a\n");
    let with = |lines: &str| options(&place, "a.csv", format!("{text}{lines}"));
    let two = set(&with("gone.png,b\n../none/2.png,a\n"));
    assert_eq!((two.train.len(), two.notes.len(), names(&two)), (58, 1, vec!["a", "b"]));
    let note = &two.notes[0];
    assert!(
        note.contains(
            "a.csv`: 2 of 60 photos are not there: `gone.png` (line 60), `../none/2.png` (line 61), which are left out;"
        ) && note.contains(&format!("names are relative to `{}`", place.path().display())),
        "{note}"
    );
    let message = error(&ImageListOptions { strict: true, ..with("gone.png,b\n") });
    assert!(
        message.contains("a.csv`: 1 of 59 photos are not there: `gone.png` (line 60); names are relative"),
        "{message}"
    );
    let none = error(&options(&place, "a.csv", "file_name,label\ngone.png,b\n"));
    assert!(none.contains("1 of 1 photos are not there"), "{none}");
    let message = error(&with("2,a\n3,a\n5,a\n6,a\n"));
    assert!(
        message.contains("4 of 62 photos are not there: `2` (line 60), `3` (line 61), `5` (line 62) and 1 more;"),
        "{message}"
    );
}

#[test]
fn names_lead_from_the_root_and_from_the_top() {
    let place = folder(&["photos/1.png", "lists/x"].map(|name| if name.ends_with('x') { "lists/x.png" } else { name }));
    let top = place.path().join("photos/1.png");
    let text = format!("file_name,label\n{},a\n../photos/1.png,a\n", top.display());
    let lists = options(&place, "lists/a.csv", text);
    assert_eq!(set(&lists).train.len(), 2);
    let root = Some(place.path().join("photos"));
    let moved = ImageListOptions { root, ..options(&place, "lists/b.csv", "file_name,label\n1.png,a\n") };
    assert_eq!(set(&moved).train.len(), 1);
}

#[test]
fn another_list_has_another_fingerprint() {
    let place = folder(&PICTURES);
    let print = |text| open(&Source::ImageList(options(&place, "a.csv", text))).unwrap().fingerprint;
    let before = print("file_name,label\n1.png,a\n2.png,b\n");
    assert_eq!(before.difference(&print("label,file_name\na,1.png\nb,2.png\n")), None);
    assert_eq!(before.difference(&print("file_name,label\n1.png,b\n2.png,a\n")).unwrap(), "the training targets");
    assert_eq!(before.difference(&print("file_name,label\n1.png,a\n4.png,b\n")).unwrap(), "the training inputs");
}

/// A list of pictures of 2 × 3 pixels with masks, each of which has one value.
fn masks(place: &TempDir, values: &[u8], more: &str) -> ImageListOptions {
    let mut list = String::from("file_name,mask\n");
    for (i, value) in values.iter().enumerate() {
        image::GrayImage::from_pixel(3, 2, image::Luma([*value])).save(place.path().join(format!("m{i}.png"))).unwrap();
        list.push_str(&format!("{},m{i}.png\n", PICTURES[i % 4]));
    }
    ImageListOptions {
        kind: Kind::Mask { values: vec![Some(0), Some(1)], ignored: Some((255, 255)) },
        classes: Some(vec!["sky".into(), "road".into()]),
        ..options(place, "all.csv", list + more)
    }
}

/// The classes of the pixels of all samples, or the error of one that cannot be read.
fn pixels(options: &ImageListOptions) -> Result<Vec<i32>> {
    use super::super::{Loader, LoaderOptions, Position};
    use crate::backend::Backend as _;
    use crate::graph::Input;
    use crate::plan::{SlotInput, SlotLayout};
    let split = set(options).train;
    let resize = super::super::Transform::Resize {
        size: super::super::Size::Both([2, 1]),
        interpolation: super::super::Interpolation::Bilinear,
        antialias: true,
    };
    let n = split.len();
    let input = |number, dtype, shape: crate::graph::Shape, offset| SlotInput {
        input: Input::Field(number),
        dtype,
        shape,
        offset,
    };
    let inputs = vec![input(0, DType::U8, [n, 2, 1, 3].into(), 0), input(1, DType::I32, [n, 2, 1].into(), 64)];
    let layout = SlotLayout { inputs, bytes: 128 };
    let buffer = crate::backend::cpu::CpuBackend::new(Some(1))?.host_buffer(128)?;
    let options = LoaderOptions {
        batch_size: n,
        shuffle: false,
        workers: 0,
        transforms: vec![resize],
        ..LoaderOptions::default()
    };
    let mut loader = Loader::start(&split, options, &layout, vec![buffer], Position::default())?;
    let batch = loader.next()?.context("there is no batch")?;
    Ok(batch.buffer.bytes()[64..][..8 * n].chunks_exact(4).map(|b| i32::from_ne_bytes(b.try_into().unwrap())).collect())
}

#[test]
fn masks_have_a_class_for_every_pixel() {
    let place = folder(&PICTURES);
    let options = masks(&place, &[1, 0, 255], "");
    let spec = describe(&Source::ImageList(options.clone())).unwrap();
    assert_eq!((spec.target().unwrap().1.dtype, spec.target().unwrap().1.shape.dims()), (DType::I32, &[0, 0][..]));
    assert_eq!((spec.labels().map(|c| c.number), spec.train), (Some(2), Some(3)));
    assert_eq!(pixels(&options).unwrap(), [1, 1, 0, 0, 255, 255]);
    // A value that counts for nothing, though a class has its number: another number stands for it.
    let kind = Kind::Mask { values: vec![Some(1), Some(2)], ignored: Some((0, -100)) };
    assert_eq!(pixels(&ImageListOptions { kind, ..masks(&place, &[0, 1, 2], "") }).unwrap(), [-100, -100, 0, 0, 1, 1]);
    // Values of one's own, and another index for what is ignored, which no file can have.
    let kind = Kind::Mask { values: vec![Some(255), Some(7)], ignored: None };
    assert_eq!(pixels(&ImageListOptions { kind, ..masks(&place, &[7, 255], "") }).unwrap(), [1, 1, 0, 0]);
    // Classes that no file has.
    let kind = Kind::Mask { values: vec![None, Some(7), None], ignored: None };
    assert_eq!(pixels(&ImageListOptions { kind: kind.clone(), ..masks(&place, &[7], "") }).unwrap(), [1, 1]);
    assert!(pixels(&ImageListOptions { kind, strict: true, ..masks(&place, &[0], "") }).is_err());
}

#[test]
fn masks_that_do_not_fit_are_errors() {
    let place = folder(&PICTURES);
    let refused = |options: &ImageListOptions| {
        format!("{:#}", pixels(&ImageListOptions { strict: true, ..options.clone() }).unwrap_err())
    };
    let text = refused(&masks(&place, &[0, 2], ""));
    assert!(
        text.contains("`m1.png`: the mask has the value 2 (row 0, column 0, counted from 0), which is no class"),
        "{text}"
    );
    image::GrayImage::new(2, 3).save(place.path().join("other.png")).unwrap();
    let text = refused(&masks(&place, &[0], "2.png,other.png\n"));
    assert!(text.contains("the mask has 3×2 pixels (height × width), and its image 2×3"), "{text}");
    let none = masks(&place, &[0; 4], "4.png,none.png\n");
    let notes = set(&none).notes.concat();
    assert!(notes.contains("1 of 5 photos or their masks are not there: `none.png` (line 6)"), "{notes}");
    let empty = error(&masks(&place, &[0], "4.png,\n"));
    assert!(empty.contains("line 3: there is no mask: `mask` names none"), "{empty}");
}

/// A list that ends anywhere is an error, or all of its lines that are whole; of the last one a part of the label may be lacking, which is a
/// text like any other.
#[test]
fn no_list_that_is_cut_off_is_shorter_than_its_lines() {
    let place = folder(&PICTURES);
    for (list, text) in [
        ("a.csv", "file_name,note,label\r\n1.png,\"a, \"\"b\"\"\nc\",cat\r\n2.png,,\"dog\"\r\n4.png,x,cat\r\n"),
        ("a.tsv", "file_name\tlabel\n1.png\tcat\n2.png\tdog\n\n4.png\tcat\n"),
        (
            "a.jsonl",
            "{\"file_name\":\"1.png\",\"label\":\"cat\"}\n{\"file_name\":\"2.png\",\"label\":\"dog\"}\n{\"file_name\":\"4.png\",\"label\":0}",
        ),
    ] {
        // Where each of the three photos begins, and so the line before it is whole.
        let begins = ["1.png", "2.png", "4.png"].map(|name| text.find(name).unwrap());
        for length in 0..text.len() {
            let options = options(&place, list, &text[..length]);
            let Ok(set) = open(&Source::ImageList(options)) else { continue };
            let begun = begins.iter().filter(|begin| **begin < length).count();
            let ends = text[..length].trim_end().len();
            let named = begins.iter().filter(|begin| **begin < ends).count();
            assert!(
                set.train.len() >= named && set.train.len() <= begun,
                "{list}, {length} bytes: {}",
                set.train.len()
            );
        }
    }
}

/// A number is one class however it is written, also to a model that is trained.
#[test]
fn numbers_are_one_class_in_every_form() {
    let place = folder(&PICTURES);
    let mut options = options(&place, "a.csv", "file_name,label\n1.png,1.0\n2.png,2\nmore/3.png,1\n4.png,10.0\n");
    let found = set(&options);
    assert_eq!((names(&found), labels(&found.train)), (vec!["1", "2", "10.0"], vec![0, 1, 0, 2]));
    options.classes = Some(["1.0", "2.0", "10"].map(str::to_owned).to_vec());
    for trained in [false, true] {
        options.trained = trained;
        assert_eq!(labels(&set(&options).train), [0, 1, 0, 2], "{trained}");
    }
    assert!(found.notes.is_empty());
}

#[test]
fn what_may_be_a_mistake_has_a_note() {
    let place = folder(&PICTURES);
    let text =
        "file_name,label,split\n1.png,ants,train\n2.png,Ants,train\n2.png,Ants,train\n./more/../1.png,ants,val\n";
    let options = options(&place, "a.csv", text);
    let (found, path) = (set(&options), options.path.display());
    assert_eq!(
        found.notes,
        [
            format!(
                "`{path}`: `Ants` and `ants` differ in capital letters alone, and are two classes: give both one name if they are the same"
            ),
            format!(
                "`{path}`: 1 photo, `./more/../1.png`, is both trained on and validated on: the same files have several names or lines. What is validated is better than on new photos"
            ),
        ]
    );
    fs::write(&options.path, "file_name,label\n1.png,ants\n2.png,bees\n1.png,bees\n").unwrap();
    let notes = set(&options).notes;
    assert!(
        notes.len() == 1 && notes[0].contains("1 photo, `1.png`, is in two classes, as `ants` and `bees`"),
        "{notes:?}"
    );
    // The same list on both sides.
    let same = ImageListOptions { val_path: Some(options.path.clone()), ..options.clone() };
    let notes = set(&same).notes;
    assert!(notes.len() == 2 && notes[1].contains("3 photos, such as `1.png`, are both trained on"), "{notes:?}");
    // Numbers may differ from line to line.
    let numbers = ImageListOptions { kind: Kind::Numbers { range: None }, ..options };
    fs::write(&numbers.path, "file_name,label\n1.png,1\n1.png,2\n").unwrap();
    assert_eq!(set(&numbers).notes, [""; 0]);
}
