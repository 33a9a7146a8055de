//! Folders of seeds and folds, whose models answer together as those of `predict`.

use super::super::{heads, photos, tables::houses};
use super::Server;
use crate::support::{Place, digits};
use serde_json::{Value, json};
use std::fs;

/// A table whose price is learnt, by models that differ as `more` says.
fn place(more: &str, train: &str) -> Place {
    let config = format!(
        "device = \"cpu\"\nseed = 3\n[data]\nsource = \"csv\"\npath = \"houses.csv\"\nid = \"id\"\nbatch_size = 32\ntarget = \"price\"\n{more}\n\
         [model]\nlayers = [{{ type = \"linear\", out_features = 16 }}, \"relu\", {{ type = \"linear\", out_features = \"$classes\" }}]\n\
         [loss]\ntype = \"mse\"\n[optimizer]\ntype = \"adam\"\nlr = 0.02\n[train]\nepochs = 3\n{train}"
    );
    let place = Place::with(&config);
    place.write("houses.csv", houses(90));
    place.ok("train c.toml --quiet --out r");
    place.write("new.csv", ROWS);
    place
}

const ROWS: &str = "town,rooms,age,id\nsea,9,0,x1\nhill,1,40,x2\nmoon,5,,x3\n";
const OBJECTS: &str = r#"{"instances": [
    {"town": "sea", "rooms": 9, "age": 0, "id": "x1"}, {"rooms": 1, "age": 40, "town": "hill", "id": "x2"}, {"id": "x3", "age": null, "town": "moon", "rooms": 5}]}"#;

/// What `predict` says of files, without their names.
fn predicted(place: &Place, files: &str, more: &str) -> Vec<Value> {
    let done = place.ok(&format!("predict r {files} --threads 1 --json {more}"));
    let mut all = done.json().as_array().unwrap().clone();
    all.iter_mut().for_each(|one| _ = one.as_object_mut().unwrap().remove("file"));
    all
}

fn rows(server: &Server) -> Vec<Value> {
    server.ask("POST", "/predict", "Content-Type: text/csv\r\n", ROWS.as_bytes()).predictions()
}

