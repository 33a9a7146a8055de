//! The tasks that pack what a product's tasks share.

use super::job::{Block, Job};
use crate::run::threads::chunks;

impl Job<'_> {
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
