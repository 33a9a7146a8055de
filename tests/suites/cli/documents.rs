//! Documents of a text that are kept apart: samples that do not go on from one to the next.

use super::support::{Place, assert_same_runs};
use super::text::language_model;

/// The byte that ends documents.
const END: u8 = 0;

/// Documents of several lengths, in each of which every letter determines the next one.
fn documents(count: usize) -> Vec<String> {
    let alphabet = "abcdefghijklmnopqrstuvwxyz".repeat(2);
    (0..count).map(|n| alphabet[n * 7 % 26..][..3 + n * 11 % 23].to_owned()).collect()
}

fn tokens(documents: &[String]) -> Vec<u8> {
    // As llm.c writes them: what ends a document begins the next one, and the first as well.
    let bytes = documents.iter().flat_map(|document| [END].into_iter().chain(document.bytes()));
    bytes.chain([END]).flat_map(|byte| u16::from(byte).to_le_bytes()).collect()
}

pub fn place() -> Place {
    let apart = "packed = false\nend_token = 0\nbuckets = [4, 8, 16]\n";
    let config = language_model(apart)
        .replace("\"text\"\npath = \"input.txt\"", "\"tokens\"\ntokenizer = \"bytes\"\npath = \"train.bin\"")
        .replace("steps = 150\neval_every_steps = 50", "epochs = 8");
    let place = Place::with(&config);
    place.write("packed.toml", config.replace(apart, ""));
    place.write("train.bin", tokens(&documents(60)));
    place
}

#[test]
fn a_model_sees_no_other_document() {
    let place = place();
    let shown = place.ok("data show c.toml").out;
    assert!(shown.contains("parts of documents, in batches of 4, 8, 16 tokens"), "{shown}");
    place.ok("train c.toml --out r");
    place.ok("train packed.toml --out packed --set train.epochs=1");
    let mut some = documents(20);
    place.write("val.bin", tokens(&some));
    some.reverse();
    place.write("turned.bin", tokens(&some));
    let losses = |run: &str| {
        ["val", "turned"].map(|file| {
            let evaluated = place.ok(&format!(
                "eval {run}/last.safetensors --json --unset data.validation_split --set data.val_path={file}.bin"
            ));
            evaluated.json()["metrics"]["loss"].as_f64().unwrap()
        })
    };
    // In another order, other documents stand before each.
    let [loss, turned] = losses("r");
    assert!(loss < 2.0 && (loss - turned).abs() < 1e-6, "{loss} and {turned}");
    let [loss, turned] = losses("packed");
    assert!((loss - turned).abs() > 1e-3, "{loss} and {turned}");
    // A model may be evaluated on samples of the other kind.
    for (run, sets) in [
        ("r", "--set data.packed=true --unset data.end_token --unset data.buckets"),
        ("packed", "--set data.packed=false --set data.end_token=0"),
    ] {
        place.ok(&format!("eval {run}/last.safetensors --json {sets}"));
    }
    // A text ends where the documents do.
    let written = place.ok("generate r --prompt abc --max-tokens 60 --temperature 0");
    let written = written.out.trim_end();
    assert!(
        (4..40).contains(&written.len()) && "abcdefghijklmnopqrstuvwxyz".repeat(2).starts_with(written),
        "{written}"
    );
}

#[test]
fn a_run_on_documents_goes_on_bit_for_bit() {
    let place = place();
    let sets = "--set train.epochs=3";
    place.ok(&format!("train c.toml --out whole {sets}"));
    for steps in [5, 12] {
        place.ok(&format!("train c.toml --out part {sets} --set train.max_steps={steps} --threads 2 --force"));
        place.ok(&format!("train --resume part {sets} --set data.workers=3 --set train.max_steps=1000 --threads 1"));
        assert_same_runs((&place, "whole"), (&place, "part"));
    }
    let shards = "--set train.epochs=1 --set distributed.shards=2";
    place.ok(&format!("train c.toml --out one {shards}"));
    place.ok(&format!("launch --ranks 2 -- train c.toml --out two {shards}"));
    assert_same_runs((&place, "one"), (&place, "two"));
}
