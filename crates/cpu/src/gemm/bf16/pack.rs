//! Rounds operands to bf16 and lays them out as tiles read them.
//!
//! Rounding is to nearest even; denormal numbers become zero, which is how the tiles take them, and NaN stays NaN: to the bit
//! what `vcvtne2ps2bf16` gives.

use super::{PANEL, SIDE, STEP, TILE};
use crate::gemm::numbers::Address;
use crate::simd::{self, Routine, Simd, SimdLevel};

/// The bits of `x` as bf16: see [`simd::rounded`].
#[inline(always)]
pub fn rounded(x: f32) -> u16 {
    simd::rounded(x).to_bits()
}

/// Rows whose numbers along the sum lie side by side.
#[derive(Clone, Copy)]
pub struct RoundRows {
    /// The first number.
    pub from: *const f32,
    /// Floats from row to row.
    pub from_step: usize,
    /// Rows.
    pub rows: usize,
    /// Numbers of each.
    pub columns: usize,
    /// Where the first goes.
    pub to: *mut u16,
    /// 16-bit numbers from row to row.
    pub to_step: usize,
    /// Numbers to write in each row, a multiple of [`STEP`]: those after `columns` are 0.
    pub padded: usize,
}

/// Rows of which each is one term of the sum, for up to [`STEP`] terms and [`PANEL`] columns.
#[derive(Clone, Copy)]
pub struct PairRows {
    /// The first number.
    pub from: *const f32,
    /// Floats from term to term.
    pub from_step: usize,
    /// Terms, at most [`STEP`].
    pub terms: usize,
    /// Columns, at most [`PANEL`].
    pub columns: usize,
    /// A tile of pairs for each 16 columns, one behind the other, padded with 0.
    pub to: *mut u16,
}

/// Rows of which each is one term of the sum, as [`PairRows`], but wherever they lie.
#[derive(Clone, Copy)]
pub struct PairPlaces<'a> {
    /// The first column's number of each term, or null for 0.
    pub from: &'a [*const f32; STEP],
    /// Columns, at most [`PANEL`].
    pub columns: usize,
    /// As [`PairRows::to`].
    pub to: *mut u16,
}

type RoundFn = unsafe fn(RoundRows);
type PlacesFn = unsafe fn(PairPlaces);
type PairFn = unsafe fn(PairRows);

/// The routines of a machine.
#[derive(Clone, Copy)]
pub struct Packer {
    round: RoundFn,
    pair: PairFn,
    places: PlacesFn,
    turn: unsafe fn(Turn),
}

/// A square of 16 × 16 pairs to be transposed: `to` has them with `to_step` pairs from row to row.
struct Turn {
    from: *const f32,
    to: *mut f32,
    to_step: usize,
}

/// Transposes pairs, whose 32 bits are moved as floats are.
struct TurnPairs;

impl Routine for TurnPairs {
    type Args = Turn;

    #[inline(always)]
    unsafe fn run<S: Simd>(s: S, Turn { from, to, to_step }: Turn) {
        for row in (0..SIDE).step_by(S::LANES) {
            for column in (0..SIDE).step_by(S::LANES) {
                let (from, to) = (from.wrapping_add(row * SIDE + column), to.wrapping_add(column * to_step + row));
                // SAFETY: the caller passes squares that are valid and do not overlap.
                unsafe { s.transpose(from, SIDE, to, to_step) };
            }
        }
    }
}

/// A tile that is turned before it goes where it belongs.
#[repr(align(64))]
struct Square([u16; TILE]);

impl Packer {
    /// The best that `level` allows.
    pub fn new(level: SimdLevel) -> Packer {
        let turn = level.routine::<TurnPairs>();
        #[cfg(target_arch = "x86_64")]
        if level == SimdLevel::Avx512 && is_x86_feature_detected!("avx512bf16") {
            return Packer { round: avx512::round, pair: avx512::pair, places: avx512::places, turn };
        }
        Packer { round: plain::round, pair: plain::pair, places: plain::places, turn }
    }

