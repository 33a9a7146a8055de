//! Blocks by `vdpbf16ps` of AVX512-BF16, with the bits of the tiles.
//!
//! The instruction adds two products to each float: first that of the upper halves of 32 bits, then that of the lower ones. It rounds after
//! each, and takes and gives denormal numbers as zero (Intel, *Instruction Set Extensions Programming Reference*). Tiles sum the even and the
//! odd terms apart. So terms are paired anew, [alternate](super::super::pack::Pairing) ones in the place of neighbours: those of `B` where it is
//! packed, those of `A` here, on their way into the first-level cache, as rows may be used where they lie.

use super::super::pack::Pairing;
use super::super::{PANEL, SIDE, STEP, TILE};
use super::{Block, Results};
use std::arch::asm;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// Steps of a block that are computed one after the other: 8 KiB of each operand.
const STEPS: usize = 4;

/// Rows whose sums are in registers, and terms of `A` that two broadcasts take.
const ROWS: usize = 4;
const TERMS: usize = 4;

/// What lets additions take and give denormal numbers as zero, beside what the register says by default.
const FLUSHING: u32 = 0x1f80 | 1 << 15 | 1 << 6;

/// Steps of `PANEL` rows of `A`, paired anew.
#[repr(align(64))]
struct Paired(MaybeUninit<[u16; STEPS * PANEL * STEP]>);

impl Paired {
    fn step(&mut self, step: usize) -> *mut u16 {
        self.0.as_mut_ptr().cast::<u16>().wrapping_add(step * PANEL * STEP)
    }
}

