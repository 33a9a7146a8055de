//! Adafactor's passes over a piece of a tensor.

use crate::graph::op::Moments;
use crate::ops::optim::{Tensor, gradient};
use crate::ops::reduce_rows::{Plain, Terms, sum};
use crate::run::parallel::vectorised;
use crate::simd::Simd;
use crate::simd::lanes::{get, put};

/// A gradient as the rule sees it: weight decay has no part in it.
#[inline(always)]
fn plain<S: Simd>(s: S, g: S::V, t: Tensor) -> S::V {
    gradient(s, g, s.zero(), Tensor { weight_decay: 0.0, ..t })
}

/// The means of squares that a piece looks at. `first` is over `second`, `[outer, lines, inner]`; `second` over the lines of whole
/// matrices, `[outer, second, inner]`; `rows` is those of the two that are means of rows, of whole matrices, too, `height` in each.
pub(super) struct Estimates<'a> {
    pub(super) moments: Moments,
    pub(super) first: &'a [f32],
    pub(super) second: &'a [f32],
    pub(super) rows: &'a [f32],
    pub(super) height: usize,
    /// Matrices, lines of each, `second`, `inner`.
    pub(super) sizes: [usize; 4],
    pub(super) eps: f32,
}

/// What is done with the elements of a piece.
trait Visit {
    /// Elements `i .. i + n`, and estimates of their mean squares, which are not below the square of `eps`; two terms of sums.
    fn visit<S: Simd>(&mut self, s: S, i: usize, n: usize, square: S::V) -> [S::V; 2];
}

/// Vectors whose sum is taken in single precision before it goes to a double.
const RUN: usize = 64;

/// Two sums of vectors.
struct Sums<S: Simd> {
    vectors: [S::V; 2],
    pending: usize,
    totals: [f64; 2],
}

impl<S: Simd> Sums<S> {
    #[inline(always)]
    fn add(&mut self, s: S, n: usize, [a, b]: [S::V; 2]) {
        self.vectors[0] = s.add(self.vectors[0], s.first(a, n));
        self.vectors[1] = s.add(self.vectors[1], s.first(b, n));
        self.pending += 1;
        if self.pending == RUN {
            self.flush(s);
        }
    }

    #[inline(always)]
    fn flush(&mut self, s: S) {
        self.totals[0] += f64::from(s.sum(self.vectors[0]));
        self.totals[1] += f64::from(s.sum(self.vectors[1]));
        self.vectors = [s.zero(); 2];
        self.pending = 0;
    }
}

/// Calls `visit` for all elements of a piece; the sums of its terms.
#[inline(always)]
fn walk<S: Simd>(s: S, of: &Estimates<'_>, mut visit: impl Visit) -> [f64; 2] {
    let mut sums = Sums::<S> { vectors: [s.zero(); 2], pending: 0, totals: [0.0; 2] };
    let [outer, lines, second, inner] = of.sizes;
    let (eps, floor) = (s.splat(of.eps), s.splat(of.eps * of.eps));
    if of.moments != Moments::Factored {
        for i in (0..inner).step_by(S::LANES) {
            let n = (inner - i).min(S::LANES);
            let mean = get(s, of.first, i, n);
            // Of a matrix of one element: the product of both means over that of the rows. What is not a number stays.
            let square = if of.moments == Moments::Points { s.div(s.mul(mean, mean), s.max(eps, mean)) } else { mean };
            let terms = visit.visit(s, i, n, s.max(floor, square));
            sums.add(s, n, terms);
        }
        sums.flush(s);
        return sums.totals;
    }
    for number in 0..outer {
        let rows = &of.rows[number * of.height * inner..][..of.height * inner];
        let first = &of.first[number * lines * inner..][..lines * inner];
        let columns = &of.second[number * second * inner..][..second * inner];
        let start = number * lines * second * inner;
        if inner == 1 {
            let mean = (sum(s, rows.len(), Plain(rows)) / of.height as f64) as f32;
            let scale = 1.0 / if mean < of.eps { of.eps } else { mean };
            for (line, mean) in first.iter().enumerate() {
                let of_line = s.splat(mean * scale);
                for i in (0..second).step_by(S::LANES) {
                    let n = (second - i).min(S::LANES);
                    let square = s.mul(of_line, get(s, columns, i, n));
                    let terms = visit.visit(s, start + line * second + i, n, s.max(floor, square));
                    sums.add(s, n, terms);
                }
            }
            continue;
        }
        for i in (0..inner).step_by(S::LANES) {
            let n = (inner - i).min(S::LANES);
            let mut mean = s.zero();
            for row in 0..of.height {
                mean = s.add(mean, get(s, rows, row * inner + i, n));
            }
            let mean = s.mul(mean, s.splat(1.0 / of.height as f32));
            let scale = s.div(s.splat(1.0), s.max(eps, mean));
            for line in 0..lines {
                let of_line = s.mul(get(s, first, line * inner + i, n), scale);
                for column in 0..second {
                    let square = s.mul(of_line, get(s, columns, column * inner + i, n));
                    let at = start + (line * second + column) * inner + i;
                    let terms = visit.visit(s, at, n, s.max(floor, square));
                    sums.add(s, n, terms);
                }
            }
        }
    }
    sums.flush(s);
    sums.totals
}

