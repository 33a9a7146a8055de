//! Pairs of texts, each pair of a class.

use super::support::{Place, assert_same_runs, repository};
use serde_json::Value;
use std::fmt::Write;
use std::fs;

/// Pairs whose class is a word of the second text; the first one has such a word as well, of no meaning.
pub fn pairs(rows: usize) -> String {
    let mut text = String::from("verdict,premise,hypothesis\n");
    let words = [("yes", "lovely"), ("no", "dull")];
    for i in 0..rows {
        let ((_, first), (verdict, second)) = (words[i / 2 % 2], words[i % 2]);
        let filler = ["a film", "the story of a man", "well , what can one say of it , it is long and"];
        let _ = writeln!(text, "{verdict},\"{} {first}\",\"{} {second} indeed\"", filler[i % 3], filler[i * 5 % 7 % 3]);
    }
    text
}

/// A classifier that distinguishes both texts by vectors of their own.
pub fn classifier(more: &str) -> String {
    format!(
        "device = \"cpu\"\nseed = 2\n[data]\nsource = \"text_classes\"\npath = \"pairs.csv\"\ntext = [\"premise\", \"hypothesis\"]\ntarget = \"verdict\"\n\
         batch_size = 16\nvalidation_split = 0.25\nmax_length = 32\nbuckets = [16, 32]\n{more}\n[model]\nlayers = [\n  \
         {{ name = \"embedding\", type = \"embedding\", num_embeddings = \"$vocabulary\", embedding_dim = 16 }},\n  \
         {{ name = \"types\", type = \"token_type_embedding\" }},\n  {{ name = \"hidden\", type = \"linear\", out_features = 32 }}, \"relu\",\n  \
         {{ type = \"sequence_pool\", mode = \"mean\" }},\n  {{ name = \"head\", type = \"linear\", out_features = \"$classes\" }},\n]\n\
         [loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"adam\"\nlr = 0.03\n[train]\nepochs = 8\n"
    )
}

pub fn place() -> Place {
    let place = Place::with(&classifier(""));
    place.write("pairs.csv", pairs(160));
    place
}

/// Only for the model that distinguishes the texts of a pair.
#[test]
fn the_second_text_is_distinguished_from_the_first() {
    let place = place();
    let checked = place.ok("check c.toml").out;
    assert!(checked.contains("token_type_embedding"), "{checked}");
    let shown = place.ok("data show c.toml").out;
    assert!(shown.contains("pairs of texts of 2 classes, in batches of 16, 32 tokens"), "{shown}");
    let shown = place.ok("data show c.toml --json").json();
    assert!(shown["samples"][0].as_str().unwrap().contains(" | "), "{shown}");
    place.ok("train c.toml --out r");
    let last = place.metrics("r").into_iter().rev().find(|line| line["val_accuracy"].is_number()).unwrap();
    assert_eq!(last["val_accuracy"], 1.0, "{last}");
    fs::remove_file(place.path("pairs.csv")).unwrap();
    place.write("new.csv", "hypothesis,premise\nit is dull,it is lovely\nit is lovely,it is dull\n");
    place.write("lines.txt", "it is lovely\tit is dull\nit is dull\tit is lovely\n");
    for file in ["new.csv", "lines.txt"] {
        let rows = place.ok(&format!("predict r {file} --json")).json();
        let labels: Vec<&str> =
            rows.as_array().unwrap().iter().map(|row| row["top"][0]["label"].as_str().unwrap()).collect();
        assert_eq!(labels, ["no", "yes"], "{file}");
    }
    let rows = place.given("predict r - --json", "it is lovely\tit is dull\nit is dull\tit is lovely\n").json();
    let labels: Vec<&str> =
        rows.as_array().unwrap().iter().map(|row| row["top"][0]["label"].as_str().unwrap()).collect();
    assert_eq!((labels, &rows[1]["file"], &rows[1]["sample"]), (vec!["no", "yes"], &"-".into(), &1.into()));
    place.write("one.txt", "it is lovely\n");
    let message = place.fails("predict r one.txt", 1);
    assert!(
        message.contains("`one.txt`, line 1") && message.contains("pairs of texts with a tab between them"),
        "{message}"
    );
    place.write("one.csv", "premise\nit is lovely\n");
    assert!(place.fails("predict r one.csv", 1).contains("has no column `hypothesis`"));
    // The one that does not look at it has nothing to go by.
    place.write("pairs.csv", pairs(160));
    place.write("d.toml", classifier("").replace("  { name = \"types\", type = \"token_type_embedding\" },\n", ""));
    place.ok("train d.toml --out without");
    let last = place.metrics("without").into_iter().rev().find(|line| line["val_accuracy"].is_number()).unwrap();
    assert!(last["val_accuracy"].as_f64().unwrap() < 0.9, "{last}");
}

