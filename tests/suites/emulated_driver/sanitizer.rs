//! The sanitizer finds what is planted, and nothing in what is right.

use super::emulator::{self, Operand, Watched};
use super::gpu::{Gpu, arg, child, gpu, in_child, ok};
use cudarc::driver::sys::CUresult;
use std::ffi::CStr;

/// A fault, the parts of its message, and the error that it is.
struct Planted {
    kernel: &'static str,
    /// Blocks, threads, bytes of dynamic shared memory.
    size: [u32; 3],
    /// The kernel's arguments.
    arguments: Arguments,
    parts: &'static [&'static str],
    error: CUresult,
}

#[derive(Clone, Copy)]
enum Arguments {
    /// x of 128 floats, `right`.
    X,
    /// x and y of 128 floats, `right`.
    XY,
    /// x, which is only read, and y, each of so many floats of one allocation, one after the other; how many; `right`.
    Count(usize),
}

const RACE: CUresult = CUresult::CUDA_ERROR_LAUNCH_FAILED;
const ILLEGAL: CUresult = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;

const fn race(kernel: &'static str, size: [u32; 3], arguments: Arguments, parts: &'static [&'static str]) -> Planted {
    Planted { kernel, size, arguments, parts, error: RACE }
}

const fn illegal(
    kernel: &'static str,
    size: [u32; 3],
    arguments: Arguments,
    parts: &'static [&'static str],
) -> Planted {
    Planted { kernel, size, arguments, parts, error: ILLEGAL }
}

const PLANTED: [Planted; 20] = [
    race(
        "case_missing_barrier",
        [1, 64, 0],
        Arguments::X,
        &[
            "block (0, 0, 0), thread (32, 0, 0)",
            "races.cu:11: race: reads 4 bytes at byte",
            "of `tile`, which thread (31, 0, 0) has written at tests/support/emulator/cases/races.cu:7",
        ],
    ),
    race(
        "case_missing_second_barrier",
        [1, 64, 256],
        Arguments::X,
        &[
            "races.cu:19: race: writes 4 bytes at byte",
            "of dynamic shared memory, which thread",
            "has read at tests/support/emulator/cases/races.cu:21",
        ],
    ),
    race("case_overlap", [1, 64, 512], Arguments::X, &["race: writes 4 bytes at byte 252 of dynamic shared memory"]),
    race(
        "case_overlapping_bytes",
        [1, 64, 128],
        Arguments::X,
        &["race: writes 1 bytes at byte 63 of dynamic shared memory"],
    ),
    race(
        "case_read_before_wait",
        [1, 32, 0],
        Arguments::X,
        &["where an asynchronous copy of thread (0, 0, 0) will arrive, which has not been waited for (begun at"],
    ),
    race("case_wait_without_barrier", [1, 32, 0], Arguments::X, &["race: reads 4 bytes at byte"]),
    race(
        "case_copy_over_reads",
        [1, 32, 512],
        Arguments::X,
        &["race: writes 16 bytes at byte", "which thread", "has read at"],
    ),
    race("case_warp_in_step", [1, 32, 0], Arguments::X, &["of `sums`, which thread"]),
    race("case_shuffle_is_no_barrier", [1, 32, 0], Arguments::X, &["race: reads 4 bytes"]),
    race("case_half_a_warp_meets", [1, 32, 0], Arguments::X, &["race: reads 4 bytes"]),
    race("case_matrix_load", [1, 32, 0], Arguments::X, &["race: reads 16 bytes"]),
    race(
        "case_unwritten",
        [2, 64, 0],
        Arguments::X,
        &["block (1, 0, 0), thread", "reads byte 252 of `tile`, which nobody in the block has written"],
    ),
    illegal(
        "case_ahead_of_shared",
        [1, 64, 256],
        Arguments::X,
        &["writes byte -4 of dynamic shared memory, ahead of the launch's part"],
    ),
    illegal(
        "case_one_too_many",
        [1, 32, 0],
        Arguments::Count(16),
        &["writes 4 bytes 0 bytes behind the end of the result (64 bytes)"],
    ),
    illegal(
        "case_next",
        [1, 32, 0],
        Arguments::Count(16),
        &["reads 4 bytes 0 bytes behind the end of the operand (64 bytes)"],
    ),
    illegal(
        "case_packs",
        [1, 32, 0],
        Arguments::Count(18),
        &[
            "reads 16 bytes from byte 64 on, beyond the end of the operand (72 bytes)",
            "writes 16 bytes from byte 64 on, beyond the end of the result (72 bytes)",
        ],
    ),
    illegal(
        "case_writes_operand",
        [1, 32, 0],
        Arguments::Count(16),
        &["writes 4 bytes at byte 0 of the operand (64 bytes), which is only to be read"],
    ),
    race(
        "case_blocks_write_one",
        [2, 32, 0],
        Arguments::XY,
        &[
            "block (1, 0, 0), thread (0, 0, 0)",
            "which block (0, 0, 0), thread (0, 0, 0) has written at",
            "with nothing between that orders blocks",
        ],
    ),
    race("case_blocks_read_others", [2, 32, 0], Arguments::XY, &["which block (0, 0, 0), thread", "has read at"]),
    race("case_through_memory", [1, 64, 0], Arguments::XY, &["race: reads 4 bytes at global memory"]),
];

