//! Vectors of floats whose width is chosen when the program starts.
//!
//! A kernel is written once, generic over [`Simd`], as a [`Kernel`]: a struct with its arguments and an
//! `#[inline(always)] fn run<S: Simd>(self, s: S)`. [`SimdLevel::run`] calls it inside a function compiled for the level's
//! instructions. Whatever a kernel calls with vectors must be `#[inline(always)]` too (closures are not; avoid them in
//! inner loops), or it is compiled without those instructions: right, but slow.
//!
//! Levels differ in how many sums run side by side, so their results differ in the last bits; within a level they repeat.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub mod bf16;
pub mod lanes;
pub mod math;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

use crate::failure::SettingError;
use anyhow::Result;
use half::bf16 as Bf16;
use std::fmt;

/// The widest [`Simd::LANES`].
pub const MAX_LANES: usize = 16;

/// Environment variable that forces a level.
pub const ENV: &str = "RUNNER_SIMD";

/// Asks for the cache line at any address, valid or not, in the second-level cache, to be read in some microseconds; only a hint, which
/// does nothing where there is no such instruction for all processors.
#[inline(always)]
pub fn prefetch_far(p: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which reads nothing that the program could see.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(p.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}

/// `x` as bf16: to nearest even; denormal numbers become zero, which is how the tiles of AMX take them, and NaN stays NaN: to the bit
/// what `vcvtneps2bf16` gives.
#[inline(always)]
pub fn rounded(x: f32) -> Bf16 {
    let bits = x.to_bits();
    let number = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let number = if bits & 0x7f80_0000 == 0 { bits >> 16 & 0x8000 } else { number };
    // Bits of NaN, without those that are cut off, and quiet.
    let number = if bits & 0x7fff_ffff > 0x7f80_0000 { bits >> 16 | 0x40 } else { number };
    Bf16::from_bits(number as u16)
}

/// A vector instruction set. A value of an implementing type exists only where the machine has the instructions.
///
/// `max`, `min` and the comparisons follow x86: where an operand is NaN a comparison is false, and `max` and `min` return
/// the second operand.
pub trait Simd: Copy + Send + Sync + 'static {
    /// `LANES` floats.
    type V: Copy;
    /// One truth value a lane.
    type M: Copy;
    /// Which lanes [`Simd::pick`] takes.
    type P: Copy;
    /// Floats in a vector.
    const LANES: usize;
    /// Vector registers that the machine has: the bound of a register tile.
    const REGISTERS: usize;
    /// Which level this is.
    const LEVEL: SimdLevel;

    /// Loads `LANES` floats from any address.
    ///
    /// # Safety
    /// `p` is valid for reading them.
    unsafe fn load(self, p: *const f32) -> Self::V;
    /// Stores `LANES` floats to any address.
    ///
    /// # Safety
    /// `p` is valid for writing them.
    unsafe fn store(self, p: *mut f32, v: Self::V);
    /// Loads `n.min(LANES)` floats; the other lanes are 0 and their memory is not touched.
    ///
    /// # Safety
    /// `p` is valid for reading them.
    unsafe fn load_part(self, p: *const f32, n: usize) -> Self::V;
    /// Stores the first `n.min(LANES)` lanes; other memory is not touched.
    ///
    /// # Safety
    /// `p` is valid for writing them.
    unsafe fn store_part(self, p: *mut f32, v: Self::V, n: usize);

    /// Asks for the cache line at any address, valid or not, to be written soon; only a hint, which does nothing where
    /// there is no such instruction.
    #[inline(always)]
    fn prefetch_write(self, _: *const f32) {}
    /// The same of a line to be read.
    #[inline(always)]
    fn prefetch(self, _: *const f32) {}

    /// Loads `LANES` bytes from any address, as floats.
    ///
    /// # Safety
    /// `p` is valid for reading them.
    unsafe fn load_bytes(self, p: *const u8) -> Self::V;
    /// Stores whole numbers from 0 to 255 as `LANES` bytes to any address.
    ///
    /// # Safety
    /// The lanes hold such numbers, and `p` is valid for writing the bytes.
    unsafe fn store_bytes(self, p: *mut u8, v: Self::V);

    /// Loads `n.min(LANES)` numbers of 16 bits from any address; the other lanes are 0 and their memory is not touched.
    ///
    /// # Safety
    /// `p` is valid for reading them.
    #[inline(always)]
    unsafe fn load_rounded(self, p: *const Bf16, n: usize) -> Self::V {
        let mut lanes = [0.0; MAX_LANES];
        for i in 0..n.min(Self::LANES) {
            // SAFETY: the caller's promise.
            lanes[i] = unsafe { *p.add(i) }.to_f32();
        }
        // SAFETY: `LANES <= MAX_LANES`.
        unsafe { self.load(lanes.as_ptr()) }
    }
    /// Stores the first `n.min(LANES)` lanes [`rounded`]; other memory is not touched.
    ///
    /// # Safety
    /// `p` is valid for writing them.
    #[inline(always)]
    unsafe fn store_rounded(self, p: *mut Bf16, v: Self::V, n: usize) {
        let lanes = self.to_array(v);
        for i in 0..n.min(Self::LANES) {
            // SAFETY: the caller's promise.
            unsafe { *p.add(i) = rounded(lanes[i]) };
        }
    }

    /// Transposes a square of `LANES` rows of as many floats: row by row from `from`, whose rows lie `from_step` floats
    /// apart, to `to`, whose rows lie `to_step` apart. Rows are written in order, so that of rows that overlap the later stays.
    ///
    /// # Safety
    /// All these floats are valid, and the two squares do not overlap.
    #[inline(always)]
    unsafe fn transpose(self, from: *const f32, from_step: usize, to: *mut f32, to_step: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.transpose_part([Self::LANES; 2], from, from_step, to, to_step) };
    }

    /// The same, where no more than the first rows and columns of what is read matter, `part` of both: a smaller part of the
    /// two sides may be read and written, down to that.
    ///
    /// # Safety
    /// As [`Simd::transpose`].
    unsafe fn transpose_part(self, part: [usize; 2], from: *const f32, from_step: usize, to: *mut f32, to_step: usize);

    /// `x` in every lane.
    fn splat(self, x: f32) -> Self::V;
    /// `a + b`.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a · b`.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a / b`.
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a · b + c`, rounded once where the machine can.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `a > b ? a : b`.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a < b ? a : b`.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// Square root.
    fn sqrt(self, a: Self::V) -> Self::V;
    /// Absolute value.
    fn abs(self, a: Self::V) -> Self::V;
    /// To the nearest integer, ties to even; `|a| < 2³¹`.
    fn round(self, a: Self::V) -> Self::V;
    /// `2ᵃ` for integers `-126 ≤ a ≤ 127`.
    fn pow2(self, a: Self::V) -> Self::V;
    /// `a · 2ⁿ` for integers `-252 ≤ n ≤ 254`, rounded once: in two halves, as `n` may lie outside the range of the exponent.
    #[inline(always)]
    fn times_pow2(self, a: Self::V, n: Self::V) -> Self::V {
        let half = self.round(self.mul(n, self.splat(0.5)));
        self.mul(self.mul(a, self.pow2(half)), self.pow2(self.sub(n, half)))
    }
    /// `a > b`.
    fn gt(self, a: Self::V, b: Self::V) -> Self::M;
    /// `a ≥ b`.
    fn ge(self, a: Self::V, b: Self::V) -> Self::M;
    /// `a > b`, or `a` is NaN.
    fn gt_or_nan(self, a: Self::V, b: Self::V) -> Self::M;
    /// `a = b`.
    fn eq(self, a: Self::V, b: Self::V) -> Self::M;
    /// `m ? a : b`.
    fn select(self, m: Self::M, a: Self::V, b: Self::V) -> Self::V;
    /// Whether it holds in any lane.
    fn any(self, m: Self::M) -> bool;

    /// A choice among the lanes of two vectors: `LANES` numbers, those from `LANES` on meaning the second's.
    ///
    /// # Safety
    /// `p` is valid for reading them, and they are less than `2 · LANES`.
    unsafe fn picks(self, p: *const u32) -> Self::P;
    /// Lane `i` is the lane of `a` or `b` that number `i` of the choice names.
    fn pick(self, picks: Self::P, a: Self::V, b: Self::V) -> Self::V;

    /// The same of one vector: the numbers count modulo `LANES`.
    #[inline(always)]
    fn permute(self, picks: Self::P, a: Self::V) -> Self::V {
        self.pick(picks, a, a)
    }

    /// 0 in every lane.
    #[inline(always)]
    fn zero(self) -> Self::V {
        self.splat(0.0)
    }

    /// `-a`.
    #[inline(always)]
    fn neg(self, a: Self::V) -> Self::V {
        self.sub(self.splat(-0.0), a)
    }

    /// The lanes; those beyond `LANES` are 0.
    #[inline(always)]
    fn to_array(self, v: Self::V) -> [f32; MAX_LANES] {
        let mut lanes = [0.0; MAX_LANES];
        // SAFETY: `LANES <= MAX_LANES`.
        unsafe { self.store(lanes.as_mut_ptr(), v) };
        lanes
    }

    /// The first `n` lanes; the others are 0, whatever they were.
    #[inline(always)]
    fn first(self, v: Self::V, n: usize) -> Self::V {
        let lanes = self.to_array(v);
        // SAFETY: the array is as long as the widest vector.
        unsafe { self.load_part(lanes.as_ptr(), n) }
    }

    /// Sum of the lanes: halves are added until one is left.
    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
        let mut lanes = self.to_array(v);
        let mut width = Self::LANES / 2;
        while width > 0 {
            for i in 0..width {
                lanes[i] += lanes[i + width];
            }
            width /= 2;
        }
        lanes[0]
    }

    /// Largest lane; NaN lanes may or may not win.
    #[inline(always)]
    fn max_lane(self, v: Self::V) -> f32 {
        let lanes = self.to_array(v);
        let mut best = lanes[0];
        for &x in &lanes[1..Self::LANES] {
            best = if x > best { x } else { best };
        }
        best
    }

    /// `eˣ` to about 1 ulp over the whole range, subnormal results included; overflow gives infinity, NaN gives NaN.
    ///
    /// `x = n ln 2 + r` with `|r| ≤ ln 2 / 2`, and a minimax polynomial for `eʳ` (S. Moshier, *Methods and Programs for
    /// Mathematical Functions*, 1989).
    #[inline(always)]
    fn exp(self, x: Self::V) -> Self::V {
        // The clamped value comes first: the second operand wins where x is NaN.
        let x = self.min(self.splat(89.0), self.max(self.splat(-105.0), x));
        let n = self.round(self.mul(x, self.splat(std::f32::consts::LOG2_E)));
        let r = self.fma(n, self.splat(-0.693_359_4), x);
        let r = self.fma(n, self.splat(2.121_944_4e-4), r);
        let mut p = self.splat(1.987_569_1e-4);
        for c in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
            p = self.fma(p, r, self.splat(c));
        }
        let p = self.fma(p, self.mul(r, r), r);
        self.times_pow2(self.add(p, self.splat(1.0)), n)
    }
}

