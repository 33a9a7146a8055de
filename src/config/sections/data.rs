//! `[data]`: where samples come from, and how they become batches.

use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};

use crate::config::diagnostics::Diagnostic;
use crate::config::part::{Check, MAX_SIZE, Part};
use crate::config::tagged::tagged;
use crate::config::values::{Pair, ValidationSplit, sides, yes};

/// The largest number of made-up samples.
const MAX_SAMPLES: usize = 1 << 40;

/// The `[data]` section.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Data {
    /// What the samples are.
    #[serde(flatten)]
    pub source: Source,
    /// How they become batches; the same keys for every source.
    #[serde(flatten)]
    pub loading: Loading,
    /// Applied to every sample, after `train_transforms`.
    pub transforms: Vec<Transform>,
    /// Applied to training samples only, before `transforms`.
    pub train_transforms: Vec<Transform>,
    /// `batch_size` was written as `"auto"`, and no device has been asked yet what that is.
    #[serde(skip)]
    pub auto_batch_size: bool,
}

tagged! {
    /// A source of samples with its arguments.
    Source by "source":
    "mnist" => Mnist(Download),
    "fashion_mnist" => FashionMnist(Download),
    "cifar10" => Cifar10(Download),
    "digits" => Digits(Digits),
    "tensors" => Tensors(Tensors),
    "synthetic" => Synthetic(Synthetic),
}

impl Source {
    /// The key of the path that it reads from, and the path.
    pub fn path(&self) -> Option<(&'static str, &PathBuf)> {
        match self {
            Source::Mnist(files) | Source::FashionMnist(files) | Source::Cifar10(files) => Some(("root", &files.root)),
            Source::Tensors(tensors) => Some(("path", &tensors.path)),
            Source::Digits(_) | Source::Synthetic(_) => None,
        }
    }

    /// The same, to be changed.
    pub fn path_mut(&mut self) -> Option<(&'static str, &mut PathBuf)> {
        match self {
            Source::Mnist(files) | Source::FashionMnist(files) | Source::Cifar10(files) => {
                Some(("root", &mut files.root))
            }
            Source::Tensors(tensors) => Some(("path", &mut tensors.path)),
            Source::Digits(_) | Source::Synthetic(_) => None,
        }
    }

    /// The folder that it reads from where none is named.
    pub fn usual_root(&self) -> Option<&'static str> {
        match self {
            Source::Mnist(_) => Some("data/mnist"),
            Source::FashionMnist(_) => Some("data/fashion-mnist"),
            Source::Cifar10(_) => Some("data/cifar-10"),
            Source::Digits(_) | Source::Tensors(_) | Source::Synthetic(_) => None,
        }
    }

    /// What may be done about files that are not there, if it has any that can be downloaded.
    pub fn download(&self) -> Option<&Download> {
        match self {
            Source::Mnist(files) | Source::FashionMnist(files) | Source::Cifar10(files) => Some(files),
            Source::Digits(_) | Source::Tensors(_) | Source::Synthetic(_) => None,
        }
    }

    /// Whether its targets are classes, if the configuration tells.
    pub fn has_classes(&self) -> Option<bool> {
        match self {
            Source::Mnist(_) | Source::FashionMnist(_) | Source::Cifar10(_) | Source::Digits(_) => Some(true),
            Source::Synthetic(synthetic) => Some(synthetic.classes.is_some()),
            Source::Tensors(_) => None,
        }
    }
}

/// A public data set in files that can be downloaded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Download {
    /// The folder of the files: by default `data/mnist`, `data/fashion-mnist` or `data/cifar-10`.
    #[serde(default)]
    #[schemars(extend("minLength" = 1))]
    pub root: PathBuf,
    /// Fetch files that are not there.
    #[serde(default = "yes")]
    pub download: bool,
    /// The files must be those of the public set, by their SHA-256. `false`: a set of your own in the same format.
    #[serde(default = "yes")]
    pub verify: bool,
    /// Base URLs to fetch from, tried in order, instead of the built-in ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1), inner(regex(pattern = "^https?://")))]
    pub mirrors: Option<Vec<String>>,
    /// What to train on, after saying so, if files are missing and cannot be fetched. Without it that is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Fallback>,
}

