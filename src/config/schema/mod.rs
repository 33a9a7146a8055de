//! The JSON Schema of the language, from the same structs that read it: what editors complete and explain from.
//!
//! It has words, types, ranges, required keys and keys that exclude each other, but no rules over the whole model or several
//! sections. A file that extends another needs nothing, as all may stand there.

mod layers;
pub mod reference;
mod section;
mod values;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use self::section::{Section, no_unset, unset};
use super::declare::schema::Table;
use super::declare::tagged::Tagged;
use super::language::keys;
use super::language::layers::parameters;
use super::language::sections::{ColumnType, Course, Init, InitKeys, Loss, Metric, Transform};
use super::text::words::UNSET;
use crate::graph::op::TargetKind;

/// The whole schema.
pub fn schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let mut root = Table::default().described("An experiment: data, model, loss, optimizer and how to train.");
    for declare in keys::TOP {
        root.join(&Table::from_declaration(declare(&mut generator)));
    }
    let mut strict = Map::new();
    for (name, section) in sections(&mut generator) {
        root.add(name, section.loose);
        strict.insert(name.into(), section.strict);
    }
    let alone = json!({ "not": { "required": ["extends"] } });
    // Without one of these a file is a model, for `use`.
    let own = keys::section_names().into_iter().filter(|name| *name != "model");
    let any: Vec<Value> = own.map(|name| json!({ "required": [name] })).collect();
    let required: Vec<&str> = keys::sections().iter().filter(|s| s.required.is_some()).map(|s| s.name).collect();
    root.add_always(json!({ "if": alone, "then": { "properties": strict } }));
    root.add_always(json!({ "if": { "allOf": [alone, { "anyOf": any }] }, "then": { "required": required } }));
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

/// What sections say of one another, as far as words can say it: targets and figures must be those of the loss.
fn agreements() -> Vec<Value> {
    let with = |section: &str, key: &str, words: &[&str]| json!({ section: { "properties": { key: { "enum": words } }, "required": [key] } });
    let without = |section: &str, key: &str, words: &[&str]| json!({ "properties": { section: { "properties": { key: { "not": { "enum": words } } } } } });
    let classes = || {
        without(
            "data",
            "source",
            &["mnist", "fashion_mnist", "cifar10", "cifar100", "digits", "image_folder", "webdataset"],
        )
    };
    let unset = |key: &str| json!({ "properties": { "data": { "properties": { key: false } } } });
    let of = |loss: &Loss| {
        let (loss, described) = (loss.type_name(), loss.describe());
        let foreign = match described.targets() {
            TargetKind::Classes => unset("targets"),
            // With a `target` of its own the loss leaves those of the data alone.
            TargetKind::Numbers => json!({
                "if": { "not": { "properties": { "loss": { "required": ["target"] } } } },
                "then": { "allOf": [classes(), unset("classes")] },
            }),
        };
        let counted = described.task().asked_figures();
        let figures = [described.task().figures(), counted].concat();
        let foreign_figures = Metric::ALL.iter().filter(|m| !figures.contains(&m.figure()));
        let monitors = &foreign_figures.map(|m| m.name()).collect::<Vec<_>>();
        let asked = counted.iter().map(|f| f.name()).collect::<Vec<_>>();
        let asked =
            json!({ "properties": { "metrics": { "properties": { "figures": { "items": { "enum": asked } } } } } });
        let stopping = json!({ "properties": { "train": { "properties": { "early_stopping": { "properties": { "monitor": { "not": { "enum": monitors } } } } } } } });
        json!({
            "if": { "properties": with("loss", "type", &[loss]), "required": ["loss"] },
            "then": { "allOf": [foreign, without("checkpoint", "monitor", monitors), without("schedule", "monitor", monitors), without("sweep", "monitor", monitors), stopping, asked] },
        })
    };
    Loss::defaults().iter().map(of).collect()
}

