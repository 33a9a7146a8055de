//! What holds layers: groups, residuals, gates, branches, the uses of blocks. Their options are declared here, those of the layers of
//! transformers in `transformer_layer.rs`; `load/model` reads them, as it unrolls the layers inside.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::json;

use crate::config::declare::declaration::Declare;
use crate::config::declare::options::{Options, options};
use crate::config::declare::value::Elsewhere;

use super::transformer_layer::{DECODER_LAYER, ENCODER_LAYER, TransformerDecoderLayer, TransformerEncoderLayer};

/// Types that hold layers rather than being one.
pub const CONTAINERS: [&str; 5] = ["residual", "gate", "branches", ENCODER_LAYER, DECODER_LAYER];

/// Types that take two inputs or more.
pub const JOINS: [&str; 3] = ["add", "multiply", "concat"];

/// Types that take one input, or a second one beside it.
pub const PAIRS: [&str; 2] = ["multihead_attention", "scaled_dot_product_attention"];

/// The words of `shortcut`.
pub const SHORTCUTS: [&str; 2] = ["always", "if_same_shape"];

/// The words of `combine`.
pub const COMBINES: [&str; 3] = ["add", "multiply", "concat"];

/// Names in one `from`, and inputs of a model.
pub const MAX_INPUTS: usize = 64;

options! {
    /// The keys that every layer and everything that holds layers may have.
    pub struct CommonKeys {
        /// Its part of the names of parameters; `{i}` is the index within `repeat`.
        #[option(otherwise = "its index among its siblings", schema_by = name)]
        pub name: Elsewhere,
        /// Take the output of this earlier layer instead of the one before.
        #[option(otherwise = "the layer before", schema_by = one_input)]
        pub from: Elsewhere,
    }

    /// The same of the layers that take several inputs.
    pub struct JoinKeys {
        /// Its part of the names of parameters; `{i}` is the index within `repeat`.
        #[option(otherwise = "its index among its siblings", schema_by = name)]
        pub name: Elsewhere,
        /// Take the outputs of these earlier layers.
        #[option(required = true, schema_by = several_inputs)]
        pub from: Elsewhere,
    }

    /// The same of the layers that take one input or two.
    pub struct PairKeys {
        /// Its part of the names of parameters; `{i}` is the index within `repeat`.
        #[option(otherwise = "its index among its siblings", schema_by = name)]
        pub name: Elsewhere,
        /// Take the output of this earlier layer instead of the one before; of two, queries are of the first, and keys and values of the second.
        #[option(otherwise = "the layer before", schema_by = one_or_two_inputs)]
        pub from: Elsewhere,
    }

    /// The same of the layers that take two inputs.
    pub struct MemoryKeys {
        /// Its part of the names of parameters; `{i}` is the index within `repeat`.
        #[option(otherwise = "its index among its siblings", schema_by = name)]
        pub name: Elsewhere,
        /// Take the outputs of these two earlier layers: `["x", "memory"]`.
        #[option(required = true, schema_by = two_inputs)]
        pub from: Elsewhere,
    }

    /// Layers in order, under a name of their own. `torch.nn.Sequential`.
    pub struct Group {
        /// The layers, in order.
        #[option(required = true, schema_by = layers)]
        pub layers: Elsewhere,
    }

    /// Adds its input to the output of its layers. Without a `name` it adds nothing to theirs.
    #[schema("not": {
        "required": ["projection", "shortcut"], "properties": { "shortcut": { "const": "if_same_shape" } },
    })]
    pub struct Residual {
        /// The layers, in order.
        #[option(required = true, schema_by = layers)]
        pub layers: Elsewhere,
        /// A layer or a list of layers, applied to the input **only where the shapes differ** (ResNet's downsample).
        #[option(schema_by = layer_or_layers)]
        pub projection: Elsewhere,
        /// `"if_same_shape"` leaves the sum out where shapes differ (MobileNet), and excludes `projection`. Without either key, shapes
        /// that differ are an error.
        #[option(otherwise = "`\"always\"`", schema_by = shortcut)]
        pub shortcut: Elsewhere,
    }

    /// Multiplies its input by the output of its layers, broadcast: squeeze-and-excitation.
    pub struct Gate {
        /// The layers, in order.
        #[option(required = true, schema_by = layers)]
        pub layers: Elsewhere,
    }

    /// Several layers or groups on the same input. Without a `name` it adds nothing to their names.
    pub struct Branches {
        /// A list whose entries (layers, groups, lists of layers) all have the same input.
        #[option(required = true, schema_by = branches)]
        pub branches: Elsewhere,
        /// What becomes of their outputs; `"concat"` is along the channels.
        #[option(required = true, schema_by = combine)]
        pub combine: Elsewhere,
    }

    /// A block, or several.
    #[schema("dependentRequired": { "first": ["repeat"] })]
    pub struct Block {
        /// The name of a block in `[blocks]`, in place of `type`.
        #[option(required = true, schema_by = block)]
        pub block: Elsewhere,
        /// Make so many in a row, named `0`, `1`, … below this layer's name.
        #[option(schema_by = repeat)]
        pub repeat: Elsewhere,
        /// Parameters of all; those not given have the block's defaults.
        #[option(schema_by = parameters)]
        pub with: Elsewhere,
        /// Parameters of the first only, over `with`.
        #[option(schema_by = parameters)]
        pub first: Elsewhere,
    }
}

/// The keys of a container, and what it declares.
pub fn container(word: &str) -> Option<(&'static [&'static str], Declare)> {
    match word {
        "residual" => Some((Residual::KEYS, Residual::declaration)),
        "gate" => Some((Gate::KEYS, Gate::declaration)),
        "branches" => Some((Branches::KEYS, Branches::declaration)),
        ENCODER_LAYER => Some((TransformerEncoderLayer::KEYS, TransformerEncoderLayer::declaration)),
        DECODER_LAYER => Some((TransformerDecoderLayer::KEYS, TransformerDecoderLayer::declaration)),
        _ => None,
    }
}

fn name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": "^([A-Za-z0-9_-]|\\{i\\})+$" })
}

fn one_input(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" }, "minItems": 1, "maxItems": 1 }] })
}

fn one_or_two_inputs(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" }, "minItems": 1, "maxItems": 2 }] })
}

fn two_inputs(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "type": "string" }, "minItems": 2, "maxItems": 2 })
}

fn several_inputs(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "type": "string" }, "minItems": 2, "maxItems": MAX_INPUTS })
}

fn layers(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "$ref": "#/$defs/Layer" } })
}

fn layer_or_layers(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "$ref": "#/$defs/Layer" }, layers(generator)] })
}

fn branches(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": layer_or_layers(generator), "minItems": 1 })
}

/// One of some words, or an expression.
fn words(words: &[&str]) -> Schema {
    json_schema!({ "anyOf": [{ "enum": words }, { "$ref": "#/$defs/Expression" }] })
}

fn shortcut(_: &mut SchemaGenerator) -> Schema {
    let mut schema = words(&SHORTCUTS);
    schema.insert("default".into(), SHORTCUTS[0].into());
    schema
}

fn combine(_: &mut SchemaGenerator) -> Schema {
    words(&COMBINES)
}

fn block(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string" })
}

fn repeat(_: &mut SchemaGenerator) -> Schema {
    let number = json!({ "type": "integer", "minimum": 1 });
    json_schema!({ "anyOf": [number, { "$ref": "#/$defs/Expression" }] })
}

/// The schema of a table of parameters.
pub fn parameters(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": { "type": ["integer", "number", "string", "boolean", "array"] },
    })
}
