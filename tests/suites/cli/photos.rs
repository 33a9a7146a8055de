//! Photos in folders: from the files to a trained model that names the class of a photo.

use super::support::{Place, assert_same_runs};
use image::{Rgb, RgbImage};
use serde_json::Value;
use std::fs;

pub const MODEL: &str = r#"
[model]
layers = [{ type = "conv2d", out_channels = 6, kernel_size = 3, stride = 2 }, "relu",
          { type = "adaptive_avg_pool2d", output_size = 1 }, "flatten", { type = "linear", out_features = 2 }]
[loss]
type = "cross_entropy"
[optimizer]
type = "adam"
lr = 0.05
[train]
epochs = 5
[log]
every_steps = 1
"#;

/// What brings photos to one size.
pub const TRANSFORMS: &str = r#"
train_transforms = [{ type = "random_resized_crop", size = 16 }, "random_horizontal_flip"]
val_transforms = [{ type = "resize", size = 20 }, { type = "center_crop", size = 16 }]
transforms = [{ type = "normalize", mean = "imagenet", std = "imagenet" }]
"#;

fn config(more: &str, transforms: &str) -> String {
    format!(
        "device = \"cpu\"\nseed = 3\n[data]\nsource = \"image_folder\"\nroot = \"photos\"\nbatch_size = 5\n{more}{transforms}{MODEL}"
    )
}

