//! Planned programs on a GPU: their memory, their streams, and a CUDA graph of each program for every batch slot.
//!
//! The copy stream brings a batch from its page-locked host buffer to one of [`SLOTS`] slots on the device, while the compute
//! stream runs the step before. The compute stream waits for an event of the slot that the batch is there, the copy stream for
//! another that the slot may be overwritten. The host waits only where results are asked for.

mod beside;
mod losses;
mod nodes;
mod resolver;
mod storage;
mod trace;

use super::driver::Context;
use super::driver::stream::{Event, GraphExec, Stream};
use super::failure::Explainer;
use super::modules::Modules;
use super::nvidia::Libraries;
use super::nvidia::nccl::Link;
use super::ready::{Ready, Tables, table_bytes};
use super::settings::Bindings;
use crate::backend::gpu::fusions::FUSIONS;
use crate::backend::gpu::launch::Lowered;
use crate::backend::gpu::lower::lower;
use crate::backend::gpu::target::Target;
use crate::backend::{Demand, Detail, DeviceUse, Executable, HostBuffer, MemoryUse, Span};
use crate::graph::op::Pattern;
use crate::graph::{DType, NodeId, Op, ValueId, VarId};
use crate::plan::{Plan, Region};
use anyhow::{Context as _, Result, ensure};
pub use beside::goes_beside;
use beside::{Beside, Part};
use half::{bf16, f16};
use losses::Losses;
use resolver::Resolver;
use std::collections::HashMap;
use std::sync::Arc;
use storage::{Area, Layout, SLOTS, Storage};

/// How programs are run.
#[derive(Debug, Clone)]
pub struct Options {
    /// What lowering must know.
    pub target: Target,
    /// What computes the steps that are a library's.
    pub libraries: Arc<Libraries>,
    /// The other ranks, if there are some.
    pub link: Option<Arc<Link>>,
    /// Capture programs into graphs and replay those.
    pub graph: bool,
    /// Through what kernels are loaded and launched.
    pub bindings: Bindings,
}

/// A program, for each slot: the work of every node.
struct Compiled {
    // Dropped first: their kernels may belong to a library's plan, which the work keeps alive.
    // First as it is, then where sums over ranks begin ahead, or have begun.
    graphs: [[Option<GraphExec>; SLOTS]; 2],
    slots: [Vec<Vec<Ready>>; SLOTS],
    /// What it has to do with sums over ranks that begin ahead.
    part: Part,
    /// The node after which the loss is recorded, if the program trains.
    loss_node: Option<usize>,
    /// The launch that records it. The loss is a temporary, so its address is the same for all slots.
    watch: Option<Ready>,
}

/// The events of a slot on the device.
struct Slot {
    /// The batch has been copied.
    filled: Event,
    /// The step has read it.
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
    /// For sums over ranks, if there are other ranks.
    beside: Option<Beside>,
    /// Sums have begun ahead, and no program has ended them.
    begun: bool,
    // Freed after the streams, which wait for their work when they are dropped.
    programs: Vec<Compiled>,
    options: Options,
    explainer: Explainer,
    storage: Storage,
    layout: Layout,
    _modules: Modules,
}

/// The programs of `plan`, node by node.
fn lower_all(plan: &Plan, target: &Target) -> Vec<Vec<Option<Lowered>>> {
    let program = |p: &crate::plan::Program| p.graph.nodes.iter().map(|n| lower(&p.graph, n, target)).collect();
    plan.programs.iter().map(program).collect()
}

/// How large the memory of `plan` is, with its programs lowered.
fn layout(plan: &Plan, lowered: &[Vec<Option<Lowered>>]) -> Layout {
    Layout::new(plan, SLOTS * lowered.iter().flatten().flatten().map(table_bytes).sum::<usize>())
}

/// What an executable of `plan` allocates.
pub fn demand(plan: &Plan, target: &Target) -> Demand {
    let layout = layout(plan, &lower_all(plan, target));
    Demand { batches: SLOTS * layout.slot, total: layout.bytes }
}

