//! The norm of the gradients, and the optimizers' update of all tensors in one pass.

mod adafactor;
mod adaptive_clip;
mod muon;
mod rules;
mod schedule_free;
mod trust;

pub use adafactor::AdafactorKernel;
pub use adaptive_clip::AdaptiveClipKernel;
pub use muon::{MuonPolynomialKernel, MuonStartKernel, MuonStepKernel};

use super::reduce_rows::{Dot, sum};
use crate::graph::op::{
    Algorithm, Clipping, GradBlocks, GradSquares, OptimizerStep, TensorOptions, Trust, UpdateScale,
};
use crate::run::frame::{Frame, NodeKernel, Operands, Scratch};
use crate::run::parallel::{CHUNK, for_chunks, vectorised};
use crate::run::threads::chunks;
use crate::shards::BLOCK;
use crate::simd::lanes::{get, put};
use crate::simd::{Simd, SimdLevel};
use std::ops::Range;
use trust::Stretch;

/// A stretch of one tensor: what a task updates.
#[derive(Debug, Clone)]
struct Piece {
    tensor: usize,
    range: Range<usize>,
}

/// Cuts tensors of the given lengths into pieces of at most [`CHUNK`] elements.
fn cut(lengths: impl Iterator<Item = usize>) -> Vec<Piece> {
    let of_tensor = |(tensor, len)| {
        let pieces = chunks(len, CHUNK);
        (0..pieces.count()).map(move |i| Piece { tensor, range: pieces.range(i) })
    };
    lengths.enumerate().flat_map(of_tensor).collect()
}

/// The factor that undoes the loss scale and averages micro-batches.
fn gradient_scale(schedule: &[f32]) -> f32 {
    schedule[1] / schedule[2]
}

vectorised! {
    fn squares<'a, S>(s, x: &'a [f32]) -> f64 {
        sum(s, x.len(), Dot(x, x))
    }
}

/// [`crate::graph::op::GradNorm`].
pub struct GradNormKernel {
    pieces: Vec<Piece>,
    level: SimdLevel,
}

impl GradNormKernel {
    /// For gradients of the given lengths.
    pub fn new(lengths: impl Iterator<Item = usize>, level: SimdLevel) -> Self {
        GradNormKernel { pieces: cut(lengths), level }
    }
}

impl NodeKernel for GradNormKernel {
    fn scratch_bytes(&self) -> usize {
        Scratch::size::<f64>(self.pieces.len())
    }

    fn run(&self, frame: &Frame<'_>) {
        let scale = gradient_scale(frame.input::<f32>(0)) as f64;
        let operands = frame.operands();
        let partial = frame.scratch().take::<f64>(self.pieces.len());
        for_chunks(frame.pool(), partial, 1, |task, sum| {
            let piece = &self.pieces[task];
            let grad = operands.input::<f32>(1 + piece.tensor);
            sum[0] = squares(self.level, &grad[piece.range.clone()]);
        });
        frame.output::<f32>(0)[0] = (partial.iter().sum::<f64>().sqrt() * scale.abs()) as f32;
    }
}

/// [`GradSquares`].
pub struct GradSquaresKernel {
    /// The operation.
    pub op: GradSquares,
    /// The level of instructions.
    pub level: SimdLevel,
}

/// Blocks of a task.
const BLOCKS: usize = 16;

impl NodeKernel for GradSquaresKernel {
    fn run(&self, frame: &Frame<'_>) {
        let operands = frame.operands();
        let sums = frame.update::<f64>(0);
        for (i, GradBlocks { first, part }) in self.op.gradients.iter().enumerate() {
            let gradient = &operands.input::<f32>(1 + i)[part.start..part.start + part.len];
            let sums = &mut sums[*first..*first + part.len.div_ceil(BLOCK)];
            for_chunks(frame.pool(), sums, BLOCKS, |start, sums| {
                let blocks = gradient.chunks(BLOCK).skip(start);
                sums.iter_mut().zip(blocks).for_each(|(sum, block)| *sum = squares(self.level, block));
            });
        }
    }
}

/// [`crate::graph::op::NormOfSquares`].
pub struct NormOfSquaresKernel {}

impl NodeKernel for NormOfSquaresKernel {
    fn run(&self, frame: &Frame<'_>) {
        let scale = gradient_scale(frame.input::<f32>(0)) as f64;
        frame.output::<f32>(0)[0] = (frame.input::<f64>(1).iter().sum::<f64>().sqrt() * scale.abs()) as f32;
    }
}

/// [`OptimizerStep`].
pub struct OptimizerKernel {
    op: OptimizerStep,
    pieces: Vec<Piece>,
    level: SimdLevel,
}

