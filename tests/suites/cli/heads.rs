//! Further targets of a table that the same model learns.

use super::support::{Place, assert_same_runs, repository};
use runner::api::predictor::{Options, Predictor};
use serde_json::Value;
use std::fmt::Write;
use std::fs;

/// Flats with a price, how fast they were sold, and whether a family bought them.
fn flats(rows: u32) -> String {
    let mut text = String::from("area,rooms,city,price,sold,family\n");
    for i in 0..rows {
        let drawn = |times: u32, of: u32| (i.wrapping_mul(times) >> 7) % of;
        let (area, rooms, city) = (30 + drawn(2_654_435_761, 170), 1 + drawn(40_503, 6), drawn(69_069, 3));
        let price = 100 * area + 500 * rooms + [0, 2000, 900][city as usize];
        let sold = ["fast", "soon", "slow"][usize::from(area > 80) + usize::from(area > 140)];
        let family = u32::from(rooms > 3);
        let _ = writeln!(text, "{area},{rooms},{},{price},{sold},{family}", ["A", "B", "C"][city as usize]);
    }
    text
}

pub const HEADS: &str = "[[heads]]\ntarget = \"sold\"\nloss = \"cross_entropy\"\nweight = 0.5\n\
                     [[heads]]\nname = \"kids\"\ntarget = \"family\"\noutput = \"ends.family\"\nloss = { type = \"bce_with_logits\" }\n";

fn config(heads: &str, more: &str) -> String {
    format!(
        r#"device = "cpu"
seed = 3
[data]
source = "csv"
path = "t.csv"
target = "price"
validation_split = 0.25
batch_size = 32
[model]
layers = [
  {{ name = "body", layers = [{{ type = "linear", out_features = 24 }}, "relu", {{ type = "linear", out_features = 24 }}, "relu"] }},
  {{ name = "sold", type = "linear", out_features = 3 }},
  {{ name = "ends", from = "body", layers = [{{ name = "family", type = "linear", out_features = 1 }}] }},
  {{ name = "price", type = "linear", out_features = 1, from = "body" }},
]
[loss]
type = "mse"
{heads}[optimizer]
type = "adam"
lr = 0.01
[train]
epochs = 8
{more}"#
    )
}

pub fn place(heads: &str, more: &str) -> Place {
    let place = Place::with(&config(heads, more));
    place.write("t.csv", flats(480));
    place
}

fn golden() -> (Place, Value) {
    let (place, from) = (Place::new(), repository("tests/golden/heads"));
    for (file, to) in [
        ("config.toml", "c.toml"),
        ("start.safetensors", "start.safetensors"),
        ("t.csv", "t.csv"),
        ("val.csv", "val.csv"),
    ] {
        fs::copy(from.join(file), place.path(to)).unwrap();
    }
    (place, serde_json::from_slice(&fs::read(from.join("golden.json")).unwrap()).unwrap())
}

fn close(a: &Value, b: &Value, by: f64) -> bool {
    let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
    (a - b).abs() <= by * (1.0 + b.abs())
}

/// The sum of three losses with weights, each a weighted mean over rows: losses, figures and outputs of a training.
#[test]
fn losses_are_summed_as_in_pytorch() {
    let (place, golden) = golden();
    place.ok("train c.toml --quiet --out r");
    let lines = place.metrics("r");
    let of = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).cloned().collect::<Vec<Value>>();
    let (steps, epochs) = (of("step"), of("epoch"));
    let wanted = [golden["steps"].as_array().unwrap(), golden["evaluations"].as_array().unwrap()];
    assert_eq!([steps.len(), epochs.len()], wanted.map(Vec::len));
    for (step, wanted) in steps.iter().zip(wanted[0]) {
        assert!(close(&step["loss"], wanted, 1e-5), "{step}, not {wanted}");
    }
    for (epoch, wanted) in epochs.iter().zip(wanted[1]) {
        for (figure, value) in wanted.as_object().unwrap() {
            assert!(close(&epoch[format!("val_{figure}")], value, 1e-4), "{figure}: {epoch}, not {wanted}");
        }
        // All rows are one batch: the figure of training is the step's.
        assert!(
            epoch["train_loss"].is_f64() && epoch["train_kind_accuracy"].is_f64() && epoch["train_sold_loss"].is_f64()
        );
    }
    let metrics = place.ok("eval r/last.safetensors --json").json()["metrics"].clone();
    let last = wanted[1].last().unwrap();
    assert!(
        last.as_object().unwrap().iter().all(|(figure, value)| close(&metrics[figure], value, 1e-4)),
        "{metrics}, not {last}"
    );

    // The outputs of all three, when the data of training is gone.
    fs::remove_file(place.path("t.csv")).unwrap();
    let rows = place.ok("predict r/last.safetensors val.csv --json").json();
    let outputs = &golden["outputs"];
    for (i, row) in rows.as_array().unwrap().iter().enumerate() {
        assert!(close(&row["values"][0], &outputs["price"][i], 1e-4), "{row}");
        assert!(close(&row["heads"]["sold"]["probabilities"][0], &outputs["sold"][i], 1e-4), "{row}");
        let kinds = row["heads"]["kind"]["top"].as_array().unwrap();
        for kind in kinds {
            assert!(
                close(&kind["probability"], &outputs["kind"][i][kind["class"].as_u64().unwrap() as usize], 1e-4),
                "{row}"
            );
        }
        assert_eq!(kinds[0]["label"], ["flat", "house", "loft"][kinds[0]["class"].as_u64().unwrap() as usize]);
    }
    assert_eq!(rows.as_array().unwrap().len(), outputs["price"].as_array().unwrap().len());
}

