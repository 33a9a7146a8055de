//! The statistics of a batch: by a pass over it, or while a convolution writes it.

use super::Size;
use crate::gemm::tile::{Finish, Rows};
use crate::graph::op::BatchNormStatistics;
use crate::ops::reduce_columns::Moments;
use crate::run::frame::{Frame, NodeKernel, Scratch};
use crate::run::threads::Parts;
use crate::simd::SimdLevel;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering};

/// The statistics of a batch.
pub struct Statistics {
    op: BatchNormStatistics,
    pub(super) size: Size,
    pub(super) level: SimdLevel,
    /// Number of the operand that is the running mean; variance and counter follow.
    running: usize,
}

impl Statistics {
    /// Of `rows × channels` elements. `running`: number of the operand that is the running mean, if there is one.
    pub fn new(op: BatchNormStatistics, [rows, channels]: [usize; 2], running: usize, level: SimdLevel) -> Self {
        Statistics { op, size: Size::new(rows, channels), level, running }
    }

    /// Scratch memory of [`Statistics::run`].
    pub fn scratch_bytes(&self) -> usize {
        2 * Scratch::size::<f64>(self.size.partials()) + Scratch::size::<f64>(self.size.channels)
    }

    /// Scratch memory of [`Statistics::run_behind`] beside that of the product.
    pub fn scratch_bytes_behind(&self) -> usize {
        self.scratch_bytes() + Scratch::size::<i64>(self.parts().count())
    }

    /// Computes `mean` and `invstd` of `x`, and moves the running statistics.
    pub fn run(&self, frame: &Frame, scratch: &mut Scratch, x: &[f32], [mean, invstd]: [&mut [f32]; 2]) {
        let partial = Partial::new(self.size, self.level, scratch);
        let variances = scratch.take::<f64>(self.size.channels);
        partial.pass(frame, x);
        self.combine(frame, variances, &partial, [mean, invstd]);
    }

    /// Likewise, of the `x` that `product` writes with the scratch memory that is left. If it `finishes`, it must give all of
    /// its results to what it is given. The thread that writes the last results of a block sums the block, which is still in the cache.
    pub fn run_behind(
        &self,
        frame: &Frame,
        mut scratch: Scratch,
        finishes: bool,
        (x, mean, invstd): (&mut [f32], &mut [f32], &mut [f32]),
        product: impl FnOnce(&mut [f32], Option<&dyn Finish>, &mut [u8]),
    ) {
        let partial = Partial::new(self.size, self.level, &mut scratch);
        let parts = self.parts();
        let left = scratch.take::<i64>(parts.count());
        let variances = scratch.take::<f64>(self.size.channels);
        if finishes {
            (0..).zip(&mut *left).for_each(|(part, left)| *left = parts.elements(part) as i64);
            // SAFETY: an atomic integer has the size and, here, the alignment of the integer, and these are ours alone.
            let left = unsafe { std::slice::from_raw_parts(left.as_ptr().cast::<AtomicI64>(), left.len()) };
            let arriving = Arriving { partial: &partial, parts, left, base: x.as_ptr() as usize };
            product(x, Some(&arriving), scratch.bytes());
            debug_assert!(left.iter().all(|left| left.load(Ordering::Relaxed) == 0), "not every result came");
        } else {
            product(x, None, scratch.bytes());
            partial.pass(frame, x);
        }
        self.combine(frame, variances, &partial, [mean, invstd]);
    }

    fn parts(&self) -> ArrivingParts {
        ArrivingParts { size: self.size }
    }

    /// `mean` and `invstd` of the blocks' sums; `variances` is room for them.
    fn combine(&self, frame: &Frame, variances: &mut [f64], partial: &Partial, [mean, invstd]: [&mut [f32]; 2]) {
        // SAFETY: all blocks have been summed.
        let [sums, squares] = unsafe { partial.all() };
        for c in 0..self.size.channels {
            let (m, v) = self.of(c, sums, squares);
            mean[c] = m as f32;
            variances[c] = v;
            invstd[c] = (1.0 / (v + self.op.eps as f64).sqrt()) as f32;
        }
        if self.op.track {
            self.track(frame, mean, variances);
        }
    }

