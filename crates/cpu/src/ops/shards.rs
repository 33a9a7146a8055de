//! Sums over the shards of a step. They are bound by memory, and plain loops over pieces in the cache are as fast as that.

use crate::collective::{Division, Number, Reduce, Slots};
use crate::graph::DType;
use crate::graph::op::{MAX_SHARD_SLOTS, Receivers, ShardGather, ShardReduce, ShardSum};
use crate::run::frame::{Element, Frame, NodeKernel, View};
use crate::run::threads::chunks;
use crate::shards::Partial;
use std::ops::Range;

/// Elements that are summed at a time: few enough for the first cache.
const PIECE: usize = 1024;

/// Elements of a task.
const CHUNK: usize = 16 * PIECE;

/// [`ShardSum`].
pub struct ShardSumKernel {
    op: ShardSum,
    tensors: usize,
}

impl ShardSumKernel {
    /// For a node of so many operands.
    pub fn new(op: &ShardSum, operands: usize) -> Self {
        ShardSumKernel { op: *op, tensors: (operands - 1) / op.stride() }
    }

    fn tensor<T: Element + Number>(&self, frame: &Frame<'_>, first: usize, (slot, merged): (usize, usize)) {
        let (value, to) = (frame.source::<T>(first), frame.source::<T>(first + 1 + slot));
        let mut sums = [to; MAX_SHARD_SLOTS];
        let sums = &mut sums[..merged];
        sums.iter_mut().enumerate().for_each(|(i, sum)| *sum = frame.source::<T>(first + 1 + slot + i));
        let sums = &*sums;
        let pieces = chunks(value.len(), CHUNK);
        frame.pool().run(pieces.count(), |task, _| {
            let of_task = pieces.range(task);
            for start in of_task.clone().step_by(PIECE) {
                let at = start..of_task.end.min(start + PIECE);
                let mut total = [T::default(); PIECE];
                let total = &mut total[..at.len()];
                total.copy_from_slice(piece(value, at.clone()));
                for sum in sums.iter().rev() {
                    let sum = piece(*sum, at.clone());
                    total.iter_mut().zip(sum).for_each(|(total, sum)| *total = sum.plus(*total));
                }
                // SAFETY: each task has a range of its own, and what was read of it is read no more.
                unsafe { to.part(at) }.copy_from_slice(total);
            }
        });
    }
}

/// Elements to read.
fn piece<T: Element>(of: View<'_, T>, at: Range<usize>) -> &'_ [T] {
    let len = at.len();
    // SAFETY: inside the operand; the task that has this range writes it later, and no other task does.
    unsafe { std::slice::from_raw_parts(of.range(at).cast_const(), len) }
}

impl NodeKernel for ShardSumKernel {
    fn run(&self, frame: &Frame<'_>) {
        let place = frame.input::<i32>(0);
        let place = self.op.bounded([i64::from(place[0]), i64::from(place[1])]);
        for tensor in 0..self.tensors {
            let first = 1 + tensor * self.op.stride();
            match frame.input_dtype(first) {
                DType::F64 => self.tensor::<f64>(frame, first, place),
                DType::I64 => self.tensor::<i64>(frame, first, place),
                _ => self.tensor::<f32>(frame, first, place),
            }
        }
    }
}

/// The memory of operands of one type and length.
fn slots(frame: &Frame<'_>, operands: Range<usize>) -> Slots {
    fn of<T: Element>(frame: &Frame<'_>, operands: Range<usize>, dtype: DType) -> Slots {
        let len = frame.source::<T>(operands.start).len();
        Slots { dtype, len, slots: operands.map(|i| frame.source::<T>(i).range(0..0).cast::<u8>()).collect() }
    }
    match frame.input_dtype(operands.start) {
        DType::F64 => of::<f64>(frame, operands, DType::F64),
        DType::I64 => of::<i64>(frame, operands, DType::I64),
        dtype => of::<f32>(frame, operands, dtype),
    }
}

/// The sums of all tensors, and the order in which those of all ranks are added.
fn partials(frame: &Frame<'_>, op: &ShardReduce, operands: usize) -> (Vec<Partial>, Vec<Slots>) {
    let present = usize::try_from(frame.input::<i32>(0)[2]).unwrap_or(0);
    let tensors = (1..operands).step_by(op.slots).map(|first| slots(frame, first..first + op.slots)).collect();
    (op.shards.total(present), tensors)
}

/// How the tensors are divided, if not all ranks receive all.
fn division(op: &ShardReduce) -> Option<Division<'_>> {
    match &op.to {
        Receivers::All => None,
        Receivers::Parts => Some(Division::Elements),
        Receivers::Owners(owners) => Some(Division::Tensors(owners)),
    }
}

