//! Parquet files wherever a table is read or written (`scripts/golden/parquet_files.py`).

use super::support::{Place, assert_same_runs, repository};
use std::fs;
use std::process::Stdio;

fn config(more: &str) -> String {
    format!(
        "device = \"cpu\"\nseed = 3\n[data]\nsource = \"parquet\"\npath = \"houses.parquet\"\nbatch_size = 16\n{more}\n[model]\n\
         layers = [{{ type = \"linear\", out_features = 8 }}, \"relu\", {{ type = \"linear\", out_features = \"$classes\" }}]\n\
         [optimizer]\ntype = \"adam\"\nlr = 0.02\n[train]\nepochs = 2\n"
    )
}

const PRICE: &str = "target = \"price\"\nvalidation_split = 0.25\n[loss]\ntype = \"mse\"";

/// A place with the files of the script; `houses.parquet` is packed by Zstandard, in several groups of rows.
fn place(more: &str) -> Place {
    let place = Place::with(&config(more));
    for name in ["zstd", "pandas", "polars", "part-1", "part-2", "nested", "none-at-all", "reviews"] {
        copy(&place, &format!("{name}.parquet"), &format!("{name}.parquet"));
    }
    copy(&place, "zstd.parquet", "houses.parquet");
    copy(&place, "houses.csv", "houses.csv");
    place
}

fn copy(place: &Place, from: &str, to: &str) {
    place.write(to, fs::read(repository("tests/golden/parquet").join(from)).unwrap());
}

