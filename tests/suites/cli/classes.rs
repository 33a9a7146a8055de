//! Which classes there are: what of a folder is one, what a model takes from the data, and what is said where the two do not fit.

use super::class_names::config;
use super::photos::photo;
use super::support::{Place, repository};
use std::fs;

const ONE_FOLDER: &str = "source = \"image_folder\"\nroot = \"photos\"\nvalidation_split = 0.25";
const PARTS: &str = "source = \"image_folder\"\nroot = \"photos\"";
const LINEAR: &str = "out_features = 3";

/// Six photos in each of these folders.
fn photos(place: &Place, folders: &[&str]) {
    for (kind, folder) in folders.iter().enumerate() {
        for number in 0..6 {
            photo(place, &format!("photos/{folder}/{number}.png"), kind as u8 % 2, number);
        }
    }
}

fn two_classes(data: &str) -> Place {
    Place::with(&config(data).replace(LINEAR, "out_features = 2"))
}

#[test]
fn what_a_system_leaves_is_no_class() {
    let place = two_classes(ONE_FOLDER);
    photos(&place, &["ants", "bees", "ants/@eaDir/1.png", ".git", "@eaDir", "lost+found", "#recycle"]);
    place.write("photos/__MACOSX/ants/._0.png", b"\0\x05\x16\x07");
    let done = place.ok("check c.toml");
    assert!(!done.err.contains("warning"), "{}", done.err);
    let stderr = place.ok("train c.toml --out r --set train.epochs=1").err;
    assert!(stderr.contains("folders that a system has left, which are left out: `#recycle`, `@eaDir`"), "{stderr}");
    assert!(stderr.contains("9 training and 3 validation samples"), "{stderr}");
}

#[test]
fn a_folder_without_photos_is_no_class() {
    let place = two_classes(ONE_FOLDER);
    photos(&place, &["ants", "bees"]);
    fs::create_dir(place.path("photos/new folder")).unwrap();
    place.write("photos/notes/read me.txt", "no photo");
    for command in ["check c.toml", "train c.toml --out r --set train.epochs=1"] {
        let stderr = place.ok(command).err;
        assert!(stderr.contains("allow = [\"empty_class\"]") && stderr.contains("`new folder`, `notes`"), "{stderr}");
    }
    // One that has photos to validate on alone is a mistake.
    let place = two_classes(PARTS);
    photos(&place, &["train/ants", "train/bees", "val/ants", "val/moths"]);
    fs::create_dir(place.path("photos/train/moths")).unwrap();
    let error = place.fails("check c.toml", 2);
    assert!(error.contains("`photos/val` has a folder `moths` with images"), "{error}");
    assert!(error.contains("`photos/train` has no images in its own"), "{error}");
}

#[test]
fn parts_are_found_in_any_letters() {
    let place = two_classes(PARTS);
    photos(&place, &["Train/ants", "Train/bees", "VAL/ants", "VAL/bees", "Test/ants"]);
    let stderr = place.ok("train c.toml --out r --set train.epochs=1").err;
    assert!(stderr.contains("12 training and 12 validation samples"), "{stderr}");
    assert_eq!(place.ok("eval r/last.safetensors --split test --json").json()["samples"], 6);
    // Photos of trains are a class.
    let place = two_classes(ONE_FOLDER);
    photos(&place, &["Train", "plane"]);
    assert!(place.ok("check c.toml").out.contains("[6, 2]"));
}

