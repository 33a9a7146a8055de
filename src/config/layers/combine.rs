//! Layers that take several inputs by `from = ["a", "b"]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

fn channels() -> i64 {
    1
}

/// The sum of the layers named in `from`. `torch.add`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Add {}

/// The product, element by element, of the layers named in `from`. `torch.mul`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Multiply {}

/// The layers named in `from`, one after the other along a dimension. `torch.cat`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Concat {
    /// The dimension, in PyTorch's order: 1 is an image's channels. Negative numbers count from the end.
    #[serde(default = "channels")]
    pub dim: i64,
}
