//! Configurations in the documentation: a block marked `toml` is a whole one, one marked `toml fragment` has only the
//! sections that it is about, or just a list `layers`, and is completed here.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

use runner::backend::cpu::CpuBackend;
use runner::config::schema::schema;
use runner::config::{self, Loaded};
use runner::passes::PassOptions;
use runner::train::setup::input;
use runner::train::setup::programs::{self, Sizes};
use serde_json::Value as Json;
use toml::{Table, Value};

use crate::markdown::{document, manual, pages};

fn load(name: &str, text: &str) -> Loaded {
    let loaded = config::load_str(name, text, &[]).unwrap_or_else(|failure| panic!("{name}\n{failure}\n{text}"));
    let warnings = config::text::diagnostics::render(&loaded.sources, &loaded.warnings, false);
    assert!(warnings.is_empty(), "{name}\n{warnings}");
    loaded
}

/// What editors go by. It takes long to make, and there are many examples.
static VALIDATOR: LazyLock<jsonschema::Validator> = LazyLock::new(|| jsonschema::draft202012::new(&schema()).unwrap());

/// An editor marks nothing in it.
fn fits(name: &str, text: &str) {
    let instance = serde_json::to_value(toml::from_str::<Table>(text).unwrap()).unwrap();
    let found: Vec<String> = VALIDATOR.iter_errors(&instance).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(found.is_empty(), "{name}\n{found:#?}\n{text}");
}

/// The sections that a fragment lacks.
fn complete(fragment: &str) -> Result<String, Box<dyn std::error::Error>> {
    let mut table: Table = toml::from_str(fragment)?;
    // What it extends is no file here.
    table.remove("extends");
    for (_, section) in table.iter_mut() {
        let Value::Table(section) = section else { continue };
        section.remove("unset");
    }
    let layers = table.remove("layers");
    let numbers = table.get("loss").and_then(|loss| loss.get("type")).and_then(Value::as_str) == Some("mse")
        || table.get("data").is_some_and(|data| data.get("targets").is_some());
    let base = match numbers {
        true => "[data]\nsource = 'synthetic'\nshape = [8]\ntargets = 1\n[loss]\ntype = 'mse'\n",
        false => "[data]\nsource = 'digits'\n[loss]\ntype = 'cross_entropy'\n",
    };
    let rest = "[model]\nlayers = ['flatten', { type = 'linear', out_features = 10 }]\n[optimizer]\ntype = 'adam'\n[train]\nepochs = 100\n";
    for (name, section) in toml::from_str::<Table>(&format!("{base}{rest}"))? {
        let Value::Table(section) = section else { continue };
        let Value::Table(own) = table.entry(name).or_insert_with(|| Value::Table(Table::new())) else { continue };
        // The key that decides the kind of a section goes with its other keys; the rest is filled up.
        let has_kind = ["source", "use", "steps"].iter().any(|key| own.contains_key(*key));
        for (key, value) in section.into_iter().filter(|_| !has_kind) {
            own.entry(key).or_insert(value);
        }
    }
    if let (Some(layers), Some(Value::Table(model))) = (layers, table.get_mut("model")) {
        model.insert("layers".into(), layers);
    }
    Ok(toml::to_string(&table)?)
}