impl Check for Download {
    fn check(&self, part: &Part) {
        if let Some(mirrors) = &self.mirrors {
            let urls = mirrors.iter().all(|url| url.starts_with("http://") || url.starts_with("https://"));
            part.require(
                "mirrors",
                !mirrors.is_empty() && urls,
                "must be a list of URLs that begin with http:// or https://",
            );
        }
    }
}

/// A set that is always there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    /// The bundled digits, resized to the shape that the source would have had.
    Digits,
}

/// The bundled hand-written digits: 1,797 grey images of 8×8 pixels, ten classes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Digits {}

impl Check for Digits {}

/// Fixed tensors from a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tensors {
    /// A `.safetensors` file with `inputs` and `targets` and, optionally, `val_inputs` and `val_targets`.
    #[schemars(extend("minLength" = 1))]
    pub path: PathBuf,
}

impl Check for Tensors {}

/// Random samples, made from the seed: for tests, and to measure speed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend(
    "anyOf" = [{ "required": ["classes"] }, { "required": ["targets"] }],
    "not" = { "required": ["classes", "targets"] },
))]
pub struct Synthetic {
    /// Shape of one sample: `[channels, height, width]` or `[features]`.
    #[schemars(length(min = 1, max = 4), inner(range(min = 1, max = MAX_SIZE)))]
    pub shape: Vec<usize>,
    /// Number of classes; either this or `targets`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = MAX_SIZE))]
    pub classes: Option<usize>,
    /// Number of values to regress; either this or `classes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_SIZE))]
    pub targets: Option<usize>,
    /// Number of training samples.
    #[serde(default = "samples")]
    #[schemars(range(min = 1, max = MAX_SAMPLES))]
    pub samples: usize,
    /// Number of test samples.
    #[serde(default = "val_samples")]
    #[schemars(range(max = MAX_SAMPLES))]
    pub val_samples: usize,
}

impl Check for Synthetic {
    fn check(&self, part: &Part) {
        part.require("shape", (1..=4).contains(&self.shape.len()), "must have 1 to 4 dimensions");
        let elements = self.shape.iter().try_fold(1usize, |product, &side| product.checked_mul(side));
        let fits = elements.is_some_and(|elements| (1..=MAX_SIZE).contains(&elements));
        part.require("shape", fits, "must have at least 1 and at most 16777216 elements");
        part.conflict("classes", "targets", "classes are for `cross_entropy`, targets for `mse`");
        part.one_of("classes", "targets");
        if let Some(classes) = self.classes {
            part.require("classes", classes >= 2, "must be at least 2");
            part.require_size("classes", classes);
        }
        if let Some(targets) = self.targets {
            part.require_size("targets", targets);
        }
        part.require("samples", (1..=MAX_SAMPLES).contains(&self.samples), "must be at least 1 and at most 2^40");
        part.require("val_samples", self.val_samples <= MAX_SAMPLES, "must be at most 2^40");
    }
}

fn samples() -> usize {
    1024
}

fn val_samples() -> usize {
    256
}

/// The keys of `[data]` that every source has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Loading {
    /// Samples in a training batch; `"auto"`: as many as there is memory for on a GPU.
    #[serde(default = "batch_size", deserialize_with = "batch_size_or_auto")]
    #[schemars(schema_with = "batch_size_schema")]
    pub batch_size: usize,
    /// Samples in a batch of an evaluation; by default `batch_size`.
    #[serde(default)]
    #[schemars(range(min = 1, max = MAX_SIZE))]
    pub eval_batch_size: Option<usize>,
    /// Threads that make batches ahead of need; 0 makes them in between steps. The batches do not depend on it.
    #[serde(default = "two")]
    #[schemars(range(max = 256))]
    pub workers: usize,
    /// How many batches are made ahead.
    #[serde(default = "two")]
    #[schemars(range(min = 1, max = 256))]
    pub prefetch: usize,
    /// Draw a new order of the training samples for every epoch.
    #[serde(default = "yes")]
    pub shuffle: bool,
    /// Leave out the last batch of an epoch if it is not full.
    #[serde(default)]
    pub drop_last: bool,
    /// Hold out a share (below 1) or a number of the training samples, and validate on those instead of the test set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_split: Option<ValidationSplit>,
    /// Train on the first so many samples only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub limit: Option<usize>,
    /// Validate on the first so many samples only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub limit_val: Option<usize>,
}

