//! Which samples are in which batch.

use super::{LoaderOptions, Position};
use crate::random::{Purpose, Stream};
use anyhow::{Result, ensure};

/// The part of one of several ranks that make a step together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// Which rank, from 0.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
}

impl Shard {
    /// The rank's part of what makes up a step, whose order and samples do not depend on the number of ranks: all parts
    /// together, one after the other, are the whole. No two differ by more than one; one may be empty.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn of<T>(self, whole: &[T]) -> &[T] {
        let Shard { rank, ranks } = self;
        assert!(rank < ranks, "rank {rank} of {ranks}");
        // Not `len · rank / ranks`, which may overflow: the first `rest` ranks have one more than the others.
        let (each, rest) = (whole.len() / ranks, whole.len() % ranks);
        let start = each * rank + rank.min(rest);
        &whole[start..start + each + usize::from(rank < rest)]
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever the number of ranks, a step is of the same samples in the same order.
        #[test]
        fn ranks_divide_a_step(samples in 1usize..200, batch_size in 1usize..40, ranks in 1usize..9, seed in any::<u64>()) {
            let options = LoaderOptions { batch_size, seed, end_epoch: Some(2), ..LoaderOptions::default() };
            let mut order = Order::new(samples, &options, Position::default()).unwrap();
            let mut whole = Vec::new();
            while !order.at_end() {
                order.take(&mut whole);
                let parts: Vec<&[u32]> = (0..ranks).map(|rank| Shard { rank, ranks }.of(&whole)).collect();
                prop_assert_eq!(parts.concat(), whole.clone());
                let lengths = parts.iter().map(|part| part.len());
                prop_assert!(lengths.clone().max().unwrap() - lengths.min().unwrap() <= 1);
            }
        }
    }

    #[test]
    #[should_panic(expected = "rank 2 of 2")]
    fn a_rank_beyond_the_last_is_none() {
        Shard { rank: 2, ranks: 2 }.of(&[1]);
    }
}
