//! A column of a table as tokens beside the numbers of the others.

use super::support::{Place, assert_same_runs};
use std::fmt::Write;
use std::fs;

/// Flats whose rent depends on their rooms, and on what a note says of them in which the order of words matters; some have no note.
fn flats(rows: usize) -> String {
    let mut text = String::from("id,rooms,note,rent\n");
    for i in 0..rows {
        let (rooms, quiet, bright) = (1 + i * 7 % 5, i * 5 % 3, i % 4);
        let word = |state: usize, name: &str| ["", &format!("not {name}"), name][state.min(2)].to_owned();
        let words = [word(quiet, "quiet"), "but".to_owned(), word(bright.min(2), "bright")];
        let note = if i % 13 == 5 { String::new() } else { words.join(" ").trim().to_owned() };
        let said = |what: &str| match (note.contains(&format!("not {what}")), note.contains(what)) {
            (true, _) => -1.0,
            (false, true) => 1.0,
            (false, false) => 0.0,
        };
        let rent = 100.0 * rooms as f64 + 80.0 * said("quiet") + 40.0 * said("bright");
        let _ = writeln!(text, "f{i},{rooms},{note},{rent}");
    }
    text
}

pub const NET: &str = "inputs = [\"inputs\", \"note\"]\nlayers = [\n\
                   { type = \"embedding\", num_embeddings = \"$vocabulary\", embedding_dim = 8, from = \"note\" },\n\
                   { type = \"lstm\", hidden_size = 16 },\n{ type = \"sequence_pool\", mode = \"mean\", name = \"words\" },\n\
                   { type = \"concat\", from = [\"inputs\", \"words\"], dim = 1 },\n{ type = \"linear\", out_features = 16 },\n\"relu\",\n\
                   { type = \"linear\", out_features = 1 },\n]";

fn config(note: &str, model: &str) -> String {
    format!(
        "device = \"cpu\"\nseed = 3\n[data]\nsource = \"csv\"\npath = \"flats.csv\"\nid = \"id\"\nbatch_size = 20\ntarget = \"rent\"\n\
         validation_split = 0.25\n[data.columns]\nnote = {note}\n[model]\n{model}\n[loss]\ntype = \"mse\"\n[optimizer]\ntype = \"adamw\"\n\
         lr = 0.02\n[train]\nepochs = 12\n"
    )
}

pub fn place(note: &str, model: &str) -> Place {
    let place = Place::with(&config(note, model));
    place.write("flats.csv", flats(200));
    place
}

pub const TOKENS: &str = "{ type = \"tokens\", max_length = 6, buckets = [3, 6] }";

