//! `data tokenize`, and training on what it writes.

use super::support::Place;
use std::fs;

fn text() -> String {
    let lines = ["the cat sat on the mat", "a dog ran to the cat", "the mat is on the dog"];
    (0..600).map(|n| format!("{} {}\n", lines[n % 3], lines[n * 7 % 3])).collect()
}

#[test]
fn a_text_becomes_tokens_that_are_trained_on_and_written_again() {
    let place = Place::new();
    place.write("texts/a.txt", text());
    place.write("texts/b.md", "the dog sat");
    let args = "data tokenize texts --out tokens --vocab-size 300 --validation-split 0.1 --end-of-text <|end|>";
    let out = place.ok(args).out;
    for part in ["tokenizer.json: ", "train.bin: ", "val.bin: ", "source = \"tokens\"\npath = \"tokens/train.bin\""] {
        assert!(out.contains(part), "{part}: {out}");
    }
    // The section that is printed is one of a configuration.
    let section = out.split_once("\n\n").unwrap().1.replace("context = 256", "context = 16\nbatch_size = 8");
    let rest = "[model]\nuse = \"gpt\"\nwith = { width = 16, heads = 2, layers = 1 }\n[loss]\ntype = \"cross_entropy\"\n\
                [optimizer]\ntype = \"adamw\"\nlr = 1e-2\n[train]\nsteps = 60\neval_every_steps = 60\n";
    place.write("c.toml", format!("{section}{rest}"));
    place.ok("train c.toml --out run");
    let written = place.ok("generate run --prompt the --max-tokens 5 --seed 1").out;
    assert!(written.starts_with("the"), "{written}");
    let json = place.ok(&args.replace("<|end|>", "<|end|> --json --force")).json();
    assert!((258..=300).contains(&json["vocab_size"].as_u64().unwrap()), "{json}");
    let tokens: u64 = json["files"].as_array().unwrap().iter().map(|file| file["tokens"].as_u64().unwrap()).sum();
    let sizes = ["train", "val"].map(|name| fs::metadata(place.path(&format!("tokens/{name}.bin"))).unwrap().len());
    assert_eq!(2 * tokens, sizes.iter().sum::<u64>());
}

#[test]
fn a_column_of_a_table_becomes_tokens() {
    let place = Place::new();
    let rows =
        text().lines().map(|line| format!("{{\"id\": 1, \"story\": \"{line}\", \"tags\": []}}\n")).collect::<String>();
    place.write("a.jsonl", format!("{rows}{{\"story\": null}}\n"));
    let args = "data tokenize a.jsonl --column story --out tokens --vocab-size 300 --end-of-text <|end|>";
    let out = place.ok(args).out;
    assert!(out.contains("of text; 1 row has none") && out.contains("path = \"tokens/train.bin\""), "{out}");
    let json = place.ok(&format!("{args} --json --force")).json();
    assert_eq!(json["files"][0]["empty_rows"], 1);
    assert_eq!(json["files"][0]["bytes"].as_u64(), Some(text().replace('\n', "").len() as u64));
    // No other column has texts.
    let only = place.ok(&args.replace("--column story ", "--force ")).out;
    assert_eq!(only, out);
    // The table is no place for what is made of it.
    place.write("t/train.bin", "story\nthe cat\n");
    let err = place.fails("data tokenize t/train.bin --column story --out t --tokenizer bytes", 2);
    assert!(err.contains("this command reads that file"), "{err}");
    assert_eq!(fs::read_to_string(place.path("t/train.bin")).unwrap(), "story\nthe cat\n");
}

#[test]
fn what_cannot_be_is_refused_and_loses_nothing() {
    let place = Place::new();
    place.write("a.txt", text());
    for (args, code, part) in [
        ("data tokenize none.txt --out t", 1, "none.txt"),
        ("data tokenize a.txt --out t --tokenizer characters", 2, "source = \"text\""),
        ("data tokenize a.txt --out t --tokenizer bytes --vocab-size 300", 2, "--vocab-size"),
        ("data tokenize a.txt --out t --validation-split 1.5", 2, "between 0 and 1"),
        ("data tokenize a.txt --out t --tokenizer a.txt", 1, "is no tokenizer that can be read"),
        ("data tokenize a.txt --out t --tokenizer bytes --end-of-text <|end|>", 1, "has no token `<|end|>`"),
        ("data tokenize a.txt --out a.txt", 2, "a.txt"),
        ("data tokenize a.txt", 2, "--out"),
    ] {
        let err = place.fails(args, code);
        assert!(err.contains(part), "{args}: {err}");
        assert!(!place.path("t/train.bin").exists(), "{args}");
    }
    // A text without a token.
    let words = r#"{"model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1}, "unk_token": "[UNK]"}, "pre_tokenizer": {"type": "Whitespace"}}"#;
    place.write("words.json", words);
    place.write("blank.txt", " \n");
    place.write("before/train.bin", "kept as it is");
    let err = place.fails("data tokenize blank.txt --out before --tokenizer words.json --force", 1);
    assert!(err.contains("no tokens for `before/train.bin`") && err.contains("`blank.txt`"), "{err}");
    assert_eq!(place.read("before/train.bin"), "kept as it is");
    // An output that is an input.
    place.write("t/train.bin", "kept as it is");
    for force in ["", " --force"] {
        let err = place.fails(&format!("data tokenize t/train.bin --out t --tokenizer bytes{force}"), 2);
        assert!(err.contains("this command reads that file"), "{err}");
    }
    assert_eq!(fs::read_to_string(place.path("t/train.bin")).unwrap(), "kept as it is");
}

