//! The gradient by the weight: planes of `dy` times planes of `x`, shifted by each tap, summed over pixels.
//!
//! The planes of both have the same pitch, and those of `dy` have zeros between their rows. A task goes through a piece of the
//! batch and has sums of its own: an accumulator vector for every weight, whose lanes are added up in the end.

use super::layout::{Picks, ToPlanes};
use super::tile::{SumTile, Tiles};
use super::{PlanarPart, Planes, odd_lines};
use crate::gemm::sums::AddRows;
use crate::gemm::tile::tile_rows;
use crate::gemm::workspace_floats;
use crate::ops::conv::kernel::WeightKernel;
use crate::ops::conv::patches::TASKS;
use crate::ops::conv::shape::{ConvProblem, Direction};
use crate::run::per_thread::PerThread;
use crate::run::threads::{Parts, Pool};
use crate::simd::{Kernel, MAX_LANES, Simd};
use std::ops::Range;

/// Least vectors of pixels in a piece of the batch, unless there would be fewer than [`LEAST_PIECES`] pieces.
const PIECE_VECTORS: usize = 100;

/// Least pieces, so that there is work for several threads.
const LEAST_PIECES: usize = 4;

/// The gradient by the weight.
pub struct PlanarGradWeight {
    planes: Planes,
    tiles: Tiles,
    threads: usize,
    /// Pieces of the batch, each with its own sums, and parts in each.
    pieces: usize,
    piece: usize,
    /// The weights of an output channel: offsets of what they are multiplied with from a pixel's place in the first plane of
    /// the group. Repeats the last for as many as a tile has.
    places: Vec<u32>,
    /// Sums of a group.
    group: usize,
    picks: [Picks; 2],
}

/// The sums of a tile of output channels of a group.
struct Rows {
    channels: Range<usize>,
    /// Places of a tile, and tiles.
    places: usize,
    blocks: usize,
    /// The first sum, from the group's first.
    first: usize,
}

impl Rows {
    fn sums(&self) -> usize {
        self.channels.len() * self.places * self.blocks
    }
}

impl PlanarGradWeight {
    /// Lays out the work, if the problem suits this kernel.
    pub fn new(problem: &ConvProblem) -> Option<Self> {
        let planes = Planes::new(problem, Direction::Forward).filter(Planes::is_worth_it)?;
        let ConvProblem { level, threads, .. } = *problem;
        let vectors = planes.images * planes.strips * planes.vectors(planes.strip);
        let wanted = (vectors / PIECE_VECTORS).clamp(LEAST_PIECES, TASKS);
        let piece = planes.parts().div_ceil(wanted);
        let mut places: Vec<u32> = planes.offsets().collect();
        let last = *places.last()?;
        places.resize(places.len() + MAX_LANES, last);
        let picks = [planes.from, planes.to].map(|channels| Picks::new(planes.groups * channels, level.lanes()));
        let pieces = planes.parts().div_ceil(piece);
        let mut kernel =
            PlanarGradWeight { tiles: Tiles::new(level), threads, pieces, piece, places, group: 0, picks, planes };
        kernel.group = kernel.rows().map(|rows| rows.sums()).sum();
        Some(kernel)
    }

    /// The tiles of output channels of a group.
    fn rows(&self) -> impl Iterator<Item = Rows> {
        let (to, places) = (self.planes.to, self.planes.from * self.planes.taps.len());
        let count = to.div_ceil(self.tiles.rows);
        let mut first = 0;
        (0..count).map(move |i| {
            let channels = tile_rows(to, count, i);
            let width = self.tiles.places(channels.len());
            let rows = Rows { channels, places: width, blocks: places.div_ceil(width), first };
            first += rows.sums();
            rows
        })
    }

    /// Sums of the groups that are worked on at a time: those of the weights, one a channel for the bias, and some that make
    /// whole squares.
    fn block_sums(&self) -> usize {
        (self.planes.block * (self.group + self.planes.to)).next_multiple_of(MAX_LANES)
    }

    /// Sums of a piece.
    fn sums(&self) -> usize {
        self.planes.groups.div_ceil(self.planes.block) * self.block_sums()
    }

