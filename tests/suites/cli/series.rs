//! Series: from a table to forecasts.

use super::support::{Place, assert_same_runs, repository};
use serde_json::Value;
use std::fmt::Write;
use std::fs;

/// Two machines, each with a row an hour: a count that goes up to 6 and begins anew, times ten for the second.
pub fn machines(hours: usize) -> String {
    let mut text = String::from("hour,machine,count\n");
    for hour in 0..hours {
        for (name, scale) in [("a", 1), ("b", 10)] {
            let _ = writeln!(text, "{hour},{name},{}", (hour % 7) * scale);
        }
    }
    text
}

fn config(more: &str) -> String {
    format!(
        "device = \"cpu\"\nseed = 2\n[data]\nsource = \"csv\"\npath = \"m.csv\"\ntarget = \"count\"\ntime_column = \"hour\"\n\
         series_column = \"machine\"\nwindow = 14\nhorizon = 3\nbatch_size = 16\nvalidation_split = 0.25\n{more}\n[model]\n\
         layers = [\"flatten\", {{ type = \"linear\", out_features = 64 }}, \"relu\", {{ type = \"linear\", out_features = 3 }}]\n\
         [loss]\ntype = \"mse\"\n[optimizer]\ntype = \"adam\"\nlr = 0.01\n[train]\nepochs = 40\n"
    )
}

pub fn place(more: &str) -> Place {
    let place = Place::with(&config(more));
    place.write("m.csv", machines(200));
    place
}

