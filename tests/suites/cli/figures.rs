//! Figures of evaluation that are asked for, against what the rows of `eval --predictions` come to; and those rows.

use super::support::{Done, Place, plain};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::Value;

fn rows(place: &Place, name: &str) -> Vec<Value> {
    place.read(name).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn floats(value: &Value) -> Vec<f64> {
    match value.as_array() {
        Some(list) => list.iter().map(|x| x.as_f64().unwrap()).collect(),
        None => vec![value.as_f64().unwrap()],
    }
}

fn close(got: &Value, expected: f64, what: &str) {
    let got = got.as_f64().unwrap_or_else(|| panic!("{what} is {got}"));
    assert!((got - expected).abs() <= 1e-6 * expected.abs().max(1.0), "{what} is {got}, not {expected}");
}

/// The share of pairs of a yes and a no of which the yes has the larger score, half for equal ones.
fn auroc(scores: &[(f64, bool)]) -> f64 {
    let of = |wanted: bool| scores.iter().filter(move |(_, is)| *is == wanted).map(|(score, _)| *score);
    let (mut won, mut all) = (0.0, 0.0);
    for yes in of(true) {
        for no in of(false) {
            won += f64::from(u8::from(yes > no)) + 0.5 * f64::from(u8::from(yes == no));
            all += 1.0;
        }
    }
    won / all
}

/// The mean over the samples of a class of the precision at their scores.
fn average_precision(scores: &[(f64, bool)]) -> f64 {
    let precision = |at: f64| {
        let above: Vec<bool> = scores.iter().filter(|(score, _)| *score >= at).map(|(_, is)| *is).collect();
        above.iter().filter(|is| **is).count() as f64 / above.len() as f64
    };
    let yes: Vec<f64> = scores.iter().filter(|(_, is)| *is).map(|(score, _)| precision(*score)).collect();
    yes.iter().sum::<f64>() / yes.len() as f64
}

fn mean(list: impl IntoIterator<Item = f64>) -> f64 {
    let list: Vec<f64> = list.into_iter().collect();
    list.iter().sum::<f64>() / list.len() as f64
}

const ALL: &str = "--set metrics.figures=['auroc','average_precision','calibration_error','perplexity']";

#[test]
fn figures_of_classes_are_those_of_the_rows() {
    let place = Place::with(&plain());
    place.ok(&format!(
        "train c.toml --out r --quiet {ALL} --set checkpoint.monitor=val_auroc --set train.early_stopping.monitor=val_perplexity \
         --set schedule.type=plateau --set schedule.monitor=val_calibration_error"
    ));
    let done = place.ok("eval r/last.safetensors --json --predictions p.jsonl");
    let figures = done.json()["metrics"].clone();
    let (rows, epoch) = (rows(&place, "p.jsonl"), place.metrics("r").pop().unwrap());
    assert_eq!(rows.len(), 100);
    let classes = floats(&rows[0]["probabilities"]).len();
    let scores = |class: usize| -> Vec<(f64, bool)> {
        let row = |row: &Value| (floats(&row["probabilities"])[class], row["target"] == class);
        rows.iter().map(row).collect()
    };
    close(&figures["auroc"], mean((0..classes).map(|class| auroc(&scores(class)))), "auroc");
    let expected = mean((0..classes).map(|class| average_precision(&scores(class))));
    close(&figures["average_precision"], expected, "average_precision");
    let losses = rows.iter().map(|row| row["loss"].as_f64().unwrap());
    close(&figures["loss"], mean(losses.clone()), "loss");
    close(&figures["perplexity"], mean(losses).exp(), "perplexity");
    let right = rows.iter().filter(|row| row["target"] == row["prediction"]).count();
    assert_eq!(figures["accuracy"].as_f64(), Some(right as f64 / 100.0));
    for figure in ["auroc", "average_precision", "calibration_error", "perplexity"] {
        assert_eq!(epoch[format!("val_{figure}")], figures[figure], "{figure}: what training said");
        assert!(place.read("r/metrics.csv").lines().next().unwrap().contains(&format!(",val_{figure}")));
    }
    assert_eq!(rows[7]["sample"], 7);
    // With label smoothing the loss is no likelihood, but there is one all the same.
    let smooth = "--set loss.label_smoothing=0.1";
    let smoothed = place.ok(&format!("eval r/last.safetensors --json {smooth} --predictions s.jsonl")).json();
    close(&smoothed["metrics"]["perplexity"], figures["perplexity"].as_f64().unwrap(), "perplexity");
    assert!(rows_without_loss(&place, "s.jsonl") && smoothed["metrics"]["loss"] != figures["loss"]);
    // `best` follows the figure that is watched.
    let best = place.checkpoint("r/best.safetensors").meta.best.unwrap();
    assert_eq!(best.monitor, "val_auroc");
    let most = place.metrics("r").iter().filter_map(|line| line["val_auroc"].as_f64()).fold(0.0, f64::max);
    assert_eq!(best.value, most);
}

fn rows_without_loss(place: &Place, name: &str) -> bool {
    rows(place, name).iter().all(|row| row["loss"].is_null())
}

#[test]
fn a_table_of_predictions_has_the_same_numbers() {
    let place = Place::with(&plain());
    place.ok("train c.toml --out r --quiet");
    place.ok("eval r/last.safetensors --predictions p.jsonl --split test");
    let done = place.ok("eval r/last.safetensors --predictions p.csv --split test");
    assert!(done.err.contains("wrote 297 rows to `p.csv`"), "{}", done.err);
    let text = place.read("p.csv");
    let mut lines = text.lines();
    assert!(lines.next().unwrap().starts_with("sample,target,prediction,loss,probability_0,probability_1,"));
    for (line, row) in lines.zip(rows(&place, "p.jsonl")) {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(cells[0], row["sample"].to_string());
        assert_eq!(cells[1], row["target"].to_string());
        assert_eq!(cells[2], row["prediction"].to_string());
        assert_eq!(cells[3].parse::<f64>().unwrap(), row["loss"].as_f64().unwrap());
        let probabilities: Vec<f64> = cells[4..].iter().map(|cell| cell.parse().unwrap()).collect();
        assert_eq!(probabilities, floats(&row["probabilities"]));
        assert!((probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
    assert_eq!(text.lines().count(), 298);
    let message = place.fails("eval r/last.safetensors --predictions p.txt", 2);
    assert!(message.contains("`p.txt` names no format") && message.contains(".jsonl"), "{message}");
    let message = place.fails("eval r/last.safetensors --predictions no/such/p.csv", 2);
    assert!(message.contains("cannot write `no/such/p.csv`"), "{message}");
    // A failed evaluation leaves what was there, and no rest.
    let message = place.fails("eval r/last.safetensors --predictions p.csv --set data.limit_val=0", 2);
    assert!(!message.contains("cannot write"), "{message}");
    assert_eq!(place.read("p.csv"), text);
    assert!(
        !std::fs::read_dir(place.path("")).unwrap().any(|e| e.unwrap().file_name().to_string_lossy().contains(".tmp"))
    );
}

/// Numbers that a model can learn: `inputs` of two, `targets` of `width`.
fn numbers(width: usize, target: fn(usize, usize) -> f32) -> Vec<u8> {
    let number = |i: usize, c: usize| ((i * 37 + c * 11) % 17) as f32 / 8.0 - 1.0;
    let inputs: Vec<u8> = (0..40).flat_map(|i| (0..2).flat_map(move |c| number(i, c).to_le_bytes())).collect();
    let targets: Vec<u8> = (0..40).flat_map(|i| (0..width).flat_map(move |c| target(i, c).to_le_bytes())).collect();
    let views = [
        ("inputs", TensorView::new(Dtype::F32, vec![40, 2], &inputs).unwrap()),
        ("targets", TensorView::new(Dtype::F32, vec![40, width], &targets).unwrap()),
    ];
    safetensors::serialize(views, None).unwrap()
}

fn config(loss: &str, width: usize, figures: &str) -> String {
    format!(
        "device = \"cpu\"\n[data]\nsource = \"tensors\"\npath = \"s.safetensors\"\nbatch_size = 8\neval_batch_size = 7\nvalidation_split = 20\n\
         [model]\nlayers = [{{ type = \"linear\", out_features = {width} }}]\n[loss]\ntype = \"{loss}\"\n[optimizer]\ntype = \"sgd\"\n\
         lr = 0.05\n[train]\nepochs = 3\n[metrics]\nfigures = {figures}\n"
    )
}

#[test]
fn figures_of_regressions_are_those_of_the_rows() {
    for width in [1, 3] {
        let place = Place::with(&config("huber", width, "[\"r2\", \"mape\"]"));
        place.write("s.safetensors", numbers(width, |i, c| 3.0 + ((i * 5 + 3 * c) % 11) as f32 / 4.0));
        place.ok("train c.toml --out r --quiet --set checkpoint.monitor=val_r2");
        let figures = place.ok("eval r/last.safetensors --json --predictions p.jsonl").json()["metrics"].clone();
        let rows = rows(&place, "p.jsonl");
        let column = |key: &str, c: usize| rows.iter().map(|row| floats(&row[key])[c]).collect::<Vec<f64>>();
        let pairs = |c: usize| column("target", c).into_iter().zip(column("prediction", c));
        let r2 = |c: usize| {
            let middle = mean(column("target", c));
            let left: f64 = pairs(c).map(|(t, x)| (t - x).powi(2)).sum();
            1.0 - left / column("target", c).iter().map(|t| (t - middle).powi(2)).sum::<f64>()
        };
        close(&figures["r2"], mean((0..width).map(r2)), "r2");
        let relative = |c: usize| mean(pairs(c).map(|(t, x)| (t - x).abs() / t));
        close(&figures["mape"], mean((0..width).map(relative)), "mape");
        close(&figures["loss"], mean(rows.iter().map(|row| row["loss"].as_f64().unwrap())), "loss");
        assert_eq!(place.metrics("r").pop().unwrap()["val_r2"], figures["r2"]);
    }
}

#[test]
fn figures_of_labels_are_those_of_the_rows() {
    let place = Place::with(&config("bce_with_logits", 2, "[\"auroc\", \"average_precision\", \"calibration_error\"]"));
    place.write("s.safetensors", numbers(2, |i, c| ((i * 7 + c) % 3 == 0) as u8 as f32));
    place.ok("train c.toml --out r --quiet");
    let figures = place.ok("eval r/last.safetensors --json --predictions p.jsonl").json()["metrics"].clone();
    let rows = rows(&place, "p.jsonl");
    let scores = |c: usize| -> Vec<(f64, bool)> {
        rows.iter().map(|row| (floats(&row["probabilities"])[c], floats(&row["target"])[c] == 1.0)).collect()
    };
    close(&figures["auroc"], mean((0..2).map(|c| auroc(&scores(c)))), "auroc");
    close(&figures["average_precision"], mean((0..2).map(|c| average_precision(&scores(c)))), "average_precision");
    close(&figures["loss"], mean(rows.iter().map(|row| row["loss"].as_f64().unwrap())), "loss");
    assert!(figures["calibration_error"].as_f64().is_some_and(|x| x > 0.0 && x < 1.0));
    let table = place.ok("eval r/last.safetensors --predictions p.csv").out;
    assert!(table.contains("auroc") && table.contains("calibration_error"), "{table}");
    let head = place.read("p.csv").lines().next().unwrap().to_owned();
    assert_eq!(head, "sample,target_1,target_2,prediction_1,prediction_2,loss,probability_1,probability_2");
}

/// Several columns of yes and no, of a table or of its heads, are called as they are there.
#[test]
fn labels_of_a_table_have_the_names_of_their_columns() {
    let place = Place::with(
        "[data]\nsource = \"csv\"\npath = \"t.csv\"\ntarget = [\"ill\", \"old\"]\nbatch_size = 8\nvalidation_split = 0.25\n[model]\nuse = \"linear\"\n\
         [loss]\ntype = \"bce_with_logits\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n",
    );
    let rows: String = (0..40).map(|i| format!("{},{},{}\n", i * 7 % 11, i % 2, i / 2 % 2)).collect();
    place.write("t.csv", format!("a,ill,old\n{rows}"));
    place.ok("train c.toml --out r --quiet");
    let table = place.ok("eval r --predictions p.csv").out;
    let named = |name: &str| table.lines().any(|line| line.starts_with(&format!("{name} ")));
    assert!(named("ill") && named("old"), "{table}");
    let head = place.read("p.csv").lines().next().unwrap().to_owned();
    assert_eq!(
        head,
        "sample,line,target_ill,target_old,prediction_ill,prediction_old,loss,probability_ill,probability_old"
    );
    let labels = place.ok("eval r --json").json()["per_class"].clone();
    assert_eq!(
        (&labels[0]["label"], &labels[0]["name"], &labels[1]["name"]),
        (&0.into(), &"ill".into(), &"old".into())
    );
}

#[test]
fn a_set_of_one_class_is_noted() {
    let place = Place::with(&config("bce_with_logits", 1, "[\"auroc\"]"));
    place.write("s.safetensors", numbers(1, |_, _| 1.0));
    let all = |done: &Done| done.err.matches("there is no `auroc`: all samples have the label 0").count();
    let done = place.ok("train c.toml --out r --set checkpoint.monitor=val_auroc");
    // Once in a run, not after every epoch; and there is no best.
    assert_eq!(all(&done), 1, "{}", done.err);
    assert!(place.metrics("r").pop().unwrap()["val_auroc"].is_null() && !place.path("r/best.safetensors").exists());
    let done = place.ok("eval r/last.safetensors --json");
    assert_eq!(all(&done), 1, "{}", done.err);
    assert!(done.json()["metrics"]["auroc"].is_null() && done.json()["note"].as_str().unwrap().contains("no `auroc`"));
}

#[test]
fn positions_have_rows_of_json_alone() {
    let place = Place::with(
        "[data]\nsource = \"tensors\"\npath = \"s.safetensors\"\nbatch_size = 4\nvalidation_split = 4\n[model]\nlayers = [{ type = \
         \"linear\", out_features = 3 }]\n[loss]\ntype = \"cross_entropy\"\nignore_index = 2\n[optimizer]\ntype = \"sgd\"\nlr = 0.1\n\
         [train]\nepochs = 1\n[metrics]\nfigures = [\"perplexity\", \"auroc\"]\n",
    );
    let inputs: Vec<u8> = (0..12 * 5 * 2).flat_map(|i| ((i % 7) as f32).to_le_bytes()).collect();
    let targets: Vec<u8> = (0..12 * 5i64).flat_map(|i| (i % 3).to_le_bytes()).collect();
    let views = [
        ("inputs", TensorView::new(Dtype::F32, vec![12, 5, 2], &inputs).unwrap()),
        ("targets", TensorView::new(Dtype::I64, vec![12, 5], &targets).unwrap()),
    ];
    place.write("s.safetensors", safetensors::serialize(views, None).unwrap());
    let done = place.ok("train c.toml --out r");
    assert!(done.err.contains("no sample has the class 2"), "{}", done.err);
    let figures = place.ok("eval r/last.safetensors --json --predictions p.jsonl").json()["metrics"].clone();
    close(&figures["perplexity"], figures["loss"].as_f64().unwrap().exp(), "perplexity");
    let rows = rows(&place, "p.jsonl");
    assert_eq!(rows.len(), 4);
    let counted = |row: &Value| {
        let list = |key: &str| row[key].as_array().unwrap().clone();
        let pairs: Vec<(Value, Value)> = list("target").into_iter().zip(list("prediction")).collect();
        assert_eq!(pairs.len(), 5);
        // A target that does not count is null.
        let known = pairs.iter().filter(|(t, _)| !t.is_null()).count();
        (pairs.iter().filter(|(t, p)| t == p).count(), known)
    };
    let (right, all) = rows.iter().map(counted).fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
    close(&figures["accuracy"], right as f64 / all as f64, "accuracy");
    let message = place.fails("eval r/last.safetensors --predictions p.csv", 2);
    assert!(message.contains("no room for a class at each position") && message.contains(".jsonl"), "{message}");
}

#[test]
fn the_samples_that_best_was_chosen_on_are_named() {
    let place = Place::with(&plain());
    let chosen = |args: &str| place.ok(&format!("eval {args} --json")).json()["chosen"].clone();
    let done = place.ok("train c.toml --out r");
    assert!(done.err.contains("100 validation samples (the test set)"), "{}", done.err);
    assert!(
        done.err
            .contains(", chosen on the test set (`data.validation_split` holds samples out for that); the run is in"),
        "{}",
        done.err
    );
    // No choice was asked for: no warning.
    assert!(!done.err.contains("warning"), "{}", done.err);
    let on_test = chosen("r/best.safetensors");
    assert_eq!((on_test["on"].as_str(), on_test["same_samples"].as_bool()), (Some("test_set"), Some(true)));
    assert_eq!(on_test["monitor"], "val_accuracy");
    assert_eq!(chosen("r/best.safetensors --split test")["same_samples"], true);
    assert!(chosen("r/last.safetensors").is_null());
    assert!(
        place
            .ok("eval r/best.safetensors")
            .err
            .contains("was chosen by `val_accuracy` on these samples (the test set)")
    );
    let done = place.ok("train c.toml --out s --set data.validation_split=50");
    assert!(done.err.contains("chosen on held-out samples") && !done.err.contains("the test set"), "{}", done.err);
    let held_out = chosen("s/best.safetensors --split test");
    assert_eq!((held_out["on"].as_str(), held_out["same_samples"].as_bool()), (Some("held_out"), Some(false)));
    // A run whose user asks for decisions on the test set has a warning, which says what to set.
    let done = place.ok("check c.toml --set train.early_stopping.monitor=val_loss");
    assert!(done.err.contains("the test set makes decisions") && done.err.contains("validation_split"), "{}", done.err);
}
