//! Layers that reorder, drop or pass on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::part::{Check, Part};

fn first() -> i64 {
    1
}

fn last() -> i64 {
    -1
}

fn half() -> f64 {
    0.5
}

/// Makes one dimension of several, in PyTorch's order (channel, row, column). `torch.nn.Flatten`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Flatten {
    /// First dimension to join.
    #[serde(default = "first")]
    #[schemars(range(min = -8, max = 7))]
    pub start_dim: i64,
    /// Last dimension to join; negative numbers count from the end.
    #[serde(default = "last")]
    #[schemars(range(min = -8, max = 7))]
    pub end_dim: i64,
}

impl Check for Flatten {
    fn check(&self, part: &Part) {
        for (key, dim) in [("start_dim", self.start_dim), ("end_dim", self.end_dim)] {
            part.require(key, (-8..8).contains(&dim), "must be from -8 to 7");
        }
    }
}

/// Sets elements to zero at random in training, and scales the others up. `torch.nn.Dropout`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dropout {
    /// Probability of zero, from 0 up to but not including 1.
    #[serde(default = "half")]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub p: f64,
}

impl Check for Dropout {
    fn check(&self, part: &Part) {
        part.require("p", (0.0..1.0).contains(&self.p), "must be at least 0 and below 1");
    }
}

/// Passes its input on. `torch.nn.Identity`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Identity {}

impl Check for Identity {}
