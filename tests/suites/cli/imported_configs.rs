//! What a `config.json` of Hugging Face's may say besides sizes, and files of weights that differ from those of the class with a head.

use super::imported::imported;
use super::support::{Done, Place, repository};
use runner::checkpoint::{Tensor, load_tensors};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;

/// Changes the `config.json` of a model.
fn change(place: &Place, name: &str, change: &Value) {
    let path = place.path(&format!("{name}/config.json"));
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for (key, value) in change.as_object().unwrap() {
        config[key] = value.clone();
    }
    fs::write(&path, config.to_string()).unwrap();
}

/// Writes the tensors of a model anew.
fn rewrite(place: &Place, name: &str, change: impl FnOnce(BTreeMap<String, Tensor>) -> BTreeMap<String, Tensor>) {
    let path = place.path(&format!("{name}/model.safetensors"));
    let tensors = change(load_tensors(&path).unwrap().tensors);
    let views = tensors.iter().map(|(name, tensor)| {
        let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, tensor.shape.clone(), &tensor.data);
        (name.clone(), view.unwrap())
    });
    fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
}

/// The matrix of the embedding of a model, with its rows moved on by so many.
fn moved_on(tensors: &BTreeMap<String, Tensor>, rows: usize) -> Tensor {
    let (_, embedding) =
        tensors.iter().find(|(name, _)| name.ends_with("wte.weight") || name.ends_with("embed_tokens.weight")).unwrap();
    let mut moved = embedding.clone();
    moved.data.rotate_right(rows * embedding.data.len() / embedding.shape[0]);
    moved
}

/// Names without those of the class around the model, as models are saved that have no head.
fn bare(tensors: BTreeMap<String, Tensor>, class: &str) -> BTreeMap<String, Tensor> {
    let own = tensors.into_iter().filter_map(|(name, tensor)| Some((name.strip_prefix(class)?.to_owned(), tensor)));
    own.collect()
}

fn loss(place: &Place, name: &str) -> f64 {
    fs::copy(repository("tests/golden/language_models/text.txt"), place.path("text.txt")).unwrap();
    let sets = "--set data.path=text.txt --set data.val_path=text.txt --unset data.validation_split --set device=cpu";
    place.ok(&format!("eval {name}.toml {sets} --json")).json()["metrics"]["loss"].as_f64().unwrap()
}

/// Windows of some layers or none, bases of angles, and matrices of the outputs: the losses of transformers.
#[test]
fn what_a_config_says_is_what_transformers_reads() {
    let cases = fs::read(repository("tests/golden/language_models/configs.json")).unwrap();
    let cases: Vec<Value> = serde_json::from_slice(&cases).unwrap();
    assert_eq!(cases.len(), 10);
    for case in &cases {
        let name = case["model"].as_str().unwrap();
        let (place, _) = imported("language_models", name);
        change(&place, name, &case["config"]);
        if let Some(rows) = case["head"].as_u64() {
            rewrite(&place, name, |mut tensors| {
                let head = moved_on(&tensors, rows as usize);
                tensors.insert("lm_head.weight".into(), head);
                tensors
            });
        }
        place.ok(&format!("import {name}"));
        let (own, wanted) = (loss(&place, name), case["loss"].as_f64().unwrap());
        assert!((own - wanted).abs() < 1e-5, "{case}: {own}");
        // A text that is written with the keys that were kept has the tokens of one that is computed anew.
        let written = |more: &str| {
            let arguments =
                format!("generate {name}.toml --max-tokens 20 --temperature 0 --json --device cpu {more} --prompt");
            Done::of(place.command(&arguments).arg("The sea").output().unwrap()).json()["tokens"].clone()
        };
        assert_eq!(written(""), written("--without-cache"), "{case}");
        let said = place.ok(&format!("check {name}.toml --set data.path=text.txt"));
        assert!(!said.err.contains("warning"), "{case}: {}", said.err);
    }
}

/// A matrix that is tied and another one in the file do not go together.
#[test]
fn another_matrix_of_the_outputs_is_refused_where_it_is_tied() {
    let (place, _) = imported("language_models", "llama");
    rewrite(&place, "llama", |mut tensors| {
        let head = moved_on(&tensors, 1);
        tensors.insert("lm_head.weight".into(), head);
        tensors
    });
    place.ok("import llama");
    let said = place.fails("generate llama.toml --prompt The --device cpu", 2);
    assert!(said.contains("`lm_head.weight` there is another matrix than `model.embed_tokens.weight`"), "{said}");
    assert!(said.contains("`tie = \"\"`"), "{said}");
    place.ok("generate llama.toml --prompt The --device cpu --max-tokens 1 --set params.tie=''");
}

