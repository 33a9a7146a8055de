//! Attention.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::part::{Check, MAX_SIZE, Part};
use crate::config::values::yes;

/// Self-attention of the positions of a sequence, `[N, L, E]`, with learned projections. `torch.nn.MultiheadAttention` with
/// `batch_first=True`, the input being query, key and value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MultiheadAttention {
    /// Number of heads; must divide the last dimension, which is `embed_dim`.
    #[schemars(range(min = 1, max = MAX_SIZE))]
    pub num_heads: usize,
    /// Learn biases of the projections.
    #[serde(default = "yes")]
    pub bias: bool,
    /// Probability with which the weight of a position is left out in training, from 0 up to but not including 1.
    #[serde(default)]
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub dropout: f64,
    /// A position sees none after it.
    #[serde(default)]
    pub is_causal: bool,
}

impl Check for MultiheadAttention {
    fn check(&self, part: &Part) {
        part.require_size("num_heads", self.num_heads);
        part.require("dropout", (0.0..1.0).contains(&self.dropout), "must be at least 0 and below 1");
    }
}