/// What is forecast of the two machines, by their names.
pub fn forecasts(answer: &Value) -> [Vec<f64>; 2] {
    let all = answer.as_array().unwrap();
    assert_eq!(all.len(), 2, "{answer}");
    ["a", "b"].map(|name| {
        let own = all.iter().find(|one| one["machine"] == name).unwrap();
        own["values"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
    })
}

/// The naive forecast repeats the last value of a window. Its errors are reported with the figures of the model.
#[test]
fn the_naive_forecast_stands_beside_the_figures() {
    let place = place("");
    let trained = place.ok("train c.toml --out r");
    // The last 100 rows are held out: hours from 150 on of both machines. Windows end with hours from 149 on, and three hours come.
    let errors = (149..=196).flat_map(|end: i32| (1..=3).map(move |next| (end % 7 - (end + next) % 7).abs()));
    let both: Vec<f64> = errors.flat_map(|error| [1.0, 10.0].map(|scale| f64::from(error) * scale)).collect();
    let mae = both.iter().sum::<f64>() / both.len() as f64;
    let rmse = (both.iter().map(|error| error * error).sum::<f64>() / both.len() as f64).sqrt();
    let near = |value: &Value, wanted: f64| (value.as_f64().unwrap() - wanted).abs() < 1e-9 * wanted;
    let is_of = |of: &Value, prefix: &str| {
        let [found_mae, found_rmse] = ["naive_mae", "naive_rmse"].map(|name| &of[format!("{prefix}{name}")]);
        assert!(near(found_mae, mae) && near(found_rmse, rmse), "{mae}, {rmse}: {of}");
    };
    let last = place.metrics("r").into_iter().rfind(|line| line["kind"] == "epoch").unwrap();
    is_of(&last, "val_");
    assert!(last["val_mae"].as_f64().unwrap() < mae, "the model is better: {last}");
    is_of(&place.ok("eval r --json").json()["metrics"], "");
    assert!(place.ok("eval r").out.contains("naive_mae "));
    let said = "the naive forecast, the last value of the window, has mae ";
    assert!(trained.err.contains(said), "{}", trained.err);
    let names = place.read("r/metrics.csv").lines().next().unwrap().to_owned();
    assert!(names.contains("val_naive_mae,val_naive_rmse"), "{names}");
    // A target that a row of the window lacks is that of the row before it.
    let lacks =
        machines(200)
            .lines()
            .map(|line| {
                if line.starts_with("196,") {
                    line.rsplit_once(',').unwrap().0.to_owned() + ","
                } else {
                    line.to_owned()
                }
            })
            .collect::<Vec<_>>()
            .join("\n");
    place.write("m.csv", lacks);
    let without = place.ok("eval r --json").json()["metrics"].clone();
    assert!(without["naive_mae"].is_number() && !near(&without["naive_mae"], mae), "{without}");
    place.write("m.csv", machines(200));
    // Seeds answer together, and have the same samples.
    place.ok("train c.toml --out s --quiet --set train.seeds=2 --set train.epochs=1");
    is_of(&place.ok("eval s --json").json()["metrics"], "");
    // The last row of a window itself has no forecast.
    place.write(
        "o.toml",
        config("columns = { hour = \"number\" }")
            .replace("horizon = 3", "horizon = 0")
            .replace("out_features = 3", "out_features = 1"),
    );
    let said = place.ok("train o.toml --out o --set train.epochs=1");
    assert!(!said.err.contains("naive") && place.metrics("o").iter().all(|line| line.get("val_naive_mae").is_none()));
}

#[test]
fn what_comes_next_is_learnt_and_predicted_for_each_series() {
    let place = place("");
    let shown = place.ok("data show c.toml").out;
    for part in [
        "a sample is 14 rows, each a vector of 1 number, and the 3 rows after it to learn",
        "it says the order of the rows",
        "before, a number, standardised",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    place.ok("train c.toml --out r --quiet");
    // Hours up to 199, which has 3: 4, 5 and 6 come next.
    let answer: Value = serde_json::from_str(&place.ok("predict r m.csv --json").out).unwrap();
    for (values, scale) in forecasts(&answer).iter().zip([1.0, 10.0]) {
        for (value, wanted) in values.iter().zip([4.0, 5.0, 6.0]) {
            assert!((value - wanted * scale).abs() < 3.0, "{answer}");
        }
    }
    // The same of the last rows alone, in any order, with the columns of the table.
    let table = machines(200);
    let (head, rows) = table.split_once('\n').unwrap();
    let mut last: Vec<&str> = rows.lines().rev().take(28).collect();
    last.swap(3, 20);
    place.write("last.csv", format!("{head}\n{}\n", last.join("\n")));
    let again: Value = serde_json::from_str(&place.ok("predict r last.csv --json").out).unwrap();
    assert_eq!(forecasts(&again), forecasts(&answer));
    let kept = place.ok("predict r last.csv --keep-columns --format csv").out;
    assert!(kept.starts_with("hour,machine,count,value_count_1,value_count_2,value_count_3\n199,"), "{kept}");
    assert_eq!(kept.lines().count(), 3, "{kept}");
    // Figures by the rows after a window, and all windows with what came.
    let evaluated = place.ok("eval r --predictions p.csv").out;
    assert!(evaluated.contains("count_1") && evaluated.contains("count_3"), "{evaluated}");
    // The last 100 rows are held out: 50 hours of each machine, 48 of them with three hours in them.
    let lines = place.read("p.csv");
    assert_eq!(lines.lines().count(), 1 + 2 * 48);
    let head_of = "sample,line,machine,hour,target_count_1,target_count_2,target_count_3,prediction_count_1,";
    assert!(lines.starts_with(head_of), "{lines}");
    // Hour 163 of `a`, which has 2, and then comes 3.
    assert!(lines.lines().any(|line| line.contains(",a,163,3,4,5,")), "{lines}");
    // A forecast is of a series, also where a column names the rows.
    let named = place.ok("predict r m.csv --format csv --set data.id=hour").out;
    assert!(named.starts_with("file,sample,machine,value_count_1"), "{named}");
    // Too few rows, and a column that is not there.
    place.write("short.csv", format!("{head}\n{}\n", last[..20].join("\n")));
    let error = place.fails("predict r short.csv", 1);
    assert!(
        error.contains("takes 14 rows of a series one after the other, and the longest of 2 series has"),
        "{error}"
    );
    let mixed: Vec<&str> = last.iter().copied().filter(|row| row.contains(",b,") || row.starts_with("199")).collect();
    place.write("mixed.csv", format!("{head}\n{}\n", mixed.join("\n")));
    let answer = place.ok("predict r mixed.csv --format csv");
    assert!(answer.err.contains("1 of 2 series have fewer than 14 rows, and no prediction"), "{answer:?}");
    assert_eq!(answer.out.lines().count(), 2, "{answer:?}");
    place.write("other.csv", "hour,count\n1,1\n");
    assert!(place.fails("predict r other.csv", 1).contains("`machine`"));
}

/// Four machines, each in one state for twenty rows and then in the other: one shakes twice as fast.
fn states() -> String {
    let mut text = String::from("hour,machine,shakes,state\n");
    for (machine, t) in (0..4).flat_map(|machine| (0..80).map(move |t| (machine, t))) {
        let (state, period) = if (t / 20 + machine) % 2 == 0 { ("slow", 8.0) } else { ("fast", 4.0) };
        let shakes = (std::f64::consts::TAU * f64::from(t + 3 * machine) / period).sin();
        let _ = writeln!(text, "{t},m{machine},{shakes:.3},{state}");
    }
    text
}

/// What a machine does in a window is learnt of some machines, and asked of others.
#[test]
fn the_class_of_a_window_is_learnt_and_predicted() {
    let text = config("group_column = \"machine\"\nstride = 2")
        .replace("target = \"count\"", "target = \"state\"")
        .replace("window = 14\nhorizon = 3", "window = 8\nhorizon = 0")
        .replace("out_features = 3", "out_features = 2")
        .replace("type = \"mse\"", "type = \"cross_entropy\"");
    let place = Place::with(&text);
    place.write("m.csv", states());
    let shown = place.ok("data show c.toml").out;
    // Windows of a machine begin with the rows 0, 2, … 72.
    for part in ["111 windows to train on, 37 to validate on", "and the target of its last row to learn"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    place.ok("train c.toml --out r --quiet");
    let figures = |command: &str| serde_json::from_str::<Value>(&place.ok(command).out).unwrap();
    let own = figures("eval r --json");
    assert!(own["metrics"]["accuracy"].as_f64().unwrap() > 0.8 && own["samples"] == 37, "{own}");
    assert_eq!(figures("eval r --json --set data.stride=1")["samples"], 73);
    // All windows of a file without the target have an answer.
    let table = states();
    let rows = table.lines().filter(|line| line.contains("m3") || line.starts_with("hour"));
    let new: String = rows.map(|line| format!("{}\n", line.rsplit_once(',').unwrap().0)).collect();
    place.write("new.csv", new);
    let answers = place.ok("predict r new.csv --keep-columns --format csv").out;
    assert_eq!(answers.lines().count(), 1 + 37, "{answers}");
    let right = answers.lines().skip(1).filter(|line| {
        let cells: Vec<&str> = line.split(',').collect();
        let slow = (cells[0].parse::<i32>().unwrap() / 20 + 3) % 2 == 0;
        (cells[3] == "slow") == slow
    });
    assert!(right.count() > 30, "{answers}");
    let answers = place.ok("predict r new.csv --format csv --set data.stride=8").out;
    assert_eq!(answers.lines().count(), 1 + 10, "{answers}");
    // Each fold holds out machines of its own.
    let folds = "--set data.folds=2 --unset data.validation_split";
    place.ok(&format!("train c.toml --out f --quiet --set train.epochs=2 {folds}"));
    let both = figures("eval f --json");
    assert_eq!(both["samples"], 4 * 37, "{both}");
    assert_eq!(place.ok("predict f new.csv --format csv").out.lines().count(), 1 + 37);
}

/// A column says the parts, another one the order.
#[test]
fn parts_by_a_column_keep_the_order_of_time() {
    let place = place("");
    let part = |line: &str| match line.split(',').next().unwrap().parse::<usize>() {
        Ok(hour) => ["train", "val", "test"][usize::from(hour >= 120) + usize::from(hour >= 160)],
        Err(_) => "part",
    };
    let mut lines: Vec<String> = machines(200).lines().map(|line| format!("{line},{}\n", part(line))).collect();
    lines[1..].reverse();
    place.write("m.csv", lines.concat());
    let parts = "--set data.split_column=part --unset data.validation_split";
    let shown = place.ok(&format!("data show c.toml {parts}")).out;
    // Windows of each machine end with the hours 13 to 116, 119 to 156, and 159 to 196.
    assert!(shown.contains("208 windows to train on, 76 to validate on"), "{shown}");
    assert!(shown.contains("it says the order of the rows"), "{shown}");
    place.ok(&format!("train c.toml --quiet --out r --set train.epochs=1 {parts}"));
    let figures: Value = serde_json::from_str(&place.ok("eval r --split test --json").out).unwrap();
    assert_eq!(figures["samples"], 76);
    for set in ["series_column=hour", "time_column=count"] {
        let error = place.fails(&format!("eval r --set data.{set}"), 2);
        assert!(error.contains("cannot be another one than in training") || error.contains("is the target"), "{error}");
    }
}

/// An interrupted run goes on with the same bits, and threads and workers change none.
#[test]
fn a_run_over_windows_goes_on_with_the_same_bits() {
    let place = place("");
    place.ok("train c.toml --out whole --quiet --set train.epochs=4");
    place.ok("train c.toml --out parts --quiet --set train.epochs=2 --threads 1 --set data.workers=3");
    place.ok("train --resume parts --quiet --set train.epochs=4");
    assert_same_runs((&place, "whole"), (&place, "parts"));
    let changed = place.fails("train --resume parts --set data.window=7 --set train.epochs=5", 2);
    assert!(changed.contains("window"), "{changed}");
    // Another order of the rows is another table with the same windows.
    let table = machines(200);
    let mut rows: Vec<&str> = table.lines().skip(1).collect();
    rows.sort_by_key(|row| row.split(',').nth(1).map(str::to_owned));
    place.write("sorted.csv", format!("hour,machine,count\n{}\n", rows.join("\n")));
    let mae = |command: &str| {
        let figures: Value = serde_json::from_str(&place.ok(command).out).unwrap();
        figures["metrics"]["mae"].as_f64().unwrap_or_else(|| panic!("{figures}"))
    };
    place.write("held.csv", table.clone());
    let difference = mae("eval whole --data held.csv --json") - mae("eval whole --data sorted.csv --json");
    assert!(difference.abs() < 1e-5, "{difference}");
}

#[test]
fn mistakes_are_reported_at_their_places() {
    let place = place("");
    for (set, part) in [
        ("--unset data.window --unset data.horizon", "`series_column` in `[data]` needs `window`"),
        ("--unset data.window --unset data.series_column", "`horizon` in `[data]` needs `window`"),
        ("--set data.window=0", "window"),
        ("--set data.series_column=\"count\"", "is the target"),
        ("--set data.series_column=\"machin\"", "`series_column` names a column `machin`"),
        ("--set data.window=500", "no window of 500 rows with the 3 rows after it is for training"),
        ("--unset data.series_column", "have the same `hour`: a series has one row at a time"),
        ("--set model.layers.3.out_features=2", "3"),
    ] {
        let error = place.fails(&format!("check c.toml {set}"), 2);
        assert!(error.contains(part) && !error.contains("panicked"), "{set}: {part}: {error}");
    }
    place.write("oops.csv", machines(200).replace("\n7,a,0\n", "\n7,a,oops\n"));
    let error = place.fails("check c.toml --set data.path=oops.csv", 2);
    assert!(error.contains("1 cell of 400 that is no number, the first of them `oops` in line 16"), "{error}");
    for (more, part) in [
        ("sample_weight = \"hour\"", "a window has several rows, and one weight"),
        ("stratify_column = \"machine\"", "the latest rows of series are held out"),
        ("folds = 2", "unless `group_column` says what is held out whole"),
    ] {
        place.write("other.toml", config(more));
        let error = place.fails("check other.toml", 2);
        assert!(error.contains(part), "{more}: {error}");
    }
    for model in ["tabular", "tabm", "ft_transformer", "dlrm"] {
        let text = config("").split("[model]").next().unwrap().to_owned();
        let rest = config("").split("[loss]").nth(1).unwrap().to_owned();
        place.write("model.toml", format!("{text}[model]\nuse = \"{model}\"\n[loss]{rest}"));
        let error = place.fails("check model.toml", 2);
        assert!(error.contains("takes a row, and a sample is a window of rows"), "{model}: {error}");
    }
    place.write("mlp.toml", config("").replace("\"flatten\", ", ""));
    let error = place.fails("check mlp.toml", 2);
    assert!(error.contains("`sequence_pool` or `flatten` makes one vector of all"), "{error}");
    let heads = format!("{}[[heads]]\ntarget = \"hour\"\nloss = \"mse\"\n", config(""));
    place.write("heads.toml", heads);
    let error = place.fails("check heads.toml", 2);
    assert!(error.contains("a sample is a window of several"), "{error}");
    place.ok("train c.toml --out r --quiet --set train.epochs=1");
    assert!(place.fails("explain r", 2).contains("takes a window of rows"));
    assert!(place.fails("export r r.onnx --preprocess", 2).contains("14 rows of a series"));
    place.ok("export r r.onnx");
    let error = place.fails("eval r --set data.window=7", 2);
    assert!(error.contains("window"), "{error}");
}

/// The configuration and the table that come with the program; and what `init` writes for that table.
#[test]
fn visits_that_come_with_the_program_are_forecast() {
    let place = Place::new();
    let config = repository("configs/visits_forecast.toml");
    place.ok(&format!("train {} --out r --device cpu --quiet", config.display()));
    let last = place.metrics("r").pop().unwrap();
    // The same weekday of the week before is off by 38.5, and the mean of four of them by 36.0.
    let error = last["val_mae"].as_f64().unwrap();
    assert!(error < 34.0, "{last}");
    let table = repository("data/visits/visits.csv");
    fs::copy(table, place.path("visits.csv")).unwrap();
    let made = place.ok("init visits.csv --target visits --model lstm_forecaster");
    assert!(made.err.contains("2,755 windows to train on"), "{made:?}");
    let text = place.read("visits.toml");
    for line in ["time_column = \"day\"", "series_column = \"library\"", "window = 28", "horizon = 7"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    place.ok("train visits.toml --out i --quiet --set train.epochs=1");
    assert_eq!(place.ok("predict i visits.csv --format csv").out.lines().count(), 6);
}
