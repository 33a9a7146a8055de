//! Recurrent layers, whose input has been multiplied by its weights already.
//!
//! A task has some samples, and goes through all of their positions by itself: threads wait for one another once. At each position it multiplies
//! its states by the weight, which has been packed for all tasks and stays in the second-level cache, and goes through the gates of each sample.
//! No result of a sample depends on those beside it, and no sum on how many there are: the bits are the same for any number of threads, and
//! whatever fills a batch.

mod backward;
mod cells;
mod forward;
mod product;

pub use backward::RecurrentGradKernel;
pub use forward::RecurrentKernel;

use crate::graph::Shape;
use crate::graph::op::{Cell, Recurrent};
use crate::run::frame::Frame;
use crate::run::threads::{Chunks, chunks};
use crate::simd::SimdLevel;
use std::ops::Range;

/// Most samples of a task: what a step makes of them stays in the second-level cache beside the weight.
const SAMPLES: usize = 32;

/// Sizes of a layer, and how its samples are shared out.
struct Layout {
    cell: Cell,
    reverse: bool,
    samples: usize,
    length: usize,
    hidden: usize,
    threads: usize,
    level: SimdLevel,
}

impl Layout {
    /// Of the states `[N, L, H]`.
    fn new(op: &Recurrent, states: &Shape, level: SimdLevel, threads: usize) -> Self {
        let [samples, length, hidden] = states.dims().try_into().expect("the shape rule asks for three dimensions");
        let Recurrent { cell, reverse, .. } = *op;
        Layout { cell, reverse, samples, length, hidden, threads: threads.max(1), level }
    }

    /// Numbers of all gates.
    fn gates(&self) -> usize {
        self.cell.gates() * self.hidden
    }

    /// Numbers that the gradient needs of a position, beside its state.
    fn saved(&self) -> usize {
        self.cell.saved() * self.hidden
    }

    /// The samples of each task: every thread has as many tasks.
    fn tasks(&self) -> Chunks {
        let tasks = self.samples.div_ceil(SAMPLES).next_multiple_of(self.threads);
        chunks(self.samples, self.samples.div_ceil(tasks))
    }

    /// Most samples of a task.
    fn rows(&self) -> usize {
        self.tasks().range(0).len()
    }

    /// Positions of each sample.
    fn positions<'a>(&self, frame: &Frame<'a>, lengths: Option<usize>) -> Positions<'a> {
        Positions { lengths: lengths.map_or(&[], |i| frame.input::<i32>(i)), most: self.length }
    }

    /// The state and the cell that a sample goes on from, each empty if there is none.
    fn carried_by<'a>(&self, carried: &'a [f32], sample: usize) -> [&'a [f32]; 2] {
        if carried.is_empty() {
            return [&[], &[]];
        }
        let width = self.cell.carried() * self.hidden;
        let (state, cell) = carried[sample * width..(sample + 1) * width].split_at(self.hidden);
        [state, cell]
    }

    /// The position that comes at that step, of as many, from the first one that there is to the last.
    fn position(&self, step: usize, most: usize) -> usize {
        if self.reverse { most - 1 - step } else { step }
    }

    /// The position whose state is that before position `t` of a sample with so many.
    fn before(&self, t: usize, length: usize) -> Option<usize> {
        if self.reverse { Some(t + 1).filter(|t| *t < length) } else { t.checked_sub(1) }
    }

    /// Where the numbers of position `t` of the sample lie, `width` each, in what a task has of a value.
    fn at(&self, sample: usize, t: usize, width: usize) -> Range<usize> {
        let row = sample * self.length + t;
        row * width..(row + 1) * width
    }

    /// Where a task's part of a value lies that has `width` numbers for each position.
    fn part(&self, samples: &Range<usize>, width: usize) -> Range<usize> {
        let of = self.length * width;
        samples.start * of..samples.end * of
    }
}

/// How many positions samples have.
#[derive(Clone, Copy)]
struct Positions<'a> {
    lengths: &'a [i32],
    most: usize,
}

impl Positions<'_> {
    fn of(self, sample: usize) -> usize {
        self.lengths.get(sample).map_or(self.most, |length| usize::try_from(*length).unwrap_or(0).min(self.most))
    }

    /// The most of some samples.
    fn most(self, samples: Range<usize>) -> usize {
        samples.map(|sample| self.of(sample)).max().unwrap_or(0)
    }
}
