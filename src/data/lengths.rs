//! The lengths of sequences in a batch.

use std::fmt;

/// Most lengths in which the batches of a data set may differ.
pub const MAX_LENGTHS: usize = 2;

/// An axis of a field in which batches may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Length {
    /// The axis of a sample's shape, which has the largest extent there.
    pub axis: usize,
    /// Which length of the data set it is, less than [`MAX_LENGTHS`]: fields of one number have it in common.
    pub number: usize,
}

/// The lengths of a batch by their numbers; `None` where fields have their own extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Lengths(pub [Option<u32>; MAX_LENGTHS]);

impl Lengths {
    /// The first length alone.
    pub fn first(length: usize) -> Self {
        let mut all = [None; MAX_LENGTHS];
        all[0] = Some(length as u32);
        Lengths(all)
    }

    /// Each of several first lengths alone.
    pub fn firsts(lengths: &[usize]) -> Vec<Self> {
        lengths.iter().copied().map(Lengths::first).collect()
    }

    /// The place of the first of `all`, ascending, that a sample of these lengths fits into; that of the last one, for samples that are cut.
    pub fn place(all: &[Lengths], sample: [usize; MAX_LENGTHS]) -> usize {
        let fits = |lengths: &Lengths| {
            lengths.0.iter().zip(sample).all(|(length, of)| length.is_none_or(|length| of <= length as usize))
        };
        all.iter().position(fits).unwrap_or(all.len().saturating_sub(1))
    }

    /// Both lengths.
    pub fn both(first: usize, second: usize) -> Self {
        Lengths([Some(first as u32), Some(second as u32)])
    }
}

/// The shape of the batches that a program is for. There is a program for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BatchShape {
    /// Samples.
    pub samples: usize,
    /// The lengths of its sequences, where batches differ in those; else they are those of their fields.
    pub lengths: Lengths,
}

impl From<usize> for BatchShape {
    fn from(samples: usize) -> Self {
        BatchShape { samples, lengths: Lengths::default() }
    }
}

impl fmt::Display for BatchShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.samples)?;
        for (length, word) in self.lengths.0.iter().flatten().zip(["of length", "and"]) {
            write!(f, " {word} {length}")?;
        }
        Ok(())
    }
}
