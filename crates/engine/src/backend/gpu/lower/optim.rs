//! Launches of optimizers.

use super::Context;
use super::columns::aligned;
use crate::backend::gpu::formulas::{self, Constant};
use crate::backend::gpu::launch::{Arg, Cell, Kernel, Lowered, Memory, Module, Step};
use crate::graph::DType;
use crate::graph::op::{AccumulateLoss, Algorithm, Clipping, OptimizerStep, UpdateScale};

pub(super) const MODULE: Module = Module::Optim;

/// The kernels that look at whole tensors.
pub(super) const NORMS: Module = Module::OptimNorms;

/// Adafactor, AdamW without a schedule, clipping by the norms of units.
pub(super) const UNITS: Module = Module::OptimUnits;

/// Elements of a chunk, for few elements in all and for many. In the smaller chunk, each thread of a block has one 16-byte
/// access.
const CHUNKS: [usize; 2] = [1024, 4096];

/// From this number of elements on there are many.
const MANY: usize = 4 << 20;

/// Size of the kernels' `Now`.
pub(super) const NOW_BYTES: usize = 64;

/// Tensors divided into chunks, one for each block.
#[derive(Debug, PartialEq)]
pub(super) struct Cut {
    /// Elements of a chunk.
    chunk: usize,
    /// For every block, its tensor and the index of its chunk in that tensor.
    blocks: Vec<(usize, usize)>,
}

impl Cut {
    pub(super) fn new(lengths: impl Iterator<Item = usize> + Clone) -> Cut {
        let chunk = CHUNKS[usize::from(lengths.clone().sum::<usize>() >= MANY)];
        Cut::by(chunk, lengths)
    }

    /// By chunks of so many elements.
    pub(super) fn by(chunk: usize, lengths: impl Iterator<Item = usize>) -> Cut {
        let of_tensor = |(tensor, length): (usize, usize)| (0..length.div_ceil(chunk)).map(move |i| (tensor, i));
        Cut { chunk, blocks: lengths.enumerate().flat_map(of_tensor).collect() }
    }

    /// Elements of a chunk, and the number of blocks.
    pub(super) fn size(&self) -> [usize; 2] {
        [self.chunk, self.blocks.len()]
    }

    /// The first block of a tensor, and how many it has.
    pub(super) fn chunks_of(&self, tensor: usize) -> [usize; 2] {
        let first = self.blocks.partition_point(|(of, _)| *of < tensor);
        [first, self.blocks.partition_point(|(of, _)| *of <= tensor) - first]
    }

    /// A launch of `name` with a block for every chunk, whose first arguments follow `args`: the tensors, the chunks, and
    /// the size of a chunk.
    pub(super) fn launch(&self, name: &str, args: Vec<Arg>, tensors: Vec<Cell>) -> Kernel {
        self.launch_of(MODULE, name, args, tensors)
    }

    /// The same of a kernel in another module.
    pub(super) fn launch_of(&self, module: Module, name: &str, args: Vec<Arg>, tensors: Vec<Cell>) -> Kernel {
        let cells = |&(tensor, i): &(usize, usize)| [Cell::I64(tensor as i64), Cell::I64(i as i64)];
        let mut kernel = Kernel::new(module, name).grid(self.blocks.len(), 1, 1);
        kernel.args = args;
        kernel.arg(Arg::Table(tensors)).arg(Arg::Table(self.blocks.iter().flat_map(cells).collect())).int(self.chunk)
    }
}

/// The kernels' `Span` of operand `i`.
fn span(cx: &Context, i: usize) -> [Cell; 2] {
    [Memory::Input(i).into(), Cell::I64(cx.x(i).len() as i64)]
}

/// One launch.
pub fn accumulate(cx: &Context) -> Lowered {
    let n = cx.x(0).len();
    if cx.x_type(1) == DType::F64 {
        let kernel = Kernel::new(MODULE, "accumulate_f64").over(n);
        return Lowered::one(kernel.arg(Memory::Input(0)).arg(Memory::Input(1)).long(n));
    }
    let kernel =
        Kernel::new(MODULE, "accumulate_f32").over(n.div_ceil(4)).arg(Memory::Input(0)).arg(Memory::Input(1)).long(n);
    Lowered::one(kernel)
}

/// One launch of one thread.
pub fn accumulate_loss(op: &AccumulateLoss) -> Lowered {
    let kernel = Kernel::new(MODULE, "accumulate_loss").block(32, 1).arg(Memory::Input(0)).arg(Memory::Input(1));
    let kernel = kernel.float(op.full).arg(Memory::Input(2)).arg(Memory::Output(0)).arg(Memory::Output(1));
    Lowered::one(kernel)
}