/// What a step works with besides the tensors.
#[derive(Clone, Copy)]
struct Now {
    /// Learning rate, before a tensor's own factor.
    lr: f64,
    /// The part of it that no factor changes.
    floor: f64,
    /// Factor of every gradient.
    scale: f32,
    /// Largest absolute value of its elements.
    limit: f32,
    /// Number of this step, from 1.
    step: i64,
}

/// Constants of one tensor's update.
#[derive(Clone, Copy)]
struct Tensor {
    lr: f64,
    weight_decay: f64,
    scale: f32,
    limit: f32,
    step: i64,
}

impl Now {
    /// From the operands that `clipping` has; the number of the step is left open. `None` if nothing is to be updated.
    fn read(frame: &Frame<'_>, clipping: &Clipping) -> Option<Self> {
        let schedule = frame.input::<f32>(0);
        let loss = frame.input::<f32>(1)[0];
        let norm = if clipping.has_norm() { frame.input::<f32>(2)[0] } else { 0.0 };
        let loss_scale = if clipping.scaled { frame.input::<f32>(3)[0] } else { 1.0 };
        if !loss.is_finite() || clipping.scaled && !norm.is_finite() {
            return None;
        }
        let mut scale = gradient_scale(schedule) / loss_scale;
        if let Some(limit) = clipping.clip_norm {
            let factor = limit / (norm / loss_scale + 1e-6);
            // A norm that is NaN must show in the parameters, so no `min`, which would drop it.
            scale *= if factor > 1.0 { 1.0 } else { factor };
        }
        let limit = clipping.clip_value.unwrap_or(f32::INFINITY);
        Some(Now { lr: schedule[0] as f64, floor: schedule[3] as f64, scale, limit, step: 0 })
    }

    /// The constants of the update of a tensor.
    fn of(self, options: TensorOptions) -> Tensor {
        Tensor {
            lr: (self.lr - self.floor) * options.lr_scale as f64 + self.floor,
            weight_decay: options.weight_decay as f64,
            scale: self.scale,
            limit: self.limit,
            step: self.step,
        }
    }
}

/// What the step works with; it is counted. `None` if nothing is to be updated.
fn begin(op: &OptimizerStep, frame: &Frame<'_>) -> Option<Now> {
    let now = Now::read(frame, &op.clipping())?;
    let counter = op.head() - 1;
    let step = if op.counts {
        let counter = frame.update::<i64>(counter);
        counter[0] += 1;
        counter[0]
    } else {
        frame.input::<i64>(counter)[0]
    };
    Some(Now { step, ..now })
}

impl OptimizerKernel {
    /// For tensors of the given lengths.
    pub fn new(op: &OptimizerStep, lengths: impl Iterator<Item = usize>, level: SimdLevel) -> Self {
        OptimizerKernel { op: op.clone(), pieces: cut(lengths), level }
    }

    /// The constants of the update of tensor `t`.
    fn tensor(&self, t: usize, now: Now) -> Tensor {
        now.of(self.op.tensors[t])
    }

