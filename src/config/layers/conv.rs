//! Layers with weights.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::diagnostics::Diagnostic;
use crate::config::part::{Check, MAX_SIZE, Part};
use crate::config::values::{Groups, Padding, Pair, sides, yes};

/// A matrix product with a learned matrix over the last dimension, and a bias. `torch.nn.Linear`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Number of outputs. The number of inputs is inferred.
    #[schemars(range(min = 1, max = MAX_SIZE))]
    pub out_features: usize,
    /// Learn an additive bias.
    #[serde(default = "yes")]
    pub bias: bool,
}

impl Check for Linear {
    fn check(&self, part: &Part) {
        part.require_size("out_features", self.out_features);
    }
}

/// A two-dimensional convolution. `torch.nn.Conv2d`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend(
    // `groups` may be an expression.
    "anyOf" = [{ "required": ["out_channels"] }, { "required": ["groups"], "properties": { "groups": { "type": "string" } } }],
    "not" = {
        "required": ["padding", "stride"],
        "properties": {
            "padding": { "const": "same" },
            "stride": { "anyOf": [{ "type": "integer", "minimum": 2 }, { "type": "array", "contains": { "type": "integer", "minimum": 2 } }] },
        },
    },
))]
pub struct Conv2d {
    /// Number of output channels. May be left out with `groups = "in_channels"`: then as many as come in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_SIZE))]
    pub out_channels: Option<usize>,
    /// Side of the kernel, or `[height, width]`.
    #[schemars(schema_with = "sides")]
    pub kernel_size: Pair,
    /// Step between windows.
    #[serde(default = "Pair::one")]
    #[schemars(schema_with = "sides")]
    pub stride: Pair,
    /// Zeros on each side of the image; `"same"` keeps the image's size (with stride 1), `"valid"` adds none.
    #[serde(default)]
    pub padding: Padding,
    /// Distance between the kernel's elements.
    #[serde(default = "Pair::one")]
    #[schemars(schema_with = "sides")]
    pub dilation: Pair,
    /// Number of groups that channels are split into; `"in_channels"` gives each channel its own (depthwise).
    #[serde(default)]
    pub groups: Groups,
    /// Learn an additive bias for each channel.
    #[serde(default = "yes")]
    pub bias: bool,
}

impl Check for Conv2d {
    fn check(&self, part: &Part) {
        if let Some(channels) = self.out_channels {
            part.require_size("out_channels", channels);
        } else if self.groups != Groups::InChannels {
            part.sink.push(
                Diagnostic::error(format!("{} needs `out_channels`", part.what))
                    .at(part.span, "`out_channels` is missing")
                    .help("it may be left out only with `groups = \"in_channels\"`"),
            );
        }
        part.require_sides("kernel_size", self.kernel_size);
        part.require_sides("stride", self.stride);
        part.require_sides("dilation", self.dilation);
        match self.padding {
            Padding::Explicit(padding) => part.require_padding("padding", padding),
            Padding::Same if self.stride != Pair::one() => part.sink.push(
                Diagnostic::error(format!("`padding = \"same\"` in {} needs a stride of 1", part.what))
                    .at(part.span_of("stride"), "the output is smaller than the input")
                    .context(part.span_of("padding"), "asks for the input's size"),
            ),
            Padding::Same => {}
        }
        if let Groups::Count(groups) = self.groups {
            part.require_size("groups", groups);
            if let Some(channels) = self.out_channels
                && groups > 0
                && !channels.is_multiple_of(groups)
            {
                part.sink.push(
                    Diagnostic::error(format!("`groups` must divide `out_channels` in {}", part.what))
                        .at(part.span_of("groups"), format!("{groups} groups"))
                        .context(part.span_of("out_channels"), format!("{channels} channels")),
                );
            }
        }
    }
}
