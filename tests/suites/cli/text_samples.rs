//! Texts that a language model writes whenever a run evaluates.

use super::prompted;
use super::support::{Place, assert_same_runs, plain};
use super::text::{counting, language_model};
use serde_json::Value;

const LOG: &str = "[log]\nsample_prompts = [\"abc\", \"\"]\nsample_tokens = 12\n";

fn place(log: &str) -> Place {
    let place = Place::with(&(language_model("") + log));
    place.write("input.txt", counting(60));
    place
}

fn samples(place: &Place, run: &str) -> Vec<Value> {
    place.metrics(run).into_iter().filter(|line| line["kind"] == "sample").collect()
}

#[test]
fn what_is_written_is_what_generate_writes() {
    let place = place(LOG);
    let trained = place.ok("train c.toml --out r --set optimizer.lr=0.002");
    assert!(trained.err.contains("step 150, a text: abc"), "{}", trained.err);
    let texts = samples(&place, "r");
    let steps: Vec<u64> = texts.iter().map(|line| line["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [50, 50, 100, 100, 150, 150]);
    assert_ne!(texts[0]["text"], texts[4]["text"]);
    // The second text has draws of its own.
    let written = place.ok("generate r/last.safetensors --prompt abc --max-tokens 12 --seed 5 --json").json();
    assert_eq!((&texts[4]["prompt"], &texts[4]["text"]), (&"abc".into(), &written["text"]));
    let written = place.ok("generate r/last.safetensors --prompt abc --prompt= --max-tokens 12 --seed 5 --json");
    let second: Value = serde_json::from_str(written.out.lines().last().unwrap()).unwrap();
    let second = second.as_array().map_or(&second, |all| all.last().unwrap());
    assert_eq!(texts[5]["text"], second["text"], "{second}");
    // The model is what it would be without them.
    place.ok("train c.toml --out without --set optimizer.lr=0.002 --unset log.sample_prompts");
    let weights = |run: &str| place.checkpoint(&format!("{run}/last.safetensors")).tensors;
    assert_eq!(weights("r"), weights("without"));
    place.ok("report r --out r.html --no-timing");
    let page = place.read("r.html");
    for part in ["Texts that the model wrote", "After step 150", "<strong>abc</strong>"] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn a_run_that_goes_on_writes_the_same() {
    let place = place(LOG);
    let sets = "--set train.steps=60 --set train.eval_every_steps=20 --set optimizer.ema.decay=0.9";
    place.ok(&format!("train c.toml --out whole {sets}"));
    place.ok(&format!("train c.toml --out parts {sets} --set train.max_steps=30"));
    place.ok("train --resume parts --unset train.max_steps");
    assert_same_runs((&place, "whole"), (&place, "parts"));
    place.ok(&format!("train c.toml --out one {sets} --set distributed.shards=2"));
    place.ok(&format!("launch --ranks 2 -- train c.toml --out two {sets} --set distributed.shards=2"));
    assert_same_runs((&place, "one"), (&place, "two"));
    assert_eq!(samples(&place, "two").len(), 6);
}

/// Before there is a mean over epochs the model writes with its weights as they are.
#[test]
fn a_mean_over_epochs_writes_when_it_is_there() {
    let place = place(LOG);
    let sets = "--unset train.steps --unset train.eval_every_steps --set train.epochs=4 --set optimizer.swa.start=3";
    place.ok(&format!("train c.toml --out r {sets}"));
    let texts = samples(&place, "r");
    assert_eq!(texts.len(), 8);
    let written = place.ok("generate r/last.safetensors --prompt abc --max-tokens 12 --seed 5 --json").json();
    assert_eq!(texts[6]["text"], written["text"]);
}

#[test]
fn answers_are_written_as_they_were_learnt() {
    let place = prompted::place();
    let sets = "--set log.sample_prompts=[\"abc\"] --set log.sample_temperature=0 --set train.epochs=20 --set train.eval_every=10";
    place.ok(&format!("train c.toml --out r {sets}"));
    let texts = samples(&place, "r");
    assert_eq!(texts.len(), 2);
    let answer = place.ok("generate r/last.safetensors --prompt abc --max-tokens 100").out;
    assert_eq!(texts[1]["text"], answer.trim_end());
}

#[test]
fn what_cannot_be_written_is_an_error() {
    let unknown = place("[log]\nsample_prompts = [\"abc\", \"A\"]\n");
    let said = unknown.fails("train c.toml --out r", 1);
    assert!(said.contains("`sample_prompts`, text 2") && !unknown.path("r").exists(), "{said}");
    let digits = Place::with(&plain());
    let said = digits.fails("check c.toml --set log.sample_prompts=[\"a\"]", 2);
    for part in ["are texts that a language model goes on with, and `digits` trains none", "no text to go on with"] {
        assert!(said.contains(part), "{said}");
    }
    let tokens = place(LOG);
    tokens.ok("data tokenize input.txt --out t --tokenizer bytes");
    let sets = "--set data.source=tokens --set data.path=t/train.bin --set data.vocab_size=256";
    let said = tokens.fails(&format!("check c.toml {sets}"), 2);
    assert!(said.contains("needs a tokenizer"), "{said}");
    tokens.ok(&format!("train c.toml --out r {sets} --set data.tokenizer=bytes --set train.steps=10"));
    assert_eq!(samples(&tokens, "r").len(), 2);
}

/// The loss of a byte: of characters as many times as large as of bytes as they have bytes.
#[test]
fn bits_per_byte_are_the_loss_of_a_byte() {
    let place = place("");
    place.write("input.txt", "añb€c.\n".repeat(1200));
    let sets = "--set train.steps=20 --set train.eval_every_steps=20 --set metrics.figures=[\"bits_per_byte\"]";
    let figures = |run: &str, more: &str| {
        place.ok(&format!("train c.toml --out {run} {sets} {more}"));
        let last = place.metrics(run).pop().unwrap();
        ["val_loss", "val_bits_per_byte"].map(|name| last[name].as_f64().unwrap())
    };
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-3 * b, "{a} {b}");
    let [loss, bits] = figures("characters", "--set checkpoint.monitor=val_bits_per_byte");
    close(bits, loss / 2f64.ln() * 7.0 / 10.0);
    let [loss, bits] = figures("bytes", "--set data.tokenizer=bytes");
    close(bits, loss / 2f64.ln());
    // Nothing is known of how another text is related to the one that the checkpoint was chosen on.
    place.write("other.txt", "b€c.\nañ".repeat(1100));
    let chosen = |more: &str| place.ok(&format!("eval bytes/best.safetensors --json {more}")).json()["chosen"].clone();
    assert!(chosen("--set data.path=other.txt").is_null() && chosen("")["same_samples"] == true);
    // What ends documents is no text.
    let rows = |count: usize| (0..count).map(|i| format!("{}\n", "a dog sat ".repeat(1 + i % 3).trim_end()));
    place.write("rows.csv", rows(900).fold("text\n".to_owned(), |all, row| all + &row));
    place.ok("data tokenize rows.csv --out t --vocab-size 260 --end-of-text <|endoftext|>");
    let sets = "--unset data.validation_split --set data.path=rows.csv --set data.val_path=rows.csv --set data.column=text \
                --set data.tokenizer=t/tokenizer.json --set data.end_token='<|endoftext|>'";
    let [loss, bits] = figures("ended", sets);
    let tokens = std::fs::metadata(place.path("t/train.bin")).unwrap().len() as f64 / 2.0;
    close(bits, loss / 2f64.ln() * tokens / rows(900).map(|row| row.len() - 1).sum::<usize>() as f64);
    // A loss that is not the likelihood alone.
    let [_, bits] = figures("smoothed", "--set loss.label_smoothing=0.1");
    let own = place.ok("eval smoothed --json --set metrics.figures=[\"bits_per_byte\",\"perplexity\"]").json();
    close(own["metrics"]["bits_per_byte"].as_f64().unwrap(), bits);
    close(own["metrics"]["perplexity"].as_f64().unwrap().log2() * 0.7, bits);
    let digits = Place::with(&plain());
    let said = digits.fails("check c.toml --set metrics.figures=[\"bits_per_byte\"]", 2);
    assert!(said.contains("how many bytes of text a token stands for is not known"), "{said}");
}
