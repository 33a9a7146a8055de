//! Adafactor: a pass over gradients for the means of their squares, one for the norms of parameters and steps, and one for the step.

mod passes;
mod pieces;

use super::{Now, Tensor, begin};
use crate::graph::Shape;
use crate::graph::op::{Algorithm, Matrices, Moments, OptimizerStep};
use crate::run::frame::{Frame, NodeKernel, Operands, Scratch};
use crate::run::parallel::for_chunks;
use crate::run::threads::Parts;
use crate::simd::SimdLevel;
use passes::{Estimates, descend, squares, take_in};
use pieces::{Piece, cut};
use std::ops::Range;

/// [`OptimizerStep`] by Adafactor.
pub struct AdafactorKernel {
    op: OptimizerStep,
    rule: Rule,
    tensors: Vec<Matrices>,
    pieces: Vec<Piece>,
    /// Elements of the scratch memory for sums over lines.
    spare: usize,
    level: SimdLevel,
}

/// What all tensors have.
#[derive(Clone, Copy)]
struct Rule {
    beta2_decay: f64,
    eps: [f32; 2],
    d: f32,
    moments: Moments,
}

impl AdafactorKernel {
    /// Of the operands that have these shapes; `None` if the rule is another.
    pub fn new<'a>(op: &OptimizerStep, shape: impl Fn(usize) -> &'a Shape, level: SimdLevel) -> Option<Self> {
        let Algorithm::Adafactor { beta2_decay, eps, d, moments } = op.algorithm else { return None };
        let length = |t: usize| shape(op.head() + t * op.stride()).len();
        let of = |t| op.matrices(t, &shape).unwrap_or_else(|| Matrices::elements(length(t)));
        let tensors: Vec<Matrices> = (0..op.tensors.len()).map(of).collect();
        let mut spare = 0;
        let all = tensors.iter().enumerate();
        let pieces = all.flat_map(|(t, of)| cut(t, *of, moments == Moments::Factored, &mut spare)).collect();
        let rule = Rule { beta2_decay, eps, d, moments };
        Some(AdafactorKernel { op: op.clone(), rule, tensors, pieces, spare, level })
    }

    fn at(&self, piece: &Piece) -> usize {
        self.op.head() + piece.tensor * self.op.stride()
    }

    fn is_factored(&self) -> bool {
        self.rule.moments == Moments::Factored
    }

    /// Numbers of the operands that are the means over `second` and over `first`.
    fn means(&self, piece: &Piece) -> [usize; 2] {
        let at = self.at(piece);
        if self.tensors[piece.tensor].by_rows { [at + 2, at + 3] } else { [at + 3, at + 2] }
    }

    /// Takes the gradient into the means.
    fn take_in(&self, operands: Operands<'_>, piece: &Piece, spare: &Parts<'_, f32>, t: Tensor) {
        let of = self.tensors[piece.tensor];
        let g = &operands.input::<f32>(self.at(piece) + 1)[piece.elements.clone()];
        let [first, second] = self.means(piece);
        // SAFETY: state shares memory with no other operand. Pieces have means over `second` of their own, and those over `first` or
        // places in the scratch memory.
        let (first, to) = unsafe {
            let first = operands.view::<f32>(first).part(piece.first.clone());
            let to: &mut [f32] = match &piece.spare {
                _ if !self.is_factored() => &mut [],
                Some(place) => spare.part(place.clone()),
                None => operands.view::<f32>(second).part(piece.second.clone()),
            };
            (first, to)
        };
        if piece.spare.is_some() {
            // What it holds may be no number.
            to.fill(0.0);
        }
        let share = (t.step as f64).powf(self.rule.beta2_decay);
        let keep = 1.0 - share;
        let sizes = [piece.outer, piece.lines, of.second, piece.inner];
        take_in(self.level, g, first, to, sizes, share as f32, [keep as f32, (share / of.first as f64) as f32], t);
    }

    /// What the estimates for a piece are made of.
    fn estimates<'a>(&self, operands: Operands<'a>, piece: &Piece) -> Estimates<'a> {
        let of = self.tensors[piece.tensor];
        let [first, second] = self.means(piece);
        let part = |i: usize, range: Range<usize>| -> &'a [f32] {
            let length = range.len();
            // SAFETY: inside the operand, and no task changes state any more.
            unsafe { std::slice::from_raw_parts(operands.view::<f32>(i).range(range), length) }
        };
        let (over_first, rows) = if self.is_factored() {
            let line = of.second * of.inner;
            let of_lines = of.first * of.inner;
            let outer = piece.second.start / line..piece.second.end / line;
            let over_first = part(second, piece.second.clone());
            let rows = match of.by_rows {
                true => part(first, outer.start * of_lines..outer.end * of_lines),
                false => part(second, piece.second.clone()),
            };
            (over_first, rows)
        } else {
            (&[][..], &[][..])
        };
        Estimates {
            moments: self.rule.moments,
            first: part(first, piece.first.clone()),
            second: over_first,
            rows,
            height: of.rows(),
            sizes: [piece.outer, piece.lines, of.second, piece.inner],
            eps: self.rule.eps[0],
        }
    }

    /// The factor of the step of tensor `t`, from the sums of the squares of parameter and step.
    fn rate(&self, tensor: usize, t: Tensor, squares: [f64; 2]) -> f64 {
        let n = self.tensors[tensor].len() as f64;
        let [parameter, step] = squares.map(|sum| (sum / n).sqrt());
        let rho = t.lr.min(1.0 / (t.step as f64).sqrt());
        let size = parameter.max(f64::from(self.rule.eps[1]));
        size * rho / (step / f64::from(self.rule.d)).max(1.0)
    }

    fn constants(&self, tensor: usize, now: Now) -> Tensor {
        now.of(self.op.tensors[tensor])
    }
}

