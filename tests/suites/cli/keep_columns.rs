//! `predict --keep-columns`, and the form of answers that follows that of the rows.

use super::support::{Place, repository};
use serde_json::Value;
use std::fs;
use std::process::Stdio;

/// A model of `rooms` and `town`, with a class to learn and the name of each row.
fn place() -> Place {
    let rows: String =
        (0..60).map(|i| format!("r{i},{},{},{}\n", i % 7, ["sea", "hill"][i % 2], ["no", "yes"][i * 3 % 2])).collect();
    let place = Place::with(
        "device = \"cpu\"\n[data]\nsource = \"csv\"\npath = \"t.csv\"\ntarget = \"sold\"\nid = \"id\"\n\
         [model]\nlayers = [{ type = \"linear\", out_features = 2 }]\n[loss]\ntype = \"cross_entropy\"\n\
         [optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n",
    );
    place.write("t.csv", format!("id,rooms,town,sold\n{rows}"));
    place.ok("train c.toml --quiet --out r");
    place
}

fn on_input(place: &Place, words: &str, input: &str) -> String {
    let mut command = place.command(words);
    let output = command.stdin(fs::File::open(place.path(input)).unwrap()).stdout(Stdio::piped()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What is said of each row, as JSON.
fn said(place: &Place, file: &str) -> Vec<Value> {
    let lines = place.ok(&format!("predict r {file} --format jsonl")).out;
    lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["top"].clone()).collect()
}

#[test]
fn cells_stay_as_they_stand_in_a_text() {
    let place = place();
    place.write(
        "new.csv",
        "code;town;note;rooms;id;price\n007; sea ;\"a \"\"b\"\"; c\";3;x,1;1,50\n\n1e3;moon;\"two\nlines\";;=x2;\n",
    );
    let stdout = place.ok("predict r new.csv --keep-columns").out;
    let mut lines = stdout.lines();
    assert_eq!(lines.next(), Some("code,town,note,rooms,id,price,class,probability,class_2,probability_2"));
    assert!(lines.next().unwrap().starts_with("007, sea ,\"a \"\"b\"\"; c\",3,\"x,1\",\"1,50\","), "{stdout}");
    assert!(stdout.contains("\n1e3,moon,\"two\nlines\",,=x2,,"), "{stdout}");
    // What is said is the same as without the columns.
    let own = place.ok("predict r new.csv --format csv").out;
    let end = |line: &str| line.rsplitn(5, ',').take(4).map(str::to_owned).collect::<Vec<_>>();
    let row = |text: &str, at: usize| end(text.lines().nth(at).unwrap());
    assert_eq!((row(&stdout, 0), row(&stdout, 1), row(&stdout, 3)), (row(&own, 0), row(&own, 1), row(&own, 2)));
    assert_eq!(on_input(&place, "predict r - --keep-columns", "new.csv"), stdout);
    let guarded = place.ok("predict r new.csv --keep-columns --guard-formulas").out;
    assert!(guarded.contains(",'=x2,") && guarded.contains("\n1e3,"), "{guarded}");
    // Rows of two files.
    let both = place.ok("predict r new.csv new.csv --keep-columns --top 1").out;
    assert_eq!((both.matches("007, sea ,").count(), both.matches("code,").count()), (2, 1), "{both}");
    let other = place.fails("predict r new.csv t.csv --keep-columns", 1);
    assert!(other.contains("`t.csv` has other columns than `new.csv`"), "{other}");
    // Cells of a text are texts in forms that have types.
    let objects = place.ok("predict r new.csv --keep-columns --format jsonl --top 1").out;
    assert!(
        objects.starts_with("{\"code\":\"007\",\"town\":\" sea \",\"note\":\"a \\\"b\\\"; c\",\"rooms\":\"3\",\"id\":\"x,1\",\"price\":\"1,50\",\"top\":["),
        "{objects}"
    );
}

#[test]
fn objects_keep_their_text_and_their_keys() {
    let place = place();
    let lines = [
        "{\"rooms\": 3.50, \"town\": \"sea\", \"extra\" : {\"a\":[1]}}",
        "{}",
        "{\"town\": null, \"big\": 12345678901234567890.10, \"rooms\": null, \"id\": \"é\\u00e9\" }",
    ];
    place.write("new.jsonl", lines[1..].join("\n\n") + "\n");
    let stdout = place.ok("predict r new.jsonl --keep-columns --top 1").out;
    let tops = said(&place, "new.jsonl");
    let own: Vec<&str> = stdout.lines().collect();
    assert!(own[0].starts_with("{\"top\":[{\"class\""), "{stdout}");
    assert!(
        own[1].starts_with(
            "{\"town\": null, \"big\": 12345678901234567890.10, \"rooms\": null, \"id\": \"é\\u00e9\",\"top\":[{"
        ),
        "{stdout}"
    );
    for (line, top) in own.iter().zip(&tops) {
        let read: Value = serde_json::from_str(line).unwrap();
        assert_eq!(read["top"][0], top[0], "{line}");
        assert_eq!((&read["file"], &read["sample"]), (&Value::Null, &Value::Null));
    }
    assert_eq!(on_input(&place, "predict r - --keep-columns --top 1", "new.jsonl"), stdout);
    // As a table all keys are columns.
    let table = place.ok("predict r new.jsonl --keep-columns --format csv --top 1").out;
    assert!(table.starts_with("town,big,rooms,id,class,probability\n,,,,"), "{table}");
    // Files of objects may have other keys each. What is no cell is an error, as without the option.
    place.write("more.jsonl", "{\"rooms\": 1, \"town\": \"sea\", \"late\": true}\n");
    let both = place.ok("predict r new.jsonl more.jsonl --keep-columns --top 1").out;
    assert!(
        both.lines().nth(2).unwrap().starts_with("{\"rooms\": 1, \"town\": \"sea\", \"late\": true,\"top\":["),
        "{both}"
    );
    place.write("lists.jsonl", lines[0]);
    assert!(place.fails("predict r lists.jsonl --keep-columns", 1).contains("`extra` is a list or an object"));
}

#[test]
fn parquet_keeps_its_types() {
    let place = place();
    let copy = |name: &str| {
        place.write(name, fs::read(repository("tests/golden/parquet").join(name)).unwrap());
    };
    ["zstd.parquet", "pandas.parquet", "part-1.parquet", "houses.csv"].iter().for_each(|name| copy(name));
    // All columns of houses are there: rooms, area, town, garden, sold, price.
    let config = place
        .read("c.toml")
        .replace("t.csv", "houses.csv")
        .replace("target = \"sold\"\nid = \"id\"", "target = \"price\"");
    place.write("h.toml", config.replace("cross_entropy", "mse").replace("out_features = 2", "out_features = 1"));
    place.ok("train h.toml --quiet --out h");
    for file in ["zstd.parquet", "pandas.parquet"] {
        place.ok(&format!("predict h {file} --keep-columns --out kept.parquet"));
        let columns = |file: &str| {
            let shown = place.ok(&format!("data show h.toml --json --set data.path={file}")).json();
            let of = |column: &Value| {
                (column["name"].to_string(), column["cells"].to_string(), column["missing"].to_string())
            };
            shown["columns"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
        };
        let (own, kept) = (columns(file), columns("kept.parquet"));
        assert_eq!(kept[..own.len()], own, "{file}");
        assert_eq!(kept.len(), own.len() + 1);
        assert_eq!(kept.last().unwrap().0, "\"value\"");
    }
    // The answers to what was kept are those that stand there.
    let values = |file: &str, options: &str| -> Vec<String> {
        let stdout = place.ok(&format!("predict h {file} --format csv {options}")).out;
        stdout.lines().skip(1).map(|line| line.rsplit(',').next().unwrap().to_owned()).collect()
    };
    let expected = values("houses.csv", "");
    assert_eq!(values("kept.parquet", ""), expected);
    assert_eq!(values("zstd.parquet", "--keep-columns"), expected);
    // Into a text and into objects, where numbers are numbers.
    place.ok("predict h zstd.parquet --keep-columns --out kept.jsonl");
    let first: Value = serde_json::from_str(place.read("kept.jsonl").lines().next().unwrap()).unwrap();
    let keys: Vec<&String> = first.as_object().unwrap().keys().collect();
    assert_eq!(keys.last().unwrap().as_str(), "values", "{first}");
    assert!(first["rooms"].is_number() && first["town"].is_string() && first["garden"].is_boolean(), "{first}");
    // Objects as Parquet have the types of their values.
    place.write("few.jsonl", "{\"rooms\": 3, \"area\": null, \"town\": \"sea\", \"garden\": true, \"sold\": \"2021-01-05\"}\n{\"rooms\": 4, \"area\": 1.5, \"town\": \"hill\", \"garden\": null, \"sold\": \"2021-01-06\"}\n");
    place.ok("predict h few.jsonl --keep-columns --out few.parquet");
    let shown = place.ok("data show h.toml --json --set data.path=few.parquet --set data.target=value").json();
    let cells: Vec<(&str, &str)> = shown["columns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (c["name"].as_str().unwrap(), c["cells"].as_str().unwrap()))
        .collect();
    assert_eq!(
        cells,
        [
            ("rooms", "number"),
            ("area", "number"),
            ("town", "text"),
            ("garden", "boolean"),
            ("sold", "text"),
            ("value", "number")
        ]
    );
    let message = place.fails("predict h zstd.parquet --keep-columns", 2);
    assert!(message.contains("no text for a terminal") && message.contains("--out"), "{message}");
    let mixed = place.fails("predict h zstd.parquet houses.csv --keep-columns --out mixed.parquet", 1);
    assert!(mixed.contains("`houses.csv` has other columns than `zstd.parquet`"), "{mixed}");
    assert!(!place.path("mixed.parquet").exists());
}

#[test]
fn columns_of_one_name_are_refused() {
    let place = place();
    place.write("new.csv", "rooms,class,town,id\n1,2,sea,a\n");
    let message = place.fails("predict r new.csv --keep-columns", 1);
    assert!(
        message.contains("`new.csv` has a column `class`, and the prediction has a column `class`, too: rename"),
        "{message}"
    );
    place.ok("predict r new.csv --keep-columns --format jsonl");
    place.fails("predict r new.csv --keep-columns --out new.parquet", 1);
    assert!(!place.path("new.parquet").exists());
    place.write("new.jsonl", "{\"rooms\": 1, \"town\": \"sea\", \"top\": 3}\n");
    let message = place.fails("predict r new.jsonl --keep-columns", 1);
    assert!(message.contains("a column `top`"), "{message}");
    for (words, part) in [
        ("predict r new.csv --keep-columns --format text", "needs a form that has columns"),
        ("predict r new.csv --keep-columns --masks m", "cannot be used with"),
        ("predict r x.safetensors --keep-columns", "`x.safetensors` has tensors"),
    ] {
        let message = place.fails(words, 2);
        assert!(message.contains(part), "{words}: {message}");
    }
}

/// Rows that are left out have no answer, and so no row; the others keep theirs.
#[test]
fn rows_that_are_left_out_shift_nothing() {
    let place = place();
    let row = |i: usize| if i % 30 == 7 { format!("{i},none,sea\n") } else { format!("{i},{},sea\n", i % 5) };
    let rows: String = (0..3000).map(row).collect();
    place.write("new.csv", format!("n,rooms,town\n{rows}"));
    let objects: String = (0..3000)
        .map(|i| {
            format!(
                "{{\"n\":{i},\"rooms\":{},\"town\":\"sea\"}}\n",
                if i % 30 == 7 { "\"none\"".to_owned() } else { (i % 5).to_string() }
            )
        })
        .collect();
    place.write("new.jsonl", objects);
    for (file, out) in [("new.csv", "a.csv"), ("new.jsonl", "b.csv")] {
        place.ok(&format!("predict r {file} --keep-columns --out {out} --set data.on_error=skip"));
        let table = place.read(out);
        let numbers: Vec<usize> =
            table.lines().skip(1).map(|line| line.split(',').next().unwrap().parse().unwrap()).collect();
        assert_eq!(numbers, (0..3000).filter(|i| i % 30 != 7).collect::<Vec<_>>());
        assert!(table.lines().skip(1).all(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            cells[0].parse::<usize>().unwrap() % 5 == cells[1].parse::<usize>().unwrap()
        }));
    }
}

#[test]
fn answers_are_in_the_form_of_the_rows() {
    let place = place();
    place.write("new.csv", "rooms,town,id\n1,sea,a\n2,hill,b\n");
    place.write("new.jsonl", "{\"rooms\": 1, \"town\": \"sea\", \"id\": \"a\"}\n");
    place.ok("predict r new.csv --keep-columns --out new.parquet");
    let written = |words: &str| {
        place.ok(&format!("predict r {words} --out answers"));
        fs::read(place.path("answers")).unwrap()
    };
    assert!(written("new.csv").starts_with(b"file,sample,id,class,"));
    assert!(written("new.jsonl").starts_with(b"{\"file\":\"new.jsonl\","));
    assert!(written("new.parquet").starts_with(b"PAR1"));
    assert!(written("new.parquet --format csv").starts_with(b"file,"));
    for (input, begins) in [("new.csv", "file,"), ("new.jsonl", "{\"file\":\"-\"")] {
        assert_eq!(on_input(&place, "predict r - --out answers", input), "");
        assert!(place.read("answers").starts_with(begins), "{input}");
    }
    // Rows of several forms have none in common; another ending may be a mistake; what a person reads is a text.
    assert!(place.fails("predict r new.csv new.jsonl --out answers", 2).contains("names no format"));
    assert!(place.fails("predict r new.csv --out answers.xlsx", 2).contains("names no format"));
    assert!(place.ok("predict r new.csv").out.starts_with("new.csv, a\n"));
}
