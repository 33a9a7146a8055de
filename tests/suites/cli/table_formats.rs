//! Tables that are written in other ways: encodings, quotes, dates.

use super::support::{Place, assert_same_runs, repository};
use super::tables::houses;
use std::fs;

fn place(more: &str) -> Place {
    let place = Place::with(&format!(
        "device = \"cpu\"\nseed = 3\n[data]\nsource = \"csv\"\npath = \"t.csv\"\ntarget = \"price\"\nid = \"id\"\nbatch_size = 16\n\
         validation_split = 0.25\n{more}\n[model]\nlayers = [{{ type = \"linear\", out_features = 1 }}]\n[loss]\ntype = \"mse\"\n\
         [optimizer]\ntype = \"adam\"\nlr = 0.02\n[train]\nepochs = 2\n"
    ));
    place.write(
        "t.csv",
        table().replace("sea", "caf\u{e9}, \u{20ac}").replace("caf\u{e9}, \u{20ac}", "\"caf\u{e9}, \u{20ac}\""),
    );
    place
}

/// Houses with the day on which each was sold.
fn table() -> String {
    let rows = houses(90);
    let mut lines = rows.lines();
    let head = format!("{},sold\n", lines.next().unwrap());
    let day = |i: usize| format!("20{:02}-{:02}-{:02} {:02}:30", 20 + i % 5, 1 + i % 12, 1 + i * 7 % 28, i % 24);
    head + &lines.enumerate().map(|(i, line)| format!("{line},{}\n", day(i))).collect::<String>()
}

/// The same table in other bytes is the same to the last bit of the model, in training, `eval` and `predict`.
/// A file that is something else than its name says is called what it is, wherever it is read.
#[test]
fn a_file_with_the_wrong_name_is_called_what_it_is() {
    let place = Place::with(&super::tables::config("target = \"price\""));
    place.write("houses.csv", houses(60));
    place.ok("train c.toml --quiet --out r --set train.epochs=1");
    place.ok("predict r houses.csv --out answers.parquet");
    fs::copy(place.path("answers.parquet"), place.path("columns.csv")).unwrap();
    fs::copy(place.path("houses.csv"), place.path("cells.parquet")).unwrap();
    place.write("object.csv", "{\"rooms\": 3}\n");
    for (file, is) in [
        (
            "columns.csv",
            "`columns.csv` is a Parquet file, though its name ends with `.csv`: end its name with `.parquet`",
        ),
        ("cells.parquet", "`cells.parquet` is a text, though its name ends with `.parquet`: end its name with `.csv`"),
        ("object.csv", "`object.csv` is JSON, though its name ends with `.csv`: end its name with `.jsonl`"),
    ] {
        let message = place.fails(&format!("check c.toml --set data.path={file}"), 2);
        assert!(message.contains(is), "{message}");
        assert!(place.fails(&format!("predict r {file}"), 1).contains(is), "{file}");
        assert!(place.fails(&format!("init {file} --target price --out new.toml"), 2).contains(is), "{file}");
    }
}

#[test]
fn encodings_and_quotes_change_nothing() {
    let place = place("");
    place.ok("train c.toml --quiet --out r");
    let text = place.read("t.csv");
    let western: Vec<u8> = text.chars().map(|c| if c == '\u{20ac}' { 0x80 } else { c as u8 }).collect();
    let wide = |order: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(order).collect::<Vec<u8>>();
    let expected = place.ok("predict r t.csv --format jsonl").out;
    for (name, bytes, sets) in [
        ("western.csv", western.clone(), "--set data.encoding=windows-1252"),
        ("little.csv", wide(u16::to_le_bytes), "--set data.encoding=utf-16"),
        ("big.csv", wide(u16::to_be_bytes), "--set data.encoding=UTF-16BE"),
        ("single.csv", text.replace('"', "'").into_bytes(), "--set data.quote=\"'\""),
        (
            "none.csv",
            text.replace(',', ";").replace("\"caf\u{e9}; ", "caf\u{e9}, ").replace('"', "").into_bytes(),
            "--set data.quote=none",
        ),
    ] {
        place.write(name, bytes);
        place.ok(&format!("train c.toml --quiet --out {name}.run --set data.path={name} {sets}"));
        assert_same_runs((&place, "r"), (&place, &format!("{name}.run")));
        // What is written so is known of the model.
        let stdout = place.ok(&format!("predict {name}.run {name} --format jsonl")).out;
        assert_eq!(stdout.replace(name, "t.csv"), expected, "{name}");
        // Another file may be written in another way.
        let stdout = place.ok(&format!("predict r {name} --format jsonl {sets}")).out;
        assert_eq!(stdout.replace(name, "t.csv"), expected, "{name}");
    }
    place.write("packed.csv.gz", {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packed, &western).unwrap();
        packed.finish().unwrap()
    });
    place.ok("check c.toml --set data.path=packed.csv.gz --set data.encoding=windows-1252");
    let message = place.fails("check c.toml --set data.path=western.csv", 2);
    assert!(message.contains("line 2: the byte 0xe9 is not UTF-8") && message.contains("`encoding`"), "{message}");
    let message = place.fails("check c.toml --set data.path=western.csv --set data.encoding=shift_jis", 2);
    assert!(message.contains("is not Shift_JIS: is `encoding` right?"), "{message}");
    for (set, part) in [
        ("data.encoding=ebcdic", "is no encoding that is known"),
        ("data.quote=ab", "must be one character, or `\"none\"`"),
        ("data.separator='\"'", "must be one character, and no quote"),
    ] {
        let message = place.fails(&format!("check c.toml --set {set}"), 2);
        assert!(message.contains(part), "{set}: {message}");
    }
    // A quote may be a separator where it is no quote.
    place.write("odd.csv", text.replace("\"caf\u{e9}, \u{20ac}\"", "cafe").replace(',', "\""));
    place.ok("check c.toml --set data.path=odd.csv --set data.separator='\"' --set data.quote=none");
}

