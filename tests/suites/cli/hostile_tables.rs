//! Tables that hurt: numbers without an end, columns and targets without anything, lines without an end.
#![cfg(unix)]

use super::hostile_files::run_within;
use super::support::Place;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;

fn place(loss: &str, more: &str) -> Place {
    Place::with(&format!(
        "device = \"cpu\"\n[data]\nsource = \"csv\"\npath = \"t.csv\"\ntarget = \"y\"\n{more}\n\
         [model]\nlayers = [{{ type = \"linear\", out_features = \"$classes\" }}]\n[loss]\ntype = \"{loss}\"\n\
         [optimizer]\ntype = \"sgd\"\nlr = 0.01\n[train]\nepochs = 1\n"
    ))
}

/// Sixty rows; `cell` says what the second column has in each.
fn table(cell: impl Fn(usize) -> String) -> String {
    let mut text = "x,strange,part,y\n".to_owned();
    for i in 0..60 {
        let _ = writeln!(text, "{},{},{},{}", i % 7, cell(i), ["train", "val"][usize::from(i % 5 == 4)], i % 11);
    }
    text
}

/// What double precision does not hold is no number, and what single precision does not hold no input.
#[test]
fn numbers_that_no_input_can_be_have_their_line() {
    let place = place("mse", "");
    for number in ["1e999", "-1e999", "1e39"] {
        place.write("t.csv", table(|i| if i == 30 { number.into() } else { i.to_string() }));
        let notes = place.ok("check c.toml --json").json()["notes"].to_string();
        assert!(
            notes.contains(&format!("1 cell of 60 that is no number, the first of them `{number}` in line 32")),
            "{notes}"
        );
        let message = place.fails("check c.toml --set data.columns.strange=number", 2);
        assert!(message.contains(&format!("`{number}` in line 32")), "{message}");
        let report = place.ok("check c.toml --json --set data.columns.strange=number --set data.on_error=skip").json();
        assert!(report["notes"].to_string().contains("1 of 60 rows cannot be read"), "{report}");
        // In the target, too.
        place.write("t.csv", table(|i| i.to_string()).replace("\n2,30,train,8\n", &format!("\n2,30,train,{number}\n")));
        let message = place.fails("check c.toml", 2);
        assert!(message.contains(&format!("`{number}`")) && message.contains("line 32"), "{message}");
    }
}

/// A column of nothing is left out. One of which only rows held out have something is encoded by nothing, in every way, and its samples are numbers.
#[test]
fn columns_of_nothing_are_no_harm() {
    let place = place("mse", "split_column = \"part\"");
    place.write("t.csv", table(|i| ["", "NA", "null"][i % 3].into()));
    let stderr = place.ok("train c.toml --quiet --out r").err;
    assert!(stderr.contains("columns that are left out: `strange`"), "{stderr}");
    place.fails("check c.toml --set data.drop=[\"x\"]", 2);
    place.write("t.csv", table(|i| if i % 5 == 4 { i.to_string() } else { String::new() }));
    for scaling in ["standardize", "quantile", "log", "piecewise_linear", "none"] {
        place.ok(&format!(
            "train c.toml --quiet --out {scaling} --set data.columns.strange={{type=\"number\",scaling=\"{scaling}\"}}"
        ));
        let figures = place.ok(&format!("eval {scaling} --json")).json();
        assert!(figures["metrics"]["loss"].as_f64().is_some_and(f64::is_finite), "{scaling}: {figures}");
    }
    place
        .write("t.csv", table(|i| if i % 5 == 4 { ["2026-11-26", "2025-01-01"][i % 2].into() } else { String::new() }));
    place.ok("train c.toml --quiet --out dates");
    assert!(place.ok("eval dates --json").json()["metrics"]["loss"].is_number());
}

#[test]
fn targets_that_say_nothing_are_refused() {
    let place = place("cross_entropy", "");
    let with = |target: &dyn Fn(usize) -> &'static str| {
        let rows: String = (0..60).map(|i| format!("{},{}\n", i % 7, target(i))).collect();
        place.write("t.csv", format!("x,y\n{rows}"));
    };
    with(&|i| ["", "NA"][i % 2]);
    let message = place.fails("train c.toml", 2);
    assert!(message.contains("the target `y` is missing in every row"), "{message}");
    with(&|_| "yes");
    let message = place.fails("train c.toml", 2);
    assert!(message.contains("the target `y` is `yes` in every row: there is nothing to learn"), "{message}");
    with(&|i| if i == 7 { "" } else { "yes" });
    assert!(place.fails("train c.toml", 2).contains("there is nothing to learn"));
    // One class is in the rows that are held out alone.
    let rows: String =
        (0..60).map(|i| format!("{},{},{}\n", i % 7, i, if i >= 55 { "late" } else { ["a", "b"][i % 2] })).collect();
    place.write("t.csv", format!("x,day,y\n{rows}"));
    let message = place.fails("train c.toml --set data.time_column=day --set data.validation_split=0.1", 2);
    assert!(message.contains("the class `late` of `y` has no row in the training part"), "{message}");
}

/// A hundred megabytes without the end of a line, plain, within a quote, and as JSON: an error that names the line, in little memory.
#[test]
fn a_line_without_an_end_is_refused_in_little_memory() {
    let place = place("mse", "");
    for (name, begin, piece, part) in [
        ("plain.csv", "x,y\n1,2\n", b'7', "line 3 has more than 16777216 bytes"),
        ("commas.csv", "x,y\n1,2\n", b',', "line 3 has more than 16777216 bytes"),
        ("quoted.csv", "x,y\n1,2\n3,\"", b'\n', "line 3, column 3: a quote opens here"),
        ("objects.jsonl", "{\"x\":1,\"y\":2}\n{\"x\":\"", b'7', "line 2 has more than 16777216 bytes"),
    ] {
        let mut file = File::create(place.path(name)).unwrap();
        file.write_all(begin.as_bytes()).unwrap();
        (0..100).for_each(|_| file.write_all(&vec![piece; 1 << 20]).unwrap());
        drop(file);
        let done = run_within(&place, &format!("check c.toml --set data.path={name}"), 1 << 30);
        assert_eq!(done.code, Some(2), "{name}: {done:?}");
        assert!(done.err.contains(part) && done.err.contains(name), "{name}: {}", done.err);
        std::fs::remove_file(place.path(name)).unwrap();
    }
}

/// Lines may end as on old machines, and each file in a way of its own; the rows are the same.
#[test]
fn ends_of_lines_are_of_three_kinds() {
    let place = place("mse", "");
    let text = table(|i| format!("\"{i} and\n more\""));
    place.write("t.csv", &text);
    let shown = |file: &str| {
        let mut columns =
            place.ok(&format!("data show c.toml --json --set data.path={file}")).json()["columns"].clone();
        columns.as_array_mut().unwrap().iter_mut().for_each(|column| column["examples"] = 0.into());
        columns
    };
    let expected = shown("t.csv");
    for (name, end) in [("mac.csv", "\r"), ("dos.csv", "\r\n")] {
        place.write(name, text.replace('\n', end));
        assert_eq!(shown(name), expected, "{name}");
        let bad = text.replace("\n2,", "\n2,2,").replace('\n', end);
        place.write(name, bad);
        let message = place.fails(&format!("check c.toml --set data.path={name}"), 2);
        // Two rows of two lines each, and the names, stand before it.
        assert!(message.contains("line 6 has 5 cells"), "{message}");
    }
}
