//! How kernels that reduce rows divide them among threads (`kernels/cuda/rows.cuh`): a thread, a warp or a block for each row.

use crate::backend::gpu::fusions::{MANY_ROWS, WARP_LENGTHS};
use crate::backend::gpu::launch::{Kernel, Module, suffix};
use crate::graph::DType;

/// Longest rows that one thread reduces.
const THREAD_LENGTH: usize = 16;

/// Most bytes of dynamic shared memory: several blocks fit a multiprocessor, and a kernel's static arrays beside them.
const KEPT_BYTES: usize = 40 << 10;

/// Most blocks of a kernel that sums over rows.
const MOST_SUMS: usize = 512;

/// Elements that a thread of a kernel that sums over elements should have.
const ELEMENTS_OF_A_THREAD: usize = 16;

/// The team of threads that works on a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rows {
    rows: usize,
    /// `thread`, `warp` or `block`, as kernels are named.
    team: &'static str,
    /// Threads of a block, and rows that it works on at a time.
    threads: usize,
    teams: usize,
    /// Bytes for rows that are kept in shared memory; 0 if they are read again.
    kept_bytes: usize,
}

impl Rows {
    /// For kernels with a team for every row, which read `operands` rows more than once.
    pub fn new(rows: usize, length: usize, operands: usize) -> Rows {
        let (team, threads, teams) = if length <= THREAD_LENGTH {
            ("thread", 128, 128)
        } else if length <= WARP_LENGTHS[usize::from(rows >= MANY_ROWS)] {
            ("warp", 128, 4)
        } else {
            ("block", if length <= 4096 { 256 } else { 1024 }, 1)
        };
        Rows { rows, team, threads, teams, kept_bytes: 0 }.keep(length, operands)
    }

    /// For kernels whose teams stride over the rows and sum over them. Few rows take one block, which saves the launch that
    /// adds partial sums.
    pub fn summed(rows: usize, length: usize, operands: usize) -> Rows {
        let all = Rows::new(rows, length, operands);
        match all.team {
            "thread" if rows <= 1024 => {
                let threads = rows.next_multiple_of(32);
                Rows { threads, teams: threads, ..all }
            }
            "warp" if rows <= 64 => Rows { threads: 1024, teams: 32, ..all }.keep(length, operands),
            _ => all,
        }
    }

    fn keep(mut self, length: usize, operands: usize) -> Rows {
        let bytes = self.teams * operands * length * size_of::<f32>();
        // A thread's own row is in the nearest cache anyway.
        self.kept_bytes = if self.team == "thread" || bytes > KEPT_BYTES { 0 } else { bytes };
        self
    }

    /// Whether rows are kept in shared memory, as kernels take it.
    pub fn kept(&self) -> usize {
        usize::from(self.kept_bytes > 0)
    }

    /// Blocks of a kernel that sums over rows.
    pub fn sum_blocks(&self) -> usize {
        self.rows.div_ceil(self.teams).min(MOST_SUMS)
    }

    /// A launch of `name` with a team for every row.
    pub fn launch(&self, module: Module, name: &str, dtype: DType) -> Kernel {
        Kernel::new(module, format!("{name}_{}_{}", self.team, suffix(dtype)))
            .grid(self.rows.div_ceil(self.teams), 1, 1)
            .block(self.threads as u32, 1)
            .shared(self.kept_bytes)
    }

    /// A launch of `name`, whose teams stride over the rows.
    pub fn launch_summed(&self, module: Module, name: &str, dtype: DType) -> Kernel {
        self.launch(module, name, dtype).grid(self.sum_blocks(), 1, 1)
    }
}

/// Blocks of 256 threads of a kernel that sums over `elements`.
pub fn element_sum_blocks(elements: usize) -> usize {
    elements.div_ceil(256 * ELEMENTS_OF_A_THREAD).min(MOST_SUMS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn teams_suit_the_length_of_rows() {
        let team = |rows, length| Rows::new(rows, length, 1).team;
        assert_eq!(
            [team(256, 10), team(256, 100), team(8, 1000), team(8192, 1000)],
            ["thread", "warp", "block", "warp"]
        );
        assert_eq!([team(1, 50_000), team(1, 257)], ["block", "block"]);
    }

    #[test]
    fn rows_are_kept_where_they_fit() {
        for rows in [1, 64, 5000] {
            for length in [1, 10, 17, 256, 1000, 1024, 5000, 10_240, 10_241, 50_000] {
                for operands in [1, 2] {
                    for r in [Rows::new(rows, length, operands), Rows::summed(rows, length, operands)] {
                        assert!(r.kept_bytes <= KEPT_BYTES && r.threads <= 1024 && r.threads % 32 == 0);
                        let needed = r.teams * operands * length * 4;
                        let fits = needed <= KEPT_BYTES && r.team != "thread";
                        assert_eq!(r.kept_bytes, if fits { needed } else { 0 });
                    }
                }
            }
        }
    }

    #[test]
    fn few_rows_are_summed_by_one_block() {
        assert_eq!(Rows::summed(256, 10, 1).sum_blocks(), 1);
        assert_eq!(Rows::summed(64, 100, 1).sum_blocks(), 2);
        assert_eq!(Rows::summed(1 << 20, 10, 1).sum_blocks(), MOST_SUMS);
    }
}
