//! The convolution and its gradient by the input.

use super::grid::{ELEMENTS, Grid, TilePanel};
use super::transforms::{Input, kernel_transform, output_tile};
use super::{pooled, tail};
use crate::backend::cpu::gemm::memory::{MOST_ROWS, Memory, kept_weights};
use crate::backend::cpu::gemm::pack::{Copy2d, CopyRows, PackTransposed, Panel};
use crate::backend::cpu::gemm::prologue::Source;
use crate::backend::cpu::gemm::tile::{Epilogue, EpilogueOperands, ONE_RUN, Tile, Tiles, for_each_tile, tile_rows};
use crate::backend::cpu::ops::conv::kernel::{PixelKernel, PooledPixelKernel};
use crate::backend::cpu::ops::conv::operands::{PixelDest, PixelDestParts, PixelSource, pooled_bounds};
use crate::backend::cpu::ops::conv::shape::{ConvProblem, Direction};
use crate::backend::cpu::run::threads::{Parts, Pool, TASKS_PER_THREAD};
use crate::backend::cpu::simd::{Kernel, MAX_LANES, Routine as _, Simd};
use crate::graph::op::Activation;
use crate::plan::Kept;

/// The convolution or its gradient by the input.
pub struct Winograd {
    direction: Direction,
    grid: Grid,
    act: Option<Activation>,
    tiles: Tiles,
    threads: usize,
    a_rows: Vec<u32>,
    c_rows: Vec<u32>,
}

impl Winograd {
    /// Lays out the work, if the problem suits this kernel.
    pub fn new(problem: &ConvProblem, direction: Direction, act: Option<Activation>) -> Option<Self> {
        let tiles = Tiles::new(problem.level);
        let grid = Grid::new(problem, direction, false, tiles.columns())?;
        let rows = |step: usize| (0..grid.block).map(|t| (t * step) as u32).collect();
        Some(Winograd {
            direction,
            act,
            tiles,
            threads: problem.threads,
            a_rows: rows(grid.from),
            c_rows: rows(tiles.columns()),
            grid,
        })
    }

    /// Pixels that are written.
    fn pixels(&self) -> usize {
        self.grid.images * self.grid.dest[0] * self.grid.dest[1]
    }

    fn panels(&self) -> usize {
        self.grid.to.div_ceil(self.tiles.columns())
    }

    fn weight_floats(&self) -> usize {
        ELEMENTS * self.panels() * self.grid.from * self.tiles.columns()
    }

    fn input_floats(&self) -> usize {
        ELEMENTS * self.grid.element_floats(self.grid.from)
    }

    fn scratch_floats(&self) -> usize {
        self.input_floats() + ELEMENTS * self.grid.element_floats(self.tiles.columns())
    }

    fn workspace_floats(&self) -> usize {
        self.weight_floats() + self.grid.row_floats() + self.threads * self.scratch_floats()
    }

    /// The sixteen products: `output [element][tile][column] = input [element][tile][from] · weights [element][from][column]`.
    fn multiply(&self, count: usize, input: &[f32], weights: &[f32], panel: usize, output: &mut [f32]) {
        let width = self.tiles.columns();
        if panel * width >= tail::start(self.grid.to, width) {
            let step = self.grid.from * width;
            return self.tiles.level.run(tail::Dots {
                grid: &self.grid,
                count,
                input,
                weights: (&weights[panel * ELEMENTS * step..], step),
                columns: self.grid.to - panel * width,
                width,
                output,
            });
        }
        for element in 0..ELEMENTS {
            let c = output[element * self.grid.element_floats(width)..].as_mut_ptr();
            for_each_tile(count, self.tiles.rows, |start, rows| {
                let tile = Tile {
                    a: input[element * self.grid.element_floats(self.grid.from)..].as_ptr(),
                    a_rows: &self.a_rows[start..],
                    a_step: 1,
                    b: weights[(panel * ELEMENTS + element) * self.grid.from * width..].as_ptr(),
                    b_step: width,
                    b_far: self.pixels() <= MOST_ROWS,
                    runs: ONE_RUN,
                    run_len: self.grid.from,
                    c,
                    c_rows: &self.c_rows[start..],
                    n: (self.grid.to - panel * width).next_multiple_of(self.tiles.lanes).min(width),
                    accumulate: false,
                    epilogue: Epilogue::NONE,
                };
                // SAFETY: inside the scratch and the packed weights, whose panels are whole.
                unsafe { self.tiles.run(rows, &tile) };
            });
        }
    }
}

impl PixelKernel for Winograd {
    fn workspace_bytes(&self) -> usize {
        self.workspace_floats() * 4
    }

    fn act(&self) -> Option<Activation> {
        self.act
    }

