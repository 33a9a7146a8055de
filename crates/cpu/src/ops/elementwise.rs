//! Activations and their gradients, sums and products with broadcast. Outputs may lie in an operand's memory, so all of
//! this works on pointers: each element is read before it is written, by the task that writes it.

use super::activation::{Function, with_activation};
use crate::gemm::tile::{Finish, Rows};
use crate::graph::op::{Activation, BinaryKind};
use crate::graph::{DType, Shape};
use crate::run::frame::{Frame, NodeKernel, View};
use crate::run::numbers::Address;
use crate::run::parallel::{CHUNK, for_chunks, rows_per_chunk};
use crate::run::threads::{Pool, chunks};
use crate::simd::lanes::Lane;
use crate::simd::{Kernel, Simd, SimdLevel};

/// `y = f(x)` for `n` elements; `x` and `y` are equal or apart.
struct Map<F> {
    f: F,
    x: *const f32,
    y: *mut f32,
    n: usize,
}

impl<F: Function> Kernel for Map<F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let whole = self.n - self.n % S::LANES;
        for i in (0..whole).step_by(S::LANES) {
            // SAFETY: inside the `n` elements that `apply`'s caller promises.
            unsafe { s.store(self.y.add(i), self.f.value(s, s.load(self.x.add(i)))) };
        }
        let rest = self.n - whole;
        if rest > 0 {
            // SAFETY: as above; only `rest` elements are touched.
            unsafe {
                let x = s.load_part(self.x.add(whole), rest);
                s.store_part(self.y.add(whole), self.f.value(s, x), rest);
            }
        }
    }
}

/// `y = act(x)` for `n` elements; nothing to do for `None` in place.
///
/// # Safety
/// Both are valid for `n` elements and are the same memory or do not overlap.
pub unsafe fn apply(level: SimdLevel, act: Option<Activation>, x: *const f32, y: *mut f32, n: usize) {
    if act.is_none() && std::ptr::eq(x, y) {
        return;
    }
    with_activation!(act, f => level.run(Map { f, x, y, n }));
}

/// [`Map`] in place, row by row.
struct MapRows<F> {
    f: F,
    rows: Rows,
}

impl<F: Function> Kernel for MapRows<F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Rows { first, rows, columns, step } = self.rows;
        for r in 0..rows {
            let y = first.wrapping_add(r * step);
            Map { f: self.f, x: y, y, n: columns }.run(s);
        }
    }
}

/// An activation, to be applied to results in place.
#[derive(Debug, Clone, Copy)]
pub struct ActivationFinish {
    /// Instructions.
    pub level: SimdLevel,
    /// The activation.
    pub act: Activation,
}

impl Finish for ActivationFinish {
    unsafe fn run(&self, rows: Rows) {
        with_activation!(Some(self.act), f => self.level.run(MapRows { f, rows }));
    }
}

/// `y = act(y)`, by all threads.
pub fn activate(pool: &Pool, level: SimdLevel, act: Option<Activation>, y: &mut [f32]) {
    if act.is_some() {
        for_chunks(pool, y, CHUNK, |_, y| {
            // SAFETY: the part's own elements, in place.
            unsafe { apply(level, act, y.as_ptr(), y.as_mut_ptr(), y.len()) };
        });
    }
}

/// `dx = f'(saved) · dy` for `n` elements.
struct MapGrad<F> {
    f: F,
    saved: *const f32,
    dy: *const f32,
    dx: *mut f32,
    n: usize,
}

impl<F: Function> Kernel for MapGrad<F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let whole = self.n - self.n % S::LANES;
        for i in (0..whole).step_by(S::LANES) {
            // SAFETY: the pointers come from views that hold `n` elements from there.
            unsafe {
                let dx = self.f.gradient(s, s.load(self.saved.add(i)), s.load(self.dy.add(i)));
                s.store(self.dx.add(i), dx);
            }
        }
        let rest = self.n - whole;
        if rest > 0 {
            // SAFETY: as above; only `rest` elements are touched.
            unsafe {
                let (saved, dy) = (s.load_part(self.saved.add(whole), rest), s.load_part(self.dy.add(whole), rest));
                s.store_part(self.dx.add(whole), self.f.gradient(s, saved, dy), rest);
            }
        }
    }
}

