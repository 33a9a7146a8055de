//! Classifying image files.

use super::support::{LAYERS, Place, digits};
use image::{DynamicImage, GrayAlphaImage, GrayImage, ImageFormat, Luma, LumaA, Rgb, RgbImage, Rgba, RgbaImage};
use serde_json::Value;
use std::os::unix::ffi::OsStrExt;

fn trained() -> Place {
    let train = "[optimizer]\ntype = \"adam\"\nlr = 3e-3\n[train]\nepochs = 3\n";
    let place = Place::with(&digits("", &format!("{LAYERS}\n{train}")).replace("limit = 320\n", ""));
    place.ok("train c.toml --quiet --out r");
    place
}

fn save(place: &Place, name: &str, image: impl Into<DynamicImage>) {
    let format = if name.ends_with("jpg") { ImageFormat::Jpeg } else { ImageFormat::Png };
    image.into().save_with_format(place.path(name), format).unwrap();
}

/// A one: a bar in the middle.
fn bar(w: u32, h: u32, on: u8, off: u8) -> GrayImage {
    GrayImage::from_fn(w, h, |x, _| Luma([if (x as f64 / w as f64 - 0.5).abs() < 0.17 { on } else { off }]))
}

fn list(value: Value) -> Vec<Value> {
    value.as_array().unwrap().clone()
}

