//! `[train]`, `[checkpoint]` and `[log]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::part::{Check, Part};
use crate::config::tree::Node;
use crate::graph::op::Figure;

/// The `[train]` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Train {
    /// How many times to go through the training samples.
    #[schemars(range(min = 1))]
    pub epochs: usize,
    /// Batches whose gradients are averaged into one step.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1_048_576))]
    pub accumulate: usize,
    /// Scale gradients down whose norm, over all parameters together, is larger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub clip_grad_norm: Option<f64>,
    /// Stop when a figure no longer improves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early_stopping: Option<EarlyStopping>,
    /// Stop after so many steps, wherever in an epoch that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_steps: Option<u64>,
    /// Validate after every so many epochs, and after the last.
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    pub eval_every: usize,
}

impl Check for Train {
    fn check(&self, part: &Part) {
        part.require("epochs", self.epochs >= 1, "must be at least 1");
        part.require("accumulate", (1..=1 << 20).contains(&self.accumulate), "must be from 1 to 1048576");
        if let Some(norm) = self.clip_grad_norm {
            part.require_positive("clip_grad_norm", norm);
        }
        part.require("max_steps", self.max_steps != Some(0), "must be at least 1");
        part.require("eval_every", self.eval_every >= 1, "must be at least 1");
        if let (Some(stopping), Some(table)) =
            (&self.early_stopping, part.table.get("early_stopping").and_then(Node::as_table))
        {
            let part = Part { table, span: part.span_of("early_stopping"), what: "`early_stopping`", ..*part };
            part.require("patience", stopping.patience >= 1, "must be at least 1");
            part.require_not_negative("min_delta", stopping.min_delta);
        }
    }
}

/// When to stop early.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EarlyStopping {
    /// The figure to watch.
    #[serde(default)]
    pub monitor: Metric,
    /// How many validations without improvement to wait for.
    #[serde(default = "patience")]
    #[schemars(range(min = 1))]
    pub patience: usize,
    /// What counts as an improvement must be larger than this.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub min_delta: f64,
}

/// A figure of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Mean loss over the epoch's training batches.
    TrainLoss,
    /// Loss on the validation samples.
    #[default]
    ValLoss,
    /// Share of validation samples whose class is found; only for classes.
    ValAccuracy,
    /// Mean absolute error on the validation samples; only for regression.
    ValMae,
    /// Root of the mean squared error on the validation samples; only for regression.
    ValRmse,
}

impl Metric {
    /// All of them.
    pub const ALL: [Metric; 5] =
        [Metric::TrainLoss, Metric::ValLoss, Metric::ValAccuracy, Metric::ValMae, Metric::ValRmse];

    /// What is measured.
    pub fn figure(self) -> Figure {
        match self {
            Self::TrainLoss | Self::ValLoss => Figure::Loss,
            Self::ValAccuracy => Figure::Accuracy,
            Self::ValMae => Figure::Mae,
            Self::ValRmse => Figure::Rmse,
        }
    }

    /// Whether it is measured on the validation samples; else on those of training.
    pub fn of_validation(self) -> bool {
        match self {
            Self::TrainLoss => false,
            Self::ValLoss | Self::ValAccuracy | Self::ValMae | Self::ValRmse => true,
        }
    }

    /// Its name, in configurations and in `metrics.jsonl`.
    pub fn name(self) -> &'static str {
        match self {
            Self::TrainLoss => "train_loss",
            Self::ValLoss => "val_loss",
            Self::ValAccuracy => "val_accuracy",
            Self::ValMae => "val_mae",
            Self::ValRmse => "val_rmse",
        }
    }

    /// Whether more is better.
    pub fn higher_is_better(self) -> bool {
        self.figure().higher_is_better()
    }
}

/// The `[checkpoint]` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// The figure by which `best` is chosen: by default `val_accuracy` for classes, else `val_loss`.
    #[serde(default)]
    pub monitor: Option<Metric>,
    /// How many of the `step-N` checkpoints to keep, the newest.
    #[serde(default = "keep")]
    #[schemars(range(min = 1))]
    pub keep: usize,
    /// Save a checkpoint after every so many steps, besides those at the end of each epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub every_steps: Option<u64>,
}

impl Check for Checkpoint {
    fn check(&self, part: &Part) {
        part.require("keep", self.keep >= 1, "must be at least 1");
        part.require("every_steps", self.every_steps != Some(0), "must be at least 1");
    }
}

impl Checkpoint {
    /// The figure by which `best` is chosen.
    pub fn monitor(&self) -> Metric {
        self.monitor.unwrap_or_default()
    }
}

/// The `[log]` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// Write every so many steps to `metrics.jsonl`.
    #[serde(default = "fifty")]
    #[schemars(range(min = 1))]
    pub every_steps: u64,
}

impl Check for Log {
    fn check(&self, part: &Part) {
        part.require("every_steps", self.every_steps >= 1, "must be at least 1");
    }
}

fn one() -> usize {
    1
}

fn patience() -> usize {
    10
}

fn keep() -> usize {
    3
}

fn fifty() -> u64 {
    50
}
