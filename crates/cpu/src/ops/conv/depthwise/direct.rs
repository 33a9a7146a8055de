//! Depthwise convolutions of images that are wide enough: pixels are read where they lie, and only those whose patches reach
//! over the edge leave out taps. That saves the copy of each strip, which takes as long as the products.

use super::super::shape::{ConvProblem, Direction};
use super::Weights;
use crate::gemm::LINE;
use crate::gemm::tile::Epilogue;
use crate::simd::lanes::Lane;
use crate::simd::{Kernel, Simd};
use std::ops::Range;

/// Pixels side by side whose sums stay in registers, times two vectors of channels: a cache line of each, on processors whose
/// vectors are half as long.
const PIXELS: usize = 4;

/// Floats of an image that is prefetched: 1 MiB, as large as a core's second-level cache.
const FAR: usize = 256 << 10;

/// A tap: its offset among the packed weights, and that of its pixel in the source from the pixel that the patch begins with.
#[derive(Debug, Clone, Copy)]
struct Tap {
    weight: usize,
    pixel: usize,
}

/// The taps that a column of the result meets, row of the kernel by row.
#[derive(Debug, Clone)]
struct Column {
    /// Its patch begins here in the source, in pixels; left of the image it wraps.
    start: usize,
    taps: Vec<Tap>,
    /// Taps of each row.
    in_row: usize,
}

/// The geometry of a convolution, or of a gradient by the input without a stride.
#[derive(Debug, Clone)]
pub struct Direct {
    channels: usize,
    source: [usize; 2],
    dest: [usize; 2],
    stride: [usize; 2],
    /// How far before the image the first patch begins, vertically.
    origin: usize,
    /// Rows of the source from a patch's first one on, one for each row of taps.
    rows: Vec<usize>,
    /// Columns of the result whose patches lie inside, and the others.
    inside: Range<usize>,
    inner: Column,
    /// Taps of a row are pixels side by side.
    dense: bool,
    outer: Vec<(usize, Column)>,
}

impl Direct {
    /// Lays out the work for packed weights of `width` floats a tap, unless too many patches reach over the edge.
    pub fn new(problem: &ConvProblem, direction: Direction, width: usize) -> Option<Direct> {
        let (op, shape, output) = (problem.op, &problem.shape, problem.output());
        let (source, dest, stride) = match direction {
            Direction::Forward => (shape.input, output, op.stride),
            Direction::Backward if op.stride == [1, 1] => (output, shape.input, [1, 1]),
            Direction::Backward => return None,
        };
        // Kernel position, and pixels from the patch's first one on; in the order of rising pixels.
        let taps = |d: usize| -> Vec<(usize, usize)> {
            let (kernel, dilation) = (shape.kernel[d], op.dilation[d]);
            match direction {
                Direction::Forward => (0..kernel).map(|k| (k, k * dilation)).collect(),
                Direction::Backward => (0..kernel).rev().map(|k| (k, (kernel - 1 - k) * dilation)).collect(),
            }
        };
        let origin = |d: usize| match direction {
            Direction::Forward => Some(op.padding[2 * d]),
            Direction::Backward => ((shape.kernel[d] - 1) * op.dilation[d]).checked_sub(op.padding[2 * d]),
        };
        let (origin, [vertical, horizontal]) = ([origin(0)?, origin(1)?], [taps(0), taps(1)]);
        let reach = (shape.kernel[1] - 1) * op.dilation[1];
        let (width_of, channels) = (source[1], shape.channels);
        let first = origin[1].div_ceil(stride[1]);
        let end = (width_of + origin[1]).checked_sub(reach + 1).map_or(0, |last| (last / stride[1] + 1).min(dest[1]));
        let inside = first..end;
        if inside.len() < PIXELS || 2 * inside.len() < dest[1] {
            return None;
        }
        let column = |at: usize| {
            let start = (at * stride[1]).wrapping_sub(origin[1]);
            let met = |(_, t): &&(usize, usize)| start.wrapping_add(*t) < width_of;
            let of_row = |(kh, th): &(usize, usize)| {
                let tap = |(kw, tw): &(usize, usize)| Tap {
                    weight: (kh * shape.kernel[1] + kw) * width,
                    pixel: (th * width_of + tw) * channels,
                };
                horizontal.iter().filter(met).map(tap).collect::<Vec<_>>()
            };
            let in_row = horizontal.iter().filter(met).count();
            Column { start, taps: vertical.iter().flat_map(of_row).collect(), in_row }
        };
        let outer = (0..dest[1]).filter(|at| !inside.contains(at)).map(|at| (at, column(at))).collect();
        let rows = vertical.iter().map(|(_, t)| *t).collect();
        let (inner, origin, dense) = (column(inside.start), origin[0], op.dilation[1] == 1);
        Some(Direct { channels, source, dest, stride, origin, rows, inside, inner, dense, outer })
    }