impl CudaExecutable {
    /// Lowers the programs of `plan`, allocates its memory and loads its kernels.
    ///
    /// # Errors
    /// There is not enough memory, or the driver does not take the kernels.
    pub fn new(plan: Arc<Plan>, context: &Arc<Context>, options: Options, explainer: Explainer) -> Result<Self> {
        for graph in plan.programs.iter().map(|p| &p.graph) {
            for node in &graph.nodes {
                let operands = node.inputs.iter().map(|v| graph.value(*v)).collect();
                // The update of a part of the tensors has no kernel: one launch updates all of them.
                let whole = !matches!(&node.op, Op::OptimizerStep(op) if !op.counts);
                let known = whole && Pattern::any_takes(&FUSIONS, &node.op, operands);
                ensure!(known, "internal error: there is no kernel for `{}` on this device", node.op.label());
            }
        }
        let lowered = lower_all(&plan, &options.target);
        // A library that had no memory to start with may have more the next time: the plan would be another then.
        options.libraries.check()?;
        let layout = layout(&plan, &lowered);
        let storage = Storage::new(context, &plan, &layout)?;
        let mut modules = Modules::new(context, options.bindings)?;
        let (compute, copy) = (modules.stream()?, Stream::new(context)?);
        let beside = options.link.as_ref().map(|_| Beside::new(&modules, &compute)).transpose()?;
        storage.zero(&compute, Area::Losses)?;
        let (block, at) = storage.locate(Area::Losses, 0)?;
        let losses = Losses::new(context, &mut modules, block, at)?;
        let mut tables = Tables::new(storage.address(Area::Tables, 0)?);
        let mut programs = Vec::with_capacity(lowered.len());
        for (program, lowered) in plan.programs.iter().zip(&lowered) {
            let mut slots: [Vec<Vec<Ready>>; SLOTS] = Default::default();
            for (k, nodes) in slots.iter_mut().enumerate() {
                let mut resolver = Resolver {
                    program,
                    storage: &storage,
                    slot: k,
                    tables: &mut tables,
                    modules: &mut modules,
                    libraries: &options.libraries,
                    link: options.link.as_ref(),
                };
                for (at, lowered) in lowered.iter().enumerate() {
                    let node = lowered.as_ref().map_or(Ok(Vec::new()), |l| resolver.node(at, l));
                    nodes.push(node.with_context(|| format!("program `{}`", program.name))?);
                }
            }
            let loss = program.training_loss;
            let loss_node = loss.and_then(|loss| program.graph.nodes.iter().position(|n| n.outputs.contains(&loss)));
            // The loss is a temporary, which lies in the same place for all slots.
            let place = loss.map(|loss| program.places[loss.index()]);
            let address = place.map(|place| storage.address(Area::of(place.region, 0), place.offset)).transpose()?;
            let watch = address.map(|address| losses.watch(address));
            // A rank alone has no sums to wait for.
            let part = if beside.is_some() { Part::of_all(&program.graph) } else { Part::None };
            programs.push(Compiled { slots, graphs: Default::default(), part, loss_node, watch });
        }
        let slot =
            || -> Result<Slot> { Ok(Slot { filled: Event::new(context, false)?, used: Event::new(context, false)? }) };
        let this = CudaExecutable {
            slots: [slot()?, slot()?],
            plan,
            options,
            explainer,
            programs,
            turn: 0,
            copied: HashMap::new(),
            losses,
            early: Vec::new(),
            compute,
            copy,
            beside,
            begun: false,
            storage,
            layout,
            _modules: modules,
        };
        this.warm_up()?;
        this.storage.zero(&this.compute, Area::Persistent)?;
        let (block, at) = this.storage.locate(Area::Tables, 0)?;
        // SAFETY: the tables outlive the wait below.
        unsafe { block.write(&this.compute, at, &tables.bytes)? };
        this.compute.synchronize()?;
        Ok(this)
    }

