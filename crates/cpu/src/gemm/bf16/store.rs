//! From a block's tiles to the result, by way of the epilogue.

use super::block::{BLOCK, RESULTS};
use super::{PANEL, SIDE};
use crate::gemm::numbers::{Address, Rounded};
use crate::gemm::tile::{Epilogue, Finish, Rows};
use crate::simd::lanes::Lane;
use crate::simd::{Routine, Simd, SimdLevel};
use half::bf16;
use std::marker::PhantomData;

/// Arguments of `StoreBlock`.
pub struct Stored<'a> {
    /// The block.
    pub tiles: *mut f32,
    /// Rows, at most [`PANEL`].
    pub rows: usize,
    /// Columns, at most [`PANEL`].
    pub n: usize,
    /// Element (0, 0) of the result.
    pub c: Address,
    /// Column 0 of the place that the rows are counted from: elements from there, in the result and in the matrices of the epilogue.
    pub first: isize,
    /// Where each row begins, elements from `first`: at least `rows`, or none for rows that are `step` apart. [`SKIPPED`] ones are not stored.
    pub places: &'a [u32],
    /// Elements from row to row.
    pub step: usize,
    /// Applied to each result; its vectors begin at the block's first column.
    pub epilogue: Epilogue,
    /// Results stay in their tiles.
    pub stays: bool,
}

/// The place of a row that is not stored.
pub const SKIPPED: u32 = u32::MAX;

impl Stored<'_> {
    /// Where a row begins, from `first` on.
    ///
    /// # Safety
    /// There is that row.
    #[inline(always)]
    unsafe fn place(&self, row: usize) -> Option<usize> {
        if self.places.is_empty() {
            return Some(row * self.step);
        }
        // SAFETY: the caller's promise.
        let place = unsafe { *self.places.get_unchecked(row) };
        (place != SKIPPED).then_some(place as usize)
    }
}