    /// The stretch of a tensor that a piece is, for a rule that looks at norms.
    fn stretch<'a>(&self, operands: Operands<'a>, piece: &Piece, now: Now) -> Stretch<'a> {
        let at = self.op.head() + piece.tensor * self.op.stride();
        // SAFETY: as in `update`.
        let part = |k: usize| unsafe { operands.view::<f32>(at + k).part(piece.range.clone()) };
        let second = if self.op.algorithm.slots().count() > 1 { part(3) } else { &mut [] };
        let g = &operands.input::<f32>(at + 1)[piece.range.clone()];
        Stretch { p: part(0), g, state: [part(2), second], t: self.tensor(piece.tensor, now) }
    }

    /// Both passes of a rule that looks at the norms of whole tensors. Their squares are summed piece by piece, in one order.
    fn update_by_norms(&self, frame: &Frame<'_>, trust: Trust, now: Now) {
        let (operands, algorithm) = (frame.operands(), &self.op.algorithm);
        let mut scratch = frame.scratch();
        let partial = scratch.take::<f64>(2 * self.pieces.len());
        let ratios = scratch.take::<f64>(self.op.tensors.len());
        for_chunks(frame.pool(), partial, 2, |start, sums| {
            let of = self.stretch(operands, &self.pieces[start / 2], now);
            sums.copy_from_slice(&trust::squares(self.level, algorithm, of));
        });
        let mut sums = partial.as_chunks::<2>().0.iter();
        for pieces in self.pieces.chunk_by(|a, b| a.tensor == b.tensor) {
            let own = sums.by_ref().take(pieces.len());
            let squares = own.fold([0.0; 2], |[a, b], [c, d]| [a + c, b + d]);
            let tensor = pieces[0].tensor;
            ratios[tensor] = trust.ratio(self.op.tensors[tensor].weight_decay, squares.map(f64::sqrt));
        }
        let ratios = &*ratios;
        frame.pool().run(self.pieces.len(), |task, _| {
            let piece = &self.pieces[task];
            trust::apply(self.level, algorithm, self.stretch(operands, piece, now), ratios[piece.tensor]);
        });
    }

    fn update(&self, operands: Operands<'_>, piece: &Piece, now: Now) {
        let at = self.op.head() + piece.tensor * self.op.stride();
        let t = self.tensor(piece.tensor, now);
        // Where the piece is in the whole tensor. There is state of its part alone.
        let start = self.op.parts.get(piece.tensor).map_or(0, |part| part.start);
        let whole = start + piece.range.start..start + piece.range.end;
        // Operand `k` of the tensor that the rule updates.
        let part = |k: usize| {
            let range = if k == 0 { whole.clone() } else { piece.range.clone() };
            // SAFETY: parameters and state are updated in place and share memory with no other operand; pieces of a
            // tensor are apart, and each of its operands is taken once.
            unsafe { operands.view::<f32>(at + k).part(range) }
        };
        let g = &operands.input::<f32>(at + 1)[whole.clone()];
        match self.op.algorithm {
            Algorithm::Sgd { momentum, dampening, nesterov } => {
                let velocity = if momentum != 0.0 { part(2) } else { &mut [] };
                sgd(self.level, part(0), g, velocity, Sgd { momentum, dampening, nesterov }, t);
            }
            Algorithm::Adam { beta1, beta2, eps, decoupled, amsgrad } => {
                let largest = if amsgrad { part(4) } else { &mut [] };
                let rule = Adam { beta1, beta2, eps, decoupled };
                adam(self.level, part(0), g, [part(2), part(3), largest], rule, t);
            }
            Algorithm::RmsProp { alpha, eps, momentum, centered } => {
                let velocity = if momentum != 0.0 { part(3) } else { &mut [] };
                let mean = if centered { part(3 + (momentum != 0.0) as usize) } else { &mut [] };
                rmsprop(self.level, part(0), g, [part(2), velocity, mean], RmsProp { alpha, eps, momentum }, t);
            }
            Algorithm::ScheduleFreeAdamW { beta1, beta2, eps, steps } => {
                let rule = schedule_free::Rule { beta1, beta2, eps, steps };
                schedule_free::update(self.level, part(0), g, [part(2), part(3), part(4)], rule, t);
            }
            algorithm => {
                let second = if algorithm.slots().count() > 1 { part(3) } else { &mut [] };
                rules::update(self.level, &algorithm, (part(0), g), [part(2), second], t);
            }
        }
    }
}

impl NodeKernel for OptimizerKernel {
    fn scratch_bytes(&self) -> usize {
        match self.op.algorithm.trust() {
            Some(_) => Scratch::size::<f64>(2 * self.pieces.len()) + Scratch::size::<f64>(self.op.tensors.len()),
            None => 0,
        }
    }

    fn run(&self, frame: &Frame<'_>) {
        let Some(now) = begin(&self.op, frame) else { return };
        if let Some(trust) = self.op.algorithm.trust() {
            return self.update_by_norms(frame, trust, now);
        }
        let operands = frame.operands();
        frame.pool().run(self.pieces.len(), |task, _| self.update(operands, &self.pieces[task], now));
    }
}

/// [`UpdateScale`].
pub struct UpdateScaleKernel {
    /// The operation.
    pub op: UpdateScale,
}

impl NodeKernel for UpdateScaleKernel {
    fn run(&self, frame: &Frame<'_>) {
        let (norm, loss) = (frame.input::<f32>(0)[0], frame.input::<f32>(3)[0]);
        if !loss.is_finite() {
            return;
        }
        let (scale, tracker) = (&mut frame.update::<f32>(1)[0], &mut frame.update::<i64>(2)[0]);
        *tracker += 1;
        if !norm.is_finite() {
            *scale *= self.op.backoff;
            *tracker = 0;
        } else if *tracker >= i64::from(self.op.interval) {
            let grown = *scale * self.op.growth;
            *scale = if grown.is_finite() { grown } else { *scale };
            *tracker = 0;
        }
    }
}

/// The gradient as the rule sees it: scaled, clipped, and with the weight decay times the parameter if that is not 0.
#[inline(always)]
fn gradient<S: Simd>(s: S, g: S::V, p: S::V, t: Tensor) -> S::V {
    let mut g = s.mul(g, s.splat(t.scale));
    if t.limit < f32::INFINITY {
        // What is not a number comes second, and stays.
        g = s.min(s.splat(t.limit), s.max(s.splat(-t.limit), g));
    }
    if t.weight_decay != 0.0 { s.fma(s.splat(t.weight_decay as f32), p, g) } else { g }
}

