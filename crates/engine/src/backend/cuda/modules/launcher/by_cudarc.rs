//! Kernels through `cudarc`.

use super::interface::{Image, Launcher, LoadedFunction, LoadedModule, Refused};
use crate::backend::cuda::driver::stream::Stream;
use crate::backend::cuda::driver::sys::{self as cu, CUfunction_attribute as Attribute, CUjit_option as Jit};
use crate::backend::cuda::driver::{Context, CudaError, check};
use crate::backend::gpu::launch::LaunchConfig;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

/// On the device of a context.
pub struct Cudarc {
    context: Arc<Context>,
}

impl Cudarc {
    /// On the device of `context`.
    pub fn new(context: &Arc<Context>) -> Cudarc {
        Cudarc { context: context.clone() }
    }
}

impl Launcher for Cudarc {
    fn stream(&self) -> Result<Stream, CudaError> {
        Stream::new(&self.context)
    }

    fn load(&self, image: Image) -> Result<Box<dyn LoadedModule>, Refused> {
        self.context.bind()?;
        let image: *const c_void = match image {
            Image::Ptx(text) => text.as_ptr().cast(),
            Image::Cubin(bytes) => bytes.as_ptr().cast(),
        };
        let mut raw = std::ptr::null_mut();
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = [Jit::CU_JIT_ERROR_LOG_BUFFER, Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // A number is passed in the place of a pointer.
        let mut values = [log.as_mut_ptr().cast(), log.len() as *mut c_void];
        // SAFETY: PTX that ends with a zero byte, or an ELF file, as the driver expects; the log is as long as it says, and
        // lives until the call is done; there are as many values as options.
        let code = unsafe {
            let count = options.len() as u32;
            cu::cuModuleLoadDataEx(&mut raw, image, count, options.as_mut_ptr(), values.as_mut_ptr())
        };
        check("loading kernels", code).map_err(|error| {
            let written = log.split(|byte| *byte == 0).next().unwrap_or_default();
            Refused { error, log: String::from_utf8_lossy(written).trim().to_owned() }
        })?;
        Ok(Box::new(Arc::new(Module { context: self.context.clone(), raw })))
    }
}

/// Room for what the driver's compiler says.
const LOG_BYTES: usize = 16 << 10;

#[derive(Debug)]
struct Module {
    context: Arc<Context>,
    raw: cu::CUmodule,
}

// SAFETY: a handle that the driver's thread-safe calls take.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Drop for Module {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: loaded once. Code that launches its functions waits for the stream before it drops them.
            unsafe { cu::cuModuleUnload(self.raw) };
        }
    }
}

impl LoadedModule for Arc<Module> {
    fn function(&self, name: &CStr) -> Result<Arc<dyn LoadedFunction>, CudaError> {
        self.context.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the module is loaded.
        check("looking for a kernel", unsafe { cu::cuModuleGetFunction(&mut raw, self.raw, name.as_ptr()) })?;
        Ok(Arc::new(Function { raw, _module: self.clone() }))
    }
}

#[derive(Debug)]
struct Function {
    raw: cu::CUfunction,
    _module: Arc<Module>,
}

// SAFETY: a handle that the driver's thread-safe calls take.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl LoadedFunction for Function {
    fn allow_shared(&self, bytes: u32) -> Result<(), CudaError> {
        let what = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function's module is loaded.
        check("asking for shared memory", unsafe { cu::cuFuncSetAttribute(self.raw, what, bytes as i32) })
    }

    fn registers(&self) -> Result<i32, CudaError> {
        let mut registers = 0;
        let what = Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS;
        // SAFETY: the function's module is loaded.
        check("loading a kernel", unsafe { cu::cuFuncGetAttribute(&mut registers, what, self.raw) })?;
        Ok(registers)
    }

    unsafe fn launch(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        arguments: &mut [*mut c_void],
    ) -> Result<(), CudaError> {
        let ([gx, gy, gz], [bx, by, bz]) = (config.grid, config.block);
        // SAFETY: the driver copies the arguments before it returns; the rest is the caller's word.
        check("starting a kernel", unsafe {
            cu::cuLaunchKernel(
                self.raw,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                config.shared_bytes,
                stream.raw,
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        })
    }
}
