//! Element-wise operations one after the other, a block of elements at a time: what lies between them stays in L1.

use super::dropout::{Draws, mask};
use super::elementwise::{FromFloats, ToFloats, apply, apply_grad, combine};
use crate::fusions::MAX_STEPS;
use crate::graph::Shape;
use crate::graph::op::{Activation, BinaryKind, Dropout, ElementWise, Fused, Source, StepOutput};
use crate::run::frame::{Frame, NodeKernel, Operands, Scratch, View};
use crate::run::numbers::Address;
use crate::run::parallel::CHUNK;
use crate::run::per_thread::PerThread;
use crate::run::threads::chunks;
use crate::simd::SimdLevel;
use half::bf16;
use std::ops::Range;

/// Elements that all steps are done for before the next ones are: a value in L1 takes 4 KiB. A multiple of 4, as draws of a
/// dropout come in fours.
const BLOCK: usize = 1024;

/// Where something lies that a step reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A block of the operand of this number.
    Operand(usize),
    /// A block of the result of this number.
    Result(usize),
    /// A block of scratch memory.
    Slot(usize),
}

/// An axis of a stretched operand: its size in the result, and the operand's stride, 0 where it is stretched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Axis {
    size: usize,
    stride: usize,
}

/// What is done to a block.
#[derive(Debug)]
enum Function {
    Activation(Activation),
    ActivationGrad(Activation),
    Binary(BinaryKind),
    Dropout(Dropout),
}

/// A step of the group with its places.
#[derive(Debug)]
struct Step {
    function: Function,
    from: [Place; 2],
    to: Place,
    /// Operands to be spread out over slots before, or to be made floats there.
    stretch: Vec<(usize, usize)>,
    /// The result that is rounded afterwards, from the slot `to`.
    rounds: Option<usize>,
}

/// The operands, and the results, that are rounded in memory, by number. Those that are stretched are not.
#[derive(Default)]
pub struct RoundedValues {
    /// Operands.
    pub operands: Vec<usize>,
    /// Results.
    pub results: Vec<usize>,
}

/// A group of element-wise operations.
pub struct ChainKernel {
    steps: Vec<Step>,
    /// For each operand, the axes along which it is stretched, outermost first; empty if it is not.
    axes: Vec<Vec<Axis>>,
    slots: usize,
    level: SimdLevel,
    threads: usize,
}

/// The axes of `operand` stretched to `result`, those that move together joined; none if it has that shape.
fn stretched(operand: &Shape, result: &Shape) -> Vec<Axis> {
    if operand == result {
        return Vec::new();
    }
    let mut axes: Vec<Axis> = Vec::new();
    let mut next = 1;
    for (&own, &size) in operand.dims().iter().zip(result.dims()).rev() {
        let axis = Axis { size, stride: if own == 1 { 0 } else { next } };
        next *= own;
        match axes.last_mut() {
            _ if size == 1 => {}
            Some(inner) if axis.stride == inner.size * inner.stride => inner.size *= size,
            _ => axes.push(axis),
        }
    }
    axes.reverse();
    axes
}

impl ChainKernel {
    /// For operands of the given shapes (of a key it does not matter) and results of shape `result`.
    pub fn new(op: &Fused, operands: &[&Shape], result: &Shape, level: SimdLevel, threads: usize) -> Self {
        Self::rounded(op, operands, result, &RoundedValues::default(), level, threads)
    }

    /// The same with values that are rounded in memory.
    pub fn rounded(
        op: &Fused,
        operands: &[&Shape],
        result: &Shape,
        rounded: &RoundedValues,
        level: SimdLevel,
        threads: usize,
    ) -> Self {
        let is_whole = |i: usize| op.is_key(i) || operands[i] == result;
        let axes: Vec<_> = (0..operands.len())
            .map(|i| if is_whole(i) { Vec::new() } else { stretched(operands[i], result) })
            .collect();
        let mut slots = Slots::default();
        let mut spread: Vec<Option<usize>> = vec![None; operands.len()];
        let mut done: Vec<Place> = Vec::new();
        let mut steps = Vec::new();
        for (at, step) in op.steps.iter().enumerate() {
            let mut stretch = Vec::new();
            let mut from = [Place::Operand(0); 2];
            for (place, source) in from.iter_mut().zip(&step.from) {
                *place = match *source {
                    Source::Step(i) => done[i],
                    Source::Operand(i) if is_whole(i) && !rounded.operands.contains(&i) => Place::Operand(i),
                    Source::Operand(i) => {
                        let slot = *spread[i].get_or_insert_with(|| {
                            stretch.push((i, slots.take()));
                            stretch[stretch.len() - 1].1
                        });
                        Place::Slot(slot)
                    }
                };
            }
            // Functions of one element may write where they read.
            for (place, source) in from.iter().zip(&step.from) {
                if let Place::Slot(slot) = place
                    && op.last_reader(*source) == Some(at)
                {
                    slots.give_back(*slot);
                }
            }
            let result = op.results.iter().position(|r| *r == StepOutput { step: at, output: 0 });
            let rounds = result.filter(|result| rounded.results.contains(result));
            let to = match result.filter(|_| rounds.is_none()) {
                Some(result) => Place::Result(result),
                None => Place::Slot(slots.take()),
            };
            done.push(to);
            let function = match step.op.element_wise().expect("its pattern takes nothing else") {
                ElementWise::Activation(act) => Function::Activation(act),
                ElementWise::ActivationGrad(act) => Function::ActivationGrad(act),
                ElementWise::Binary(kind) => Function::Binary(kind),
                ElementWise::Dropout(op) => Function::Dropout(op.clone()),
            };
            steps.push(Step { function, from, to, stretch, rounds });
        }
        ChainKernel { steps, axes, slots: slots.count, level, threads }
    }
}

