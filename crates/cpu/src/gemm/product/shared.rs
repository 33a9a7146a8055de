//! What is packed once for all tasks of a product, because several of them use it.
//!
//! Panels of `B` are used by every block of rows, copied columns of `A` by every block of panels. They are packed for some
//! cache blocks of the sum, then the tasks go through these, and so on: the sums have the order that they have without it.

use super::{CopyA, Product, TASKS};
use crate::run::threads::{Chunks, chunks};

/// Most floats that are packed at a time: what the last-level cache keeps, also where others use it. Panels that come from beyond it are
/// slower than a copy that each task makes for itself.
const FLOATS: usize = 1 << 20;

/// Most floats of a result that is worth to be gone through for some cache blocks of the sum at a time, if there are more than are packed at
/// a time, and if panels are copied row by row: to transpose them takes so long that it is always worth it.
const RESULT: usize = 2 << 20;

/// What is shared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Shared {
    /// The copied columns of `A`.
    pub a: bool,
    /// The panels of `B`.
    pub b: bool,
    /// Cache blocks of the sum that are packed together; at least 1 if anything is shared.
    pub stretches: usize,
}

impl Shared {
    /// For a product whose blocks have been laid out; `b`: whether it pays to share the panels of `B`.
    pub fn of(p: &Product, b: bool) -> Shared {
        if p.dots || p.spec.m == 0 || p.spec.n == 0 {
            return Shared::default();
        }
        let all = p.most_stretches();
        let fits = |floats: usize| {
            let floats = floats * p.splits;
            floats * all <= FLOATS || floats <= FLOATS && (p.spec.b[1] != 1 || p.spec.m * p.spec.n <= RESULT)
        };
        let shared = Shared {
            a: p.copy_a == CopyA::Columns && p.panel_blocks > 1 && fits(p.shared_a_floats()),
            b: b && fits(p.shared_b_floats(1)),
            stretches: 1,
        };
        let stretches = (FLOATS / shared.floats(p).max(1)).clamp(1, all);
        Shared { stretches, ..shared }
    }

    pub fn any(self) -> bool {
        self.a || self.b
    }

    /// Floats of all that is packed at a time.
    pub fn floats(self, p: &Product) -> usize {
        let a = if self.a { self.stretches * p.shared_a_floats() } else { 0 };
        let b = if self.b { p.shared_b_floats(self.stretches) } else { 0 };
        p.splits * (a + b)
    }

    /// How often something is packed; 1 if nothing is.
    pub fn groups(self, p: &Product) -> usize {
        if self.any() { p.most_stretches().div_ceil(self.stretches) } else { 1 }
    }
}

impl Product {
    /// Cache blocks of the longest piece of the sum.
    fn most_stretches(&self) -> usize {
        chunks(self.split_len.min(self.spec.k), self.k_block).count().max(1)
    }

    /// Floats of the copy of `A`, in a cache block.
    pub(super) fn shared_a_floats(&self) -> usize {
        self.row_blocks * self.block_a_floats()
    }

    /// Floats of all panels of `B`, in so many cache blocks.
    fn shared_b_floats(&self, stretches: usize) -> usize {
        self.all_panels() * stretches * self.panel_floats()
    }

    /// Panels, in pieces for the tasks that pack them.
    pub(super) fn packed_panels(&self) -> Chunks {
        chunks(self.all_panels(), self.all_panels().div_ceil(TASKS))
    }
}
