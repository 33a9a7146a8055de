//! A block of results: up to two tiles of rows times up to two of columns, which stay in the unit while the sum runs.
//!
//! The arithmetic is that of `tdpbf16ps` (Intel, *Instruction Set Extensions Programming Reference*, chapter on AMX): of the 32
//! terms of a step the even and the odd ones are summed apart, each with fused multiply-adds, the two sums are added, and
//! that is added to the result. Everything is rounded to nearest even, and denormal numbers are taken and given as zero.

#[cfg(target_arch = "x86_64")]
mod dpbf16;

use super::{PANEL, SIDE, STEP, TILE, tiles};
use crate::simd::bf16::Bf16Unit;
use crate::simd::{Routine, Simd, SimdLevel};
use std::marker::PhantomData;

/// Floats of a tile of results.
pub const RESULTS: usize = SIDE * SIDE;

/// Floats of a block's results: tile by tile, rows of tiles first.
pub const BLOCK: usize = 4 * RESULTS;

/// Arguments of a block. `A` and `B` are read as far as whole tiles reach.
pub struct Block<'a> {
    /// The first row's first number.
    pub a: *const u16,
    /// Bytes from row to row; a multiple of 64 if the rows are to be read as fast as can be.
    pub a_step: usize,
    /// Stretches of the sum, over which `A` and `B` advance together: bytes from `a`.
    pub runs: &'a [u32],
    /// Steps of each.
    pub steps: usize,
    /// Terms of each stretch's last step, from 1 on: those after them are zero in both factors, and a unit may leave them out. Only
    /// [`Bf16Unit::Avx512`] always does, also if `a` has others there.
    pub last: usize,
    /// The panel, from the block's first step on.
    pub b: *const u16,
    /// The results.
    pub c: Results,
    /// Adds to what `c` holds.
    pub accumulate: bool,
}

/// Where the tiles of a block's results lie: rows of 16 floats.
#[derive(Clone, Copy)]
pub struct Results {
    /// The first tile.
    at: *mut f32,
    /// Floats from row to row of a tile.
    step: usize,
    /// Floats from a tile to the one at its right, and to the one below.
    apart: [usize; 2],
}

impl Results {
    /// Tile by tile, from a multiple of 64 bytes on: see [`BLOCK`].
    pub fn block(at: *mut f32) -> Results {
        Results { at, step: SIDE, apart: [RESULTS, 2 * RESULTS] }
    }

    /// In a matrix whose rows are `step` floats apart.
    pub fn matrix(at: *mut f32, step: usize) -> Results {
        Results { at, step, apart: [SIDE, SIDE * step] }
    }

    fn tile(&self, row: usize, column: usize) -> *mut f32 {
        self.at.wrapping_add(row * self.apart[1] + column * self.apart[0])
    }
}

/// Rows, from 1 to [`PANEL`], and tiles of columns, 1 or 2. A unit may compute whole tiles of rows.
type Shape = [usize; 2];

