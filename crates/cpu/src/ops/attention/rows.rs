//! What is done to rows of scores between the products: weights from scores, and their gradients.

use crate::random::{attention_draw, dropout_draws};
use crate::simd::{Routine, Simd};

/// Rows of scores of neighbouring queries, and which keys they see.
#[derive(Clone, Copy)]
pub struct Rows {
    /// First score of the first row.
    pub scores: *mut f32,
    /// Floats from row to row.
    pub step: usize,
    /// Number of rows.
    pub rows: usize,
    /// Keys that the first row sees; each further row sees `more` more. Less than none is none, and there are `keys`.
    pub seen: isize,
    /// 1 where a position sees none after it, else 0.
    pub more: usize,
    /// Keys whose scores there are.
    pub keys: usize,
    /// Keys that get a weight: those that a row does not see get 0.
    pub padded: usize,
    /// Factor of the scores.
    pub scale: f32,
}

impl Rows {
    fn seen(&self, row: usize) -> usize {
        (self.seen + (row * self.more) as isize).clamp(0, self.keys as isize) as usize
    }
}

/// Columns whose draws are made together, as [`attention_draw`] counts them.
const DRAWN: usize = 64;

/// The draws that decide which weights of some rows are left out.
#[derive(Clone, Copy, Default)]
pub struct Mask {
    /// The step's key.
    pub random: [u32; 4],
    /// Number of the layer.
    pub stream: u32,
    /// Draws below it leave their weight out.
    pub threshold: u32,
    /// Factor of the weights that stay.
    pub scale: f32,
    /// Positions of a sample.
    pub length: usize,
    /// Number of the first row among those of all heads of all samples.
    pub row: usize,
    /// Key of the first column, a multiple of [`DRAWN`].
    pub column: usize,
}

impl Mask {
    /// Factors of the columns `at ..` of row `r`, `at` being a multiple of [`DRAWN`].
    #[inline(always)]
    fn factors(&self, r: usize, at: usize) -> [f32; DRAWN] {
        let (first, _) = attention_draw(self.row + r, self.length, self.column + at);
        // Word by word, so that the compiler can do all counters at once.
        let mut words = [[0u32; 16]; 4];
        let [w0, w1, w2, w3] = &mut words;
        for j in 0..16 {
            let draws = dropout_draws(self.random, self.stream, first + j as u64);
            (w0[j], w1[j], w2[j], w3[j]) = (draws[0], draws[1], draws[2], draws[3]);
        }
        let mut factors = [0.0; DRAWN];
        for (factors, words) in factors.chunks_exact_mut(16).zip(&words) {
            for (factor, word) in factors.iter_mut().zip(words) {
                *factor = if *word >= self.threshold { self.scale } else { 0.0 };
            }
        }
        factors
    }
}

/// `eˣ` for `x ≤ 0` up to rounding errors: as [`Simd::exp`], but 0 below the normal numbers. NaN stays.
#[inline(always)]
fn exp<S: Simd>(s: S, x: S::V) -> S::V {
    let least = s.splat(-87.0);
    let n = s.round(s.mul(s.max(least, s.min(s.splat(80.0), x)), s.splat(std::f32::consts::LOG2_E)));
    let r = s.fma(n, s.splat(-0.693_359_4), x);
    let r = s.fma(n, s.splat(2.121_944_4e-4), r);
    let mut p = s.splat(1.987_569_1e-4);
    for c in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = s.fma(p, r, s.splat(c));
    }
    let p = s.add(s.fma(p, s.mul(r, r), r), s.splat(1.0));
    // A NaN is not below the least.
    s.select(s.gt(least, x), s.zero(), s.mul(p, s.pow2(n)))
}

/// Arguments of [`Weights`].
#[derive(Clone, Copy)]
pub struct WeightsArgs {
    /// The scores, which become `exp(scale · (score − top))`.
    pub rows: Rows,
    /// The largest score of each row.
    pub top: *mut f32,
    /// The sum of the weights of each row.
    pub sum: *mut f32,
    /// Null, or: there are `top` and `sum` of keys before, and each row gets here the factor that brings what was summed
    /// with the old `top` to the new one.
    pub factor: *mut f32,
    /// What is left out, if MASKED. The sums are those of all weights.
    pub mask: Mask,
}

/// The weights of rows of scores, not yet divided by their sum (the online softmax of Milakov & Gimelshein 2018).
pub struct Weights<const MASKED: bool>;

