//! What is packed once for all tasks of a product, because several of them use it.
//!
//! Panels of `B` are used by every block of rows, copied columns of `A` by every block of panels. They are packed for some
//! cache blocks of the sum, then the tasks go through these, and so on: the sums have the order that they have without it.

use super::job::{Block, Job};
use super::{CopyA, Product, TASKS};
use crate::backend::cpu::run::threads::{Chunks, chunks};
use std::ops::Range;

/// Most floats that are packed at a time: what the last-level cache keeps, also where others use it. Panels that come from beyond it are
/// slower than a copy that each task makes for itself.
const FLOATS: usize = 1 << 20;

/// Most floats of a result that is worth to be gone through for some cache blocks of the sum at a time, if there are more than are packed at
/// a time.
const RESULT: usize = 2 << 20;

/// What is shared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Shared {
    /// The copied columns of `A`.
    pub a: bool,
    /// The panels of `B`.
    pub b: bool,
    /// Cache blocks of the sum that are packed together; at least 1 if anything is shared.
    stretches: usize,
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
            floats * all <= FLOATS || floats <= FLOATS && p.spec.m * p.spec.n <= RESULT
        };
        let shared = Shared {
            a: p.copy_a == CopyA::Columns && p.panel_blocks > 1 && fits(p.shared_a_floats()),
            b: b && fits(p.shared_b_floats(1)),
            stretches: 1,
        };
        let stretches = (FLOATS / shared.floats(p).max(1)).clamp(1, all);
        Shared { stretches, ..shared }
    }

    fn any(self) -> bool {
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
    fn shared_a_floats(&self) -> usize {
        self.row_blocks * self.block_a_floats()
    }

    /// Floats of all panels of `B`, in so many cache blocks.
    fn shared_b_floats(&self, stretches: usize) -> usize {
        self.all_panels() * stretches * self.panel_floats()
    }

    /// Panels, in pieces for the tasks that pack them.
    fn packed_panels(&self) -> Chunks {
        chunks(self.all_panels(), self.all_panels().div_ceil(TASKS))
    }
}

impl Job<'_> {
    /// The cache blocks of a piece of the sum that are packed now, by their numbers.
    pub fn stretches(&self, count: usize) -> Range<usize> {
        if !self.shared.any() {
            return 0..count;
        }
        let first = self.group * self.shared.stretches;
        first.min(count)..(first + self.shared.stretches).min(count)
    }

    /// Tasks of [`Job::pack`] for each cache block: for copies of `A`, and for panels of `B`.
    fn packs_of_stretch(&self) -> [usize; 2] {
        let p = self.product;
        let panels = if self.shared.b { p.packed_panels().count() } else { 0 };
        [if self.shared.a { p.row_blocks } else { 0 }, panels]
    }

    /// Tasks of [`Job::pack`].
    pub fn packs(&self) -> usize {
        self.product.splits * self.shared.stretches * self.packs_of_stretch().iter().sum::<usize>()
    }

    /// Where the shared copy of a block of `A` lies: its first float; `None` if there is none.
    pub fn shared_a(&self, block: &Block) -> Option<usize> {
        let (p, Shared { a, stretches, .. }) = (self.product, self.shared);
        let stretch = block.stretch - self.group * stretches;
        let at = (block.split * stretches + stretch) * p.row_blocks + block.row_block;
        a.then(|| at * p.block_a_floats())
    }

    /// Where the rows of a shared panel of `B` lie that a block meets: the first float; `None` if there is none. The panels of a cache block
    /// follow one another, in the order in which they are read.
    pub fn shared_b(&self, block: &Block, panel: usize) -> Option<usize> {
        let (p, Shared { a, b, stretches }) = (self.product, self.shared);
        let copied = if a { p.splits * stretches * p.shared_a_floats() } else { 0 };
        let stretch = block.stretch - self.group * stretches;
        let at = (block.split * stretches + stretch) * p.all_panels() + panel;
        b.then(|| copied + at * p.panel_floats())
    }

    /// Packs what is shared of the group: task number `task`.
    pub fn pack(&self, task: usize) {
        let p = self.product;
        let [blocks, pieces] = self.packs_of_stretch();
        let (stretch, task) = (task / (blocks + pieces), task % (blocks + pieces));
        let (split, stretch) = (stretch / self.shared.stretches, stretch % self.shared.stretches);
        let stretch = self.group * self.shared.stretches + stretch;
        if stretch >= chunks(p.sum(split).len(), p.k_block).count() {
            return;
        }
        let block = Block::new(p, (if task < blocks { task } else { 0 }, split), stretch);
        if task < blocks {
            if let Some(at) = self.shared_a(&block) {
                // SAFETY: the copy of a block of rows belongs to one task.
                self.copy_a(&block, unsafe { self.packs.part(at..at + p.block_a_floats()) });
            }
            return;
        }
        for panel in p.packed_panels().range(task - blocks) {
            if let Some(at) = self.shared_b(&block, panel) {
                // SAFETY: a panel belongs to one task.
                self.copy_panel(&block, panel, unsafe { self.packs.part(at..at + p.panel_floats()) });
            }
        }
    }
}
