//! The driver's answers as errors.

use super::code::Code;
use super::sys;
use std::ffi::{CStr, c_char};
use std::fmt;

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
    fn an_unknown_number_is_an_error_like_others() {
        let e = check("trying", Code(12_345)).unwrap_err();
        assert_eq!((e.code, e.earlier), (Code(12_345), false));
        assert!(e.to_string().starts_with("the GPU failed while trying ("), "{e}");
        assert!(check_wait("waiting", Code(12_345)).unwrap_err().earlier);
        assert!(check("starting", Code(700)).unwrap_err().earlier);
        assert!(check("starting", Code(2)).unwrap_err().is_out_of_memory());
    }
}
