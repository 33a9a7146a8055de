//! Gradients of models of Hugging Face's, held to those of transformers.

use super::imported::imported;
use super::support::{Place, repository};
use runner::checkpoint::load_tensors;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The tensors of a file as numbers, without what transformers puts before the names of GPT-2.
fn numbers(path: &Path) -> BTreeMap<String, Vec<f32>> {
    let tensors = load_tensors(path).unwrap().tensors;
    let of = |bytes: &[u8]| bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    tensors
        .iter()
        .map(|(name, tensor)| (name.trim_start_matches("transformer.").to_owned(), of(&tensor.data)))
        .collect()
}

/// A step of descent at a rate of 1 takes each gradient off its weight.
fn compare(place: &Place, name: &str, sets: &str) {
    let golden = place.path(&format!("{name}/gradients.json"));
    let golden: Value = serde_json::from_slice(&fs::read(golden).unwrap()).unwrap();
    place.ok(&format!("import {name}"));
    place.ok(&format!(
        "train {name}.toml --device cpu --out r --unset data.validation_split --unset train.clip_grad_norm --unset train.epochs --set data.shuffle=false \
         --set train.steps=1 --unset schedule --set optimizer={{type=\"sgd\",lr=1.0,weight_decay=0.0}} {sets}"
    ));
    let loss = place.metrics("r").iter().find_map(|line| line["loss"].as_f64()).unwrap();
    assert!((loss - golden["loss"].as_f64().unwrap()).abs() < 1e-5, "{name}: {loss}, not {golden}");
    place.ok("export r after.safetensors");
    let [before, after, wanted] =
        [format!("{name}/model.safetensors"), "after.safetensors".into(), format!("{name}/gradients.safetensors")]
            .map(|file| numbers(&place.path(&file)));
    assert!(wanted.len() > 10 && wanted.keys().all(|name| after.contains_key(name)), "{name}: {:?}", after.keys());
    for (parameter, wanted) in &wanted {
        let largest = wanted.iter().fold(0f32, |largest, number| largest.max(number.abs()));
        for (at, wanted) in wanted.iter().enumerate() {
            let found = before[parameter][at] - after[parameter][at];
            assert!(
                (found - wanted).abs() <= 1e-5 * largest.max(0.1),
                "{name}, {parameter}: element {at} is {found}, not {wanted}"
            );
        }
    }
}

fn with_gradients(kind: &str, name: &str) -> Place {
    let (place, _) = imported(kind, name);
    for file in ["gradients.json", "gradients.safetensors"] {
        let from = repository("tests/golden").join(kind).join(name).join(file);
        fs::copy(from, place.path(&format!("{name}/{file}"))).unwrap();
    }
    place
}

#[test]
fn gradients_of_language_models_are_those_of_transformers() {
    for name in ["gpt2", "llama", "qwen2", "mistral"] {
        let place = with_gradients("language_models", name);
        fs::copy(repository("tests/golden/language_models/text.txt"), place.path("input.txt")).unwrap();
        // Samples that begin where the one before ended.
        let dropout = if name == "gpt2" { "--set params.dropout=0.0" } else { "" };
        compare(
            &place,
            name,
            &format!("--set data.packed=false --set data.buckets=[32] --set data.batch_size=2 {dropout}"),
        );
    }
}

/// Texts of several lengths, in one batch.
#[test]
fn gradients_of_classifiers_are_those_of_transformers() {
    for name in ["bert", "distilbert"] {
        let place = with_gradients("text_classifiers", name);
        fs::copy(repository("tests/golden/text_classifiers/texts.csv"), place.path("texts.csv")).unwrap();
        let dropout = "--set params.dropout=0.0 --set params.attention_dropout=0.0 --set params.classifier_dropout=0.0";
        compare(&place, name, &format!("{dropout} --set data.buckets=[24] --set data.batch_size=99"));
    }
}
