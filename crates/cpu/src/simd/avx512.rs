//! 512-bit vectors of x86-64, with a mask register for partial ones.

use super::avx2::{max8, sum8};
use super::{Kernel, Routine, Simd, SimdLevel};
use half::bf16;
use std::arch::x86_64::*;

/// Proof that the machine has AVX-512: made only by [`run`] and [`routine`].
#[derive(Clone, Copy)]
pub struct Avx512(());

/// Runs `kernel` compiled for AVX-512.
///
/// # Safety
/// The machine has AVX-512 F, BW, DQ and VL, AVX2 and FMA.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx512(()))
}

/// `R` compiled for the same.
///
/// # Safety
/// As [`run`], and as `R` says of its arguments.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub unsafe fn routine<R: Routine>(args: R::Args) {
    // SAFETY: the caller's promise.
    unsafe { R::run(Avx512(()), args) }
}

#[inline(always)]
fn first(n: usize) -> __mmask16 {
    if n >= 16 { !0 } else { (1 << n) - 1 }
}

/// [`super::rounded`] of each lane.
///
/// # Safety
/// The machine has AVX-512 F, BW, DQ and VL.
#[inline(always)]
unsafe fn rounded(v: __m512) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let bits = _mm512_castps_si512(v);
        let number = |x: i32| _mm512_set1_epi32(x);
        let high = _mm512_srli_epi32::<16>(bits);
        let odd = _mm512_and_si512(high, number(1));
        let near = _mm512_srli_epi32::<16>(_mm512_add_epi32(bits, _mm512_add_epi32(odd, number(0x7fff))));
        let is_denormal = _mm512_testn_epi32_mask(bits, number(0x7f80_0000));
        let near = _mm512_mask_and_epi32(near, is_denormal, high, number(0x8000));
        let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
        _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(near, is_nan, high, number(0x40)))
    }
}

/// Transposes 16 rows of `4 Q` floats.
///
/// # Safety
/// The rows on both sides are valid, and the machine has AVX-512.
#[inline(always)]
unsafe fn transpose<const Q: usize>(from: *const f32, from_step: usize, to: *mut f32, to_step: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        // Quarters of rows first: vector `[i][q]` has columns `4 q ..` of rows i, 4 + i, 8 + i and 12 + i, so that all that
        // follows stays within quarters of a vector.
        let mut v = [[_mm512_setzero_ps(); Q]; 4];
        for i in 0..4 {
            for q in 0..Q {
                let at = |r: usize| _mm_loadu_ps(from.add((4 * r + i) * from_step + 4 * q));
                let low = _mm256_set_m128(at(1), at(0));
                let high = _mm256_set_m128(at(3), at(2));
                v[i][q] = _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high);
            }
        }
        for q in 0..Q {
            let (a, b) = (_mm512_unpacklo_ps(v[0][q], v[1][q]), _mm512_unpackhi_ps(v[0][q], v[1][q]));
            let (c, d) = (_mm512_unpacklo_ps(v[2][q], v[3][q]), _mm512_unpackhi_ps(v[2][q], v[3][q]));
            let to = to.add(4 * q * to_step);
            _mm512_storeu_ps(to, _mm512_shuffle_ps::<0x44>(a, c));
            _mm512_storeu_ps(to.add(to_step), _mm512_shuffle_ps::<0xee>(a, c));
            _mm512_storeu_ps(to.add(2 * to_step), _mm512_shuffle_ps::<0x44>(b, d));
            _mm512_storeu_ps(to.add(3 * to_step), _mm512_shuffle_ps::<0xee>(b, d));
        }
    }
}

/// Transposes 8 rows of `4 Q` floats.
///
/// # Safety
/// As [`transpose`].
#[inline(always)]
unsafe fn half_transpose<const Q: usize>(from: *const f32, from_step: usize, to: *mut f32, to_step: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut v = [[_mm256_setzero_ps(); Q]; 4];
        for i in 0..4 {
            for q in 0..Q {
                let at = |r: usize| _mm_loadu_ps(from.add((4 * r + i) * from_step + 4 * q));
                v[i][q] = _mm256_set_m128(at(1), at(0));
            }
        }
        for q in 0..Q {
            let (a, b) = (_mm256_unpacklo_ps(v[0][q], v[1][q]), _mm256_unpackhi_ps(v[0][q], v[1][q]));
            let (c, d) = (_mm256_unpacklo_ps(v[2][q], v[3][q]), _mm256_unpackhi_ps(v[2][q], v[3][q]));
            let to = to.add(4 * q * to_step);
            _mm256_storeu_ps(to, _mm256_shuffle_ps::<0x44>(a, c));
            _mm256_storeu_ps(to.add(to_step), _mm256_shuffle_ps::<0xee>(a, c));
            _mm256_storeu_ps(to.add(2 * to_step), _mm256_shuffle_ps::<0x44>(b, d));
            _mm256_storeu_ps(to.add(3 * to_step), _mm256_shuffle_ps::<0xee>(b, d));
        }
    }
}

/// Wraps intrinsics: `self` proves that the machine has them.
macro_rules! wrap {
    ($($name:ident($($arg:ident),+) -> $out:ty = $body:expr;)*) => { $(
        #[inline(always)]
        fn $name(self, $($arg: Self::V),+) -> $out {
            // SAFETY: `self` exists only where the machine has AVX-512.
            unsafe { $body }
        }
    )* };
}