#[test]
fn a_text_is_learnt_beside_numbers() {
    let place = place(TOKENS, NET);
    let shown = place.ok("data show c.toml");
    for part in [
        "150 rows to train on",
        "a sample is a vector of 1 number and the tokens of `note`",
        "tokens, at most 6: 5 words",
    ] {
        assert!(shown.out.contains(part), "{part}: {}", shown.out);
    }
    place.ok("train c.toml --quiet --out r");
    let rmse = |run: &str| place.ok(&format!("eval {run} --json")).json()["metrics"]["rmse"].as_f64().unwrap();
    let whole = rmse("r");
    assert!(whole < 25.0, "{whole}");
    // Without the text, what it says is an error of some 70.
    let numbers = "inputs = [\"inputs\"]\nlayers = [{ type = \"linear\", out_features = 16 }, \"relu\", { type = \"linear\", out_features = 1 }]";
    place.write("numbers.toml", config(TOKENS, numbers));
    place.ok("train numbers.toml --quiet --out n");
    assert!(rmse("n") > 40.0, "{}", rmse("n"));
    // So it is for a model that takes the text alone, which says nothing of the rooms.
    let text = NET.replace("\"inputs\", ", "").replace(", from = \"note\"", "");
    place
        .write("text.toml", config(TOKENS, &text.replace("{ type = \"concat\", from = [\"words\"], dim = 1 },\n", "")));
    place.ok("train text.toml --quiet --out t");
    assert!(rmse("t") > 100.0, "{}", rmse("t"));
    place.write("notes.csv", "note\nnot quiet\n");
    assert_eq!(place.ok("predict t notes.csv --format jsonl").out.lines().count(), 1);
    assert!(
        !place.ok("explain t").out.contains("rooms")
            && place.fails("explain t --column rooms", 2).contains("it takes `note`")
    );

    // `explain` shuffles texts as a whole.
    let explained = place.ok("explain r --json").json();
    let of = |name: &str| {
        let all = explained["columns"].as_array().unwrap();
        all.iter().find(|one| one["column"] == name).unwrap()["loss_increase"].as_f64().unwrap()
    };
    assert!(of("rooms") > of("note") && of("note") > 30.0, "{explained}");
    let refused = place.fails("explain r --column note", 2);
    assert!(refused.contains("`note` has texts"), "{refused}");
    assert!(place.ok("explain r --column rooms").out.contains("rooms"));

    // All that a prediction needs is the checkpoint and the columns, in any order and form.
    // What is held out has the same answer from `eval`, in batches of texts of about one length, and from `predict`.
    place.ok("eval r --predictions all.csv");
    let stdout = place.ok("predict r flats.csv --format csv").out;
    let answers: Vec<f64> =
        stdout.lines().skip(1).map(|line| line.rsplit(',').next().unwrap().parse().unwrap()).collect();
    let all = fs::read_to_string(place.path("all.csv")).unwrap();
    assert_eq!(all.lines().count(), 51);
    let at = |name: &str| all.lines().next().unwrap().split(',').position(|column| column == name).unwrap();
    for line in all.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let (row, said) = (cells[at("id")].trim_start_matches('f').parse::<usize>().unwrap(), cells[at("prediction")]);
        assert!((answers[row] - said.parse::<f64>().unwrap()).abs() < 1e-2, "{line}: {}", answers[row]);
    }
    let rmse = explained["value"].as_f64().unwrap();
    assert!((rmse - whole).abs() < 1e-3 * whole, "{explained}");
    fs::remove_file(place.path("flats.csv")).unwrap();
    place.write("new.csv", "note;rooms;id\nquiet but bright;3;a\nnot quiet but bright;3;b\n;3;c\nnot quiet but not bright at all or ever;1;d\n");
    let done = place.ok("predict r new.csv --format csv");
    let value = |row: usize| done.out.lines().nth(row).unwrap().rsplit(',').next().unwrap().parse::<f64>().unwrap();
    for (row, rent) in [(1, 420.0), (2, 260.0), (3, 300.0), (4, -20.0)] {
        assert!((value(row) - rent).abs() < 60.0, "{row}: {}", done.out);
    }
    let lines = "{\"id\": \"a\", \"note\": \"quiet but bright\", \"rooms\": 3}\n{\"id\": \"c\", \"note\": null, \"rooms\": 3}\n";
    place.write("new.jsonl", lines);
    let json = place.ok("predict r new.jsonl --json").json();
    let number = |at: usize| json[at]["values"][0].as_f64().unwrap();
    assert!((number(0) - value(1)).abs() < 1e-3 && (number(1) - value(3)).abs() < 1e-3, "{json} {}", done.out);
    let error = place.fails("predict r all.csv", 1);
    assert!(error.contains("`rooms`"), "{error}");
}

#[test]
fn the_same_bits_in_pieces_and_by_others() {
    let place = place(TOKENS, NET);
    place.write("c.toml", config(TOKENS, NET) + "clip_grad_norm = 1.0\n[distributed]\nshards = 2\n");
    let four = "--quiet --set train.epochs=4";
    place.ok(&format!("train c.toml {four} --out whole"));
    place.ok("train c.toml --quiet --out parts --set train.epochs=2");
    place.ok("train --resume parts --quiet --set train.epochs=4");
    assert_same_runs((&place, "whole"), (&place, "parts"));
    place.ok(&format!("train c.toml {four} --out one --set data.workers=0 --threads 1"));
    assert_same_runs((&place, "whole"), (&place, "one"));
    place.ok(&format!("launch --ranks 2 -- train c.toml {four} --out two"));
    assert_same_runs((&place, "whole"), (&place, "two"));
    place.ok(&format!("train c.toml {four} --out aside --set data.cache=disk --set data.cache_dir=kept"));
    assert_same_runs((&place, "whole"), (&place, "aside"));
}

/// A number is learnt from a text alone, whose tokens are then the one input.
#[test]
fn a_text_may_be_all_that_there_is() {
    let net = NET.replace("inputs = [\"inputs\", \"note\"]\n", "").replace(", from = \"note\"", "");
    let net = net.replace("{ type = \"concat\", from = [\"inputs\", \"words\"], dim = 1 },\n", "");
    let place = place(TOKENS, &net);
    let text = fs::read_to_string(place.path("c.toml")).unwrap();
    place.write("c.toml", text.replace("id = \"id\"", "drop = [\"id\", \"rooms\"]"));
    assert!(place.ok("data show c.toml").out.contains("a sample is the tokens of `note`"));
    place.ok("train c.toml --quiet --out r --set train.epochs=2");
    place.write("new.csv", "note\nquiet\n");
    assert_eq!(place.ok("predict r new.csv --format jsonl").out.lines().count(), 1);
    assert!(place.ok("explain r").out.contains("note"));
}

