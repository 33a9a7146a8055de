//! Layers with weights.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::values::{Groups, Padding, Pair};

/// A matrix product with a learned matrix over the last dimension, and a bias. `torch.nn.Linear`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Number of outputs. The number of inputs is inferred.
    #[schemars(range(min = 1))]
    pub out_features: usize,
    /// Learn an additive bias.
    #[serde(default = "yes")]
    pub bias: bool,
}

/// A two-dimensional convolution. `torch.nn.Conv2d`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Conv2d {
    /// Number of output channels. May be left out with `groups = "in_channels"`: then as many as come in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub out_channels: Option<usize>,
    /// Side of the kernel, or `[height, width]`.
    pub kernel_size: Pair,
    /// Step between windows.
    #[serde(default = "Pair::one")]
    pub stride: Pair,
    /// Zeros on each side of the image; `"same"` keeps the image's size (with stride 1), `"valid"` adds none.
    #[serde(default)]
    pub padding: Padding,
    /// Distance between the kernel's elements.
    #[serde(default = "Pair::one")]
    pub dilation: Pair,
    /// Number of groups that channels are split into; `"in_channels"` gives each channel its own (depthwise).
    #[serde(default)]
    pub groups: Groups,
    /// Learn an additive bias for each channel.
    #[serde(default = "yes")]
    pub bias: bool,
}

pub(super) fn yes() -> bool {
    true
}
