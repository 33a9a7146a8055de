//! `runner runs --mlflow`, to a server on this machine that keeps what MLflow's would.

use super::support::{Place, digits};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What the server was sent.
#[derive(Default)]
struct Kept {
    experiments: Vec<String>,
    /// Of each run: what it was made with, its settings, its points, and the last update.
    runs: Vec<Sent>,
    tokens: Vec<String>,
}

#[derive(Default)]
struct Sent {
    made: Value,
    params: BTreeMap<String, String>,
    points: Vec<Value>,
    update: Value,
}

fn server() -> (String, Arc<Mutex<Kept>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let kept = Arc::new(Mutex::new(Kept::default()));
    let log = kept.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            answer(stream.unwrap(), &mut log.lock().unwrap());
        }
    });
    (address, kept)
}

fn answer(stream: TcpStream, kept: &mut Kept) {
    let mut tokens = Kept::default();
    let said = std::cell::RefCell::new(&mut *kept);
    answer_by(stream, &mut tokens, &|path, body| reply(path, body, &mut said.borrow_mut()));
    kept.tokens.extend(tokens.tokens);
}

fn answer_by(stream: TcpStream, kept: &mut Kept, reply: &dyn Fn(&str, &Value) -> Result<Value, String>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut line, mut length, mut path) = (String::new(), 0, String::new());
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        let lower = line.to_lowercase();
        if path.is_empty() {
            path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        } else if let Some(n) = lower.strip_prefix("content-length: ") {
            length = n.trim().parse().unwrap();
        } else if let Some(token) = line.split_once("uthorization: ") {
            kept.tokens.push(token.1.trim().to_owned());
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let (status, said) = match reply(path.strip_prefix("/api/2.0/mlflow/").unwrap_or_default(), &body) {
        Ok(said) => ("200 OK", said),
        Err(message) => ("400 Bad Request", json!({ "error_code": "INVALID_PARAMETER_VALUE", "message": message })),
    };
    let said = said.to_string();
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", said.len());
    let mut stream = stream;
    let _ = stream.write_all((head + &said).as_bytes());
}

fn reply(path: &str, body: &Value, kept: &mut Kept) -> Result<Value, String> {
    let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
    match path {
        "experiments/search" => {
            let found = kept.experiments.iter().position(|name| text("filter") == format!("name = '{name}'"));
            Ok(match found {
                Some(at) => json!({ "experiments": [{ "experiment_id": at.to_string() }] }),
                None => json!({}),
            })
        }
        "experiments/create" => {
            kept.experiments.push(text("name"));
            Ok(json!({ "experiment_id": (kept.experiments.len() - 1).to_string() }))
        }
        "runs/search" => {
            let fits = |sent: &Sent| {
                let tags = sent.made["tags"].as_array().unwrap();
                let tag = |tag: &&Value| tag["key"].as_str().unwrap().starts_with("runner.");
                tags.iter().filter(tag).all(|tag| {
                    let wanted =
                        format!("tags.`{}` = '{}'", tag["key"].as_str().unwrap(), tag["value"].as_str().unwrap());
                    text("filter").contains(&wanted)
                })
            };
            Ok(match kept.runs.iter().position(fits) {
                Some(at) => json!({ "runs": [{ "info": { "run_id": at.to_string() } }] }),
                None => json!({}),
            })
        }
        "runs/create" => {
            kept.runs.push(Sent { made: body.clone(), ..Sent::default() });
            Ok(json!({ "run": { "info": { "run_id": (kept.runs.len() - 1).to_string() } } }))
        }
        "runs/log-batch" | "runs/update" => {
            let run = &mut kept.runs[text("run_id").parse::<usize>().unwrap()];
            if path == "runs/update" {
                run.update = body.clone();
            }
            for param in body["params"].as_array().into_iter().flatten() {
                let [key, value] = ["key", "value"].map(|k| param[k].as_str().unwrap().to_owned());
                if run.params.insert(key.clone(), value).is_some() {
                    return Err(format!("{key} was sent before"));
                }
            }
            let points = body["metrics"].as_array().into_iter().flatten();
            // MLflow keeps a point once.
            points.for_each(|point| {
                if !run.points.contains(point) {
                    run.points.push(point.clone());
                }
            });
            Ok(json!({}))
        }
        other => Err(format!("there is no {other}\nand this is a second line")),
    }
}

