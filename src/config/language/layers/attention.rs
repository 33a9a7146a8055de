//! Attention.

use crate::config::declare::bounds::MAX_SIZE;
use crate::config::declare::options::{Check, options};

options! {
    /// Self-attention of the positions of a sequence, `[N, L, E]`, with learned projections. `torch.nn.MultiheadAttention` with
    /// `batch_first=True`, the input being query, key and value.
    pub struct MultiheadAttention {
        /// Number of heads; must divide the last dimension, which is `embed_dim`.
        #[option(range = 1..=MAX_SIZE, example = "4")]
        pub num_heads: usize,
        /// Learn biases of both projections.
        #[option(default = true)]
        pub bias: bool,
        /// Probability with which the weight of a position is left out in training.
        #[option(default = 0.0, range = 0.0..1.0)]
        pub dropout: f64,
        /// A position sees none after it.
        #[option(default = false)]
        pub is_causal: bool,
    }
}

impl Check for MultiheadAttention {}
