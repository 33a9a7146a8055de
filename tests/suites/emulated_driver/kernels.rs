//! What kernels compute.

use super::emulator;
use super::gpu::{Gpu, arg, gpu, ok};
use cudarc::driver::sys as cu;
use std::ptr::null_mut;

/// Numbers that 16-bit floats hold exactly, both signs.
fn small(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7 + i / 5) % 23) as f32 * 0.25 - 2.5).collect()
}

#[test]
fn block_sums() {
    for seed in [0, 1, 2, 3] {
        let Some(gpu) = gpu(seed) else { return };
        for (count, blocks, threads) in [(1000, 4, 256), (1000, 1, 1024), (3, 2, 32), (100_000, 98, 1024)] {
            let values: Vec<f32> = (0..count).map(|i| (i % 97) as f32).collect();
            let (x, out) = (gpu.floats(&values), gpu.alloc(blocks));
            let (mut a, mut b, mut n) = (x.0, out.0, count);
            let size = [blocks as u32, threads, 0];
            ok(gpu.launch(null_mut(), "case_block_sum", size, &mut [arg(&mut a), arg(&mut b), arg(&mut n)]));
            let part = |k: usize| values.iter().skip(k * threads as usize).take(threads as usize).sum::<f32>();
            assert_eq!(gpu.read(&out), (0..blocks).map(part).collect::<Vec<_>>(), "seed {seed}");
        }
    }
}

#[test]
fn results_do_not_depend_on_workers() {
    let Some(gpu) = gpu(9) else { return };
    let values: Vec<f32> = (0..4096 * 64).map(|i| i as f32 * 0.1).collect();
    let mut results = Vec::new();
    for workers in [1, 2, 4] {
        emulator::configure("threads", workers);
        let (x, out) = (gpu.floats(&values), gpu.alloc(4096));
        let (mut a, mut b, mut n) = (x.0, out.0, values.len() as i32);
        ok(gpu.launch(null_mut(), "case_block_sum", [4096, 64, 0], &mut [arg(&mut a), arg(&mut b), arg(&mut n)]));
        results.push(gpu.read(&out));
    }
    assert!(results.iter().all(|r| *r == results[0]));
}

#[test]
fn shuffles_and_votes() {
    let Some(gpu) = gpu(4) else { return };
    let out = gpu.alloc(32 * 8);
    let mut a = out.0;
    ok(gpu.launch(null_mut(), "case_warp", [1, 32, 0], &mut [arg(&mut a)]));
    for (lane, got) in gpu.read(&out).chunks(8).enumerate() {
        let got: Vec<i32> = got.iter().map(|x| x.to_bits() as i32).collect();
        let i = lane as i32;
        let thirds = (0..32).filter(|l| l % 3 == 0).fold(0u32, |mask, l| mask | 1 << l) as i32;
        let up = if i < 3 { i } else { i - 3 };
        let down = if i < 29 { i + 3 } else { i };
        let half = i32::from(lane < 16);
        assert_eq!(got, [5, up, down, i ^ 9, thirds, i / 8 * 8 + 2, half, 10], "lane {lane}");
    }
}

#[test]
fn dynamic_shared_memory() {
    let Some(gpu) = gpu(5) else { return };
    let values: Vec<f32> = (0..300).map(|i| i as f32).collect();
    let x = gpu.floats(&values);
    let mut a = x.0;
    ok(gpu.launch(null_mut(), "case_reverse", [3, 100, 400], &mut [arg(&mut a)]));
    let expected: Vec<f32> = values.chunks(100).flat_map(|c| c.iter().rev().copied()).collect();
    assert_eq!(gpu.read(&x), expected);
}

#[test]
fn the_last_block_knows_that_it_is() {
    let Some(gpu) = gpu(6) else { return };
    let (counter, out) = (gpu.floats(&[0.0]), gpu.floats(&[0.0]));
    let (mut a, mut b) = (counter.0, out.0);
    ok(gpu.launch(null_mut(), "case_last_block", [2000, 64, 0], &mut [arg(&mut a), arg(&mut b)]));
    assert_eq!(gpu.read(&out)[0].to_bits(), 2000);
}

/// D = A B + 1 in the plain way: A by rows, B by columns.
fn product(a: &[f32], b: &[f32], k: usize) -> Vec<f32> {
    let dot = |i: usize, j: usize| (0..k).map(|l| a[i * k + l] * b[j * k + l]).sum::<f32>();
    (0..128).map(|at| 1.0 + dot(at / 8, at % 8)).collect()
}

fn multiply(gpu: &Gpu, kernel: &str, a: &[f32], b: &[f32]) -> Vec<f32> {
    let (a, b, d) = (gpu.floats(a), gpu.floats(b), gpu.alloc(128));
    let (mut a, mut b, mut at) = (a.0, b.0, d.0);
    ok(gpu.launch(null_mut(), kernel, [1, 32, 0], &mut [arg(&mut a), arg(&mut b), arg(&mut at)]));
    gpu.read(&d)
}

