//! Memory before the first step, on a small emulated card.

use crate::support::{Place, digits};
use crate::{emulator, ok_with, run_with};
use serde_json::Value;

/// The card, of two megabytes.
const CARD: (&str, &str) = ("EMULATED_MEMORY", "2097152");

/// A model whose activations are most of what it needs.
fn config(batch: &str) -> String {
    let model = "[model]\nlayers = [\"flatten\", { type = \"linear\", out_features = 256 }, \"relu\", { type = \"linear\", \
                 out_features = 10 }]\n[optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n";
    digits("", model)
        .replace("batch_size = 32", &format!("batch_size = {batch}"))
        .replace("limit = 320", "limit = 1500")
}

#[test]
fn a_plan_that_is_too_large_is_refused_with_a_batch_that_fits() {
    let Some(folder) = emulator::library_dir() else { return };
    let place = Place::with(&config("1500"));
    let done = run_with(&place, &folder, "train c.toml --device cuda --out r", &[CARD]);
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.err.contains("not enough memory on cuda:0"), "{done:?}");
    for class in ["parameters", "activations", "batches", "total"] {
        assert!(done.err.lines().any(|l| l.trim_start().starts_with(class)), "no {class}: {done:?}");
    }
    let named = done.err.rsplit("data.batch_size=").next().and_then(|n| n.trim().parse::<usize>().ok());
    let fits = named.unwrap_or_else(|| panic!("no batch is named: {done:?}"));
    assert!((1..1500).contains(&fits), "{done:?}");

    let check = |batch: usize| {
        run_with(&place, &folder, &format!("check c.toml --device cuda --json --set data.batch_size={batch}"), &[CARD])
    };
    let done = check(fits);
    assert_eq!(done.code, Some(0), "{done:?}");
    let memory = &done.json()["memory"];
    let bytes = |key: &str| memory[key].as_u64().unwrap_or_else(|| panic!("no {key}: {memory}"));
    let classes =
        ["parameters", "gradients", "optimizer", "buffers", "activations", "workspace", "unused", "batches", "tables"];
    assert_eq!(classes.iter().map(|c| bytes(c)).sum::<u64>(), bytes("total"), "{memory}");
    assert!(bytes("total") <= bytes("free") && bytes("pinned") > 0, "{memory}");
    assert_eq!(check(fits + 1).code, Some(3));
}

#[test]
fn auto_takes_what_fits_and_a_resumed_run_keeps_it() {
    let Some(folder) = emulator::library_dir() else { return };
    let place = Place::with(&config("\"auto\""));
    let printed = ok_with(&place, &folder, "check c.toml --device cuda --print", &[CARD]);
    let size = |text: &str| -> usize {
        let line = text.lines().find(|l| l.starts_with("batch_size = ")).unwrap_or_else(|| panic!("{text}"));
        line["batch_size = ".len()..].split_whitespace().next().unwrap().parse().unwrap()
    };
    let batch = size(&printed.out);
    assert!(batch.is_multiple_of(32) && (32..1500).contains(&batch), "{printed:?}");
    assert!(printed.err.contains(&format!("batch_size = \"auto\" is {batch}, ")), "{printed:?}");

    let done = ok_with(&place, &folder, "train c.toml --device cuda --out r --set train.max_steps=2", &[CARD]);
    assert!(done.err.contains(&format!("batch_size = \"auto\" is {batch}, ")), "{done:?}");
    assert_eq!(size(&place.read("r/config.toml")), batch);
    let lines = place.metrics("r");
    let epoch = lines.iter().find(|l| l["kind"] == "eval").unwrap();
    let bytes = |key: &str| epoch[key].as_u64().unwrap_or_else(|| panic!("no {key}: {epoch}"));
    assert!(0 < bytes("memory_allocated") && bytes("memory_allocated") < bytes("memory_reserved"), "{epoch}");
    assert!(bytes("memory_peak") <= bytes("memory_reserved") && bytes("memory_reserved") < 2 << 20, "{epoch}");

    // On a larger card, and on the CPU, where it would be another number.
    let larger = [("EMULATED_MEMORY", "16777216")];
    let resume = "train c.toml --device cuda --out r --resume --set train.max_steps=3";
    let done = ok_with(&place, &folder, resume, &larger);
    assert!(done.err.contains(&format!("batch_size = \"auto\" is {batch}, as in")), "{done:?}");
    ok_with(&place, &folder, "train c.toml --device cpu --out r --resume", &[]);
    assert_eq!(size(&place.read("r/config.toml")), batch);
}

#[test]
fn auto_is_the_default_on_the_cpu_and_all_samples_where_they_fit() {
    let place = Place::with(&config("\"auto\""));
    let batch = |args: &str| -> (Value, String) {
        let done = place.ok(&format!("check c.toml --device cpu --json{args}"));
        (done.json()["batch_size"].clone(), done.err)
    };
    let (size, said) = batch("");
    assert_eq!(size, 64);
    assert!(said.contains("batch_size = \"auto\" is 64, the default on the CPU"), "{said}");
    assert_eq!(batch(" --set data.limit=20").0, 20);
    let err = place.fails("check c.toml --set data.batch_size=most", 2);
    assert!(err.contains("a whole number or \"auto\""), "{err}");

    let Some(folder) = emulator::library_dir() else { return };
    let done = ok_with(&place, &folder, "check c.toml --device cuda --json", &[]);
    assert_eq!(done.json()["batch_size"], 1500);
}

/// Modules, graphs and libraries are not in the plan: what they take is shown beside it.
#[test]
fn the_memory_of_the_driver_is_shown_beside_the_plan() {
    let Some(folder) = emulator::library_dir() else { return };
    let place = Place::with(&config("32"));
    let bench = |module: &str| {
        let args = "bench c.toml --steps 2 --device cuda --json";
        let json = ok_with(&place, &folder, args, &[("EMULATED_MODULE", module)]).json();
        json["device_memory"].as_object().unwrap_or_else(|| panic!("{json}")).clone()
    };
    let bytes = |memory: &serde_json::Map<String, Value>, key: &str| memory[key].as_u64().unwrap();
    let (without, with) = (bench("0"), bench("1048576"));
    assert_eq!(bytes(&without, "planned"), bytes(&with, "planned"));
    let gone = bytes(&without, "free_at_start") - bytes(&without, "free");
    assert!(gone >= bytes(&without, "planned") && bytes(&without, "beside") == gone - bytes(&without, "planned"));
    let modules = bytes(&with, "beside") - bytes(&without, "beside");
    assert!(modules >= 3 << 20 && modules.is_multiple_of(1 << 20), "{with:?}");
    let text = ok_with(&place, &folder, "bench c.toml --steps 2 --device cuda", &[("EMULATED_MODULE", "1048576")]).out;
    assert!(text.contains("planned; ") && text.contains("MiB more have gone since the start"), "{text}");
}