/// Work that is compiled once for every level.
pub trait Kernel {
    /// What it gives back.
    type Output;
    /// Does it. Mark the implementation `#[inline(always)]`.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

/// A function that is compiled once for every level and called through a pointer, where [`SimdLevel::run`]'s choice
/// would cost too much.
pub trait Routine {
    /// What it is called with.
    type Args;
    /// Vector registers that it needs. A level with fewer has no such routine: it is not compiled, and to call it is a panic.
    const REGISTERS: usize = 0;
    /// Does the work. Mark the implementation `#[inline(always)]`.
    ///
    /// # Safety
    /// As the routine says of its arguments.
    unsafe fn run<S: Simd>(s: S, args: Self::Args);
}

/// Which vector instructions are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SimdLevel {
    /// Plain Rust, eight floats at a time: any machine.
    Scalar,
    /// 128-bit vectors of 64-bit ARM.
    Neon,
    /// 256-bit vectors and fused multiply-add: x86-64 since 2013.
    Avx2,
    /// 512-bit vectors (F, BW, DQ, VL): x86-64 servers since 2017, many desktops.
    Avx512,
}

impl SimdLevel {
    /// Every level, best last.
    pub const ALL: [SimdLevel; 4] = [SimdLevel::Scalar, SimdLevel::Neon, SimdLevel::Avx2, SimdLevel::Avx512];

