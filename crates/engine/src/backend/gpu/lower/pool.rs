//! Launches of pooling.

use super::Context;
use super::layout::{common_suffix, over_rows, pack, rows_arg};
use crate::backend::gpu::launch::{Arg, BLOCK, Cell, Kernel, Lowered, Memory, Module};
use crate::graph::op::{AvgPool2d, AvgPool2dGrad, MaxPool2d, MaxPool2dGrad};
use crate::graph::{DType, Shape};
use std::ops::Range;

/// From this many pixels on, the threads of a block share a window.
const LARGE: usize = 32;

pub(super) fn images(shape: &Shape) -> [usize; 4] {
    shape.nhwc().expect("pooling is of images")
}

/// Channels that a thread loads at once, and the prefix of the names of such kernels.
pub(super) fn channels_per_thread(dtype: DType, channels: usize) -> (usize, &'static str) {
    let pack = pack(dtype);
    if channels.is_multiple_of(pack) { (pack, "packs_") } else { (1, "") }
}

/// A launch over the rows of `shape`, `width` channels to a thread.
pub(super) fn over_images(kernel: Kernel, [n, h, w, c]: [usize; 4], width: usize) -> Kernel {
    over_rows(kernel, n * h, w * (c / width))
}

fn pooling(name: String, shape: [usize; 4], width: usize) -> Kernel {
    over_images(Kernel::new(Module::Pool, name), shape, width)
}

/// A kernel's sizes: those of the images before and after pooling.
pub(super) fn sizes(kernel: Kernel, [_, h, w, c]: [usize; 4], [_, out_h, out_w, _]: [usize; 4]) -> Kernel {
    kernel.int(c).int(h).int(w).int(out_h).int(out_w)
}

/// The remaining arguments of `MAX_WINDOWS`. A stride or dilation that an `int` does not hold reaches beyond every image:
/// clamped, it gives the same windows.
fn max_windows(kernel: Kernel, op: &MaxPool2d) -> Kernel {
    let pairs = [op.kernel, op.stride, op.padding, op.dilation];
    pairs.iter().flatten().fold(kernel, |kernel, n| kernel.int((*n).min(i32::MAX as usize)))
}

/// The suffix of kernels that take indices of type `index`, and the channels of a thread.
fn max_name(cx: &Context, inputs: &[usize], index: DType, channels: usize) -> (String, usize) {
    let (mut width, mut packs) = channels_per_thread(cx.y_type(0), channels);
    if index != DType::U8 {
        (width, packs) = (1, "");
    }
    (format!("{packs}{index}_{}", common_suffix(cx, inputs)), width)
}

/// Lowers the operation.
pub fn max_pool(cx: &Context, op: &MaxPool2d) -> Lowered {
    let (x, y) = (images(cx.x(0)), images(cx.y(0)));
    let (name, width) = max_name(cx, &[0], cx.y_type(1), x[3]);
    let kernel = pooling(format!("max_pool_{name}"), y, width).arg(Memory::Input(0));
    let kernel = kernel.arg(Memory::Output(0)).arg(Memory::Output(1)).arg(rows_arg(y[0] * y[1]));
    Lowered::one(max_windows(sizes(kernel, x, y), op))
}

/// Lowers the operation.
pub fn max_pool_grad(cx: &Context, op: &MaxPool2dGrad) -> Lowered {
    let (dy, dx) = (images(cx.x(0)), images(cx.y(0)));
    let (name, width) = max_name(cx, &[0], cx.x_type(1), dx[3]);
    let kernel = pooling(format!("max_pool_grad_{name}"), dx, width).arg(Memory::Input(0));
    let kernel = kernel.arg(Memory::Input(1)).arg(Memory::Output(0)).arg(rows_arg(dx[0] * dx[1]));
    Lowered::one(max_windows(sizes(kernel, dx, dy), &op.pool))
}

/// The window of an output of average pooling along one axis, and its factor of the divisor.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Window {
    inputs: Range<usize>,
    count: usize,
}

