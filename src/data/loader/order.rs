//! Which samples are in which batch.

use super::{LoaderOptions, Position};
use crate::random::{Purpose, Stream};
use anyhow::{Result, ensure};

/// Walks through the batches of all epochs. One list of samples is kept and shuffled anew for each epoch.
pub(super) struct Order {
    samples: Vec<u32>,
    batch_size: usize,
    batches: usize,
    /// The seed, if epochs are shuffled.
    seed: Option<u64>,
    end_epoch: Option<u64>,
    /// The next batch.
    at: Position,
    /// The epoch that `samples` is the order of.
    ordered: Option<u64>,
}

impl Order {
    pub fn new(samples: usize, options: &LoaderOptions, start: Position) -> Result<Self> {
        ensure!(options.batch_size > 0, "`batch_size` must be at least 1");
        ensure!(samples > 0, "there are no samples to make batches of");
        let batches =
            if options.drop_last { samples / options.batch_size } else { samples.div_ceil(options.batch_size) };
        ensure!(
            batches > 0,
            "{samples} samples make no whole batch of {}, and `drop_last` leaves the rest out: lower `batch_size`",
            options.batch_size
        );
        ensure!(
            start.batch <= batches,
            "cannot start at batch {} of an epoch of {batches} batches: the data or `batch_size` have changed",
            start.batch
        );
        let mut at = start;
        if at.batch == batches {
            at = Position { epoch: at.epoch + 1, batch: 0 };
        }
        Ok(Order {
            samples: (0..samples as u32).collect(),
            batch_size: options.batch_size,
            batches,
            seed: options.shuffle.then_some(options.seed),
            end_epoch: options.end_epoch,
            at,
            ordered: None,
        })
    }

    pub fn batches_per_epoch(&self) -> usize {
        self.batches
    }

    /// True if there is no next batch.
    pub fn at_end(&self) -> bool {
        self.end_epoch.is_some_and(|end| self.at.epoch >= end)
    }

    /// Replaces `out` by the samples of the next batch; its place, and whether it is the last of its epoch. Does not
    /// allocate if `out` has room for a batch.
    pub fn take(&mut self, out: &mut Vec<u32>) -> (Position, bool) {
        let at = self.at;
        if let Some(seed) = self.seed
            && self.ordered != Some(at.epoch)
        {
            // From the identity each time: an epoch's order depends on no other's.
            self.samples.iter_mut().enumerate().for_each(|(i, s)| *s = i as u32);
            Stream::new(seed, Purpose::Shuffle, at.epoch, 0).shuffle(&mut self.samples);
            self.ordered = Some(at.epoch);
        }
        let first = at.batch * self.batch_size;
        let end = (first + self.batch_size).min(self.samples.len());
        out.clear();
        out.extend_from_slice(&self.samples[first..end]);
        let last = at.batch + 1 == self.batches;
        self.at =
            if last { Position { epoch: at.epoch + 1, batch: 0 } } else { Position { batch: at.batch + 1, ..at } };
        (at, last)
    }
}
