//! Rows of a table, and the sums that are its gradient.

use crate::graph::op::EmbeddingGrad;
use crate::run::frame::{Frame, NodeKernel, Scratch};
use crate::run::parallel::{CHUNK, for_chunks, rows_per_chunk, vectorised};
use crate::run::threads::{Parts, chunks};
use crate::simd::SimdLevel;
use crate::simd::lanes::{get, put};

/// [`crate::graph::op::Embedding`].
pub struct EmbeddingKernel {
    /// Rows of the table.
    pub rows: usize,
    /// Floats of a row.
    pub width: usize,
}

/// The row of a table of `rows` that an id stands for, if there is one.
fn row(id: i32, rows: usize) -> Option<usize> {
    usize::try_from(id).ok().filter(|row| *row < rows)
}

impl NodeKernel for EmbeddingKernel {
    fn run(&self, frame: &Frame<'_>) {
        let (table, ids, y) = (frame.input::<f32>(0), frame.input::<i32>(1), frame.output::<f32>(0));
        let width = self.width;
        for_chunks(frame.pool(), y, rows_per_chunk(width) * width, |start, y| {
            for (id, y) in ids[start / width..].iter().zip(y.chunks_mut(width)) {
                match row(*id, self.rows) {
                    Some(row) => y.copy_from_slice(&table[row * width..(row + 1) * width]),
                    None => y.fill(f32::NAN),
                }
            }
        });
    }
}

/// Ids, one after the other when they are sorted, whose gradients a task adds up.
const BLOCK: usize = 64;

/// [`EmbeddingGrad`]: the places of the ids are sorted by id, places of the same id in order. Blocks of the sorted list are cut into runs of the
/// same id. A run within a block is a row of the result. Of a run that goes on in the next block each block has a sum of its own, and these are
/// added in order.
pub struct EmbeddingGradKernel {
    rows: usize,
    padding: Option<usize>,
    ids: usize,
    width: usize,
    level: SimdLevel,
}

/// The ids, sorted.
#[derive(Clone, Copy)]
struct Sorted<'a> {
    ids: &'a [i32],
    /// Places of ids that have a row.
    places: &'a [u32],
}

/// What a block has of an id.
struct Run<'a> {
    /// The row of the result.
    row: usize,
    places: &'a [u32],
    /// It begins in an earlier block.
    from_before: bool,
    /// It goes on in the next block.
    goes_on: bool,
}

impl<'a> Sorted<'a> {
    fn row(self, at: usize) -> usize {
        self.ids[self.places[at] as usize] as usize
    }

    fn blocks(self) -> usize {
        self.places.len().div_ceil(BLOCK)
    }

    /// The run of block `block` from place `at` of the list on, and where it ends.
    fn run(self, block: usize, at: usize) -> (Run<'a>, usize) {
        let (start, end) = (block * BLOCK, ((block + 1) * BLOCK).min(self.places.len()));
        let row = self.row(at);
        let to = (at + 1..end).find(|i| self.row(*i) != row).unwrap_or(end);
        let from_before = at == start && start > 0 && self.row(start - 1) == row;
        let goes_on = to == end && end < self.places.len() && self.row(end) == row;
        (Run { row, places: &self.places[at..to], from_before, goes_on }, to)
    }

    /// The runs of a block.
    fn runs(self, block: usize) -> impl Iterator<Item = Run<'a>> {
        let (mut at, end) = (block * BLOCK, ((block + 1) * BLOCK).min(self.places.len()));
        std::iter::from_fn(move || {
            let (run, to) = (at < end).then(|| self.run(block, at))?;
            at = to;
            Some(run)
        })
    }
}

/// Vectors of a row that are added up side by side.
const TOGETHER: usize = 4;

