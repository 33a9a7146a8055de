//! Depthwise convolutions: each group has one channel. Vectors run over channels, and the speed is bound by loads.
//!
//! Pixels are read where they lie (`direct`), or, of small images and with a prologue, from copies of strips with zeros around them.

mod direct;

use super::kernel::{PixelKernel, PreparedPixelKernel, PreparedWeightKernel, WeightKernel};
use super::operands::PixelSource;
use super::patches::{Class, Cut, PatchPart, Patches, TASKS, tasks_for};
use super::shape::{ConvProblem, Direction};
use crate::gemm::memory::{Memory, kept_weights};
use crate::gemm::prologue::Source;
use crate::gemm::tile::{Epilogue, EpilogueOperands, Rows};
use crate::gemm::{round_up, workspace_floats};
use crate::graph::op::Activation;
use crate::plan::Kept;
use crate::run::threads::{Parts, Pool, chunks};
use crate::simd::{Kernel, Simd, SimdLevel};
use direct::{Direct, Row};

/// Pixels that share the loads of the weights.
const PIXELS: usize = 8;

/// Least channels of a block, if there are as many: two cache lines of each pixel.
const LEAST_BLOCK: usize = 32;

/// Taps whose accumulators stay in registers in the gradient by the weight.
const TAPS: usize = 9;

/// The convolution, or its gradient by the input.
pub struct Depthwise {
    patches: Patches,
    images: usize,
    channels: usize,
    /// Channels of a task.
    block: usize,
    taps: usize,
    act: Option<Activation>,
    level: SimdLevel,
    threads: usize,
    direct: Option<Direct>,
}

/// What is multiplied and added, padded to whole vectors of channels.
#[derive(Clone, Copy)]
struct Weights<'a> {
    /// `[tap][channel]`
    packed: &'a [f32],
    /// Floats of each tap.
    width: usize,
    /// What sums are multiplied by.
    scale: Option<&'a [f32]>,
    /// What is added; zeros without one.
    bias: &'a [f32],
}

impl Depthwise {
    /// Lays out the work, if the convolution is depthwise.
    pub fn new(problem: &ConvProblem, direction: Direction, act: Option<Activation>) -> Option<Self> {
        if !problem.is_depthwise() {
            return None;
        }
        let channels = problem.shape.channels;
        // Few images are cut in blocks of channels before they are cut in strips, which read the rows at their edges twice.
        let tasks = tasks_for(problem.threads);
        let blocks = tasks.div_ceil(problem.shape.images.max(1)).min(channels.div_ceil(LEAST_BLOCK));
        let block = if blocks > 1 { round_up(channels.div_ceil(blocks)) } else { channels };
        let blocks = channels.div_ceil(block);
        let (cut, width) = (Cut { parts: tasks.div_ceil(blocks), ..Cut::PLAIN }, round_up(block));
        let patches = match direction {
            Direction::Forward => Patches::forward(problem, block, width, cut),
            Direction::Backward => Patches::backward(problem, block, width, cut),
        };
        let ConvProblem { level, threads, .. } = *problem;
        let direct = Direct::new(problem, direction, round_up(channels));
        let images = problem.shape.images.max(1);
        Some(Depthwise { patches, images, channels, block, taps: problem.taps(), act, level, threads, direct })
    }

    fn buffer_floats(&self) -> usize {
        round_up(self.patches.buffer_floats())
    }

    /// Floats of the weights, `[tap][channel]`, padded to whole vectors.
    fn packed_floats(&self) -> usize {
        self.taps * round_up(self.channels)
    }

    /// Floats of workspace beside packed weights: scale and bias, and the copies of strips.
    fn rest_floats(&self) -> usize {
        2 * round_up(self.channels) + self.threads * self.buffer_floats()
    }

    /// Rows of an image that a task of `direct` has.
    fn band(&self, direct: &Direct) -> usize {
        direct.rows().div_ceil(tasks_for(self.threads).div_ceil(self.images)).max(1)
    }

    fn pack(&self, w: &[f32], packed: &mut [f32]) {
        packed.fill(0.0);
        for (tap, row) in packed.chunks_exact_mut(round_up(self.channels)).enumerate() {
            for (to, from) in row.iter_mut().zip(w[tap..].iter().step_by(self.taps)) {
                *to = *from;
            }
        }
    }
}

impl PixelKernel for Depthwise {
    fn workspace_bytes(&self) -> usize {
        (self.packed_floats() + self.rest_floats()) * 4
    }

