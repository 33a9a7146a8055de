//! Layers in the schema: their arguments may all be expressions.

use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

use super::table::Table;
use super::{list_of_layers, params};
use crate::config::layers::Layer;
use crate::config::model::JOINS;
use crate::config::tagged::Tagged;

/// A layer: a bare word, a table of one of the types, or something that holds layers.
pub fn layer(generator: &mut SchemaGenerator) -> Value {
    let name = json!({ "type": "string", "pattern": "^([A-Za-z0-9_-]|\\{i\\})+$", "description": "Its part of the names of parameters, by default its index among its siblings; `{i}` is the index within `repeat`." });
    let from = |inputs: Value, description: &str| json!({ "anyOf": inputs, "description": description });
    let names = |min: usize, max: usize| json!({ "type": "array", "items": { "type": "string" }, "minItems": min, "maxItems": max });
    let one_input = from(
        json!([{ "type": "string" }, names(1, 1)]),
        "Take the output of this earlier layer instead of the one before.",
    );
    let several = from(json!([names(2, 64)]), "Take the outputs of these earlier layers.");

    let mut tables: Vec<Table> = Vec::new();
    for (word, declaration) in Layer::declarations(generator) {
        let mut table = Table::from_declaration(declaration);
        table.properties_mut().for_each(with_expressions);
        let mut table = table.tagged(Layer::TAG, word);
        table.add("name", name.clone());
        match JOINS.contains(&word) {
            true => {
                table.add("from", several.clone());
                table.require("from");
            }
            false => table.add("from", one_input.clone()),
        }
        tables.push(table);
    }
    let words = bare(&tables, Layer::TAG);

    let container = |word: Option<&str>, description: &str, own: Value, required: &[&str]| {
        let mut table = Table::default().described(description);
        table.add("name", name.clone());
        table.add("from", one_input.clone());
        if let Value::Object(own) = own {
            for (key, mut schema) in own {
                if schema.get("enum").is_some() {
                    with_expressions(&mut schema);
                }
                table.add(&key, schema);
            }
        }
        required.iter().for_each(|key| table.require(key));
        match word {
            Some(word) => table.tagged("type", word),
            None => table,
        }
    };
    let parameters = |description: &str| {
        let mut table = params();
        table["description"] = description.into();
        table
    };
    let list = || list_of_layers("The layers, in order.");
    let one = json!({ "anyOf": [{ "$ref": "#/$defs/Layer" }, list_of_layers("Layers, in order.")] });
    let mut residual = container(
        Some("residual"),
        "Adds its input to the output of its layers. Without a `name` it adds nothing to theirs.",
        json!({
            "layers": list(),
            "projection": one.clone(),
            "shortcut": {
                "enum": ["always", "if_same_shape"],
                "default": "always",
                "description": "`if_same_shape` leaves the sum out where shapes differ.",
            },
        }),
        &["layers"],
    );
    residual.add_always(json!({
        "not": { "required": ["projection", "shortcut"], "properties": { "shortcut": { "const": "if_same_shape" } } },
    }));
    let mut block = container(
        None,
        "A block, or several.",
        json!({
            "block": { "type": "string", "description": "The name of a block in `[blocks]`." },
            "repeat": { "anyOf": [{ "type": "integer", "minimum": 1 }, { "$ref": "#/$defs/Expression" }], "description": "Make so many, named `0`, `1`, … below this layer's name." },
            "with": parameters("Parameters of all."),
            "first": parameters("Parameters of the first only."),
        }),
        &["block"],
    );
    block.add_always(json!({ "dependentRequired": { "first": ["repeat"] } }));
    tables.extend([
        container(None, "Layers in order, under a name of their own.", json!({ "layers": list() }), &["layers"]),
        residual,
        container(
            Some("gate"),
            "Multiplies its input by the output of its layers, broadcast: squeeze-and-excitation.",
            json!({ "layers": list() }),
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
        block,
    ]);
    let mut tables: Vec<Value> = tables.iter().map(Table::whole).collect();
    tables.push(json!({
        "type": "object",
        "description": "A layer whose type is a parameter.",
        "properties": { "type": { "$ref": "#/$defs/Expression" }, "name": name, "from": { "anyOf": [{ "type": "string" }, names(1, 64)] } },
        "required": ["type"],
    }));
    json!({ "anyOf": [words, { "$ref": "#/$defs/Expression" }, { "oneOf": tables }] })
}

/// Allows an expression in the place of a value, and in the place of the elements of a list.
fn with_expressions(value: &mut Value) {
    let Value::Object(inner) = value else { return };
    let mut outer = Map::new();
    for key in ["description", "default"] {
        outer.extend(inner.remove(key).map(|value| (key.to_owned(), value)));
    }
    let mut inner = Value::Object(std::mem::take(inner));
    in_items(&mut inner);
    outer.insert("anyOf".into(), json!([inner, { "$ref": "#/$defs/Expression" }]));
    *value = Value::Object(outer);
}

fn in_items(schema: &mut Value) {
    if let Some(items) = schema.get_mut("items") {
        *items = json!({ "anyOf": [items.take(), { "$ref": "#/$defs/Expression" }] });
    }
    if let Some(Value::Array(choices)) = schema.get_mut("anyOf") {
        choices.iter_mut().for_each(in_items);
    }
}

/// The words that may stand alone: those of tables that need nothing besides.
pub fn bare(tables: &[Table], tag: &str) -> Value {
    let words: Vec<&Value> = tables.iter().filter_map(|table| table.word_alone(tag)).collect();
    json!({ "enum": words })
}
