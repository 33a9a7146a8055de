//! Streams run in any order that events do not forbid, captured ones as well.

use super::gpu::{Floats, Gpu, Pinned, gpu, ok};
use cudarc::driver::sys::{self as cu, CUresult};
use std::ptr::null_mut;

const COUNT: usize = 48;
const SEEDS: std::ops::Range<i64> = 1..25;

/// What a copy on one stream and a kernel on another give.
fn upload_then_double(gpu: &Gpu, event: bool) -> Vec<f32> {
    let (copy, compute) = (gpu.stream(), gpu.stream());
    let (host, x) = (gpu.pinned(&[3.0; COUNT]), gpu.floats(&[5.0; COUNT]));
    gpu.upload(copy, &host, &x);
    if event {
        gpu.order(copy, compute);
    }
    gpu.affine(compute, &x, 2.0, 0.0, COUNT as i64);
    ok(gpu.sync(compute));
    ok(gpu.sync(copy));
    gpu.read(&x)
}

#[test]
fn a_missing_event_shows() {
    let mut wrong = 0;
    for seed in SEEDS {
        let Some(gpu) = gpu(seed) else { return };
        wrong += usize::from(upload_then_double(&gpu, false) != [6.0; COUNT]);
        assert_eq!(upload_then_double(&gpu, true), [6.0; COUNT], "seed {seed}");
    }
    assert!(wrong > 0, "every order was the right one");
    let Some(gpu) = gpu(0) else { return };
    assert_eq!(upload_then_double(&gpu, false), [6.0; COUNT], "seed 0 is the order of the program");
}

#[test]
fn a_slot_filled_too_early_shows() {
    let mut wrong = 0;
    for seed in SEEDS {
        let Some(gpu) = gpu(seed) else { return };
        for wait in [false, true] {
            let stream = gpu.stream();
            let (slot, x) = (gpu.pinned(&[1.0; COUNT]), gpu.alloc(COUNT));
            gpu.upload(stream, &slot, &x);
            if wait {
                ok(gpu.sync(stream));
            }
            slot.set(&[2.0; COUNT]);
            ok(gpu.sync(stream));
            let right = gpu.read(&x) == [1.0; COUNT];
            assert!(right || !wait);
            wrong += usize::from(!right);
        }
    }
    assert!(wrong > 0);
}

#[test]
fn a_result_read_too_early_shows() {
    let mut wrong = 0;
    for seed in SEEDS {
        let Some(gpu) = gpu(seed) else { return };
        let (stream, back, x) = (gpu.stream(), gpu.pinned(&[0.0; COUNT]), gpu.floats(&[1.0; COUNT]));
        // SAFETY: both have this many bytes; the stream is waited for below.
        ok(unsafe { cu::cuMemcpyDtoHAsync_v2(back.0.cast(), x.0, 4 * COUNT, stream) });
        // SAFETY: a handle of this driver.
        let done = unsafe { cu::cuStreamQuery(stream) } == CUresult::CUDA_SUCCESS;
        let right = back.get() == [1.0; COUNT];
        assert!(right || !done);
        wrong += usize::from(!right);
        ok(gpu.sync(stream));
        assert_eq!(back.get(), [1.0; COUNT]);
    }
    assert!(wrong > 0);
}

#[test]
fn memory_that_is_not_pinned_is_taken_at_once() {
    let Some(gpu) = gpu(3) else { return };
    let (stream, x) = (gpu.stream(), gpu.alloc(COUNT));
    let mut values = [1.0f32; COUNT];
    // SAFETY: both have this many bytes; the driver has read them when it returns.
    ok(unsafe { cu::cuMemcpyHtoDAsync_v2(x.0, values.as_ptr().cast(), 4 * COUNT, stream) });
    values.fill(2.0);
    ok(gpu.sync(stream));
    assert_eq!(gpu.read(&x), [1.0; COUNT]);
}

#[test]
fn questions_are_answered_honestly() {
    let Some(gpu) = gpu(11) else { return };
    let (stream, x, event) = (gpu.stream(), gpu.floats(&[1.0; COUNT]), gpu.event());
    for _ in 0..20 {
        gpu.affine(stream, &x, 1.0, 1.0, COUNT as i64);
    }
    // SAFETY: handles of this driver.
    unsafe {
        ok(cu::cuEventRecord(event, stream));
        assert_eq!(cu::cuEventQuery(event), CUresult::CUDA_ERROR_NOT_READY);
        assert_eq!(cu::cuStreamQuery(stream), CUresult::CUDA_ERROR_NOT_READY);
        while cu::cuEventQuery(event) != CUresult::CUDA_SUCCESS {}
        ok(cu::cuStreamQuery(stream));
    }
    assert_eq!(gpu.read(&x), [21.0; COUNT]);
}

#[test]
fn time_passes_between_events() {
    let Some(gpu) = gpu(12) else { return };
    let (stream, x) = (gpu.stream(), gpu.floats(&[1.0; COUNT]));
    let mut events = [null_mut(); 2];
    let mut time = -1.0;
    // SAFETY: handles of this driver, valid out-parameters.
    unsafe {
        for event in &mut events {
            ok(cu::cuEventCreate(event, 0));
            gpu.affine(stream, &x, 1.0, 1.0, COUNT as i64);
            ok(cu::cuEventRecord(*event, stream));
        }
        assert_eq!(cu::cuEventElapsedTime_v2(&mut time, events[0], events[1]), CUresult::CUDA_ERROR_NOT_READY);
        ok(cu::cuEventSynchronize(events[1]));
        ok(cu::cuEventElapsedTime_v2(&mut time, events[0], events[1]));
    }
    assert!(time >= 0.0);
}

