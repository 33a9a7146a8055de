//! What `predict` says of samples is what `eval` says of them, whatever transforms the samples of validation go through.

use super::support::Place;
use image::{GrayImage, RgbImage};
use runner::api::predictor::{Options, Predictor};
use runner::data::digits;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::Value;

const TRAIN: &str = "[model]\nlayers = [\"flatten\", { type = \"linear\", out_features = \"$classes\" }]\n[loss]\ntype = \"cross_entropy\"\n\
                     [optimizer]\ntype = \"adam\"\nlr = 0.01\n[train]\nepochs = 2\n";
/// Samples of validation that are compared.
const COMPARED: usize = 12;

fn config(data: &str, transforms: &str) -> String {
    format!("seed = 1\ndevice = \"cpu\"\n[data]\n{data}\nbatch_size = 16\neval_batch_size = 1\n{transforms}\n{TRAIN}")
}

/// The probabilities of all classes of the first samples, as `eval` writes them, in the precision of what they are made of.
fn evaluated(place: &Place) -> Vec<Vec<f32>> {
    place.ok("eval r --predictions p.jsonl");
    let rows = place.read("p.jsonl");
    let of = |line: &str| -> Vec<f32> {
        let row: Value = serde_json::from_str(line).unwrap();
        row["probabilities"].as_array().unwrap().iter().map(|p| p.as_f64().unwrap() as f32).collect()
    };
    rows.lines().take(COMPARED).map(of).collect()
}

/// The same by `predict`, of all samples in these files.
fn predicted(place: &Place, files: &str) -> Vec<Vec<f32>> {
    let answers = place.ok(&format!("predict r {files} --json --probabilities")).json();
    let of = |one: &Value| -> Vec<f32> {
        let by_name = one["probabilities"].as_object().unwrap();
        (0..by_name.len()).map(|class| by_name[&class.to_string()].as_f64().unwrap() as f32).collect()
    };
    answers.as_array().unwrap().iter().map(of).collect()
}

/// The same by the library, of rows of the samples' bytes.
fn by_library(place: &Place, rows: &[u8], classes: usize) -> Vec<Vec<f32>> {
    let model = Predictor::open(&place.path("r"), &Options::default()).unwrap();
    let mut out = vec![0.0; COMPARED * classes];
    model.predict(&[rows], &mut out).unwrap();
    out.chunks(classes).map(<[f32]>::to_vec).collect()
}

/// A file with the tensors `inputs` of images, whose bytes come channels last, and `targets`. With `held_out` the first images are for validation.
fn write_tensors(place: &Place, name: &str, images: &[Vec<u8>], [h, w, c]: [usize; 3], floats: bool, held_out: bool) {
    let channels_first = |image: &Vec<u8>| -> Vec<u8> {
        let planes = (0..c).flat_map(|channel| (0..h * w).map(move |pixel| image[pixel * c + channel]));
        match floats {
            true => planes.flat_map(|byte| (f32::from(byte) / 255.0).to_le_bytes()).collect(),
            false => planes.collect(),
        }
    };
    let mut list = Vec::new();
    let parts = match held_out {
        true => vec![("", &images[COMPARED..]), ("val_", &images[..COMPARED])],
        false => vec![("", images)],
    };
    for (prefix, part) in parts {
        let bytes: Vec<u8> = part.iter().flat_map(&channels_first).collect();
        let dtype = if floats { Dtype::F32 } else { Dtype::U8 };
        list.push((format!("{prefix}inputs"), dtype, vec![part.len(), c, h, w], bytes));
        let labels = (0..part.len()).flat_map(|i| ((i % 4) as i64).to_le_bytes()).collect();
        list.push((format!("{prefix}targets"), Dtype::I64, vec![part.len()], labels));
    }
    let views = list.iter().map(|(n, d, s, b)| (n.as_str(), TensorView::new(*d, s.clone(), b).unwrap()));
    place.write(name, safetensors::serialize(views, None).unwrap());
}

