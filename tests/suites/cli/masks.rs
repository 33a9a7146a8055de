//! A class for every pixel of a photo, in mask files.

use crate::support::Place;
use image::{GrayImage, Luma, Rgb, RgbImage};

/// Photos of different sizes with a bright rectangle each, and masks that have `inside` where it is.
pub fn place(inside: u8, more: &str) -> Place {
    let place = Place::new();
    std::fs::create_dir_all(place.path("photos")).unwrap();
    let mut list = String::from("file_name,mask,split\n");
    for i in 0..24u32 {
        let (w, h) = (40 + i % 5, 36 + i % 7);
        let (left, top) = (4 + i * 7 % 16, 3 + i * 5 % 14);
        let is_in = |x: u32, y: u32| (left..left + 16).contains(&x) && (top..top + 14).contains(&y);
        let photo = RgbImage::from_fn(w, h, |x, y| match is_in(x, y) {
            true => Rgb([230, 200 - (i * 3) as u8, 40]),
            false => Rgb([20, 30 + (x + y) as u8 % 9, 60 + i as u8]),
        });
        photo.save(place.path(&format!("photos/{i}.png"))).unwrap();
        let mask = GrayImage::from_fn(w, h, |x, y| Luma([if is_in(x, y) { inside } else { 0 }]));
        mask.save(place.path(&format!("photos/mask-{i}.png"))).unwrap();
        list.push_str(&format!("{i}.png,mask-{i}.png,{}\n", if i < 18 { "train" } else { "val" }));
    }
    place.write("photos/all.csv", list);
    place.write("c.toml", config(more));
    place
}

fn config(more: &str) -> String {
    format!(
        r#"device = "cpu"
seed = 3
[data]
source = "image_list"
path = "photos/all.csv"
label_kind = "mask"
classes = ["ground", "box"]
batch_size = 6
{more}
train_transforms = [
    {{ type = "random_resized_crop", size = 32, scale = [0.6, 1.0] }}, "random_horizontal_flip",
    {{ type = "random_rotation", degrees = 20 }}, {{ type = "color_jitter", brightness = 0.1 }},
]
val_transforms = [{{ type = "resize", size = [32, 32] }}]
transforms = [{{ type = "normalize", mean = [0.5, 0.5, 0.5], std = [0.25, 0.25, 0.25] }}]
[model]
layers = [
    {{ type = "conv2d", out_channels = 8, kernel_size = 3, padding = 1 }}, "relu",
    {{ type = "conv2d", out_channels = 2, kernel_size = 3, padding = 1 }},
]
[loss]
type = "cross_entropy"
[optimizer]
type = "adam"
lr = 0.03
[train]
epochs = 12
"#
    )
}

#[test]
fn a_class_for_every_pixel_is_learnt_shown_and_predicted() {
    let place = place(1, "");
    place.ok("check c.toml");
    place.ok("train c.toml --quiet --out r");
    // Boxes are found: what is moved in training is moved in both.
    let figures = place.ok("eval r/last.safetensors --json").json();
    assert!(figures["metrics"]["accuracy"].as_f64().unwrap() > 0.97, "{figures}");
    let table = place.ok("eval r/last.safetensors").out;
    assert!(table.contains("ground") && table.contains("IoU"), "{table}");
    // Before anything is evaluated, as a mistake of the command line.
    let error = place.fails("eval r/last.safetensors --predictions x.csv", 2);
    assert!(error.contains("a table has no room for a class at each position"), "{error}");
    place.ok("eval r/last.safetensors --predictions x.jsonl");
    // Stopped and gone on with: the samples are the same.
    place.ok("train --resume r --quiet --set train.epochs=13");

    place.ok("predict r/last.safetensors photos/20.png photos/21.png --masks out --json");
    let mask = image::open(place.path("out/20.png")).unwrap().into_rgb8();
    assert_eq!(mask.dimensions(), (32, 32));
    let share = mask.pixels().filter(|pixel| pixel.0 == [128, 0, 0]).count() as f64 / 1024.0;
    let expected = 16.0 * 14.0 / (40.0 * 42.0);
    assert!((share - expected).abs() < 0.05 && mask.pixels().any(|pixel| pixel.0 == [0; 3]), "{share}, not {expected}");
    let error = place.fails("predict r/last.safetensors photos/20.png --masks photos", 2);
    assert!(error.contains("would take the place of `photos/20.png`"), "{error}");
    std::fs::create_dir(place.path("other")).unwrap();
    std::fs::copy(place.path("photos/20.png"), place.path("other/20.png")).unwrap();
    let error = place.fails("predict r/last.safetensors photos/20.png other/20.png --masks both", 2);
    assert!(error.contains("would have one name") && !place.path("both").exists(), "{error}");

    // Masks that were made by hand have the photos' names, too. Those of an earlier `predict` are replaced.
    let by_hand = std::fs::read(place.path("photos/mask-21.png")).unwrap();
    place.write("labels/21.png", &by_hand);
    let error = place.fails("predict r/last.safetensors photos/20.png photos/21.png --masks labels", 2);
    assert!(error.contains("`labels/21.png` is there") && !place.path("labels/20.png").exists(), "{error}");
    assert_eq!(std::fs::read(place.path("labels/21.png")).unwrap(), by_hand);
    place.ok("predict r/last.safetensors photos/20.png photos/21.png --masks out --json");
    let error = place.fails("data show c.toml --out photos/22.png", 2);
    assert!(error.contains("`photos/22.png` is there, and is no image that `runner` has written"), "{error}");

    let stdout = place.ok("data show c.toml --out sheet.png --count 4").out;
    assert!(stdout.contains("pixels of each class:\n  ground"), "{stdout}");
    assert!(image::open(place.path("sheet.png")).is_ok());
    let json = place.ok("data show c.toml --json").json();
    let pixels = |class: usize| json["classes"][class]["pixels"].as_u64().unwrap();
    assert_eq!(pixels(0) + pixels(1), 18 * 32 * 32);
}

