//! The convolution and its gradient by the input.

use super::Planes;
use super::layout::{Picks, ToPixels};
use super::tile::{MAX_CHANNELS, PixelTile, Tiles};
use crate::gemm::memory::Memory;
use crate::gemm::tile::{Epilogue, EpilogueOperands, for_each_tile, is_fused, tile_rows};
use crate::gemm::{round_up, workspace_floats};
use crate::graph::op::Activation;
use crate::ops::conv::kernel::PixelKernel;
use crate::ops::conv::shape::{ConvProblem, Direction};
use crate::run::per_thread::PerThread;
use crate::run::threads::{Parts, Pool};
use crate::simd::lanes::{get, put};
use crate::simd::{Kernel, Simd};
use std::ops::Range;

/// The convolution or its gradient by the input.
pub struct Planar {
    planes: Planes,
    direction: Direction,
    act: Option<Activation>,
    tiles: Tiles,
    threads: usize,
    /// Where the floats lie that a pixel sums up, from its place in the first plane of its group: by channel and position.
    offsets: Vec<u32>,
    /// For the pixels read and written.
    picks: [Picks; 2],
}

impl Planar {
    /// Lays out the work, if the problem suits this kernel.
    pub fn new(problem: &ConvProblem, direction: Direction, act: Option<Activation>) -> Option<Self> {
        let planes = Planes::new(problem, direction).filter(Planes::is_worth_it)?;
        let ConvProblem { level, threads, .. } = *problem;
        let offsets = planes.offsets().collect();
        let picks = [planes.from, planes.to].map(|channels| Picks::new(planes.groups * channels, level.lanes()));
        Some(Planar { direction, act, tiles: Tiles::new(level), threads, offsets, picks, planes })
    }

    fn weight_floats(&self) -> usize {
        round_up(self.planes.groups * self.planes.to * self.offsets.len())
    }

    fn scratch_floats(&self) -> usize {
        self.planes.read_floats() + self.planes.dest_planes() * self.planes.dest_floats()
    }

    fn workspace_floats(&self) -> usize {
        self.weight_floats() + PerThread::size(self.threads, self.scratch_floats())
    }

    /// The channels of tile `i` among those of a group, and how many there are.
    fn channels(&self) -> impl Iterator<Item = Range<usize>> {
        let (to, count) = (self.planes.to, self.planes.to.div_ceil(MAX_CHANNELS));
        (0..count).map(move |i| tile_rows(to, count, i))
    }

    /// Packs the weights: `[group][tile][channel read, position][channel of the tile]`.
    fn pack(&self, pool: &Pool, w: &[f32], packed: &mut [f32]) {
        let (from, to, taps) = (self.planes.from, self.planes.to, self.planes.taps.len());
        let packed = Parts::new(packed);
        pool.run(self.planes.groups, |group, _| {
            let len = self.offsets.len() * to;
            // SAFETY: a group belongs to one task.
            let packed = unsafe { packed.part(group * len..(group + 1) * len) };
            let w = &w[group * len..(group + 1) * len];
            for channels in self.channels() {
                let rows = packed[channels.start * self.offsets.len()..].chunks_exact_mut(channels.len());
                for (at, row) in rows.enumerate().take(self.offsets.len()) {
                    let (c, tap) = (at / taps, at % taps);
                    for (packed, o) in row.iter_mut().zip(channels.clone()) {
                        // `w [O, KH, KW, I / groups]`
                        *packed = match self.direction {
                            Direction::Forward => w[(o * taps + tap) * from + c],
                            Direction::Backward => w[(c * taps + tap) * to + o],
                        };
                    }
                }
            }
        });
    }

