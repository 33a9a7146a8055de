//! What the driver answers, and what is said of it.

use super::sys;
use cudarc::driver::sys::CUresult;
use std::ffi::{CStr, c_char};
use std::fmt;

/// What a function of the driver answers: one of the numbers of `CUresult`, or one that came with a newer driver.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub u32);

impl Code {
    /// All is well.
    pub const SUCCESS: Code = Code(CUresult::CUDA_SUCCESS as u32);
    /// An argument is not right.
    pub const INVALID_VALUE: Code = Code(CUresult::CUDA_ERROR_INVALID_VALUE as u32);
    /// There is not enough memory.
    pub const OUT_OF_MEMORY: Code = Code(CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32);
    /// The library is a stub, made for linking.
    pub const STUB_LIBRARY: Code = Code(CUresult::CUDA_ERROR_STUB_LIBRARY as u32);
    /// There is no device.
    pub const NO_DEVICE: Code = Code(CUresult::CUDA_ERROR_NO_DEVICE as u32);
    /// A handle is not right.
    pub const INVALID_HANDLE: Code = Code(CUresult::CUDA_ERROR_INVALID_HANDLE as u32);
    /// There is nothing of that name.
    pub const NOT_FOUND: Code = Code(CUresult::CUDA_ERROR_NOT_FOUND as u32);
    /// What is asked about has not happened yet.
    pub const NOT_READY: Code = Code(CUresult::CUDA_ERROR_NOT_READY as u32);
    /// Nothing else is known.
    pub const UNKNOWN: Code = Code(CUresult::CUDA_ERROR_UNKNOWN as u32);

    /// True for errors of kernels at work. The driver gives them for whatever is called next, and for all that follows.
    fn is_of_a_kernel(self) -> bool {
        const FAULTS: [CUresult; 11] = [
            CUresult::CUDA_ERROR_ECC_UNCORRECTABLE,
            CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE,
            CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
            CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
            CUresult::CUDA_ERROR_ASSERT,
            CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
            CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
            CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
            CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE,
            CUresult::CUDA_ERROR_INVALID_PC,
            CUresult::CUDA_ERROR_LAUNCH_FAILED,
        ];
        FAULTS.iter().any(|fault| *fault as u32 == self.0)
    }
}

impl From<CUresult> for Code {
    fn from(result: CUresult) -> Code {
        Code(result as u32)
    }
}

/// A call of the driver failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaError {
    /// What was being done.
    pub doing: &'static str,
    /// The driver's answer.
    pub code: Code,
    /// Not the call itself has failed, but work that was enqueued before it.
    pub earlier: bool,
}

impl CudaError {
    /// An error of the call itself.
    pub fn new(doing: &'static str, code: Code) -> CudaError {
        CudaError { doing, code, earlier: code.is_of_a_kernel() }
    }

    /// True if there was not enough memory.
    pub fn is_out_of_memory(&self) -> bool {
        self.code == Code::OUT_OF_MEMORY
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |get: unsafe fn(Code, *mut *const c_char) -> Code| {
            let mut p = std::ptr::null();
            // SAFETY: the driver sets `p` to a static string or leaves it null, also for numbers that it does not know.
            unsafe {
                get(self.code, &mut p);
                (!p.is_null()).then(|| CStr::from_ptr(p).to_string_lossy().into_owned())
            }
        };
        let name = text(sys::cuGetErrorName).unwrap_or_else(|| format!("error {}", self.code.0));
        write!(f, "the GPU failed while {} ({name}", self.doing)?;
        match text(sys::cuGetErrorString) {
            Some(t) => write!(f, ": {t})"),
            None => f.write_str(")"),
        }
    }
}

impl std::error::Error for CudaError {}

/// The driver's answer as a result.
pub fn check(doing: &'static str, code: Code) -> Result<(), CudaError> {
    if code == Code::SUCCESS { Ok(()) } else { Err(CudaError::new(doing, code)) }
}

/// The driver's answer to a call that waits for work, or asks whether it is done: an error is that of the work.
pub fn check_wait(doing: &'static str, code: Code) -> Result<(), CudaError> {
    check(doing, code).map_err(|e| CudaError { earlier: !e.is_out_of_memory(), ..e })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_nobody_knows_is_an_error_like_others() {
        let e = check("trying", Code(12_345)).unwrap_err();
        assert_eq!((e.code, e.earlier), (Code(12_345), false));
        assert!(e.to_string().starts_with("the GPU failed while trying ("), "{e}");
        assert!(check_wait("waiting", Code(12_345)).unwrap_err().earlier);
        assert!(check("starting", Code(700)).unwrap_err().earlier);
        assert!(check("starting", Code(2)).unwrap_err().is_out_of_memory());
    }
}