/// The id of a run is printed: a line feed in it would forge a line.
#[test]
fn a_number_of_a_run_is_one() {
    let model = "[model]\nlayers = [\"flatten\", { type = \"linear\", out_features = 10 }]\n";
    let rest = "[optimizer]\ntype = \"sgd\"\nlr = 0.5\n[train]\nepochs = 1\n";
    let place = Place::with(&digits("", &format!("{model}{rest}")));
    place.ok("train c.toml --quiet --out runs/c/1");
    for (number, fine) in [("a\nsent `x` as y", false), ("", false), ("a b", false), ("0a-F_9.", true)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let id = number.to_owned();
        std::thread::spawn(move || {
            let kept = &mut Kept::default();
            let number = |path: &str, body: &Value| match path {
                "runs/create" => Ok(json!({ "run": { "info": { "run_id": id } } })),
                "runs/log-batch" | "runs/update" => Ok(json!({})),
                _ => reply(path, body, &mut Kept::default()),
            };
            for stream in listener.incoming() {
                answer_by(stream.unwrap(), kept, &number);
            }
        });
        let done = place.run(&format!("runs --mlflow {address}"));
        assert_eq!(done.code, Some(i32::from(!fine)), "{number:?}: {done:?}");
        assert_eq!(done.err.contains("sent `"), fine, "{number:?}: {done:?}");
        assert_eq!(done.err.contains("no number of a run"), !fine, "{number:?}: {done:?}");
    }
}

#[test]
fn runs_are_sent_and_go_on_where_they_were() {
    let model = "[model]\nlayers = [\"flatten\", { type = \"linear\", out_features = 10 }]\n";
    let rest = "[optimizer]\ntype = \"sgd\"\nlr = 0.5\n[train]\nepochs = 2\n[log]\nevery_steps = 1\n";
    let place = Place::with(&digits("", &format!("{model}{rest}")));
    place.ok("train c.toml --quiet --out runs/c/1");
    place.ok("train c.toml --quiet --out runs/c/2 --set optimizer.lr=0.25");
    let (address, kept) = server();
    let send = || {
        let mut command = place.command(&format!("runs --mlflow {address}/"));
        let done = command.env("MLFLOW_TRACKING_TOKEN", "secret").output().unwrap();
        assert!(done.status.success(), "{done:?}");
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(said.contains("sent `runs/c/1` as 0") && said.contains("sent `runs/c/2` as 1"), "{said}");
    };
    send();
    let count = |run: usize| kept.lock().unwrap().runs[run].points.len();
    let first = count(0);
    {
        let kept = kept.lock().unwrap();
        assert_eq!(kept.experiments, ["c"]);
        assert!(kept.tokens.iter().all(|token| token == "Bearer secret") && kept.tokens.len() > 5);
        let [one, two] = &kept.runs[..] else { panic!("{} runs", kept.runs.len()) };
        assert_eq!((one.params["optimizer.lr"].as_str(), two.params["optimizer.lr"].as_str()), ("0.5", "0.25"));
        assert_eq!((&one.made["run_name"], &one.update["status"]), (&json!("c/1"), &json!("FINISHED")));
        assert!(one.update["end_time"].as_u64() >= one.made["start_time"].as_u64());
        // Each line of the run's own file has its points, in the order of time.
        for line in place.metrics("runs/c/1").iter().filter(|line| line["step"].is_u64()) {
            for key in ["loss", "lr", "val_loss", "val_accuracy"].iter().filter(|key| line[**key].is_number()) {
                let is_it = |point: &&Value| {
                    point["key"] == **key && point["step"] == line["step"] && point["value"] == line[*key]
                };
                assert_eq!(one.points.iter().filter(is_it).count(), 1, "{key} of {line}");
            }
        }
        let times: Vec<u64> = one.points.iter().map(|point| point["timestamp"].as_u64().unwrap()).collect();
        assert!(times.is_sorted() && times[0] == one.made["start_time"].as_u64().unwrap(), "{times:?}");
    }
    // What is there is not sent as something else, and a run that goes on has more.
    send();
    assert_eq!(count(0), first);
    place.ok("train --quiet --resume runs/c/1 --set train.epochs=3");
    send();
    assert!(count(0) > first);
    assert_eq!(kept.lock().unwrap().runs.len(), 2);
}

#[test]
fn a_server_that_is_none_is_an_error() {
    let place = Place::with(&digits(
        "",
        "[model]\nlayers = [\"flatten\", { type = \"linear\", out_features = 10 }]\n[optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n",
    ));
    place.ok("train c.toml --quiet --out runs/c/1");
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let said = place.fails(&format!("runs --mlflow http://{closed}"), 1);
    assert!(said.contains("MLflow at http://127.0.0.1") && said.contains("experiments/search"), "{said}");
    let (address, _) = server();
    let said = place.fails(&format!("runs --mlflow {address}/elsewhere"), 1);
    assert!(said.contains("answered 400 Bad Request there is no") && !said.contains("second line"), "{said}");
}