    fn act(&self) -> Option<Activation> {
        self.act
    }

    fn finishes(&self) -> bool {
        true
    }

    fn kept(&self) -> Option<Kept> {
        kept_weights(self.patches.all_pixels(), self.packed_floats(), self.rest_floats())
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
        self.run_prepared(pool, source.into(), w, operands, dest, memory);
    }
}

impl PreparedPixelKernel for Depthwise {
    fn run_prepared(
        &self,
        pool: &Pool,
        source: Source,
        w: &[f32],
        operands: EpilogueOperands,
        dest: &mut [f32],
        memory: Memory,
    ) {
        assert!(pool.threads() <= self.threads, "made for fewer threads than the pool has");
        let width = round_up(self.channels);
        let (packed, rest, is_new) = memory.split(self.packed_floats(), self.rest_floats());
        if is_new {
            self.pack(w, packed);
        }
        let (scale, rest) = rest.split_at_mut(width);
        let (bias, buffers) = rest.split_at_mut(width);
        for (to, from) in [(&mut *scale, operands.scale), (&mut *bias, operands.bias)] {
            let from = from.map_or(&[][..], |from| &from[..self.channels]);
            to[..from.len()].copy_from_slice(from);
            to[from.len()..].fill(0.0);
        }
        let weights = Weights { packed, width, scale: operands.scale.map(|_| &*scale), bias };
        if let (Some(direct), None) = (&self.direct, source.prologue) {
            return self.rows(pool, direct, source.values, weights, operands, Parts::new(dest));
        }
        let (dest, buffers, floats) = (Parts::new(dest), Parts::new(buffers), self.buffer_floats());
        let blocks = self.channels.div_ceil(self.block);
        pool.run(self.patches.parts() * blocks, |task, worker| {
            let (part, first) = (self.patches.part(task / blocks), task % blocks * self.block);
            // SAFETY: a worker has its own buffer.
            let buffer = unsafe { buffers.part(worker * floats..(worker + 1) * floats) };
            self.patches.fill(&part, first, PixelSource::Plain(source), buffer, self.level);
            for class in &self.patches.classes {
                let pixels = self.patches.pixels(class, &part);
                let (channels, c_rows) = (self.block.min(self.channels - first), &class.c_rows[pixels.clone()]);
                // With the offsets of the table it lies inside.
                let to = dest.as_ptr().wrapping_offset(self.patches.dest_base(class, &part)).wrapping_add(first);
                self.level.run(Pixels {
                    class,
                    a_rows: &class.a_rows[pixels],
                    c_rows,
                    buffer,
                    weights: weights.at_channel(first),
                    channels,
                    dest: to,
                    epilogue: Epilogue::of(self.act).with(operands, first, dest.as_ptr()),
                });
                if let (Some(finish), Some(&at)) = (operands.finish, c_rows.first()) {
                    // Pixels of a part lie one after the other: an activation is only behind a forward convolution.
                    let (rows, columns, step) = (c_rows.len(), channels, self.channels);
                    // SAFETY: the part's own pixels.
                    unsafe { finish.run(Rows { first: to.wrapping_add(at as usize), rows, columns, step }) };
                }
            }
        });
    }
}

impl Depthwise {
    /// Computes row by row, where the pixels lie.
    fn rows(
        &self,
        pool: &Pool,
        direct: &Direct,
        source: &[f32],
        weights: Weights,
        operands: EpilogueOperands,
        dest: Parts<f32>,
    ) {
        let bands = chunks(direct.rows(), self.band(direct));
        pool.run(self.images * bands.count(), |task, _| {
            let (image, band) = (task / bands.count(), bands.range(task % bands.count()));
            for row in band {
                let first = dest.as_ptr().wrapping_add((image * direct.rows() + row) * direct.row_floats());
                let epilogue = Epilogue::of(self.act).with(operands, 0, dest.as_ptr());
                self.level.run(Row { direct, image, row, source, weights, dest: first, epilogue });
                if let Some(finish) = operands.finish {
                    let (columns, rows) = (self.channels, direct.row_floats() / self.channels);
                    // SAFETY: the task's own row.
                    unsafe { finish.run(Rows { first, rows, columns, step: columns }) };
                }
            }
        });
    }
}

impl<'a> Weights<'a> {
    /// Those from a channel on.
    fn at_channel(self, first: usize) -> Weights<'a> {
        let scale = self.scale.map(|scale| &scale[first..]);
        Weights { packed: &self.packed[first..], scale, bias: &self.bias[first..], ..self }
    }
}

