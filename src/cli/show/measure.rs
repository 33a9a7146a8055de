//! What is measured of images: their sizes, their classes, mean and standard deviation of their channels, and what cannot be read.

use super::batches::{Batches, Wanted};
use crate::api::failure::Failure;
use crate::data::{Split, Unreadable};
use crate::terminal::Bar;

/// The figures.
pub struct Measured {
    /// Height and width of the originals: the least, the median and the largest by area.
    pub sizes: Option<[[usize; 2]; 3]>,
    /// Samples of each class, or pixels, where each has a class; empty where there are none.
    pub classes: Vec<u64>,
    /// Each pixel has a class.
    pub masks: bool,
    /// Of each channel, with values from 0 to 1.
    pub mean: Vec<f64>,
    /// The same of the standard deviation.
    pub std: Vec<f64>,
    /// What cannot be read.
    pub unreadable: Vec<Unreadable>,
}

/// Goes through all samples of a split once, as evaluation would see them.
///
/// # Errors
/// So many samples cannot be read that there is nothing to measure.
pub fn measure(split: &Split, wanted: &Wanted, classes: usize) -> Result<Measured, Failure> {
    let mut batches = Batches::start(split, wanted)?;
    let channels = wanted.image[2];
    let (mut sums, mut squares, mut pixels) = (vec![0u64; channels], vec![0u64; channels], 0u64);
    let mut counts = vec![0; classes];
    let mut unreadable: Vec<Unreadable> = Vec::new();
    let bar = Bar::new("samples", split.len() as u64, 0);
    let mut done = 0;
    while let Some(batch) = batches.next()? {
        // What stands in for a sample that cannot be read has its own turn.
        let own = |i: usize| u64::from(batch.samples()[i]) == done + i as u64;
        for bytes in batches.images(&batch).enumerate().filter(|(i, _)| own(*i)).map(|(_, bytes)| bytes) {
            for pixel in bytes.chunks_exact(channels) {
                for (c, value) in pixel.iter().enumerate() {
                    sums[c] += u64::from(*value);
                    squares[c] += u64::from(*value) * u64::from(*value);
                }
            }
            pixels += (bytes.len() / channels) as u64;
        }
        for label in (0..batch.shape.samples).filter(|i| own(*i)).flat_map(|i| batches.labels(&batch, i)) {
            if let Some(count) = usize::try_from(label).ok().and_then(|label| counts.get_mut(label)) {
                *count += 1;
            }
        }
        for bad in batch.unreadable() {
            if !unreadable.iter().any(|known| known.name == bad.name) {
                unreadable.push(bad.clone());
            }
        }
        done += batch.shape.samples as u64;
        if let Some(bar) = &bar {
            bar.set(done);
        }
        batches.release(batch);
    }
    drop(bar);
    let mean: Vec<f64> = sums.iter().map(|sum| *sum as f64 / pixels as f64).collect();
    let of = |(square, mean): (&u64, &f64)| (*square as f64 / pixels as f64 - mean * mean).max(0.0).sqrt() / 255.0;
    let std = squares.iter().zip(&mean).map(of).collect();
    let mut sizes: Vec<[usize; 2]> = (0..split.len()).filter_map(|i| split.sides(i)).collect();
    sizes.sort_unstable_by_key(|sides| (sides[0] * sides[1], *sides));
    let sizes = match sizes[..] {
        [] => None,
        [least, ..] => Some([least, sizes[sizes.len() / 2], sizes[sizes.len() - 1]]),
    };
    let mean = mean.iter().map(|mean| mean / 255.0).collect();
    Ok(Measured { sizes, classes: counts, masks: wanted.masks, mean, std, unreadable })
}
