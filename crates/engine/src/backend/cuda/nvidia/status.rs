//! The status codes of the libraries' functions as errors.

use super::installed::Library;
use crate::backend::cuda::driver::CudaError;
use crate::backend::cuda::modules::driver_error;
use crate::backend::cuda::settings::LIBRARIES;
use anyhow::Error;
use std::fmt;

/// Why a library cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unusable {
    /// It lacks something, or does not start.
    Lacks(String),
    /// There is not enough memory for it.
    Memory(LibraryError),
}

impl From<String> for Unusable {
    fn from(why: String) -> Unusable {
        Unusable::Lacks(why)
    }
}

/// A library's answer to the call that starts it.
pub fn started(library: Library, code: u32) -> Result<(), Unusable> {
    match answer(library, "starting", code) {
        Ok(()) => Ok(()),
        Err(error) if error.is_out_of_memory() => Err(Unusable::Memory(error)),
        Err(_) => Err(Unusable::Lacks(format!("does not start (status {code})"))),
    }
}

/// A library did not do its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LibraryError {
    library: Library,
    doing: &'static str,
    code: u32,
}

impl LibraryError {
    /// True if there was not enough memory, of the device or of the host.
    pub fn is_out_of_memory(&self) -> bool {
        use cudarc::cublas::sys::cublasStatus_t as Blas;
        use cudarc::cudnn::sys::cudnnStatus_t as Dnn;
        const DNN: [Dnn; 2] = [
            Dnn::CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED,
            Dnn::CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED,
        ];
        match self.library {
            Library::Cudnn => DNN.iter().any(|code| *code as u32 == self.code),
            _ => self.code == Blas::CUBLAS_STATUS_ALLOC_FAILED as u32,
        }
    }
}

impl fmt::Display for LibraryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\nhelp: {LIBRARIES}=0 computes without it", self.brief())
    }
}

impl std::error::Error for LibraryError {}

impl LibraryError {
    /// Without what can be done about it.
    pub fn brief(&self) -> String {
        format!("{} failed while {} (status {})", self.library.name(), self.doing, self.code)
    }
}

/// A library's answer as a result.
pub fn answer(library: Library, doing: &'static str, code: u32) -> Result<(), LibraryError> {
    if code == 0 { Ok(()) } else { Err(LibraryError { library, doing, code }) }
}

/// True if the driver, or a library, had not enough memory.
pub fn is_out_of_memory(error: &Error) -> bool {
    let library = || error.chain().find_map(|cause| cause.downcast_ref::<LibraryError>());
    driver_error(error).is_some_and(CudaError::is_out_of_memory)
        || library().is_some_and(LibraryError::is_out_of_memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the libraries' manuals number them; what no manual knows is no lack of memory.
    #[test]
    fn each_library_has_its_own_numbers_for_a_lack_of_memory() {
        let is = |library, code| answer(library, "trying", code).unwrap_err().is_out_of_memory();
        let lacking = |library| [1, 2, 3, 4003, 4004, 4_000_000_000].map(|code| is(library, code));
        assert_eq!(lacking(Library::CublasLt), [false, false, true, false, false, false]);
        assert_eq!(lacking(Library::Cudnn), [false, false, false, true, true, false]);
    }
}