#[test]
fn files_of_an_earlier_run_are_replaced_if_that_is_asked_for() {
    let place = Place::new();
    place.write("a.txt", text());
    let files = || {
        let mut names: Vec<String> = fs::read_dir(place.path("t"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    place.ok("data tokenize a.txt --out t --vocab-size 300 --validation-split 0.1");
    assert_eq!(files(), ["tokenizer.json", "train.bin", "val.bin"]);
    let before = fs::read(place.path("t/train.bin")).unwrap();
    for (name, tokenizer) in [("tokenizer.json", "bpe"), ("train.bin", "bytes"), ("val.bin", "bytes")] {
        // Each of them alone is enough, also one that would not be written but removed.
        place.write(&format!("{name}.d/{name}"), "mine");
        let err = place.fails(&format!("data tokenize a.txt --out {name}.d --tokenizer {tokenizer}"), 2);
        assert!(err.contains(&format!("{name}` is there already")) && err.contains("`--force`"), "{err}");
        assert_eq!(fs::read_to_string(place.path(&format!("{name}.d/{name}"))).unwrap(), "mine");
    }
    // That is known before any text is read.
    let err = place.fails("data tokenize none.txt --out t", 2);
    assert!(err.contains("is there already"), "{err}");
    assert_eq!(fs::read(place.path("t/train.bin")).unwrap(), before);
    // Tokens that an earlier run has left do not stay beside those of another. A tokenizer does, which may be a model's.
    for made in ["by an earlier run", "by another program"] {
        let before = fs::read(place.path("t/tokenizer.json")).unwrap();
        let done = place.ok("data tokenize a.txt --out t --tokenizer bytes --force");
        assert_eq!(files(), ["tokenizer.json", "train.bin"], "{made}");
        assert_eq!(fs::read(place.path("t/tokenizer.json")).unwrap(), before, "{made}");
        assert!(done.err.contains("note: `t/tokenizer.json` stays as it is"), "{}", done.err);
        assert_eq!(done.err.contains("removed `t/val.bin` of an earlier run"), made == "by an earlier run");
        place.write("t/tokenizer.json", "{\"mine\": 1}");
    }
    // Alone it is no obstacle, for it is not touched.
    place.write("other/tokenizer.json", "mine");
    let done = place.ok("data tokenize a.txt --out other --tokenizer bytes");
    assert!(done.err.contains("note: `other/tokenizer.json` stays as it is"), "{}", done.err);
    assert_eq!(fs::read_to_string(place.path("other/tokenizer.json")).unwrap(), "mine");
    // The tokenizer that is asked for stays, and is no obstacle.
    place.ok("data tokenize a.txt --out t --vocab-size 300 --force");
    fs::remove_file(place.path("t/train.bin")).unwrap();
    let done = place.ok("data tokenize a.txt --out t --tokenizer t/tokenizer.json --json");
    assert!(!done.err.contains("stays as it is"), "{}", done.err);
    assert_eq!(done.json()["removed"], serde_json::json!([]));
    let json = place.ok("data tokenize a.txt --out t --tokenizer t/tokenizer.json --json --force").json();
    assert_eq!(
        (&json["removed"], files()),
        (&serde_json::json!([]), vec!["tokenizer.json".into(), "train.bin".into()])
    );
}

#[test]
fn a_table_that_is_read_as_a_text_is_noted() {
    let place = Place::new();
    place.write("a.csv", "id,story\n1,the cat sat on the mat\n2,a dog ran to it\n");
    let note = "note: `a.csv` is read as a text, with its separators: `--column` reads one of its columns";
    let done = place.ok("data tokenize a.csv --out t --tokenizer bytes --validation-split 0.5");
    assert_eq!(done.err.matches(note).count(), 1, "{}", done.err);
    let done = place.ok("data tokenize a.csv --out t --tokenizer bytes --column story --force");
    assert!(!done.err.contains("separators"), "{}", done.err);
}