    fn kept(&self) -> Option<Kept> {
        let packed = self.weight_floats();
        kept_weights(self.pixels(), packed, self.workspace_floats() - packed)
    }

    fn run(
        &self,
        pool: &Pool,
        source: &[f32],
        w: &[f32],
        operands: EpilogueOperands,
        dest: &mut [f32],
        memory: Memory,
    ) {
        self.run_pooled(pool, PixelSource::Plain(source.into()), w, operands, PixelDest::Plain(dest), memory);
    }
}

impl PooledPixelKernel for Winograd {
    /// A pooled source needs a padding of 1 above and to the left of what is read.
    fn run_pooled(
        &self,
        pool: &Pool,
        source: PixelSource,
        w: &[f32],
        operands: EpilogueOperands,
        dest: PixelDest,
        memory: Memory,
    ) {
        assert!(pool.threads() <= self.threads, "made for fewer threads than the pool has");
        let weights = self.weight_floats();
        let (weights, rest, to_pack) = memory.split(weights, self.workspace_floats() - weights);
        let (zeros, scratch) = rest.split_at_mut(self.grid.row_floats());
        zeros.fill(0.0);
        let (weights, zeros, scratch) = (Parts::new(weights), &*zeros, Parts::new(scratch));
        let level = self.tiles.level;
        if to_pack {
            pool.run(self.panels(), |panel, _| {
                level.run(Weights { kernel: self, w, packed: weights, panel });
            });
        }
        // SAFETY: all weights are written, and from now on only read.
        let weights = &*unsafe { weights.part(0..self.weight_floats()) };
        let (grid, dest) = (&self.grid, dest.parts());
        // Few tiles are shared by tasks that have panels of their own.
        let wanted = (TASKS_PER_THREAD * pool.threads()).div_ceil(grid.blocks().max(1));
        let panel_blocks = if grid.blocks() < 2 * pool.threads() { wanted.min(self.panels()) } else { 1 };
        pool.run(grid.blocks() * panel_blocks, |task, worker| {
            let tiles = grid.range(task / panel_blocks);
            // SAFETY: a worker has its own scratch.
            let scratch = unsafe { scratch.part(worker * self.scratch_floats()..(worker + 1) * self.scratch_floats()) };
            let (input, output) = scratch.split_at_mut(self.input_floats());
            match source {
                PixelSource::Plain(Source { values: source, .. }) => {
                    level.run(Input { grid, tiles: tiles.clone(), source, zeros, input });
                }
                PixelSource::Pooled(source) => {
                    level.run(pooled::Input { grid, tiles: tiles.clone(), source, zeros, input });
                }
            }
            let width = self.tiles.columns();
            for panel in tile_rows(self.panels(), panel_blocks, task % panel_blocks) {
                self.multiply(tiles.len(), input, weights, panel, output);
                let (channel, tiles, output) = (panel * width, tiles.clone(), &*output);
                let channels = (grid.to - channel).min(width);
                let panel = TilePanel { grid, tiles, channel, channels, width };
                match dest {
                    PixelDestParts::Plain(dest) => {
                        level.run(Output { panel, act: self.act, output, operands, dest });
                    }
                    PixelDestParts::Pooled(y, index) => {
                        let EpilogueOperands { scale, bias, .. } = operands;
                        let bounds = pooled_bounds(self.act);
                        level.run(pooled::Output { panel, output, scale, bias, bounds, y, index });
                    }
                }
            }
        });
    }
}

/// Transforms a panel of the weights to `[panel][element][from][columns]`, or for [`tail::Dots`].
struct Weights<'a> {
    kernel: &'a Winograd,
    w: &'a [f32],
    packed: Parts<'a, f32>,
    panel: usize,
}

impl Kernel for Weights<'_> {
    type Output = ();
    #[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let k = self.kernel;
        let width = k.tiles.columns();
        let columns = (k.grid.to - self.panel * width).min(width);
        let is_tail = self.panel * width >= tail::start(k.grid.to, width);
        let (row, first) = (tail::row(k.grid.from, S::LANES), self.panel * ELEMENTS * k.grid.from * width);
        if is_tail {
            // SAFETY: a panel belongs to one task.
            unsafe { self.packed.part(first..first + ELEMENTS * k.grid.from * width) }.fill(0.0);
        }
        let mut taps = [[0.0f32; MAX_LANES * 2 * MAX_LANES]; 9];
        for c in 0..k.grid.from {
            let within = c % S::LANES;
            if within == 0 {
                self.read(s, c, columns, &mut taps);
            }
            for v in (0..width).step_by(S::LANES) {
                // SAFETY: a row has room for whole vectors, and a panel belongs to one task.
                unsafe {
                    let g = |i: usize| s.load(taps[i].as_ptr().add(within * width + v));
                    let mut half = [[s.zero(); 3]; 4];
                    for j in 0..3 {
                        let column = kernel_transform(s, [g(j), g(3 + j), g(6 + j)]);
                        for i in 0..4 {
                            half[i][j] = column[i];
                        }
                    }
                    for (i, half_row) in half.into_iter().enumerate() {
                        for (j, x) in kernel_transform(s, half_row).into_iter().enumerate() {
                            let element = first + (i * 4 + j) * k.grid.from * width;
                            if !is_tail {
                                s.store(self.packed.as_ptr().add(element + c * width + v), x);
                                continue;
                            }
                            for (n, x) in s.to_array(x).into_iter().enumerate().take(columns.saturating_sub(v)) {
                                let at = (v + n) * row + tail::place(c, k.grid.from, S::LANES);
                                *self.packed.as_ptr().add(element + at) = x;
                            }
                        }
                    }
                }
            }
        }
    }
}

