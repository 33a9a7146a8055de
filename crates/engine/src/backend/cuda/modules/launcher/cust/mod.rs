//! Kernels through `cust`.
//!
//! Its `Stream` cannot borrow a handle, so it owns the stream that kernels run on, and our [`Stream`] borrows that. It has
//! no name for the attribute that allows much shared memory: that one call is the driver's, through `cust::sys`. Launches are
//! what its macro `launch!` becomes, which itself wants the arguments' types in the source.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod lazy;

use super::interface::{Image, Launcher, LoadedFunction, LoadedModule, Refused as NotTaken};
use crate::backend::cuda::driver::stream::Stream;
use crate::backend::cuda::driver::{Code, Context, CudaError};
use crate::backend::gpu::launch::LaunchConfig;
use ::cust::error::CudaError as Refused;
use ::cust::function::{BlockSize, Function as CustFunction, FunctionAttribute, GridSize};
use ::cust::module::Module as CustModule;
use ::cust::stream::{Stream as CustStream, StreamFlags};
use ::cust::sys;
use cudarc::driver::sys::CUresult;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

/// On the device of a context.
pub struct Cust {
    context: Arc<Context>,
    /// The same primary context, retained by `cust` too.
    _retained: ::cust::context::Context,
}

impl Cust {
    /// On the device of `context`.
    ///
    /// # Errors
    /// The driver failed.
    pub fn new(context: &Arc<Context>) -> Result<Cust, CudaError> {
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        lazy::bind();
        let retained = ::cust::device::Device::get_device(context.info.ordinal as u32)
            .and_then(::cust::context::Context::new)
            .map_err(failed("making a context on the GPU"))?;
        Ok(Cust { context: context.clone(), _retained: retained })
    }
}

/// An error of `cust` as ours. It has names for the codes of older drivers only, and calls all others unknown.
fn failed(doing: &'static str) -> impl Fn(Refused) -> CudaError {
    move |refused| {
        let code = match refused {
            Refused::InvalidValue => CUresult::CUDA_ERROR_INVALID_VALUE,
            Refused::OutOfMemory => CUresult::CUDA_ERROR_OUT_OF_MEMORY,
            Refused::NotInitialized => CUresult::CUDA_ERROR_NOT_INITIALIZED,
            Refused::Deinitialized => CUresult::CUDA_ERROR_DEINITIALIZED,
            Refused::InvalidDevice => CUresult::CUDA_ERROR_INVALID_DEVICE,
            Refused::InvalidImage => CUresult::CUDA_ERROR_INVALID_IMAGE,
            Refused::InvalidContext => CUresult::CUDA_ERROR_INVALID_CONTEXT,
            Refused::NoBinaryForGpu => CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU,
            Refused::EccUncorrectable => CUresult::CUDA_ERROR_ECC_UNCORRECTABLE,
            Refused::InvalidPtx => CUresult::CUDA_ERROR_INVALID_PTX,
            Refused::InvalidSource => CUresult::CUDA_ERROR_INVALID_SOURCE,
            Refused::InvalidHandle => CUresult::CUDA_ERROR_INVALID_HANDLE,
            Refused::NotFound => CUresult::CUDA_ERROR_NOT_FOUND,
            Refused::IllegalAddress => CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
            Refused::LaunchOutOfResources => CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
            Refused::LaunchTimeout => CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
            Refused::HardwareStackError => CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
            Refused::IllegalInstruction => CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
            Refused::MisalignedAddress => CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
            Refused::LaunchFailed => CUresult::CUDA_ERROR_LAUNCH_FAILED,
            Refused::NotPermitted => CUresult::CUDA_ERROR_NOT_PERMITTED,
            Refused::NotSupported => CUresult::CUDA_ERROR_NOT_SUPPORTED,
            _ => CUresult::CUDA_ERROR_UNKNOWN,
        };
        CudaError::new(doing, code.into())
    }
}

impl Launcher for Cust {
    /// `cust` makes streams that also keep their order with the default stream, whatever flags it is given. Nothing is ever
    /// put on that one here.
    fn stream(&self) -> Result<Stream, CudaError> {
        self.context.bind()?;
        let made = CustStream::new(StreamFlags::NON_BLOCKING, None).map_err(failed("making a stream"))?;
        Ok(Stream::of_cust(&self.context, made))
    }

    /// `cust` has no way to ask for the compiler's log.
    fn load(&self, image: Image) -> Result<Box<dyn LoadedModule>, NotTaken> {
        self.context.bind()?;
        let module = match image {
            Image::Ptx(text) => CustModule::from_ptx_cstr(text, &[]),
            Image::Cubin(bytes) => CustModule::from_cubin(bytes, &[]),
        };
        let module = module.map_err(failed("loading kernels"))?;
        Ok(Box::new(Arc::new(Module { context: self.context.clone(), module })))
    }
}

#[derive(Debug)]
struct Module {
    context: Arc<Context>,
    module: CustModule,
}

impl Drop for Module {
    /// `cust` unloads the module right after this, in the current context, and makes nothing of a failure.
    fn drop(&mut self) {
        let _ = self.context.bind();
    }
}

impl LoadedModule for Arc<Module> {
    fn function(&self, name: &CStr) -> Result<Arc<dyn LoadedFunction>, CudaError> {
        self.context.bind()?;
        let found = self.module.get_function(name.to_string_lossy()).map_err(failed("looking for a kernel"))?;
        // SAFETY: the lifetime alone changes; the function lies beside an `Arc` of its module, which does not move.
        let function = unsafe { std::mem::transmute::<CustFunction<'_>, CustFunction<'static>>(found) };
        Ok(Arc::new(Function { function, _module: self.clone() }))
    }
}

#[derive(Debug)]
struct Function {
    function: CustFunction<'static>,
    _module: Arc<Module>,
}

impl LoadedFunction for Function {
    fn allow_shared(&self, bytes: u32) -> Result<(), CudaError> {
        let what = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let doing = "asking for shared memory";
        // SAFETY: the function's module is loaded.
        match unsafe { sys::cuFuncSetAttribute(self.function.to_raw(), what, bytes as i32) } {
            sys::cudaError_enum::CUDA_SUCCESS => Ok(()),
            sys::cudaError_enum::CUDA_ERROR_INVALID_VALUE => Err(CudaError::new(doing, Code::INVALID_VALUE)),
            _ => Err(CudaError::new(doing, Code::UNKNOWN)),
        }
    }

    fn registers(&self) -> Result<i32, CudaError> {
        self.function.get_attribute(FunctionAttribute::NumRegisters).map_err(failed("loading a kernel"))
    }

    unsafe fn launch(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        arguments: &mut [*mut c_void],
    ) -> Result<(), CudaError> {
        let doing = "starting a kernel";
        let stream = stream.cust().ok_or(CudaError::new(doing, Code::INVALID_HANDLE))?;
        let ([gx, gy, gz], [bx, by, bz]) = (config.grid, config.block);
        let (grid, block) = (GridSize::xyz(gx, gy, gz), BlockSize::xyz(bx, by, bz));
        // SAFETY: the driver copies the arguments before it returns; the rest is the caller's word.
        unsafe { stream.launch(&self.function, grid, block, config.shared_bytes, arguments) }.map_err(failed(doing))
    }
}