/// Computes a block of `rows`, in fours, by `columns` tiles.
///
/// # Safety
/// As [`super::Blocks::run`], and the machine has the instructions.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
pub unsafe fn run([rows, columns]: [usize; 2], block: &Block) {
    // SAFETY: the caller's promise.
    unsafe {
        match columns {
            1 => of_width::<1>(rows, block),
            _ => of_width::<2>(rows, block),
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn of_width<const TILES: usize>(rows: usize, block: &Block) {
    let mut a = Paired(MaybeUninit::uninit());
    let mut panel = block.b;
    let mut held = 0;
    // SAFETY: the caller's promise; no more than `STEPS` steps are held.
    unsafe {
        let rows = rows.next_multiple_of(ROWS);
        let mut adds = block.accumulate;
        let mut add = |a: &mut Paired, panel: *const u16, steps: usize, last: usize| {
            let state = State::new(rows, steps, last, adds, block.c);
            match TILES {
                1 => add_to_one(a.step(0), panel, state, block.c),
                _ => add_to_two(a.step(0), panel, state, block.c),
            }
            adds = true;
        };
        for &run in block.runs {
            for step in 0..block.steps {
                let from = block.a.wrapping_byte_add(run as usize + step * 2 * STEP);
                let last = if step + 1 == block.steps { block.last } else { STEP };
                pair_rows((from, block.a_step, last), rows, a.step(held));
                held += 1;
                // Steps that are summed together are whole but for the last of them.
                if held == STEPS || last < STEP {
                    add(&mut a, panel, held, last);
                    panel = panel.wrapping_add(held * TILES * TILE);
                    held = 0;
                }
            }
        }
        // Also a sum of no terms sets its results.
        if held > 0 || block.runs.is_empty() || block.steps == 0 {
            add(&mut a, panel, held, STEP);
        }
    }
}

/// A step of rows of `A`, of which so many terms are read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn pair_rows((from, from_step, terms): (*const u16, usize, usize), rows: usize, to: *mut u16) {
    const ORDER: [u16; STEP] = {
        let mut order = [0; STEP];
        let mut i = 0;
        while i < STEP {
            order[i] = Pairing::Alternate.terms(i / 2)[i % 2] as u16;
            i += 1;
        }
        order
    };
    // SAFETY: the caller's promise.
    unsafe {
        let order = _mm512_loadu_si512(ORDER.as_ptr().cast());
        let mask = u32::MAX >> (STEP - terms);
        for row in 0..rows {
            let terms = _mm512_maskz_loadu_epi16(mask, from.wrapping_byte_add(row * from_step).cast());
            _mm512_store_si512(to.add(row * STEP).cast(), _mm512_permutexvar_epi16(order, terms));
        }
    }
}

/// What the code keeps in memory.
#[repr(C)]
struct State {
    /// The register that says what denormal numbers are: while the code runs, and before.
    flushing: u32,
    before: u32,
    /// Groups of `ROWS` rows that are left.
    groups: u64,
    steps: u64,
    /// `TERMS` of the last step.
    last: u64,
    /// Bytes of results to go over after a tile's rows.
    apart: u64,
    /// 1: sums are added to the results that there are.
    adds: u64,
    /// Groups that are left when a tile's rows are done.
    second: u64,
}

impl State {
    fn new(rows: usize, steps: usize, last: usize, adds: bool, c: Results) -> State {
        let apart = 4 * (c.apart[1] - SIDE * c.step);
        let (groups, last) = (rows / ROWS, last.div_ceil(TERMS));
        let second = groups.saturating_sub(SIDE / ROWS);
        let [groups, steps, last, apart, second] = [groups, steps, last, apart, second].map(|n| n as u64);
        State { flushing: FLUSHING, before: 0, groups, steps, last, apart, adds: adds.into(), second }
    }
}

/// Adds steps to a row of tiles or two, four rows at a time. Registers 0 to 7 have the sums of even terms, 8 to 15 those of odd ones, 24 to 31
/// the results. `$dots` are for a pair of even terms and one of odd terms; `$sums` adds up at the end of a step.
macro_rules! add {
    ($a:ident, $b:ident, $state:ident, $c:ident, $load:expr, $dots:expr, $sums:expr, $next:literal, $store:expr) => {
        let mut state = $state;
        asm!(
            "stmxcsr [{state} + 4]",
            "ldmxcsr [{state}]",
            "2:",
            "vpxord zmm24, zmm24, zmm24\n vpxord zmm25, zmm25, zmm25\n vpxord zmm26, zmm26, zmm26\n vpxord zmm27, zmm27, zmm27",
            "vpxord zmm28, zmm28, zmm28\n vpxord zmm29, zmm29, zmm29\n vpxord zmm30, zmm30, zmm30\n vpxord zmm31, zmm31, zmm31",
            "cmp dword ptr [{state} + 40], 0",
            "je 5f",
            $load,
            "5:",
            "mov {a}, {first}",
            "mov {b}, {panel}",
            "mov {n}, [{state} + 16]",
            "test {n}, {n}",
            "jz 7f",
            "3:",
            "vpxord zmm0, zmm0, zmm0\n vpxord zmm1, zmm1, zmm1\n vpxord zmm2, zmm2, zmm2\n vpxord zmm3, zmm3, zmm3",
            "vpxord zmm4, zmm4, zmm4\n vpxord zmm5, zmm5, zmm5\n vpxord zmm6, zmm6, zmm6\n vpxord zmm7, zmm7, zmm7",
            "vpxord zmm8, zmm8, zmm8\n vpxord zmm9, zmm9, zmm9\n vpxord zmm10, zmm10, zmm10\n vpxord zmm11, zmm11, zmm11",
            "vpxord zmm12, zmm12, zmm12\n vpxord zmm13, zmm13, zmm13\n vpxord zmm14, zmm14, zmm14\n vpxord zmm15, zmm15, zmm15",
            "mov {pairs:e}, 8",
            "cmp {n}, 1",
            "cmove {pairs:e}, [{state} + 24]",
            "4:",
            $dots,
            "add {a}, 8",
            "dec {pairs:e}",
            "jnz 4b",
            $sums,
            // Of a whole step, a row takes 64 bytes and all of them 2 KiB.
            "add {a}, 1984",
            $next,
            "dec {n}",
            "jnz 3b",
            "7:",
            $store,
            "lea {c}, [{c} + 4 * {row}]",
            "lea {right}, [{right} + 4 * {row}]",
            "add {first}, 256",
            "dec qword ptr [{state} + 8]",
            "jz 6f",
            "mov {a}, [{state} + 8]",
            "cmp {a}, [{state} + 48]",
            "jne 2b",
            "add {c}, [{state} + 32]",
            "add {right}, [{state} + 32]",
            "jmp 2b",
            "6:",
            "ldmxcsr [{state} + 4]",
            state = in(reg) &raw mut state,
            first = inout(reg) $a => _,
            panel = in(reg) $b,
            c = inout(reg) $c.tile(0, 0) => _,
            right = inout(reg) $c.tile(0, 1) => _,
            row = in(reg) 4 * $c.step,
            row3 = in(reg) 12 * $c.step,
            a = out(reg) _,
            b = out(reg) _,
            n = out(reg) _,
            pairs = out(reg) _,
            out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _, out("zmm4") _, out("zmm5") _, out("zmm6") _,
            out("zmm7") _, out("zmm8") _, out("zmm9") _, out("zmm10") _, out("zmm11") _, out("zmm12") _, out("zmm13") _,
            out("zmm14") _, out("zmm15") _, out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
            out("zmm20") _, out("zmm21") _, out("zmm24") _, out("zmm25") _, out("zmm26") _, out("zmm27") _,
            out("zmm28") _, out("zmm29") _, out("zmm30") _, out("zmm31") _,
            options(nostack)
        );
    };
}

/// A row of `A` times two tiles: where it lies, and the registers of its sums.
macro_rules! two {
    ($at:literal, $even:literal, $even2:literal, $odd:literal, $odd2:literal) => {
        concat!(
            "vpbroadcastd zmm20, [{a} + ",
            $at,
            "]\n vpbroadcastd zmm21, [{a} + ",
            $at,
            " + 4]\n",
            "vdpbf16ps zmm",
            $even,
            ", zmm20, zmm16\n vdpbf16ps zmm",
            $even2,
            ", zmm20, zmm17\n",
            "vdpbf16ps zmm",
            $odd,
            ", zmm21, zmm18\n vdpbf16ps zmm",
            $odd2,
            ", zmm21, zmm19\n"
        )
    };
}

/// A row of `A` times a tile.
macro_rules! one {
    ($at:literal, $even:literal, $odd:literal) => {
        concat!(
            "vpbroadcastd zmm20, [{a} + ",
            $at,
            "]\n vpbroadcastd zmm21, [{a} + ",
            $at,
            " + 4]\n",
            "vdpbf16ps zmm",
            $even,
            ", zmm20, zmm16\n vdpbf16ps zmm",
            $odd,
            ", zmm21, zmm17\n"
        )
    };
}

/// The sums of even and of odd terms, and both to a result.
macro_rules! sum {
    ($even:literal, $odd:literal, $c:literal) => {
        concat!(
            "vaddps zmm",
            $even,
            ", zmm",
            $even,
            ", zmm",
            $odd,
            "\n",
            "vaddps zmm",
            $c,
            ", zmm",
            $c,
            ", zmm",
            $even,
            "\n"
        )
    };
}

/// Rows that are 32 columns wide.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn add_to_two(a: *const u16, b: *const u16, state: State, c: Results) {
    // SAFETY: the caller's promise: `A` and `B` have so many steps, and the results are the caller's own.
    unsafe {
        add!(
            a,
            b,
            state,
            c,
            "vmovups zmm24, [{c}]\n vmovups zmm25, [{right}]\n vmovups zmm26, [{c} + {row}]\n vmovups zmm27, [{right} + {row}]\n vmovups zmm28, [{c} + 2 * {row}]\n vmovups zmm29, [{right} + 2 * {row}]\n vmovups zmm30, [{c} + {row3}]\n vmovups zmm31, [{right} + {row3}]",
            concat!(
                "vmovups zmm16, [{b}]\n vmovups zmm17, [{b} + 1024]\n vmovups zmm18, [{b} + 64]\n vmovups zmm19, [{b} + 1088]\n",
                two!("0", "0", "1", "8", "9"),
                two!("64", "2", "3", "10", "11"),
                two!("128", "4", "5", "12", "13"),
                two!("192", "6", "7", "14", "15"),
                "add {b}, 128"
            ),
            concat!(
                sum!("0", "8", "24"),
                sum!("1", "9", "25"),
                sum!("2", "10", "26"),
                sum!("3", "11", "27"),
                sum!("4", "12", "28"),
                sum!("5", "13", "29"),
                sum!("6", "14", "30"),
                sum!("7", "15", "31")
            ),
            "add {b}, 1024",
            "vmovups [{c}], zmm24\n vmovups [{right}], zmm25\n vmovups [{c} + {row}], zmm26\n vmovups [{right} + {row}], zmm27\n vmovups [{c} + 2 * {row}], zmm28\n vmovups [{right} + 2 * {row}], zmm29\n vmovups [{c} + {row3}], zmm30\n vmovups [{right} + {row3}], zmm31"
        );
    }
}

/// The same of a tile.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn add_to_one(a: *const u16, b: *const u16, state: State, c: Results) {
    // SAFETY: as above.
    unsafe {
        add!(
            a,
            b,
            state,
            c,
            "vmovups zmm24, [{c}]\n vmovups zmm25, [{c} + {row}]\n vmovups zmm26, [{c} + 2 * {row}]\n vmovups zmm27, [{c} + {row3}]",
            concat!(
                "vmovups zmm16, [{b}]\n vmovups zmm17, [{b} + 64]\n",
                one!("0", "0", "8"),
                one!("64", "1", "9"),
                one!("128", "2", "10"),
                one!("192", "3", "11"),
                "add {b}, 128"
            ),
            concat!(sum!("0", "8", "24"), sum!("1", "9", "25"), sum!("2", "10", "26"), sum!("3", "11", "27")),
            "",
            "vmovups [{c}], zmm24\n vmovups [{c} + {row}], zmm25\n vmovups [{c} + 2 * {row}], zmm26\n vmovups [{c} + {row3}], zmm27"
        );
    }
}
