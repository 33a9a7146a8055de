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

use super::LINE;
use crate::graph::op::Activation;
use crate::simd::{Routine, Simd, SimdLevel};
use half::bf16;
use std::fmt::Debug;
use std::ops::Range;

/// Rows of the largest tile. With 32 registers 14 × 2 sums, two vectors of `B` and one element of `A` fill 31 of them;
/// the sums are then ready for the next addition long before it comes (2 units × 4 cycles < 28).
pub const MAX_ROWS: usize = 14;

/// Vectors in a tile's row.
pub const VECTORS: usize = 2;

/// A stretch of the sum over which both operands advance evenly: where it starts in `A` (floats from the row's start) and in
/// `B` (rows).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// In `A`.
    pub a: u32,
    /// In `B`.
    pub b: u32,
}

/// The whole sum in one stretch.
pub const ONE_RUN: &[Run] = &[Run { a: 0, b: 0 }];

/// The epilogue of a product, applied to a finished sum before it is stored: scale, bias, residual, ReLU mask, bounds. Whether
/// the bias is added before or after the residual is up to the kernel; there is never a bias with a ReLU mask.
#[derive(Debug, Clone, Copy)]
pub struct Epilogue {
    /// `n` floats to multiply by, or null.
    pub scale: *const f32,
    /// `n` floats to add, or null.
    pub bias: *const f32,
    /// Base of a matrix laid out like `C`, to add, or null: of floats, but for kernels that were made for rounded ones.
    pub residual: *const f32,
    /// Base of a matrix laid out like `C`, or null: where it has no number above 0, the sum becomes 0.
    pub relu_mask: *const f32,
    /// Base of `C`, from which the places in the two matrices are counted.
    pub base: *const f32,
    /// Lower bound of the result; 0 is ReLU.
    pub low: f32,
    /// Upper bound of the result.
    pub high: f32,
}

impl Epilogue {
    /// Stores the sum as it is.
    pub const NONE: Epilogue = Epilogue {
        scale: std::ptr::null(),
        bias: std::ptr::null(),
        residual: std::ptr::null(),
        relu_mask: std::ptr::null(),
        base: std::ptr::null(),
        low: f32::NEG_INFINITY,
        high: f32::INFINITY,
    };

    /// Applies `act`, if it is one that [`is_fused`].
    pub fn of(act: Option<Activation>) -> Epilogue {
        let [low, high] = match act.filter(|&act| is_fused(act)) {
            Some(act) => act.facts().range,
            None => [f32::NEG_INFINITY, f32::INFINITY],
        };
        Epilogue { low, high, ..Self::NONE }
    }

    /// The same with `operands`, for columns from `first` on of a result whose first element is at `base`.
    pub fn with(self, operands: EpilogueOperands, first: usize, base: *const f32) -> Epilogue {
        let from = |x: Option<&[f32]>| x.map_or(std::ptr::null(), |x| x[first..].as_ptr());
        let matrix = |x: Option<&[f32]>| x.map_or(std::ptr::null(), <[f32]>::as_ptr);
        let (residual, relu_mask) = (matrix(operands.residual), matrix(operands.relu_mask));
        let residual = operands.rounded_residual.map_or(residual, |x| x.as_ptr().cast());
        Epilogue { scale: from(operands.scale), bias: from(operands.bias), residual, relu_mask, base, ..self }
    }

    /// The element of `matrix`, which is laid out like `C`, that belongs to the element of `C` at `c`.
    #[inline(always)]
    fn element(&self, matrix: *const f32, c: *const f32) -> *const f32 {
        matrix.wrapping_byte_offset(c.addr().wrapping_sub(self.base.addr()).cast_signed())
    }

    /// Adds the residual to `x` and applies the ReLU mask, for `n` columns of `C` from `c` on.
    ///
    /// # Safety
    /// The matrices that there are have these elements.
    #[inline(always)]
    pub unsafe fn apply_matrices<S: Simd>(&self, s: S, mut x: S::V, c: *const f32, n: usize) -> S::V {
        // SAFETY: the caller's promise.
        unsafe {
            let get = |p: *const f32| if n < S::LANES { s.load_part(p, n) } else { s.load(p) };
            if !self.residual.is_null() {
                x = s.add(x, get(self.element(self.residual, c)));
            }
            if !self.relu_mask.is_null() {
                let y = get(self.element(self.relu_mask, c));
                x = s.select(s.ge(s.zero(), y), s.zero(), x);
            }
            x
        }
    }

    /// True if there is a residual or a ReLU mask.
    #[inline(always)]
    pub fn has_matrix(&self) -> bool {
        !self.residual.is_null() || !self.relu_mask.is_null()
    }

    /// The same from column `first` on.
    pub fn from_column(self, first: usize) -> Epilogue {
        let from = |p: *const f32| if p.is_null() { p } else { p.wrapping_add(first) };
        Epilogue { scale: from(self.scale), bias: from(self.bias), ..self }
    }
}

