//! `runner explain`: what a model of a table goes by.

use super::support::Place;
use super::tables::place;
use serde_json::Value;
use std::fs;

fn trained(sets: &str) -> Place {
    let place = place(300);
    place.ok(&format!("train c.toml --quiet --out r --set train.epochs=40 {sets}"));
    place
}

fn column<'a>(explanation: &'a Value, name: &str) -> &'a Value {
    explanation["columns"].as_array().unwrap().iter().find(|column| column["column"] == name).unwrap()
}

/// The price is 100 for each room, 50 by the sea, and a little less with age.
#[test]
fn columns_are_as_important_as_they_are() {
    let place = trained("");
    let explanation = place.ok("explain r --json").json();
    let order: Vec<&str> =
        explanation["columns"].as_array().unwrap().iter().map(|c| c["column"].as_str().unwrap()).collect();
    assert_eq!(order, ["rooms", "town", "age"], "{explanation}");
    let rmse = place.ok("eval r --json").json()["metrics"]["rmse"].as_f64().unwrap();
    assert!((explanation["value"].as_f64().unwrap() - rmse).abs() < 1e-4 * rmse, "{explanation}, {rmse}");
    // Shuffled, rooms differ by a root of twice their variance: 2.58 rooms, 365 in price.
    let rooms = column(&explanation, "rooms")["loss_increase"].as_f64().unwrap();
    assert!((250.0..450.0).contains(&rooms), "{explanation}");
    assert_eq!(
        (&explanation["rows"], &explanation["accuracy"], &explanation["figure"]),
        (&75.into(), &Value::Null, &"rmse".into())
    );
    // The same seed shuffles in the same way, whatever the threads.
    assert_eq!(explanation, place.ok("explain r --json --threads 1").json());
    assert_ne!(explanation["columns"], place.ok("explain r --json --seed 1").json()["columns"]);
    let text = place.ok("explain r --rows 50 --split train --repeats 2");
    assert!(text.err.contains("train, 50 of 225 rows: rmse"), "{}", text.err);
    assert!(text.out.starts_with("column  rmse more by") && text.out.lines().count() == 4, "{}", text.out);
}

#[test]
fn answers_go_with_a_column() {
    let place = trained("");
    let explanation = place.ok("explain r --column rooms --column town --json").json();
    let mean = |one: &Value| one["outputs"][0].as_f64().unwrap();
    let rooms = explanation["columns"]["rooms"].as_array().unwrap();
    let values: Vec<f64> = rooms.iter().map(|one| one["value"].as_f64().unwrap()).collect();
    assert_eq!(values, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]);
    let slope = (mean(&rooms[8]) - mean(&rooms[0])) / 8.0;
    assert!((90.0..110.0).contains(&slope), "{explanation}");
    assert_eq!(rooms.iter().map(|one| one["rows"].as_u64().unwrap()).sum::<u64>(), 75);
    let towns = explanation["columns"]["town"].as_array().unwrap();
    let by_name = |name: &str| mean(towns.iter().find(|one| one["value"] == name).unwrap());
    assert!((20.0..80.0).contains(&(by_name("sea") - by_name("hill"))), "{explanation}");
    let few = place.ok("explain r --column age --points 4 --json").json();
    let ages = few["columns"]["age"].as_array().unwrap();
    assert_eq!((ages.len(), &ages[3]["value"]), (4, &Value::Null), "{few}");
    assert_eq!(ages.iter().map(|one| one["rows"].as_u64().unwrap()).sum::<u64>(), 75, "{few}");
    let text = place.ok("explain r --column town").out;
    assert!(text.starts_with("town") && text.contains("price") && text.contains("sea"), "{text}");
}

#[test]
fn classes_have_losses_and_accuracies() {
    let place = place(300);
    let config = fs::read_to_string(place.path("c.toml")).unwrap();
    place.write(
        "d.toml",
        config
            .replace("target = \"price\"", "target = \"town\"")
            .replace("out_features = 1", "out_features = 3")
            .replace("\"mse\"", "\"cross_entropy\""),
    );
    place.ok("train d.toml --quiet --out r");
    let explanation = place.ok("explain r --json").json();
    let figures = place.ok("eval r --json").json();
    let [own, loss] = [&explanation["value"], &figures["metrics"]["loss"]].map(|v| v.as_f64().unwrap());
    assert!((own - loss).abs() < 1e-4, "{explanation}, {figures}");
    assert_eq!(
        (&explanation["figure"], &explanation["accuracy"]),
        (&"log_loss".into(), &figures["metrics"]["accuracy"])
    );
    assert!(column(&explanation, "price")["accuracy_decrease"].is_number());
    let text = place.ok("explain r").out;
    assert!(text.contains("log loss more by") && text.contains("accuracy less by"), "{text}");
    // A deviation has as many digits as what it is of: it is much below 1.
    for line in text.lines().skip(1) {
        let cells: Vec<&str> = line.split_whitespace().collect();
        let deviation = column(&explanation, cells[0])["loss_deviation"].as_f64().unwrap();
        assert!((cells[2].parse::<f64>().unwrap() - deviation).abs() <= 6e-5, "{deviation}: {text}");
    }
}