#[test]
fn configurations_load() {
    let (mut whole, mut fragments) = (0, 0);
    for document in manual() {
        for block in &document.blocks {
            let name = format!("{}, block at line {}", document.path.display(), block.line);
            match block.info.as_str() {
                "toml" => {
                    whole += 1;
                    fits(&name, &block.text);
                    let loaded = load(&name, &block.text);
                    // What a text has of tokens only the text says.
                    let data = match input::describe(&loaded.experiment) {
                        Err(error) if loaded.experiment.data.source.has_tokens() => {
                            assert!(error.message.contains("No such file"), "{name}: {error:?}");
                            continue;
                        }
                        data => data.unwrap(),
                    };
                    let sizes = Sizes { train: vec![4.into()], ..Sizes::default() };
                    let backend = CpuBackend::new(Some(1)).unwrap();
                    let built = programs::build(&loaded.experiment, &data, &sizes, &backend, &PassOptions::default());
                    let remarks = built.map_or_else(|errors| errors, |programs| programs.warnings);
                    let remarks = config::text::diagnostics::render(&loaded.sources, &remarks, false);
                    assert!(remarks.is_empty(), "{name}\n{remarks}");
                }
                "toml fragment" => {
                    fragments += 1;
                    let text = complete(&block.text).unwrap_or_else(|error| panic!("{name}: {error}"));
                    // A file that extends another need not be whole.
                    fits(&name, if block.text.contains("extends = ") { &block.text } else { &text });
                    load(&name, &text);
                }
                info if info.starts_with("sh ") => {}
                info => assert!(matches!(info, "" | "sh" | "text" | "json" | "python" | "rust"), "{name}: `{info}`?"),
            }
        }
    }
    assert!(whole >= 1 && fragments >= 10, "{whole} configurations and {fragments} fragments were found");
}

/// The error that the README shows is the one that is printed.
#[test]
fn the_error_in_the_readme_is_real() {
    let path = "configs/mnist_cnn.toml";
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let slip = "out_channels = 64, kernel_size";
    assert_eq!(text.matches(slip).count(), 1);
    let failure = config::load_str(path, &text.replace(slip, "out_channels = 64, kernal_size"), &[]).unwrap_err();
    let shown = failure.to_string();
    let readme = document("README.md");
    assert!(readme.blocks.iter().any(|block| block.text.contains(&shown)), "the README does not show\n{shown}");
}

/// Whatever the schema has by name is described.
#[test]
fn the_whole_language_is_described() {
    let pages = pages();
    let mut known: BTreeSet<&str> = pages.iter().flat_map(|page| page.spans()).flat_map(words).collect();
    let blocks = pages.iter().flat_map(|page| &page.blocks).filter(|block| block.info.starts_with("toml"));
    known.extend(blocks.flat_map(|block| words(&block.text)));
    let mut names = BTreeSet::new();
    collect(&schema(), &mut names);
    assert!(names.len() > 100);
    let missing: Vec<&String> = names.iter().filter(|name| !known.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "docs/config/ does not mention {missing:?}");
}

/// Every key of the language, and every type of what has types, stands in an example.
#[test]
fn everything_has_an_example() {
    let pages = pages();
    let blocks = pages.iter().flat_map(|page| &page.blocks).filter(|block| block.info.starts_with("toml"));
    let known: BTreeSet<&str> = blocks.flat_map(|block| words(&block.text)).collect();
    let mut names = BTreeSet::new();
    keys_and_types(&schema(), &mut names);
    assert!(names.len() > 300, "only {} keys and types were found", names.len());
    let missing: Vec<&String> = names.iter().filter(|name| !known.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "no example in docs/config/ has {missing:?}");
}

/// Keys, and the words of those that decide a kind: `type` and `source`.
fn keys_and_types(schema: &Json, names: &mut BTreeSet<String>) {
    match schema {
        Json::Object(entries) => {
            if let Some(Json::Object(properties)) = entries.get("properties") {
                names.extend(properties.keys().cloned());
                let kinds = ["type", "source"].iter().filter_map(|key| properties.get(*key)?["const"].as_str());
                names.extend(kinds.map(str::to_owned));
            }
            entries.values().for_each(|value| keys_and_types(value, names));
        }
        Json::Array(items) => items.iter().for_each(|item| keys_and_types(item, names)),
        _ => {}
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// Keys, and the words that are values.
fn collect(schema: &Json, names: &mut BTreeSet<String>) {
    match schema {
        Json::Object(entries) => {
            for (key, value) in entries {
                match (key.as_str(), value) {
                    ("properties", Json::Object(properties)) => names.extend(properties.keys().cloned()),
                    ("const", Json::String(word)) => names.extend([word.clone()]),
                    ("enum", Json::Array(all)) => names.extend(all.iter().filter_map(|w| Some(w.as_str()?.to_owned()))),
                    _ => {}
                }
                collect(value, names);
            }
        }
        Json::Array(items) => items.iter().for_each(|item| collect(item, names)),
        _ => {}
    }
}
