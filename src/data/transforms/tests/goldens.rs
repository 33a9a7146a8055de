//! The changes beside those of torchvision and Pillow, with parameters that are given (`scripts/golden/transforms.py`).

use super::super::image::Window;
use super::super::moves::Moves;
use super::super::operation::DRAWN;
use super::super::resize::resize;
use super::super::{
    Affine, Image, Interpolation, Operation, Policy, Size, Transform, affine, blur, color, policies, windows,
};
use crate::random::{Purpose, Stream};
use safetensors::SafeTensors;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Case {
    image: String,
    change: String,
    #[serde(default)]
    size: Vec<usize>,
    #[serde(default)]
    window: Vec<usize>,
    interpolation: Option<String>,
    #[serde(default)]
    antialias: Option<bool>,
    #[serde(default)]
    amount: f64,
    #[serde(default)]
    channels: usize,
    #[serde(default)]
    kernel: usize,
    #[serde(default)]
    fill: u8,
    #[serde(default)]
    value: u8,
    #[serde(default)]
    translate: [f64; 2],
    #[serde(default)]
    scale: f64,
    #[serde(default)]
    shear: [f64; 2],
    #[serde(default)]
    operation: String,
}

fn operation(name: &str) -> Operation {
    let all = DRAWN.into_iter().chain([Operation::Invert]);
    all.into_iter().find(|one| format!("{one:?}") == name).unwrap_or_else(|| panic!("{name}"))
}

impl Case {
    fn interpolation(&self) -> Interpolation {
        match self.interpolation.as_deref().unwrap() {
            "nearest" => Interpolation::Nearest,
            "bilinear" => Interpolation::Bilinear,
            "bicubic" => Interpolation::Bicubic,
            other => panic!("{other}"),
        }
    }

    fn size(&self) -> Size {
        match self.size[..] {
            [side] => Size::Shorter(side),
            [h, w] => Size::Both([h, w]),
            _ => panic!("{:?}", self.size),
        }
    }

    fn window(&self) -> Window {
        Window { at: [self.window[0], self.window[1]], sides: [self.window[2], self.window[3]] }
    }

    fn change(&self, mut image: Image) -> Image {
        match self.change.as_str() {
            "resize" => {
                let sides = self.size().of(image.sides);
                resize(&image, image.whole(), sides, self.interpolation(), self.antialias.unwrap())
            }
            "resized_crop" => resize(&image, self.window(), self.size().of(image.sides), self.interpolation(), true),
            "center_crop" => moved(&image, Transform::CenterCrop { size: self.size().of(image.sides) }),
            "horizontal_flip" => moved(&image, Transform::RandomHorizontalFlip { p: 1.0 }),
            "vertical_flip" => moved(&image, Transform::RandomVerticalFlip { p: 1.0 }),
            "grayscale" => color::grayscale(image, self.channels),
            "affine" => {
                let by =
                    Affine { degrees: self.amount, translate: self.translate, scale: self.scale, shear: self.shear };
                affine::affine(&image, by, affine::middle(image.sides), self.interpolation(), self.fill)
            }
            "operation" => operation(&self.operation).apply(image, self.amount, self.interpolation(), self.fill),
            "rotate" => affine::rotate(&image, self.amount, self.interpolation(), self.fill),
            "blur" => blur::gaussian_blur(&image, self.kernel, self.amount),
            in_place => {
                match in_place {
                    "brightness" => color::adjust_brightness(&mut image, self.amount),
                    "contrast" => color::adjust_contrast(&mut image, self.amount),
                    "saturation" => color::adjust_saturation(&mut image, self.amount),
                    "hue" => color::adjust_hue(&mut image, self.amount),
                    "erase" => windows::erase(&mut image, self.window(), self.value),
                    other => panic!("{other}"),
                }
                image
            }
        }
    }

    /// How far a byte may be off. Sums of floats are rounded, and their order is torch's own; the rest is to the bit.
    fn tolerance(&self) -> u8 {
        u8::from(self.change == "blur" || self.antialias == Some(false))
    }
}

fn moved(image: &Image, transform: Transform) -> Image {
    let mut draws = Stream::new(0, Purpose::Augment, 0, 0);
    let moves = Moves::fold(&[transform], &mut draws, image.sides);
    let mut pixels = vec![0; moves.sides().iter().product::<usize>() * image.channels];
    moves.copy(&image.pixels, image.sides[1], image.channels, &mut pixels);
    Image { sides: moves.sides(), channels: image.channels, pixels }
}

