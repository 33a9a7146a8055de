//! Tables: from a CSV file to a model, its figures and its predictions.

use super::support::{Place, assert_same_runs, real_data, repository};
use std::fmt::Write;
use std::fs;

/// Houses whose price is 100 · rooms + 50 where the town is `sea`, less a little for their age; some ages are missing.
pub fn houses(rows: usize) -> String {
    let mut text = String::from("id,rooms,age,town,price\n");
    for i in 0..rows {
        let (rooms, age, town) = (1 + i * 7 % 9, i * 13 % 50, ["sea", "hill", "town"][i * 5 % 3]);
        let price = 100.0 * rooms as f64 + if town == "sea" { 50.0 } else { 0.0 } - age as f64 / 10.0;
        let age = if i % 11 == 3 { String::new() } else { age.to_string() };
        let _ = writeln!(text, "h{i},{rooms},{age},{town},{price}");
    }
    text
}

pub fn config(more: &str) -> String {
    format!(
        "device = \"cpu\"\nseed = 3\n[data]\nsource = \"csv\"\npath = \"houses.csv\"\nid = \"id\"\nbatch_size = 32\n\
         validation_split = 0.25\n{more}\n[model]\nlayers = [{{ type = \"linear\", out_features = 32 }}, \"relu\", \
         {{ type = \"linear\", out_features = 1 }}]\n[loss]\ntype = \"mse\"\n[optimizer]\ntype = \"adam\"\nlr = 0.02\n\
         [train]\nepochs = 15\n"
    )
}

pub fn place(rows: usize) -> Place {
    let place = Place::with(&config("target = \"price\""));
    place.write("houses.csv", houses(rows));
    place
}

/// JSON that is no JSON Lines is called that, also where rows of cells are expected.
#[test]
fn an_array_of_objects_is_named() {
    let place = place(60);
    place.ok("train c.toml --quiet --out r --set train.epochs=1");
    let array = "[\n  {\"rooms\": 3, \"age\": 4, \"town\": \"sea\", \"id\": \"a\"}\n]\n";
    for (file, called) in [("rows.jsonl", "`rows.jsonl`"), ("rows.csv", "`rows.csv`")] {
        place.write(file, array);
        let said = place.fails(&format!("predict r {file}"), 1);
        assert!(said.contains(&format!("{called} is a JSON array")) && said.contains("jq -c '.[]'"), "{said}");
    }
    let mut predict = place.command("predict r -");
    predict.stdin(fs::File::open(place.path("rows.csv")).unwrap());
    let said = String::from_utf8(predict.output().unwrap().stderr).unwrap();
    assert!(said.contains("`-` is a JSON array") && !said.contains("quote"), "{said}");
    // A cell may begin with a bracket.
    place.write("cells.csv", "[rooms],age,town,id\n3,4,sea,a\n");
    let said = place.fails("predict r cells.csv", 1);
    assert!(said.contains("rooms") && !said.contains("JSON"), "{said}");
    let said = place.fails("predict r parts-{0..2}.csv", 1);
    assert!(!said.contains("shards"), "{said}");
}

/// Minus zero is zero, as a category and as a class.
#[test]
fn zero_is_one_category() {
    let place = place(60);
    let rows: String =
        (0..40).map(|i| format!("{},{}\n", ["0.0", "-0.0", "1.0"][i % 3], ["-0.0", "0.0", "2.5"][i % 3])).collect();
    place.write("zeros.csv", format!("x,y\n{rows}"));
    let shown = place.ok("data show c.toml --json --set data.path=zeros.csv --unset data.id --set data.target=y \
         --set data.columns.x=category --set loss.type=cross_entropy");
    let shown = shown.json();
    assert_eq!(shown["features"], 2, "0.0 and 1.0: {shown}");
    assert_eq!([0, 1].map(|at| shown["columns"][at]["distinct"].clone()), [2, 2], "{shown}");
    assert_eq!(shown["columns"][1]["range"][0].to_string(), "0.0", "{shown}");
}

