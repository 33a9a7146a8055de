//! Launches of rows of a table, and of the sums that are its gradient.

use super::Context;
use super::layout::{over_rows, pack, rows_arg};
use crate::backend::gpu::launch::{Arg, Kernel, Lowered, Memory, Module, Step};
use crate::graph::DType;
use crate::graph::op::EmbeddingGrad;

const MODULE: Module = Module::Embedding;

/// Ids of a block that sorts, and values of a digit: `TILE` and `DIGITS` in `kernels/cuda/embedding.cu`.
const TILE: usize = 256;
const DIGITS: usize = 256;

/// Ids of a block that adds up: `RUN` there.
const RUN: usize = 32;

/// Columns of a thread, and how the kernel's name ends.
fn columns(width: usize) -> (usize, &'static str) {
    let pack = pack(DType::F32);
    if width.is_multiple_of(pack) { (pack, "packs_f32") } else { (1, "f32") }
}

/// A launch of the kernel `name` over so many rows of `width` columns.
fn over(name: &str, rows: usize, width: usize) -> Kernel {
    let (each, suffix) = columns(width);
    over_rows(Kernel::new(MODULE, format!("{name}_{suffix}")), rows, width / each)
}

/// Lowers the operation.
pub fn embedding(cx: &Context) -> Lowered {
    let (count, rows, width) = (cx.x(1).len(), cx.x(0).rows(), cx.x(0).last());
    let kernel = over("embedding", count, width).arg(Memory::Input(0)).arg(Memory::Input(1)).arg(Memory::Output(0));
    Lowered::one(kernel.arg(rows_arg(count)).int(rows).int(width))
}

/// Pieces of the workspace, one after the other.
struct Scratch(usize);

impl Scratch {
    fn take(&mut self, bytes: usize) -> Memory {
        let at = self.0;
        self.0 += bytes.next_multiple_of(256);
        Memory::Scratch(at)
    }
}

/// Zeros, the sort, digit by digit, and the sums.
pub fn grad(cx: &Context, op: &EmbeddingGrad) -> Lowered {
    let (count, rows, width) = (cx.x(1).len(), op.rows, cx.x(0).last());
    let (tiles, blocks) = (count.div_ceil(TILE), count.div_ceil(RUN));
    let mut scratch = Scratch(0);
    let word = size_of::<u32>();
    let lists = [(); 2].map(|()| [(); 2].map(|()| scratch.take(count * word)));
    let counts = scratch.take(DIGITS * tiles * word);
    let partial = scratch.take(2 * blocks * width * word);
    let (dy, dw) = (Memory::Input(0), Memory::Output(0));
    let mut steps = vec![Step::Zero { to: dw, bytes: cx.output(0).bytes() }];
    // An id without a gradient is sorted by the number of rows. No id is below 0.
    let padding = op.padding.and_then(|row| i32::try_from(row).ok()).unwrap_or(-1);
    let bits = usize::BITS - rows.leading_zeros();
    let (mut ids, mut places) = (Memory::Input(1), Arg::Null);
    for (digit, [new_ids, new_places]) in (0..bits.div_ceil(8)).zip(lists.into_iter().cycle()) {
        let sized =
            |kernel: Kernel| kernel.arg(rows_arg(count)).int(rows).arg(Arg::I32(padding)).int(8 * digit as usize);
        let count_them = Kernel::new(MODULE, "embedding_counts").grid(tiles, 1, 1).arg(ids).arg(counts);
        steps.push(sized(count_them).into());
        let add_up = Kernel::new(MODULE, "embedding_offsets").block(1024, 1).arg(counts);
        steps.push(add_up.arg(rows_arg(DIGITS * tiles)).into());
        let move_them = Kernel::new(MODULE, "embedding_places").grid(tiles, 1, 1).arg(ids).arg(places).arg(counts);
        steps.push(sized(move_them.arg(new_ids).arg(new_places)).into());
        (ids, places) = (new_ids, new_places.into());
    }
    let sums = over("embedding_grad", blocks, width).arg(dy).arg(ids).arg(places).arg(dw).arg(partial);
    steps.push(sums.arg(rows_arg(count)).int(rows).int(width).into());
    if blocks > 1 {
        let ends = over("embedding_grad_ends", blocks, width).arg(ids).arg(partial).arg(dw);
        steps.push(ends.arg(rows_arg(count)).int(rows).int(width).into());
    }
    Lowered { steps, scratch_bytes: scratch.0 }
}
