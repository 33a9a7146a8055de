//! The transforms of a configuration as the data layer knows them.

use crate::config::language::sections as cfg;
use crate::data::{ColorJitter, Interpolation, Size, Transform};

/// What the loader does for a transform; `None` for those that are operations of the graph.
pub fn of_pixels(transform: &cfg::Transform) -> Option<Transform> {
    Some(match transform {
        cfg::Transform::Normalize(_) => return None,
        cfg::Transform::Resize(t) => {
            let size = match t.size {
                cfg::ResizedTo::Shorter(side) => Size::Shorter(side),
                cfg::ResizedTo::Both(sides) => Size::Both(sides),
            };
            Transform::Resize { size, interpolation: of(t.interpolation), antialias: t.antialias }
        }
        cfg::Transform::CenterCrop(t) => Transform::CenterCrop { size: t.size.0 },
        cfg::Transform::Grayscale(t) => Transform::Grayscale { channels: t.num_output_channels },
        cfg::Transform::RandomCrop(t) => {
            let [h, w] = t.padding.0;
            Transform::RandomCrop { size: t.size.0, padding: [w, h, w, h] }
        }
        cfg::Transform::RandomResizedCrop(t) => Transform::RandomResizedCrop {
            size: t.size.0,
            scale: t.scale,
            ratio: t.ratio,
            interpolation: of(t.interpolation),
            antialias: t.antialias,
        },
        cfg::Transform::RandomHorizontalFlip(t) => Transform::RandomHorizontalFlip { p: t.p },
        cfg::Transform::RandomVerticalFlip(t) => Transform::RandomVerticalFlip { p: t.p },
        cfg::Transform::RandomRotation(t) => Transform::RandomRotation {
            degrees: t.degrees.around(0.0),
            interpolation: of(t.interpolation),
            fill: byte(t.fill),
        },
        cfg::Transform::ColorJitter(t) => {
            let factors =
                |from: Option<cfg::DrawnFrom>| from.map(|from| from.around(1.0).map(|factor| factor.max(0.0)));
            Transform::ColorJitter(ColorJitter {
                brightness: factors(t.brightness),
                contrast: factors(t.contrast),
                saturation: factors(t.saturation),
                hue: t.hue.map(|from| from.around(0.0)),
            })
        }
        cfg::Transform::RandomGrayscale(t) => Transform::RandomGrayscale { p: t.p },
        cfg::Transform::GaussianBlur(t) => {
            Transform::GaussianBlur { kernel_size: t.kernel_size, sigma: t.sigma.range() }
        }
        cfg::Transform::RandomErasing(t) => {
            Transform::RandomErasing { p: t.p, scale: t.scale, ratio: t.ratio, value: byte(t.value) }
        }
    })
}

fn of(interpolation: cfg::Interpolation) -> Interpolation {
    match interpolation {
        cfg::Interpolation::Nearest => Interpolation::Nearest,
        cfg::Interpolation::Bilinear => Interpolation::Bilinear,
        cfg::Interpolation::Bicubic => Interpolation::Bicubic,
    }
}

/// The configuration has checked that it is one.
fn byte(value: usize) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}
