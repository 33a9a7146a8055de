//! Which samples are in which batch.

use super::{LoaderOptions, Position};
use crate::data::{Lengths, Split};
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
    buckets: Option<Buckets>,
}

/// Samples that differ in length, so that a batch is of some of about one length.
struct Buckets {
    /// The lengths, ascending.
    lengths: Vec<Lengths>,
    /// The place among them of each sample.
    of: Vec<u8>,
    /// The same for the batches of the epoch.
    of_batches: Vec<u8>,
    /// Room for an order, and for one of whole batches.
    sorted: Vec<u32>,
    blocks: Vec<u32>,
}

impl Buckets {
    /// Of a split whose samples differ in length.
    fn new(split: &Split, batches: usize) -> Option<Self> {
        let lengths = split.lengths().to_vec();
        let last = lengths.len().checked_sub(1)?;
        let of = |i| split.length_of(i).min(last) as u8;
        Some(Buckets {
            of: (0..split.len()).map(of).collect(),
            of_batches: Vec::with_capacity(batches + 1),
            sorted: Vec::with_capacity(split.len()),
            blocks: Vec::with_capacity(batches + 1),
            lengths,
        })
    }

    /// Brings samples of one length together, those of each in the order that they are in, and then, with `draws`, whole batches into an order of their own.
    /// What does not fill a batch begins the first one of the next length. The last batch, if it is not full, has the largest length.
    fn arrange(&mut self, samples: &mut [u32], batch_size: usize, draws: Option<&mut Stream>) {
        self.sorted.clear();
        for bucket in 0..self.lengths.len() {
            let is = |sample: &&u32| usize::from(self.of[**sample as usize]) == bucket;
            self.sorted.extend(samples.iter().filter(is));
        }
        let whole = samples.len() / batch_size;
        self.blocks.clear();
        self.blocks.extend(0..whole as u32);
        if let Some(draws) = draws {
            draws.shuffle(&mut self.blocks);
        }
        self.of_batches.clear();
        for (batch, block) in self.blocks.iter().enumerate() {
            let from = &self.sorted[*block as usize * batch_size..][..batch_size];
            samples[batch * batch_size..][..batch_size].copy_from_slice(from);
            self.of_batches.push(self.of[from[batch_size - 1] as usize]);
        }
        let rest = whole * batch_size;
        samples[rest..].copy_from_slice(&self.sorted[rest..]);
        if rest < samples.len() {
            self.of_batches.push((self.lengths.len() - 1) as u8);
        }
    }
}