/// What is said points at the line of the user, names what was found, and does not bend the model to a fault of the data.
#[test]
fn the_error_of_a_number_that_does_not_fit_names_the_classes() {
    let resnet = repository("models/resnet18.toml");
    let used = |with: &str| {
        let text = config(ONE_FOLDER).replace("batch_size = 6", "batch_size = 5");
        let begin = text.find("layers = ").unwrap();
        let end = text.find("[loss]").unwrap();
        let model = format!("use = {:?}\n{with}\n", resnet.display().to_string());
        format!("{}{model}{}", &text[..begin], &text[end..])
    };
    let place = Place::with(&used("with = { num_classes = 2 }"));
    photos(&place, &["ants", "bees", "new"]);
    fs::create_dir(place.path("photos/empty")).unwrap();
    let error = place.fails("check c.toml", 2);
    for part in [
        "puts out 2 numbers for each sample, but there are 3 classes",
        "with = { num_classes = 2 }",
        "the classes that were found in the data: `ants`, `bees`, `new`",
        "which are no classes: `empty`",
        "if these are the classes that you mean, set `num_classes = 3`",
        "`with = { num_classes = 3 }`",
        "\"$classes\"",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!error.contains("out_features") && !error.contains("resnet18.toml:"), "{error}");
    // What the data says: asked for, and where nothing is said.
    for with in ["with = { num_classes = \"$classes\" }", ""] {
        place.write("c.toml", used(with));
        assert!(place.ok("check c.toml").out.contains("[5, 3]"), "{with}");
    }
    // A model of one's own.
    place.write("c.toml", config(ONE_FOLDER).replace(LINEAR, "out_features = \"$classes\""));
    assert!(place.ok("check c.toml").out.contains("[6, 3]"));
    place.write("c.toml", config(ONE_FOLDER).replace(LINEAR, "out_features = 7"));
    let error = place.fails("check c.toml", 2);
    assert!(error.contains("if these are the classes that you mean, set `out_features = 3`"), "{error}");
}

#[test]
fn classes_of_the_data_are_asked_for_where_they_can_be_known() {
    let asking = |data: &str| config(data).replace(LINEAR, "out_features = \"$classes\"");
    let place = Place::with(&asking(ONE_FOLDER));
    let error = place.fails("check c.toml", 2);
    for part in [
        "error: cannot read the photos in `photos`",
        "root = \"photos\"",
        "name its classes with `classes` in `[data]`",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!error.contains("$classes"), "{error}");
    // Names are enough, without the photos.
    place.write("named.toml", asking(&format!("{ONE_FOLDER}\nclasses = [\"ants\", \"bees\"]")));
    assert!(place.ok("check named.toml").out.contains("[6, 2]"));
    let numbers = "source = \"synthetic\"\nshape = [3, 16, 16]\ntargets = 2";
    place.write("numbers.toml", asking(numbers).replace("cross_entropy", "mse"));
    let error = place.fails("check numbers.toml", 2);
    assert!(error.contains("the targets of the data are numbers, not classes"), "{error}");
    // A run that goes on by its file keeps the number that it was trained with.
    photos(&place, &["ants", "bees", "cats"]);
    place.ok("train c.toml --quiet --out r --set train.epochs=1");
    fs::rename(place.path("photos/cats"), place.path("cats")).unwrap();
    place.ok("train c.toml --resume r/last.safetensors --quiet --set train.epochs=2");
    assert_eq!(place.ok("eval r/last.safetensors --json").json()["per_class"].as_array().unwrap().len(), 3);
}

/// The error says what is wrong with the data. It does not say that the model asks for the classes.
#[test]
fn the_data_is_at_fault_and_not_who_asks_for_its_classes() {
    let list = "source = \"image_list\"\npath = \"m.csv\"\nvalidation_split = 0.25";
    let place = Place::with(&config(list).replace(LINEAR, "out_features = \"$classes\""));
    place.write("m.csv", "file_name;label\n1.jpg;ants\n");
    let error = place.fails("check c.toml", 2);
    assert!(error.starts_with("error: `m.csv`, line 1: the columns have semicolons between them"), "{error}");
    assert!(
        !error.contains("$classes") && !error.contains("`classes`") && error.contains("path = \"m.csv\""),
        "{error}"
    );
    let shards = "source = \"webdataset\"\nshards = \"t.tar\"\nclasses = 2\nvalidation_split = 0.25";
    place.write("c.toml", config(shards).replace(LINEAR, "out_features = \"$classes\""));
    place.write("t.tar", vec![1; 1024]);
    let error = place.fails("check c.toml", 2);
    assert!(error.starts_with("error: `t.tar`") && !error.contains("$classes"), "{error}");
}