/// `dx = act'(saved) · dy` for `n` elements.
///
/// # Safety
/// All are valid for `n` elements; each operand is the result's memory or does not overlap it.
pub unsafe fn apply_grad(level: SimdLevel, act: Activation, saved: *const f32, dy: *const f32, dx: *mut f32, n: usize) {
    with_activation!(Some(act), f => level.run(MapGrad { f, saved, dy, dx, n }));
}

/// Elements on their way between rounded numbers and the functions of floats.
pub const STRIP: usize = 1024;

/// `n` numbers in either width as floats. The caller promises that both sides are valid and do not overlap.
pub struct ToFloats {
    /// The numbers.
    pub from: Address,
    /// The floats.
    pub to: *mut f32,
    /// How many.
    pub n: usize,
}

impl Kernel for ToFloats {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for i in (0..self.n).step_by(S::LANES) {
            let n = (self.n - i).min(S::LANES);
            // SAFETY: inside the `n` elements that are promised.
            unsafe {
                let x = match self.from.rounded() {
                    Some(from) => s.load_rounded(from.add(i), n),
                    None => f32::load(s, self.from.floats().add(i), n),
                };
                f32::store(s, self.to.add(i), x, n);
            }
        }
    }
}

/// `n` floats as numbers in either width. The caller promises that both sides are valid and do not overlap.
pub struct FromFloats {
    /// The floats.
    pub from: *const f32,
    /// The numbers.
    pub to: Address,
    /// How many.
    pub n: usize,
}

impl Kernel for FromFloats {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for i in (0..self.n).step_by(S::LANES) {
            let n = (self.n - i).min(S::LANES);
            // SAFETY: inside the `n` elements that are promised.
            unsafe {
                let x = f32::load(s, self.from.add(i), n);
                match self.to.rounded() {
                    Some(to) => s.store_rounded(to.add(i), x, n),
                    None => f32::store(s, self.to.floats().add(i), x, n),
                }
            }
        }
    }
}

/// [`crate::graph::op::ActivationOp`].
pub struct ActivationKernel {
    /// The function.
    pub act: Activation,
    /// Instructions.
    pub level: SimdLevel,
}

impl NodeKernel for ActivationKernel {
    fn run(&self, frame: &Frame<'_>) {
        let (x, y, len) = (frame.source_address(0), frame.target_address(0), frame.output_len(0));
        let pieces = chunks(len, CHUNK);
        frame.pool().run(pieces.count(), |task, _| {
            let r = pieces.range(task);
            let (x, y) = (x.at(r.start), y.at(r.start));
            if x.rounded().or(y.rounded()).is_none() {
                // SAFETY: both have the elements; the two are apart or, by the operation's rule, the same memory, and
                // tasks have their own elements.
                return unsafe { apply(self.level, Some(self.act), x.floats(), y.floats(), r.len()) };
            }
            let mut strip = [0.0; STRIP];
            for start in (0..r.len()).step_by(STRIP) {
                let (n, strip) = ((r.len() - start).min(STRIP), strip.as_mut_ptr());
                // SAFETY: as above; a strip is read before it is written.
                unsafe {
                    self.level.run(ToFloats { from: x.at(start), to: strip, n });
                    apply(self.level, Some(self.act), strip, strip, n);
                    self.level.run(FromFloats { from: strip, to: y.at(start), n });
                }
            }
        });
    }
}

/// [`crate::graph::op::ActivationGrad`].
pub struct ActivationGradKernel {
    /// The function.
    pub act: Activation,
    /// Instructions.
    pub level: SimdLevel,
}

impl NodeKernel for ActivationGradKernel {
    fn run(&self, frame: &Frame<'_>) {
        let (saved, dy, dx) = (frame.source::<f32>(0), frame.source::<f32>(1), frame.target::<f32>(0));
        let pieces = chunks(dx.len(), CHUNK);
        frame.pool().run(pieces.count(), |task, _| {
            let r = pieces.range(task);
            let (saved, dy, dx) = (saved.range(r.clone()), dy.range(r.clone()), dx.range(r.clone()));
            // SAFETY: `range` checks the bounds; by the operation's rule `dx` is `dy` or apart from both.
            unsafe { apply_grad(self.level, self.act, saved, dy, dx, r.len()) };
        });
    }
}

/// `y = a ∘ b` for `n` elements; an operand with stride 0 is one number.
struct Combine {
    kind: BinaryKind,
    a: *const f32,
    b: *const f32,
    y: *mut f32,
    n: usize,
    strides: [usize; 2],
}

