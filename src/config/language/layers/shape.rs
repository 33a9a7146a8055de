//! Layers that reorder, drop or pass on.

use crate::config::declare::options::{Check, options};

options! {
    /// Makes one dimension of several, in PyTorch's order (channel, row, column). `torch.nn.Flatten`.
    pub struct Flatten {
        /// First dimension to join. The batch dimension stays.
        #[option(default = 1, range = -8..=7)]
        pub start_dim: i64,
        /// Last dimension to join; negative numbers count from the end.
        #[option(default = -1, range = -8..=7)]
        pub end_dim: i64,
    }

    /// Sets elements to zero at random in training, and scales the others up. `torch.nn.Dropout`.
    pub struct Dropout {
        /// Probability of zero.
        #[option(default = 0.5, range = 0.0..1.0)]
        pub p: f64,
    }

    /// Passes its input on; useful to give a place a name. `torch.nn.Identity`.
    pub struct Identity {}
}

impl Check for Flatten {}

impl Check for Dropout {}

impl Check for Identity {}
