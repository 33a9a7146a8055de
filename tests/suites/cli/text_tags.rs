//! Sentences whose words have tags.

use super::support::{Place, assert_same_runs, repository};
use serde_json::{Value, json};
use std::fs;

/// A tagger of words, and the sentences that come with the program.
pub fn place() -> Place {
    let place = Place::with(&tagger(""));
    for name in ["train", "val"] {
        fs::copy(repository(&format!("data/sentences/{name}.conll")), place.path(&format!("{name}.conll"))).unwrap();
    }
    place
}

fn tagger(more: &str) -> String {
    format!(
        "device = \"cpu\"\nseed = 2\n[data]\nsource = \"text_tags\"\npath = \"train.conll\"\nval_path = \"val.conll\"\nbatch_size = 16\nmax_length = 24\n\
         buckets = [12, 24]\n{more}\n[model]\nuse = \"lstm_tagger\"\nwith = {{ width = 16, hidden = 16, dropout = 0.1 }}\n[loss]\ntype = \"cross_entropy\"\n\
         [optimizer]\ntype = \"adam\"\nlr = 0.02\n[train]\nepochs = 4\n"
    )
}

fn last(place: &Place, run: &str) -> Value {
    place.metrics(run).into_iter().rev().find(|line| line["val_accuracy"].is_number()).unwrap()
}

#[test]
fn words_get_tags_in_two_commands() {
    let place = place();
    let shown = place.ok("data show c.toml").out;
    assert!(shown.contains("sentences of words with 7 tags, in batches of 12, 24 tokens: 500 to train on"), "{shown}");
    assert!(shown.contains("victoria [B-PER]"), "{shown}");
    let trained = place.ok("train c.toml --out r");
    assert!(trained.out.contains("span_f1"), "{}", trained.out);
    let line = last(&place, "r");
    let [f1, precision, recall] =
        ["f1", "precision", "recall"].map(|name| line[format!("val_span_{name}")].as_f64().unwrap());
    assert!(f1 > 0.9 && line["val_accuracy"].as_f64().unwrap() > 0.95, "{line}");
    assert!((f1 - 2.0 * precision * recall / (precision + recall)).abs() < 1e-12, "{line}");
    // What the model was trained on is not needed any more.
    fs::remove_file(place.path("train.conll")).unwrap();
    place.write("new.txt", "Ada Lovelace lives in San Marino .\n\nthe train to Jordan was late again .\n");
    let stdout = place.ok("predict r new.txt").out;
    for part in ["Lovelace  I-PER\n", "  PER: Ada Lovelace\n", "  LOC: San Marino\n", "  LOC: Jordan\n"] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    let rows = place.ok("predict r new.txt --json").json();
    assert_eq!(rows[0]["words"].as_array().map(Vec::len), Some(7));
    assert_eq!(rows[0]["tags"][4], "B-LOC");
    assert_eq!(rows[0]["spans"][1], json!({ "label": "LOC", "start": 4, "end": 6, "text": "San Marino" }));
    assert_eq!((&rows[1]["words"], &rows[1]["spans"]), (&json!([]), &json!([])));
    // Words as they are in files of columns and of objects.
    place.write("new.conll", "Ada X\nLovelace X\nlives X\nin X\nSan X\nMarino X\n. X\n");
    place.write("new.jsonl", "{\"tokens\": [\"Ada\", \"Lovelace\", \"lives\", \"in\", \"San\", \"Marino\", \".\"]}\n");
    for file in ["new.conll", "new.jsonl"] {
        assert_eq!(place.ok(&format!("predict r {file} --json")).json()[0]["tags"], rows[0]["tags"], "{file}");
    }
    // Sentences without words have their number in each form.
    place.write("e.jsonl", "{\"tokens\":[\"Ada\"]}\n{\"tokens\":[]}\n{\"tokens\":[\"late\"]}\n");
    place.write("e.txt", "Ada\n\nlate\n");
    let [objects, lines] =
        ["e.jsonl", "e.txt"].map(|file| place.ok(&format!("predict r {file} --json")).out.replace(file, "e"));
    assert_eq!(objects, lines);
    let stdout = place.ok("predict r new.txt new.conll").out;
    assert!(stdout.contains("new.conll, sample 0: PER: Ada Lovelace, LOC: San Marino"), "{stdout}");
    let piped = place.given("predict r - --json", "Ada Lovelace lives in San Marino .\n").json();
    assert_eq!(piped[0]["tags"], rows[0]["tags"]);
    let message = place.fails("predict r new.txt --format csv", 2);
    assert!(message.contains("no row of a table has room for") && !message.contains("--masks"), "{message}");
    // Before the samples are read.
    let message = place.fails("eval r --predictions x.csv --unset data.path --set data.path=val.conll", 2);
    assert!(
        message.contains("a table has no room for a class at each position: end the name with .jsonl"),
        "{message}"
    );
}