#[test]
fn a_regression_is_in_the_unit_of_its_target() {
    let place = place(200);
    let shown = place.ok("data show c.toml");
    for part in
        ["150 rows to train on, 50 to validate on", "a category (3 numbers)", "the target, a number", "names the row"]
    {
        assert!(shown.out.contains(part), "{part}: {}", shown.out);
    }
    let columns = place.ok("data show c.toml --json").json();
    assert_eq!((&columns["features"], &columns["columns"][2]["missing"]), (&6.into(), &18.into()));
    place.ok("train c.toml --quiet --out r --set metrics.figures=[\"r2\"]");
    let figures = place.ok("eval r --json").json();
    let [loss, rmse, r2] = ["loss", "rmse", "r2"].map(|name| figures["metrics"][name].as_f64().unwrap());
    assert!(rmse < 40.0 && rmse > 0.0 && r2 > 0.9, "{figures}");
    // The loss is that of standardised prices, whose deviation is some 260.
    let deviation = rmse / loss.sqrt();
    assert!((200.0..320.0).contains(&deviation), "{figures}");
    // Training's figures are in the same unit.
    let last = place.metrics("r").into_iter().rev().find(|line| line["train_rmse"].is_number()).unwrap();
    assert!(last["train_rmse"].as_f64().unwrap() < 100.0, "{last}");

    // All that a prediction needs is the checkpoint, and columns of those names, in any order, without the target.
    fs::remove_file(place.path("houses.csv")).unwrap();
    place.write("new.csv", "town;rooms;age;id\nsea;9;0;x1\nhill;1;40;x2\nmoon;5;;=x3\n");
    let done = place.ok("predict r new.csv --format csv --guard-formulas");
    let rows: Vec<&str> = done.out.lines().collect();
    assert_eq!((rows[0], rows.len()), ("file,sample,id,value", 4));
    let value = |row: &str| row.rsplit(',').next().unwrap().parse::<f64>().unwrap();
    assert!((value(rows[1]) - 950.0).abs() < 100.0 && (value(rows[2]) - 96.0).abs() < 100.0, "{}", done.out);
    assert!(rows[1].contains(",x1,") && rows[3].contains(",'=x3,"), "{}", done.out);
    let json = place.ok("predict r new.csv --json").json();
    assert_eq!(json[1]["id"], "x2", "{json}");
    // As many rows as there are, whatever the batch.
    let many: String = (0..77).map(|i| format!("sea;{};1;r{i}\n", i % 9)).collect();
    place.write("many.csv", format!("town;rooms;age;id\n{many}"));
    assert_eq!(place.ok("predict r many.csv --format jsonl").out.lines().count(), 77);
    let error = place.fails("predict r many.csv new.csv nowhere.csv", 1);
    assert!(error.contains("nowhere.csv"), "{error}");
    place.write("short.csv", "rooms,age\n1,2\n");
    assert!(place.fails("predict r short.csv", 1).contains("`town`"));
}

#[test]
fn stopping_and_going_on_changes_nothing_nor_do_threads() {
    let place = place(200);
    place.ok("train c.toml --quiet --out whole --set train.epochs=4");
    place.ok("train c.toml --quiet --out parts --set train.epochs=2");
    place.ok("train c.toml --quiet --out parts --resume --set train.epochs=4");
    assert_same_runs((&place, "whole"), (&place, "parts"));
    place.ok("train c.toml --quiet --out one --set train.epochs=4 --set data.workers=0 --threads 1");
    assert_same_runs((&place, "whole"), (&place, "one"));
}

/// Other data may have fewer batches than the run has seen of its epoch.
#[test]
fn a_run_that_cannot_go_on_stays_as_it_was() {
    let place = place(200);
    place.ok("train c.toml --quiet --out r --set train.max_steps=4");
    place.write("few.csv", houses(60));
    let before = place.read("r/config.toml");
    let said = place.fails("train --resume r --quiet --set train.max_steps=9 --set data.path=few.csv", 1);
    assert!(said.contains("after batch 4 of an epoch, and an epoch of the data has 2 batches"), "{said}");
    assert_eq!(place.read("r/config.toml"), before);
    place.ok("train --resume r --quiet --set train.max_steps=9");
}

