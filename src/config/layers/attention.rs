//! Attention.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::part::{Check, Part};
use crate::config::values::yes;

/// Self-attention of the positions of a sequence, `[N, L, E]`, with learned projections. `torch.nn.MultiheadAttention` with
/// `batch_first=True`, the input being query, key and value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MultiheadAttention {
    /// Number of heads; must divide the last dimension, which is `embed_dim`.
    #[schemars(range(min = 1))]
    pub num_heads: usize,
    /// Learn biases of the projections.
    #[serde(default = "yes")]
    pub bias: bool,
    /// A position sees none after it.
    #[serde(default)]
    pub is_causal: bool,
}

impl Check for MultiheadAttention {
    fn check(&self, part: &Part) {
        part.require_size("num_heads", self.num_heads);
    }
}
