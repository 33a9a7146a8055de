//! Adapters of low rank: ten steps as `peft` takes them, what is exported of them, and what is refused.

use super::support::{Done, Place, assert_same_runs, repository};
use runner::checkpoint::{Tensor, load_tensors, write_weights};
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
        // A checkpoint holds what was trained. What that is added to is what it was; the exported model has the same loss without it.
        let last = tensors(&place, "r/last.safetensors");
        assert!(!last.is_empty() && last.keys().all(|name| name.contains("lora_")), "{name}: {:?}", last.keys());
        place.ok("export r/last.safetensors whole.safetensors");
        let (start, whole) = (tensors(&place, "start.safetensors"), tensors(&place, "whole.safetensors"));
        assert!(whole.keys().all(|name| !name.contains("lora_")));
        let renamed = |name: &str| name.strip_prefix("transformer.").unwrap_or(name).to_owned();
        let adapted = |name: &str| last.contains_key(&name.replace("weight", "lora_A.weight"));
        for (tensor, before) in start.iter().filter(|(name, _)| !name.contains("lora_")) {
            let after = renamed(tensor);
            assert_eq!(before == &whole[&after], !adapted(&after), "{name}: {tensor}");
        }
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
    assert!(!last.contains_key("model.layers.0.input_layernorm.weight"), "{:?}", last.keys());
    // Adapters start anew where the file has none; B is 0, so that the model is what it was.
    place.ok("export whole/last.safetensors plain.safetensors");
    let [plain, with] = ["--unset model.lora", "--set model.lora.rank=2"].map(|lora| {
        place.ok(&format!("eval c.toml {lora} --set model.weights=plain.safetensors --json")).json()["metrics"]["loss"]
            .as_f64()
            .unwrap()
    });
    assert_eq!(plain, with);
}

/// The weights that adapters are added to stay in their file: wherever it is, as long as they are the same.
#[test]
fn a_checkpoint_leaves_to_the_file_what_was_not_trained() {
    let place = place("llama");
    let loss = |args: &str| place.ok(args).json()["metrics"]["loss"].as_f64().unwrap();
    place.ok("train c.toml --out whole");
    place.ok("train c.toml --out r --set train.epochs=4");
    let before = loss("eval r/last.safetensors --json");
    let said = place.ok("verify r");
    assert!(said.out.contains("tensors that the adapters are added to"), "{}", said.out);
    // A model that starts from a checkpoint has both.
    assert_eq!(loss("eval c.toml --set model.weights=r/last.safetensors --json"), before);
    place.ok("train c.toml --out from --set model.weights=r/last.safetensors --set train.epochs=1");
    let of_from = loss("eval from/last.safetensors --json");
    // A checkpoint in the place of the one that it starts from.
    fs::copy(place.path("r/last.safetensors"), place.path("kept.safetensors")).unwrap();
    fs::copy(place.path("from/last.safetensors"), place.path("r/last.safetensors")).unwrap();
    let said = place.fails("eval from/last.safetensors", 2);
    assert!(said.contains("start from one another"), "{said}");
    fs::rename(place.path("kept.safetensors"), place.path("r/last.safetensors")).unwrap();
    assert_eq!(loss("eval from/last.safetensors --json"), of_from);

    // No export takes the place of the file.
    let said = place.fails("export r/last.safetensors start.safetensors", 2);
    assert!(said.contains("start.safetensors") && loss("eval r/last.safetensors --json") == before, "{said}");

    // Moved.
    fs::rename(place.path("start.safetensors"), place.path("moved.safetensors")).unwrap();
    for args in
        ["eval r", "generate r/last.safetensors --prompt a", "export r a.safetensors", "train c.toml --out r --resume"]
    {
        let said = place.fails(args, 1);
        for part in ["start.safetensors`", "holds adapters", "--set model.weights=FILE"] {
            assert!(said.contains(part), "{args}: {part}: {said}");
        }
    }
    let said = place.fails("eval from/last.safetensors", 1);
    assert!(said.contains("cannot take the weights in") && said.contains("start.safetensors"), "{said}");
    let said = place.run("verify r");
    assert!(said.code == Some(1) && said.out.contains("wrong: `start.safetensors`: cannot take"), "{}", said.out);
    let moved = "--set model.weights=moved.safetensors";
    assert_eq!(loss(&format!("eval r/last.safetensors --json {moved}")), before);
    for to in ["whole.onnx", "whole.safetensors", "adapter --adapter"] {
        place.ok(&format!("export r/last.safetensors {to} {moved}"));
    }
    place.ok(&format!("train c.toml --out r --resume --set train.epochs=10 {moved}"));
    assert_same_runs((&place, "whole"), (&place, "r"));

    // Others.
    let mut others = tensors(&place, "moved.safetensors");
    let norm = others.get_mut("model.norm.weight").unwrap();
    norm.data[0] ^= 1;
    let write = |tensors: &BTreeMap<String, Tensor>| {
        let views: Vec<_> = tensors.iter().map(|(name, tensor)| tensor.view(name)).collect();
        write_weights(&place.path("start.safetensors"), &views).unwrap();
    };
    write(&others);
    let said = place.fails("eval r/last.safetensors --set model.weights=start.safetensors", 2);
    assert!(said.contains("are not those of the training") && said.contains("their values are others"), "{said}");
    others.remove("model.norm.weight");
    write(&others);
    let said = place.fails("eval r/last.safetensors --set model.weights=start.safetensors", 2);
    assert!(said.contains("it has no `model.norm.weight`"), "{said}");
    assert!(place.fails("eval r/last.safetensors --unset model.weights", 2).contains("names no `[model] weights`"));
    // The run that it started from says where the file is now.
    assert_eq!(loss("eval from/last.safetensors --json"), of_from);
    place.ok(&format!("train c.toml --dry-run {moved}"));
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