#[test]
fn classes_of_a_table_are_those_of_the_checkpoint() {
    let place = Place::new();
    place.write("houses.csv", houses(120));
    let text = config("target = \"town\"\ndrop = [\"age\"]").replace("out_features = 1", "out_features = \"$classes\"");
    place.write("c.toml", text.replace("\"mse\"", "\"cross_entropy\""));
    place.ok("train c.toml --quiet --out r --set train.epochs=2");
    let before = place.ok("eval r --json").json();
    // Other rows, in which one class does not occur: the others keep their numbers.
    let some: String =
        houses(120).lines().filter(|line| !line.contains(",hill,")).map(|line| format!("{line}\n")).collect();
    place.write("houses.csv", &some);
    let answers = place.ok("predict r houses.csv --json").json();
    let labels: Vec<&str> =
        answers.as_array().unwrap().iter().map(|row| row["top"][0]["label"].as_str().unwrap()).collect();
    assert!(labels.iter().all(|label| ["sea", "hill", "town"].contains(label)));
    let after = place.ok("eval r --json").json();
    assert_ne!(before["samples"], after["samples"]);
    place.write("houses.csv", houses(120).replace(",hill,", ",dale,"));
    let error = place.fails("eval r", 2);
    assert!(error.contains("`dale`, which the model does not know") && error.contains("`hill`"), "{error}");
}

#[test]
fn mistakes_about_a_table_have_their_places() {
    let place = place(60);
    let fault = |set: &str| place.fails(&format!("check c.toml --set {set}"), 2);
    let text = fault("data.target=prise");
    assert!(text.contains("names a column `prise`") && text.contains("did you mean `price`?"), "{text}");
    assert!(text.contains("--> --set data.target=prise:1:13"), "{text}");
    let text = fault("data.columns.town=number");
    assert!(text.contains("the column `town` has text cells, such as `sea`"), "{text}");
    let text = fault("data.columns.town={type=\"number\",bin=3}");
    assert!(text.contains("unknown key `bin`") && text.contains("`bins`"), "{text}");
    let text = fault("data.separator=ab");
    assert!(text.contains("must be one character"), "{text}");
    assert!(place.fails("check c.toml --set data.path=none.csv", 1).contains("none.csv"));
    place.write("houses.csv", "rooms,price\n1,2\n\"3,4\n5,6\n");
    assert!(place.fails("check c.toml --unset data.id", 2).contains("line 3, column 1: a quote opens here"));
}

/// What a checkpoint keeps of a configuration is read again, whatever its columns are called.
#[test]
fn columns_may_have_any_names() {
    let place = place(60);
    let text = houses(60).replacen("rooms,age,town", "rooms of it,größe,t.own", 1);
    place.write("houses.csv", text);
    let columns = "columns = { \"rooms of it\" = \"category\", \"größe\" = { type = \"number\", scaling = \"log\" }, \"t.*\" = \"category\", \"*\" = \"number\" }";
    place.write("c.toml", config(&format!("target = \"price\"\n{columns}")));
    place.ok("train c.toml --quiet --out r --set train.epochs=1");
    place.ok("eval r");
    place.ok("train --resume r --quiet --set train.epochs=2");
    assert!(place.ok("check c.toml --print").out.contains("\"rooms of it\""));
    // There is no test set but what the table says.
    assert!(place.fails("eval r --split test", 2).contains("no samples in the split `test`"));
}

/// Weights of a checkpoint bring how rows become samples: columns are matched by name.
#[test]
fn weights_go_by_the_names_of_columns() {
    let place = place(80);
    place.ok("train c.toml --quiet --out r --set train.epochs=3");
    let figures = place.ok("eval r --json").json();
    let swapped: String = houses(80)
        .lines()
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            format!("{},{},{},{},{}\n", cells[0], cells[3], cells[2], cells[1], cells[4])
        })
        .collect();
    place.write("houses.csv", swapped);
    let done = place.ok("eval c.toml --set model.weights=r/best.safetensors --json");
    assert!(done.err.contains("column by column"), "{}", done.err);
    assert_eq!(done.json()["metrics"], figures["metrics"]);
    let error = place.fails("eval r --set data.target=rooms", 2);
    assert!(error.contains("the model learnt `price`"), "{error}");
    let error = place.fails("check c.toml --set data.val_path=houses.csv", 2);
    assert!(error.contains("the samples to validate on are given twice"), "{error}");
}

