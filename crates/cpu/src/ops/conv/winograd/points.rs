//! The transforms along one axis, by the points at which polynomials are evaluated (Toom and Cook's algorithm).

use crate::simd::Simd;

/// Height and width of the largest tile of an output, and of the pixels of an input that it reads.
pub const MOST: [usize; 2] = [4, 6];

/// The side of a tile of the output, and its transforms. Of their arrays the first elements count.
pub trait Points: Copy + Send + Sync + 'static {
    /// Height and width of a tile of the output.
    const TILE: usize;

    /// Height and width of the pixels of the input that a tile reads.
    const WIDE: usize = Self::TILE + 2;

    /// Elements of a transformed tile.
    const ELEMENTS: usize = Self::WIDE * Self::WIDE;

    /// Least tiles of a task: with fewer, the transformed weights are read too often, and reading them takes longer than the
    /// products.
    const LEAST_TILES: usize;

    /// Least tiles in all. `None`: as many as make the products, with the transforms, fewer than those of the convolution as it is.
    const LEAST_IN_ALL: Option<usize>;

    /// What transforming weights costs for each pair of an input and an output channel and each element, in multiply-adds.
    const TRANSFORM: usize;

    /// `G g`
    fn kernel_transform<S: Simd>(s: S, g: [S::V; 3]) -> [S::V; MOST[1]];

    /// `Bᵀ d`
    fn input_transform<S: Simd>(s: S, d: [S::V; MOST[1]]) -> [S::V; MOST[1]];

    /// `Aᵀ m`
    fn output_transform<S: Simd>(s: S, m: [S::V; MOST[1]]) -> [S::V; MOST[0]];
}

/// Tiles of 2 × 2 pixels: 0, ±1 and ∞. They round less than larger ones.
#[derive(Clone, Copy)]
pub struct Two;

impl Points for Two {
    const TILE: usize = 2;
    const LEAST_TILES: usize = 56;
    const LEAST_IN_ALL: Option<usize> = Some(56);
    const TRANSFORM: usize = 100;

    #[inline(always)]
    fn kernel_transform<S: Simd>(s: S, g: [S::V; 3]) -> [S::V; MOST[1]] {
        let half = s.splat(0.5);
        let ends = s.mul(half, s.add(g[0], g[2]));
        let middle = s.mul(half, g[1]);
        [g[0], s.add(ends, middle), s.sub(ends, middle), g[2], s.zero(), s.zero()]
    }

    #[inline(always)]
    fn input_transform<S: Simd>(s: S, d: [S::V; MOST[1]]) -> [S::V; MOST[1]] {
        [s.sub(d[0], d[2]), s.add(d[1], d[2]), s.sub(d[2], d[1]), s.sub(d[1], d[3]), s.zero(), s.zero()]
    }

    #[inline(always)]
    fn output_transform<S: Simd>(s: S, m: [S::V; MOST[1]]) -> [S::V; MOST[0]] {
        [s.add(s.add(m[0], m[1]), m[2]), s.sub(s.sub(m[1], m[2]), m[3]), s.zero(), s.zero()]
    }
}

/// Tiles of 4 × 4 pixels: 0, ±[`INNER`], ±[`OUTER`] and ∞. With ±1 and ±2, as in the paper, the largest rounding error is
/// three to four times as large: powers of these points stay nearer to 1. It is two to three times that of a plain sum.
#[derive(Clone, Copy)]
pub struct Four;

/// The smaller points, and their square.
const INNER: f32 = 0.75;
const INNER_2: f32 = INNER * INNER;

/// The larger points, and their square.
const OUTER: f32 = 1.5;
const OUTER_2: f32 = OUTER * OUTER;

/// What the kernel's values at 0, at the smaller and at the larger points are multiplied by: one over the products of the
/// point's distances from all others.
const AT_ZERO: f32 = 1.0 / (INNER_2 * OUTER_2);
const AT_INNER: f32 = 1.0 / (2.0 * INNER_2 * (INNER_2 - OUTER_2));
const AT_OUTER: f32 = 1.0 / (2.0 * OUTER_2 * (OUTER_2 - INNER_2));

