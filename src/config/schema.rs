//! The JSON Schema of the language, from the same structs that read it: what editors complete and explain from.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::layers::Layer;
use super::lints::Lints;
use super::resolve::{GroupKeys, ModelKeys, TopKeys};
use super::sections::{Checkpoint, Curve, Loading, Log, Loss, OptimizerRule, Source, Train, Transform, Warmup};
use super::tagged::Tagged;

/// The whole schema.
pub fn schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let mut properties = properties_of::<TopKeys>(&mut generator);
    properties.insert(
        "extends".into(),
        json!({ "type": "string", "description": "Another configuration that this one overrides, key by key; its path is taken from this file's folder." }),
    );
    let transforms = |what: &str| json!({ "type": "array", "items": { "$ref": "#/$defs/Transform" }, "default": [], "description": what });
    let mut loading = properties_of::<Loading>(&mut generator);
    loading.insert("transforms".into(), transforms("Applied to every sample, after `train_transforms`."));
    loading.insert("train_transforms".into(), transforms("Applied to training samples only, before `transforms`."));
    let data = one_of::<Source>(&mut generator, &loading, "Where samples come from, and how they become batches.");
    properties.insert("data".into(), data);
    properties.insert("model".into(), model(&mut generator));
    properties.insert("loss".into(), one_of::<Loss>(&mut generator, &Map::new(), "What training makes smaller."));
    let mut groups = Map::new();
    let group = object(GroupKeys::json_schema(&mut generator).to_value(), &Map::new());
    groups.insert(
        "groups".into(),
        json!({ "type": "array", "items": group, "default": [], "description": "Parameters that are treated differently; a parameter belongs to the first group that matches it." }),
    );
    properties.insert(
        "optimizer".into(),
        one_of::<OptimizerRule>(&mut generator, &groups, "How gradients change parameters."),
    );
    let warmup = properties_of::<Warmup>(&mut generator);
    properties.insert("schedule".into(), one_of::<Curve>(&mut generator, &warmup, "The course of the learning rate."));
    properties.insert("train".into(), section::<Train>(&mut generator, "How long to train, and how."));
    properties
        .insert("checkpoint".into(), section::<Checkpoint>(&mut generator, "Which checkpoints to write and keep."));
    properties.insert("log".into(), section::<Log>(&mut generator, "What to write down."));
    properties.insert("lint".into(), section::<Lints>(&mut generator, "Which warnings not to give."));
    properties.insert("params".into(), params("Parameters of this file, `\"$name\"` in layers, with their defaults."));
    properties.insert(
        "blocks".into(),
        json!({
            "type": "object",
            "description": "Layers that are written once and used by `block = \"name\"`.",
            "additionalProperties": {
                "type": "object",
                "properties": {
                    "params": params("Parameters of the block, with their defaults."),
                    "layers": layers("The layers of the block."),
                },
                "required": ["layers"],
                "additionalProperties": false,
            },
        }),
    );
    definitions(&mut generator, properties)
}

/// The root, with everything that was referred to.
fn definitions(generator: &mut SchemaGenerator, properties: Map<String, Value>) -> Value {
    let transform =
        one_of::<Transform>(generator, &Map::new(), "A step between a stored sample and the model's input.");
    let layer = layer(generator);
    let mut defs = generator.take_definitions(true);
    defs.insert("Transform".into(), json!({ "anyOf": [bare::<Transform>(&transform), transform] }));
    defs.insert("Layer".into(), layer);
    defs.insert(
        "Expression".into(),
        json!({
            "type": "string",
            "pattern": "\\$",
            "description": "A parameter, `\"$name\"`, or arithmetic over whole numbers, `\"$planes * 4\"`.",
        }),
    );
    let mut root = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "runner",
        "description": "An experiment: data, model, loss, optimizer and how to train.",
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
        "$defs": defs,
    });
    tidy(&mut root);
    root
}

fn model(generator: &mut SchemaGenerator) -> Value {
    let mut properties = properties_of::<ModelKeys>(generator);
    properties.insert("layers".into(), layers("The layers, in order."));
    properties.insert(
        "use".into(),
        json!({ "type": "string", "description": "Take the layers from this file instead: its path is taken from this file's folder, else from the current directory, else from the two folders above this file." }),
    );
    properties.insert("with".into(), params("Parameters of the file in `use`."));
    json!({
        "type": "object",
        "description": "The layers, and where their parameters start.",
        "properties": properties,
        "additionalProperties": false,
    })
}

fn params(description: &str) -> Value {
    json!({
        "type": "object",
        "description": description,
        "additionalProperties": { "type": ["integer", "number", "string", "boolean", "array"] },
    })
}

fn layers(description: &str) -> Value {
    json!({ "type": "array", "items": { "$ref": "#/$defs/Layer" }, "description": description })
}

