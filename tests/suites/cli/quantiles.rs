//! Several quantiles of each target, and the models that make vectors of columns.

use super::support::{Place, assert_same_runs};
use super::tables::place;
use serde_json::Value;
use std::fmt::Write;

/// Numbers `y` that are `x` and something that is drawn evenly from 0 to 1; `z` are ten times as much.
fn noisy(rows: u32) -> String {
    let mut text = String::from("x,y,z\n");
    for i in 0..rows {
        let x = f64::from(i * 7 % 40) / 10.0;
        let drawn = f64::from(i.wrapping_mul(2_654_435_761) >> 8) / f64::from(1 << 24);
        let _ = writeln!(text, "{x},{},{}", x + drawn, 10.0 * (x + drawn));
    }
    text
}

fn config(data: &str, model: &str, quantiles: &str) -> String {
    format!(
        "device = \"cpu\"\nseed = 3\n[data]\nsource = \"csv\"\npath = \"t.csv\"\nbatch_size = 64\n{data}\n[model]\n{model}\n\
         [loss]\ntype = \"quantile\"\nquantile = {quantiles}\n[optimizer]\ntype = \"adam\"\nlr = 0.01\n[train]\nepochs = 30\n"
    )
}

const NET: &str =
    "layers = [{ type = \"linear\", out_features = 16 }, \"relu\", { type = \"linear\", out_features = \"$classes\" }]";

fn noisy_place(data: &str, quantiles: &str) -> Place {
    let data = format!("{data}\nvalidation_split = 0.25");
    let place = Place::with(&config(&data, NET, quantiles));
    place.write("t.csv", noisy(1200));
    place
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// What is predicted of a sample, its target, and its loss.
type Row = (Vec<f64>, f64, f64);

/// The mean pinball loss of quantiles `x` of each target, as `sklearn.metrics.mean_pinball_loss` defines it.
fn pinball(quantiles: &[f64], x: &[f64], t: f64) -> f64 {
    let of = |(x, q): (&f64, &f64)| (t - x).max(0.0) * q + (x - t).max(0.0) * (1.0 - q);
    x.iter().zip(quantiles).map(of).sum::<f64>() / quantiles.len() as f64
}

#[test]
fn each_quantile_has_a_column_and_figures_go_by_the_middle_one() {
    let place = noisy_place("target = \"y\"\ndrop = [\"z\"]", "[0.1, 0.5, 0.9]");
    place.ok("train c.toml --quiet --out r");
    let figures = place.ok("eval r --json --predictions all.jsonl").json();
    let rows: Vec<Value> = place.read("all.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |row: &Value| -> Row {
        let all = row["prediction"].as_array().unwrap().iter().map(number).collect();
        (all, number(&row["target"][0]), number(&row["loss"]))
    };
    let rows: Vec<_> = rows.iter().map(of).collect();
    let n = rows.len() as f64;
    let mean = |of: &dyn Fn(&Row) -> f64| rows.iter().map(of).sum::<f64>() / n;
    let metric = |name: &str| number(&figures["metrics"][name]);
    // The targets' deviation, by which what is learnt is divided.
    let deviation = {
        let one = &rows[0];
        pinball(&[0.1, 0.5, 0.9], &one.0, one.1) / one.2
    };
    assert!(
        (mean(&|(x, t, _)| pinball(&[0.1, 0.5, 0.9], x, *t)) / deviation - metric("loss")).abs() < 1e-5,
        "{figures}"
    );
    assert!((mean(&|(x, t, _)| (x[1] - t).powi(2)).sqrt() - metric("rmse")).abs() < 1e-5, "{figures}");
    assert!((mean(&|(x, t, _)| (x[1] - t).abs()) - metric("mae")).abs() < 1e-5, "{figures}");
    let inside = mean(&|(x, t, _)| f64::from(x[0].min(x[2]) <= *t && *t <= x[2].max(x[0])));
    assert!((inside - metric("coverage")).abs() < 1e-9, "{figures}");
    // 0.8 of them, by their definition.
    assert!((metric("coverage") - 0.8).abs() < 0.1, "{figures}");
    // Evaluation of the training says the same.
    let last = place.metrics("r").into_iter().rev().find(|line| line["val_coverage"].is_number());
    assert!(last.is_some(), "the figure is measured without being asked for");

    place.write("new.csv", "x\n0.5\n3.5\n");
    let stdout = place.ok("predict r new.csv --format csv").out;
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines[0], "file,sample,y_q0.1,y_q0.5,y_q0.9");
    let cells: Vec<f64> = lines[1].split(',').skip(2).map(|cell| cell.parse().unwrap()).collect();
    // In the unit of the target: 0.5 and a tenth, a half, nine tenths.
    for (cell, wanted) in cells.iter().zip([0.6, 1.0, 1.4]) {
        assert!((cell - wanted).abs() < 0.15, "{stdout}");
    }
    let json = place.ok("predict r new.csv --json").json();
    assert!((number(&json[0]["quantiles"]["y_q0.9"]) - cells[2]).abs() < 1e-5, "{json}");
    let csv = place.ok("eval r --predictions all.csv");
    assert!(
        place.read("all.csv").starts_with("sample,line,target,prediction_q0.1,prediction_q0.5,prediction_q0.9,loss"),
        "{}",
        csv.out
    );
    // Shuffled columns are judged by the middle one, too.
    let explained = place.ok("explain r --json").json();
    assert!((number(&explained["value"]) - metric("rmse")).abs() < 1e-4, "{explained}");
    let curve = place.ok("explain r --column x --json").json();
    assert_eq!(curve["outputs"], serde_json::json!(["y_q0.1", "y_q0.5", "y_q0.9"]));
}

