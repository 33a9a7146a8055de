//! Launches of operations that only move elements: permute, concat, slice, pad.

use super::Context;
use super::layout::{Axis, PACK_BYTES, copy, dense_strides, over_rows, rows_arg};
use crate::backend::gpu::launch::{Kernel, Lowered, Memory, Module, Step};
use crate::graph::Shape;
use crate::graph::op::{Concat, Pad, Permute, Slice};

/// Side of the tiles of `transpose_*`, and the rows of its block's threads.
const TILE: usize = 32;
const TILE_LINES: u32 = 8;

/// Axes shorter than this are not worth a tile.
const SHORT: usize = 8;

/// Most adjacent elements, of `bytes` each, that can be moved as one vector if it must divide all of `counts`.
fn widest(bytes: usize, counts: impl IntoIterator<Item = usize>) -> usize {
    // A power of two, as the pack's size over the element's is.
    counts.into_iter().filter(|n| *n > 0).fold(PACK_BYTES / bytes, |most, n| most.min(1 << n.trailing_zeros()))
}

/// A kernel for elements of `bytes`.
fn kernel(name: &str, bytes: usize) -> Kernel {
    Kernel::new(Module::Shape, format!("{name}_b{}", 8 * bytes))
}

/// The axes of the permuted `x`, innermost first, with their strides in `x` and in the result.
fn permuted_axes(op: &Permute, x: &Shape) -> Vec<Axis<2>> {
    let dims: Vec<usize> = op.perm.iter().map(|p| x.dims()[*p]).collect();
    let (from, to) = (dense_strides(x.dims()), dense_strides(&dims));
    Axis::join((0..dims.len()).rev().map(|i| Axis { size: dims[i], strides: [from[op.perm[i]], to[i]] }))
}

/// Lowers the operation.
pub fn permute(cx: &Context, op: &Permute) -> Lowered {
    let bytes = cx.y_type(0).bytes();
    let axes = permuted_axes(op, cx.x(0));
    let (inner, outer) = axes.split_first().expect("there is an axis");
    if outer.is_empty() {
        return copy(cx);
    }
    // The innermost axis of the operand, if it is another than the result's.
    let other = outer.iter().position(|axis| axis.strides[0] == 1);
    if let Some(other) = other.filter(|i| inner.size.min(outer[*i].size) >= SHORT) {
        return Lowered::one(transpose(bytes, *inner, outer[other], &[&outer[..other], &outer[other + 1..]].concat()));
    }
    let step = inner.strides[0];
    let contiguous = std::iter::once(inner.size).chain(outer.iter().map(|axis| axis.strides[0]));
    let wide = if step == 1 { widest(bytes, contiguous) } else { 1 };
    let outer: Vec<Axis<1>> = outer.iter().map(|a| Axis { size: a.size, strides: [a.strides[0] / wide] }).collect();
    let (rows, columns) = (outer.iter().map(|a| a.size).product(), inner.size / wide);
    let kernel = over_rows(kernel("gather", bytes * wide), rows, columns);
    let kernel = kernel.arg(Memory::Input(0)).arg(Memory::Output(0)).arg(rows_arg(rows)).long(columns).long(step);
    Lowered::one(kernel.arg(Axis::table(&outer)).int(outer.len()))
}

/// A tiled transpose of `a`, the result's innermost axis, and `b`, the operand's.
fn transpose(bytes: usize, a: Axis<2>, b: Axis<2>, others: &[Axis<2>]) -> Kernel {
    let tiles = a.size.div_ceil(TILE) * b.size.div_ceil(TILE);
    let batch: usize = others.iter().map(|axis| axis.size).product();
    let kernel = kernel("transpose", bytes).grid(tiles * batch, 1, 1).block(TILE as u32, TILE_LINES);
    let kernel = kernel.arg(Memory::Input(0)).arg(Memory::Output(0)).long(a.size).long(a.strides[0]);
    kernel.long(b.size).long(b.strides[1]).arg(Axis::table(others)).int(others.len())
}

