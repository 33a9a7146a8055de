//! The forward pass of a head on tiles of bf16.

use super::super::head::Head;
use super::super::rows::{Mask, Scale, ScaleArgs, Weights, WeightsArgs};
use super::{AttentionShape, GROUP, Left, Matrix, Right, Tiled};
use crate::gemm::bf16::PANEL;
use crate::gemm::bf16::block::{Blocks, Results};
use crate::gemm::pack::Copy2d;
use crate::gemm::round_up;
use crate::simd::SimdLevel;
use crate::simd::bf16::Bf16Unit;
use std::ops::Range;

/// Computes heads.
pub struct TileForward {
    tiled: Tiled,
    weights: unsafe fn(WeightsArgs),
    scale: unsafe fn(ScaleArgs),
}

impl TileForward {
    /// With the sizes known.
    pub fn new(shape: AttentionShape, unit: Bf16Unit, level: SimdLevel) -> Self {
        TileForward {
            tiled: Tiled::new(shape, unit, level),
            weights: match shape.dropout {
                Some(_) => level.routine::<Weights<true>>(),
                None => level.routine::<Weights<false>>(),
            },
            scale: level.routine::<Scale>(),
        }
    }

    /// Floats of the queries of a group, the keys, the values, scores, weights, and the result of a group.
    fn parts(&self) -> [usize; 6] {
        let t = &self.tiled;
        let (length, width) = (t.shape.length, t.shape.width);
        [
            Left::floats(GROUP, width),
            Right::floats(width, length),
            Right::floats(length, width),
            GROUP * t.scores_step,
            Left::floats(GROUP, t.keys),
            GROUP * t.width_step,
        ]
    }

    /// Floats of scratch memory that [`TileForward::head`] needs.
    pub fn worker_floats(&self) -> usize {
        self.parts().map(round_up).iter().sum()
    }

    /// Some queries of a head, from a multiple of [`GROUP`] on.
    ///
    /// # Safety
    /// The operands are there, and no other task touches these rows of the results.
    pub unsafe fn head(&self, head: &Head, queries: Range<usize>, mut scratch: &mut [f32]) {
        let (t, shape) = (&self.tiled, &self.tiled.shape);
        let ([step, key_step], width, embedding) = (head.steps, shape.width, shape.embedding());
        let [q, k, v, scores, weights, y] = self.parts().map(|floats| {
            let (part, rest) = std::mem::take(&mut scratch).split_at_mut(round_up(floats));
            scratch = rest;
            part.as_mut_ptr()
        });
        let (base, seen) = (shape.begin(queries.start), shape.end(queries.end));
        let blocks = Blocks::new(t.unit, t.level);
        let all = |at: *const f32| Matrix {
            at: at.wrapping_add(base * key_step),
            step: key_step,
            rows: seen - base,
            columns: width,
        };
        // SAFETY: the caller's promise; the scratch memory has been measured for it.
        unsafe {
            let k = t.right_of_rows(all(head.qkv[1]), k.cast());
            let v = t.right(all(head.qkv[2]), v.cast());
            for first in queries.clone().step_by(GROUP) {
                let group = first..(first + GROUP).min(queries.end);
                let rows = group.len();
                let at = head.qkv[0].wrapping_add(first * step);
                let q = t.left(Matrix { at, step, rows, columns: width }, q.cast());
                let [mut tops, mut sums, mut factors] = [[0.0f32; GROUP]; 3];
                let (begin, last) = (shape.begin(first), shape.end(group.end));
                for start in (begin..last).step_by(t.keys) {
                    let keys = start..(start + t.keys).min(last);
                    // Where they are among those that have been rounded.
                    let here = keys.start - base..keys.end - base;
                    t.scores(&blocks, (rows, q), k, here.clone(), scores);
                    let of = t.rows(scores, group.clone(), keys.clone());
                    t.adjust.run(shape, of, head.added, first, start);
                    let factor = if start == begin { std::ptr::null_mut() } else { factors.as_mut_ptr() };
                    let mask = Mask { row: head.mask.row + first, column: start, ..head.mask };
                    let (top, sum) = (tops.as_mut_ptr(), sums.as_mut_ptr());
                    (self.weights)(WeightsArgs { rows: of, top, sum, factor, mask });
                    if start > begin {
                        (self.scale)(ScaleArgs { y, step: t.width_step, rows, width, by: factor });
                    }
                    let of = Matrix { at: scores, step: t.scores_step, rows, columns: keys.len() };
                    let weights = t.left(of, weights.cast());
                    let place = |panel: usize| Results::matrix(y.wrapping_add(panel * PANEL), t.width_step);
                    let values = (v, 0..v.panels(), Tiled::steps_of(&here));
                    t.product(&blocks, (rows, weights), values, place, start > begin);
                }
                for r in 0..rows {
                    *head.lse.add(first + r) = tops[r] * shape.scale() + sums[r].ln();
                    factors[r] = 1.0 / sums[r];
                }
                (self.scale)(ScaleArgs { y, step: t.width_step, rows, width, by: factors.as_ptr() });
                let to = head.y.wrapping_add(first * embedding);
                let (from_step, to_step) = (t.width_step, embedding);
                (t.copy)(Copy2d { from: y, from_step, to, to_step, rows, columns: width, padded: width });
            }
        }
    }
}