/// A photo of one of two kinds, in a size and with shades of its own.
pub fn photo(place: &Place, name: &str, kind: u8, number: u32) {
    let path = place.path(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let shade = |x: u32, y: u32| ((x * 7 + y * 3 + number * 13) % 50) as u8;
    let colour = |x, y| if kind == 0 { Rgb([200 - shade(x, y), 40, 30]) } else { Rgb([30, 60, 190 - shade(x, y)]) };
    RgbImage::from_fn(24 + number * 3 % 17, 20 + number * 5 % 13, colour).save(path).unwrap();
}

/// Fourteen photos to train on and six to validate on, with this configuration.
pub fn place(more: &str, transforms: &str) -> Place {
    let place = Place::with(&config(more, transforms));
    for number in 0..20 {
        let part = if number < 14 { "train" } else { "val" };
        let (kind, class) = if number % 2 == 0 { (0, "red") } else { (1, "blue") };
        let ending = ["png", "jpg", "bmp"][number as usize % 3];
        photo(&place, &format!("photos/{part}/{class}/{number}.{ending}"), kind, number);
    }
    place
}

#[test]
fn photos_are_learnt_and_classified() {
    let place = place("", TRANSFORMS);
    let check = place.ok("check c.toml").out;
    assert!(check.contains("[5, 6, 7, 7]"), "{check}");
    place.ok("train c.toml --quiet --out r");
    let figures = place.ok("eval r/best.safetensors --json").json();
    assert_eq!(figures["metrics"]["accuracy"], 1.0, "{figures}");
    // A new photo, in a new size.
    photo(&place, "new.jpg", 1, 77);
    photo(&place, "other.png", 0, 78);
    let answers = place.ok("predict r/best.safetensors new.jpg other.png --json").json();
    assert_eq!(
        (&answers[0]["top"][0]["label"], &answers[1]["top"][0]["label"]),
        (&"blue".into(), &"red".into()),
        "{answers}"
    );
}

/// What `predict` says of the photos that are validated on is what `eval` has counted.
#[test]
fn predictions_see_what_validation_sees() {
    let place = place("", TRANSFORMS);
    place.ok("train c.toml --quiet --out r --set train.epochs=1 --set optimizer.lr=0.001");
    let loss = place.ok("eval r/last.safetensors --json").json()["metrics"]["loss"].as_f64().unwrap();
    let files: Vec<String> = ["red", "blue"]
        .iter()
        .flat_map(|class| fs::read_dir(place.path(&format!("photos/val/{class}"))).unwrap())
        .map(|file| file.unwrap().path().display().to_string())
        .collect();
    let answers = place.ok(&format!("predict r/last.safetensors {} --json", files.join(" "))).json();
    let of_class = |one: &serde_json::Value| {
        let class = if one["file"].as_str().unwrap().contains("/red/") { "red" } else { "blue" };
        let top = one["top"].as_array().unwrap();
        top.iter().find(|t| t["label"] == class).unwrap()["probability"].as_f64().unwrap()
    };
    let answers = answers.as_array().unwrap();
    let mean = answers.iter().map(|one| -of_class(one).ln()).sum::<f64>() / answers.len() as f64;
    assert!((mean - loss).abs() < 1e-5 * loss, "{mean} and {loss}");
}

#[test]
fn neither_workers_nor_an_interruption_change_anything() {
    let a = place("workers = 0\n", TRANSFORMS);
    a.ok("train c.toml --quiet --out r --threads 1");
    let b = place("workers = 3\n", TRANSFORMS);
    b.ok("train c.toml --quiet --out r --set train.epochs=2");
    b.ok("train --resume r/last.safetensors --quiet --set train.epochs=5");
    assert_same_runs((&a, "r"), (&b, "r"));
}

/// In memory, on a disk, and as a run before has left it there.
#[test]
fn photos_that_are_kept_change_nothing() {
    let plain = place("", TRANSFORMS);
    plain.ok("train c.toml --quiet --out r");
    let memory = place("cache = \"memory\"\n", TRANSFORMS);
    let stderr = memory.ok("train c.toml --out r").err;
    assert!(stderr.contains("cache: 20 photos are kept"), "{stderr}");
    assert_same_runs((&plain, "r"), (&memory, "r"));
    let disk = place("cache = \"disk\"\ncache_dir = \"kept\"\n", TRANSFORMS);
    for run in ["a", "b"] {
        let stderr = disk.ok(&format!("train c.toml --out {run}")).err;
        assert!(stderr.contains("cache: 20 photos are kept"), "{stderr}");
        assert_same_runs((&plain, "r"), (&disk, run));
    }
    assert_eq!(fs::read_dir(disk.path("kept")).unwrap().count(), 4, "two files for each part");
    let figures = |place: &Place, run: &str| place.ok(&format!("eval {run}/best.safetensors --json")).json();
    assert_eq!(figures(&plain, "r")["metrics"], figures(&disk, "a")["metrics"]);
    // A part that is held out is of the same photos, after other transforms.
    let held_out = "--set data.validation_split=4 --set train.epochs=2";
    plain.ok(&format!("train c.toml --quiet --out s {held_out}"));
    memory.ok(&format!("train c.toml --quiet --out s {held_out}"));
    assert_same_runs((&plain, "s"), (&memory, "s"));
}

#[test]
fn check_shows_the_photos_that_are_kept_with_their_size() {
    let place = place("cache = \"memory\"\n", TRANSFORMS);
    let stdout = place.ok("check c.toml").out;
    for part in [
        "cache in memory, of at most 2.0 GiB",
        "training: whole photos, as the first transform, `random_resized_crop`, is random: ",
        "validation: photos after `resize`, `center_crop`: 768 B each, 4.5 KiB in all",
    ] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    let json = place.ok("check c.toml --json").json();
    let kept: u64 = json["cache"]["kept"].as_array().unwrap().iter().map(|k| k["bytes"]["all"].as_u64().unwrap()).sum();
    assert_eq!(json["memory"]["cache"], kept, "all photos have been looked at");
    assert!(json["memory"]["decoding"].as_u64().unwrap() > 0, "{json}");
    // The photos that there is no room for have a note, and the run goes on.
    let small = "--set data.cache_size=1KiB";
    let json = place.ok(&format!("check c.toml --json {small}")).json();
    assert_eq!(json["memory"]["cache"], 1024);
    assert!(place.ok(&format!("check c.toml {small}")).out.contains("that is more than `cache_size`"));
    let stderr = place.ok(&format!("train c.toml --out r {small}")).err;
    assert!(stderr.contains("of at most 1.0 KiB; the others are decoded in every epoch"), "{stderr}");
    // Nor is there a folder in the place of a file.
    place.write("taken", "a file");
    let error = place.fails("train c.toml --out s --set data.cache=disk --set data.cache_dir=taken/kept", 1);
    assert!(error.contains("cannot keep photos in `taken/kept`") && error.contains("`cache_dir`"), "{error}");
    assert!(!place.path("s").exists(), "nothing is written");
}

#[test]
fn a_part_of_one_folder_is_held_out() {
    let place = Place::with(&config("validation_split = 0.25\n", TRANSFORMS));
    for number in 0..16 {
        let class = if number < 12 { "red" } else { "blue" };
        photo(&place, &format!("photos/{class}/{number}.png"), u8::from(number >= 12), number);
    }
    place.ok("train c.toml --quiet --out r");
    let figures = place.ok("eval r/last.safetensors --json").json();
    assert_eq!(figures["samples"], 4, "{figures}");
    // Of twelve and four.
    let evaluation = place.ok("eval r/last.safetensors --split train --json").json();
    assert_eq!(evaluation["samples"], 12, "{evaluation}");
    // With one more other photos are held out.
    photo(&place, "photos/red/more.png", 0, 30);
    let stderr = place.ok("eval r/last.safetensors").err;
    assert!(stderr.contains("`validation_split` holds others out, some of which were trained on"), "{stderr}");
}

#[test]
fn broken_photos_are_named_and_the_run_goes_on() {
    let skipping = place("", TRANSFORMS);
    let whole = fs::read(skipping.path("photos/train/red/4.jpg")).unwrap();
    skipping.write("photos/train/red/broken.jpg", &whole[..whole.len() - 9]);
    let stderr = skipping.ok("train c.toml --out r").err;
    assert!(
        stderr.contains("a sample cannot be read") && stderr.contains("`red/broken.jpg`: it is cut off"),
        "{stderr}"
    );
    let last = skipping.metrics("r").pop().unwrap();
    assert_eq!(last["unreadable"], 1, "{last}");
    let failing = place("on_error = \"fail\"\n", TRANSFORMS);
    failing.write("photos/train/red/broken.jpg", b"\xff\xd8\xff no photo");
    let error = failing.fails("train c.toml --quiet --out r", 1);
    assert!(error.contains("a sample cannot be read: `red/broken.jpg`"), "{error}");
}

/// Figures are those of the photos that can be read: no other counts twice in the place of one that cannot.
#[test]
fn an_evaluation_leaves_broken_photos_out() {
    let figures = "[metrics]\nfigures = [\"auroc\", \"macro_f1\", \"log_loss\"]\n";
    let place = place("eval_batch_size = 4\n", TRANSFORMS);
    place.write("c.toml", place.read("c.toml") + figures);
    let train = "train c.toml --quiet --set train.epochs=2 --set optimizer.lr=0.01 --out";
    let evaluated = |words: &str| {
        let done = place.ok(words);
        let Value::Object(mut json) = done.json() else { panic!("{}", done.out) };
        for key in ["model", "warnings", "unreadable", "seconds", "chosen"] {
            json.remove(key);
        }
        (json, done.err)
    };
    place.ok(&format!("{train} whole"));
    let (whole, _) = evaluated("eval whole --json");
    place.write("photos/val/blue/00.jpg", b"\xff\xd8\xff no photo");
    place.ok(&format!("{train} broken"));
    let (without, stderr) = evaluated("eval broken --json --predictions p.csv");
    assert!(stderr.contains("a sample cannot be read, and is left out: `blue/00.jpg`"), "{stderr}");
    assert_eq!(place.read("p.csv").lines().count() as u64, 1 + whole["samples"].as_u64().unwrap());
    assert_close(&Value::Object(without), &Value::Object(whole));
    let of_run = |run: &str| {
        let lines = place.metrics(run);
        let epoch = lines.iter().rfind(|line| line["kind"] == "epoch").unwrap().as_object().unwrap().clone();
        Value::Object(epoch.into_iter().filter(|(key, _)| key.starts_with("val_") && key != "val_unreadable").collect())
    };
    assert_close(&of_run("broken"), &of_run("whole"));
}

/// The same numbers, but for rounding, and all else the same.
fn assert_close(a: &Value, b: &Value) {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
            a.iter().for_each(|(key, value)| assert_close(value, &b[key]));
        }
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len(), "{a:?} {b:?}");
            a.iter().zip(b).for_each(|(a, b)| assert_close(a, b));
        }
        (Value::Number(a), Value::Number(b)) if a.is_f64() => {
            let [a, b] = [a, b].map(|number| number.as_f64().unwrap());
            assert!((a - b).abs() <= 1e-6 * b.abs(), "{a} {b}");
        }
        _ => assert_eq!(a, b),
    }
}

