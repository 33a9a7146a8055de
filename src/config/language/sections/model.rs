//! `[model]`, but for the layers themselves.

use std::path::PathBuf;

use schemars::{Schema, SchemaGenerator, json_schema};

use crate::config::declare::options::{Check, options};
use crate::config::declare::value::Elsewhere;
use crate::config::language::layers::{MAX_INPUTS, parameters};
use crate::config::language::pattern::Pattern;

options! {
    /// The keys of `[model]` besides the layers.
    pub struct ModelKeys {
        /// Fields of a sample that the model takes, by name, which layers name in `from`.
        #[option(otherwise = "the only one", length = 1..=MAX_INPUTS, schema_by = names)]
        pub inputs: Option<Vec<String>>,
        /// Parameters to start from: a `.safetensors` file, a `.pth` or `.pt` state dict of PyTorch, or a checkpoint of a run, whose
        /// optimizer state is left out. The content decides, not the suffix.
        #[option(resume = Harmless)]
        pub weights: Option<PathBuf>,
        /// Every name in `weights` must fit, and none may be missing, as `load_state_dict(strict=True)`. Without, what does not fit,
        /// among it tensors of another shape, is listed and left out; a file of which nothing fits is still refused.
        #[option(default = true, resume = Harmless)]
        pub weights_strict: bool,
        /// Names of parameters that training leaves as they are, `*` standing for any characters, dots too. A pattern that names none
        /// is an error. As `requires_grad_(False)`: the statistics of batch norm still move.
        #[option(default = Vec::new())]
        pub freeze: Vec<Pattern>,
    }

    /// The layers of `[model]`.
    #[rules(Excludes("layers", "use", "the layers are in one place"), OneOf("layers", "use"))]
    #[schema("dependentRequired": { "with": ["use"] })]
    pub struct ModelLayers {
        /// The layers, in order.
        #[option(schema_by = layers, otherwise = "required, unless `use`")]
        pub layers: Elsewhere,
        /// Take the layers, with their `[params]` and `[blocks]`, from this file instead. Its path is taken from this file's folder,
        /// else from the current directory, else from the two folders above this file.
        #[option(schema_by = file)]
        pub r#use as "use": Elsewhere,
        /// Parameters of the file in `use`.
        #[option(schema_by = parameters)]
        pub with: Elsewhere,
    }
}

impl Check for ModelKeys {}

fn names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "type": "string" }, "uniqueItems": true })
}

/// The path of another configuration.
pub(super) fn file(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1 })
}

fn layers(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "$ref": "#/$defs/Layer" }, "minItems": 1 })
}
