//! `[model]`, but for the layers themselves.

use std::path::PathBuf;

use schemars::{Schema, SchemaGenerator, json_schema};

use super::init::InitRule;
use super::lora::Lora;
use crate::config::declare::options::{self, Check, options};
use crate::config::declare::part::Part;
use crate::config::declare::schema::Table;
use crate::config::declare::value::{Elsewhere, Value};
use crate::config::language::layers::{MAX_INPUTS, parameters};
use crate::config::language::pattern::Pattern;
use crate::config::text::diagnostics::Diagnostic;
use crate::config::text::tree::Node;

options! {
    /// The keys of `[model]` besides the layers.
    #[rules(
        Excludes("lora", "freeze", "all but the adapters is frozen"),
        Excludes("lora", "thaw_after", "all but the adapters stays frozen"),
    )]
    pub struct ModelKeys {
        /// Fields of a sample that the model takes, by name, which layers name in `from`.
        #[option(otherwise = "the only one", length = 1..=MAX_INPUTS, schema_by = names)]
        pub inputs: Option<Vec<String>>,
        /// How parameters start that are not loaded, as rules of which the first that is for a parameter counts. A parameter that no
        /// rule is for starts as in PyTorch.
        #[option(default = Vec::new(), example = r#"[{ layers = ["conv2d"], type = "kaiming_normal" }]"#, resume = Harmless)]
        pub init: Vec<InitRule>,
        /// Parameters to start from: a `.safetensors` file, the index of several (`model.safetensors.index.json`), a `.pth` or `.pt` state
        /// dict of PyTorch, or a checkpoint of a run, whose optimizer state is left out. The content decides, not the suffix.
        /// `"torchvision/MODEL"` and `"hf:OWNER/MODEL"` are fetched.
        #[option(example = "\"torchvision/resnet18\"", resume = Harmless)]
        pub weights: Option<PathBuf>,
        /// The key under which a PyTorch file `weights` has the state dict, with dots between keys within one another, as `"model_ema"`.
        #[option(otherwise = "where most names fit", example = "\"model_ema\"", resume = Harmless)]
        pub weights_key: Option<String>,
        /// Every name in `weights` must fit, and none may be missing, as `load_state_dict(strict=True)`. Without, what does not fit,
        /// among it tensors of another shape, is listed and left out; a file of which nothing fits is still refused.
        #[option(default = true, resume = Harmless)]
        pub weights_strict: bool,
        /// Names of parameters that training leaves as they are, `*` standing for any characters, dots too; the name of a layer stands
        /// for all of its own. A pattern that names none is an error. As `requires_grad_(False)`: the statistics of batch norm still move.
        #[option(default = Vec::new())]
        pub freeze: Vec<Pattern>,
        /// Train what `freeze` names, too, after so many epochs. The optimizer's state of these parameters begins then.
        #[option(range = 1.., unit = "epochs")]
        pub thaw_after: Option<usize>,
        /// Train adapters of `linear` layers in the place of their weights: all else is frozen.
        #[option(example = r#"{ rank = 8, alpha = 16.0, targets = ["q_proj", "v_proj"] }"#)]
        pub lora: Option<Lora>,
        /// Other names for the tensors of `weights`, as rules of which the first that fits a name counts: `from` is what a name
        /// begins with, or, with `*` for any characters, a whole name, whose characters go where `to` has a `*`. A rule that fits no
        /// name is an error.
        #[option(default = Vec::new(), example = r#"[{ from = "backbone.", to = "" }]"#, resume = Harmless)]
        pub weights_rename: Vec<Rename>,
    }

    /// Another name for some tensors.
    pub struct Rename {
        /// What a name begins with or, with `*` for any characters, a whole name.
        #[option(example = "\"backbone.\"")]
        pub from: String,
        /// What stands in its place; with `*` in `from`, as many of them at most, for the same characters.
        #[option(example = "\"\"")]
        pub to: String,
    }

    /// The layers of `[model]`.
    #[rules(Excludes("layers", "use", "the layers are in one place"), OneOf("layers", "use"))]
    #[schema("dependentRequired": { "with": ["use"] })]
    pub struct ModelLayers {
        /// The layers, in order.
        #[option(schema_by = layers, otherwise = "required, unless `use`")]
        pub layers: Elsewhere,
        /// Take the layers, with their `[params]` and `[blocks]`, from this file instead. Its path is taken from this file's folder,
        /// else from the current directory, else from the two folders above this file. Where there is no such file, a name is that of an architecture of the
        /// program: `"resnet18"`.
        #[option(schema_by = file)]
        pub r#use as "use": Elsewhere,
        /// Parameters of the file in `use`.
        #[option(schema_by = parameters)]
        pub with: Elsewhere,
    }
}

impl Check for ModelKeys {}

impl Check for Rename {
    fn check(&self, part: &Part) {
        if self.from.is_empty() {
            let error = Diagnostic::error(format!("`from` in {} is empty", part.what));
            part.sink.push(error.at(part.span_of("from"), "every name begins with nothing"));
        }
        if self.to.matches('*').count() > self.from.matches('*').count() {
            let error = Diagnostic::error(format!("`to` in {} has more `*` than `from`", part.what));
            part.sink.push(error.at(part.span_of("to"), "nothing is there to stand for one of them"));
        }
    }
}

impl Value for Rename {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        options::table(part, key, node, "a rule of `weights_rename`")
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        Table::of::<Self>(generator).whole().try_into().unwrap_or_default()
    }
}

impl Rename {
    /// The new name, if the rule fits a name.
    pub fn apply(&self, name: &str) -> Option<String> {
        let mut pieces = self.from.split('*');
        let mut rest = name.strip_prefix(pieces.next()?)?;
        if !self.from.contains('*') {
            return Some(format!("{}{rest}", self.to));
        }
        // Each `*` stands for as few characters as it can, the last one for what is left.
        let mut found = Vec::new();
        let mut pieces = pieces.peekable();
        while let Some(piece) = pieces.next() {
            let last = pieces.peek().is_none();
            let end = if last { rest.strip_suffix(piece)?.len() } else { rest.find(piece)? };
            found.push(&rest[..end]);
            rest = &rest[end + piece.len()..];
        }
        let mut found = found.into_iter();
        let mut to = self.to.split('*');
        let first = to.next().unwrap_or_default().to_owned();
        Some(to.fold(first, |name, piece| name + found.next().unwrap_or_default() + piece))
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_changed_by_prefixes_and_patterns() {
        let renamed = |from: &str, to: &str, name: &str| Rename { from: from.into(), to: to.into() }.apply(name);
        assert_eq!(renamed("backbone.", "", "backbone.conv1.weight").as_deref(), Some("conv1.weight"));
        assert_eq!(renamed("backbone.", "", "head.weight"), None);
        assert_eq!(renamed("", "net.", "fc.bias").as_deref(), Some("net.fc.bias"));
        assert_eq!(
            renamed("blocks.*.norm.*", "layers.*.bn.*", "blocks.3.norm.bias").as_deref(),
            Some("layers.3.bn.bias")
        );
        assert_eq!(renamed("blocks.*.norm", "x", "blocks.3.norm.bias"), None);
        assert_eq!(renamed("*.gamma", "*.weight", "a.gamma.gamma").as_deref(), Some("a.gamma.weight"));
        assert_eq!(renamed("a*b*", "*", "a12b3").as_deref(), Some("12"));
    }
}
