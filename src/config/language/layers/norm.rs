//! Normalisation.

use crate::config::declare::bounds::{MAX_SIZE, above};
use crate::config::declare::options::{Check, options};
use crate::config::language::values::Momentum;

options! {
    /// Batch normalisation of `[N, C]` or `[N, C, L]`. `torch.nn.BatchNorm1d`.
    pub struct BatchNorm1d {
        /// Added to the variance.
        #[option(default = 1e-5, range = above(0.0))]
        pub eps: f64,
        /// Share of the newest batch in the running statistics; `"cumulative"` averages all batches alike, as PyTorch's
        /// `momentum=None`.
        #[option(default = Momentum::Share(0.1), range = 0.0..=1.0)]
        pub momentum: Momentum,
        /// Learn a scale and a shift for each channel.
        #[option(default = true)]
        pub affine: bool,
        /// Keep running statistics for evaluation; without, the batch's own are used there too.
        #[option(default = true)]
        pub track_running_stats: bool,
    }

    /// Batch normalisation of images. `torch.nn.BatchNorm2d`.
    pub struct BatchNorm2d {
        /// Added to the variance.
        #[option(default = 1e-5, range = above(0.0))]
        pub eps: f64,
        /// Share of the newest batch in the running statistics; `"cumulative"` averages all batches alike, as PyTorch's
        /// `momentum=None`.
        #[option(default = Momentum::Share(0.1), range = 0.0..=1.0)]
        pub momentum: Momentum,
        /// Learn a scale and a shift for each channel.
        #[option(default = true)]
        pub affine: bool,
        /// Keep running statistics for evaluation; without, the batch's own are used there too.
        #[option(default = true)]
        pub track_running_stats: bool,
    }

    /// Normalisation over groups of channels of each sample. `torch.nn.GroupNorm`.
    pub struct GroupNorm {
        /// Number of groups; must divide the number of channels.
        #[option(range = 1..=MAX_SIZE, example = "8")]
        pub num_groups: usize,
        /// Added to the variance.
        #[option(default = 1e-5, range = above(0.0))]
        pub eps: f64,
        /// Learn a scale and a shift for each channel.
        #[option(default = true)]
        pub affine: bool,
    }

    /// Normalisation over the last dimensions of each sample. `torch.nn.LayerNorm`.
    pub struct LayerNorm {
        /// How *many* of the last dimensions, in PyTorch's order (an image is `[N, C, H, W]`), are normalised together, instead of
        /// `normalized_shape`. On images 1 is the width; 3 is all of a sample.
        #[option(default = 1, range = 1..=8, unit = "dimensions")]
        pub normalized_dims: usize,
        /// Added to the variance.
        #[option(default = 1e-5, range = above(0.0))]
        pub eps: f64,
        /// Learn a scale and a shift for each element.
        #[option(default = true)]
        pub elementwise_affine: bool,
        /// Learn the shift too; only with `elementwise_affine`.
        #[option(default = true)]
        pub bias: bool,
    }

    /// Division by the root mean square over the last dimensions of each sample. `torch.nn.RMSNorm`.
    pub struct RmsNorm {
        /// How *many* of the last dimensions, in PyTorch's order, are normalised together, instead of `normalized_shape`.
        #[option(default = 1, range = 1..=8, unit = "dimensions")]
        pub normalized_dims: usize,
        /// Added to the mean square; PyTorch's `eps=None` is that of single precision.
        #[option(default = f64::from(f32::EPSILON), range = above(0.0))]
        pub eps: f64,
        /// Learn a scale for each element.
        #[option(default = true)]
        pub elementwise_affine: bool,
    }

    /// Division by a power of the mean square of neighbouring channels: `x / (k + alpha · mean)^beta`. `torch.nn.LocalResponseNorm`.
    pub struct LocalResponseNorm {
        /// Number of channels that the mean is taken of, the channel itself among them; beyond the first and the last there are zeros.
        #[option(range = 1..=1024, example = "5")]
        pub size: usize,
        /// Factor of the mean.
        #[option(default = 1e-4)]
        pub alpha: f64,
        /// Exponent.
        #[option(default = 0.75)]
        pub beta: f64,
        /// Added to the mean.
        #[option(default = 1.0)]
        pub k: f64,
    }

    /// Normalisation of each channel of each image by itself. `torch.nn.InstanceNorm2d`.
    pub struct InstanceNorm2d {
        /// Added to the variance.
        #[option(default = 1e-5, range = above(0.0))]
        pub eps: f64,
        /// Learn a scale and a shift for each channel.
        #[option(default = false)]
        pub affine: bool,
    }
}

impl Check for RmsNorm {}

impl Check for LocalResponseNorm {}

impl Check for InstanceNorm2d {}

impl Check for BatchNorm1d {}

impl Check for BatchNorm2d {}

impl Check for GroupNorm {}

impl Check for LayerNorm {}
