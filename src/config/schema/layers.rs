//! Layers in the schema: their arguments may all be expressions, as those of the rules by which parameters start.

use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

use crate::config::declare::declaration::Declaration;
use crate::config::declare::options::Options;
use crate::config::declare::schema::Table;
use crate::config::declare::tagged::Tagged;
use crate::config::language::layers::{
    Block, CONTAINERS, CommonKeys, DECODER_LAYER, ENCODER_LAYER, Group, JOINS, JoinKeys, Layer, MAX_INPUTS, MemoryKeys,
    PAIRS, PairKeys, container,
};

/// A layer: a bare word, a table of one of the types, or something that holds layers.
pub fn layer(generator: &mut SchemaGenerator) -> Value {
    let common = Table::of::<CommonKeys>(generator);
    let join = Table::of::<JoinKeys>(generator);
    let pair = Table::of::<PairKeys>(generator);
    let mut tables: Vec<Table> = Vec::new();
    for (word, declaration) in Layer::declarations(generator) {
        let mut table = Table::from_declaration(declaration);
        table.properties_mut().for_each(with_expressions);
        let mut table = table.tagged(Layer::TAG, word);
        table.join(match word {
            _ if JOINS.contains(&word) => &join,
            _ if PAIRS.contains(&word) => &pair,
            _ => &common,
        });
        tables.push(table);
    }
    let words = bare(&tables, Layer::TAG);

    let memory = Table::of::<MemoryKeys>(generator);
    let mut holds = |word: Option<&str>, declaration: Declaration| {
        let mut table = Table::default().described(&declaration.about);
        table.join(if word == Some(DECODER_LAYER) { &memory } else { &common });
        let mut own = Table::from_declaration(declaration);
        if matches!(word, Some(ENCODER_LAYER | DECODER_LAYER)) {
            own.properties_mut().for_each(with_expressions);
        }
        table.join(&own);
        tables.push(match word {
            Some(word) => table.tagged(Layer::TAG, word),
            None => table,
        });
    };
    holds(None, Group::declaration(generator));
    for (word, (_, declare)) in CONTAINERS.iter().filter_map(|word| Some((word, container(word)?))) {
        holds(Some(word), declare(generator));
    }
    holds(None, Block::declaration(generator));
    let mut tables: Vec<Value> = tables.iter().map(Table::whole).collect();
    // Which keys it has is not known before the parameter is.
    let name = CommonKeys::declaration(generator).options.swap_remove(0).schema;
    let names = json!({ "type": "array", "items": { "type": "string" }, "minItems": 1, "maxItems": MAX_INPUTS });
    tables.push(json!({
        "type": "object",
        "description": "A layer whose type is a parameter.",
        "properties": { "type": { "$ref": "#/$defs/Expression" }, "name": name, "from": { "anyOf": [{ "type": "string" }, names] } },
        "required": ["type"],
    }));
    json!({ "anyOf": [words, { "$ref": "#/$defs/Expression" }, { "oneOf": tables }] })
}

/// Allows an expression in the place of a value, and in the place of the elements of a list.
pub fn with_expressions(value: &mut Value) {
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