/// A model that was saved without its head is read, if its head has no weights of its own.
#[test]
fn models_without_their_class_are_imported() {
    for (name, class) in [("gpt2", "transformer."), ("llama", "model.")] {
        let (place, golden) = imported("language_models", name);
        rewrite(&place, name, |tensors| bare(tensors, class));
        place.ok(&format!("import {name}"));
        let own = loss(&place, name);
        assert!((own - golden["loss"].as_f64().unwrap()).abs() < 1e-5, "{name}: {own}");
    }
    let (place, _) = imported("language_models", "qwen2");
    rewrite(&place, "qwen2", |tensors| bare(tensors, "model."));
    let said = place.fails("import qwen2", 1);
    assert!(said.contains("model.safetensors` has no `lm_head.weight`"), "{said}");
}

#[test]
fn dropout_is_that_of_the_config() {
    let (place, _) = imported("language_models", "gpt2");
    place.ok("import gpt2");
    let written = place.read("gpt2.toml");
    for line in ["dropout = 0.1", "embedding_dropout = \"$dropout\"", "attention_dropout = \"$dropout\""] {
        assert!(written.lines().any(|own| own == line), "{line}: {written}");
    }
    change(&place, "gpt2", &json!({ "resid_pdrop": 0.0, "embd_pdrop": 0.25, "attn_pdrop": 0.5 }));
    place.ok("import gpt2 --force");
    let written = place.read("gpt2.toml");
    for line in ["dropout = 0.0", "embedding_dropout = 0.25", "attention_dropout = 0.5"] {
        assert!(written.lines().any(|own| own == line), "{line}: {written}");
    }
    fs::copy(repository("tests/golden/language_models/text.txt"), place.path("input.txt")).unwrap();
    let shown = place.ok("check gpt2.toml --print").out;
    let [embedding, attention, rest] =
        ["p = 0.25", "dropout = 0.5", "p = 0.0"].map(|words| shown.matches(words).count());
    assert_eq!((embedding, attention, rest), (1, 2, 4), "{shown}");
    let (place, _) = imported("language_models", "llama");
    change(&place, "llama", &json!({ "attention_dropout": 0.3 }));
    place.ok("import llama");
    assert!(place.read("llama.toml").contains("rope_theta = \"$rope_theta\", dropout = 0.3"));
}