/// The operands of an [`Epilogue`]: vectors with a number for each column, and matrices laid out like the result, which share
/// no memory with it.
#[derive(Debug, Clone, Copy, Default)]
pub struct EpilogueOperands<'a> {
    /// Vector that the sums are multiplied by.
    pub scale: Option<&'a [f32]>,
    /// Vector that is added.
    pub bias: Option<&'a [f32]>,
    /// Matrix that is added.
    pub residual: Option<&'a [f32]>,
    /// The same, rounded in memory, for kernels that were made for it: instead of `residual`.
    pub rounded_residual: Option<&'a [bf16]>,
    /// Matrix with the values of a ReLU: where they are not above 0, the result is 0. Without `bias`, which is added later.
    pub relu_mask: Option<&'a [f32]>,
    /// What is done with results while they are in the cache, by the kernels that say so.
    pub finish: Option<&'a dyn Finish>,
}

/// What an [`Epilogue`] cannot do: an activation that is no bound, applied in place, or sums over what has been written.
pub trait Finish: Sync + Debug {
    /// Does it to `rows`, which have their results. Every result comes once.
    ///
    /// # Safety
    /// They are valid, and nothing else uses them meanwhile.
    unsafe fn run(&self, rows: Rows);
}

/// Rows of floats.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    /// The first element.
    pub first: *mut f32,
    /// How many there are.
    pub rows: usize,
    /// Elements of each.
    pub columns: usize,
    /// Floats from one to the next.
    pub step: usize,
}

impl<'a> From<Option<&'a [f32]>> for EpilogueOperands<'a> {
    fn from(bias: Option<&'a [f32]>) -> Self {
        EpilogueOperands { bias, ..EpilogueOperands::default() }
    }
}

impl EpilogueOperands<'_> {
    /// True if the vectors that there are have at least `n` elements, and the matrices at least `len`.
    pub fn has(&self, n: usize, len: usize) -> bool {
        [self.scale, self.bias].into_iter().flatten().all(|x| x.len() >= n)
            && [self.residual, self.relu_mask].into_iter().flatten().all(|x| x.len() >= len)
            && self.rounded_residual.is_none_or(|x| x.len() >= len)
    }
}

/// True for the activations that an epilogue applies: those that are bounds. All others take a second pass over the result.
pub fn is_fused(act: Activation) -> bool {
    act.facts().clamps
}

/// Rows of `B` to prefetch where it comes from L3: what is computed with them takes as long as a line takes from there.
const ROWS_AHEAD: usize = 32;

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
    /// `B` may come from beyond L2, and is prefetched.
    pub b_far: bool,
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

impl Tile<'_> {
    /// Element `n` of row `r` of `C`.
    ///
    /// # Safety
    /// The table has this row.
    #[inline(always)]
    unsafe fn c_at(&self, r: usize, n: usize) -> *mut f32 {
        // SAFETY: the caller's promise.
        self.c.wrapping_add(unsafe { *self.c_rows.get_unchecked(r) } as usize + n)
    }
}

/// Unrolls the loop over rows: if the compiler did not unroll it, the accumulators would lie in memory.
macro_rules! each_row {
    ($r:ident < $rows:ident => $body:expr) => { each_row!($r $rows $body; 0 1 2 3 4 5 6 7 8 9 10 11 12 13) };
    ($r:ident $rows:ident $body:expr; $($i:literal)*) => { $(if $i < $rows {
        let $r: usize = $i;
        $body
    })* };
}

/// [`Tile`] as a routine: rows, vectors.
struct TileRoutine<const R: usize, const NV: usize>;

impl<const R: usize, const NV: usize> Routine for TileRoutine<R, NV> {
    type Args = *const Tile<'static>;

    // The sums of a row are two, and at least one vector of B is beside them.
    const REGISTERS: usize = VECTORS * R + 1;