/// `even + point · odd` and `even - point · odd`
#[inline(always)]
fn both<S: Simd>(s: S, point: f32, odd: S::V, even: S::V) -> [S::V; 2] {
    [s.fma(s.splat(point), odd, even), s.fma(s.splat(-point), odd, even)]
}

impl Points for Four {
    const TILE: usize = 4;
    const LEAST_TILES: usize = 28;
    const LEAST_IN_ALL: Option<usize> = None;
    const TRANSFORM: usize = 14;

    #[inline(always)]
    fn kernel_transform<S: Simd>(s: S, g: [S::V; 3]) -> [S::V; MOST[1]] {
        let [a, b] = both(s, INNER, g[1], s.fma(s.splat(INNER_2), g[2], g[0]));
        let [c, d] = both(s, OUTER, g[1], s.fma(s.splat(OUTER_2), g[2], g[0]));
        let (inner, outer) = (s.splat(AT_INNER), s.splat(AT_OUTER));
        [s.mul(s.splat(AT_ZERO), g[0]), s.mul(inner, a), s.mul(inner, b), s.mul(outer, c), s.mul(outer, d), g[2]]
    }

    #[inline(always)]
    fn input_transform<S: Simd>(s: S, d: [S::V; MOST[1]]) -> [S::V; MOST[1]] {
        let (inner, outer) = (s.splat(-INNER_2), s.splat(-OUTER_2));
        let (product, sum) = (s.splat(INNER_2 * OUTER_2), s.splat(-INNER_2 - OUTER_2));
        let zero = s.fma(product, d[0], s.fma(sum, d[2], d[4]));
        let [a, b] = both(s, INNER, s.fma(outer, d[1], d[3]), s.fma(outer, d[2], d[4]));
        let [c, e] = both(s, OUTER, s.fma(inner, d[1], d[3]), s.fma(inner, d[2], d[4]));
        [zero, a, b, c, e, s.fma(product, d[1], s.fma(sum, d[3], d[5]))]
    }

    #[inline(always)]
    fn output_transform<S: Simd>(s: S, m: [S::V; MOST[1]]) -> [S::V; MOST[0]] {
        let (inner, inner_odd) = (s.add(m[1], m[2]), s.mul(s.splat(INNER), s.sub(m[1], m[2])));
        let (outer, outer_odd) = (s.add(m[3], m[4]), s.mul(s.splat(OUTER), s.sub(m[3], m[4])));
        [
            s.add(m[0], s.add(inner, outer)),
            s.add(inner_odd, outer_odd),
            s.fma(s.splat(INNER_2), inner, s.mul(s.splat(OUTER_2), outer)),
            s.fma(s.splat(INNER_2), inner_odd, s.fma(s.splat(OUTER_2), outer_odd, m[5])),
        ]
    }
}

impl Four {
    /// `A y`, the adjoint of [`Points::output_transform`].
    #[inline(always)]
    pub fn output_adjoint<S: Simd>(s: S, y: [S::V; MOST[0]]) -> [S::V; MOST[1]] {
        let (inner, outer) = (s.splat(INNER_2), s.splat(OUTER_2));
        let [a, b] = both(s, INNER, s.fma(inner, y[3], y[1]), s.fma(inner, y[2], y[0]));
        let [c, d] = both(s, OUTER, s.fma(outer, y[3], y[1]), s.fma(outer, y[2], y[0]));
        [y[0], a, b, c, d, y[3]]
    }

    /// `Gᵀ u`, the adjoint of [`Points::kernel_transform`].
    #[inline(always)]
    pub fn kernel_adjoint<S: Simd>(s: S, u: [S::V; MOST[1]]) -> [S::V; 3] {
        let (inner, outer) = (s.splat(AT_INNER), s.splat(AT_OUTER));
        let (inner, inner_odd) = (s.mul(inner, s.add(u[1], u[2])), s.mul(inner, s.sub(u[1], u[2])));
        let (outer, outer_odd) = (s.mul(outer, s.add(u[3], u[4])), s.mul(outer, s.sub(u[3], u[4])));
        [
            s.fma(s.splat(AT_ZERO), u[0], s.add(inner, outer)),
            s.fma(s.splat(INNER), inner_odd, s.mul(s.splat(OUTER), outer_odd)),
            s.fma(s.splat(INNER_2), inner, s.fma(s.splat(OUTER_2), outer, u[5])),
        ]
    }
}