/// Probabilities are learnt as they are.
#[test]
fn a_column_of_zeros_and_ones_is_no_regression() {
    let place = Place::new();
    let rows: String = (0..120).map(|i| format!("{},{}\n", i % 7, i32::from(i % 7 > 4))).collect();
    place.write("houses.csv", format!("x,price\n{rows}"));
    let text = config("target = \"price\"").replace("id = \"id\"\n", "").replace("\"mse\"", "\"bce_with_logits\"");
    place.write("c.toml", text);
    let stderr = place.ok("train c.toml --quiet --out r").err;
    assert!(!stderr.contains("learnt as a number"), "{stderr}");
    let stderr = place.ok("check c.toml --set loss.type=mse").err;
    assert!(stderr.contains("learnt as a number"), "{stderr}");
    let figures = place.ok("eval r --json").json();
    assert!(figures["metrics"]["accuracy"].as_f64().unwrap() > 0.95, "{figures}");
}

/// A configuration whose model is made of several, with embeddings of numbers.
fn members(loss: &str, more: &str) -> String {
    config(more).replace("\"mse\"", loss).replace(
        "layers = [{ type = \"linear\", out_features = 32 }, \"relu\", { type = \"linear\", out_features = 1 }]",
        "use = \"tabular\"\nwith = { members = 4, width = 16, bins = 6, embedding_dim = 3 }",
    )
}

/// The model of tables that needs nothing but a target: one answer of several members, the same in all that answers.
#[test]
fn members_answer_together() {
    let place = place(200);
    place.write("c.toml", members("\"mse\"", "target = \"price\""));
    let done = place.ok("check c.toml");
    assert!(done.out.contains("piecewise_linear_embedding") && done.out.contains("ensemble_mean"), "{}", done.out);
    place.ok("train c.toml --quiet --out r --set train.epochs=40");
    let figures = place.ok("eval r --json").json();
    assert!(figures["metrics"]["rmse"].as_f64().unwrap() < 60.0, "{figures}");
    // A stop and threads change no bit.
    place.ok("train c.toml --quiet --out parts --set train.epochs=7 --set data.workers=0 --threads 1");
    place.ok("train c.toml --quiet --out parts --resume --set train.epochs=40");
    assert_same_runs((&place, "r"), (&place, "parts"));
    // A cell beyond all that training had, a town that it did not have, and a missing age.
    fs::remove_file(place.path("houses.csv")).unwrap();
    place.write("new.csv", "town,rooms,age,id\nsea,900,0,x1\nhill,1,40,x2\nmoon,5,,x3\n");
    let rows = place.ok("predict r new.csv --format jsonl").out;
    let prices: Vec<f64> = rows
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["values"][0].as_f64().unwrap_or(f64::NAN))
        .collect();
    assert_eq!(prices.len(), 3, "{rows}");
    assert!(prices.iter().all(|price| price.is_finite()) && prices[0] > prices[1], "{rows}");
}

/// Probabilities are means of those of the members, and add up to 1.
#[test]
fn members_have_probabilities() {
    let place =
        Place::with(&members("\"cross_entropy\"", "target = \"town\"").replace("id = \"id\"\n", "drop = [\"id\"]\n"));
    place.write("houses.csv", houses(150));
    place.ok("train c.toml --quiet --out r");
    let figures = place.ok("eval r --json --set metrics.figures=[\"log_loss\"]").json();
    let [loss, log_loss] = ["loss", "log_loss"].map(|name| figures["metrics"][name].as_f64().unwrap());
    assert!((loss - log_loss).abs() < 1e-5, "{figures}");
    place.write("new.csv", "rooms,age,price\n3,10,320\n5,20,500\n");
    let rows = place.ok("predict r new.csv --json").json();
    let text = rows.to_string();
    assert!(text.contains("sea"), "{text}");
}

