//! Kernels through `cudarc`.

use super::{Launcher, LoadedFunction, LoadedModule, Size};
use crate::backend::cuda::driver::{Context, CudaError, check};
use crate::backend::cuda::stream::Stream;
use cudarc::driver::sys as cu;
use cudarc::driver::sys::CUfunction_attribute as Attribute;
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

    fn load(&self, ptx: &CStr) -> Result<Box<dyn LoadedModule>, CudaError> {
        self.context.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: PTX that ends with a zero byte, as the driver expects.
        check("loading kernels", unsafe { cu::cuModuleLoadData(&mut raw, ptx.as_ptr().cast()) })?;
        Ok(Box::new(Arc::new(Module { context: self.context.clone(), raw })))
    }
}

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
            // SAFETY: loaded once; whoever launches its functions waits for the stream before letting go of them.
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

    unsafe fn launch(&self, stream: &Stream, size: Size, arguments: &mut [*mut c_void]) -> Result<(), CudaError> {
        let ([gx, gy, gz], [bx, by, bz]) = (size.grid, size.block);
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
                size.shared_bytes,
                stream.raw,
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        })
    }
}
