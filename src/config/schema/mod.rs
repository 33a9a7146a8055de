//! The JSON Schema of the language, from the same structs that read it: what editors complete and explain from.
//!
//! It knows words, types, ranges, what must be there and what excludes what; not what only the whole model tells, nor what one
//! section means for another. A file that extends another needs nothing, as all may stand there.

mod layers;
mod table;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use self::table::{Section, Table, no_unset, unset};
use super::kinds::UNSET;
use super::lints::Lints;
use super::resolve::{GroupKeys, ModelKeys, TopKeys};
use super::rules::RANDOM_TRANSFORMS;
use super::sections::{Checkpoint, Curve, Loading, Log, Loss, Metric, OptimizerRule, Source, Train, Transform, Warmup};
use super::tagged::Tagged;
use crate::graph::op::TargetKind;

/// The sections that make a file a configuration rather than a model, and those that a configuration must have.
const OWN_SECTIONS: [&str; 8] = ["data", "loss", "optimizer", "schedule", "train", "checkpoint", "log", "lint"];
const REQUIRED_SECTIONS: [&str; 5] = ["data", "model", "loss", "optimizer", "train"];

/// The whole schema.
pub fn schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let mut root =
        Table::of::<TopKeys>(&mut generator).described("An experiment: data, model, loss, optimizer and how to train.");
    root.add(
        "extends",
        json!({ "type": "string", "minLength": 1, "description": "Another configuration that this one overrides, key by key; its path is taken from this file's folder." }),
    );
    let mut strict = Map::new();
    for (name, section) in sections(&mut generator) {
        root.add(name, section.loose);
        strict.insert(name.into(), section.strict);
    }
    let alone = json!({ "not": { "required": ["extends"] } });
    let any: Vec<Value> = OWN_SECTIONS.iter().map(|name| json!({ "required": [name] })).collect();
    root.add_always(json!({ "if": alone, "then": { "properties": strict } }));
    root.add_always(json!({ "if": { "allOf": [alone, { "anyOf": any }] }, "then": { "required": REQUIRED_SECTIONS } }));
    // The file in `use` has parameters and blocks of its own, and sees no others.
    root.add_always(json!({
        "if": { "properties": { "model": { "required": ["use"] } }, "required": ["model"] },
        "then": { "properties": { "params": false, "blocks": false } },
    }));
    agreements().into_iter().for_each(|rule| root.add_always(rule));
    let mut schema = Map::from_iter([
        ("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema")),
        ("title".to_owned(), json!("runner")),
    ]);
    if let Value::Object(root) = root.loose() {
        schema.extend(root);
    }
    schema.insert("$defs".into(), definitions(&mut generator).into());
    let mut schema = Value::Object(schema);
    tidy(&mut schema);
    schema
}

/// What sections say of one another, as far as words tell: targets and figures must be those of the loss.
fn agreements() -> Vec<Value> {
    let with = |section: &str, key: &str, words: &[&str]| json!({ section: { "properties": { key: { "enum": words } }, "required": [key] } });
    let without = |section: &str, key: &str, words: &[&str]| json!({ "properties": { section: { "properties": { key: { "not": { "enum": words } } } } } });
    let classes = || without("data", "source", &["mnist", "fashion_mnist", "cifar10", "digits"]);
    let unset = |key: &str| json!({ "properties": { "data": { "properties": { key: false } } } });
    let of = |loss: &Loss| {
        let (loss, described) = (loss.type_name(), loss.describe());
        let foreign = match described.targets() {
            TargetKind::Classes => unset("targets"),
            TargetKind::Numbers => json!({ "allOf": [classes(), unset("classes")] }),
        };
        let figures = described.task().figures();
        let foreign_figures = Metric::ALL.into_iter().filter(|m| !figures.contains(&m.figure()));
        let monitors = &foreign_figures.map(Metric::name).collect::<Vec<_>>();
        let stopping = json!({ "properties": { "train": { "properties": { "early_stopping": { "properties": { "monitor": { "not": { "enum": monitors } } } } } } } });
        json!({
            "if": { "properties": with("loss", "type", &[loss]), "required": ["loss"] },
            "then": { "allOf": [foreign, without("checkpoint", "monitor", monitors), stopping] },
        })
    };
    Loss::DEFAULTS.iter().map(of).collect()
}

