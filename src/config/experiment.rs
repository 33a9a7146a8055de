//! The experiment: what a configuration says, as plain data, with every default filled in and every place kept.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Serialize, Serializer};

use super::declare::tagged::Tagged as _;
use super::language::devices::Devices;
use super::language::layers::Layer;
use super::language::pattern::Pattern;
use super::language::sections::{
    Checkpoint, Data, Distributed, Head, InitRule, Lints, Log, Lora, Loss, Metric, Metrics, Monitor, Optimizer, Rename,
    Schedule, Source, Sweep, Train,
};
use super::language::values::{Device, Precision};
use super::text::diagnostics::Span;
use super::text::origins::Origins;
use crate::graph::op::{self, Figure, IGNORE_INDEX};

/// A whole experiment. Its serialisation leaves out the places: two that serialise alike run alike.
#[derive(Debug, Clone, Serialize)]
pub struct Experiment {
    /// The file's name without its extension.
    #[serde(skip)]
    pub name: String,
    /// Of everything random.
    pub seed: u64,
    /// Where to run.
    pub device: Device,
    /// The GPUs to train on, if there are to be several.
    pub devices: Option<Devices>,
    /// How to compute.
    pub precision: Precision,
    /// Whether a GPU replays the step from a CUDA graph.
    pub graph: bool,
    /// `[data]`.
    pub data: Data,
    /// `[model]`.
    pub model: Model,
    /// `[loss]`.
    pub loss: Loss,
    /// `[[heads]]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub heads: Vec<Head>,
    /// `[optimizer]`.
    pub optimizer: Optimizer,
    /// `[schedule]`.
    pub schedule: Schedule,
    /// `[train]`.
    pub train: Train,
    /// `[distributed]`.
    pub distributed: Distributed,
    /// `[checkpoint]`.
    pub checkpoint: Checkpoint,
    /// `[log]`.
    pub log: Log,
    /// `[metrics]`.
    pub metrics: Metrics,
    /// Whether evaluation counts what is taken for what, also where no figure needs it.
    #[serde(skip)]
    pub class_counts: bool,
    /// `[lint]`.
    pub lint: Lints,
    /// `[sweep]`, which training does not look at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep: Option<Sweep>,
    /// Where values were written.
    #[serde(skip)]
    pub origins: Origins,
}

impl Experiment {
    /// Where the value of a dotted key (`optimizer.lr`, `data.transforms.0.mean`, `train`) was written; `None` for a
    /// default.
    pub fn span_of(&self, key: &str) -> Option<Span> {
        self.origins.span_of(key)
    }

    /// What is validated on.
    pub fn validation(&self) -> Validation {
        match &self.data.loading.validation_split {
            Some(_) => Validation::HeldOut,
            None if self.data.source.folds().is_some() => Validation::HeldOut,
            None if self.data.source.validates_on_test() => Validation::TestSet,
            None => Validation::Own,
        }
    }

    /// The figure by which `best` is chosen where `monitor` in `[checkpoint]` says no other.
    pub fn usual_monitor(&self) -> Option<Monitor> {
        // Of language models the share of right tokens says little.
        let text = self.data.source.is_text();
        let figure = if text { Figure::Loss } else { self.loss.describe().task().monitor() };
        Metric::ALL.iter().copied().find(|m| m.of_validation() && m.figure() == figure).map(Monitor::from)
    }

    /// The figure by which `best` is chosen, if that is another one than usual. The usual one may be written, too: the configuration of a run has all defaults.
    pub fn chosen_monitor(&self) -> Option<&Monitor> {
        self.checkpoint.monitor.as_ref().filter(|monitor| self.usual_monitor().as_ref() != Some(monitor))
    }

    /// The figures that are named: those of `[metrics]`, and those watched.
    pub fn named_figures(&self) -> Vec<Figure> {
        let stopping = self.train.early_stopping.as_ref().map(|stopping| &stopping.monitor);
        let watched = [stopping, self.schedule.monitor(), self.checkpoint.monitor.as_ref()];
        let watched = watched.into_iter().flatten().filter_map(Monitor::of_model).map(Metric::figure);
        self.metrics.figures.iter().map(|f| f.figure()).chain(watched).collect()
    }