/// Blocks of scratch memory, used again when what they hold has been read for the last time.
#[derive(Default)]
struct Slots {
    count: usize,
    free: Vec<usize>,
}

impl Slots {
    fn take(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        })
    }

    fn give_back(&mut self, slot: usize) {
        // An operand of both sides of a product comes twice.
        if !self.free.contains(&slot) {
            self.free.push(slot);
        }
    }
}

/// Writes elements `range` of the result's shape, as a stretched operand has them, to `to`.
fn spread(axes: &[Axis], from: &[f32], range: Range<usize>, to: &mut [f32]) {
    // The longest stretch of the result over which the operand repeats a row of its own: `period` elements of it.
    let (outer, period, run) = match axes {
        [outer @ .., Axis { size: repeats, stride: 0 }, Axis { size, stride: 1 }] => (outer, *size, repeats * size),
        [outer @ .., Axis { size, stride: 0 }] => (outer, 1, *size),
        [outer @ .., Axis { size, .. }] => (outer, *size, *size),
        [] => unreachable!("a stretched operand has an axis"),
    };
    let mut at = range.start;
    while at < range.end {
        let (mut index, offset) = (at / run, at % run);
        let n = (range.end - at).min(run - offset);
        let mut start = 0;
        for axis in outer.iter().rev() {
            start += index % axis.size * axis.stride;
            index /= axis.size;
        }
        let part = &mut to[at - range.start..at - range.start + n];
        repeat(&from[start..start + period], offset % period, part);
        at += n;
    }
}

/// Fills `to` with `row` over and over, from its element `first` on.
fn repeat(row: &[f32], first: usize, to: &mut [f32]) {
    if let [one] = row {
        return to.fill(*one);
    }
    let (period, n) = (row.len(), to.len());
    let head = (period - first).min(n);
    to[..head].copy_from_slice(&row[first..first + head]);
    let mut filled = period.min(n);
    to[head..filled].copy_from_slice(&row[..filled - head]);
    // What is there, twice as much every time.
    while filled < n {
        let more = filled.min(n - filled);
        to.copy_within(..more, filled);
        filled += more;
    }
}

/// What a task works with.
struct Job<'a> {
    kernel: &'a ChainKernel,
    operands: Operands<'a>,
    results: [Option<View<'a, f32>>; MAX_STEPS],
    rounded: [Option<View<'a, bf16>>; MAX_STEPS],
}

impl Job<'_> {
    fn at(&self, place: Place, range: &Range<usize>, slots: *mut f32) -> *mut f32 {
        match place {
            Place::Operand(i) => self.operands.view::<f32>(i).range(range.clone()),
            Place::Result(i) => self.results[i].expect("the results have views").range(range.clone()),
            Place::Slot(i) => slots.wrapping_add(i * BLOCK),
        }
    }

    /// All steps for elements `range`, at most [`BLOCK`] of them.
    fn block(&self, range: Range<usize>, slots: &mut [f32]) {
        let (level, n) = (self.kernel.level, range.len());
        for step in &self.kernel.steps {
            for &(operand, slot) in &step.stretch {
                let to = &mut slots[slot * BLOCK..][..n];
                if self.kernel.axes[operand].is_empty() {
                    let from = self.operands.view::<bf16>(operand).range(range.clone());
                    // SAFETY: the block's elements of the operand, which are read before any of this task is written in their place.
                    level.run(ToFloats { from: Address::new(from.cast(), true), to: to.as_mut_ptr(), n });
                } else {
                    spread(&self.kernel.axes[operand], self.operands.input::<f32>(operand), range.clone(), to);
                }
            }
            let slots = slots.as_mut_ptr();
            let a = self.at(step.from[0], &range, slots).cast_const();
            let to = self.at(step.to, &range, slots);
            // SAFETY: a place has room for the block's elements, which are this task's alone; two places of a step are the same
            // or apart, as the operation's rules and the assignment of slots see to.
            unsafe {
                match &step.function {
                    Function::Activation(act) => apply(level, Some(*act), a, to, n),
                    Function::ActivationGrad(act) => {
                        apply_grad(level, *act, a, self.at(step.from[1], &range, slots).cast_const(), to, n);
                    }
                    Function::Binary(kind) => {
                        combine(level, *kind, a, self.at(step.from[1], &range, slots).cast_const(), to, n);
                    }
                    Function::Dropout(op) => {
                        let Place::Operand(key) = step.from[1] else { unreachable!("a key is an operand") };
                        let key = self.operands.input::<u32>(key);
                        mask(level, Draws::new(op, key), range.start, a, to, n);
                    }
                }
                if let Some(result) = step.rounds {
                    let view = self.rounded[result].expect("the results have views");
                    level.run(FromFloats { from: to, to: Address::new(view.range(range.clone()).cast(), true), n });
                }
            }
        }
    }
}

