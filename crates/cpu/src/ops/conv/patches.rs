//! Patches: the pixels that each pixel of the result is computed from.
//!
//! A task copies a strip of an image (or some small images) with the padding around it into a buffer that fits the cache.
//! The taps of a patch are then fixed offsets from the position of its pixel in the buffer. The gradient by the input reads
//! patches of `dy` in the same way. With a stride, its pixels fall into classes by their position modulo the stride: all
//! pixels of a class have the same taps, and the patches of neighbours in a class begin one position apart.

use super::operands::{PixelSource, PooledGrad};
use super::shape::{ConvProblem, ConvShape, Direction};
use crate::gemm::pack::{Copy2d, CopyRows};
use crate::gemm::prologue::Source;
use crate::gemm::tile::Run;
use crate::ops::max_pool::pairs::BackwardRow;
use crate::run::threads::TASKS_PER_THREAD;
use crate::simd::SimdLevel;
use std::ops::Range;

/// Floats that a buffer should hold at most: 256 KiB, an eighth to a half of a core's L2.
pub const BUFFER: usize = 64 << 10;

/// How the work is cut into parts.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    /// For max-pooling: strips have an even number of rows, and their outputs fit the cache too.
    pub pairs: bool,
    /// Least pixels of a part, unless the batch is too small.
    pub pixels: usize,
    /// Parts wanted, if there are pixels enough.
    pub parts: usize,
}

impl Cut {
    /// Enough pixels to share the weights, which each part reads from L2 or beyond.
    pub const PLAIN: Cut = Cut { pairs: false, pixels: 196, parts: TASKS };
}

/// Tasks that the work is cut into, if there is enough of it.
pub const TASKS: usize = 16;

/// Tasks for kernels whose sums do not depend on it: one thread gains nothing from many.
pub fn tasks_for(threads: usize) -> usize {
    TASKS.min(TASKS_PER_THREAD * threads)
}

/// A convolution along one spatial axis.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConvAxis {
    source: usize,
    dest: usize,
    kernel: usize,
    stride: usize,
    dilation: usize,
    padding: usize,
}

/// Pixels of one class along one axis. Pixel `q` of `range` reads the buffer at `q · step + t` for every tap, and is pixel
/// `first + q · dest_step` of the destination.
#[derive(Debug, Clone)]
pub(super) struct AxisClass {
    pub range: Range<usize>,
    pub first: isize,
    pub dest_step: usize,
    /// Kernel position, `t`; by rising `t`.
    pub taps: Vec<(usize, usize)>,
}

/// All classes along one axis. The buffer's position `p` holds the source's pixel `p - origin`.
#[derive(Debug, Clone)]
pub(super) struct AxisPlan {
    pub classes: Vec<AxisClass>,
    pub step: usize,
    pub origin: usize,
    pub range: Range<usize>,
    /// Largest `t`.
    pub reach: usize,
}

impl ConvAxis {
    fn forward(&self) -> AxisPlan {
        let taps: Vec<_> = (0..self.kernel).map(|k| (k, k * self.dilation)).collect();
        let class = AxisClass { range: 0..self.dest, first: 0, dest_step: 1, taps };
        AxisPlan {
            range: class.range.clone(),
            classes: vec![class],
            step: self.stride,
            origin: self.padding,
            reach: (self.kernel - 1) * self.dilation,
        }
    }

    /// Input pixel `h` with `h + padding = r + stride · q` meets tap `k` where `k · dilation = r + stride · back`; it then
    /// reads pixel `q - back` of the output's gradient.
    fn backward(&self) -> AxisPlan {
        let (s, pad) = (self.stride, self.padding);
        let furthest = (self.kernel - 1) * self.dilation / s;
        let class = |r: usize| {
            let end = if self.dest + pad > r { (self.dest - 1 + pad - r) / s + 1 } else { 0 };
            let mut taps: Vec<_> = (0..self.kernel)
                .filter(|k| k * self.dilation % s == r)
                .map(|k| (k, furthest - (k * self.dilation - r) / s))
                .collect();
            taps.sort_by_key(|&(_, t)| t);
            let start = pad.saturating_sub(r).div_ceil(s);
            AxisClass { range: start..end, first: r as isize - pad as isize, dest_step: s, taps }
        };
        let classes: Vec<_> = (0..s).map(class).filter(|c| !c.range.is_empty()).collect();
        let start = classes.iter().map(|c| c.range.start).min().unwrap_or(0);
        let end = classes.iter().map(|c| c.range.end).max().unwrap_or(0);
        AxisPlan { classes, step: 1, origin: furthest, range: start..end, reach: furthest }
    }
}

