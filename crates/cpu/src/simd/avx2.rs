//! 256-bit vectors of x86-64 with fused multiply-add.

use super::{Kernel, Routine, Simd, SimdLevel};
use std::arch::x86_64::*;

/// Proof that the machine has AVX2 and FMA: made only by [`run`] and [`routine`].
#[derive(Clone, Copy)]
pub struct Avx2(());

/// Runs `kernel` compiled for AVX2 and FMA.
///
/// # Safety
/// The machine has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2(()))
}

/// `R` compiled for the same.
///
/// # Safety
/// As [`run`], and as `R` says of its arguments.
#[target_feature(enable = "avx2,fma")]
pub unsafe fn routine<R: Routine>(args: R::Args) {
    // SAFETY: the caller's promise.
    unsafe { R::run(Avx2(()), args) }
}

/// Eight words of a window into this are a mask with the first `n` lanes set.
static MASKS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

/// # Safety
/// The machine has AVX2.
#[inline(always)]
unsafe fn first(n: usize) -> __m256i {
    // SAFETY: the window starts at word 0 to 8 of 16.
    unsafe { _mm256_loadu_si256(MASKS.as_ptr().add(8 - n.min(8)).cast()) }
}

/// Sum of eight lanes, halves first, as [`Simd::sum`].
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
pub unsafe fn sum8(v: __m256) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
        _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
    }
}

/// Largest of eight lanes.
///
/// # Safety
/// The machine has AVX2.
#[inline(always)]
pub unsafe fn max8(v: __m256) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
        _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)))
    }
}

/// Wraps intrinsics: `self` proves that the machine has them.
macro_rules! wrap {
    ($($name:ident($($arg:ident),+) = $body:expr;)*) => { $(
        #[inline(always)]
        fn $name(self, $($arg: Self::V),+) -> __m256 {
            // SAFETY: `self` exists only where the machine has AVX2 and FMA.
            unsafe { $body }
        }
    )* };
}