impl Order {
    pub fn new(split: &Split, options: &LoaderOptions, start: Position) -> Result<Self> {
        let samples = split.len();
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
            buckets: Buckets::new(split, batches),
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

    /// The place after the one that it is at.
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
    pub fn take(&mut self, out: &mut Vec<u32>) -> (Position, Lengths, bool) {
        let at = self.at;
        let anew = self.seed.is_some() || self.buckets.is_some() && self.ordered.is_none();
        if anew && self.ordered != Some(at.epoch) {
            // From the identity each time: an epoch's order depends on no other's.
            self.samples.iter_mut().enumerate().for_each(|(i, s)| *s = i as u32);
            let mut draws = self.seed.map(|seed| Stream::new(seed, Purpose::Shuffle, at.epoch, 0));
            if let Some(draws) = &mut draws {
                draws.shuffle(&mut self.samples);
            }
            if let Some(buckets) = &mut self.buckets {
                buckets.arrange(&mut self.samples, self.batch_size, draws.as_mut());
            }
            self.ordered = Some(at.epoch);
        }
        let first = at.batch * self.batch_size;
        let end = (first + self.batch_size).min(self.samples.len());
        out.clear();
        out.extend_from_slice(&self.samples[first..end]);
        let length = |buckets: &Buckets| buckets.lengths[usize::from(buckets.of_batches[at.batch])];
        let lengths = self.buckets.as_ref().map_or(Lengths::default(), length);
        let last = at.batch + 1 == self.batches;
        self.at = self.next();
        self.skip();
        (at, lengths, last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Classes, Field, FieldKind, INPUTS, Rows, Store, TARGETS, Unreadable};
    use crate::graph::DType;
    use proptest::prelude::*;
    use std::sync::Arc;

    /// Samples with nothing in them, each of one of some lengths.
    struct Empty(Vec<Lengths>, Vec<usize>, Vec<Field>);

    impl Store for Empty {
        fn len(&self) -> usize {
            self.1.len()
        }
        fn fields(&self) -> &[Field] {
            &self.2
        }
        fn lengths(&self) -> &[Lengths] {
            &self.0
        }
        fn length_of(&self, sample: usize) -> usize {
            self.1[sample]
        }
        fn write(&self, _: usize, _: &mut Rows) -> Result<(), Unreadable> {
            Ok(())
        }
        fn identify(&self, _: usize, _: usize, _: &mut dyn FnMut(&[u8])) {}
    }

    /// Samples of these lengths, each of which has the length at its place.
    fn of_lengths(lengths: &[usize], of: Vec<usize>) -> Split {
        let kind = FieldKind::Category(Classes::of(1));
        let fields = vec![Field::numbers(INPUTS, DType::F32, [1]), Field::target(TARGETS, kind, [])];
        Split::new(Arc::new(Empty(lengths.iter().copied().map(Lengths::first).collect(), of, fields))).unwrap()
    }

    /// The batches of two epochs.
    fn all(samples: usize, options: &LoaderOptions) -> Vec<(Position, Vec<u32>)> {
        batches(&of_lengths(&[], vec![0; samples]), options).into_iter().map(|(at, _, batch)| (at, batch)).collect()
    }

    fn batches(split: &Split, options: &LoaderOptions) -> Vec<(Position, Lengths, Vec<u32>)> {
        let mut order = Order::new(split, options, Position::default()).unwrap();
        let mut list = Vec::new();
        while !order.at_end() {
            let mut batch = Vec::new();
            let (at, lengths, _) = order.take(&mut batch);
            list.push((at, lengths, batch));
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
            match Order::new(&of_lengths(&[], vec![0; samples]), &options, Position::default()) {
                Ok(order) => prop_assert_eq!(order.batches_per_epoch(), whole * batches_together),
                Err(_) => prop_assert_eq!(whole, 0),
            }
        }

        /// Every sample is in one batch of an epoch, of a length that it fits into; only where lengths meet, and at the end, batches are longer than
        /// they must be.
        #[test]
        fn batches_are_of_samples_of_one_length(of in proptest::collection::vec(0usize..3, 1..120), batch_size in 1usize..20, shuffle: bool, seed in any::<u64>()) {
            let lengths = [8, 16, 64];
            let split = of_lengths(&lengths, of.clone());
            let options = LoaderOptions { batch_size, shuffle, seed, end_epoch: Some(2), ..LoaderOptions::default() };
            let batches = batches(&split, &options);
            for epoch in 0..2 {
                let of_epoch: Vec<_> = batches.iter().filter(|(at, ..)| at.epoch == epoch).collect();
                let mut samples: Vec<u32> = of_epoch.iter().flat_map(|(.., samples)| samples.clone()).collect();
                samples.sort_unstable();
                prop_assert_eq!(samples, (0..of.len() as u32).collect::<Vec<_>>());
                let mut mixed = 0;
                for (_, length, samples) in of_epoch {
                    let length = length.0[0].unwrap() as usize;
                    prop_assert!(samples.iter().all(|s| lengths[of[*s as usize]] <= length));
                    prop_assert!(samples.len() == batch_size || length == 64);
                    mixed += usize::from(samples.iter().any(|s| lengths[of[*s as usize]] < length));
                }
                prop_assert!(mixed <= lengths.len(), "{mixed} batches");
            }
            // An epoch's order depends on no other's.
            let start = Position { epoch: 1, batch: 0 };
            let mut order = Order::new(&split, &options, start).unwrap();
            let mut batch = Vec::new();
            let (at, length, _) = order.take(&mut batch);
            prop_assert_eq!(Some(&(at, length, batch)), batches.iter().find(|(at, ..)| *at == start));
        }
    }
}
