//! Adapters of low rank: ten steps as `peft` takes them, what is exported of them, and what is refused.

use super::support::{Done, Place, assert_same_runs, repository};
use runner::checkpoint::{Tensor, load_tensors};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;

/// A folder with a model, adapters as they start, and a configuration.
fn place(name: &str) -> Place {
    let place = Place::new();
    let from = repository("tests/golden/adapters");
    fs::copy(from.join("text.txt"), place.path("text.txt")).unwrap();
    for (file, to) in [("config.toml", "c.toml"), ("start.safetensors", "start.safetensors")] {
        fs::copy(from.join(name).join(file), place.path(to)).unwrap();
    }
    place
}

fn tensors(place: &Place, file: &str) -> BTreeMap<String, Tensor> {
    load_tensors(&place.path(file)).unwrap().tensors
}

fn epochs(place: &Place) -> Vec<Value> {
    place.metrics("r").into_iter().filter(|row| row["kind"] == "epoch").collect()
}

/// The largest difference of two tensors.
fn difference(a: &Tensor, b: &Tensor) -> f32 {
    assert_eq!(a.shape, b.shape);
    let numbers = |t: &Tensor| t.data.as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)).collect::<Vec<_>>();
    numbers(a).iter().zip(&numbers(b)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn ten_steps_are_those_of_peft() {
    for name in ["llama", "gpt2"] {
        let place = place(name);
        let golden = repository("tests/golden/adapters").join(name);
        let wanted: Value = serde_json::from_slice(&fs::read(golden.join("golden.json")).unwrap()).unwrap();
        place.ok("train c.toml --out r");
        let losses: Vec<f64> = epochs(&place).iter().map(|row| row["train_loss"].as_f64().unwrap()).collect();
        assert_eq!(losses.len(), 10);
        for (loss, wanted) in losses.iter().zip(wanted["losses"].as_array().unwrap()) {
            assert!((loss - wanted.as_f64().unwrap()).abs() < 2e-5, "{name}: {losses:?}, {wanted}");
        }
        // The names that `peft` gives them, and nothing else.
        place.ok("export r/last.safetensors adapter --adapter");
        let (own, theirs) = (
            tensors(&place, "adapter/adapter_model.safetensors"),
            load_tensors(&golden.join("adapter_model.safetensors")).unwrap().tensors,
        );
        assert_eq!(own.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "{name}");
        for (tensor, wanted) in &theirs {
            assert!(difference(&own[tensor], wanted) < 1e-4, "{name}: {tensor}");
        }
        let config: Value =
            serde_json::from_slice(&fs::read(place.path("adapter/adapter_config.json")).unwrap()).unwrap();
        assert_eq!(
            (&config["peft_type"], &config["fan_in_fan_out"]),
            (&Value::from("LORA"), &Value::from(name == "gpt2"))
        );
        // What they were added to is what it was; the exported model has the same loss without them.
        let (start, last) = (tensors(&place, "start.safetensors"), tensors(&place, "r/last.safetensors"));
        let renamed = |name: &str| name.strip_prefix("transformer.").unwrap_or(name).to_owned();
        for (tensor, before) in start.iter().filter(|(name, _)| !name.contains("lora_")) {
            assert_eq!(before, &last[&renamed(tensor)], "{name}: {tensor}");
        }
        place.ok("export r/last.safetensors whole.safetensors");
        assert!(tensors(&place, "whole.safetensors").keys().all(|name| !name.contains("lora_")));
        let whole = "--unset model.lora --set model.weights=whole.safetensors --set model.weights_rename=[]";
        let loss = |done: Done| done.json()["metrics"]["loss"].as_f64().unwrap();
        let [with, without] =
            [place.ok("eval r/last.safetensors --json"), place.ok(&format!("eval c.toml {whole} --json"))].map(loss);
        assert!(
            (with - wanted["loss"].as_f64().unwrap()).abs() < 2e-5 && (with - without).abs() < 1e-5,
            "{name}: {with}, {without}, {wanted}"
        );
        place.ok("export r/last.safetensors m.onnx");
    }
}

/// Interrupted or not: the same bits; and the draws of dropout are among them.
#[test]
fn a_run_with_adapters_goes_on() {
    let place = place("llama");
    let sets = "--set model.lora.dropout=0.2 --set model.lora.modules_to_save=['model.norm']";
    place.ok(&format!("train c.toml --out whole {sets}"));
    place.ok(&format!("train c.toml --out parts {sets} --set train.epochs=4"));
    place.ok(&format!("train c.toml --out parts {sets} --set train.epochs=10 --resume"));
    assert_same_runs((&place, "whole"), (&place, "parts"));
    let (start, last) = (tensors(&place, "start.safetensors"), tensors(&place, "whole/last.safetensors"));
    assert_ne!(start["model.norm.weight"], last["model.norm.weight"]);
    assert_eq!(start["model.layers.0.input_layernorm.weight"], last["model.layers.0.input_layernorm.weight"]);
    // Adapters start anew where the file has none; B is 0, so that the model is what it was.
    place.ok("export whole/last.safetensors plain.safetensors");
    let [plain, with] = ["--unset model.lora", "--set model.lora.rank=2"].map(|lora| {
        place.ok(&format!("eval c.toml {lora} --set model.weights=plain.safetensors --json")).json()["metrics"]["loss"]
            .as_f64()
            .unwrap()
    });
    assert_eq!(plain, with);
}

#[test]
fn what_cannot_have_an_adapter_is_refused() {
    let place = place("llama");
    for (sets, part) in [
        ("--set model.lora.targets=['q_prok']", "`q_prok` in `targets` of `lora` names no `linear` layer"),
        ("--set model.lora.targets=['q_prok']", "did you mean `q_proj`?"),
        ("--set model.lora.targets=['norm']", "names no `linear` layer"),
        ("--set model.lora.targets=['norm']", "is of type `rms_norm`"),
        ("--set model.lora.targets=['embed_tokens']", "`model.embed_tokens` is of type `embedding`"),
        (
            "--set model.lora.targets=['embed_tokens']",
            "`linear` layers can have an adapter: `q_proj`, `k_proj`, `v_proj`",
        ),
        ("--set model.lora.targets=['xyz']", "`linear` layers can have an adapter: `q_proj`"),
        ("--set model.lora.targets=['mlp']", "is of type `group`"),
        ("--set model.lora.alpha=0", "must be a finite number above 0"),
        ("--set model.lora.targets=['lm_head']", "whose matrix is that of another layer"),
        ("--set model.lora.modules_to_save=['none']", "`none` in `modules_to_save` fits no parameter"),
        ("--set model.lora.rank=0", "rank"),
        ("--set model.lora.alpha=1e300", "alpha"),
        ("--set model.lora.targets=[]", "targets"),
    ] {
        let said = place.fails(&format!("check c.toml {sets}"), 2);
        assert!(said.contains(part), "{sets}: {said}");
    }
    let said = place.fails("check c.toml --set model.lora.targets=['embed_tokens']", 2);
    assert!(!said.contains("did you mean") && !said.contains("`lm_head`"), "{said}");
    let said = place
        .fails("export c.toml a --adapter --set model.lora.targets=['q_prok'] --set model.weights_strict=false", 1);
    assert!(said.contains("named by `targets` of `lora`: `q_prok`"), "{said}");
    let said = place.fails("check c.toml --set model.lora.targets=['q_prok']", 2);
    assert!(!said.contains("no parameter to train"), "{said}");
    let config = fs::read_to_string(place.path("c.toml")).unwrap();
    let more = |line: &str| place.write("d.toml", config.replace("lora = ", &format!("{line}\nlora = ")));
    for (line, part) in
        [("freeze = ['model.norm']", "all but the adapters is frozen"), ("thaw_after = 3", "stays frozen")]
    {
        more(line);
        let said = place.fails("check d.toml", 2);
        assert!(said.contains(part), "{line}: {said}");
    }
    place.write(
        "d.toml",
        config
            .lines()
            .filter(|line| !line.starts_with("lora") && !line.starts_with("weights"))
            .map(|line| format!("{line}\n"))
            .collect::<String>(),
    );
    let said = place.fails("export d.toml a --adapter", 2);
    assert!(said.contains("`d.toml` has no adapters") && !place.path("a").exists(), "{said}");
}
