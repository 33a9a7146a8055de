//! From the tree to the [`Experiment`]: each section is read, then what one says is held against the others.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::diagnostics::{Diagnostic, Sources, Span};
use super::experiment::{Experiment, Model, Origins, Pattern};
use super::files::Files;
use super::lints::{Lint, Lints};
use super::model::{MAX_INPUTS, unroll};
use super::part::{Check, Part, known_word, unknown_key};
use super::paths::absolute;
use super::sections::{
    Checkpoint, Curve, Data, Loading, Log, Loss, Metric, Optimizer, OptimizerRule, ParamGroup, Schedule, Source, Train,
    Transform, Warmup,
};
use super::sink::{Sink, nearest};
use super::tagged::Tagged;
use super::tree::{Node, Table};
use super::values::{Device, Precision, yes};

/// The keys that are in no section.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TopKeys {
    /// Of everything random: orders, dropout, initial weights.
    #[serde(default)]
    pub seed: u64,
    /// Where to run: `"auto"` takes a GPU if one answers.
    #[serde(default)]
    pub device: Device,
    /// How to compute.
    #[serde(default)]
    pub precision: Precision,
    /// On a GPU, capture the step into a CUDA graph and replay it. The numbers do not depend on it.
    #[serde(default = "yes")]
    pub graph: bool,
}

impl Check for TopKeys {}

/// An entry of `groups` in `[optimizer]`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("anyOf" = [{ "required": ["lr"] }, { "required": ["weight_decay"] }]))]
pub(super) struct GroupKeys {
    /// Names of parameters, `*` standing for any characters.
    #[serde(rename = "match")]
    #[schemars(length(min = 1))]
    pub patterns: Vec<String>,
    /// Learning rate, if not the section's.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub lr: Option<f64>,
    /// Weight decay, if not the section's.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub weight_decay: Option<f64>,
}

impl Check for GroupKeys {
    fn check(&self, part: &Part) {
        part.require("match", !self.patterns.is_empty(), "must name something");
        if let Some(lr) = self.lr {
            part.require_not_negative("lr", lr);
        }
        if let Some(decay) = self.weight_decay {
            part.require_not_negative("weight_decay", decay);
        }
        if self.lr.is_none() && self.weight_decay.is_none() {
            part.sink.push(
                Diagnostic::error(format!("{} changes nothing", part.what)).at(part.span, "set `lr` or `weight_decay`"),
            );
        }
    }
}

/// The keys of `[model]` besides the layers.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelKeys {
    /// Fields of the data set that the model takes, which layers name in `from`; by default the only one that there is.
    #[serde(default)]
    #[schemars(length(min = 1, max = MAX_INPUTS), extend("uniqueItems" = true))]
    pub inputs: Option<Vec<String>>,
    /// Parameters to start from: a `.safetensors` file, or a `.pth` or `.pt` state dict of PyTorch.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub weights: Option<String>,
    /// Every name in `weights` must fit, and none may be missing; without, what does not fit is listed and left out.
    #[serde(default = "yes")]
    pub weights_strict: bool,
    /// Names of parameters that training leaves as they are, `*` standing for any characters.
    #[serde(default)]
    pub freeze: Vec<String>,
}

impl Check for ModelKeys {
    fn check(&self, part: &Part) {
        let count = self.inputs.as_ref().map_or(1, Vec::len);
        part.require(
            "inputs",
            (1..=MAX_INPUTS).contains(&count),
            &format!("must be a list of 1 to {MAX_INPUTS} names"),
        );
    }
}

/// The sections of a file.
pub(super) const SECTIONS: [&str; 9] =
    ["data", "model", "loss", "optimizer", "schedule", "train", "checkpoint", "log", "lint"];

