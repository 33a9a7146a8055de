//! Errors have the kernel's name. An error of a kernel ends the use of the device, so each is provoked
//! in a process of its own.

use super::gpu::{arg, child, gpu, in_child, ok};
use super::{emulator, gpu};
use cudarc::driver::sys::{self as cu, CUresult};
use std::ptr::null_mut;

/// In a child process: `act` leaves something on a stream, and waiting for it gives the error. In the parent: what the
/// driver wrote has all these pieces.
fn fails(test: &str, expected: CUresult, parts: &[&str], act: fn(&gpu::Gpu, cu::CUstream)) {
    if !emulator::install() {
        return;
    }
    if in_child() {
        let gpu = gpu(0).unwrap();
        let stream = gpu.stream();
        act(&gpu, stream);
        assert_eq!(gpu.sync(stream), expected);
        assert_eq!(gpu.sync(stream), expected, "the error stays");
        return;
    }
    let written = child(test, &[]);
    for piece in parts {
        assert!(written.contains(piece), "{piece:?} is not in: {written}");
    }
}

#[test]
fn divergent_barriers() {
    let parts = ["kernel `case_divergent`", "block (0, 0, 0)", "barrier divergence"];
    fails("errors::divergent_barriers", CUresult::CUDA_ERROR_LAUNCH_FAILED, &parts, |gpu, stream| {
        ok(gpu.launch(stream, "case_divergent", [1, 64, 0], &mut []));
    });
}

#[test]
fn a_barrier_after_an_exit() {
    let parts = ["kernel `case_early_exit`", "1 of 64 threads exited", "63 wait at the block's barrier"];
    fails("errors::a_barrier_after_an_exit", CUresult::CUDA_ERROR_LAUNCH_FAILED, &parts, |gpu, stream| {
        ok(gpu.launch(stream, "case_early_exit", [1, 64, 0], &mut []));
    });
}

#[test]
fn a_write_behind_the_end() {
    let parts = ["kernel `case_affine`, block (0, 0, 0), thread (0, 0, 0)", "byte 256 of an allocation of 256"];
    fails("errors::a_write_behind_the_end", CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, &parts, |gpu, stream| {
        // Two blocks of 32 threads: only their second round goes too far.
        let x = gpu.floats(&[1.0; 64]);
        gpu.affine(stream, &x, 1.0, 1.0, 65);
        std::mem::forget(x);
    });
}

#[test]
fn a_write_into_what_alignment_left() {
    let parts = ["4 bytes behind the end of an allocation of 100 bytes"];
    fails("errors::a_write_into_what_alignment_left", CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, &parts, |gpu, stream| {
        let mut x = gpu.floats(&[1.0; 25]);
        x.0 += 4;
        gpu.affine(stream, &x, 0.0, 0.0, 1);
        x.0 += 100;
        gpu.affine(stream, &x, 0.0, 0.0, 1);
        std::mem::forget(x);
    });
}

#[test]
fn freed_memory() {
    let parts = ["kernel `case_affine`", "freed memory, byte 0 of what was 256"];
    fails("errors::freed_memory", CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, &parts, |gpu, stream| {
        let x = gpu.floats(&[1.0; 64]);
        // SAFETY: an allocation of this driver.
        ok(unsafe { cu::cuMemFree_v2(x.0) });
        gpu.affine(stream, &x, 1.0, 1.0, 64);
        std::mem::forget(x);
    });
}

#[test]
fn memory_of_the_host() {
    let parts = ["kernel `case_affine`", "argument 0 is not an address of the device"];
    fails("errors::memory_of_the_host", CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, &parts, |gpu, stream| {
        let mut values = [1.0f32; 64];
        let mut x = gpu.alloc(64);
        x.0 = values.as_mut_ptr() as u64;
        gpu.affine(stream, &x, 1.0, 1.0, 64);
        std::mem::forget(x);
    });
}

#[test]
fn beyond_shared_memory() {
    let parts = ["kernel `case_beyond_shared`", "behind the end of dynamic shared memory"];
    fails("errors::beyond_shared_memory", CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, &parts, |gpu, stream| {
        let mut bytes = 1024;
        ok(gpu.launch(stream, "case_beyond_shared", [1, 1, 1024], &mut [arg(&mut bytes)]));
    });
}