#[test]
fn all_targets_are_learnt_and_predicted() {
    let place = place(HEADS, "");
    let done = place.ok("train c.toml --out r");
    assert!(done.out.contains(" sold_acc kids_acc"), "{done:?}");
    let last = place.metrics("r").into_iter().rev().find(|line| line["kind"] == "epoch").unwrap();
    for (figure, least) in [("val_sold_accuracy", 0.85), ("val_kids_accuracy", 0.95)] {
        assert!(last[figure].as_f64().unwrap() > least, "{last}");
    }
    assert!(last["val_rmse"].as_f64().unwrap() < 1500.0, "{last}");
    assert!(
        place
            .read("r/metrics.csv")
            .lines()
            .next()
            .unwrap()
            .contains("train_sold_loss,val_sold_loss,train_sold_accuracy")
    );
    place.ok("verify r");
    let sum = last["val_loss"].as_f64().unwrap();
    let (sold, kids) = (last["val_sold_loss"].as_f64().unwrap(), last["val_kids_loss"].as_f64().unwrap());
    assert!(sum > 0.5 * sold + kids && sold > 0.0 && kids > 0.0, "{last}");

    place.write("new.csv", "area,rooms,city\n40,2,A\n150,5,C\n");
    let stdout = place.ok("predict r new.csv --format csv --top 1").out;
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines[0], "file,sample,value,sold_class,sold_probability,kids_probability_0");
    let cells: Vec<Vec<&str>> = lines[1..].iter().map(|line| line.split(',').collect()).collect();
    assert_eq!([cells[0][3], cells[1][3]], ["fast", "slow"], "{stdout}");
    let [none, some] = [0, 1].map(|row| cells[row][5].parse::<f64>().unwrap());
    assert!(none < 0.5 && some > 0.5, "{stdout}");
    let text = place.ok("predict r new.csv --top 1").out;
    assert!(text.contains("  sold:\n") && text.contains(" %  fast\n") && text.contains("  kids:\n"), "{text}");
    let line = place.ok("predict r new.csv new.csv --top 1").out;
    assert!(line.lines().next().unwrap().contains("; sold: ") && line.contains("; kids: "), "{line}");
    place.ok("predict r new.csv --top 1 --out p.parquet");
    let bytes = fs::read(place.path("p.parquet")).unwrap();
    assert!(
        ["sold_probability", "kids_probability_0"]
            .iter()
            .all(|name| bytes.windows(name.len()).any(|at| at == name.as_bytes()))
    );
    assert!(place.ok("explain r").err.contains("not of its heads"));
}

/// The parameters of a run whose names begin so.
fn parameters(place: &Place, run: &str, names: &[&str]) -> Vec<(String, Vec<u8>)> {
    let all = place.checkpoint(&format!("{run}/last.safetensors")).tensors;
    let own = all.into_iter().filter(|(name, _)| names.iter().any(|own| name.starts_with(own)));
    own.map(|(name, tensor)| (name, tensor.data)).collect()
}

