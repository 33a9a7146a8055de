//! 3 × 3 convolutions of stride 1 by F(2×2, 3×3): Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks",
//! CVPR 2016.
//!
//! An output tile of 2 × 2 pixels takes 16 products a channel instead of 36. With `V` the transformed 4 × 4 input tile
//! (`Bᵀ d B`), `U` the transformed kernel (`G g Gᵀ`) and ⊙ the product by element, the tile is `Aᵀ (Σ_c U ⊙ V) A`: sixteen
//! matrix products over channels, one for each element, with additions around them. The gradient by the input is the
//! same with the kernel turned round and its channels exchanged.

use super::{ConvShape, Direction};
use crate::backend::cpu::gemm::tile::{Epilogue, ONE_RUN, Tile, Tiles, for_each_tile, is_fused};
use crate::backend::cpu::gemm::{round_up, workspace_floats};
use crate::backend::cpu::simd::{Kernel, Simd, SimdLevel};
use crate::backend::cpu::threads::{Parts, Pool};
use crate::graph::op::{Activation, Conv2d};
use std::ops::Range;

/// Floats of transformed input and output that a task holds: 1 MiB, half of L2 on the machines that profit most.
const BLOCK: usize = 256 << 10;

/// Fewest tiles in a task: below, the transformed weights are read too often.
const LEAST_TILES: usize = 56;

/// Fewest channels on either side: below, the transforms take longer than what they save.
const LEAST_CHANNELS: usize = 16;

/// Elements of a transformed tile.
const ELEMENTS: usize = 16;

/// The convolution or its gradient by the input.
pub struct Winograd {
    direction: Direction,
    images: usize,
    /// Height and width of what is read and of what is written.
    source: [usize; 2],
    dest: [usize; 2],
    /// Zeros above and to the left of what is read.
    padding: [usize; 2],
    /// Channels read and written.
    from: usize,
    to: usize,
    /// Tiles down and across.
    grid: [usize; 2],
    /// Tiles in a task.
    block: usize,
    act: Option<Activation>,
    tiles: Tiles,
    threads: usize,
    a_rows: Vec<u32>,
    c_rows: Vec<u32>,
}

impl Winograd {
    /// Lays out the work, if this is the way to do it.
    pub fn new(
        op: &Conv2d,
        shape: &ConvShape,
        direction: Direction,
        act: Option<Activation>,
        level: SimdLevel,
        threads: usize,
    ) -> Option<Self> {
        let pads = [op.padding[0], op.padding[2]];
        let plain = shape.kernel == [3, 3] && op.stride == [1, 1] && op.dilation == [1, 1] && op.groups == 1;
        if !plain || op.padding.iter().any(|&p| p > 2) {
            return None;
        }
        let (source, dest, padding, from, to) = match direction {
            Direction::Forward => (shape.input, shape.output(op), pads, shape.channels, shape.outputs),
            Direction::Backward => (shape.output(op), shape.input, pads.map(|p| 2 - p), shape.outputs, shape.channels),
        };
        let tiles = Tiles::new(level);
        let grid = dest.map(|side| side.div_ceil(2));
        let count = shape.images * grid[0] * grid[1];
        let fits = BLOCK / ELEMENTS / (from + round_up(to)) / tiles.rows * tiles.rows;
        if from.min(to) < LEAST_CHANNELS || fits < LEAST_TILES || count < LEAST_TILES {
            return None;
        }
        // As many tasks as keep sixteen threads even, if there are tiles enough.
        let block = fits.min(count.div_ceil(super::patches::TASKS)).max(LEAST_TILES);
        Some(Winograd {
            direction,
            images: shape.images,
            source,
            dest,
            padding,
            from,
            to,
            grid,
            block,
            act,
            tiles,
            threads: threads.max(1),
            a_rows: (0..block).map(|t| (t * from) as u32).collect(),
            c_rows: (0..block).map(|t| (t * round_up(to)) as u32).collect(),
        })
    }

    /// The activation that is left to the caller.
    pub fn remaining_act(&self) -> Option<Activation> {
        self.act.filter(|&act| !is_fused(act))
    }

    fn count(&self) -> usize {
        self.images * self.grid[0] * self.grid[1]
    }

    fn panels(&self) -> usize {
        self.to.div_ceil(self.tiles.columns())
    }

    fn weight_floats(&self) -> usize {
        ELEMENTS * self.panels() * self.from * self.tiles.columns()
    }

    fn input_floats(&self) -> usize {
        round_up(ELEMENTS * self.block * self.from)
    }

    fn scratch_floats(&self) -> usize {
        self.input_floats() + ELEMENTS * self.block * round_up(self.to)
    }

    fn workspace_floats(&self) -> usize {
        self.weight_floats() + round_up(self.from) + self.threads * self.scratch_floats()
    }

