//! Language models of a column of a table: each row is a document.

use super::support::{Place, assert_same_runs};
use super::text::language_model;
use serde_json::json;
use std::fs;

/// Documents of several lengths, in each of which every letter determines the next one.
fn documents(count: usize) -> Vec<String> {
    let alphabet = "abcdefghijklmnopqrstuvwxyz".repeat(2);
    (0..count).map(|n| alphabet[n * 7 % 26..][..3 + n * 11 % 23].to_owned()).collect()
}

/// A place with such documents as files of a folder and as a table, and a configuration of each.
fn place() -> Place {
    let place = Place::new();
    fs::create_dir(place.path("files")).unwrap();
    let mut rows = String::from("{\"stars\": 3}\n");
    for (number, text) in documents(60).iter().enumerate() {
        place.write(&format!("files/{number:03}.txt"), text);
        rows += &format!("{}\n", json!({ "stars": number % 5, "text": text }));
    }
    place.write("rows.jsonl", rows);
    let config = language_model("tokenizer = \"bytes\"\n").replace("steps = 150\neval_every_steps = 50", "epochs = 3");
    place.write("files.toml", config.replace("input.txt", "files"));
    place.write("c.toml", config.replace("\"input.txt\"", "\"rows.jsonl\"\ncolumn = \"text\""));
    place
}

#[test]
fn a_model_of_a_column_is_that_of_files() {
    let place = place();
    for (name, sets) in
        [("packed", ""), ("apart", "--set data.packed=false --set data.end_token=0 --set data.buckets=[8,16]")]
    {
        place.ok(&format!("train files.toml --out files-{name} {sets}"));
        let stderr = place.ok(&format!("train c.toml --out rows-{name} {sets}")).err;
        assert_same_runs((&place, &format!("files-{name}")), (&place, &format!("rows-{name}")));
        assert_eq!(stderr.contains("nothing stands between two rows"), name == "packed", "{stderr}");
        for part in ["`rows.jsonl`, column `text`: 60 rows, ", "`rows.jsonl`: 1 row without a text is left out"] {
            assert!(stderr.contains(part), "{part}: {stderr}");
        }
        // A run that is stopped goes on with the same bits, by any number of threads.
        place.ok(&format!("train c.toml --out part-{name} {sets} --set train.max_steps=7 --threads 1"));
        place.ok(&format!("train --resume part-{name} --set data.workers=3 --set train.max_steps=1000"));
        assert_same_runs((&place, &format!("rows-{name}")), (&place, &format!("part-{name}")));
        let evaluated = |config: &str| place.ok(&format!("eval rows-{name} --json {config}")).json()["metrics"].clone();
        let of_files = "--unset data.column --set data.path=files";
        assert_eq!(evaluated(of_files), evaluated(""));
        assert_eq!(evaluated("--unset data.column"), evaluated(""), "the only column of texts");
        place.ok(&format!("generate rows-{name} --prompt abc --max-tokens 4"));
    }
    // Files of tokens of the column are the same tokens.
    place.ok("data tokenize rows.jsonl --column text --out named --tokenizer bytes");
    place.ok("data tokenize rows.jsonl --out only --tokenizer bytes");
    let [named, only] = ["named", "only"].map(|folder| fs::read(place.path(&format!("{folder}/train.bin"))).unwrap());
    assert_eq!(named, only);
    let tokens: Vec<u8> = documents(60).concat().bytes().flat_map(|byte| [byte, 0]).collect();
    assert_eq!(named, tokens);
}

#[test]
fn mistakes_in_columns_are_errors_with_their_place() {
    let place = place();
    place.write("two.jsonl", "{\"title\": \"a\", \"text\": \"abcdefgh\"}\n");
    place.write("text.txt", "abcdefgh".repeat(90));
    let has = |sets: &str, parts: &[&str]| {
        let message = place.fails(&format!("check c.toml {sets}"), 2);
        for part in parts {
            assert!(message.contains(part), "{sets}: {part} is not in {message}");
        }
    };
    has(
        "--set data.column=txt",
        &["`column` names a column `txt`", "did you mean `text`?", "Its columns are `stars`, `text`"],
    );
    has("--set data.path=two.jsonl --unset data.column", &["it has several columns of texts, `title`, `text`"]);
    has("--set data.path=text.txt", &["is of a table (.csv", "`path` is the text `text.txt`: leave `column` out"]);
    has("--set data.val_path=text.txt --unset data.validation_split", &["`val_path` is the text `text.txt`"]);
    has("--set data.path=files", &["`files`: it is a folder, and `column` is of tables"]);
    has("--set data.column=3", &["column"]);
    // In a file the place is that of the key.
    place.write("wrong.toml", place.read("c.toml").replace("column = \"text\"", "column = \"txt\""));
    let message = place.fails("check wrong.toml", 2);
    assert!(message.contains("column = \"txt\""), "{message}");
    let message = place.fails("data tokenize two.jsonl --out t", 1);
    assert!(message.contains("`title`, `text`: `--column` says which is read"), "{message}");
    // Without `--column` tables are no texts beside others.
    let message = place.fails("data tokenize two.jsonl text.txt --out t", 1);
    assert!(message.contains("`two.jsonl` is a table, and other files are none: `--column NAME`"), "{message}");
}
