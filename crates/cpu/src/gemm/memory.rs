//! What a product or a convolution writes beside its result.

use super::workspace_floats;
use crate::plan::Kept;
use crate::run::frame::{Frame, KeptMemory};

/// Most rows of a product (pixels of a convolution's batch) for which reading the weights counts: packed ones are kept from
/// run to run. With more, packing them anew takes a few hundredths of the time, and keeping them takes memory.
pub const MOST_ROWS: usize = 2048;

/// The memory of a run.
pub struct Memory<'a> {
    /// Scratch memory, from a multiple of 64 bytes on.
    pub workspace: &'a mut [u8],
    /// Where packed weights are kept.
    pub kept: Option<KeptMemory<'a>>,
}

impl<'a> From<&'a mut [u8]> for Memory<'a> {
    fn from(workspace: &'a mut [u8]) -> Self {
        Memory { workspace, kept: None }
    }
}

impl<'a> From<&Frame<'a>> for Memory<'a> {
    fn from(frame: &Frame<'a>) -> Self {
        Memory { workspace: frame.scratch().bytes(), kept: frame.kept() }
    }
}

impl<'a> Memory<'a> {
    /// `packed` floats for packed weights and `rest` floats for all else, and whether the weights are still to be packed.
    ///
    /// # Panics
    /// There is less memory.
    pub fn split(self, packed: usize, rest: usize) -> (&'a mut [f32], &'a mut [f32], bool) {
        match self.kept {
            Some(KeptMemory { bytes, ready }) => {
                (workspace_floats(bytes, packed), workspace_floats(self.workspace, rest), !ready)
            }
            None => {
                let (packed, rest) = workspace_floats(self.workspace, packed + rest).split_at_mut(packed);
                (packed, rest, true)
            }
        }
    }
}

/// What a kernel keeps: `packed` floats of weights, which are operand 1, beside `rest` floats of workspace, for a batch of
/// `rows`.
pub fn kept_weights(rows: usize, packed: usize, rest: usize) -> Option<Kept> {
    (rows <= MOST_ROWS && packed > 0).then_some(Kept { operand: 1, bytes: packed * 4, workspace: rest * 4 })
}