    /// Workspace that [`Winograd::run`] needs.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace_floats() * 4
    }

    /// Computes all of `dest`.
    pub fn run(
        &self,
        pool: &Pool,
        source: &[f32],
        w: &[f32],
        bias: Option<&[f32]>,
        dest: &mut [f32],
        workspace: &mut [u8],
    ) {
        assert!(pool.threads() <= self.threads, "made for fewer threads than the pool has");
        let floats = workspace_floats(workspace, self.workspace_floats());
        let (weights, rest) = floats.split_at_mut(self.weight_floats());
        let (zeros, scratch) = rest.split_at_mut(round_up(self.from));
        zeros.fill(0.0);
        let (weights, zeros, scratch) = (Parts::new(weights), &*zeros, Parts::new(scratch));
        pool.run(self.panels(), |panel, _| {
            self.tiles.level.run(Weights { kernel: self, w, packed: weights, panel });
        });
        // SAFETY: all weights are written, and from now on only read.
        let weights = &*unsafe { weights.part(0..self.weight_floats()) };
        let dest = Parts::new(dest);
        pool.run(self.count().div_ceil(self.block), |task, worker| {
            let tiles = task * self.block..((task + 1) * self.block).min(self.count());
            // SAFETY: a worker has its own scratch.
            let scratch = unsafe { scratch.part(worker * self.scratch_floats()..(worker + 1) * self.scratch_floats()) };
            let (input, output) = scratch.split_at_mut(self.input_floats());
            self.tiles.level.run(Input { kernel: self, tiles: tiles.clone(), source, zeros, input });
            self.multiply(tiles.len(), input, weights, output);
            self.tiles.level.run(Output { kernel: self, tiles, output, bias, dest });
        });
    }

    /// Image, row and column of a tile.
    fn place(&self, tile: usize) -> [usize; 3] {
        let in_image = self.grid[0] * self.grid[1];
        let (image, rest) = (tile / in_image, tile % in_image);
        [image, rest / self.grid[1], rest % self.grid[1]]
    }

    /// The sixteen products: `output [element][tile][to] = input [element][tile][from] · weights [element][from][to]`.
    fn multiply(&self, count: usize, input: &[f32], weights: &[f32], output: &mut [f32]) {
        let (width, step) = (self.tiles.columns(), round_up(self.to));
        for element in 0..ELEMENTS {
            for panel in 0..self.panels() {
                let c = output[element * self.block * step + panel * width..].as_mut_ptr();
                for_each_tile(count, self.tiles.rows, |start, rows| {
                    let tile = Tile {
                        a: input[element * self.block * self.from..].as_ptr(),
                        a_rows: &self.a_rows[start..],
                        a_step: 1,
                        b: weights[(element * self.panels() + panel) * self.from * width..].as_ptr(),
                        b_step: width,
                        runs: ONE_RUN,
                        run_len: self.from,
                        c,
                        c_rows: &self.c_rows[start..],
                        n: (self.to - panel * width).min(width),
                        accumulate: false,
                        epilogue: Epilogue::NONE,
                    };
                    // SAFETY: inside the scratch and the packed weights, whose panels are whole.
                    unsafe { self.tiles.run(rows, &tile) };
                });
            }
        }
    }
}

/// Transforms a panel of the weights to `[element][panel][from][columns]`.
struct Weights<'a> {
    kernel: &'a Winograd,
    w: &'a [f32],
    packed: Parts<'a, f32>,
    panel: usize,
}

impl Kernel for Weights<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let k = self.kernel;
        let width = k.tiles.columns();
        let columns = (k.to - self.panel * width).min(width);
        for c in 0..k.from {
            let mut taps = [[0.0f32; 2 * crate::backend::cpu::simd::MAX_LANES]; 9];
            for (tap, row) in taps.iter_mut().enumerate() {
                for (n, x) in row.iter_mut().take(columns).enumerate() {
                    let n = self.panel * width + n;
                    // `w [O, 3, 3, I]`; for the gradient the kernel is turned round.
                    *x = match k.direction {
                        Direction::Forward => self.w[(n * 9 + tap) * k.from + c],
                        Direction::Backward => self.w[(c * 9 + 8 - tap) * k.to + n],
                    };
                }
            }
            for v in (0..width).step_by(S::LANES) {
                // SAFETY: a row has room for whole vectors, and a panel belongs to one task.
                unsafe {
                    let g = |i: usize| s.load(taps[i].as_ptr().add(v));
                    let mut half = [[s.zero(); 3]; 4];
                    for j in 0..3 {
                        let column = kernel_transform(s, [g(j), g(3 + j), g(6 + j)]);
                        for i in 0..4 {
                            half[i][j] = column[i];
                        }
                    }
                    for (i, row) in half.into_iter().enumerate() {
                        for (j, x) in kernel_transform(s, row).into_iter().enumerate() {
                            let at = (((i * 4 + j) * k.panels() + self.panel) * k.from + c) * width + v;
                            s.store(self.packed.as_ptr().add(at), x);
                        }
                    }
                }
            }
        }
    }
}