/// The figures are those of what is predicted, as the spans of both files say.
#[test]
fn figures_are_those_of_the_words() {
    let place = place();
    place.ok("train c.toml --out r --set train.epochs=1");
    let metrics = place.ok("eval r --json").json()["metrics"].clone();
    let said = place.ok("predict r val.conll --json").json();
    let text = place.read("val.conll");
    let sentences: Vec<Vec<&str>> =
        text.split("\n\n").map(|one| one.lines().map(|line| line.rsplit(' ').next().unwrap()).collect()).collect();
    // Begins and goes on: with these files that is all there is to it.
    let spans = |tags: &[&str]| {
        let mut found = Vec::new();
        for (at, tag) in tags.iter().enumerate().filter(|(_, tag)| tag.starts_with("B-")) {
            let inside = format!("I-{}", &tag[2..]);
            let more = tags[at + 1..].iter().take_while(|tag| **tag == inside).count();
            found.push((at, at + 1 + more, tag[2..].to_owned()));
        }
        found
    };
    let (mut right, mut predicted, mut there, mut tags_right, mut words) = (0, 0, 0, 0, 0);
    assert_eq!(said.as_array().unwrap().len(), sentences.len());
    for (sentence, said) in sentences.iter().zip(said.as_array().unwrap()) {
        let tags: Vec<&str> = said["tags"].as_array().unwrap().iter().map(|tag| tag.as_str().unwrap()).collect();
        let (own, wanted) = (spans(&tags), spans(sentence));
        assert_eq!(own.len(), said["spans"].as_array().unwrap().len(), "{said}");
        right += own.iter().filter(|span| wanted.contains(span)).count();
        (predicted, there) = (predicted + own.len(), there + wanted.len());
        tags_right += tags.iter().zip(sentence).filter(|(a, b)| a == b).count();
        words += sentence.len();
    }
    for (name, value) in [
        ("accuracy", tags_right as f64 / words as f64),
        ("span_precision", right as f64 / predicted as f64),
        ("span_recall", right as f64 / there as f64),
        ("span_f1", 2.0 * right as f64 / (predicted + there) as f64),
    ] {
        assert!((metrics[name].as_f64().unwrap() - value).abs() < 1e-9, "{name}: {value}, {metrics}");
    }
}

#[test]
fn a_tagger_goes_on_bit_for_bit() {
    let place = place();
    place.ok("train c.toml --out whole --set train.epochs=2");
    place.ok("train c.toml --out part --set train.epochs=2 --set train.max_steps=43");
    place.ok("train --resume part --set data.workers=3 --set train.max_steps=1000 --threads 1");
    assert_same_runs((&place, "whole"), (&place, "part"));
}

/// Ranks send each other the outputs of batches of both lengths.
#[test]
fn ranks_come_to_the_same_figures() {
    let place = place();
    let sets = "--set distributed.shards=2 --set train.epochs=1";
    place.ok(&format!("train c.toml --out one {sets}"));
    place.ok(&format!("launch --ranks 2 -- train c.toml --out two {sets}"));
    for name in ["val_span_f1", "val_accuracy", "val_loss"] {
        assert_eq!(last(&place, "one")[name], last(&place, "two")[name], "{name}");
    }
}

/// Pieces of words: the first one bears the tag, and a sentence has the same figures in a batch of any length.
#[test]
fn words_are_cut_into_tokens() {
    let place = place();
    for (tokenizer, more) in [("characters", ""), ("bytes", ""), ("bpe", "vocab_size = 300\n")] {
        let long = tagger(&format!("tokenizer = \"{tokenizer}\"\n{more}")).replace("[12, 24]", "[64, 128]");
        place.write("d.toml", long.replace("max_length = 24", "max_length = 128"));
        place.ok(&format!("train d.toml --out {tokenizer} --set train.epochs=1 --set data.limit=64"));
        let figures = |more: &str| place.ok(&format!("eval {tokenizer} --json {more}")).json()["metrics"].clone();
        let (buckets, one) = (figures(""), figures("--set data.buckets=[128]"));
        assert_eq!((&buckets["accuracy"], &buckets["span_f1"]), (&one["accuracy"], &one["span_f1"]), "{tokenizer}");
        let [a, b] = [&buckets, &one].map(|figures| figures["loss"].as_f64().unwrap());
        assert!((a - b).abs() < 1e-6, "{tokenizer}: {a}, {b}");
        let rows = place.ok(&format!("predict {tokenizer} val.conll --json")).json();
        assert!(
            rows.as_array().unwrap().iter().all(|row| row["tags"].as_array().unwrap().iter().all(Value::is_string))
        );
    }
    // What is behind the longest length has no tag, and does not count.
    let trained =
        place.ok("train c.toml --out cut --set data.max_length=4 --set data.buckets=[4] --set train.epochs=1");
    assert!(trained.err.contains("of 500 sentences are cut to 4 tokens"), "{}", trained.err);
    place.write("new.txt", "one two three four five\n");
    let rows = place.ok("predict cut new.txt --json").json();
    assert_eq!((rows[0]["tags"][3].is_string(), &rows[0]["tags"][4]), (true, &Value::Null));
    assert!(place.ok("predict cut new.txt").out.contains("five   (cut off)\n"));
}