#[test]
fn other_files_in_a_folder_are_noted() {
    let place = place("", TRANSFORMS);
    place.write("photos/train/red/notes.txt", "no photo");
    place.write("photos/loose.png", "in no class");
    let stderr = place.ok("train c.toml --out r --set train.epochs=1").err;
    assert!(
        stderr.contains("note: `photos/train` has files that are no images by their endings")
            && stderr.contains("`red/notes.txt`"),
        "{stderr}"
    );
}

/// Images that cannot be read are not called something else; they are named wherever a folder is read.
#[test]
fn images_of_formats_that_are_not_read_are_noted() {
    let place = place("", TRANSFORMS);
    place.write("photos/train/red/a.HEIC", "\0\0\0\x18ftypheic");
    let note = "images of formats that are not read, which are left out: convert them to JPEG or PNG: ";
    let stderr = place.ok("train c.toml --out r --set train.epochs=1").err;
    assert!(stderr.contains(&format!("note: `photos/train` has {note}`red/a.HEIC`")), "{stderr}");
    assert!(!stderr.contains("no images"), "{stderr}");
    let done = place.ok("predict r photos/train/red");
    assert!(done.err.contains(&format!("note: `photos/train/red` has {note}`a.HEIC`")), "{}", done.err);
    let stderr = place.ok("init photos").err;
    assert!(stderr.contains(&format!("note: `photos` has {note}`train/red/a.HEIC`")), "{stderr}");
    let stderr = place.fails("predict r photos/train/red/a.HEIC", 1);
    assert!(stderr.contains("it is a HEIC image, which is not read: convert it to JPEG or PNG"), "{stderr}");
}

