//! Changes of many kinds: RandAugment (Cubuk et al. 2020), TrivialAugment (Müller & Hutter 2021) and AutoAugment (Cubuk et al. 2019), as
//! torchvision makes them.

use super::image::Image;
use super::operation::{DRAWN, Operation};
use super::policies::{Policy, pairs};
use super::resize::Interpolation;
use crate::random::Stream;

/// Which changes are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Changes {
    /// So many of any kind, all of the strength `magnitude` of `bins`.
    Rand {
        /// How many.
        ops: usize,
        /// Which strength, less than `bins`.
        magnitude: usize,
        /// The standard deviation of the strength, if it is drawn: timm's `magnitude_std`.
        std: f64,
        /// How many strengths there are.
        bins: usize,
    },
    /// One of any kind, of any of so many strengths.
    TrivialWide {
        /// How many strengths there are.
        bins: usize,
    },
    /// A pair of a policy.
    Auto(Policy),
}

/// Changes at random.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Augment {
    /// Which.
    pub changes: Changes,
    /// How pixels are made where an image is moved.
    pub interpolation: Interpolation,
    /// The value of all channels where it does not reach.
    pub fill: u8,
}

impl Augment {
    /// The image after changes that are drawn.
    pub(super) fn apply(&self, draws: &mut Stream, mut image: Image) -> Image {
        let sides = image.sides;
        let change = |draws: &mut Stream, image: Image, operation: Operation, wide: bool, bin: f64, bins: usize| {
            let magnitude = operation.magnitude(wide, bin, bins, sides).map_or(0.0, |(magnitude, signed)| {
                let negative = signed && draws.uniform() < 0.5;
                if negative { -magnitude } else { magnitude }
            });
            operation.apply(image, magnitude, self.interpolation, self.fill)
        };
        let any = |draws: &mut Stream| DRAWN[draws.below(DRAWN.len() as u32) as usize];
        match self.changes {
            Changes::Rand { ops, magnitude, std, bins } => {
                for _ in 0..ops {
                    let operation = any(draws);
                    let mut bin = magnitude as f64;
                    if std > 0.0 {
                        bin = (bin + std * draws.normal()).clamp(0.0, (bins - 1) as f64);
                    }
                    image = change(draws, image, operation, false, bin, bins);
                }
            }
            Changes::TrivialWide { bins } => {
                let (operation, bin) = (any(draws), f64::from(draws.below(bins as u32)));
                image = change(draws, image, operation, true, bin, bins);
            }
            Changes::Auto(policy) => {
                let pairs = pairs(policy);
                for (operation, p, bin) in pairs[draws.below(pairs.len() as u32) as usize] {
                    if draws.uniform() < p {
                        image = change(draws, image, operation, false, bin as f64, 10);
                    }
                }
            }
        }
        image
    }
}