/// Pixels of the destination that meet the same taps.
pub struct Class {
    /// Kernel positions `row · width + column`, in the order of the sum.
    pub taps: Vec<usize>,
    /// Offset of each tap from a pixel's start in the buffer.
    pub offsets: Vec<u32>,
    /// The sum as stretches of `run_len` floats in the buffer (`b`: position in the sum).
    pub runs: Vec<Run>,
    /// See `runs`.
    pub run_len: usize,
    /// For every pixel its offset in the buffer.
    pub a_rows: Vec<u32>,
    /// For every pixel its offset in the destination, from [`Patches::dest_base`].
    pub c_rows: Vec<u32>,
    rows: Range<usize>,
    columns: usize,
    first_row: isize,
    row_step: usize,
}

/// The geometry of a convolution or of its gradient by the input.
pub struct Patches {
    /// The classes of pixels.
    pub classes: Vec<Class>,
    images: usize,
    source: [usize; 2],
    source_channels: usize,
    dest: [usize; 2],
    dest_channels: usize,
    /// Channels copied, and floats that a pixel takes in the buffer.
    channels: usize,
    width: usize,
    step: usize,
    origin: [usize; 2],
    rows: Range<usize>,
    first_column: usize,
    columns: usize,
    reach: usize,
    /// Rows in a strip, images in a group (1 unless a strip is a whole image), and how many there are of both.
    strip: usize,
    strips: usize,
    group: usize,
    groups: usize,
}

/// The part of the work that a task does: a strip of an image, or some whole images.
#[derive(Debug, Clone)]
pub struct PatchPart {
    /// Images.
    pub images: Range<usize>,
    /// Rows (of the output for the forward direction).
    pub rows: Range<usize>,
}

impl Patches {
    /// The rows and the columns of a convolution, or of its gradient by the input.
    pub(super) fn axes(problem: &ConvProblem, direction: Direction) -> [AxisPlan; 2] {
        [0, 1].map(|i| {
            let axis = Self::axis(problem, i);
            match direction {
                Direction::Forward => axis.forward(),
                Direction::Backward => ConvAxis { source: axis.dest, dest: axis.source, ..axis }.backward(),
            }
        })
    }

    /// The convolution itself: patches of `x`. `channels` of them are worked on at once, and take `width` floats each.
    pub fn forward(problem: &ConvProblem, channels: usize, width: usize, cut: Cut) -> Self {
        let (shape, axes) = (&problem.shape, Self::axes(problem, Direction::Forward));
        let (source, dest) = ((shape.input, shape.channels), (problem.output(), shape.outputs));
        Self::new(axes, shape, source, dest, [channels, width], cut)
    }

    /// The gradient by the input: patches of `dy`.
    pub fn backward(problem: &ConvProblem, channels: usize, width: usize, cut: Cut) -> Self {
        let (shape, axes) = (&problem.shape, Self::axes(problem, Direction::Backward));
        let (source, dest) = ((problem.output(), shape.outputs), (shape.input, shape.channels));
        Self::new(axes, shape, source, dest, [channels, width], cut)
    }

    fn axis(problem: &ConvProblem, i: usize) -> ConvAxis {
        let (op, shape) = (problem.op, &problem.shape);
        ConvAxis {
            source: shape.input[i],
            dest: problem.output()[i],
            kernel: shape.kernel[i],
            stride: op.stride[i],
            dilation: op.dilation[i],
            padding: op.padding[2 * i],
        }
    }

    fn new(
        [vertical, horizontal]: [AxisPlan; 2],
        shape: &ConvShape,
        (source, source_channels): ([usize; 2], usize),
        (dest, dest_channels): ([usize; 2], usize),
        [channels, width]: [usize; 2],
        cut: Cut,
    ) -> Self {
        let rows = vertical.range.clone();
        let columns = horizontal.range.len().saturating_sub(1) * horizontal.step + horizontal.reach + 1;
        let height = |rows: usize| (rows - 1) * vertical.step + vertical.reach + 1;
        let total = rows.len().max(1);
        let made = if cut.pairs { horizontal.range.len() * dest_channels } else { 0 };
        let fits = (1..=total).rev().find(|&n| (height(n) * columns * width).max(n * made) <= BUFFER).unwrap_or(1);
        let strip = fits.min((shape.images * total).div_ceil(cut.parts)).max(1);
        let strips = total.div_ceil(strip);
        // All of nearly the same height.
        let strip = total.div_ceil(strips);
        let strip = if cut.pairs && strip < total { strip.next_multiple_of(2) } else { strip };
        let strips = total.div_ceil(strip);
        let group = if strips == 1 {
            let wanted = cut.pixels.div_ceil((total * horizontal.range.len()).max(1));
            let fitting = BUFFER / (height(total) * columns * width).max(total * made).max(1);
            wanted.min(fitting).min(shape.images.div_ceil(cut.parts)).max(1)
        } else {
            1
        };
        let mut patches = Patches {
            classes: Vec::new(),
            images: shape.images,
            source,
            source_channels,
            dest,
            dest_channels,
            channels,
            width,
            step: vertical.step,
            origin: [vertical.origin, horizontal.origin],
            rows,
            first_column: horizontal.range.start * horizontal.step,
            columns,
            reach: vertical.reach,
            strip,
            strips,
            group,
            groups: shape.images.div_ceil(group),
        };
        let largest = patches.buffer_floats().max(group * dest[0] * dest[1] * dest_channels);
        assert!(u32::try_from(largest).is_ok(), "an image of {largest} floats is larger than offsets of 32 bits");
        for v in &vertical.classes {
            for h in &horizontal.classes {
                let class = patches.class(v, h, horizontal.step, shape.kernel[1]);
                patches.classes.push(class);
            }
        }
        patches
    }

