//! Several models that differ in their seeds alone, and answer together.

use super::support::{Place, assert_same_runs};
use super::tables::houses;
use super::{masks, photos};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

fn config(data: &str) -> String {
    format!(
        "device = \"cpu\"\nseed = 3\n[data]\nsource = \"csv\"\npath = \"houses.csv\"\nid = \"id\"\nbatch_size = 32\n{data}\n\
         [model]\nlayers = [{{ type = \"linear\", out_features = 16 }}, \"relu\", {{ type = \"linear\", out_features = \"$classes\" }}]\n\
         [optimizer]\ntype = \"adam\"\nlr = 0.02\n"
    )
}

const PRICE: &str = "validation_split = 0.2\ntarget = \"price\"\n[loss]\ntype = \"mse\"";
const SEEDS: &str = "[train]\nepochs = 4\nseeds = 3\n";

fn place() -> Place {
    let place = Place::with(&(config(PRICE) + SEEDS));
    place.write("houses.csv", houses(90));
    place
}

/// The rows that a checkpoint is validated on, and what it says of each.
fn answers(place: &Place, model: &str) -> Vec<(String, f64)> {
    place.ok(&format!("eval {model} --predictions rows.jsonl"));
    let line = |line: &str| -> (String, f64) {
        let row: Value = serde_json::from_str(line).unwrap();
        (row["id"].as_str().unwrap().to_owned(), row["prediction"][0].as_f64().unwrap_or_else(|| panic!("{row}")))
    };
    place.read("rows.jsonl").lines().map(line).collect()
}

#[test]
fn seeds_answer_with_their_mean() {
    let place = place();
    let done = place.ok("train c.toml --out r");
    for part in ["seed 3 of 3", "val_rmse", "mean", "deviation", "the seeds are in `r`"] {
        assert!(done.out.contains(part) || done.err.contains(part), "{part}: {done:?}");
    }
    // All are validated on the same rows, and each says something else.
    let each: Vec<_> = (1..=3).map(|seed| answers(&place, &format!("r/seed-{seed}"))).collect();
    let rows = |all: &[(String, f64)]| all.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>();
    assert!(rows(&each[0]).len() == 18 && rows(&each[0]) == rows(&each[1]) && rows(&each[1]) == rows(&each[2]));
    assert!(each[0] != each[1] && each[1] != each[2]);
    let together = answers(&place, "r");
    assert_eq!(rows(&together), rows(&each[0]));
    for (at, (id, mean)) in together.iter().enumerate() {
        let expected = each.iter().map(|one| one[at].1).sum::<f64>() / 3.0;
        assert!((mean - expected).abs() < 1e-3 * expected.abs().max(1.0), "{id}: {mean} and {expected}");
    }
    // What is measured is what they say together.
    let figures = place.ok("eval r --json").json();
    assert_eq!((&figures["samples"], &figures["seeds"], &figures["by"]), (&18.into(), &3.into(), &"all".into()));
    let prices: Vec<f64> = {
        let line = |line: &str| serde_json::from_str::<Value>(line).unwrap()["target"][0].as_f64().unwrap();
        place.read("rows.jsonl").lines().map(line).collect()
    };
    let errors: f64 = together.iter().zip(&prices).map(|((_, said), price)| (said - price).abs()).sum();
    let mae = figures["metrics"]["mae"].as_f64().unwrap();
    assert!((mae - errors / 18.0).abs() < 1e-3 * mae, "{figures}");
    assert!(place.ok("eval r --split train").out.starts_with("train, 72 samples, by 3 seeds together:"));
    // Rows of another file.
    let lines: Vec<String> = houses(90).lines().take(4).map(str::to_owned).collect();
    place.write("new.csv", lines.join("\n") + "\n");
    let said = |model: &str| -> Vec<f64> {
        let done = place.ok(&format!("predict {model} new.csv --format jsonl"));
        let value = |line: &str| serde_json::from_str::<Value>(line).unwrap()["values"][0].as_f64().unwrap();
        done.out.lines().map(value).collect()
    };
    let (all, each) = (said("r"), [1, 2, 3].map(|seed| said(&format!("r/seed-{seed}"))));
    for (at, mean) in all.iter().enumerate() {
        let expected = each.iter().map(|one| one[at]).sum::<f64>() / 3.0;
        assert!((mean - expected).abs() < 1e-3 * expected.abs().max(1.0), "{mean} and {expected}");
    }
    // A seed by itself is the same run.
    place.ok("train c.toml --quiet --out second --unset train.seeds --set seed=4 --set data.seed=3");
    assert_same_runs((&place, "second"), (&place, "r/seed-2"));
    for command in ["export r m.onnx", "explain r"] {
        assert!(place.fails(command, 2).contains("seed-1"), "{command}");
    }
}