    /// Enqueues the copy of `batch` to the next slot of the device, with the events that order it; the slot's number. `mark`
    /// is called with the copy stream right before and right after the copy.
    fn stage(&mut self, batch: &HostBuffer, mut mark: impl FnMut(&Stream) -> Result<()>) -> Result<usize> {
        let bytes = self.plan.slot.bytes;
        ensure!(batch.bytes().len() >= bytes, "a batch of {} bytes for slots of {bytes}", batch.bytes().len());
        // It is one batch, or several that a program takes together.
        let bytes = batch.bytes().len().min(self.plan.slot_bytes(self.plan.together));
        let k = self.turn;
        self.turn = (self.turn + 1) % SLOTS;
        let Slot { filled, used } = &self.slots[k];
        self.copy.wait(used)?;
        mark(&self.copy)?;
        for (block, at, range) in self.storage.pieces(Area::Slot(k)) {
            let piece = &batch.bytes()[range.start.min(bytes)..range.end.min(bytes)];
            // SAFETY: every caller sees to it that the batch stays as it is until it has been copied.
            unsafe { block.write(&self.copy, at, piece)? };
        }
        mark(&self.copy)?;
        if self.explainer.sync {
            self.copy.synchronize().context("the copy of a batch")?;
        }
        filled.record(&self.copy)?;
        self.compute.wait(filled)?;
        Ok(k)
    }

    /// Enqueues a program: its CUDA graph, which the first launch captures, or its launches one by one.
    fn launch(&mut self, program: usize, k: usize, ahead: bool) -> Result<()> {
        if !self.options.graph || self.explainer.sync {
            return self.enqueue(program, k, ahead, |_| Ok(()));
        }
        let way = usize::from(ahead);
        if self.programs[program].graphs[way][k].is_none() {
            let graph = self
                .compute
                .capture(|| self.enqueue(program, k, ahead, |_| Ok(())))
                .with_context(|| format!("program `{}`", self.plan.programs[program].name))?;
            self.programs[program].graphs[way][k] = Some(graph);
        }
        match &self.programs[program].graphs[way][k] {
            Some(graph) => Ok(self.compute.launch(graph)?),
            None => Ok(()),
        }
    }

    /// Whether sums over ranks begin ahead in this run of a program, or have begun before it.
    fn goes_ahead(&mut self, program: usize, batch: &HostBuffer) -> Result<bool> {
        Ok(match self.program(program)?.part {
            Part::None => false,
            Part::Begins => {
                self.begun = beside::begins(&self.plan, batch);
                self.begun
            }
            Part::Ends => std::mem::take(&mut self.begun),
        })
    }

    fn program(&self, program: usize) -> Result<&Compiled> {
        self.programs.get(program).context("there is no such program")
    }

    /// Fails unless a variable has so many bytes.
    fn whole(&self, var: VarId, bytes: usize) -> Result<()> {
        let v = &self.plan.variables[var];
        ensure!(bytes == v.bytes_here(), "variable `{}` has {} bytes, not {bytes}", v.name, v.bytes_here());
        Ok(())
    }

    /// The place of bytes of a variable from its byte `at` on.
    fn part(&self, var: VarId, at: usize, bytes: usize) -> Result<usize> {
        let v = &self.plan.variables[var];
        ensure!(
            at.checked_add(bytes).is_some_and(|end| end <= v.bytes_here()),
            "variable `{}` has {} bytes, not {bytes} from {at} on",
            v.name,
            v.bytes_here()
        );
        Ok(self.plan.variable_offsets[var.0 as usize] + at)
    }

    /// Reads memory, after everything enqueued before.
    fn read(&self, area: Area, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.compute.context().bind()?;
        let (block, at) = self.storage.locate(area, offset)?;
        // SAFETY: we wait before the bytes are read.
        unsafe { block.read(&self.compute, at, bytes)? };
        Ok(self.compute.synchronize()?)
    }

