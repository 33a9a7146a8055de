//! The classes of heads: what they weigh, what is reported of them, their probabilities.

use super::heads::{HEADS, place};
use serde_json::Value;

/// As scikit-learn's `class_weight`, and as numbers that are written.
#[test]
fn classes_of_a_head_are_balanced() {
    let weighted = |weight: &str| {
        HEADS.replace("\"cross_entropy\"", &format!("{{ type = \"cross_entropy\", weight = {weight} }}"))
    };
    let place = place(&weighted("\"balanced\""), "");
    // All rows are trained on, so that they can be counted here.
    let config = place.read("c.toml").replace("validation_split = 0.25\n", "");
    place.write("c.toml", config.clone());
    let done = place.ok("train c.toml --out r --set train.epochs=2");
    assert!(done.err.contains("weight = \"balanced\": the classes of the head `sold` weigh from"), "{done:?}");
    let table = place.read("t.csv");
    let count = |word: &str| table.lines().filter(|line| line.contains(word)).count() as f64;
    let weights = ["fast", "slow", "soon"].map(|word| 480.0 / 3.0 / count(word));
    assert!(weights[0] != weights[1]);
    let written = config.replace(&weighted("\"balanced\""), &weighted(&format!("{weights:?}")));
    assert_ne!(written, config);
    place.write("w.toml", written);
    place.ok("train w.toml --quiet --out w --set train.epochs=2");
    let steps = |run: &str| {
        place.metrics(run).iter().map(|line| (line["loss"].clone(), line["train_loss"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(steps("r"), steps("w"));
    // They are kept, whatever rows there are later.
    let kept = place.read("r/config.toml");
    assert!(kept.contains(&weights[0].to_string()), "{weights:?}: {kept}");
    place.ok("train c.toml --quiet --out cut --set train.epochs=2 --set train.max_steps=20");
    place.ok("train c.toml --quiet --resume cut --unset train.max_steps --set train.epochs=2");
    assert_eq!(steps("cut").last(), steps("r").last());
    place.ok("check c.toml");
}

#[test]
fn an_evaluation_reports_the_classes_of_heads() {
    let place = place(HEADS, "");
    place.ok("train c.toml --quiet --out r --set train.epochs=4");
    let evaluation = place.ok("eval r --json --predictions rows.jsonl").json();
    let rows: Vec<Value> = place.read("rows.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sold = &evaluation["heads"]["sold"];
    let count = |target: usize, prediction: usize| {
        let is =
            |row: &&Value| row["heads"]["sold"]["target"] == target && row["heads"]["sold"]["prediction"] == prediction;
        rows.iter().filter(is).count()
    };
    for target in 0..3 {
        for prediction in 0..3 {
            assert_eq!(sold["confusion_matrix"][target][prediction], count(target, prediction), "{evaluation}");
        }
        let (right, all) = (count(target, target), (0..3).map(|other| count(target, other)).sum::<usize>());
        let class = &sold["per_class"][target];
        assert_eq!((&class["name"], &class["support"]), (&["fast", "slow", "soon"][target].into(), &all.into()));
        assert!((class["recall"].as_f64().unwrap() - right as f64 / all as f64).abs() < 1e-12, "{class}");
    }
    let kids = &evaluation["heads"]["kids"]["per_class"];
    assert_eq!((kids.as_array().unwrap().len(), &kids[0]["label"]), (1, &0.into()), "{evaluation}");
    assert!(evaluation["per_class"].is_null(), "the main target is a number");
    let text = place.ok("eval r").out;
    for part in ["\n\nsold\nclass ", "\n\nkids\nlabel ", "soon"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// The main target is a number, and a head has classes.
#[test]
fn probabilities_of_heads_are_written() {
    let place = place(HEADS, "");
    place.ok("train c.toml --quiet --out r --set train.epochs=1");
    place.write("new.csv", "area,rooms,city\n40,2,A\n150,5,C\n");
    let stdout = place.ok("predict r new.csv --probabilities --format csv").out;
    let head = "file,sample,value,sold_class,sold_probability_fast,sold_probability_slow,sold_probability_soon,kids_probability_0";
    assert_eq!(stdout.lines().next(), Some(head), "{stdout}");
    let first =
        place.ok("predict r new.csv --probabilities --json").json()[0]["heads"]["sold"]["probabilities"].clone();
    let sum: f64 = ["fast", "slow", "soon"].iter().map(|name| first[name].as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-6, "{first}");
    // So are those of labels, of which a sample may have several.
    let kids = |more: &str| {
        let answers = place.ok(&format!("predict r new.csv --json {more}")).json();
        answers[0]["heads"]["kids"]["probabilities"].clone()
    };
    assert_eq!(kids("--probabilities")["0"], kids("")[0]);
    assert!(kids("")[0].is_f64());
    // A number alone has none.
    let place = super::heads::place("", "");
    place.ok("train c.toml --quiet --out r --set train.epochs=1");
    place.write("new.csv", "area,rooms,city,sold,family\n40,2,A,fast,1\n");
    assert!(
        place
            .fails("predict r new.csv --probabilities", 2)
            .contains("`--probabilities` is for samples that have a class")
    );
}
