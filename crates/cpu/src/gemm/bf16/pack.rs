//! Rounds operands to bf16 and lays them out as tiles read them.
//!
//! Rounding is to nearest even; denormal numbers become zero, which is how the tiles take them, and NaN stays NaN: to the bit
//! what `vcvtne2ps2bf16` gives.

use super::{PANEL, SIDE, STEP, TILE};
use crate::gemm::numbers::Address;
use crate::simd::bf16::Bf16Unit;
use crate::simd::{self, Routine, Simd, SimdLevel};

/// Which two terms of the sum are a pair of `B`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// Those that follow one another: 0 and 1, 2 and 3, …
    Neighbours,
    /// Even terms and odd ones apart, the later one in the lower half: 2 and 0, 3 and 1, 6 and 4, 7 and 5, …
    Alternate,
}

impl Pairing {
    const fn from(alternate: bool) -> Pairing {
        if alternate { Pairing::Alternate } else { Pairing::Neighbours }
    }

    /// As `unit` reads `B`.
    pub fn of(unit: Bf16Unit) -> Pairing {
        if unit == Bf16Unit::Avx512 { Pairing::Alternate } else { Pairing::Neighbours }
    }

    /// The terms in the lower and in the upper half of a pair.
    #[inline(always)]
    pub const fn terms(self, pair: usize) -> [usize; 2] {
        match self {
            Pairing::Neighbours => [2 * pair, 2 * pair + 1],
            Pairing::Alternate => {
                let first = pair / 2 * 4 + pair % 2;
                [first + 2, first]
            }
        }
    }
}

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
    /// A tile of pairs for each 16 columns, one after the other, padded with 0.
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
    turn: unsafe fn(Turn),
    /// For rows of `A` that are turned, whose pairs are neighbours.
    left: Pairs,
    /// For `B`.
    right: Pairs,
}

/// The same for one way to pair terms.
#[derive(Clone, Copy)]
struct Pairs {
    /// Rows of numbers along the sum, a pair of which are then turned as one.
    round: RoundFn,
    pair: PairFn,
    places: PlacesFn,
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

impl Pairs {
    fn new(pairing: Pairing, level: SimdLevel) -> Pairs {
        match pairing {
            Pairing::Neighbours => Pairs::of::<false>(level),
            Pairing::Alternate => Pairs::of::<true>(level),
        }
    }

    fn of<const ALTERNATE: bool>(level: SimdLevel) -> Pairs {
        #[cfg(target_arch = "x86_64")]
        if level == SimdLevel::Avx512 && is_x86_feature_detected!("avx512bf16") {
            use avx512::{pair, places, round};
            return Pairs { round: round::<ALTERNATE>, pair: pair::<ALTERNATE>, places: places::<ALTERNATE> };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = level;
        use plain::{pair, places, round};
        Pairs { round: round::<ALTERNATE>, pair: pair::<ALTERNATE>, places: places::<ALTERNATE> }
    }
}

impl Packer {
    /// The best that `level` allows, for what `unit` reads.
    pub fn new(unit: Bf16Unit, level: SimdLevel) -> Packer {
        let left = Pairs::new(Pairing::Neighbours, level);
        let right = Pairs::new(Pairing::of(unit), level);
        Packer { round: left.round, turn: level.routine::<TurnPairs>(), left, right }
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
                    (self.left.pair)(pairs);
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
        unsafe { (self.right.pair)(rows) };
    }

    /// A step of a panel of `B`, whose terms are rows anywhere.
    ///
    /// # Safety
    /// Both sides are valid and do not overlap.
    pub unsafe fn placed_pairs(&self, places: PairPlaces) {
        // SAFETY: the caller's promise.
        unsafe { (self.right.places)(places) };
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
            (self.left.places)(PairPlaces { to: square.0.as_mut_ptr(), ..p });
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
                (self.right.round)(rows);
                (self.turn)(Turn { from: square.0.as_ptr().cast(), to, to_step: SIDE });
            }
        }
    }
}

mod plain {
    use super::{PairPlaces, PairRows, Pairing, RoundRows, SIDE, STEP, TILE, rounded};

    /// Pairs of each term, from the first column's on.
    const fn pair_of<const ALTERNATE: bool>() -> [(usize, usize); STEP] {
        let mut places = [(0, 0); STEP];
        let mut pair = 0;
        while pair < SIDE {
            let [low, high] = Pairing::from(ALTERNATE).terms(pair);
            places[low] = (pair, 0);
            places[high] = (pair, 1);
            pair += 1;
        }
        places
    }

    pub unsafe fn places<const ALTERNATE: bool>(p: PairPlaces) {
        let pair_of = const { pair_of::<ALTERNATE>() };
        for tile in 0..p.columns.div_ceil(SIDE) {
            for (from, (pair, half)) in p.from.iter().zip(pair_of) {
                for n in 0..SIDE {
                    let column = tile * SIDE + n;
                    // SAFETY: the caller's promise.
                    unsafe {
                        let inside = !from.is_null() && column < p.columns;
                        let x = if inside { rounded(*from.add(column)) } else { 0 };
                        *p.to.add(tile * TILE + (pair * SIDE + n) * 2 + half) = x;
                    }
                }
            }
        }
    }

    pub unsafe fn round<const ALTERNATE: bool>(r: RoundRows) {
        let pair_of = const { pair_of::<ALTERNATE>() };
        for row in 0..r.rows {
            let (from, to) = (r.from.wrapping_add(row * r.from_step), r.to.wrapping_add(row * r.to_step));
            for first in (0..r.padded).step_by(STEP) {
                for (k, (pair, half)) in pair_of.into_iter().enumerate() {
                    // SAFETY: the caller's promise.
                    unsafe {
                        let inside = first + k < r.columns;
                        let x = if inside { rounded(*from.add(first + k)) } else { 0 };
                        *to.add(first + 2 * pair + half) = x;
                    }
                }
            }
        }
    }

