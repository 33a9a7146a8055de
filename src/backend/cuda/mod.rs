//! The CUDA backend: the same programs on an NVIDIA GPU, found at run time.
//!
//! [`launch`] is what a node becomes, as plain data; [`lower`] makes it, a file for each family of operations. The kernels
//! are in the folder `kernels` beside `src`; `ptx` has them as they travel in the binary. `ready` puts addresses to
//! launches, `executable` runs programs of them. `libraries` finds NVIDIA's libraries, `nvidia` computes with them. `driver`,
//! `stream`, `memory` and `modules` own what the driver gives; [`launcher`] is what kernels are loaded and launched through.

pub mod driver;
mod executable;
pub mod launch;
pub mod launcher;
pub mod libraries;
mod losses;
pub mod lower;
mod memory;
mod modules;
pub mod nvidia;
pub mod ptx;
mod ready;
mod stream;

use crate::backend::{Backend, Demand, DeviceError, DeviceMemory, Executable, HostBuffer};
use crate::graph::{DType, Graph, Node, Op};
use crate::plan::Plan;
use anyhow::Result;
use driver::{Context, CudaError};
use executable::{CudaExecutable, Options};
use launch::Target;
use launcher::Bindings;
use nvidia::{Libraries, Wanted};
use std::sync::Arc;

/// A GPU.
#[derive(Debug)]
pub struct CudaBackend {
    context: Arc<Context>,
    options: Options,
}

impl CudaBackend {
    /// Device `ordinal` of those that the driver shows.
    ///
    /// # Errors
    /// There is no driver, no such device, or it is too old: a [`crate::backend::DeviceError`].
    pub fn new(ordinal: usize) -> Result<CudaBackend> {
        let context = Context::open(ordinal)?;
        let libraries = Arc::new(Libraries::open(&context, &Wanted::from_env()?));
        let target = Target { libraries, ..Target::new(context.info.capability) };
        Ok(CudaBackend { context, options: Options { target, graph: true, bindings: Bindings::default() } })
    }

    /// Whether programs are captured into graphs (they are, unless told otherwise).
    pub fn with_graph(mut self, graph: bool) -> Self {
        self.options.graph = graph;
        self
    }

    /// Whether products of 32-bit floats may be rounded to TF32 (not, unless told otherwise).
    pub fn with_tf32(mut self, tf32: bool) -> Self {
        self.options.target.tf32 = tf32;
        self
    }

    /// Computes with these libraries instead of those that are found.
    pub fn with_libraries(mut self, wanted: &Wanted) -> Self {
        self.options.target.libraries = Arc::new(Libraries::open(&self.context, wanted));
        self
    }

    /// Computes with the libraries that `other`, on the same device, has open, and with what it has chosen of them.
    pub fn with_libraries_of(mut self, other: &CudaBackend) -> Self {
        self.options.target.libraries = other.options.target.libraries.clone();
        self
    }

    /// The libraries that it computes with, and what is wrong with others that were found.
    pub fn libraries(&self) -> &Libraries {
        &self.options.target.libraries
    }

    /// Through which bindings kernels are loaded and launched (`cudarc`'s, unless told otherwise).
    pub fn with_bindings(mut self, bindings: Bindings) -> Self {
        self.options.bindings = bindings;
        self
    }

    /// The error with what the device lacks, if that is memory.
    fn told(&self, error: anyhow::Error) -> anyhow::Error {
        let full = error.downcast_ref::<CudaError>().is_some_and(CudaError::is_out_of_memory);
        if full { DeviceError(format!("not enough memory on {}: {error:#}", self.describe())).into() } else { error }
    }

    /// The device.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Backend for CudaBackend {
    fn describe(&self) -> String {
        let info = &self.context.info;
        let libraries: String = self.libraries().names().iter().map(|name| format!(", {name}")).collect();
        format!("cuda:{} ({}, compute capability {}{libraries})", info.ordinal, info.name, info.capability_text())
    }

    fn is_asynchronous(&self) -> bool {
        true
    }

    /// All types: what an architecture lacks in arithmetic the kernels do in 32 bits.
    fn supports(&self, _: DType) -> bool {
        true
    }

    fn supports_tf32(&self) -> bool {
        self.options.target.capability >= 80
    }

    fn has_kernel(&self, op: &Op) -> bool {
        lower::has_kernel(op)
    }

    fn workspace(&self, graph: &Graph, node: &Node) -> usize {
        lower::lower(graph, node, &self.options.target).map_or(0, |l| l.scratch_bytes)
    }

    fn memory(&self) -> Result<Option<DeviceMemory>> {
        let (free, total) = self.context.memory()?;
        Ok(Some(DeviceMemory { free, total }))
    }

    fn demand(&self, plan: &Plan) -> Demand {
        executable::demand(plan, &self.options.target)
    }

    fn choices(&self) -> Option<String> {
        self.libraries().dnn.as_ref()?.choices()
    }

    fn take_choices(&self, said: &str) -> Option<String> {
        match &self.libraries().dnn {
            Some(dnn) => dnn.take(said),
            None => Some(
                "the checkpoint was written by a run that computed with cuDNN, which is not used here; the run goes on, and no longer bit for bit as it would have".into(),
            ),
        }
    }

    fn estimate(&self, on: bool) {
        if let Some(dnn) = &self.libraries().dnn {
            dnn.estimate(on);
        }
    }

    fn notes(&self) -> Vec<String> {
        self.libraries().dnn.as_ref().map_or_else(Vec::new, |dnn| dnn.notes())
    }

    fn host_buffer(&self, bytes: usize) -> Result<HostBuffer> {
        memory::pinned(&self.context, bytes).map_err(|e| self.told(e.into()))
    }

    fn compile(&self, plan: Arc<Plan>) -> Result<Box<dyn Executable>> {
        let made = CudaExecutable::new(plan, &self.context, self.options.clone());
        Ok(Box::new(made.map_err(|e| self.told(e))?))
    }
}
