//! Models of Hugging Face's, as transformers writes them: what they say here and there, and back again.

use super::support::{Done, Place, repository};
use serde_json::Value;
use std::fs;

/// GPT-2, Llama, Qwen2 and Mistral, which has a window, as transformers writes them: the same loss, and the same tokens where the most probable one is taken.
#[test]
fn models_of_hugging_face_are_imported() {
    for name in ["gpt2", "llama", "qwen2", "mistral"] {
        let (place, golden) = imported("language_models", name);
        fs::copy(repository("tests/golden/language_models/text.txt"), place.path("text.txt")).unwrap();
        place.ok(&format!("import {name}"));
        let written = place
            .command(&format!("generate {name}.toml --max-tokens 30 --temperature 0 --json --device cpu --prompt"))
            .arg("The sea")
            .output();
        let written = Done::of(written.unwrap()).json();
        let wanted = golden["tokens"].as_array().unwrap();
        // Those that its context has room for.
        let room = wanted.len().min(written["tokens"].as_array().unwrap().len());
        assert_eq!(written["tokens"].as_array().unwrap()[..room], wanted[..room], "{name}");
        let sets =
            "--set data.path=text.txt --set data.val_path=text.txt --unset data.validation_split --set device=cpu";
        let figures = place.ok(&format!("eval {name}.toml {sets} --json")).json();
        let [loss, golden] = [&figures["metrics"]["loss"], &golden["loss"]].map(|loss| loss.as_f64().unwrap());
        assert!((loss - golden).abs() < 1e-5, "{name}: {loss}, {golden}");
        // Trained on, saved, and read again under the same names.
        let sets = "--set data.path=text.txt --set data.batch_size=2 --set train.epochs=1";
        place.ok(&format!("train {name}.toml --device cpu --out r {sets}"));
        place.ok("export r back.safetensors");
        let [before, after] =
            [format!("{name}/model.safetensors"), "back.safetensors".into()].map(|file| shapes(&place, &file));
        let own = |list: Vec<(String, Vec<usize>)>| {
            list.into_iter().map(|(n, s)| (n.trim_start_matches("transformer.").to_owned(), s)).collect::<Vec<_>>()
        };
        assert_eq!(own(before), after, "{name}");
    }
}

/// What a tokenizer puts before a text, as Llama's do, stands before prompts, and before each file that is trained on.
#[test]
fn prompts_begin_as_their_tokenizer_says() {
    let (place, _) = imported("language_models", "llama");
    let generated = |prompt: &str| {
        place.ok("import llama --force");
        let args = "generate llama.toml --max-tokens 20 --temperature 0 --json --device cpu --prompt";
        Done::of(place.command(args).arg(prompt).output().unwrap()).json()["tokens"].clone()
    };
    let [without, wanted] = ["The sea", "!The sea"].map(generated);
    let mut json: Value = serde_json::from_str(&place.read("llama/tokenizer.json")).unwrap();
    let first = json["model"]["vocab"]["!"].clone();
    json["post_processor"] = serde_json::json!({
        "type": "TemplateProcessing",
        "single": [{ "SpecialToken": { "id": "!", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } }],
        "pair": [{ "Sequence": { "id": "A", "type_id": 0 } }, { "Sequence": { "id": "B", "type_id": 1 } }],
        "special_tokens": { "!": { "id": "!", "ids": [first], "tokens": ["!"] } },
    });
    place.write("llama/tokenizer.json", json.to_string());
    assert_eq!(generated("The sea"), wanted);
    assert_ne!(wanted, without);
    // It is kept with what was trained.
    place.write("text.txt", "The sea is wide and the sea is deep, ".repeat(30));
    let sets = "--set data.path=text.txt --set data.context=8 --set train.max_steps=1";
    place.ok(&format!("train llama.toml --device cpu --out r {sets}"));
    let args = "generate r --max-tokens 5 --temperature 0 --json --device cpu --prompt";
    let of_run = |prompt: &str| Done::of(place.command(args).arg(prompt).output().unwrap()).json()["tokens"].clone();
    assert_eq!(of_run("The sea"), of_run("!The sea"));
}

