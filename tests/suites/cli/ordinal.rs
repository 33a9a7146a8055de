//! Classes that have an order: from the names of a table's classes to figures and predictions.

use super::support::{Place, assert_same_runs};
use serde_json::Value;
use std::fmt::Write;

/// The ripeness of fruits by their age and warmth: `green`, `ripe`, `soft` and `rotten`, in an order that their names do not have.
fn place(more: &str) -> Place {
    let mut text = String::from("age,warmth,state\n");
    for i in 0..240 {
        let (age, warmth) = (i * 7 % 31, i * 11 % 13);
        let state = ["green", "ripe", "soft", "rotten"][((age + warmth) / 11).min(3)];
        let _ = writeln!(text, "{age},{warmth},{state}");
    }
    let place = Place::with(&format!(
        "device = \"cpu\"\nseed = 3\n[data]\nsource = \"csv\"\npath = \"fruits.csv\"\ntarget = \"state\"\nvalidation_split = 0.25\nbatch_size = 32\n{more}\n\
         [model]\nlayers = [{{ type = \"linear\", out_features = 16 }}, \"relu\", {{ type = \"linear\", out_features = \"$classes\" }}]\n\
         [loss]\ntype = \"ordinal\"\n[optimizer]\ntype = \"adam\"\nlr = 0.02\n[train]\nepochs = 40\n"
    ));
    place.write("fruits.csv", text);
    place
}

const ORDER: &str = "classes = [\"green\", \"ripe\", \"soft\", \"rotten\"]";

#[test]
fn classes_in_order_are_learnt() {
    let place = place(ORDER);
    // Three steps between four classes.
    let shown = place.ok("check c.toml").out;
    assert!(shown.contains("[32, 3]"), "{shown}");
    place.ok("train c.toml --quiet --out r");
    let figures = place.ok("eval r --json").json();
    assert!(figures["metrics"]["accuracy"].as_f64().unwrap() > 0.85, "{figures}");
    place.ok("train c.toml --quiet --out parts --set train.epochs=9 --threads 1");
    place.ok("train c.toml --quiet --out parts --resume --set train.epochs=40");
    assert_same_runs((&place, "r"), (&place, "parts"));
    place.write("new.csv", "age,warmth\n0,0\n30,12\n16,2\n");
    let rows = place.ok("predict r new.csv --json --top 4").json();
    let labels: Vec<&Value> = rows.as_array().unwrap().iter().map(|row| &row["top"][0]["label"]).collect();
    assert_eq!(labels, ["green", "rotten", "ripe"], "{rows}");
    for row in rows.as_array().unwrap() {
        let top = row["top"].as_array().unwrap();
        let all: f64 = top.iter().map(|one| one["probability"].as_f64().unwrap()).sum();
        assert!(top.len() == 4 && (all - 1.0).abs() < 1e-5, "{row}");
    }
    place.ok("export r r.onnx --softmax");
    place.ok("train c.toml --quiet --out half --set precision=bf16 --set train.epochs=2");
}

/// The architectures have as many outputs as it takes.
#[test]
fn models_that_are_named_have_steps() {
    let place = place(ORDER);
    let text = place.read("c.toml");
    let (before, after) = (text.find("layers = ").unwrap(), text.find("[loss]").unwrap());
    let model = "use = \"tabular\"\nwith = { members = 3, width = 16, bins = 6, embedding_dim = 3 }\n";
    place.write("c.toml", format!("{}{model}{}", &text[..before], &text[after..]));
    place.ok("train c.toml --quiet --out r");
    let figures = place.ok("eval r --json").json();
    assert!(figures["metrics"]["accuracy"].as_f64().unwrap() > 0.85, "{figures}");
    place.ok("export r r.onnx");
}

#[test]
fn an_order_must_be_given() {
    let place = place("");
    let text = place.fails("check c.toml", 2);
    assert!(text.contains("nothing says in which order the classes are: `green`, `ripe`, `rotten`, `soft`"), "{text}");
    assert!(text.contains("the least first, with `classes = ["), "{text}");
    let fault = |set: &str| place.fails(&format!("check c.toml {set}"), 2);
    let order = "--set data.classes=[\"green\",\"ripe\",\"soft\",\"rotten\"]";
    let text = fault(&format!("{order} --set model.layers.2.out_features=4"));
    assert!(text.contains("puts out 4 numbers for each sample, but `ordinal` takes 3 for 4 classes"), "{text}");
    assert!(text.contains("set `out_features = 3`"), "{text}");
    let text = fault("--set data.classes=[\"green\",\"ripe\",\"soft\"]");
    assert!(
        text.contains("`state` has the class `rotten`, which `classes` does not name: `green`, `ripe` and `soft`"),
        "{text}"
    );
    assert!(fault("--set data.classes=[\"green\",\"green\"]").contains("has a class twice"));
    assert!(fault("--set data.classes=[\"green\"]").contains("expected true, false, or a list of names"));
    let text = fault("--set data.target=age");
    assert!(text.contains("`ordinal` needs classes, but the targets of the data are numbers"), "{text}");
    // Numbers have an order.
    place.ok("check c.toml --set data.target=age --set data.classes=true");
    // The order is that of the outputs for any loss.
    place.ok(&format!("train c.toml --quiet --out r {order} --set loss.type=cross_entropy --set train.epochs=1"));
    place.write("new.csv", "age,warmth\n0,0\n");
    let rows = place.ok("predict r new.csv --json --top 4").json();
    let rotten = rows[0]["top"].as_array().unwrap().iter().find(|one| one["label"] == "rotten").unwrap();
    assert_eq!(rotten["class"], 3, "{rows}");
}
