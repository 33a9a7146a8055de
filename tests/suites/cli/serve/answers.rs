//! Answers are those of `predict`, whatever other clients ask.

use super::super::{fields, hashed_columns, heads, masks, table_tokens, tables, text, text_pairs, text_tags};
use super::{Server, TRAIN, drawing, instances, trained};
use crate::support::{LAYERS, Place, digits};
use runner::api::predictor::{Options, Predictor};
use runner::checkpoint::{Tensor, write_weights};
use runner::config::language::values::Device;
use serde_json::{Value, json};

/// What `predict` says of files in batches of the server's size, without the names of the files.
fn predicted(place: &Place, files: &str, batch: u64, more: &str) -> Vec<Value> {
    let all =
        place.ok(&format!("predict r {files} --threads 1 --json --set data.eval_batch_size={batch} {more}")).json();
    let mut all = all.as_array().unwrap().clone();
    all.iter_mut().for_each(|one| _ = one.as_object_mut().unwrap().remove("file"));
    all
}

fn without(mut answers: Vec<Value>, key: &str) -> Vec<Value> {
    answers.iter_mut().for_each(|one| _ = one.as_object_mut().unwrap().remove(key));
    answers
}

/// A request with a sample for which the model puts out no numbers is refused, and the next one is answered.
#[test]
fn what_is_not_finite_is_no_answer() {
    let place = Place::with(
        "[data]\nsource = \"synthetic\"\nshape = [3]\nclasses = 2\n[model]\nweights = \"w.safetensors\"\n\
         layers = [{ name = \"fc\", type = \"linear\", out_features = 2 }]\n[loss]\ntype = \"cross_entropy\"\n\
         [optimizer]\ntype = \"sgd\"\nlr = 0.01\n[train]\nepochs = 1\n",
    );
    let (w, b) = (Tensor::from_f32([2, 3], &[2.0; 6]), Tensor::from_f32([2], &[0.0; 2]));
    write_weights(&place.path("w.safetensors"), &[w.view("fc.weight"), b.view("fc.bias")]).unwrap();
    let server = Server::start(&place, "c.toml");
    let reply = server.json("/predict", r#"{"instances": [[1, 2, 3], [3e38, 0, 0]]}"#);
    assert_eq!(
        (reply.status, reply.error()),
        (500, "what the model puts out for sample 1 is not finite: there is no answer to it".into())
    );
    assert_eq!(server.json("/predict", r#"{"instances": [[1, 2, 3]]}"#).predictions().len(), 1);
}

/// Image files, and tensors as the data has them.
#[test]
fn images_go_through_the_transforms_of_validation() {
    let changes = "transforms = [{ type = \"resize\", size = 16 }, { type = \"center_crop\", size = 12 }]";
    let place = Place::with(&digits(changes, &format!("{LAYERS}\n{TRAIN}")));
    place.ok("train c.toml --quiet --out r");
    let drawings: Vec<_> = (0..5).map(drawing).collect();
    for (number, (file, _)) in drawings.iter().enumerate() {
        place.write(&format!("d/{number:02}.png"), file);
    }
    let server = Server::start(&place, "r --max-batch 5");
    let expected = predicted(&place, "d", 5, "");
    let forms: Vec<(&str, Vec<u8>)> = drawings.iter().map(|(file, _)| ("x.png", file.clone())).collect();
    assert_eq!(without(server.files("/predict", &forms).predictions(), "file"), expected);
    let tensors: Vec<Vec<u8>> = drawings.iter().map(|(_, bytes)| bytes.clone()).collect();
    assert_eq!(without(server.json("/predict/r", &instances(&tensors)).predictions(), "sample"), expected);
    assert_eq!(server.get("/v2/models/r").json()["inputs"][0]["shape"], json!([-1, 1, 8, 8]));
}

#[test]
fn images_are_answered_as_by_predict() {
    let place = trained();
    let drawings: Vec<_> = (0..33).map(drawing).collect();
    for (number, (file, _)) in drawings.iter().enumerate() {
        place.write(&format!("d/{number:02}.png"), file);
    }
    let server = Server::start(&place, "r");
    let batch = server.get("/models").json()["models"][0]["batch"].as_u64().unwrap();
    assert_eq!(batch, 32, "a small model");
    let expected = predicted(&place, "d", batch, "");
    let inverted = predicted(&place, "d", batch, "--invert --top 10");

    let forms: Vec<(&str, Vec<u8>)> = drawings.iter().map(|(file, _)| ("x.png", file.clone())).collect();
    let answers = server.files("/predict", &forms).predictions();
    assert!(answers.iter().all(|one| one["file"] == "x.png"), "{answers:?}");
    assert_eq!(without(answers, "file"), expected);
    // Files of some megabytes, as cameras make them.
    let mut large = Vec::new();
    let image = image::DynamicImage::from(image::GrayImage::from_raw(8, 8, drawings[5].1.clone()).unwrap());
    let image = image.resize_exact(1600, 1600, image::imageops::FilterType::Nearest).into_rgb8();
    image.write_to(&mut std::io::Cursor::new(&mut large), image::ImageFormat::Bmp).unwrap();
    assert!(large.len() > 7_000_000);
    let by_form = server.files("/predict", &[("a.bmp", large.clone()), ("b.bmp", large.clone())]).predictions();
    assert_eq!(without(by_form, "file"), vec![server.image("/predict", &large).predictions()[0].clone(); 2]);
    let tensors: Vec<Vec<u8>> = drawings.iter().map(|(_, bytes)| bytes.clone()).collect();
    let answers = server.json("/predict/r", &instances(&tensors)).predictions();
    assert_eq!(answers[32]["sample"], 32);
    assert_eq!(without(answers, "sample"), expected);
    for (number, (file, _)) in drawings.iter().enumerate() {
        assert_eq!(server.image("/predict", file).predictions(), [expected[number].clone()]);
    }
    let answers = server.files("/predict?top=10&invert=true", &forms).predictions();
    assert_eq!(without(answers, "file"), inverted);
    drop(server);
    let server = Server::start(&place, "r --top 10 --invert");
    assert_eq!(without(server.files("/predict", &forms).predictions(), "file"), inverted);
    let answers = server.files("/predict?top=3&invert=false", &forms).predictions();
    assert_eq!(without(answers, "file"), expected);
}

#[test]
fn company_changes_no_bit_of_an_answer() {
    let place = trained();
    for args in
        ["r --max-batch 4", "r --max-batch 4 --max-delay-ms 20 --executables 2", "r --max-batch 5 --max-delay-ms 0"]
    {
        let server = Server::start(&place, args);
        let drawings: Vec<_> = (0..12).map(drawing).collect();
        let alone: Vec<_> = drawings.iter().map(|(file, _)| server.image("/predict?top=10", file)).collect();
        std::thread::scope(|scope| {
            for thread in 0..6 {
                let (server, drawings, alone) = (&server, &drawings, &alone);
                scope.spawn(move || {
                    for turn in 0..10 {
                        let number = (thread * 5 + turn * 7) % drawings.len();
                        let (file, bytes) = &drawings[number];
                        let mine = &alone[number];
                        if turn % 3 == 2 {
                            // Several samples of one request.
                            let others = [bytes.clone(), drawings[thread].1.clone(), drawings[turn].1.clone()];
                            let all = server.json("/predict?top=10", &instances(&others)).predictions();
                            for (one, of) in all.iter().zip([number, thread, turn]) {
                                assert_eq!(one["top"], alone[of].predictions()[0]["top"], "{args}");
                            }
                        } else {
                            assert_eq!(server.image("/predict?top=10", file).body, mine.body, "{args}");
                        }
                    }
                });
            }
        });
        let requests = server.metric("runner_batch_requests_sum{model=\"r\"}");
        assert_eq!(requests, 72.0, "each was computed once");
    }
}

#[test]
fn rows_are_answered_in_their_own_unit() {
    let place = tables::place(200);
    place.ok("train c.toml --quiet --out r");
    let server = Server::start(&place, "houses=r");
    let model = server.get("/models").json()["models"][0].clone();
    let batch = model["batch"].as_u64().unwrap();
    assert_eq!((&model["takes"], &model["columns"]), (&json!("rows"), &json!(["rooms", "age", "town"])));
    assert_eq!(model["targets"], json!(["price"]));
    let csv = "town;rooms;age;id\nsea;9;0;x1\nhill;1;40;x2\nmoon;5;;x3\n";
    place.write("new.csv", csv);
    let expected = predicted(&place, "new.csv", batch, "");
    assert_eq!((&expected[1]["id"], &expected[2]["sample"]), (&json!("x2"), &json!(2)));

    let answer = server.ask("POST", "/predict", "Content-Type: text/csv\r\n", csv.as_bytes());
    assert_eq!(answer.predictions(), expected);
    let answer = server.files("/predict/houses", &[("new.csv", csv.as_bytes().to_vec())]);
    assert_eq!(answer.predictions(), expected);
    let tabs = csv.replace(';', "\t");
    let answer = server.ask("POST", "/predict", "Content-Type: text/tab-separated-values\r\n", tabs.as_bytes());
    assert_eq!(answer.predictions(), expected);
    // In any order, with columns that the model does not take; numbers as numbers or as text.
    let objects = r#"{"instances": [
        {"town": "sea", "rooms": 9, "age": 0, "id": "x1", "price": [1, {"a": null}]}, {"rooms": "1", "age": 40.0, "town": " hill", "id": "x2"},
        {"id": "x3", "age": null, "town": "moon", "rooms": 5}]}"#;
    assert_eq!(server.json("/predict", objects).predictions(), expected);
    let lists = r#"{"instances": [[9, 0, "sea"], [1, 40, "hill"], [5, null, "moon"]]}"#;
    assert_eq!(server.json("/predict", lists).predictions(), without(expected, "id"));

    for (body, part) in [
        (r#"{"instances": [{"town": "sea", "rooms": 9}]}"#, "sample 0: the column `age` is not there"),
        (r#"{"instances": [[1, 2, "sea"], [1, 2]]}"#, "sample 1: there are 2 cells, and the model takes 3 columns"),
        (r#"{"instances": [["many", 2, "sea"]]}"#, "the column `rooms` has `many`, and a number is expected"),
        (r#"{"instances": [[true, 2, "sea"]]}"#, "the column `rooms` has `true`, and a number is expected"),
        (r#"{"instances": [[1, 2, 0.5]]}"#, "the column `town` has `0.5`, and a text in quotes is expected"),
        (r#"{"instances": [[1e300, 2, "sea"]]}"#, "a number of at most 3.4e38"),
        (r#"{"instances": [[[1], 2, "sea"]]}"#, "a cell: a number, a text"),
        (r#"{"instances": [7]}"#, "a row: an object of columns, or a list of cells"),
        (r#"{"instances": {}}"#, "a list of instances"),
        (r#"{"instances": [], "more": 1}"#, "`more` is not expected here"),
        (r#"{"instances": [], "instances": []}"#, "`instances` is there twice"),
        (
            r#"{"instances": [[1, 2, "sea"], {"rooms": 9, "age": 0, "town": "sea", "rooms": 3}]}"#,
            "sample 1: the column `rooms` is there twice",
        ),
        (
            r#"{"instances": [{"rooms": 9, "age": 0, "town": "sea", "id": "x", "id": "x"}]}"#,
            "sample 0: the column `id` is there twice",
        ),
        ("[]", "an object as"),
        ("{}", "there is no `instances`"),
    ] {
        let answer = server.json("/predict", body);
        assert!(answer.status == 422 && answer.error().contains(part), "{body}: {answer:?}");
    }
    for (body, part) in [
        ("rooms,age\n1,2\n", "`town`"),
        ("rooms,age,town\n1,2\n", "line 2 has 2 cells"),
        ("rooms,age,town\nx,2,sea\n", "line 2: the column `rooms` has `x`"),
        ("", "is empty"),
        ("rooms,age,town\n1,2,\"sea\n", "a quote opens here that is not closed"),
    ] {
        let answer = server.ask("POST", "/predict", "Content-Type: text/csv\r\n", body.as_bytes());
        assert!(answer.status == 422 && answer.error().contains(part), "{body}: {answer:?}");
    }
    assert_eq!(server.image("/predict", &drawing(1).0).status, 415);
    assert_eq!(server.json("/predict", r#"{"instances": []}"#).predictions(), Vec::<Value>::new());
}

#[test]
fn hashed_texts_are_those_of_a_file() {
    let place = hashed_columns::place();
    place.ok("train c.toml --quiet --out r --set train.epochs=2");
    let server = Server::start(&place, "r");
    let batch = server.get("/models").json()["models"][0]["batch"].as_u64().unwrap();
    place.write("new.csv", "agent,comment\nnew,\"URGENT, is broken\"\n7,\n");
    let expected = predicted(&place, "new.csv", batch, "");
    let objects =
        json!({ "instances": [{ "agent": "new", "comment": " URGENT, is broken" }, { "comment": null, "agent": 7 }] });
    assert_eq!(server.json("/predict", &objects.to_string()).predictions(), expected);
    let answer = server.json("/predict", r#"{"instances": [{"agent": 0.5, "comment": ""}]}"#);
    assert!(answer.error().contains("the column `agent` has `0.5`, and a text in quotes is expected"), "{answer:?}");
}

/// A column of tokens goes to the model beside the numbers of the others, in any form of a row.
#[test]
fn tokens_of_a_row_are_those_of_a_file() {
    let place = table_tokens::place(table_tokens::TOKENS, table_tokens::NET);
    place.ok("train c.toml --quiet --out r --set train.epochs=1");
    let csv = "note;rooms;id\nquiet but bright;3;a\n;2;b\nnot quiet;1;c\n";
    place.write("new.csv", csv);
    let server = Server::start(&place, "r --max-batch 2");
    let expected = predicted(&place, "new.csv", 2, "");
    assert_eq!(server.ask("POST", "/predict", "Content-Type: text/csv\r\n", csv.as_bytes()).predictions(), expected);
    let objects = r#"{"instances": [{"rooms": 3, "note": "quiet but bright", "id": "a"}, {"note": null, "rooms": 2, "id": "b"},
        {"note": "not quiet", "rooms": 1, "id": "c"}]}"#;
    assert_eq!(server.json("/predict", objects).predictions(), expected);
    let values = |all: &[Value]| all.iter().map(|one| one["values"].clone()).collect::<Vec<_>>();
    let lists = r#"{"instances": [[3, "quiet but bright"], [2, null], [1, "not quiet"]]}"#;
    assert_eq!(values(&server.json("/predict", lists).predictions()), values(&expected));
    let answer = server.json("/predict", r#"{"instances": [{"rooms": 3}]}"#);
    assert!(answer.status == 422 && answer.error().contains("the column `note` is not there"), "{answer:?}");
    let inputs = server.get("/v2/models/r").json()["inputs"].clone();
    assert_eq!(json!([0, 1, 2].map(|at| inputs[at]["name"].clone())), json!(["inputs", "note", "lengths"]));
    // A row that comes by itself has no line in a file.
    place.ok("train c.toml --quiet --out chars --set train.epochs=1 --set data.columns.note.tokenizer=characters");
    let server = Server::start(&place, "chars");
    let answer = server.json("/predict", r#"{"instances": [[3, "quiet"], [2, "é"]]}"#);
    assert!(answer.status == 422 && answer.error().contains("sample 1, in the text of `note`, column 1"), "{answer:?}");
}

#[test]
fn tensors_of_several_names_are_objects() {
    let place = fields::two();
    place.ok("train c.toml --quiet --out r --set train.epochs=1");
    place.write("new.safetensors", fields::tensors(&[("numbers", 0..3), ("more", 3..5)], "", 0..3));
    let server = Server::start(&place, "r");
    let batch = server.get("/models").json()["models"][0]["batch"].as_u64().unwrap();
    let expected = predicted(&place, "new.safetensors", batch, "");
    let number = |sample: usize, column: usize| ((sample * 37 + column * 11) % 17) as f32 / 8.0 - 1.0;
    let row = |i: usize, from: usize, to: usize| (from..to).map(|c| number(i, c)).collect::<Vec<f32>>();
    let body = |n: usize| json!({ "instances": (0..n).map(|i| json!({ "more": row(i, 3, 5), "numbers": row(i, 0, 3) })).collect::<Vec<_>>() });
    let answers = server.json("/predict", &body(3).to_string()).predictions();
    // `predict` has a program for the samples that there are.
    let close = |a: &Value, b: &Value| {
        let share = |v: &Value, class: &Value| {
            let found = v["top"].as_array().unwrap().iter().find(|top| top["class"] == *class).unwrap();
            found["probability"].as_f64().unwrap()
        };
        (0..3).all(|class| (share(a, &class.into()) - share(b, &class.into())).abs() < 1e-5)
    };
    assert!(answers.iter().zip(&expected).all(|(a, b)| close(a, b)), "{answers:?} {expected:?}");
    for (body, part) in [
        (json!({ "instances": [{ "more": [1, 2] }] }), "sample 0: there is no `numbers`"),
        (json!({ "instances": [{ "more": [1, 2], "numbers": [1, 2, 3], "other": 1 }] }), "the model takes no `other`"),
        (json!({ "instances": [{ "more": [1, 2, 3], "numbers": [1, 2, 3] }] }), "`more` is lists of 3"),
        (json!({ "instances": [[1, 2]] }), "expected an object of the tensors `more`, `numbers`"),
        (json!({ "instances": [3] }), "expected an object of the tensors `more`, `numbers`"),
    ] {
        let answer = server.json("/predict", &body.to_string());
        assert!(answer.status == 422 && answer.error().contains(part), "{body}: {answer:?}");
    }
    let twice = r#"{"instances": [{"more": [1, 2], "numbers": [1, 2, 3], "more": [3, 4]}]}"#;
    let answer = server.json("/predict", twice);
    assert!(answer.status == 422 && answer.error().contains("sample 0: `more` is there twice"), "{answer:?}");
}

#[test]
fn tokens_are_ones_that_there_are() {
    let place = Place::with(&text::classifier(""));
    place.write("reviews.csv", text::reviews(40));
    place.ok("train c.toml --quiet --out r --set train.epochs=1");
    let server = Server::start(&place, "r");
    let body = |token: i32, length: i32| {
        let mut tokens = vec![1; 24];
        tokens[23] = token;
        json!({ "instances": [{ "inputs": tokens, "lengths": length }] }).to_string()
    };
    assert_eq!(server.json("/predict", &body(2, 24)).predictions().len(), 1);
    for (token, length, part) in [
        (-1, 24, "`inputs` has -1, and its tokens are from 0 to "),
        (100_000, 24, "`inputs` has 100000, and its tokens are from 0 to "),
        (2, 0, "`lengths` has 0, and its lengths are from 1 to 24"),
        (2, 25, "`lengths` has 25, and its lengths are from 1 to 24"),
    ] {
        let answer = server.json("/predict", &body(token, length));
        assert!(answer.status == 422 && answer.error().contains(part), "{answer:?}");
    }
    let number = |name: &str, shape: &[usize], data: Vec<i32>| json!({ "name": name, "shape": shape, "datatype": "INT32", "data": data });
    let inputs = [number("inputs", &[1, 24], vec![100_000; 24]), number("lengths", &[1], vec![3])];
    let answer = server.json("/v2/models/r/infer", &json!({ "inputs": inputs }).to_string());
    assert!(answer.status == 422 && answer.error().contains("`inputs` has 100000"), "{answer:?}");
}

#[test]
fn pairs_of_texts_come_in_any_form() {
    let place = text_pairs::place();
    place.ok("train c.toml --quiet --out r");
    let server = Server::start(&place, "r");
    let body =
        json!({ "instances": [["it is lovely", "it is dull"], { "text": "it is dull", "text_pair": "it is lovely" }] });
    let lists = server.json("/predict", &body.to_string()).predictions();
    let body =
        json!({ "instances": [{ "text_pair": "it is dull", "text": "it is lovely" }, ["it is dull", "it is lovely"]] });
    assert_eq!(server.json("/predict", &body.to_string()).predictions(), lists);
    assert_eq!((&lists[0]["top"][0]["label"], &lists[1]["top"][0]["label"]), (&json!("no"), &json!("yes")));
    let lines = server.ask(
        "POST",
        "/predict",
        "Content-Type: text/plain\r\n",
        b"it is lovely\tit is dull\nit is dull\tit is lovely\n",
    );
    assert_eq!(lines.predictions(), lists);
    for (instance, part) in [
        (json!("one text"), "text 0: the model takes pairs of texts, and this is one text"),
        (json!({ "text": "one text" }), "text 0: the model takes pairs of texts"),
        (json!(["a", "b", "c"]), "expected a text, [text, text_pair], {"),
        (json!({ "text": "a", "text_pair": "b", "label": "c" }), "expected a text, [text, text_pair], {"),
    ] {
        let answer = server.json("/predict", &json!({ "instances": [instance] }).to_string());
        assert!(answer.status == 422 && answer.error().contains(part), "{answer:?}");
    }
    let answer = server.ask("POST", "/predict", "Content-Type: text/plain\r\n", b"a\tb\nc\n");
    assert!(answer.status == 422 && answer.error().contains("line 2: the model takes pairs"), "{answer:?}");
    let tokens = json!({ "instances": [{ "inputs": vec![1; 32], "lengths": 3, "pair_start": 0 }] });
    let answer = server.json("/predict", &tokens.to_string());
    assert!(
        answer.status == 422 && answer.error().contains("beginnings of second texts are from 1 to 32"),
        "{answer:?}"
    );
}

#[test]
fn words_of_sentences_have_tags() {
    let place = text_tags::place();
    place.ok("train c.toml --quiet --out r --set train.epochs=2");
    let server = Server::start(&place, "r");
    place.write("new.txt", "Ada Lovelace lives in San Marino .\n\n");
    let expected = place.ok("predict r new.txt --json --threads 1").json();
    let expected = without(expected.as_array().unwrap().clone(), "file");
    let words = ["Ada", "Lovelace", "lives", "in", "San", "Marino", "."];
    for body in [
        json!({ "instances": ["Ada Lovelace lives in  San Marino .", ""] }),
        json!({ "instances": [{ "text": "Ada Lovelace lives in San Marino ." }, { "text": "" }] }),
        json!({ "instances": [{ "tokens": words }, { "tokens": [] }] }),
    ] {
        assert_eq!(server.json("/predict", &body.to_string()).predictions(), expected);
    }
    let lines =
        server.ask("POST", "/predict", "Content-Type: text/plain\r\n", b"Ada Lovelace lives in San Marino .\n\n");
    assert_eq!(lines.predictions(), expected);
    for (instances, part) in [
        (json!([["a", "b"]]), "the model takes one text at a time"),
        (json!(["a", { "tokens": ["b"] }]), "some instances are texts and others have `tokens`"),
        (json!([{ "tokens": "a" }]), "expected a text"),
    ] {
        let answer = server.json("/predict", &json!({ "instances": instances }).to_string());
        assert!(answer.status == 422 && answer.error().contains(part), "{answer:?}");
    }
}

#[test]
fn every_pixel_has_its_class() {
    let place = masks::place(1, "");
    place.ok("train c.toml --quiet --out r --set train.epochs=2");
    let server = Server::start(&place, "r");
    let photo = std::fs::read(place.path("photos/3.png")).unwrap();
    let expected = place.ok("predict r photos/3.png --json --threads 1").json();
    let answer = server.image("/predict", &photo).predictions();
    let differ = |a: &Value, b: &Value| {
        let flat = |v: &Value| {
            v.as_array().unwrap().iter().flat_map(|row| row.as_array().unwrap().clone()).collect::<Vec<_>>()
        };
        let (a, b) = (flat(&a["classes"]), flat(&b["classes"]));
        assert_eq!(a.len(), 32 * 32);
        a.iter().zip(&b).filter(|(a, b)| a != b).count()
    };
    // Batches of other sizes may round otherwise where two classes are as likely.
    assert!(differ(&answer[0], &expected[0]) <= 2, "{answer:?}");
    let model = server.get("/v2/models/r").json();
    assert_eq!(model["inputs"][0]["shape"], json!([-1, 3, 32, 32]));
    assert_eq!(model["outputs"][0]["shape"], json!([-1, 2, 32, 32]));
}

/// Of several targets: those of `predict`, in company as alone. The Open Inference Protocol has a tensor for each.
#[test]
fn heads_are_answered_too() {
    let place = heads::place(heads::HEADS, "");
    place.ok("train c.toml --quiet --out r --set train.epochs=2");
    let server = Server::start(&place, "r --max-batch 3");
    let model = server.get("/models").json()["models"][0].clone();
    assert_eq!(
        model["heads"][0],
        json!({ "name": "sold", "task": "classification", "classes": ["fast", "slow", "soon"] })
    );
    assert_eq!((&model["heads"][1]["name"], &model["heads"][1]["task"]), (&json!("kids"), &json!("labels")));
    let csv = "area,rooms,city\n40,2,A\n90,5,C\n150,1,B\n60,3,\n";
    place.write("new.csv", csv);
    let expected = predicted(&place, "new.csv", 3, "--top 2");
    assert!(expected.iter().all(|one| one["heads"]["kids"]["probabilities"].is_array()), "{expected:?}");
    let ask = || server.ask("POST", "/predict?top=2", "Content-Type: text/csv\r\n", csv.as_bytes()).predictions();
    assert_eq!(ask(), expected);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..5).for_each(|_| assert_eq!(ask(), expected)));
        }
    });
    let metadata = server.get("/v2/models/r").json();
    let described = [("outputs", 1), ("sold", 3), ("kids", 1)]
        .map(|(name, width)| json!({ "name": name, "datatype": "FP32", "shape": [-1, width] }));
    assert_eq!(metadata["outputs"], json!(described));
    let width = metadata["inputs"][0]["shape"][1].as_u64().unwrap() as usize;
    let body = json!({ "inputs": [{ "name": "inputs", "datatype": "FP32", "shape": [2, width], "data": vec![0.5; 2 * width] }] });
    let whole = server.json("/v2/models/r/infer", &body.to_string()).json();
    assert_eq!(whole["outputs"][0]["shape"], json!([2, 1]), "{whole}");
    let both = whole["outputs"][0]["data"].as_array().unwrap();
    assert!(both.len() == 2 && both[0] == both[1] && both[0].is_f64(), "{whole}");
    let of = |at: usize| -> Vec<f32> {
        whole["outputs"][at]["data"].as_array().unwrap().iter().map(|n| n.as_f64().unwrap() as f32).collect()
    };
    assert_eq!((&whole["outputs"][1]["shape"], &whole["outputs"][2]["shape"]), (&json!([2, 3]), &json!([2, 1])));
    let options = Options { device: Some(Device::Cpu), batch: 3, threads: Some(1), ..Options::default() };
    let predictor = Predictor::open(&place.path("r"), &options).unwrap();
    let mut expected = vec![0.0; 2 * 5];
    let sample: Vec<u8> = vec![0.5f32; 2 * width].iter().flat_map(|number| number.to_le_bytes()).collect();
    predictor.predict_with_heads(&[&sample], &mut expected).unwrap();
    assert_eq!(of(0), [expected[0], expected[5]]);
    assert_eq!(of(1), [&expected[1..4], &expected[6..9]].concat());
    assert_eq!(of(2), [expected[4], expected[9]]);
    // Those that are asked for, in that order; one as bytes.
    let asked = json!([{ "name": "kids" }, { "name": "sold", "parameters": { "binary_data": true } }]);
    let some = json!({ "inputs": body["inputs"], "outputs": asked });
    let answer = server.json("/v2/models/r/infer", &some.to_string());
    let header = answer.header("inference-header-content-length").unwrap().parse::<usize>().unwrap();
    let head: Value = serde_json::from_slice(&answer.body[..header]).unwrap();
    assert_eq!(head["outputs"][0], whole["outputs"][2]);
    assert_eq!((&head["outputs"][1]["name"], head["outputs"].as_array().unwrap().len()), (&json!("sold"), 2));
    assert_eq!(head["outputs"][1]["parameters"]["binary_data_size"], 24);
    let bytes: Vec<u8> = of(1).iter().flat_map(|number| number.to_le_bytes()).collect();
    assert_eq!(answer.body[header..], bytes);
    for (wrong, part) in [
        (json!([{ "name": "family" }]), "the model has no output `family`: it has `outputs`, `sold`, `kids`"),
        (json!([{ "name": "sold" }, { "name": "sold" }]), "the output `sold` is asked for twice"),
    ] {
        let asked = json!({ "inputs": body["inputs"], "outputs": wrong });
        let answer = server.json("/v2/models/r/infer", &asked.to_string());
        assert_eq!(answer.status, 422, "{answer:?}");
        assert!(answer.error().contains(part), "{answer:?}");
    }
}