    /// Writes a part of a variable, and waits for it.
    fn write_part(&self, var: VarId, at: usize, bytes: &[u8]) -> Result<()> {
        let offset = self.part(var, at, bytes.len())?;
        self.compute.context().bind()?;
        let (block, at) = self.storage.locate(Area::Persistent, offset)?;
        // SAFETY: we wait before the caller has the bytes back.
        unsafe { block.write(&self.compute, at, bytes)? };
        Ok(self.compute.synchronize()?)
    }

    /// Reads a value that is no input of the batch.
    fn read_value(&self, program: usize, value: ValueId, bytes: &mut [u8]) -> Result<()> {
        let planned = self.plan.programs.get(program).context("there is no such program")?;
        let size = planned.graph.value(value).bytes();
        ensure!(bytes.len() == size, "output {} has {size} bytes, not {}", value.0, bytes.len());
        self.read_part(program, value, 0, bytes)
    }

    /// Reads a part of a value that is no input of the batch.
    fn read_part(&self, program: usize, value: ValueId, at: usize, bytes: &mut [u8]) -> Result<()> {
        let planned = self.plan.programs.get(program).context("there is no such program")?;
        let (size, len) = (planned.graph.value(value).bytes(), bytes.len());
        let inside = at.checked_add(len).is_some_and(|end| end <= size);
        ensure!(inside, "output {} has {size} bytes, not {len} from {at} on", value.0);
        let place = planned.places[value.index()];
        ensure!(place.region != Region::Slot, "value {} is an input of the batch, not an output", value.0);
        self.read(Area::of(place.region, 0), place.offset + at, bytes)
    }

    /// Enqueues one run.
    fn run_once(&mut self, program: usize, slot: usize, batch: &HostBuffer) -> Result<()> {
        let link = self.options.link.clone();
        let _held = link.as_deref().map(Link::hold).transpose()?;
        self.compute.context().bind()?;
        let watched = self.program(program)?.watch.is_some();
        let ahead = self.goes_ahead(program, batch)?;
        if watched {
            let (block, _) = self.storage.locate(Area::Losses, 0)?;
            self.losses.before_step(block, &self.compute, &mut self.early)?;
        }
        // The caller leaves the batch as it is until `wait_slot`.
        let k = self.stage(batch, |_| Ok(()))?;
        if !self.copied.contains_key(&slot) {
            self.copied.insert(slot, Event::new(self.copy.context(), false)?);
        }
        self.copied[&slot].record(&self.copy)?;
        self.launch(program, k, ahead)?;
        self.slots[k].used.record(&self.compute)?;
        if watched {
            let (block, _) = self.storage.locate(Area::Losses, 0)?;
            self.losses.after_step(block, &self.slots[k].used)?;
        }
        Ok(())
    }

    fn take_losses(&mut self, wait: bool, into: &mut Vec<f32>) -> Result<()> {
        into.append(&mut self.early);
        let (block, _) = self.storage.locate(Area::Losses, 0)?;
        Ok(self.losses.take(block, &self.compute, wait, into)?)
    }