impl NodeKernel for ChainKernel {
    fn scratch_bytes(&self) -> usize {
        Scratch::size::<f32>(PerThread::size(self.threads, self.slots * BLOCK))
    }

    fn run(&self, frame: &Frame<'_>) {
        let (mut results, mut rounded) = ([None; MAX_STEPS], [None; MAX_STEPS]);
        for step in &self.steps {
            match (step.to, step.rounds) {
                (_, Some(i)) => rounded[i] = Some(frame.target::<bf16>(i)),
                (Place::Result(i), None) => results[i] = Some(frame.target::<f32>(i)),
                _ => {}
            }
        }
        let len = frame.output_len(0);
        let job = Job { kernel: self, operands: frame.operands(), results, rounded };
        let floats = self.slots * BLOCK;
        let scratch = PerThread::take(&mut frame.scratch(), self.threads, floats);
        let pieces = chunks(len, CHUNK);
        frame.pool().run(pieces.count(), |task, worker| {
            // SAFETY: a worker has its own slots.
            let slots = unsafe { scratch.of(worker) };
            let piece = pieces.range(task);
            for start in piece.clone().step_by(BLOCK) {
                job.block(start..(start + BLOCK).min(piece.end), slots);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::op::{ActivationOp, Binary};

    #[test]
    fn stretched_axes_are_joined() {
        let axes = |operand: &[usize], result: &[usize]| {
            stretched(&Shape::from(operand), &Shape::from(result))
                .iter()
                .map(|a| (a.size, a.stride))
                .collect::<Vec<_>>()
        };
        assert_eq!(axes(&[2, 3], &[2, 3]), []);
        assert_eq!(axes(&[2, 1, 1, 5], &[2, 3, 4, 5]), [(2, 5), (12, 0), (5, 1)]);
        assert_eq!(axes(&[1, 1, 4], &[2, 3, 4]), [(6, 0), (4, 1)]);
        assert_eq!(axes(&[1, 1], &[3, 1]), [(3, 0)]);
        assert_eq!(axes(&[2, 3, 1], &[2, 3, 4]), [(6, 1), (4, 0)]);
    }

    #[test]
    fn operands_are_spread_from_any_element_on() {
        let axes = stretched(&Shape::from([2, 1, 3]), &Shape::from([2, 2, 3]));
        let mut to = [0.0; 7];
        spread(&axes, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 4..11, &mut to);
        assert_eq!(to, [2.0, 3.0, 4.0, 5.0, 6.0, 4.0, 5.0]);
        let (operand, result) = (Shape::from([2, 1, 3]), Shape::from([2, 5, 3]));
        let axes = stretched(&operand, &result);
        let whole: Vec<f32> = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]].iter().flat_map(|row| row.repeat(5)).collect();
        for (start, end) in (0..30).flat_map(|start| (start..=30).map(move |end| (start, end))) {
            let mut to = vec![0.0; end - start];
            spread(&axes, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], start..end, &mut to);
            assert_eq!(to, whole[start..end]);
        }
        let axes = stretched(&Shape::from([2, 3, 1]), &Shape::from([2, 3, 2]));
        let mut to = [0.0; 6];
        spread(&axes, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 5..11, &mut to);
        assert_eq!(to, [3.0, 4.0, 4.0, 5.0, 5.0, 6.0]);
    }

    #[test]
    fn slots_are_used_again() {
        let tanh = || ActivationOp { act: Activation::Tanh };
        let op = (0..6).fold(Fused::of(tanh().into(), 1), |op, i| op.then(tanh(), vec![Source::Step(i)]));
        let op = op.then(Binary { kind: BinaryKind::Add }, vec![Source::Step(6), Source::Operand(1)]);
        let shape = Shape::from([5, 4]);
        let kernel = ChainKernel::new(&op, &[&shape, &Shape::from([1, 4])], &shape, SimdLevel::Scalar, 1);
        assert_eq!(kernel.slots, 2);
    }
}
