//! Several ranks that make a step together: what they send each other, and how sums over all of them are made.
//!
//! An engine carries bytes. Which numbers are added in which order is not its own decision: it is given the order
//! ([`crate::shards::Shards::total`]), so that the result has the same bits for any number of ranks.

mod ahead;
mod in_process;
pub mod inbox;
pub mod messages;
pub mod tcp;
#[cfg(test)]
mod tests;
mod total;

use crate::shards::Partial;
pub use ahead::{Ahead, Reduce};
pub use in_process::team;
pub use total::Number;

use crate::graph::DType;
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

/// How the elements of tensors are divided among ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Division<'a> {
    /// Each rank has its part of each tensor: [`crate::shards::part_of`].
    Elements,
    /// Each tensor belongs to one rank: which.
    Tensors(&'a [usize]),
}

/// A rank of several that make a step together.
///
/// All ranks call the same functions in the same order. A function returns when all have called it, or with the reason why that will not be.
pub trait Collective: Send + Sync + fmt::Debug {
    /// Which rank this is, from 0.
    fn rank(&self) -> usize;

    /// How many there are.
    fn ranks(&self) -> usize;

    /// Makes the elements that belong to this rank, in the first slot of each of `tensors`, the total over all ranks, in the given order. The rest of
    /// the slots is unspecified afterwards.
    ///
    /// # Errors
    /// Another rank has failed, or does not answer.
    ///
    /// # Safety
    /// The slots are valid for reads and writes, aligned and initialised, and nothing else uses them until this returns. All ranks give
    /// tensors of the same types and lengths, the same order and the same division.
    unsafe fn reduce_scatter(&self, order: &[Partial], tensors: &[Slots], division: Division) -> Result<()>;

    /// Gives all ranks the elements that belong to each, in the first slot of each of `tensors`.
    ///
    /// # Errors
    /// As [`Collective::reduce_scatter`].
    ///
    /// # Safety
    /// As [`Collective::reduce_scatter`].
    unsafe fn all_gather(&self, tensors: &[Slots], division: Division) -> Result<()>;

    /// Gives every rank `r` the bytes `given(r)`: what the ranks have given to this one, in their order.
    ///
    /// # Errors
    /// As [`Collective::reduce_scatter`].
    fn exchange<'a>(&self, given: &dyn Fn(usize) -> &'a [u8]) -> Result<Vec<Vec<u8>>>;

    /// Makes the first slot of each of `tensors` the total over all ranks, in the given order. The other slots are unspecified afterwards.
    ///
    /// # Errors
    /// As [`Collective::reduce_scatter`].
    ///
    /// # Safety
    /// As [`Collective::reduce_scatter`].
    unsafe fn sum(&self, order: &[Partial], tensors: &[Slots]) -> Result<()> {
        // SAFETY: as the caller promises.
        unsafe {
            self.reduce_scatter(order, tensors, Division::Elements)?;
            self.all_gather(tensors, Division::Elements)
        }
    }

    /// What every rank has given, in the order of ranks.
    ///
    /// # Errors
    /// As [`Collective::reduce_scatter`].
    fn gather(&self, given: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.exchange(&|_| given)
    }

    /// Reports to all other ranks that this one cannot go on, and why. They fail with that reason, which names this rank.
    fn fail(&self, why: &str);

    /// Fails if a rank has.
    ///
    /// # Errors
    /// The reason.
    fn check(&self) -> Result<()>;
}
