//! Samples of a batch mixed with one another, images and targets alike: mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019).
//!
//! A sample's partner is the one at the other end of the batch, and one share holds for the whole batch, as in timm. So all of it is
//! done in place, and depends on nothing but the seed and the batch's place.

use super::super::store::Column;
use super::Position;
use crate::graph::DType;
use crate::random::{Purpose, Stream};
use anyhow::{Result, bail, ensure};

/// A way to mix.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mix {
    /// Both parameters of the beta distribution that shares are drawn from.
    pub alpha: f64,
    /// The probability that a batch is mixed.
    pub p: f64,
    /// Only so many epochs, the first ones, are mixed.
    pub epochs: Option<u64>,
}

/// What becomes of the batches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mixing {
    /// Weighted means of two images.
    pub mixup: Option<Mix>,
    /// A rectangle of each image taken from the other.
    pub cutmix: Option<Mix>,
    /// Where there are both, the probability that it is the second.
    pub switch_prob: f64,
}

impl Mixing {
    /// Checks the numbers.
    ///
    /// # Errors
    /// A number that makes no sense.
    pub(super) fn check(&self) -> Result<()> {
        for mix in self.mixup.iter().chain(&self.cutmix) {
            ensure!(mix.alpha > 0.0 && mix.alpha.is_finite(), "`alpha` is {}, and must be above 0", mix.alpha);
            ensure!((0.0..=1.0).contains(&mix.p), "`p` is {}, not within 0 and 1", mix.p);
        }
        ensure!((0.0..=1.0).contains(&self.switch_prob), "`switch_prob` is {}, not within 0 and 1", self.switch_prob);
        Ok(())
    }
}

/// The image that is mixed, as it lies in a slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Images {
    pub column: Column,
    pub dtype: DType,
    /// Height, width, and bytes of a pixel. Anything but images has one row of one pixel.
    pub sides: [usize; 2],
    pub pixel: usize,
}

/// What is learnt, as it lies in a slot.
#[derive(Debug, Clone, Copy)]
pub(super) enum Targets {
    /// Nothing that the batch has.
    None,
    /// A class a sample, and where the shares of all so many classes go.
    Classes { labels: Column, shares: Option<(Column, usize)> },
    /// Numbers, which are mixed as they are.
    Numbers(Column),
}

/// Mixes batches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mixer {
    pub mixing: Mixing,
    pub seed: u64,
    pub images: Images,
    pub targets: Targets,
}

/// What is done to a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    /// Each sample counts so much, and its partner the rest.
    Mean(f64),
    /// This window (top, left, bottom, right) is that of the partner.
    Window([usize; 4]),
}

impl Mixer {
    /// Mixes the first `samples` of a slot, and writes the shares of classes.
    ///
    /// # Errors
    /// A label is no class.
    pub fn mix(&self, at: Position, samples: usize, slot: &mut [u8]) -> Result<()> {
        let share = match self.draw(at) {
            None => 1.0,
            Some(Change::Mean(share)) => {
                self.pairs(self.images.column, samples, slot, |a, b| mean(self.images.dtype, share, a, b));
                share
            }
            Some(Change::Window(window)) => {
                self.pairs(self.images.column, samples, slot, |a, b| self.swap(window, a, b));
                let [top, left, bottom, right] = window;
                let [h, w] = self.images.sides;
                1.0 - ((bottom - top) * (right - left)) as f64 / (h * w) as f64
            }
        };
        match self.targets {
            Targets::None => {}
            Targets::Numbers(column) => self.pairs(column, samples, slot, |a, b| mean(DType::F32, share, a, b)),
            Targets::Classes { labels, shares } => {
                if let Some((shares, classes)) = shares {
                    write_shares(slot, labels, shares, classes, samples, share)?;
                }
                // The class that an answer is held against is that of the larger share.
                if share < 0.5 {
                    self.pairs(labels, samples, slot, <[u8]>::swap_with_slice);
                }
            }
        }
        Ok(())
    }