    fn part(
        &self,
        part: usize,
        source: &[f32],
        weights: &[f32],
        operands: EpilogueOperands,
        dest: Parts<f32>,
        scratch: &mut [f32],
    ) {
        let (p, level) = (&self.planes, self.tiles.level);
        let part = p.part(part);
        let (from, to) = scratch.split_at_mut(self.planes.read_floats());
        let [height, width] = p.dest;
        let pixel = p.groups * p.to;
        let start = (part.image * height + part.rows.start) * width * pixel;
        for first in (0..p.groups).step_by(p.block) {
            let groups = first..(first + p.block).min(p.groups);
            p.read(level, source, &part, groups.clone(), &self.picks[0], from);
            for group in groups.clone() {
                let from = from[p.source_base((group - first) * p.from)..].as_ptr();
                let to = to[(group - first) * p.to * p.dest_floats()..].as_mut_ptr();
                self.group(group, p.vectors(part.rows.len()), weights, operands, from, to);
            }
            let channel = first * p.to;
            level.run(ToPixels {
                planes: to,
                plane: p.dest_floats(),
                pitch: p.pitch,
                size: [part.rows.len(), width],
                dest: dest.as_ptr().wrapping_add(start + channel),
                len: part.rows.len() * width * pixel - channel,
                pixel,
                channels: groups.len() * p.to,
                picks: &self.picks[1],
            });
        }
        // The residual and the ReLU mask are laid out like the pixels, not like the planes.
        if operands.residual.is_some() || operands.relu_mask.is_some() {
            let pixels = start..start + part.rows.len() * width * pixel;
            // SAFETY: a strip of the result belongs to one task.
            let strip = unsafe { dest.part(pixels.clone()) };
            let act = self.act.filter(|&act| is_fused(act) && operands.residual.is_some());
            let matrices = [operands.residual, operands.relu_mask];
            let [residual, relu_mask] = matrices.map(|matrix| matrix.map(|matrix| &matrix[pixels.clone()]));
            level.run(ResidualAndMask { pixels: strip, residual, relu_mask, bounds: Epilogue::of(act) });
        }
    }

    /// Computes a group's planes.
    fn group(
        &self,
        group: usize,
        vectors: usize,
        weights: &[f32],
        operands: EpilogueOperands,
        from: *const f32,
        to: *mut f32,
    ) {
        let (p, lanes) = (&self.planes, self.tiles.level.lanes());
        let bounds = Epilogue::of(self.act.filter(|_| operands.residual.is_none()));
        for channels in self.channels() {
            let channel = group * p.to + channels.start;
            let Epilogue { scale, bias, low, high, .. } = bounds.with(operands, channel, std::ptr::null());
            let to = to.wrapping_add(channels.start * p.dest_floats());
            let weights = weights[channel * self.offsets.len()..].as_ptr();
            for_each_tile(vectors, self.tiles.vectors(channels.len()), |start, count| {
                let tile = PixelTile {
                    source: from.wrapping_add(start * lanes),
                    offsets: &self.offsets,
                    weights,
                    dest: to.wrapping_add(start * lanes),
                    plane: p.dest_floats(),
                    scale,
                    bias,
                    bounds: [low, high],
                };
                // SAFETY: the planes have these vectors with all that they reach, and the weights are packed for them.
                unsafe { self.tiles.pixels(channels.len(), count, &tile) };
            });
        }
    }
}

impl PixelKernel for Planar {
    fn workspace_bytes(&self) -> usize {
        self.workspace_floats() * 4
    }

    fn act(&self) -> Option<Activation> {
        self.act
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
        assert!(pool.threads() <= self.threads, "made for fewer threads than the pool has");
        let floats = workspace_floats(memory.workspace, self.workspace_floats());
        let (weights, scratch) = floats.split_at_mut(self.weight_floats());
        self.pack(pool, w, weights);
        let (weights, dest) = (&*weights, Parts::new(dest));
        let scratch = PerThread::new(Parts::new(scratch), self.scratch_floats());
        pool.run(self.planes.parts(), |part, worker| {
            // SAFETY: a worker has its own scratch.
            let scratch = unsafe { scratch.of(worker) };
            self.part(part, source, weights, operands, dest, scratch);
        });
    }
}

/// Adds the residual to pixels, sets them to 0 where the ReLU mask says so, and keeps them within bounds.
struct ResidualAndMask<'a> {
    pixels: &'a mut [f32],
    residual: Option<&'a [f32]>,
    relu_mask: Option<&'a [f32]>,
    bounds: Epilogue,
}

impl Kernel for ResidualAndMask<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (low, high) = (s.splat(self.bounds.low), s.splat(self.bounds.high));
        for i in (0..self.pixels.len()).step_by(S::LANES) {
            let n = (self.pixels.len() - i).min(S::LANES);
            let mut x = get(s, self.pixels, i, n);
            if let Some(residual) = self.residual {
                x = s.add(x, get(s, residual, i, n));
            }
            if let Some(relu_mask) = self.relu_mask {
                x = s.select(s.ge(s.zero(), get(s, relu_mask, i, n)), s.zero(), x);
            }
            put(s, self.pixels, i, n, s.min(high, s.max(low, x)));
        }
    }
}