/// Links make no new photos.
#[cfg(unix)]
#[test]
fn photos_that_are_there_twice_are_noted() {
    use std::os::unix::fs::symlink;
    let place = Place::with(&config(PARTS));
    photos(&place, &["train/ants", "train/bees", "val/ants", "val/bees"]);
    symlink("ants", place.path("photos/train/wasps")).unwrap();
    let said = place.ok("train c.toml --out r --set train.epochs=1").err;
    let expected = "note: `photos`: 6 photos, such as `wasps/0.png`, are in two classes, as `ants` and `wasps`";
    assert!(said.contains(expected) && !said.contains("validated on"), "{said}");
    // A folder is validated on, and another that may be meant is not.
    fs::remove_file(place.path("photos/train/wasps")).unwrap();
    fs::rename(place.path("photos/val"), place.path("photos/valid")).unwrap();
    symlink("train", place.path("photos/val")).unwrap();
    place.write("c.toml", config(PARTS).replace(LINEAR, "out_features = 2"));
    let said = place.ok("train c.toml --out r2 --set train.epochs=1").err;
    let expected = "note: `photos`: 12 photos, such as `ants/0.png`, are both trained on and validated on";
    assert!(said.contains(expected) && !said.contains("two classes"), "{said}");
    assert!(said.contains("`photos` has `val` and `valid`: `val` is taken, and `valid` is not looked at"), "{said}");
}

#[test]
fn the_error_of_missing_classes_names_those_that_are_there() {
    let place = two_classes(&format!("{PARTS}\nclasses = [\"ants\", \"bees\"]"));
    photos(&place, &["train/cats", "train/dogs", "val/cats", "val/dogs"]);
    let error = place.fails("check c.toml", 2);
    for part in [
        "`photos/train` has no photos of the classes that are asked for: `ants` and `bees`",
        "the folders with photos there are `cats` and `dogs`",
        "--unset data.classes",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
    place.ok("check c.toml --unset data.classes");
}

/// More outputs than classes were seen: those without samples weigh 1.
#[test]
fn balanced_weights_are_for_every_output() {
    use runner::checkpoint::{Tensor, write_weights};
    use runner::graph::DType;
    let place = Place::with(
        "device = \"cpu\"\n[data]\nsource = \"tensors\"\npath = \"d.safetensors\"\nbatch_size = 8\n[model]\nlayers = [{ type = \"linear\", out_features = 5 }]\n\
         [loss]\ntype = \"cross_entropy\"\nweight = \"balanced\"\n[optimizer]\ntype = \"adam\"\n[train]\nepochs = 1\n",
    );
    let inputs = Tensor::from_f32([32, 4], &(0..128).map(|i| i as f32 / 128.0).collect::<Vec<_>>());
    let labels = (0..32i64).flat_map(|i| (i % 4 / 2 + i % 2).to_le_bytes()).collect();
    let targets = Tensor { dtype: DType::I64, shape: vec![32], data: labels };
    write_weights(&place.path("d.safetensors"), &[inputs.view("inputs"), targets.view("targets")]).unwrap();
    place.ok("train c.toml --quiet --out r");
    let kept = place.read("r/config.toml");
    // Eight, sixteen and eight of 32, and two outputs that no sample has.
    let weights = kept.lines().find(|line| line.starts_with("weight = ")).unwrap();
    let numbers: Vec<f64> =
        weights["weight = [".len()..].trim_end_matches(']').split(", ").map(|n| n.parse().unwrap()).collect();
    let expected = [32.0 / 24.0, 32.0 / 48.0, 32.0 / 24.0, 1.0, 1.0];
    assert!(numbers.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12) && numbers.len() == 5, "{weights}");
    place.ok("eval r/last.safetensors --split train");
    place.ok("train --resume r/last.safetensors --quiet --set train.epochs=2");
}

