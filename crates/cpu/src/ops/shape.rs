//! Moving elements: concatenation, slices, padding; and filling with a number.

use super::for_type;
use crate::graph::{Shape, op};
use crate::run::frame::{Element, Frame, NodeKernel};
use crate::run::parallel::{CHUNK, for_chunks, rows_per_chunk};
use crate::run::threads::{Parts, chunks};

/// Number of elements that follow each other along `axis` and all later axes.
fn row(shape: &Shape, axis: usize) -> usize {
    shape.dims()[axis..].iter().product()
}

/// [`op::Concat`].
pub struct Concat {
    /// Elements that each operand gives to a row of the output.
    rows: Vec<usize>,
}

impl Concat {
    /// For operands of the shapes `inputs`.
    pub fn new(op: &op::Concat, inputs: &[&Shape]) -> Self {
        Concat { rows: inputs.iter().map(|s| row(s, op.axis)).collect() }
    }

    fn go<T: Element>(&self, frame: &Frame) {
        let total: usize = self.rows.iter().sum();
        let y = Parts::new(frame.output::<T>(0));
        let rows = y.len() / total.max(1);
        let mut start = 0;
        for (i, &n) in self.rows.iter().enumerate() {
            let x = frame.input::<T>(i);
            let pieces = chunks(rows, rows_per_chunk(n));
            frame.pool().run(pieces.count(), |task, _| {
                for r in pieces.range(task) {
                    let at = r * total + start;
                    // SAFETY: rows differ between tasks, and one operand is copied after the other.
                    unsafe { y.part(at..at + n) }.copy_from_slice(&x[r * n..(r + 1) * n]);
                }
            });
            start += n;
        }
    }
}

impl NodeKernel for Concat {
    fn run(&self, frame: &Frame<'_>) {
        for_type!(frame.input_dtype(0), self.go(frame));
    }
}

/// [`op::Slice`].
pub struct Slice {
    /// Elements in a row of the operand.
    from: usize,
    /// First of them that is taken.
    start: usize,
    /// How many are taken.
    row: usize,
}

impl Slice {
    /// For an operand of shape `x`.
    pub fn new(op: &op::Slice, x: &Shape) -> Self {
        let inner = row(x, op.axis + 1);
        Slice { from: row(x, op.axis), start: op.start * inner, row: op.len * inner }
    }

    fn go<T: Element>(&self, frame: &Frame) {
        let (x, y) = (frame.input::<T>(0), frame.output::<T>(0));
        let n = self.row;
        if n == 0 {
            return;
        }
        for_chunks(frame.pool(), y, rows_per_chunk(n) * n, |first, part| {
            for (r, out) in part.chunks_mut(n).enumerate() {
                let at = (first / n + r) * self.from + self.start;
                out.copy_from_slice(&x[at..at + n]);
            }
        });
    }
}

impl NodeKernel for Slice {
    fn run(&self, frame: &Frame<'_>) {
        for_type!(frame.input_dtype(0), self.go(frame));
    }
}

/// [`op::Pad`].
pub struct Pad {
    /// Elements in a row of the operand.
    from: usize,
    /// Elements in a row of the result.
    row: usize,
    /// The zeros in front of them.
    start: usize,
}

impl Pad {
    /// For an operand of shape `x`.
    pub fn new(op: &op::Pad, x: &Shape) -> Self {
        let inner = row(x, op.axis + 1);
        let from = row(x, op.axis);
        Pad { from, row: from + (op.before + op.after) * inner, start: op.before * inner }
    }
}

impl NodeKernel for Pad {
    fn run(&self, frame: &Frame<'_>) {
        let (x, y) = (frame.input::<f32>(0), frame.output::<f32>(0));
        let n = self.row;
        if n == 0 {
            return;
        }
        for_chunks(frame.pool(), y, rows_per_chunk(n) * n, |first, part| {
            for (r, out) in part.chunks_mut(n).enumerate() {
                let at = (first / n + r) * self.from;
                out[..self.start].fill(0.0);
                out[self.start..self.start + self.from].copy_from_slice(&x[at..at + self.from]);
                out[self.start + self.from..].fill(0.0);
            }
        });
    }
}

/// [`op::NewFull`].
pub struct NewFull {
    /// The number.
    pub value: f32,
}

impl NodeKernel for NewFull {
    fn run(&self, frame: &Frame<'_>) {
        for_chunks(frame.pool(), frame.output::<f32>(0), CHUNK, |_, part| part.fill(self.value));
    }
}
