//! The tiles that the images are cut into.

use crate::backend::cpu::gemm::round_up;
use crate::backend::cpu::ops::conv::patches::TASKS;
use crate::backend::cpu::ops::conv::shape::{ConvProblem, Direction};
use std::ops::Range;

/// Floats of a task's transformed input and output: 512 KiB, half of L2 on common machines.
const BLOCK: usize = 128 << 10;

/// Least tiles of a task: with fewer, the transformed weights are read too often.
const LEAST_TILES: usize = 56;

/// Least tiles in all, for the gradient by the weight and for the kernels that write pixels: with fewer, transforming the weights
/// and reading them takes longer than the products.
const FEWEST: [usize; 2] = [LEAST_TILES, 32];

/// Least channels of input and output, for the gradient by the weight and for the kernels that write pixels: with fewer, the
/// transforms cost more than they save.
const LEAST_CHANNELS: [usize; 2] = [16, 24];

/// Floats in a cache line.
const LINE: usize = 16;

/// Elements of a transformed tile.
pub const ELEMENTS: usize = 16;

/// Tiles of 2 × 2 pixels of an output, and of the 4 × 4 pixels of an input that each reads.
pub struct Grid {
    /// Images in the batch.
    pub images: usize,
    /// Height and width of the image with tiles of 4 × 4, which is read.
    pub source: [usize; 2],
    /// Height and width of the image with tiles of 2 × 2: written, or `dy` for the gradient by the weight.
    pub dest: [usize; 2],
    /// Padding above and to the left of `source`.
    pub padding: [usize; 2],
    /// Channels of `source`.
    pub from: usize,
    /// Channels of `dest`.
    pub to: usize,
    /// Tiles down and across.
    tiles: [usize; 2],
    /// Tiles that a task holds at a time.
    pub block: usize,
}

impl Grid {
    /// The grid, if the problem suits the transforms; `by_weight`: for the gradient by the weight. For each element of a tile
    /// a task holds the transformed channels read and `extra` floats.
    pub fn new(problem: &ConvProblem, direction: Direction, by_weight: bool, extra: usize) -> Option<Grid> {
        let (op, shape, output) = (problem.op, &problem.shape, problem.output());
        let pads = [op.padding[0], op.padding[2]];
        let plain = shape.kernel == [3, 3] && op.stride == [1, 1] && op.dilation == [1, 1] && op.groups == 1;
        if !plain || op.padding.iter().any(|&p| p > 2) {
            return None;
        }
        let (source, dest, padding, from, to) = match direction {
            Direction::Forward => (shape.input, output, pads, shape.channels, shape.outputs),
            Direction::Backward => (output, shape.input, pads.map(|p| 2 - p), shape.outputs, shape.channels),
        };
        let tiles = dest.map(|side| side.div_ceil(2));
        let count = shape.images * tiles[0] * tiles[1];
        let [channels, least] = [LEAST_CHANNELS, FEWEST].map(|least| least[usize::from(!by_weight)]);
        if from.min(to) < channels || count < least {
            return None;
        }
        // The sum of a gradient by the weight should not be larger than what is added to it at a time.
        let least = if by_weight { from * to / (from + to) } else { 0 };
        let fits = (BLOCK / ELEMENTS / (from + extra)).max(least);
        // Enough tasks for sixteen threads, if there are tiles enough.
        let block = fits.min(count.div_ceil(TASKS)).max(LEAST_TILES);
        Some(Grid { images: shape.images, source, dest, padding, from, to, tiles, block })
    }

    /// Number of tiles.
    fn count(&self) -> usize {
        self.images * self.tiles[0] * self.tiles[1]
    }

    /// Floats from one element to the next of a block's transformed tiles with `channels` floats each: an odd number of cache
    /// lines, so that the elements of a tile, which are written and read together, lie in different sets of the cache.
    pub fn element_floats(&self, channels: usize) -> usize {
        ((self.block * channels).div_ceil(LINE) | 1) * LINE
    }

    /// Floats of a row of `source`, rounded up to whole cache lines.
    pub fn row_floats(&self) -> usize {
        round_up(self.source[1] * self.from)
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        self.count().div_ceil(self.block)
    }

    /// The tiles of a block.
    pub fn range(&self, block: usize) -> Range<usize> {
        block * self.block..((block + 1) * self.block).min(self.count())
    }

    /// The positions of the tiles from `tile` on.
    pub fn positions(&self, tile: usize) -> TilePositions {
        let in_image = self.tiles[0] * self.tiles[1];
        let (image, rest) = (tile / in_image, tile % in_image);
        TilePositions { tiles: self.tiles, next: [image, rest / self.tiles[1], rest % self.tiles[1]] }
    }
}

/// The positions of tiles, one after the other.
pub struct TilePositions {
    /// Tiles down and across.
    tiles: [usize; 2],
    next: [usize; 3],
}

impl TilePositions {
    /// Image, row and column of the next tile.
    #[inline(always)]
    pub fn step(&mut self) -> [usize; 3] {
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

/// A panel of channels of some tiles, `[element][tile][column]`, which a task turns into pixels.
pub struct TilePanel<'a> {
    /// All tiles.
    pub grid: &'a Grid,
    /// Which tiles.
    pub tiles: Range<usize>,
    /// The panel's first channel.
    pub channel: usize,
    /// Its channels.
    pub channels: usize,
    /// Its columns.
    pub width: usize,
}
