//! Pooling.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::part::{Check, Part};
use crate::config::values::{Pair, sides, yes};

/// Maximum over windows. `torch.nn.MaxPool2d`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MaxPool2d {
    /// Side of the window, or `[height, width]`.
    #[schemars(schema_with = "sides")]
    pub kernel_size: Pair,
    /// Step between windows; by default the window's size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "sides")]
    pub stride: Option<Pair>,
    /// Padding on each side, at most half the window; it is never the maximum.
    #[serde(default)]
    pub padding: Pair,
    /// Distance between the window's elements.
    #[serde(default = "Pair::one")]
    #[schemars(schema_with = "sides")]
    pub dilation: Pair,
    /// Keep a last window that is not full.
    #[serde(default)]
    pub ceil_mode: bool,
}

impl Check for MaxPool2d {
    fn check(&self, part: &Part) {
        window(part, self.kernel_size, self.stride, self.padding);
        part.require_sides("dilation", self.dilation);
    }
}

impl MaxPool2d {
    /// The step between windows, with its default.
    pub fn stride(&self) -> Pair {
        self.stride.unwrap_or(self.kernel_size)
    }
}

/// Mean over windows. `torch.nn.AvgPool2d`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AvgPool2d {
    /// Side of the window, or `[height, width]`.
    #[schemars(schema_with = "sides")]
    pub kernel_size: Pair,
    /// Step between windows; by default the window's size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "sides")]
    pub stride: Option<Pair>,
    /// Zeros on each side, at most half the window.
    #[serde(default)]
    pub padding: Pair,
    /// Keep a last window that is not full.
    #[serde(default)]
    pub ceil_mode: bool,
    /// Count the padding when the mean is taken.
    #[serde(default = "yes")]
    pub count_include_pad: bool,
}

impl Check for AvgPool2d {
    fn check(&self, part: &Part) {
        window(part, self.kernel_size, self.stride, self.padding);
    }
}

impl AvgPool2d {
    /// The step between windows, with its default.
    pub fn stride(&self) -> Pair {
        self.stride.unwrap_or(self.kernel_size)
    }
}

/// Mean over as many windows as the output has pixels. `torch.nn.AdaptiveAvgPool2d`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdaptiveAvgPool2d {
    /// Side of the output, or `[height, width]`.
    #[schemars(schema_with = "sides")]
    pub output_size: Pair,
}

impl Check for AdaptiveAvgPool2d {
    fn check(&self, part: &Part) {
        part.require_sides("output_size", self.output_size);
    }
}

fn window(part: &Part, kernel: Pair, stride: Option<Pair>, padding: Pair) {
    part.require_sides("kernel_size", kernel);
    if let Some(stride) = stride {
        part.require_sides("stride", stride);
    }
    let fits = (0..2).all(|i| padding.0[i] <= kernel.0[i] / 2);
    part.require("padding", fits, "must be at most half of `kernel_size`");
}