    /// The figures that evaluation measures besides those that the loss comes with: those that are named, and those that are always there.
    pub fn asked_figures(&self) -> Vec<Figure> {
        // Language models are compared by them. They come from the loss and cost nothing.
        let is_likelihood = self.loss.describe().is_likelihood();
        let of_text = (is_likelihood && self.data.source.is_text()).then_some(Figure::Perplexity);
        let of_bytes = (is_likelihood && self.data.source.knows_bytes()).then_some(Figure::BitsPerByte);
        let of_quantiles = (!self.loss.quantiles().is_empty()).then_some(Figure::Coverage);
        let always = of_text.into_iter().chain(of_bytes).chain(of_quantiles);
        let wanted: Vec<Figure> = self.named_figures().into_iter().chain(always).collect();
        let there = self.loss.describe().task().asked_figures();
        there.iter().copied().filter(|figure| wanted.contains(figure)).collect()
    }

    /// Whether its samples are windows of series, of which it learns the numbers after them: there is a naive forecast to compare them with.
    pub fn forecasts_numbers(&self) -> bool {
        let windows = self.data.source.table().is_some_and(|csv| csv.window.is_some() && csv.horizon != Some(0));
        windows && self.loss.describe().task() == op::Task::Regression && self.loss.target().is_none()
    }

    /// The main loss as the engine computes it. Its `ignore_index` is what stands in a batch for targets that do not count.
    pub fn engine_loss(&self) -> op::Loss {
        let mut loss = self.loss.describe();
        if let (Source::ImageList(list), op::Loss::CrossEntropy(of)) = (&self.data.source, &mut loss)
            && list.ignores_by_value(of.ignore_index)
        {
            of.ignore_index = IGNORE_INDEX;
        }
        loss
    }

    /// Decides which samples are held out, and all else that is drawn of the data before training.
    pub fn data_seed(&self) -> u64 {
        self.data.loading.seed.unwrap_or(self.seed)
    }

    /// Whether texts are written whenever the run evaluates.
    pub fn writes_samples(&self) -> bool {
        !self.log.sample_prompts.is_empty()
    }

    /// The samples that a program of training computes on at a time: a batch, or a shard of one.
    pub fn micro_batch(&self) -> usize {
        self.data.loading.batch_size / self.shards()
    }

    /// Micro-batches of an update.
    pub fn micro_batches(&self) -> usize {
        self.train.accumulate * self.shards()
    }

    /// Batches of `batch_size` samples that so many micro-batches of an epoch are, or are parts of.
    pub fn batches_of(&self, micro_batches: u64) -> u64 {
        micro_batches.div_ceil(self.shards() as u64)
    }

    /// Whether the update is a program of its own, after those of its micro-batches.
    pub fn updates_apart(&self) -> bool {
        self.train.accumulate > 1 || self.distributed.shards.is_some()
    }

    /// Parts of a batch that are computed each by itself.
    pub fn shards(&self) -> usize {
        self.distributed.shards.unwrap_or(1)
    }

    /// Puts a number in the place of `batch_size`; `eval_batch_size` goes with it unless it was written.
    pub fn set_batch_size(&mut self, batch: usize) {
        if self.span_of("data.eval_batch_size").is_none() {
            self.data.loading.eval_batch_size = Some(batch);
        }
        self.data.loading.batch_size = batch;
        self.data.auto_batch_size = false;
    }

    /// It is trained on so many GPUs: by default they share as many shards.
    pub fn set_devices(&mut self, devices: usize) {
        if devices > 1 {
            self.distributed.shards.get_or_insert(devices);
        }
    }

    /// The place of a key or, where it was not written, of the section around it: there is always something to
    /// point at unless a whole section was left out.
    pub fn nearest_span(&self, key: &str) -> Option<Span> {
        self.origins.nearest_span(key)
    }
}

/// What a run validates on, and so makes its decisions on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validation {
    /// Training samples that `validation_split` holds out.
    HeldOut,
    /// The source's test set.
    TestSet,
    /// Samples that the source has for it.
    Own,
}

impl Validation {
    /// What it is called among words.
    pub fn name(self) -> &'static str {
        match self {
            Validation::HeldOut => "held-out samples",
            Validation::TestSet => "the test set",
            Validation::Own => "the validation samples",
        }
    }

    /// What it is called in JSON.
    pub fn key(self) -> &'static str {
        match self {
            Validation::HeldOut => "held_out",
            Validation::TestSet => "test_set",
            Validation::Own => "validation_samples",
        }
    }
}