/// What the command line takes away is gone before the first of them begins.
#[test]
fn overrides_are_of_all_seeds() {
    let place = place();
    place.write("c.toml", (config(PRICE) + SEEDS).replace("lr = 0.02", "lr = 0.02\nbetas = [0.8, 0.9]"));
    place.ok("train c.toml --out r --set train.epochs=1 --set optimizer.type=sgd --unset optimizer.betas");
    for seed in 1..=3 {
        let config = place.read(&format!("r/seed-{seed}/config.toml"));
        assert!(config.contains("type = \"sgd\"") && !config.contains("betas"), "{config}");
    }
}

#[test]
fn equal_models_together_have_the_figures_of_one() {
    let place = Place::with("");
    place.write("houses.csv", houses(90));
    let classes = (
        "town",
        "cross_entropy",
        r#"["auroc", "average_precision", "calibration_error", "macro_f1", "top2_accuracy"]"#,
    );
    let numbers = ("[\"rooms\", \"price\"]", "mse", r#"["r2", "mape"]"#);
    let lines = |out: &str| out.lines().skip_while(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    for (at, (target, loss, figures)) in [classes, numbers].into_iter().enumerate() {
        let data = format!(
            "validation_split = 0.4\ntarget = {}\n[loss]\ntype = \"{loss}\"",
            if at == 0 { format!("{target:?}") } else { target.to_owned() }
        );
        place.write(
            "c.toml",
            format!("{}[train]\nepochs = 2\nseeds = 2\n[metrics]\nfigures = {figures}\n", config(&data)),
        );
        place.ok(&format!("train c.toml --quiet --out r{at}"));
        let [one, other] = [1, 2].map(|seed| place.path(&format!("r{at}/seed-{seed}/best.safetensors")));
        fs::copy(one, other).unwrap();
        let [one, both] = [format!("eval r{at}/seed-1"), format!("eval r{at}")]
            .map(|command| (place.ok(&format!("{command} --json")).json(), place.ok(&command).out));
        let (of_one, of_both) = (one.0["metrics"].as_object().unwrap(), both.0["metrics"].as_object().unwrap());
        assert!(of_one.len() >= 4, "{of_one:?}");
        for (name, value) in of_one {
            let [value, found] = [Some(value), of_both.get(name.as_str())]
                .map(|value| value.and_then(Value::as_f64).unwrap_or(f64::NAN));
            assert!((value - found).abs() < 1e-5 * value.abs().max(1.0), "{name}: {value}, together {found}");
        }
        for table in ["per_class", "confusion_matrix"] {
            assert_eq!(one.0[table], both.0[table]);
        }
        assert_eq!((one.0["per_class"].is_array(), one.0["per_target"].is_null()), (at == 0, at == 0));
        assert!(lines(&one.1).len() > 3 && (at == 1 || lines(&one.1) == lines(&both.1)), "{}\n{}", one.1, both.1);
    }
}

/// The loss of several models is that of their mean answer, for every loss of classes and of labels. It is reported with the figures that were asked for.
#[test]
fn the_loss_of_models_together_is_that_of_their_answer() {
    let place = Place::with("");
    place.write("houses.csv", houses(90).replace("sea", "aft"));
    let losses = [
        "\"cross_entropy\"",
        "\"cross_entropy\"\nlabel_smoothing = 0.2\nweight = [0.5, 2.0, 1.0]",
        "\"focal\"\ngamma = 1.5\nweight = [1.0, 3.0, 0.25]",
        "\"nll\"",
        "\"bce_with_logits\"",
        "\"bce_with_logits\"\npos_weight = [0.5, 3.0]",
        "\"sigmoid_focal\"\ngamma = 2.0\nalpha = 0.25",
    ];
    for (at, loss) in losses.into_iter().enumerate() {
        let of_labels = loss.contains("bce") || loss.contains("sigmoid");
        let target = if of_labels { "[\"old\", \"near\"]" } else { "\"town\"" };
        if of_labels {
            let label = |line: &str| {
                let age: usize = line.split(',').nth(2).unwrap().parse().unwrap_or(0);
                format!("{line},{},{}\n", u8::from(age > 20), u8::from(line.contains("aft")))
            };
            let rows: String = houses(90).replace("sea", "aft").lines().skip(1).map(label).collect();
            place.write("houses.csv", format!("id,rooms,age,town,price,old,near\n{rows}"));
        }
        let mut text = config(&format!("validation_split = 0.4\ntarget = {target}\n[loss]\ntype = {loss}"));
        if loss == "\"nll\"" {
            text = text.replace("\"$classes\" }]", "\"$classes\" }, { type = \"log_softmax\" }]");
        }
        place.write("c.toml", text.replace("\"$classes\"", if of_labels { "2" } else { "3" }));
        place.ok(&format!("train c.toml --quiet --out r{at} --set train.epochs=2 --set train.seeds=2"));
        let [one, other] = [1, 2].map(|seed| place.path(&format!("r{at}/seed-{seed}/best.safetensors")));
        fs::copy(one, other).unwrap();
        let [one, both] = [format!("eval r{at}/seed-1 --json"), format!("eval r{at} --json")]
            .map(|command| place.ok(&command).json()["metrics"].clone());
        let [of_one, of_both] = [&one, &both].map(|of| of["loss"].as_f64().unwrap_or(f64::NAN));
        assert!((of_one - of_both).abs() < 1e-5, "{loss}: {of_one}, together {of_both}");
        assert!(both["log_loss"].is_number(), "{both}");
        // A likelihood is listed once.
        let plain = loss == "\"nll\"" || loss == losses[0] || loss == losses[4];
        assert_eq!(place.ok(&format!("eval r{at}")).out.contains("log_loss"), !plain, "{loss}");
    }
}

#[test]
fn seeds_that_were_cut_off_go_on() {
    let place = place();
    place.ok("train c.toml --quiet --out whole");
    place.ok("train c.toml --quiet --out parts");
    fs::remove_dir_all(place.path("parts/seed-3")).unwrap();
    place.write("c.toml", "");
    place.ok("train --quiet --resume parts");
    for seed in ["seed-1", "seed-2", "seed-3"] {
        assert_same_runs((&place, &format!("whole/{seed}")), (&place, &format!("parts/{seed}")));
    }
    place.write("c.toml", config(PRICE) + SEEDS);
    assert!(place.fails("train c.toml --out whole", 2).contains("already holds seeds"));
    // Folds in their place, and seeds in the place of those.
    place.write("f.toml", config(&PRICE.replace("validation_split = 0.2", "folds = 2")) + "[train]\nepochs = 1\n");
    place.ok("train f.toml --quiet --out whole --force");
    assert_eq!(place.ok("eval whole --json").json()["folds"], 2);
    place.ok("train c.toml --quiet --out whole --force --set train.epochs=1");
    assert_eq!(place.ok("eval whole --json").json()["seeds"], 3);
}

/// The same command begins them and goes on with them, also where it says how many there are.
#[test]
fn a_command_with_seeds_goes_on_with_them() {
    let place = place();
    place.write("c.toml", config(PRICE) + "[train]\nepochs = 2\n");
    let command = "train c.toml --quiet --out r --resume auto --set train.seeds=2";
    place.ok(&format!("{command} --pause-after 1"));
    place.ok(command);
    assert_eq!(place.ok("eval r --json").json()["seeds"], 2);
    place.ok(command);
    // The newest, without its name.
    place.ok("train c.toml --quiet --set train.seeds=2 --pause-after 1");
    place.ok("train c.toml --quiet --resume");
    let newest = fs::read_dir(place.path("runs")).unwrap().next().unwrap().unwrap().path();
    assert!(newest.join("1/seed-2/best.safetensors").exists());
    let other = place.fails("train c.toml --quiet --out r --resume auto --set train.seeds=3", 2);
    assert!(other.contains("train.seeds"), "{other}");
}

/// Photos: the mean of probabilities, and one that cannot be read is reported once.
#[test]
fn photos_are_judged_by_all_seeds() {
    let place = photos::place("", photos::TRANSFORMS);
    place.ok("train c.toml --quiet --out r --set train.seeds=2 --set train.epochs=1");
    photos::photo(&place, "new.jpg", 1, 77);
    photos::photo(&place, "other.png", 0, 78);
    place.write("broken.png", "no image");
    let said = |model: &str, files: &str, code: i32| -> Vec<f64> {
        let done = place.run(&format!("predict {model} {files} --format jsonl --top 2"));
        assert_eq!(done.code, Some(code), "{done:?}");
        let first = |line: &str| {
            let row: Value = serde_json::from_str(line).unwrap();
            let top = row["top"].as_array().unwrap().clone();
            top.iter().find(|class| class["class"] == 0).unwrap()["probability"].as_f64().unwrap()
        };
        done.out.lines().map(first).collect()
    };
    let all = said("r", "new.jpg broken.png other.png", 1);
    let each = [1, 2].map(|seed| said(&format!("r/seed-{seed}"), "new.jpg other.png", 0));
    assert_eq!((all.len(), each[0].len()), (2, 2));
    for (at, mean) in all.iter().enumerate() {
        assert!((mean - (each[0][at] + each[1][at]) / 2.0).abs() < 1e-5, "{mean}: {each:?}");
    }
    assert!(each[0] != each[1]);
    let figures = place.ok("eval r --json").json();
    assert!(figures["metrics"]["loss"].is_number() && figures["samples"] == 6, "{figures}");
}

#[test]
fn seeds_say_what_they_need() {
    let place = place();
    let folds = config(&PRICE.replace("validation_split = 0.2", "folds = 3")) + SEEDS;
    place.write("w.toml", &folds);
    assert!(place.fails("train w.toml --out w", 2).contains("both ask for several trainings"));
    place.ok("train w.toml --quiet --out w --set data.fold=1 --set train.epochs=1 --set train.seeds=2");
    assert!(place.path("w/seed-2/best.safetensors").exists());
    let sweep = "[sweep]\nmethod = \"grid\"\nparameters = { \"optimizer.lr\" = [1e-3, 1e-2] }\n";
    place.write("w.toml", config(PRICE) + SEEDS + sweep);
    assert!(place.fails("sweep w.toml", 2).contains("is one training, and `seeds`"));
    assert!(place.fails("train c.toml --out x --set train.seeds=1", 2).contains("train.seeds"));
    place.write("input.txt", "To be, or not to be.\n".repeat(40));
    place.ok("init input.txt --out text.toml");
    assert!(place.fails("train text.toml --out x --set train.seeds=2", 2).contains("answer together"));
    let of_masks = masks::place(1, "");
    assert!(of_masks.fails("train c.toml --out x --set train.seeds=2", 2).contains("a class at each position"));
    assert!(place.fails("launch --ranks 2 -- train c.toml --out x", 2).contains("one process"));
}

/// The seed of the data says which samples are held out, whatever the seed of the training.
#[test]
fn data_has_a_seed_of_its_own() {
    let place = Place::with(&(config(PRICE) + "[train]\nepochs = 1\n"));
    place.write("houses.csv", houses(90));
    let held_out = |out: &str, sets: &str| -> BTreeSet<String> {
        place.ok(&format!("train c.toml --quiet --out {out} {sets}"));
        answers(&place, out).into_iter().map(|(id, _)| id).collect()
    };
    let first = held_out("a", "");
    assert_eq!(first, held_out("b", "--set seed=8 --set data.seed=3"));
    assert_ne!(first, held_out("c", "--set seed=8"));
    assert_ne!(first, held_out("d", "--set data.seed=4"));
    // It is no choice that may change on the way.
    assert!(place.fails("train --resume a --set data.seed=4 --set train.epochs=2", 2).contains("data.seed"));
}