#[test]
fn misaligned_vectors() {
    let parts = ["kernel `case_add_vectors`", "misaligned"];
    fails("errors::misaligned_vectors", CUresult::CUDA_ERROR_MISALIGNED_ADDRESS, &parts, |gpu, stream| {
        let (from, to) = (gpu.floats(&[1.0; 64]), gpu.floats(&[1.0; 64]));
        let (mut a, mut b, mut n) = (from.0 + 4, to.0, 4);
        ok(gpu.launch(stream, "case_add_vectors", [1, 32, 0], &mut [arg(&mut a), arg(&mut b), arg(&mut n)]));
        std::mem::forget((from, to));
    });
}

#[test]
fn copies_are_checked_when_they_are_asked_for() {
    let Some(gpu) = gpu(0) else { return };
    let (stream, host, x) = (gpu.stream(), gpu.pinned(&[0.0; 64]), gpu.alloc(10));
    let wrong = CUresult::CUDA_ERROR_INVALID_VALUE;
    // SAFETY: handles of this driver; what is refused touches nothing.
    unsafe {
        assert_eq!(cu::cuMemcpyHtoDAsync_v2(x.0, host.0.cast(), 41, stream), wrong);
        assert_eq!(cu::cuMemcpyDtoHAsync_v2(host.0.cast(), x.0 + 4, 40, stream), wrong);
        assert_eq!(cu::cuMemsetD8Async(x.0 + 40, 0, 1, stream), wrong);
        assert_eq!(cu::cuMemsetD32Async(x.0 + 2, 0, 1, stream), wrong);
        assert_eq!(cu::cuMemFree_v2(x.0 + 4), wrong);
        ok(cu::cuMemsetD8Async(x.0, 0, 40, stream));
    }
    ok(gpu.sync(stream));
    assert_eq!(gpu.read(&x), [0.0; 10]);
}

#[test]
fn memory_is_bounded() {
    let Some(gpu) = gpu(0) else { return };
    let (mut unused, mut total, mut after) = (0, 0, 0);
    let mut at = 0;
    // SAFETY: out-parameters are valid.
    unsafe {
        ok(cu::cuMemGetInfo_v2(&mut unused, &mut total));
        assert_eq!(cu::cuMemAlloc_v2(&mut at, unused + 1), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        let x = gpu.alloc(1 << 20);
        ok(cu::cuMemGetInfo_v2(&mut after, &mut total));
        assert_eq!(unused - after, 4 << 20);
        drop(x);
        ok(cu::cuMemGetInfo_v2(&mut after, &mut total));
        assert_eq!(unused, after);
    }
}

#[test]
fn unknown_kernels_are_not_found() {
    let Some(gpu) = gpu(0) else { return };
    let (mut module, mut function) = (null_mut(), null_mut());
    // SAFETY: valid out-parameters, C strings.
    unsafe {
        ok(cu::cuModuleLoadData(&mut module, c"".as_ptr().cast()));
        let found = cu::cuModuleGetFunction(&mut function, module, c"no_such_kernel".as_ptr());
        assert_eq!(found, CUresult::CUDA_ERROR_NOT_FOUND);
        ok(cu::cuModuleUnload(module));
    }
    drop(gpu);
}

#[test]
fn devices_are_as_the_environment_says() {
    if !emulator::install() {
        return;
    }
    if in_child() {
        let expected: i32 = std::env::var("EXPECTED").unwrap().parse().unwrap();
        let (mut count, mut bytes, mut major) = (0, 0, 0);
        let mut name = [0u8; 64];
        // SAFETY: out-parameters are valid.
        unsafe {
            if expected == 0 {
                assert_eq!(cu::cuInit(0), CUresult::CUDA_ERROR_NO_DEVICE);
                return;
            }
            ok(cu::cuInit(0));
            ok(cu::cuDeviceGetCount(&mut count));
            ok(cu::cuDeviceGetName(name.as_mut_ptr().cast(), 64, 0));
            ok(cu::cuDeviceTotalMem_v2(&mut bytes, 0));
            let attribute = cu::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
            ok(cu::cuDeviceGetAttribute(&mut major, attribute, 0));
        }
        assert_eq!((count, bytes, major), (expected, 1 << 20, 7));
        assert!(name.starts_with(b"Emulated GPU 2\0"));
        return;
    }
    let machine = [("EMULATED_DEVICES", "3"), ("EMULATED_MEMORY", "1048576"), ("EMULATED_CAPABILITY", "75")];
    for (visible, expected) in [("2", "1"), ("2,0", "2"), ("2,7,1", "1"), ("", "0"), ("-1", "0")] {
        let more = [("CUDA_VISIBLE_DEVICES", visible), ("EXPECTED", expected)];
        child("errors::devices_are_as_the_environment_says", &[&machine[..], &more[..]].concat());
    }
}
