//! `runner docs`.

use std::process::{Command, Output};

use runner::config::schema::reference::tables;

fn docs(names: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_runner")).arg("docs").args(names).output().unwrap()
}

/// What it prints of names that there are.
fn printed(names: &[&str]) -> String {
    let output = docs(names);
    assert!(output.status.success(), "{names:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn keys_are_found_by_section_and_by_type() {
    let lr = printed(&["optimizer.lr"]);
    assert!(lr.starts_with("lr: key of `sgd` in `[optimizer]`\n") && lr.contains("default    required"), "{lr}");
    assert!(!lr.contains("`[optimizer.swa]`") && printed(&["swa.lr"]).contains("in `[optimizer.swa]`"));
    let sgd = printed(&["sgd.lr"]);
    assert!(sgd.contains("example    lr = 0.1") && !sgd.contains("adam"), "{sgd}");
    let patience = printed(&["train.early_stopping.patience"]);
    assert!(patience.contains("page       docs/config/train.md"), "{patience}");
    assert!(printed(&["seed"]).contains("before the first section"));
}

#[test]
fn types_have_their_options() {
    let printed = printed(&["conv2d", "unused_layer", "relu"]);
    assert!(
        printed.starts_with("conv2d: layer\n") && printed.contains("kernel_size: pair from 1, required"),
        "{printed}"
    );
    assert!(printed.contains("allow = [\"unused_layer\"]") && printed.contains("example    \"relu\""), "{printed}");
}

#[test]
fn sections_have_their_keys_and_types() {
    let train = printed(&["train"]);
    assert!(train.starts_with("train: section `[train]`\n  keys       epochs, steps"), "{train}");
    assert!(train.contains("page       docs/config/train.md") && !train.contains("types"), "{train}");
    let optimizer = printed(&["optimizer"]);
    assert!(optimizer.contains("\n  types      ") && optimizer.contains(", adamw"), "{optimizer}");
    let data: serde_json::Value = serde_json::from_str(&printed(&["data", "--json"])).unwrap();
    let types = data["entries"][0]["types"].as_array().unwrap();
    assert!(types.iter().any(|word| word == "csv") && data["entries"][0]["kind"] == "section", "{data}");
}

/// What stands in `columns` of a table.
#[test]
fn types_of_columns_have_their_keys() {
    let scaling = printed(&["scaling"]);
    assert!(scaling.starts_with("scaling: key of `number` in `columns` of `[data]`\n"), "{scaling}");
    assert!(scaling.contains("`quantile`") && scaling.contains("page       docs/config/tables.md"), "{scaling}");
    assert_eq!(printed(&["data.columns.scaling"]), scaling);
    assert_eq!(printed(&["number.scaling"]), scaling);
    for key in ["hash_buckets", "max_categories", "min_count", "time_of_day", "format"] {
        assert!(printed(&[key]).contains("in `columns` of `[data]`"), "{key}");
    }
    assert!(printed(&["date"]).contains("example    columns = { name = \"date\" }"));
    let columns = printed(&["data.columns"]);
    assert!(columns.starts_with("columns: key of `csv`, `parquet` in `[data]`\n"), "{columns}");
    assert!(columns.contains("types      number, category, text, tokens, boolean, date, ignore"), "{columns}");
    assert!(printed(&["data.columns.type"]).contains("Which type of column it is."));
    // So of the other keys whose values are tables.
    assert!(printed(&["train.early_stopping"]).contains("\n  keys       monitor, "));
}

/// The keys that every file has: which source, which type.
#[test]
fn the_keys_that_choose_a_type_are_described() {
    let source = printed(&["data.source"]);
    assert!(source.starts_with("source: key in `[data]`\n") && source.contains(", csv, "), "{source}");
    let optimizer = printed(&["optimizer.type"]);
    assert!(
        optimizer.starts_with("type: key in `[optimizer]`\n") && optimizer.contains("docs/config/optimizer"),
        "{optimizer}"
    );
    assert!(!optimizer.contains("[loss]"), "{optimizer}");
    let all = printed(&["type"]);
    for part in ["in `[loss]`", "in `[schedule]`", "of every layer", "of every transform"] {
        assert!(all.contains(part), "{part}: {all}");
    }
    assert!(printed(&["params", "blocks.conv"]).contains("page       docs/config/blocks.md"));
    assert!(printed(&["cannot listen"]).contains("--port"));
    let json: serde_json::Value = serde_json::from_str(&printed(&["schedule.type", "--json"])).unwrap();
    assert!(json["entries"][0]["values"].as_array().unwrap().contains(&"cosine".into()), "{json}");
    // Every key at the top of every configuration and model that is written here.
    let known = |name: &str| docs(&[name]).status.success();
    let mut names = std::collections::BTreeSet::new();
    for folder in ["configs", "models"] {
        for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/").to_owned() + folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|ending| ending != "toml") {
                continue;
            }
            let file: toml::Table = toml::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            for (section, value) in &file {
                let own = ["params", "blocks", "sweep"].contains(&section.as_str());
                names.extend(
                    value.as_table().filter(|_| !own).into_iter().flatten().map(|(key, _)| format!("{section}.{key}")),
                );
                names.insert(section.clone());
            }
        }
    }
    let unknown: Vec<&String> = names.iter().filter(|name| !known(name)).collect();
    assert!(unknown.is_empty() && names.len() > 60, "{unknown:?} of {}", names.len());
}

#[test]
fn what_is_not_there_is_an_error_that_helps() {
    for (name, help) in [
        ("resnet18", "`runner models --show resnet18`"),
        ("optimizer.momentun", "`runner docs momentum`"),
        ("conv2d.lr", "`runner docs lr`"),
    ] {
        let output = docs(&[name]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && output.stdout.is_empty() && error.contains(help), "{error}");
    }
}

#[test]
fn json_has_the_same() {
    let json: serde_json::Value = serde_json::from_str(&printed(&["dim0", "conv2d", "--json"])).unwrap();
    let (key, layer) = (&json["entries"][0], &json["entries"][1]);
    assert_eq!((key["name"].as_str(), key["of"][0].as_str()), (Some("dim0"), Some("transpose")));
    assert_eq!(layer["options"][1]["name"], "kernel_size");
    assert_eq!(layer["page"], "docs/config/layers.md");
}

/// The example of each option is a line of TOML.
#[test]
fn examples_are_toml() {
    for table in tables() {
        for option in table.entries.iter().flat_map(|entry| &entry.options) {
            let line = option.example.replace("{ … }", "{}");
            assert!(toml::from_str::<toml::Table>(&line).is_ok(), "{}: {line}", table.name);
        }
    }
}

/// So is that of each layer and transform, which editors take as it stands.
#[test]
fn examples_of_types_are_toml() {
    let tables = tables();
    let types = tables.iter().filter(|table| matches!(table.kind, Some("layer" | "transform")));
    let words: Vec<&str> = types.flat_map(|table| &table.entries).flat_map(|entry| entry.words.clone()).collect();
    let printed = printed(&words);
    let examples: Vec<&str> = printed.lines().filter_map(|line| line.strip_prefix("  example    ")).collect();
    // Some words are names of keys as well.
    assert!(words.len() > 100 && examples.len() >= words.len(), "{} of {}", examples.len(), words.len());
    for example in examples.into_iter().filter(|example| example.starts_with(['"', '{'])) {
        assert!(toml::from_str::<toml::Table>(&format!("x = {example}")).is_ok(), "{example}");
    }
}