    /// Mean and biased variance of a channel, from the blocks' sums and squares (Chan, Golub & LeVeque 1983).
    fn of(&self, c: usize, sums: &[f64], squares: &[f64]) -> (f64, f64) {
        let Size { rows, channels, folded, grid } = self.size;
        // A block has a sum for each of the rows that are taken for one.
        let parts = grid.rows.count() * folded;
        let mean = (0..parts).map(|i| sums[i * channels + c]).sum::<f64>() / rows as f64;
        let total: f64 = (0..parts)
            .map(|i| {
                let n = grid.rows.range(i / folded).len() as f64;
                let d = sums[i * channels + c] / n - mean;
                squares[i * channels + c] + n * d * d
            })
            .sum();
        (mean, total / rows as f64)
    }

    /// Moves the running statistics towards the batch's.
    fn track(&self, frame: &Frame, mean: &[f32], variances: &[f64]) {
        let first = self.running;
        let counter = frame.update::<i64>(first + 2);
        counter[0] += 1;
        let weight = self.op.momentum.map_or(1.0 / counter[0] as f64, f64::from);
        let unbiased = self.size.rows as f64 / (self.size.rows as f64 - 1.0);
        let towards = |old: f32, new: f64| ((1.0 - weight) * old as f64 + weight * new) as f32;
        for (r, m) in frame.update::<f32>(first).iter_mut().zip(mean) {
            *r = towards(*r, *m as f64);
        }
        for (r, v) in frame.update::<f32>(first + 1).iter_mut().zip(variances) {
            *r = towards(*r, v * unbiased);
        }
    }
}

/// Sums, and sums of squared distances, of every block.
pub(super) struct Partial<'a> {
    size: Size,
    level: SimdLevel,
    sums: Parts<'a, f64>,
    squares: Parts<'a, f64>,
}

impl<'a> Partial<'a> {
    pub(super) fn new(size: Size, level: SimdLevel, scratch: &mut Scratch<'a>) -> Self {
        let [sums, squares] = [(); 2].map(|()| Parts::new(scratch.take::<f64>(size.partials())));
        Partial { size, level, sums, squares }
    }

    /// Sums all blocks of `x`.
    pub(super) fn pass(&self, frame: &Frame, x: &[f32]) {
        let (Size { grid, .. }, width) = (self.size, self.size.width());
        frame.pool().run(grid.count(), |task, _| {
            let (rows, block, columns) = grid.block(task);
            let x = x[rows.start * width..rows.end * width].as_ptr();
            // SAFETY: the rows are inside `x`, and a block is one task's.
            unsafe { self.add(x, block, columns) };
        });
    }

    /// Sums a block of rows in some columns; `x` is the first of those rows.
    ///
    /// # Safety
    /// The rows are valid in full length, no thread writes these columns of them, and no other thread sums this block.
    unsafe fn add(&self, x: *const f32, block: usize, columns: Range<usize>) {
        let width = self.size.width();
        let at = block * width + columns.start..block * width + columns.end;
        // SAFETY: each block has its own sums.
        let sums = unsafe { [self.sums.part(at.clone()), self.squares.part(at)] };
        let rows = self.size.grid.rows.range(block).len();
        self.level.run(Moments { x, width, rows, columns, sums });
    }

    /// # Safety
    /// No thread adds to them any more.
    pub(super) unsafe fn all(&self) -> [&[f64]; 2] {
        let all = 0..self.size.partials();
        // SAFETY: the caller's promise.
        [&self.sums, &self.squares].map(|sums| &*unsafe { sums.part(all.clone()) })
    }
}

/// The parts of a matrix of which it is counted how much has been written: its blocks, but where several rows are taken for
/// one, all blocks of the same rows together.
#[derive(Clone, Copy)]
struct ArrivingParts {
    size: Size,
}

impl ArrivingParts {
    /// Parts beside each other.
    fn across(&self) -> usize {
        if self.size.folded == 1 { self.size.grid.columns.count() } else { 1 }
    }