    /// Where a group's sums begin, and those of its channels for the bias.
    fn first_sums(&self, group: usize) -> [usize; 2] {
        let (block, at) = (group / self.planes.block, group % self.planes.block);
        let first = block * self.block_sums();
        [first + at * self.group, first + self.planes.block * self.group + at * self.planes.to]
    }

    fn grad_floats(&self) -> usize {
        odd_lines(self.planes.strip * self.planes.pitch + 2 * MAX_LANES)
    }

    fn scratch_floats(&self) -> usize {
        let vectors = self.block_sums() * self.tiles.level.lanes();
        vectors + self.planes.read_floats() + self.planes.dest_planes() * self.grad_floats()
    }

    fn workspace_floats(&self) -> usize {
        self.pieces * self.sums() + PerThread::size(self.threads, self.scratch_floats())
    }

    /// Adds a part's products of some groups to the sums.
    fn part(
        &self,
        part: PlanarPart,
        groups: Range<usize>,
        [x, dy]: [&[f32]; 2],
        bias: bool,
        accumulate: bool,
        [sums, planes]: [&mut [f32]; 2],
    ) {
        let (p, level) = (&self.planes, self.tiles.level);
        let (from, to) = planes.split_at_mut(self.planes.read_floats());
        let rows = part.rows.len();
        let vectors = p.vectors(rows);
        p.read(level, x, &part, groups.clone(), &self.picks[0], from);
        level.run(ToPlanes {
            source: dy,
            pixel: p.groups * p.to,
            channel: groups.start * p.to,
            channels: groups.len() * p.to,
            image: part.image,
            size: p.dest,
            first: part.rows.start as isize,
            rows,
            left: 0,
            pitch: p.pitch,
            planes: Parts::new(&mut *to),
            plane: self.grad_floats(),
            picks: &self.picks[1],
        });
        for group in 0..groups.len() {
            let from = from[p.source_base(group * p.from)..].as_ptr();
            let to = &to[group * p.to * self.grad_floats()..];
            let sums = sums[group * self.group * level.lanes()..].as_mut_ptr();
            for rows in self.rows() {
                for block in 0..rows.blocks {
                    let sum = rows.first + block * rows.channels.len() * rows.places;
                    let tile = SumTile {
                        rows: to[rows.channels.start * self.grad_floats()..].as_ptr(),
                        plane: self.grad_floats(),
                        source: from,
                        offsets: &self.places[block * rows.places..],
                        vectors,
                        sums: sums.wrapping_add(sum * level.lanes()),
                        accumulate,
                    };
                    // SAFETY: both sides' planes have these vectors with all that they reach; the sums are the task's own.
                    unsafe { self.tiles.sums(rows.channels.len(), &tile) };
                }
            }
        }
        if bias {
            let at = p.block * self.group * level.lanes();
            let sums = &mut sums[at..at + groups.len() * p.to * level.lanes()];
            level.run(AddPlanes { planes: to, plane: self.grad_floats(), vectors, sums, accumulate });
        }
    }

    /// Lays the sums out as `dw [O, KH, KW, I / groups]`.
    fn store(&self, pool: &Pool, total: &[f32], dw: &mut [f32]) {
        let (from, to, taps) = (self.planes.from, self.planes.to, self.planes.taps.len());
        let dw = Parts::new(dw);
        pool.run(self.planes.groups, |group, _| {
            // SAFETY: a group belongs to one task.
            let dw = unsafe { dw.part(group * to * taps * from..(group + 1) * to * taps * from) };
            let total = &total[self.first_sums(group)[0]..];
            for rows in self.rows() {
                for (r, o) in rows.channels.clone().enumerate() {
                    let dw = &mut dw[o * taps * from..(o + 1) * taps * from];
                    let mut sums = (0..rows.blocks).flat_map(|block| {
                        let first = rows.first + (block * rows.channels.len() + r) * rows.places;
                        &total[first..first + rows.places]
                    });
                    for c in 0..from {
                        for (tap, sum) in sums.by_ref().take(taps).enumerate() {
                            dw[tap * from + c] = *sum;
                        }
                    }
                }
            }
        });
    }
}

