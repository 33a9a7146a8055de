//! Devices: what runs a planned program. A backend knows the graph and the plan, never the configuration file.

pub mod cpu;
pub mod cuda;
pub mod gpu;
pub mod reference;
mod trace;

pub use crate::failure::{DeviceError, SettingError};
pub use trace::{Detail, Span, Track, Work};

use crate::collective::Collective;
use crate::graph::op::Pattern;
use crate::graph::{DType, Graph, Narrows, Node, NodeId, ValueId, VarId};
use crate::plan::{NodeMemory, Plan};
use anyhow::Result;
use std::sync::Arc;

/// The names of what the kinds of devices do at once, each name once.
pub fn pattern_names() -> Vec<&'static str> {
    let all = cpu::fusions::FUSIONS.iter().chain(&gpu::fusions::FUSIONS).map(|pattern| pattern.name);
    all.fold(Vec::new(), |mut names, name| {
        if !names.contains(&name) {
            names.push(name);
        }
        names
    })
}

/// Bytes of a device's own memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Not in use by any process.
    pub free: usize,
    /// All.
    pub total: usize,
}

/// Bytes that an executable allocates on its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Batch slots of its own.
    pub batches: usize,
    /// Everything.
    pub total: usize,
}

/// Bytes that an executable has on a device with memory of its own, in the words of `torch.cuda`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// Holding something from step to step: variables, batches, tables.
    pub allocated: usize,
    /// Taken from the device.
    pub reserved: usize,
    /// Largest number of bytes that have been in use at one time.
    pub peak: usize,
}

/// What has become of a device's memory, by what its driver says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceUse {
    /// All of it.
    pub total: usize,
    /// Free when this process began to use the device. Other processes, and what the driver takes for this one in any case, have
    /// the rest.
    pub free_at_start: usize,
    /// Free now.
    pub free: usize,
    /// What the plan has of it.
    pub planned: usize,
}