    /// As in `RUNNER_SIMD`.
    pub fn name(self) -> &'static str {
        match self {
            SimdLevel::Scalar => "scalar",
            SimdLevel::Neon => "neon",
            SimdLevel::Avx2 => "avx2",
            SimdLevel::Avx512 => "avx512",
        }
    }

    /// Floats in a vector.
    pub fn lanes(self) -> usize {
        match self {
            SimdLevel::Scalar | SimdLevel::Avx2 => 8,
            SimdLevel::Neon => 4,
            SimdLevel::Avx512 => 16,
        }
    }

    /// This machine has the instructions.
    pub fn is_supported(self) -> bool {
        match self {
            SimdLevel::Scalar => true,
            SimdLevel::Neon => cfg!(target_arch = "aarch64"),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512 => {
                SimdLevel::Avx2.is_supported()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            SimdLevel::Avx2 | SimdLevel::Avx512 => false,
        }
    }

    /// The levels of this machine, best last.
    pub fn supported() -> impl Iterator<Item = SimdLevel> {
        Self::ALL.into_iter().filter(|level| level.is_supported())
    }

    /// The best level of this machine.
    pub fn detect() -> SimdLevel {
        Self::supported().last().unwrap_or(SimdLevel::Scalar)
    }

    /// The level that the environment variable [`ENV`] names, else the best.
    ///
    /// # Errors
    /// The variable names no level, or one that this machine lacks.
    pub fn from_env() -> Result<SimdLevel> {
        match std::env::var_os(ENV) {
            Some(name) => Self::from_name(&name.to_string_lossy()),
            None => Ok(Self::detect()),
        }
    }

    /// The level called `name`.
    ///
    /// # Errors
    /// There is no such level, or this machine lacks it.
    pub fn from_name(name: &str) -> Result<SimdLevel> {
        let found = Self::ALL.into_iter().find(|level| level.name() == name);
        match found {
            Some(level) if level.is_supported() => Ok(level),
            _ => {
                let choices: Vec<_> = Self::supported().map(SimdLevel::name).collect();
                let why = if found.is_some() { "this machine lacks it" } else { "there is no such level" };
                Err(SettingError(format!("{ENV}={name}: {why}; choose among {}", choices.join(", "))).into())
            }
        }
    }

    /// Runs `kernel` with this level's instructions.
    ///
    /// # Panics
    /// This machine lacks them; levels come from [`SimdLevel::detect`] and the like, so they are there.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        assert!(self.is_supported(), "the machine lacks {self}");
        match self {
            SimdLevel::Scalar => kernel.run(scalar::Scalar),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the instructions are there, as asserted above.
            SimdLevel::Avx2 => unsafe { avx2::run(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            SimdLevel::Avx512 => unsafe { avx512::run(kernel) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            SimdLevel::Neon => unsafe { neon::run(kernel) },
            #[allow(unreachable_patterns)]
            _ => unreachable!("asserted above"),
        }
    }

    /// The version of `R` for this level. To call it is as unsafe as [`Routine::run`].
    ///
    /// # Panics
    /// As [`SimdLevel::run`].
    pub fn routine<R: Routine>(self) -> unsafe fn(R::Args) {
        unsafe fn too_large<R: Routine>(_: R::Args) {
            unreachable!("the level has too few registers for a routine of {}", R::REGISTERS);
        }
        /// The routine of a module, which is named only where it is to be compiled.
        macro_rules! of {
            ($module:ident, $token:ident) => {
                if const { R::REGISTERS <= <$module::$token as Simd>::REGISTERS } {
                    $module::routine::<R>
                } else {
                    too_large::<R>
                }
            };
        }
        assert!(self.is_supported(), "the machine lacks {self}");
        match self {
            SimdLevel::Scalar => of!(scalar, Scalar),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 => of!(avx2, Avx2),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512 => of!(avx512, Avx512),
            #[cfg(target_arch = "aarch64")]
            SimdLevel::Neon => of!(neon, Neon),
            #[allow(unreachable_patterns)]
            _ => unreachable!("asserted above"),
        }
    }
}

impl fmt::Display for SimdLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests;
