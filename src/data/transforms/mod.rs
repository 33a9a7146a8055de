//! Changes to images, as in torchvision. Those that only move pixels by whole places fold into one map from places in the result
//! to places in the sample, so that a list of them costs one copy. All others make a new image of bytes, one after the other.

mod affine;
mod augment;
mod blur;
mod color;
mod image;
mod mask;
mod memory;
mod moves;
mod operation;
mod policies;
mod resize;
mod source;
#[cfg(test)]
mod tests;
mod tones;
mod windows;

pub use self::image::Image;
pub(in crate::data) use self::image::Window;
pub use augment::{Augment, Changes as AugmentChanges};
pub use color::ColorJitter;
pub(super) use mask::transform_mask;
pub use memory::bytes_per_pixel;
pub use operation::Operation;
pub use policies::Policy;
pub use resize::Interpolation;
pub(super) use source::{ImageSource, transform_source};

use crate::graph::{MAX_ELEMENTS, Shape};
use crate::random::Stream;
use affine::Affine;
use anyhow::{Result, bail, ensure};
use moves::Moves;

/// One change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Transform {
    /// torchvision's `Resize`.
    Resize {
        /// What becomes of height and width.
        size: Size,
        /// How.
        interpolation: Interpolation,
        /// Whether the filter is wider where the image becomes smaller.
        antialias: bool,
    },
    /// torchvision's `CenterCrop`: the window in the middle, with zeros around an image that is smaller.
    CenterCrop {
        /// Height and width of the window.
        size: [usize; 2],
    },
    /// torchvision's `RandomCrop`: a border of zeros around the image, then a window at random. Around an image that is still
    /// smaller there is a wider border, as with `pad_if_needed`.
    RandomCrop {
        /// Height and width of the window.
        size: [usize; 2],
        /// Border: left, top, right, bottom.
        padding: [usize; 4],
    },
    /// torchvision's `RandomResizedCrop`: a window of random area and shape, resized.
    RandomResizedCrop {
        /// Height and width of the result.
        size: [usize; 2],
        /// The least and the largest share of the image's area.
        scale: [f64; 2],
        /// The least and the largest ratio of width to height.
        ratio: [f64; 2],
        /// How it is resized.
        interpolation: Interpolation,
        /// Whether the filter is wider where the window becomes smaller.
        antialias: bool,
    },
    /// torchvision's `RandomHorizontalFlip`: mirrored with probability `p`.
    RandomHorizontalFlip {
        /// The probability.
        p: f64,
    },
    /// torchvision's `RandomVerticalFlip`: upside down with probability `p`.
    RandomVerticalFlip {
        /// The probability.
        p: f64,
    },
    /// torchvision's `RandomRotation`, about the middle and without `expand`.
    RandomRotation {
        /// The least and the largest angle, against the clock.
        degrees: [f64; 2],
        /// How pixels are made.
        interpolation: Interpolation,
        /// The value of all channels where the image does not reach.
        fill: u8,
    },
    /// torchvision's `Grayscale`.
    Grayscale {
        /// 1, or 3 of the same values.
        channels: usize,
    },
    /// torchvision's `RandomGrayscale`: grey, in as many channels as before, with probability `p`.
    RandomGrayscale {
        /// The probability.
        p: f64,
    },
    /// torchvision's `ColorJitter`.
    ColorJitter(ColorJitter),
    /// torchvision's `GaussianBlur`.
    GaussianBlur {
        /// Height and width of the kernel, an odd number.
        kernel_size: usize,
        /// The least and the largest standard deviation.
        sigma: [f64; 2],
    },
    /// torchvision's `RandomAffine`, about the middle.
    RandomAffine {
        /// The least and the largest angle, with the clock.
        degrees: [f64; 2],
        /// The largest shares of width and height that it is moved by.
        translate: [f64; 2],
        /// The least and the largest factor.
        scale: [f64; 2],
        /// The least and the largest angle along x, and along y.
        shear: [[f64; 2]; 2],
        /// How pixels are made.
        interpolation: Interpolation,
        /// The value of all channels where the image does not reach.
        fill: u8,
    },
    /// One of torchvision's transforms that do a thing or do not: `RandomInvert`, `RandomPosterize` and others.
    Random {
        /// What is done: a change of values.
        operation: Operation,
        /// How strongly, as [`Operation`] takes it.
        magnitude: f64,
        /// The probability.
        p: f64,
    },
    /// torchvision's `RandAugment`, `TrivialAugmentWide` or `AutoAugment`.
    Augment(Augment),
    /// torchvision's `RandomErasing`, of bytes.
    RandomErasing {
        /// The probability.
        p: f64,
        /// The least and the largest share of the image's area.
        scale: [f64; 2],
        /// The least and the largest ratio of height to width.
        ratio: [f64; 2],
        /// The value of all channels in the rectangle.
        value: u8,
    },
}

