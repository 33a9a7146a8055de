//! Tables: cells of what ran, and nothing else.

use super::{Place, python, ready, text};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// The summary of these results.
fn summary(results: &[Value]) -> String {
    let place = Place::new();
    let lines: String = results.iter().map(|r| format!("{r}\n")).collect();
    fs::write(place.path("results.jsonl"), lines).unwrap();
    let code = "import sys, pathlib, gpu_figures; print(gpu_figures.summary(pathlib.Path(sys.argv[1])))";
    let done = python(code, &[&place.path("")]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    text(&done.stdout)
}

fn begun() -> Value {
    json!({ "stage": "speed", "commit": "0123abc", "device": "cuda", "machine": "A GPU.", "parts": [["bench", 130], ["peer", 220]] })
}

fn bench(model: &str, precision: &str, step: f64) -> Value {
    json!({ "kind": "bench", "model": model, "precision": precision, "way": "", "step_ms": step, "transfer_ms": 0.25,
            "compute_ms": 0.8 * step, "wait_ms": 0.1, "peak_bytes": 3 << 20 })
}

fn peer(model: &str, precision: &str, mode: &str, step: f64) -> Value {
    json!({ "kind": "peer", "model": model, "precision": precision, "mode": mode, "step_ms": step })
}

#[test]
fn only_ways_that_ran_are_compared() {
    if !ready() {
        return;
    }
    let text = summary(&[
        begun(),
        bench("mlp", "fp32", 2.0),
        bench("mlp", "bf16", 1.0),
        bench("mnist_cnn", "fp32", 4.0),
        peer("mlp", "fp32", "eager", 6.0),
        peer("mlp", "fp32", "channels_last", 5.0),
        peer("mlp", "fp32", "graph", 3.0),
        json!({ "kind": "peer", "model": "mlp", "precision": "bf16", "mode": "eager", "error": "RuntimeError: out of luck" }),
        peer("mlp", "bf16", "channels_last", 5.0),
        json!({ "kind": "peer", "model": "mlp", "precision": "bf16", "mode": "graph", "left_out": "the time is over" }),
        peer("resnet18_32", "fp32", "eager", 9.0),
    ]);
    let rows = [
        "| training step | precision | runner | PyTorch eager | PyTorch channels_last | PyTorch graph | ratio to eager | to the best |",
        "| mlp | bf16 | 1.000 ms |  | 5.000 ms |  |  | 5.00 (channels_last) |",
        "| mlp | fp32 | 2.000 ms | 6.000 ms | 5.000 ms | 3.000 ms | 3.00 | 1.50 (graph) |",
        "| mnist_cnn | fp32 | 4.000 ms |  |  |  |  |  |",
        "| resnet18_32 | fp32 |  | 9.000 ms |  |  |  |  |",
        "| mlp | fp32 |  | 2.000 ms | 0.250 ms | 1.600 ms | 0.100 ms | 80 % | 3 MiB |",
        "- PyTorch eager, mlp in bf16: RuntimeError: out of luck",
        "PyTorch's ways that no time was left for: graph of mlp in bf16.",
    ];
    for row in rows {
        assert!(text.contains(row), "{row}\n{text}");
    }
    assert!(!text.contains("compile"), "a way that never ran has no column:\n{text}");
}

#[test]
fn without_pytorch_there_is_nothing_to_compare() {
    if !ready() {
        return;
    }
    let text = summary(&[begun(), bench("mlp", "fp32", 2.0)]);
    assert!(text.contains("| mlp | fp32 | 2.000 ms |\n") && text.contains("PyTorch was not measured."), "{text}");
    assert!(!text.contains("ratio"), "{text}");
    let text = summary(&[begun()]);
    assert!(!text.contains("| training step"), "{text}");
    assert!(text.contains("| bench | **not started** |"), "{text}");
}

/// Writes metrics with these losses.
fn metrics(path: &Path, losses: &[f64]) {
    let lines: String = losses.iter().map(|l| format!("{}\n", json!({ "kind": "step", "loss": l }))).collect();
    fs::write(path, lines).unwrap();
}

#[test]
fn curves_and_losses_are_compared() {
    if !ready() {
        return;
    }
    let place = Place::new();
    let [a, b] = ["a.jsonl", "b.jsonl"].map(|name| place.path(name));
    let losses = |x: &[f64], y: &[f64]| {
        metrics(&a, x);
        metrics(&b, y);
        let code = "import sys, pathlib, gpu_figures as g\n\
                    print(g.losses(*map(pathlib.Path, sys.argv[1:]))[0])\n\
                    print(g.curves({'fp32': pathlib.Path(sys.argv[1]), 'bf16': pathlib.Path(sys.argv[2])})[0])";
        let done = python(code, &[&a, &b]);
        assert!(done.status.success(), "{}", text(&done.stderr));
        text(&done.stdout)
    };
    assert_eq!(losses(&[2.0, 1.0], &[2.0001, 1.05]), "True\n[]\n");
    assert_eq!(losses(&[2.0, 1.0], &[2.001, 1.0]), "False\n[]\n");
    assert_eq!(losses(&[2.0, 1.0], &[2.0, 1.3]), "False\n['bf16']\n");
    assert_eq!(losses(&[2.0, 1.0], &[2.0]), "False\n['bf16']\n");
    assert_eq!(losses(&[2.0, 1.0], &[2.0, f64::NAN]), "False\n['bf16']\n");
    assert_eq!(losses(&[], &[]), "False\n['fp32', 'bf16']\n");
}

#[test]
fn weights_are_compared_bit_by_bit() {
    if !ready() {
        return;
    }
    let place = Place::new();
    // The same but for what the header says besides tensors.
    let file = |name: &str, note: &str, values: [f32; 2]| {
        let header =
            json!({ "__metadata__": { "note": note }, "w": { "dtype": "F32", "shape": [2], "data_offsets": [0, 8] } })
                .to_string();
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let path = place.path(name);
        fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &bytes].concat()).unwrap();
        path
    };
    let (a, b) = (file("a", "one", [0.0, 1.0]), file("b", "another", [0.0, 1.0]));
    let c = file("c", "one", [-0.0, 1.0]);
    let code = "import sys, pathlib, gpu_figures as g; print(g.other_bits(*map(pathlib.Path, sys.argv[1:])))";
    assert_eq!(text(&python(code, &[&a, &b]).stdout), "[]\n");
    assert_eq!(text(&python(code, &[&a, &c]).stdout), "['w']\n");
}