/// The squares of parameters and steps.
struct Squares<'a> {
    p: &'a [f32],
    g: &'a [f32],
    t: Tensor,
}

impl Visit for Squares<'_> {
    #[inline(always)]
    fn visit<S: Simd>(&mut self, s: S, i: usize, n: usize, square: S::V) -> [S::V; 2] {
        let p = get(s, self.p, i, n);
        let step = s.div(plain(s, get(s, self.g, i, n), self.t), s.sqrt(square));
        [s.mul(p, p), s.mul(step, step)]
    }
}

/// The step.
struct Step<'a> {
    p: &'a mut [f32],
    g: &'a [f32],
    keep: f32,
    rate: f32,
    t: Tensor,
}

impl Visit for Step<'_> {
    #[inline(always)]
    fn visit<S: Simd>(&mut self, s: S, i: usize, n: usize, square: S::V) -> [S::V; 2] {
        let p = s.mul(get(s, self.p, i, n), s.splat(self.keep));
        let step = s.div(plain(s, get(s, self.g, i, n), self.t), s.sqrt(square));
        put(s, self.p, i, n, s.fma(s.splat(-self.rate), step, p));
        [s.zero(); 2]
    }
}

/// The squares of a gradient; they are also taken into `to`: that becomes `keep · to + share · square`.
struct Line<'a> {
    g: &'a [f32],
    to: &'a mut [f32],
    keep: f32,
    share: f32,
    t: Tensor,
}

impl Terms for Line<'_> {
    #[inline(always)]
    fn term<S: Simd>(&mut self, s: S, i: usize, n: usize) -> S::V {
        let g = plain(s, get(s, self.g, i, n), self.t);
        let square = s.mul(g, g);
        let kept = s.mul(get(s, self.to, i, n), s.splat(self.keep));
        put(s, self.to, i, n, s.fma(square, s.splat(self.share), kept));
        square
    }
}

vectorised! {
    pub(super) fn squares<'a, S>(s, of: Estimates<'a>, p: &'a [f32], g: &'a [f32], t: Tensor) -> [f64; 2] {
        walk(s, &of, Squares { p, g, t })
    }

    pub(super) fn descend<'a, S>(s, of: Estimates<'a>, p: &'a mut [f32], g: &'a [f32], keep: f32, rate: f32, t: Tensor) {
        walk(s, &of, Step { p, g, keep, rate, t });
    }

    // `first += share · (mean over second − first)`; `to = keep · to + share_of_line · sum over lines`, where there is one.
    pub(super) fn take_in<'a, S>(
        s,
        g: &'a [f32],
        first: &'a mut [f32],
        to: &'a mut [f32],
        sizes: [usize; 4],
        share: f32,
        of_lines: [f32; 2],
        t: Tensor,
    ) {
        let [outer, lines, second, inner] = sizes;
        let [kept, share_of_line] = of_lines;
        let of_second = 1.0 / second as f32;
        for number in 0..outer * lines {
            let (matrix, line) = (number / lines, number % lines);
            let g = &g[number * second * inner..][..second * inner];
            let keep = if line == 0 { kept } else { 1.0 };
            if to.is_empty() {
                for i in (0..inner).step_by(S::LANES) {
                    let n = (inner - i).min(S::LANES);
                    let x = plain(s, get(s, g, i, n), t);
                    let mean = get(s, first, i, n);
                    put(s, first, i, n, s.fma(s.splat(share), s.sub(s.mul(x, x), mean), mean));
                }
                continue;
            }
            let to = &mut to[matrix * second * inner..][..second * inner];
            if inner == 1 {
                let squares = sum(s, second, Line { g, to, keep, share: share_of_line, t });
                let mean = &mut first[number];
                *mean += share * ((squares / second as f64) as f32 - *mean);
                continue;
            }
            let first = &mut first[number * inner..][..inner];
            for i in (0..inner).step_by(S::LANES) {
                let n = (inner - i).min(S::LANES);
                let mut all = s.zero();
                for column in 0..second {
                    let at = column * inner + i;
                    let x = plain(s, get(s, g, at, n), t);
                    let square = s.mul(x, x);
                    all = s.add(all, square);
                    let before = s.mul(get(s, to, at, n), s.splat(keep));
                    put(s, to, at, n, s.fma(square, s.splat(share_of_line), before));
                }
                let mean = get(s, first, i, n);
                put(s, first, i, n, s.fma(s.splat(share), s.sub(s.mul(all, s.splat(of_second)), mean), mean));
            }
        }
    }
}