#[test]
fn pairs_go_on_bit_for_bit_with_any_tokenizer() {
    let place = place();
    for tokenizer in ["words", "bytes", "characters", "bpe"] {
        let size = if tokenizer == "bpe" { "vocab_size = 300\n" } else { "" };
        let more = format!("tokenizer = \"{tokenizer}\"\n{size}");
        let long = classifier(&more).replace("max_length = 32\nbuckets = [16, 32]", "max_length = 96");
        place.write("d.toml", long);
        place.ok(&format!("train d.toml --out whole-{tokenizer} --set train.epochs=2"));
        place.ok(&format!("train d.toml --out part-{tokenizer} --set train.epochs=2 --set train.max_steps=11"));
        place.ok(&format!(
            "train --resume part-{tokenizer} --set data.workers=3 --set train.max_steps=1000 --threads 1"
        ));
        assert_same_runs((&place, &format!("whole-{tokenizer}")), (&place, &format!("part-{tokenizer}")));
    }
}

/// A pair has the same figures whatever length its batch has been filled up to.
#[test]
fn what_fills_a_batch_of_pairs_does_not_count() {
    let place = place();
    // A model's lengths are those of its training, so that each is trained, at a rate that changes nothing.
    let loss = |name: &str, buckets: &str| {
        let sets = format!("--set train.epochs=1 --set optimizer.lr=1e-30 --set data.buckets={buckets}");
        place.ok(&format!("train c.toml --out {name} {sets}"));
        let last = place.metrics(name).into_iter().rev().find(|line| line["val_loss"].is_number()).unwrap();
        last["val_loss"].as_f64().unwrap()
    };
    let (buckets, one) = (loss("several", "[16,32]"), loss("one", "[32]"));
    assert!((buckets - one).abs() < 1e-6, "{buckets}, {one}");
}

#[test]
fn mistakes_in_tables_of_pairs_are_errors() {
    let place = place();
    let message = |sets: &str| place.fails(&format!("check c.toml --set data.{sets}"), 2);
    assert!(message("text=['premise','words']").contains("has no column `words`; its columns are"));
    assert!(message("text=['premise','premise']").contains("names a column twice"));
    assert!(
        message("text=['premise','hypothesis','verdict']").contains("must be one column, or two for pairs of texts")
    );
    assert!(message("target=hypothesis").contains("is the text"));
    assert!(message("text=[]").contains("expected the name of a column, or a list of them"));
    place.write("empty.csv", "verdict,premise,hypothesis\nyes,a,\n");
    assert!(message("path=empty.csv").contains("has no row with a text and a class"));
}

/// BERT and DistilBERT: what transformers says of pairs, of which neither, one or both texts are cut.
#[test]
fn classifiers_of_hugging_face_judge_pairs() {
    let golden = repository("tests/golden/text_classifiers");
    for name in ["bert", "distilbert"] {
        let place = Place::new();
        fs::create_dir(place.path(name)).unwrap();
        for file in ["config.json", "model.safetensors", "tokenizer.json"] {
            fs::copy(golden.join(name).join(file), place.path(&format!("{name}/{file}"))).unwrap();
        }
        fs::copy(golden.join("pairs.csv"), place.path("pairs.csv")).unwrap();
        let wanted: Value = serde_json::from_slice(&fs::read(golden.join(name).join("pairs.json")).unwrap()).unwrap();
        place.ok(&format!("import {name}"));
        let sets = "--set data.text=['premise','hypothesis'] --set data.max_length=16 --set data.buckets=[8,16] --set data.path=pairs.csv";
        let whole = "--set data.val_path=pairs.csv --unset data.validation_split --set device=cpu";
        let done = place.ok(&format!("eval {name}.toml {sets} {whole} --json --predictions p.jsonl"));
        assert!(done.err.contains("`pairs.csv`: 3 of 6 texts are cut to 16 tokens"), "{}", done.err);
        let [loss, golden] = [&done.json()["metrics"]["loss"], &wanted["loss"]].map(|loss| loss.as_f64().unwrap());
        assert!((loss - golden).abs() < 1e-5, "{name}: {loss}, {golden}");
        let numbers = |list: &Value| list.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect::<Vec<_>>();
        let rows = place.read("p.jsonl");
        let rows: Vec<Value> = rows.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
        assert_eq!(rows.len(), wanted["logits"].as_array().unwrap().len());
        for (row, logits) in rows.iter().zip(wanted["logits"].as_array().unwrap()) {
            let (probabilities, logits) = (numbers(&row["probabilities"]), numbers(logits));
            // Logits are what they are but for a number that is added to all of them.
            for (p, logit) in probabilities.iter().zip(&logits) {
                let own = (p / probabilities[0]).ln();
                assert!((own - (logit - logits[0])).abs() < 1e-5, "{name}: {row}, {logits:?}");
            }
        }
        place.ok(&format!("train {name}.toml --device cpu --out r {sets} --set train.epochs=1"));
        let file = place.ok("predict r pairs.csv --json").json();
        assert_eq!(file.as_array().map(Vec::len), Some(6));
    }
}
