//! Writes samples into a batch slot.

use super::super::transforms::{apply, output_shape};
use super::super::{Split, Transform};
use super::LoaderOptions;
use crate::graph::{Input, Shape};
use crate::plan::SlotLayout;
use crate::random::{Purpose, Stream};
use anyhow::{Context, Result, ensure};

/// What a worker needs to know to fill a batch.
pub(super) struct Filler {
    split: Split,
    transforms: Vec<Transform>,
    seed: u64,
    /// Height and width of a sample, bytes of a pixel; meaningless without transforms.
    image: ([usize; 2], usize),
    /// Where inputs begin in a slot, and bytes of one of them.
    data: (usize, usize),
    /// The same for targets.
    targets: (usize, usize),
}

impl Filler {
    /// Checks that layout, transforms and samples fit each other.
    pub fn new(split: &Split, options: &LoaderOptions, layout: &SlotLayout) -> Result<Self> {
        let sample = output_shape(&options.transforms, split.input_shape())?;
        let part = |input: Input, shape: &Shape, dtype| -> Result<(usize, usize)> {
            let found = layout.find(input).with_context(|| format!("the batch slot has no place for {input:?}"))?;
            let fits =
                found.dtype == dtype
                    && found.shape.dims().split_first().is_some_and(|(n, rest)| {
                        *n >= options.batch_size && rest.iter().product::<usize>() == shape.len()
                    });
            ensure!(
                fits,
                "{input:?} of the batch slot is {} {}, which does not take batches of {} samples of {dtype} {shape}",
                found.dtype,
                found.shape,
                options.batch_size
            );
            let bytes = shape.len() * dtype.bytes();
            ensure!(
                found.offset + options.batch_size * bytes <= layout.bytes,
                "{input:?} does not fit a batch slot of {} bytes",
                layout.bytes
            );
            Ok((found.offset, bytes))
        };
        let image = match split.input_shape().dims() {
            &[h, w, c] => ([h, w], c * split.input_dtype().bytes()),
            _ => ([0, 0], 0),
        };
        Ok(Filler {
            data: part(Input::Data, &sample, split.input_dtype())?,
            targets: part(Input::Targets, split.target_shape(), split.target_dtype())?,
            split: split.clone(),
            transforms: options.transforms.clone(),
            seed: options.seed,
            image,
        })
    }

    /// Writes the samples at these places of the split.
    pub fn fill(&self, epoch: u64, samples: &[u32], slot: &mut [u8]) {
        let (offset, size) = self.data;
        let rows = slot[offset..][..samples.len() * size].chunks_exact_mut(size);
        for (row, sample) in rows.zip(samples) {
            let input = self.split.input(*sample as usize);
            if self.transforms.is_empty() {
                row.copy_from_slice(input);
            } else {
                let (sides, pixel) = self.image;
                let mut draws = Stream::new(self.seed, Purpose::Augment, epoch, u64::from(*sample));
                apply(&self.transforms, &mut draws, input, sides, pixel, row);
            }
        }
        let (offset, size) = self.targets;
        let rows = slot[offset..][..samples.len() * size].chunks_exact_mut(size);
        for (row, sample) in rows.zip(samples) {
            row.copy_from_slice(self.split.target(*sample as usize));
        }
    }

    /// A filler that panics in its second batch of a split of 8 in batches of 4.
    #[cfg(test)]
    pub fn broken(split: &Split, options: &LoaderOptions, layout: &SlotLayout) -> Result<Self> {
        Ok(Filler { split: split.limit(4), ..Filler::new(split, options, layout)? })
    }
}