/// Counters by atomic operations race only with what is not atomic.
const COUNTER: Planted = race("case_counter", [2, 32, 0], Arguments::XY, &["race: "]);

/// Launches the case, and gives what waiting for it gives.
fn launch(gpu: &Gpu, planted: &Planted, right: i32) -> CUresult {
    let mut right = right;
    let stream = gpu.stream();
    // Room between the operands, as the backend's block has it.
    let memory = gpu.floats(&[1.0; 512]);
    let floats = if let Arguments::Count(n) = planted.arguments { n } else { 128 };
    let (mut x, mut y, mut n) = (memory.0, memory.0 + 1024, floats as i32);
    let given = |what: &'static CStr, address: u64, written: bool| Operand {
        what: what.as_ptr(),
        address,
        bytes: 4 * floats as u64,
        written: written.into(),
    };
    let alone = matches!(planted.arguments, Arguments::Count(_));
    let operands = [given(c"the operand", x, !alone), given(c"the result", y, true)];
    let (cells, mut args) = match planted.arguments {
        Arguments::X => (vec![x, right as u64], vec![arg(&mut x), arg(&mut right)]),
        Arguments::XY => (vec![x, y, right as u64], vec![arg(&mut x), arg(&mut y), arg(&mut right)]),
        Arguments::Count(_) => {
            (vec![x, y, n as u64, right as u64], vec![arg(&mut x), arg(&mut y), arg(&mut n), arg(&mut right)])
        }
    };
    let count = if matches!(planted.arguments, Arguments::X) { 1 } else { 2 };
    let [blocks, threads, _] = planted.size;
    let size = [blocks, 1, 1, threads, 1, 1];
    assert!(emulator::operands(planted.kernel, size, &cells, &operands[..count]), "{}", planted.kernel);
    ok(gpu.launch(stream, planted.kernel, planted.size, &mut args));
    let result = gpu.sync(stream);
    std::mem::forget(memory);
    result
}

/// All that is planted, in a process in which findings are printed and nothing fails; each done rightly, too, in which there is
/// nothing to find, in whatever order threads come.
#[test]
fn all_that_is_planted_is_found_and_nothing_else() {
    if !emulator::install() {
        return;
    }
    let all = || PLANTED.iter().chain([&COUNTER]);
    if in_child() {
        for seed in 0..4 {
            let gpu = gpu(seed).unwrap();
            for planted in all() {
                let before = emulator::watched();
                ok(launch(&gpu, planted, 1));
                assert_eq!(emulator::watched(), before, "{} done rightly: {}", planted.kernel, emulator::message());
                ok(launch(&gpu, planted, 0));
                let Watched { findings, unknown } = emulator::watched();
                assert!(findings > before.findings, "{}: nothing was found with seed {seed}", planted.kernel);
                assert_eq!(unknown, 0);
            }
        }
        return;
    }
    let test = "sanitizer::all_that_is_planted_is_found_and_nothing_else";
    let written = child(test, &[("EMULATED_SANITIZER", "2")]);
    for planted in all() {
        let name = format!("kernel `{}`", planted.kernel);
        let own: Vec<&str> = written.lines().filter(|line| line.contains(&name)).collect();
        assert!(!own.is_empty(), "{name} is not in: {written}");
        for piece in planted.parts {
            assert!(own.iter().any(|line| line.contains(piece)), "{piece:?} is not in: {own:#?}");
        }
    }
}

/// A launch in which something is found fails, each kind with the error that a GPU's own tools would give.
#[test]
fn findings_are_errors_of_the_launch() {
    if !emulator::install() {
        return;
    }
    if in_child() {
        let gpu = gpu(0).unwrap();
        let planted = PLANTED.iter().find(|p| std::env::var("PLANTED").unwrap() == p.kernel).unwrap();
        ok(launch(&gpu, planted, 1));
        assert_eq!(launch(&gpu, planted, 0), planted.error);
        return;
    }
    for kernel in ["case_missing_barrier", "case_next"] {
        let test = "sanitizer::findings_are_errors_of_the_launch";
        child(test, &[("EMULATED_SANITIZER", "1"), ("PLANTED", kernel)]);
    }
}

/// Launches whose memory is not registered are not checked. They are counted.
#[test]
fn unregistered_launches_are_counted() {
    if !emulator::install() {
        return;
    }
    if in_child() {
        let gpu = gpu(0).unwrap();
        let x = gpu.floats(&[1.0; 64]);
        gpu.affine(std::ptr::null_mut(), &x, 2.0, 0.0, 64);
        assert_eq!(gpu.read(&x), [2.0; 64]);
        assert_eq!(emulator::watched(), Watched { findings: 0, unknown: 1 });
        return;
    }
    child("sanitizer::unregistered_launches_are_counted", &[("EMULATED_SANITIZER", "1")]);
}
