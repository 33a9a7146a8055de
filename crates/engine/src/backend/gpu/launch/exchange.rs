//! What ranks send each other, as data.

use super::kernel::Memory;

/// Bytes for another rank, or from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// The other rank.
    pub peer: usize,
    /// Where they lie here.
    pub at: Memory,
    /// How many, at least one.
    pub bytes: usize,
}

/// Messages that are all under way at once. What one rank sends another is received in the order in which it is sent, and each message is as long
/// as the receiver expects it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exchange {
    /// What this rank sends.
    pub sends: Vec<Message>,
    /// What it receives.
    pub receives: Vec<Message>,
}