    /// Rows of `A`, whose numbers lie along the sum.
    ///
    /// # Safety
    /// Both sides are valid and do not overlap.
    pub unsafe fn rows(&self, rows: RoundRows) {
        // SAFETY: the caller's promise.
        unsafe { (self.round)(rows) };
    }

    /// The same of numbers that may be rounded already, which begin at `from`.
    ///
    /// # Safety
    /// As [`Packer::rows`].
    pub unsafe fn rows_of(&self, from: Address, r: RoundRows) {
        let Some(from) = from.rounded() else {
            // SAFETY: the caller's promise.
            return unsafe { (self.round)(RoundRows { from: from.floats(), ..r }) };
        };
        for row in 0..r.rows {
            let (from, to) = (from.wrapping_add(row * r.from_step), r.to.wrapping_add(row * r.to_step));
            // SAFETY: as above.
            unsafe {
                std::ptr::copy_nonoverlapping(from.cast::<u16>(), to, r.columns);
                to.add(r.columns).write_bytes(0, r.padded - r.columns);
            }
        }
    }

    /// Rows of `A` whose numbers lie apart: element (i, k) at `from + i + k · from_step`; `columns` terms of `rows` rows.
    ///
    /// # Safety
    /// Both sides are valid and do not overlap; `to` has room for whole tiles of rows.
    pub unsafe fn turned_rows(&self, r: RoundRows) {
        let mut square = Square([0; TILE]);
        for row in (0..r.rows).step_by(SIDE) {
            for k in (0..r.padded).step_by(STEP) {
                let terms = r.columns.saturating_sub(k).min(STEP);
                let pairs = PairRows {
                    from: r.from.wrapping_add(row + k * r.from_step),
                    from_step: r.from_step,
                    terms,
                    columns: (r.rows - row).min(SIDE),
                    to: square.0.as_mut_ptr(),
                };
                let to = r.to.wrapping_add(row * r.to_step + k).cast();
                // SAFETY: the caller's promise; the square has room for a tile.
                unsafe {
                    (self.pair)(pairs);
                    (self.turn)(Turn { from: square.0.as_ptr().cast(), to, to_step: r.to_step / 2 });
                }
            }
        }
    }

    /// A step of a panel of `B`, whose columns lie side by side: element (k, n) at `from + k · from_step + n`.
    ///
    /// # Safety
    /// Both sides are valid and do not overlap.
    pub unsafe fn pairs(&self, rows: PairRows) {
        debug_assert!(rows.terms <= STEP && rows.columns <= PANEL);
        // SAFETY: the caller's promise.
        unsafe { (self.pair)(rows) };
    }

    /// A step of a panel of `B`, whose terms are rows anywhere.
    ///
    /// # Safety
    /// Both sides are valid and do not overlap.
    pub unsafe fn placed_pairs(&self, places: PairPlaces) {
        // SAFETY: the caller's promise.
        unsafe { (self.places)(places) };
    }

    /// A step of rows of `A`, whose terms are rows anywhere: 16 rows, `to_step` numbers apart.
    ///
    /// # Safety
    /// Both sides are valid and do not overlap; `to` has room for a tile.
    pub unsafe fn turned_places(&self, p: PairPlaces, to_step: usize) {
        debug_assert!(p.columns <= SIDE);
        let mut square = Square([0; TILE]);
        // SAFETY: the caller's promise; the square has room for a tile.
        unsafe {
            (self.places)(PairPlaces { to: square.0.as_mut_ptr(), ..p });
            (self.turn)(Turn { from: square.0.as_ptr().cast(), to: p.to.cast(), to_step: to_step / 2 });
        }
    }

