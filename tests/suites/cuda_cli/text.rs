//! Models that write, and recurrent layers that go on from batch to batch.

use super::support::{Place, assert_same_runs};
use super::{emulator, ok_with};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

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

#[test]
fn beams_are_those_of_transformers() {
    let Some(folder) = emulator::library_dir() else { return };
    let place = Place::new();
    let from = golden("beams/gpt2");
    fs::create_dir(place.path("gpt2")).unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        fs::copy(from.join(file), place.path(&format!("gpt2/{file}"))).unwrap();
    }
    place.ok("import gpt2");
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
