//! Layers that take several inputs by `from = ["a", "b"]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::part::{Check, Part};

fn channels() -> i64 {
    1
}

/// The sum of the layers named in `from`. `torch.add`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Add {}

impl Check for Add {}

/// The product, element by element, of the layers named in `from`. `torch.mul`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Multiply {}

impl Check for Multiply {}

/// The layers named in `from`, one after the other along a dimension. `torch.cat`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Concat {
    /// The dimension, in PyTorch's order: 1 is an image's channels. Negative numbers count from the end.
    #[serde(default = "channels")]
    #[schemars(range(min = -8, max = 7))]
    pub dim: i64,
}

impl Check for Concat {
    fn check(&self, part: &Part) {
        part.require("dim", (-8..8).contains(&self.dim), "must be from -8 to 7");
    }
}