type PlainFn = unsafe fn((Shape, *const Block<'static>));

/// What computes a block.
enum Form {
    Plain(PlainFn),
    /// `vdpbf16ps`.
    Dots,
    /// Tiles, which are configured.
    Tiles,
}

/// Computes blocks on the thread that made it.
///
/// Tiles are configured while it lives. Their state is 8 KiB that a switch to another thread would have to save, so a thread has none
/// while it waits.
pub struct Blocks {
    form: Form,
    /// Keeps it on its thread.
    of_thread: PhantomData<*const ()>,
}

impl Blocks {
    /// Makes `unit` ready on this thread.
    pub fn new(unit: Bf16Unit, level: SimdLevel) -> Blocks {
        assert!(unit.is_supported(), "the machine lacks {unit}");
        let form = match (unit, level) {
            // Without vectors nothing fuses multiply-adds.
            (Bf16Unit::Plain, SimdLevel::Scalar) => Form::Plain(scalar),
            (Bf16Unit::Plain, level) => Form::Plain(level.routine::<Plain>()),
            (Bf16Unit::Avx512, _) => Form::Dots,
            (Bf16Unit::Amx, _) => {
                // SAFETY: the machine has the unit, and the process may use it.
                unsafe { amx::configure() };
                Form::Tiles
            }
        };
        Blocks { form, of_thread: PhantomData }
    }

    /// Computes a block of `shape`, rows and tiles of columns.
    ///
    /// # Safety
    /// All memory that the arguments reach is valid, and no other thread uses the results.
    #[inline]
    pub unsafe fn run(&self, shape: Shape, block: &Block) {
        debug_assert!((1..=PANEL).contains(&shape[0]) && (1..=2).contains(&shape[1]));
        debug_assert!((1..=STEP).contains(&block.last));
        // SAFETY: the caller's promise; the routine keeps nothing of the block.
        unsafe {
            match self.form {
                Form::Plain(plain) => plain((shape, std::ptr::from_ref(block).cast())),
                #[cfg(target_arch = "x86_64")]
                Form::Dots => dpbf16::run(shape, block),
                #[cfg(not(target_arch = "x86_64"))]
                Form::Dots => unreachable!("there is no such unit on this processor"),
                Form::Tiles => amx::run(shape, block),
            }
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        if let Form::Tiles = self.form {
            // SAFETY: the tiles were configured on this thread.
            unsafe { amx::release() };
        }
    }
}

/// A tile's numbers as floats, even terms and odd ones apart; denormal ones are zero.
struct Terms([[f32; TILE / 2]; 2]);

impl Terms {
    /// Of `SIDE` rows of `SIDE` pairs, `step` bytes apart.
    ///
    /// # Safety
    /// The rows are valid.
    #[inline(always)]
    unsafe fn read(from: *const u16, step: usize) -> Terms {
        let mut terms = [[0.0f32; TILE / 2]; 2];
        for row in 0..SIDE {
            let from = from.wrapping_byte_add(row * step);
            for pair in 0..SIDE {
                for half in 0..2 {
                    // SAFETY: the caller's promise.
                    let bits = u32::from(unsafe { *from.add(2 * pair + half) }) << 16;
                    let bits = if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits };
                    terms[half][row * SIDE + pair] = f32::from_bits(bits);
                }
            }
        }
        Terms(terms)
    }
}

/// Calls `f` for each tile of `A`, `B` and `C` of a block, step by step, after results that begin at zero were set to it.
///
/// # Safety
/// As [`Blocks::run`].
#[inline(always)]
unsafe fn each_tile(shape: Shape, block: &Block, mut f: impl FnMut(&Terms, &Terms, *mut f32)) {
    let shape = [tiles(shape[0]), shape[1]];
    // SAFETY: the caller's promise.
    unsafe {
        for tile in (0..4).filter(|tile| !block.accumulate && tile / 2 < shape[0] && tile % 2 < shape[1]) {
            let c = block.c.tile(tile / 2, tile % 2);
            (0..SIDE).for_each(|row| c.add(row * block.c.step).write_bytes(0, SIDE));
        }
        let mut b = block.b;
        for &run in block.runs {
            for step in 0..block.steps {
                for row in 0..shape[0] {
                    let a = block.a.wrapping_byte_add(run as usize + step * 2 * STEP + row * SIDE * block.a_step);
                    let a = Terms::read(a, block.a_step);
                    for column in 0..shape[1] {
                        let c = block.c.tile(row, column);
                        f(&a, &Terms::read(b.wrapping_add(column * TILE), 2 * STEP), c);
                    }
                }
                b = b.wrapping_add(shape[1] * TILE);
            }
        }
    }
}

/// The plain form, for vectors that fuse multiply-adds.
struct Plain;

impl Routine for Plain {
    type Args = (Shape, *const Block<'static>);

    #[inline(always)]
    unsafe fn run<S: Simd>(s: S, (shape, block): Self::Args) {
        let flushed = |x: S::V| s.select(s.gt(s.splat(f32::MIN_POSITIVE), s.abs(x)), s.mul(x, s.zero()), x);
        // SAFETY: the caller passes a block whose addresses are all valid.
        unsafe {
            let step = (*block).c.step;
            each_tile(shape, &*block, |a, b, c| {
                for row in 0..SIDE {
                    for column in (0..SIDE).step_by(S::LANES) {
                        let mut sums = [s.zero(); 2];
                        for pair in 0..SIDE {
                            for half in 0..2 {
                                let y = s.load(b.0[half].as_ptr().add(pair * SIDE + column));
                                let x = s.splat(a.0[half][row * SIDE + pair]);
                                sums[half] = flushed(s.fma(x, y, sums[half]));
                            }
                        }
                        let both = flushed(s.add(sums[0], sums[1]));
                        let c = c.add(row * step + column);
                        let before = flushed(s.load(c));
                        s.store(c, flushed(s.add(before, both)));
                    }
                }
            });
        }
    }
}

/// The same number by number. A product of two such numbers and its sum with a float, in double precision, is rounded to the same
/// float as if it had been exact.
///
/// # Safety
/// As [`Blocks::run`].
unsafe fn scalar((shape, block): (Shape, *const Block<'static>)) {
    fn flushed(x: f32) -> f32 {
        if x.abs() < f32::MIN_POSITIVE { x * 0.0 } else { x }
    }
    // SAFETY: the caller's promise.
    unsafe {
        let step = (*block).c.step;
        each_tile(shape, &*block, |a, b, c| {
            for row in 0..SIDE {
                for column in 0..SIDE {
                    let mut sums = [0.0f32; 2];
                    for pair in 0..SIDE {
                        for half in 0..2 {
                            let [x, y] = [a.0[half][row * SIDE + pair], b.0[half][pair * SIDE + column]].map(f64::from);
                            sums[half] = flushed((x * y + f64::from(sums[half])) as f32);
                        }
                    }
                    let c = c.add(row * step + column);
                    let before = flushed(*c);
                    *c = flushed(before + flushed(sums[0] + sums[1]));
                }
            }
        });
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx {
    use super::{Block, SIDE, STEP, Shape, tiles};
    use std::arch::asm;

    /// What `ldtilecfg` reads.
    #[repr(C, align(64))]
    struct Config {
        palette: u8,
        start: u8,
        reserved: [u8; 14],
        row_bytes: [u16; 16],
        rows: [u8; 16],
    }

    /// Eight tiles of 16 rows of 64 bytes.
    ///
    /// # Safety
    /// The machine has AMX, and the process may use it.
    pub unsafe fn configure() {
        const TILES: usize = 8;
        let mut config = Config { palette: 1, start: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        config.row_bytes[..TILES].fill(2 * STEP as u16);
        config.rows[..TILES].fill(SIDE as u8);
        // SAFETY: the caller's promise; the instruction reads 64 bytes. Rust knows no tiles, so that nothing else uses them.
        unsafe { asm!("ldtilecfg [{0}]", in(reg) &raw const config, options(nostack, preserves_flags, readonly)) };
    }

    /// Gives the tiles' state back.
    ///
    /// # Safety
    /// The machine has AMX, and the process may use it.
    pub unsafe fn release() {
        // SAFETY: the caller's promise.
        unsafe { asm!("tilerelease", options(nostack, preserves_flags, nomem)) };
    }

    /// Computes a block.
    ///
    /// # Safety
    /// As [`super::Blocks::run`], and [`configure`] was called on this thread.
    #[inline]
    pub unsafe fn run(shape: Shape, block: &Block) {
        // SAFETY: the caller's promise.
        unsafe {
            match [tiles(shape[0]), shape[1]] {
                [1, 1] => one_by_one(block),
                [1, _] => one_by_two(block),
                [_, 1] => two_by_one(block),
                _ => two_by_two(block),
            }
        }
    }

    /// Zero or what the block holds, into tiles of results, each with its place.
    macro_rules! begin {
        ($block:ident, $($tile:literal at $row:literal, $column:literal);*) => {
            $(if $block.accumulate {
                asm!(
                    concat!("tileloadd ", $tile, ", [{c} + {s}]"),
                    c = in(reg) $block.c.tile($row, $column),
                    s = in(reg) 4 * $block.c.step,
                    options(nostack, preserves_flags, readonly)
                );
            } else {
                asm!(concat!("tilezero ", $tile), options(nostack, preserves_flags, nomem));
            })*
        };
    }

    /// Tiles of results to their places.
    macro_rules! store {
        ($block:ident, $($tile:literal at $row:literal, $column:literal);*) => {
            $(asm!(
                concat!("tilestored [{c} + {s}], ", $tile),
                c = in(reg) $block.c.tile($row, $column),
                s = in(reg) 4 * $block.c.step,
                options(nostack, preserves_flags)
            );)*
        };
    }

    /// The steps of each stretch.
    macro_rules! sum {
        ($block:ident, $width:literal, $step:literal) => {
            let mut b = $block.b;
            if $block.steps > 0 {
                for &run in $block.runs {
                    let a = $block.a.wrapping_byte_add(run as usize);
                    asm!(
                        "2:",
                        $step,
                        "add {a0}, 64",
                        "add {a1}, 64",
                        concat!("add {b}, ", $width),
                        "dec {n}",
                        "jnz 2b",
                        a0 = inout(reg) a => _,
                        a1 = inout(reg) a.wrapping_byte_add(SIDE * $block.a_step) => _,
                        b = inout(reg) b => b,
                        n = inout(reg) $block.steps => _,
                        t = in(reg) $block.a_step,
                        s = in(reg) 64usize,
                        options(nostack, readonly)
                    );
                }
            }
            let _ = b;
        };
    }

    unsafe fn two_by_two(block: &Block) {
        // SAFETY: the caller's promise.
        unsafe {
            begin!(block, "tmm0" at 0, 0; "tmm1" at 0, 1; "tmm2" at 1, 0; "tmm3" at 1, 1);
            sum!(
                block,
                "2048",
                "tileloadd tmm4, [{a0} + {t}]\n tileloadd tmm6, [{b} + {s}]\n tileloadd tmm5, [{a1} + {t}]\n tileloadd tmm7, [{b} + {s} + 1024]\n tdpbf16ps tmm0, tmm4, tmm6\n tdpbf16ps tmm2, tmm5, tmm6\n tdpbf16ps tmm1, tmm4, tmm7\n tdpbf16ps tmm3, tmm5, tmm7"
            );
            store!(block, "tmm0" at 0, 0; "tmm1" at 0, 1; "tmm2" at 1, 0; "tmm3" at 1, 1);
        }
    }

    unsafe fn two_by_one(block: &Block) {
        // SAFETY: the caller's promise.
        unsafe {
            begin!(block, "tmm0" at 0, 0; "tmm2" at 1, 0);
            sum!(
                block,
                "1024",
                "tileloadd tmm4, [{a0} + {t}]\n tileloadd tmm6, [{b} + {s}]\n tileloadd tmm5, [{a1} + {t}]\n tdpbf16ps tmm0, tmm4, tmm6\n tdpbf16ps tmm2, tmm5, tmm6"
            );
            store!(block, "tmm0" at 0, 0; "tmm2" at 1, 0);
        }
    }

    unsafe fn one_by_two(block: &Block) {
        // SAFETY: the caller's promise.
        unsafe {
            begin!(block, "tmm0" at 0, 0; "tmm1" at 0, 1);
            sum!(
                block,
                "2048",
                "tileloadd tmm4, [{a0} + {t}]\n tileloadd tmm6, [{b} + {s}]\n tileloadd tmm7, [{b} + {s} + 1024]\n tdpbf16ps tmm0, tmm4, tmm6\n tdpbf16ps tmm1, tmm4, tmm7"
            );
            store!(block, "tmm0" at 0, 0; "tmm1" at 0, 1);
        }
    }

    unsafe fn one_by_one(block: &Block) {
        // SAFETY: the caller's promise.
        unsafe {
            begin!(block, "tmm0" at 0, 0);
            sum!(
                block,
                "1024",
                "tileloadd tmm4, [{a0} + {t}]\n tileloadd tmm6, [{b} + {s}]\n tdpbf16ps tmm0, tmm4, tmm6"
            );
            store!(block, "tmm0" at 0, 0);
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod amx {
    use super::{Block, Shape};

    /// Not there.
    pub unsafe fn configure() {}

    /// Not there.
    pub unsafe fn release() {}

    /// Not there: the unit cannot be made.
    pub unsafe fn run(_: Shape, _: &Block) {
        unreachable!("there is no such unit on this system");
    }
}