    /// Whether an image comes from beyond the second-level cache.
    fn is_far(&self) -> bool {
        self.source[0] * self.source[1] * self.channels >= FAR
    }

    /// Rows of the result, of each image.
    pub fn rows(&self) -> usize {
        self.dest[0]
    }

    /// Floats of a row of the result.
    pub fn row_floats(&self) -> usize {
        self.dest[1] * self.channels
    }
}

/// A row of the result.
pub struct Row<'a, X> {
    pub direct: &'a Direct,
    pub image: usize,
    pub row: usize,
    pub source: &'a [X],
    pub weights: Weights<'a>,
    /// The row's first element.
    pub dest: *mut f32,
    pub epilogue: Epilogue,
}

impl<X: Lane> Kernel for Row<'_, X> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let d = self.direct;
        let start = (self.row * d.stride[0]).wrapping_sub(d.origin);
        // Rows of taps that lie inside: the others meet zeros.
        let inside = |t: &usize| start.wrapping_add(*t) < d.source[0];
        let first = d.rows.iter().position(inside).unwrap_or(0);
        let rows = first..first + d.rows.iter().filter(|t| inside(t)).count();
        // The patch's first row; above the image it wraps, and no tap reads there.
        let row = (self.image * d.source[0]).wrapping_add(start).wrapping_mul(d.source[1]);
        let taps = |of: &Column| rows.start * of.in_row..rows.end * of.in_row;
        // The taps of the rows that the row of the result above this one has not read.
        let inner = taps(&d.inner);
        let unread = if d.is_far() { d.stride[0].min(rows.len()) } else { 0 };
        let unread = inner.end - unread * d.inner.in_row..inner.end;
        let [inner, unread] = [inner, unread].map(|taps| &d.inner.taps[taps]);
        let from = row.wrapping_add(d.inner.start);
        // SAFETY: these patches lie inside the source but for rows that are left out, and the pixels in the row.
        unsafe {
            // Kernels that are common have code of their own.
            match (if d.dense { d.inner.in_row } else { 0 }, d.stride[1]) {
                (3, 1) => self.inside::<S, 3, 1>(s, inner, unread, from),
                (3, 2) => self.inside::<S, 3, 2>(s, inner, unread, from),
                (5, 1) => self.inside::<S, 5, 1>(s, inner, unread, from),
                (5, 2) => self.inside::<S, 5, 2>(s, inner, unread, from),
                _ => self.inside::<S, 0, 0>(s, inner, unread, from),
            }
        }
        for (at, column) in &d.outer {
            let from = row.wrapping_add(column.start);
            // SAFETY: the taps of the column and of the rows are those that lie inside.
            unsafe { self.pixels::<S, 1, 0, 0>(s, &column.taps[taps(column)], &[], from, *at) };
        }
    }
}

