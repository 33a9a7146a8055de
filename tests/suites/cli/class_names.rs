//! What class 3 is called: the checkpoint alone says it, whatever becomes of the data that it was trained on. Data that is read
//! besides is matched to it by name.

use super::photos::TRANSFORMS;
use super::support::Place;
use image::{Rgb, RgbImage};
use std::fs;

const COLOURS: [(&str, [u8; 3]); 3] = [("a", [220, 30, 30]), ("b", [30, 220, 30]), ("c", [30, 30, 220])];

/// A configuration whose model distinguishes three classes.
pub fn config(data: &str) -> String {
    format!(
        r#"device = "cpu"
seed = 3
[data]
{data}
batch_size = 6
{TRANSFORMS}
[model]
layers = [{{ type = "conv2d", out_channels = 6, kernel_size = 3, stride = 2 }}, "relu",
          {{ type = "adaptive_avg_pool2d", output_size = 1 }}, "flatten", {{ type = "linear", out_features = 3 }}]
[loss]
type = "cross_entropy"
[optimizer]
type = "adam"
lr = 0.05
[train]
epochs = 12
"#
    )
}

/// A photo of one colour in many shades.
fn photo(place: &Place, name: &str, colour: [u8; 3], number: u32) {
    let path = place.path(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let shade = |x: u32, y: u32| ((x * 5 + y * 3 + number * 11) % 30) as u8;
    RgbImage::from_fn(20, 18, |x, y| Rgb(colour.map(|c| c - shade(x, y)))).save(path).unwrap();
}

/// Photos of the three colours, and a run that has learnt them.
fn trained(data: &str) -> Place {
    let place = Place::with(&config(data));
    for (class, colour) in COLOURS {
        for number in 0..8 {
            let part = if number < 6 { "train" } else { "val" };
            photo(&place, &format!("photos/{part}/{class}/{number}.png"), colour, number);
            photo(&place, &format!("photos/flat/{part}-{class}-{number}.png"), colour, number);
        }
        photo(&place, &format!("one-{class}.png"), colour, 40);
    }
    let line = |name: &str| {
        let words: Vec<&str> = name.strip_suffix(".png").unwrap().split('-').collect();
        format!("{name},{},{}\n", words[1], words[0])
    };
    let mut names: Vec<String> = fs::read_dir(place.path("photos/flat"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let lines: String = names.iter().map(|name| line(name)).collect();
    place.write("photos/flat/all.csv", format!("file_name,label,split\n{lines}"));
    let mut archive = tar::Builder::new(Vec::new());
    for (number, name) in names.iter().filter(|name| name.starts_with("train")).enumerate() {
        let class = COLOURS.iter().position(|(class, _)| name.contains(&format!("-{class}-"))).unwrap().to_string();
        let image = fs::read(place.path(&format!("photos/flat/{name}"))).unwrap();
        for (ending, bytes) in [("png", &image[..]), ("cls", class.as_bytes())] {
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            archive.append_data(&mut header, format!("{number:04}.{ending}"), bytes).unwrap();
        }
    }
    place.write("photos/all.tar", archive.into_inner().unwrap());
    place.ok("train c.toml --quiet --out r");
    place
}

const FOLDER: &str = "source = \"image_folder\"\nroot = \"photos\"";

/// What a photo of each colour is said to be.
fn labels(place: &Place) -> Vec<String> {
    let answers = place.ok("predict r/last.safetensors one-a.png one-b.png one-c.png --json").json();
    answers.as_array().unwrap().iter().map(|one| one["top"][0]["label"].as_str().unwrap().to_owned()).collect()
}

fn exported(place: &Place) -> Vec<u8> {
    place.ok("export r/last.safetensors m.onnx");
    fs::read(place.path("m.onnx")).unwrap()
}

/// Whatever the source: with its data gone, `predict` and `export` need nothing but the checkpoint.
#[test]
fn a_checkpoint_is_enough() {
    let list = "source = \"image_list\"\npath = \"photos/flat/all.csv\"";
    let shards = "source = \"webdataset\"\nshards = \"photos/all.tar\"\nvalidation_split = 3";
    for (data, names) in [(FOLDER, ["a", "b", "c"]), (list, ["a", "b", "c"]), (shards, ["0", "1", "2"])] {
        let place = trained(data);
        assert_eq!(labels(&place), names, "{data}");
        let before = exported(&place);
        fs::rename(place.path("photos"), place.path("gone")).unwrap();
        assert_eq!(labels(&place), names, "{data}");
        assert!(exported(&place) == before, "{data}");
        // The report of a run has all but its figures, which need the data.
        let stderr = place.ok("report r --out report.html --no-timing").err;
        assert!(stderr.contains("without the evaluation") && !stderr.contains("layers and memory"), "{stderr}");
        let done = place.run("eval r/last.safetensors");
        assert!(done.code != Some(0) && done.err.contains("photos"), "{done:?}");
    }
}

#[test]
fn a_folder_that_was_renamed_changes_no_name() {
    let place = trained(FOLDER);
    let before = exported(&place);
    for part in ["train", "val"] {
        fs::rename(place.path(&format!("photos/{part}/a")), place.path(&format!("photos/{part}/z"))).unwrap();
    }
    assert_eq!(labels(&place), ["a", "b", "c"]);
    assert!(exported(&place) == before);
    for command in ["eval r/last.safetensors", "train --resume r/last.safetensors --set train.epochs=13"] {
        let done = place.run(command);
        assert!(done.code != Some(0), "{done:?}");
        for part in ["does not know the class `z`", "trained on `a`, `b` and `c`", "the data has `b`, `c` and `z`"] {
            assert!(done.err.contains(part), "{command}, {part}: {}", done.err);
        }
    }
}

#[test]
fn other_folders_are_matched_by_name() {
    let place = trained(FOLDER);
    let whole = place.ok("eval r/last.safetensors --json").json();
    assert_eq!(whole["metrics"]["accuracy"], 1.0, "{whole}");
    // Fewer of them, so that their numbers alone would be others.
    for (class, colour) in &COLOURS[1..] {
        for part in ["train", "val"] {
            photo(&place, &format!("other/{part}/{class}/1.png"), *colour, 9);
        }
    }
    let some = place.ok("eval r/last.safetensors --json --set data.root=other").json();
    assert_eq!((&some["metrics"]["accuracy"], &some["samples"]), (&1.0.into(), &2.into()), "{some}");
    let names: Vec<&str> = some["per_class"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b", "c"], "{some}");
    // In another order, from other sources.
    let order = "--set data.classes=[\"c\",\"b\"]";
    let some = place.ok(&format!("eval r/last.safetensors --json --set data.root=other {order}")).json();
    assert_eq!(some["metrics"]["accuracy"], 1.0, "{some}");
    photo(&place, "other/val/d/1.png", [200, 200, 30], 3);
    let error = place.fails("eval r/last.safetensors --set data.root=other", 2);
    assert!(error.contains("does not know the class `d`") && error.contains("`b`, `c` and `d`"), "{error}");
    // Without it, as the message says.
    place.ok(&format!("eval r/last.safetensors --set data.root=other {order}"));
}

#[test]
fn a_list_is_matched_by_name() {
    let place = trained("source = \"image_list\"\npath = \"photos/flat/all.csv\"");
    let all = place.read("photos/flat/all.csv");
    let without_a: String = all.lines().filter(|line| !line.contains("-a-")).map(|line| format!("{line}\n")).collect();
    place.write("photos/flat/some.csv", &without_a);
    let some = "eval r/last.safetensors --json --set data.path=photos/flat/some.csv";
    assert_eq!(place.ok(some).json()["metrics"]["accuracy"], 1.0);
    place.write("photos/flat/some.csv", without_a.replace(",b,", ",1,"));
    let error = place.fails(&some.replace("--json ", ""), 2);
    assert!(error.contains("does not know the class `1`") && error.contains("trained on `a`, `b` and `c`"), "{error}");
}

#[test]
fn a_run_goes_on_with_its_classes() {
    let place = trained(FOLDER);
    place.ok("train c.toml --quiet --out s --set train.epochs=13");
    // A class without samples has the number that it had.
    for part in ["train", "val"] {
        fs::rename(place.path(&format!("photos/{part}/a")), place.path(&format!("{part}-a"))).unwrap();
    }
    place.ok("train --resume r/last.safetensors --quiet --set train.epochs=13");
    assert_eq!(labels(&place)[1..], ["b", "c"]);
    for part in ["train", "val"] {
        fs::rename(place.path(&format!("{part}-a")), place.path(&format!("photos/{part}/a"))).unwrap();
    }
    photo(&place, "photos/train/0/1.png", [200, 200, 30], 3);
    let error = place.fails("train --resume s/last.safetensors --set train.epochs=14", 2);
    assert!(error.contains("does not know the class `0`"), "{error}");
    assert!(error.contains("the data has `0`, `a`, `b` and `c`"), "{error}");
}

/// Checkpoints of versions that did not keep what a sample looks like still say what they can: by the data.
#[test]
fn checkpoints_without_names_ask_the_data() {
    let place = trained(FOLDER);
    let runner::checkpoint::Checkpoint { mut meta, tensors, .. } = place.checkpoint("r/last.safetensors");
    meta.extra.as_object_mut().unwrap().remove("sample");
    let views: Vec<_> = tensors.iter().map(|(name, tensor)| tensor.view(name)).collect();
    runner::checkpoint::write(&place.path("r/last.safetensors"), &views, &meta).unwrap();
    assert_eq!(labels(&place), ["a", "b", "c"]);
    assert_eq!(place.ok("eval r/last.safetensors --json").json()["metrics"]["accuracy"], 1.0);
}

/// A new run that takes the weights of a checkpoint takes its classes, too: by name, whatever order the data has them in.
#[test]
fn weights_of_a_checkpoint_bring_its_classes() {
    let place = trained(FOLDER);
    let taking = |data: &str| config(data).replace("[model]", "[model]\nweights = \"r/last.safetensors\"");
    place.write("w.toml", taking(&format!("{FOLDER}\nclasses = [\"c\", \"a\", \"b\"]")));
    let done = place.ok("eval w.toml --json");
    assert!(done.err.contains("numbered as in `r/last.safetensors`: `a`, `b` and `c`"), "{}", done.err);
    assert_eq!(done.json()["metrics"], place.ok("eval r/last.safetensors --json").json()["metrics"]);
    place.ok("train w.toml --quiet --out s --set train.epochs=1 --set optimizer.lr=1e-30");
    let labels = |model: &str| {
        let answers = place.ok(&format!("predict {model} one-a.png one-b.png one-c.png --json")).json();
        let label = |one: &serde_json::Value| one["top"][0]["label"].as_str().unwrap().to_owned();
        answers.as_array().unwrap().iter().map(label).collect::<Vec<_>>()
    };
    for model in ["w.toml", "s/last.safetensors"] {
        assert_eq!(labels(model), ["a", "b", "c"], "{model}");
    }
    // As many classes, but others.
    for ((_, colour), class) in COLOURS.iter().zip(["x", "y", "z"]) {
        for part in ["train", "val"] {
            photo(&place, &format!("other/{part}/{class}/1.png"), *colour, 9);
        }
    }
    let other = "w.toml --unset data.classes --set data.root=other";
    for command in ["check", "eval", "train"] {
        let error = place.fails(&format!("{command} {other}"), 2);
        for part in [
            "the weights in `r/last.safetensors` are for other classes",
            "they tell `a`, `b` and `c` apart, and the data has `x`, `y` and `z`",
            "`weights_strict = false` in `[model]` takes the rest, and `4` starts anew",
        ] {
            assert!(error.contains(part), "{command}, {part}: {error}");
        }
    }
    let stderr = place
        .ok(&format!(
            "train {other} --set model.weights_strict=false --set optimizer.lr=1e-30 --set train.epochs=1 --out t"
        ))
        .err;
    assert!(
        stderr.contains("`4.bias`, `4.weight` for other classes (`a`, `b` and `c`, and the data has `x`"),
        "{stderr}"
    );
    let [old, new] = ["r", "t"].map(|run| place.checkpoint(&format!("{run}/last.safetensors")).tensors);
    assert_eq!(old["0.weight"].data, new["0.weight"].data);
    assert!(old["4.weight"].data != new["4.weight"].data && old["4.bias"].data != new["4.bias"].data);
    // Without the data the checkpoint alone says what its classes are.
    place.write("w.toml", taking(FOLDER));
    fs::rename(place.path("photos"), place.path("gone")).unwrap();
    assert_eq!(labels("w.toml"), ["a", "b", "c"]);
    assert!(place.run("eval w.toml").err.contains("photos"));
}

/// Sets whose classes have other names than those of the training are not scored as if they were the same.
#[test]
fn another_set_is_no_set_of_these_classes() {
    let place = Place::with(&super::support::plain());
    place.ok("train c.toml --quiet --out r --set train.epochs=1");
    let cifar = "--set data.source=cifar10 --unset data.limit";
    let error = place.fails(&format!("eval r/last.safetensors {cifar}"), 2);
    assert!(error.contains("trained on `0`, `1`") && error.contains("`airplane`"), "{error}");
}