/// The token that ends texts, by its number in `generation_config.json` or in `config.json`, ends what the model writes.
#[test]
fn the_token_that_ends_texts_is_named() {
    let (place, golden) = imported("language_models", "gpt2");
    let tokenizer: Value = serde_json::from_str(&place.read("gpt2/tokenizer.json")).unwrap();
    let name_of = |number: u64| {
        let all = tokenizer["model"]["vocab"].as_object().unwrap();
        all.iter().find(|(_, token)| token.as_u64() == Some(number)).unwrap().0.clone()
    };
    let written = |place: &Place| {
        let arguments = "generate gpt2.toml --max-tokens 20 --temperature 0 --json --device cpu --prompt";
        Done::of(place.command(arguments).arg("The sea").output().unwrap()).json()
    };
    // The fourth token that it writes, and one that it does not write.
    let tokens: Vec<u64> = golden["tokens"].as_array().unwrap().iter().map(|token| token.as_u64().unwrap()).collect();
    let (fourth, other) = (tokens[3], (0..).find(|token| !tokens.contains(token)).unwrap());
    assert!(!tokens[..3].contains(&fourth));
    for (config, generation, end) in [
        (json!(50256), None, None),
        (json!(null), None, None),
        (json!(fourth), None, Some(fourth)),
        (json!([fourth, other]), None, Some(fourth)),
        (json!(other), Some(json!([fourth])), Some(fourth)),
        (json!(fourth), Some(json!(null)), Some(fourth)),
    ] {
        change(&place, "gpt2", &json!({ "eos_token_id": config }));
        _ = fs::remove_file(place.path("gpt2/generation_config.json"));
        if let Some(generation) = &generation {
            place.write("gpt2/generation_config.json", json!({ "eos_token_id": generation }).to_string());
        }
        place.ok("import gpt2 --force");
        let line = end.map(|end| format!("end_token = {:?} ", name_of(end)));
        let has = place.read("gpt2.toml").contains("end_token");
        let fits = line.as_ref().map_or(!has, |line| place.read("gpt2.toml").contains(line.as_str()));
        assert!(fits, "{config} {generation:?} {line:?} {}", place.read("gpt2.toml"));
        let done = written(&place);
        match end {
            Some(_) => assert_eq!((&done["finish"], done["tokens"].as_array().unwrap().len()), (&json!("end"), 3)),
            None => assert_eq!(done["finish"], "length", "{done}"),
        }
    }
    // One that is known by its name, or ends conversations, is not named.
    for (name, settings) in
        [("<end_of_turn>", json!({})), ("<over>", json!({ "chat_template": "x", "eos_token": "<over>" }))]
    {
        let mut renamed = tokenizer.clone();
        let vocabulary = renamed["model"]["vocab"].as_object_mut().unwrap();
        let old = vocabulary.iter().find(|(_, token)| token.as_u64() == Some(fourth)).unwrap().0.clone();
        let token = vocabulary.remove(&old).unwrap();
        vocabulary.insert(name.into(), token);
        let merges = renamed["model"]["merges"].as_array_mut().unwrap();
        merges.retain(|pair| !pair.to_string().contains(&old));
        place.write("gpt2/tokenizer.json", renamed.to_string());
        place.write("gpt2/tokenizer_config.json", settings.to_string());
        place.ok("import gpt2 --force");
        assert!(!place.read("gpt2.toml").contains("end_token"), "{name}");
        assert_eq!(written(&place)["finish"], "end", "{name}");
    }
    change(&place, "gpt2", &json!({ "eos_token_id": "x" }));
    fs::remove_file(place.path("gpt2/generation_config.json")).unwrap();
    assert!(place.fails("import gpt2 --force", 1).contains("`eos_token_id` has \"x\""));
    place.write("gpt2/generation_config.json", "{");
    assert!(place.fails("import gpt2 --force", 1).contains("generation_config.json` is no JSON"));
}

/// Paths hold from the folder of the configuration, wherever a command is started.
#[test]
fn a_configuration_in_another_folder_names_the_files() {
    let (place, _) = imported("language_models", "gpt2");
    fs::write(place.path("gpt2/tokenizer_config.json"), r#"{"chat_template": "{{ messages[0].content }}"}"#).unwrap();
    for folder in ["far/away", "elsewhere"] {
        fs::create_dir_all(place.path(folder)).unwrap();
    }
    place.ok("import gpt2 --out far/away/x.toml");
    let written = place.read("far/away/x.toml");
    for file in ["model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        assert!(written.contains(&format!("= \"../../gpt2/{file}\"")), "{written}");
    }
    let done = place.run_in("elsewhere", "generate ../far/away/x.toml --prompt The --max-tokens 1 --device cpu");
    assert_eq!(done.code, Some(0), "{}", done.err);
    // A path from the root on stays one.
    let from = place.path("gpt2");
    let done = place.command("import --out far/root.toml").arg(&from).output().unwrap();
    assert!(done.status.success());
    assert!(place.read("far/root.toml").contains(&format!("= \"{}\"", from.join("tokenizer.json").display())));
}