/// A layer: a bare word, a table of one of the types, or something that holds layers.
fn layer(generator: &mut SchemaGenerator) -> Value {
    let name = json!({ "type": "string", "pattern": "^([A-Za-z0-9_-]|\\{i\\})+$", "description": "Its part of the names of parameters, by default its index among its siblings; `{i}` is the index within `repeat`." });
    let from = json!({
        "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" }, "minItems": 1 }],
        "description": "Take the output of this earlier layer, or of these, instead of the one before.",
    });
    let common = || Map::from_iter([("name".to_owned(), name.clone()), ("from".to_owned(), from.clone())]);
    let container = |word: Option<&str>, description: &str, own: Value, required: &[&str]| {
        let mut properties = common();
        let mut required: Vec<&str> = required.to_vec();
        if let Some(word) = word {
            properties.insert("type".into(), json!({ "const": word }));
            required.push("type");
        }
        if let Value::Object(own) = own {
            properties.extend(own);
        }
        json!({
            "type": "object",
            "description": description,
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        })
    };
    let one = json!({ "anyOf": [{ "$ref": "#/$defs/Layer" }, layers("Layers, in order.")] });
    let mut plain = one_of_expressions::<Layer>(generator, &common());
    let words = bare::<Layer>(&json!({ "oneOf": plain }));
    plain.extend([
        container(None, "Layers in order, under a name of their own.", json!({ "layers": layers("The layers, in order.") }), &["layers"]),
        container(
            Some("residual"),
            "Adds its input to the output of its layers. Without a `name` it adds nothing to theirs.",
            json!({
                "layers": layers("The layers, in order."),
                "projection": one.clone(),
                "shortcut": {
                    "enum": ["always", "if_same_shape"],
                    "default": "always",
                    "description": "`if_same_shape` leaves the sum out where shapes differ.",
                },
            }),
            &["layers"],
        ),
        container(
            Some("gate"),
            "Multiplies its input by the output of its layers, broadcast: squeeze-and-excitation.",
            json!({ "layers": layers("The layers, in order.") }),
            &["layers"],
        ),
        container(
            Some("branches"),
            "Several layers or groups on the same input. Without a `name` it adds nothing to their names.",
            json!({
                "branches": { "type": "array", "items": one, "minItems": 1, "description": "Each has the same input." },
                "combine": { "enum": ["add", "multiply", "concat"], "description": "What becomes of their outputs; `concat` is along the channels." },
            }),
            &["branches", "combine"],
        ),
        json!({
            "type": "object",
            "description": "A layer whose type is a parameter.",
            "properties": { "type": { "$ref": "#/$defs/Expression" }, "name": name, "from": from },
            "required": ["type"],
        }),
        container(
            None,
            "A block, or several.",
            json!({
                "block": { "type": "string", "description": "The name of a block in `[blocks]`." },
                "repeat": { "anyOf": [{ "type": "integer", "minimum": 1 }, { "$ref": "#/$defs/Expression" }], "description": "Make so many, named `0`, `1`, … below this layer's name." },
                "with": params("Parameters of all."),
                "first": params("Parameters of the first only."),
            }),
            &["block"],
        ),
    ]);
    json!({ "anyOf": [words, { "$ref": "#/$defs/Expression" }, { "oneOf": plain }] })
}

/// The words that may stand alone: those of tables that need nothing besides.
fn bare<T: Tagged>(tables: &Value) -> Value {
    let alone = |table: &Value| {
        let required = table["required"].as_array()?;
        let word = table["properties"][T::TAG]["const"].as_str()?;
        (required.len() == 1).then(|| word.to_owned())
    };
    let words: Vec<String> = tables["oneOf"].as_array().into_iter().flatten().filter_map(alone).collect();
    json!({ "enum": words })
}

/// A section of one of several kinds.
fn one_of<T: Tagged>(generator: &mut SchemaGenerator, common: &Map<String, Value>, description: &str) -> Value {
    let tables: Vec<Value> = T::schemas(generator)
        .into_iter()
        .map(|(word, schema)| tagged(T::TAG, word, object(schema.to_value(), common)))
        .collect();
    json!({ "type": "object", "description": description, "oneOf": tables })
}

/// The same for layers, whose arguments may all be expressions.
fn one_of_expressions<T: Tagged>(generator: &mut SchemaGenerator, common: &Map<String, Value>) -> Vec<Value> {
    let with_expressions = |mut schema: Value| {
        if let Some(properties) = schema["properties"].as_object_mut() {
            for value in properties.values_mut() {
                let Value::Object(inner) = value else { continue };
                let mut outer = Map::new();
                for key in ["description", "default"] {
                    outer.extend(inner.remove(key).map(|value| (key.to_owned(), value)));
                }
                outer.insert("anyOf".into(), json!([inner, { "$ref": "#/$defs/Expression" }]));
                *value = Value::Object(outer);
            }
        }
        schema
    };
    T::schemas(generator)
        .into_iter()
        .map(|(word, schema)| tagged(T::TAG, word, object(with_expressions(schema.to_value()), common)))
        .collect()
}

fn section<T: JsonSchema>(generator: &mut SchemaGenerator, description: &str) -> Value {
    let mut table = object(T::json_schema(generator).to_value(), &Map::new());
    table["description"] = description.into();
    table
}

fn properties_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Map<String, Value> {
    match T::json_schema(generator).to_value()["properties"].take() {
        Value::Object(properties) => properties,
        _ => Map::new(),
    }
}

/// An object's schema with more properties, and no others.
fn object(mut schema: Value, more: &Map<String, Value>) -> Value {
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.extend(more.clone());
    }
    schema["additionalProperties"] = false.into();
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("title");
    }
    schema
}

/// An object's schema with the word that tells it apart.
fn tagged(tag: &str, word: &str, mut schema: Value) -> Value {
    schema["title"] = word.into();
    schema["properties"][tag] = json!({ "const": word });
    let mut required = vec![Value::from(tag)];
    required.extend(schema["required"].as_array().into_iter().flatten().cloned());
    schema["required"] = required.into();
    schema
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