#[test]
fn values_of_masks_are_named() {
    let place = place(255, "mask_values = [0, 255]");
    place.ok("train c.toml --quiet --out r --set train.epochs=1");
    // Without them the error has the value and the file.
    place.write("c.toml", config("on_error = \"fail\""));
    let error = place.fails("train c.toml --quiet --out s", 1);
    assert!(error.contains("mask-") && error.contains("the mask has the value 255"), "{error}");
    // As what is ignored it is no class, and needs no name.
    let ignoring = config("").replace("\"cross_entropy\"", "\"cross_entropy\"\nignore_index = 255");
    place.write("c.toml", ignoring);
    place.ok("train c.toml --quiet --out t --set train.epochs=1");
}

/// A value without a label may be the number of a class: all classes are learnt, as with a value that is the number of none.
#[test]
fn a_value_without_a_label_takes_no_class_away() {
    let run = |unlabelled: u8| {
        let place = place(1, "mask_values = [1, 2]");
        for i in 0..24 {
            let path = place.path(&format!("photos/mask-{i}.png"));
            let mask = image::open(&path).unwrap().into_luma8();
            let [w, h] = [mask.width(), mask.height()];
            let labelled = |x, y| if x < 5 { unlabelled } else { mask.get_pixel(x, y)[0] + 1 };
            GrayImage::from_fn(w, h, |x, y| Luma([labelled(x, y)])).save(path).unwrap();
        }
        let loss = format!("\"cross_entropy\"\nweight = \"balanced\"\nignore_index = {unlabelled}");
        place.write("c.toml", config("mask_values = [1, 2]").replace("\"cross_entropy\"", &loss));
        place.ok("train c.toml --quiet --out r --set train.epochs=4");
        let effective = std::fs::read_to_string(place.path("r/config.toml")).unwrap();
        let weights = effective.lines().find(|line| line.starts_with("weight = ")).map(str::to_owned);
        let json = place.ok("eval r/last.safetensors --json").json();
        let predicted = place.ok("predict r/last.safetensors photos/20.png --json").out;
        (weights, json["metrics"].clone(), json["per_class"].clone(), predicted)
    };
    let [collides, apart] = [0, 255].map(run);
    assert_eq!(collides, apart);
    let support = |class: usize| collides.2[class]["support"].as_u64().unwrap();
    assert!(support(0) > 1000 && support(1) > 500 && support(0) + support(1) < 6 * 32 * 29, "{}", collides.2);

    // A value that is a class and ignored is a contradiction, unless it is that class's number.
    let place = place(1, "");
    for (values, classes) in [("[100, 0]", "box"), ("[1, 0]", "box")] {
        let text = config(&format!("mask_values = {values}"));
        place.write("c.toml", text.replace("\"cross_entropy\"", "\"cross_entropy\"\nignore_index = 0"));
        let error = place.fails("check c.toml", 2);
        let expected = format!("`ignore_index` is 0, which is the value of the class `{classes}` in masks");
        assert!(error.contains(&expected), "{error}");
    }
    place.ok("check c.toml --set data.mask_values=[0,1]");
}

