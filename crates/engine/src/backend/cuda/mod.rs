//! The CUDA backend: the same programs on an NVIDIA GPU, found at run time.
//!
//! In layers, each of which names only those above it:
//! - [`settings`]: what the environment says. [`driver`]: the driver's functions, and contexts, streams, events and memory.
//! - [`modules`] loads kernels and launches them. Their sources are in the folder `kernels` beside `src`. [`gpu`](super::gpu) lowers
//!   nodes to launches.
//! - `ready` puts addresses to launches; [`extents`] lists the memory that each is given.
//! - [`nvidia`]: NVIDIA's libraries, and the steps that they compute. It tries plans of cuDNN against our own kernels.
//! - `failure`: what has failed and where. `executable` runs programs.

pub mod driver;
mod executable;
pub mod extents;
mod failure;
pub mod modules;
pub mod nvidia;
mod ready;
pub mod settings;

use crate::backend::gpu::fusions;
use crate::backend::gpu::lower;
use crate::backend::gpu::target::Target;
use crate::backend::{Backend, Demand, DeviceMemory, Executable, HostBuffer};
use crate::collective::Collective;
use crate::graph::op::Pattern;
use crate::graph::{DType, Graph, Node};
use crate::plan::{NodeMemory, Plan};
use anyhow::{Error, Result};
use driver::{Context, memory};
use executable::{CudaExecutable, Options};
use failure::Explainer;
use nvidia::Libraries;
use nvidia::nccl::Link;
use settings::{Bindings, Settings, Source, Wanted};
use std::sync::Arc;

/// A GPU.
#[derive(Debug)]
pub struct CudaBackend {
    context: Arc<Context>,
    options: Options,
    nccl: Source,
    team: Option<Arc<dyn Collective>>,
    sync: bool,
    separate: bool,
}

impl CudaBackend {
    /// Device `ordinal` of those that the driver shows, used as the environment says.
    ///
    /// # Errors
    /// There is no driver, no such device, or it is too old: a [`crate::backend::DeviceError`]. The environment says something
    /// that there is not: a [`crate::backend::SettingError`].
    pub fn new(ordinal: usize) -> Result<CudaBackend> {
        CudaBackend::open(ordinal, &Settings::from_env()?)
    }

    /// As [`CudaBackend::new`], with given settings. No library is opened yet.
    ///
    /// # Errors
    /// There is no driver, no such device, or it is too old: a [`crate::backend::DeviceError`].
    pub fn open(ordinal: usize, settings: &Settings) -> Result<CudaBackend> {
        let context = Context::open(ordinal)?;
        let libraries = Arc::new(Libraries::new(&context, &settings.libraries));
        let target = Target { libraries: libraries.clone(), ..Target::new(context.info.capability) };
        let options = Options { target, libraries, link: None, graph: true, bindings: settings.bindings };
        let Settings { sync, separate, ref nccl, .. } = *settings;
        Ok(CudaBackend { context, options, nccl: nccl.clone(), team: None, sync, separate })
    }

    /// As one of several ranks, each of which has a GPU of its own. They connect when they run their programs.
    ///
    /// # Errors
    /// NCCL is not there, or cannot be used: a [`crate::backend::DeviceError`].
    pub fn in_team(self, team: Arc<dyn Collective>) -> Result<Self> {
        let mut this = self.planning_for(team.clone());
        if team.ranks() > 1 {
            this.options.link = Some(Arc::new(Link::new(&this.context, team, &this.nccl)?));
        }
        Ok(this)
    }

    /// The same to plan programs alone, which takes no NCCL: those that exchange something do not compile.
    pub fn planning_for(mut self, team: Arc<dyn Collective>) -> Self {
        self.options.target.rank = (team.rank(), team.ranks());
        self.team = Some(team);
        self
    }

    /// Whether programs are captured into graphs (by default they are).
    pub fn with_graph(mut self, graph: bool) -> Self {
        self.options.graph = graph;
        self
    }

