//! The CPU backend: runs planned programs of the kernels of the package `runner-cpu`, whose modules are named as its own here.

mod executable;
#[cfg(test)]
mod tests;

pub use runner_cpu::{CpuInfo, cpu_info, fusions, ops, run, simd};

use crate::backend::{Backend, Executable, HostBuffer};
use crate::collective::Collective;
use crate::graph::op::Pattern;
use crate::graph::{Graph, Narrows, Node};
use crate::plan::{ALIGN, NodeMemory, Plan};
use anyhow::{Context, Result};
use run::memory::zeroed;
use run::threads::Pool;
use runner_cpu::{lower, narrow, peak};
use simd::SimdLevel;
use simd::bf16::{Bf16Unit, Instructions};
use std::sync::Arc;

/// The CPU.
#[derive(Debug, Clone)]
pub struct CpuBackend {
    threads: usize,
    level: SimdLevel,
    /// What could make products in bf16, and whether it is to.
    unit: Option<Bf16Unit>,
    in_bf16: bool,
    team: Option<Arc<dyn Collective>>,
}

impl CpuBackend {
    /// With `threads` compute threads (as many as this process may use, if `None`), and the instructions that
    /// `RUNNER_SIMD` and `RUNNER_BF16` name, else the best ones.
    ///
    /// # Errors
    /// `RUNNER_SIMD` or `RUNNER_BF16` names instructions that there are not.
    pub fn new(threads: Option<usize>) -> Result<Self> {
        Ok(Self::with_level(threads, SimdLevel::from_env()?).with_unit(Bf16Unit::from_env()?))
    }

    /// With given instructions, to compare them.
    pub fn with_level(threads: Option<usize>, level: SimdLevel) -> Self {
        let threads = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1);
        CpuBackend { threads, level, unit: None, in_bf16: false, team: None }
    }

    /// With other vector instructions.
    pub fn at_level(self, level: SimdLevel) -> Self {
        CpuBackend { level, ..self }
    }

    /// With what makes products in bf16, if they are to be made in it.
    pub fn with_unit(self, unit: Option<Bf16Unit>) -> Self {
        CpuBackend { unit, ..self }
    }

    /// Products are made in bf16 if that is `wanted` and there is a unit for it: linear layers, convolutions, attention and their
    /// gradients round their factors. Sums and everything else stay in single precision, but for values in the memory of programs that do not
    /// train ([`Backend::narrows`]).
    pub fn in_bf16(self, wanted: bool) -> Self {
        CpuBackend { in_bf16: wanted, ..self }
    }

    fn how(&self) -> Instructions {
        Instructions { level: self.level, bf16: self.unit.filter(|_| self.in_bf16) }
    }

    /// As one of several ranks that compute the same programs.
    pub fn in_team(self, team: Option<Arc<dyn Collective>>) -> Self {
        CpuBackend { team, ..self }
    }
}

impl Backend for CpuBackend {
    fn team(&self) -> Option<&Arc<dyn Collective>> {
        self.team.as_ref()
    }

    fn fusions(&self) -> &'static [Pattern] {
        match self.how().bf16 {
            Some(unit) if unit.is_far_faster() => &fusions::BF16_FUSIONS,
            _ => &fusions::FUSIONS,
        }
    }

    fn updates_apart(&self) -> bool {
        true
    }

    fn divides_batches(&self) -> Option<usize> {
        Some(ALIGN)
    }

    fn narrows(&self) -> Option<Narrows> {
        self.how().bf16.map(narrow::narrows)
    }

    fn describe(&self) -> String {
        let s = if self.threads == 1 { "" } else { "s" };
        let bf16 = self.how().bf16.map_or(String::new(), |unit| format!(", bf16 by {unit}"));
        format!("cpu ({} thread{s}, {}{bf16})", self.threads, self.level)
    }

    fn makes_bf16_products(&self) -> bool {
        self.how().bf16.is_some()
    }

    fn slow_precision(&self) -> Option<&'static str> {
        let plain = self.how().bf16 == Some(Bf16Unit::Plain);
        plain.then_some("products in bf16 are made by plain code, which is slower than `fp32`")
    }

    fn measured_peak(&self) -> Result<Option<f64>> {
        let pool = Pool::new(self.threads).context("cannot start the compute threads")?;
        Ok(Some(peak::multiply_adds(&pool, self.level)))
    }

    fn workspace(&self, graph: &Graph, node: &Node) -> usize {
        lower::lower(graph, node, self.how(), self.threads).map_or(0, |k| k.scratch_bytes())
    }

    fn node_memory(&self, graph: &Graph, node: &Node) -> NodeMemory {
        let kernel = lower::lower(graph, node, self.how(), self.threads);
        kernel.map_or(NodeMemory::default(), |k| NodeMemory {
            workspace: k.scratch_bytes(),
            lasts: false,
            kept: k.kept(),
        })
    }

    fn host_buffer(&self, bytes: usize) -> Result<HostBuffer> {
        let mut map = zeroed(bytes, "a batch")?;
        let ptr = map.as_mut_ptr();
        // SAFETY: the block is as long as asked for, zeroed and page-aligned. The closure owns it, nothing else has its
        // address, and it is given back when the closure is dropped with the buffer.
        Ok(unsafe { HostBuffer::from_raw(ptr, bytes, Box::new(move |p| debug_assert!(std::ptr::eq(map.as_ptr(), p)))) })
    }

    fn compile(&self, plan: Arc<Plan>) -> Result<Box<dyn Executable>> {
        let pool = Pool::new(self.threads).context("cannot start the compute threads")?;
        Ok(Box::new(executable::CpuExecutable::new(plan, pool, self.how(), self.team.clone())?))
    }
}
