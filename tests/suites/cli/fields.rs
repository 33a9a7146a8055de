//! Models that name what they take: from the configuration and a file of tensors to a trained model that is used.

use super::support::{Place, assert_same_runs};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::Value;

const TRAIN: &str = "[loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"adam\"\nlr = 0.02\n[train]\nepochs = 4\n\
                     [log]\nevery_steps = 1\n";

/// Samples of five numbers. The first and the last determine the class.
const SAMPLES: usize = 44;

fn number(sample: usize, column: usize) -> f32 {
    ((sample * 37 + column * 11) % 17) as f32 / 8.0 - 1.0
}

fn class(sample: usize) -> i64 {
    i64::from(number(sample, 0) + number(sample, 4) > 0.0) + i64::from(number(sample, 2) > 0.5)
}

/// A file with columns of the samples under these names, from sample `from` on, and their classes under the last.
pub fn tensors(parts: &[(&str, std::ops::Range<usize>)], targets: &str, samples: std::ops::Range<usize>) -> Vec<u8> {
    let mut list: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> = Vec::new();
    for (name, columns) in parts {
        let values = samples.clone().flat_map(|i| columns.clone().map(move |c| number(i, c).to_le_bytes()));
        list.push(((*name).into(), Dtype::F32, vec![samples.len(), columns.len()], values.flatten().collect()));
    }
    if !targets.is_empty() {
        let labels = samples.clone().flat_map(|i| class(i).to_le_bytes()).collect();
        list.push((targets.into(), Dtype::I64, vec![samples.len()], labels));
    }
    let views = list.iter().map(|(n, d, s, b)| (n.as_str(), TensorView::new(*d, s.clone(), b).unwrap()));
    safetensors::serialize(views, None).unwrap()
}

fn config(model: &str) -> String {
    format!(
        "[data]\nsource = \"tensors\"\npath = \"s.safetensors\"\nbatch_size = 8\nvalidation_split = 12\n[model]\n{model}\n{TRAIN}"
    )
}

const HEAD: &str = "{ name = \"hidden\", type = \"linear\", out_features = 16 }, \"relu\",\n\
                    { name = \"head\", type = \"linear\", out_features = 3 },\n]";

/// A model of two inputs, and where it is trained.
pub fn two() -> Place {
    let joined = "{ name = \"joined\", type = \"concat\", from = [\"numbers\", \"more\"] }";
    let place = Place::with(&config(&format!("inputs = [\"more\", \"numbers\"]\nlayers = [\n{joined},\n{HEAD}")));
    // A tensor that is not asked for may be anything.
    place.write("s.safetensors", tensors(&[("numbers", 0..3), ("more", 3..5), ("other", 0..1)], "targets", 0..SAMPLES));
    place
}

#[test]
fn two_inputs_that_are_joined_are_one() {
    let one = Place::with(&config(&format!("layers = [\n{HEAD}")));
    one.write("s.safetensors", tensors(&[("inputs", 0..5)], "targets", 0..SAMPLES));
    one.ok("train c.toml --quiet --out r");
    let two = two();
    two.ok("train c.toml --quiet --out r");
    assert_same_runs((&one, "r"), (&two, "r"));
    // Stopped in the middle of an epoch, and gone on with.
    two.ok("train c.toml --quiet --out stopped --set train.max_steps=6");
    two.ok("train --resume stopped --quiet --unset train.max_steps");
    assert_same_runs((&one, "r"), (&two, "stopped"));

    // Used where the data is not; what is learnt need not be there.
    let apart = |place: &Place, parts: &[(&str, std::ops::Range<usize>)]| {
        std::fs::remove_file(place.path("s.safetensors")).unwrap();
        place.write("new.safetensors", tensors(parts, "", SAMPLES..SAMPLES + 3));
        place.ok("predict r/last.safetensors new.safetensors --top 3 --json").json()
    };
    let answers = apart(&two, &[("more", 3..5), ("numbers", 0..3)]);
    assert_eq!(answers, apart(&one, &[("inputs", 0..5)]));
    let list = answers.as_array().unwrap();
    assert_eq!(list.iter().map(|r| r["sample"].clone()).collect::<Vec<_>>(), [0, 1, 2].map(Value::from));
    let text = two.ok("predict r/last.safetensors new.safetensors --top 1").out;
    assert!(text.starts_with("new.safetensors, sample 0\n") && text.lines().count() == 6, "{text}");
}

#[test]
fn fields_and_layers_that_a_model_does_not_find_are_errors() {
    let place = two();
    let error = place.fails("check c.toml --set model.inputs=['more','numbres']", 2);
    // The layer that takes `numbers` is reported first: the mistake could be either.
    assert!(error.contains("there is no layer `numbers`"), "{error}");
    place.write("d.toml", place.read("c.toml").replace("numbers", "numbres"));
    let error = place.fails("check d.toml", 2);
    for part in ["the samples have no field `numbres`", "d.toml:7:19", "did you mean `numbers`?", "s.safetensors"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    // Other sources have one field.
    place.write("e.toml", place.read("d.toml").replace("\"tensors\"\npath = \"s.safetensors\"", "\"digits\""));
    let error = place.fails("check e.toml", 2);
    assert!(error.contains("the samples have no field `more`"), "{error}");

    place.ok("train c.toml --quiet --out r");
    place.write("some.safetensors", tensors(&[("numbers", 0..3)], "", 0..2));
    place.write("wide.safetensors", tensors(&[("numbers", 0..3), ("more", 0..3)], "", 0..2));
    place.write("i.png", "");
    let run = place.run("predict r/last.safetensors some.safetensors wide.safetensors i.png");
    assert_eq!((run.code, run.out.as_str()), (Some(1), ""));
    for part in [
        "must hold the tensors that the model takes, `more`, `numbers`; it holds: numbers",
        "a sample of `more` is f32 [3], but the model takes f32 [2]",
        "the model takes `more` and `numbers`, not one image",
    ] {
        assert!(run.err.contains(part), "{part}: {}", run.err);
    }
}

/// The name that the only field of a set has may be written, and taken again later.
#[test]
fn the_input_can_be_taken_again() {
    let model = "inputs = [\"inputs\"]\nlayers = [\n{ name = \"a\", type = \"linear\", out_features = 5 }, \"tanh\",\n\
                 { type = \"add\", from = [\"1\", \"inputs\"] },\n";
    let place = Place::with(&config(&format!("{model}{HEAD}")));
    place.write("s.safetensors", tensors(&[("inputs", 0..5)], "targets", 0..SAMPLES));
    let residual = "layers = [\n{ type = \"residual\", layers = [{ name = \"a\", type = \"linear\", out_features = 5 }, \"tanh\"] },\n";
    place.write("d.toml", config(&format!("{residual}{HEAD}")));
    place.ok("train c.toml --quiet --out a");
    place.ok("train d.toml --quiet --out b");
    assert_same_runs((&place, "a"), (&place, "b"));
}