#[test]
fn several_targets_have_quantiles_of_their_own() {
    let place = noisy_place("target = [\"y\", \"z\"]", "[0.2, 0.8]");
    place.ok("train c.toml --quiet --out r");
    let figures = place.ok("eval r --json").json();
    assert!(number(&figures["metrics"]["coverage"]) > 0.4, "{figures}");
    assert_eq!(figures["per_target"].as_array().map(Vec::len), Some(2), "{figures}");
    place.write("new.csv", "x\n2.0\n");
    let row = place.ok("predict r new.csv --json").json();
    let of = |name: &str| number(&row[0]["quantiles"][name]);
    assert!((of("y_q0.2") - 2.2).abs() < 0.25 && (of("y_q0.8") - 2.8).abs() < 0.25, "{row}");
    assert!((of("z_q0.2") - 22.0).abs() < 2.5 && (of("z_q0.8") - 28.0).abs() < 2.5, "{row}");
    // A stop and threads change no bit.
    place.ok("train c.toml --quiet --out parts --set train.epochs=7 --set data.workers=0 --threads 1");
    place.ok("train c.toml --quiet --out parts --resume --set train.epochs=30");
    assert_same_runs((&place, "r"), (&place, "parts"));
}

/// Members learn all quantiles, and what they say is the mean of each.
#[test]
fn members_and_folds_have_quantiles() {
    let model = "use = \"tabular\"\nwith = { members = 4, width = 16, bins = 6, embedding_dim = 3 }";
    let place = Place::with(&config("target = \"y\"\ndrop = [\"z\"]\nfolds = 2", model, "[0.1, 0.5, 0.9]"));
    place.write("t.csv", noisy(600));
    place.ok("train c.toml --quiet --out r --set train.epochs=8");
    let figures = place.ok("eval r --json").json();
    let coverage = number(&figures["metrics"]["coverage"]);
    assert!((0.5..=1.0).contains(&coverage), "{figures}");
    place.write("new.csv", "x\n1.0\n");
    let stdout = place.ok("predict r new.csv --format csv").out;
    assert!(stdout.starts_with("file,sample,y_q0.1,y_q0.5,y_q0.9\n"), "{stdout}");
}