/// A head that weighs nothing changes nothing: the trunk has the bits that it has without.
#[test]
fn a_head_of_weight_0_leaves_the_others_as_they_are() {
    let place = place("", "");
    let drop = "--set data.drop=[\"sold\",\"family\"]";
    place.ok(&format!("train c.toml --quiet --out alone {drop} --set lint.allow=[\"unused_layer\"]"));
    place.write(
        "h.toml",
        config(
            &HEADS.replace("weight = 0.5", "weight = 0").replace("[[heads]]\nname", "[[heads]]\nweight = 0\nname"),
            "",
        ),
    );
    place.ok("train h.toml --quiet --out nothing");
    let [a, b] = ["alone", "nothing"].map(|run| parameters(&place, run, &["body", "price"]));
    assert_eq!(a.len(), 6);
    assert!(a == b);
    // One that weighs something does change it.
    place.write("h.toml", config(HEADS, ""));
    place.ok("train h.toml --quiet --out something");
    assert!(parameters(&place, "something", &["body"]) != parameters(&place, "nothing", &["body"]));
}

/// Stopped within an epoch and killed, with sums over micro-batches and evaluations within epochs.
#[test]
fn a_run_with_heads_goes_on_bit_for_bit() {
    let place =
        place(HEADS, "accumulate = 2\neval_every_steps = 5\n[log]\nevery_steps = 1\n[checkpoint]\nevery_steps = 4\n");
    place.ok("train c.toml --quiet --out whole");
    place.ok("train c.toml --quiet --out part --set train.max_steps=9");
    place.ok("train --resume part --quiet --set train.max_steps=1000");
    assert_same_runs((&place, "whole"), (&place, "part"));
    // Its sums of figures go on in the middle of an epoch, too.
    let mut run = place.start("train c.toml --quiet --out killed");
    run.until(|| place.path("killed/last.safetensors").exists());
    run.signal(9);
    run.wait();
    place.ok("train c.toml --quiet --out killed --resume");
    assert_same_runs((&place, "whole"), (&place, "killed"));
    // Another weight is another model.
    let refused = place.fails("train --resume part --set heads=[{target=\"sold\",loss=\"cross_entropy\"}]", 2);
    assert!(refused.contains("heads.0.weight") || refused.contains("heads"), "{refused}");
}

#[test]
fn ranks_come_to_what_one_comes_to() {
    let more = "accumulate = 2\nclip_grad_norm = 1.0\n[distributed]\nshards = 4\n[log]\nevery_steps = 1\n";
    let place = place(HEADS, more);
    place.ok("train c.toml --quiet --out one --set train.epochs=2");
    place.ok("launch --ranks 2 -- train c.toml --quiet --out two --set train.epochs=2");
    assert_same_runs((&place, "one"), (&place, "two"));
    let last_epoch = |run: &str| place.metrics(run).into_iter().rev().find(|line| line["kind"] == "epoch").unwrap();
    assert!(last_epoch("two")["val_kids_accuracy"].is_f64(), "{}", last_epoch("two"));
    // But for rounding those of one large batch.
    place.ok("train c.toml --quiet --out whole --set train.epochs=2 --unset distributed.shards --set train.accumulate=1 --set data.batch_size=64");
    for figure in ["train_loss", "val_loss", "val_sold_loss", "val_kids_loss", "val_rmse"] {
        assert!(
            close(&last_epoch("one")[figure], &last_epoch("whole")[figure], 1e-3),
            "{figure}: {}, {}",
            last_epoch("one"),
            last_epoch("whole")
        );
    }
}

#[test]
fn layers_that_are_computed_again_and_half_precision_change_little() {
    let place = place(HEADS, "");
    let all = [("plain", ""), ("again", "--set train.recompute=[\"body\"]"), ("bf16", "--set precision=\"bf16\"")];
    for (run, more) in all {
        place.ok(&format!("train c.toml --quiet --out {run} {more} --set train.epochs=3"));
    }
    assert!(
        parameters(&place, "plain", &["body", "sold", "ends", "price"])
            == parameters(&place, "again", &["body", "sold", "ends", "price"])
    );
    let loss = |run: &str| {
        place.metrics(run).into_iter().rev().find(|line| line["kind"] == "epoch").unwrap()["val_loss"].clone()
    };
    assert!(close(&loss("bf16"), &loss("plain"), 0.05), "{} {}", loss("bf16"), loss("plain"));
}

