//! Memory on the device, and page-locked memory on the host.

use super::context::Context;
use super::error::{CudaError, check};
use super::stream::Stream;
use super::sys as cu;
use crate::backend::HostBuffer;
use std::sync::Arc;

/// A block of device memory.
#[derive(Debug)]
pub struct DeviceBlock {
    context: Arc<Context>,
    address: u64,
    bytes: usize,
}

impl DeviceBlock {
    /// `bytes` bytes, not cleared, 256-byte aligned.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(context: &Arc<Context>, bytes: usize) -> Result<DeviceBlock, CudaError> {
        context.bind()?;
        let mut address = 0;
        // SAFETY: the context is current.
        check("allocating memory", unsafe { cu::cuMemAlloc_v2(&mut address, bytes.max(1)) })?;
        Ok(DeviceBlock { context: context.clone(), address, bytes })
    }

    /// Its first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Enqueues zeros for `bytes` bytes from `offset`.
    ///
    /// # Errors
    /// The driver failed.
    pub fn zero(&self, stream: &Stream, offset: usize, bytes: usize) -> Result<(), CudaError> {
        self.fill(stream, offset, 0, bytes)
    }

    /// Enqueues `bytes` bytes of `value` from `offset`.
    ///
    /// # Errors
    /// The driver failed.
    pub fn fill(&self, stream: &Stream, offset: usize, value: u8, bytes: usize) -> Result<(), CudaError> {
        self.inside(offset, bytes);
        if bytes == 0 {
            return Ok(());
        }
        let at = self.address + offset as u64;
        // SAFETY: inside the block.
        check("clearing memory", unsafe { cu::cuMemsetD8Async(at, value, bytes, stream.raw) })
    }

    /// Enqueues a copy of `from` to `offset`.
    ///
    /// # Errors
    /// The driver failed.
    ///
    /// # Safety
    /// `from` stays as it is until the copy has been made.
    pub unsafe fn write(&self, stream: &Stream, offset: usize, from: &[u8]) -> Result<(), CudaError> {
        self.inside(offset, from.len());
        if from.is_empty() {
            return Ok(());
        }
        let to = self.address + offset as u64;
        // SAFETY: both sides are as long as the copy; the caller keeps the source.
        check("copying to the GPU", unsafe {
            cu::cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), from.len(), stream.raw)
        })
    }

    /// Enqueues a copy from `offset` to `to`.
    ///
    /// # Errors
    /// The driver failed.
    ///
    /// # Safety
    /// Nothing reads or writes `to`, and it stays where it is, until the copy has been made.
    pub unsafe fn read(&self, stream: &Stream, offset: usize, to: &mut [u8]) -> Result<(), CudaError> {
        self.inside(offset, to.len());
        if to.is_empty() {
            return Ok(());
        }
        let from = self.address + offset as u64;
        // SAFETY: both sides are as long as the copy; the caller keeps the destination.
        check("copying from the GPU", unsafe {
            cu::cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from, to.len(), stream.raw)
        })
    }

    fn inside(&self, offset: usize, bytes: usize) {
        assert!(offset + bytes <= self.bytes, "{offset} + {bytes} is outside a block of {} bytes", self.bytes);
    }
}

impl Drop for DeviceBlock {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: allocated in `new`; its user has waited for the streams that use it.
            unsafe { cu::cuMemFree_v2(self.address) };
        }
    }
}

/// What an error says was being done, where the host and not the GPU has too little memory.
pub const LOCKING: &str = "locking host memory for batches";

/// Page-locked host memory, zeroed. Not write-combined, which would be very slow to read: a batch is looked at again when
/// its loss is not finite.
///
/// # Errors
/// There is not enough memory that can be locked.
pub fn pinned(context: &Arc<Context>, bytes: usize) -> Result<HostBuffer, CudaError> {
    context.bind()?;
    let size = bytes.max(1);
    let mut p = std::ptr::null_mut();
    // SAFETY: the context is current.
    check(LOCKING, unsafe { cu::cuMemHostAlloc(&mut p, size, 0) })?;
    let ptr = p.cast::<u8>();
    let context = context.clone();
    // SAFETY: the driver gave `size` bytes at a page's start. Nothing else has their address. They are zeroed before use and
    // freed once, on the thread that drops the buffer.
    unsafe {
        ptr.write_bytes(0, size);
        Ok(HostBuffer::from_raw(
            ptr,
            bytes,
            Box::new(move |p| {
                if context.bind().is_ok() {
                    cu::cuMemFreeHost(p.cast());
                }
            }),
        ))
    }
}