/// Weights in 16 bits, as hubs have most models, are those that single precision rounds to them.
#[test]
fn weights_in_bf16_are_imported() {
    let (place, _) = imported("language_models", "llama");
    fs::copy(repository("tests/golden/language_models/text.txt"), place.path("text.txt")).unwrap();
    let file = fs::read(place.path("llama/model.safetensors")).unwrap();
    let loss = |halves: bool| {
        place.write("llama/model.safetensors", rounded(&file, halves));
        place.ok("import llama --force");
        let sets =
            "--set data.path=text.txt --set data.val_path=text.txt --unset data.validation_split --set device=cpu";
        place.ok(&format!("eval llama.toml {sets} --json")).json()["metrics"]["loss"].as_f64().unwrap()
    };
    assert_eq!(loss(true), loss(false));
}

/// A file of tensors of single precision with all numbers rounded to bf16, and written as such if these are `halves`.
fn rounded(file: &[u8], halves: bool) -> Vec<u8> {
    let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let mut header: serde_json::Map<String, Value> = serde_json::from_slice(&file[8..8 + length]).unwrap();
    header.remove("__metadata__");
    let mut all = Vec::new();
    for tensor in header.values_mut() {
        assert_eq!(tensor["dtype"], "F32");
        let [begin, end] = [0, 1].map(|at| tensor["data_offsets"][at].as_u64().unwrap() as usize);
        let data = &file[8 + length..][begin..end];
        let start = all.len();
        for bytes in data.as_chunks().0 {
            let bits = u32::from_le_bytes(*bytes);
            // To the nearest, and to the even one of two that are as near.
            let high = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
            match halves {
                true => all.extend((high as u16).to_le_bytes()),
                false => all.extend((high << 16).to_le_bytes()),
            }
        }
        tensor["dtype"] = if halves { "BF16" } else { "F32" }.into();
        tensor["data_offsets"] = serde_json::json!([start, all.len()]);
    }
    let header = serde_json::to_vec(&header).unwrap();
    [&(header.len() as u64).to_le_bytes()[..], &header, &all].concat()
}

/// A folder with the files of a model, and what it is compared with.
pub fn imported(kind: &str, name: &str) -> (Place, Value) {
    let place = Place::new();
    let from = repository("tests/golden").join(kind).join(name);
    fs::create_dir(place.path(name)).unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        fs::copy(from.join(file), place.path(&format!("{name}/{file}"))).unwrap();
    }
    let golden = fs::read(from.join("golden.json")).map_or(Value::Null, |text| serde_json::from_slice(&text).unwrap());
    (place, golden)
}

