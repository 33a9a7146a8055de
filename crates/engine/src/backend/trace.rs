//! What a device did when: spans of time on its tracks.

use crate::graph::NodeId;

/// What works by itself, beside the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Track {
    /// Batches on their way to the device.
    CopyIn,
    /// Programs; on the CPU all threads together.
    Compute,
    /// Losses on their way back.
    ReadBack,
}

/// A piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// The transfer of a batch.
    Batch,
    /// A program from beginning to end.
    Program,
    /// One node of a program.
    Node(NodeId),
    /// The transfer of the losses of several steps.
    Losses,
}

/// How closely to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Programs as a whole, run as in training.
    Programs,
    /// Every node. Where training enqueues a captured program at once, nodes are enqueued one by one here: between small
    /// ones there may be gaps that training has not.
    Nodes,
}

/// When a piece of work was done. The spans of a track do not overlap.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// The step, from 0. [`Work::Losses`] has the last one that it was begun after.
    pub step: usize,
    /// The program.
    pub program: usize,
    /// Where.
    pub track: Track,
    /// What.
    pub work: Work,
    /// Seconds from the beginning of the trace.
    pub start: f64,
    /// Not before `start`.
    pub end: f64,
}

impl Span {
    /// How long it took, in seconds.
    pub fn seconds(&self) -> f64 {
        self.end - self.start
    }
}