/// The rows become other numbers for each fold, as each has found its own means.
#[test]
fn folds_of_a_table_answer_as_by_predict() {
    let place = place("folds = 3", "");
    let server = Server::start(&place, "r --max-batch 4");
    let expected = predicted(&place, "new.csv", "--set data.eval_batch_size=4");
    assert!(expected.len() == 3 && expected[1]["id"] == "x2", "{expected:?}");
    assert_eq!(rows(&server), expected);
    assert_eq!(server.json("/predict/r", OBJECTS).predictions(), expected);
    let model = server.get("/models").json()["models"][0].clone();
    assert_eq!((&model["members"], &model["columns"]), (&json!(3), &json!(["rooms", "age", "town"])));
    // Not what one of them says.
    let one = Server::start(&place, "r/fold-1 --max-batch 4");
    assert_ne!(rows(&one), expected);
    assert!(one.get("/models").json()["models"][0]["members"].is_null());
    // Lists of cells, in the order of the columns.
    let lists = r#"{"instances": [[9, 0, "sea"], [1, 40, "hill"], [5, null, "moon"]]}"#;
    let values = |all: &[Value]| all.iter().map(|one| one["values"].clone()).collect::<Vec<_>>();
    assert_eq!(values(&server.json("/predict", lists).predictions()), values(&expected));
    for (body, part) in [
        (r#"{"instances": [[1, 2, "sea"], [1, 2]]}"#, "sample 1: there are 2 cells, and the model takes 3 columns"),
        (r#"{"instances": [{"town": "sea", "rooms": 9}]}"#, "sample 0: the column `age` is not there"),
    ] {
        let answer = server.json("/predict", body);
        assert!(answer.status == 422 && answer.error().contains(part), "{body}: {answer:?}");
    }
    // Numbers that rows have become are those of one fold.
    let width = server.get("/v2/models/r").json()["inputs"][0]["shape"][1].as_u64().unwrap() as usize;
    let input = json!({ "name": "inputs", "datatype": "FP32", "shape": [1, width], "data": vec![0.5; width] });
    let answer = server.json("/v2/models/r/infer", &json!({ "inputs": [input] }).to_string());
    assert!(answer.status == 422 && answer.error().contains("POST them to /predict"), "{answer:?}");
    assert_eq!(server.metric("runner_batch_requests_sum{model=\"r\"}"), 3.0, "each was computed once");
    assert_eq!(server.metric("runner_batch_samples_sum{model=\"r\"}"), 9.0);
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn seeds_of_a_table_answer_tensors_too() {
    let place = place("validation_split = 0.2", "seeds = 3\n");
    let server = Server::start(&place, "r --max-batch 4 --executables 2");
    let expected = predicted(&place, "new.csv", "--set data.eval_batch_size=4");
    assert_eq!(rows(&server), expected);
    assert_eq!(server.json("/predict", OBJECTS).predictions(), expected);
    let width = server.get("/v2/models/r").json()["inputs"][0]["shape"][1].as_u64().unwrap() as usize;
    let data: Vec<f64> = (0..5 * width).map(|at| at as f64 / 7.0 - 1.0).collect();
    let body = json!({ "inputs": [{ "name": "inputs", "datatype": "FP32", "shape": [5, width], "data": data }] });
    let said = |name: &str, server: &Server| -> Vec<f64> {
        let answer = server.json(&format!("/v2/models/{name}/infer"), &body.to_string()).json();
        answer["outputs"][0]["data"].as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect()
    };
    let each = Server::start(&place, "a=r/seed-1 b=r/seed-2 c=r/seed-3 --max-batch 4");
    let each = ["a", "b", "c"].map(|name| said(name, &each));
    let all = said("r", &server);
    assert_eq!(all.len(), 5);
    for (at, mean) in all.iter().enumerate() {
        let expected = each.iter().map(|one| one[at]).sum::<f64>() / 3.0;
        assert!((mean - expected).abs() <= 1e-5 * expected.abs().max(1.0), "{mean} and {expected}");
    }
    assert_ne!(each[0], each[1]);
}

/// What models with heads say together is the mean for each head, too.
#[test]
fn folds_with_heads_answer_as_by_predict() {
    let place = heads::place(heads::HEADS, "");
    // What the classes weigh is another number for each fold.
    let balanced = "{ type = \"cross_entropy\", weight = \"balanced\" }";
    let config = place.read("c.toml").replace("validation_split = 0.25", "folds = 2");
    let config = config.replace("loss = \"cross_entropy\"", &format!("loss = {balanced}"));
    place.write("c.toml", config);
    place.ok("train c.toml --quiet --out r --set train.epochs=1");
    let new = "area,rooms,city\n40,2,A\n150,5,C\n";
    place.write("new.csv", new);
    let expected = predicted(&place, "new.csv", "--set data.eval_batch_size=4");
    assert!(expected.iter().all(|one| one["heads"]["kids"]["probabilities"].is_array()), "{expected:?}");
    let server = Server::start(&place, "r --max-batch 4");
    let answer =
        |server: &Server| server.ask("POST", "/predict", "Content-Type: text/csv\r\n", new.as_bytes()).predictions();
    assert_eq!(answer(&server), expected);
    let one = Server::start(&place, "r/fold-1 --max-batch 4");
    assert_ne!(answer(&one), expected);
}

#[test]
fn seeds_of_photos_answer_as_by_predict() {
    let place = photos::place("", photos::TRANSFORMS);
    place.ok("train c.toml --quiet --out r --set train.seeds=2 --set train.epochs=1");
    let mut files = Vec::new();
    for number in 0..6 {
        let name = format!("d/{number}.png");
        photos::photo(&place, &name, (number % 2) as u8, 70 + number);
        files.push(("x.png", fs::read(place.path(&name)).unwrap()));
    }
    let server = Server::start(&place, "r --max-batch 4");
    let expected = predicted(&place, "d", "--set data.eval_batch_size=4 --top 2");
    let mut answers = server.files("/predict?top=2", &files).predictions();
    answers.iter_mut().for_each(|one| _ = one.as_object_mut().unwrap().remove("file"));
    assert_eq!(answers, expected);
    for (number, (_, file)) in files.iter().enumerate() {
        assert_eq!(server.image("/predict?top=2", file).predictions(), [expected[number].clone()]);
    }
    assert_eq!(server.image("/predict", b"no image").status, 400);
}

/// All answer from one training, whatever becomes of the folder.
#[test]
fn members_are_loaded_anew_together() {
    let place = place("validation_split = 0.2", "seeds = 2\n");
    place.ok("train c.toml --quiet --out other --set train.epochs=5");
    let server = Server::start(&place, "r");
    let before = rows(&server);
    let load = || server.ask("POST", "/v2/repository/models/r/load", "", b"");
    let refused = |part: &str| {
        let answer = load();
        assert!(answer.status == 500 && answer.error().contains(part), "{answer:?}");
        assert_eq!(rows(&server), before);
        place.fails("serve r --port 0", 1)
    };
    // The first seed is of a training that was longer, as where that was cut off after it.
    let copy = |seed: &str| {
        fs::remove_dir_all(place.path(&format!("r/{seed}"))).unwrap();
        fs::rename(place.path(&format!("other/{seed}")), place.path(&format!("r/{seed}"))).unwrap();
    };
    copy("seed-1");
    let message = refused("`train.epochs` is 5 in seed 1, and 3 in seed 2");
    assert!(message.contains("of one training") && message.contains("--resume r"), "{message}");
    // A training is at work.
    let lock = place.path("r/seed-2/.lock");
    let held = fs::File::create(&lock).unwrap();
    held.lock().unwrap();
    refused("a training is at work there");
    drop(held);
    fs::remove_file(lock).unwrap();
    copy("seed-2");
    assert_eq!(load().status, 200);
    let after = rows(&server);
    assert_ne!(after, before);
    assert_eq!(after, predicted(&place, "new.csv", ""));
    let loads = |result: &str| server.metric(&format!("runner_model_loads_total{{model=\"r\",result=\"{result}\"}}"));
    assert_eq!((loads("done"), loads("failed")), (1.0, 2.0));
    // One that is not there.
    fs::remove_dir_all(place.path("r/seed-2")).unwrap();
    assert_eq!(load().status, 500);
    assert_eq!(rows(&server), after);
    assert_eq!(server.stop(), Some(0));
}

/// Models of one folder that do not answer the same are none that answer together.
#[test]
fn a_folder_of_others_is_refused() {
    let place = Place::new();
    for (seed, width) in [(1, 4), (2, 5)] {
        let hidden = format!("{{ type = \"linear\", out_features = {width} }}");
        let layers = format!("[model]\nlayers = [\"flatten\", {hidden}, {{ type = \"linear\", out_features = 10 }}]\n");
        place.write("d.toml", digits("", &(layers + "[optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nsteps = 2\n")));
        place.ok(&format!("train d.toml --quiet --out s/seed-{seed} --set seed={seed}"));
    }
    place.write("s/seeds.json", "{\"seeds\":2}\n");
    let message = place.fails("serve s --port 0", 1);
    assert!(message.contains("out_features` is 4 in seed 1, and 5 in seed 2"), "{message}");
}