/// All sections, with parameters and blocks.
fn sections(generator: &mut SchemaGenerator) -> Vec<(&'static str, Section)> {
    let mut all: Vec<(&str, Section)> =
        keys::sections().iter().map(|section| (section.name, Section::of(generator, section))).collect();
    for (section, key) in
        [("train", "early_stopping"), ("optimizer", "ema"), ("optimizer", "swa"), ("optimizer", "adamw")]
    {
        for (_, section) in all.iter_mut().filter(|(name, _)| *name == section) {
            let inner = json!({ "properties": { key: no_unset() } });
            section.strict = json!({ "allOf": [section.strict.take(), inner] });
        }
    }
    let params = params(generator, "Parameters of this file, `\"$name\"` in layers, with their defaults.");
    all.push(("params", Section { loose: params, strict: json!({}) }));
    all.push(("blocks", blocks(generator)));
    all
}

fn blocks(generator: &mut SchemaGenerator) -> Section {
    let mut block = Table::default();
    block.add("params", params(generator, "Parameters of the block, with their defaults."));
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
    let transforms: Vec<Table> = Transform::declarations(generator)
        .into_iter()
        .map(|(word, declaration)| Table::from_declaration(declaration).tagged(Transform::TAG, word))
        .collect();
    let columns: Vec<Value> = ColumnType::declarations(generator)
        .into_iter()
        .map(|(word, declaration)| Table::from_declaration(declaration).tagged(ColumnType::TAG, word).whole())
        .collect();
    let losses: Vec<Value> = Loss::declarations(generator)
        .into_iter()
        .map(|(word, declaration)| Table::from_declaration(declaration).tagged(Loss::TAG, word).whole())
        .collect();
    let tables: Vec<Value> = transforms.iter().map(Table::whole).collect();
    let starts: Vec<Value> = Init::declarations(generator)
        .into_iter()
        .map(|(word, declaration)| {
            let mut table = Table::from_declaration(declaration);
            table.properties_mut().for_each(layers::with_expressions);
            let mut table = table.tagged(Init::TAG, word);
            table.join(&Table::of::<InitKeys>(generator));
            table.whole()
        })
        .collect();
    let courses: Vec<Table> = Course::declarations(generator)
        .into_iter()
        .map(|(word, declaration)| Table::from_declaration(declaration).tagged(Course::TAG, word))
        .collect();
    let courses_in_full: Vec<Value> = courses.iter().map(Table::whole).collect();
    let layer = layers::layer(generator);
    let mut defs = generator.take_definitions(true);
    for table in ["EarlyStopping", "Ema"] {
        if let Some(table) = defs.get_mut(table) {
            table["properties"][UNSET] = unset();
        }
    }
    defs.insert(
        "Transform".into(),
        json!({ "description": "A step between a stored sample and the model's input.", "anyOf": [layers::bare(&transforms, Transform::TAG), { "oneOf": tables }] }),
    );
    defs.insert(
        "Course".into(),
        json!({ "description": "One of several schedules.", "anyOf": [layers::bare(&courses, Course::TAG), { "oneOf": courses_in_full }] }),
    );
    defs.insert("Layer".into(), layer);
    defs.insert("Loss".into(), json!({ "description": "A loss.", "oneOf": losses }));
    defs.insert("ColumnType".into(), json!({ "description": "What becomes of a column.", "oneOf": columns }));
    defs.insert("Init".into(), json!({ "description": "How some parameters start.", "oneOf": starts }));
    defs.insert(
        "Expression".into(),
        json!({
            "type": "string",
            "pattern": "\\$|\\{i\\}",
            "description": "A parameter, `\"$name\"`, or arithmetic over numbers, `\"$planes * 4\"`; `{i}` is the index of the copy of a repeated block.",
        }),
    );
    defs
}

/// A table of parameters.
fn params(generator: &mut SchemaGenerator, description: &str) -> Value {
    let mut params = parameters(generator).to_value();
    params["description"] = description.into();
    params
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