impl<X: Lane> Row<'_, X> {
    /// All pixels whose patches lie inside the row; the first patch begins at pixel `from` of the source. `K` and `STRIDE` as in
    /// [`Row::block`].
    ///
    /// # Safety
    /// The taps lie inside the source, and the pixels in the row.
    #[inline(always)]
    unsafe fn inside<S: Simd, const K: usize, const STRIDE: usize>(
        &self,
        s: S,
        taps: &[Tap],
        unread: &[Tap],
        from: usize,
    ) {
        let (Range { start: left, end: right }, stride) = (self.direct.inside.clone(), self.direct.stride[1]);
        // The last pixels may be written twice, each time the same.
        for at in (left..right).step_by(PIXELS).map(|at| at.min(right - PIXELS)) {
            // SAFETY: the caller's promise.
            unsafe {
                self.pixels::<S, PIXELS, K, STRIDE>(s, taps, unread, from.wrapping_add((at - left) * stride), at)
            };
        }
    }

    /// `P` pixels from column `at` on, whose first patch begins at pixel `from` of the source. `unread`: the taps of rows that come from
    /// beyond the nearest cache.
    ///
    /// # Safety
    /// The taps lie inside the source, and the pixels in the row.
    #[inline(always)]
    unsafe fn pixels<S: Simd, const P: usize, const K: usize, const STRIDE: usize>(
        &self,
        s: S,
        taps: &[Tap],
        unread: &[Tap],
        from: usize,
        at: usize,
    ) {
        let channels = self.direct.channels;
        let from = self.source.as_ptr().wrapping_add(from.wrapping_mul(channels));
        let to = self.dest.wrapping_add(at * channels);
        let mut channel = 0;
        // SAFETY: the caller's promise; there are so many channels left.
        unsafe {
            while channel + 2 * S::LANES <= channels {
                self.block::<S, P, 2, K, STRIDE>(s, taps, from, to, channel);
                self.fetch::<S, P, 2>(s, unread, from, channel);
                channel += 2 * S::LANES;
            }
            while channel < channels {
                self.block::<S, P, 1, K, STRIDE>(s, taps, from, to, channel);
                self.fetch::<S, P, 1>(s, unread, from, channel);
                channel += S::LANES;
            }
        }
    }

    /// Prefetches what the next `P` pixels are the first to read, `V` vectors of channels.
    #[inline(always)]
    fn fetch<S: Simd, const P: usize, const V: usize>(&self, s: S, unread: &[Tap], from: *const X, channel: usize) {
        let Direct { channels, stride, inner, .. } = self.direct;
        for tap in unread.iter().step_by(inner.in_row) {
            for pixel in P * stride[1]..2 * P * stride[1] {
                for line in (0..V * S::LANES).step_by(LINE) {
                    s.prefetch(from.wrapping_add(tap.pixel + pixel * channels + channel + line).cast());
                }
            }
        }
    }

    /// `V` vectors of channels of `P` pixels: the last one may be a part, if there is one. With `K` taps in a row, side by side, and pixels
    /// that are `STRIDE` apart, each number that several pixels meet is read once; `K` is 0 for others. The order of a sum is the same.
    ///
    /// # Safety
    /// As above.
    #[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
    #[inline(always)]
    unsafe fn block<S: Simd, const P: usize, const V: usize, const K: usize, const STRIDE: usize>(
        &self,
        s: S,
        taps: &[Tap],
        from: *const X,
        to: *mut f32,
        channel: usize,
    ) {
        let (channels, step) = (self.direct.channels, self.direct.stride[1] * self.direct.channels);
        let left = channels - channel;
        let (Weights { packed, scale, bias, .. }, e) = (self.weights, &self.epilogue);
        // SAFETY: the caller's promise; weights and vectors are padded to whole vectors.
        unsafe {
            let mut acc = [[s.zero(); V]; P];
            if scale.is_none() {
                for p in 0..P {
                    for v in 0..V {
                        acc[p][v] = s.load(bias.as_ptr().add(channel + v * S::LANES));
                    }
                }
            }
            let lanes = if V == 1 { left.min(S::LANES) } else { S::LANES };
            if K > 0 {
                for row in taps.chunks_exact(K) {
                    let mut w = [[s.zero(); V]; K];
                    for k in 0..K {
                        for v in 0..V {
                            w[k][v] = s.load(packed.as_ptr().add(row[k].weight + channel + v * S::LANES));
                        }
                    }
                    let from = from.wrapping_add(row[0].pixel + channel);
                    for i in 0..(P - 1) * STRIDE + K {
                        for v in 0..V {
                            let x = X::load(s, from.wrapping_add(i * channels + v * S::LANES), lanes);
                            for p in 0..P {
                                if p * STRIDE <= i && i < p * STRIDE + K {
                                    acc[p][v] = s.fma(x, w[i - p * STRIDE][v], acc[p][v]);
                                }
                            }
                        }
                    }
                }
            } else {
                for tap in taps {
                    let mut w = [s.zero(); V];
                    for v in 0..V {
                        w[v] = s.load(packed.as_ptr().add(tap.weight + channel + v * S::LANES));
                    }
                    let from = from.wrapping_add(tap.pixel + channel);
                    for p in 0..P {
                        for v in 0..V {
                            let x = X::load(s, from.wrapping_add(p * step + v * S::LANES), lanes);
                            acc[p][v] = s.fma(x, w[v], acc[p][v]);
                        }
                    }
                }
            }
            let (low, high) = (s.splat(e.low), s.splat(e.high));
            for p in 0..P {
                for v in 0..V {
                    let (to, left) = (to.wrapping_add(p * channels + channel + v * S::LANES), left - v * S::LANES);
                    let mut x = acc[p][v];
                    if let Some(scale) = scale {
                        let at = channel + v * S::LANES;
                        x = s.fma(x, s.load(scale.as_ptr().add(at)), s.load(bias.as_ptr().add(at)));
                    }
                    if e.has_matrix() {
                        x = e.apply_matrices(s, x, to, left);
                    }
                    let x = s.min(high, s.max(low, x));
                    if left >= S::LANES { s.store(to, x) } else { s.store_part(to, x, left) }
                }
            }
        }
    }
}
