//! Transforms of one image after the other.

use schemars::{Schema, SchemaGenerator, json_schema};

use super::values::{DrawnFrom, Interpolation, MAX_BYTE, ResizedTo};
use crate::config::declare::bounds::{MAX_SIZE, above};
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;
use crate::config::declare::value::Value;
use crate::config::language::values::Pair;
use crate::config::text::diagnostics::Diagnostic;
use crate::config::text::tree::Node;

/// The means and standard deviations of the channels of ImageNet, which `"imagenet"` stands for.
const IMAGENET: [[f64; 3]; 2] = [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]];

/// The largest side of a kernel.
const MAX_KERNEL: usize = 255;

/// A list of numbers, or those of ImageNet.
fn channels(part: &Part, key: &str, node: &Node, imagenet: [f64; 3]) -> Option<Vec<f64>> {
    match (node.as_str(), node.as_array()) {
        (Some("imagenet"), _) => Some(imagenet.to_vec()),
        (_, Some(_)) => Vec::read(part, key, node),
        _ => {
            part.wrong_value(key, node, "expected a list of numbers or \"imagenet\"");
            None
        }
    }
}

fn means(part: &Part, key: &str, node: &Node) -> Option<Vec<f64>> {
    channels(part, key, node, IMAGENET[0])
}

fn deviations(part: &Part, key: &str, node: &Node) -> Option<Vec<f64>> {
    channels(part, key, node, IMAGENET[1])
}

fn channels_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "type": "array", "items": { "type": "number" } }, { "const": "imagenet" }] })
}
options! {
    /// `(x − mean) / std` for each channel, `x` from 0 to 1. `torchvision.transforms.Normalize`.
    pub struct Normalize {
        /// One number for each channel, or one for all; `"imagenet"`: `[0.485, 0.456, 0.406]`.
        #[option(length = 1.., example = "[0.5]", read_by = means, schema_by = channels_schema)]
        pub mean: Vec<f64>,
        /// One number for each channel, or one for all; `"imagenet"`: `[0.229, 0.224, 0.225]`.
        #[option(length = 1.., range = above(0.0), example = "[0.5]", read_by = deviations, schema_by = channels_schema)]
        pub std: Vec<f64>,
    }

    /// The image in another size. `torchvision.transforms.Resize`.
    pub struct Resize {
        /// Length of the shorter side, the other one in proportion; or `[height, width]`.
        #[option(range = 1..=MAX_SIZE, example = "256")]
        pub size: ResizedTo,
        /// How pixels are made of those around.
        #[option(default = Interpolation::Bilinear)]
        pub interpolation: Interpolation,
        /// Where the image becomes smaller, take the mean over as many more pixels. Without, some are left out.
        #[option(default = true)]
        pub antialias: bool,
    }

    /// The window in the middle. Pixels beyond the image are black. `torchvision.transforms.CenterCrop`.
    pub struct CenterCrop {
        /// Side of the window, or `[height, width]`.
        #[option(range = 1..=MAX_SIZE, example = "224")]
        pub size: Pair,
    }

    /// Shades of grey. `torchvision.transforms.Grayscale`.
    pub struct Grayscale {
        /// 1, or 3 with the same values.
        #[option(default = 1, one_of = &[1, 3])]
        pub num_output_channels: usize,
    }

    /// A random window of the padded image. `torchvision.transforms.RandomCrop`.
    pub struct RandomCrop {
        /// Side of the window, or `[height, width]`.
        #[option(range = 1..=MAX_SIZE, example = "32")]
        pub size: Pair,
        /// Black pixels added on each side first, or `[height, width]`.
        #[option(default = Pair([0, 0]), range = 0..=MAX_SIZE)]
        pub padding: Pair,
    }

    /// A window of random area and shape, resized. `torchvision.transforms.RandomResizedCrop`.
    pub struct RandomResizedCrop {
        /// Side of the result, or `[height, width]`.
        #[option(range = 1..=MAX_SIZE, example = "224")]
        pub size: Pair,
        /// The least and the largest share of the image's area.
        #[option(default = [0.08, 1.0], range = 0.0..=1.0)]
        pub scale: [f64; 2],
        /// The least and the largest ratio of the window's width to its height.
        #[option(default = [3.0 / 4.0, 4.0 / 3.0], range = above(0.0))]
        pub ratio: [f64; 2],
        /// How pixels are made of those around.
        #[option(default = Interpolation::Bilinear)]
        pub interpolation: Interpolation,
        /// Where the window becomes smaller, take the mean over as many more pixels. Without, some are left out.
        #[option(default = true)]
        pub antialias: bool,
    }

    /// Left and right swapped, at random. `torchvision.transforms.RandomHorizontalFlip`.
    pub struct RandomHorizontalFlip {
        /// Probability.
        #[option(default = 0.5, range = 0.0..=1.0)]
        pub p: f64,
    }

    /// Top and bottom swapped, at random. `torchvision.transforms.RandomVerticalFlip`.
    pub struct RandomVerticalFlip {
        /// Probability.
        #[option(default = 0.5, range = 0.0..=1.0)]
        pub p: f64,
    }

    /// Turned about the middle by a random angle, in the same size. `torchvision.transforms.RandomRotation`.
    pub struct RandomRotation {
        /// The least and the largest angle, against the clock; one number goes in both directions.
        #[option(range = -360.0..=360.0, example = "15")]
        pub degrees: DrawnFrom,
        /// How pixels are made of those around.
        #[option(default = Interpolation::Nearest)]
        pub interpolation: Interpolation,
        /// Value of the pixels where the turned image does not reach.
        #[option(default = 0, range = 0..=MAX_BYTE)]
        pub fill: usize,
    }

    /// Brightness, contrast, saturation and hue changed at random, in a random order. `torchvision.transforms.ColorJitter`.
    pub struct ColorJitter {
        /// The least and the largest factor; one number is how far it is from 1. At 0 the image is black.
        #[option(otherwise = "as it is", range = 0.0..)]
        pub brightness: Option<DrawnFrom>,
        /// The same of the contrast. At 0 the image has one shade of grey.
        #[option(otherwise = "as it is", range = 0.0..)]
        pub contrast: Option<DrawnFrom>,
        /// The same of the saturation. At 0 the image has shades of grey.
        #[option(otherwise = "as it is", range = 0.0..)]
        pub saturation: Option<DrawnFrom>,
        /// By which share of the circle of colours the hue turns at least and at most; one number goes in both directions.
        #[option(otherwise = "as it is", range = -0.5..=0.5)]
        pub hue: Option<DrawnFrom>,
    }

    /// Shades of grey in as many channels as before, at random. `torchvision.transforms.RandomGrayscale`.
    pub struct RandomGrayscale {
        /// Probability.
        #[option(default = 0.1, range = 0.0..=1.0)]
        pub p: f64,
    }

    /// Blurred by a random width. `torchvision.transforms.GaussianBlur`.
    pub struct GaussianBlur {
        /// Height and width of the kernel, an odd number.
        #[option(range = 1..=MAX_KERNEL, example = "5")]
        pub kernel_size: usize,
        /// The least and the largest standard deviation in pixels, or the only one.
        #[option(default = DrawnFrom::Range([0.1, 2.0]), range = above(0.0))]
        pub sigma: DrawnFrom,
    }

    /// A rectangle of one value, at random. `torchvision.transforms.RandomErasing`, but of pixels from 0 to 255: it comes before
    /// the normalisation.
    pub struct RandomErasing {
        /// Probability.
        #[option(default = 0.5, range = 0.0..=1.0)]
        pub p: f64,
        /// The least and the largest share of the image's area.
        #[option(default = [0.02, 0.33], range = 0.0..=1.0)]
        pub scale: [f64; 2],
        /// The least and the largest ratio of the rectangle's height to its width.
        #[option(default = [0.3, 3.3], range = above(0.0))]
        pub ratio: [f64; 2],
        /// Value of the pixels in it.
        #[option(default = 0, range = 0..=MAX_BYTE)]
        pub value: usize,
    }
}
impl Check for Normalize {
    fn check(&self, part: &Part) {
        if self.mean.len() != self.std.len() && self.mean.len() > 1 && self.std.len() > 1 {
            part.sink.push(
                Diagnostic::error(format!("`mean` and `std` in {} have different lengths", part.what))
                    .at(part.span_of("std"), format!("{} numbers", self.std.len()))
                    .context(part.span_of("mean"), format!("{} numbers", self.mean.len())),
            );
        }
    }
}