/// One launch of one thread.
pub fn mean_scale() -> Lowered {
    let kernel = Kernel::new(MODULE, "mean_scale").block(32, 1);
    Lowered::one(kernel.arg(Memory::Input(0)).arg(Memory::Input(1)).arg(Memory::Output(0)))
}

/// One launch for all floats.
pub fn zero(cx: &Context) -> Lowered {
    let (floats, others): (Vec<usize>, Vec<usize>) =
        (0..cx.node.inputs.len()).partition(|i| cx.x_type(*i) == DType::F32);
    let bytes = |i: usize| cx.x(i).len() * cx.x_type(i).bytes();
    let mut steps: Vec<Step> =
        others.into_iter().map(|i| Step::Zero { to: Memory::Input(i), bytes: bytes(i) }).collect();
    if !floats.is_empty() {
        let cut = Cut::new(floats.iter().map(|i| cx.x(*i).len()));
        let tensors = floats.iter().flat_map(|i| span(cx, *i)).collect();
        steps.push(cut.launch("zero_f32", Vec::new(), tensors).into());
    }
    Lowered { steps, scratch_bytes: 0 }
}

/// The launch of the norm from so many sums of squares.
pub(super) fn norm(squares: Memory, n: usize) -> Kernel {
    let kernel = Kernel::new(MODULE, "grad_norm").block(1024, 1).arg(squares).long(n);
    kernel.arg(Memory::Input(0)).arg(Memory::Output(0))
}

/// One launch for the sum of squares of each chunk, and one for the norm.
pub fn grad_norm(cx: &Context) -> Lowered {
    let grads = 1..cx.node.inputs.len();
    let partials = Memory::Scratch(0);
    let cut = Cut::new(grads.clone().map(|i| cx.x(i).len()));
    let blocks = cut.blocks.len();
    let norm = norm(partials, blocks);
    let mut steps = Vec::new();
    if blocks > 0 {
        let squares = cut.launch("grad_squares_f32", Vec::new(), grads.flat_map(|i| span(cx, i)).collect());
        steps.push(squares.arg(partials).into());
    }
    steps.push(norm.into());
    Lowered { steps, scratch_bytes: blocks * size_of::<f64>() }
}

/// The kernels' `Tensor` of tensor `t`.
fn tensor(cx: &Context, op: &OptimizerStep, t: usize) -> [Cell; 8] {
    let at = op.head() + t * op.stride();
    let mut operands = at + 2..;
    let state = op.algorithm.state().map(|name| match name.and_then(|_| operands.next()) {
        Some(i) => Memory::Input(i).into(),
        None => Cell::Null,
    });
    let (options, part) = (op.tensors[t], op.part(t, cx.x(at).len()));
    let from = |operand: usize| match part.start {
        0 => Memory::Input(operand),
        start => Memory::InputFrom(operand, start * size_of::<f32>()),
    };
    [
        from(at).into(),
        from(at + 1).into(),
        state[0],
        state[1],
        state[2],
        Cell::I64(part.len as i64),
        Cell::F64(f64::from(options.lr_scale)),
        Cell::F64(f64::from(options.weight_decay)),
    ]
}

/// A launch of one thread that works out what an update needs of its step, at the start of the scratch memory. The rule and
/// the counter of steps are for what depends on their number.
pub(super) fn begin(clipping: &Clipping, algorithm: Option<&Algorithm>, counter: Arg) -> Kernel {
    let [beta1, beta2] = algorithm.map_or([0.0; 2], Algorithm::corrected);
    Kernel::new(MODULE, "optimizer_begin")
        .block(32, 1)
        .arg(Memory::Input(0))
        .arg(Memory::Input(1))
        .arg(if clipping.has_norm() { Memory::Input(2).into() } else { Arg::Null })
        .float(clipping.clip_norm.unwrap_or(f32::INFINITY))
        .arg(if clipping.scaled { Memory::Input(3).into() } else { Arg::Null })
        .float(clipping.clip_value.unwrap_or(f32::INFINITY))
        .arg(Arg::F64(beta1))
        .arg(Arg::F64(beta2))
        // No decay is below 0: there is none.
        .arg(Arg::F64(algorithm.and_then(Algorithm::momentum_decay).unwrap_or(-1.0)))
        .arg(counter)
        .arg(Memory::Scratch(0))
}