/// What becomes of height and width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// The shorter side is that long; the ratio of the sides stays.
    Shorter(usize),
    /// Height and width.
    Both([usize; 2]),
}

impl Size {
    /// Height and width of what an image of `sides` becomes.
    fn of(self, sides: [usize; 2]) -> [usize; 2] {
        match self {
            Size::Both(sides) => sides,
            Size::Shorter(side) => {
                let shorter = sides[0].min(sides[1]);
                // The shorter one itself comes out as `side`.
                sides.map(|one| (side as u128 * one as u128 / shorter as u128) as usize)
            }
        }
    }
}

/// No side may be longer than this, so that no sum overflows.
const MAX_SIDE: usize = 1 << 24;

/// Shape of a sample `[H, W, C]` after `transforms`. `[0, 0, C]` are images each of a size of its own.
///
/// # Errors
/// The samples are no images, a transform does not fit them or makes no sense, or images of any size stay of any size.
pub fn output_shape(transforms: &[Transform], input: &Shape) -> Result<Shape> {
    let mut shape = input.clone();
    for transform in transforms {
        shape = transform.output_shape(&shape)?;
    }
    if let &[0, 0, _] = shape.dims() {
        let shorter = transforms.iter().any(|t| matches!(t, Transform::Resize { .. }));
        let (why, example) = match shorter {
            true => {
                ("`resize` with one number keeps the ratio of the sides", r#"{ type = "center_crop", size = 224 }"#)
            }
            false => ("every image has a size of its own", r#"{ type = "resize", size = [224, 224] }"#),
        };
        bail!(
            "the images of a batch must have one size: {why}, so add a transform that fixes it, for example `{example}`"
        );
    }
    Ok(shape)
}

impl Transform {
    /// Its name in a configuration.
    pub fn name(&self) -> &'static str {
        match self {
            Transform::Resize { .. } => "resize",
            Transform::CenterCrop { .. } => "center_crop",
            Transform::RandomCrop { .. } => "random_crop",
            Transform::RandomResizedCrop { .. } => "random_resized_crop",
            Transform::RandomHorizontalFlip { .. } => "random_horizontal_flip",
            Transform::RandomVerticalFlip { .. } => "random_vertical_flip",
            Transform::RandomRotation { .. } => "random_rotation",
            Transform::Grayscale { .. } => "grayscale",
            Transform::RandomGrayscale { .. } => "random_grayscale",
            Transform::ColorJitter(_) => "color_jitter",
            Transform::GaussianBlur { .. } => "gaussian_blur",
            Transform::RandomErasing { .. } => "random_erasing",
            Transform::RandomAffine { .. } => "random_affine",
            Transform::Random { operation, .. } => match operation {
                Operation::Invert => "random_invert",
                Operation::Posterize => "random_posterize",
                Operation::Solarize => "random_solarize",
                Operation::Sharpness => "random_adjust_sharpness",
                Operation::AutoContrast => "random_autocontrast",
                _ => "random_equalize",
            },
            Transform::Augment(augment) => match augment.changes {
                AugmentChanges::Rand { .. } => "rand_augment",
                AugmentChanges::TrivialWide { .. } => "trivial_augment_wide",
                AugmentChanges::Auto(_) => "auto_augment",
            },
        }
    }

    /// Whether it moves pixels by whole places and changes none: such a one takes floats, too.
    pub fn only_moves(&self) -> bool {
        matches!(
            self,
            Transform::CenterCrop { .. }
                | Transform::RandomCrop { .. }
                | Transform::RandomHorizontalFlip { .. }
                | Transform::RandomVerticalFlip { .. }
        )
    }

    /// Whether it can change a mask with its image. Those that draw from many kinds of change cannot, as in torchvision.
    pub fn takes_masks(&self) -> bool {
        !matches!(self, Transform::Augment(_))
    }

    /// Whether what it does depends on a draw.
    fn is_random(&self) -> bool {
        match self {
            Transform::Resize { .. } | Transform::CenterCrop { .. } | Transform::Grayscale { .. } => false,
            Transform::RandomCrop { .. }
            | Transform::RandomResizedCrop { .. }
            | Transform::RandomHorizontalFlip { .. }
            | Transform::RandomVerticalFlip { .. }
            | Transform::RandomRotation { .. }
            | Transform::RandomGrayscale { .. }
            | Transform::ColorJitter(_)
            | Transform::GaussianBlur { .. }
            | Transform::RandomAffine { .. }
            | Transform::Random { .. }
            | Transform::Augment(_)
            | Transform::RandomErasing { .. } => true,
        }
    }

    /// Shape of a sample `[H, W, C]` after it. Of images each of a size of its own, `[0, 0, C]`, it may be that again.
    ///
    /// # Errors
    /// The samples are no images, it does not fit them, or it makes no sense.
    pub fn output_shape(&self, input: &Shape) -> Result<Shape> {
        let name = self.name();
        let &[h, w, c] = input.dims() else {
            bail!("`{name}` takes images, but the samples are of shape {input}");
        };
        if let Transform::RandomCrop { size, padding: [left, top, right, bottom] } = *self {
            let sides = [h, w, size[0], size[1], left, top, right, bottom];
            ensure!(sides.iter().all(|s| *s <= MAX_SIDE), "`{name}`: sizes above {MAX_SIDE} are not supported");
            let padded = [h + top + bottom, w + left + right];
            ensure!(
                h == 0 || size[0] <= padded[0] && size[1] <= padded[1],
                "`{name}`: the window of {}×{} does not fit the image of {h}×{w}, with its padding {}×{}",
                size[0],
                size[1],
                padded[0],
                padded[1]
            );
        }
        // Two numbers in order; `within` says where they must lie, and `bounds` the same in words.
        let rising = |what: &str, [least, most]: [f64; 2], within: fn(f64) -> bool, bounds: &str| {
            let finite = least.is_finite() && most.is_finite();
            ensure!(
                finite && least <= most && within(least) && within(most),
                "`{name}`: `{what}` is [{least}, {most}], and must be two numbers {bounds}, the least first"
            );
            Ok(())
        };
        match self {
            Transform::RandomHorizontalFlip { p }
            | Transform::RandomVerticalFlip { p }
            | Transform::RandomGrayscale { p }
            | Transform::Random { p, .. }
            | Transform::RandomErasing { p, .. } => {
                ensure!((0.0..=1.0).contains(p), "`{name}`: `p` is {p}, not within 0 and 1");
            }
            _ => {}
        }
        match self {
            Transform::RandomResizedCrop { scale, ratio, .. } | Transform::RandomErasing { scale, ratio, .. } => {
                rising("scale", *scale, |v| (0.0..=1.0).contains(&v), "from 0 to 1")?;
                rising("ratio", *ratio, |v| v > 0.0, "above 0")?;
            }
            Transform::RandomRotation { degrees, .. } => rising("degrees", *degrees, |_| true, "of degrees")?,
            Transform::RandomAffine { degrees, translate, scale, shear, .. } => {
                rising("degrees", *degrees, |_| true, "of degrees")?;
                translate.iter().try_for_each(|most| rising("translate", [0.0, *most], |v| v <= 1.0, "from 0 to 1"))?;
                rising("scale", *scale, |v| v > 0.0, "above 0")?;
                shear.iter().try_for_each(|range| rising("shear", *range, |v| v.abs() < 90.0, "between -90 and 90"))?;
            }
            Transform::Augment(Augment { changes: AugmentChanges::Rand { magnitude, bins, std, .. }, .. }) => {
                ensure!(std.is_finite() && *std >= 0.0, "`{name}`: `magnitude_std` is {std}, and must be at least 0");
                ensure!(magnitude < bins && *bins > 1, "`{name}`: there is no strength {magnitude} of {bins}");
            }
            Transform::Augment(Augment { changes: AugmentChanges::TrivialWide { bins }, .. }) => {
                ensure!(*bins > 1, "`{name}`: there must be at least 2 strengths, not {bins}");
            }
            Transform::ColorJitter(jitter) => {
                let factors = [jitter.brightness, jitter.contrast, jitter.saturation];
                for (what, range) in ["brightness", "contrast", "saturation"].into_iter().zip(factors) {
                    range.map_or(Ok(()), |range| rising(what, range, |v| v >= 0.0, "of at least 0"))?;
                }
                jitter.hue.map_or(Ok(()), |range| rising("hue", range, |v| v.abs() <= 0.5, "from -0.5 to 0.5"))?;
            }
            Transform::GaussianBlur { kernel_size, sigma } => {
                ensure!(kernel_size % 2 == 1, "`{name}`: `kernel_size` is {kernel_size}, and must be odd");
                rising("sigma", *sigma, |v| v > 0.0, "above 0")?;
            }
            Transform::Grayscale { channels } => {
                ensure!([1, 3].contains(channels), "`{name}`: `num_output_channels` is {channels}, and must be 1 or 3");
            }
            _ => {}
        }
        let of_colours = matches!(
            self,
            Transform::Grayscale { .. }
                | Transform::RandomGrayscale { .. }
                | Transform::ColorJitter(_)
                | Transform::Augment(_)
        );
        ensure!(!of_colours || [1, 3].contains(&c), "`{name}` takes images of 1 or 3 channels, and these have {c}");
        let (sides, channels) = match *self {
            Transform::Resize { size: Size::Both(size), .. }
            | Transform::CenterCrop { size }
            | Transform::RandomCrop { size, .. }
            | Transform::RandomResizedCrop { size, .. } => {
                ensure!(size[0] > 0 && size[1] > 0, "`{name}`: `size` must be at least 1");
                (size, c)
            }
            Transform::Resize { size: Size::Shorter(side), .. } => {
                ensure!(side > 0, "`{name}`: `size` must be at least 1");
                (if h > 0 && w > 0 { Size::Shorter(side).of([h, w]) } else { [h, w] }, c)
            }
            Transform::Grayscale { channels } => ([h, w], channels),
            _ => ([h, w], c),
        };
        let elements = sides[0].checked_mul(sides[1]).and_then(|pixels| pixels.checked_mul(channels));
        ensure!(
            elements.is_some_and(|elements| elements <= MAX_ELEMENTS),
            "`{name}` makes images of {}×{}, which are too large",
            sides[0],
            sides[1]
        );
        Ok([sides[0], sides[1], channels].into())
    }

    /// The image after it. Those that only move pixels are left to [`Moves`].
    fn change(&self, draws: &mut Stream, mut image: Image) -> Image {
        let sides = image.sides;
        match *self {
            Transform::Resize { size, interpolation, antialias } => {
                let to = size.of(sides);
                if to != sides {
                    return resize::resize(&image, image.whole(), to, interpolation, antialias);
                }
            }
            Transform::RandomResizedCrop { size, scale, ratio, interpolation, antialias } => {
                let window = windows::resized_crop(draws, sides, scale, ratio);
                return resize::resize(&image, window, size, interpolation, antialias);
            }
            Transform::RandomRotation { degrees, interpolation, fill } => {
                return affine::rotate(&image, uniform(draws, degrees), interpolation, fill);
            }
            Transform::RandomAffine { degrees, translate: [x, y], scale, shear, interpolation, fill } => {
                let degrees = uniform(draws, degrees);
                let most = [x * sides[1] as f64, y * sides[0] as f64];
                let translate = most.map(|most| uniform(draws, [-most, most]).round_ties_even());
                let (scale, shear) = (uniform(draws, scale), shear.map(|range| uniform(draws, range)));
                let by = Affine { degrees, translate, scale, shear };
                return affine::affine(&image, by, affine::middle(sides), interpolation, fill);
            }
            Transform::Random { operation, magnitude, p } => {
                if draws.uniform() < p {
                    return operation.apply(image, magnitude, Interpolation::Nearest, 0);
                }
            }
            Transform::Augment(augment) => return augment.apply(draws, image),
            Transform::Grayscale { channels } => return color::grayscale(image, channels),
            Transform::RandomGrayscale { p } => {
                if draws.uniform() < p {
                    let channels = image.channels;
                    return color::grayscale(image, channels);
                }
            }
            Transform::ColorJitter(jitter) => jitter.apply(draws, &mut image),
            Transform::GaussianBlur { kernel_size, sigma } => {
                return blur::gaussian_blur(&image, kernel_size, uniform(draws, sigma));
            }
            Transform::RandomErasing { p, scale, ratio, value } => {
                if draws.uniform() < p
                    && let Some(window) = windows::erased(draws, sides, scale, ratio)
                {
                    windows::erase(&mut image, window, value);
                }
            }
            Transform::CenterCrop { .. }
            | Transform::RandomCrop { .. }
            | Transform::RandomHorizontalFlip { .. }
            | Transform::RandomVerticalFlip { .. } => {}
        }
        image
    }
}

/// How many transforms at the beginning draw nothing: what they make of an image is the same in every epoch.
pub fn fixed(list: &[Transform]) -> usize {
    list.iter().take_while(|transform| !transform.is_random()).count()
}

/// A number between two, every one as likely.
fn uniform(draws: &mut Stream, [from, to]: [f64; 2]) -> f64 {
    from + (to - from) * draws.uniform()
}

/// An image changed by a whole list, with the numbers of `draws`. [`output_shape`] must have taken the list.
pub(super) fn transform(list: &[Transform], draws: &mut Stream, image: Image) -> Image {
    each(list, draws, image, Transform::change)
}

/// An image after a whole list: those that only move pixels in one go, all others by `change`.
fn each(
    list: &[Transform],
    draws: &mut Stream,
    mut image: Image,
    change: impl Fn(&Transform, &mut Stream, Image) -> Image,
) -> Image {
    let mut rest = list;
    while let Some(first) = rest.first() {
        let moves = rest.iter().take_while(|t| t.only_moves()).count();
        if moves == 0 {
            image = change(first, draws, image);
        } else {
            image = Moves::fold(&rest[..moves], draws, image.sides).apply(&image);
        }
        rest = &rest[moves.max(1)..];
    }
    image
}

/// Writes `sample` (an image of `h` × `w` pixels of `pixel` bytes), changed by `transforms` with the numbers of `draws`, to `out`,
/// which is as large as the result. Lists that only move pixels take bytes and floats alike: zero bytes are 0.0. Others take bytes.
pub(super) fn apply(
    transforms: &[Transform],
    draws: &mut Stream,
    sample: &[u8],
    [h, w]: [usize; 2],
    pixel: usize,
    out: &mut [u8],
) {
    if transforms.iter().all(Transform::only_moves) {
        Moves::fold(transforms, draws, [h, w]).copy(sample, w, pixel, out);
    } else {
        let image = Image { sides: [h, w], channels: pixel, pixels: sample.to_vec() };
        out.copy_from_slice(&transform(transforms, draws, image).pixels);
    }
}
