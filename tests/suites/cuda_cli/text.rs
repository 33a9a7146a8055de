//! Models that write, and recurrent layers that go on from batch to batch.

use super::support::{Place, assert_same_runs};
use super::{emulator, ok_with};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

fn golden(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(of)
}

fn read(path: PathBuf) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn states_go_on_from_batch_to_batch_as_in_pytorch() {
    let Some(folder) = emulator::library_dir() else { return };
    for name in ["lstm", "gru", "rnn"] {
        let place = Place::new();
        let from = golden("carried_state");
        for file in ["text.txt", "val.txt"] {
            fs::copy(from.join(file), place.path(file)).unwrap();
        }
        fs::copy(from.join(name).join("start.safetensors"), place.path("start.safetensors")).unwrap();
        let config = fs::read_to_string(from.join(name).join("config.toml")).unwrap();
        place.write("c.toml", config.replace("device = \"cpu\"", "device = \"cuda\""));
        ok_with(&place, &folder, "train c.toml --out r", &[]);
        ok_with(&place, &folder, "train c.toml --out part --set train.max_steps=3", &[]);
        ok_with(&place, &folder, "train --resume part --set train.max_steps=1000", &[]);
        assert_same_runs((&place, "r"), (&place, "part"));
        let wanted = read(from.join(name).join("golden.json"));
        for (kind, key, of) in [("step", "loss", "steps"), ("epoch", "val_loss", "evaluations")] {
            let lines = place.metrics("r").into_iter().filter(|line| line["kind"] == kind);
            let found: Vec<f64> = lines.map(|line| line[key].as_f64().unwrap()).collect();
            let wanted: Vec<f64> = wanted[of].as_array().unwrap().iter().map(|loss| loss.as_f64().unwrap()).collect();
            assert_eq!(found.len(), wanted.len(), "{name}");
            assert!(found.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 2e-5), "{name}: {found:?}, not {wanted:?}");
        }
    }
}

/// A place with a small GPT-2 and its configuration.
fn gpt2() -> Place {
    let (place, from) = (Place::new(), golden("beams/gpt2"));
    fs::create_dir(place.path("gpt2")).unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        fs::copy(from.join(file), place.path(&format!("gpt2/{file}"))).unwrap();
    }
    place.ok("import gpt2");
    place
}

#[test]
fn beams_are_those_of_transformers() {
    let Some(folder) = emulator::library_dir() else { return };
    let (place, from) = (gpt2(), golden("beams/gpt2"));
    let cases = read(from.join("golden.json"));
    for case in cases.as_array().unwrap().iter().filter(|case| case["prompt"] == "a" && case["beams"] == 4) {
        let early = if case["early_stopping"] == true { "--early-stopping" } else { "" };
        let (penalty, longest) = (&case["length_penalty"], &case["max_tokens"]);
        let more = format!("--beams 4 --samples 4 --length-penalty {penalty} {early} --max-tokens {longest}");
        let out =
            ok_with(&place, &folder, &format!("generate gpt2.toml --device cuda --prompt a --json {more}"), &[]).out;
        let found: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let wanted = case["found"].as_array().unwrap();
        assert!(found.iter().zip(wanted).all(|(a, b)| a["tokens"] == b["tokens"]), "{found:?}, {case}");
        assert_eq!(found.len(), wanted.len());
    }
}

/// One program adds a token to all of them.
#[test]
fn texts_that_are_served_at_a_time_are_those_of_generate() {
    let Some(folder) = emulator::library_dir() else { return };
    let place = gpt2();
    let mut command = place.command("serve gpt2.toml --device cuda --port 0 --texts 3");
    let mut server =
        command.env("LD_LIBRARY_PATH", &folder).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split_once("://").unwrap().1.split(',').next().unwrap().to_owned();
    let alone = |prompt: &str, seed: usize| {
        let args = format!("generate gpt2.toml --device cuda --prompt {prompt} --max-tokens 12 --seed {seed} --json");
        ok_with(&place, &folder, &args, &[]).json()["text"].as_str().unwrap().to_owned()
    };
    let wanted: Vec<String> = ["a", "ab", "abc"].iter().zip(0..).map(|(prompt, seed)| alone(prompt, seed)).collect();
    let served = |prompt: &str, seed: usize| {
        let body = format!("{{\"prompt\": \"{prompt}\", \"max_tokens\": 12, \"seed\": {seed}}}");
        let mut stream = TcpStream::connect(&address).unwrap();
        let head =
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json";
        write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let json: Value =
            serde_json::from_str(&answer[answer.find('{').unwrap()..=answer.rfind('}').unwrap()]).unwrap();
        json["choices"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    std::thread::scope(|scope| {
        for (seed, (prompt, wanted)) in ["a", "ab", "abc"].iter().zip(&wanted).enumerate() {
            let served = &served;
            scope.spawn(move || (0..3).for_each(|_| assert_eq!(&served(prompt, seed), wanted, "{prompt}")));
        }
    });
    server.kill().unwrap();
    server.wait().unwrap();
}