/// Reads everything; `None` if anything is wrong, which `sink` then tells.
pub(super) fn resolve(name: &str, root: &Table, start: Span, sources: &Sources, sink: &Sink) -> Option<Experiment> {
    let top = Part { table: root, span: start, what: "the configuration", bad: &[], sink };
    let top_keys = super::de::field_names::<TopKeys>();
    top.known_keys(&[top_keys, &SECTIONS, &["params", "blocks", "extends"]]);
    let nothing = Table::default();
    let reader = Reader { root, start, nothing: &nothing, sources, sink };

    // All of them, so that all problems are told.
    let keys = top.read::<TopKeys>();
    let data = reader.data();
    let model = reader.model();
    let loss = reader.tagged::<Loss>("loss", None);
    let optimizer = reader.optimizer();
    let schedule = reader.schedule();
    let train = reader.required("train", "epochs = 10").and_then(|part| reader.plain::<Train>(part));
    let checkpoint = reader.optional("checkpoint").and_then(|part| reader.plain::<Checkpoint>(part));
    let log = reader.optional("log").and_then(|part| reader.plain::<Log>(part));
    let lint = reader.optional("lint").and_then(|part| reader.plain::<Lints>(part));

    let mut places = BTreeMap::new();
    for entry in &root.entries {
        entry.node.places(&entry.key, &mut places);
    }
    let keys = keys?;
    let mut experiment = Experiment {
        name: name.to_owned(),
        seed: keys.seed,
        device: keys.device,
        precision: keys.precision,
        graph: keys.graph,
        data: data?,
        model: model?,
        loss: loss?,
        optimizer: optimizer?,
        schedule: schedule?,
        train: train?,
        checkpoint: checkpoint?,
        log: log?,
        lint: lint?,
        origins: Origins(places),
    };
    fill_in(&mut experiment);
    super::rules::check(&experiment, sink);
    (!sink.has_errors()).then_some(experiment)
}

/// Defaults that depend on other values.
fn fill_in(experiment: &mut Experiment) {
    let loading = &mut experiment.data.loading;
    loading.eval_batch_size = Some(loading.eval_batch_size());
    let source = &mut experiment.data.source;
    if let Some(folder) = source.usual_root()
        && let Some((_, root)) = source.path_mut()
        && root.as_os_str().is_empty()
    {
        *root = absolute(Path::new(folder));
    }
    let default = match experiment.loss {
        Loss::CrossEntropy(_) => Metric::ValAccuracy,
        Loss::Mse(_) => Metric::ValLoss,
    };
    experiment.checkpoint.monitor.get_or_insert(default);
}

struct Reader<'a> {
    root: &'a Table,
    start: Span,
    nothing: &'a Table,
    sources: &'a Sources,
    sink: &'a Sink,
}