impl NodeKernel for AdafactorKernel {
    fn scratch_bytes(&self) -> usize {
        let doubles = [2 * self.pieces.len(), self.tensors.len()].map(Scratch::size::<f64>);
        doubles.iter().sum::<usize>() + Scratch::size::<f32>(self.spare)
    }

    fn run(&self, frame: &Frame<'_>) {
        let Some(now) = begin(&self.op, frame) else { return };
        let operands = frame.operands();
        let mut scratch = frame.scratch();
        let sums = scratch.take::<f64>(2 * self.pieces.len());
        let rates = scratch.take::<f64>(self.tensors.len());
        let spare = scratch.take::<f32>(self.spare);
        let constants = |piece: &Piece| self.constants(piece.tensor, now);
        {
            let places = Parts::new(spare);
            frame.pool().run(self.pieces.len(), |task, _| {
                let piece = &self.pieces[task];
                self.take_in(operands, piece, &places, constants(piece));
            });
        }
        for piece in &self.pieces {
            let Some(place) = &piece.spare else { continue };
            let [_, second] = self.means(piece);
            // SAFETY: no task runs.
            let to = unsafe { operands.view::<f32>(second).part(piece.second.clone()) };
            to.iter_mut().zip(&spare[place.clone()]).for_each(|(to, sum)| *to += sum);
        }
        for_chunks(frame.pool(), sums, 2, |start, sums| {
            let piece = &self.pieces[start / 2];
            let p = operands.view::<f32>(self.at(piece)).range(piece.elements.clone());
            // SAFETY: inside the operand, and nothing writes parameters now.
            let p = unsafe { std::slice::from_raw_parts(p, piece.elements.len()) };
            let g = &operands.input::<f32>(self.at(piece) + 1)[piece.elements.clone()];
            let estimates = self.estimates(operands, piece);
            sums.copy_from_slice(&squares(self.level, estimates, p, g, constants(piece)));
        });
        let mut sums = sums.as_chunks::<2>().0.iter();
        for pieces in self.pieces.chunk_by(|a, b| a.tensor == b.tensor) {
            let own = sums.by_ref().take(pieces.len());
            let squares = own.fold([0.0; 2], |[a, b], [c, d]| [a + c, b + d]);
            rates[pieces[0].tensor] = self.rate(pieces[0].tensor, constants(&pieces[0]), squares);
        }
        let rates = &*rates;
        frame.pool().run(self.pieces.len(), |task, _| {
            let piece = &self.pieces[task];
            // SAFETY: parameters are updated in place and share memory with no other operand; pieces are apart.
            let p = unsafe { operands.view::<f32>(self.at(piece)).part(piece.elements.clone()) };
            let g = &operands.input::<f32>(self.at(piece) + 1)[piece.elements.clone()];
            let t = constants(piece);
            let keep = (1.0 - t.lr * t.weight_decay) as f32;
            let rate = rates[piece.tensor] as f32;
            descend(self.level, self.estimates(operands, piece), p, g, keep, rate, t);
        });
    }
}
