//! Launches of Adafactor, and of the clipping of gradients by the norms of their units.

use super::Context;
use super::columns::aligned;
use super::optim::{Cut, NOW_BYTES, UNITS, begin};
use crate::backend::gpu::launch::{Arg, Cell, Kernel, Lowered, Memory, Step};
use crate::graph::op::{AdaptiveClip, Algorithm, Matrices, Moments, OptimizerStep};

/// Lines from which on a block makes 32 sums over them.
const MANY_LINES: usize = 16;

/// Sums of `terms` numbers that lie `inner` apart, which a block makes: as in the kernels.
fn per_block(terms: usize, inner: usize) -> usize {
    if inner < 32 && terms > 1 { 64 } else { 256 }
}

/// A launch of `name` with blocks that each make so many of the results of a tensor: `of` says how many results it has, and how many a
/// block makes. `None` without results.
fn launch(name: &str, tensors: &[Cell], of: impl Iterator<Item = [usize; 2]>) -> Option<Kernel> {
    let blocks: Vec<[usize; 2]> = of
        .enumerate()
        .flat_map(|(tensor, [results, each])| (0..results.div_ceil(each)).map(move |number| [tensor, number]))
        .collect();
    let table = blocks.iter().flatten().map(|n| Cell::I64(*n as i64)).collect();
    let kernel = Kernel::new(UNITS, name).grid(blocks.len().max(1), 1, 1).arg(Memory::Scratch(0));
    (!blocks.is_empty()).then(|| kernel.arg(Arg::Table(tensors.to_vec())).arg(Arg::Table(table)))
}

/// A launch of one thread, those that take the gradients into the means of their squares, one that sums the squares of parameters and
/// steps, one that makes rates of these, and one that updates.
pub fn step(cx: &Context, op: &OptimizerStep) -> Lowered {
    let Algorithm::Adafactor { beta2_decay, eps: [eps, least], d, moments } = op.algorithm else {
        unreachable!("the caller has looked")
    };
    let begin = begin(&op.clipping(), Some(&op.algorithm), Memory::Input(op.head() - 1).into());
    let mut steps = vec![Step::Kernel(begin)];
    let at = |t: usize| op.head() + t * op.stride();
    let all = 0..op.tensors.len();
    let cut = Cut::new(all.clone().map(|t| cx.x(at(t)).len()));
    let [chunk, blocks] = cut.size();
    let mut scratch = aligned(NOW_BYTES);
    if blocks == 0 {
        return Lowered { steps, scratch_bytes: scratch };
    }
    let factored = moments == Moments::Factored;
    let matrices: Vec<Matrices> = all
        .clone()
        .map(|t| op.matrices(t, |i| cx.x(i)).unwrap_or_else(|| Matrices::elements(cx.x(at(t)).len())))
        .collect();
    let mut tensors = Vec::new();
    for (t, of) in matrices.iter().enumerate() {
        let Matrices { outer, first, second, inner, by_rows } = *of;
        let [over_second, over_first] = if by_rows { [2, 3] } else { [3, 2] };
        let operand = |i: usize| Cell::from(Memory::Input(at(t) + i));
        let other = if factored { [operand(over_first), Memory::Scratch(scratch).into()] } else { [Cell::Null; 2] };
        scratch += if factored { aligned(outer * inner * size_of::<f32>()) } else { 0 };
        tensors.extend([operand(0), operand(1), operand(over_second)]);
        tensors.extend(other);
        tensors.extend([outer, first, second, inner, usize::from(by_rows)].map(|n| Cell::I64(n as i64)));
        let options = op.tensors[t];
        tensors.extend([options.lr_scale, options.weight_decay].map(|x| Cell::F64(f64::from(x))));
        tensors.push(Cell::I64(of.len() as i64));
    }
    let of_first = |of: &Matrices| [of.outer * of.first * of.inner, per_block(of.second, of.inner)];
    let of_other = |of: &Matrices| [of.outer * of.second * of.inner, if of.first >= MANY_LINES { 32 } else { 256 }];
    let of_scales = |of: &Matrices| [of.outer * of.inner, per_block(of.rows(), of.inner)];
    let moments_kernels = [
        launch("adafactor_first_f32", &tensors, matrices.iter().map(of_first)).map(|k| k.arg(Arg::F64(beta2_decay))),
        launch("adafactor_second_f32", &tensors, matrices.iter().map(of_other))
            .map(|k| k.arg(Arg::F64(beta2_decay)))
            .filter(|_| factored),
        launch("adafactor_scales_f32", &tensors, matrices.iter().map(of_scales))
            .map(|k| k.float(eps))
            .filter(|_| factored),
    ];
    steps.extend(moments_kernels.into_iter().flatten().map(Step::Kernel));

    let partials = Memory::Scratch(scratch);
    scratch += aligned(2 * blocks * size_of::<f64>());
    let rates = Memory::Scratch(scratch);
    scratch += aligned(2 * matrices.len() * size_of::<f32>());
    let points = usize::from(moments == Moments::Points);
    let over = |name: &str| cut.launch_of(UNITS, name, vec![Memory::Scratch(0).into()], tensors.clone());
    steps.push(over("adafactor_squares_f32").float(eps).int(points).arg(partials).into());
    let chunks = all.flat_map(|t| cut.chunks_of(t).map(|n| Cell::I64(n as i64))).collect();
    let of_tensors = Kernel::new(UNITS, "adafactor_rates_f32").grid(matrices.len(), 1, 1).arg(Memory::Scratch(0));
    let of_tensors = of_tensors.arg(Arg::Table(tensors.clone())).arg(Arg::Table(chunks)).arg(partials);
    steps.push(of_tensors.float(least).float(d).arg(rates).into());
    steps.push(over("adafactor_f32").float(eps).int(points).arg(rates).into());
    debug_assert_eq!((tensors.len(), chunk % 4), (13 * matrices.len(), 0));
    Lowered { steps, scratch_bytes: scratch }
}

/// One launch, with a block for each unit.
pub fn clip(cx: &Context, op: &AdaptiveClip) -> Lowered {
    let [before, units, after] = op.units;
    let gradient = op.gradient();
    debug_assert_eq!(before * units * after, cx.x(gradient).len());
    let kernel = Kernel::new(UNITS, "adaptive_clip_f32").grid(units.max(1), 1, 1).arg(Memory::Input(0));
    let kernel = kernel.arg(if op.scaled { Memory::Input(1).into() } else { Arg::Null });
    let kernel = kernel.arg(Memory::Input(gradient)).arg(Memory::Input(gradient + 1)).arg(Memory::Output(0));
    Lowered::one(kernel.long(before).long(units).long(after).float(op.factor).float(op.eps))
}
