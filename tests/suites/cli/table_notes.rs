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
    let comma = "`b` is taken for texts: it has numbers with a comma before the fraction, as `0,5` in line 2, which `decimal = \"comma\"` in `[data]` reads";
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
        let done = place.ok(command);
        let notes = done.json()["notes"].clone();
        assert!(notes.as_array().is_some_and(|notes| notes.len() == 2 && notes[0] == odd), "{notes}");
    }
    // Both show the columns, and what becomes of them.
    let shown = |command: &str| place.ok(&format!("{command} c.toml --json")).json()["columns"].clone();
    assert!(shown("check").as_array().is_some_and(|columns| columns.len() == 4));
    assert_eq!(shown("check"), shown("data show"));
    let line = |command: &str| {
        let stdout = place.ok(&format!("{command} c.toml")).out;
        stdout.lines().find(|line| line.starts_with("c ")).unwrap().to_owned()
    };
    assert!(line("check").contains("number") && line("check") == line("data show"), "{}", line("check"));
    // What it says to do helps.
    let notes = place.ok("check c.toml --json --set data.decimal=comma").json()["notes"].clone();
    assert_eq!(notes, serde_json::json!([odd]));
    // A target of such numbers is no class.
    let said = place.fails("check c.toml --set data.target=b", 2);
    assert!(said.contains("the target `b` has numbers with a comma") && said.contains("decimal = "), "{said}");
}

/// A column of dates or truths that is texts for one cell, or for the form of its dates, has a note, and its advice helps.
#[test]
fn a_cell_that_is_no_date_is_named() {
    let place = Place::with(&config("validation_split = 0.25"));
    let mut text = ",built,open,sold,y\n".to_owned();
    for i in 0..60 {
        let built = if i == 30 { "01/02/2024".to_owned() } else { format!("2024-03-{:02}", i % 28 + 1) };
        let open = if i == 20 { "perhaps" } else { ["yes", "no"][i % 2] };
        let _ = writeln!(text, "{i},{built},{open},{:02}.{:02}.2023,{}", i % 28 + 1, i % 12 + 1, i % 9);
    }
    place.write("t.csv", text);
    let built = "1 cell of 60 that is no date of the form 2024-11-28, the first of them `01/02/2024` in line 32"
        .replace("2024-11", "2026-11");
    let open = "1 cell of 60 that is neither true nor false, the first of them `perhaps` in line 22";
    let sold = "dates as `01.01.2023` in line 2, which `{ type = \"date\", format = \"%d.%m.%Y\" }` in `columns` reads";
    let index = "columns that are left out: `Unnamed: 0` (it has no name, as an index that pandas writes)";
    let said = place.ok("check c.toml").err;
    for part in [&built, open, sold, index] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let columns = "--set data.columns.sold={type=\"date\",format=\"%d.%m.%Y\"}";
    let said = place.ok(&format!("check c.toml {columns} --set data.columns.open=category")).err;
    assert!(!said.contains("dates as") && !said.contains("perhaps"), "{said}");
    for (column, kind, part) in [("built", "date", &built[..]), ("open", "boolean", open)] {
        let said = place.fails(&format!("check c.toml --set data.columns.{column}={kind}"), 2);
        assert!(said.contains(part) && said.contains("on_error = \"skip\""), "{said}");
        let said = place.ok(&format!("check c.toml --set data.columns.{column}={kind} --set data.on_error=skip")).err;
        let cell = part.split('`').nth(1).unwrap();
        assert!(said.contains("of 60 rows cannot be read and are left out") && said.contains(cell), "{said}");
    }
    for target in ["sold", "built"] {
        let said = place.fails(&format!("check c.toml --set data.target={target} --set data.on_error=skip"), 2);
        assert!(said.contains(&format!("the target `{target}` has dates")), "{said}");
    }
    // What names nothing is a mistake, and so is a rule for what is learnt.
    for (set, part) in [
        ("data.drop=[\"zzz*\"]", "no column has a name as `zzz*` in `drop` says"),
        ("data.columns.zzz*=category", "no column has a name as `zzz*` in `columns` says"),
        ("data.columns.y=category", "`y` is what it learns"),
    ] {
        let said = place.fails(&format!("check c.toml --set {set}"), 2);
        assert!(said.contains(part), "{set}: {said}");
    }
}

