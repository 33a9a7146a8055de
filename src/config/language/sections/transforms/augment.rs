//! Changes of many kinds at random, and samples that are mixed.

use super::values::{DrawnFrom, Interpolation, MAX_BYTE, Policy, Shear};
use crate::config::declare::bounds::above;
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;

/// Most changes of one image.
const MAX_OPS: usize = 64;

/// Most strengths that there may be.
const MAX_BINS: usize = 1 << 16;

options! {
    /// Turned, moved, resized and sheared at random, in the same size. `torchvision.transforms.RandomAffine`.
    pub struct RandomAffine {
        /// The least and the largest angle; one number goes in both directions.
        #[option(range = -360.0..=360.0, example = "15")]
        pub degrees: DrawnFrom,
        /// The largest shares of width and of height that it is moved by, in both directions.
        #[option(otherwise = "not moved", range = 0.0..=1.0)]
        pub translate: Option<[f64; 2]>,
        /// The least and the largest factor of its size.
        #[option(otherwise = "1", range = above(0.0))]
        pub scale: Option<[f64; 2]>,
        /// The least and the largest angle along x, or the same along x and then along y; one number goes in both directions along x.
        #[option(otherwise = "not sheared", range = -89.0..=89.0)]
        pub shear: Option<Shear>,
        /// How pixels are made of those around.
        #[option(default = Interpolation::Nearest)]
        pub interpolation: Interpolation,
        /// Value of the pixels where the image does not reach.
        #[option(default = 0, range = 0..=MAX_BYTE)]
        pub fill: usize,
    }

    /// Dark becomes bright, at random. `torchvision.transforms.RandomInvert`.
    pub struct RandomInvert {
        /// Probability.
        #[option(default = 0.5, range = 0.0..=1.0)]
        pub p: f64,
    }

    /// Fewer shades, at random. `torchvision.transforms.RandomPosterize`.
    pub struct RandomPosterize {
        /// Bits that are kept of each channel.
        #[option(range = 1..=8, example = "4")]
        pub bits: usize,
        /// Probability.
        #[option(default = 0.5, range = 0.0..=1.0)]
        pub p: f64,
    }

    /// Bright values inverted, at random. `torchvision.transforms.RandomSolarize`.
    pub struct RandomSolarize {
        /// The least value that is inverted, from 0 to 255.
        #[option(range = 0.0..=256.0, example = "128")]
        pub threshold: f64,
        /// Probability.
        #[option(default = 0.5, range = 0.0..=1.0)]
        pub p: f64,
    }

    /// Sharper or softer, at random. `torchvision.transforms.RandomAdjustSharpness`.
    pub struct RandomAdjustSharpness {
        /// 0 is smoothed, 1 the image as it is, 2 sharper by as much.
        #[option(range = 0.0.., example = "2")]
        pub sharpness_factor: f64,
        /// Probability.
        #[option(default = 0.5, range = 0.0..=1.0)]
        pub p: f64,
    }

    /// Each channel stretched over all values, at random. `torchvision.transforms.RandomAutocontrast`.
    pub struct RandomAutocontrast {
        /// Probability.
        #[option(default = 0.5, range = 0.0..=1.0)]
        pub p: f64,
    }

    /// The histogram of each channel made even, at random. `torchvision.transforms.RandomEqualize`.
    pub struct RandomEqualize {
        /// Probability.
        #[option(default = 0.5, range = 0.0..=1.0)]
        pub p: f64,
    }

    /// Some changes of fourteen kinds (shear, rotation, contrast, …), one after the other, all of one strength.
    /// `torchvision.transforms.RandAugment`. All grow with the strength, as timm's do with `inc1`.
    pub struct RandAugment {
        /// How many.
        #[option(default = 2, range = 1..=MAX_OPS)]
        pub num_ops: usize,
        /// Their strength, of so many.
        #[option(default = 9, range = 0..MAX_BINS)]
        pub magnitude: usize,
        /// Draws the strength of each change from a normal distribution around `magnitude` with this standard deviation, within those that
        /// there are. `mstd` of `timm`.
        #[option(default = 0.0, range = 0.0..=MAX_BINS as f64)]
        pub magnitude_std: f64,
        /// Number of strengths: `magnitude` is less.
        #[option(default = 31, range = 2..=MAX_BINS)]
        pub num_magnitude_bins: usize,
        /// How pixels are made of those around.
        #[option(default = Interpolation::Nearest)]
        pub interpolation: Interpolation,
        /// Value of the pixels where the image does not reach.
        #[option(default = 0, range = 0..=MAX_BYTE)]
        pub fill: usize,
    }

    /// One change of the same kinds, of any strength. `torchvision.transforms.TrivialAugmentWide`.
    pub struct TrivialAugmentWide {
        /// Number of strengths.
        #[option(default = 31, range = 2..=MAX_BINS)]
        pub num_magnitude_bins: usize,
        /// How pixels are made of those around.
        #[option(default = Interpolation::Nearest)]
        pub interpolation: Interpolation,
        /// Value of the pixels where the image does not reach.
        #[option(default = 0, range = 0..=MAX_BYTE)]
        pub fill: usize,
    }

    /// One of 25 pairs of changes that were found for a data set. `torchvision.transforms.AutoAugment`.
    pub struct AutoAugment {
        /// The data set.
        #[option(default = Policy::Imagenet)]
        pub policy: Policy,
        /// How pixels are made of those around.
        #[option(default = Interpolation::Nearest)]
        pub interpolation: Interpolation,
        /// Value of the pixels where the image does not reach.
        #[option(default = 0, range = 0..=MAX_BYTE)]
        pub fill: usize,
    }

    /// Each sample becomes a weighted mean with another of its batch, targets included, after all other transforms (Zhang et al. 2018).
    /// `torchvision.transforms.v2.MixUp`.
    pub struct Mixup {
        /// The weight is drawn from the beta distribution with twice this parameter: near 0 or 1 where it is small.
        #[option(default = 1.0, range = above(0.0))]
        pub alpha: f64,
        /// Probability that a batch is mixed.
        #[option(default = 1.0, range = 0.0..=1.0)]
        pub p: f64,
        /// The last epoch that has it.
        #[option(otherwise = "the last one", range = 1..)]
        pub off_after_epoch: Option<usize>,
    }

    /// A rectangle of each image is that of another of its batch, and so are targets in part, after all other transforms (Yun et al. 2019).
    /// `torchvision.transforms.v2.CutMix`.
    pub struct Cutmix {
        /// The share of the area that stays is drawn from the beta distribution with twice this parameter.
        #[option(default = 1.0, range = above(0.0))]
        pub alpha: f64,
        /// Probability that a batch is mixed.
        #[option(default = 1.0, range = 0.0..=1.0)]
        pub p: f64,
        /// The last epoch that has it.
        #[option(otherwise = "the last one", range = 1..)]
        pub off_after_epoch: Option<usize>,
        /// Where `mixup` is in the list, too: the probability that a batch gets this instead.
        #[option(default = 0.5, range = 0.0..=1.0)]
        pub switch_prob: f64,
    }
}

impl Check for RandomAffine {
    fn check(&self, part: &Part) {
        part.require_distance("degrees", self.degrees);
        part.require_range("degrees", self.degrees.range());
        if let Some(scale) = self.scale {
            part.require_range("scale", scale);
        }
        match self.shear {
            Some(Shear::X(x)) => {
                part.require_distance("shear", x);
                part.require_range("shear", x.range());
            }
            Some(Shear::Both([a, b, c, d])) => {
                part.require("shear", a <= b && c <= d, "must be the least and the largest along x, then along y");
            }
            None => {}
        }
    }
}

impl Check for RandAugment {
    fn check(&self, part: &Part) {
        part.require("magnitude", self.magnitude < self.num_magnitude_bins, "must be less than `num_magnitude_bins`");
    }
}

impl Check for RandomInvert {}

impl Check for RandomPosterize {}

impl Check for RandomSolarize {}

impl Check for RandomAdjustSharpness {}

impl Check for RandomAutocontrast {}

impl Check for RandomEqualize {}

impl Check for TrivialAugmentWide {}

impl Check for AutoAugment {}

impl Check for Mixup {}

impl Check for Cutmix {}