impl<const MASKED: bool> Routine for Weights<MASKED> {
    type Args = WeightsArgs;

    #[inline(always)]
    unsafe fn run<S: Simd>(s: S, args: WeightsArgs) {
        let WeightsArgs { rows, top, sum, factor, mask } = args;
        // SAFETY: the caller passes rows of `padded` scores with room for a whole number of vectors, and as many tops, sums and
        // factors as rows.
        unsafe {
            // All maxima first: each is ready long before it is needed.
            for r in 0..rows.rows {
                let (x, seen) = (rows.scores.add(r * rows.step), rows.seen(r));
                let whole = seen - seen % S::LANES;
                let mut best = s.splat(f32::NEG_INFINITY);
                for i in (0..whole).step_by(S::LANES) {
                    best = s.max(s.load(x.add(i)), best);
                }
                let mut most = s.max_lane(best);
                for i in whole..seen {
                    let x = *x.add(i);
                    most = if x > most { x } else { most };
                }
                if !factor.is_null() {
                    let before = *top.add(r);
                    most = if before > most { before } else { most };
                    *factor.add(r) = s.to_array(exp(s, s.splat((before - most) * rows.scale)))[0];
                }
                *top.add(r) = most;
            }
            let scale = s.splat(rows.scale);
            for r in 0..rows.rows {
                let (x, seen) = (rows.scores.add(r * rows.step), rows.seen(r));
                let shift = s.splat(-*top.add(r) * rows.scale);
                let mut total = s.zero();
                let mut i = 0;
                while i < seen {
                    let (at, end) = (i, if MASKED { seen.min(i + DRAWN) } else { seen });
                    let factors = if MASKED { mask.factors(r, at) } else { [1.0; DRAWN] };
                    while i < end {
                        let mut e = exp(s, s.fma(s.load(x.add(i)), scale, shift));
                        if i + S::LANES > end {
                            e = s.first(e, end - i);
                        }
                        total = s.add(total, e);
                        s.store(x.add(i), if MASKED { s.mul(e, s.load(factors.as_ptr().add(i - at))) } else { e });
                        i += S::LANES;
                    }
                }
                while i < rows.padded {
                    s.store(x.add(i), s.zero());
                    i += S::LANES;
                }
                let before = if factor.is_null() { 0.0 } else { *sum.add(r) * *factor.add(r) };
                *sum.add(r) = before + s.sum(total);
            }
        }
    }
}

/// Arguments of [`WeightGrads`].
#[derive(Clone, Copy)]
pub struct WeightGradsArgs {
    /// The scores, which become weights.
    pub rows: Rows,
    /// The gradients by the weights, laid out as the scores, which become the gradients by `q · k`.
    pub grads: *mut f32,
    /// Logarithm of the sum of each row's exponentials.
    pub lse: *const f32,
    /// Product of each row's result and its gradient.
    pub delta: *const f32,
    /// What is left out, if MASKED.
    pub mask: Mask,
}

/// Weights from scores, and the gradients by the scores from those by the weights.
pub struct WeightGrads<const MASKED: bool>;

impl<const MASKED: bool> Routine for WeightGrads<MASKED> {
    type Args = WeightGradsArgs;

    #[inline(always)]
    unsafe fn run<S: Simd>(s: S, args: WeightGradsArgs) {
        let WeightGradsArgs { rows, grads, lse, delta, mask } = args;
        let scale = s.splat(rows.scale);
        for r in 0..rows.rows {
            // SAFETY: the caller passes rows of `padded` scores and gradients with room for a whole number of vectors, and as
            // many numbers of the others as rows.
            unsafe {
                let (x, g, seen) = (rows.scores.add(r * rows.step), grads.add(r * rows.step), rows.seen(r));
                let (shift, delta) = (s.splat(-*lse.add(r)), s.splat(*delta.add(r)));
                let mut i = 0;
                while i < seen {
                    let (at, end) = (i, if MASKED { seen.min(i + DRAWN) } else { seen });
                    let factors = if MASKED { mask.factors(r, at) } else { [1.0; DRAWN] };
                    while i < end {
                        let mut p = exp(s, s.fma(s.load(x.add(i)), scale, shift));
                        let mut by_weight = s.load(g.add(i));
                        let factor = if MASKED { s.load(factors.as_ptr().add(i - at)) } else { s.splat(1.0) };
                        if MASKED {
                            by_weight = s.mul(by_weight, factor);
                        }
                        let mut d = s.mul(s.mul(p, scale), s.sub(by_weight, delta));
                        if MASKED {
                            p = s.mul(p, factor);
                        }
                        if i + S::LANES > end {
                            (p, d) = (s.first(p, end - i), s.first(d, end - i));
                        }
                        s.store(x.add(i), p);
                        s.store(g.add(i), d);
                        i += S::LANES;
                    }
                }
                while i < rows.padded {
                    s.store(x.add(i), s.zero());
                    s.store(g.add(i), s.zero());
                    i += S::LANES;
                }
            }
        }
    }
}

