//! Depthwise convolutions: each group has one channel. Vectors run over channels, and the speed is bound by loads.
//!
//! Pixels are read where they lie (`direct`), or, of small images and with a prologue, from copies of strips with zeros around them.

mod direct;
mod grad_weight;

pub use grad_weight::DepthwiseGradWeight;

use super::kernel::{PixelKernel, PreparedPixelKernel};
use super::operands::PixelSource;
use super::patches::{Class, Cut, Patches, tasks_for};
use super::shape::{ConvProblem, Direction};
use crate::gemm::memory::{Memory, kept_weights};
use crate::gemm::numbers::{Address, Numbers, NumbersMut, Rounded};
use crate::gemm::prologue::Source;
use crate::gemm::round_up;
use crate::gemm::tile::{Epilogue, EpilogueOperands, Rows};
use crate::graph::op::Activation;
use crate::ops::elementwise::FromFloats;
use crate::plan::Kept;
use crate::run::per_thread::PerThread;
use crate::run::threads::{Parts, Pool, chunks};
use crate::simd::{Kernel, Simd, SimdLevel};
use direct::{Direct, Row};

/// Pixels that share the loads of the weights.
const PIXELS: usize = 8;

/// Least channels of a block, if there are as many: two cache lines of each pixel.
const LEAST_BLOCK: usize = 32;

/// Channels that are few for vectors: half of the widest.
const FEW_CHANNELS: usize = 8;

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
    rounded: Rounded,
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
        let (taps, rounded) = (problem.taps(), problem.rounded);
        Some(Depthwise { patches, images, channels, block, taps, act, level, threads, direct, rounded })
    }

    fn buffer_floats(&self) -> usize {
        match (&self.direct, self.rounded.result) {
            (Some(direct), true) => round_up(direct.row_floats()),
            _ => round_up(self.patches.buffer_floats()),
        }
    }

    /// Floats of the weights, `[tap][channel]`, padded to whole vectors.
    fn packed_floats(&self) -> usize {
        self.taps * round_up(self.channels)
    }

    /// Floats of workspace beside packed weights: scale and bias, and the copies of strips.
    fn rest_floats(&self) -> usize {
        2 * round_up(self.channels) + PerThread::size(self.threads, self.buffer_floats())
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

    fn run_numbers(
        &self,
        pool: &Pool,
        source: Numbers,
        w: &[f32],
        operands: EpilogueOperands,
        mut dest: NumbersMut,
        memory: Memory,
    ) {
        let found = Rounded::of(&source, &operands, &dest);
        assert_eq!(found, self.rounded, "made for operands of other types");
        match (&self.direct, source, dest.again()) {
            (_, Numbers::Single(source), NumbersMut::Single(dest)) => {
                self.run(pool, source, w, operands, dest, memory);
            }
            (Some(direct), ..) => {
                assert!(pool.threads() <= self.threads, "made for fewer threads than the pool has");
                assert!(operands.residual.is_none() && !found.summand, "nothing is added to rows that are rounded");
                let (weights, buffers) = self.weights(w, operands, memory);
                self.rows(pool, direct, (source, dest.address()), weights, operands, buffers);
            }
            _ => panic!("a kernel of floats has numbers that are rounded"),
        }
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
        let (weights, buffers) = self.weights(w, operands, memory);
        if let (Some(direct), None) = (&self.direct, source.prologue) {
            let rows = (Numbers::from(source.values), Address::new(dest.as_mut_ptr().cast(), false));
            return self.rows(pool, direct, rows, weights, operands, buffers);
        }
        let dest = Parts::new(dest);
        let buffers = PerThread::new(Parts::new(buffers), self.buffer_floats());
        let blocks = self.channels.div_ceil(self.block);
        pool.run(self.patches.parts() * blocks, |task, worker| {
            let (part, first) = (self.patches.part(task / blocks), task % blocks * self.block);
            // SAFETY: a worker has its own buffer.
            let buffer = unsafe { buffers.of(worker) };
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
                    // Pixels of a part lie one after the other: an activation is only after a forward convolution.
                    let (rows, columns, step) = (c_rows.len(), channels, self.channels);
                    // SAFETY: the part's own pixels.
                    unsafe { finish.run(Rows { first: to.wrapping_add(at as usize), rows, columns, step }) };
                }
            }
        });
    }
}

impl Depthwise {
    /// Whether rows of images are read where they lie, and their numbers may be rounded in memory.
    pub fn takes_rounded(problem: &ConvProblem) -> bool {
        let width = round_up(problem.shape.channels);
        let takes = problem.is_depthwise() && problem.shape.channels > FEW_CHANNELS;
        takes && Direct::new(problem, Direction::Forward, width).is_some()
    }

    /// The weights with their scale and bias, and the memory for buffers.
    fn weights<'a>(&self, w: &[f32], operands: EpilogueOperands, memory: Memory<'a>) -> (Weights<'a>, &'a mut [f32]) {
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
        (Weights { packed, width, scale: operands.scale.map(|_| &*scale), bias }, buffers)
    }

    /// Computes row by row, where the pixels lie. Rows that are rounded are floats in a buffer first.
    fn rows(
        &self,
        pool: &Pool,
        direct: &Direct,
        (source, dest): (Numbers, Address),
        weights: Weights,
        operands: EpilogueOperands,
        buffers: &mut [f32],
    ) {
        let bands = chunks(direct.rows(), self.band(direct));
        let buffers = PerThread::new(Parts::new(buffers), self.buffer_floats());
        pool.run(self.images * bands.count(), |task, worker| {
            let (image, band) = (task / bands.count(), bands.range(task % bands.count()));
            for row in band {
                let to = dest.at((image * direct.rows() + row) * direct.row_floats());
                let (first, base) = match to.rounded() {
                    None => (to.floats(), dest.floats().cast_const()),
                    // SAFETY: a worker has its own buffer.
                    Some(_) => (unsafe { buffers.of(worker) }.as_mut_ptr(), std::ptr::null()),
                };
                let epilogue = Epilogue::of(self.act).with(operands, 0, base);
                match source {
                    Numbers::Single(source) => {
                        self.level.run(Row { direct, image, row, source, weights, dest: first, epilogue });
                    }
                    Numbers::Rounded(source) => {
                        self.level.run(Row { direct, image, row, source, weights, dest: first, epilogue });
                    }
                }
                if let Some(finish) = operands.finish {
                    let (columns, rows) = (self.channels, direct.row_floats() / self.channels);
                    // SAFETY: the task's own row.
                    unsafe { finish.run(Rows { first, rows, columns, step: columns }) };
                }
                if to.rounded().is_some() {
                    self.level.run(FromFloats { from: first, to, n: direct.row_floats() });
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