/// `G g`
#[inline(always)]
fn kernel_transform<S: Simd>(s: S, g: [S::V; 3]) -> [S::V; 4] {
    let half = s.splat(0.5);
    let ends = s.mul(half, s.add(g[0], g[2]));
    let middle = s.mul(half, g[1]);
    [g[0], s.add(ends, middle), s.sub(ends, middle), g[2]]
}

/// `Bᵀ d`
#[inline(always)]
fn input_transform<S: Simd>(s: S, d: [S::V; 4]) -> [S::V; 4] {
    [s.sub(d[0], d[2]), s.add(d[1], d[2]), s.sub(d[2], d[1]), s.sub(d[1], d[3])]
}

/// `Aᵀ m`
#[inline(always)]
fn output_transform<S: Simd>(s: S, m: [S::V; 4]) -> [S::V; 2] {
    [s.add(s.add(m[0], m[1]), m[2]), s.sub(s.sub(m[1], m[2]), m[3])]
}

/// Transforms input tiles to `[element][tile][from]`.
struct Input<'a> {
    kernel: &'a Winograd,
    tiles: Range<usize>,
    source: &'a [f32],
    /// A pixel outside the image.
    zeros: &'a [f32],
    input: &'a mut [f32],
}

impl Kernel for Input<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let k = self.kernel;
        let [height, width] = k.source;
        for (t, tile) in self.tiles.enumerate() {
            let [image, row, column] = k.place(tile);
            let mut pixels = [self.zeros.as_ptr(); ELEMENTS];
            for (i, pixel) in pixels.iter_mut().enumerate() {
                let y = (2 * row + i / 4).wrapping_sub(k.padding[0]);
                let x = (2 * column + i % 4).wrapping_sub(k.padding[1]);
                if y < height && x < width {
                    *pixel = self.source[((image * height + y) * width + x) * k.from..].as_ptr();
                }
            }
            for c in (0..k.from).step_by(S::LANES) {
                let left = k.from - c;
                // SAFETY: a pixel has `from` channels, and the transformed tile room for as many.
                unsafe {
                    let mut half = [[s.zero(); 4]; 4];
                    for j in 0..4 {
                        let mut column = [s.zero(); 4];
                        for i in 0..4 {
                            let from = pixels[i * 4 + j].add(c);
                            column[i] = if left >= S::LANES { s.load(from) } else { s.load_part(from, left) };
                        }
                        let column = input_transform(s, column);
                        for i in 0..4 {
                            half[i][j] = column[i];
                        }
                    }
                    for i in 0..4 {
                        let row = input_transform(s, half[i]);
                        for j in 0..4 {
                            let at = ((i * 4 + j) * k.block + t) * k.from + c;
                            let to = self.input.as_mut_ptr().add(at);
                            if left >= S::LANES {
                                s.store(to, row[j]);
                            } else {
                                s.store_part(to, row[j], left);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Turns `[element][tile][to]` into pixels, with bias and activation.
struct Output<'a> {
    kernel: &'a Winograd,
    tiles: Range<usize>,
    output: &'a [f32],
    bias: Option<&'a [f32]>,
    dest: Parts<'a, f32>,
}

impl Kernel for Output<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let k = self.kernel;
        let ([height, width], step) = (k.dest, round_up(k.to));
        let bounds = Epilogue::of(k.act);
        let (low, high) = (s.splat(bounds.low), s.splat(bounds.high));
        for (t, tile) in self.tiles.enumerate() {
            let [image, row, column] = k.place(tile);
            for c in (0..k.to).step_by(S::LANES) {
                let left = k.to - c;
                // SAFETY: tiles are padded to whole vectors; pixels inside the image belong to one tile.
                unsafe {
                    let bias = self.bias.map_or(s.zero(), |bias| s.load_part(bias.as_ptr().add(c), left));
                    let from = self.output.as_ptr().add(t * step + c);
                    let mut half = [[s.zero(); 4]; 2];
                    for j in 0..4 {
                        let mut column = [s.zero(); 4];
                        for i in 0..4 {
                            column[i] = s.load(from.add((i * 4 + j) * k.block * step));
                        }
                        let column = output_transform(s, column);
                        half[0][j] = column[0];
                        half[1][j] = column[1];
                    }
                    for i in 0..2 {
                        let pair = output_transform(s, half[i]);
                        for j in 0..2 {
                            let (y, x) = (2 * row + i, 2 * column + j);
                            if y < height && x < width {
                                let at = ((image * height + y) * width + x) * k.to + c;
                                let to = self.dest.as_ptr().add(at);
                                let value = s.min(high, s.max(low, s.add(pair[j], bias)));
                                if left >= S::LANES {
                                    s.store(to, value);
                                } else {
                                    s.store_part(to, value, left);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
