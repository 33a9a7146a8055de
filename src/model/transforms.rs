//! The transforms of `[data]`: which samples each of them changes, and what it is for the loader.

use crate::config::Experiment;
use crate::config::language::sections as cfg;
use crate::data::{
    Augment, AugmentChanges, ColorJitter, Interpolation, Mix, Mixing, Operation, Policy, Size, Transform,
};

/// Those of training samples (`train`) or of all others, in order, with their keys in the configuration.
pub(super) fn keyed(experiment: &Experiment, train: bool) -> impl Iterator<Item = (String, &cfg::Transform)> {
    let d = &experiment.data;
    let keyed = |section: &'static str| move |(i, t)| (format!("data.{section}.{i}"), t);
    let (first, section) =
        if train { (&d.train_transforms, "train_transforms") } else { (&d.val_transforms, "val_transforms") };
    let first = first.iter().enumerate().map(keyed(section));
    first.chain(d.transforms.iter().enumerate().map(keyed("transforms")))
}

/// What the loader does to each image; `None` for what the graph does, or the loader to whole batches.
pub(super) fn of_loader(transform: &cfg::Transform) -> Option<Transform> {
    Some(match transform {
        cfg::Transform::Normalize(_) | cfg::Transform::Mixup(_) | cfg::Transform::Cutmix(_) => return None,
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
        cfg::Transform::RandomAffine(t) => Transform::RandomAffine {
            degrees: t.degrees.around(0.0),
            translate: t.translate.unwrap_or_default(),
            scale: t.scale.unwrap_or([1.0; 2]),
            shear: t.shear.map(cfg::Shear::ranges).unwrap_or_default(),
            interpolation: of(t.interpolation),
            fill: byte(t.fill),
        },
        cfg::Transform::RandomInvert(t) => Transform::Random { operation: Operation::Invert, magnitude: 0.0, p: t.p },
        cfg::Transform::RandomPosterize(t) => {
            Transform::Random { operation: Operation::Posterize, magnitude: t.bits as f64, p: t.p }
        }
        cfg::Transform::RandomSolarize(t) => {
            Transform::Random { operation: Operation::Solarize, magnitude: t.threshold, p: t.p }
        }
        cfg::Transform::RandomAdjustSharpness(t) => {
            Transform::Random { operation: Operation::Sharpness, magnitude: t.sharpness_factor - 1.0, p: t.p }
        }
        cfg::Transform::RandomAutocontrast(t) => {
            Transform::Random { operation: Operation::AutoContrast, magnitude: 0.0, p: t.p }
        }
        cfg::Transform::RandomEqualize(t) => {
            Transform::Random { operation: Operation::Equalize, magnitude: 0.0, p: t.p }
        }
        cfg::Transform::RandAugment(t) => {
            let (ops, magnitude, bins) = (t.num_ops, t.magnitude, t.num_magnitude_bins);
            let changes = AugmentChanges::Rand { ops, magnitude, std: t.magnitude_std, bins };
            Transform::Augment(Augment { changes, interpolation: of(t.interpolation), fill: byte(t.fill) })
        }
        cfg::Transform::TrivialAugmentWide(t) => {
            let changes = AugmentChanges::TrivialWide { bins: t.num_magnitude_bins };
            Transform::Augment(Augment { changes, interpolation: of(t.interpolation), fill: byte(t.fill) })
        }
        cfg::Transform::AutoAugment(t) => {
            let policy = match t.policy {
                cfg::Policy::Imagenet => Policy::ImageNet,
                cfg::Policy::Cifar10 => Policy::Cifar10,
                cfg::Policy::Svhn => Policy::Svhn,
            };
            let changes = AugmentChanges::Auto(policy);
            Transform::Augment(Augment { changes, interpolation: of(t.interpolation), fill: byte(t.fill) })
        }
    })
}

/// How the samples of training batches are mixed, if they are.
pub fn mixing(experiment: &Experiment) -> Option<Mixing> {
    let mix = |alpha, p, last: Option<usize>| Mix { alpha, p, epochs: last.map(|epoch| epoch as u64) };
    let mut mixing = Mixing { mixup: None, cutmix: None, switch_prob: 0.0 };
    for transform in &experiment.data.train_transforms {
        match transform {
            cfg::Transform::Mixup(t) => mixing.mixup = Some(mix(t.alpha, t.p, t.off_after_epoch)),
            cfg::Transform::Cutmix(t) => {
                mixing.cutmix = Some(mix(t.alpha, t.p, t.off_after_epoch));
                mixing.switch_prob = t.switch_prob;
            }
            _ => {}
        }
    }
    (mixing.mixup.is_some() || mixing.cutmix.is_some()).then_some(mixing)
}

/// The transforms that the loader applies to training samples (`train`) or to all others.
pub fn transforms(experiment: &Experiment, train: bool) -> Vec<Transform> {
    keyed(experiment, train).filter_map(|(_, transform)| of_loader(transform)).collect()
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