#[test]
fn classes_and_files_that_are_not_known_are_refused() {
    for (kind, name, class) in [
        ("language_models", "gpt2", "GPT2ForSequenceClassification"),
        ("language_models", "gpt2", "GPT2DoubleHeadsModel"),
        ("language_models", "llama", "LlamaForSequenceClassification"),
        ("language_models", "qwen2", "Qwen2ForTokenClassification"),
        ("text_classifiers", "bert", "BertForMultipleChoice"),
    ] {
        let (place, _) = imported(kind, name);
        change(&place, name, &json!({ "architectures": [class] }));
        let said = place.fails(&format!("import {name}"), 1);
        assert!(said.contains(&format!("`architectures` has `{class}`")), "{said}");
    }
    let (place, _) = imported("language_models", "gpt2");
    let path = place.path("gpt2/model.safetensors");
    let whole = fs::read(&path).unwrap();
    for (bytes, part) in [
        (&whole[..whole.len() - 100], "and the file holds"),
        (&whole[..20], "longer than the file"),
        (b"not at all weights, but a text".as_slice(), "no safetensors file"),
    ] {
        fs::write(&path, bytes).unwrap();
        let said = place.fails("import gpt2", 1);
        assert!(said.contains("gpt2/model.safetensors") && said.contains(part), "{part}: {said}");
    }
    fs::write(&path, &whole).unwrap();
    fs::rename(&path, place.path("gpt2/model-1.safetensors")).unwrap();
    let index = json!({ "weight_map": { "h.9.ln_1.weight": "model-1.safetensors" } });
    fs::write(place.path("gpt2/model.safetensors.index.json"), index.to_string()).unwrap();
    let said = place.fails("import gpt2", 1);
    assert!(said.contains("model-1.safetensors` has no tensor `h.9.ln_1.weight`"), "{said}");
    assert!(!place.path("gpt2.toml").exists());
}

/// Adapters have the names that PEFT looks for: those of the class with a head, whatever names the file has.
#[test]
fn adapters_have_the_names_of_the_class() {
    let names = |place: &Place| -> Vec<String> {
        let tensors = load_tensors(&place.path("a/adapter_model.safetensors")).unwrap().tensors;
        tensors.into_keys().map(|name| name.strip_prefix("base_model.model.").unwrap().to_owned()).collect()
    };
    for (name, target, layer) in
        [("gpt2", "c_attn", "transformer.h.0.attn.c_attn."), ("llama", "q_proj", "model.layers.0.self_attn.q_proj.")]
    {
        let run = |is_bare: bool| {
            let (place, _) = imported("language_models", name);
            let class = if name == "gpt2" { "transformer." } else { "model." };
            if is_bare {
                rewrite(&place, name, |tensors| bare(tensors, class));
            }
            fs::copy(repository("tests/golden/language_models/text.txt"), place.path("input.txt")).unwrap();
            place.ok(&format!("import {name}"));
            let lora = format!("--set model.lora={{rank=2,targets=['*.0.*{target}','*.1.*{target}']}}");
            place.ok(&format!("train {name}.toml --out r --device cpu --set data.context=8 --set train.steps=2 --unset train.epochs {lora}"));
            place.ok("export r a --adapter");
            let config: Value = serde_json::from_str(&place.read("a/adapter_config.json")).unwrap();
            let named = config["target_modules"].as_array().unwrap().clone();
            assert!(named.contains(&layer.trim_end_matches('.').into()), "{named:?}");
            (names(&place), named)
        };
        let (with_class, without) = (run(false), run(true));
        assert!(with_class.0.contains(&format!("{layer}lora_A.weight")), "{with_class:?}");
        assert_eq!(with_class, without, "{name}");
    }
    for (name, class, target, layer) in [
        ("encoder", "", "query", "bert.encoder.layer.0.attention.self.query."),
        ("distilbert", "distilbert.", "q_lin", "distilbert.transformer.layer.0.attention.q_lin."),
        ("bert", "", "query", "bert.encoder.layer.0.attention.self.query."),
    ] {
        let (place, _) = imported("text_classifiers", name);
        if !class.is_empty() {
            rewrite(&place, name, |tensors| bare(tensors, class));
        }
        fs::copy(repository("tests/golden/text_classifiers/texts.csv"), place.path("texts.csv")).unwrap();
        place.ok(&format!("import {name}"));
        let lora = format!("--set model.lora={{rank=2,targets=['{target}'],modules_to_save=['classif*']}}");
        place.ok(&format!(
            "train {name}.toml --out r --device cpu --set data.max_length=16 --set train.epochs=1 {lora}"
        ));
        place.ok("export r a --adapter");
        let names = names(&place);
        for wanted in [format!("{layer}lora_A.weight"), "classifier.weight".to_owned()] {
            assert!(names.contains(&wanted), "{name}: {names:?}");
        }
        // PEFT asks for the weights of all layers whose names end as those of `modules_to_save`.
        assert_eq!(names.contains(&"pre_classifier.bias".to_owned()), name == "distilbert", "{names:?}");
        let config: Value = serde_json::from_str(&place.read("a/adapter_config.json")).unwrap();
        assert_eq!(config["modules_to_save"], json!(["classifier"]), "{name}");
    }
}