/// Its probability is less than single precision has, and its loss that of its logits.
#[test]
fn what_is_surely_wrong_costs_what_it_does_in_an_evaluation() {
    let row = |i: usize| format!("{},{}\n", [-300, 300][i % 2], usize::from(i.is_multiple_of(2) == (i < 4)));
    for (loss, out, more) in
        [("cross_entropy", 2, "classes = true"), ("bce_with_logits", 1, "standardize_target = false")]
    {
        let place = Place::with(&format!(
            "device = \"cpu\"\n[data]\nsource = \"csv\"\npath = \"t.csv\"\ntarget = \"y\"\n{more}\n\
             columns = {{ x = {{ type = \"number\", scaling = \"none\" }} }}\n\
             [model]\nlayers = [{{ type = \"linear\", out_features = {out} }}]\n[loss]\ntype = \"{loss}\"\n\
             [optimizer]\ntype = \"sgd\"\nlr = 0.01\n[train]\nepochs = 5\n"
        ));
        place.write("t.csv", (0..40).map(row).fold("x,y\n".to_owned(), |all, row| all + &row));
        place.ok("train c.toml --quiet --out r");
        let explanation = place.ok("explain r --json --split train").json();
        let figures = place.ok("eval r --json --split train").json();
        let [own, loss] = [&explanation["value"], &figures["metrics"]["loss"]].map(|v| v.as_f64().unwrap());
        assert!(loss > 10.0 && (own - loss).abs() < 1e-4 * loss, "{explanation}, {figures}");
    }
}

#[test]
fn models_and_columns_that_cannot_be_explained_are_errors() {
    let place = trained("--set train.epochs=1");
    let message = place.fails("explain r --column room", 2);
    assert!(message.contains("takes no column `room`") && message.contains("did you mean `rooms`?"), "{message}");
    assert!(place.fails("explain r --split test", 2).contains("no rows in the split `test`"));
    assert!(place.fails("explain r --rows 0", 2).contains("from 1 on"));
    fs::remove_file(place.path("houses.csv")).unwrap();
    assert!(place.fails("explain r", 1).contains("houses.csv"));
    let images = Place::with(
        "device = \"cpu\"\n[data]\nsource = \"synthetic\"\nshape = [4]\nclasses = 2\nsamples = 8\n[model]\nlayers = [{ type = \"linear\", out_features = 2 }]\n\
         [loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n",
    );
    images.ok("train c.toml --quiet --out r");
    assert!(images.fails("explain r", 2).contains("is for models of tables"));
}

/// Each fold is asked about the rows that it has not seen.
#[test]
fn folds_are_explained_together() {
    let place = place(120);
    place.ok("train c.toml --quiet --out r --set train.epochs=20 --unset data.validation_split --set data.folds=3");
    let explanation = place.ok("explain r --json").json();
    assert_eq!((&explanation["rows"], &explanation["folds"]), (&120.into(), &3.into()));
    let rmse = place.ok("eval r --json").json()["metrics"]["rmse"].as_f64().unwrap();
    assert!((explanation["value"].as_f64().unwrap() - rmse).abs() < 1e-4 * rmse, "{explanation}, {rmse}");
    let order: Vec<&str> =
        explanation["columns"].as_array().unwrap().iter().map(|c| c["column"].as_str().unwrap()).collect();
    assert_eq!(order, ["rooms", "town", "age"], "{explanation}");
    // Squares add up, so that the whole lies between the folds.
    let each: Vec<f64> = (1..=3)
        .map(|fold| {
            let explanation = place.ok(&format!("explain r/fold-{fold} --json")).json();
            explanation["value"].as_f64().unwrap() + column(&explanation, "rooms")["loss_increase"].as_f64().unwrap()
        })
        .collect();
    let whole = rmse + column(&explanation, "rooms")["loss_increase"].as_f64().unwrap();
    let (low, high) = each.iter().fold((f64::MAX, 0f64), |(low, high), one| (low.min(*one), high.max(*one)));
    assert!(low < whole && whole < high, "{low} {whole} {high}");
    let text = place.ok("explain r --rows 30");
    assert!(
        text.err.contains("val, 30 of 120 rows, each by the one of 3 folds that has not seen it: rmse"),
        "{}",
        text.err
    );
    assert!(place.fails("explain r --column rooms", 2).contains("fold-1"));
    assert!(place.fails("explain r --split train", 2).contains("fold-1"));
}
