//! How kernels that reduce columns divide the rows and columns of a matrix among threads (`kernels/columns.cuh`).

use crate::backend::cuda::launch::{BLOCK, Kernel, Module, suffix};
use crate::graph::DType;

/// Rows that a thread of a reduction loads at once: `ROWS_AT_ONCE` of the kernels.
const ROWS_AT_ONCE: usize = 8;

/// Most blocks of a reduction: enough to fill any device, few enough that the second stage is short.
const MOST_SUMS: usize = 512;

/// From this many blocks on, a thread of an element-wise kernel takes several rows.
const ENOUGH_BLOCKS: usize = 1024;

/// Side, in threads, of the blocks that add partial sums.
const SIDE: usize = 32;

/// A matrix of `segments × rows` rows. Each segment is reduced on its own.
#[derive(Debug, Clone, Copy)]
pub struct Columns {
    segments: usize,
    rows: usize,
    columns: usize,
    /// Adjacent columns of a thread: 4, or 1 where the length of rows is no multiple of 4.
    vector: usize,
    /// Threads of a block, along a row and down the columns: powers of two.
    threads: [usize; 2],
    /// Blocks along a row.
    tiles: usize,
}

/// The rows of a segment cut into stretches, one a block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Split {
    /// Rows of a block.
    pub stretch: usize,
    /// Number of stretches.
    pub splits: usize,
}

impl Split {
    fn new(rows: usize, stretch: usize) -> Split {
        Split { stretch, splits: rows.div_ceil(stretch) }
    }
}

impl Columns {
    /// For a matrix of `segments · rows` rows.
    pub fn new(segments: usize, rows: usize, columns: usize) -> Columns {
        let vector = if columns.is_multiple_of(4) { 4 } else { 1 };
        let packs = columns / vector;
        let along = packs.next_power_of_two().min(32);
        let down = rows.next_power_of_two().min(BLOCK as usize / along);
        Columns { segments, rows, columns, vector, threads: [along, down], tiles: packs.div_ceil(along) }
    }

    /// For kernels that reduce.
    pub fn sums(&self) -> Split {
        let batch = self.threads[1] * ROWS_AT_ONCE;
        let batches = self.rows.div_ceil(batch);
        let most = (MOST_SUMS / (self.segments * self.tiles)).max(1);
        Split::new(self.rows, batches.div_ceil(batches.min(most)) * batch)
    }

    /// For element-wise kernels.
    pub fn map(&self) -> Split {
        let down = self.threads[1];
        let each = (self.segments * self.rows * self.tiles / (down * ENOUGH_BLOCKS)).clamp(1, ROWS_AT_ONCE);
        Split::new(self.rows, down * each)
    }

    /// Rows of the table of partial sums.
    pub fn partials(&self) -> usize {
        self.segments * self.sums().splits
    }

    /// Bytes of the table of partial sums, `[partials, 2, columns]` doubles.
    pub fn partial_bytes(&self) -> usize {
        self.partials() * 2 * self.columns * size_of::<f64>()
    }

    /// A launch of `name`, which takes the columns as [`Columns::new`] says and the rows by `split`.
    pub fn launch(&self, module: Module, name: &str, dtype: DType, split: Split) -> Kernel {
        let [along, down] = self.threads.map(|n| n as u32);
        Kernel::new(module, format!("{name}{}_{}", self.vector, suffix(dtype)))
            .grid(self.segments * split.splits, self.tiles, 1)
            .block(along, down)
    }

    /// A launch of `name`, each block of which adds the partial sums of 32 columns.
    pub fn totals(&self, module: Module, name: &str) -> Kernel {
        Kernel::new(module, name).grid(self.columns.div_ceil(SIDE), 1, 1).block(SIDE as u32, SIDE as u32)
    }
}

/// The next aligned offset of the workspace.
pub fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_every_element_and_stay_few() {
        for segments in [1, 2, 256, 5000] {
            for rows in [1, 2, 7, 100, 3136, 802_816] {
                for columns in [1, 3, 4, 33, 64, 100, 512, 4096] {
                    let c = Columns::new(segments, rows, columns);
                    let [along, down] = c.threads;
                    assert!(along.is_power_of_two() && down.is_power_of_two() && along * down <= BLOCK as usize);
                    assert!(c.tiles * along * c.vector >= columns && (c.tiles - 1) * along * c.vector < columns);
                    for split in [c.sums(), c.map()] {
                        let Split { stretch, splits } = split;
                        assert!(stretch * splits >= rows && stretch * (splits - 1) < rows, "{c:?} {split:?}");
                        assert_eq!(stretch % down, 0);
                    }
                    assert!(c.partials() * c.tiles <= MOST_SUMS.max(segments * c.tiles));
                }
            }
        }
    }

    #[test]
    fn long_reductions_fill_a_device() {
        for columns in [16, 64, 256] {
            let c = Columns::new(1, 256 * 26 * 26, columns);
            assert!(c.partials() * c.tiles >= 256, "{c:?}");
        }
    }
}
