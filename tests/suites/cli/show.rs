//! `data show`: what is measured of images, what is drawn, and what is written into a configuration.

use super::support::{Place, digits};
use image::{Rgb, RgbImage};
use std::fs;

const MODEL: &str = "[model]\nlayers = [\"flatten\", { type = \"linear\", out_features = 2 }]\n[loss]\ntype = \"cross_entropy\"\n\
                     [optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n";

/// Photos of one shade each in two classes, and a file that is none.
fn place(more: &str) -> Place {
    let data = "device = \"cpu\"\n[data] # photos\nsource = \"image_folder\"\nroot = \"photos\"\nbatch_size = 4\n";
    let place = Place::with(&format!("{data}{more}{MODEL}"));
    let photo = |name: &str, [w, h]: [u32; 2], colour| {
        let path = place.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        RgbImage::from_pixel(w, h, Rgb(colour)).save(path).unwrap();
    };
    for part in ["train", "val"] {
        photo(&format!("photos/{part}/dark/a.png"), [6, 4], [51, 0, 102]);
        photo(&format!("photos/{part}/dark/b.png"), [5, 9], [51, 0, 102]);
        photo(&format!("photos/{part}/light/c.png"), [8, 8], [204, 51, 102]);
        photo(&format!("photos/{part}/light/d.png"), [3, 3], [204, 0, 255]);
    }
    fs::write(place.path("photos/train/dark/broken.png"), b"no photo").unwrap();
    place
}

const SIZES: &str = "val_transforms = [{ type = \"resize\", size = [4, 4] }]\n\
                     train_transforms = [{ type = \"resize\", size = [4, 4] }, { type = \"mixup\", alpha = 4 }]\n";

#[test]
fn photos_are_measured_drawn_and_their_mean_is_written() {
    let place = place(SIZES);
    let json = place.ok("data show c.toml --out s.png --count 4 --json --write-normalize").json();
    assert_eq!(json["sizes"], serde_json::json!({ "least": [3, 3], "median": [9, 5], "most": [8, 8] }), "{json}");
    let counted = |class: usize| (&json["classes"][class]["label"], json["classes"][class]["samples"].as_u64());
    assert_eq!([counted(0), counted(1)], [(&"dark".into(), Some(2)), (&"light".into(), Some(2))]);
    assert_eq!(json["unreadable"][0]["name"], "dark/broken.png", "{json}");
    assert_eq!(json["unreadable"].as_array().unwrap().len(), 1);
    // Of 0.2 and 0.8 twice each, of 0 three times and 0.2, and of 0.4 three times and 1.
    for (channel, mean, std) in [(0, 0.5, 0.3), (1, 0.05, 0.0075f64.sqrt()), (2, 0.55, 0.6 * 3f64.sqrt() / 4.0)] {
        let found = |key: &str| json[key][channel].as_f64().unwrap();
        assert!((found("mean") - mean).abs() < 1e-9 && (found("std") - std).abs() < 1e-9, "{channel}: {json}");
    }
    assert_eq!(json["shown"].as_array().unwrap().len(), 4);
    let mixed = |label: &str| label.ends_with('%');
    assert!(json["shown"].as_array().unwrap().iter().any(|one| mixed(one["label"].as_str().unwrap())), "{json}");
    let sheet = image::open(place.path("s.png")).unwrap().into_rgb8();
    assert!(sheet.width() > 2 * 64 && sheet.height() > 64);
    // The first image is enlarged 16 times: a mean of two shades, in all of its 64 × 64 pixels.
    let first = sheet.get_pixel(6, 6);
    assert_eq!(sheet.get_pixel(69, 69), first);
    assert!((51..=204).contains(&first.0[0]) && first.0[1] <= 51);
    let config = fs::read_to_string(place.path("c.toml")).unwrap();
    let normalize = "transforms = [{ type = \"normalize\", mean = [0.5, 0.05, 0.55], std = [0.3, 0.0866, 0.2598] }]\n";
    assert!(config.contains("[data] # photos") && config.contains(normalize), "{config}");
    // Another epoch has other shares; validation has none.
    let shown =
        |args: &str| place.ok(&format!("data show c.toml --set data.transforms=[] --out t.png --json {args}")).json();
    assert_ne!(shown("--epoch 2")["shown"], shown("")["shown"]);
    let val = shown("--split val");
    assert_eq!(
        (&val["samples"], &val["shown"][0]["label"], &val["unreadable"]),
        (&4.into(), &"dark".into(), &serde_json::json!([]))
    );
    let text = place.ok("data show c.toml --set data.transforms=[]").out;
    for part in ["sizes: 3×3 to 8×8, median 9×5", "mean = [0.5000, 0.0500, 0.5500]", "dark ", "█", "broken.png"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn samples_that_cannot_be_shown_are_errors() {
    let place = place("transforms = [{ type = \"resize\", size = [4, 4] }]\n");
    fs::write(place.path("d.toml"), digits("", &MODEL.replace("[loss]\ntype = \"cross_entropy\"\n", ""))).unwrap();
    fs::write(place.path("e.toml"), "extends = \"c.toml\"\n").unwrap();
    let one = fs::read_to_string(place.path("c.toml")).unwrap().replace("\"photos\"", "\"one\"");
    fs::write(place.path("one.toml"), one).unwrap();
    for name in ["train/a/1.png", "train/b/2.png", "val/a/1.png", "val/b/2.png"] {
        let path = place.path("one").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        RgbImage::from_pixel(4, 4, Rgb([9; 3])).save(path).unwrap();
    }
    let vectors = "data show d.toml --set data={source=\"synthetic\",shape=[5],classes=2,batch_size=4}";
    let nowhere = "data show c.toml --out nowhere/s.png";
    for (args, code, parts) in [
        (vectors, 1, ["there is nothing to show", "the samples of `synthetic` are no images"]),
        ("data show c.toml --out s.jpg", 2, ["cannot write `s.jpg`", "the format is .png"]),
        (nowhere, 2, ["cannot write", "nowhere/s.png"]),
        ("data show c.toml --split val --write-normalize", 2, ["--write-normalize", "leave out `--split`"]),
        ("data show c.toml --out s.png --split val --epoch 2", 2, ["the same in every epoch", "--epoch"]),
        ("data show c.toml --count 3", 2, ["--out", "required"]),
        ("data show e.toml --write-normalize", 2, ["c.toml:", "name the file that has them"]),
        (
            "data show c.toml --set data.transforms=[\"grayscale\"] --set data.val_transforms=[{type=\"resize\",size=[3,3]}] --set data.train_transforms=[{type=\"resize\",size=[3,3]}] --write-normalize",
            2,
            ["--set", "nothing is changed"],
        ),
        ("data show one.toml --write-normalize", 1, ["one value everywhere", "nothing is changed"]),
        ("data show c.toml --set data.root=none", 1, ["cannot read the photos", "none"]),
    ] {
        let err = place.fails(args, code);
        assert!(parts.iter().all(|part| err.contains(part)), "{args}: {err}");
    }
    let digits = place.ok("data show d.toml --out d.png --count 9").out;
    assert!(digits.contains("digits, train: 320 samples of 10 classes") && digits.contains("3 rows of 3"), "{digits}");
}