#[test]
fn small_matrices() {
    let Some(gpu) = gpu(7) else { return };
    for (kernel, k) in
        [("case_mma_k16_bf16", 16), ("case_mma_k16_f16", 16), ("case_mma_k8_f16", 8), ("case_mma_k8_tf32", 8)]
    {
        let (a, b) = (small(16 * k), small(8 * k));
        assert_eq!(multiply(&gpu, kernel, &a, &b), product(&a, &b, k), "{kernel}");
    }
    let (a, b) = (small(256), small(128));
    let by_columns: Vec<f32> = (0..128).map(|at| b[at % 16 * 8 + at / 16]).collect();
    assert_eq!(multiply(&gpu, "case_ldmatrix", &a, &b), product(&a, &by_columns, 16));
}

#[test]
fn tf32_has_ten_bits_of_fraction() {
    let Some(gpu) = gpu(0) else { return };
    let (mut a, mut b) = (vec![0.0; 128], vec![0.0; 64]);
    a[0] = 1.0 + 2f32.powi(-10) + 2f32.powi(-11);
    b[0] = 1.0;
    assert_eq!(multiply(&gpu, "case_mma_k8_tf32", &a, &b)[0], 2.0 + 2f32.powi(-10));
}

#[test]
fn halves_are_rounded_to_nearest_even() {
    let Some(gpu) = gpu(0) else { return };
    // Every half, the middles between neighbours, and what lies just beside the middles; too large, too small, NaN.
    let mut values = vec![65519.9, 65520.0, 1e9, -1e9, 1e-9, -1e-9, 2f32.powi(-25), f32::INFINITY, f32::NAN];
    for bits in 0..0x7c00u16 {
        let (x, next) = (half::f16::from_bits(bits).to_f32(), half::f16::from_bits(bits + 1).to_f32());
        if next.is_finite() {
            let middle = (x + next) / 2.0;
            values.extend([x, -x, middle, -middle, middle.next_up(), middle.next_down()]);
        }
    }
    let x = gpu.floats(&values);
    let (mut a, mut n) = (x.0, values.len() as i32);
    let blocks = values.len().div_ceil(256) as u32;
    ok(gpu.launch(null_mut(), "case_half", [blocks, 256, 0], &mut [arg(&mut a), arg(&mut n)]));
    for (value, got) in values.iter().zip(gpu.read(&x)) {
        let expected = half::f16::from_f32(*value).to_f32();
        assert!(got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan(), "{value}: {got}, {expected}");
    }
}

#[test]
fn fresh_memory_is_not_a_number() {
    let Some(gpu) = gpu(0) else { return };
    assert!(gpu.read(&gpu.alloc(100)).iter().all(|x| x.is_nan()));
}

#[test]
fn limits_of_launches() {
    let Some(gpu) = gpu(0) else { return };
    let x = gpu.floats(&[1.0; 64]);
    let mut a = x.0;
    let wrong = cu::CUresult::CUDA_ERROR_INVALID_VALUE;
    assert_eq!(gpu.launch(null_mut(), "case_reverse", [1, 1025, 0], &mut [arg(&mut a)]), wrong);
    assert_eq!(gpu.launch(null_mut(), "case_reverse", [0, 32, 0], &mut [arg(&mut a)]), wrong);
    let f = gpu.function("case_beyond_shared");
    let mut bytes = 99 << 10;
    let size = [1, 1, 100 << 10];
    assert_eq!(gpu.launch(null_mut(), "case_beyond_shared", size, &mut [arg(&mut bytes)]), wrong);
    let most = cu::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    // SAFETY: a function of this driver.
    unsafe {
        assert_eq!(cu::cuFuncSetAttribute(f, most, 228 << 10), wrong);
        ok(cu::cuFuncSetAttribute(f, most, 100 << 10));
    }
    ok(gpu.launch(null_mut(), "case_beyond_shared", size, &mut [arg(&mut bytes)]));
}

#[test]
fn names_of_kernels_are_found() {
    let text = "template <class T> __global__ void hidden(T x);\n__global__ void mangled(int);\n\
                extern \"C\" __global__ void  one_f32(float *x) {}\nextern \"C\" __global__\nvoid two_f16(int n) {}";
    assert_eq!(emulator::kernel_names(text), ["one_f32", "two_f16"]);
}

#[test]
fn asynchronous_copies_are_there_when_they_have_been_waited_for() {
    let Some(gpu) = gpu(3) else { return };
    let values = small(128);
    let (from, out) = (gpu.floats(&values), gpu.alloc(3 * 128));
    let (mut a, mut b) = (from.0, out.0);
    ok(gpu.launch(null_mut(), "case_async_copy", [1, 32, 0], &mut [arg(&mut a), arg(&mut b)]));
    let out = gpu.read(&out);
    assert!(out[..256].iter().all(|x| x.is_nan()), "a copy that is under way, or the sum with one");
    let both = |i: usize| values[i] + if i % 4 < 2 { values[i] } else { 0.0 };
    assert_eq!(out[256..], (0..128).map(both).collect::<Vec<_>>());
}
