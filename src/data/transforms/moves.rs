//! Transforms that move pixels by whole places and change none: a list of them is one map, and each image is copied once.

use super::Transform;
use super::image::{Image, Window};
use crate::random::Stream;

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
    /// as in torchvision. If the axis is shorter than the window even so, its border grows on both sides by what is missing.
    fn crop(&mut self, size: usize, before: usize, after: usize, draws: &mut Stream) {
        let spare = self.len + (before + after) as isize - size as isize;
        let (places, before) = (spare.abs() + 1, before as isize + (-spare).max(0));
        let at = if places > 1 { draws.below(places as u32) as isize } else { 0 } - before;
        self.window(size, at);
    }

    /// The window in the middle. Where halves are left, torchvision rounds them to even numbers, but for a border.
    fn center_crop(&mut self, size: usize) {
        let spare = self.len - size as isize;
        let at = if spare < 0 { -(-spare / 2) } else { (spare as f64 / 2.0).round_ties_even() as isize };
        self.window(size, at);
    }

    /// The window of `size` from place `at` on; beyond the axis there are zeros.
    fn window(&mut self, size: usize, at: isize) {
        self.start += self.step * at;
        self.len = size as isize;
        self.from = (self.from - at).clamp(0, self.len);
        self.to = (self.to - at).clamp(self.from, self.len);
    }

    /// The places of the sample that the result has, if it has any.
    fn used(&self) -> Option<std::ops::Range<usize>> {
        let (first, last) = (self.start + self.step * self.from, self.start + self.step * (self.to - 1));
        (self.from < self.to).then(|| first.min(last) as usize..first.max(last) as usize + 1)
    }

    /// Reversed with probability `p`.
    fn flip(&mut self, p: f64, draws: &mut Stream) {
        if draws.uniform() >= p {
            return;
        }
        self.start += self.step * (self.len - 1);
        self.step = -self.step;
        (self.from, self.to) = (self.len - self.to, self.len - self.from);
    }
}

/// Where the pixels of the result come from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moves {
    rows: Axis,
    columns: Axis,
}

impl Moves {
    /// What a list of transforms, all of which only move pixels, does to images of `h` × `w`.
    pub fn fold(transforms: &[Transform], draws: &mut Stream, [h, w]: [usize; 2]) -> Self {
        let (mut rows, mut columns) = (Axis::whole(h), Axis::whole(w));
        for transform in transforms {
            match *transform {
                Transform::CenterCrop { size } => {
                    rows.center_crop(size[0]);
                    columns.center_crop(size[1]);
                }
                Transform::RandomCrop { size, padding: [left, top, right, bottom] } => {
                    rows.crop(size[0], top, bottom, draws);
                    columns.crop(size[1], left, right, draws);
                }
                Transform::RandomHorizontalFlip { p } => columns.flip(p, draws),
                Transform::RandomVerticalFlip { p } => rows.flip(p, draws),
                _ => {}
            }
        }
        Moves { rows, columns }
    }

    /// Height and width of the result.
    pub fn sides(&self) -> [usize; 2] {
        [self.rows.len as usize, self.columns.len as usize]
    }

    /// The rectangle of the sample that the result has; of a result that has none of it, some pixel.
    pub fn used(&self) -> Window {
        let (rows, columns) = match (self.rows.used(), self.columns.used()) {
            (Some(rows), Some(columns)) => (rows, columns),
            _ => (0..1, 0..1),
        };
        Window { at: [rows.start, columns.start], sides: [rows.len(), columns.len()] }
    }

    /// The same, for an image whose pixel at `to` is that of the sample at `from`.
    pub fn moved(mut self, from: [usize; 2], to: [usize; 2]) -> Self {
        self.rows.start += to[0] as isize - from[0] as isize;
        self.columns.start += to[1] as isize - from[1] as isize;
        self
    }

    /// The result for an image.
    pub fn apply(&self, image: &Image) -> Image {
        let mut pixels = vec![0; self.sides().iter().product::<usize>() * image.channels];
        self.copy(&image.pixels, image.sides[1], image.channels, &mut pixels);
        Image { sides: self.sides(), channels: image.channels, pixels }
    }

    /// Writes the result for `sample`, whose rows are of `w` pixels of `pixel` bytes, to `out`.
    pub fn copy(&self, sample: &[u8], w: usize, pixel: usize, out: &mut [u8]) {
        let Moves { rows, columns } = self;
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
}