/// Enqueues: x from the host; on a second stream y = 2 y + 1; joined, y doubled; on the first, x = x + 1.
struct Work {
    host: Pinned,
    x: Floats,
    y: Floats,
    first: cu::CUstream,
    second: cu::CUstream,
}

impl Work {
    fn new(gpu: &Gpu) -> Work {
        let (host, x, y) = (gpu.pinned(&[4.0; COUNT]), gpu.floats(&[0.0; COUNT]), gpu.floats(&[1.0; COUNT]));
        Work { host, x, y, first: gpu.stream(), second: gpu.stream() }
    }

    fn enqueue(&self, gpu: &Gpu) {
        gpu.upload(self.first, &self.host, &self.x);
        gpu.order(self.first, self.second);
        gpu.affine(self.second, &self.y, 2.0, 1.0, COUNT as i64);
        gpu.affine(self.first, &self.x, 1.0, 1.0, COUNT as i64);
        gpu.order(self.second, self.first);
        gpu.affine(self.first, &self.y, 2.0, 0.0, COUNT as i64);
    }

    fn capture(&self, gpu: &Gpu) -> cu::CUgraphExec {
        let (mut graph, mut executable) = (null_mut(), null_mut());
        // SAFETY: handles of this driver, valid out-parameters.
        unsafe {
            let mode = cu::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            ok(cu::cuStreamBeginCapture_v2(self.first, mode));
            self.enqueue(gpu);
            ok(cu::cuStreamEndCapture(self.first, &mut graph));
            ok(cu::cuGraphInstantiateWithFlags(&mut executable, graph, 0));
            ok(cu::cuGraphDestroy(graph));
        }
        executable
    }
}

#[test]
fn a_captured_graph_does_what_was_captured() {
    for seed in 0..10 {
        let Some(gpu) = gpu(seed) else { return };
        let (direct, captured) = (Work::new(&gpu), Work::new(&gpu));
        let graph = captured.capture(&gpu);
        assert_eq!(gpu.read(&captured.y), [1.0; COUNT], "capturing runs nothing");
        for step in 0..3 {
            // What the graph reads may change between its launches.
            for work in [&direct, &captured] {
                work.host.set(&[step as f32; COUNT]);
            }
            direct.enqueue(&gpu);
            // SAFETY: handles of this driver.
            ok(unsafe { cu::cuGraphLaunch(graph, captured.first) });
            ok(gpu.sync(direct.first));
            ok(gpu.sync(captured.first));
            assert_eq!(gpu.read(&captured.x), [step as f32 + 1.0; COUNT]);
            assert_eq!(gpu.read(&captured.y), gpu.read(&direct.y), "seed {seed}, step {step}");
        }
        // SAFETY: a handle of this driver, not used again.
        ok(unsafe { cu::cuGraphExecDestroy(graph) });
    }
}

#[test]
fn a_capture_forbids_waiting() {
    let Some(gpu) = gpu(2) else { return };
    let (stream, other) = (gpu.stream(), gpu.stream());
    let (x, mut graph, mut at) = (gpu.floats(&[1.0; COUNT]), null_mut(), 0);
    let mode = cu::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    let unsupported = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    // SAFETY: handles of this driver, valid out-parameters.
    unsafe {
        ok(cu::cuStreamBeginCapture_v2(stream, mode));
        assert_eq!(cu::cuStreamSynchronize(stream), unsupported);
        let invalidated = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        assert_eq!(cu::cuStreamEndCapture(stream, &mut graph), invalidated);

        ok(cu::cuStreamBeginCapture_v2(stream, mode));
        assert_eq!(cu::cuMemAlloc_v2(&mut at, 64), unsupported);
        assert_eq!(cu::cuStreamEndCapture(stream, &mut graph), invalidated);

        ok(cu::cuStreamBeginCapture_v2(stream, cu::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED));
        ok(cu::cuMemAlloc_v2(&mut at, 64));
        ok(cu::cuStreamEndCapture(stream, &mut graph));
        ok(cu::cuMemFree_v2(at));

        // A stream that joined and was not joined back.
        ok(cu::cuStreamBeginCapture_v2(stream, mode));
        gpu.order(stream, other);
        gpu.affine(other, &x, 1.0, 1.0, COUNT as i64);
        let unjoined = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        assert_eq!(cu::cuStreamEndCapture(stream, &mut graph), unjoined);

        // An event from outside.
        let event = gpu.event();
        ok(cu::cuEventRecord(event, other));
        ok(cu::cuStreamBeginCapture_v2(stream, mode));
        let isolation = CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
        assert_eq!(cu::cuStreamWaitEvent(stream, event, 0), isolation);
        assert_eq!(cu::cuStreamEndCapture(stream, &mut graph), invalidated);
    }
    // And all is well again.
    gpu.affine(stream, &x, 1.0, 1.0, COUNT as i64);
    ok(gpu.sync(stream));
    assert_eq!(gpu.read(&x), [2.0; COUNT]);
}