impl DeviceUse {
    /// Bytes that have gone since then beside the plan: kernels, graphs, libraries, and what other processes have taken.
    pub fn beside(&self) -> usize {
        self.free_at_start.saturating_sub(self.free).saturating_sub(self.planned)
    }
}

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
    /// `ptr` is valid for reads and writes of `bytes` bytes, initialised, 64-byte aligned, and used by nothing else until `free`.
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

    /// True if values of type `dtype` can be computed. A program with any other value does not compile.
    fn supports(&self, dtype: DType) -> bool {
        !dtype.is_half()
    }

    /// The ranks that compute the same programs, of which it is one; `None` if it is alone.
    fn team(&self) -> Option<&Arc<dyn Collective>> {
        None
    }

    /// True if [`Executable::run`] returns before the work is done.
    fn is_asynchronous(&self) -> bool {
        false
    }

    /// The most operations a second that the device can do, in GFLOP/s, measured now by a loop made for that; `None` if
    /// there is no such loop: then the fastest matrix product must do.
    ///
    /// # Errors
    /// The device failed.
    fn measured_peak(&self) -> Result<Option<f64>> {
        Ok(None)
    }

    /// What is to be said about how it computes, that has come up since the last call, one line or more each: libraries and
    /// plans that cannot be used, kernels that must be compiled first.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// What takes it so long while programs are planned, for another thread to ask meanwhile; `None` if it is nothing that may.
    fn progress(&self) -> Option<String> {
        None
    }

    /// False if plans are to keep all values apart: see [`Plan::laid_out`].
    fn shares_memory(&self) -> bool {
        true
    }

    /// What it does at once, in the order in which it is to be looked for.
    fn fusions(&self) -> &'static [Pattern] {
        &[]
    }

    /// True if there is a kernel that updates a part of the parameters: each is then updated as soon as its gradient is there.
    fn updates_apart(&self) -> bool {
        false
    }

    /// Where it can run nodes once for each part of a batch ([`crate::graph::Graph::rounds`]), and gains by it, as its caches are smaller than what layers write:
    /// the number of bytes of which each part's place is a multiple.
    fn divides_batches(&self) -> Option<usize> {
        None
    }

    /// What may be in memory as 16 bits of a program that does not train, node by node: see [`crate::graph::Value::narrow`].
    fn narrows(&self) -> Option<Narrows> {
        None
    }

    /// True if products of 32-bit floats can be computed with factors rounded to TF32.
    fn supports_tf32(&self) -> bool {
        false
    }

    /// True if products of 32-bit floats are computed with factors rounded to bf16, as this backend was asked to: operations
    /// are on values of 32 bits all the same.
    fn makes_bf16_products(&self) -> bool {
        false
    }

    /// What is to be said of a precision that it computes in, but more slowly than in single precision.
    fn slow_precision(&self) -> Option<&'static str> {
        None
    }

    /// Scratch bytes that `node` needs while it runs. Depends on nothing that is not known before the first step.
    fn workspace(&self, graph: &Graph, node: &Node) -> usize;

    /// All that `node` needs beside its operands and results: [`Backend::workspace`], and what it can keep from run to run.
    fn node_memory(&self, graph: &Graph, node: &Node) -> NodeMemory {
        self.workspace(graph, node).into()
    }

    /// The device's memory; `None` if it has none of its own.
    ///
    /// # Errors
    /// The device failed.
    fn memory(&self) -> Result<Option<DeviceMemory>> {
        Ok(None)
    }

    /// What [`Backend::compile`] allocates for `plan`.
    fn demand(&self, plan: &Plan) -> Demand {
        Demand { batches: 0, total: plan.device_bytes() }
    }

    /// What was chosen by measuring so far: a run that goes on elsewhere or later with the same choices gives the same bits.
    /// `None` if nothing was. The text is the backend's own.
    fn choices(&self) -> Option<String> {
        None
    }

    /// Chooses as [`Backend::choices`] says that it was chosen, from now on; what is to be said if that cannot be.
    fn take_choices(&self, _said: &str) -> Option<String> {
        None
    }

    /// While it is on, programs are planned for the memory that they take and are not compiled: nothing is chosen for them, and
    /// where a choice decides they count for the most that it could be.
    fn estimate(&self, _on: bool) {}

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
    /// Connects the device with those of the other ranks. All ranks call it at once, before the first run of a program in which they exchange something.
    ///
    /// # Errors
    /// The device, or another rank, failed.
    fn connect(&mut self) -> Result<()> {
        Ok(())
    }

    /// Waits until all ranks have ended what they have enqueued: from then on each may go. All ranks call it at once.
    ///
    /// # Errors
    /// The device, or another rank, failed.
    fn leave(&mut self) -> Result<()> {
        Ok(())
    }

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

    /// Writes a part of a variable, from its byte `at` on: a large one need not be in memory twice.
    ///
    /// # Errors
    /// The part does not lie within the variable, or the device failed.
    fn upload_part(&mut self, var: VarId, at: usize, bytes: &[u8]) -> Result<()>;

    /// Reads a part of a variable, from its byte `at` on, after everything enqueued before.
    ///
    /// # Errors
    /// The part does not lie within the variable, or the device failed.
    fn download_part(&mut self, var: VarId, at: usize, bytes: &mut [u8]) -> Result<()>;

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

    /// Adds to `into` the losses of the runs of training programs since the last call, oldest first: of those runs that are
    /// known to be done or, with `wait`, of all. A run whose loss is not finite changes no parameters; neither do those
    /// that were enqueued after it before it could be known.
    ///
    /// # Errors
    /// The device failed.
    fn losses(&mut self, wait: bool, into: &mut Vec<f32>) -> Result<()>;

    /// Reads a value with [`crate::graph::Role::Output`] of the last run of `program`.
    ///
    /// # Errors
    /// The device failed.
    fn output(&mut self, program: usize, value: ValueId, bytes: &mut [u8]) -> Result<()>;

    /// Reads a part of such a value, from its byte `at` on: a large one need not be in memory as a whole.
    ///
    /// # Errors
    /// The part does not lie within the value, or the device failed.
    fn output_part(&mut self, program: usize, value: ValueId, at: usize, bytes: &mut [u8]) -> Result<()>;

    /// Runs a program node by node, looking at each result: the first node with an output (float) that is not finite.
    /// Nothing after it is run.
    ///
    /// # Errors
    /// The device failed.
    fn find_not_finite(&mut self, program: usize, batch: &HostBuffer) -> Result<Option<NodeId>>;

    /// Runs `steps` steps, each of them `programs` one after the other, all on `batch`, enqueued without waiting as in
    /// training; returns when they are done, with what was done when. They are runs like others: parameters change, and
    /// losses are given out by [`Executable::losses`].
    ///
    /// # Errors
    /// The device failed.
    fn trace(&mut self, programs: &[usize], batch: &HostBuffer, steps: usize, detail: Detail) -> Result<Vec<Span>>;

    /// Largest number of bytes in use so far, batch slots excluded: the plan's total if plan and device agree.
    fn peak_bytes(&self) -> usize;

    /// What it has of the device's memory; `None` if the device has none of its own.
    fn memory_use(&self) -> Option<MemoryUse> {
        None
    }

    /// What the device's driver says of its memory; `None` if the device has none of its own.
    ///
    /// # Errors
    /// The device failed.
    fn device_use(&self) -> Result<Option<DeviceUse>> {
        Ok(None)
    }
}