/// Rows without a target of a head are left out, and classes are those of training.
#[test]
fn other_data_is_held_to_the_heads() {
    let place = place(HEADS, "");
    let text = flats(480);
    place.write("t.csv", text.replacen("\n30,", "\n,", 1) + "100,3,A,12000,,1\n100,3,A,12000,fast,\n");
    let done = place.ok("train c.toml --out r --set train.epochs=1");
    assert!(done.err.contains("2 rows without `price`, `sold`, `family` left out"), "{}", done.err);
    // A class that only a row that is left out has is none.
    place.write("t.csv", text.clone() + "100,3,A,,never,1\n");
    place.ok("train c.toml --quiet --out s --set train.epochs=1");
    place.ok("eval s");
    place.write("t.csv", text.clone() + "100,3,A,12000,never,1\n");
    let refused = place.fails("eval s", 2);
    assert!(
        refused.contains("row at line 482: the target `sold` has `never`")
            && refused.contains("`fast`, `slow`, `soon`"),
        "{refused}"
    );
    place.write("t.csv", text.replace(",family", ",household"));
    let refused = place.fails("eval s", 2);
    assert!(refused.contains("`family`"), "{refused}");
    let refused = place.fails("train c.toml --out n", 2);
    assert!(refused.contains("`family`") && refused.contains("the target of a head"), "{refused}");
    place.write("t.csv", text.replace(",family", ",family\n50,2,A,6000,fast,maybe").replacen("\n\n", "\n", 1));
    let refused = place.fails("train c.toml --out n", 2);
    assert!(refused.contains("the head `kids` has the loss `bce_with_logits`, which is for numbers"), "{refused}");
    // A class of the validation part alone.
    place.write("t.csv", text.clone());
    place.write("v.csv", text + "100,3,A,12000,never,1\n");
    let refused = place.fails("train c.toml --out n --unset data.validation_split --set data.val_path=v.csv", 2);
    assert!(refused.contains("`never`") && refused.contains("line 482"), "{refused}");
}

#[test]
fn heads_that_do_not_fit_are_errors_with_their_place() {
    let place = place(HEADS, "");
    let refused = |change: &[(&str, &str)], expected: &[&str]| {
        let text = change.iter().fold(config(HEADS, ""), |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        });
        place.write("w.toml", text);
        let message = place.fails("check w.toml", 2);
        expected.iter().for_each(|part| assert!(message.contains(part), "{part}: {message}"));
    };
    refused(
        &[("out_features = 3", "out_features = 4")],
        &["puts out [32, 4], and there are 3 classes of `sold`", "set `out_features = 3`: one for each class"],
    );
    refused(
        &[("\"ends.family\"", "\"ends.famly\"")],
        &["there is no layer `ends.famly` for a head", "did you mean `ends.family`"],
    );
    refused(&[("name = \"kids\"", "name = \"sold\"")], &["two heads are called `sold`"]);
    // What other tensors and keys of answers are called: `serve` and ONNX files have those of heads beside them.
    for taken in ["inputs", "outputs", "input", "output", "probabilities", "heads"] {
        refused(
            &[("name = \"kids\"", &format!("name = \"{taken}\""))],
            &[&format!("a head cannot be called `{taken}`"), "give the head another `name`"],
        );
    }
    refused(&[("name = \"kids\"", "name = \"balanced\"")], &["would be called `balanced_accuracy`"]);
    refused(&[("name = \"kids\"", "name = \"no name\"")], &["`no name` cannot be the name of a head"]);
    refused(
        &[("target = \"family\"", "target = \"price\"")],
        &["a head learns `price`, which is the target of `[data]`"],
    );
    refused(&[("target = \"price\"", "target = \"price\"\ndrop = [\"sold\"]")], &["which is left out by `drop`"]);
    refused(
        &[("target = \"price\"", "target = \"price\"\ncolumns = { sold = \"category\" }")],
        &["which is an input by `columns`"],
    );
    refused(&[("target = \"family\"", "target = \"sold\"")], &["which is that of another head, too"]);
    refused(
        &[("{ type = \"bce_with_logits\" }", "{ type = \"mse\", target = \"inputs\" }")],
        &["has no `target` in a head"],
    );
    refused(
        &[("\"cross_entropy\"", "{ type = \"cross_entropy\", weight = [1.0, 2.0] }")],
        &["`weight` of the head `sold` has 2 numbers"],
    );
    refused(&[("\"cross_entropy\"", "\"ordinal\"")], &["cannot be `ordinal` in a head"]);
    refused(
        &[("\"cross_entropy\"", "{ type = \"quantile\", quantile = [0.1, 0.9] }")],
        &["takes one quantile in a head"],
    );
    refused(&[("\"cross_entropy\"", "\"mse\"")], &["the head `sold` has the loss `mse`, which is for numbers"]);
    refused(&[("\"cross_entropy\"", "\"crossentropy\"")], &["did you mean", "`cross_entropy`"]);
    refused(
        &[("weight = 0.5", "weight = -1\nwieght = 2")],
        &["`weight` in a head is out of range", "unknown key `wieght` in a head"],
    );
    let digits = "[data]\nsource = \"digits\"\n[model]\nlayers = [\"flatten\", { name = \"x\", type = \"linear\", out_features = 10 }]\n[loss]\ntype = \"cross_entropy\"\n[[heads]]\ntarget = \"x\"\nloss = \"mse\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n";
    place.write("d.toml", digits);
    assert!(
        place
            .fails("check d.toml", 2)
            .contains("heads learn further columns of a table, and the samples of `digits` have none")
    );
}

