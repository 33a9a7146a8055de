//! Sums of rows in a fixed order.

use super::{round_up, workspace_floats};
use crate::run::threads::{Parts, Pool, chunks};
use crate::simd::{Kernel, Simd, SimdLevel};

/// Sum of the rows of a matrix `[rows, columns]`.
pub struct ColumnSums {
    rows: usize,
    columns: usize,
    level: SimdLevel,
    /// Rows that a task sums.
    grain: usize,
}

impl ColumnSums {
    /// Prepares the sum.
    pub fn new(rows: usize, columns: usize, level: SimdLevel) -> Self {
        ColumnSums { rows, columns, level, grain: rows.div_ceil(16).max(64) }
    }

    /// Workspace that [`ColumnSums::run`] needs.
    pub fn workspace_bytes(&self) -> usize {
        chunks(self.rows, self.grain).count() * round_up(self.columns) * 4
    }

    /// Computes `sums [columns]`: blocks of rows first, then their sums in order. `workspace` starts at a multiple of 64
    /// bytes.
    pub fn run(&self, pool: &Pool, matrix: &[f32], sums: &mut [f32], workspace: &mut [u8]) {
        let blocks = chunks(self.rows, self.grain);
        let step = round_up(self.columns);
        let partial = workspace_floats(workspace, blocks.count() * step);
        let parts = Parts::new(&mut *partial);
        pool.run(blocks.count(), |task, _| {
            // SAFETY: each task has a row of its own.
            let sums = unsafe { parts.part(task * step..task * step + self.columns) };
            let rows = blocks.range(task);
            let rows = matrix[rows.start * self.columns..rows.end * self.columns].chunks(self.columns.max(1));
            sums.fill(0.0);
            self.level.run(AddRows { rows, sums });
        });
        sums.fill(0.0);
        self.level.run(AddRows { rows: partial.chunks(step.max(1)), sums });
    }
}

/// Adds rows, which are at least as long, to `sums`.
pub struct AddRows<'a, I> {
    /// The rows, in the order in which they are added.
    pub rows: I,
    /// What they are added to.
    pub sums: &'a mut [f32],
}

impl<'a, I: Iterator<Item = &'a [f32]>> Kernel for AddRows<'_, I> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for row in self.rows {
            // Element by element: the compiler makes vectors of it.
            for (sum, x) in self.sums.iter_mut().zip(row) {
                *sum += x;
            }
        }
    }
}