/// All sections, with parameters and blocks.
fn sections(generator: &mut SchemaGenerator) -> Vec<(&'static str, Section)> {
    // A random one would change evaluation too, and what training alone has is random.
    let transforms = |what: &str, random: bool| {
        let words: Vec<&str> =
            Transform::TYPES.iter().copied().filter(|word| RANDOM_TRANSFORMS.contains(word) == random).collect();
        let fits = json!({ "anyOf": [{ "type": "string", "enum": words }, { "type": "object", "properties": { "type": { "enum": words } } }] });
        json!({ "type": "array", "items": { "allOf": [{ "$ref": "#/$defs/Transform" }, fits] }, "default": [], "description": what })
    };
    let mut loading = Table::of::<Loading>(generator);
    loading.add("transforms", transforms("Applied to every sample, after `train_transforms`.", false));
    loading.add("train_transforms", transforms("Applied to training samples only, before `transforms`.", true));
    let group = Table::of::<GroupKeys>(generator).whole();
    let mut groups = Table::default();
    groups.add(
        "groups",
        json!({ "type": "array", "items": group, "default": [], "description": "Parameters that are treated differently; a parameter belongs to the first group that matches it." }),
    );
    let warmup = Table::of::<Warmup>(generator);
    let nothing = Table::default();
    let mut train = Table::of::<Train>(generator).described("How long to train, and how.");
    train.add_whole(json!({ "properties": { "early_stopping": no_unset() } }));
    let checkpoint = Table::of::<Checkpoint>(generator).described("Which checkpoints to write and keep.");
    let log = Table::of::<Log>(generator).described("What to write down.");
    let lint = Table::of::<Lints>(generator).described("Which warnings not to give.");
    let data = "Where samples come from, and how they become batches.";
    vec![
        ("data", Section::tagged::<Source>(generator, &loading, data, None)),
        ("model", model(generator)),
        ("loss", Section::tagged::<Loss>(generator, &nothing, "What training makes smaller.", None)),
        ("optimizer", Section::tagged::<OptimizerRule>(generator, &groups, "How gradients change parameters.", None)),
        (
            "schedule",
            Section::tagged::<Curve>(generator, &warmup, "The course of the learning rate.", Some("constant")),
        ),
        ("train", Section::plain(train)),
        ("checkpoint", Section::plain(checkpoint)),
        ("log", Section::plain(log)),
        ("lint", Section::plain(lint)),
        (
            "params",
            Section {
                loose: params("Parameters of this file, `\"$name\"` in layers, with their defaults."),
                strict: json!({}),
            },
        ),
        ("blocks", blocks()),
    ]
}

fn model(generator: &mut SchemaGenerator) -> Section {
    let mut table = Table::of::<ModelKeys>(generator).described("The layers, and where their parameters start.");
    let mut list = list_of_layers("The layers, in order.");
    list["minItems"] = 1.into();
    table.add("layers", list);
    table.add(
        "use",
        json!({ "type": "string", "minLength": 1, "description": "Take the layers from this file instead: its path is taken from this file's folder, else from the current directory, else from the two folders above this file." }),
    );
    table.add("with", params("Parameters of the file in `use`."));
    table.add_always(json!({ "not": { "required": ["layers", "use"] } }));
    table.add_whole(json!({ "anyOf": [{ "required": ["layers"] }, { "required": ["use"] }] }));
    table.add_whole(json!({ "dependentRequired": { "with": ["use"] } }));
    Section::plain(table)
}

fn blocks() -> Section {
    let mut block = Table::default();
    block.add("params", params("Parameters of the block, with their defaults."));
    block.add("layers", list_of_layers("The layers of the block."));
    block.require("layers");
    let block = Section::plain(block);
    Section {
        loose: json!({
            "type": "object",
            "description": "Layers that are written once and used by `block = \"name\"`.",
            "properties": { UNSET: unset() },
            "additionalProperties": block.loose,
        }),
        strict: json!({ "properties": { UNSET: false }, "additionalProperties": block.strict }),
    }
}

/// Everything that is referred to.
fn definitions(generator: &mut SchemaGenerator) -> Map<String, Value> {
    let transforms: Vec<Table> = Transform::schemas(generator)
        .into_iter()
        .map(|(word, schema)| Table::from_schema(schema.to_value()).tagged(Transform::TAG, word))
        .collect();
    let tables: Vec<Value> = transforms.iter().map(Table::whole).collect();
    let layer = layers::layer(generator);
    let mut defs = generator.take_definitions(true);
    if let Some(stopping) = defs.get_mut("EarlyStopping") {
        stopping["properties"][UNSET] = unset();
    }
    defs.insert(
        "Transform".into(),
        json!({ "description": "A step between a stored sample and the model's input.", "anyOf": [layers::bare(&transforms, Transform::TAG), { "oneOf": tables }] }),
    );
    defs.insert("Layer".into(), layer);
    defs.insert(
        "Expression".into(),
        json!({
            "type": "string",
            "pattern": "\\$",
            "description": "A parameter, `\"$name\"`, or arithmetic over whole numbers, `\"$planes * 4\"`.",
        }),
    );
    defs
}

fn params(description: &str) -> Value {
    json!({
        "type": "object",
        "description": description,
        "additionalProperties": { "type": ["integer", "number", "string", "boolean", "array"] },
    })
}

fn list_of_layers(description: &str) -> Value {
    json!({ "type": "array", "items": { "$ref": "#/$defs/Layer" }, "description": description })
}

/// Removes what TOML cannot say (`null`) and what only Rust cares about (the width of numbers).
fn tidy(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, value| match key.as_str() {
                "default" => !value.is_null() && value.as_str() != Some(""),
                "format" => !value.is_string(),
                _ => true,
            });
            if let Some(Value::Array(types)) = map.get_mut("type")
                && types.iter().any(|t| t == "null")
            {
                types.retain(|t| t != "null");
                if let [only] = &types[..] {
                    let only = only.clone();
                    map.insert("type".into(), only);
                }
            }
            if let Some(Value::Array(choices)) = map.get_mut("anyOf") {
                choices.retain(|choice| choice["type"] != "null");
            }
            map.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}
