//! Enqueues the nodes of a program one by one, and describes the one that fails.

use super::CudaExecutable;
use super::beside::Part;
use super::storage::{Area, SLOTS, Storage};
use crate::backend::HostBuffer;
use crate::backend::cuda::driver::stream::Stream;
use crate::backend::cuda::ready::Ready;
use crate::backend::gpu::launch::{Exchange, Kernel, Message, Step};
use crate::backend::gpu::lower::lower;
use crate::graph::{Role, ValueId};
use crate::plan::{Program, Region};
use anyhow::{Error, Result};
use std::fmt::Write;

impl CudaExecutable {
    /// Enqueues the nodes of a program, calling `after(node)` after each. With `ahead`, sums over ranks begin in it beside the computation, or have begun before
    /// it. With [`crate::backend::cuda::settings::SYNC`], each launch is waited for, and an error is that of the launch.
    pub(super) fn enqueue(
        &self,
        program: usize,
        k: usize,
        ahead: bool,
        mut after: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let compiled = &self.programs[program];
        let mut left = None;
        for at in 0..compiled.slots[k].len() {
            match (self.part_of(program, at), &self.beside) {
                (Part::Begins, Some(beside)) if ahead => {
                    left = Some(beside);
                    self.enqueue_node(program, k, at, beside.leave(&self.compute)?)?;
                }
                (Part::Begins, _) => {}
                (Part::Ends, _) if ahead => {}
                _ => self.enqueue_node(program, k, at, &self.compute)?,
            }
            if compiled.loss_node == Some(at)
                && let Some(watch) = &compiled.watch
            {
                self.enqueue_one(watch, &self.compute).map_err(|e| {
                    let place = format!("noting the loss of program `{}`", self.plan.programs[program].name);
                    self.explainer.explain_at(&place, "", e)
                })?;
            }
            after(at)?;
        }
        left.map_or(Ok(()), |beside| beside.join(&self.compute))
    }

    fn part_of(&self, program: usize, at: usize) -> Part {
        Part::of(&self.plan.programs[program].graph.nodes[at].op)
    }

    /// Enqueues the work of one node.
    fn enqueue_node(&self, program: usize, k: usize, at: usize, stream: &Stream) -> Result<()> {
        for (step, ready) in self.programs[program].slots[k][at].iter().enumerate() {
            self.enqueue_one(ready, stream).map_err(|e| self.failed_at(program, k, at, step, e))?;
        }
        Ok(())
    }

    fn enqueue_one(&self, ready: &Ready, stream: &Stream) -> Result<()> {
        // SAFETY: all addresses lie in the storage, which lives until the streams have been waited for.
        unsafe { ready.enqueue(stream)? };
        if self.explainer.sync {
            stream.synchronize()?;
        }
        Ok(())
    }

    /// Runs every step of a library once: libraries load kernels at the first use, which a stream capture does not allow. The
    /// memory is not initialised yet. What the steps write is overwritten later.
    pub(super) fn warm_up(&self) -> Result<()> {
        for (program, compiled) in self.programs.iter().enumerate() {
            // Slots differ only in the addresses of their batches.
            for (at, node) in compiled.slots[0].iter().enumerate() {
                for (step, ready) in node.iter().enumerate().filter(|(_, ready)| matches!(ready, Ready::Library(_))) {
                    let done = self.enqueue_one(ready, &self.compute);
                    done.map_err(|e| self.failed_at(program, 0, at, step, e))?;
                }
            }
        }
        Ok(())
    }

    /// Runs the nodes one by one, but for what goes on beside them, calling `after(node, self)` after each until it returns `false`.
    pub(super) fn run_apart(
        &mut self,
        program: usize,
        batch: &HostBuffer,
        mut after: impl FnMut(usize, &mut Self) -> Result<bool>,
    ) -> Result<()> {
        self.compute.context().bind()?;
        // Waited for before the batch is the caller's again.
        let k = self.stage(batch, |_| Ok(()))?;
        self.slots[k].filled.synchronize()?;
        for at in 0..self.program(program)?.slots[k].len() {
            if self.part_of(program, at) != Part::Begins {
                self.enqueue_node(program, k, at, &self.compute)?;
            }
            if !after(at, self)? {
                break;
            }
        }
        self.slots[k].used.record(&self.compute)?;
        Ok(())
    }

    /// An error of step number `step` of a node.
    fn failed_at(&self, program: usize, k: usize, at: usize, step: usize, error: Error) -> Error {
        let planned = &self.plan.programs[program];
        let node = &planned.graph.nodes[at];
        let mut details = String::new();
        // Lowering is a pure function of the node: it gives the same steps again.
        if let Some(lowered) = lower(&planned.graph, node, &self.options.target)
            && let Some(step) = lowered.steps.get(step)
        {
            let _ = write!(details, "\n  {}", work(step));
        }
        let variables = &self.plan.variables;
        for (kind, list) in [("input", &node.inputs), ("output", &node.outputs)] {
            for (i, value) in list.iter().enumerate() {
                let v = planned.graph.value(*value);
                let is = match v.role {
                    Role::Input(input) => format!("{input:?} of the batch"),
                    Role::ShardInput(input, shard) => format!("{input:?} of shard {shard}"),
                    Role::Parameter(id) | Role::State(id) => format!("variable `{}`", variables[id].name),
                    Role::Temporary | Role::Output => "of this run".into(),
                };
                let at = address(&self.storage, planned, *value, k);
                let _ = write!(details, "\n  {kind} {i}: {}{}, {} bytes at {at}, {is}", v.dtype, v.shape, v.bytes());
            }
        }
        let (offset, bytes) = planned.workspace[at];
        if bytes > 0
            && let Ok(address) = self.storage.address(Area::Transient, offset)
        {
            let _ = write!(details, "\n  workspace: {bytes} bytes at {address:#x}");
        }
        let place = format!("{} of program `{}`", planned.node_name(at), planned.name);
        self.explainer.explain_at(&place, &details, error)
    }
}

fn address(storage: &Storage, program: &Program, value: ValueId, k: usize) -> String {
    debug_assert!(k < SLOTS);
    let place = program.places[value.index()];
    let slot = if place.region == Region::Slot { k } else { 0 };
    storage.address(Area::of(place.region, slot), place.offset).map_or_else(|e| e.to_string(), |a| format!("{a:#x}"))
}

/// A step for people.
fn work(step: &Step) -> String {
    let sides = |[x, y, z]: [u32; 3]| format!("{x} x {y} x {z}");
    match step {
        Step::Kernel(Kernel { module, name, grid, block, shared_bytes, .. }) => format!(
            "kernel `{name}` of kernels/cuda/{}.cu: {} blocks of {} threads, {shared_bytes} bytes of dynamic shared memory",
            module.name(),
            sides(*grid),
            sides(*block)
        ),
        Step::Matmul(step) => format!("cuBLASLt: {:?}", step.matmul),
        Step::Convolution(step) => format!("cuDNN: {:?}", step.convolution),
        Step::Exchange(Exchange { sends, receives }) => {
            let bytes = |list: &[Message]| list.iter().map(|message| message.bytes).sum::<usize>();
            format!(
                "NCCL: {} bytes sent in {} messages, {} received in {}",
                bytes(sends),
                sends.len(),
                bytes(receives),
                receives.len()
            )
        }
        Step::Zero { bytes, .. } => format!("{bytes} bytes set to zero"),
        Step::Copy { bytes, .. } => format!("{bytes} bytes copied"),
    }
}