/// The windows of average pooling over a side of `input`.
fn average(op: &AvgPool2d, axis: usize, input: usize, output: usize) -> Vec<Window> {
    let (kernel, stride, padding) = (op.kernel[axis], op.stride[axis], op.padding[axis]);
    let window = |o: usize| {
        // Counted from the first padded position; what reaches beyond the last one is cut off.
        let (start, end) = (o * stride, (o * stride + kernel).min(input + 2 * padding));
        let inputs = start.saturating_sub(padding)..end.saturating_sub(padding).min(input);
        Window { count: if op.count_include_pad { end - start } else { inputs.len() }, inputs }
    };
    (0..output).map(window).collect()
}

/// The windows of adaptive pooling.
fn adaptive(input: usize, output: usize) -> Vec<Window> {
    let window = |o: usize| {
        let inputs = o * input / output..((o + 1) * input).div_ceil(output);
        Window { count: inputs.len(), inputs }
    };
    (0..output).map(window).collect()
}

/// For each of `input` positions, the first and the last window that contains it. Where none does, the last is before the
/// first.
fn ranges(windows: &[Window], input: usize) -> Vec<[i32; 2]> {
    let mut ranges = vec![[0, -1]; input];
    for (o, window) in windows.iter().enumerate() {
        for range in &mut ranges[window.inputs.clone()] {
            if range[1] < 0 {
                range[0] = o as i32;
            }
            range[1] = o as i32;
        }
    }
    ranges
}

/// Two of the kernel's `int`s.
pub(super) fn cell([low, high]: [i32; 2]) -> Cell {
    Cell::I64(i64::from(low as u32) | i64::from(high) << 32)
}

/// `Span`s of the kernel.
fn spans(windows: &[Window]) -> Arg {
    let cells = windows.iter().flat_map(|Window { inputs, count }| {
        [cell([inputs.start as i32, inputs.end as i32]), cell([*count as i32, 0])]
    });
    Arg::Table(cells.collect())
}

/// `Range`s of the kernel.
fn positions(windows: &[Window], input: usize) -> Arg {
    Arg::Table(ranges(windows, input).into_iter().map(cell).collect())
}

fn mean(cx: &Context, windows: impl Fn(usize, usize, usize) -> Vec<Window>) -> Lowered {
    let (x, y) = (images(cx.x(0)), images(cx.y(0)));
    let (rows, columns) = (windows(0, x[1], y[1]), windows(1, x[2], y[2]));
    let (width, packs) = channels_per_thread(cx.y_type(0), x[3]);
    let name = format!("{packs}{}", common_suffix(cx, &[0]));
    let side = |list: &[Window]| list.iter().map(|w| w.inputs.len()).max().unwrap_or(0);
    let args = |k: Kernel| k.arg(Memory::Input(0)).arg(Memory::Output(0)).arg(spans(&rows)).arg(spans(&columns));
    let kernel = if side(&rows) * side(&columns) < LARGE {
        args(pooling(format!("mean_pool_{name}"), y, width)).arg(rows_arg(y[0] * y[1]))
    } else {
        // A warp along the channels, if there are that many.
        let threads = x[3] / width;
        let lanes = threads.next_power_of_two().min(BLOCK as usize / 8);
        let kernel = Kernel::new(Module::Pool, format!("mean_pool_large_{name}"));
        args(kernel.grid(y[0] * y[1] * y[2] * threads.div_ceil(lanes), 1, 1)).int(lanes)
    };
    Lowered::one(sizes(kernel, x, y))
}

fn mean_grad(cx: &Context, windows: impl Fn(usize, usize, usize) -> Vec<Window>) -> Lowered {
    let (dy, dx) = (images(cx.x(0)), images(cx.y(0)));
    let (rows, columns) = (windows(0, dx[1], dy[1]), windows(1, dx[2], dy[2]));
    let (width, packs) = channels_per_thread(cx.y_type(0), dx[3]);
    let kernel = pooling(format!("mean_pool_grad_{packs}{}", common_suffix(cx, &[0])), dx, width);
    let kernel = kernel.arg(Memory::Input(0)).arg(Memory::Output(0)).arg(spans(&rows)).arg(spans(&columns));
    let kernel = kernel.arg(positions(&rows, dx[1])).arg(positions(&columns, dx[2])).arg(rows_arg(dx[0] * dx[1]));
    Lowered::one(sizes(kernel, dx, dy))
}

