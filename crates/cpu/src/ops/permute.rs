//! Permutation of axes.
//!
//! Axes that stay neighbours are joined. What is left is copied run by run where the last axis of the result lies along memory in
//! the operand, too. Otherwise that axis and the one that does are turned, a few cache lines at a time.

use super::for_type;
use crate::graph::{Shape, op};
use crate::run::frame::{Element, Frame, NodeKernel};
use crate::run::parallel::CHUNK;
use crate::run::threads::{Parts, chunks};
use std::ops::Range;

/// Elements of a cache line, if they are floats: as many of the operand's are turned together, so that lines are read whole.
const LINE: usize = 16;

/// Elements of the result that are written side by side. As many lines of the operand stay in the first cache meanwhile.
const SIDE: usize = 64;

/// Size of an axis of the result, and its stride in the operand, in elements.
type Axis = (usize, usize);

/// [`op::Permute`].
pub struct Permute {
    /// The axes before the next one.
    outer: Vec<Axis>,
    /// Size of the axis that lies along memory in the operand.
    run: usize,
    /// The axes between it and the last one.
    middle: Vec<Axis>,
    /// The last one; of size 1 if that lies along memory.
    last: Axis,
}

/// Where each index of some axes begins in the operand: one after the other, the last axis first.
struct Places<'a> {
    axes: &'a [Axis],
    index: Vec<usize>,
    at: usize,
}

impl<'a> Places<'a> {
    /// From the index with this number on.
    fn from(axes: &'a [Axis], mut number: usize) -> Self {
        let mut places = Places { axes, index: vec![0; axes.len()], at: 0 };
        for (index, (size, stride)) in places.index.iter_mut().zip(axes).rev() {
            *index = number % size;
            number /= size;
            places.at += *index * stride;
        }
        places
    }

    /// To the next index.
    fn step(&mut self) {
        for (index, (size, stride)) in self.index.iter_mut().zip(self.axes).rev() {
            *index += 1;
            self.at += stride;
            if *index < *size {
                return;
            }
            self.at -= *size * stride;
            *index = 0;
        }
    }
}

impl Permute {
    /// For an operand of shape `x`.
    pub fn new(op: &op::Permute, x: &Shape) -> Self {
        let dims = x.dims();
        let mut strides = vec![1; dims.len()];
        for i in (0..dims.len().saturating_sub(1)).rev() {
            strides[i] = strides[i + 1] * dims[i + 1];
        }
        let mut axes: Vec<Axis> = Vec::new();
        for &p in op.perm.iter().filter(|p| dims[**p] != 1) {
            match axes.last_mut() {
                Some((size, stride)) if *stride == dims[p] * strides[p] => {
                    *size *= dims[p];
                    *stride = strides[p];
                }
                _ => axes.push((dims[p], strides[p])),
            }
        }
        // The innermost axis of the operand that has more than one element, wherever it is now.
        let along = axes.iter().position(|(_, stride)| *stride == 1);
        let run = along.map_or(1, |along| axes[along].0);
        let mut middle = axes.split_off(along.map_or(axes.len(), |along| along + 1));
        axes.truncate(along.unwrap_or(axes.len()));
        let last = middle.pop().unwrap_or((1, 0));
        Permute { outer: axes, run, middle, last }
    }

    /// Elements of the result for each of the run.
    fn inner(&self) -> usize {
        self.middle.iter().map(|(size, _)| size).product::<usize>() * self.last.0
    }

    fn go<T: Element>(&self, frame: &Frame) {
        let (x, y) = (frame.input::<T>(0), frame.output::<T>(0));
        let (inner, block) = (self.inner(), self.run * self.inner());
        if y.is_empty() {
            return;
        }
        // A task has whole runs, or a piece of one.
        let (runs, piece) = if block <= CHUNK {
            (CHUNK / block, self.run)
        } else {
            (1, (CHUNK / inner).max(1).next_multiple_of(LINE).min(self.run))
        };
        let (blocks, pieces) = (chunks(y.len() / block, runs), chunks(self.run, piece));
        let y = Parts::new(y);
        frame.pool().run(blocks.count() * pieces.count(), |task, _| {
            let (blocks, of_run) = (blocks.range(task / pieces.count()), pieces.range(task % pieces.count()));
            let mut from = Places::from(&self.outer, blocks.start);
            for b in blocks {
                let at = b * block + of_run.start * inner;
                // SAFETY: the elements of a piece of a run belong to one task.
                let part = unsafe { y.part(at..at + of_run.len() * inner) };
                self.turn(&x[from.at..], of_run.clone(), part);
                from.step();
            }
        });
    }

    /// The elements of the result that belong to a piece of a run, which begins at `x`.
    fn turn<T: Element>(&self, x: &[T], of_run: Range<usize>, y: &mut [T]) {
        let (inner, (last, stride), count) = (self.inner(), self.last, of_run.len());
        if inner == 1 {
            return y.copy_from_slice(&x[of_run]);
        }
        let mut from = Places::from(&self.middle, 0);
        for to in (0..inner).step_by(last) {
            let x = &x[from.at + of_run.start..];
            match last {
                2 if inner == 2 => {
                    for (y, (a, b)) in y.chunks_exact_mut(2).zip(x[..count].iter().zip(&x[stride..stride + count])) {
                        [y[0], y[1]] = [*a, *b];
                    }
                }
                // Few columns: one after the other.
                1..LINE => {
                    for j in 0..last {
                        let column = y[to + j..].iter_mut().step_by(inner);
                        column.zip(&x[j * stride..j * stride + count]).for_each(|(y, x)| *y = *x);
                    }
                }
                _ => {
                    for i in (0..count).step_by(LINE) {
                        for j in (0..last).step_by(SIDE) {
                            for i in i..(i + LINE).min(count) {
                                let row = &mut y[i * inner + to + j..][..SIDE.min(last - j)];
                                row.iter_mut()
                                    .zip(x[i + j * stride..].iter().step_by(stride))
                                    .for_each(|(y, x)| *y = *x);
                            }
                        }
                    }
                }
            }
            from.step();
        }
    }
}

impl NodeKernel for Permute {
    fn run(&self, frame: &Frame<'_>) {
        for_type!(frame.input_dtype(0), self.go(frame));
    }
}
