//! What the program says of a table before it is trained on, or asked about.

use super::support::Place;
use std::fmt::Write;

fn config(more: &str) -> String {
    format!(
        "device = \"cpu\"\nseed = 3\n[data]\nsource = \"csv\"\npath = \"t.csv\"\nbatch_size = 16\ntarget = \"y\"\n{more}\n[model]\n\
         layers = [{{ type = \"linear\", out_features = \"$classes\" }}]\n[loss]\ntype = \"mse\"\n[optimizer]\ntype = \"adam\"\n\
         lr = 0.02\n[train]\nepochs = 1\n"
    )
}

/// Sixty rows: `a` is a number but for one cell, `b` has commas before fractions, and `y` depends on `c`.
fn rows() -> String {
    let mut text = "a;b;c;y\n".to_owned();
    for i in 0..60 {
        let a = if i == 11 { "oops".to_owned() } else { (i % 7).to_string() };
        let _ = writeln!(text, "{a};{},5;{};{}", i % 5, i * 7 % 13, i * 7 % 13 + i % 3);
    }
    text
}

/// `check` and `data show` say what `train` says.
#[test]
fn a_table_is_judged_where_it_is_looked_at() {
    let place = Place::with(&config("validation_split = 0.25"));
    place.write("t.csv", rows());
    let odd =
        "`t.csv`: `a` is taken for texts: it has 1 cell of 60 that is no number, the first of them `oops` in line 13";
    let comma = "`b` is taken for texts: it has numbers with a comma before the fraction, as `0,5`, which `decimal = \"comma\"` in `[data]` reads";
    for command in ["check c.toml", "data show c.toml", "train c.toml --quiet --out r", "check c.toml --time"] {
        let said = place.ok(command).err;
        for part in [odd, comma] {
            assert_eq!(
                said.matches(&format!("note: {part}")).count()
                    + said.matches(&format!("note: `t.csv`: {part}")).count(),
                1,
                "{command}: {said}"
            );
        }
    }
    for command in ["check c.toml --json", "data show c.toml --json"] {
        let told = place.ok(command);
        let notes = told.json()["notes"].clone();
        assert!(notes.as_array().is_some_and(|notes| notes.len() == 2 && notes[0] == odd), "{notes}");
    }
    // What it says to do helps.
    let notes = place.ok("check c.toml --json --set data.decimal=comma").json()["notes"].clone();
    assert_eq!(notes, serde_json::json!([odd]));
    // A target of such numbers is no class.
    let said = place.fails("check c.toml --set data.target=b", 2);
    assert!(said.contains("the target `b` has numbers with a comma") && said.contains("decimal = "), "{said}");
}

/// The most columns that a table may have.
#[test]
fn a_hundred_thousand_columns_are_looked_at() {
    let place = Place::with(&config(""));
    let row = |cell: &dyn Fn(usize) -> String| (1..100_000).map(cell).collect::<Vec<_>>().join(",");
    let mut text = format!("{},y\n", row(&|at| format!("c{at}")));
    for i in 0..3 {
        let _ = writeln!(
            text,
            "{},{i}",
            row(&|at| (match at % 100 {
                0 => 7,
                part => part * (i + 1),
            })
            .to_string())
        );
    }
    place.write("t.csv", text);
    let told = place.ok("check c.toml --json").json();
    assert_eq!((&told["parameters"], &told["notes"]), (&100_000.into(), &serde_json::json!([])));
    assert_eq!(place.ok("data show c.toml --json").json()["features"], 99_999);
}
