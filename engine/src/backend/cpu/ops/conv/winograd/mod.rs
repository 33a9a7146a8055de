//! 3 × 3 convolutions of stride 1 by F(2×2, 3×3): Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks",
//! CVPR 2016.
//!
//! An output tile of 2 × 2 pixels takes 16 products a channel instead of 36. With `V` the transformed 4 × 4 input tile
//! (`Bᵀ d B`), `U` the transformed kernel (`G g Gᵀ`) and ⊙ the product by element, the tile is `Aᵀ (Σ_c U ⊙ V) A`: sixteen
//! matrix products over channels, one for each element, with additions around them. The gradient by the input is the
//! same with the kernel turned round and its channels exchanged; that by the weight runs the transforms the other way:
//! `Gᵀ (Σ_tiles V ⊙ (A dy Aᵀ)) G`.

mod grad_weight;
mod pixels;
mod pooled;
mod tail;
mod transforms;

pub use grad_weight::WinogradGradWeight;
pub use pixels::Winograd;

use super::{ConvShape, Direction};
use crate::backend::cpu::gemm::round_up;
use crate::graph::op::Conv2d;

/// Floats of transformed input and output that a task holds: 512 KiB, half of L2 on common machines.
const BLOCK: usize = 128 << 10;

/// Fewest tiles in a task: below, the transformed weights are read too often.
const LEAST_TILES: usize = 56;

/// Fewest channels on either side for the gradient by the weight, and for the other two, where more is written: below, the
/// transforms take longer than what they save.
const LEAST_CHANNELS: [usize; 2] = [16, 24];

/// Floats in a cache line.
const LINE: usize = 16;

/// Elements of a transformed tile.
const ELEMENTS: usize = 16;

/// Where the tiles of 2 × 2 pixels lie.
struct Grid {
    images: usize,
    /// Height and width of what is read (by tiles of 4 × 4) and of what is written (or paired with it).
    source: [usize; 2],
    dest: [usize; 2],
    /// Zeros above and to the left of what is read.
    padding: [usize; 2],
    /// Channels read and written.
    from: usize,
    to: usize,
    /// Tiles down and across.
    tiles: [usize; 2],
    /// Tiles that a task holds at a time.
    block: usize,
}

impl Grid {
    /// The grid, if this is the way to do the convolution or, where `by_weight`, its gradient by the weight. For each tile a
    /// task holds the transformed channels read, and `more` floats, for each element.
    fn new(op: &Conv2d, shape: &ConvShape, direction: Direction, by_weight: bool, more: usize) -> Option<Grid> {
        let pads = [op.padding[0], op.padding[2]];
        let plain = shape.kernel == [3, 3] && op.stride == [1, 1] && op.dilation == [1, 1] && op.groups == 1;
        if !plain || op.padding.iter().any(|&p| p > 2) {
            return None;
        }
        let (source, dest, padding, from, to) = match direction {
            Direction::Forward => (shape.input, shape.output(op), pads, shape.channels, shape.outputs),
            Direction::Backward => (shape.output(op), shape.input, pads.map(|p| 2 - p), shape.outputs, shape.channels),
        };
        let tiles = dest.map(|side| side.div_ceil(2));
        let count = shape.images * tiles[0] * tiles[1];
        if from.min(to) < LEAST_CHANNELS[usize::from(!by_weight)] || count < LEAST_TILES {
            return None;
        }
        // The sum of a gradient by the weight should not be larger than what is added to it at a time.
        let least = if by_weight { from * to / (from + to) } else { 0 };
        let fits = (BLOCK / ELEMENTS / (from + more)).max(least);
        // As many tasks as keep sixteen threads even, if there are tiles enough.
        let block = fits.min(count.div_ceil(super::patches::TASKS)).max(LEAST_TILES);
        Some(Grid { images: shape.images, source, dest, padding, from, to, tiles, block })
    }

    /// Number of tiles.
    fn count(&self) -> usize {
        self.images * self.tiles[0] * self.tiles[1]
    }

    /// Floats from one element to the next of a block's transformed tiles with `channels` floats each: an odd number of cache
    /// lines, so that the elements of a tile, which are written and read together, lie in different sets of the cache.
    fn element_floats(&self, channels: usize) -> usize {
        ((self.block * channels).div_ceil(LINE) | 1) * LINE
    }

    /// Floats of a row of what is read, whole cache lines.
    fn row_floats(&self) -> usize {
        round_up(self.source[1] * self.from)
    }

    /// Number of blocks.
    fn blocks(&self) -> usize {
        self.count().div_ceil(self.block)
    }

    /// The tiles of a block.
    fn range(&self, block: usize) -> std::ops::Range<usize> {
        block * self.block..((block + 1) * self.block).min(self.count())
    }

    /// The places of the tiles from `tile` on.
    fn places(&self, tile: usize) -> Places {
        let in_image = self.tiles[0] * self.tiles[1];
        let (image, rest) = (tile / in_image, tile % in_image);
        Places { tiles: self.tiles, next: [image, rest / self.tiles[1], rest % self.tiles[1]] }
    }
}

/// Where tiles lie, one after the other.
struct Places {
    /// Tiles down and across.
    tiles: [usize; 2],
    next: [usize; 3],
}

impl Places {
    /// Image, row and column of the next tile.
    #[inline(always)]
    fn step(&mut self) -> [usize; 3] {
        let at = self.next;
        let [image, row, column] = &mut self.next;
        *column += 1;
        if *column == self.tiles[1] {
            (*row, *column) = (*row + 1, 0);
            if *row == self.tiles[0] {
                (*image, *row) = (*image + 1, 0);
            }
        }
        at
    }
}
