//! 128-bit vectors of 64-bit ARM.

use super::{Kernel, Routine, Simd, SimdLevel};
use std::arch::aarch64::*;

/// Proof that the machine has NEON: made only by [`run`] and [`routine`].
#[derive(Clone, Copy)]
pub struct Neon(());

/// Runs `kernel` compiled for NEON.
///
/// # Safety
/// The machine has NEON.
#[target_feature(enable = "neon")]
pub unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Neon(()))
}

/// `R` compiled for the same.
///
/// # Safety
/// As [`run`], and as `R` says of its arguments.
#[target_feature(enable = "neon")]
pub unsafe fn routine<R: Routine>(args: R::Args) {
    // SAFETY: the caller's promise.
    unsafe { R::run(Neon(()), args) }
}

/// Wraps intrinsics: `self` proves that the machine has them.
macro_rules! wrap {
    ($($name:ident($($arg:ident),+) -> $out:ty = $body:expr;)*) => { $(
        #[inline(always)]
        fn $name(self, $($arg: Self::V),+) -> $out {
            // SAFETY: `self` exists only where the machine has NEON.
            unsafe { $body }
        }
    )* };
}

impl Simd for Neon {
    type V = float32x4_t;
    type M = uint32x4_t;
    /// Numbers of bytes.
    type P = uint8x16_t;
    const LANES: usize = 4;
    const REGISTERS: usize = 32;
    const LEVEL: SimdLevel = SimdLevel::Neon;

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> float32x4_t {
        // SAFETY: the caller's promise.
        unsafe { vld1q_f32(p) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: float32x4_t) {
        // SAFETY: the caller's promise.
        unsafe { vst1q_f32(p, v) }
    }
    #[inline(always)]
    unsafe fn load_part(self, p: *const f32, n: usize) -> float32x4_t {
        let mut lanes = [0.0f32; 4];
        // SAFETY: the caller's promise; at most four floats are copied.
        unsafe {
            std::ptr::copy_nonoverlapping(p, lanes.as_mut_ptr(), n.min(4));
            vld1q_f32(lanes.as_ptr())
        }
    }
    #[inline(always)]
    unsafe fn store_part(self, p: *mut f32, v: float32x4_t, n: usize) {
        let mut lanes = [0.0f32; 4];
        // SAFETY: the caller's promise; at most four floats are copied.
        unsafe {
            vst1q_f32(lanes.as_mut_ptr(), v);
            std::ptr::copy_nonoverlapping(lanes.as_ptr(), p, n.min(4));
        }
    }
    #[inline(always)]
    fn prefetch(self, p: *const f32) {
        // SAFETY: a hint, which reads nothing that the program could see.
        unsafe { std::arch::asm!("prfm pldl1keep, [{}]", in(reg) p, options(nostack, preserves_flags, readonly)) }
    }
    #[inline(always)]
    fn prefetch_write(self, p: *const f32) {
        // SAFETY: a hint, which reads nothing that the program could see.
        unsafe { std::arch::asm!("prfm pstl1keep, [{}]", in(reg) p, options(nostack, preserves_flags, readonly)) }
    }
    #[inline(always)]
    unsafe fn load_bytes(self, p: *const u8) -> float32x4_t {
        // SAFETY: the caller's promise of four bytes.
        unsafe {
            let bytes = vcreate_u8(p.cast::<u32>().read_unaligned() as u64);
            vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(bytes))))
        }
    }
    #[inline(always)]
    unsafe fn store_bytes(self, p: *mut u8, v: float32x4_t) {
        // SAFETY: the caller's promise of four bytes.
        unsafe {
            let halves = vmovn_u32(vcvtq_u32_f32(v));
            let bytes = vmovn_u16(vcombine_u16(halves, halves));
            p.cast::<u32>().write_unaligned(vget_lane_u32::<0>(vreinterpret_u32_u8(bytes)));
        }
    }
    #[inline(always)]
    unsafe fn transpose_part(self, _: [usize; 2], from: *const f32, from_step: usize, to: *mut f32, to_step: usize) {
        // SAFETY: the caller's promise of four rows on both sides.
        unsafe {
            let (a, b) = (vld1q_f32(from), vld1q_f32(from.add(from_step)));
            let (c, d) = (vld1q_f32(from.add(2 * from_step)), vld1q_f32(from.add(3 * from_step)));
            let (ac0, ac1) = (vzip1q_f32(a, c), vzip2q_f32(a, c));
            let (bd0, bd1) = (vzip1q_f32(b, d), vzip2q_f32(b, d));
            vst1q_f32(to, vzip1q_f32(ac0, bd0));
            vst1q_f32(to.add(to_step), vzip2q_f32(ac0, bd0));
            vst1q_f32(to.add(2 * to_step), vzip1q_f32(ac1, bd1));
            vst1q_f32(to.add(3 * to_step), vzip2q_f32(ac1, bd1));
        }
    }
    #[inline(always)]
    fn splat(self, x: f32) -> float32x4_t {
        // SAFETY: `self` exists only where the machine has NEON.
        unsafe { vdupq_n_f32(x) }
    }
    wrap! {
        add(a, b) -> float32x4_t = vaddq_f32(a, b);
        sub(a, b) -> float32x4_t = vsubq_f32(a, b);
        mul(a, b) -> float32x4_t = vmulq_f32(a, b);
        div(a, b) -> float32x4_t = vdivq_f32(a, b);
        fma(a, b, c) -> float32x4_t = vfmaq_f32(c, a, b);
        // Not `vmaxq_f32`, which returns NaN where either operand is NaN.
        max(a, b) -> float32x4_t = vbslq_f32(vcgtq_f32(a, b), a, b);
        min(a, b) -> float32x4_t = vbslq_f32(vcltq_f32(a, b), a, b);
        sqrt(a) -> float32x4_t = vsqrtq_f32(a);
        abs(a) -> float32x4_t = vabsq_f32(a);
        round(a) -> float32x4_t = vrndnq_f32(a);
        pow2(a) -> float32x4_t = vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(vcvtnq_s32_f32(a), vdupq_n_s32(127))));
        gt(a, b) -> uint32x4_t = vcgtq_f32(a, b);
        ge(a, b) -> uint32x4_t = vcgeq_f32(a, b);
        gt_or_nan(a, b) -> uint32x4_t = vorrq_u32(vcgtq_f32(a, b), vmvnq_u32(vceqq_f32(a, a)));
        eq(a, b) -> uint32x4_t = vceqq_f32(a, b);
    }
    #[inline(always)]
    fn select(self, m: uint32x4_t, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: `self` exists only where the machine has NEON.
        unsafe { vbslq_f32(m, a, b) }
    }
    #[inline(always)]
    fn any(self, m: uint32x4_t) -> bool {
        // SAFETY: `self` exists only where the machine has NEON.
        unsafe { vmaxvq_u32(m) != 0 }
    }
    #[inline(always)]
    unsafe fn picks(self, p: *const u32) -> uint8x16_t {
        // SAFETY: the caller's promise of four numbers below 8, whose bytes are `4 n + 0, 1, 2, 3`.
        unsafe { vreinterpretq_u8_u32(vmlaq_n_u32(vdupq_n_u32(0x0302_0100), vld1q_u32(p), 0x0404_0404)) }
    }
    #[inline(always)]
    fn pick(self, picks: uint8x16_t, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: `self` exists only where the machine has NEON.
        unsafe {
            let both = uint8x16x2_t(vreinterpretq_u8_f32(a), vreinterpretq_u8_f32(b));
            vreinterpretq_f32_u8(vqtbl2q_u8(both, picks))
        }
    }
}
