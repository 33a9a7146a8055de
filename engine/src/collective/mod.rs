//! Several ranks that make a step together: what they tell each other, and how sums over all of them are made.
//!
//! An engine carries bytes. Which numbers are added in which order is not its own decision: it is given the order
//! ([`crate::shards::Shards::total`]), so that the result has the same bits for any number of ranks.

mod in_process;
mod inbox;
mod messages;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod tcp;
#[cfg(test)]
mod tests;
mod total;

pub use in_process::team;
pub use total::Number;

use crate::graph::DType;
use crate::shards::Partial;
use anyhow::Result;
use std::fmt;

/// The sums of one tensor on a rank: a stack of slots.
#[derive(Debug, Clone, PartialEq)]
pub struct Slots {
    /// Element type: `F32`, `F64` or `I64`.
    pub dtype: DType,
    /// Elements of a slot.
    pub len: usize,
    /// Where each of them lies.
    pub slots: Vec<*mut u8>,
}

// SAFETY: these are addresses; who reads or writes there is a matter of the unsafe code that does it.
unsafe impl Send for Slots {}
// SAFETY: as above.
unsafe impl Sync for Slots {}

/// A rank of several that make a step together.
///
/// All ranks call the same functions in the same order. A function returns when all have called it, or with the reason why that will not be.
pub trait Collective: Send + Sync + fmt::Debug {
    /// Which rank this is, from 0.
    fn rank(&self) -> usize;

    /// How many there are.
    fn ranks(&self) -> usize;

    /// Makes the first slot of each of `tensors` the total over all ranks, in the given order. What the other slots hold afterwards is not told.
    ///
    /// # Errors
    /// Another rank has failed, or does not answer.
    ///
    /// # Safety
    /// The slots are valid for reads and writes, aligned and initialised, and nobody else uses them until this returns. All ranks give
    /// tensors of the same types and lengths, and the same order.
    unsafe fn sum(&self, order: &[Partial], tensors: &[Slots]) -> Result<()>;

    /// What every rank has given, in the order of ranks.
    ///
    /// # Errors
    /// As [`Collective::sum`].
    fn gather(&self, given: &[u8]) -> Result<Vec<Vec<u8>>>;

    /// Tells all other ranks that this one cannot go on, and why. They fail with that reason, which names this rank.
    fn fail(&self, why: &str);

    /// Fails if a rank has.
    ///
    /// # Errors
    /// The reason.
    fn check(&self) -> Result<()>;
}