    /// What the draws for a batch say, if it is mixed.
    fn draw(&self, at: Position) -> Option<Change> {
        let draws = &mut Stream::new(self.seed, Purpose::Mix, at.epoch, at.batch as u64);
        let on = |mix: Option<Mix>| mix.filter(|mix| mix.epochs.is_none_or(|epochs| at.epoch < epochs));
        let switched = draws.uniform() < self.mixing.switch_prob;
        let (mix, cut) = match (on(self.mixing.mixup), on(self.mixing.cutmix)) {
            (Some(mix), None) => (mix, false),
            (None, Some(mix)) => (mix, true),
            (Some(_), Some(mix)) if switched => (mix, true),
            (Some(mix), Some(_)) => (mix, false),
            (None, None) => return None,
        };
        if draws.uniform() >= mix.p {
            return None;
        }
        let share = draws.beta(mix.alpha);
        if !cut {
            return Some(Change::Mean(share));
        }
        let middle = self.images.sides.map(|side| draws.below(side as u32) as usize);
        Some(Change::Window(window(self.images.sides, middle, share)))
    }

    /// Hands the rows of a column to `change` by twos, each with that at the other end.
    fn pairs(&self, column: Column, samples: usize, slot: &mut [u8], mut change: impl FnMut(&mut [u8], &mut [u8])) {
        let bytes = column.bytes;
        let rows = &mut slot[column.offset..][..samples * bytes];
        for i in 0..samples / 2 {
            let (front, back) = rows.split_at_mut((samples - 1 - i) * bytes);
            change(&mut front[i * bytes..][..bytes], &mut back[..bytes]);
        }
    }

    /// Swaps a window of two images.
    fn swap(&self, [top, left, bottom, right]: [usize; 4], a: &mut [u8], b: &mut [u8]) {
        let (line, pixel) = (self.images.sides[1] * self.images.pixel, self.images.pixel);
        for y in top..bottom {
            let row = y * line + left * pixel..y * line + right * pixel;
            a[row.clone()].swap_with_slice(&mut b[row]);
        }
    }
}

/// The window about `middle` that has `1 − share` of an image, as far as it lies inside: torchvision's `CutMix.make_params`.
fn window(sides: [usize; 2], middle: [usize; 2], share: f64) -> [usize; 4] {
    let ratio = 0.5 * (1.0 - share).sqrt();
    let half = sides.map(|side| (ratio * side as f64) as usize);
    let from = [0, 1].map(|axis| middle[axis].saturating_sub(half[axis]));
    let to = [0, 1].map(|axis| (middle[axis] + half[axis]).min(sides[axis]));
    [from[0], from[1], to[0], to[1]]
}

/// Both rows as `share` of themselves and the rest of the other. Bytes are rounded to the nearest, halves to even, as numpy's `rint`.
fn mean(dtype: DType, share: f64, a: &mut [u8], b: &mut [u8]) {
    let (own, other) = (share as f32, (1.0 - share) as f32);
    if dtype == DType::U8 {
        // Added to a number below 256, it leaves the nearest whole number in the lowest bits.
        const ROUND: f32 = 12_582_912.0;
        let byte = |x: f32| (x + ROUND).to_bits() as u8;
        for (a, b) in a.iter_mut().zip(b) {
            let (x, y) = (f32::from(*a), f32::from(*b));
            *a = byte(x * own + y * other);
            *b = byte(y * own + x * other);
        }
        return;
    }
    for (a, b) in a.as_chunks_mut().0.iter_mut().zip(b.as_chunks_mut().0) {
        let (x, y) = (f32::from_ne_bytes(*a), f32::from_ne_bytes(*b));
        *a = (x * own + y * other).to_ne_bytes();
        *b = (y * own + x * other).to_ne_bytes();
    }
}

/// Writes the share of each class in each sample: `share` for its own, and the rest for its partner's.
fn write_shares(
    slot: &mut [u8],
    labels: Column,
    shares: Column,
    classes: usize,
    samples: usize,
    share: f64,
) -> Result<()> {
    for row in 0..samples {
        let class = |sample: usize| -> Result<usize> {
            let at = labels.offset + sample * labels.bytes;
            let label = i32::from_ne_bytes(slot[at..at + 4].try_into()?);
            match usize::try_from(label) {
                Ok(class) if class < classes => Ok(class),
                _ => bail!("the label {label} is no class, and only samples of a class can be mixed"),
            }
        };
        let (own, other) = (class(row)?, class(samples - 1 - row)?);
        let row = &mut slot[shares.offset + row * shares.bytes..][..shares.bytes];
        row.fill(0);
        let mut add = |class: usize, share: f32| {
            let at = &mut row.as_chunks_mut().0[class];
            *at = (f32::from_ne_bytes(*at) + share).to_ne_bytes();
        };
        add(own, share as f32);
        add(other, (1.0 - share) as f32);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
