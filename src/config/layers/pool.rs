//! Pooling.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::conv::yes;
use crate::config::values::Pair;

/// Maximum over windows. `torch.nn.MaxPool2d`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MaxPool2d {
    /// Side of the window, or `[height, width]`.
    pub kernel_size: Pair,
    /// Step between windows; by default the window's size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<Pair>,
    /// Padding on each side, at most half the window; it is never the maximum.
    #[serde(default)]
    pub padding: Pair,
    /// Distance between the window's elements.
    #[serde(default = "Pair::one")]
    pub dilation: Pair,
    /// Keep a last window that is not full.
    #[serde(default)]
    pub ceil_mode: bool,
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
    pub kernel_size: Pair,
    /// Step between windows; by default the window's size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    pub output_size: Pair,
}
