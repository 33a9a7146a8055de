//! The register tile that every matrix product and convolution ends in.
//!
//! `R` rows times two vectors of columns stay in registers while the sum runs:
//!
//! `C[r, n] = Σ_run Σ_j A[rows[r] + run.a + j · a_step] · B[run.b + j, n]`
//!
//! Rows are found through a table, so that a row can be the patch under an output pixel; a run is a stretch of the sum
//! over which both sides advance evenly, such as one kernel row over all its channels. With `a_step` = 1 this is a
//! product with unpacked rows of `A`; with the strides of a pixel on both sides it is the outer product of a weight
//! gradient. Only `B` needs a layout: the columns of a tile side by side, which packing sees to.

use crate::backend::cpu::simd::{Routine, Simd, SimdLevel};
use crate::graph::op::Activation;

/// Rows of the largest tile. With 32 registers 14 × 2 sums, two vectors of `B` and one element of `A` fill 31 of them;
/// the sums are then ready for the next addition long before it comes (2 units × 4 cycles < 28).
pub const MAX_ROWS: usize = 14;

/// Vectors in a tile's row.
pub const VECTORS: usize = 2;

/// A stretch of the sum: where it starts in `A` (floats from the row's start) and in `B` (rows).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// In `A`.
    pub a: u32,
    /// In `B`.
    pub b: u32,
}

/// The whole sum in one stretch.
pub const ONE_RUN: &[Run] = &[Run { a: 0, b: 0 }];

/// What is done to a finished sum before it is stored.
#[derive(Debug, Clone, Copy)]
pub struct Epilogue {
    /// `n` floats to add, or null.
    pub bias: *const f32,
    /// One of [`is_cheap`]'s.
    pub act: Option<Activation>,
}

impl Epilogue {
    /// Stores the sum as it is.
    pub const NONE: Epilogue = Epilogue { bias: std::ptr::null(), act: None };
}

/// The activations that a tile applies itself: a few instructions without constants that would need registers.
pub fn is_cheap(act: Activation) -> bool {
    use Activation::*;
    matches!(act, Relu | Relu6 | LeakyRelu { .. } | Hardsigmoid | Hardswish)
}

/// Arguments of a tile of `R` rows.
pub struct Tile<'a> {
    /// Base of `A`.
    pub a: *const f32,
    /// Where the rows start: at least `R`.
    pub a_rows: &'a [u32],
    /// Floats from one element of a row's run to the next.
    pub a_step: usize,
    /// Base of `B`.
    pub b: *const f32,
    /// Floats from one row of `B` to the next.
    pub b_step: usize,
    /// The stretches of the sum.
    pub runs: &'a [Run],
    /// Elements in each of them.
    pub run_len: usize,
    /// Base of `C`; with the offsets of the rows it lies inside, without it may not.
    pub c: *mut f32,
    /// Where the rows of `C` start: at least `R`.
    pub c_rows: &'a [u32],
    /// Columns to store, at most the tile's; `B` has all columns of every vector that holds one.
    pub n: usize,
    /// Adds to what `C` holds.
    pub accumulate: bool,
    /// Applied last.
    pub epilogue: Epilogue,
}

/// [`Tile`] as a routine: rows, vectors.
struct TileRoutine<const R: usize, const NV: usize>;

impl<const R: usize, const NV: usize> Routine for TileRoutine<R, NV> {
    type Args = *const Tile<'static>;

