//! Planned programs on a GPU: one block of memory, three streams, and each program captured once for every batch slot.
//!
//! A batch goes from its page-locked host buffer to one of [`SLOTS`] slots on the device, on a stream of its own, while
//! the step before is computed; an event tells the computing stream when it is there, and another tells the copying stream
//! when the slot may be written again. Nothing waits for the device but what asks for results.

mod trace;

use super::driver::Context;
use super::launch::{Lowered, Target};
use super::launcher::Bindings;
use super::losses::{self, Losses};
use super::lower::{has_kernel, lower};
use super::memory::DeviceBlock;
use super::modules::Modules;
use super::ready::{Bases, Ready, Resolver, Tables, table_bytes};
use super::stream::{Event, GraphExec, Stream};
use crate::backend::{Demand, Detail, Executable, HostBuffer, MemoryUse, Span};
use crate::graph::{DType, NodeId, ValueId, VarId};
use crate::plan::{Plan, Region, align};
use anyhow::{Context as _, Result, ensure};
use half::{bf16, f16};
use std::collections::HashMap;
use std::sync::Arc;

/// Batch slots on the device: one is computed on while the other is filled.
pub const SLOTS: usize = 2;

/// How programs are run.
#[derive(Debug, Clone)]
pub struct Options {
    /// What lowering must know.
    pub target: Target,
    /// Capture programs into graphs and replay those.
    pub graph: bool,
    /// Through what kernels are loaded and launched.
    pub bindings: Bindings,
}

/// A program, for each slot: the work of every node.
struct Compiled {
    // Dropped first: kernels in them may be those of a library's plan, which the work has.
    graphs: [Option<GraphExec>; SLOTS],
    slots: [Vec<Vec<Ready>>; SLOTS],
    /// The node behind which the loss is noted, if the program trains.
    loss_node: Option<usize>,
    /// The launch that notes it; the loss is a temporary, so the same for all slots.
    watch: Option<Ready>,
}

/// A slot on the device.
struct Slot {
    offset: usize,
    /// The batch is there.
    filled: Event,
    /// It has been computed on.
    used: Event,
}

/// Programs ready to run on a GPU.
pub struct CudaExecutable {
    plan: Arc<Plan>,
    slots: [Slot; SLOTS],
    turn: usize,
    /// For each host slot, the event of its last copy.
    copied: HashMap<usize, Event>,
    losses: Losses,
    /// Losses that had to be fetched before they were asked for.
    early: Vec<f32>,
    compute: Stream,
    copy: Stream,
    // Freed after the streams, which wait for their work when they are dropped.
    programs: Vec<Compiled>,
    options: Options,
    arena: DeviceBlock,
    layout: ArenaLayout,
    _modules: Modules,
}

/// Where things are in the one block of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaLayout {
    transient: usize,
    slots: usize,
    slot_bytes: usize,
    losses: usize,
    tables: usize,
    /// All of it.
    pub bytes: usize,
}

impl ArenaLayout {
    /// For `plan` with its programs lowered.
    fn new(plan: &Plan, lowered: &[Vec<Option<Lowered>>]) -> ArenaLayout {
        let tables = SLOTS * lowered.iter().flatten().flatten().map(table_bytes).sum::<usize>();
        // What a kernel may load sixteen bytes at a time begins at such a boundary: every place is a multiple of 64.
        let transient = align(plan.persistent_bytes);
        let slots = transient + align(plan.transient_bytes);
        let slot_bytes = align(plan.slot.bytes);
        let losses = slots + SLOTS * slot_bytes;
        let tables_at = losses + align(losses::BYTES);
        ArenaLayout { transient, slots, slot_bytes, losses, tables: tables_at, bytes: tables_at + tables }
    }
}

/// The programs of `plan`, node by node.
fn lower_all(plan: &Plan, target: &Target) -> Vec<Vec<Option<Lowered>>> {
    let program = |p: &crate::plan::Program| p.graph.nodes.iter().map(|n| lower(&p.graph, n, target)).collect();
    plan.programs.iter().map(program).collect()
}

/// What an executable of `plan` allocates.
pub fn demand(plan: &Plan, target: &Target) -> Demand {
    let layout = ArenaLayout::new(plan, &lower_all(plan, target));
    Demand { batches: SLOTS * layout.slot_bytes, total: layout.bytes }
}

