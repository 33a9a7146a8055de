//! Layers with weights.

use crate::config::declare::bounds::MAX_SIZE;
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;
use crate::config::language::values::{Groups, Padding, Pair};
use crate::config::text::diagnostics::Diagnostic;

options! {
    /// A matrix product with a learned matrix over the last dimension, and a bias. Images must be flattened first, or permuted to `[0, 2, 3, 1]`.
    /// `torch.nn.Linear`.
    pub struct Linear {
        /// Number of outputs. The number of inputs is inferred.
        #[option(range = 1..=MAX_SIZE, example = "10")]
        pub out_features: usize,
        /// Learn an additive bias.
        #[option(default = true)]
        pub bias: bool,
        /// The matrix is `[inputs, outputs]` in state dicts, as that of `Conv1D` in GPT-2's.
        #[option(default = false)]
        pub transposed: bool,
        /// Take a parameter of an earlier layer as the matrix, by its name, `[outputs, inputs]`: `"wte.weight"` lets a language model use its embedding for
        /// its outputs, too. Its gradient is the sum of both. `""` is none.
        #[option(otherwise = "a matrix of its own", example = r#""wte.weight""#)]
        pub tie: Option<String>,
    }

    /// A learned vector for each token: tokens `[N, L]` become `[N, L, embedding_dim]`. `torch.nn.Embedding`.
    pub struct Embedding {
        /// How many tokens there are.
        #[option(range = 1..=MAX_SIZE, example = "50257")]
        pub num_embeddings: usize,
        /// Numbers of a vector.
        #[option(range = 1..=MAX_SIZE, example = "128")]
        pub embedding_dim: usize,
        /// A token whose vector starts with zeros and is not learnt.
        #[option(range = 0..=MAX_SIZE)]
        pub padding_idx: Option<usize>,
    }

    /// A two-dimensional convolution. `torch.nn.Conv2d`.
    #[schema(
        // `groups` may be an expression.
        "anyOf": [{ "required": ["out_channels"] }, { "required": ["groups"], "properties": { "groups": { "type": "string" } } }],
        "not": {
            "required": ["padding", "stride"],
            "properties": {
                "padding": { "const": "same" },
                "stride": { "anyOf": [{ "type": "integer", "minimum": 2 }, { "type": "array", "contains": { "type": "integer", "minimum": 2 } }] },
            },
        },
    )]
    pub struct Conv2d {
        /// Number of output channels. May be left out with `groups = "in_channels"`: then as many as come in.
        #[option(range = 1..=MAX_SIZE, otherwise = "required, unless `groups` is a word", example = "64")]
        pub out_channels: Option<usize>,
        /// Side of the kernel, or `[height, width]`.
        #[option(range = 1..=MAX_SIZE, example = "3")]
        pub kernel_size: Pair,
        /// Step between windows.
        #[option(default = Pair::one(), range = 1..=MAX_SIZE)]
        pub stride: Pair,
        /// Zeros on each side of the image; `"same"` keeps the image's size (with stride 1), `"valid"` adds none.
        #[option(default = Padding::default(), range = 0..=MAX_SIZE)]
        pub padding: Padding,
        /// Distance between the kernel's elements.
        #[option(default = Pair::one(), range = 1..=MAX_SIZE)]
        pub dilation: Pair,
        /// Number of groups that channels are split into; `"in_channels"` gives each channel its own (depthwise).
        #[option(default = Groups::Count(1), range = 1..=MAX_SIZE)]
        pub groups: Groups,
        /// Learn an additive bias for each channel.
        #[option(default = true)]
        pub bias: bool,
    }

    /// A two-dimensional transposed convolution, which makes images larger: the gradient of a convolution by its input.
    /// `torch.nn.ConvTranspose2d`.
    pub struct ConvTranspose2d {
        /// Number of output channels. May be left out with `groups = "in_channels"`: then as many as come in.
        #[option(range = 1..=MAX_SIZE, otherwise = "required, unless `groups` is a word", example = "64")]
        pub out_channels: Option<usize>,
        /// Side of the kernel, or `[height, width]`.
        #[option(range = 1..=MAX_SIZE, example = "2")]
        pub kernel_size: Pair,
        /// How many times as large the image becomes: the distance in the output between the kernels of neighbours in the input.
        #[option(default = Pair::one(), range = 1..=MAX_SIZE)]
        pub stride: Pair,
        /// Pixels that are cut off on each side of the output: the padding of the convolution that this is the reverse of.
        #[option(default = Pair([0, 0]), range = 0..=MAX_SIZE)]
        pub padding: Pair,
        /// Pixels more at the bottom and at the right of the output; less than `stride`.
        #[option(default = Pair([0, 0]), range = 0..=MAX_SIZE)]
        pub output_padding: Pair,
        /// Number of groups that channels are split into; `"in_channels"` gives each channel its own (depthwise).
        #[option(default = Groups::Count(1), range = 1..=MAX_SIZE)]
        pub groups: Groups,
        /// Learn an additive bias for each channel.
        #[option(default = true)]
        pub bias: bool,
        /// Distance between the kernel's elements.
        #[option(default = Pair::one(), range = 1..=MAX_SIZE)]
        pub dilation: Pair,
    }
}

impl Linear {
    /// The name of the parameter that it takes as its matrix, if it has none of its own.
    pub fn tied(&self) -> Option<&str> {
        self.tie.as_deref().filter(|name| !name.is_empty())
    }
}

impl Check for Linear {
    fn check(&self, part: &Part) {
        part.require(
            "transposed",
            !self.transposed || self.tied().is_none(),
            "must be left out with `tie`: the matrix is the other layer's",
        );
    }
}

impl Check for Embedding {
    fn check(&self, part: &Part) {
        let fits = self.padding_idx.is_none_or(|padding| padding < self.num_embeddings);
        part.require("padding_idx", fits, "must be below `num_embeddings`");
    }
}

impl Check for ConvTranspose2d {
    fn check(&self, part: &Part) {
        has_out_channels(part, self.out_channels, self.groups);
        let less = (0..2).all(|i| self.output_padding.0[i] < self.stride.0[i]);
        part.require("output_padding", less, "must be less than `stride`");
    }
}

/// Reports a layer that does not say how many channels it puts out.
pub(super) fn has_out_channels(part: &Part, out_channels: Option<usize>, groups: Groups) {
    if out_channels.is_none() && groups != Groups::InChannels {
        part.sink.push(
            Diagnostic::error(format!("{} needs `out_channels`", part.what))
                .at(part.span, "`out_channels` is missing")
                .help("it may be left out only with `groups = \"in_channels\"`"),
        );
    }
}

impl Check for Conv2d {
    fn check(&self, part: &Part) {
        has_out_channels(part, self.out_channels, self.groups);
        if self.padding == Padding::Same && self.stride != Pair::one() {
            part.sink.push(
                Diagnostic::error(format!("`padding = \"same\"` in {} needs a stride of 1", part.what))
                    .at(part.span_of("stride"), "the output is smaller than the input")
                    .context(part.span_of("padding"), "asks for the input's size"),
            );
        }
        if let (Groups::Count(groups), Some(channels)) = (self.groups, self.out_channels)
            && groups > 0
            && !channels.is_multiple_of(groups)
        {
            part.sink.push(
                Diagnostic::error(format!("`groups` must divide `out_channels` in {}", part.what))
                    .at(part.span_of("groups"), format!("{groups} groups"))
                    .context(
                        part.span_of("out_channels"),
                        format!("{channels} channel{}", if channels == 1 { "" } else { "s" }),
                    ),
            );
        }
    }
}