    fn class(&self, v: &AxisClass, h: &AxisClass, column_step: usize, kernel_width: usize) -> Class {
        let (mut taps, mut offsets) = (Vec::new(), Vec::new());
        for &(kh, th) in &v.taps {
            for &(kw, tw) in &h.taps {
                taps.push(kh * kernel_width + kw);
                offsets.push(((th * self.columns + tw) * self.width) as u32);
            }
        }
        // Taps side by side in the buffer are one stretch.
        let joined = self.width == self.channels && h.taps.windows(2).all(|pair| pair[1].1 == pair[0].1 + 1);
        let in_run = if joined { h.taps.len().max(1) } else { 1 };
        let run_len = in_run * self.channels;
        let starts = offsets.iter().step_by(in_run);
        let runs = starts.enumerate().map(|(i, &a)| Run { a, b: (i * run_len) as u32 }).collect();
        // A strip's pixels are looked up from its first row on; only a strip that is a whole image may miss rows there.
        let in_table = if self.strips > 1 {
            0..self.strip
        } else {
            v.range.start - self.rows.start..v.range.end - self.rows.start
        };
        let (mut a_rows, mut c_rows) = (Vec::new(), Vec::new());
        for image in 0..self.group {
            for row in in_table.clone() {
                for q in h.range.clone() {
                    let column = q * column_step - self.first_column;
                    let a = ((image * self.height(self.strip) + row * self.step) * self.columns + column) * self.width;
                    let column = (h.first + (q * h.dest_step) as isize) as usize;
                    let row = row * v.dest_step;
                    let c = ((image * self.dest[0] + row) * self.dest[1] + column) * self.dest_channels;
                    a_rows.push(a as u32);
                    c_rows.push(c as u32);
                }
            }
        }
        Class {
            taps,
            offsets,
            runs,
            run_len,
            a_rows,
            c_rows,
            rows: v.range.clone(),
            columns: h.range.len(),
            first_row: v.first,
            row_step: v.dest_step,
        }
    }

    /// Rows of the buffer for `rows` rows of pixels.
    fn height(&self, rows: usize) -> usize {
        (rows - 1) * self.step + self.reach + 1
    }

    /// Floats that the buffer takes.
    pub fn buffer_floats(&self) -> usize {
        self.group * self.height(self.strip) * self.columns * self.width
    }

    /// Pixels of the destination that a part of a forward convolution has at most.
    pub fn most_pixels(&self) -> usize {
        self.group * self.strip * self.dest[1]
    }

    /// Pixels of the destination, of all images.
    pub fn all_pixels(&self) -> usize {
        self.images * self.dest[0] * self.dest[1]
    }

    /// Height and width of the destination.
    pub fn dest(&self) -> [usize; 2] {
        self.dest
    }

    /// Floats from one row of the buffer to the next.
    pub fn buffer_row(&self) -> usize {
        self.columns * self.width
    }

    /// How many parts the work has.
    pub fn parts(&self) -> usize {
        self.groups * self.strips
    }

    /// Part number `i`.
    pub fn part(&self, i: usize) -> PatchPart {
        let (group, strip) = (i / self.strips, i % self.strips);
        let start = self.rows.start + strip * self.strip;
        PatchPart {
            images: group * self.group..((group + 1) * self.group).min(self.images),
            rows: start..(start + self.strip).min(self.rows.end),
        }
    }