/// Where there are no others, the samples of `--split test` are those that the checkpoint was chosen on.
#[test]
fn without_a_test_set_validation_samples_are_called_so() {
    let place = place("", TRANSFORMS);
    place.ok("train c.toml --quiet --out r --set train.epochs=1");
    let done = place.ok("eval r/best.safetensors --split test");
    for part in [
        "there is no test set: these are the samples that training validates on",
        "was chosen by `val_accuracy` on these samples (the validation samples)",
    ] {
        assert!(done.err.contains(part), "{}", done.err);
    }
    let json = place.ok("eval r/best.safetensors --split test --json").json();
    assert_eq!((&json["chosen"]["same_samples"], &json["samples"]), (&true.into(), &6.into()), "{json}");
    // With a test set of its own they are others.
    photo(&place, "photos/test/red/30.png", 0, 30);
    photo(&place, "photos/test/blue/31.png", 1, 31);
    let done = place.ok("eval r/best.safetensors --split test");
    assert!(done.err.contains("on the validation samples, not on these"), "{}", done.err);
    assert!(!done.err.contains("no test set"), "{}", done.err);
}

/// Folders of parts under names that are not looked for are no classes.
#[test]
fn folders_of_parts_are_not_taken_for_classes() {
    let place = place("", TRANSFORMS);
    fs::rename(place.path("photos/train"), place.path("photos/Training")).unwrap();
    for command in ["check c.toml", "init photos"] {
        let error = place.fails(command, 2);
        let parts =
            ["has no folder `train`, and has folders of photos in `Training` and `val`", "name them with `classes`"];
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    // Named, they are classes; so they are where photos lie in them.
    place.ok("check c.toml --set data.classes=['Training','val'] --set data.validation_split=0.2");
    photo(&place, "flat/test/1.png", 0, 1);
    photo(&place, "flat/control/2.png", 1, 2);
    place.ok("check c.toml --set data.root=flat --set data.validation_split=1");
}

#[test]
fn photos_without_a_size_are_refused_with_what_to_write() {
    let both = "no transform gives them one";
    let train = r#"train_transforms = [{ type = "random_resized_crop", size = 224 }]"#;
    let val = r#"val_transforms = [{ type = "resize", size = 256 }, { type = "center_crop", size = 224 }]"#;
    for (transforms, parts) in [
        ("", vec![both, train, val]),
        (val, vec!["no transform in training gives them one", train]),
        (train, vec!["no transform in evaluation gives them one", val]),
    ] {
        let error = place("", &format!("{transforms}\n")).fails("check c.toml", 2);
        for part in parts {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
    let together = format!("{train}\n{val}\n");
    place("", &together).ok("check c.toml");
}

#[test]
fn folders_that_are_not_there_are_errors_with_a_place() {
    let place = Place::with(&config("", TRANSFORMS));
    let error = place.fails("check c.toml", 2);
    assert!(
        error.contains("cannot read the photos in `photos`: No such file") && error.contains("root = \"photos\""),
        "{error}"
    );
    // The classes alone are enough to look at the model.
    let named = Place::with(&config("classes = [\"red\", \"blue\"]\n", TRANSFORMS));
    assert!(named.ok("check c.toml").out.contains("[5, 6, 7, 7]"));
    let error = named.fails("train c.toml --out r", 1);
    assert!(error.contains("cannot read the photos in `photos`") && !named.path("r").exists(), "{error}");
}

#[test]
fn a_set_that_has_changed_is_warned_of() {
    let place = place("", TRANSFORMS);
    place.ok("train c.toml --quiet --out r --set train.epochs=1");
    photo(&place, "photos/val/red/another.png", 0, 50);
    let stderr = place.run("eval r/last.safetensors").err;
    assert!(stderr.contains("the held-out inputs"), "{stderr}");
}

/// What was trained is not lost where too many photos of the validation are broken: the run goes on with the evaluation when they are mended.
#[test]
fn an_epoch_is_saved_before_an_evaluation_that_fails() {
    let sharded = |place: &Place| {
        let config =
            place.read("c.toml").replace("batch_size = 5", "batch_size = 4").replace("epochs = 5", "epochs = 2");
        place.write("c.toml", config + "[distributed]\nshards = 2\n");
    };
    let whole = place("", TRANSFORMS);
    sharded(&whole);
    whole.ok("train c.toml --quiet --out r");
    for (command, on_error) in [
        ("train", ""),
        ("launch --ranks 2 -- train", ""),
        ("launch --ranks 2 --processes -- train", ""),
        ("launch --ranks 2 --processes -- train", "on_error = \"fail\"\n"),
    ] {
        let place = place(on_error, TRANSFORMS);
        sharded(&place);
        let broken = ["photos/val/red/14.bmp", "photos/val/blue/19.jpg"];
        let photos = broken.map(|name| fs::read(place.path(name)).unwrap());
        broken.iter().for_each(|name| drop(place.write(name, b"\xff\xd8\xff no photo")));
        let err = place.fails(&format!("{command} c.toml --quiet --out r"), 1);
        let expected = match on_error {
            "" => {
                "error: the evaluation in epoch 1: 2 of 6 samples cannot be read, more than the 1 that are left out: "
            }
            _ => "error: the evaluation in epoch 1: a sample cannot be read: ",
        };
        assert!(err.contains(expected) && err.matches("cannot be read").count() == 1, "{command}: {err}");
        assert!(err.contains("mend the data, and go on with: runner train --resume r"), "{command}: {err}");
        assert!(!err.contains("batch") && !err.contains("has failed"), "{command}: {err}");
        assert_eq!(place.checkpoint("r/last.safetensors").meta.step, 4);
        // Still broken: it is the same once more.
        assert!(place.fails("train --resume r --quiet", 1).contains("the evaluation in epoch 1: "));
        broken.iter().zip(photos).for_each(|(name, photo)| drop(place.write(name, photo)));
        place.ok("train --resume r --quiet");
        for file in ["last", "best"] {
            let [a, b] = [&whole, &place].map(|place| place.checkpoint(&format!("r/{file}.safetensors")));
            assert_eq!(a.meta.best, b.meta.best);
            assert!(a.tensors.iter().all(|(name, tensor)| tensor.data == b.tensors[name].data), "{command}: {file}");
        }
        assert!(place.metrics("r").iter().all(|line| line.get("val_unreadable").is_none()), "{:?}", place.metrics("r"));
    }
}
