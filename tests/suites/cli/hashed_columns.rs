//! Columns of tables whose texts are hashed: categories of many names, and bags of words.

use super::support::{Place, assert_same_runs};
use serde_json::Value;
use std::fmt::Write;

/// Tickets that take 10 hours more if they are urgent, 5 if something is broken, and 8 with some agents; another text in every row, some of them missing.
pub fn tickets(rows: usize) -> String {
    let mut text = String::from("agent,comment,hours\n");
    for i in 0..rows {
        let (agent, urgent, broken) = (i * 37 % 60, i % 3 == 0, i % 4 == 1);
        let hours = 2 + 10 * i32::from(urgent) + 5 * i32::from(broken) + 8 * i32::from(agent < 20);
        let words = [if urgent { "URGENT!" } else { "later" }, if broken { "is broken" } else { "stands still" }];
        let _ = match i % 10 == 9 {
            true => writeln!(text, "a{agent},,{}", 2 + 8 * i32::from(agent < 20)),
            false => writeln!(text, "a{agent},\"{}, line {i} {}\",{hours}", words[0], words[1]),
        };
    }
    text
}

pub fn place() -> Place {
    let place = Place::with(
        "device = \"cpu\"\nseed = 3\n[data]\nsource = \"csv\"\npath = \"tickets.csv\"\ntarget = \"hours\"\nbatch_size = 32\nvalidation_split = 0.25\n\
         [data.columns]\nagent = { type = \"category\", hash_buckets = 256 }\ncomment = { type = \"text\", hash_buckets = 128 }\n\
         [model]\nlayers = [{ type = \"linear\", out_features = 32 }, \"relu\", { type = \"linear\", out_features = 1 }]\n[loss]\ntype = \"mse\"\n\
         [optimizer]\ntype = \"adam\"\nlr = 0.02\n[train]\nepochs = 30\n",
    );
    place.write("tickets.csv", tickets(400));
    place
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

#[test]
fn words_and_many_names_are_learnt() {
    let place = place();
    let shown = place.ok("data show c.toml").out;
    for part in ["a category, hashed (256 numbers)", "a text, its words hashed (129 numbers)"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    place.ok("train c.toml --quiet --out r");
    let figures = place.ok("eval r --json").json();
    // The deviation of the hours is 6.6.
    assert!(number(&figures["metrics"]["rmse"]) < 2.5, "{figures}");
    place.ok("train c.toml --quiet --out parts --set train.epochs=7 --set data.workers=0 --threads 1");
    place.ok("train c.toml --quiet --out parts --resume --set train.epochs=30");
    assert_same_runs((&place, "r"), (&place, "parts"));
    place.ok("train c.toml --quiet --out disk --set data.cache=disk");
    assert_same_runs((&place, "r"), (&place, "disk"));

    // Agents that training has not seen have buckets as all others have, and words go by what they are, however they are written.
    place.write(
        "new.csv",
        "comment,agent\n\"it is URGENT, and broken\",new1\n\"Broken (urgent)\",new1\nlater,new2\n,a3\n",
    );
    let done = place.ok("predict r new.csv --json");
    assert!(!done.err.contains("no training row has"), "{}", done.err);
    let hours: Vec<f64> = done.json().as_array().unwrap().iter().map(|row| number(&row["values"][0])).collect();
    assert!(hours[0] > hours[2] + 3.0 && hours[1] > hours[2] + 3.0, "{hours:?}");
    let lines = "{\"agent\":\"new1\",\"comment\":\"it is URGENT, and broken\"}\n{\"agent\":\"new1\",\"comment\":\"Broken (urgent)\"}\n\
                 {\"comment\":\"later\",\"agent\":\"new2\"}\n{\"agent\":\"a3\",\"comment\":null}\n";
    place.write("new.jsonl", lines);
    let same = place.ok("predict r new.jsonl --json").json();
    for (one, other) in same.as_array().unwrap().iter().zip(done.json().as_array().unwrap()) {
        assert_eq!(one["values"], other["values"]);
    }

    let explanation = place.ok("explain r --json").json();
    assert_eq!(explanation["columns"].as_array().unwrap().len(), 2, "{explanation}");
    assert!(number(&explanation["columns"][0]["loss_increase"]) > 1.0, "{explanation}");
    let curve = place.ok("explain r --column agent").out;
    assert!(curve.contains("(bucket "), "{curve}");
    let error = place.fails("explain r --column comment", 2);
    assert!(error.contains("`comment` has texts, of which the model takes the words"), "{error}");

    let exported = |options: &str| {
        let notes = place.ok(&format!("export r r.onnx {options}")).err;
        let file = std::fs::read(place.path("r.onnx")).unwrap();
        (notes, move |part: &str| file.windows(part.len()).any(|bytes| bytes == part.as_bytes()))
    };
    let (notes, has) = exported("");
    assert!(notes.contains("with `--preprocess` the model takes the columns themselves"), "{notes}");
    assert!(has("\"hashed\":{\"buckets\":256,\"plain\":true}") && has("\"norm\":\"l2\"") && !has("a3\""));
    // With the columns as inputs, the program that uses the file makes the numbers of hashes alone.
    let (notes, has) = exported("--preprocess");
    assert!(!notes.contains("note:"), "{notes}");
    assert!(has("\"type\":\"hashed\",\"missing\":\"NaN\",\"buckets\":256") && !has("\"codec\""));
}

/// A token for the names, and one for the words, however many places they have.
#[test]
fn a_text_is_one_token() {
    let place = place();
    let text = place.read("c.toml");
    let (before, after) = (text.find("layers = ").unwrap(), text.find("[loss]").unwrap());
    let model = "use = \"ft_transformer\"\nwith = { width = 16, num_blocks = 1, heads = 2, hidden = 8 }\n";
    place.write("c.toml", format!("{}{model}{}", &text[..before], &text[after..]));
    let shown = place.ok("check c.toml").out;
    assert!(shown.contains("[32, 2, 16]"), "{shown}");
    place.ok("train c.toml --quiet --out r --set train.epochs=2");
    place.ok("eval r");
}

#[test]
fn mistakes_about_hashed_columns_are_errors() {
    let place = place();
    let shown = place.ok("data show c.toml --unset data.columns.comment").out;
    let left =
        "left out: its text is another one in every row: with `type = \"text\"` in `columns` the model takes its words";
    assert!(shown.contains(left), "{shown}");
    let fault = |set: &str| place.fails(&format!("check c.toml --set {set}"), 2);
    let text = fault("data.columns.agent.max_categories=9");
    assert!(text.contains("`hash_buckets` and `max_categories` in `columns.agent` exclude each other"), "{text}");
    assert!(fault("data.columns.agent.min_count=2").contains("`min_count`"));
    assert!(fault("data.columns.agent.hash_buckets=0").contains("`hash_buckets`"));
    let text = fault("data.columns.comment.norm=l3");
    assert!(text.contains("`norm`") && text.contains("`l2`"), "{text}");
    let text = fault("data.columns.comment.n_features=5");
    assert!(text.contains("unknown key `n_features`") && text.contains("did you mean `hash_buckets`?"), "{text}");
    // A pattern is for the columns that have texts alone; a name is for any cells.
    place.write("mixed.csv", "a,b,t\n1,one two,0\n2,three four,1\n3,five,2\n2,six,4\n");
    let features = |columns: &str| {
        let sets = "--set data.path=mixed.csv --set data.target=t --set data.validation_split=0.25";
        place.ok(&format!("data show c.toml --json {sets} --unset data.columns {columns}")).json()["features"].clone()
    };
    assert_eq!(features("--set data.columns.*={type=\"text\",hash_buckets=7}"), 8);
    assert_eq!(
        features(
            "--set data.columns.a={type=\"text\",hash_buckets=7} --set data.columns.b={type=\"category\",hash_buckets=3}"
        ),
        10
    );
}
