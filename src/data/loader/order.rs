//! Which samples are in which batch.

use super::{LoaderOptions, Position};
use crate::random::{Purpose, Stream};
use anyhow::{Result, ensure};
use std::ops::Range;

/// Which batches are made here, where others make the rest: in each group of `of` batches of an epoch, the first at its beginning, those with numbers
/// in `range`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    /// Which batches of a group.
    pub range: Range<usize>,
    /// Batches of a group.
    pub of: usize,
}

impl Own {
    fn has(&self, batch: usize) -> bool {
        self.range.contains(&(batch % self.of.max(1)))
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
    own: Option<Own>,
}

impl Order {
    pub fn new(samples: usize, options: &LoaderOptions, start: Position) -> Result<Self> {
        ensure!(options.batch_size > 0, "`batch_size` must be at least 1");
        ensure!(samples > 0, "there are no samples to make batches of");
        let (size, together) = (options.batch_size, options.batches_together.max(1));
        let batches = match options.drop_last {
            true => samples / (size * together) * together,
            false => samples.div_ceil(size),
        };
        ensure!(
            batches > 0,
            "{samples} samples make no whole batch of {}, and `drop_last` leaves the rest out: lower `batch_size`",
            size * together
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
        let own = options.own.clone();
        let has_some = |own: &Own| (0..batches.min(own.of)).any(|batch| own.has(batch));
        // Without this there would be no end to the search for the next one.
        let end_epoch = if own.as_ref().is_none_or(has_some) { options.end_epoch } else { Some(0) };
        let mut order = Order {
            samples: (0..samples as u32).collect(),
            batch_size: options.batch_size,
            batches,
            seed: options.shuffle.then_some(options.seed),
            end_epoch,
            at,
            ordered: None,
            own,
        };
        order.skip();
        Ok(order)
    }

    /// Goes on to the next batch that is made here.
    fn skip(&mut self) {
        while !self.at_end() && self.own.as_ref().is_some_and(|own| !own.has(self.at.batch)) {
            self.at = self.next();
        }
    }

    /// The place behind the one that it is at.
    fn next(&self) -> Position {
        match self.at.batch + 1 == self.batches {
            true => Position { epoch: self.at.epoch + 1, batch: 0 },
            false => Position { batch: self.at.batch + 1, ..self.at },
        }
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
        self.at = self.next();
        self.skip();
        (at, last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The batches of two epochs.
    fn all(samples: usize, options: &LoaderOptions) -> Vec<(Position, Vec<u32>)> {
        let mut order = Order::new(samples, options, Position::default()).unwrap();
        let mut list = Vec::new();
        while !order.at_end() {
            let mut batch = Vec::new();
            let (at, _) = order.take(&mut batch);
            list.push((at, batch));
        }
        list
    }

    proptest! {
        /// Whatever the number of ranks, each batch is made by one of them, and is what it would be otherwise.
        #[test]
        fn ranks_divide_the_batches(samples in 1usize..200, batch_size in 1usize..40, each in 1usize..4, ranks in 1usize..5, seed in any::<u64>()) {
            let options = LoaderOptions { batch_size, seed, end_epoch: Some(2), ..LoaderOptions::default() };
            let whole = all(samples, &options);
            let mut parts = Vec::new();
            for rank in 0..ranks {
                let own = Own { range: rank * each..(rank + 1) * each, of: ranks * each };
                parts.extend(all(samples, &LoaderOptions { own: Some(own), ..options.clone() }));
            }
            parts.sort_by_key(|(at, _)| *at);
            prop_assert_eq!(parts, whole);
        }

        /// A batch of several shards is left out as a whole.
        #[test]
        fn shards_are_left_out_together(samples in 1usize..200, batch_size in 1usize..20, batches_together in 1usize..6) {
            let options = LoaderOptions { batch_size, batches_together, drop_last: true, ..LoaderOptions::default() };
            let whole = samples / (batch_size * batches_together);
            match Order::new(samples, &options, Position::default()) {
                Ok(order) => prop_assert_eq!(order.batches_per_epoch(), whole * batches_together),
                Err(_) => prop_assert_eq!(whole, 0),
            }
        }
    }
}
