//! Several models with heads that answer together: folds and seeds. And what an evaluation writes of each row.

use super::heads::{HEADS, place};
use super::support::Place;
use serde_json::Value;

const NEW: &str = "area,rooms,city\n40,2,A\n150,5,C\n90,3,B\n";

/// What is said of a row: the price, the probabilities of the classes of `sold`, and that of `kids`.
fn said(place: &Place, model: &str) -> Vec<Vec<f64>> {
    let done = place.ok(&format!("predict {model} new.csv --format jsonl"));
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        let mut sold = [0.0; 3];
        for class in row["heads"]["sold"]["top"].as_array().unwrap() {
            sold[class["class"].as_u64().unwrap() as usize] = class["probability"].as_f64().unwrap();
        }
        let mut all = vec![row["values"][0].as_f64().unwrap()];
        all.extend(sold);
        all.push(row["heads"]["kids"]["probabilities"][0].as_f64().unwrap());
        all
    };
    done.out.lines().map(row).collect()
}

/// The rows of a file of predictions, by the line of the table.
fn rows(place: &Place, file: &str) -> Vec<Value> {
    let mut all: Vec<Value> = place.read(file).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    all.sort_by_key(|row| row["line"].as_u64());
    all
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-4 * b.abs().max(1.0)
}

fn expect_means(place: &Place, one: &str) {
    place.write("new.csv", NEW);
    let (all, each) = (said(place, "r"), [1, 2, 3].map(|number| said(place, &format!("r/{one}-{number}"))));
    assert!(each[0] != each[1] && each[1] != each[2]);
    for (at, row) in all.iter().enumerate() {
        for (number, mean) in row.iter().enumerate() {
            let expected = each.iter().map(|one| one[at][number]).sum::<f64>() / 3.0;
            assert!(near(*mean, expected), "number {number} of row {at}: {mean} and {expected}");
        }
    }
    assert_eq!(all.len(), 3);
}

/// Accuracy and log loss of `sold` and `kids`, and the mean error of the price, of written rows.
fn measured(rows: &[Value]) -> [f64; 5] {
    let mean = |of: &dyn Fn(&Value) -> f64| rows.iter().map(of).sum::<f64>() / rows.len() as f64;
    let head = |row: &Value, name: &str| row["heads"][name].clone();
    let kids = |row: &Value| {
        let p = head(row, "kids")["probabilities"][0].as_f64().unwrap();
        if head(row, "kids")["target"][0] == 1.0 { p } else { 1.0 - p }
    };
    [
        mean(&|row| f64::from(head(row, "sold")["target"] == head(row, "sold")["prediction"])),
        mean(&|row| {
            let sold = head(row, "sold");
            -sold["probabilities"][sold["target"].as_u64().unwrap() as usize].as_f64().unwrap().ln()
        }),
        mean(&|row| f64::from(kids(row) > 0.5)),
        mean(&|row| -kids(row).ln()),
        mean(&|row| (row["target"][0].as_f64().unwrap() - row["prediction"][0].as_f64().unwrap()).abs()),
    ]
}

const FIGURES: [&str; 5] = ["sold_accuracy", "sold_loss", "kids_accuracy", "kids_loss", "mae"];

