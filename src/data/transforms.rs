//! Random changes to training images, as in torchvision. All of them move pixels and change none, so a list of them
//! folds into one map from places in the result to places in the sample, and each sample is copied once.

use crate::graph::Shape;
use crate::random::Stream;
use anyhow::{Result, bail, ensure};

/// STUB
pub struct Image {
    /// Height and width.
    pub sides: [usize; 2],
    /// Bytes of a pixel.
    pub channels: usize,
    /// Row by row.
    pub pixels: Vec<u8>,
}

/// STUB
pub(super) fn transform(list: &[Transform], draws: &mut Stream, image: Image) -> Image {
    let shape = output_shape(list, &[image.sides[0], image.sides[1], image.channels].into()).expect("STUB");
    let mut pixels = vec![0; shape.len()];
    apply(list, draws, &image.pixels, image.sides, image.channels, &mut pixels);
    Image { sides: [shape.dims()[0], shape.dims()[1]], channels: image.channels, pixels }
}

/// One change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Transform {
    /// torchvision's `RandomCrop`: a border of zeros around the image, then a window at random.
    RandomCrop {
        /// Height and width of the window.
        size: [usize; 2],
        /// Border: left, top, right, bottom.
        padding: [usize; 4],
    },
    /// torchvision's `RandomHorizontalFlip`: mirrored with probability `p`.
    RandomHorizontalFlip {
        /// The probability.
        p: f64,
    },
}

/// A crop's window and border may not be larger than this, so that no sum overflows.
const MAX_SIDE: usize = 1 << 24;

/// Shape of a sample `[H, W, C]` after `transforms`.
///
/// # Errors
/// The samples are no images, a window does not fit, or a probability is none.
pub fn output_shape(transforms: &[Transform], input: &Shape) -> Result<Shape> {
    let mut shape = input.clone();
    for transform in transforms {
        let &[h, w, c] = shape.dims() else {
            bail!("`{}` takes images, but the samples are of shape {shape}", transform.name());
        };
        match *transform {
            Transform::RandomCrop { size, padding: [left, top, right, bottom] } => {
                let sides = [h, w, size[0], size[1], left, top, right, bottom];
                ensure!(
                    sides.iter().all(|s| *s <= MAX_SIDE),
                    "`random_crop`: sizes above {MAX_SIDE} are not supported"
                );
                let padded = [h + top + bottom, w + left + right];
                ensure!(size[0] > 0 && size[1] > 0, "`random_crop`: `size` must be at least 1");
                ensure!(
                    size[0] <= padded[0] && size[1] <= padded[1],
                    "`random_crop`: the window of {}×{} does not fit the image of {h}×{w}, with its padding {}×{}",
                    size[0],
                    size[1],
                    padded[0],
                    padded[1]
                );
                shape = [size[0], size[1], c].into();
            }
            Transform::RandomHorizontalFlip { p } => {
                ensure!((0.0..=1.0).contains(&p), "`random_horizontal_flip`: `p` is {p}, not within 0 and 1");
            }
        }
    }
    Ok(shape)
}

impl Transform {
    /// Its name in a configuration.
    pub fn name(&self) -> &'static str {
        match self {
            Transform::RandomCrop { .. } => "random_crop",
            Transform::RandomHorizontalFlip { .. } => "random_horizontal_flip",
        }
    }
}

/// Where the pixels along one axis of the result come from: result `i` is sample `start + step · i` if `i` lies within
/// `from .. to`, else zero.
#[derive(Debug, Clone, Copy)]
struct Axis {
    len: isize,
    start: isize,
    step: isize,
    from: isize,
    to: isize,
}

impl Axis {
    fn whole(len: usize) -> Self {
        Axis { len: len as isize, start: 0, step: 1, from: 0, to: len as isize }
    }

    /// A window of `size` at a random place of the axis with its border. The draw is made only where there is a choice,
    /// as in torchvision.
    fn crop(&mut self, size: usize, before: usize, after: usize, draws: &mut Stream) {
        let places = self.len + (before + after) as isize - size as isize + 1;
        let at = if places > 1 { draws.below(places as u32) as isize } else { 0 } - before as isize;
        self.start += self.step * at;
        self.len = size as isize;
        self.from = (self.from - at).clamp(0, self.len);
        self.to = (self.to - at).clamp(self.from, self.len);
    }

    fn flip(&mut self) {
        self.start += self.step * (self.len - 1);
        self.step = -self.step;
        (self.from, self.to) = (self.len - self.to, self.len - self.from);
    }
}