/// The pixels of a class: a block of channels.
struct Pixels<'a> {
    class: &'a Class,
    a_rows: &'a [u32],
    c_rows: &'a [u32],
    buffer: &'a [f32],
    weights: Weights<'a>,
    channels: usize,
    dest: *mut f32,
    epilogue: Epilogue,
}

impl Kernel for Pixels<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (low, high) = (s.splat(self.epilogue.low), s.splat(self.epilogue.high));
        let Weights { packed, width, scale, bias } = self.weights;
        for (a, c) in self.a_rows.chunks(PIXELS).zip(self.c_rows.chunks(PIXELS)) {
            // A short chunk repeats its last pixel, which is then written more than once, each time the same.
            let mut from = [0; PIXELS];
            let mut to = [0; PIXELS];
            for p in 0..PIXELS {
                from[p] = a[p.min(a.len() - 1)] as usize;
                to[p] = c[p.min(c.len() - 1)] as usize;
            }
            for channel in (0..self.channels).step_by(S::LANES) {
                // SAFETY: pixels and weights are padded to whole vectors and patches lie inside the buffer; the
                // destination's pixels belong to this task.
                unsafe {
                    let bias = s.load(bias.as_ptr().add(channel));
                    let mut acc = [if scale.is_some() { s.zero() } else { bias }; PIXELS];
                    for (&tap, &offset) in self.class.taps.iter().zip(&self.class.offsets) {
                        let w = s.load(packed.as_ptr().add(tap * width + channel));
                        let patch = self.buffer.as_ptr().add(offset as usize + channel);
                        for p in 0..PIXELS {
                            acc[p] = s.fma(s.load(patch.add(from[p])), w, acc[p]);
                        }
                    }
                    let left = self.channels - channel;
                    if let Some(scale) = scale {
                        let scale = s.load(scale.as_ptr().add(channel));
                        for p in 0..PIXELS {
                            acc[p] = s.fma(acc[p], scale, bias);
                        }
                    }
                    for p in 0..PIXELS {
                        let dest = self.dest.wrapping_add(to[p] + channel);
                        if self.epilogue.has_matrix() {
                            acc[p] = self.epilogue.apply_matrices(s, acc[p], dest, left);
                        }
                        let x = s.min(high, s.max(low, acc[p]));
                        if left >= S::LANES {
                            s.store(dest, x);
                        } else {
                            s.store_part(dest, x, left);
                        }
                    }
                }
            }
        }
    }
}

/// The gradient by the weight.
pub struct DepthwiseGradWeight {
    patches: Patches,
    channels: usize,
    taps: usize,
    output: [usize; 2],
    /// Pieces of the batch, each with its own sum, and parts in each.
    pieces: usize,
    piece: usize,
    level: SimdLevel,
    threads: usize,
}

impl DepthwiseGradWeight {
    /// Lays out the work, if the convolution is depthwise.
    pub fn new(problem: &ConvProblem) -> Option<Self> {
        if !problem.is_depthwise() {
            return None;
        }
        let channels = problem.shape.channels;
        let patches = Patches::forward(problem, channels, round_up(channels), Cut::PLAIN);
        let piece = patches.parts().div_ceil(TASKS).max(1);
        Some(DepthwiseGradWeight {
            channels,
            taps: problem.taps(),
            output: problem.output(),
            pieces: patches.parts().div_ceil(piece),
            piece,
            level: problem.level,
            threads: problem.threads,
            patches,
        })
    }

    fn buffer_floats(&self) -> usize {
        round_up(self.patches.buffer_floats())
    }

    /// Floats of a piece's sums: `[tap][channel]`, and one more row for the bias.
    fn sums_floats(&self) -> usize {
        (self.taps + 1) * round_up(self.channels)
    }

    fn workspace_floats(&self) -> usize {
        self.pieces * self.sums_floats() + self.threads * self.buffer_floats()
    }

    /// The part's rows of `dy`, which follow one another.
    fn dy_of<'a>(&self, dy: &'a [f32], part: &PatchPart) -> &'a [f32] {
        let row = self.output[1] * self.channels;
        let start = (part.images.start * self.output[0] + part.rows.start) * row;
        &dy[start..start + part.images.len() * part.rows.len() * row]
    }
}

impl WeightKernel for DepthwiseGradWeight {
    fn workspace_bytes(&self) -> usize {
        self.workspace_floats() * 4
    }