impl Weights<'_> {
    /// Reads the weights of a vector of channels from `c` on: `taps [tap][channel][column]`, with zeros behind the columns.
    #[inline(always)]
    fn read<S: Simd>(&self, s: S, c: usize, columns: usize, taps: &mut [[f32; MAX_LANES * 2 * MAX_LANES]; 9]) {
        let (grid, width) = (&self.kernel.grid, self.kernel.tiles.columns());
        let (rows, n) = ((grid.from - c).min(S::LANES), self.panel * width);
        for (tap, to) in taps.iter_mut().enumerate() {
            // `w [O, 3, 3, I]`; for the gradient the kernel is rotated by 180°.
            let (at, strides) = match self.kernel.direction {
                Direction::Forward => ((n * 9 + tap) * grid.from + c, [1, 9 * grid.from]),
                Direction::Backward => ((c * 9 + 8 - tap) * grid.to + n, [9 * grid.to, 1]),
            };
            let last = at + (rows - 1) * strides[0] + (columns - 1) * strides[1];
            assert!(last < self.w.len() && width <= 2 * MAX_LANES, "these weights are inside");
            let to = to.as_mut_ptr();
            // SAFETY: the corners are inside, as asserted, and there is room for as many rows as a vector has lanes.
            unsafe {
                let from = self.w.as_ptr().add(at);
                match self.kernel.direction {
                    Direction::Forward => PackTransposed::run(s, Panel { from, strides, rows, columns, to, width }),
                    Direction::Backward => CopyRows::run(
                        s,
                        Copy2d { from, from_step: strides[0], to, to_step: width, rows, columns, padded: width },
                    ),
                }
            }
        }
    }
}

/// Turns transformed tiles into pixels, with all that is done to them.
struct Output<'a> {
    panel: TilePanel<'a>,
    act: Option<Activation>,
    output: &'a [f32],
    operands: EpilogueOperands<'a>,
    dest: Parts<'a, f32>,
}

impl Kernel for Output<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let TilePanel { grid: k, tiles, channel, channels, width: columns } = self.panel;
        let ([height, width], element) = (k.dest, k.element_floats(columns));
        let bounds = Epilogue::of(self.act);
        let (low, high) = (s.splat(bounds.low), s.splat(bounds.high));
        let epilogue = bounds.with(self.operands, channel, self.dest.as_ptr());
        let Epilogue { scale, bias, .. } = epilogue;
        let mut positions = k.positions(tiles.start);
        for t in 0..tiles.len() {
            let [image, row, column] = positions.step();
            let mut c = 0;
            while c < channels {
                let left = channels - c;
                // SAFETY: rows of the transformed tiles are whole panels; pixels inside the image belong to one tile, and
                // these channels of theirs to this call.
                unsafe {
                    let bias = if bias.is_null() { s.zero() } else { s.load_part(bias.add(c), left) };
                    let scale = if scale.is_null() { s.splat(1.0) } else { s.load_part(scale.add(c), left) };
                    let pixels = output_tile(s, self.output.as_ptr().add(t * columns + c), element);
                    for (i, pixel) in pixels.into_iter().enumerate() {
                        let (y, x) = (2 * row + i / 2, 2 * column + i % 2);
                        if y < height && x < width {
                            let at = ((image * height + y) * width + x) * k.to + channel + c;
                            let to = self.dest.as_ptr().add(at);
                            let mut value = s.fma(pixel, scale, bias);
                            if epilogue.has_matrix() {
                                value = epilogue.apply_matrices(s, value, to, left);
                            }
                            let value = s.min(high, s.max(low, value));
                            if left >= S::LANES {
                                s.store(to, value);
                            } else {
                                s.store_part(to, value, left);
                            }
                        }
                    }
                }
                c += S::LANES;
            }
        }
    }
}