/// Lets the libraries do everything once, for they load kernels when they first need them, which a capture does not allow.
/// Nothing lies in the memory yet: what they read is of no meaning, and what they write is cleared or written again.
fn warm_up(compute: &Stream, programs: &[Compiled]) -> Result<()> {
    // Slots differ only in where their batches are.
    for ready in programs.iter().flat_map(|p| p.slots[0].iter().flatten()) {
        if let Ready::Library(call) = ready {
            // SAFETY: the context is current; all addresses lie in the arena, which outlives the stream's work.
            unsafe { call.enqueue(compute)? };
        }
    }
    Ok(())
}

impl CudaExecutable {
    /// Allocates the memory of `plan`, and lowers its programs.
    ///
    /// # Errors
    /// There is not enough memory, or the driver does not take the kernels.
    pub fn new(plan: Arc<Plan>, context: &Arc<Context>, options: Options) -> Result<Self> {
        for node in plan.programs.iter().flat_map(|p| &p.graph.nodes) {
            let name = node.op.rules().name();
            ensure!(has_kernel(&node.op), "internal error: there is no kernel for `{name}` on this device");
        }
        let lowered = lower_all(&plan, &options.target);
        let layout = ArenaLayout::new(&plan, &lowered);
        let arena = DeviceBlock::new(context, layout.bytes)?;
        let mut modules = Modules::new(context, options.bindings.launcher(context)?);
        let (compute, copy) = (modules.stream()?, Stream::new(context)?);
        arena.zero(&compute, layout.losses, align(losses::BYTES))?;
        let losses = Losses::new(context, &mut modules, &arena, layout.losses)?;
        let mut tables = Tables::default();
        let mut programs = Vec::with_capacity(lowered.len());
        for (program, lowered) in plan.programs.iter().zip(&lowered) {
            let mut slots: [Vec<Vec<Ready>>; SLOTS] = Default::default();
            for (k, nodes) in slots.iter_mut().enumerate() {
                let bases = layout.bases(&arena, k);
                let tables_at = arena.address() + layout.tables as u64;
                let mut resolver = Resolver {
                    program,
                    bases,
                    tables_at,
                    tables: &mut tables,
                    modules: &mut modules,
                    libraries: &options.target.libraries,
                };
                for (at, lowered) in lowered.iter().enumerate() {
                    let node = lowered.as_ref().map_or(Ok(Vec::new()), |l| resolver.node(at, l));
                    nodes.push(node.with_context(|| format!("program `{}`", program.name))?);
                }
            }
            let loss = program.training_loss;
            let loss_node = loss.and_then(|loss| program.graph.nodes.iter().position(|n| n.outputs.contains(&loss)));
            let watch = loss.map(|loss| losses.watch(layout.bases(&arena, 0).address(program, loss)));
            programs.push(Compiled { slots, graphs: Default::default(), loss_node, watch });
        }
        warm_up(&compute, &programs)?;
        arena.zero(&compute, 0, layout.transient)?;
        // SAFETY: the tables outlive the wait below.
        unsafe { arena.write(&compute, layout.tables, &tables.bytes)? };
        compute.synchronize()?;
        let slot = |k: usize| -> Result<Slot> {
            let offset = layout.slots + k * layout.slot_bytes;
            Ok(Slot { offset, filled: Event::new(context, false)?, used: Event::new(context, false)? })
        };
        Ok(CudaExecutable {
            slots: [slot(0)?, slot(1)?],
            plan,
            options,
            programs,
            turn: 0,
            copied: HashMap::new(),
            losses,
            early: Vec::new(),
            compute,
            copy,
            arena,
            layout,
            _modules: modules,
        })
    }

    /// Enqueues the copy of `batch` to the next slot of the device, and what orders it; the slot's number. `mark` is called
    /// with the copying stream right before and right behind the copy.
    fn stage(&mut self, batch: &HostBuffer, mut mark: impl FnMut(&Stream) -> Result<()>) -> Result<usize> {
        let bytes = self.plan.slot.bytes;
        ensure!(batch.bytes().len() >= bytes, "a batch of {} bytes for slots of {bytes}", batch.bytes().len());
        let k = self.turn;
        self.turn = (self.turn + 1) % SLOTS;
        let Slot { offset, filled, used } = &self.slots[k];
        self.copy.wait(used)?;
        mark(&self.copy)?;
        // SAFETY: every caller sees to it that the batch stays as it is until it has been copied.
        unsafe { self.arena.write(&self.copy, *offset, &batch.bytes()[..bytes])? };
        mark(&self.copy)?;
        filled.record(&self.copy)?;
        self.compute.wait(filled)?;
        Ok(k)
    }