#[test]
fn images_come_out_as_from_torchvision() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/transforms/transforms.safetensors");
    let bytes = std::fs::read(path).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let cases: Vec<Case> = serde_json::from_str(&header.metadata().as_ref().unwrap()["cases"]).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let image = |name: &str| {
        let tensor = tensors.tensor(name).unwrap();
        let &[h, w, channels] = tensor.shape() else { panic!("{name} is no image") };
        Image { sides: [h, w], channels, pixels: tensor.data().to_vec() }
    };
    let mut tested: BTreeMap<&str, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let (ours, theirs) = (case.change(image(&case.image)), image(&number.to_string()));
        let (change, of) = (format!("{} {}", case.change, case.operation), &case.image);
        let label = format!("{number}: {change} of {of}, {:?} {:?}", case.size, case.interpolation);
        let shape = |image: &Image| (image.sides, image.channels, image.pixels.len());
        if shape(&ours) != shape(&theirs) {
            wrong.push(format!("{label}: {:?}, not {:?}", ours.sides, theirs.sides));
            continue;
        }
        let off = ours.pixels.iter().zip(&theirs.pixels).map(|(a, b)| a.abs_diff(*b));
        let beyond = off.clone().filter(|off| *off > case.tolerance()).count();
        if beyond > 0 {
            let (most, of) = (off.max().unwrap(), ours.pixels.len());
            wrong.push(format!("{label}, {}: {beyond} of {of} bytes are off, by up to {most}", case.amount));
        }
        *tested.entry(&case.change).or_default() += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(tested.len(), 15, "{tested:?}");
}

#[derive(Deserialize)]
struct Magnitudes {
    operation: String,
    wide: bool,
    bins: usize,
    sides: [usize; 2],
    signed: bool,
    values: Option<Vec<f64>>,
}

/// To the bit: a share of a pixel decides by how many an image is moved.
#[test]
fn strengths_and_policies_are_torchvisions() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/transforms/transforms.safetensors");
    let bytes = std::fs::read(path).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    let metadata = header.metadata().as_ref().unwrap();
    let all: Vec<Magnitudes> = serde_json::from_str(&metadata["magnitudes"]).unwrap();
    for m in &all {
        let of = |bin: usize| operation(&m.operation).magnitude(m.wide, bin as f64, m.bins, m.sides);
        let expected = |bin| m.values.as_ref().map(|values| (values[bin], m.signed));
        (0..m.bins).for_each(|bin| assert_eq!(of(bin), expected(bin), "{} of {}", m.operation, m.bins));
    }
    assert_eq!(all.len(), 2 * (DRAWN.len() + DRAWN.len()));
    type Pair = [(String, f64, Option<usize>); 2];
    let all: BTreeMap<String, Vec<Pair>> = serde_json::from_str(&metadata["policies"]).unwrap();
    for (name, policy) in [("IMAGENET", Policy::ImageNet), ("CIFAR10", Policy::Cifar10), ("SVHN", Policy::Svhn)] {
        let given: Vec<_> = all[name]
            .iter()
            .map(|pair| [0, 1].map(|i| (operation(&pair[i].0), pair[i].1, pair[i].2.unwrap_or(0))))
            .collect();
        assert_eq!(policies::pairs(policy)[..], given[..], "{name}");
    }
}

/// timm's table of strengths (`LEVEL_TO_ARG` in `timm/data/auto_augment.py`, 10 of them and 0) for numbers that `mstd` draws, where it is
/// torchvision's table: shear, rotation, colour with `inc`, and translation by 150/331 of a side.
#[test]
fn strengths_between_those_of_the_table_are_timms() {
    for (level, expected) in [
        (0.0, [0.0, 0.0, 0.0, 0.0]),
        (2.25, [0.0675, 6.75, 0.2025, 0.101963746]),
        (3.7, [0.111, 11.1, 0.333, 0.167673716]),
        (6.5, [0.195, 19.5, 0.585, 0.294561934]),
        (9.99, [0.2997, 29.97, 0.8991, 0.452719033]),
        (10.0, [0.3, 30.0, 0.9, 0.453172205]),
    ] {
        let of = |operation: Operation| operation.magnitude(false, level, 11, [1, 1]).unwrap().0;
        let found = [Operation::ShearX, Operation::Rotate, Operation::Color, Operation::TranslateX].map(of);
        // timm has double precision, torchvision single.
        let near = found.iter().zip(&expected).all(|(a, b): (&f64, &f64)| (a - b).abs() <= 1e-6 * b);
        assert!(near, "{level}: {found:?}, not {expected:?}");
    }
}

/// Shares of more or fewer channels than a photo has take another way, to the same bytes.
#[test]
fn channels_do_not_change_each_other() {
    let draws = &mut Stream::new(0, Purpose::Augment, 0, 0);
    let [h, w, channels] = [9, 14, 5];
    let pixels = (0..h * w * channels).map(|_| draws.next_u32() as u8).collect();
    let image = Image { sides: [h, w], channels, pixels };
    let to = |image: &Image| resize(image, image.whole(), [5, 20], Interpolation::Bicubic, true);
    let all = to(&image);
    for c in 0..channels {
        let of = |image: &Image| image.pixels[c..].iter().step_by(channels).copied().collect::<Vec<u8>>();
        let one = Image { sides: [h, w], channels: 1, pixels: of(&image) };
        assert_eq!(to(&one).pixels, of(&all));
    }
}
