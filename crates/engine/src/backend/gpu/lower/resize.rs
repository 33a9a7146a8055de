//! Launches that give images another size.

use super::Context;
use super::layout::{common_suffix, rows_arg};
use super::pool::{cell, channels_per_thread, images, over_images, sizes};
use crate::backend::gpu::launch::{Arg, Kernel, Lowered, Memory, Module};
use crate::graph::op::{Resize2d, Resize2dGrad, Taps, readers};

/// `Taps` of the kernel.
fn table(taps: &[Taps]) -> Arg {
    let cells = taps
        .iter()
        .flat_map(|Taps { at, weight }| [cell(at.map(|i| i as i32)), cell(weight.map(|w| w.to_bits().cast_signed()))]);
    Arg::Table(cells.collect())
}

/// `Range`s of the kernel.
fn ranges(taps: &[Taps], input: usize) -> Arg {
    let range =
        |r: Option<std::ops::RangeInclusive<usize>>| r.map_or([0, -1], |r| [*r.start() as i32, *r.end() as i32]);
    Arg::Table(readers(taps, input).into_iter().map(|r| cell(range(r))).collect())
}

/// Lowers the operation.
pub fn resize(cx: &Context, op: &Resize2d) -> Lowered {
    let (x, y) = (images(cx.x(0)), images(cx.y(0)));
    let (width, packs) = channels_per_thread(cx.y_type(0), x[3]);
    let name = format!("resize_{packs}{}", common_suffix(cx, &[0]));
    let kernel = over_images(Kernel::new(Module::Resize, name), y, width);
    let kernel = kernel.arg(Memory::Input(0)).arg(Memory::Output(0));
    let kernel = kernel.arg(table(&op.taps(0, x[1]))).arg(table(&op.taps(1, x[2]))).arg(rows_arg(y[0] * y[1]));
    Lowered::one(sizes(kernel, x, y))
}

/// Lowers the operation.
pub fn grad(cx: &Context, op: &Resize2dGrad) -> Lowered {
    let (dy, dx) = (images(cx.x(0)), images(cx.y(0)));
    let (rows, columns) = (op.resize.taps(0, dx[1]), op.resize.taps(1, dx[2]));
    let (width, packs) = channels_per_thread(cx.y_type(0), dx[3]);
    let name = format!("resize_grad_{packs}{}", common_suffix(cx, &[0]));
    let kernel = over_images(Kernel::new(Module::Resize, name), dx, width);
    let kernel = kernel.arg(Memory::Input(0)).arg(Memory::Output(0)).arg(table(&rows)).arg(table(&columns));
    let kernel = kernel.arg(ranges(&rows, dx[1])).arg(ranges(&columns, dx[2])).arg(rows_arg(dx[0] * dx[1]));
    Lowered::one(sizes(kernel, dx, dy))
}