/// What stands on standard output for rows on standard input.
fn by_input(place: &Place, words: &str, input: &str) -> (bool, String, String) {
    let mut command = place.command(words);
    let output = command.stdin(fs::File::open(place.path(input)).unwrap()).stdout(Stdio::piped()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

/// What the columns are comes from the file, and all else is as for the same rows in a text: samples, what is fitted, every bit of training.
#[test]
fn the_same_rows_train_the_same_model() {
    let place = place(PRICE);
    let shown = place.ok("data show c.toml");
    for part in
        ["225 rows to train on, 75 to validate on", "a category (5 numbers", "a date (5 numbers)", "true or false"]
    {
        assert!(shown.out.contains(part), "{part}: {}", shown.out);
    }
    let columns = place.ok("data show c.toml --json").json();
    assert_eq!(columns["features"], 14, "{columns}");
    place.ok("check c.toml");
    place.ok("train c.toml --quiet --out r");
    place.ok("train c.toml --quiet --out csv --set data.source=csv --set data.path=houses.csv");
    assert_same_runs((&place, "r"), (&place, "csv"));
    let fitted = |run: &str| place.checkpoint(&format!("{run}/best.safetensors")).meta.extra["sample"].clone();
    assert!(fitted("r")["fitted"]["columns"].is_array(), "{}", fitted("r"));
    assert_eq!(fitted("r"), fitted("csv"));
    for (run, path) in [("pandas", "pandas.parquet"), ("polars", "polars.parquet"), ("parts", "part-?.parquet")] {
        place.ok(&format!("train c.toml --quiet --out {run} --set data.path={path}"));
        assert_same_runs((&place, "r"), (&place, run));
    }
    // Rows of several files have the names of those.
    place.ok("eval r --predictions said.csv --set data.path=part-?.parquet");
    let said = place.read("said.csv");
    assert!(said.starts_with("sample,file,line,target,prediction,loss\n"), "{said}");
    assert!(said.contains("part-1.parquet,") && said.contains("part-2.parquet,"), "{said}");
    // By either name of the source.
    place.ok("train c.toml --quiet --out other --set data.source=csv");
    assert_same_runs((&place, "r"), (&place, "other"));
    let figures = |words: &str| place.ok(&format!("eval r --json {words}")).json()["metrics"].clone();
    assert_eq!(figures(""), figures("--set data.path=houses.csv"));
    let validated = "--unset data.validation_split --set data.val_path=";
    assert_eq!(figures(&format!("{validated}houses.csv")), figures(&format!("{validated}part-{{1,2}}.parquet")));
    // A run goes on with the other file.
    place.ok("train c.toml --quiet --out whole --set train.epochs=3");
    place.ok("train c.toml --quiet --out r --resume --set train.epochs=3 --set data.path=houses.csv");
    assert_same_runs((&place, "r"), (&place, "whole"));
    let explained = |path: &str| place.ok(&format!("explain r --json --set data.path={path}")).out;
    assert_eq!(explained("houses.parquet"), explained("houses.csv"));
}

#[test]
fn predictions_come_and_go_as_parquet() {
    let place = place("target = \"price\"\nid = \"sold\"\nvalidation_split = 0.25\n[loss]\ntype = \"mse\"");
    place.ok("train c.toml --quiet --out r");
    let table = place.ok("predict r houses.csv --format csv").out;
    assert_eq!(table.lines().count(), 301);
    let same = |out: &str, file: &str| out.replace(file, "houses.csv");
    assert_eq!(same(&place.ok("predict r houses.parquet --format csv").out, "houses.parquet"), table);
    place.ok("predict r houses.csv --out answers.parquet");
    // The answers are a table themselves, with the types that they have.
    let shown = place
        .ok("data show c.toml --json --set data.path=answers.parquet --set data.target=value --set data.id=file")
        .json();
    let columns: Vec<(&str, &str)> = shown["columns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| (column["name"].as_str().unwrap(), column["cells"].as_str().unwrap()))
        .collect();
    assert_eq!(columns, [("file", "text"), ("sample", "number"), ("sold", "text"), ("value", "number")]);
    // Texts are texts, unless `columns` says what they are.
    let date = "data show c.toml --set data.path=answers.parquet --set data.target=value --set data.id=file --set data.columns.sold=date";
    assert!(place.ok(date).out.contains("a date (5 numbers)"), "{}", place.ok(date).out);
    let number = place.fails(&date.replace("=date", "=number"), 2);
    assert!(number.contains("the column `sold` has text cells"), "{number}");
    assert!(place.fails("predict r houses.csv --format parquet", 2).contains("--out"));
    assert!(place.fails("predict r houses.csv --out answers.feather", 2).contains(".parquet"));
    place.ok("predict r houses.csv --format parquet --out answers");
    assert_eq!(fs::read(place.path("answers")).unwrap(), fs::read(place.path("answers.parquet")).unwrap());
    // Rows on standard input, as CSV and as JSON Lines.
    let (ok, out, err) = by_input(&place, "predict r - --format csv", "houses.csv");
    assert!(ok, "{err}");
    assert_eq!(out.replace("\n-,", "\nhouses.csv,"), table);
    place.write(
        "rows.jsonl",
        "{\"rooms\": 3, \"area\": null, \"town\": \"sea\", \"garden\": true, \"sold\": \"2021-01-05\"}\n",
    );
    let from_file = place.ok("predict r rows.jsonl --format csv").out;
    let (ok, out, err) = by_input(&place, "predict r - --format csv", "rows.jsonl");
    assert!(ok && out.replace("\n-,", "\nrows.jsonl,") == from_file, "{out} {err}");
    let (ok, _, err) = by_input(&place, "predict r -", "houses.parquet");
    assert!(!ok && err.contains("standard input is Parquet"), "{err}");
}

/// Parquet has times with a zone in UTC, and says nothing of the clock by which they were written.
#[test]
fn times_in_utc_are_named() {
    const UTC: &str = "target = \"double\"\ncolumns = { utc = \"date\", \"*\" = \"ignore\" }\n[loss]\ntype = \"mse\"";
    let place = place(UTC);
    copy(&place, "types.parquet", "houses.parquet");
    let said = place.ok("train c.toml --out r").err;
    assert!(said.contains("note: `houses.parquet`: the column `utc` is in UTC"), "{said}");
    let shown = place.ok("predict r houses.parquet --keep-columns --format csv");
    assert!(shown.err.contains("warning: the column `utc` is in UTC"), "{}", shown.err);
    assert!(shown.out.contains(",2026-11-26 17:30:05.25+00:00,"), "{}", shown.out);
    place.write("t.csv", "utc,double\n2026-11-26 17:30:05+01:00,1\n2026-11-27 17:30:05+01:00,2\n");
    let said = place.ok("check c.toml --set data.path=t.csv --set data.source=csv").err;
    assert!(said.contains("the column `utc` has dates with a time zone, as `2026-11-26 17:30:05+01:00`"), "{said}");
    // The same times without their zone.
    place.write("c.toml", config(&UTC.replace("utc", "us")));
    let said = place.ok("check c.toml").err;
    assert!(!said.contains("UTC"), "{said}");
}

#[test]
fn classes_come_out_as_parquet_too() {
    let place =
        place("target = \"town\"\ndrop = [\"sold\"]\nvalidation_split = 0.25\n[loss]\ntype = \"cross_entropy\"");
    place.ok("train c.toml --quiet --out r");
    place.ok("predict r houses.parquet --top 2 --out answers.parquet");
    let shown = place
        .ok("data show c.toml --json --unset data.drop --set data.path=answers.parquet --set data.target=class")
        .json();
    let names: Vec<&str> =
        shown["columns"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["file", "sample", "class", "probability", "class_2", "probability_2"]);
}

#[test]
fn folds_and_divisions_are_those_of_the_text() {
    let place = place("target = \"price\"\nfolds = 2\ngroup_column = \"sold\"\n[loss]\ntype = \"mse\"");
    place.ok("train c.toml --quiet --out r");
    place.ok("train c.toml --quiet --out csv --set data.path=houses.csv");
    for fold in ["fold-1", "fold-2"] {
        assert_same_runs((&place, &format!("r/{fold}")), (&place, &format!("csv/{fold}")));
    }
    let predicted = |file: &str| place.ok(&format!("predict r {file} --format csv")).out.replace(file, "x");
    assert_eq!(predicted("houses.parquet"), predicted("houses.csv"));
    let (ok, out, err) = by_input(&place, "predict r - --format csv", "houses.csv");
    assert!(ok && out.replace("\n-,", "\nx,") == predicted("houses.csv"), "{err}");
    let time = "--unset data.folds --unset data.group_column --set data.time_column=sold --set data.validation_split=0.2 --set train.epochs=1";
    place.ok(&format!("train c.toml --quiet --out t1 {time}"));
    place.ok(&format!("train c.toml --quiet --out t2 {time} --set data.path=houses.csv"));
    assert_same_runs((&place, "t1"), (&place, "t2"));
}

#[test]
fn mistakes_about_a_parquet_file_name_file_and_column() {
    let place = place(PRICE);
    let fault = |set: &str| place.fails(&format!("check c.toml {set}"), 2);
    let nested = "--set data.path=nested.parquet --set data.target=y";
    let text = fault(nested);
    assert!(
        text.contains("nested.parquet")
            && text.contains("the column `tags` has lists or structs, which are no cells of a table"),
        "{text}"
    );
    assert!(text.contains("`drop = [\"tags\"]`"), "{text}");
    place.ok(&format!(
        "check c.toml {nested} --set data.drop=[\"tags\",\"place\",\"raw\"] --unset data.validation_split"
    ));
    let text = fault(&format!("{nested} --set data.drop=[\"tags\",\"place\",\"raw\"] --set data.id=raw"));
    assert!(text.contains("the column `raw` has bytes"), "{text}");
    let text = fault("--set data.path=none-at-all.parquet");
    assert!(text.contains("none-at-all.parquet` has no rows"), "{text}");
    let text = fault("--set data.path=\"{houses,nested}.parquet\"");
    assert!(text.contains("nested.parquet` has a column `x`, which `"), "{text}");
    let whole = fs::read(place.path("zstd.parquet")).unwrap();
    place.write("cut.parquet", &whole[..whole.len() / 2]);
    let text = fault("--set data.path=cut.parquet");
    assert!(text.contains("cut.parquet` is no Parquet file that can be read"), "{text}");
    // A text that names a part of no kind has its row.
    let text = fault("--unset data.validation_split --set data.split_column=town");
    assert!(text.contains("row 1: the column `town` has"), "{text}");
    let text = fault("--set data.columns.town=number");
    assert!(text.contains("the column `town` has text cells"), "{text}");
}

#[test]
fn parquet_is_enough_to_begin_with() {
    let place = place(PRICE);
    let written = place.ok("init houses.parquet --target price --out h.toml");
    assert!(written.err.contains("h.toml") || written.out.contains("h.toml"), "{written:?}");
    let text = place.read("h.toml");
    for part in ["source = \"parquet\"", "NEW.parquet", "target = \"price\""] {
        assert!(text.contains(part), "{part}: {text}");
    }
    place.ok("train h.toml --quiet --out h --set train.epochs=1 --device cpu");
    place.ok("predict h houses.parquet");
    assert!(place.fails("init houses.parquet", 2).contains("`--target COLUMN`"));
    // Texts with classes.
    place.ok("init reviews.parquet --target stars --out t.toml");
    assert!(place.read("t.toml").contains("source = \"text_classes\""), "{}", place.read("t.toml"));
    place.ok("train t.toml --quiet --out t --set train.epochs=1 --device cpu");
    assert_eq!(place.ok("predict t reviews.parquet --format csv").out.lines().count(), 33);
}

#[test]
fn a_file_is_a_part_of_a_table_once() {
    let place = place(PRICE);
    let message = place.fails("check c.toml --set data.path=\"{part-1,part-1}.parquet\"", 2);
    assert!(message.contains("stands for the file `part-1.parquet` twice"), "{message}");
}
