//! Devices: what runs a planned program. A backend knows the graph and the plan, never the configuration file.

pub mod cpu;
pub mod reference;

use crate::graph::{Graph, Node, NodeId, ValueId, VarId};
use crate::plan::Plan;
use anyhow::Result;
use std::fmt;
use std::sync::Arc;

/// The device asked for is not there, or has not enough memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceError(pub String);

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DeviceError {}

/// Host memory that a batch is written to and a device reads from: page-locked where the device asks for that.
/// 64-byte aligned, zeroed at allocation.
pub struct HostBuffer {
    ptr: *mut u8,
    bytes: usize,
    free: Box<dyn Fn(*mut u8) + Send + Sync>,
}

// SAFETY: the buffer owns its memory, and `free` may run on any thread.
unsafe impl Send for HostBuffer {}
// SAFETY: shared access only reads.
unsafe impl Sync for HostBuffer {}

impl HostBuffer {
    /// Takes over `bytes` bytes at `ptr`, which `free` gives back.
    ///
    /// # Safety
    /// `ptr` is valid for reads and writes of `bytes` bytes, initialised, 64-byte aligned, and nobody else's until `free`.
    pub unsafe fn from_raw(ptr: *mut u8, bytes: usize, free: Box<dyn Fn(*mut u8) + Send + Sync>) -> Self {
        HostBuffer { ptr, bytes, free }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: valid by construction.
        unsafe { std::slice::from_raw_parts(self.ptr, self.bytes) }
    }

    /// The bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: valid by construction, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.ptr, self.bytes) }
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        (self.free)(self.ptr);
    }
}

/// A kind of device.
pub trait Backend: Send + Sync {
    /// For people: `cpu (2 threads, avx512)`.
    fn describe(&self) -> String;

    /// Scratch bytes that `node` needs while it runs. Depends on nothing that is not known before the first step.
    fn workspace(&self, graph: &Graph, node: &Node) -> usize;

    /// Memory for a batch slot.
    ///
    /// # Errors
    /// There is not enough.
    fn host_buffer(&self, bytes: usize) -> Result<HostBuffer>;

    /// Allocates what the plan says and makes its programs ready to run. Variables start as zeros.
    ///
    /// # Errors
    /// There is not enough memory, or the device failed.
    fn compile(&self, plan: Arc<Plan>) -> Result<Box<dyn Executable>>;
}

/// Compiled programs with their memory.
pub trait Executable: Send {
    /// Writes a variable (inside layout, native endian).
    ///
    /// # Errors
    /// The device failed.
    fn upload(&mut self, var: VarId, bytes: &[u8]) -> Result<()>;

    /// Reads a variable, after everything enqueued before.
    ///
    /// # Errors
    /// The device failed.
    fn download(&mut self, var: VarId, bytes: &mut [u8]) -> Result<()>;

    /// Enqueues one run of program `program` on the batch in `batch` (laid out by [`Plan::slot`]), which is slot number
    /// `slot` of the ring. The buffer is free again once [`Executable::wait_slot`] returns.
    ///
    /// # Errors
    /// The device failed.
    fn run(&mut self, program: usize, slot: usize, batch: &HostBuffer) -> Result<()>;

    /// Waits until the batch given last for `slot` has been read.
    ///
    /// # Errors
    /// The device failed.
    fn wait_slot(&mut self, slot: usize) -> Result<()>;

    /// Reads a value with [`crate::graph::Role::Output`] of the last run of `program`.
    ///
    /// # Errors
    /// The device failed.
    fn output(&mut self, program: usize, value: ValueId, bytes: &mut [u8]) -> Result<()>;

    /// Runs a program node by node, looking at each result: the first node with an output (float) that is not finite.
    /// Nothing after it is run.
    ///
    /// # Errors
    /// The device failed.
    fn find_not_finite(&mut self, program: usize, batch: &HostBuffer) -> Result<Option<NodeId>>;

    /// Runs a program once; seconds that each node took.
    ///
    /// # Errors
    /// The device failed.
    fn profile(&mut self, program: usize, batch: &HostBuffer) -> Result<Vec<f64>>;

    /// Largest number of bytes in use so far, batch slots excluded: the plan's total if plan and device agree.
    fn peak_bytes(&self) -> usize;
}
