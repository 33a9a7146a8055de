//! Normalisation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::part::{Check, MAX_SIZE, Part};
use crate::config::values::{Momentum, yes};

fn eps() -> f64 {
    1e-5
}

fn one() -> usize {
    1
}

/// Batch normalisation of `[N, C]` or `[N, C, L]`. `torch.nn.BatchNorm1d`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchNorm1d {
    /// Added to the variance.
    #[serde(default = "eps")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub eps: f64,
    /// Share of the newest batch in the running statistics; `"cumulative"` averages all batches alike.
    #[serde(default)]
    pub momentum: Momentum,
    /// Learn a scale and a shift for each channel.
    #[serde(default = "yes")]
    pub affine: bool,
    /// Keep running statistics for evaluation; without, the batch's own are used there too.
    #[serde(default = "yes")]
    pub track_running_stats: bool,
}

impl Check for BatchNorm1d {
    fn check(&self, part: &Part) {
        part.require_positive("eps", self.eps);
        if let Momentum::Share(share) = self.momentum {
            part.require("momentum", (0.0..=1.0).contains(&share), "must be from 0 to 1");
        }
    }
}

/// Batch normalisation of images. `torch.nn.BatchNorm2d`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchNorm2d {
    /// Added to the variance.
    #[serde(default = "eps")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub eps: f64,
    /// Share of the newest batch in the running statistics; `"cumulative"` averages all batches alike.
    #[serde(default)]
    pub momentum: Momentum,
    /// Learn a scale and a shift for each channel.
    #[serde(default = "yes")]
    pub affine: bool,
    /// Keep running statistics for evaluation; without, the batch's own are used there too.
    #[serde(default = "yes")]
    pub track_running_stats: bool,
}

impl Check for BatchNorm2d {
    fn check(&self, part: &Part) {
        part.require_positive("eps", self.eps);
        if let Momentum::Share(share) = self.momentum {
            part.require("momentum", (0.0..=1.0).contains(&share), "must be from 0 to 1");
        }
    }
}

/// Normalisation over groups of channels of each sample. `torch.nn.GroupNorm`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupNorm {
    /// Number of groups; must divide the number of channels.
    #[schemars(range(min = 1, max = MAX_SIZE))]
    pub num_groups: usize,
    /// Added to the variance.
    #[serde(default = "eps")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub eps: f64,
    /// Learn a scale and a shift for each channel.
    #[serde(default = "yes")]
    pub affine: bool,
}

impl Check for GroupNorm {
    fn check(&self, part: &Part) {
        part.require_size("num_groups", self.num_groups);
        part.require_positive("eps", self.eps);
    }
}

/// Normalisation over the last dimensions of each sample. `torch.nn.LayerNorm`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LayerNorm {
    /// How many of the last dimensions, in PyTorch's order (an image is `[N, C, H, W]`), are normalised together.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 8))]
    pub normalized_dims: usize,
    /// Added to the variance.
    #[serde(default = "eps")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub eps: f64,
    /// Learn a scale and a shift for each element.
    #[serde(default = "yes")]
    pub elementwise_affine: bool,
    /// Learn the shift too; only with `elementwise_affine`.
    #[serde(default = "yes")]
    pub bias: bool,
}

impl Check for LayerNorm {
    fn check(&self, part: &Part) {
        part.require("normalized_dims", (1..=8).contains(&self.normalized_dims), "must be from 1 to 8");
        part.require_positive("eps", self.eps);
    }
}