    /// Enqueues the nodes of a program, one after the other, calling `after(node)` behind each.
    fn enqueue(
        compute: &Stream,
        compiled: &Compiled,
        k: usize,
        mut after: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        for (at, node) in compiled.slots[k].iter().enumerate() {
            for ready in node {
                // SAFETY: all addresses lie in the arena, which lives until the streams have been waited for.
                unsafe { ready.enqueue(compute)? };
            }
            if compiled.loss_node == Some(at)
                && let Some(watch) = &compiled.watch
            {
                // SAFETY: as above.
                unsafe { watch.enqueue(compute)? };
            }
            after(at)?;
        }
        Ok(())
    }

    /// Enqueues a program as a whole.
    fn launch(&mut self, program: usize, k: usize) -> Result<()> {
        let compiled = &mut self.programs[program];
        if !self.options.graph {
            return Self::enqueue(&self.compute, compiled, k, |_| Ok(()));
        }
        if compiled.graphs[k].is_none() {
            let graph = self.compute.capture(|| Self::enqueue(&self.compute, compiled, k, |_| Ok(())))?;
            compiled.graphs[k] = Some(graph);
        }
        match &compiled.graphs[k] {
            Some(graph) => Ok(self.compute.launch(graph)?),
            None => Ok(()),
        }
    }

    /// Runs the nodes one by one, calling `after(node, self)` behind each until it answers `false`.
    fn run_apart(
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
            for ready in &self.programs[program].slots[k][at] {
                // SAFETY: as in `enqueue`.
                unsafe { ready.enqueue(&self.compute)? };
            }
            if !after(at, self)? {
                break;
            }
        }
        self.slots[k].used.record(&self.compute)?;
        Ok(())
    }

    fn program(&self, program: usize) -> Result<&Compiled> {
        self.programs.get(program).context("there is no such program")
    }

    fn variable(&self, var: VarId, bytes: usize) -> Result<usize> {
        let v = &self.plan.variables[var];
        ensure!(bytes == v.bytes(), "variable `{}` has {} bytes, not {bytes}", v.name, v.bytes());
        self.part(var, 0, bytes)
    }

    /// The place of bytes of a variable from its byte `at` on.
    fn part(&self, var: VarId, at: usize, bytes: usize) -> Result<usize> {
        let v = &self.plan.variables[var];
        ensure!(
            at.checked_add(bytes).is_some_and(|end| end <= v.bytes()),
            "variable `{}` has {} bytes, not {bytes} from {at} on",
            v.name,
            v.bytes()
        );
        Ok(self.plan.variable_offsets[var.0 as usize] + at)
    }

    /// Reads bytes of the arena, after everything enqueued before.
    fn read(&mut self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.compute.context().bind()?;
        // SAFETY: we wait before anybody looks at the bytes.
        unsafe { self.arena.read(&self.compute, offset, bytes)? };
        Ok(self.compute.synchronize()?)
    }

    /// True if every number of a float value is finite.
    fn is_finite(&mut self, program: usize, value: ValueId) -> Result<bool> {
        let v = self.plan.programs[program].graph.value(value);
        let dtype = v.dtype;
        if !dtype.is_activation() {
            return Ok(true);
        }
        let mut bytes = vec![0; v.bytes()];
        self.output(program, value, &mut bytes)?;
        Ok(match dtype {
            DType::BF16 => bytes.as_chunks().0.iter().all(|b| bf16::from_ne_bytes(*b).is_finite()),
            DType::F16 => bytes.as_chunks().0.iter().all(|b| f16::from_ne_bytes(*b).is_finite()),
            _ => bytes.as_chunks().0.iter().all(|b| f32::from_ne_bytes(*b).is_finite()),
        })
    }
}