    #[inline(always)]
    unsafe fn run<S: Simd>(s: S, t: *const Tile<'static>) {
        // SAFETY: the caller passes a tile whose addresses are all valid, as [`Tiles::run`] demands.
        unsafe {
            let t = &*t;
            let mut acc = [[s.zero(); NV]; R];
            for run in t.runs {
                let mut rows = [t.a; R];
                for r in 0..R {
                    rows[r] = t.a.add(*t.a_rows.get_unchecked(r) as usize + run.a as usize);
                }
                let mut b = t.b.add(run.b as usize * t.b_step);
                let mut at = 0;
                for _ in 0..t.run_len {
                    let mut bv = [s.zero(); NV];
                    for v in 0..NV {
                        bv[v] = s.load(b.add(v * S::LANES));
                    }
                    for r in 0..R {
                        let av = s.splat(*rows[r].add(at));
                        for v in 0..NV {
                            acc[r][v] = s.fma(av, bv[v], acc[r][v]);
                        }
                    }
                    at += t.a_step;
                    b = b.add(t.b_step);
                }
            }
            let whole = t.n == NV * S::LANES;
            if t.accumulate {
                for r in 0..R {
                    let c = t.c.wrapping_add(*t.c_rows.get_unchecked(r) as usize);
                    for v in 0..NV {
                        let (c, n) = (c.add(v * S::LANES), t.n - v * S::LANES);
                        let before = if whole { s.load(c) } else { s.load_part(c, n) };
                        acc[r][v] = s.add(before, acc[r][v]);
                    }
                }
            }
            if !t.epilogue.bias.is_null() {
                for v in 0..NV {
                    let bias = s.load_part(t.epilogue.bias.add(v * S::LANES), t.n - v * S::LANES);
                    for r in 0..R {
                        acc[r][v] = s.add(acc[r][v], bias);
                    }
                }
            }
            if let Some(act) = t.epilogue.act {
                activate(s, act, &mut acc);
            }
            for r in 0..R {
                let c = t.c.wrapping_add(*t.c_rows.get_unchecked(r) as usize);
                for v in 0..NV {
                    let (c, n) = (c.add(v * S::LANES), t.n - v * S::LANES);
                    if whole {
                        s.store(c, acc[r][v]);
                    } else {
                        s.store_part(c, acc[r][v], n);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn relu6<S: Simd>(s: S, x: S::V) -> S::V {
    s.min(s.splat(6.0), s.max(s.zero(), x))
}

/// Applies one of the cheap activations; NaN stays NaN.
#[inline(always)]
pub fn activate<S: Simd, const R: usize, const NV: usize>(s: S, act: Activation, acc: &mut [[S::V; NV]; R]) {
    // The function is chosen outside the loop, which then stays in registers.
    macro_rules! each {
        ($x:ident => $y:expr) => {
            for row in acc.iter_mut() {
                for $x in row.iter_mut() {
                    *$x = $y;
                }
            }
        };
    }
    match act {
        Activation::Relu => each!(x => s.max(s.zero(), *x)),
        Activation::Relu6 => each!(x => relu6(s, *x)),
        Activation::LeakyRelu { slope } => each!(x => s.select(s.gt(*x, s.zero()), *x, s.mul(s.splat(slope), *x))),
        Activation::Hardsigmoid => each!(x => s.div(relu6(s, s.add(*x, s.splat(3.0))), s.splat(6.0))),
        Activation::Hardswish => each!(x => s.div(s.mul(*x, relu6(s, s.add(*x, s.splat(3.0)))), s.splat(6.0))),
        _ => debug_assert!(false, "{} is not applied by a tile", act.name()),
    }
}

type TileFn = unsafe fn(*const Tile<'static>);

/// The tiles of a level.
#[derive(Clone, Copy)]
pub struct Tiles {
    /// By rows less one, and vectors less one.
    routines: [[TileFn; VECTORS]; MAX_ROWS],
    /// Rows of the largest tile that fits the registers.
    pub rows: usize,
    /// Floats in a vector.
    pub lanes: usize,
    /// The level.
    pub level: SimdLevel,
}

impl Tiles {
    /// The tiles of `level`.
    pub fn new(level: SimdLevel) -> Tiles {
        macro_rules! routines {
            ($($r:literal)*) => {
                [$([level.routine::<TileRoutine<$r, 1>>(), level.routine::<TileRoutine<$r, 2>>()]),*]
            };
        }
        let rows = match level {
            SimdLevel::Avx512 | SimdLevel::Neon => MAX_ROWS,
            // 6 × 2 sums, two vectors of B and one element of A: 15 of 16 registers.
            SimdLevel::Avx2 => 6,
            // A vector is two registers of 16 here: 3 × 2 sums and one vector of B are 14.
            SimdLevel::Scalar => 3,
        };
        Tiles { routines: routines!(1 2 3 4 5 6 7 8 9 10 11 12 13 14), rows, lanes: level.lanes(), level }
    }

    /// Columns of a whole tile, and of a packed panel.
    pub fn columns(&self) -> usize {
        VECTORS * self.lanes
    }

    /// Computes a tile of `rows` rows (at least 1, at most [`Tiles::rows`]).
    ///
    /// # Safety
    /// Every element of `A`, `B`, `C` and the bias that the arguments reach is valid; nobody else writes what is read
    /// or touches what is written.
    #[inline]
    pub unsafe fn run(&self, rows: usize, tile: &Tile) {
        debug_assert!(tile.a_rows.len() >= rows && tile.c_rows.len() >= rows);
        debug_assert!(rows > 0 && rows <= self.rows && tile.n > 0 && tile.n <= self.columns());
        let vectors = if tile.n > self.lanes { 1 } else { 0 };
        // SAFETY: the caller's promise; the routine keeps nothing of the tile.
        unsafe { self.routines[rows - 1][vectors](std::ptr::from_ref(tile).cast()) }
    }
}

/// Cuts `len` rows in as few tiles of at most `most` rows as possible, all of nearly the same height: two tiles of 8 keep
/// the units busier than one of 14 and one of 2. Calls `f(start, rows)`.
#[inline]
pub fn for_each_tile(len: usize, most: usize, mut f: impl FnMut(usize, usize)) {
    let count = len.div_ceil(most);
    for i in 0..count {
        let (start, end) = (len * i / count, len * (i + 1) / count);
        f(start, end - start);
    }
}
