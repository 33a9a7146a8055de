//! What the driver's functions return: numbers.

use cudarc::driver::sys::CUresult;

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
    pub(super) fn is_of_a_kernel(self) -> bool {
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
