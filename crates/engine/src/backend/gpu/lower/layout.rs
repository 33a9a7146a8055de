//! Memory layout: axes that can be merged, and vectorized access.

use super::Context;
use crate::backend::gpu::launch::{Arg, BLOCK, Cell, Kernel, Lowered, Memory, Step, suffix};
use crate::graph::DType;

/// Most bytes that a thread loads or stores at once.
pub(super) const PACK_BYTES: usize = 16;

/// Most blocks that a grid can have in y.
const MOST_Y: usize = 65535;

/// Elements that a thread loads or stores at once: `PACK` in `kernels/cuda/common.cuh`.
pub(super) fn pack(dtype: DType) -> usize {
    PACK_BYTES / dtype.bytes()
}

/// The suffix of a kernel whose operands `inputs` and first result have one type.
///
/// # Panics
/// They have several, which the graph's rules exclude.
pub(super) fn common_suffix(cx: &Context, inputs: &[usize]) -> &'static str {
    let dtype = cx.y_type(0);
    for &i in inputs {
        let name = cx.node.op.rules().name();
        assert_eq!(cx.x_type(i), dtype, "operand {i} of `{name}` has the type of its result");
    }
    suffix(dtype)
}

/// Copies all elements of operand 0 to result 0.
pub(super) fn copy(cx: &Context) -> Lowered {
    Lowered::one(Step::Copy { from: Memory::Input(0), to: Memory::Output(0), bytes: cx.output(0).bytes() })
}

/// An axis of `K` arrays, with its stride in each of them: 0 where the array is broadcast along it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Axis<const K: usize> {
    /// Number of positions.
    pub size: usize,
    /// Elements from one position to the next.
    pub strides: [usize; K],
}

impl<const K: usize> Axis<K> {
    /// Merges adjacent axes that are contiguous in all arrays, and drops axes of one position. At least one axis is left.
    /// Axes are innermost first, before and after.
    pub fn join(axes: impl IntoIterator<Item = Axis<K>>) -> Vec<Axis<K>> {
        let mut joined: Vec<Axis<K>> = Vec::new();
        for axis in axes.into_iter().filter(|a| a.size != 1) {
            match joined.last_mut() {
                Some(inner) if (0..K).all(|k| axis.strides[k] == inner.size * inner.strides[k]) => {
                    inner.size *= axis.size;
                }
                _ => joined.push(axis),
            }
        }
        if joined.is_empty() {
            joined.push(Axis { size: 1, strides: [0; K] });
        }
        joined
    }

    /// The axes as kernels take them: sizes and strides, axis by axis.
    pub fn table(axes: &[Axis<K>]) -> Arg {
        let cells = axes.iter().flat_map(|a| std::iter::once(a.size).chain(a.strides));
        Arg::Table(cells.map(|n| Cell::I64(n as i64)).collect())
    }
}

/// Strides of a dense array, outermost first.
pub(super) fn dense_strides(dims: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; dims.len()];
    for i in (1..dims.len()).rev() {
        strides[i - 1] = strides[i] * dims[i];
    }
    strides
}

/// A launch over a matrix: threads of a block side by side along a row, as many rows to a block as fill it. The kernel
/// strides along rows that the grid does not cover.
pub(super) fn over_rows(kernel: Kernel, rows: usize, columns: usize) -> Kernel {
    let x = columns.next_power_of_two().min(BLOCK as usize);
    let y = BLOCK as usize / x;
    kernel.grid(rows.div_ceil(y), columns.div_ceil(x).min(MOST_Y), 1).block(x as u32, y as u32)
}

/// A count of rows, which the grid's limits keep below 2³².
pub(super) fn rows_arg(rows: usize) -> Arg {
    Arg::U32(u32::try_from(rows).expect("the rows of a launch fit 32 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::gpu::launch::Module;

    #[test]
    fn axes_that_move_together_are_joined() {
        let axis = |size, strides| Axis { size, strides };
        // [2, 1, 1, 5] on [2, 3, 4, 5].
        let axes = [axis(5, [1, 1]), axis(4, [0, 5]), axis(3, [0, 20]), axis(2, [5, 60])];
        assert_eq!(Axis::join(axes), [axis(5, [1, 1]), axis(12, [0, 5]), axis(2, [5, 60])]);
        assert_eq!(Axis::join([axis(4, [1, 1]), axis(1, [0, 0]), axis(3, [4, 4])]), [axis(12, [1, 1])]);
        assert_eq!(Axis::join([axis(1, [0, 0])]), [axis(1, [0, 0])]);
    }

    #[test]
    fn a_grid_over_rows_covers_them() {
        for (rows, columns) in [(1, 1), (7, 3), (1000, 33), (5, 256), (3, 1000), (1, 1 << 33)] {
            let k = over_rows(Kernel::new(Module::Shape, "k"), rows, columns);
            let [x, y, _] = k.block.map(|n| n as usize);
            assert_eq!(x * y, BLOCK as usize);
            assert!(k.grid[0] as usize * y >= rows && (k.grid[0] as usize - 1) * y < rows, "{rows} {columns}");
            let across = k.grid[1] as usize * x;
            assert!(across >= columns || k.grid[1] as usize == MOST_Y, "{rows} {columns}");
        }
    }
}