#[test]
fn a_limit_takes_some_of_every_class() {
    let place = two_classes(PARTS);
    photos(&place, &["train/ants", "train/bees", "val/ants", "val/bees"]);
    place.ok("train c.toml --quiet --out r --set data.limit=4 --set data.limit_val=2 --set train.epochs=1");
    for (split, each) in [("train", 2), ("val", 1)] {
        let evaluation = place.ok(&format!("eval r/last.safetensors --split {split} --json")).json();
        for class in evaluation["per_class"].as_array().unwrap() {
            assert_eq!(class["support"], each, "{evaluation}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn names_that_look_the_same_are_warned_of() {
    let place = two_classes(ONE_FOLDER);
    photos(&place, &["caf\u{e9}", "cafe\u{301}"]);
    let stderr = place.ok("check c.toml").err;
    for part in ["allow = [\"alike_classes\"]", "\"caf\\u{e9}\"", "\"cafe\\u{301}\"", "(NFC)"] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    let place = two_classes(ONE_FOLDER);
    photos(&place, &["A", "A "]);
    assert!(place.ok("check c.toml").err.contains("\"A\" and \"A \""));
}

/// A name is no line of its own.
#[cfg(unix)]
#[test]
fn a_line_feed_in_a_name_forges_no_line() {
    let place = two_classes(ONE_FOLDER);
    let forged = "ants\n  99.99 %  harmless";
    photos(&place, &[forged, "bees"]);
    place.ok("train c.toml --quiet --out r --set train.epochs=1");
    photo(&place, "one\nother.png: 100.00 % bees.png", 0, 9);
    fs::rename(place.path("photos/bees/0.png"), place.path("two.png")).unwrap();
    let run = |more: &[&str]| {
        let mut command = place.command("predict r/last.safetensors");
        let out = command.args(more).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let name = "one\nother.png: 100.00 % bees.png";
    let paragraph = run(&[name]);
    assert_eq!(paragraph.lines().count(), 3, "{paragraph}");
    assert!(paragraph.contains("one\\nother.png") && paragraph.contains("ants\\n  99.99 %"), "{paragraph}");
    let lines = run(&[name, "two.png"]);
    assert_eq!(lines.lines().count(), 2, "{lines}");
    // In a table and as JSON they are as they are.
    let table = run(&[name, "--format", "csv"]);
    let mut table = csv::Reader::from_reader(table.as_bytes());
    assert_eq!(&table.records().next().unwrap().unwrap()[0], name);
}

/// What a spreadsheet would run.
#[cfg(unix)]
#[test]
fn a_table_can_be_guarded() {
    let place = two_classes(ONE_FOLDER);
    photos(&place, &["=HYPERLINK(1)", "bees"]);
    place.ok("train c.toml --quiet --out r --set train.epochs=1");
    photo(&place, "-1+2.png", 0, 9);
    let soft = "a\u{ad}b.png";
    photo(&place, soft, 0, 8);
    let plain = place.ok(&format!("predict r/last.safetensors ./-1+2.png {soft} --format csv")).out;
    assert!(plain.contains(",=HYPERLINK(1),") && plain.contains(soft), "{plain:?}");
    place.ok("predict r/last.safetensors ./-1+2.png --out t.csv --guard-formulas");
    let guarded = place.read("t.csv");
    assert!(
        guarded.contains(",'=HYPERLINK(1),") && !guarded.contains(",=") && guarded.contains("./-1+2.png"),
        "{guarded}"
    );
    let file = place.ok("predict r/last.safetensors --format csv --guard-formulas -- -1+2.png").out;
    assert!(file.contains("\n'-1+2.png,"), "{file}");
    let error = place.fails("predict r/last.safetensors ./-1+2.png --guard-formulas", 2);
    assert!(error.contains("--format csv"), "{error}");
    // So can that of an evaluation; numbers and the names of columns stay as they are.
    place.ok("eval r/last.safetensors --predictions plain.csv");
    place.ok("eval r/last.safetensors --predictions e.csv --guard-formulas");
    let [plain, guarded] = ["plain.csv", "e.csv"].map(|file| place.read(file));
    assert!(plain.contains(",=HYPERLINK(1),") && plain.contains(",probability_=HYPERLINK(1),"), "{plain}");
    assert!(guarded.contains(",'=HYPERLINK(1),") && !guarded.contains(",="), "{guarded}");
    assert_eq!(guarded.replace("'=", "="), plain);
    let error = place.fails("eval r/last.safetensors --predictions e.jsonl --guard-formulas", 2);
    assert!(error.contains("end the name with .csv"), "{error}");
    assert!(place.fails("eval r/last.safetensors --guard-formulas", 2).contains("--predictions"));
}