/// Numbers with something around them, and dates in many forms, are no categories without a word, and what the notes say helps.
#[test]
fn numbers_and_dates_in_other_forms_are_named() {
    let place = Place::with(&config("validation_split = 0.25"));
    let mut text = "total,share,price,mass,short,time,month,zone,y\n".to_owned();
    for i in 0..60 {
        let (day, month) = (i % 28 + 1, i % 12 + 1);
        let name = ["Jan", "Feb", "May", "Oct"][i % 4];
        let _ = writeln!(
            text,
            "\"{},{:03}.5\",{}%,${}.20,{} kg,{day:02}.{month:02}.20,{day:02}.{month:02}.2020 12:{:02},\"{name} {day:02}, 2020\",2020-{month:02}-{day:02}T12:30:00+02:00,{}",
            i + 1,
            i * 37 % 1000,
            i * 7 % 100,
            i % 30,
            i % 50,
            i % 60,
            i * 5 % 11
        );
    }
    place.write("t.csv", text);
    let notes = place.ok("check c.toml --json").json()["notes"].clone();
    let notes: Vec<&str> = notes.as_array().unwrap().iter().filter_map(|note| note.as_str()).collect();
    let date = |format: &str| format!("{{ type = \"date\", format = \"{format}\" }}");
    let expected = [
        "the column `zone` has dates with a time zone, as `2020-01-01T12:30:00+02:00`: the model takes year, weekday and hour as they are written, and of Parquet, which stores such times in UTC, it takes those of UTC".into(),
        "`total` is taken for texts: it has numbers with commas between the thousands, as `1,000.5` in line 2, which are not read: write them without commas".to_owned(),
        "`share` is taken for texts: it has numbers with `%` after them, as `0%` in line 2, which are not read: write the numbers alone".into(),
        "`price` is taken for texts: it has numbers with `$` before them, as `$0.20` in line 2, which are not read: write the numbers alone".into(),
        "`mass` is taken for texts: it has numbers with `kg` after them, as `0 kg` in line 2, which are not read: write the numbers alone".into(),
        format!("`short` is taken for texts: it has dates as `01.01.20` in line 2, which `{}` in `columns` reads", date("%d.%m.%y")),
        format!("`time` is taken for texts: it has dates as `01.01.2020 12:00` in line 2, which `{}` in `columns` reads", date("%d.%m.%Y %H:%M")),
        format!("`month` is taken for texts: it has dates as `Jan 01, 2020` in line 2, which `{}` in `columns` reads", date("%b %d, %Y")),
    ];
    assert_eq!(notes.len(), expected.len(), "{notes:#?}");
    for (note, expected) in notes.iter().zip(&expected) {
        assert_eq!(*note, format!("`t.csv`: {expected}"));
    }
    let shown = place.ok("check c.toml").out;
    let kind = |column: &str| shown.lines().find(|line| line.starts_with(column)).unwrap().to_owned();
    assert!(kind("zone ").contains("a date"), "{}", kind("zone "));
    // Each format reads its column.
    let rule = |column: &str, format: &str| format!("columns.{column} = {}\n", date(format));
    let rules = rule("short", "%d.%m.%y") + &rule("time", "%d.%m.%Y %H:%M") + &rule("month", "%b %d, %Y");
    place.write("c.toml", config(&format!("validation_split = 0.25\n{rules}")));
    let notes = place.ok("check c.toml --json").json()["notes"].to_string();
    assert!(!notes.contains("dates as") && notes.contains("thousands"), "{notes}");
    // A target with a unit is no class, if there are many.
    let message = place.fails("check c.toml --set data.target=share --unset data.columns", 2);
    assert!(message.contains("the target `share` has numbers with `%` after them, as `0%` in line 2"), "{message}");
}