    /// Transposes a tile of results: 16 × 16 floats to rows that are `to_step` floats apart.
    ///
    /// # Safety
    /// Both sides are valid and do not overlap.
    pub unsafe fn turned_results(&self, from: *const f32, to: *mut f32, to_step: usize) {
        // SAFETY: the caller's promise.
        unsafe { (self.turn)(Turn { from, to, to_step }) };
    }

    /// A step of a panel of `B`, whose numbers lie along the sum: element (k, n) at `from + k + n · from_step`.
    ///
    /// # Safety
    /// Both sides are valid and do not overlap.
    pub unsafe fn turned_pairs(&self, p: PairRows) {
        let mut square = Square([0; TILE]);
        for column in (0..p.columns).step_by(SIDE) {
            let columns = (p.columns - column).min(SIDE);
            if columns < SIDE {
                square.0.fill(0);
            }
            let rows = RoundRows {
                from: p.from.wrapping_add(column * p.from_step),
                from_step: p.from_step,
                rows: columns,
                columns: p.terms,
                to: square.0.as_mut_ptr(),
                to_step: STEP,
                padded: STEP,
            };
            let to = p.to.wrapping_add(column * STEP).cast();
            // SAFETY: the caller's promise; the square has room for a tile.
            unsafe {
                (self.round)(rows);
                (self.turn)(Turn { from: square.0.as_ptr().cast(), to, to_step: SIDE });
            }
        }
    }
}

mod plain {
    use super::{PairPlaces, PairRows, RoundRows, SIDE, STEP, TILE, rounded};

    pub unsafe fn places(p: PairPlaces) {
        for tile in 0..p.columns.div_ceil(SIDE) {
            for (k, from) in p.from.iter().enumerate() {
                for n in 0..SIDE {
                    let column = tile * SIDE + n;
                    // SAFETY: the caller's promise.
                    unsafe {
                        let inside = !from.is_null() && column < p.columns;
                        let x = if inside { rounded(*from.add(column)) } else { 0 };
                        *p.to.add(tile * TILE + (k / 2 * SIDE + n) * 2 + k % 2) = x;
                    }
                }
            }
        }
    }

    pub unsafe fn round(r: RoundRows) {
        for row in 0..r.rows {
            let (from, to) = (r.from.wrapping_add(row * r.from_step), r.to.wrapping_add(row * r.to_step));
            // SAFETY: the caller's promise.
            unsafe {
                for k in 0..r.columns {
                    *to.add(k) = rounded(*from.add(k));
                }
                to.add(r.columns).write_bytes(0, r.padded - r.columns);
            }
        }
    }

