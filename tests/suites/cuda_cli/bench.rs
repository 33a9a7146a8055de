//! `bench` on a GPU: steps in a row, what they are made of, and traces with transfers beside the computing.

use crate::support::{Place, plain};
use crate::{emulator, ok_with};
use serde_json::Value;

#[test]
fn steps_are_timed_in_rounds_and_taken_apart() {
    let Some(folder) = emulator::search_path() else { return };
    let place = Place::with(&plain());
    let args = "bench c.toml --steps 2 --device cuda --trace t.json --trace-steps 2";
    let json = ok_with(&place, &folder, &format!("{args} --json"), &[]).json();
    assert!(json["device"].as_str().unwrap().contains("cuda:0"), "{json}");
    assert!(json["step_ms"].as_f64().unwrap() > 0.0 && json["rounds"].as_u64().unwrap() > 1, "{json}");
    for part in ["transfer_ms", "compute_ms", "wait_ms"] {
        assert!(json[part].as_f64().unwrap() >= 0.0, "{part}: {json}");
    }
    let trace: Value = serde_json::from_str(&place.read("t.json")).unwrap();
    let named = |name: &str| trace.as_array().unwrap().iter().any(|e| e["args"]["name"] == name);
    assert!(named("copy in") && named("compute") && named("read back"), "{trace}");
    let text = ok_with(&place, &folder, "bench c.toml --steps 2 --device cuda", &[]).out;
    assert!(text.contains("rounds of") && text.contains("transfer"), "{text}");
}

#[test]
fn a_matrix_product_is_timed_on_both_devices() {
    let Some(folder) = emulator::search_path() else { return };
    let place = Place::new();
    let json = ok_with(&place, &folder, "bench matmul --n 32 --steps 2 --json", &[]).json();
    let devices: Vec<&str> =
        json["devices"].as_array().unwrap().iter().map(|d| d["device"].as_str().unwrap()).collect();
    assert!(devices.len() == 2 && devices[0].contains("cpu") && devices[1].contains("cuda:0"), "{json}");
}
