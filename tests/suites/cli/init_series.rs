//! What `init` writes for tables of series.

use super::support::Place;
use std::fmt::Write;

/// A table of a name, and what `init` says and writes of it.
fn made(place: &Place, name: &str, content: impl AsRef<[u8]>, options: &str) -> (String, String) {
    place.write(&format!("{name}.csv"), content);
    let done = place.ok(&format!("init {name}.csv --target y --model lstm_forecaster --force {options}"));
    let checked = place.ok(&format!("check {name}.toml"));
    assert!(!checked.err.contains("warning"), "{checked:?}");
    (done.err, place.read(&format!("{name}.toml")))
}

fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part}:\n{text}");
    }
}

/// A table of `times` for each of `series`, all series of a time one after the other.
fn grid(head: &str, times: usize, series: usize, row: impl Fn(usize, usize) -> String) -> String {
    let mut text = format!("{head}\n");
    for (t, s) in (0..times).flat_map(|t| (0..series).map(move |s| (t, s))) {
        let _ = writeln!(text, "{},{}", row(t, s), 10 * s + t % 7);
    }
    text
}

fn day(t: usize) -> String {
    format!("2026-{:02}-{:02}", t / 28 + 1, t % 28 + 1)
}

#[test]
fn the_columns_that_say_order_and_series_are_taken_and_named() {
    let place = Place::new();
    let sensors = grid("ts,sensor,y", 100, 2, |t, s| format!("2026-01-01 {:02}:{:02}:0{s},{s}x", t / 60, t % 60));
    let (said, text) = made(&place, "sensors", sensors, "");
    for text in [&said, &text] {
        has(text, &["`ts` says the order of the rows, and `sensor` says which of 2 series each is of"]);
    }
    has(&text, &["\ntime_column = \"ts\"", "\nseries_column = \"sensor\"", "# columns = { ts = \"date\" }"]);
    let (_, text) = made(&place, "weeks", grid("week,shop_id,y", 100, 3, |t, s| format!("{},{s}", t + 1)), "");
    has(&text, &["\ntime_column = \"week\"", "\nseries_column = \"shop_id\"", "\nwindow = 28"]);
    let (said, text) = made(&place, "plain", grid("x,y", 200, 1, |t, _| (t * 7 % 11).to_string()), "");
    has(&said, &["rows are taken in the order of the file, as one series"]);
    has(&text, &["# time_column = \"COLUMN\"", "# series_column = \"COLUMN\""]);
    // Short series have short windows.
    let (_, text) = made(&place, "short", grid("step,unit,y", 15, 300, |t, s| format!("{t},u{s}")), "");
    has(&text, &["\nwindow = 4", "\nhorizon = 1", "of 300 series"]);
    place.write("twice.csv", grid("day,shop,kind,y", 40, 4, |t, s| format!("{},s{},k{}", day(t), s / 2, s % 2)));
    let error = place.fails("init twice.csv --target y --model lstm_forecaster", 2);
    has(&error, &["`day` has the same in several rows", "`--series-column`"]);
}

#[test]
fn what_is_asked_for_is_taken() {
    let place = Place::new();
    let table = grid("day,shop,week,y", 100, 2, |t, s| format!("{},s{s},{}", day(t), t / 7));
    let (_, text) = made(&place, "a", &table, "--window 10");
    has(&text, &["\nwindow = 10", "\nhorizon = 2", "\nseries_column = \"shop\""]);
    let (_, text) = made(&place, "b", &table, "--horizon 0 --series-column shop --time-column day");
    has(&text, &["\nhorizon = 0", "learns `y` of the last of 12 rows", "\ntime_column = \"day\""]);
    for (options, part) in [
        ("--model lstm_forecaster --series-column shp", "`series_column` names a column `shp`"),
        ("--model lstm_forecaster --time-column y", "`--time-column` names the target"),
        ("--model lstm_forecaster --time-column week", "have the same `week`"),
        ("--model lstm_forecaster --window 0", "from 1 to 65536"),
        ("--model tabular --window 4", "`--window` is for a model of series, and the model is `tabular`"),
        ("--horizon 4", "add `--model lstm_forecaster`"),
        ("--model lstm", "lstm_forecaster"),
    ] {
        let error = place.fails(&format!("init a.csv --target y --force {options}"), 2);
        assert!(error.contains(part), "{options}: {part}: {error}");
    }
}

/// Dates in another form are no features, so a model is the same whatever its file writes.
#[test]
fn a_table_of_an_old_spreadsheet_is_read() {
    let place = Place::new();
    let mut text = String::from("Tag;Straße;y\n");
    for t in 0..120 {
        let _ = writeln!(text, "{:02}.{:02}.2026;{},5;{},25", t % 28 + 1, t / 28 + 1, t % 5, 100 + t % 7);
    }
    let old: Vec<u8> = text.chars().map(|c| c as u8).collect();
    let (said, text) = made(&place, "alt", old, "");
    has(&said, &["`Tag` says the order of the rows, which are one series"]);
    has(
        &text,
        &[
            "\ndecimal = \"comma\"",
            "\nencoding = \"windows-1252\"",
            "columns = { Tag = { type = \"ignore\", format = \"%d.%m.%Y\" } }",
        ],
    );
    let shown = place.ok("data show alt.toml").out;
    has(&shown, &["each a vector of 2 numbers"]);
    place.ok("train alt.toml --quiet --out r --set train.epochs=1 --unset train.early_stopping --device cpu");
    has(&place.ok("predict r alt.csv --format csv").out, &["y_7"]);
}

#[test]
fn a_format_is_for_the_column_that_says_the_order() {
    let place = Place::new();
    let data = "[data]\nsource = \"csv\"\npath = \"t.csv\"\ntarget = \"y\"\nvalidation_split = 0.2\n";
    let rest =
        "[model]\nuse = \"tabular\"\n[loss]\ntype = \"mse\"\n[optimizer]\ntype = \"adam\"\n[train]\nepochs = 1\n";
    place.write("t.csv", grid("day,x,y", 90, 1, |t, _| format!("{:02}.{:02}.2026,{t}", t % 28 + 1, t / 28 + 1)));
    let columns = "columns = { day = { type = \"ignore\", format = \"%d.%m.%Y\" } }\n";
    place.write("c.toml", format!("{data}time_column = \"day\"\n{columns}{rest}"));
    has(&place.ok("data show c.toml").out, &["a sample is a vector of 1 number"]);
    place.write("c.toml", format!("{data}{columns}{rest}"));
    has(&place.fails("check c.toml", 2), &["`format` of the ignored column `day` has no use", "`time_column`"]);
    place.write("c.toml", format!("{data}{}{rest}", columns.replace("%d", "%Q")));
    has(&place.fails("check c.toml", 2), &["wrong value for `format`"]);
}
