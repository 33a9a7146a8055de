//! The kinds of change that RandAugment and its relatives draw from, with the strengths of torchvision.

use super::affine::{Affine, affine, middle, rotate};
use super::image::Image;
use super::resize::Interpolation;
use super::{color, tones};
use Operation::{
    AutoContrast, Brightness, Color, Contrast, Equalize, Identity, Invert, Posterize, Rotate, Sharpness, ShearX,
    ShearY, Solarize, TranslateX, TranslateY,
};

/// A kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operation {
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
    Invert,
}

/// Those that are drawn from; the policies of AutoAugment have [`Invert`] besides.
pub(super) const DRAWN: [Operation; 14] = [
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
];

/// Element `i` of `torch.linspace(from, to, n)`, in single precision and rounded once; between elements, what lies on the line.
fn linspace(from: f32, to: f32, n: usize, i: f64) -> f32 {
    let step = f64::from((to - from) / (n - 1) as f32);
    let [from, to] = [from, to].map(f64::from);
    (if i < (n / 2) as f64 { from + step * i } else { to - step * ((n - 1) as f64 - i) }) as f32
}

impl Operation {
    /// Its strength number `bin` of `bins` for images of these sides, as torchvision's table of magnitudes has it, and whether either
    /// sign may come before it; `None` if it has none. Between two numbers it is what lies between their strengths.
    pub(super) fn magnitude(self, wide: bool, bin: f64, bins: usize, [h, w]: [usize; 2]) -> Option<(f64, bool)> {
        let up_to = |most: f64| Some((f64::from(linspace(0.0, most as f32, bins, bin)), true));
        let translate = |side: usize| up_to(if wide { 32.0 } else { 150.0 / 331.0 * side as f64 });
        match self {
            Identity | AutoContrast | Equalize | Invert => None,
            ShearX | ShearY => up_to(if wide { 0.99 } else { 0.3 }),
            TranslateX => translate(w),
            TranslateY => translate(h),
            Rotate => up_to(if wide { 135.0 } else { 30.0 }),
            Brightness | Color | Contrast | Sharpness => up_to(if wide { 0.99 } else { 0.9 }),
            Posterize => {
                let taken = (bins - 1) as f64 / if wide { 6.0 } else { 4.0 };
                Some((f64::from((8.0 - bin as f32 / taken as f32).round_ties_even()), false))
            }
            Solarize => Some((255.0 * f64::from(linspace(1.0, 0.0, bins, bin)), false)),
        }
    }

    /// The image after it, with a strength of that table.
    pub(super) fn apply(self, mut image: Image, magnitude: f64, interpolation: Interpolation, fill: u8) -> Image {
        let still = Affine::IDENTITY;
        // Along one axis, by a share of the other.
        let sheared = |image: &Image, shear: [f64; 2]| {
            let by = Affine { shear: shear.map(|share| share.atan().to_degrees()), ..still };
            affine(image, by, [0.0; 2], interpolation, fill)
        };
        let moved = |image: &Image, by: [f64; 2]| {
            affine(image, Affine { translate: by.map(f64::trunc), ..still }, middle(image.sides), interpolation, fill)
        };
        match self {
            Identity => {}
            ShearX => return sheared(&image, [magnitude, 0.0]),
            ShearY => return sheared(&image, [0.0, magnitude]),
            TranslateX => return moved(&image, [magnitude, 0.0]),
            TranslateY => return moved(&image, [0.0, magnitude]),
            Rotate => return rotate(&image, magnitude, interpolation, fill),
            Brightness => color::adjust_brightness(&mut image, 1.0 + magnitude),
            Color => color::adjust_saturation(&mut image, 1.0 + magnitude),
            Contrast => color::adjust_contrast(&mut image, 1.0 + magnitude),
            Sharpness => tones::adjust_sharpness(&mut image, 1.0 + magnitude),
            Posterize => tones::posterize(&mut image, magnitude as u32),
            Solarize => tones::solarize(&mut image, magnitude),
            AutoContrast => tones::autocontrast(&mut image),
            Equalize => tones::equalize(&mut image),
            Invert => tones::invert(&mut image),
        }
        image
    }
}