impl Check for Resize {}

impl Check for CenterCrop {}

impl Check for Grayscale {}

impl Check for RandomCrop {}

impl Check for RandomResizedCrop {
    fn check(&self, part: &Part) {
        part.require_range("scale", self.scale);
        part.require_range("ratio", self.ratio);
    }
}

impl Check for RandomHorizontalFlip {}

impl Check for RandomVerticalFlip {}

impl Check for RandomRotation {
    fn check(&self, part: &Part) {
        part.require_distance("degrees", self.degrees);
        part.require_range("degrees", self.degrees.range());
    }
}

impl Check for ColorJitter {
    fn check(&self, part: &Part) {
        let all = [self.brightness, self.contrast, self.saturation, self.hue];
        for (key, from) in <Self as crate::config::declare::options::Options>::KEYS.iter().zip(all) {
            let Some(from) = from else { continue };
            part.require_range(key, from.range());
            if *key == "hue" {
                part.require_distance(key, from);
            }
        }
    }
}

impl Check for RandomGrayscale {}

impl Check for GaussianBlur {
    fn check(&self, part: &Part) {
        part.require("kernel_size", self.kernel_size % 2 == 1, "must be odd, so that there is a middle");
        part.require_range("sigma", self.sigma.range());
    }
}

impl Check for RandomErasing {
    fn check(&self, part: &Part) {
        part.require_range("scale", self.scale);
        part.require_range("ratio", self.ratio);
    }
}