/// Groups are held out whole, so that it may be far more than was asked for.
#[test]
fn another_part_than_asked_for_is_noted() {
    let place = Place::with(&config("validation_split = 0.1\ngroup_column = \"g\""));
    let rows = |groups: usize| (0..200).map(|i| format!("p{},{i},{}\n", i % groups, i * 7 % 13)).collect::<String>();
    let part = "holds out 100 of 200 rows (50 %), as the groups of `g` are large and stay whole";
    place.write("t.csv", format!("g,x,y\n{}", rows(2)));
    for command in ["check c.toml", "train c.toml --quiet --out r"] {
        let stderr = place.ok(command).err;
        assert!(stderr.contains(&format!("note: `t.csv`: `validation_split = 0.1` {part}")), "{stderr}");
    }
    assert!(place.ok("check c.toml --set data.validation_split=20").err.contains(part));
    for set in ["data.validation_split=0.5", "data.validation_split=100"] {
        assert!(!place.ok(&format!("check c.toml --set {set}")).err.contains("holds out"), "{set}");
    }
    assert!(!place.ok("eval r").err.contains("holds out"));
    place.write("t.csv", format!("g,x,y\n{}", rows(40)));
    assert!(!place.ok("check c.toml").err.contains("holds out"));
}

/// An error of the file that is validated on is shown where the configuration names it.
#[test]
fn an_error_of_validation_is_at_its_file() {
    let place = Place::with(&config("val_path = \"v.csv\""));
    place.write("t.csv", "x,y\n1,2\n3,5\n4,7\n");
    place.write("v.csv", "x,y\n1,2\nmany,3\n");
    let said = place.fails("check c.toml", 2);
    assert!(said.contains("the rows to validate on: `v.csv`") && said.contains("line 3"), "{said}");
    let shown: Vec<&str> = said.lines().filter(|line| line.contains("path = ")).collect();
    assert!(shown.len() == 1 && shown[0].contains("val_path = "), "{said}");
    place.write("t.csv", "x,y\n1,2\n3,5\nmany,7\n".repeat(9));
    let said = place.fails("check c.toml --set data.columns.x=number", 2);
    assert!(!said.contains("val_path = "), "{said}");
}

/// Two numbers may be classes, and both ways of learning them are named.
#[test]
fn a_target_of_two_numbers_may_be_a_class() {
    let place = Place::with(&config("validation_split = 0.25"));
    let rows: String = (0..40).map(|i| format!("{i},{}\n", i / 20)).collect();
    place.write("t.csv", format!("x,y\n{rows}"));
    let part = "the target `y` has two values, `0`, `1`, and is learnt as a number";
    assert!(place.ok("check c.toml").err.contains(part));
    let classes = "--set data.classes=true --set loss.type=cross_entropy";
    assert!(!place.ok(&format!("check c.toml {classes}")).err.contains(part));
    // A probability for each class.
    place.ok(&format!("train c.toml --quiet --out r {classes}"));
    place.write("new.csv", "x\n3\n35\n");
    let stdout = place.ok("predict r new.csv --probabilities --format csv").out;
    assert!(stdout.starts_with("file,sample,class,probability_0,probability_1\n"), "{stdout}");
    let ranked = place.ok("predict r new.csv --json --top 2 --probabilities").json();
    for (line, object) in stdout.lines().skip(1).zip(ranked.as_array().unwrap()) {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(object["top"][0]["label"], cells[2]);
        for (class, cell) in ["0", "1"].into_iter().zip(&cells[3..]) {
            assert_eq!(object["probabilities"][class].as_f64().unwrap(), cell.parse::<f64>().unwrap());
        }
    }
    place.ok("train c.toml --quiet --out number");
    assert!(place.fails("predict number new.csv --probabilities", 2).contains("have none"));
}

/// The most columns that a table may have.
#[test]
fn thirty_thousand_columns_are_looked_at() {
    let place = Place::with(&config(""));
    let row = |cell: &dyn Fn(usize) -> String| (1..30_000).map(cell).collect::<Vec<_>>().join(",");
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
    let report = place.ok("check c.toml --json").json();
    let notes = report["notes"].as_array().unwrap();
    let note = notes[0].as_str().unwrap();
    assert_eq!((&report["parameters"], notes.len()), (&29_701.into(), 1), "a hundredth is always the same");
    assert!(note.contains("`c100` (it has the same value in every row)") && note.ends_with(" and 279 more"), "{note}");
    assert_eq!(place.ok("data show c.toml --json").json()["features"], 29_700);
    assert!(place.ok("check c.toml").out.contains("\nand 29,960 more: `runner data show c.toml`\n"));
}

