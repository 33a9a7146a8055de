//! What is computed again for the backward pass.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use crate::config::declare::part::Part;
use crate::config::declare::value::Value;
use crate::config::language::pattern::Pattern;
use crate::config::text::tree::Node;

/// What is computed again for the backward pass instead of being kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recompute {
    /// Nothing.
    Nothing,
    /// As much as takes least memory.
    Automatic,
    /// The layers of these names.
    Layers(Vec<Pattern>),
}

impl Value for Recompute {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        if node.as_array().is_some() {
            let layers = Vec::read(part, key, node)?;
            part.require(key, !layers.is_empty(), "must name a layer; leave it out to compute nothing again");
            return Some(Recompute::Layers(layers));
        }
        match node.as_bool() {
            Some(true) => Some(Recompute::Automatic),
            Some(false) => Some(Recompute::Nothing),
            None => {
                part.wrong_value(key, node, "expected true, false or a list of layers' names");
                None
            }
        }
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        let layers = json_schema!({ "type": "array", "items": Pattern::schema(generator), "minItems": 1 });
        json_schema!({ "anyOf": [{ "type": "boolean" }, layers] })
    }
}

impl Serialize for Recompute {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Recompute::Nothing => serializer.serialize_bool(false),
            Recompute::Automatic => serializer.serialize_bool(true),
            Recompute::Layers(layers) => layers.serialize(serializer),
        }
    }
}