impl WeightKernel for PlanarGradWeight {
    fn workspace_bytes(&self) -> usize {
        self.workspace_floats() * 4
    }

    fn run(&self, pool: &Pool, x: &[f32], dy: &[f32], dw: &mut [f32], db: Option<&mut [f32]>, workspace: &mut [u8]) {
        assert!(pool.threads() <= self.threads, "made for fewer threads than the pool has");
        let floats = workspace_floats(workspace, self.workspace_floats());
        let (totals, scratch) = floats.split_at_mut(self.pieces * self.sums());
        let parts = Parts::new(&mut *totals);
        let scratch = PerThread::new(Parts::new(scratch), self.scratch_floats());
        let bias = db.is_some();
        pool.run(self.pieces, |piece, worker| {
            // SAFETY: a worker has its own scratch, and a piece its own sums.
            let (scratch, totals) =
                unsafe { (scratch.of(worker), parts.part(piece * self.sums()..(piece + 1) * self.sums())) };
            let (sums, planes) = scratch.split_at_mut(self.block_sums() * self.tiles.level.lanes());
            let range = piece * self.piece..((piece + 1) * self.piece).min(self.planes.parts());
            // Blocks of groups outside, so that their sums stay in the cache.
            let firsts = (0..self.planes.groups).step_by(self.planes.block);
            for (first, totals) in firsts.zip(totals.chunks_exact_mut(self.block_sums())) {
                let groups = first..(first + self.planes.block).min(self.planes.groups);
                for part in range.clone() {
                    let accumulate = part > range.start;
                    self.part(self.planes.part(part), groups.clone(), [x, dy], bias, accumulate, [sums, planes]);
                }
                self.tiles.level.run(AddLanes { vectors: sums, totals });
            }
        });
        let (total, others) = totals.split_at_mut(self.sums());
        self.tiles.level.run(AddRows { rows: others.chunks(self.sums()), sums: total });
        self.store(pool, total, dw);
        if let Some(db) = db {
            for (group, db) in db.chunks_exact_mut(self.planes.to).enumerate() {
                let [_, first] = self.first_sums(group);
                db.copy_from_slice(&total[first..first + db.len()]);
            }
        }
    }
}

/// Adds up the lanes of vectors.
struct AddLanes<'a> {
    /// As many vectors as totals, a multiple of [`MAX_LANES`].
    vectors: &'a [f32],
    totals: &'a mut [f32],
}

impl Kernel for AddLanes<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let squares = self.vectors.chunks_exact(S::LANES * S::LANES).zip(self.totals.chunks_exact_mut(S::LANES));
        for (vectors, totals) in squares {
            let mut lanes = [0.0; MAX_LANES * MAX_LANES];
            // SAFETY: a square of lanes on both sides.
            unsafe {
                s.transpose(vectors.as_ptr(), S::LANES, lanes.as_mut_ptr(), S::LANES);
                let mut sums = [s.zero(); 4];
                for lane in (0..S::LANES).step_by(4) {
                    for i in 0..4 {
                        sums[i] = s.add(sums[i], s.load(lanes.as_ptr().add((lane + i) * S::LANES)));
                    }
                }
                s.store(totals.as_mut_ptr(), s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])));
            }
        }
    }
}

/// Adds planes to sums of a vector each.
struct AddPlanes<'a> {
    planes: &'a [f32],
    plane: usize,
    vectors: usize,
    sums: &'a mut [f32],
    accumulate: bool,
}

impl Kernel for AddPlanes<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (plane, sum) in self.planes.chunks_exact(self.plane).zip(self.sums.chunks_exact_mut(S::LANES)) {
            let mut sums = [s.zero(); 4];
            // SAFETY: a plane has these vectors.
            unsafe {
                let vector = |v: usize| plane[v * S::LANES..][..S::LANES].as_ptr();
                if self.accumulate {
                    sums[0] = s.load(sum.as_ptr());
                }
                for v in (0..self.vectors).step_by(4) {
                    for i in 0..(self.vectors - v).min(4) {
                        sums[i] = s.add(sums[i], s.load(vector(v + i)));
                    }
                }
                s.store(sum.as_mut_ptr(), s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])));
            }
        }
    }
}
