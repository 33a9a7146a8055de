//! What Muon does between products of matrices.

use super::{Now, Piece, Tensor, cut, gradient, lerp};
use crate::graph::op::{MuonPolynomial, MuonStart, MuonStep, TensorOptions};
use crate::ops::reduce_rows::{Terms, sum};
use crate::run::frame::{Frame, NodeKernel, Scratch};
use crate::run::parallel::{CHUNK, for_chunks, vectorised};
use crate::simd::lanes::{get, put};
use crate::simd::{Simd, SimdLevel};

/// [`MuonStart`].
pub struct MuonStartKernel {
    op: MuonStart,
    pieces: Vec<Piece>,
    level: SimdLevel,
}

impl MuonStartKernel {
    /// For a gradient of `length` elements.
    pub fn new(op: &MuonStart, length: usize, level: SimdLevel) -> Self {
        MuonStartKernel { op: *op, pieces: cut(std::iter::once(length)), level }
    }
}

impl NodeKernel for MuonStartKernel {
    fn scratch_bytes(&self) -> usize {
        Scratch::size::<f64>(self.pieces.len())
    }

    fn run(&self, frame: &Frame<'_>) {
        let Some(now) = Now::read(frame, &self.op.clipping) else {
            frame.output::<f32>(0).fill(0.0);
            return;
        };
        let t = now.of(TensorOptions { lr_scale: 1.0, weight_decay: 0.0 });
        let head = self.op.clipping.operands();
        let operands = frame.operands();
        let (buffer, out) = (operands.view::<f32>(head + 1), frame.target::<f32>(0));
        let partial = frame.scratch().take::<f64>(self.pieces.len());
        for_chunks(frame.pool(), partial, 1, |task, sum| {
            let range = self.pieces[task].range.clone();
            let g = &operands.input::<f32>(head)[range.clone()];
            // SAFETY: pieces are apart, and neither the buffer, which is updated in place, nor the output shares memory with another
            // operand.
            let (buffer, direction) = unsafe { (buffer.part(range.clone()), out.part(range)) };
            sum[0] = directions(self.level, g, buffer, direction, self.op, t);
        });
        let (norm, eps) = (partial.iter().sum::<f64>().sqrt(), f64::from(self.op.eps));
        // A norm that is NaN must show, so no `max`, which would drop it.
        let factor = (1.0 / if norm < eps { eps } else { norm }) as f32;
        frame.pool().run(self.pieces.len(), |task, _| {
            // SAFETY: as above.
            let direction = unsafe { out.part(self.pieces[task].range.clone()) };
            scaled(self.level, direction, factor);
        });
    }
}

/// Takes a stretch of a gradient into the momentum; the terms are the squares of the direction.
struct Directions<'a> {
    g: &'a [f32],
    buffer: &'a mut [f32],
    direction: &'a mut [f32],
    op: MuonStart,
    t: Tensor,
}

impl Terms for Directions<'_> {
    #[inline(always)]
    fn term<S: Simd>(&mut self, s: S, i: usize, n: usize) -> S::V {
        let g = gradient(s, get(s, self.g, i, n), s.zero(), self.t);
        let m = lerp(s, get(s, self.buffer, i, n), g, 1.0 - self.op.momentum);
        put(s, self.buffer, i, n, m);
        let d = if self.op.nesterov { lerp(s, g, m, self.op.momentum) } else { m };
        put(s, self.direction, i, n, d);
        s.mul(d, d)
    }
}

vectorised! {
    fn directions<'a, S>(
        s,
        g: &'a [f32],
        buffer: &'a mut [f32],
        direction: &'a mut [f32],
        op: MuonStart,
        t: Tensor,
    ) -> f64 {
        sum(s, g.len(), Directions { g, buffer, direction, op, t })
    }

    fn scaled<'a, S>(s, x: &'a mut [f32], factor: f32) {
        for i in (0..x.len()).step_by(S::LANES) {
            let n = (x.len() - i).min(S::LANES);
            put(s, x, i, n, s.mul(get(s, x, i, n), s.splat(factor)));
        }
    }

    fn combined<'a, S>(s, gram: &'a [f32], square: &'a [f32], out: &'a mut [f32], of_gram: f32, of_square: f32) {
        for i in (0..out.len()).step_by(S::LANES) {
            let n = (out.len() - i).min(S::LANES);
            let sum = s.mul(get(s, gram, i, n), s.splat(of_gram));
            put(s, out, i, n, s.fma(s.splat(of_square), get(s, square, i, n), sum));
        }
    }

    fn descend<'a, S>(s, p: &'a mut [f32], d: &'a [f32], keep: f32, rate: f32) {
        for i in (0..p.len()).step_by(S::LANES) {
            let n = (p.len() - i).min(S::LANES);
            let w = s.mul(get(s, p, i, n), s.splat(keep));
            put(s, p, i, n, s.fma(s.splat(-rate), get(s, d, i, n), w));
        }
    }
}

/// [`MuonPolynomial`].
pub struct MuonPolynomialKernel {
    /// The operation.
    pub op: MuonPolynomial,
    /// Rows of the matrices.
    pub side: usize,
    /// Instructions.
    pub level: SimdLevel,
}

impl NodeKernel for MuonPolynomialKernel {
    fn run(&self, frame: &Frame<'_>) {
        let (gram, square) = (frame.input::<f32>(0), frame.input::<f32>(1));
        let [identity, of_gram, of_square] = self.op.coefficients;
        for_chunks(frame.pool(), frame.output::<f32>(0), CHUNK, |start, part| {
            let range = start..start + part.len();
            combined(self.level, &gram[range.clone()], &square[range], part, of_gram, of_square);
            let first = start.next_multiple_of(self.side + 1) - start;
            part.iter_mut().skip(first).step_by(self.side + 1).for_each(|x| *x += identity);
        });
    }
}

/// [`MuonStep`].
pub struct MuonStepKernel {
    /// The operation.
    pub op: MuonStep,
    /// Instructions.
    pub level: SimdLevel,
}

impl NodeKernel for MuonStepKernel {
    fn run(&self, frame: &Frame<'_>) {
        let Some(now) = Now::read(frame, &self.op.clipping) else { return };
        let t = now.of(self.op.options);
        let (keep, rate) = ((1.0 - t.lr * t.weight_decay) as f32, (t.lr * f64::from(self.op.length)) as f32);
        let head = self.op.clipping.operands();
        let direction = frame.input::<f32>(head);
        for_chunks(frame.pool(), frame.update::<f32>(head + 1), CHUNK, |start, part| {
            descend(self.level, part, &direction[start..start + part.len()], keep, rate);
        });
    }
}