vectorised! {
    /// The sum of the rows `places` of `x`, in order.
    fn sum_rows<'a, S>(s, x: &'a [f32], places: &'a [u32], sum: &'a mut [f32]) {
        let width = sum.len();
        let mut c = 0;
        while c + TOGETHER * S::LANES <= width {
            let mut sums = [s.zero(); TOGETHER];
            for place in places {
                let x = &x[*place as usize * width + c..][..TOGETHER * S::LANES];
                for (v, sum) in sums.iter_mut().enumerate() {
                    *sum = s.add(*sum, get(s, x, v * S::LANES, S::LANES));
                }
            }
            for (v, of) in sums.into_iter().enumerate() {
                put(s, sum, c + v * S::LANES, S::LANES, of);
            }
            c += TOGETHER * S::LANES;
        }
        for c in (c..width).step_by(S::LANES) {
            let n = (width - c).min(S::LANES);
            let mut of = s.zero();
            for place in places {
                of = s.add(of, get(s, x, *place as usize * width + c, n));
            }
            put(s, sum, c, n, of);
        }
    }

    /// `sum += x`.
    fn add<'a, S>(s, x: &'a [f32], sum: &'a mut [f32]) {
        for c in (0..x.len()).step_by(S::LANES) {
            let n = (x.len() - c).min(S::LANES);
            let of = s.add(get(s, sum, c, n), get(s, x, c, n));
            put(s, sum, c, n, of);
        }
    }
}

impl EmbeddingGradKernel {
    /// For so many ids and rows of `width` floats.
    pub fn new(op: &EmbeddingGrad, ids: usize, width: usize, level: SimdLevel) -> Self {
        EmbeddingGradKernel { rows: op.rows, padding: op.padding.map(|row| row as usize), ids, width, level }
    }

    /// The row that the gradient of an id goes to.
    fn row(&self, id: i32) -> Option<usize> {
        row(id, self.rows).filter(|row| self.padding != Some(*row))
    }

    /// Sorts the places of `ids` into `places` by counting; how many have a row. `ends` has a number for each row.
    fn sort(&self, ids: &[i32], places: &mut [u32], ends: &mut [u32]) -> usize {
        ends.fill(0);
        ids.iter().filter_map(|id| self.row(*id)).for_each(|row| ends[row] += 1);
        let mut before = 0;
        for end in ends.iter_mut() {
            before += std::mem::replace(end, before);
        }
        for (place, id) in ids.iter().enumerate() {
            if let Some(row) = self.row(*id) {
                places[ends[row] as usize] = place as u32;
                ends[row] += 1;
            }
        }
        before as usize
    }

    fn blocks(&self) -> usize {
        self.ids.div_ceil(BLOCK)
    }
}

impl NodeKernel for EmbeddingGradKernel {
    fn scratch_bytes(&self) -> usize {
        Scratch::size::<u32>(self.ids)
            + Scratch::size::<u32>(self.rows)
            + Scratch::size::<f32>(2 * self.blocks() * self.width)
    }

    fn run(&self, frame: &Frame<'_>) {
        let (dy, ids, dw) = (frame.input::<f32>(0), frame.input::<i32>(1), frame.output::<f32>(0));
        let (pool, width, mut scratch) = (frame.pool(), self.width, frame.scratch());
        let (places, ends) = (scratch.take::<u32>(self.ids), scratch.take::<u32>(self.rows));
        let partial = Parts::new(scratch.take::<f32>(2 * self.blocks() * width));
        for_chunks(pool, dw, CHUNK, |_, dw| dw.fill(0.0));
        let known = self.sort(ids, places, ends);
        let (sorted, dw) = (Sorted { ids, places: &places[..known] }, Parts::new(dw));
        let pieces = chunks(partial.len(), width);
        pool.run(sorted.blocks(), |block, _| {
            for run in sorted.runs(block) {
                // SAFETY: of a block that begins in a run and ends in another one, each has a sum. A run within a block is alone in its row.
                let sum = unsafe {
                    match (run.from_before, run.goes_on) {
                        (true, _) => partial.part(pieces.range(2 * block)),
                        (false, true) => partial.part(pieces.range(2 * block + 1)),
                        (false, false) => dw.part(run.row * width..(run.row + 1) * width),
                    }
                };
                sum_rows(self.level, dy, run.places, sum);
            }
        });
        pool.run(sorted.blocks(), |block, _| {
            let begun = sorted.runs(block).last().filter(|run| run.goes_on && !run.from_before);
            let Some(run) = begun else { return };
            // SAFETY: a run begins in one block, whose task has its row and all its sums.
            let sum = unsafe { dw.part(run.row * width..(run.row + 1) * width) };
            // SAFETY: as above.
            sum.copy_from_slice(unsafe { partial.part(pieces.range(2 * block + 1)) });
            for later in block + 1.. {
                // SAFETY: as above.
                add(self.level, unsafe { partial.part(pieces.range(2 * later)) }, sum);
                if !sorted.run(later, later * BLOCK).0.goes_on {
                    break;
                }
            }
        });
    }
}