/// Data whose classes are in another order is read as the model knows them: by their names.
#[test]
fn classes_in_another_order_are_matched_by_name() {
    let place = place(1, "");
    place.ok("train c.toml --quiet --out r --set train.epochs=3");
    let eval = |sets: &str| place.ok(&format!("eval r/last.safetensors --json {sets}")).json();
    let whole = eval("");
    let turned = eval("--set data.classes=[\"box\",\"ground\"] --set data.mask_values=[1,0]");
    assert_eq!((&turned["metrics"], &turned["per_class"]), (&whole["metrics"], &whole["per_class"]));
    // What was learnt as ground is a box to these masks.
    let swapped = place.ok("eval r/last.safetensors --json --set data.classes=[\"box\",\"ground\"]");
    let warning = "give `box` and `ground` another value in the masks than in training (0 instead of 1)";
    assert!(swapped.err.contains(warning), "{}", swapped.err);
    let stderr = place.ok("eval r/last.safetensors --set data.mask_values=[0,1]").err;
    assert!(!stderr.contains("in the masks than in training"), "{stderr}");
    let other = swapped.json();
    assert!(other["metrics"]["accuracy"].as_f64().unwrap() < 0.5, "{other}");
    let error = place.fails("eval r/last.safetensors --set data.classes=[\"box\",\"sky\"]", 2);
    assert!(
        error.contains("does not know the class `sky`") && error.contains("trained on `ground` and `box`"),
        "{error}"
    );
}

/// Weights of classes come from the pixels of all masks, before any transform.
#[test]
fn rare_classes_weigh_more() {
    let place = place(1, "");
    place.write("c.toml", config("").replace("\"cross_entropy\"", "\"cross_entropy\"\nweight = \"balanced\""));
    let stderr = place.ok("train c.toml --out r --set train.epochs=1").err;
    let (mut pixels, mut boxes) = (0, 0);
    for i in 0..18 {
        let mask = image::open(place.path(&format!("photos/mask-{i}.png"))).unwrap().into_luma8();
        pixels += mask.len();
        boxes += mask.pixels().filter(|pixel| pixel[0] == 1).count();
    }
    let weight = |n: usize| pixels as f64 / (2 * n) as f64;
    let effective = std::fs::read_to_string(place.path("r/config.toml")).unwrap();
    let list = effective.lines().find(|line| line.starts_with("weight = ")).expect(&effective);
    let numbers: Vec<f64> = list[10..list.len() - 1].split(", ").map(|number| number.parse().unwrap()).collect();
    let expected = [weight(pixels - boxes), weight(boxes)];
    assert!(numbers.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{numbers:?} {expected:?} {stderr}");
}

#[test]
fn wrong_options_of_masks_are_errors_at_their_place() {
    let place = place(1, "");
    for (values, part) in [
        ("[0, 300]", "must be from 0 to 255"),
        ("[7, 7]", "has a value twice"),
        ("[0, 1, 2]", "must have a value for each of the `classes`"),
    ] {
        place.write("c.toml", config(&format!("mask_values = {values}")));
        let error = place.fails("check c.toml", 2);
        assert!(error.contains(part) && error.contains("c.toml:9"), "{part}: {error}");
    }
    place.write("c.toml", config("").replace("classes = [\"ground\", \"box\"]\n", ""));
    assert!(place.fails("check c.toml", 2).contains("needs the names of the `classes`"));
    place.write("c.toml", config("").replace("\"random_horizontal_flip\"", "\"trivial_augment_wide\""));
    let error = place.fails("check c.toml", 2);
    assert!(error.contains("`trivial_augment_wide` changes images alone"), "{error}");
    // An output of another size than the mask.
    place.write(
        "c.toml",
        config("").replace("out_channels = 2, kernel_size = 3, padding = 1", "out_channels = 2, kernel_size = 3"),
    );
    let error = place.fails("check c.toml", 2);
    assert!(error.contains("make the model put out [2, 32, 32]"), "{error}");
}