    pub unsafe fn pair(p: PairRows) {
        for tile in 0..p.columns.div_ceil(SIDE) {
            for k in 0..STEP {
                for n in 0..SIDE {
                    let column = tile * SIDE + n;
                    // SAFETY: the caller's promise.
                    unsafe {
                        let inside = k < p.terms && column < p.columns;
                        let x = if inside { rounded(*p.from.add(k * p.from_step + column)) } else { 0 };
                        *p.to.add(tile * TILE + (k / 2 * SIDE + n) * 2 + k % 2) = x;
                    }
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{PairPlaces, PairRows, RoundRows, SIDE, STEP, TILE};
    use std::arch::x86_64::*;

    /// Rows ahead of the one that is read are prefetched, as they lie apart.
    const AHEAD: usize = 16;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    fn bits(n: usize) -> __mmask16 {
        if n >= 16 { !0 } else { (1 << n) - 1 }
    }

    /// # Safety
    /// As [`super::Packer::rows`], and the machine has the instructions.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    pub unsafe fn round(r: RoundRows) {
        let whole = r.columns / STEP * STEP;
        // SAFETY: the caller's promise; what masks leave out is not touched.
        unsafe {
            for row in 0..r.rows {
                let (from, to) = (r.from.wrapping_add(row * r.from_step), r.to.wrapping_add(row * r.to_step));
                let ahead = from.wrapping_add(2 * r.from_step);
                let mut k = 0;
                while k < whole {
                    _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(k).cast());
                    _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(k + 16).cast());
                    let (low, high) = (_mm512_loadu_ps(from.add(k)), _mm512_loadu_ps(from.add(k + 16)));
                    let both = _mm512_cvtne2ps_pbh(high, low);
                    _mm512_storeu_si512(to.add(k).cast(), std::mem::transmute::<__m512bh, __m512i>(both));
                    k += STEP;
                }
                while k < r.padded {
                    let left = r.columns.saturating_sub(k);
                    let low = _mm512_maskz_loadu_ps(bits(left), from.wrapping_add(k));
                    let high = _mm512_maskz_loadu_ps(bits(left.saturating_sub(16)), from.wrapping_add(k + 16));
                    let both = _mm512_cvtne2ps_pbh(high, low);
                    _mm512_storeu_si512(to.add(k).cast(), std::mem::transmute::<__m512bh, __m512i>(both));
                    k += STEP;
                }
            }
        }
    }

    /// # Safety
    /// As [`super::Packer::pairs`], and the machine has the instructions.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    pub unsafe fn pair(p: PairRows) {
        // Number `i` of the first half and number `i` of the second, side by side.
        let order: [u16; 32] = std::array::from_fn(|i| (i / 2 + i % 2 * 16) as u16);
        // SAFETY: the caller's promise; what masks leave out is not touched.
        unsafe {
            let order = _mm512_loadu_si512(order.as_ptr().cast());
            let tiles = p.columns.div_ceil(SIDE);
            for pair in 0..SIDE {
                let k = 2 * pair;
                let (even, odd) = (p.from.wrapping_add(k * p.from_step), p.from.wrapping_add((k + 1) * p.from_step));
                for tile in 0..tiles {
                    let mask = bits(p.columns - tile * SIDE);
                    let of = |there: bool| if there { mask } else { 0 };
                    _mm_prefetch::<_MM_HINT_T0>(even.wrapping_add(AHEAD * p.from_step + tile * SIDE).cast());
                    _mm_prefetch::<_MM_HINT_T0>(odd.wrapping_add(AHEAD * p.from_step + tile * SIDE).cast());
                    let low = _mm512_maskz_loadu_ps(of(k < p.terms), even.wrapping_add(tile * SIDE));
                    let high = _mm512_maskz_loadu_ps(of(k + 1 < p.terms), odd.wrapping_add(tile * SIDE));
                    let both = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low));
                    let paired = _mm512_permutexvar_epi16(order, both);
                    _mm512_storeu_si512(p.to.add(tile * TILE + pair * STEP).cast(), paired);
                }
            }
        }
    }

    /// # Safety
    /// As [`super::Packer::placed_pairs`], and the machine has the instructions.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    pub unsafe fn places(p: PairPlaces) {
        let order: [u16; 32] = std::array::from_fn(|i| (i / 2 + i % 2 * 16) as u16);
        // SAFETY: the caller's promise; what masks leave out is not touched.
        unsafe {
            let order = _mm512_loadu_si512(order.as_ptr().cast());
            let tiles = p.columns.div_ceil(SIDE);
            for pair in 0..SIDE {
                let [even, odd] = [p.from[2 * pair], p.from[2 * pair + 1]];
                for tile in 0..tiles {
                    let mask = bits(p.columns - tile * SIDE);
                    let of = |from: *const f32| if from.is_null() { 0 } else { mask };
                    let low = _mm512_maskz_loadu_ps(of(even), even.wrapping_add(tile * SIDE));
                    let high = _mm512_maskz_loadu_ps(of(odd), odd.wrapping_add(tile * SIDE));
                    let both = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low));
                    let paired = _mm512_permutexvar_epi16(order, both);
                    _mm512_storeu_si512(p.to.add(tile * TILE + pair * STEP).cast(), paired);
                }
            }
        }
    }
}
