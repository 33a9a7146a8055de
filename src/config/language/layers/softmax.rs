//! Softmax and its logarithm.

use crate::config::declare::options::{Check, options};

options! {
    /// Exponentials that sum to one. Not before `cross_entropy`, which takes logits. `torch.nn.Softmax`.
    pub struct Softmax {
        /// The dimension that sums to one: 1 (channels or classes, in PyTorch's order) or -1 (the last).
        #[option(default = -1, one_of = &[1, -1])]
        pub dim: i64,
    }

    /// Logarithms of what `softmax` puts out: what the loss `nll` takes. `torch.nn.LogSoftmax`.
    pub struct LogSoftmax {
        /// The dimension whose exponentials sum to one: 1 (channels or classes, in PyTorch's order) or -1 (the last).
        #[option(default = -1, one_of = &[1, -1])]
        pub dim: i64,
    }
}

impl Check for Softmax {}

impl Check for LogSoftmax {}