impl Simd for Avx512 {
    type V = __m512;
    type M = __mmask16;
    type P = __m512i;
    const LANES: usize = 16;
    const REGISTERS: usize = 32;
    const LEVEL: SimdLevel = SimdLevel::Avx512;

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: __m512) {
        // SAFETY: the caller's promise.
        unsafe { _mm512_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn load_part(self, p: *const f32, n: usize) -> __m512 {
        // SAFETY: the caller's promise; lanes that the mask leaves out are not read.
        unsafe { _mm512_maskz_loadu_ps(first(n), p) }
    }
    #[inline(always)]
    unsafe fn load_rounded(self, p: *const bf16, n: usize) -> __m512 {
        // SAFETY: the caller's promise; lanes that the mask leaves out are not read.
        unsafe {
            let halves =
                if n < 16 { _mm256_maskz_loadu_epi16(first(n), p.cast()) } else { _mm256_loadu_si256(p.cast()) };
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves)))
        }
    }
    #[inline(always)]
    unsafe fn store_rounded(self, p: *mut bf16, v: __m512, n: usize) {
        // SAFETY: the caller's promise; lanes that the mask leaves out are not written.
        unsafe {
            let halves = rounded(v);
            if n < 16 {
                _mm256_mask_storeu_epi16(p.cast(), first(n), halves);
            } else {
                _mm256_storeu_si256(p.cast(), halves);
            }
        }
    }
    #[inline(always)]
    unsafe fn store_part(self, p: *mut f32, v: __m512, n: usize) {
        // SAFETY: the caller's promise; lanes that the mask leaves out are not written.
        unsafe { _mm512_mask_storeu_ps(p, first(n), v) }
    }
    #[inline(always)]
    fn prefetch(self, p: *const f32) {
        // SAFETY: a hint, which reads nothing that the program could see.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
    #[inline(always)]
    fn prefetch_write(self, p: *const f32) {
        // SAFETY: a hint, which reads nothing that the program could see. The intrinsic needs a feature of its own to become
        // this instruction, which machines without it take for none.
        unsafe { std::arch::asm!("prefetchw byte ptr [{}]", in(reg) p, options(nostack, preserves_flags, readonly)) }
    }
    #[inline(always)]
    unsafe fn load_bytes(self, p: *const u8) -> __m512 {
        // SAFETY: the caller's promise of 16 bytes.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn store_bytes(self, p: *mut u8, v: __m512) {
        // SAFETY: the caller's promise of 16 bytes.
        unsafe { _mm_storeu_si128(p.cast(), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v))) }
    }
    #[inline(always)]
    unsafe fn transpose_part(
        self,
        [rows, columns]: [usize; 2],
        from: *const f32,
        from_step: usize,
        to: *mut f32,
        to_step: usize,
    ) {
        // SAFETY: the caller's promise of 16 rows on both sides.
        unsafe {
            match (rows <= 8, columns.div_ceil(4)) {
                (true, 1) => half_transpose::<1>(from, from_step, to, to_step),
                (true, 2) => half_transpose::<2>(from, from_step, to, to_step),
                (true, 3) => half_transpose::<3>(from, from_step, to, to_step),
                (true, _) => half_transpose::<4>(from, from_step, to, to_step),
                (false, 1) => transpose::<1>(from, from_step, to, to_step),
                (false, 2) => transpose::<2>(from, from_step, to, to_step),
                (false, 3) => transpose::<3>(from, from_step, to, to_step),
                (false, _) => transpose::<4>(from, from_step, to, to_step),
            }
        }
    }
    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: `self` exists only where the machine has AVX-512.
        unsafe { _mm512_set1_ps(x) }
    }
    wrap! {
        add(a, b) -> __m512 = _mm512_add_ps(a, b);
        sub(a, b) -> __m512 = _mm512_sub_ps(a, b);
        mul(a, b) -> __m512 = _mm512_mul_ps(a, b);
        div(a, b) -> __m512 = _mm512_div_ps(a, b);
        fma(a, b, c) -> __m512 = _mm512_fmadd_ps(a, b, c);
        max(a, b) -> __m512 = _mm512_max_ps(a, b);
        min(a, b) -> __m512 = _mm512_min_ps(a, b);
        sqrt(a) -> __m512 = _mm512_sqrt_ps(a);
        abs(a) -> __m512 = _mm512_abs_ps(a);
        round(a) -> __m512 = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
        pow2(a) -> __m512 = _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_add_epi32(
            _mm512_cvtps_epi32(a),
            _mm512_set1_epi32(127),
        )));
        times_pow2(a, n) -> __m512 = _mm512_scalef_ps(a, n);
        gt(a, b) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b);
        ge(a, b) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(a, b);
        gt_or_nan(a, b) -> __mmask16 =
            _mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b) | _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a);
        eq(a, b) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b);
    }
    #[inline(always)]
    fn select(self, m: __mmask16, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` exists only where the machine has AVX-512.
        unsafe { _mm512_mask_blend_ps(m, b, a) }
    }
    #[inline(always)]
    fn any(self, m: __mmask16) -> bool {
        m != 0
    }
    #[inline(always)]
    unsafe fn picks(self, p: *const u32) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { _mm512_loadu_si512(p.cast()) }
    }
    #[inline(always)]
    fn pick(self, picks: __m512i, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` exists only where the machine has AVX-512.
        unsafe { _mm512_permutex2var_ps(a, picks, b) }
    }
    #[inline(always)]
    fn permute(self, picks: __m512i, a: __m512) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_permutexvar_ps(picks, a) }
    }
    #[inline(always)]
    fn first(self, v: __m512, n: usize) -> __m512 {
        // SAFETY: `self` exists only where the machine has AVX-512.
        unsafe { _mm512_maskz_mov_ps(first(n), v) }
    }
    #[inline(always)]
    fn sum(self, v: __m512) -> f32 {
        // SAFETY: as above.
        unsafe { sum8(_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v))) }
    }
    #[inline(always)]
    fn max_lane(self, v: __m512) -> f32 {
        // SAFETY: as above.
        unsafe { max8(_mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v))) }
    }
}