/// `a + w · (b − a)`
#[inline(always)]
fn lerp<S: Simd>(s: S, a: S::V, b: S::V, w: f64) -> S::V {
    s.fma(s.splat(w as f32), s.sub(b, a), a)
}

/// `decay · v + (1 − decay) · g²`
#[inline(always)]
fn mean_square<S: Simd>(s: S, v: S::V, g: S::V, decay: f64) -> S::V {
    s.fma(s.mul(s.splat((1.0 - decay) as f32), g), g, s.mul(v, s.splat(decay as f32)))
}

#[derive(Clone, Copy)]
struct Sgd {
    momentum: f32,
    dampening: f32,
    nesterov: bool,
}

#[derive(Clone, Copy)]
struct Adam {
    beta1: f64,
    beta2: f64,
    eps: f32,
    decoupled: bool,
}

#[derive(Clone, Copy)]
struct RmsProp {
    alpha: f64,
    eps: f32,
    momentum: f32,
}

// Tensors of state that a rule does without are empty slices.
vectorised! {
    fn sgd<'a, S>(s, p: &'a mut [f32], g: &'a [f32], velocity: &'a mut [f32], rule: Sgd, t: Tensor) {
        for i in (0..p.len()).step_by(S::LANES) {
            let n = (p.len() - i).min(S::LANES);
            let w = get(s, p, i, n);
            let mut d = gradient(s, get(s, g, i, n), w, t);
            if !velocity.is_empty() {
                let mut v = d;
                if t.step > 1 {
                    v = s.mul(get(s, velocity, i, n), s.splat(rule.momentum));
                    v = s.fma(s.splat(1.0 - rule.dampening), d, v);
                }
                put(s, velocity, i, n, v);
                d = if rule.nesterov { s.fma(s.splat(rule.momentum), v, d) } else { v };
            }
            put(s, p, i, n, s.fma(s.splat(-t.lr as f32), d, w));
        }
    }

    fn adam<'a, S>(s, p: &'a mut [f32], g: &'a [f32], state: [&'a mut [f32]; 3], rule: Adam, t: Tensor) {
        let [mean, square, largest] = state;
        let steps = t.step.min(i32::MAX as i64) as i32;
        let step_size = s.splat((-t.lr / (1.0 - rule.beta1.powi(steps))) as f32);
        let correction = s.splat((1.0 / (1.0 - rule.beta2.powi(steps)).sqrt()) as f32);
        let coupled = Tensor { weight_decay: if rule.decoupled { 0.0 } else { t.weight_decay }, ..t };
        let keep = if rule.decoupled { (1.0 - t.lr * t.weight_decay) as f32 } else { 1.0 };
        for i in (0..p.len()).step_by(S::LANES) {
            let n = (p.len() - i).min(S::LANES);
            let w = s.mul(get(s, p, i, n), s.splat(keep));
            let d = gradient(s, get(s, g, i, n), w, coupled);
            let m = lerp(s, get(s, mean, i, n), d, 1.0 - rule.beta1);
            put(s, mean, i, n, m);
            let mut v = mean_square(s, get(s, square, i, n), d, rule.beta2);
            put(s, square, i, n, v);
            if !largest.is_empty() {
                v = s.max(get(s, largest, i, n), v);
                put(s, largest, i, n, v);
            }
            let root = s.fma(s.sqrt(v), correction, s.splat(rule.eps));
            put(s, p, i, n, s.add(w, s.div(s.mul(step_size, m), root)));
        }
    }

    fn rmsprop<'a, S>(s, p: &'a mut [f32], g: &'a [f32], state: [&'a mut [f32]; 3], rule: RmsProp, t: Tensor) {
        let [square, velocity, mean] = state;
        for i in (0..p.len()).step_by(S::LANES) {
            let n = (p.len() - i).min(S::LANES);
            let w = get(s, p, i, n);
            let d = gradient(s, get(s, g, i, n), w, t);
            let mut v = mean_square(s, get(s, square, i, n), d, rule.alpha);
            put(s, square, i, n, v);
            if !mean.is_empty() {
                let m = lerp(s, get(s, mean, i, n), d, 1.0 - rule.alpha);
                put(s, mean, i, n, m);
                v = s.sub(v, s.mul(m, m));
            }
            let root = s.add(s.sqrt(v), s.splat(rule.eps));
            let step = if velocity.is_empty() {
                s.div(s.mul(s.splat(-t.lr as f32), d), root)
            } else {
                let b = s.add(s.mul(get(s, velocity, i, n), s.splat(rule.momentum)), s.div(d, root));
                put(s, velocity, i, n, b);
                s.mul(s.splat(-t.lr as f32), b)
            };
            put(s, p, i, n, s.add(w, step));
        }
    }
}