impl Combine {
    /// # Safety
    /// `p` is valid for reading the elements `i .. i + n` (or, with stride 0, the first).
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const f32, stride: usize, i: usize, n: usize) -> S::V {
        // SAFETY: by the caller's promise.
        unsafe {
            match stride {
                0 => s.splat(*p),
                _ if n < S::LANES => s.load_part(p.add(i), n),
                _ => s.load(p.add(i)),
            }
        }
    }
}

impl Kernel for Combine {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for i in (0..self.n).step_by(S::LANES) {
            let n = (self.n - i).min(S::LANES);
            // SAFETY: the pointers come from views that hold `n` elements (or one, with stride 0) from there.
            unsafe {
                let a = Self::load(s, self.a, self.strides[0], i, n);
                let b = Self::load(s, self.b, self.strides[1], i, n);
                let y = match self.kind {
                    BinaryKind::Add => s.add(a, b),
                    BinaryKind::Mul => s.mul(a, b),
                };
                if n < S::LANES { s.store_part(self.y.add(i), y, n) } else { s.store(self.y.add(i), y) }
            }
        }
    }
}

/// `y = a ∘ b` for `n` elements.
///
/// # Safety
/// All are valid for `n` elements; each operand is the result's memory or does not overlap it.
pub unsafe fn combine(level: SimdLevel, kind: BinaryKind, a: *const f32, b: *const f32, y: *mut f32, n: usize) {
    level.run(Combine { kind, a, b, y, n, strides: [1, 1] });
}

/// An axis of a broadcast operation: its size, and the strides of the two operands (0 where stretched).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Axis {
    size: usize,
    strides: [usize; 2],
}

/// [`crate::graph::op::Binary`].
pub struct BinaryKernel {
    kind: BinaryKind,
    act: Option<Activation>,
    level: SimdLevel,
    /// Axes of the output, those that move together joined; the last one is the row.
    axes: Vec<Axis>,
}

impl BinaryKernel {
    /// For operands of shapes `a` and `b`.
    pub fn new(kind: BinaryKind, act: Option<Activation>, a: &Shape, b: &Shape, level: SimdLevel) -> Self {
        let mut axes: Vec<Axis> = Vec::new();
        let mut next = [1, 1];
        for (&na, &nb) in a.dims().iter().zip(b.dims()).rev() {
            let axis = Axis {
                size: na.max(nb),
                strides: [if na == 1 { 0 } else { next[0] }, if nb == 1 { 0 } else { next[1] }],
            };
            next = [next[0] * na, next[1] * nb];
            if na == 1 && nb == 1 {
                continue;
            }
            match axes.last_mut() {
                // Goes on where the axis inside it ends, in both operands.
                Some(inner) if (0..2).all(|k| axis.strides[k] == inner.size * inner.strides[k]) => {
                    inner.size *= axis.size
                }
                _ => axes.push(axis),
            }
        }
        axes.reverse();
        if axes.is_empty() {
            axes.push(Axis { size: 1, strides: [0, 0] });
        }
        BinaryKernel { kind, act, level, axes }
    }

    /// Elements `from .. from + n` of row `row`.
    fn segment(&self, [a, b, y]: [View<'_, f32>; 3], row: usize, from: usize, n: usize) {
        let (inner, outer) = self.axes.split_last().expect("there is an axis");
        let mut index = row;
        let mut at = [0, 0];
        for axis in outer.iter().rev() {
            for (at, stride) in at.iter_mut().zip(axis.strides) {
                *at += index % axis.size * stride;
            }
            index /= axis.size;
        }
        let operand = |v: View<'_, f32>, k: usize| {
            let start = at[k] + from * inner.strides[k];
            v.range(start..start + if inner.strides[k] == 0 { 1 } else { n }).cast_const()
        };
        let y = y.range(row * inner.size + from..row * inner.size + from + n);
        self.level.run(Combine { kind: self.kind, a: operand(a, 0), b: operand(b, 1), y, n, strides: inner.strides });
        // SAFETY: the `n` elements just written, in place.
        unsafe { apply(self.level, self.act, y, y, n) };
    }
}

impl NodeKernel for BinaryKernel {
    fn run(&self, frame: &Frame<'_>) {
        let views = [frame.source::<f32>(0), frame.source::<f32>(1), frame.target::<f32>(0)];
        let row = self.axes.last().expect("there is an axis").size;
        let rows = views[2].len() / row.max(1);
        let segments = chunks(row, CHUNK / 4);
        let blocks = chunks(rows * segments.count(), rows_per_chunk(row.min(CHUNK / 4)));
        frame.pool().run(blocks.count(), |task, _| {
            for i in blocks.range(task) {
                let part = segments.range(i % segments.count());
                self.segment(views, i / segments.count(), part.start, part.len());
            }
        });
    }
}

