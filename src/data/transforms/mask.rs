//! Masks: a class for every pixel of an image. A mask goes through the transforms of its image with the same draws. Classes are never
//! mixed: what makes new pixels takes the nearest one, and what changes values leaves a mask as it is. So it is in
//! torchvision (`tv_tensors.Mask` under `transforms.v2`), which fills what comes from outside with 0, too.

use super::image::Image;
use super::resize::Interpolation;
use super::{Transform, each, uniform, windows};
use crate::random::Stream;

/// The mask of an image that is changed by the list with the same `draws`. The bytes of a pixel stay together, whatever they are.
/// Each of the list must [take masks](Transform::takes_masks).
pub(in crate::data) fn transform_mask(list: &[Transform], draws: &mut Stream, mask: Image) -> Image {
    each(list, draws, mask, change)
}

/// The mask after a transform that does more than to move pixels by whole places. It draws as [`Transform::change`] does.
fn change(transform: &Transform, draws: &mut Stream, mask: Image) -> Image {
    let (nearest, background) = (Interpolation::Nearest, 0);
    let of_mask = match *transform {
        Transform::Resize { size, .. } => Transform::Resize { size, interpolation: nearest, antialias: false },
        Transform::RandomResizedCrop { size, scale, ratio, .. } => {
            Transform::RandomResizedCrop { size, scale, ratio, interpolation: nearest, antialias: false }
        }
        Transform::RandomRotation { degrees, .. } => {
            Transform::RandomRotation { degrees, interpolation: nearest, fill: background }
        }
        Transform::RandomAffine { degrees, translate, scale, shear, .. } => {
            Transform::RandomAffine { degrees, translate, scale, shear, interpolation: nearest, fill: background }
        }
        Transform::RandomGrayscale { .. } | Transform::Random { .. } => {
            draws.uniform();
            return mask;
        }
        Transform::GaussianBlur { sigma, .. } => {
            uniform(draws, sigma);
            return mask;
        }
        Transform::ColorJitter(jitter) => {
            jitter.draw(draws);
            return mask;
        }
        Transform::RandomErasing { p, scale, ratio, .. } => {
            if draws.uniform() < p {
                windows::erased(draws, mask.sides, scale, ratio);
            }
            return mask;
        }
        Transform::Grayscale { .. }
        | Transform::Augment(_)
        | Transform::CenterCrop { .. }
        | Transform::RandomCrop { .. }
        | Transform::RandomHorizontalFlip { .. }
        | Transform::RandomVerticalFlip { .. } => return mask,
    };
    of_mask.change(draws, mask)
}

#[cfg(test)]
mod tests {
    use super::super::{ColorJitter, Operation, Size, transform};
    use super::*;
    use crate::random::Purpose;

    /// All transforms that take masks, with those between them that change values drawn from the same stream.
    fn lists() -> Vec<Vec<Transform>> {
        let nearest = Interpolation::Nearest;
        // They draw, and change nothing, so that image and mask can be compared.
        let jitter = Transform::ColorJitter(ColorJitter { brightness: Some([1.0, 1.0]), ..ColorJitter::default() });
        let invert = Transform::Random { operation: Operation::Invert, magnitude: 0.0, p: 0.0 };
        let grey = Transform::RandomGrayscale { p: 0.0 };
        let erasing = Transform::RandomErasing { p: 1.0, scale: [0.0, 0.0], ratio: [1.0, 1.0], value: 7 };
        let crop = |size| Transform::RandomCrop { size, padding: [2, 1, 0, 3] };
        let resized = Transform::RandomResizedCrop {
            size: [9, 11],
            scale: [0.1, 0.9],
            ratio: [0.5, 2.0],
            interpolation: nearest,
            antialias: true,
        };
        let affine = Transform::RandomAffine {
            degrees: [-40.0, 40.0],
            translate: [0.2, 0.1],
            scale: [0.7, 1.4],
            shear: [[-10.0, 10.0], [-5.0, 5.0]],
            interpolation: nearest,
            fill: 0,
        };
        let rotation = Transform::RandomRotation { degrees: [-90.0, 90.0], interpolation: nearest, fill: 0 };
        let resize = Transform::Resize { size: Size::Shorter(14), interpolation: nearest, antialias: true };
        let flips = [Transform::RandomHorizontalFlip { p: 0.5 }, Transform::RandomVerticalFlip { p: 0.5 }];
        vec![
            vec![jitter, resize, flips[0], crop([12, 9]), flips[1], Transform::CenterCrop { size: [10, 16] }],
            vec![invert, resized, jitter, grey, flips[0]],
            vec![rotation, invert, erasing, flips[1], affine, crop([17, 20])],
            vec![erasing, grey, affine, jitter, rotation],
        ]
    }

