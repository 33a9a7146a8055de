//! The device memory of programs: one block, or for debugging an allocation for each value.

use super::losses;
use crate::backend::cuda::driver::memory::DeviceBlock;
use crate::backend::cuda::driver::stream::Stream;
use crate::backend::cuda::driver::{Context, CudaError};
use crate::plan::{Plan, Region, align};
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Batch slots on the device: one is computed on while the other is filled.
pub const SLOTS: usize = 2;

/// What memory is for. Offsets count from the beginning of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Area {
    /// Variables.
    Persistent,
    /// Values whose lifetime is within one run.
    Transient,
    /// A batch.
    Slot(usize),
    /// The ring buffer of losses.
    Losses,
    /// Constant arrays of kernels.
    Tables,
}

impl Area {
    /// Where a region lies for a program that is run on slot `slot`.
    pub fn of(region: Region, slot: usize) -> Area {
        match region {
            Region::Persistent => Area::Persistent,
            Region::Transient => Area::Transient,
            Region::Slot => Area::Slot(slot),
        }
    }
}

/// How large each area is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    persistent: usize,
    /// Bytes of values whose lifetime is within one run.
    pub transient: usize,
    /// Bytes of a slot.
    pub slot: usize,
    tables: usize,
    /// All of it.
    pub bytes: usize,
}

impl Layout {
    /// For `plan` with so many bytes of constant arrays.
    pub fn new(plan: &Plan, tables: usize) -> Layout {
        // Kernels load 16 bytes at a time from aligned addresses: every area begins at a multiple of 64.
        let (persistent, transient) = (align(plan.persistent_bytes), align(plan.transient_bytes));
        let slot = align(plan.slot_bytes(plan.together));
        let bytes = persistent + transient + SLOTS * slot + align(losses::BYTES) + tables;
        Layout { persistent, transient, slot, tables, bytes }
    }

    /// The areas with their sizes.
    fn areas(&self) -> Vec<(Area, usize)> {
        let slots = (0..SLOTS).map(|k| (Area::Slot(k), self.slot));
        let first = [(Area::Persistent, self.persistent), (Area::Transient, self.transient)];
        let last = [(Area::Losses, align(losses::BYTES)), (Area::Tables, self.tables)];
        first.into_iter().chain(slots).chain(last).collect()
    }
}

/// A part of an area, in one piece.
#[derive(Debug, Clone, Copy)]
struct Piece {
    block: usize,
    at: usize,
    bytes: usize,
}

/// The memory.
#[derive(Debug)]
pub struct Storage {
    blocks: Vec<DeviceBlock>,
    /// By area and offset.
    pieces: BTreeMap<(Area, usize), Piece>,
}

impl Storage {
    /// Allocates the memory of `plan`: a block for all of it, or, if the plan keeps values apart, one for each.
    ///
    /// # Errors
    /// There is not enough.
    pub fn new(context: &Arc<Context>, plan: &Plan, layout: &Layout) -> Result<Storage> {
        let mut this = Storage { blocks: Vec::new(), pieces: BTreeMap::new() };
        if plan.apart {
            for ((area, offset), bytes) in extents(plan, layout) {
                this.pieces.insert((area, offset), Piece { block: this.blocks.len(), at: 0, bytes });
                this.blocks.push(DeviceBlock::new(context, bytes)?);
            }
            return Ok(this);
        }
        this.blocks.push(DeviceBlock::new(context, layout.bytes)?);
        let mut at = 0;
        for (area, bytes) in layout.areas() {
            this.pieces.insert((area, 0), Piece { block: 0, at, bytes });
            at += bytes;
        }
        Ok(this)
    }

    /// The block with the byte at `offset` of an area, and where it is there.
    ///
    /// # Errors
    /// The plan has nothing there.
    pub fn locate(&self, area: Area, offset: usize) -> Result<(&DeviceBlock, usize)> {
        let before = self.pieces.range(..=(area, offset)).next_back();
        let found = before.filter(|((a, start), piece)| *a == area && offset - start <= piece.bytes);
        let ((_, start), piece) =
            found.with_context(|| format!("the plan has no memory at byte {offset} of {area:?}"))?;
        Ok((&self.blocks[piece.block], piece.at + offset - start))
    }

    /// The address of a byte of an area.
    ///
    /// # Errors
    /// The plan has nothing there.
    pub fn address(&self, area: Area, offset: usize) -> Result<u64> {
        let (block, at) = self.locate(area, offset)?;
        Ok(block.address() + at as u64)
    }

    /// The pieces of an area: the block and the place in it, and where they are in the area.
    pub fn pieces(&self, area: Area) -> impl Iterator<Item = (&DeviceBlock, usize, std::ops::Range<usize>)> {
        let all = self.pieces.range((area, 0)..=(area, usize::MAX));
        all.map(|((_, start), piece)| (&self.blocks[piece.block], piece.at, *start..start + piece.bytes))
    }

    /// Enqueues zeros for all of an area.
    ///
    /// # Errors
    /// The driver failed.
    pub fn zero(&self, stream: &Stream, area: Area) -> Result<(), CudaError> {
        self.pieces(area).try_for_each(|(block, at, range)| block.zero(stream, at, range.len()))
    }
}

/// Every value's bytes, without padding.
fn extents(plan: &Plan, layout: &Layout) -> BTreeMap<(Area, usize), usize> {
    let mut found = BTreeMap::new();
    let mut add = |area: Area, offset: usize, bytes: usize| {
        let most: &mut usize = found.entry((area, offset)).or_insert(0);
        *most = bytes.max(*most);
    };
    // What another rank has takes nothing.
    let here = plan.variables.iter().zip(&plan.variable_offsets).filter(|((_, variable), _)| variable.bytes_here() > 0);
    for ((_, variable), offset) in here {
        add(Area::Persistent, *offset, variable.bytes_here());
    }
    let beside = (1..plan.together).flat_map(|shard| plan.beside.inputs.iter().map(move |input| (shard, input)));
    for (shard, input) in plan.slot.inputs.iter().map(|input| (0, input)).chain(beside) {
        let at = if shard == 0 { 0 } else { plan.slot_bytes(shard) } + input.offset;
        (0..SLOTS).for_each(|k| add(Area::Slot(k), at, input.shape.len() * input.dtype.bytes()));
    }
    for program in &plan.programs {
        for node in &program.graph.nodes {
            for value in node.inputs.iter().chain(&node.outputs) {
                let place = program.places[value.index()];
                if place.region == Region::Transient {
                    add(Area::Transient, place.offset, program.graph.value(*value).bytes());
                }
            }
        }
        for (offset, bytes) in program.workspace.iter().filter(|(_, bytes)| *bytes > 0) {
            add(Area::Transient, *offset, *bytes);
        }
    }
    add(Area::Losses, 0, losses::BYTES);
    add(Area::Tables, 0, layout.tables);
    found
}
