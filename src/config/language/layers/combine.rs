//! Layers that take several inputs by `from = ["a", "b"]`.

use crate::config::declare::options::{Check, options};

options! {
    /// The sum of the layers named in `from`, broadcast. `torch.add`.
    pub struct Add {}

    /// The product, element by element, of the layers named in `from`, broadcast. `torch.mul`.
    pub struct Multiply {}

    /// The layers named in `from`, one after the other along a dimension. `torch.cat`.
    pub struct Concat {
        /// The dimension, in PyTorch's order: 1 is an image's channels. Negative numbers count from the end.
        #[option(default = 1, range = -8..=7)]
        pub dim: i64,
    }
}

impl Check for Add {}

impl Check for Multiply {}

impl Check for Concat {}
