//! Pooling.

use crate::config::declare::bounds::MAX_SIZE;
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;
use crate::config::language::values::Pair;

options! {
    /// Maximum over windows. `torch.nn.MaxPool2d`.
    pub struct MaxPool2d {
        /// Side of the window, or `[height, width]`.
        #[option(range = 1..=MAX_SIZE, example = "2")]
        pub kernel_size: Pair,
        /// Step between windows.
        #[option(otherwise = "`kernel_size`", range = 1..=MAX_SIZE)]
        pub stride: Option<Pair>,
        /// Padding on each side, at most half the window; it is never the maximum.
        #[option(default = Pair([0, 0]))]
        pub padding: Pair,
        /// Distance between the window's elements.
        #[option(default = Pair::one(), range = 1..=MAX_SIZE)]
        pub dilation: Pair,
        /// Keep a last window that is not full.
        #[option(default = false)]
        pub ceil_mode: bool,
    }

    /// Mean over windows. `torch.nn.AvgPool2d`.
    pub struct AvgPool2d {
        /// Side of the window, or `[height, width]`.
        #[option(range = 1..=MAX_SIZE, example = "2")]
        pub kernel_size: Pair,
        /// Step between windows.
        #[option(otherwise = "`kernel_size`", range = 1..=MAX_SIZE)]
        pub stride: Option<Pair>,
        /// Zeros on each side, at most half the window.
        #[option(default = Pair([0, 0]))]
        pub padding: Pair,
        /// Keep a last window that is not full.
        #[option(default = false)]
        pub ceil_mode: bool,
        /// Count the padding when the mean is taken.
        #[option(default = true)]
        pub count_include_pad: bool,
    }

    /// Mean over as many windows as the output has pixels. `torch.nn.AdaptiveAvgPool2d`.
    pub struct AdaptiveAvgPool2d {
        /// Side of the output, or `[height, width]`; `1` is global pooling.
        #[option(range = 1..=MAX_SIZE, example = "1")]
        pub output_size: Pair,
    }

    /// Maximum over as many windows as the output has pixels. `torch.nn.AdaptiveMaxPool2d`.
    pub struct AdaptiveMaxPool2d {
        /// Side of the output, or `[height, width]`; `1` is global pooling.
        #[option(range = 1..=MAX_SIZE, example = "1")]
        pub output_size: Pair,
    }
}

impl Check for MaxPool2d {
    fn check(&self, part: &Part) {
        padding_fits(part, self.kernel_size, self.padding);
    }
}

impl MaxPool2d {
    /// The step between windows, with its default.
    pub fn stride(&self) -> Pair {
        self.stride.unwrap_or(self.kernel_size)
    }
}

impl Check for AvgPool2d {
    fn check(&self, part: &Part) {
        padding_fits(part, self.kernel_size, self.padding);
    }
}

impl AvgPool2d {
    /// The step between windows, with its default.
    pub fn stride(&self) -> Pair {
        self.stride.unwrap_or(self.kernel_size)
    }
}

impl Check for AdaptiveAvgPool2d {}

impl Check for AdaptiveMaxPool2d {}

fn padding_fits(part: &Part, kernel: Pair, padding: Pair) {
    let fits = (0..2).all(|i| padding.0[i] <= kernel.0[i] / 2);
    part.require("padding", fits, "must be at most half of `kernel_size`");
}