/// Objects, and numbers in the place of names.
#[test]
fn tags_may_be_numbers() {
    let place = place();
    place.write(
        "a.jsonl",
        "{\"words\": [\"New\", \"York\", \"is\"], \"ner_tags\": [1, 2, 0]}\n{\"words\": [\"it\"], \"ner_tags\": [0]}\n",
    );
    let sets = "--set data.path=a.jsonl --set data.val_path=a.jsonl --set data.words=words --set data.tags=ner_tags";
    let named = format!("{sets} --set data.classes=['O','B-LOC','I-LOC']");
    let names = "note: `a.jsonl`: its tags are numbers, which say no names: `classes` in `[data]` names them";
    assert!(!place.ok(&format!("train c.toml --out named {named}")).err.contains(names));
    assert!(last(&place, "named")["val_span_f1"].is_number());
    // Without names they are tags like any others, and make no spans.
    let stderr = place.ok(&format!("train c.toml --out plain {sets}")).err;
    assert!(stderr.contains(names), "{stderr}");
    assert!(last(&place, "plain")["val_span_f1"].is_null());
    let message = place.fails(&format!("train c.toml --out n {sets} --set checkpoint.monitor=val_span_f1"), 2);
    assert!(message.contains("`span_f1` needs a tag for each word, as `B-PER`, `I-PER` and `O`"), "{message}");
    place.write("b.jsonl", "{\"words\": [\"it\"], \"ner_tags\": [3]}\n");
    let message = place.fails(&format!("check c.toml {named} --set data.val_path=b.jsonl"), 2);
    assert!(
        message.contains("`b.jsonl`, line 1, word 1: `it` has the tag `3`, which is none of those that are learnt"),
        "{message}"
    );
    // Where each word has a line, it is that of the word.
    place.write("b.conll", "it B-LOC\n\nNew B-LOC\nYork X\n");
    let message = place.fails("check c.toml --set data.val_path=b.conll", 2);
    assert!(message.contains("`b.conll`, line 4: `York` has the tag `X`, which is none of those"), "{message}");
}

#[test]
fn mistakes_in_files_of_tags_are_errors() {
    let place = place();
    let refusal = |sets: &str| place.fails(&format!("check c.toml --set data.{sets}"), 2);
    assert!(refusal("word_column=0").contains("must be at least 1"));
    assert!(refusal("tag_column=1").contains("is the column of the words"));
    assert!(refusal("tags=tokens").contains("is the key of the words"));
    assert!(refusal("tag_column=7").contains("line 1 has no tag in column 7: it has 2 columns"));
    assert!(refusal("buckets=[24,12]").contains("must be ascending"));
    assert!(place.fails("check c.toml --set data.path=none.conll", 1).contains("none.conll"));
    place.write("empty.conll", "\n\n");
    assert!(refusal("path=empty.conll").contains("has no words with tags"));
    let message = place.fails("check c.toml --set loss.type=mse", 2);
    assert!(message.contains("the loss `mse` does not fit the targets of `text_tags`"), "{message}");
    let message = place.fails("check c.toml --set model.use=lstm_classifier", 2);
    assert!(message.contains("the targets are one class for each position"), "{message}");
}

/// The configuration that comes with the program.
#[test]
fn sentences_that_come_with_the_program_are_learnt() {
    let place = Place::new();
    let config = repository("configs/sentences_lstm.toml");
    place.ok(&format!("train {} --out r --quiet --device cpu", config.display()));
    let f1 = last(&place, "r")["val_span_f1"].as_f64().unwrap();
    assert!(f1 > 0.97, "{f1}");
    assert_eq!(place.ok("export r t.onnx").code, Some(0));
}