impl Check for Loading {
    fn check(&self, part: &Part) {
        part.require_size("batch_size", self.batch_size);
        if let Some(size) = self.eval_batch_size {
            part.require_size("eval_batch_size", size);
        }
        part.require("workers", self.workers <= 256, "must be at most 256");
        part.require("prefetch", (1..=256).contains(&self.prefetch), "must be from 1 to 256");
        part.require("limit", self.limit != Some(0), "must be at least 1");
        part.require("limit_val", self.limit_val != Some(0), "must be at least 1");
    }
}

impl Loading {
    /// Samples in a batch of an evaluation, with its default.
    pub fn eval_batch_size(&self) -> usize {
        self.eval_batch_size.unwrap_or(self.batch_size)
    }
}

fn batch_size() -> usize {
    64
}

/// A number, or the default in the place of `"auto"` until it is known what that is.
fn batch_size_or_auto<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    struct SizeVisitor;

    impl Visitor<'_> for SizeVisitor {
        type Value = usize;

        fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
            f.write_str("a whole number or \"auto\"")
        }

        fn visit_i64<E: de::Error>(self, v: i64) -> Result<usize, E> {
            usize::try_from(v).map_err(|_| E::invalid_value(de::Unexpected::Signed(v), &self))
        }

        fn visit_u64<E: de::Error>(self, v: u64) -> Result<usize, E> {
            usize::try_from(v).map_err(|_| E::invalid_value(de::Unexpected::Unsigned(v), &self))
        }

        fn visit_str<E: de::Error>(self, v: &str) -> Result<usize, E> {
            match v {
                "auto" => Ok(batch_size()),
                _ => Err(E::invalid_value(de::Unexpected::Str(v), &self)),
            }
        }
    }

    deserializer.deserialize_any(SizeVisitor)
}

fn batch_size_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "type": "integer", "minimum": 1, "maximum": MAX_SIZE }, { "const": "auto" }] })
}

fn two() -> usize {
    2
}

tagged! {
    /// A step between a stored sample and the model's input.
    Transform by "type":
    "normalize" => Normalize(Normalize),
    "random_crop" => RandomCrop(RandomCrop),
    "random_horizontal_flip" => RandomHorizontalFlip(RandomHorizontalFlip),
}

/// `(x − mean) / std` for each channel, `x` from 0 to 1. `torchvision.transforms.Normalize`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Normalize {
    /// One number for each channel, or one for all.
    #[schemars(length(min = 1))]
    pub mean: Vec<f64>,
    /// One number above 0 for each channel, or one for all.
    #[schemars(length(min = 1), extend("items" = { "type": "number", "exclusiveMinimum": 0 }))]
    pub std: Vec<f64>,
}

impl Check for Normalize {
    fn check(&self, part: &Part) {
        part.require(
            "mean",
            !self.mean.is_empty() && self.mean.iter().all(|m| m.is_finite()),
            "must be finite numbers",
        );
        let positive = self.std.iter().all(|s| s.is_finite() && *s > 0.0);
        part.require("std", !self.std.is_empty() && positive, "must be finite numbers above 0");
        if self.mean.len() != self.std.len() && self.mean.len() > 1 && self.std.len() > 1 {
            part.sink.push(
                Diagnostic::error(format!("`mean` and `std` in {} have different lengths", part.what))
                    .at(part.span_of("std"), format!("{} numbers", self.std.len()))
                    .context(part.span_of("mean"), format!("{} numbers", self.mean.len())),
            );
        }
    }
}

/// A random window of the padded image. `torchvision.transforms.RandomCrop`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomCrop {
    /// Side of the window, or `[height, width]`.
    #[schemars(schema_with = "sides")]
    pub size: Pair,
    /// Black pixels added on each side first.
    #[serde(default)]
    pub padding: Pair,
}

impl Check for RandomCrop {
    fn check(&self, part: &Part) {
        part.require_sides("size", self.size);
        part.require_padding("padding", self.padding);
    }
}

/// Left and right swapped, at random. `torchvision.transforms.RandomHorizontalFlip`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomHorizontalFlip {
    /// Probability.
    #[serde(default = "half")]
    #[schemars(range(min = 0, max = 1))]
    pub p: f64,
}

impl Check for RandomHorizontalFlip {
    fn check(&self, part: &Part) {
        part.require("p", (0.0..=1.0).contains(&self.p), "must be from 0 to 1");
    }
}

fn half() -> f64 {
    0.5
}