    pub unsafe fn pair<const ALTERNATE: bool>(p: PairRows) {
        let pair_of = const { pair_of::<ALTERNATE>() };
        for tile in 0..p.columns.div_ceil(SIDE) {
            for (k, (pair, half)) in pair_of.into_iter().enumerate() {
                for n in 0..SIDE {
                    let column = tile * SIDE + n;
                    // SAFETY: the caller's promise.
                    unsafe {
                        let inside = k < p.terms && column < p.columns;
                        let x = if inside { rounded(*p.from.add(k * p.from_step + column)) } else { 0 };
                        *p.to.add(tile * TILE + (pair * SIDE + n) * 2 + half) = x;
                    }
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{PairPlaces, PairRows, Pairing, RoundRows, SIDE, STEP, TILE};
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
    pub unsafe fn round<const ALTERNATE: bool>(r: RoundRows) {
        let whole = r.columns / STEP * STEP;
        let order: [u16; STEP] = const {
            let mut order = [0; STEP];
            let mut i = 0;
            while i < STEP {
                order[i] = Pairing::from(ALTERNATE).terms(i / 2)[i % 2] as u16;
                i += 1;
            }
            order
        };
        // SAFETY: the caller's promise; what masks leave out is not touched.
        unsafe {
            let order = _mm512_loadu_si512(order.as_ptr().cast());
            let ordered = |x: __m512bh| {
                let x = std::mem::transmute::<__m512bh, __m512i>(x);
                if ALTERNATE { _mm512_permutexvar_epi16(order, x) } else { x }
            };
            for row in 0..r.rows {
                let (from, to) = (r.from.wrapping_add(row * r.from_step), r.to.wrapping_add(row * r.to_step));
                let ahead = from.wrapping_add(2 * r.from_step);
                let mut k = 0;
                while k < whole {
                    _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(k).cast());
                    _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(k + 16).cast());
                    let (low, high) = (_mm512_loadu_ps(from.add(k)), _mm512_loadu_ps(from.add(k + 16)));
                    _mm512_storeu_si512(to.add(k).cast(), ordered(_mm512_cvtne2ps_pbh(high, low)));
                    k += STEP;
                }
                while k < r.padded {
                    let left = r.columns.saturating_sub(k);
                    let low = _mm512_maskz_loadu_ps(bits(left), from.wrapping_add(k));
                    let high = _mm512_maskz_loadu_ps(bits(left.saturating_sub(16)), from.wrapping_add(k + 16));
                    _mm512_storeu_si512(to.add(k).cast(), ordered(_mm512_cvtne2ps_pbh(high, low)));
                    k += STEP;
                }
            }
        }
    }

    /// # Safety
    /// As [`super::Packer::pairs`], and the machine has the instructions.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    pub unsafe fn pair<const ALTERNATE: bool>(p: PairRows) {
        // Number `i` of the first half and number `i` of the second, side by side.
        let order: [u16; 32] = std::array::from_fn(|i| (i / 2 + i % 2 * 16) as u16);
        // SAFETY: the caller's promise; what masks leave out is not touched.
        unsafe {
            let order = _mm512_loadu_si512(order.as_ptr().cast());
            let tiles = p.columns.div_ceil(SIDE);
            for pair in 0..SIDE {
                let terms = Pairing::from(ALTERNATE).terms(pair);
                let [lower, upper] = terms.map(|k| p.from.wrapping_add(k * p.from_step));
                for tile in 0..tiles {
                    let mask = bits(p.columns - tile * SIDE);
                    let of = |there: bool| if there { mask } else { 0 };
                    _mm_prefetch::<_MM_HINT_T0>(lower.wrapping_add(AHEAD * p.from_step + tile * SIDE).cast());
                    _mm_prefetch::<_MM_HINT_T0>(upper.wrapping_add(AHEAD * p.from_step + tile * SIDE).cast());
                    let low = _mm512_maskz_loadu_ps(of(terms[0] < p.terms), lower.wrapping_add(tile * SIDE));
                    let high = _mm512_maskz_loadu_ps(of(terms[1] < p.terms), upper.wrapping_add(tile * SIDE));
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
    pub unsafe fn places<const ALTERNATE: bool>(p: PairPlaces) {
        let order: [u16; 32] = std::array::from_fn(|i| (i / 2 + i % 2 * 16) as u16);
        // SAFETY: the caller's promise; what masks leave out is not touched.
        unsafe {
            let order = _mm512_loadu_si512(order.as_ptr().cast());
            let tiles = p.columns.div_ceil(SIDE);
            for pair in 0..SIDE {
                let [lower, upper] = Pairing::from(ALTERNATE).terms(pair).map(|k| p.from[k]);
                for tile in 0..tiles {
                    let mask = bits(p.columns - tile * SIDE);
                    let of = |from: *const f32| if from.is_null() { 0 } else { mask };
                    let low = _mm512_maskz_loadu_ps(of(lower), lower.wrapping_add(tile * SIDE));
                    let high = _mm512_maskz_loadu_ps(of(upper), upper.wrapping_add(tile * SIDE));
                    let both = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low));
                    let paired = _mm512_permutexvar_epi16(order, both);
                    _mm512_storeu_si512(p.to.add(tile * TILE + pair * STEP).cast(), paired);
                }
            }
        }
    }
}