impl<'a> Reader<'a> {
    /// A section that may be left out.
    fn optional(&self, name: &str) -> Option<Part<'a>> {
        let (table, span) = match self.root.get(name) {
            None => (self.nothing, self.start),
            Some(node) => match node.as_table() {
                Some(table) => (table, node.span),
                None => {
                    let error = Diagnostic::error(format!("`{name}` must be a section"))
                        .at(node.span, format!("expected a table, found {}", node.describe()));
                    let tag = super::keys::sections().iter().find(|section| section.name == name).and_then(|s| s.tag);
                    self.sink.push(match (tag, node.as_str()) {
                        (Some(tag), Some(_)) => error.help(format!("its kind is its key `{tag}`: `{name}.{tag}`")),
                        _ => error,
                    });
                    return None;
                }
            },
        };
        Some(Part { table, span, what: section_name(name), bad: &[], sink: self.sink })
    }

    fn required(&self, name: &str, example: &str) -> Option<Part<'a>> {
        if self.root.get(name).is_none() {
            if self.sink.has_suggested(name, self.root) {
                return None;
            }
            self.sink.push(
                Diagnostic::error(format!("the configuration needs a section `[{name}]`"))
                    .at(self.start, format!("`[{name}]` is missing"))
                    .help(format!("for example `[{name}]` with `{example}`")),
            );
            return None;
        }
        self.optional(name)
    }

    fn plain<T: serde::de::DeserializeOwned + Check>(&self, part: Part) -> Option<T> {
        part.known_keys(&[super::de::field_names::<T>()]);
        part.read()
    }

    fn tagged<T: Tagged>(&self, name: &str, default: Option<&'static str>) -> Option<T> {
        let part = self.required(name, &format!("{} = \"{}\"", T::TAG, T::TYPES[0]))?;
        let word = self.kind::<T>(&part, default)?;
        part.known_keys(&[&[T::TAG], T::fields(word)]);
        T::read(word, &part)
    }

    /// The word that tells what kind of section this is. Without it, it is not known which keys there are; only one
    /// that may be a slip for this word's own key is told.
    fn kind<T: Tagged>(&self, part: &Part, default: Option<&'static str>) -> Option<&'static str> {
        if part.table.get(T::TAG).is_none()
            && default.is_none()
            && let Some(entry) = part.table.entries.iter().find(|entry| nearest(&entry.key, [T::TAG]).is_some())
        {
            self.sink.push(unknown_key(&entry.key, &format!(" in {}", part.what), entry.key_span, &[T::TAG]));
        }
        part.word::<T>(default)
    }

    fn data(&self) -> Option<Data> {
        let part = self.required("data", "source = \"mnist\"")?;
        let loading = part.read::<Loading>();
        let transforms = self.transforms(&part, "transforms");
        let train_transforms = self.transforms(&part, "train_transforms");
        let common = ["source", "transforms", "train_transforms"];
        let word = self.kind::<Source>(&part, None)?;
        part.known_keys(&[&common, Source::fields(word), super::de::field_names::<Loading>()]);
        let mut source = Source::read(word, &part)?;
        if let Some((key, path)) = source.path_mut()
            && let Some(node) = part.table.get(key)
        {
            *path = self.path(node);
        }
        // The only word that it can be.
        let auto_batch_size = part.table.get("batch_size").is_some_and(|node| node.as_str().is_some());
        let (loading, transforms, train_transforms) = (loading?, transforms?, train_transforms?);
        Some(Data { source, loading, transforms, train_transforms, auto_batch_size })
    }

    fn path(&self, node: &Node) -> std::path::PathBuf {
        let written = node.as_str().unwrap_or_default();
        if written.is_empty() {
            self.sink.push(Diagnostic::error("this path is empty").at(node.span, "names no file"));
        }
        Files::place(self.sources, written, node.span)
    }

    fn transforms(&self, part: &Part, key: &str) -> Option<Vec<Transform>> {
        let items = self.list(part, key)?;
        let made: Vec<Option<Transform>> = items.iter().map(|item| self.transform(item, key)).collect();
        made.into_iter().collect()
    }

    fn transform(&self, node: &Node, key: &str) -> Option<Transform> {
        let what = format!("`{key}`");
        let nothing = Table::default();
        let (table, word) =
            match (node.as_table(), node.as_str()) {
                (Some(table), _) => {
                    let part = Part { table, span: node.span, what: &what, bad: &[], sink: self.sink };
                    (table, part.word::<Transform>(None)?)
                }
                (None, Some(_)) => (&nothing, known_word(node, "type", &what, Transform::TYPES, self.sink)?),
                (None, None) => {
                    self.sink.push(Diagnostic::error(format!("wrong value in {what}")).at(
                        node.span,
                        format!("expected a table or the name of a transform, found {}", node.describe()),
                    ));
                    return None;
                }
            };
        let what = format!("transform `{word}`");
        let part = Part { table, span: node.span, what: &what, bad: &[], sink: self.sink };
        part.known_keys(&[&["type"], Transform::fields(word)]);
        Transform::read(word, &part)
    }

    /// The elements of a list; none if the key is not there.
    fn list<'p>(&self, part: &Part<'p>, key: &str) -> Option<&'p [Node]> {
        let Some(node) = part.table.get(key) else { return Some(&[]) };
        let items = node.as_array();
        if items.is_none() {
            self.sink.push(
                Diagnostic::error(format!("wrong value for `{key}` in {}", part.what))
                    .at(node.span, format!("expected a list, found {}", node.describe())),
            );
        }
        items
    }

    fn model(&self) -> Option<Model> {
        let part = self.required("model", "layers = [ … ]")?;
        part.known_keys(&[super::de::field_names::<ModelKeys>(), &["layers", "use", "with"]]);
        let keys = part.read::<ModelKeys>();
        let Some(written) = part.table.get("layers") else {
            self.sink.push(
                Diagnostic::error("`[model]` needs `layers` or `use`")
                    .at(part.span, "neither is there")
                    .help("`layers = [ … ]` lists the layers; `use = \"models/resnet18.toml\"` takes them from a file"),
            );
            return None;
        };
        let layers = self.list(&part, "layers")?;
        if layers.is_empty() {
            self.sink.push(Diagnostic::error("the model has no layers").at(written.span, "the list is empty"));
            return None;
        }
        let place = |key: &str, i: usize| {
            part.table.get(key).and_then(Node::as_array).and_then(|all| all.get(i)).map_or(part.span, |node| node.span)
        };
        let written = keys.as_ref().and_then(|keys| keys.inputs.clone()).unwrap_or_default();
        let inputs: Vec<(String, Span)> =
            written.into_iter().enumerate().map(|(i, name)| (name, place("inputs", i))).collect();
        let layers = unroll(self.root, layers, &inputs, self.sink);
        let keys = keys?;
        let freeze =
            keys.freeze.into_iter().enumerate().map(|(i, text)| Pattern { text, span: place("freeze", i) }).collect();
        let weights = part.table.get("weights").map(|node| self.path(node));
        if let (None, Some(strict)) = (&weights, part.table.entry("weights_strict")) {
            self.sink.push(
                Diagnostic::warning(Lint::NoEffect, "`weights_strict` in `[model]` has no effect")
                    .at(strict.key_span, "there is no `weights`"),
            );
        }
        // Without weights it says nothing, and is not written either.
        let weights_strict = keys.weights_strict || weights.is_none();
        Some(Model { inputs, layers, weights, weights_strict, freeze })
    }

    fn optimizer(&self) -> Option<Optimizer> {
        let part = self.required("optimizer", "type = \"adam\"")?;
        let groups = self.list(&part, "groups").and_then(|items| {
            let made: Vec<Option<ParamGroup>> = items.iter().map(|item| self.param_group(item)).collect();
            made.into_iter().collect::<Option<Vec<_>>>()
        });
        let word = self.kind::<OptimizerRule>(&part, None)?;
        part.known_keys(&[&["type", "groups"], OptimizerRule::fields(word)]);
        Some(Optimizer { rule: OptimizerRule::read(word, &part)?, groups: groups? })
    }

    fn param_group(&self, node: &Node) -> Option<ParamGroup> {
        let what = "a group of parameters";
        let Some(table) = node.as_table() else {
            self.sink.push(
                Diagnostic::error("wrong value in `groups` of `[optimizer]`")
                    .at(node.span, format!("expected a table, found {}", node.describe())),
            );
            return None;
        };
        let part = Part { table, span: node.span, what, bad: &[], sink: self.sink };
        let keys: GroupKeys = self.plain(part)?;
        let places = table.get("match").and_then(Node::as_array)?;
        let patterns =
            keys.patterns.into_iter().zip(places).map(|(text, node)| Pattern { text, span: node.span }).collect();
        Some(ParamGroup { patterns, lr: keys.lr, weight_decay: keys.weight_decay })
    }

    fn schedule(&self) -> Option<Schedule> {
        let part = self.optional("schedule")?;
        let warmup = part.read::<Warmup>();
        let word = self.kind::<Curve>(&part, Some("constant"))?;
        part.known_keys(&[&["type"], Curve::fields(word), super::de::field_names::<Warmup>()]);
        Some(Schedule { curve: Curve::read(word, &part)?, warmup: warmup? })
    }
}

fn section_name(name: &str) -> &'static str {
    const NAMES: [&str; 9] = [
        "`[data]`",
        "`[model]`",
        "`[loss]`",
        "`[optimizer]`",
        "`[schedule]`",
        "`[train]`",
        "`[checkpoint]`",
        "`[log]`",
        "`[lint]`",
    ];
    SECTIONS.iter().position(|section| *section == name).map_or("the configuration", |i| NAMES[i])
}
