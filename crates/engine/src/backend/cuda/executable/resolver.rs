//! From a node's steps to work with addresses: where its values are, and which library computes what.

use super::storage::{Area, Storage};
use crate::backend::cuda::extents;
use crate::backend::cuda::modules::Modules;
use crate::backend::cuda::nvidia::nccl::{ExchangeCall, Link, Place};
use crate::backend::cuda::nvidia::{Libraries, convolution, matmul};
use crate::backend::cuda::ready::{Ready, Tables, own};
use crate::backend::gpu::launch::{
    ConvolutionStep, Exchange, Lowered, MatmulStep, Memory, Message, Step, WORKSPACE_ALIGNMENT,
};
use crate::plan::Program;
use anyhow::{Context, Result, ensure};
use std::sync::Arc;

/// Makes the steps of one node ready.
pub struct Resolver<'a> {
    /// The node's program.
    pub program: &'a Program,
    /// Where its values are.
    pub storage: &'a Storage,
    /// The slot with its batch.
    pub slot: usize,
    /// The constant arrays, filled as they come up.
    pub tables: &'a mut Tables,
    /// The kernels.
    pub modules: &'a mut Modules,
    /// The libraries that it was lowered for.
    pub libraries: &'a Libraries,
    /// The other ranks, if there are some.
    pub link: Option<&'a Arc<Link>>,
}

impl Resolver<'_> {
    /// The steps of node number `at`, which was lowered to `lowered`.
    ///
    /// # Errors
    /// The plan has not the workspace that the node needs, or a kernel is not there.
    pub fn node(&mut self, at: usize, lowered: &Lowered) -> Result<Vec<Ready>> {
        let (_, planned) = self.program.workspace[at];
        ensure!(
            planned >= lowered.scratch_bytes,
            "node {at} needs {} bytes of workspace, but the plan has {planned}",
            lowered.scratch_bytes
        );
        let steps: Vec<Ready> = lowered
            .steps
            .iter()
            .map(|step| self.step(at, step))
            .collect::<Result<_>>()
            .with_context(|| self.program.node_name(at))?;
        for (step, ready) in lowered.steps.iter().zip(&steps) {
            if let (Step::Kernel(kernel), Ready::Kernel { config, cells, .. }) = (step, ready) {
                // Each was asked for a moment ago, and is there.
                let address = |memory| self.address(at, memory).unwrap_or_default();
                let given = || extents::of_step(self.program, at, lowered, kernel, cells, address);
                extents::report(&kernel.name, *config, cells, given);
            }
        }
        Ok(steps)
    }

    fn step(&mut self, at: usize, step: &Step) -> Result<Ready> {
        match step {
            Step::Matmul(step) => self.matmul(at, step),
            Step::Convolution(step) => self.convolution(at, step),
            Step::Exchange(exchange) => self.exchange(at, exchange),
            Step::Kernel(_) | Step::Zero { .. } | Step::Copy { .. } => {
                let (program, storage, slot) = (self.program, self.storage, self.slot);
                own(step, &|memory| address(program, storage, slot, at, memory), self.tables, self.modules)
            }
        }
    }

    fn matmul(&self, at: usize, step: &MatmulStep) -> Result<Ready> {
        let places = matmul::Places {
            a: self.address(at, step.a)?,
            b: self.address(at, step.b)?,
            d: self.address(at, step.d)?,
            vector: step.vector.map(|m| self.address(at, m)).transpose()?,
            workspace: self.address(at, step.workspace)?.next_multiple_of(WORKSPACE_ALIGNMENT as u64),
        };
        let blas = self.libraries.blas().context("the program was made for a library that is not open")?;
        let call = blas.prepare(&step.matmul, places)?;
        Ok(Ready::Library(call.context("the library has no algorithm for what it was chosen for")?))
    }

    fn convolution(&self, at: usize, step: &ConvolutionStep) -> Result<Ready> {
        let workspace = self.address(at, step.workspace)?;
        let places = convolution::Places {
            x: self.address(at, step.x)?,
            w: self.address(at, step.w)?,
            y: self.address(at, step.y)?,
            bias: step.bias.map(|m| self.address(at, m)).transpose()?,
            workspace: workspace.next_multiple_of(WORKSPACE_ALIGNMENT as u64),
        };
        let dnn = self.libraries.dnn().context("the program was made for a library that is not open")?;
        let call = dnn.prepare(&step.convolution, &places)?;
        Ok(Ready::Library(call.context("the library has no algorithm for what it was chosen for")?))
    }

    fn exchange(&self, at: usize, exchange: &Exchange) -> Result<Ready> {
        let link = self.link.context("internal error: a device that is alone has no other ranks")?;
        let with_address = |list: &[Message]| -> Result<Vec<Place>> {
            let place = |m: &Message| Ok(Place { peer: m.peer, address: self.address(at, m.at)?, bytes: m.bytes });
            list.iter().map(place).collect()
        };
        let (sends, receives) = (with_address(&exchange.sends)?, with_address(&exchange.receives)?);
        Ok(Ready::Exchange(Arc::new(ExchangeCall { link: link.clone(), sends, receives })))
    }

    fn address(&self, at: usize, memory: Memory) -> Result<u64> {
        address(self.program, self.storage, self.slot, at, memory)
    }
}

/// Where a value or the workspace of node number `at` is.
fn address(program: &Program, storage: &Storage, slot: usize, at: usize, memory: Memory) -> Result<u64> {
    let node = &program.graph.nodes[at];
    let value = match memory {
        Memory::Input(i) | Memory::InputFrom(i, _) => node.inputs[i],
        Memory::Output(i) => node.outputs[i],
        Memory::Scratch(offset) => {
            let (place, bytes) = program.workspace[at];
            // Steps that want no workspace name its beginning all the same.
            return if bytes == 0 { Ok(0) } else { storage.address(Area::Transient, place + offset) };
        }
    };
    let place = program.places[value.index()];
    let from = if let Memory::InputFrom(_, from) = memory { from } else { 0 };
    storage.address(Area::of(place.region, slot), place.offset + from)
}