/// A matrix within longer rows: its offset in them, and their length (the leading dimension).
#[derive(Clone, Copy)]
struct Within {
    start: usize,
    row: usize,
}

/// A copy of a matrix `[rows, columns]` of elements of `bytes` from operand `i` to result 0.
fn copy_rows(bytes: usize, i: usize, [rows, columns]: [usize; 2], x: Within, y: Within) -> Kernel {
    let wide = widest(bytes, [columns, x.start, x.row, y.start, y.row]);
    let kernel = over_rows(kernel("copy_rows", bytes * wide), rows, columns / wide);
    let kernel = kernel.arg(Memory::Input(i)).arg(Memory::Output(0)).arg(rows_arg(rows)).long(columns / wide);
    kernel.long(x.start / wide).long(x.row / wide).long(y.start / wide).long(y.row / wide)
}

/// The number of positions before `axis`, and that of contiguous elements along it and all later axes.
fn matrix(shape: &Shape, axis: usize) -> [usize; 2] {
    let (before, after) = shape.dims().split_at(axis);
    [before.iter().product(), after.iter().product()]
}

/// Lowers the operation.
pub fn concat(cx: &Context, op: &Concat) -> Lowered {
    let [rows, total] = matrix(cx.y(0), op.axis);
    let mut lowered = Lowered::default();
    let mut start = 0;
    for i in 0..cx.node.inputs.len() {
        let columns = matrix(cx.x(i), op.axis)[1];
        let (x, y) = (Within { start: 0, row: columns }, Within { start, row: total });
        lowered.steps.push(copy_rows(cx.y_type(0).bytes(), i, [rows, columns], x, y).into());
        start += columns;
    }
    lowered
}

/// Lowers the operation.
pub fn slice(cx: &Context, op: &Slice) -> Lowered {
    let [rows, columns] = matrix(cx.y(0), op.axis);
    let row = matrix(cx.x(0), op.axis)[1];
    if columns == row {
        return copy(cx);
    }
    let x = Within { start: op.start * (columns / op.len), row };
    Lowered::one(copy_rows(cx.y_type(0).bytes(), 0, [rows, columns], x, Within { start: 0, row: columns }))
}

/// Lowers the operation.
pub fn pad(cx: &Context, op: &Pad) -> Lowered {
    let [rows, columns] = matrix(cx.x(0), op.axis);
    let row = matrix(cx.y(0), op.axis)[1];
    if columns == row {
        return copy(cx);
    }
    let [_, inner] = matrix(cx.x(0), op.axis + 1);
    let (x, y) = (Within { start: 0, row: columns }, Within { start: op.before * inner, row });
    let mut lowered = Lowered::one(Step::Zero { to: Memory::Output(0), bytes: cx.output(0).bytes() });
    lowered.steps.push(copy_rows(cx.y_type(0).bytes(), 0, [rows, columns], x, y).into());
    lowered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_as_wide_as_their_rows_allow() {
        assert_eq!(widest(4, [64, 128]), 4);
        assert_eq!(widest(4, [64, 6]), 2);
        assert_eq!(widest(2, [24, 0]), 8);
        assert_eq!(widest(1, [7, 16]), 1);
        assert_eq!(widest(8, [4]), 2);
    }

    #[test]
    fn axes_of_a_permutation() {
        let axes = |perm: &[usize], x: &[usize]| {
            let axes = permuted_axes(&Permute { perm: perm.to_vec() }, &Shape::from(x));
            axes.iter().map(|a| (a.size, a.strides)).collect::<Vec<_>>()
        };
        // Channels first: two axes change places in each image.
        assert_eq!(axes(&[0, 3, 1, 2], &[2, 3, 4, 5]), [(12, [5, 1]), (5, [1, 12]), (2, [60, 60])]);
        assert_eq!(axes(&[0, 1, 2], &[2, 3, 4]), [(24, [1, 1])]);
        assert_eq!(axes(&[1, 0, 2], &[2, 3, 4]), [(4, [1, 1]), (2, [12, 4]), (3, [4, 8])]);
    }
}