impl ArenaLayout {
    fn bases(&self, arena: &DeviceBlock, slot: usize) -> Bases {
        let at = |offset: usize| arena.address() + offset as u64;
        Bases { persistent: at(0), slot: at(self.slots + slot * self.slot_bytes), transient: at(self.transient) }
    }
}

impl Executable for CudaExecutable {
    fn upload(&mut self, var: VarId, bytes: &[u8]) -> Result<()> {
        let offset = self.variable(var, bytes.len())?;
        self.compute.context().bind()?;
        // SAFETY: we wait before the caller has the bytes back.
        unsafe { self.arena.write(&self.compute, offset, bytes)? };
        Ok(self.compute.synchronize()?)
    }

    fn download(&mut self, var: VarId, bytes: &mut [u8]) -> Result<()> {
        let offset = self.variable(var, bytes.len())?;
        self.read(offset, bytes)
    }

    fn upload_part(&mut self, var: VarId, at: usize, bytes: &[u8]) -> Result<()> {
        let offset = self.part(var, at, bytes.len())?;
        self.compute.context().bind()?;
        // SAFETY: we wait before the caller has the bytes back.
        unsafe { self.arena.write(&self.compute, offset, bytes)? };
        Ok(self.compute.synchronize()?)
    }

    fn download_part(&mut self, var: VarId, at: usize, bytes: &mut [u8]) -> Result<()> {
        let offset = self.part(var, at, bytes.len())?;
        self.read(offset, bytes)
    }

    fn run(&mut self, program: usize, slot: usize, batch: &HostBuffer) -> Result<()> {
        self.compute.context().bind()?;
        let watched = self.program(program)?.watch.is_some();
        if watched {
            self.losses.before_step(&self.arena, &self.compute, &mut self.early)?;
        }
        // The caller leaves the batch as it is until `wait_slot`.
        let k = self.stage(batch, |_| Ok(()))?;
        if !self.copied.contains_key(&slot) {
            self.copied.insert(slot, Event::new(self.copy.context(), false)?);
        }
        self.copied[&slot].record(&self.copy)?;
        self.launch(program, k)?;
        self.slots[k].used.record(&self.compute)?;
        if watched {
            self.losses.after_step(&self.arena, &self.slots[k].used)?;
        }
        Ok(())
    }

    fn wait_slot(&mut self, slot: usize) -> Result<()> {
        match self.copied.get(&slot) {
            Some(event) => Ok(event.synchronize()?),
            None => Ok(()),
        }
    }

    fn losses(&mut self, wait: bool, into: &mut Vec<f32>) -> Result<()> {
        into.append(&mut self.early);
        Ok(self.losses.take(&self.arena, &self.compute, wait, into)?)
    }

    fn output(&mut self, program: usize, value: ValueId, bytes: &mut [u8]) -> Result<()> {
        let planned = self.plan.programs.get(program).context("there is no such program")?;
        let size = planned.graph.value(value).bytes();
        ensure!(bytes.len() == size, "output {} has {size} bytes, not {}", value.0, bytes.len());
        let place = planned.places[value.index()];
        let base = match place.region {
            Region::Persistent => 0,
            Region::Transient => self.layout.transient,
            Region::Slot => anyhow::bail!("value {} is an input of the batch, not an output", value.0),
        };
        self.read(base + place.offset, bytes)
    }

    fn find_not_finite(&mut self, program: usize, batch: &HostBuffer) -> Result<Option<NodeId>> {
        let plan = self.plan.clone();
        let mut found = None;
        self.run_apart(program, batch, |node, this| {
            for value in &plan.programs[program].graph.nodes[node].outputs {
                if !this.is_finite(program, *value)? {
                    found = Some(NodeId(node as u32));
                }
            }
            Ok(found.is_none())
        })?;
        Ok(found)
    }

    fn trace(&mut self, programs: &[usize], batch: &HostBuffer, steps: usize, detail: Detail) -> Result<Vec<Span>> {
        self.trace_steps(programs, batch, steps, detail)
    }

    fn peak_bytes(&self) -> usize {
        self.layout.bytes - SLOTS * self.layout.slot_bytes
    }

    fn memory_use(&self) -> Option<MemoryUse> {
        let ArenaLayout { transient, slots, bytes, .. } = self.layout;
        // What is between them holds something only while a step runs.
        Some(MemoryUse { allocated: bytes - (slots - transient), reserved: bytes, peak: bytes })
    }
}