#[test]
fn mistakes_about_quantiles_have_their_places() {
    let place = noisy_place("target = \"y\"", "[0.1, 0.9]");
    let fault = |set: &str| place.fails(&format!("check c.toml --set {set}"), 2);
    for (set, part) in [
        ("loss.quantile=[0.5,1.0]", "a number above 0 and below 1"),
        ("loss.quantile=0", "a number above 0 and below 1"),
        ("loss.quantile=[0.9,0.1]", "must be in ascending order"),
        ("loss.quantile=[0.5,0.5]", "each once"),
        ("loss.quantile=[]", "a list of at least one"),
        ("loss.quantile=[\"half\"]", "quantile"),
        ("loss.target=inputs", "cannot be learnt by several quantiles"),
    ] {
        let text = fault(set);
        assert!(text.contains(part), "{set}: {text}");
    }
    let text = place.read("c.toml").replace("\"$classes\"", "1");
    place.write("c.toml", text);
    let text = place.fails("check c.toml", 2);
    assert!(
        text.contains("the model puts out [1] for each sample, but the targets are [1], of 2 quantiles each"),
        "{text}"
    );
    assert!(text.contains("`out_features = 2`"), "{text}");
    let text = place.fails("check c.toml --set loss.quantile=0.5 --set metrics.figures=[\"coverage\"]", 2);
    assert!(text.contains("there is no `coverage` of a model that puts out one number for each target"), "{text}");
    // A list of one is one.
    place.ok("check c.toml --set loss.quantile=[0.9]");
}

/// Houses by the models whose layers make vectors of columns that have no bins.
#[test]
fn columns_become_waves_and_tokens() {
    let place = place(200);
    let layers = |text: &str| {
        let config = place.read("c.toml");
        let (begin, end) = (config.find("layers = ").unwrap(), config.find("\n[loss]").unwrap());
        format!("{}{text}{}", &config[..begin], &config[end..])
    };
    let periodic = "layers = [{ name = \"embedding\", type = \"periodic_embedding\", n_frequencies = 8, frequency_init_scale = 0.2 }, \
                    { type = \"ensemble_affine\", members = 4 }, { type = \"linear\", out_features = 16 }, \"relu\", \
                    { type = \"ensemble_linear\", out_features = 1 }, \"ensemble_mean\"]";
    let tokens = "use = \"ft_transformer\"\nwith = { width = 16, num_blocks = 2, heads = 2, hidden = 16, attention_dropout = 0.0 }";
    for (name, model) in [("waves", periodic), ("tokens", tokens)] {
        place.write("m.toml", layers(model));
        place.ok(&format!("train m.toml --quiet --out {name} --set train.epochs=60 --set optimizer.lr=0.01"));
        let figures = place.ok(&format!("eval {name} --json")).json();
        assert!(number(&figures["metrics"]["rmse"]) < 80.0, "{name}: {figures}");
        place.ok(&format!("train m.toml --quiet --out {name}2 --set train.epochs=3 --set optimizer.lr=0.01"));
        place.ok(&format!("train m.toml --quiet --out {name}2 --resume --set train.epochs=60 --threads 1"));
        assert_same_runs((&place, name), (&place, &format!("{name}2")));
        place.write("new.csv", "town,rooms,age,id\nsea,9,,x1\nmoon,1,40,x2\n");
        let rows = place.ok(&format!("predict {name} new.csv --json")).json();
        assert!(number(&rows[0]["values"][0]) > number(&rows[1]["values"][0]), "{name}: {rows}");
        place.ok(&format!("export {name} {name}.onnx"));
    }
    // Text without a place, missing cells: a token for each number, one for the category, and one that the head reads.
    let shown = place.ok("check m.toml").out;
    assert!(shown.contains("[32, 4, 16]") && shown.contains("[32, 5, 16]"), "{shown}");
    let fault = |text: &str| {
        place.write("w.toml", layers(text));
        place.fails("check w.toml", 2)
    };
    for kind in ["feature_tokenizer", "periodic_embedding"] {
        let text = fault(&format!(
            "layers = [{{ type = \"linear\", out_features = 3 }}, \"{kind}\", \"flatten\", {{ type = \"linear\", out_features = 1 }}]"
        ));
        assert!(text.contains(&format!("`{kind}` takes the columns of a table")), "{text}");
    }
    let text = fault(
        "layers = [{ type = \"periodic_embedding\", lite = true, activation = false }, { type = \"linear\", out_features = 1 }]",
    );
    assert!(text.contains("needs the ReLU"), "{text}");
}
