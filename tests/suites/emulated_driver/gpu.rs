//! A thin layer over the driver's functions, for these tests.

use super::emulator;
use cudarc::driver::sys::{self as cu, CUresult};
use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Fails with the driver's complaint unless the call succeeded.
#[track_caller]
pub fn ok(result: CUresult) {
    assert_eq!(result, CUresult::CUDA_SUCCESS, "{}", emulator::message());
}

/// The driver, for one test at a time: its settings are the process's.
pub struct Gpu {
    module: cu::CUmodule,
    _alone: MutexGuard<'static, ()>,
}

/// The driver with a seed; `None` where there is no compiler.
pub fn gpu(seed: i64) -> Option<Gpu> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if !emulator::install() {
        return None;
    }
    emulator::configure("seed", seed);
    emulator::configure("threads", 2);
    let (mut context, mut module) = (null_mut(), null_mut());
    // SAFETY: out-parameters are valid; a module's image is a C string.
    unsafe {
        ok(cu::cuInit(0));
        ok(cu::cuDevicePrimaryCtxRetain(&mut context, 0));
        ok(cu::cuCtxSetCurrent(context));
        ok(cu::cuModuleLoadData(&mut module, c"".as_ptr().cast()));
    }
    Some(Gpu { module, _alone: alone })
}

/// Device memory of floats, freed when dropped.
pub struct Floats(pub cu::CUdeviceptr, usize);

impl Drop for Floats {
    fn drop(&mut self) {
        // SAFETY: allocated by `Gpu::floats`. After an error nothing can be freed, which the test has seen.
        let _ = unsafe { cu::cuMemFree_v2(self.0) };
    }
}

/// Pinned memory of floats. Not freed: a test's process is short.
pub struct Pinned(pub *mut f32, usize);

impl Pinned {
    pub fn set(&self, values: &[f32]) {
        assert!(values.len() <= self.1);
        // SAFETY: there is room for them, as was just checked.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), self.0, values.len()) };
    }

    pub fn get(&self) -> Vec<f32> {
        // SAFETY: this many floats were allocated, and the driver has written bytes to them all.
        unsafe { std::slice::from_raw_parts(self.0, self.1) }.to_vec()
    }
}

impl Gpu {
    pub fn function(&self, name: &str) -> cu::CUfunction {
        let (name, mut function) = (CString::new(name).unwrap(), null_mut());
        // SAFETY: the module is loaded, the name a C string.
        ok(unsafe { cu::cuModuleGetFunction(&mut function, self.module, name.as_ptr()) });
        function
    }

    pub fn alloc(&self, count: usize) -> Floats {
        let mut at = 0;
        // SAFETY: the out-parameter is valid.
        ok(unsafe { cu::cuMemAlloc_v2(&mut at, 4 * count) });
        Floats(at, count)
    }

    pub fn floats(&self, values: &[f32]) -> Floats {
        let memory = self.alloc(values.len());
        // SAFETY: source and destination have this many bytes.
        ok(unsafe { cu::cuMemcpyHtoD_v2(memory.0, values.as_ptr().cast(), 4 * values.len()) });
        memory
    }

    pub fn read(&self, memory: &Floats) -> Vec<f32> {
        let mut values = vec![0.0f32; memory.1];
        // SAFETY: source and destination have this many bytes.
        ok(unsafe { cu::cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), memory.0, 4 * memory.1) });
        values
    }

    pub fn pinned(&self, values: &[f32]) -> Pinned {
        let mut at = null_mut();
        // SAFETY: the out-parameter is valid.
        ok(unsafe { cu::cuMemHostAlloc(&mut at, 4 * values.len(), 0) });
        let pinned = Pinned(at.cast(), values.len());
        pinned.set(values);
        pinned
    }

    pub fn stream(&self) -> cu::CUstream {
        let mut stream = null_mut();
        // SAFETY: the out-parameter is valid; 1 is "not blocking".
        ok(unsafe { cu::cuStreamCreate(&mut stream, 1) });
        stream
    }

    pub fn event(&self) -> cu::CUevent {
        let mut event = null_mut();
        // SAFETY: the out-parameter is valid; 2 is "no timing".
        ok(unsafe { cu::cuEventCreate(&mut event, 2) });
        event
    }

    /// `first` is done before whatever is enqueued on `second` from now on.
    pub fn order(&self, first: cu::CUstream, second: cu::CUstream) {
        let event = self.event();
        // SAFETY: handles of this driver.
        unsafe {
            ok(cu::cuEventRecord(event, first));
            ok(cu::cuStreamWaitEvent(second, event, 0));
        }
    }

    pub fn upload(&self, stream: cu::CUstream, from: &Pinned, to: &Floats) {
        // SAFETY: both have this many bytes and outlive the test's waits.
        ok(unsafe { cu::cuMemcpyHtoDAsync_v2(to.0, from.0.cast(), 4 * to.1, stream) });
    }

    pub fn sync(&self, stream: cu::CUstream) -> CUresult {
        // SAFETY: a handle of this driver.
        unsafe { cu::cuStreamSynchronize(stream) }
    }

    /// A launch of so many blocks, threads, bytes of shared memory; `args` are addresses of the arguments.
    pub fn launch(
        &self,
        stream: cu::CUstream,
        name: &str,
        [blocks, threads, shared]: [u32; 3],
        args: &mut [*mut c_void],
    ) -> CUresult {
        let f = self.function(name);
        // SAFETY: the caller's arguments are those of the kernel.
        unsafe { cu::cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, shared, stream, args.as_mut_ptr(), null_mut()) }
    }

    /// x = x * factor + term over `count` floats.
    pub fn affine(&self, stream: cu::CUstream, x: &Floats, factor: f32, term: f32, count: i64) {
        let (mut x, mut factor, mut term, mut count) = (x.0, factor, term, count);
        ok(self.launch(
            stream,
            "case_affine",
            [2, 32, 0],
            &mut [arg(&mut x), arg(&mut factor), arg(&mut term), arg(&mut count)],
        ));
    }
}

/// An argument of a launch; the driver copies it.
pub fn arg<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}

/// Runs this test alone in a child process with these variables, where it takes the branch of `in_child`; gives what
/// the child wrote to its standard error output.
pub fn child(test: &str, variables: &[(&str, &str)]) -> String {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--nocapture", test]).env("EMULATED_CHILD", "1").envs(variables.iter().copied());
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}{}", String::from_utf8_lossy(&output.stdout));
    stderr
}

pub fn in_child() -> bool {
    std::env::var_os("EMULATED_CHILD").is_some()
}