/// Stores blocks, as a level and the types of the result and of what is added to it have it.
#[derive(Clone, Copy)]
pub struct Store {
    store: unsafe fn(*const Stored<'static>),
    /// What stores results as they are.
    plain: unsafe fn(*const Stored<'static>),
    foresee: unsafe fn(*const Stored<'static>),
    rounds: bool,
}

impl Store {
    /// For these types.
    pub fn new(level: SimdLevel, rounded: Rounded) -> Store {
        let routine = |rounded: Rounded| -> unsafe fn(*const Stored<'static>) {
            #[cfg(target_arch = "x86_64")]
            if rounded.result && level == SimdLevel::Avx512 && is_x86_feature_detected!("avx512bf16") {
                return if rounded.summand { avx512::store::<true> } else { avx512::store::<false> };
            }
            match (rounded.result, rounded.summand) {
                (false, false) => level.routine::<StoreBlock<f32, f32>>(),
                (false, true) => level.routine::<StoreBlock<f32, bf16>>(),
                (true, false) => level.routine::<StoreBlock<bf16, f32>>(),
                (true, true) => level.routine::<StoreBlock<bf16, bf16>>(),
            }
        };
        Store {
            store: routine(rounded),
            plain: routine(Rounded { summand: false, ..rounded }),
            foresee: level.routine::<ForeseeBlock>(),
            rounds: rounded.result,
        }
    }

    /// True if a [`Finish`] is to be given to [`Store::store`]: results are rounded when it is done with them. It does the same to every
    /// result.
    pub fn finishes(&self) -> bool {
        self.rounds
    }

    /// Stores a block.
    ///
    /// # Safety
    /// The tiles are valid, and the block's place is this thread's own.
    #[inline]
    pub unsafe fn store(&self, block: &Stored, finish: Option<&dyn Finish>) {
        let Some(finish) = finish.filter(|_| self.rounds) else {
            // SAFETY: the caller's promise.
            return unsafe { (self.store)(std::ptr::from_ref(block).cast()) };
        };
        let inside = Stored { stays: true, ..*block };
        // SAFETY: as above; the tiles are 16 rows of 16 floats.
        unsafe {
            (self.store)(std::ptr::from_ref(&inside).cast());
            if block.rows == PANEL && block.n == PANEL {
                // All tiles at once: what a `Finish` is to results that are rounded is the same for each.
                finish.run(Rows { first: block.tiles, rows: 1, columns: BLOCK, step: BLOCK });
            }
            for tile in (0..4).filter(|_| block.rows < PANEL || block.n < PANEL) {
                let [row, column] = [tile / 2 * SIDE, tile % 2 * SIDE];
                if row < block.rows && column < block.n {
                    let first = block.tiles.add(tile * RESULTS);
                    let (rows, columns) = ((block.rows - row).min(SIDE), (block.n - column).min(SIDE));
                    finish.run(Rows { first, rows, columns, step: SIDE });
                }
            }
            let done = Stored { epilogue: Epilogue::NONE, ..*block };
            (self.plain)(std::ptr::from_ref(&done).cast());
        }
    }

    /// Asks for the lines that a block will be stored to.
    pub fn foresee(&self, block: &Stored) {
        // SAFETY: a hint.
        unsafe { (self.foresee)(std::ptr::from_ref(block).cast()) };
    }
}

/// Stores a block of results of type `Y`, after a matrix of type `R` was added if there is one.
struct StoreBlock<Y, R>(PhantomData<(Y, R)>);

impl<Y: Lane, R: Lane> Routine for StoreBlock<Y, R> {
    type Args = *const Stored<'static>;

    #[inline(always)]
    unsafe fn run<S: Simd>(s: S, args: *const Stored<'static>) {
        // SAFETY: the caller passes addresses that are all valid.
        unsafe {
            let b = &*args;
            debug_assert!(b.rows <= PANEL && b.n <= PANEL);
            let epilogue = &b.epilogue;
            let (low, high) = (s.splat(epilogue.low), s.splat(epilogue.high));
            let c = b.c.byte().cast::<Y>().wrapping_offset(b.first);
            let residual = epilogue.residual.cast::<R>();
            for column in (0..b.n).step_by(S::LANES) {
                let n = (b.n - column).min(S::LANES);
                let vector = |p: *const f32| s.load_part(p.add(column), n);
                let scale = if epilogue.scale.is_null() { s.splat(1.0) } else { vector(epilogue.scale) };
                let bias = if epilogue.bias.is_null() { s.zero() } else { vector(epilogue.bias) };
                let tile = b.tiles.add(column / SIDE * RESULTS + column % SIDE);
                for row in 0..b.rows {
                    let Some(place) = b.place(row) else { continue };
                    let at = tile.add(row / SIDE * 2 * RESULTS + row % SIDE * SIDE);
                    let mut x = s.load(at);
                    if !epilogue.scale.is_null() {
                        x = s.mul(x, scale);
                    }
                    let place = (place + column).cast_signed();
                    if !residual.is_null() {
                        x = s.add(x, R::load(s, residual.wrapping_offset(b.first + place), n));
                    }
                    if !epilogue.relu_mask.is_null() {
                        let y = f32::load(s, epilogue.relu_mask.wrapping_offset(b.first + place), n);
                        x = s.select(s.ge(s.zero(), y), s.zero(), x);
                    }
                    // The sum comes second, so that NaN stays.
                    x = s.min(high, s.max(low, s.add(x, bias)));
                    if b.stays {
                        s.store(at, x);
                    } else {
                        Y::store(s, c.wrapping_offset(place), x, n);
                    }
                }
            }
        }
    }
}

/// Asks for the cache lines of a block's place, which is stored when its sums are done.
struct ForeseeBlock;

impl Routine for ForeseeBlock {
    type Args = *const Stored<'static>;

    #[inline(always)]
    unsafe fn run<S: Simd>(s: S, args: *const Stored<'static>) {
        // SAFETY: the caller passes valid arguments; the lines are only asked for.
        unsafe {
            let b = &*args;
            let c = b.c.offset(b.first);
            for row in 0..b.rows {
                if let Some(place) = b.place(row) {
                    for column in (0..b.n).step_by(64 / c.size()) {
                        s.prefetch_write(c.at(place + column).byte().cast());
                    }
                    s.prefetch_write(c.at(place + b.n - 1).byte().cast());
                }
            }
        }
    }
}

/// The same, to the bit, where results are rounded and the machine has an instruction for that: whole rows of a block at a time.
#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{RESULTS, SIDE, Stored};
    use std::arch::x86_64::*;

    /// Sixteen numbers of what is added.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    unsafe fn summand<const ROUNDED: bool>(p: *const f32, at: isize, mask: __mmask16) -> __m512 {
        // SAFETY: the caller's promise; what the mask leaves out is not read.
        unsafe {
            if !ROUNDED {
                return _mm512_maskz_loadu_ps(mask, p.wrapping_offset(at));
            }
            let halves = _mm256_maskz_loadu_epi16(mask, p.cast::<i16>().wrapping_offset(at));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves)))
        }
    }

    /// # Safety
    /// The addresses are all valid, the result is of rounded numbers, and the machine has the instructions.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    pub unsafe fn store<const ROUNDED: bool>(args: *const Stored<'static>) {
        // SAFETY: the caller's promise; what masks leave out is not touched.
        unsafe {
            let b = &*args;
            let e = b.epilogue;
            debug_assert!(e.relu_mask.is_null(), "results of training are not rounded");
            let all = ((1u64 << b.n) - 1) as u32;
            let masks = [all as __mmask16, (all >> SIDE) as __mmask16];
            let vectors = |p: *const f32, none: f32| {
                let one = |half: usize| match p.is_null() {
                    true => _mm512_set1_ps(none),
                    false => _mm512_maskz_loadu_ps(masks[half], p.wrapping_add(half * SIDE)),
                };
                [one(0), one(1)]
            };
            let (scale, bias) = (vectors(e.scale, 1.0), vectors(e.bias, 0.0));
            let (low, high) = (_mm512_set1_ps(e.low), _mm512_set1_ps(e.high));
            let c = b.c.byte().cast::<i16>();
            for row in 0..b.rows {
                let Some(place) = b.place(row) else { continue };
                let first = b.first + place as isize;
                let tile = b.tiles.wrapping_add(row / SIDE * 2 * RESULTS + row % SIDE * SIDE);
                let mut x = [_mm512_loadu_ps(tile), _mm512_setzero_ps()];
                if masks[1] != 0 {
                    x[1] = _mm512_loadu_ps(tile.wrapping_add(RESULTS));
                }
                for half in 0..2 {
                    x[half] = _mm512_mul_ps(x[half], scale[half]);
                    if !e.residual.is_null() {
                        let at = first + (half * SIDE) as isize;
                        x[half] = _mm512_add_ps(x[half], summand::<ROUNDED>(e.residual, at, masks[half]));
                    }
                    // The sum comes second, so that NaN stays.
                    x[half] = _mm512_min_ps(high, _mm512_max_ps(low, _mm512_add_ps(x[half], bias[half])));
                }
                if b.stays {
                    _mm512_storeu_ps(tile, x[0]);
                    if masks[1] != 0 {
                        _mm512_storeu_ps(tile.wrapping_add(RESULTS), x[1]);
                    }
                } else {
                    let both = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(x[1], x[0]));
                    _mm512_mask_storeu_epi16(c.wrapping_offset(first), all, both);
                }
            }
        }
    }
}
