//! How kernels that reduce columns divide the rows and columns of a matrix among threads (`kernels/cuda/columns.cuh`).

use super::layout::pack;
use crate::backend::gpu::launch::{BLOCK, Kernel, Module, suffix};
use crate::graph::DType;

/// Rows that a thread of a reduction has at least, if there are so many: a batch of them, `MOMENT_ROWS` of the kernels, or two.
const ROWS_OF_SUMS: usize = 8;

/// Most rows of a thread of an element-wise kernel, which reads them one after the other.
const ROWS_OF_MAP: usize = 16;

/// Most blocks of a reduction: enough to fill any device, few enough that the second stage is short.
const MOST_SUMS: usize = 512;

/// From this many blocks on, a thread of an element-wise kernel takes several rows.
const ENOUGH_BLOCKS: usize = 1024;

/// Threads of the blocks that add partial sums, along the columns and down the table: `TOTAL_COLUMNS` and `TOTAL_ROWS` of the
/// kernels.
const TOTALS: [usize; 2] = [8, 128];

/// A matrix of `segments × rows` rows. Each segment is reduced on its own.
#[derive(Debug, Clone, Copy)]
pub struct Columns {
    segments: usize,
    rows: usize,
    columns: usize,
    /// Adjacent columns of a thread: 16 bytes of them, 4, or 1, which the length of rows must be a multiple of.
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
    /// For a matrix of `segments · rows` rows of that type.
    pub fn new(segments: usize, rows: usize, columns: usize, dtype: DType) -> Columns {
        let vector = [pack(dtype), 4].into_iter().find(|n| columns.is_multiple_of(*n)).unwrap_or(1);
        let packs = columns / vector;
        let along = packs.next_power_of_two().min(32);
        let down = rows.next_power_of_two().min(BLOCK as usize / along);
        Columns { segments, rows, columns, vector, threads: [along, down], tiles: packs.div_ceil(along) }
    }

    /// Blocks that the rows of a segment fall to, in kernels that reduce: each takes batches of rows in turn.
    pub fn sums(&self) -> usize {
        let batches = self.rows.div_ceil(self.threads[1] * ROWS_OF_SUMS);
        let most = (MOST_SUMS / (self.segments * self.tiles)).max(1);
        batches.min(most)
    }

    /// For element-wise kernels.
    pub fn map(&self) -> Split {
        let down = self.threads[1];
        let each = (self.segments * self.rows * self.tiles / (down * ENOUGH_BLOCKS)).clamp(1, ROWS_OF_MAP);
        Split::new(self.rows, down * each)
    }

    /// Rows of the table of partial sums.
    pub fn partials(&self) -> usize {
        self.segments * self.sums()
    }

    /// Bytes of the table of partial sums, `[partials, 2, columns]` doubles.
    pub fn partial_bytes(&self) -> usize {
        self.partials() * 2 * self.columns * size_of::<f64>()
    }

    /// A launch of `name`, which takes the columns as [`Columns::new`] says and the rows of a segment by so many blocks.
    pub fn launch(&self, module: Module, name: &str, dtype: DType, splits: usize) -> Kernel {
        let [along, down] = self.threads.map(|n| n as u32);
        Kernel::new(module, format!("{name}{}_{}", self.vector, suffix(dtype)))
            .grid(self.segments * splits, self.tiles, 1)
            .block(along, down)
    }

    /// [`column_totals`] of these columns.
    pub fn totals(&self, module: Module, name: &str) -> Kernel {
        column_totals(module, name, self.columns)
    }
}

/// A launch of `name`, each block of which adds the partial sums of some columns.
pub fn column_totals(module: Module, name: &str, columns: usize) -> Kernel {
    let [x, y] = TOTALS;
    Kernel::new(module, name).grid(columns.div_ceil(x), 1, 1).block(x as u32, y as u32)
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
                for (columns, dtype) in
                    [1, 3, 4, 33, 64, 100, 512, 4096].into_iter().flat_map(|n| [(n, DType::F32), (n, DType::BF16)])
                {
                    let c = Columns::new(segments, rows, columns, dtype);
                    let [along, down] = c.threads;
                    assert!(along.is_power_of_two() && down.is_power_of_two() && along * down <= BLOCK as usize);
                    assert!(c.tiles * along * c.vector >= columns && (c.tiles - 1) * along * c.vector < columns);
                    assert!(c.vector * dtype.bytes() <= 16 && columns % c.vector == 0);
                    let Split { stretch, splits } = c.map();
                    assert!(stretch * splits >= rows && stretch * (splits - 1) < rows, "{c:?}");
                    assert_eq!(stretch % down, 0);
                    // Every block of a reduction has a batch of rows.
                    assert!(c.sums() >= 1 && (c.sums() - 1) * down * ROWS_OF_SUMS < rows, "{c:?}");
                    assert!(c.partials() * c.tiles <= MOST_SUMS.max(segments * c.tiles));
                }
            }
        }
    }

    #[test]
    fn long_reductions_fill_a_device() {
        for columns in [16, 64, 256] {
            let c = Columns::new(1, 256 * 26 * 26, columns, DType::F32);
            assert!(c.partials() * c.tiles >= 256, "{c:?}");
        }
    }
}
