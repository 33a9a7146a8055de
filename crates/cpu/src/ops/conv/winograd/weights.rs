//! Transformed weights.

use super::grid::{Grid, element_floats};
use super::points::{MOST, Points};
use super::tail;
use crate::gemm::pack::{Copy2d, CopyRows, PackTransposed, Panel};
use crate::ops::conv::shape::Direction;
use crate::simd::{Kernel, MAX_LANES, Routine as _, Simd};
use std::marker::PhantomData;
use std::ops::Range;

/// Transforms some channels of a panel of the weights to `[element][from][column]`, or all of them for [`tail::Dots`].
pub struct Weights<'a, P> {
    /// Sizes of tiles.
    pub points: PhantomData<P>,
    /// Where the tiles lie.
    pub grid: &'a Grid,
    /// Whether the kernel is rotated and its channels swapped.
    pub direction: Direction,
    /// `[O, 3, 3, I]`
    pub w: &'a [f32],
    /// The panel's number, and its columns.
    pub panel: usize,
    /// See `panel`.
    pub width: usize,
    /// The channels read, and how many of them an element has room for.
    pub from: Range<usize>,
    /// See `from`.
    pub depth: usize,
    /// Whether they are for [`tail::Dots`].
    pub tail: bool,
    /// Where the panel goes.
    pub packed: &'a mut [f32],
}

impl<P: Points> Kernel for Weights<'_, P> {
    type Output = ();
    #[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (k, width) = (self.grid, self.width);
        let columns = (k.to - self.panel * width).min(width);
        let row = tail::row(k.from, S::LANES);
        let element_step = element_floats(self.depth, width);
        assert!(self.from.len() <= self.depth && (!self.tail || self.from == (0..k.from)), "room for these channels");
        let packed = &mut self.packed[..P::ELEMENTS * element_step];
        if self.tail {
            packed.fill(0.0);
        }
        let packed = packed.as_mut_ptr();
        let mut taps = [[0.0f32; MAX_LANES * 2 * MAX_LANES]; 9];
        for c in 0..self.from.len() {
            let within = c % S::LANES;
            if within == 0 {
                self.read(s, self.from.start + c, columns, &mut taps);
            }
            for v in (0..columns).step_by(S::LANES) {
                // SAFETY: a row has room for whole vectors.
                unsafe {
                    let g = |i: usize| s.load(taps[i].as_ptr().add(within * width + v));
                    let mut half = [[s.zero(); 3]; MOST[1]];
                    for j in 0..3 {
                        let column = P::kernel_transform(s, [g(j), g(3 + j), g(6 + j)]);
                        for i in 0..P::WIDE {
                            half[i][j] = column[i];
                        }
                    }
                    for i in 0..P::WIDE {
                        let elements = P::kernel_transform(s, half[i]);
                        for j in 0..P::WIDE {
                            let (x, element) = (elements[j], (i * P::WIDE + j) * element_step);
                            if !self.tail {
                                s.store(packed.add(element + c * width + v), x);
                                continue;
                            }
                            for (n, x) in s.to_array(x).into_iter().enumerate().take(columns.saturating_sub(v)) {
                                let at = (v + n) * row + tail::place(c, k.from, S::LANES);
                                *packed.add(element + at) = x;
                            }
                        }
                    }
                }
            }
        }
    }
}

impl<P: Points> Weights<'_, P> {
    /// Reads the weights of a vector of channels from `c` on: `taps [tap][channel][column]`, with zeros after the columns.
    #[inline(always)]
    fn read<S: Simd>(&self, s: S, c: usize, columns: usize, taps: &mut [[f32; MAX_LANES * 2 * MAX_LANES]; 9]) {
        let (grid, width) = (self.grid, self.width);
        let (rows, n) = ((self.from.end - c).min(S::LANES), self.panel * width);
        for (tap, to) in taps.iter_mut().enumerate() {
            // `w [O, 3, 3, I]`; for the gradient the kernel is rotated by 180°.
            let (at, strides) = match self.direction {
                Direction::Forward => ((n * 9 + tap) * grid.from + c, [1, 9 * grid.from]),
                Direction::Backward => ((c * 9 + 8 - tap) * grid.to + n, [9 * grid.to, 1]),
            };
            let last = at + (rows - 1) * strides[0] + (columns - 1) * strides[1];
            assert!(last < self.w.len() && width <= 2 * MAX_LANES, "these weights are inside");
            let to = to.as_mut_ptr();
            // SAFETY: the corners are inside, as asserted, and there is room for as many rows as a vector has lanes.
            unsafe {
                let from = self.w.as_ptr().add(at);
                match self.direction {
                    Direction::Forward => PackTransposed::run(s, Panel { from, strides, rows, columns, to, width }),
                    Direction::Backward => CopyRows::run(
                        s,
                        Copy2d { from, from_step: strides[0], to, to_step: width, rows, columns, padded: width },
                    ),
                }
            }
        }
    }
}