/// Dates that a format reads are those of ISO 8601, and a model that was trained on some takes Parquet, too.
#[test]
fn dates_in_other_formats_are_the_same_dates() {
    let place = place("columns = { sold = { type = \"date\", time_of_day = true } }");
    place.ok("train c.toml --quiet --out r");
    let shown = place.ok("data show c.toml").out;
    assert!(shown.contains("a date with its time of day (7 numbers)"), "{shown}");
    let text = place.read("t.csv");
    let other = |write: &dyn Fn(&str, &str, &str, &str) -> String| {
        let line = |line: &str| {
            let (rest, date) = line.rsplit_once(',').unwrap();
            let parts: Vec<&str> = date.split(['-', ' ']).collect();
            match parts[..] {
                [year, month, day, time] => format!("{rest},{}\n", write(year, month, day, time)),
                _ => format!("{line}\n"),
            }
        };
        text.lines().map(line).collect::<String>()
    };
    for (name, format, table) in [
        ("german.csv", "%d.%m.%Y %H:%M", other(&|y, m, d, t| format!("{d}.{m}.{y} {t}"))),
        ("american.csv", "%m/%d/%y %H%M", other(&|y, m, d, t| format!("{m}/{d}/{} {}", &y[2..], t.replace(':', "")))),
        ("numbers.csv", "%Y%m%d%H%M", other(&|y, m, d, t| format!("{y}{m}{d}{}", t.replace(':', "")))),
    ] {
        place.write(name, table);
        // Words of a command line are split at spaces here.
        let format = format.replace(' ', "\\u0020");
        let own = format!("--set data.columns.sold={{type=\"date\",format=\"{format}\",time_of_day=true}}");
        place.ok(&format!("train c.toml --quiet --out {name}.run --set data.path={name} {own}"));
        assert_same_runs((&place, "r"), (&place, &format!("{name}.run")));
        let stdout = place.ok(&format!("predict {name}.run {name} --format jsonl")).out;
        assert_eq!(stdout.replace(name, "t.csv"), place.ok("predict r t.csv --format jsonl").out);
        // The latest of them are held out, as those of ISO 8601 are.
        let time = "--set data.time_column=sold --set train.epochs=1";
        place.ok(&format!("train c.toml --quiet --out {name}.time --set data.path={name} {own} {time}"));
        place.ok(&format!("train c.toml --quiet --out {name}.iso {time}"));
        assert_same_runs((&place, &format!("{name}.iso")), (&place, &format!("{name}.time")));
        place.write("gap.csv", place.read(name).replacen("\nh3,", "\nh3,9,9,hill,9,\nx,", 1));
        let message = place.fails(&format!("check c.toml --set data.path=gap.csv {own} {time}"), 2);
        assert!(message.contains("line 5: `sold` is missing, and rows are held out by it"), "{message}");
        place.write("bad.csv", place.read(name).replacen("\nh3,", "\nh3,9,9,hill,9,someday\nx,", 1));
        let message = place.fails(&format!("predict {name}.run bad.csv"), 1);
        assert!(
            message.contains("line 5")
                && message.contains("`someday`, and a date, as the `format` of the column says, is expected"),
            "{message}"
        );
    }
    let message = place.fails("check c.toml --set data.columns.sold.format=\"%d.%m\"", 2);
    assert!(message.contains("says no day, month and year"), "{message}");
    let message = place.fails("check c.toml --set data.columns.sold.format=\"%Y-%m-%d-%Q\"", 2);
    assert!(message.contains("stands for nothing of a date"), "{message}");
    let message = place.fails("check c.toml --set data.columns.sold.format='%d.%m.%Y'", 2);
    assert!(message.contains("line 2") && message.contains("as the `format` of the column says"), "{message}");
    // Dates of Parquet are dates without a format.
    fs::copy(repository("tests/golden/parquet/zstd.parquet"), place.path("p.parquet")).unwrap();
    let parquet = "--set data.path=p.parquet --unset data.id --set train.epochs=1";
    place.ok(&format!("train c.toml --quiet --out p {parquet} --set data.columns.sold.format='%d.%m.%Y'"));
    place.ok(&format!("train c.toml --quiet --out q {parquet}"));
    let [p, q] = ["p", "q"].map(|run| place.checkpoint(&format!("{run}/last.safetensors")).tensors);
    assert_eq!(p, q);
}