/// Images of the bundled digits.
#[test]
fn digits_go_through_the_transforms_of_validation() {
    let data = digits::open().unwrap();
    let images: Vec<Vec<u8>> = (0..COMPARED).map(|i| data.val.bytes(i, 0).unwrap().to_vec()).collect();
    for transforms in [
        "",
        "transforms = [{ type = \"resize\", size = 16 }, { type = \"center_crop\", size = 12 }, { type = \"normalize\", mean = [0.5], std = [0.5] }]",
        "val_transforms = [{ type = \"center_crop\", size = 4 }, { type = \"resize\", size = [8, 8], interpolation = \"bicubic\" }]",
        "transforms = [{ type = \"grayscale\", num_output_channels = 3 }]",
    ] {
        let place = Place::with(&config("source = \"digits\"\nlimit = 320", transforms));
        place.ok("train c.toml --quiet --out r");
        let expected = evaluated(&place);
        let names: Vec<String> = (0..COMPARED).map(|i| format!("{i}.png")).collect();
        for (name, image) in names.iter().zip(&images) {
            GrayImage::from_raw(8, 8, image.clone()).unwrap().save(place.path(name)).unwrap();
        }
        let by_files: Vec<Vec<f32>> = names.iter().flat_map(|name| predicted(&place, name)).collect();
        assert_eq!(by_files, expected, "{transforms}: image files");
        write_tensors(&place, "t.safetensors", &images, [8, 8, 1], false, false);
        assert_eq!(predicted(&place, "t.safetensors"), expected, "{transforms}: tensors");
        assert_eq!(by_library(&place, &images.concat(), 10), expected, "{transforms}: the library");
    }
}

/// Images in a file of tensors: the file that was trained on, and the same images as files.
#[test]
fn tensors_go_through_the_transforms_of_validation() {
    let pixel = |sample: usize, at: usize| (sample * 89 + at * at * (sample + 3) + at * 37) as u8;
    let images: Vec<Vec<u8>> = (0..40).map(|i| (0..8 * 10 * 3).map(|at| pixel(i, at)).collect()).collect();
    let normalize = "{ type = \"normalize\", mean = [0.1], std = [0.5] }";
    for (transforms, floats) in [
        (format!("transforms = [\"grayscale\", {normalize}]"), false),
        (format!("transforms = [{{ type = \"grayscale\", num_output_channels = 3 }}, {normalize}]"), false),
        ("transforms = [{ type = \"center_crop\", size = 6 }]".to_owned(), false),
        ("transforms = [{ type = \"resize\", size = [8, 12] }]".to_owned(), false),
        (
            "transforms = [{ type = \"center_crop\", size = 4 }, { type = \"resize\", size = [8, 10] }]".to_owned(),
            false,
        ),
        ("transforms = [{ type = \"center_crop\", size = [9, 4] }]".to_owned(), true),
    ] {
        let place = Place::with(&config("source = \"tensors\"\npath = \"t.safetensors\"", &transforms));
        write_tensors(&place, "t.safetensors", &images, [8, 10, 3], floats, true);
        place.ok("train c.toml --quiet --out r");
        let expected = evaluated(&place);
        write_tensors(&place, "val.safetensors", &images[..COMPARED], [8, 10, 3], floats, false);
        assert_eq!(predicted(&place, "val.safetensors"), expected, "{transforms}: tensors");
        // Tensors of the training are answered, too.
        assert_eq!(predicted(&place, "t.safetensors").len(), images.len() - COMPARED);
        let save = |(number, image): (usize, &Vec<u8>)| {
            let name = format!("{number}.png");
            RgbImage::from_raw(10, 8, image.clone()).unwrap().save(place.path(&name)).unwrap();
            name
        };
        let names: Vec<String> = images[..COMPARED].iter().enumerate().map(save).collect();
        let by_files: Vec<Vec<f32>> = names.iter().flat_map(|name| predicted(&place, name)).collect();
        assert_eq!(by_files, expected, "{transforms}: image files");
        let rows = images[..COMPARED].concat();
        let rows = match floats {
            true => rows.iter().flat_map(|byte| (f32::from(*byte) / 255.0).to_ne_bytes()).collect(),
            false => rows,
        };
        assert_eq!(by_library(&place, &rows, 4), expected, "{transforms}: the library");
        // An image of another size is first brought to that of the samples.
        RgbImage::from_pixel(10, 8, image::Rgb([200, 30, 90])).save(place.path("small.png")).unwrap();
        RgbImage::from_pixel(33, 20, image::Rgb([200, 30, 90])).save(place.path("large.png")).unwrap();
        assert_eq!(predicted(&place, "large.png"), predicted(&place, "small.png"), "{transforms}: another size");
    }
}