    /// Copies the part's source pixels, channels from `channel` on, with their margin to `buffer`. A gradient of pooled pixels
    /// is spread over its windows.
    pub fn fill(&self, part: &PatchPart, channel: usize, source: PixelSource, buffer: &mut [f32], level: SimdLevel) {
        let row_floats = self.buffer_row();
        if part.rows.is_empty() {
            return;
        }
        let height = self.height(part.rows.len());
        // The buffer's columns that hold pixels: `p - origin` is inside the source.
        let skip = self.origin[1].saturating_sub(self.first_column).min(self.columns);
        let first = self.first_column.saturating_sub(self.origin[1]);
        let inside = self.source[1].saturating_sub(first).min(self.columns - skip);
        for (i, image) in part.images.clone().enumerate() {
            for r in 0..height {
                let start = (i * self.height(self.strip) + r) * row_floats;
                let to = &mut buffer[start..start + row_floats];
                let row = (part.rows.start * self.step + r).wrapping_sub(self.origin[0]);
                if row >= self.source[0] || inside == 0 {
                    to.fill(0.0);
                    continue;
                }
                to[..skip * self.width].fill(0.0);
                to[(skip + inside) * self.width..].fill(0.0);
                let to = &mut to[skip * self.width..(skip + inside) * self.width];
                match source {
                    PixelSource::Plain(source) => self.copy_row(image, [row, first], channel, source, to, level),
                    PixelSource::Pooled(grad) => self.spread_row(image, [row, first], channel, grad, to, level),
                }
            }
        }
    }

    /// Copies pixels of a row of the source, from column `first` on.
    fn copy_row(
        &self,
        image: usize,
        [row, first]: [usize; 2],
        channel: usize,
        Source { values, prologue }: Source,
        to: &mut [f32],
        level: SimdLevel,
    ) {
        let inside = to.len() / self.width;
        let from = ((image * self.source[0] + row) * self.source[1] + first) * self.source_channels + channel;
        // The last block of channels may be smaller.
        let channels = self.channels.min(self.source_channels - channel);
        let from = &values[from..from + (inside - 1) * self.source_channels + channels];
        let all = self.channels == self.source_channels && self.channels == self.width && prologue.is_none();
        let (rows, columns, padded) = if all { (1, to.len(), to.len()) } else { (inside, channels, self.width) };
        let (from_step, to_step) = (self.source_channels, self.width);
        let (from, to) = (from.as_ptr(), to.as_mut_ptr());
        let rows = Copy2d { from, from_step, to, to_step, rows, columns, padded };
        // SAFETY: both slices have these rows.
        unsafe {
            match prologue {
                Some(prologue) => prologue.copy(rows, channel),
                None => level.routine::<CopyRows>()(rows),
            }
        };
    }

    /// Spreads the gradient of a row of windows over one of its rows of pixels, from column `first` on.
    fn spread_row(
        &self,
        image: usize,
        [row, first]: [usize; 2],
        channel: usize,
        grad: PooledGrad,
        to: &mut [f32],
        level: SimdLevel,
    ) {
        let [height, width] = self.source.map(|side| side / 2);
        to.fill(0.0);
        if row / 2 >= height || width == 0 {
            return;
        }
        let start = (image * height + row / 2) * width * self.source_channels;
        let range = start + channel..start + width * self.source_channels;
        let (dy, index, step) = (&grad.dy[range.clone()], &grad.index[range], self.source_channels);
        if first == 0 && to.len() >= 2 * width * self.width {
            let (row, windows, channels) = (row % 2, width, self.width);
            return level.run(BackwardRow { dy, index, step, row, windows, dx: to, channels });
        }
        // Part of the windows: only where the padding is wider than the kernel.
        for (pixel, to) in to.chunks_exact_mut(self.width).enumerate() {
            let (window, place) = ((first + pixel) / 2, (row % 2 * 2 + (first + pixel) % 2) as u8);
            if window < width {
                for (c, to) in to.iter_mut().enumerate().filter(|(c, _)| index[window * step + c] == place) {
                    *to = dy[window * step + c];
                }
            }
        }
    }

    /// The part's pixels of `class`, as positions in its tables.
    pub fn pixels(&self, class: &Class, part: &PatchPart) -> Range<usize> {
        if self.strips == 1 {
            0..part.images.len() * class.rows.len() * class.columns
        } else {
            let row = |q: usize| q.clamp(part.rows.start, part.rows.end) - part.rows.start;
            let (start, end) = (row(class.rows.start), row(class.rows.end));
            start * class.columns..end.max(start) * class.columns
        }
    }

    /// What the destinations in the class's table are counted from.
    pub fn dest_base(&self, class: &Class, part: &PatchPart) -> isize {
        let row = class.first_row + (part.rows.start * class.row_step) as isize;
        let row = (part.images.start * self.dest[0]) as isize + row;
        row * (self.dest[1] * self.dest_channels) as isize
    }
}