    #[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
    #[inline(always)]
    unsafe fn run<S: Simd>(s: S, t: *const Tile<'static>) {
        // SAFETY: the caller passes a tile whose addresses are all valid, as [`Tiles::run`] demands.
        unsafe {
            let t = &*t;
            // `C` is then in L1 when it is stored, however long the sum takes.
            for r in 0..R {
                for v in 0..NV {
                    s.prefetch_write(t.c_at(r, v * S::LANES));
                }
                s.prefetch_write(t.c_at(r, t.n - 1));
            }
            let mut acc = [[s.zero(); NV]; R];
            for run in t.runs {
                if t.a_step >= LINE {
                    Self::stretch::<S, true, false>(s, t, run, &mut acc);
                } else if t.b_far {
                    Self::stretch::<S, false, true>(s, t, run, &mut acc);
                } else {
                    Self::stretch::<S, false, false>(s, t, run, &mut acc);
                }
            }
            let last = t.n - (NV - 1) * S::LANES;
            if t.accumulate && last == S::LANES {
                each_row!(r < R => for v in 0..NV {
                    acc[r][v] = s.add(s.load(t.c_at(r, v * S::LANES)), acc[r][v]);
                });
            } else if t.accumulate {
                each_row!(r < R => {
                    for v in 0..NV - 1 {
                        acc[r][v] = s.add(s.load(t.c_at(r, v * S::LANES)), acc[r][v]);
                    }
                    let have = s.load_part(t.c_at(r, (NV - 1) * S::LANES), last);
                    acc[r][NV - 1] = s.add(have, acc[r][NV - 1]);
                });
            }
            // Only in evaluation, from batch normalisation.
            if !t.epilogue.scale.is_null() {
                for v in 0..NV {
                    let scale = s.load_part(t.epilogue.scale.add(v * S::LANES), t.n - v * S::LANES);
                    each_row!(r < R => acc[r][v] = s.mul(acc[r][v], scale));
                }
            }
            if t.epilogue.has_matrix() {
                each_row!(r < R => for v in 0..NV {
                    let at = t.c_at(r, v * S::LANES);
                    acc[r][v] = t.epilogue.apply_matrices(s, acc[r][v], at, t.n - v * S::LANES);
                });
            }
            let mut bias = [s.zero(); NV];
            if !t.epilogue.bias.is_null() {
                for v in 0..NV {
                    bias[v] = s.load_part(t.epilogue.bias.add(v * S::LANES), t.n - v * S::LANES);
                }
            }
            let (low, high) = (s.splat(t.epilogue.low), s.splat(t.epilogue.high));
            if last == S::LANES {
                each_row!(r < R => for v in 0..NV {
                    // The sum comes second, so that NaN stays.
                    let x = s.min(high, s.max(low, s.add(acc[r][v], bias[v])));
                    s.store(t.c_at(r, v * S::LANES), x);
                });
            } else {
                each_row!(r < R => {
                    for v in 0..NV - 1 {
                        let x = s.min(high, s.max(low, s.add(acc[r][v], bias[v])));
                        s.store(t.c_at(r, v * S::LANES), x);
                    }
                    let x = s.min(high, s.max(low, s.add(acc[r][NV - 1], bias[NV - 1])));
                    s.store_part(t.c_at(r, (NV - 1) * S::LANES), x, last);
                });
            }
        }
    }
}

impl<const R: usize, const NV: usize> TileRoutine<R, NV> {
    /// Adds a stretch of the sum. With `AHEAD`, for elements of a row that lie in different cache lines, each step prefetches
    /// the line after the last row's, where the next tile's rows are; with `FAR`, the row of `B` that is [`ROWS_AHEAD`].
    ///
    /// # Safety
    /// As for the tile.
    #[allow(clippy::needless_range_loop, reason = "indices say what is unrolled into registers")]
    #[inline(always)]
    unsafe fn stretch<S: Simd, const AHEAD: bool, const FAR: bool>(
        s: S,
        t: &Tile,
        run: &Run,
        acc: &mut [[S::V; NV]; R],
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut rows = [t.a; R];
            for r in 0..R {
                rows[r] = t.a.wrapping_add(*t.a_rows.get_unchecked(r) as usize + run.a as usize);
            }
            let mut b = t.b.wrapping_add(run.b as usize * t.b_step);
            let mut at = 0;
            for _ in 0..t.run_len {
                let mut bv = [s.zero(); NV];
                for v in 0..NV {
                    bv[v] = s.load(b.add(v * S::LANES));
                    if FAR {
                        s.prefetch(b.wrapping_add(ROWS_AHEAD * t.b_step + v * S::LANES));
                    }
                }
                for r in 0..R {
                    let av = s.splat(*rows[r].add(at));
                    for v in 0..NV {
                        acc[r][v] = s.fma(av, bv[v], acc[r][v]);
                    }
                }
                if AHEAD {
                    s.prefetch(rows[R - 1].wrapping_add(at + LINE));
                }
                at += t.a_step;
                b = b.wrapping_add(t.b_step);
            }
        }
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
    /// Every element of `A`, `B`, `C` and the bias that the arguments reach is valid. No other thread writes the elements
    /// that are read, or reads or writes those that are written.
    #[inline]
    pub unsafe fn run(&self, rows: usize, tile: &Tile) {
        debug_assert!(tile.a_rows.len() >= rows && tile.c_rows.len() >= rows);
        debug_assert!(rows > 0 && rows <= self.rows && tile.n > 0 && tile.n <= self.columns());
        let vectors = if tile.n > self.lanes { 1 } else { 0 };
        // SAFETY: the caller's promise; the routine keeps nothing of the tile.
        unsafe { self.routines[rows - 1][vectors](std::ptr::from_ref(tile).cast()) }
    }
}

/// How many tiles of at most `most` rows it takes for `len` rows.
#[inline]
pub fn tiles_in(len: usize, most: usize) -> usize {
    len.div_ceil(most)
}

/// Rows of tile `i` of the `count` that `len` rows are cut in, all of nearly the same height: two tiles of 8 keep the
/// units busier than one of 14 and one of 2.
#[inline]
pub fn tile_rows(len: usize, count: usize, i: usize) -> Range<usize> {
    len * i / count..len * (i + 1) / count
}

/// Cuts `len` rows in as few tiles of at most `most` rows as possible and calls `f(start, rows)` for each.
#[inline]
pub fn for_each_tile(len: usize, most: usize, mut f: impl FnMut(usize, usize)) {
    let count = tiles_in(len, most);
    for i in 0..count {
        let rows = tile_rows(len, count, i);
        f(rows.start, rows.len());
    }
}