/// The `[model]` section, blocks and repeats unrolled.
#[derive(Debug, Clone, Serialize)]
pub struct Model {
    /// The fields of a sample that it takes, by name; empty: the only one that there is.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "names")]
    pub inputs: Vec<(String, Span)>,
    /// The layers, in order.
    pub layers: Vec<LayerNode>,
    /// How parameters start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub init: Vec<InitRule>,
    /// A file of parameters to start from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights: Option<PathBuf>,
    /// Under which key that file has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights_key: Option<String>,
    /// Every name in that file must fit, and none may be missing.
    pub weights_strict: bool,
    /// Parameters that training leaves as they are.
    pub freeze: Vec<Pattern>,
    /// Epochs after which those are trained, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thaw_after: Option<usize>,
    /// Adapters that are trained in the place of weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora: Option<Lora>,
    /// Other names for the tensors of that file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weights_rename: Vec<Rename>,
    /// The parameter `num_classes`, if the model has one that is a number, and its place.
    #[serde(skip)]
    pub num_classes: Option<(usize, Span)>,
}

/// A layer, or something that holds layers.
#[derive(Debug, Clone, Serialize)]
pub struct LayerNode {
    /// Its own part of the names below it: as written, else its index among its siblings; empty for a residual or
    /// branches without a name, which add nothing.
    pub name: String,
    /// All names from the outside in, joined by dots: what parameter names begin with. No two layers with parameters
    /// have the same.
    pub path: String,
    /// What a caret should point at: the value of `type` or `block`, the bare word, or the group's name.
    #[serde(skip)]
    pub span: Span,
    /// The place of each argument's value.
    #[serde(skip)]
    pub fields: BTreeMap<String, Span>,
    /// The paths of the layers whose outputs it takes, each an earlier one, or names of the model's inputs; `None`: the one
    /// before.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "paths")]
    pub from: Option<Vec<(String, Span)>>,
    /// The names in `from` as they were written, for the effective configuration.
    #[serde(skip)]
    pub from_names: Vec<String>,
    /// What it is.
    pub kind: LayerKind,
    /// The file has a mistake in this layer, which is reported: the node stands for a layer of which nothing is known.
    #[serde(skip)]
    pub doubtful: bool,
}

impl LayerNode {
    /// Whether it is doubtful, or a layer inside.
    pub fn is_doubtful(&self) -> bool {
        self.doubtful || self.kind.children().into_iter().flatten().any(LayerNode::is_doubtful)
    }

    /// The word of its `type`, for messages.
    pub fn kind_name(&self) -> &'static str {
        match &self.kind {
            LayerKind::Layer(layer) => layer.type_name(),
            LayerKind::Group(_) => "group",
            LayerKind::Residual { .. } => "residual",
            LayerKind::Gate(_) => "gate",
            LayerKind::Branches { .. } => "branches",
        }
    }
}

fn names<S: Serializer>(names: &[(String, Span)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(names.iter().map(|(name, _)| name))
}

fn paths<S: Serializer>(from: &Option<Vec<(String, Span)>>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(from.iter().flatten().map(|(path, _)| path))
}

/// What a [`LayerNode`] is.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerKind {
    /// One layer.
    Layer(Layer),
    /// Layers in order; also what a block becomes.
    Group(Vec<LayerNode>),
    /// Adds its input to its body's output.
    Residual {
        /// The body.
        body: Vec<LayerNode>,
        /// What is applied to the input where shapes differ.
        projection: Option<Box<LayerNode>>,
        /// Leave the sum out where shapes differ.
        if_same_shape: bool,
    },
    /// Multiplies its input by its layers' output, broadcast.
    Gate(Vec<LayerNode>),
    /// Several groups on the same input.
    Branches {
        /// Mostly groups, but any layer can be one.
        branches: Vec<LayerNode>,
        /// What becomes of their outputs.
        combine: Combine,
    },
}

impl LayerKind {
    /// The lists of layers inside of it.
    pub fn children(&self) -> Vec<&[LayerNode]> {
        match self {
            LayerKind::Layer(_) => Vec::new(),
            LayerKind::Group(body) | LayerKind::Gate(body) => vec![body],
            LayerKind::Residual { body, projection, .. } => {
                let projection = projection.as_deref().map(std::slice::from_ref);
                std::iter::once(body.as_slice()).chain(projection).collect()
            }
            LayerKind::Branches { branches, .. } => vec![branches],
        }
    }
}

/// How the outputs of branches become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Combine {
    /// Their sum.
    Add,
    /// Their product, element by element.
    Multiply,
    /// One after the other, along the channels.
    Concat,
}