/// Scaled rotary positions, with the cache of keys and without.
#[test]
fn scaled_rotary_positions_are_those_of_transformers() {
    let all = fs::read(repository("tests/golden/language_models/rope_scaling.json")).unwrap();
    let all: serde_json::Map<String, Value> = serde_json::from_slice(&all).unwrap();
    assert_eq!(all.len(), 4);
    for (name, golden) in &all {
        let (place, _) = imported("language_models", "llama");
        let path = place.path("llama/config.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        config["rope_scaling"] = golden["rope_scaling"].clone();
        fs::write(&path, config.to_string()).unwrap();
        fs::copy(repository("tests/golden/language_models/text.txt"), place.path("text.txt")).unwrap();
        place.ok("import llama");
        for more in ["", "--without-cache"] {
            let written = place
                .command(&format!(
                    "generate llama.toml --max-tokens 30 --temperature 0 --json --device cpu {more} --prompt"
                ))
                .arg("The sea")
                .output();
            let written = Done::of(written.unwrap()).json();
            let (own, wanted) = (written["tokens"].as_array().unwrap(), golden["tokens"].as_array().unwrap());
            let room = wanted.len().min(own.len());
            assert!(room > 20 && own[..room] == wanted[..room], "{name} {more}: {written}");
        }
        let sets =
            "--set data.path=text.txt --set data.val_path=text.txt --unset data.validation_split --set device=cpu";
        let figures = place.ok(&format!("eval llama.toml {sets} --json")).json();
        let [loss, wanted] = [&figures["metrics"]["loss"], &golden["loss"]].map(|loss| loss.as_f64().unwrap());
        assert!((loss - wanted).abs() < 1e-5, "{name}: {loss}, {wanted}");
    }
}

/// Weights in several files beside an index.
#[test]
fn weights_in_several_files_are_imported() {
    let (place, golden) = imported("language_models", "gpt2");
    let whole = runner::checkpoint::load_tensors(&place.path("gpt2/model.safetensors")).unwrap().tensors;
    let mut map = serde_json::Map::new();
    for part in 0..2 {
        let file = format!("model-{part}.safetensors");
        let own: Vec<_> = whole.iter().enumerate().filter(|(at, _)| at % 2 == part).map(|(_, one)| one).collect();
        own.iter().for_each(|(name, _)| _ = map.insert((*name).clone(), file.as_str().into()));
        let views = own.iter().map(|(name, tensor)| {
            let view =
                safetensors::tensor::TensorView::new(safetensors::Dtype::F32, tensor.shape.clone(), &tensor.data);
            ((*name).clone(), view.unwrap())
        });
        fs::write(place.path(&format!("gpt2/{file}")), safetensors::serialize(views, None).unwrap()).unwrap();
    }
    let index = serde_json::json!({ "metadata": {}, "weight_map": map });
    fs::write(place.path("gpt2/model.safetensors.index.json"), index.to_string()).unwrap();
    fs::remove_file(place.path("gpt2/model.safetensors")).unwrap();
    place.ok("import gpt2");
    let written = place.ok("generate gpt2.toml --max-tokens 10 --temperature 0 --json --device cpu --prompt The");
    assert_eq!(written.json()["tokens"].as_array().map(Vec::len), Some(10));
    // No text is there yet.
    for file in ["gpt2.onnx", "gpt2.safetensors"] {
        place.ok(&format!("export gpt2.toml {file}"));
    }
    fs::copy(repository("tests/golden/language_models/text.txt"), place.path("text.txt")).unwrap();
    let sets = "--set data.path=text.txt --set data.val_path=text.txt --unset data.validation_split --set device=cpu";
    let loss = place.ok(&format!("eval gpt2.toml {sets} --json")).json()["metrics"]["loss"].as_f64().unwrap();
    assert!((loss - golden["loss"].as_f64().unwrap()).abs() < 1e-5, "{loss}");
    let message = place.fails("import gpt2 --out gpt2/model-0.safetensors --force", 2);
    assert!(message.contains("model-0.safetensors"), "{message}");
    fs::remove_file(place.path("gpt2/model-1.safetensors")).unwrap();
    let message = place.fails(&format!("eval gpt2.toml {sets}"), 2);
    assert!(message.contains("model.safetensors.index.json") && message.contains("model-1.safetensors"), "{message}");
}

/// BERT and DistilBERT: the probabilities of texts of several lengths, one of which is cut, and the loss.
#[test]
fn classifiers_of_hugging_face_are_imported() {
    for name in ["bert", "distilbert"] {
        let (place, golden) = imported("text_classifiers", name);
        fs::copy(repository("tests/golden/text_classifiers/texts.csv"), place.path("texts.csv")).unwrap();
        place.ok(&format!("import {name}"));
        let again = place.fails(&format!("import {name}"), 2);
        assert!(again.contains(&format!("`{name}.toml` is there already")), "{again}");
        place.ok(&format!("import {name} --force"));
        let sets = "--set data.max_length=16 --set data.buckets=[8,16]";
        let whole = "--set data.val_path=texts.csv --unset data.validation_split";
        let figures =
            place.ok(&format!("eval {name}.toml {sets} {whole} --set device=cpu --json --predictions p.jsonl")).json();
        let [loss, wanted] = [&figures["metrics"]["loss"], &golden["loss"]].map(|loss| loss.as_f64().unwrap());
        assert!((loss - wanted).abs() < 1e-6, "{name}: {loss}, {wanted}");
        let rows = fs::read_to_string(place.path("p.jsonl")).unwrap();
        let rows: Vec<Value> = rows.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
        assert_eq!(rows.len(), golden["probabilities"].as_array().unwrap().len());
        for (row, wanted) in rows.iter().zip(golden["probabilities"].as_array().unwrap()) {
            let own = row["probabilities"].as_array().unwrap();
            for (own, wanted) in own.iter().zip(wanted.as_array().unwrap()) {
                let [own, wanted] = [own, wanted].map(|p| p.as_f64().unwrap());
                assert!((own - wanted).abs() < 1e-6, "{name}: {row}, {wanted}");
            }
        }
        place.ok(&format!("train {name}.toml --device cpu --out r {sets} --set train.epochs=1"));
        place.ok("export r back.safetensors");
        assert_eq!(shapes(&place, &format!("{name}/model.safetensors")), shapes(&place, "back.safetensors"));
        // The file knows the classes, so no table is needed to look at the model and to ask it.
        fs::remove_file(place.path("texts.csv")).unwrap();
        place.write("new.txt", "a lovely film\ndull and long\n");
        let classes = golden["probabilities"][0].as_array().unwrap().len();
        let names: Vec<String> = (0..classes).map(|class| format!("class {class}")).collect();
        let named = format!("data.classes={names:?}");
        let args = |command: &str| format!("{command} {name}.toml --device cpu {sets}");
        let run = |command: &str, more: &[&str]| {
            Done::of(place.command(&args(command)).args(["--set", &named]).args(more).output().unwrap())
        };
        assert_eq!(run("predict", &["--json", "new.txt"]).json().as_array().unwrap().len(), 2);
        assert!(run("check", &["--json"]).json()["parameters"].as_u64().is_some_and(|parameters| parameters > 0));
        let missing = run("train", &[]);
        assert!(missing.code == Some(1) && missing.err.contains("cannot read `texts.csv`"), "{missing:?}");
    }
}

/// BERT and DistilBERT with a tag for each word: what transformers says, and a new classifier for an encoder alone.
#[test]
fn taggers_of_hugging_face_are_imported() {
    let golden = repository("tests/golden/text_classifiers");
    for (name, architecture) in
        [("bert", "BertForTokenClassification"), ("distilbert", "DistilBertForTokenClassification")]
    {
        let (place, _) = imported("text_classifiers", name);
        fs::copy(golden.join("tags.conll"), place.path("tags.conll")).unwrap();
        let path = place.path(&format!("{name}/config.json"));
        let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        config["architectures"] = serde_json::json!([architecture]);
        config["id2label"] = serde_json::json!({ "0": "O", "1": "B-FOOD", "2": "I-FOOD" });
        fs::write(&path, config.to_string()).unwrap();
        place.ok(&format!("import {name}"));
        let wanted: Value = serde_json::from_slice(&fs::read(golden.join(name).join("tags.json")).unwrap()).unwrap();
        let sets = "--set data.path=tags.conll --set data.max_length=16 --set data.buckets=[8,16]";
        let whole = "--set data.val_path=tags.conll --unset data.validation_split --set device=cpu";
        let done = place.ok(&format!("eval {name}.toml {sets} {whole} --json"));
        let metrics = &done.json()["metrics"];
        let [loss, golden] = [&metrics["loss"], &wanted["loss"]].map(|loss| loss.as_f64().unwrap());
        assert!((loss - golden).abs() < 1e-5, "{name}: {loss}, {golden}");
        assert!(metrics["span_f1"].is_number(), "{metrics}");
        place.ok(&format!(
            "train {name}.toml --device cpu --out r {sets} --set optimizer.lr=1e-20 --set train.epochs=1"
        ));
        let said = place.ok("predict r tags.conll --json").json();
        let tags: Vec<&Value> = said.as_array().unwrap().iter().map(|row| &row["tags"]).collect();
        assert_eq!(tags, wanted["tags"].as_array().unwrap().iter().collect::<Vec<_>>(), "{name}");
    }
    // An encoder alone, also with a classifier of texts: that for tags begins anew.
    for name in ["encoder", "bert"] {
        let (place, _) = imported("text_classifiers", name);
        fs::copy(golden.join("tags.conll"), place.path("tags.conll")).unwrap();
        place.ok(&format!("import {name} --tags"));
        let sets = "--set data.path=tags.conll --set data.max_length=16 --set train.epochs=1";
        place.ok(&format!("train {name}.toml --device cpu --out r {sets} --set model.freeze=['bert']"));
        let tensors = runner::checkpoint::load_tensors(&place.path("r/last.safetensors")).unwrap().tensors;
        assert!(tensors.keys().all(|name| !name.contains("pooler")), "{:?}", tensors.keys());
        assert_eq!(tensors["classifier.weight"].shape, [3, 16]);
    }
    let (place, _) = imported("language_models", "gpt2");
    assert!(place.fails("import gpt2 --tags", 1).contains("`--tags` is for bert and distilbert"));
}

/// An encoder without a classifier, also with names of older files: the classes are those of the table.
#[test]
fn an_encoder_gets_a_classifier_for_the_classes_of_a_table() {
    let (place, _) = imported("text_classifiers", "encoder");
    fs::copy(repository("tests/golden/text_classifiers/texts.csv"), place.path("texts.csv")).unwrap();
    let run = "--device cpu --set data.max_length=16 --set train.epochs=1";
    let trained = |from: &str| {
        place.ok(&format!("import {from} --out {from}.toml"));
        place.ok(&format!("train {from}.toml --out r-{from} {run} --set model.freeze=['bert']"));
        let loaded = runner::checkpoint::load_tensors(&place.path(&format!("r-{from}/last.safetensors"))).unwrap();
        loaded.tensors
    };
    let new = trained("encoder");
    assert_eq!(new["classifier.weight"].shape, [3, 16]);
    let own = runner::checkpoint::load_tensors(&place.path("encoder/model.safetensors")).unwrap().tensors;
    for (name, tensor) in &own {
        assert_eq!(&new[&format!("bert.{name}")], tensor, "{name}");
    }
    fs::create_dir(place.path("old")).unwrap();
    for file in ["config.json", "tokenizer.json"] {
        fs::copy(place.path(&format!("encoder/{file}")), place.path(&format!("old/{file}"))).unwrap();
    }
    let old_name =
        |name: &str| name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta");
    let views = own.iter().map(|(name, tensor)| {
        (
            old_name(name),
            safetensors::tensor::TensorView::new(safetensors::Dtype::F32, tensor.shape.clone(), &tensor.data).unwrap(),
        )
    });
    fs::write(place.path("old/model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    assert!(shapes(&place, "old/model.safetensors").iter().any(|(name, _)| name.ends_with(".gamma")));
    assert_eq!(trained("old"), new);
}

/// A folder of its own for transformers, which the next import reads like the first one.
#[test]
fn a_folder_is_exported_like_the_one_it_came_from() {
    let texts = repository("tests/golden/language_models/text.txt");
    for name in ["gpt2", "llama"] {
        let (place, _) = imported("language_models", name);
        fs::copy(&texts, place.path("input.txt")).unwrap();
        fs::write(place.path(&format!("{name}/tokenizer_config.json")), "{}").unwrap();
        place.ok(&format!("import {name} --out a.toml"));
        let run = "--device cpu --set data.context=8 --set train.epochs=1 --set train.max_steps=2";
        place.ok(&format!("train a.toml --out r {run}"));
        let stdout = place.ok(&format!("export r out --like {name}")).out;
        assert!(stdout.contains("to `out`, with config.json, model.safetensors, tokenizer.json"), "{stdout}");
        assert_eq!(place.read("out/tokenizer_config.json"), "{}");
        let names = |folder: &str| shapes(&place, &format!("{folder}/model.safetensors"));
        assert_eq!(names("out"), names(name));
        place.ok("import out --out b.toml");
        place.ok("export r/last.safetensors whole.safetensors");
        place.ok("export b.toml again.safetensors");
        let weights = |file: &str| runner::checkpoint::load_tensors(&place.path(file)).unwrap().tensors;
        assert_eq!(weights("whole.safetensors"), weights("again.safetensors"));
        assert_ne!(weights("whole.safetensors"), weights(&format!("{name}/model.safetensors")));
        // What the model was read from is not written over, and another model's folder is no pattern.
        let said = place.fails(&format!("export r {name} --like {name}"), 2);
        assert!(said.contains("model.safetensors"), "{said}");
        let other = repository("tests/golden/text_classifiers/bert");
        let said = place.fails(&format!("export r out --like {}", other.display()), 1);
        assert!(said.contains("is not the folder that the model of `r` came from"), "{said}");
        // Nor is one with other layers: transformers would make up those that the model lacks, and leave out those that it has more.
        for (layers, what) in [(1, "the model has no `"), (3, "` is in the model alone")] {
            let more = format!("--set params.layers={layers} --set model.weights_strict=false");
            place.ok(&format!("train a.toml --out other --force {run} {more}"));
            let said = place.fails(&format!("export other third --like {name}"), 1);
            assert!(said.contains("is not the folder") && said.contains(what), "{said}");
            assert!(!place.path("third").exists());
        }
        // All or nothing is written, to a folder.
        fs::create_dir(place.path("half")).unwrap();
        fs::hard_link(place.path(&format!("{name}/config.json")), place.path("half/config.json")).unwrap();
        let said = place.fails(&format!("export r half --like {name}"), 2);
        assert!(said.contains("`half/config.json`"), "{said}");
        assert_eq!(fs::read_dir(place.path("half")).unwrap().count(), 1);
        let said = place.fails(&format!("export r r --like {name}"), 2);
        assert!(said.contains("the folder of a run"), "{said}");
        let said = place.fails(&format!("export r model.onnx --like {name}"), 2);
        assert!(said.contains("writes a folder"), "{said}");
    }
    for name in ["encoder", "distilbert"] {
        let (place, _) = imported("text_classifiers", name);
        fs::copy(repository("tests/golden/text_classifiers/texts.csv"), place.path("texts.csv")).unwrap();
        place.ok(&format!("import {name} --out a.toml"));
        place.ok("train a.toml --out r --device cpu --set data.max_length=16 --set train.epochs=1");
        place.ok(&format!("export r out --like {name}"));
        let config: Value = serde_json::from_str(&place.read("out/config.json")).unwrap();
        let kind =
            if name == "encoder" { "BertForSequenceClassification" } else { "DistilBertForSequenceClassification" };
        assert_eq!(config["architectures"], serde_json::json!([kind]));
        let classes = place.checkpoint("r/last.safetensors").meta.extra.to_string();
        for (number, class) in config["id2label"].as_object().unwrap() {
            assert!(classes.contains(class.as_str().unwrap()), "{class} {classes}");
            assert_eq!(config["label2id"][class.as_str().unwrap()].to_string(), *number);
        }
        place.ok("import out --out b.toml");
        place.ok("export r/last.safetensors whole.safetensors");
        place.ok("export b.toml again.safetensors");
        let weights = |file: &str| runner::checkpoint::load_tensors(&place.path(file)).unwrap().tensors;
        assert_eq!(weights("whole.safetensors"), weights("again.safetensors"));
    }
}

/// Classes that have no names of their own are called as transformers calls them, and no table is needed.
#[test]
fn a_classifier_without_names_of_classes_needs_no_table() {
    let (place, _) = imported("text_classifiers", "bert");
    let path = place.path("bert/config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    config["id2label"] = serde_json::json!({ "0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2" });
    fs::write(&path, config.to_string()).unwrap();
    place.ok("import bert --out c.toml");
    place.ok("export c.toml whole.onnx");
    place.write("new.txt", "a lovely film\n");
    let said = place.ok("predict c.toml new.txt --device cpu --json").out;
    assert!(said.contains("LABEL_"), "{said}");
    // A classifier that begins anew takes the classes of the data.
    let (place, _) = imported("text_classifiers", "encoder");
    let path = place.path("encoder/config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    config["id2label"] = serde_json::json!({ "0": "LABEL_0", "1": "LABEL_1" });
    fs::write(&path, config.to_string()).unwrap();
    place.ok("import encoder --out c.toml");
    assert!(!place.read("c.toml").contains("classes = ["));
}

/// What is known here is part of what Hugging Face's models can be: the rest is refused by the name of its key.
#[test]
fn what_is_not_known_of_a_model_is_refused() {
    for (kind, name, key, value) in [
        ("language_models", "gpt2", "activation_function", Value::from("relu")),
        ("language_models", "llama", "rope_scaling", serde_json::json!({ "rope_type": "yarn" })),
        ("text_classifiers", "bert", "hidden_act", Value::from("relu")),
        ("text_classifiers", "bert", "position_embedding_type", Value::from("relative_key")),
        ("text_classifiers", "bert", "is_decoder", Value::from(true)),
        ("text_classifiers", "distilbert", "activation", Value::from("relu")),
        ("text_classifiers", "distilbert", "sinusoidal_pos_embds", Value::from(true)),
        ("text_classifiers", "distilbert", "dim", Value::Null),
        ("text_classifiers", "distilbert", "model_type", Value::from("deberta")),
        ("text_classifiers", "bert", "classifier_dropout", Value::from("x")),
        ("text_classifiers", "bert", "hidden_act", Value::from(7)),
        ("text_classifiers", "bert", "id2label", Value::from(-1)),
        ("language_models", "llama", "rms_norm_eps", Value::from("1e-5")),
        ("language_models", "llama", "head_dim", Value::from(-4)),
        ("language_models", "llama", "tie_word_embeddings", Value::from("no")),
        ("language_models", "llama", "num_key_value_heads", Value::from("2")),
        ("language_models", "llama", "num_hidden_layers", Value::from(0)),
        ("text_classifiers", "bert", "problem_type", Value::from("regression")),
        // Each token of the tokenizer has an embedding.
        ("language_models", "gpt2", "vocab_size", Value::from(100)),
    ] {
        let (place, _) = imported(kind, name);
        let path = place.path(&format!("{name}/config.json"));
        let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        config[key] = value;
        fs::write(&path, config.to_string()).unwrap();
        let message = place.fails(&format!("import {name}"), 1);
        assert!(message.contains("config.json`") && message.contains(&format!("`{key}`")), "{key}: {message}");
        assert!(!place.path(&format!("{name}.toml")).exists());
    }
    // A model has embeddings to spare, and no others.
    let (place, _) = imported("language_models", "gpt2");
    let path = place.path("gpt2/config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let tokens = runner::data::text::Tokenizer::read(&place.path("gpt2/tokenizer.json")).unwrap().vocabulary();
    for (count, fits) in [(tokens + 7, true), (tokens, true), (tokens - 1, false)] {
        config["vocab_size"] = count.into();
        fs::write(&path, config.to_string()).unwrap();
        if fits {
            place.ok("import gpt2 --force");
        } else {
            let message = place.fails("import gpt2 --force", 1);
            let words =
                format!("tokenizer.json` has {tokens} tokens, and `vocab_size` of `gpt2/config.json` is {count}");
            assert!(message.contains(&words), "{message}");
        }
    }
    let place = Place::new();
    assert!(place.fails("import none", 1).contains("there is no folder `none`"));
    fs::create_dir(place.path("m")).unwrap();
    assert!(place.fails("import m", 1).contains("config.json` is not there"));
}

/// The names and shapes of the tensors of a file.
fn shapes(place: &Place, file: &str) -> Vec<(String, Vec<usize>)> {
    let loaded = runner::checkpoint::load_tensors(&place.path(file)).unwrap();
    loaded.tensors.into_iter().map(|(name, tensor)| (name, tensor.shape)).collect()
}
