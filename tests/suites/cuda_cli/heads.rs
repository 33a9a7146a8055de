//! Models of several targets.

use super::support::{Place, assert_same_runs};
use super::{emulator, ok_with};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// In single precision as PyTorch, and in half precision, whose gradients are those of a scaled sum, nearly so.
#[test]
fn losses_of_heads_are_summed_on_a_gpu() {
    let Some(folder) = emulator::library_dir() else { return };
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/heads");
    let place = Place::new();
    for file in ["t.csv", "val.csv", "start.safetensors"] {
        fs::copy(from.join(file), place.path(file)).unwrap();
    }
    let config = fs::read_to_string(from.join("config.toml")).unwrap();
    place.write("c.toml", config.replace("device = \"cpu\"", "device = \"cuda\""));
    let golden: Value = serde_json::from_slice(&fs::read(from.join("golden.json")).unwrap()).unwrap();
    ok_with(&place, &folder, "train c.toml --quiet --out fp32", &[]);
    ok_with(&place, &folder, "train c.toml --quiet --out part --set train.max_steps=3", &[]);
    ok_with(&place, &folder, "train --resume part --quiet --set train.max_steps=100", &[]);
    assert_same_runs((&place, "fp32"), (&place, "part"));
    ok_with(&place, &folder, "train c.toml --quiet --out fp16 --set precision=\"fp16\"", &[]);
    for (run, by) in [("fp32", 1e-4), ("fp16", 2e-2)] {
        let lines = place.metrics(run).into_iter().filter(|line| line["kind"] == "epoch");
        let found: Vec<Value> = lines.collect();
        let wanted = golden["evaluations"].as_array().unwrap();
        assert_eq!(found.len(), wanted.len(), "{run}");
        for (found, wanted) in found.iter().zip(wanted) {
            for figure in ["loss", "mae", "kind_loss", "sold_loss"] {
                let (a, b) = (found[format!("val_{figure}")].as_f64().unwrap(), wanted[figure].as_f64().unwrap());
                assert!((a - b).abs() <= by * (1.0 + b), "{run}: {figure} is {a}, not {b}");
            }
        }
    }
    let answers = ok_with(&place, &folder, "predict fp32 val.csv --json --device cuda", &[]).json();
    assert!(answers[0]["heads"]["kind"]["top"][0]["label"].is_string(), "{answers}");
}