    #[test]
    fn masks_stay_with_their_images() {
        for (number, list) in lists().iter().enumerate() {
            let mut moved = 0;
            for sample in 0..20 {
                let sides = [16, 21];
                let pixels: Vec<u8> = (0..16 * 21).map(|i| (i % 251) as u8).collect();
                let image = Image { sides, channels: 1, pixels: pixels.clone() };
                // Four bytes a pixel, as of whole numbers.
                let wide: Vec<u8> = pixels.iter().flat_map(|p| [*p, 1, p ^ 0xff, 9]).collect();
                let draws = || Stream::new(3, Purpose::Augment, 0, sample);
                let changed = transform(list, &mut draws(), image.clone());
                let mask = transform_mask(list, &mut draws(), Image { sides, channels: 4, pixels: wide });
                assert_eq!(changed.sides, mask.sides, "{number}");
                for (a, b) in changed.pixels.iter().zip(mask.pixels.chunks_exact(4)) {
                    // Zeros come from outside.
                    assert!(
                        b == [*a, 1, a ^ 0xff, 9] || (*a == 0 && b == [0; 4]),
                        "{number}, sample {sample}: {a} {b:?}"
                    );
                }
                moved += usize::from(changed != image);
            }
            assert!(moved > 10, "{number}");
        }
    }

    /// What changes values leaves classes as they are, and what mixes pixels does not mix classes.
    #[test]
    fn classes_are_not_mixed() {
        let bilinear = Interpolation::Bilinear;
        let jitter = ColorJitter { brightness: Some([0.2, 0.4]), ..ColorJitter::default() };
        let list = [
            Transform::ColorJitter(jitter),
            Transform::GaussianBlur { kernel_size: 3, sigma: [1.0, 2.0] },
            Transform::Random { operation: Operation::Invert, magnitude: 0.0, p: 1.0 },
            Transform::Grayscale { channels: 3 },
            Transform::RandomGrayscale { p: 1.0 },
            Transform::RandomErasing { p: 1.0, scale: [0.3, 0.3], ratio: [1.0, 1.0], value: 7 },
            Transform::Resize { size: Size::Both([31, 17]), interpolation: bilinear, antialias: true },
            Transform::RandomRotation { degrees: [30.0, 60.0], interpolation: bilinear, fill: 9 },
        ];
        assert!(list.iter().all(Transform::takes_masks));
        let pixels: Vec<u8> = (0..20 * 20).map(|i| if i % 20 < 10 { 2 } else { 200 }).collect();
        let mask = Image { sides: [20, 20], channels: 1, pixels };
        let draws = || Stream::new(3, Purpose::Augment, 0, 0);
        let after = transform_mask(&list, &mut draws(), mask.clone());
        assert_eq!((after.sides, after.channels), ([31, 17], 1));
        assert!(after.pixels.iter().all(|class| [0, 2, 200].contains(class)));
        assert!([0, 2, 200].iter().all(|class| after.pixels.contains(class)), "background and both classes");
        assert_eq!(transform_mask(&list[..6], &mut draws(), mask.clone()), mask);
    }

    /// What changes values alone takes as many draws of a mask as of its image: what follows moves both alike.
    #[test]
    fn draws_of_what_changes_values_are_taken() {
        let jitter = ColorJitter { brightness: Some([0.5, 0.9]), contrast: Some([0.8, 1.0]), ..ColorJitter::default() };
        for first in [
            Transform::ColorJitter(jitter),
            Transform::GaussianBlur { kernel_size: 3, sigma: [0.5, 1.0] },
            Transform::Random { operation: Operation::Posterize, magnitude: 6.0, p: 0.5 },
            Transform::RandomGrayscale { p: 0.5 },
            Transform::RandomErasing { p: 0.5, scale: [0.01, 0.02], ratio: [1.0, 1.0], value: 0 },
        ] {
            let list = [first, Transform::RandomHorizontalFlip { p: 0.5 }];
            let mut flipped = 0;
            for sample in 0..40 {
                let side =
                    |channels: usize| (0..16 * 16 * channels).map(move |i| if i / channels % 16 < 8 { 0 } else { 200 });
                let draws = || Stream::new(5, Purpose::Augment, 0, sample);
                let image = Image { sides: [16, 16], channels: 3, pixels: side(3).collect() };
                let mask = Image { sides: [16, 16], channels: 1, pixels: side(1).collect() };
                let (image, mask) = (transform(&list, &mut draws(), image), transform_mask(&list, &mut draws(), mask));
                let bright: Vec<bool> = image.pixels.chunks_exact(16 * 3).map(|row| row[0] > row[45]).collect();
                // A row may have a hole, never all of them.
                let is_flipped = bright.iter().filter(|b| **b).count() > 8;
                assert_eq!(is_flipped, mask.pixels[0] == 200, "{list:?}, sample {sample}");
                flipped += usize::from(is_flipped);
            }
            assert!((8..32).contains(&flipped), "{flipped}");
        }
    }
}