/// Each fold has words of its own, and they answer together.
#[test]
fn folds_have_tokens_of_their_own() {
    let place = place(TOKENS, NET);
    let text = fs::read_to_string(place.path("c.toml")).unwrap().replace("validation_split = 0.25", "folds = 3");
    place.write("c.toml", text);
    // A word of a single row is known to the folds that train on it.
    place.write("flats.csv", flats(60).replacen("f1,", "f1x,", 1).replacen("not quiet", "not ever quiet", 1));
    place.ok("train c.toml --quiet --out r --set train.epochs=2");
    let words = |fold: usize| {
        let meta = place.checkpoint(&format!("r/fold-{fold}/last.safetensors")).meta;
        meta.extra["sample"]["fitted"]["tokens"]["tokenizer"]["words"].as_array().unwrap().len()
    };
    let all = [1, 2, 3].map(words);
    assert_eq!(all.iter().sum::<usize>(), 3 * all.iter().min().unwrap() + 2, "{all:?}");
    place.write("new.csv", "note,rooms\nquiet,2\n,3\n");
    let one = |run: &str, row: usize| {
        let done = place.ok(&format!("predict {run} new.csv --format jsonl"));
        let line: serde_json::Value = serde_json::from_str(done.out.lines().nth(row).unwrap()).unwrap();
        line["values"][0].as_f64().unwrap()
    };
    for row in [0, 1] {
        let mean = (1..=3).map(|fold| one(&format!("r/fold-{fold}"), row)).sum::<f64>() / 3.0;
        assert!((one("r", row) - mean).abs() < 1e-3 * mean.abs(), "{row}");
    }
}

#[test]
fn mistakes_in_columns_of_texts_are_errors() {
    let place = place(TOKENS, NET);
    let unnamed = "layers = [{ type = \"linear\", out_features = 1 }]";
    for (note, model, parts) in [
        (
            TOKENS,
            unnamed,
            ["2 inputs, \"inputs\" and \"note\"", "write `inputs = [\"inputs\", \"note\"]` in `[model]`"],
        ),
        (TOKENS, &NET.replace("\"note\"", "\"notes\""), ["the samples have no field `notes`", "did you mean `note`?"]),
        (
            TOKENS,
            &NET.replace("inputs = [\"inputs\", \"note\"]", ""),
            ["there is no layer `inputs`", "`inputs = [\"inputs\"]` in `[model]`"],
        ),
        (
            "{ type = \"tokens\", tokenizer = \"bytes\", vocab_size = 9 }",
            NET,
            ["vocab_size", "says itself how many tokens"],
        ),
        ("{ type = \"tokens\", max_length = 6, buckets = [3, 5] }", NET, ["buckets", "max_length"]),
        (
            "{ type = \"tokens\", tokenizer = \"nowhere.json\" }",
            NET,
            ["cannot read `nowhere.json`", "the column `note`"],
        ),
        ("\"category\"", NET, ["no column of the table becomes tokens", "`type = \"tokens\"` in `[data.columns]`"]),
        ("\"tokens\"\nid = \"tokens\"", NET, ["tokens of `id`, `note`", "`type = \"text\"`"]),
    ] {
        let text = config(note, model);
        place.write("c.toml", if note.contains("\nid") { text.replace("id = \"id\"\n", "") } else { text });
        let said = place.fails("check c.toml", if note.contains("nowhere.json") { 1 } else { 2 });
        for part in parts {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    // A field of samples has that name already.
    place.write("flats.csv", flats(60).replacen("note", "lengths", 1));
    place.write("c.toml", config(TOKENS, NET).replace("note", "lengths"));
    let said = place.fails("check c.toml", 2);
    assert!(said.contains("samples have something else of the name `lengths`"), "{said}");
    // A pattern is for texts alone; a column that is named becomes tokens whatever its cells are.
    place.write("flats.csv", flats(60));
    place.write("c.toml", config(TOKENS, NET).replace("note = {", "\"*\" = {"));
    place.ok("check c.toml");
    // Characters that no row of training has.
    let characters = config("{ type = \"tokens\", tokenizer = \"characters\", max_length = 20 }", NET);
    place.write("c.toml", characters);
    place.ok("train c.toml --quiet --out r --set train.epochs=1");
    place.write("new.csv", "note,rooms\nquiet,2\nruhig – sehr,3\n");
    let said = place.fails("predict r new.csv", 1);
    assert!(said.contains("line 3, in the text of `note`") && said.contains("U+2013"), "{said}");
    let said = place.fails("export r m.onnx --preprocess", 2);
    assert!(said.contains("becomes tokens"), "{said}");
    place.ok("export r m.onnx");
    // How cells become numbers is a part of the checkpoint.
    let said = place.fails("eval r --set data.columns.note.max_length=9", 2);
    assert!(said.contains("cannot be another one than in training"), "{said}");
}
