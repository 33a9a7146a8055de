//! Which of several ranks has a variable, and how much of it.

use crate::shards::part_of;
use std::ops::Range;

/// Which of several ranks has a variable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Holder {
    /// Every rank, with the same content.
    #[default]
    All,
    /// This rank alone.
    This,
    /// Another rank alone: which. There is no memory for it here.
    Other(usize),
    /// Each rank has its part ([`part_of`]): which this is, of how many.
    Part(usize, usize),
}

impl Holder {
    /// Of so many elements, those that this rank has.
    pub fn here(self, length: usize) -> Range<usize> {
        match self {
            Holder::All | Holder::This => 0..length,
            Holder::Other(_) => 0..0,
            Holder::Part(rank, ranks) => part_of(length, (rank, ranks)),
        }
    }

    /// Of so many elements, those that `rank` has, which is this one if `own`.
    pub fn elements_of(self, length: usize, rank: usize, own: bool) -> Range<usize> {
        match self {
            _ if own => self.here(length),
            Holder::All => 0..length,
            Holder::Other(other) if other == rank => 0..length,
            Holder::This | Holder::Other(_) => 0..0,
            Holder::Part(_, ranks) => part_of(length, (rank, ranks)),
        }
    }
}