    /// The first node of a program with a result that is not finite.
    fn first_not_finite(&mut self, program: usize, batch: &HostBuffer) -> Result<Option<NodeId>> {
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

    /// The result with its error as the caller gets it.
    fn explained<T>(&self, result: Result<T>) -> Result<T> {
        // Without another rank what has come is not what was waited for, whatever the driver says.
        if let Some(link) = &self.options.link {
            link.check()?;
            if result.is_err() {
                link.check_ranks()?;
            }
        }
        result.map_err(|e| self.explainer.explain(e))
    }

    /// True if every number of a float value is finite.
    fn is_finite(&mut self, program: usize, value: ValueId) -> Result<bool> {
        let v = self.plan.programs[program].graph.value(value);
        let dtype = v.dtype;
        if !dtype.is_activation() {
            return Ok(true);
        }
        let mut bytes = vec![0; v.bytes()];
        self.read_value(program, value, &mut bytes)?;
        Ok(match dtype {
            DType::BF16 => bytes.as_chunks().0.iter().all(|b| bf16::from_ne_bytes(*b).is_finite()),
            DType::F16 => bytes.as_chunks().0.iter().all(|b| f16::from_ne_bytes(*b).is_finite()),
            _ => bytes.as_chunks().0.iter().all(|b| f32::from_ne_bytes(*b).is_finite()),
        })
    }
}

impl Executable for CudaExecutable {
    fn connect(&mut self) -> Result<()> {
        let connected = self.options.link.as_ref().map_or(Ok(()), |link| link.connect(&self.compute));
        self.explained(connected)
    }

    fn leave(&mut self) -> Result<()> {
        let Some(link) = self.options.link.clone() else { return Ok(()) };
        let done = self.compute.synchronize().map_err(Into::into);
        self.explained(done)?;
        link.leave()
    }

    fn upload(&mut self, var: VarId, bytes: &[u8]) -> Result<()> {
        self.whole(var, bytes.len())?;
        self.explained(self.write_part(var, 0, bytes))
    }

    fn download(&mut self, var: VarId, bytes: &mut [u8]) -> Result<()> {
        self.whole(var, bytes.len())?;
        self.download_part(var, 0, bytes)
    }

    fn upload_part(&mut self, var: VarId, at: usize, bytes: &[u8]) -> Result<()> {
        self.explained(self.write_part(var, at, bytes))
    }

    fn download_part(&mut self, var: VarId, at: usize, bytes: &mut [u8]) -> Result<()> {
        let offset = self.part(var, at, bytes.len())?;
        self.explained(self.read(Area::Persistent, offset, bytes))
    }

    fn run(&mut self, program: usize, slot: usize, batch: &HostBuffer) -> Result<()> {
        let done = self.run_once(program, slot, batch);
        self.explained(done)
    }

    fn wait_slot(&mut self, slot: usize) -> Result<()> {
        match self.copied.get(&slot) {
            Some(event) => self.explained(event.synchronize().map_err(Into::into)),
            None => Ok(()),
        }
    }

    fn losses(&mut self, wait: bool, into: &mut Vec<f32>) -> Result<()> {
        let taken = self.take_losses(wait, into);
        self.explained(taken)
    }

    fn output(&mut self, program: usize, value: ValueId, bytes: &mut [u8]) -> Result<()> {
        self.explained(self.read_value(program, value, bytes))
    }

    fn output_part(&mut self, program: usize, value: ValueId, at: usize, bytes: &mut [u8]) -> Result<()> {
        self.explained(self.read_part(program, value, at, bytes))
    }

    fn find_not_finite(&mut self, program: usize, batch: &HostBuffer) -> Result<Option<NodeId>> {
        let found = self.first_not_finite(program, batch);
        self.explained(found)
    }

    fn trace(&mut self, programs: &[usize], batch: &HostBuffer, steps: usize, detail: Detail) -> Result<Vec<Span>> {
        let traced = self.trace_steps(programs, batch, steps, detail);
        self.explained(traced)
    }

    fn peak_bytes(&self) -> usize {
        self.layout.bytes - SLOTS * self.layout.slot
    }

    fn memory_use(&self) -> Option<MemoryUse> {
        let Layout { transient, bytes, .. } = self.layout;
        // What lives within one run holds something only while a step runs.
        Some(MemoryUse { allocated: bytes - transient, reserved: bytes, peak: bytes })
    }

    fn device_use(&self) -> Result<Option<DeviceUse>> {
        let context = self.compute.context();
        let (free, total) = self.explained(context.memory().map_err(Into::into))?;
        Ok(Some(DeviceUse { total, free, free_at_start: context.free_at_start, planned: self.layout.bytes }))
    }
}
