//! The driver's functions, looked up in libcuda by name.
//!
//! cudarc finds the library and has the types. Its own bindings of the functions are not used, for they answer with an
//! enumeration of Rust: a number that is not among its values, as a newer driver may give, would be undefined behaviour.
//! Here a function answers with a [`Code`], which is any number. A driver that lacks a function is an error when it is
//! started; cudarc's bindings would panic at the first call.

use super::code::Code;
pub use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUevent_flags_enum, CUfunction,
    CUfunction_attribute, CUgraph, CUgraphExec, CUjit_option, CUmodule, CUstream, CUstream_flags_enum,
    CUstreamCaptureMode,
};
use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

macro_rules! functions {
    ($($name:ident($($arg:ident: $type:ty),* $(,)?);)*) => {
        #[allow(non_snake_case)]
        struct Functions {
            $($name: unsafe extern "C" fn($($type),*) -> Code,)*
        }

        impl Functions {
            /// All of them, or the name of the first that the library has not.
            fn find() -> Result<Functions, &'static str> {
                Ok(Functions {
                    // SAFETY: these are the functions' types in every driver that is served; an answer is a number of 32 bits.
                    $($name: unsafe { find(concat!(stringify!($name), "\0")) }.ok_or(stringify!($name))?,)*
                })
            }
        }

        $(
            #[doc = concat!("`", stringify!($name), "` of the driver. ")]
            /// [`Code::NOT_FOUND`] where there is no driver.
            ///
            /// # Safety
            /// What the driver's manual asks for.
            #[allow(non_snake_case, clippy::too_many_arguments)]
            pub unsafe fn $name($($arg: $type),*) -> Code {
                match functions() {
                    // SAFETY: the caller's word.
                    Some(f) => unsafe { (f.$name)($($arg),*) },
                    None => Code::NOT_FOUND,
                }
            }
        )*
    };
}

functions! {
    cuCtxSetCurrent(context: CUcontext);
    cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice);
    cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
    cuDriverGetVersion(version: *mut c_int);
    cuEventCreate(event: *mut CUevent, flags: c_uint);
    cuEventDestroy_v2(event: CUevent);
    // cudarc binds `cuEventElapsedTime_v2`, which came with CUDA 12.8; this one is in every driver.
    cuEventElapsedTime(milliseconds: *mut f32, from: CUevent, to: CUevent);
    cuEventQuery(event: CUevent);
    cuEventRecord(event: CUevent, stream: CUstream);
    cuEventSynchronize(event: CUevent);
    cuFuncGetAttribute(value: *mut c_int, attribute: CUfunction_attribute, function: CUfunction);
    cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int);
    cuGetErrorName(code: Code, text: *mut *const c_char);
    cuGetErrorString(code: Code, text: *mut *const c_char);
    cuGraphDestroy(graph: CUgraph);
    cuGraphExecDestroy(graph: CUgraphExec);
    cuGraphInstantiateWithFlags(executable: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong);
    cuGraphLaunch(graph: CUgraphExec, stream: CUstream);
    cuInit(flags: c_uint);
    cuLaunchKernel(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared_bytes: c_uint, stream: CUstream, arguments: *mut *mut c_void, extra: *mut *mut c_void,
    );
    cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    cuMemFreeHost(at: *mut c_void);
    cuMemFree_v2(address: CUdeviceptr);
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemHostAlloc(at: *mut *mut c_void, bytes: usize, flags: c_uint);
    cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
    cuMemsetD8Async(to: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream);
    cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    cuModuleLoadDataEx(
        module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void,
    );
    cuModuleUnload(module: CUmodule);
    cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode);
    cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    cuStreamDestroy_v2(stream: CUstream);
    cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
    cuStreamSynchronize(stream: CUstream);
    cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
}

/// Why the functions cannot be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// There is no libcuda.
    Library,
    /// The libcuda that was found has no function of this name.
    Function(&'static str),
}

fn loaded() -> &'static Result<Functions, Missing> {
    static LOADED: OnceLock<Result<Functions, Missing>> = OnceLock::new();
    LOADED.get_or_init(|| {
        // SAFETY: loads a library; the driver's own initialisation is what asking for a GPU means.
        if !unsafe { cudarc::driver::sys::is_culib_present() } {
            return Err(Missing::Library);
        }
        Functions::find().map_err(Missing::Function)
    })
}

fn functions() -> Option<&'static Functions> {
    loaded().as_ref().ok()
}

/// Looks for the library and its functions.
///
/// # Errors
/// What is missing.
pub fn load() -> Result<(), Missing> {
    loaded().as_ref().map(|_| ()).map_err(|missing| *missing)
}

/// The function of that name, which ends with a zero byte.
///
/// # Safety
/// The library is there, and `F` is the function's type.
unsafe fn find<F: Copy>(name: &str) -> Option<F> {
    // SAFETY: the caller's word.
    unsafe { cudarc::driver::sys::culib().get::<F>(name.as_bytes()).ok().map(|f| *f) }
}
