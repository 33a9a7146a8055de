//! `[data]`: where samples come from, and how they become batches.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::yes;
use crate::config::tagged::tagged;
use crate::config::values::{Pair, ValidationSplit};

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

/// A public data set in files that can be downloaded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Download {
    /// The folder of the files: by default `data/mnist`, `data/fashion-mnist` or `data/cifar-10`.
    #[serde(default)]
    pub root: PathBuf,
    /// Fetch files that are not there.
    #[serde(default = "yes")]
    pub download: bool,
    /// Base URLs to fetch from, tried in order, instead of the built-in ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirrors: Option<Vec<String>>,
    /// What to train on, after saying so, if files are missing and cannot be fetched. Without it that is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Fallback>,
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

/// Fixed tensors from a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tensors {
    /// A `.safetensors` file with `inputs` and `targets` and, optionally, `val_inputs` and `val_targets`.
    pub path: PathBuf,
}

/// Random samples, made from the seed: for tests, and to measure speed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Synthetic {
    /// Shape of one sample: `[channels, height, width]` or `[features]`.
    #[schemars(length(min = 1))]
    pub shape: Vec<usize>,
    /// Number of classes; either this or `targets`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2))]
    pub classes: Option<usize>,
    /// Number of values to regress; either this or `classes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub targets: Option<usize>,
    /// Number of training samples.
    #[serde(default = "samples")]
    #[schemars(range(min = 1))]
    pub samples: usize,
    /// Number of test samples.
    #[serde(default = "val_samples")]
    pub val_samples: usize,
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
    /// Samples in a training batch.
    #[serde(default = "batch_size")]
    #[schemars(range(min = 1))]
    pub batch_size: usize,
    /// Samples in a batch of an evaluation; by default `batch_size`.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub eval_batch_size: Option<usize>,
    /// Threads that make batches ahead of need; 0 makes them in between steps. The batches do not depend on it.
    #[serde(default = "two")]
    pub workers: usize,
    /// How many batches are made ahead.
    #[serde(default = "two")]
    #[schemars(range(min = 1))]
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

impl Loading {
    /// Samples in a batch of an evaluation, with its default.
    pub fn eval_batch_size(&self) -> usize {
        self.eval_batch_size.unwrap_or(self.batch_size)
    }
}

fn batch_size() -> usize {
    64
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
    #[schemars(length(min = 1))]
    pub std: Vec<f64>,
}

/// A random window of the padded image. `torchvision.transforms.RandomCrop`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomCrop {
    /// Side of the window, or `[height, width]`.
    pub size: Pair,
    /// Pixels added on each side first.
    #[serde(default)]
    pub padding: Pair,
    /// Value of added pixels, from 0 to 1.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1))]
    pub fill: f64,
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

fn half() -> f64 {
    0.5
}