/// Writes `sample` (an image of `h` × `w` pixels of `pixel` bytes), changed by `transforms` with the
/// numbers of `draws`, to `out`, which is as large as the result. Takes bytes and floats alike: zero bytes are 0.0.
pub(super) fn apply(
    transforms: &[Transform],
    draws: &mut Stream,
    sample: &[u8],
    [h, w]: [usize; 2],
    pixel: usize,
    out: &mut [u8],
) {
    let (mut rows, mut columns) = (Axis::whole(h), Axis::whole(w));
    for transform in transforms {
        match *transform {
            Transform::RandomCrop { size, padding: [left, top, right, bottom] } => {
                rows.crop(size[0], top, bottom, draws);
                columns.crop(size[1], left, right, draws);
            }
            Transform::RandomHorizontalFlip { p } => {
                if draws.uniform() < p {
                    columns.flip();
                }
            }
        }
    }
    let width = columns.len as usize * pixel;
    let (from, to) = (columns.from as usize * pixel, columns.to as usize * pixel);
    for (y, row) in out.chunks_exact_mut(width).enumerate() {
        let y = y as isize;
        if y < rows.from || y >= rows.to || from == to {
            row.fill(0);
            continue;
        }
        let source = &sample[(rows.start + rows.step * y) as usize * w * pixel..][..w * pixel];
        row[..from].fill(0);
        row[to..].fill(0);
        let first = (columns.start + columns.step * columns.from) as usize * pixel;
        let inner = &mut row[from..to];
        if columns.step > 0 {
            inner.copy_from_slice(&source[first..][..inner.len()]);
        } else {
            let mirrored = source[..first + pixel].rchunks_exact(pixel);
            for (to, from) in inner.chunks_exact_mut(pixel).zip(mirrored) {
                to.copy_from_slice(from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;
    use proptest::prelude::*;

    /// The same, one change after the other with real borders: slow, and plain.
    fn plainly(transforms: &[Transform], draws: &mut Stream, image: &[u8], [mut h, mut w]: [usize; 2]) -> Vec<u8> {
        let mut image = image.to_vec();
        for t in transforms {
            match *t {
                Transform::RandomCrop { size: [th, tw], padding: [l, t, r, b] } => {
                    let (ph, pw) = (h + t + b, w + l + r);
                    let mut padded = vec![0; ph * pw];
                    for y in 0..h {
                        padded[(y + t) * pw + l..][..w].copy_from_slice(&image[y * w..][..w]);
                    }
                    let i = if ph > th { draws.below((ph - th + 1) as u32) as usize } else { 0 };
                    let j = if pw > tw { draws.below((pw - tw + 1) as u32) as usize } else { 0 };
                    image = (0..th).flat_map(|y| padded[(y + i) * pw + j..][..tw].to_vec()).collect();
                    (h, w) = (th, tw);
                }
                Transform::RandomHorizontalFlip { p } => {
                    if draws.uniform() < p {
                        image.chunks_mut(w).for_each(<[u8]>::reverse);
                    }
                }
            }
        }
        image
    }

    fn crop() -> impl Strategy<Value = Transform> {
        (prop::array::uniform2(1usize..9), prop::array::uniform4(0usize..12))
            .prop_map(|(size, padding)| Transform::RandomCrop { size, padding })
    }

    fn flip() -> impl Strategy<Value = Transform> {
        prop_oneof![Just(0.0), Just(0.5), Just(1.0)].prop_map(|p| Transform::RandomHorizontalFlip { p })
    }

    proptest! {
        #[test]
        fn one_map_is_all_changes(list in prop::collection::vec(prop_oneof![crop(), flip()], 0..5),
                                  h in 1usize..8, w in 1usize..8, seed in any::<u64>()) {
            let Ok(shape) = output_shape(&list, &[h, w, 1].into()) else { return Ok(()) };
            let image: Vec<u8> = (1..=(h * w) as u8).collect();
            let draws = || Stream::new(seed, Purpose::Augment, 0, 0);
            let mut out = vec![99; shape.len()];
            apply(&list, &mut draws(), &image, [h, w], 1, &mut out);
            prop_assert_eq!(&out, &plainly(&list, &mut draws(), &image, [h, w]));
            // Pixels of three bytes move as one.
            let wide: Vec<u8> = image.iter().flat_map(|v| [*v, *v + 100, *v + 150]).collect();
            let mut out3 = vec![99; shape.len() * 3];
            apply(&list, &mut draws(), &wide, [h, w], 3, &mut out3);
            for (a, b) in out.iter().zip(out3.chunks(3)) {
                prop_assert_eq!(b, if *a == 0 { [0; 3] } else { [*a, a + 100, a + 150] });
            }
        }
    }

    #[test]
    fn all_windows_and_both_sides_come_up() {
        let crop = [Transform::RandomCrop { size: [2, 2], padding: [1; 4] }];
        let flip = [Transform::RandomHorizontalFlip { p: 0.5 }];
        let mut seen = std::collections::HashSet::new();
        let mut flipped = 0;
        for i in 0..400 {
            let mut out = [0; 4];
            apply(&crop, &mut Stream::new(0, Purpose::Augment, 0, i), &[1, 2, 3, 4], [2, 2], 1, &mut out);
            seen.insert(out);
            apply(&flip, &mut Stream::new(0, Purpose::Augment, 0, i), &[1, 2, 3, 4], [2, 2], 1, &mut out);
            flipped += usize::from(out == [2, 1, 4, 3]);
        }
        assert_eq!(seen.len(), 9);
        assert!((150..250).contains(&flipped), "{flipped}");
    }

    #[test]
    fn senseless_changes_are_refused() {
        let image: Shape = [8, 8, 3].into();
        let crop = |size, padding| [Transform::RandomCrop { size, padding }];
        assert!(output_shape(&crop([9, 8], [0; 4]), &image).unwrap_err().to_string().contains("9×8"));
        assert!(output_shape(&crop([0, 8], [0; 4]), &image).is_err());
        assert!(output_shape(&crop([8, 8], [usize::MAX; 4]), &image).is_err());
        assert!(output_shape(&crop([4, 5], [0; 4]), &[64].into()).unwrap_err().to_string().contains("[64]"));
        assert!(output_shape(&[Transform::RandomHorizontalFlip { p: f64::NAN }], &image).is_err());
        assert_eq!(output_shape(&crop([4, 5], [0; 4]), &image).unwrap(), [4, 5, 3].into());
    }
}
