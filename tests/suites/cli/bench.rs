//! `bench`: what it measures, and how it reports it.

use super::support::{Place, plain};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("no number `{key}` in {value}"))
}

#[test]
fn a_step_is_timed() {
    let place = Place::with(&plain());
    let json = place.ok("bench c.toml --json --steps 3 --device cpu").json();
    assert!(number(&json, "step_ms") > 0.0 && number(&json, "samples_per_s") > 0.0);
    assert!(number(&json, "step_ms_min") <= number(&json, "step_ms"));
    assert!(json["device"].as_str().unwrap().contains("cpu"));
    assert!(json.get("nodes").is_none() && json.get("wait_ms").is_none(), "not asked for: {json}");
    let text = place.ok("bench c.toml --steps 2 --device cpu").out;
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn an_evaluation_is_timed() {
    let place = Place::with(&plain());
    let sets = "--set data.eval_batch_size=50 --device cpu";
    let json = place.ok(&format!("bench c.toml --eval --json --steps 3 --profile {sets}")).json();
    assert!(json["program"] == "eval" && json["batch_size"] == 50, "{json}");
    let ms = number(&json, "step_ms");
    assert!((number(&json, "samples_per_s") - 50e3 / ms).abs() <= 1e-6 * 50e3 / ms, "{json}");
    let ops: Vec<&Value> = json["nodes"].as_array().unwrap().iter().map(|n| &n["op"]).collect();
    assert!(ops.contains(&&"linear".into()), "{ops:?}");
    assert!(json["nodes"].as_array().unwrap().iter().all(|n| n["backward"] == false), "no gradients: {ops:?}");
    let train = place.ok(&format!("bench c.toml --json --steps 2 --profile {sets}")).json();
    assert!(train["program"] == "train" && train["batch_size"] == 32, "{train}");
    assert!(train["nodes"].as_array().unwrap().iter().any(|n| n["backward"] == true), "{train}");
    let text = place.ok(&format!("bench c.toml --eval --steps 2 {sets}")).out;
    assert!(text.contains("evaluation") && text.lines().count() == 1, "{text}");
    place.fails("bench matmul --eval", 2);
}

/// What is done for parts of a batch has the work of the whole batch.
#[test]
fn an_evaluation_in_parts_is_reported_as_a_whole() {
    let place = Place::with(
        "[data]\nsource = 'synthetic'\nshape = [3, 96, 96]\nclasses = 4\nsamples = 8\nval_samples = 8\nbatch_size = 8\n\
         [model]\nlayers = [{ type = 'conv2d', out_channels = 48, kernel_size = 1 }, 'gelu', 'tanh', { type = 'conv2d', \
         out_channels = 8, kernel_size = 1 }, { type = 'adaptive_avg_pool2d', output_size = 1 }, 'flatten', \
         { type = 'linear', out_features = 4 }]\n\
         [loss]\ntype = 'cross_entropy'\n[optimizer]\ntype = 'sgd'\nlr = 0.1\n[train]\nepochs = 1\n",
    );
    let bench = "bench c.toml --eval --steps 2 --profile --device cpu";
    let [parts, whole] =
        ["", " --without split_batch"].map(|without| place.ok(&format!("{bench} --json{without}")).json());
    let of = |json: &Value, layer: &str, key: &str| {
        let nodes = json["nodes"].as_array().unwrap();
        assert!(!nodes.iter().any(|node| node["op"].as_str().unwrap().starts_with("batch_")), "{json}");
        let node = nodes.iter().find(|node| node["layer"] == layer).unwrap_or_else(|| panic!("{json}"));
        node[key].as_u64().unwrap()
    };
    assert!(of(&parts, "0", "parts") > 1 && of(&whole, "0", "parts") == 1, "{parts} {whole}");
    assert_eq!(of(&parts, "0", "flops"), of(&whole, "0", "flops"));
    assert!(of(&parts, "0", "bytes") >= of(&whole, "0", "bytes"), "weights are read for each part");
    let text = place.ok(bench).out;
    assert!(text.contains(&format!("in {} parts", of(&parts, "0", "parts"))), "{text}");
}

#[test]
fn a_step_without_a_pass_is_reported_as_such() {
    let place = Place::with(&plain());
    let json = place.ok("bench c.toml --json --steps 1 --device cpu --without fuse --without chain --profile").json();
    assert_eq!(json["without"], serde_json::json!(["fuse", "chain"]));
    assert!(json["nodes"].as_array().unwrap().iter().any(|n| n["op"] == "relu"), "{json}");
    let text = place.ok("bench c.toml --steps 1 --device cpu --without simplify --without pool").out;
    assert!(text.starts_with("c.toml without simplify and pool on cpu"), "{text}");
}

#[test]
fn a_profile_has_every_operation() {
    let place = Place::with(&plain());
    let json = place.ok("bench c.toml --steps 2 --profile --json --device cpu").json();
    let nodes = json["nodes"].as_array().unwrap();
    assert!(nodes.windows(2).all(|n| number(&n[0], "ms") >= number(&n[1], "ms")), "the slowest first");
    let product = nodes.iter().find(|n| n["op"] == "linear").unwrap();
    let peak = number(&json, "matmul_gflops");
    assert!(peak > 0.0 && number(product, "flops") > 0.0 && number(product, "bytes") > 0.0, "{product}");
    let share = number(product, "gflops") / peak;
    assert!((number(product, "peak_share") - share).abs() <= 1e-9 * share, "{product}");
    let text = place.ok("bench c.toml --steps 2 --profile --device cpu").out;
    assert_eq!(text.lines().count(), nodes.len() + 3, "the step, the peak, the head, the operations: {text}");
}

#[test]
fn a_trace_opens_in_chrome() {
    let place = Place::with(&plain());
    for (accumulate, steps) in [(1, 3), (2, 2)] {
        let more = if steps == 3 { String::new() } else { format!("--trace-steps {steps}") };
        let line =
            format!("bench c.toml --steps 1 --device cpu --trace t.json {more} --set train.accumulate={accumulate}");
        let done = place.ok(&line);
        assert!(done.err.contains("t.json"), "{}", done.err);
        let trace: Value = serde_json::from_str(&place.read("t.json")).unwrap();
        let events = trace.as_array().unwrap();
        let names: Vec<&Value> = events.iter().filter(|e| e["ph"] == "M").map(|e| &e["args"]["name"]).collect();
        assert!(names.iter().any(|n| n.as_str().unwrap().contains("c.toml")) && names.contains(&&"compute".into()));
        let profile = place
            .ok(&format!("bench c.toml --profile --steps 1 --json --device cpu --set train.accumulate={accumulate}"));
        let nodes = profile.json()["nodes"].as_array().unwrap().len();
        let mut ends: BTreeMap<u64, f64> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for event in events.iter().filter(|e| e["ph"] == "X") {
            let (start, end) = (number(event, "ts"), ends.entry(event["tid"].as_u64().unwrap()).or_default());
            assert!(start >= *end - 1e-6 && number(event, "dur") >= 0.0, "overlaps with the one before: {event}");
            *end = start + number(event, "dur");
            let args = &event["args"];
            assert!(args["layer"].is_string() && args["op"] == event["name"] && args["gflop"].is_number(), "{event}");
            seen.insert((args["step"].as_u64().unwrap(), args["program"].to_string(), args["node"].as_u64().unwrap()));
        }
        assert_eq!(seen.len(), nodes * steps, "every operation of every step");
        assert!(events.iter().any(|e| e["cat"] == "backward"));
    }
    assert!(place.fails("bench c.toml --steps 1 --device cpu --trace nowhere/t.json", 2).contains("nowhere/t.json"));
    place.write("r/metrics.jsonl", "{}\n");
    let error = place.fails("bench c.toml --steps 1 --device cpu --trace r/metrics.jsonl", 2);
    assert!(error.contains("a file of the run in `r`"), "{error}");
}

#[test]
fn a_matrix_product_is_timed() {
    let place = Place::new();
    let json = place.ok("bench matmul --n 64 --steps 3 --json").json();
    assert_eq!(json["n"], 64);
    let devices = json["devices"].as_array().unwrap();
    assert!(devices[0]["device"].as_str().unwrap().contains("cpu"), "{json}");
    assert!(devices.len() == 2 || json["no_gpu"].is_string(), "a second device, or why there is none: {json}");
    for device in devices {
        let share = number(device, "gflops") / number(device, "peak_gflops");
        assert!(share > 0.0 && (number(device, "peak_share") - share).abs() <= 1e-9, "{device}");
    }
    let json = place.ok("bench matmul --n 48 --steps 2 --json --device cpu --threads 1").json();
    assert!(json["devices"].as_array().unwrap().len() == 1 && json.get("no_gpu").is_none(), "{json}");
    let text = place.ok("bench matmul --n 48 --steps 2 --device cpu").out;
    assert!(text.contains("48 × 48 × 48") && text.contains("GFLOP/s") && text.lines().count() == 2, "{text}");
    place.fails("bench matmul --set train.epochs=1", 2);
    place.fails("bench matmul --trace t.json", 2);
    place.fails("bench matmul --n 0", 2);
}
