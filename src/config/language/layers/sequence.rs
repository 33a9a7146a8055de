//! Convolution and pooling of sequences `[N, C, L]`.

use super::conv::has_out_channels;
use crate::config::declare::bounds::MAX_SIZE;
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;
use crate::config::language::lists::Padding1d;
use crate::config::language::values::Groups;
use crate::config::text::diagnostics::Diagnostic;

options! {
    /// A one-dimensional convolution of sequences `[N, C, L]`. `torch.nn.Conv1d`.
    pub struct Conv1d {
        /// Number of output channels. May be left out with `groups = "in_channels"`: then as many as come in.
        #[option(range = 1..=MAX_SIZE, otherwise = "required, unless `groups` is a word", example = "64")]
        pub out_channels: Option<usize>,
        /// Length of the kernel.
        #[option(range = 1..=MAX_SIZE, example = "3")]
        pub kernel_size: usize,
        /// Step between windows.
        #[option(default = 1, range = 1..=MAX_SIZE)]
        pub stride: usize,
        /// Zeros at each end; `"same"` keeps the length (with stride 1), `"valid"` adds none.
        #[option(default = Padding1d::Explicit(0), range = 0..=MAX_SIZE)]
        pub padding: Padding1d,
        /// Distance between the kernel's elements.
        #[option(default = 1, range = 1..=MAX_SIZE)]
        pub dilation: usize,
        /// Number of groups that channels are split into; `"in_channels"` gives each channel its own (depthwise).
        #[option(default = Groups::Count(1), range = 1..=MAX_SIZE)]
        pub groups: Groups,
        /// Learn an additive bias for each channel.
        #[option(default = true)]
        pub bias: bool,
    }

    /// A one-dimensional transposed convolution of sequences `[N, C, L]`, which makes them longer. `torch.nn.ConvTranspose1d`.
    pub struct ConvTranspose1d {
        /// Number of output channels. May be left out with `groups = "in_channels"`: then as many as come in.
        #[option(range = 1..=MAX_SIZE, otherwise = "required, unless `groups` is a word", example = "64")]
        pub out_channels: Option<usize>,
        /// Length of the kernel.
        #[option(range = 1..=MAX_SIZE, example = "2")]
        pub kernel_size: usize,
        /// How many times as long the sequence becomes: the distance in the output between the kernels of neighbours in the input.
        #[option(default = 1, range = 1..=MAX_SIZE)]
        pub stride: usize,
        /// Places that are cut off at each end of the output: the padding of the convolution that this is the reverse of.
        #[option(default = 0, range = 0..=MAX_SIZE)]
        pub padding: usize,
        /// Places more at the end of the output; less than `stride`.
        #[option(default = 0, range = 0..=MAX_SIZE)]
        pub output_padding: usize,
        /// Number of groups that channels are split into; `"in_channels"` gives each channel its own (depthwise).
        #[option(default = Groups::Count(1), range = 1..=MAX_SIZE)]
        pub groups: Groups,
        /// Learn an additive bias for each channel.
        #[option(default = true)]
        pub bias: bool,
        /// Distance between the kernel's elements.
        #[option(default = 1, range = 1..=MAX_SIZE)]
        pub dilation: usize,
    }

    /// Maximum over windows of sequences `[N, C, L]`. `torch.nn.MaxPool1d`.
    pub struct MaxPool1d {
        /// Length of the window.
        #[option(range = 1..=MAX_SIZE, example = "2")]
        pub kernel_size: usize,
        /// Step between windows.
        #[option(otherwise = "`kernel_size`", range = 1..=MAX_SIZE)]
        pub stride: Option<usize>,
        /// Padding at each end, at most half the window; it is never the maximum.
        #[option(default = 0)]
        pub padding: usize,
        /// Distance between the window's elements.
        #[option(default = 1, range = 1..=MAX_SIZE)]
        pub dilation: usize,
        /// Keep a last window that is not full.
        #[option(default = false)]
        pub ceil_mode: bool,
    }

    /// Mean over windows of sequences `[N, C, L]`. `torch.nn.AvgPool1d`.
    pub struct AvgPool1d {
        /// Length of the window.
        #[option(range = 1..=MAX_SIZE, example = "2")]
        pub kernel_size: usize,
        /// Step between windows.
        #[option(otherwise = "`kernel_size`", range = 1..=MAX_SIZE)]
        pub stride: Option<usize>,
        /// Zeros at each end, at most half the window.
        #[option(default = 0)]
        pub padding: usize,
        /// Keep a last window that is not full.
        #[option(default = false)]
        pub ceil_mode: bool,
        /// Count the padding when the mean is taken.
        #[option(default = true)]
        pub count_include_pad: bool,
    }

    /// Mean over as many windows of sequences `[N, C, L]` as the output is long. `torch.nn.AdaptiveAvgPool1d`.
    pub struct AdaptiveAvgPool1d {
        /// Length of the output.
        #[option(range = 1..=MAX_SIZE, example = "1")]
        pub output_size: usize,
    }
}

impl Check for Conv1d {
    fn check(&self, part: &Part) {
        has_out_channels(part, self.out_channels, self.groups);
        if self.padding == Padding1d::Same && self.stride != 1 {
            part.sink.push(
                Diagnostic::error(format!("`padding = \"same\"` in {} needs a stride of 1", part.what))
                    .at(part.span_of("stride"), "the output is shorter than the input")
                    .context(part.span_of("padding"), "asks for the input's length"),
            );
        }
    }
}

impl Check for ConvTranspose1d {
    fn check(&self, part: &Part) {
        has_out_channels(part, self.out_channels, self.groups);
        part.require("output_padding", self.output_padding < self.stride, "must be less than `stride`");
    }
}

impl Check for MaxPool1d {
    fn check(&self, part: &Part) {
        part.require("padding", self.padding <= self.kernel_size / 2, "must be at most half of `kernel_size`");
    }
}

impl Check for AvgPool1d {
    fn check(&self, part: &Part) {
        part.require("padding", self.padding <= self.kernel_size / 2, "must be at most half of `kernel_size`");
    }
}

impl Check for AdaptiveAvgPool1d {}