    fn count(&self) -> usize {
        self.size.grid.rows.count() * self.across()
    }

    /// Rows and channels of a part.
    fn part(&self, part: usize) -> [Range<usize>; 2] {
        let Size { channels, folded, grid, .. } = self.size;
        let rows = grid.rows.range(part / self.across());
        let columns = if folded == 1 { grid.columns.range(part % self.across()) } else { 0..channels };
        [rows.start * folded..rows.end * folded, columns]
    }

    fn elements(&self, part: usize) -> usize {
        self.part(part).iter().map(Range::len).product()
    }

    /// The parts with rows of these: at least one.
    fn of_rows(&self, rows: &Range<usize>) -> Range<usize> {
        let Size { folded, grid, .. } = self.size;
        let [first, last] = [rows.start, rows.end - 1].map(|row| grid.rows.holding(row / folded));
        first * self.across()..(last + 1) * self.across()
    }
}

/// How much two ranges have in common.
fn common(a: &Range<usize>, b: &Range<usize>) -> usize {
    a.end.min(b.end).saturating_sub(a.start.max(b.start))
}

/// Results of a product as they come.
struct Arriving<'a> {
    partial: &'a Partial<'a>,
    parts: ArrivingParts,
    /// Elements of each part that are still to come.
    left: &'a [AtomicI64],
    /// Address of the first result.
    base: usize,
}

impl fmt::Debug for Arriving<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arriving").field("left", &self.left).finish_non_exhaustive()
    }
}

impl Arriving<'_> {
    /// Takes in these rows and channels; `x` is the first element of the matrix.
    ///
    /// # Safety
    /// They have been written, and come only once.
    unsafe fn arrived(&self, x: *const f32, rows: Range<usize>, columns: Range<usize>) {
        for part in self.parts.of_rows(&rows) {
            let [of_part, columns_of_part] = self.parts.part(part);
            let count = (common(&of_part, &rows) * common(&columns_of_part, &columns)) as i64;
            // All that was written by those who have counted before is seen by the one who comes to zero.
            if count == 0 || self.left[part].fetch_sub(count, Ordering::AcqRel) > count {
                continue;
            }
            let Size { channels, folded, .. } = self.parts.size;
            let columns = if folded == 1 { columns_of_part } else { 0..channels * folded };
            // SAFETY: all of the part has been written, and no other thread has counted to zero.
            unsafe {
                self.partial.add(x.wrapping_add(of_part.start * channels), part / self.parts.across(), columns);
            }
        }
    }
}

impl Finish for Arriving<'_> {
    unsafe fn run(&self, Rows { first, rows, columns, step }: Rows) {
        let channels = self.parts.size.channels;
        let at = (first as usize - self.base) / size_of::<f32>();
        let (row, column, x) = (at / channels, at % channels, first.wrapping_sub(at).cast_const());
        // Rows of the matrix, or such that lie further apart.
        let (count, height) = if step == channels { (1, rows) } else { (rows, 1) };
        for start in (0..count).map(|i| row + i * (step / channels)).filter(|_| height > 0) {
            // SAFETY: the caller's promise.
            unsafe { self.arrived(x, start..start + height, column..column + columns) };
        }
    }
}

/// [`BatchNormStatistics`].
pub struct BatchNormStatisticsKernel {
    statistics: Statistics,
}

impl BatchNormStatisticsKernel {
    /// For an operand of `rows × channels` elements.
    pub fn new(op: &BatchNormStatistics, rows: usize, channels: usize, level: SimdLevel) -> Self {
        BatchNormStatisticsKernel { statistics: Statistics::new(op.clone(), [rows, channels], 1, level) }
    }
}

impl NodeKernel for BatchNormStatisticsKernel {
    fn scratch_bytes(&self) -> usize {
        self.statistics.scratch_bytes()
    }

    fn run(&self, frame: &Frame<'_>) {
        let (mean, invstd) = (frame.output::<f32>(0), frame.output::<f32>(1));
        self.statistics.run(frame, &mut frame.scratch(), frame.input(0), [mean, invstd]);
    }
}