impl Simd for Avx2 {
    type V = __m256;
    type M = __m256;
    type P = __m256i;
    const LANES: usize = 8;
    const REGISTERS: usize = 16;
    const LEVEL: SimdLevel = SimdLevel::Avx2;

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: __m256) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_ps(p, v) }
    }
    #[inline(always)]
    unsafe fn load_part(self, p: *const f32, n: usize) -> __m256 {
        // SAFETY: the caller's promise; lanes that the mask leaves out are not read.
        unsafe { _mm256_maskload_ps(p, first(n)) }
    }
    #[inline(always)]
    unsafe fn store_part(self, mut p: *mut f32, v: __m256, n: usize) {
        // No masked store: processors of AMD take tens of cycles for one.
        // SAFETY: the caller's promise of `n` floats; four, two and one of them are stored where `n` has that bit.
        unsafe {
            if n >= 8 {
                return _mm256_storeu_ps(p, v);
            }
            let mut rest = _mm256_castps256_ps128(v);
            if n & 4 != 0 {
                _mm_storeu_ps(p, rest);
                (p, rest) = (p.add(4), _mm256_extractf128_ps::<1>(v));
            }
            if n & 2 != 0 {
                _mm_storel_pd(p.cast(), _mm_castps_pd(rest));
                (p, rest) = (p.add(2), _mm_movehl_ps(rest, rest));
            }
            if n & 1 != 0 {
                _mm_store_ss(p, rest);
            }
        }
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
    unsafe fn load_bytes(self, p: *const u8) -> __m256 {
        // SAFETY: the caller's promise of 8 bytes.
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn store_bytes(self, p: *mut u8, v: __m256) {
        // SAFETY: the caller's promise of 8 bytes.
        unsafe {
            let v = _mm256_cvtps_epi32(v);
            let halves = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
            _mm_storel_epi64(p.cast(), _mm_packus_epi16(halves, halves));
        }
    }
    #[inline(always)]
    unsafe fn transpose_part(
        self,
        [_, columns]: [usize; 2],
        from: *const f32,
        from_step: usize,
        to: *mut f32,
        to_step: usize,
    ) {
        // SAFETY: the caller's promise of 8 rows on both sides.
        unsafe {
            // Halves of rows: vector i has columns `4 h ..` of rows i and 4 + i, so that all that follows stays within
            // halves of a vector.
            for h in 0..columns.div_ceil(4) {
                let mut v = [_mm256_setzero_ps(); 4];
                for i in 0..4 {
                    let at = |r: usize| _mm_loadu_ps(from.add((4 * r + i) * from_step + 4 * h));
                    v[i] = _mm256_set_m128(at(1), at(0));
                }
                let (a, b) = (_mm256_unpacklo_ps(v[0], v[1]), _mm256_unpackhi_ps(v[0], v[1]));
                let (c, d) = (_mm256_unpacklo_ps(v[2], v[3]), _mm256_unpackhi_ps(v[2], v[3]));
                let to = to.add(4 * h * to_step);
                _mm256_storeu_ps(to, _mm256_shuffle_ps::<0x44>(a, c));
                _mm256_storeu_ps(to.add(to_step), _mm256_shuffle_ps::<0xee>(a, c));
                _mm256_storeu_ps(to.add(2 * to_step), _mm256_shuffle_ps::<0x44>(b, d));
                _mm256_storeu_ps(to.add(3 * to_step), _mm256_shuffle_ps::<0xee>(b, d));
            }
        }
    }
    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        // SAFETY: `self` exists only where the machine has AVX2 and FMA.
        unsafe { _mm256_set1_ps(x) }
    }
    wrap! {
        add(a, b) = _mm256_add_ps(a, b);
        sub(a, b) = _mm256_sub_ps(a, b);
        mul(a, b) = _mm256_mul_ps(a, b);
        div(a, b) = _mm256_div_ps(a, b);
        fma(a, b, c) = _mm256_fmadd_ps(a, b, c);
        max(a, b) = _mm256_max_ps(a, b);
        min(a, b) = _mm256_min_ps(a, b);
        sqrt(a) = _mm256_sqrt_ps(a);
        abs(a) = _mm256_andnot_ps(_mm256_set1_ps(-0.0), a);
        round(a) = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
        pow2(a) = _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(
            _mm256_cvtps_epi32(a),
            _mm256_set1_epi32(127),
        )));
        gt(a, b) = _mm256_cmp_ps::<_CMP_GT_OQ>(a, b);
        ge(a, b) = _mm256_cmp_ps::<_CMP_GE_OQ>(a, b);
        gt_or_nan(a, b) = _mm256_or_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(a, b), _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a));
        eq(a, b) = _mm256_cmp_ps::<_CMP_EQ_OQ>(a, b);
        select(m, a, b) = _mm256_blendv_ps(b, a, m);
    }
    #[inline(always)]
    fn any(self, m: __m256) -> bool {
        // SAFETY: `self` exists only where the machine has AVX2 and FMA.
        unsafe { _mm256_movemask_ps(m) != 0 }
    }
    #[inline(always)]
    unsafe fn picks(self, p: *const u32) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_si256(p.cast()) }
    }
    #[inline(always)]
    fn pick(self, picks: __m256i, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` exists only where the machine has AVX2 and FMA.
        unsafe {
            // Permutations look at the lower three bits; the fourth, moved to the sign, selects the vector.
            let (a, b) = (_mm256_permutevar8x32_ps(a, picks), _mm256_permutevar8x32_ps(b, picks));
            _mm256_blendv_ps(a, b, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(picks)))
        }
    }
    #[inline(always)]
    fn permute(self, picks: __m256i, a: __m256) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_permutevar8x32_ps(a, picks) }
    }
    #[inline(always)]
    fn first(self, v: __m256, n: usize) -> __m256 {
        // SAFETY: `self` exists only where the machine has AVX2 and FMA.
        unsafe { _mm256_and_ps(v, _mm256_castsi256_ps(first(n))) }
    }
    #[inline(always)]
    fn sum(self, v: __m256) -> f32 {
        // SAFETY: as above.
        unsafe { sum8(v) }
    }
    #[inline(always)]
    fn max_lane(self, v: __m256) -> f32 {
        // SAFETY: as above.
        unsafe { max8(v) }
    }
}