/// Arguments of [`Scale`].
#[derive(Clone, Copy)]
pub struct ScaleArgs {
    /// First float of the first row.
    pub y: *mut f32,
    /// Floats from row to row.
    pub step: usize,
    /// Number of rows.
    pub rows: usize,
    /// Floats of a row.
    pub width: usize,
    /// What each row is multiplied by.
    pub by: *const f32,
}

/// Rows times a number each.
pub struct Scale;

impl Routine for Scale {
    type Args = ScaleArgs;

    #[inline(always)]
    unsafe fn run<S: Simd>(s: S, a: ScaleArgs) {
        for r in 0..a.rows {
            // SAFETY: the caller passes rows and factors that are valid.
            unsafe {
                let (y, by) = (a.y.add(r * a.step), s.splat(*a.by.add(r)));
                let mut i = 0;
                while i + S::LANES <= a.width {
                    s.store(y.add(i), s.mul(s.load(y.add(i)), by));
                    i += S::LANES;
                }
                if i < a.width {
                    let n = a.width - i;
                    s.store_part(y.add(i), s.mul(s.load_part(y.add(i), n), by), n);
                }
            }
        }
    }
}

/// Arguments of [`Dots`].
#[derive(Clone, Copy)]
pub struct DotsArgs {
    /// First rows of both.
    pub of: [*const f32; 2],
    /// Floats from row to row of both.
    pub step: usize,
    /// Number of rows.
    pub rows: usize,
    /// Floats of a row.
    pub width: usize,
    /// A number for each row.
    pub to: *mut f32,
}

/// Scalar products of rows with rows.
pub struct Dots;

impl Routine for Dots {
    type Args = DotsArgs;

    #[inline(always)]
    unsafe fn run<S: Simd>(s: S, a: DotsArgs) {
        for r in 0..a.rows {
            // SAFETY: the caller passes rows that are valid.
            unsafe {
                let [x, y] = a.of.map(|p| p.wrapping_add(r * a.step));
                let mut total = s.zero();
                let mut i = 0;
                while i + S::LANES <= a.width {
                    total = s.fma(s.load(x.add(i)), s.load(y.add(i)), total);
                    i += S::LANES;
                }
                if i < a.width {
                    let n = a.width - i;
                    total = s.fma(s.load_part(x.add(i), n), s.load_part(y.add(i), n), total);
                }
                *a.to.add(r) = s.sum(total);
            }
        }
    }
}

/// Arguments of [`AddBias`].
#[derive(Clone, Copy)]
pub struct AddBiasArgs {
    /// What is added to: `keys` floats of each row.
    pub rows: Rows,
    /// The first float of the first row of what is added.
    pub bias: *const f32,
    /// Floats from row to row of it.
    pub step: usize,
    /// What it is multiplied by.
    pub by: f32,
}

/// Adds a multiple of other rows to rows.
pub struct AddBias;

impl Routine for AddBias {
    type Args = AddBiasArgs;

    #[inline(always)]
    unsafe fn run<S: Simd>(s: S, a: AddBiasArgs) {
        let by = s.splat(a.by);
        for r in 0..a.rows.rows {
            // SAFETY: the caller passes rows that are valid.
            unsafe {
                let (x, bias) = (a.rows.scores.add(r * a.rows.step), a.bias.add(r * a.step));
                let mut i = 0;
                while i + S::LANES <= a.rows.keys {
                    s.store(x.add(i), s.fma(s.load(bias.add(i)), by, s.load(x.add(i))));
                    i += S::LANES;
                }
                if i < a.rows.keys {
                    let n = a.rows.keys - i;
                    s.store_part(x.add(i), s.fma(s.load_part(bias.add(i), n), by, s.load_part(x.add(i), n)), n);
                }
            }
        }
    }
}
