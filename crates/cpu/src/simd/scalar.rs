//! Plain Rust: eight floats in an array, which the compiler turns into whatever the target always has.

use super::{Routine, Simd, SimdLevel};

/// Any machine.
#[derive(Clone, Copy)]
pub struct Scalar;

const N: usize = 8;

/// `R` in plain Rust.
///
/// # Safety
/// As `R` says of its arguments.
pub unsafe fn routine<R: Routine>(args: R::Args) {
    // SAFETY: the caller's promise.
    unsafe { R::run(Scalar, args) }
}

#[inline(always)]
fn lanes<T: Copy + Default>(f: impl Fn(usize) -> T) -> [T; N] {
    let mut out = [T::default(); N];
    for (i, o) in out.iter_mut().enumerate() {
        *o = f(i);
    }
    out
}

impl Simd for Scalar {
    type V = [f32; N];
    type M = [bool; N];
    type P = [u32; N];
    const LANES: usize = N;
    // A vector here is two machine registers, of which the smallest targets have 16.
    const REGISTERS: usize = 8;
    const LEVEL: SimdLevel = SimdLevel::Scalar;

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> Self::V {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<Self::V>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: Self::V) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<Self::V>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn load_part(self, p: *const f32, n: usize) -> Self::V {
        // SAFETY: the caller's promise; lanes from `n` on are not read.
        lanes(|i| if i < n { unsafe { *p.add(i) } } else { 0.0 })
    }
    #[inline(always)]
    unsafe fn store_part(self, p: *mut f32, v: Self::V, n: usize) {
        for (i, x) in v.into_iter().enumerate().take(n) {
            // SAFETY: the caller's promise.
            unsafe { *p.add(i) = x };
        }
    }
    #[inline(always)]
    unsafe fn load_bytes(self, p: *const u8) -> Self::V {
        // SAFETY: the caller's promise.
        let bytes = unsafe { p.cast::<[u8; N]>().read_unaligned() };
        bytes.map(f32::from)
    }
    #[inline(always)]
    unsafe fn store_bytes(self, p: *mut u8, v: Self::V) {
        // SAFETY: the caller's promise of whole numbers from 0 to 255, and of the address.
        unsafe { p.cast::<[u8; N]>().write_unaligned(v.map(|x| x.to_int_unchecked::<i32>() as u8)) }
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
        for c in 0..columns {
            for r in 0..rows {
                // SAFETY: the caller's promise of all rows.
                unsafe { *to.add(c * to_step + r) = *from.add(r * from_step + c) };
            }
        }
    }
    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; N]
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        lanes(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        lanes(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        lanes(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        lanes(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        // Without the instruction `mul_add` is a call into the C library, some fifty times slower.
        if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
            lanes(|i| a[i].mul_add(b[i], c[i]))
        } else {
            lanes(|i| a[i] * b[i] + c[i])
        }
    }
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        lanes(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        lanes(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn sqrt(self, a: Self::V) -> Self::V {
        lanes(|i| a[i].sqrt())
    }
    #[inline(always)]
    fn abs(self, a: Self::V) -> Self::V {
        lanes(|i| a[i].abs())
    }
    #[inline(always)]
    fn round(self, a: Self::V) -> Self::V {
        // Beyond 2²³ a float is an integer; below, adding and taking off 1.5 · 2²³ leaves the nearest one.
        const BIG: f32 = 12_582_912.0;
        lanes(|i| if a[i].abs() < 8_388_608.0 { (a[i] + BIG) - BIG } else { a[i] })
    }
    #[inline(always)]
    fn pow2(self, a: Self::V) -> Self::V {
        lanes(|i| f32::from_bits(((a[i] as i32).wrapping_add(127) as u32) << 23))
    }
    #[inline(always)]
    fn gt(self, a: Self::V, b: Self::V) -> Self::M {
        lanes(|i| a[i] > b[i])
    }
    #[inline(always)]
    fn ge(self, a: Self::V, b: Self::V) -> Self::M {
        lanes(|i| a[i] >= b[i])
    }
    #[inline(always)]
    fn gt_or_nan(self, a: Self::V, b: Self::V) -> Self::M {
        lanes(|i| a[i] > b[i] || a[i].is_nan())
    }
    #[inline(always)]
    fn eq(self, a: Self::V, b: Self::V) -> Self::M {
        lanes(|i| a[i] == b[i])
    }
    #[inline(always)]
    fn select(self, m: Self::M, a: Self::V, b: Self::V) -> Self::V {
        lanes(|i| if m[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn any(self, m: Self::M) -> bool {
        m.iter().any(|lane| *lane)
    }
    #[inline(always)]
    unsafe fn picks(self, p: *const u32) -> Self::P {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<Self::P>().read_unaligned() }
    }
    #[inline(always)]
    fn pick(self, picks: Self::P, a: Self::V, b: Self::V) -> Self::V {
        lanes(|i| {
            let lane = picks[i] as usize % N;
            if picks[i] as usize >= N { b[lane] } else { a[lane] }
        })
    }
}