/// [`crate::graph::op::AccumulateGrad`].
pub struct AccumulateGradKernel {
    /// Instructions.
    pub level: SimdLevel,
}

impl NodeKernel for AccumulateGradKernel {
    fn run(&self, frame: &Frame<'_>) {
        if frame.input_dtype(1) == DType::F64 {
            // Figures: a handful.
            frame.update::<f64>(1).iter_mut().zip(frame.input::<f64>(0)).for_each(|(sum, x)| *sum += x);
            return;
        }
        let (grad, sum) = (frame.source::<f32>(0), frame.source::<f32>(1));
        let pieces = chunks(sum.len(), CHUNK);
        frame.pool().run(pieces.count(), |task, _| {
            let r = pieces.range(task);
            let (a, b, n) = (sum.range(r.clone()), grad.range(r.clone()).cast_const(), r.len());
            self.level.run(Combine { kind: BinaryKind::Add, a, b, y: a, n, strides: [1, 1] });
        });
    }
}

/// [`crate::graph::op::AccumulateLoss`].
pub struct AccumulateLossKernel {
    /// What a full micro-batch weighs.
    pub full: f32,
}

impl NodeKernel for AccumulateLossKernel {
    fn run(&self, frame: &Frame<'_>) {
        let (loss, weight, sums) = (frame.input::<f32>(0)[0], frame.input::<f32>(1)[0], frame.update::<f64>(2));
        let share = weight / self.full;
        sums[0] += share as f64 * loss as f64;
        sums[1] += share as f64;
        frame.output::<f32>(0)[0] = if sums[1] > 0.0 { (sums[0] / sums[1]) as f32 } else { sums[0] as f32 };
        frame.output::<f32>(1)[0] = share;
    }
}

/// [`crate::graph::op::MeanScale`].
pub struct MeanScaleKernel {}

impl NodeKernel for MeanScaleKernel {
    fn run(&self, frame: &Frame<'_>) {
        let (schedule, shares, to) = (frame.input::<f32>(0), frame.input::<f64>(1)[1], frame.output::<f32>(0));
        to.copy_from_slice(schedule);
        to[1] = if shares > 0.0 { (schedule[1] as f64 / shares) as f32 } else { 0.0 };
    }
}

/// [`crate::graph::op::ZeroGrad`].
pub struct ZeroGradKernel {
    /// Number of operands.
    pub operands: usize,
}

impl NodeKernel for ZeroGradKernel {
    fn run(&self, frame: &Frame<'_>) {
        for i in 0..self.operands {
            if frame.input_dtype(i) == DType::F64 {
                let sums = frame.source::<f64>(i);
                // SAFETY: the whole operand, which is updated in place. Nothing else reads or writes it meanwhile.
                unsafe { std::ptr::write_bytes(sums.range(0..sums.len()), 0, sums.len()) };
                continue;
            }
            let sum = frame.source::<f32>(i);
            let pieces = chunks(sum.len(), CHUNK);
            frame.pool().run(pieces.count(), |task, _| {
                let r = pieces.range(task);
                // SAFETY: the range lies within the operand, and each task has its own.
                unsafe { std::ptr::write_bytes(sum.range(r.clone()), 0, r.len()) };
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_that_move_together_are_joined() {
        let axes = |a: &[usize], b: &[usize]| {
            let k = BinaryKernel::new(BinaryKind::Add, None, &Shape::from(a), &Shape::from(b), SimdLevel::Scalar);
            k.axes.iter().map(|x| (x.size, x.strides)).collect::<Vec<_>>()
        };
        assert_eq!(axes(&[2, 3, 4, 5], &[2, 3, 4, 5]), [(120, [1, 1])]);
        assert_eq!(axes(&[2, 1, 1, 5], &[2, 3, 4, 5]), [(2, [5, 60]), (12, [0, 5]), (5, [1, 1])]);
        assert_eq!(axes(&[2, 3, 1], &[1, 1, 1]), [(6, [1, 0])]);
        assert_eq!(axes(&[1, 1], &[1, 1]), [(1, [0, 0])]);
    }
}