/// [`ShardReduce`].
pub struct ShardReduceKernel {
    /// The operation.
    pub op: ShardReduce,
    /// Number of operands.
    pub operands: usize,
}

impl NodeKernel for ShardReduceKernel {
    fn run(&self, frame: &Frame<'_>) {
        let Some(ahead) = frame.ahead() else { return };
        if self.op.bucket.is_some_and(|bucket| ahead.end(bucket)) {
            return;
        }
        let (order, tensors) = partials(frame, &self.op, self.operands);
        // A failure is asked for when the program has run: nothing uses the results then.
        // SAFETY: the slots are variables of this program, which nothing else touches while it runs.
        let _ = unsafe {
            match division(&self.op) {
                None => ahead.team().sum(&order, &tensors),
                Some(division) => ahead.team().reduce_scatter(&order, &tensors, division),
            }
        };
    }
}

/// [`crate::graph::op::ShardBegin`].
pub struct ShardBeginKernel {
    /// What is begun.
    pub op: ShardReduce,
    /// Number of operands.
    pub operands: usize,
}

impl NodeKernel for ShardBeginKernel {
    fn run(&self, frame: &Frame<'_>) {
        let is_last = frame.input::<i32>(0)[3] == 1;
        let (Some(ahead), Some(bucket), true) = (frame.ahead(), self.op.bucket, is_last) else { return };
        let owners = if let Receivers::Owners(owners) = &self.op.to { Some(owners.clone()) } else { None };
        let (order, tensors) = partials(frame, &self.op, self.operands);
        // SAFETY: the slots are variables, whose memory lives longer than `ahead`. The step's program has made its sums in them, and no
        // program uses them before the one that ends this, as the operation demands.
        unsafe { ahead.begin(Reduce { bucket, order, tensors, owners }) };
    }
}

/// [`ShardGather`].
pub struct ShardGatherKernel {
    /// The operation.
    pub op: ShardGather,
    /// Number of operands.
    pub operands: usize,
}

impl NodeKernel for ShardGatherKernel {
    fn run(&self, frame: &Frame<'_>) {
        let Some(ahead) = frame.ahead() else { return };
        let mut parts = self.op.parts.iter();
        let (mut tensors, mut owners) = (Vec::new(), Vec::new());
        for operand in 0..self.operands {
            let Slots { dtype, len, slots } = slots(frame, operand..operand + 1);
            let mut start = 0;
            while start < len
                && let Some((length, owner)) = parts.next()
            {
                // SAFETY: inside the operand, which the parts fill.
                let at = unsafe { slots[0].add(start * dtype.bytes()) };
                tensors.push(Slots { dtype, len: *length, slots: vec![at] });
                owners.push(*owner);
                start += length;
            }
        }
        // SAFETY: as for the sums.
        let _ = unsafe { ahead.team().all_gather(&tensors, Division::Tensors(&owners)) };
    }
}

/// [`crate::graph::op::ShardMean`].
pub struct ShardMeanKernel {
    /// Number of operands.
    pub operands: usize,
}

impl ShardMeanKernel {
    fn variable<T: Element>(frame: &Frame<'_>, at: usize, mean: impl Fn(T) -> T) {
        let (variable, sum) = (frame.source::<T>(at), frame.source::<T>(at + 1));
        // SAFETY: the whole of a variable that nothing else reads or writes meanwhile.
        let to = unsafe { variable.part(0..variable.len()) };
        to.iter_mut().zip(piece(sum, 0..sum.len())).for_each(|(to, sum)| *to = mean(*sum));
    }
}

impl NodeKernel for ShardMeanKernel {
    fn run(&self, frame: &Frame<'_>) {
        if !frame.input::<f32>(0)[0].is_finite() {
            return;
        }
        let shards = frame.input::<i32>(1)[2].max(1);
        for at in (2..self.operands).step_by(2) {
            match frame.input_dtype(at) {
                DType::I64 => Self::variable(frame, at, |sum: i64| sum / i64::from(shards)),
                _ => Self::variable(frame, at, |sum: f32| sum / shards as f32),
            }
        }
    }
}

/// [`crate::graph::op::MeanLoss`].
pub struct MeanLossKernel {}

impl NodeKernel for MeanLossKernel {
    fn run(&self, frame: &Frame<'_>) {
        let sums = frame.input::<f64>(0);
        frame.output::<f32>(0)[0] = if sums[1] > 0.0 { (sums[0] / sums[1]) as f32 } else { sums[0] as f32 };
    }
}