/// A configuration as it is printed is the same; an ONNX file has an output for each head.
#[test]
fn what_is_written_down_of_heads() {
    let place = place(HEADS, "");
    // Without the places where values were written.
    let printed = |file: &str| -> String {
        let text = place.ok(&format!("check {file} --print")).out;
        text.lines().map(|line| line.split("  # ").next().unwrap_or(line).trim_end().to_owned() + "\n").collect()
    };
    let text = printed("c.toml");
    place.write("printed.toml", &text);
    assert_eq!(printed("printed.toml"), text);
    assert!(text.contains("heads = [{ target = \"sold\""), "{text}");
    place.ok("train c.toml --quiet --out r --set train.epochs=1 --set log.tensorboard=true");
    place.ok("export r m.onnx");
    let bytes = fs::read(place.path("m.onnx")).unwrap();
    let has = |word: &str| bytes.windows(word.len()).any(|at| at == word.as_bytes());
    assert!(has("\"kids\":{\"output\":\"logits\",\"column\":\"family\"}") && has("[\"price\"]"));
    assert!(has("\"class_names\":[\"fast\",\"slow\",\"soon\"]"));
    place.ok("export r p.onnx --preprocess");
    let bytes = fs::read(place.path("p.onnx")).unwrap();
    assert!(bytes.windows(17).any(|at| at == b"\"column\":\"family\""));
    let event = fs::read_dir(place.path("r/tensorboard")).unwrap().next().unwrap().unwrap();
    let bytes = fs::read(event.path()).unwrap();
    assert!(bytes.windows(13).any(|at| at == b"sold_accuracy"));
}

/// The library says of rows what `predict` says, with and without the heads.
#[test]
fn a_predictor_answers_with_heads() {
    let place = place(HEADS, "");
    place.ok("train c.toml --quiet --out r --set train.epochs=2");
    let options = Options { batch: 2, ..Options::default() };
    let model = Predictor::open(&place.path("r"), &options).unwrap();
    let names: Vec<(&str, usize)> = model.heads().iter().map(|head| (head.name.as_str(), head.outputs())).collect();
    assert_eq!((names, model.outputs(), model.width()), (vec![("sold", 3), ("kids", 1)], 1, 5));
    let rows: Vec<u8> =
        (0..5 * model.fields()[0].shape.len()).flat_map(|i| ((i % 7) as f32 / 7.0).to_ne_bytes()).collect();
    let (mut all, mut raw, mut main) = ([0.0; 25], [0.0; 25], [0.0; 5]);
    model.predict_with_heads(&[&rows], &mut all).unwrap();
    model.raw_with_heads(&[&rows], &mut raw).unwrap();
    model.predict(&[&rows], &mut main).unwrap();
    for ((all, raw), main) in all.chunks_exact(5).zip(raw.chunks_exact(5)).zip(main) {
        assert!(all[0] == main && raw[0] == main, "{all:?}");
        let sum: f32 = raw[1..4].iter().map(|logit| logit.exp()).sum();
        assert!((1..4).all(|i| (all[i] - raw[i].exp() / sum).abs() < 1e-6), "{all:?} {raw:?}");
        assert!((all[4] - 1.0 / (1.0 + (-raw[4]).exp())).abs() < 1e-6, "{all:?} {raw:?}");
    }
    assert!(model.predict_with_heads(&[&rows], &mut [0.0; 5]).is_err());
}