/// What the layers of tables and members cannot take.
#[test]
fn layers_of_tables_say_what_they_take() {
    let place = place(60);
    let with = |layers: &str| {
        let text = config("target = \"price\"");
        let (begin, end) = (text.find("layers = ").unwrap(), text.find("\n[loss]").unwrap());
        place.write("w.toml", format!("{}layers = [{layers}]{}", &text[..begin], &text[end..]));
        place.fails("check w.toml", 2)
    };
    let embedding = "{ type = \"piecewise_linear_embedding\", bins = 4, embedding_dim = 2 }";
    let linear = "{ type = \"linear\", out_features = 1 }";
    for (layers, part) in [
        (format!("{linear}, {embedding}, {linear}"), "takes the columns of a table"),
        ("{ type = \"ensemble_linear\", out_features = 1 }".to_owned(), "put an `ensemble_affine` before it"),
        (format!("{linear}, \"ensemble_mean\""), "takes numbers of several members"),
        (
            "{ type = \"ensemble_affine\", members = 3 }, { type = \"ensemble_affine\", members = 4 }, \"ensemble_mean\"".to_owned(),
            "numbers of as many members",
        ),
        ("{ type = \"ensemble_affine\", members = 3 }, { type = \"ensemble_linear\", out_features = 2 }, \"ensemble_mean\"".to_owned(), "puts out [2]"),
        (embedding.replace("bins = 4", "bins = 1"), "bins"),
        (
            format!("{{ type = \"ensemble_affine\", members = 3 }}, {{ type = \"ensemble_linear\", out_features = 2 }}, \"ensemble_mean\", \"flatten\", {linear}"),
            "`ensemble_mean` is not the last layer",
        ),
    ] {
        let message = with(&layers);
        assert!(message.contains(part), "{layers}: {message}");
    }
    let text = fs::read_to_string(place.path("w.toml")).unwrap();
    let begin = text.find("[model]").unwrap();
    let end = text.find("\n[loss]").unwrap();
    let digits = format!(
        "[data]\nsource = \"synthetic\"\nshape = [4]\ntargets = 1\n[model]\nlayers = [{embedding}, {linear}]{}",
        &text[end..]
    );
    assert!(begin > 0);
    place.write("d.toml", digits);
    assert!(place.fails("check d.toml", 2).contains("takes the columns of a table"));
}

/// Real tables, in two commands each.
#[test]
fn penguins_and_houses_are_learnt() {
    let Some(data) = real_data() else { return };
    let model = repository("models/tabular.toml");
    let place = Place::new();
    let text = |file: &str, target: &str, loss: &str, more: &str| {
        format!(
            "device = \"cpu\"\n[data]\nsource = \"csv\"\npath = \"{}\"\ntarget = \"{target}\"\nvalidation_split = 0.25\nbatch_size = 64\n\
             [model]\nuse = \"{}\"\nwith = {{ members = 8, width = 64 }}\n[loss]\ntype = \"{loss}\"\n[optimizer]\ntype = \"adamw\"\nlr = 1e-3\n[train]\nepochs = 40\n{more}",
            data.join("tabular").join(file).display(),
            model.display()
        )
    };
    place.write("p.toml", text("penguins.csv", "species", "cross_entropy", ""));
    place.ok("train p.toml --quiet --out p");
    let figures = place.ok("eval p --json").json();
    assert!(figures["metrics"]["accuracy"].as_f64().unwrap() > 0.95, "{figures}");
    place.write("w.toml", text("winequality-red.csv", "quality", "mse", ""));
    place.ok("train w.toml --quiet --out w");
    let figures = place.ok("eval w --json").json();
    // The deviation of the target is 0.81.
    assert!(figures["metrics"]["rmse"].as_f64().unwrap() < 0.72, "{figures}");
    let file = data.join("tabular/penguins.csv");
    let done = place.ok(&format!("predict p {} --format jsonl", file.display()));
    assert_eq!(done.out.lines().count(), 344);
}