/// Lowers the operation.
pub fn avg_pool(cx: &Context, op: &AvgPool2d) -> Lowered {
    mean(cx, |axis, input, output| average(op, axis, input, output))
}

/// Lowers the operation.
pub fn avg_pool_grad(cx: &Context, op: &AvgPool2dGrad) -> Lowered {
    mean_grad(cx, |axis, input, output| average(&op.pool, axis, input, output))
}

/// Lowers the operation.
pub fn adaptive_avg_pool(cx: &Context) -> Lowered {
    mean(cx, |_, input, output| adaptive(input, output))
}

/// Lowers the operation.
pub fn adaptive_avg_pool_grad(cx: &Context) -> Lowered {
    mean_grad(cx, |_, input, output| adaptive(input, output))
}

/// Lowers the operation.
pub fn adaptive_max_pool(cx: &Context) -> Lowered {
    let (x, y) = (images(cx.x(0)), images(cx.y(0)));
    let (width, packs) = channels_per_thread(cx.y_type(0), x[3]);
    let kernel = pooling(format!("adaptive_max_pool_{packs}{}", common_suffix(cx, &[0])), y, width);
    let kernel = kernel.arg(Memory::Input(0)).arg(Memory::Output(0)).arg(Memory::Output(1));
    let kernel = kernel.arg(spans(&adaptive(x[1], y[1]))).arg(spans(&adaptive(x[2], y[2])));
    Lowered::one(sizes(kernel.arg(rows_arg(y[0] * y[1])), x, y))
}

/// Lowers the operation.
pub fn adaptive_max_pool_grad(cx: &Context) -> Lowered {
    let (dy, dx) = (images(cx.x(0)), images(cx.y(0)));
    let (rows, columns) = (adaptive(dx[1], dy[1]), adaptive(dx[2], dy[2]));
    let (width, packs) = channels_per_thread(cx.y_type(0), dx[3]);
    let kernel = pooling(format!("adaptive_max_pool_grad_{packs}{}", common_suffix(cx, &[0])), dx, width);
    let kernel = kernel.arg(Memory::Input(0)).arg(Memory::Input(1)).arg(Memory::Output(0));
    let kernel =
        kernel.arg(spans(&rows)).arg(spans(&columns)).arg(positions(&rows, dx[1])).arg(positions(&columns, dx[2]));
    Lowered::one(sizes(kernel.arg(rows_arg(dx[0] * dx[1])), dx, dy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_know_their_windows() {
        // Sides of 5, windows of 3 with stride 2 and padding 1: −1..2, 1..4, 3..6.
        let op =
            AvgPool2d { kernel: [3, 3], stride: [2, 2], padding: [1, 1], ceil_mode: false, count_include_pad: false };
        let windows = average(&op, 0, 5, 3);
        assert_eq!(
            windows.iter().map(|w| (w.inputs.clone(), w.count)).collect::<Vec<_>>(),
            [(0..2, 2), (1..4, 3), (3..5, 2)]
        );
        assert_eq!(ranges(&windows, 5), [[0, 0], [0, 1], [1, 1], [1, 2], [2, 2]]);
        let windows = average(&AvgPool2d { kernel: [1, 1], padding: [0, 0], ..op }, 0, 4, 2);
        assert_eq!(ranges(&windows, 4), [[0, 0], [0, -1], [1, 1], [0, -1]]);
        // More outputs than inputs.
        assert_eq!(ranges(&adaptive(2, 3), 2), [[0, 1], [1, 2]]);
    }

    #[test]
    fn cells_hold_two_numbers() {
        assert_eq!(cell([1, 2]), Cell::I64(1 + (2 << 32)));
        assert_eq!(cell([0, -1]), Cell::I64(-1 << 32));
    }
}