#[test]
fn images_of_every_kind_are_brought_to_the_input() {
    let place = trained();
    save(&place, "grey.png", bar(8, 8, 255, 0));
    save(&place, "large.png", bar(240, 240, 255, 0));
    save(&place, "colour.jpg", DynamicImage::ImageLuma8(bar(64, 64, 255, 0)).to_rgb8());
    save(&place, "odd.png", RgbImage::from_pixel(7, 31, Rgb([9, 99, 200])));
    save(&place, "alpha.png", RgbaImage::from_pixel(5, 5, Rgba([255, 255, 255, 10])));
    save(&place, "grey-alpha.png", GrayAlphaImage::from_pixel(1, 1, LumaA([255, 0])));
    save(&place, "deep.png", DynamicImage::ImageLuma8(bar(16, 16, 255, 0)).to_luma16());
    save(&place, "strip.png", GrayImage::new(20_000, 1));
    let files = "grey.png large.png colour.jpg odd.png alpha.png grey-alpha.png deep.png strip.png";
    let results = list(place.ok(&format!("predict r/last.safetensors {files} --json")).json());
    let named: Vec<&str> = results.iter().map(|r| r["file"].as_str().unwrap()).collect();
    assert_eq!(named, files.split(' ').collect::<Vec<_>>());
    for r in &results {
        let top = r["top"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        let p: Vec<f64> = top.iter().map(|t| t["probability"].as_f64().unwrap()).collect();
        assert!(p[0] >= p[1] && p[1] >= p[2] && p.iter().all(|p| (0.0..=1.0).contains(p)), "{r}");
        assert!(top.iter().all(|t| t["class"].as_u64().unwrap() < 10 && t["label"].is_string()), "{r}");
    }
    // The same drawing in other sizes and formats is the same digit.
    for i in [1, 2, 6] {
        assert_eq!(results[i]["top"][0]["class"], results[0]["top"][0]["class"], "{}", results[i]);
    }
}

#[test]
fn top_and_invert_do_what_they_say() {
    let place = trained();
    save(&place, "light.png", bar(8, 8, 255, 0));
    save(&place, "dark.png", bar(8, 8, 0, 255));
    let all = list(place.ok("predict r/last.safetensors light.png --top 99 --json").json());
    let all = all[0]["top"].as_array().unwrap();
    assert_eq!(all.len(), 10, "no more than there are");
    let sum: f64 = all.iter().map(|t| t["probability"].as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-6, "{sum}");
    let inverted = list(place.ok("predict r/last.safetensors dark.png --top 99 --invert --json").json());
    assert_eq!(inverted[0]["top"].as_array().unwrap(), all);
    let text = place.ok("predict r/last.safetensors light.png --top 1").out;
    assert!(text.starts_with("light.png\n") && text.lines().count() == 2 && text.contains(" %  "), "{text}");
    place.fails("predict r/last.safetensors light.png --top 0", 2);
}

#[test]
fn a_bad_file_does_not_stop_the_good_ones() {
    let place = trained();
    save(&place, "good.png", bar(8, 8, 255, 0));
    save(&place, "whole.png", bar(50, 50, 255, 0));
    let bytes = std::fs::read(place.path("whole.png")).unwrap();
    place.write("cut.png", &bytes[..bytes.len() / 2]);
    place.write("text.png", "not an image");
    std::fs::create_dir(place.path("empty")).unwrap();
    let done = place.run("predict r/last.safetensors cut.png text.png nowhere.png empty good.png --json");
    assert_eq!(done.code, Some(1), "{done:?}");
    let results = list(done.json());
    assert_eq!(results.len(), 1);
    assert_eq!(results[0]["file"], "good.png");
    for name in ["cut.png", "text.png", "nowhere.png"] {
        assert!(done.err.contains(&format!("cannot read the image `{name}`")), "{}", done.err);
    }
    assert!(done.err.contains("the folder `empty` has no images in it"), "{}", done.err);
    assert_eq!(done.err.lines().count(), 5, "a line for each, and how many: {}", done.err);
    assert!(done.err.ends_with("4 of 5 could not be done\n"), "{}", done.err);
}

/// Folders, patterns and lists of names are one list of files, in the order given, whatever form the results take.
#[test]
fn many_files_are_done_in_batches() {
    let place = trained();
    std::fs::create_dir_all(place.path("d/below")).unwrap();
    let odd = "d/a, \"b\"\nc.png";
    save(&place, odd, bar(8, 8, 255, 0));
    for i in 0..70u8 {
        save(&place, &format!("d/{i:02}.png"), bar(8, 8 + u32::from(i), 255, i));
    }
    save(&place, "d/below/x.PNG", bar(9, 9, 200, 10));
    place.write("d/35.png", "no image");
    let all = place.run("predict r/last.safetensors d --top 2 --json");
    let list = list(all.json());
    assert_eq!((all.code, list.len()), (Some(1), 71));
    let files: Vec<&str> = list.iter().map(|r| r["file"].as_str().unwrap()).collect();
    assert!(files.is_sorted_by(|a, b| a < b || *b == "d/below/x.PNG"), "{files:?}");
    assert!(!files.contains(&"d/35.png") && all.err.contains("cannot read the image `d/35.png`"), "{}", all.err);
    // Each by itself is what it is in a batch.
    for i in [0, 34, 35, 68] {
        let alone = &place.ok(&format!("predict r/last.safetensors {} --top 2 --json", files[i])).json()[0]["top"][0];
        let top = &list[i]["top"][0];
        let difference = alone["probability"].as_f64().unwrap() - top["probability"].as_f64().unwrap();
        assert!(alone["class"] == top["class"] && difference.abs() < 1e-5, "{alone} {top}");
    }
    // JSON, a line each, by a pattern; the same in a table; names on standard input.
    let lines = place.run("predict r/last.safetensors d/**/*.png d/below/x.PNG --top 2 --format jsonl").out;
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines, list);
    assert_eq!(place.run("predict r/last.safetensors d --top 2 --out results.csv").code, Some(1));
    let table = std::fs::read_to_string(place.path("results.csv")).unwrap();
    assert!(table.starts_with("file,class,probability,class_2,probability_2\nd/00.png,"), "{table}");
    assert!(table.contains("\n\"d/a, \"\"b\"\"\nc.png\","), "{table}");
    assert_eq!(table.lines().count(), 73, "one name has two lines");
    let cells: Vec<&str> = table.lines().nth(1).unwrap().split(',').collect();
    let top = &list[0]["top"];
    assert_eq!(cells[1..3], [top[0]["label"].as_str().unwrap(), &top[0]["probability"].to_string()]);
    place.write("names", "d/01.png\nd/00.png\r\n");
    let mut command = place.command("predict r/last.safetensors - --top 1");
    let done = command.stdin(std::fs::File::open(place.path("names")).unwrap()).output().unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(text.starts_with("d/01.png: ") && text.lines().nth(1).unwrap().starts_with("d/00.png: "), "{text}");
    let message = place.fails("predict r/last.safetensors d/00.png --out results", 2);
    assert!(message.contains("the ending of `results` names no format"), "{message}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_name_that_is_no_text_is_no_obstacle() {
    let place = trained();
    save(&place, "good.png", bar(8, 8, 255, 0));
    let name = std::ffi::OsStr::from_bytes(b"\xff.png");
    std::fs::rename(place.path("good.png"), place.path("").join(name)).unwrap();
    let output = place.command("predict r/last.safetensors --json").arg(name).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn a_model_of_vectors_takes_no_images() {
    let place = Place::with(
        "[data]\nsource = \"synthetic\"\nshape = [4]\nclasses = 2\nsamples = 20\nval_samples = 10\nbatch_size = 10\n\
         [model]\nlayers = [{ type = \"linear\", out_features = 2 }]\n[loss]\ntype = \"cross_entropy\"\n\
         [optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n",
    );
    place.ok("train c.toml --quiet --out r");
    save(&place, "a.png", bar(8, 8, 255, 0));
    assert!(place.fails("predict r/last.safetensors a.png", 1).contains("vectors of 4 numbers"));
}