    fn run(&self, pool: &Pool, x: &[f32], dy: &[f32], dw: &mut [f32], db: Option<&mut [f32]>, workspace: &mut [u8]) {
        self.run_prepared(pool, x.into(), dy, dw, db, workspace);
    }
}

impl PreparedWeightKernel for DepthwiseGradWeight {
    fn run_prepared(
        &self,
        pool: &Pool,
        x: Source,
        dy: &[f32],
        dw: &mut [f32],
        db: Option<&mut [f32]>,
        workspace: &mut [u8],
    ) {
        assert!(pool.threads() <= self.threads, "made for fewer threads than the pool has");
        let width = round_up(self.channels);
        let floats = workspace_floats(workspace, self.workspace_floats());
        let (sums, buffers) = floats.split_at_mut(self.pieces * self.sums_floats());
        let (parts, buffers, floats) = (Parts::new(&mut *sums), Parts::new(buffers), self.buffer_floats());
        pool.run(self.pieces, |piece, worker| {
            // SAFETY: a worker has its own buffer, and a piece its own sums.
            let (buffer, sums) = unsafe {
                let sums = parts.part(piece * self.sums_floats()..(piece + 1) * self.sums_floats());
                (buffers.part(worker * floats..(worker + 1) * floats), sums)
            };
            sums.fill(0.0);
            for index in piece * self.piece..((piece + 1) * self.piece).min(self.patches.parts()) {
                let part = self.patches.part(index);
                self.patches.fill(&part, 0, PixelSource::Plain(x), buffer, self.level);
                self.level.run(OuterSums { kernel: self, part: &part, dy: self.dy_of(dy, &part), buffer, sums });
            }
        });
        // Few enough for one thread: a sum for every weight and piece.
        let mut totals = dw.chunks_exact_mut(self.taps).enumerate();
        totals.by_ref().for_each(|(c, taps)| {
            for (tap, total) in taps.iter_mut().enumerate() {
                *total = sums.chunks(self.sums_floats().max(1)).map(|sums| sums[tap * width + c]).sum();
            }
        });
        if let Some(db) = db {
            for (c, total) in db.iter_mut().enumerate() {
                *total = sums.chunks(self.sums_floats().max(1)).map(|sums| sums[self.taps * width + c]).sum();
            }
        }
    }
}

/// Adds a part's products of `dy` and patches to the sums.
struct OuterSums<'a> {
    kernel: &'a DepthwiseGradWeight,
    part: &'a PatchPart,
    dy: &'a [f32],
    buffer: &'a [f32],
    sums: &'a mut [f32],
}

impl Kernel for OuterSums<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (channels, width) = (self.kernel.channels, round_up(self.kernel.channels));
        let class = &self.kernel.patches.classes[0];
        let a_rows = &class.a_rows[self.kernel.patches.pixels(class, self.part)];
        debug_assert_eq!(a_rows.len() * channels, self.dy.len());
        for channel in (0..channels).step_by(S::LANES) {
            let left = channels - channel;
            for taps in chunks_of(self.kernel.taps) {
                // SAFETY: patches lie inside the buffer, padded to whole vectors like the sums; `dy` has a pixel for
                // every row of the table.
                unsafe {
                    let mut offsets = [0; TAPS];
                    for (offset, &tap) in offsets.iter_mut().zip(&class.offsets[taps.clone()]) {
                        *offset = tap as usize + channel;
                    }
                    let mut acc = [s.zero(); TAPS];
                    let mut bias = s.zero();
                    for (pixel, &a) in a_rows.iter().enumerate() {
                        let dy = self.dy.as_ptr().add(pixel * channels + channel);
                        let dy = if left >= S::LANES { s.load(dy) } else { s.load_part(dy, left) };
                        let patch = self.buffer.as_ptr().add(a as usize);
                        bias = s.add(bias, dy);
                        // Taps that a short chunk lacks repeat the pixel's own place; their sums are not stored.
                        for t in 0..TAPS {
                            acc[t] = s.fma(s.load(patch.add(offsets[t])), dy, acc[t]);
                        }
                    }
                    let first = taps.start == 0;
                    for (tap, sum) in taps.zip(acc).chain(first.then_some((self.kernel.taps, bias))) {
                        let to = self.sums.as_mut_ptr().add(tap * width + channel);
                        s.store(to, s.add(s.load(to), sum));
                    }
                }
            }
        }
    }
}

fn chunks_of(taps: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let pieces = chunks(taps, TAPS);
    (0..pieces.count()).map(move |i| pieces.range(i))
}