/// What a model is asked about may have other columns than it takes, and lack cells that training had.
#[test]
fn columns_and_cells_that_training_did_not_have_are_noted() {
    let place = Place::with(&config("decimal = \"comma\"\ndrop = [\"a\"]\nvalidation_split = 0.25"));
    place.write("t.csv", rows());
    place.ok("train c.toml --quiet --out r");
    place.write("new.csv", "b;c;x;y;a\n1,5;;3;4;5\n2,5;3;;;\n;;;;\n");
    place.write("more.csv", place.read("new.csv"));
    let stderr = place.ok("predict r new.csv more.csv --format csv").err;
    let lines: Vec<&str> =
        stderr.lines().filter(|line| line.starts_with("note:") || line.starts_with("warning:")).collect();
    assert_eq!(
        lines,
        [
            "note: columns that the model does not take: `a`, `x`",
            "warning: the column `b` is missing in 2 rows and in no training row, and the model takes it for `2.5`",
            "warning: the column `c` is missing in 4 rows and in no training row, and the model takes it for `6`",
        ]
    );
    // Rows without a target are left out.
    place.write("t.csv", rows().replace(";0,5;", ";;") + "1;;3;\n");
    let stderr = place.ok("eval r").err;
    assert!(stderr.contains("`t.csv`: the column `b` is missing in 12 rows and in no training row"), "{stderr}");
    // Where training had missing cells, the model knows what they are.
    place.ok("train c.toml --quiet --out gaps");
    let stderr = place.ok("predict gaps new.csv").err;
    assert!(!stderr.contains("column `b`") && stderr.contains("column `c` is missing"), "{stderr}");
}

/// `check`, `train` and `init` warn of a column from which the target follows.
#[test]
fn a_column_that_says_the_target_is_warned_of() {
    let place = Place::with(&config("decimal = \"comma\"\nvalidation_split = 0.25"));
    let mut text = "a;leak;kind;code;y\n".to_owned();
    for i in 0..60 {
        let y = i * 7 % 13;
        let _ = writeln!(text, "{};{};{};k{};{y}", i % 5, 3 * y + 1, ["low", "high"][usize::from(y > 6)], y);
    }
    place.write("t.csv", text);
    let warned = "`leak` says the target exactly: is it known when a prediction is asked for?";
    for command in ["check c.toml", "train c.toml --quiet --out r"] {
        let stderr = place.ok(command).err;
        assert_eq!(stderr.matches("says the target").count(), 1, "{stderr}");
        assert!(
            stderr.contains(warned)
                && stderr.contains("allow = [\"target_leak\"]")
                && stderr.contains("drop = [\"leak\"]"),
            "{stderr}"
        );
    }
    let warnings = |set: &str| place.ok(&format!("check c.toml --json {set}")).json()["warnings"].to_string();
    assert!(warnings("").contains(warned));
    for set in ["--set data.drop=['leak']", "--set lint.allow=['target_leak']"] {
        assert!(!warnings(set).contains("target exactly"), "{set}");
    }
    // Of classes each value of a column has one.
    let message = warnings("--set data.target=kind --set loss.type=cross_entropy");
    assert!(message.contains("`leak`, `code`, `y` say the target exactly: are they known"), "{message}");
    assert!(message.contains(r#"leave the columns out with `drop = [\"leak\", \"code\", \"y\"]`"#), "{message}");
    // The same where the cells lie in a file, and nothing of a model that is trained already.
    assert!(warnings("--set data.cache=disk --set data.cache_dir=kept").contains(warned));
    assert!(!place.ok("eval r").err.contains("target exactly"));
    let stderr = place.ok("init t.csv --target y --out new.toml").err;
    assert!(stderr.contains(&format!("warning: {warned}")), "{stderr}");
    assert!(place.read("new.toml").contains("# drop = [\"leak\"]"), "{}", place.read("new.toml"));
}