    /// Whether products of 32-bit floats may be rounded to TF32 (by default not).
    pub fn with_tf32(mut self, tf32: bool) -> Self {
        self.options.target.tf32 = tf32;
        self
    }

    /// Computes with these libraries instead of those that are found.
    pub fn with_libraries(self, wanted: &Wanted) -> Self {
        let libraries = Arc::new(Libraries::new(&self.context, wanted));
        self.with(libraries)
    }

    /// Computes with the libraries that `other`, on the same device, has open, and with what it has chosen of them.
    pub fn with_libraries_of(self, other: &CudaBackend) -> Self {
        self.with(other.options.libraries.clone())
    }

    /// Lowering asks the libraries that compute.
    fn with(mut self, libraries: Arc<Libraries>) -> Self {
        self.options.target.libraries = libraries.clone();
        self.options.libraries = libraries;
        self
    }

    /// The libraries that it computes with, and what is wrong with others that were found.
    pub fn libraries(&self) -> &Libraries {
        &self.options.libraries
    }

    /// Through which bindings kernels are loaded and launched (by default those of the settings).
    pub fn with_bindings(mut self, bindings: Bindings) -> Self {
        self.options.bindings = bindings;
        self
    }

    /// Whether every piece of work is waited for, and its error names its node: see [`settings::SYNC`].
    pub fn with_sync(mut self, sync: bool) -> Self {
        self.sync = sync;
        self
    }

    /// Whether every value has an allocation of its own: see [`settings::SEPARATE`].
    pub fn with_separate(mut self, separate: bool) -> Self {
        self.separate = separate;
        self
    }

    fn explainer(&self) -> Explainer {
        Explainer { device: self.describe(), sync: self.sync }
    }

    fn explained(&self, error: impl Into<Error>) -> Error {
        self.explainer().explain(error.into())
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

    fn team(&self) -> Option<&Arc<dyn Collective>> {
        self.team.as_ref()
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

    fn notes(&self) -> Vec<String> {
        let of_plans = self.libraries().opened_dnn().map_or_else(Vec::new, |dnn| dnn.notes());
        self.context.take_notes().into_iter().chain(of_plans).collect()
    }

    fn progress(&self) -> Option<String> {
        self.libraries().opened_dnn()?.progress()
    }

    fn shares_memory(&self) -> bool {
        !self.separate
    }

    fn fusions(&self) -> &'static [Pattern] {
        &fusions::FUSIONS
    }

    fn workspace(&self, graph: &Graph, node: &Node) -> usize {
        lower::lower(graph, node, &self.options.target).map_or(0, |l| l.scratch_bytes)
    }

    fn node_memory(&self, graph: &Graph, node: &Node) -> NodeMemory {
        let lasts = executable::goes_beside(&node.op);
        NodeMemory { lasts, ..self.workspace(graph, node).into() }
    }

    fn memory(&self) -> Result<Option<DeviceMemory>> {
        let (free, total) = self.context.memory().map_err(|e| self.explained(e))?;
        Ok(Some(DeviceMemory { free, total }))
    }

    fn demand(&self, plan: &Plan) -> Demand {
        executable::demand(plan, &self.options.target)
    }

    fn choices(&self) -> Option<String> {
        self.libraries().opened_dnn()?.choices()
    }

    fn take_choices(&self, said: &str) -> Option<String> {
        match self.libraries().dnn() {
            Some(dnn) => dnn.take(said),
            None => Some(
                "the checkpoint was written by a run that computed with cuDNN, which is not used here; the run goes on, and no longer bit for bit as it would have".into(),
            ),
        }
    }

    fn estimate(&self, on: bool) {
        self.libraries().estimate(on);
    }

    fn host_buffer(&self, bytes: usize) -> Result<HostBuffer> {
        memory::pinned(&self.context, bytes).map_err(|e| self.explained(e))
    }

    fn compile(&self, plan: Arc<Plan>) -> Result<Box<dyn Executable>> {
        let made = CudaExecutable::new(plan, &self.context, self.options.clone(), self.explainer());
        Ok(Box::new(made.map_err(|e| self.explained(e))?))
    }
}