/// Whole numbers and truths are the same categories and classes, however a file writes them.
#[test]
fn a_value_is_the_same_in_every_form() {
    let place = place(
        "columns = { rooms = \"category\", open = \"category\", code = { type = \"category\", hash_buckets = 64 } }",
    );
    let [mut cells, mut objects] = [String::from("rooms,open,code,price,sold,id\n"), String::new()];
    for i in 0..60 {
        let (rooms, open, price) = (i * 7 % 4, i % 3 == 0, i * 5 % 11);
        let truth = if open { "True" } else { "False" };
        cells += &format!("{rooms},{truth},{},{price},{},{i}\n", i % 9, i % 2);
        objects += &format!(
            "{{\"rooms\":{rooms}.0,\"open\":{open},\"code\":{}.0,\"price\":{price}.0,\"sold\":{}.0,\"id\":\"{i}\"}}\n",
            i % 9,
            i % 2
        );
    }
    place.write("t.csv", cells);
    place.write("t.jsonl", objects);
    let classes = "--set data.target=sold --set data.classes=true --set loss.type=cross_entropy --set model.layers=[{type=\"linear\",out_features=2}]";
    let truths = "--unset data.columns --set data.target=open --set loss.type=cross_entropy --set model.layers=[{type=\"linear\",out_features=2}]";
    for (run, more) in [("numbers", ""), ("classes", classes), ("truths", truths)] {
        for (file, other) in [("t.csv", "t.jsonl"), ("t.jsonl", "t.csv")] {
            place.ok(&format!("train c.toml --quiet --force --out {run} {more} --set data.path={file}"));
            let figures = |path: &str| place.ok(&format!("eval {run} --json --set data.path={path}"));
            let (own, others) = (figures(file), figures(other));
            assert_eq!(own.json()["metrics"], others.json()["metrics"], "{run} of {file}");
            assert!(!others.err.contains("no training row has"), "{}", others.err);
        }
        // One by one, as JSON has them.
        let said = |path: &str| place.ok(&format!("predict {run} {path} --format csv")).out.replace(path, "t");
        assert_eq!(said("t.csv"), said("t.jsonl"));
    }
    // A text that is there as it is written comes first.
    place.write("t.csv", "rooms,open,code,price,id\n1,a,1,1,a\n1.0,b,2,2,b\n1,a,3,1,c\n1.0,b,4,2,d\n");
    let shown = place.ok("data show c.toml --unset data.validation_split --set data.batch_size=2").out;
    assert!(shown.contains("a category (2 numbers)"), "{shown}");
}

/// `251,583` is a number with a comma between thousands where commas stand between columns, and not 251 and a half.
#[test]
fn thousands_of_a_target_are_no_fractions() {
    let place = Place::new();
    let table = |separator: &str, other: &str| {
        let row = |i: usize| {
            let cells =
                [format!("\"{other}\""), format!("{} €", i * 7), format!("\"{},{:03}\"", 20 + i, i * 37 % 1000)];
            cells.join(separator) + "\n"
        };
        ["a", "b", "y"].join(separator) + "\n" + &(0..60).map(row).collect::<String>()
    };
    place.write("t.csv", table(",", "x"));
    let refused = place.fails("init t.csv --target y", 2);
    assert!(
        refused.contains("the target `y` has numbers with commas between the thousands, as `20,000` in line 2, which are not read: write them without commas. Mend them"),
        "{refused}"
    );
    // Another column, or `;` between the columns, says what a comma is.
    for content in [table(",", "0,5"), table(";", "x")] {
        place.write("t.csv", content);
        place.ok("init t.csv --target y --force");
        assert!(place.read("t.toml").contains("decimal = \"comma\""), "{}", place.read("t.toml"));
    }
}
