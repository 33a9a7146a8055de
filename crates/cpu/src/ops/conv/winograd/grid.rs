//! The tiles that the images are cut into.

use super::points::{Four, Points};
use crate::gemm::tile::VECTORS;
use crate::gemm::{LINE, round_up};
use crate::ops::conv::patches::TASKS;
use crate::ops::conv::shape::{ConvProblem, Direction};
use crate::run::threads::Parts;
use crate::simd::SimdLevel;
use std::ops::Range;

/// Floats of a task's transformed input and output: 512 KiB, half of L2 on common machines.
const BLOCK: usize = 128 << 10;

/// Floats of the transformed weights that a task makes and uses at once: 256 KiB.
const WEIGHTS: usize = 64 << 10;

/// Tasks that panels are shared by, where there are fewer panels: those of two threads. The choice must not depend on how many there are.
const PANEL_TASKS: usize = 8;

/// Channels that are transformed together are a multiple of this: those of the longest vector.
const DEPTH_GRAIN: usize = 16;

/// Least channels of input and output, for the gradient by the weight and for the kernels that write pixels: with fewer, the
/// transforms cost more than they save.
const LEAST_CHANNELS: [usize; 2] = [16, 24];

/// What a sum of the gradient by the weight costs, which is written, read and transformed.
const BACK: usize = 650;

/// The tiles of an output, and the pixels of an input that each reads.
pub struct Grid {
    /// Images in the batch.
    pub images: usize,
    /// Height and width of the image which is read.
    pub source: [usize; 2],
    /// Height and width of the image which is cut into tiles: written, or `dy` for the gradient by the weight.
    pub dest: [usize; 2],
    /// Padding above and to the left of `source`.
    pub padding: [usize; 2],
    /// Channels of `source`.
    pub from: usize,
    /// Channels of `dest`.
    pub to: usize,
    /// Elements of a transformed tile.
    pub elements: usize,
    /// Tiles down and across.
    tiles: [usize; 2],
    /// Tiles that are multiplied at a time.
    pub block: usize,
}

impl Grid {
    /// The grid for a kernel that writes pixels, if the problem suits the transforms. For each element of a tile a task holds the
    /// transformed channels read and `extra` floats.
    pub fn of_pixels<P: Points>(problem: &ConvProblem, direction: Direction, extra: usize) -> Option<Grid> {
        let mut grid = Grid::new::<P>(problem, direction, LEAST_CHANNELS[1])?;
        let pays = match P::LEAST_IN_ALL {
            Some(least) => grid.count() >= least,
            None => grid.products::<P>(problem.level) <= grid.plain_products(),
        };
        if !pays {
            return None;
        }
        let fits = BLOCK / P::ELEMENTS / (grid.from + extra);
        // Enough tasks for sixteen threads, if there are tiles enough.
        grid.block = fits.min(grid.count().div_ceil(TASKS)).max(P::LEAST_TILES);
        Some(grid)
    }

    /// The grid for the gradient by the weight, if the problem suits the transforms.
    pub fn of_weights(problem: &ConvProblem) -> Option<Grid> {
        let mut grid = Grid::new::<Four>(problem, Direction::Forward, LEAST_CHANNELS[0])?;
        if grid.sum_products() > grid.plain_products() {
            return None;
        }
        // The sum should not be larger than what is added to it at a time.
        let least = (grid.from * grid.to / (grid.from + grid.to)).max(Four::LEAST_TILES);
        let fits = BLOCK / Four::ELEMENTS / (grid.from + grid.to);
        grid.block = fits.min(grid.count().div_ceil(TASKS)).max(least);
        Some(grid)
    }

    fn new<P: Points>(problem: &ConvProblem, direction: Direction, least_channels: usize) -> Option<Grid> {
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
        let tiles = dest.map(|side| side.div_ceil(P::TILE));
        let (images, elements, block) = (shape.images, P::ELEMENTS, P::LEAST_TILES);
        let grid = Grid { images, source, dest, padding, from, to, elements, tiles, block };
        (from.min(to) >= least_channels && grid.count() > 0).then_some(grid)
    }

    /// Multiply-adds for each pair of an input and an output channel, and what else takes as long.
    pub fn products<P: Points>(&self, level: SimdLevel) -> usize {
        // Tasks that share a panel each transform it.
        let panels = self.to.div_ceil(VECTORS * level.lanes());
        let shared = if self.has_larger_weights() { PANEL_TASKS.div_ceil(panels) } else { 1 };
        P::ELEMENTS * (self.count() + P::TRANSFORM * shared.min(self.count()))
    }

    /// The same for the gradient by the weight.
    pub fn sum_products(&self) -> usize {
        self.elements * self.count() + BACK
    }

    /// Multiply-adds without the transforms.
    fn plain_products(&self) -> usize {
        9 * self.images * self.dest[0] * self.dest[1]
    }

    /// Whether the weights are larger than the tiles.
    pub fn has_larger_weights(&self) -> bool {
        self.count() * (self.from + self.to) <= self.from * self.to
    }

    /// Channels of a panel of so many columns that a task transforms and multiplies at a time. All of them where weights are transformed before
    /// the tasks begin, and where a task has several blocks of tiles, which then share them.
    pub fn depth(&self, columns: usize) -> usize {
        if !self.has_larger_weights() || self.count() > self.block {
            return self.from;
        }
        let fits = WEIGHTS / (self.elements * columns);
        (fits / DEPTH_GRAIN * DEPTH_GRAIN).clamp(DEPTH_GRAIN, self.from.max(DEPTH_GRAIN))
    }

    /// Number of tiles.
    pub fn count(&self) -> usize {
        self.images * self.tiles[0] * self.tiles[1]
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

/// Floats from one element to the next of so many transformed tiles with `tile` floats each: an odd number of cache lines, so
/// that the elements of a tile, which are written and read together, lie in different sets of the cache.
pub fn element_floats(tiles: usize, tile: usize) -> usize {
    odd_lines(tiles * tile)
}

/// So many floats rounded up to an odd number of cache lines.
pub fn odd_lines(floats: usize) -> usize {
    (floats.div_ceil(LINE) | 1) * LINE
}

/// Room for transformed tiles, `[element][tile][channel]`.
#[derive(Clone, Copy)]
pub struct Held<'a> {
    /// All of it.
    pub floats: Parts<'a, f32>,
    /// How many tiles there is room for, and how many lie before those that are meant.
    pub room: usize,
    /// See `room`.
    pub first: usize,
    /// Floats from tile to tile.
    pub tile: usize,
}

impl Held<'_> {
    /// Floats of such room for tiles of so many elements.
    pub fn floats(elements: usize, room: usize, tile: usize) -> usize {
        elements * element_floats(room, tile)
    }

    /// Floats from element to element.
    pub fn element(&self) -> usize {
        element_floats(self.room, self.tile)
    }

    /// Where the tiles go, and floats from element to element.
    ///
    /// # Panics
    /// There is no room for these tiles of so many elements and channels.
    #[inline(always)]
    pub fn check(&self, elements: usize, tiles: &Range<usize>, channels: usize) -> (*mut f32, usize) {
        assert!(self.floats.len() >= Held::floats(elements, self.room, self.tile), "room for the tiles");
        assert!(self.first + tiles.len() <= self.room && channels <= self.tile, "room for the tiles");
        (self.floats.as_ptr().wrapping_add(self.first * self.tile), self.element())
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