#[test]
fn folds_answer_for_all_heads() {
    let place = place(HEADS, "");
    let config =
        place.read("c.toml").replace("validation_split = 0.25", "folds = 3").replace("epochs = 8", "epochs = 3");
    place.write("c.toml", config);
    let done = place.ok("train c.toml --json --out r");
    let figures = done.out.lines().last().map(|line| serde_json::from_str::<Value>(line).unwrap()).unwrap();
    for name in ["val_rmse", "val_sold_accuracy", "val_kids_loss"] {
        let figure = &figures["figures"][name];
        let each: Vec<f64> = figure["folds"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
        assert!(each.len() == 3 && near(figure["mean"].as_f64().unwrap(), each.iter().sum::<f64>() / 3.0), "{figures}");
    }
    expect_means(&place, "fold");
    // All rows, each by the fold that has not seen it.
    let evaluation = place.ok("eval r --json --predictions rows.jsonl").json();
    let rows = rows(&place, "rows.jsonl");
    assert_eq!((&evaluation["samples"], rows.len()), (&480.into(), 480));
    for (name, expected) in FIGURES.iter().zip(measured(&rows)) {
        assert!(near(evaluation["metrics"][name].as_f64().unwrap(), expected), "{name}: {expected}, and {evaluation}");
    }
    // The losses are those of the folds: each head has its own, and the main one is their sum.
    for name in ["loss", "sold_loss", "kids_loss"] {
        let each = [1, 2, 3].map(|fold| place.ok(&format!("eval r/fold-{fold} --json")).json());
        let sum: f64 =
            each.iter().map(|of| of["samples"].as_f64().unwrap() * of["metrics"][name].as_f64().unwrap()).sum();
        assert!(near(evaluation["metrics"][name].as_f64().unwrap(), sum / 480.0), "{name}: {sum}, and {evaluation}");
    }
    // What a fold measures of its heads is what is measured of its rows.
    let own = place.ok("eval r/fold-2 --json").json()["metrics"].clone();
    let of_fold: Vec<Value> = rows.into_iter().filter(|row| row["fold"] == 2).collect();
    let [accuracy, log_loss, ..] = measured(&of_fold);
    assert!(
        near(own["sold_accuracy"].as_f64().unwrap(), accuracy) && near(own["sold_loss"].as_f64().unwrap(), log_loss),
        "{own}"
    );
}

#[test]
fn a_class_of_a_head_in_one_fold_alone_is_refused() {
    let place = place(HEADS, "");
    let config = place.read("c.toml").replace("validation_split = 0.25", "folds = 3");
    place.write("c.toml", config.clone());
    place.write("t.csv", place.read("t.csv") + "100,3,A,12000,never,1\n");
    let message = place.fails("train c.toml --out r", 2);
    for part in ["the class `never` of `sold` has no row in the training part", "without the rows of fold"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    // As many of each value of the head's column in each fold.
    place.write("t.csv", place.read("t.csv") + &"100,3,A,12000,never,1\n".repeat(2));
    place.write(
        "c.toml",
        config
            .replace("folds = 3", "folds = 3\nstratify_column = \"sold\"")
            .replace("out_features = 3", "out_features = \"$classes.sold\""),
    );
    place.ok("train c.toml --quiet --out s --set train.epochs=1");
    place.ok("eval s --predictions rows.jsonl");
    let rows = rows(&place, "rows.jsonl");
    let of = rows
        .iter()
        .filter(|row| row["heads"]["sold"]["target_label"] == "never")
        .map(|row| row["fold"].as_u64().unwrap());
    let mut folds: Vec<u64> = of.collect();
    folds.sort_unstable();
    assert_eq!(folds, [1, 2, 3]);
}

#[test]
fn seeds_answer_for_all_heads() {
    let place = place(HEADS, "seeds = 3\n");
    let stdout = place.ok("train c.toml --out r --set train.epochs=3").out;
    assert!(stdout.contains("val_sold_accuracy") && stdout.contains("deviation"), "{stdout}");
    expect_means(&place, "seed");
    let evaluation = place.ok("eval r --json --predictions rows.jsonl").json();
    assert_eq!((&evaluation["samples"], &evaluation["by"]), (&120.into(), &"all".into()));
    for (name, expected) in FIGURES.iter().zip(measured(&rows(&place, "rows.jsonl"))) {
        assert!(near(evaluation["metrics"][name].as_f64().unwrap(), expected), "{name}: {expected}, and {evaluation}");
    }
}

/// A table has the columns of each head after those of the main target.
#[test]
fn rows_of_an_evaluation_have_all_heads() {
    let place = place(HEADS, "");
    place.ok("train c.toml --quiet --out r --set train.epochs=3");
    let figures = place.ok("eval r --json --predictions rows.csv").json()["metrics"].clone();
    let text = place.read("rows.csv");
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    assert_eq!(
        lines.next().unwrap(),
        [
            "sample",
            "line",
            "target",
            "prediction",
            "loss",
            "sold_target",
            "sold_prediction",
            "sold_loss",
            "sold_probability_fast",
            "sold_probability_slow",
            "sold_probability_soon",
            "kids_target",
            "kids_prediction",
            "kids_loss",
            "kids_probability",
        ]
    );
    let rows: Vec<Vec<&str>> = lines.collect();
    let mean = |at: usize| rows.iter().map(|row| row[at].parse::<f64>().unwrap()).sum::<f64>() / rows.len() as f64;
    for (at, figure) in [(7, "sold_loss"), (13, "kids_loss")] {
        assert!(near(mean(at), figures[figure].as_f64().unwrap()), "{figure}: {} and {figures}", mean(at));
    }
    let right = rows.iter().filter(|row| row[5] == row[6]).count() as f64 / rows.len() as f64;
    assert!(near(right, figures["sold_accuracy"].as_f64().unwrap()), "{right} and {figures}");
    // As the table has them.
    let table = place.read("t.csv");
    let line: Vec<&str> = table.lines().nth(rows[0][1].parse::<usize>().unwrap() - 1).unwrap().split(',').collect();
    assert_eq!([line[3], line[4], line[5]], [rows[0][2], rows[0][5], rows[0][11]]);
}