/// A launch of one thread that increments the step count and computes what depends on it, and a launch that updates all
/// tensors; before that, with rules that look at the norms of tensors, one that sums squares and one that makes ratios of them.
pub fn step(cx: &Context, op: &OptimizerStep) -> Lowered {
    let now = Memory::Scratch(0);
    let begin = begin(&op.clipping(), Some(&op.algorithm), Memory::Input(op.head() - 1).into());
    let mut steps = vec![Step::Kernel(begin)];
    if let Algorithm::ScheduleFreeAdamW { steps: rule, .. } = op.algorithm {
        let constants = [rule.warmup_steps as f64, rule.r, rule.lr_power, rule.offset()];
        let kernel = Kernel::new(UNITS, "schedule_free_begin").block(32, 1).arg(now);
        steps.push(constants.into_iter().fold(kernel, |kernel, x| kernel.arg(Arg::F64(x))).into());
    }

    let tensors = 0..op.tensors.len();
    let length = |t: usize| cx.x(op.head() + t * op.stride()).len();
    let cut = Cut::new(tensors.clone().map(|t| op.part(t, length(t)).len));
    if cut.blocks.is_empty() {
        return Lowered { steps, scratch_bytes: aligned(NOW_BYTES) };
    }
    let list: Vec<Cell> = tensors.clone().flat_map(|t| tensor(cx, op, t)).collect();
    let (name, constants) = formulas::update(&op.algorithm);
    let module = match op.algorithm {
        Algorithm::ScheduleFreeAdamW { .. } => UNITS,
        _ if op.algorithm.trust().is_some() => NORMS,
        _ => MODULE,
    };
    let launch = |name: String| {
        let kernel = cut.launch_of(module, &name, vec![now.into()], list.clone());
        constants.iter().fold(kernel, |kernel, constant| match *constant {
            Constant::Single(x) => kernel.float(x),
            Constant::Double(x) => kernel.arg(Arg::F64(x)),
            Constant::Flag(x) => kernel.int(usize::from(x)),
        })
    };
    let Some(trust) = op.algorithm.trust() else {
        steps.push(launch(format!("{name}_f32")).into());
        return Lowered { steps, scratch_bytes: aligned(NOW_BYTES) };
    };
    // Two sums for each chunk, then a ratio for each tensor.
    let sums = aligned(2 * cut.blocks.len() * size_of::<f64>());
    let (partials, ratios) = (Memory::Scratch(aligned(NOW_BYTES)), Memory::Scratch(aligned(NOW_BYTES) + sums));
    let chunks = tensors.clone().flat_map(|t| cut.chunks_of(t).map(|n| Cell::I64(n as i64))).collect();
    let ratio = Kernel::new(NORMS, "trust_ratios").grid(op.tensors.len(), 1, 1).arg(now).arg(Arg::Table(list.clone()));
    let ratio =
        ratio.arg(Arg::Table(chunks)).arg(partials).float(trust.coefficient).float(trust.decay).float(trust.eps);
    steps.push(launch(format!("{name}_squares_f32")).arg(partials).into());
    steps.push(ratio.int(usize::from(trust.always_adapt)).arg(ratios).into());
    steps.push(launch(format!("{name}_f32")).arg(ratios).into());
    let scratch_bytes = aligned(NOW_BYTES) + sums + aligned(op.tensors.len() * size_of::<f32>());
    Lowered { steps, scratch_bytes }
}

/// One launch of one thread.
pub fn update_scale(op: &UpdateScale) -> Lowered {
    let kernel = Kernel::new(MODULE, "update_scale")
        .block(32, 1)
        .arg(Memory::Input(0))
        .float(op.growth)
        .float(op.backoff)
        .int(op.interval as usize)
        .arg(Memory::Input(1))
        .arg(Memory::Input(2))
        .arg(Memory::Input(3));
    Lowered::one(kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_each_tensor_once() {
        let lengths = [3, 1024, 1025, 1, 5000];
        let cut = Cut::new(lengths.into_iter());
        assert_eq!(cut.chunk, 1024);
        assert_eq!(cut.blocks, [(0, 0), (1, 0), (2, 0), (2, 1), (3, 0), (4, 0), (4, 1), (4, 2), (4, 3), (4, 4)]);
    }

    #[test]
    fn many_elements_have_larger_chunks() {
        let cut = Cut::new([MANY, 1].into_iter());
        assert_eq!((cut.chunk, cut.blocks.len()), (4096, MANY / 4096 + 1));
    }

    #[test]
    fn chunks_are_whole_vectors() {
        assert!(CHUNKS.iter().all(|c| c.is_multiple_of(4)));
    }
}
