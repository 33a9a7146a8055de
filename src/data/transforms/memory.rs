//! The memory of transforms that work on photos in their own sizes.

use super::Transform;

/// Bytes of a pixel of a photo.
const PIXEL: usize = 3;

/// Bytes for each pixel of a photo that `transforms` take at most, the photo included, before one of them brings it to another size; 0 if the first does.
pub fn bytes_per_pixel(transforms: &[Transform]) -> usize {
    transforms.iter().map_while(at_full_size).max().unwrap_or(0)
}

/// `None`: the size becomes another one.
fn at_full_size(transform: &Transform) -> Option<usize> {
    let more = match transform {
        Transform::Resize { .. }
        | Transform::CenterCrop { .. }
        | Transform::RandomCrop { .. }
        | Transform::RandomResizedCrop { .. } => return None,
        // The image along rows in single precision, and the result.
        Transform::GaussianBlur { .. } => 4 * PIXEL + PIXEL,
        // The result.
        Transform::RandomHorizontalFlip { .. }
        | Transform::RandomVerticalFlip { .. }
        | Transform::RandomRotation { .. }
        | Transform::RandomAffine { .. }
        | Transform::Augment(_) => PIXEL,
        // Sharpness reads a copy; the others change pixels where they are.
        Transform::Random { .. } => PIXEL,
        Transform::Grayscale { .. }
        | Transform::RandomGrayscale { .. }
        | Transform::ColorJitter(_)
        | Transform::RandomErasing { .. } => 0,
    };
    Some(PIXEL + more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transforms_before_a_resize_take_memory_for_the_whole_photo() {
        let blur = Transform::GaussianBlur { kernel_size: 3, sigma: [0.1, 2.0] };
        let resize = Transform::CenterCrop { size: [8, 8] };
        let flip = Transform::RandomHorizontalFlip { p: 0.5 };
        let of = |list: &[&Transform]| bytes_per_pixel(&list.iter().map(|t| **t).collect::<Vec<_>>());
        assert_eq!([of(&[]), of(&[&resize, &blur]), of(&[&flip, &resize, &blur]), of(&[&flip, &blur])], [0, 0, 6, 18]);
    }
}
