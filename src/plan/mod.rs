//! From graphs to programs: where every value lives. Pure data, made without a device.

use crate::graph::{DType, Graph, Input, Shape, ValueId, Variables};
use std::sync::Arc;

/// Every place starts at a multiple of this many bytes: a cache line, and the widest vector.
pub const ALIGN: usize = 64;

/// Which block of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Region {
    /// Variables; lives as long as the executable, shared by all programs.
    Persistent,
    /// The batch slot that the run is given.
    Slot,
    /// Activations, gradients, workspace: dead after the run, shared by all programs.
    Transient,
}

/// Where a value lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The block.
    pub region: Region,
    /// Bytes from its start, a multiple of [`ALIGN`].
    pub offset: usize,
}

/// One input in a batch slot.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotInput {
    /// Which.
    pub input: Input,
    /// Element type.
    pub dtype: DType,
    /// Shape for the largest batch.
    pub shape: Shape,
    /// Bytes from the slot's start.
    pub offset: usize,
}

/// The layout of a batch slot, for the largest batch; a smaller batch fills the front of each input.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SlotLayout {
    /// The inputs.
    pub inputs: Vec<SlotInput>,
    /// Size of a slot.
    pub bytes: usize,
}

/// A graph whose values all have their places.
#[derive(Debug, Clone)]
pub struct Program {
    /// For people: `train`, `train (last batch)`, `eval`.
    pub name: String,
    /// The nodes, in the order in which they run.
    pub graph: Graph,
    /// The place of every value of the graph (values that no node touches have one too, of no meaning).
    pub places: Vec<Place>,
    /// For every node, its workspace: offset in [`Region::Transient`] and bytes.
    pub workspace: Vec<(usize, usize)>,
    /// Size of the transient block that this program needs.
    pub transient_bytes: usize,
    /// The loss, if the program computes one.
    pub loss: Option<ValueId>,
    /// What the model puts out.
    pub prediction: Option<ValueId>,
}

/// All programs of an experiment over one set of variables.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The variables.
    pub variables: Arc<Variables>,
    /// For every variable, its offset in [`Region::Persistent`].
    pub variable_offsets: Vec<usize>,
    /// Size of the persistent block.
    pub persistent_bytes: usize,
    /// Size of the transient block: the largest that a program needs.
    pub transient_bytes: usize,
    /// Layout of a batch slot.
    pub slot: SlotLayout,
    /// The programs.
    pub programs: Vec<Program>,
}
