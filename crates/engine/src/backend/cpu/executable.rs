//! Planned programs with their memory: two blocks of memory, and the caller's batch slots read where they lie.

use super::run::frame::{Bases, Frame, Operand, Step, Touched};
use super::run::memory::zeroed;
use super::run::threads::Pool;
use super::simd::bf16::Instructions;
use crate::backend::{Detail, Executable, HostBuffer, Span, Track, Work};
use crate::collective::{Ahead, Collective};
use crate::graph::{DType, Node, NodeId, Rounds, ValueId, VarId};
use crate::plan::{Place, Plan, Program, Region};
use anyhow::{Context, Result, bail, ensure};
use half::bf16;
use memmap2::MmapMut;
use runner_cpu::lower::lower;
use std::sync::Arc;
use std::time::Instant;

/// A program, ready to run.
struct Compiled {
    /// One for each node; `None` for a node that only renames memory.
    steps: Vec<Option<Step>>,
    /// Which run how often.
    rounds: Vec<Rounds>,
}

/// Programs ready to run on the CPU.
pub struct CpuExecutable {
    plan: Arc<Plan>,
    pool: Pool,
    programs: Vec<Compiled>,
    /// The ranks that compute the same programs. It is dropped before the memory: sums may be under way.
    ahead: Option<Ahead>,
    persistent: MmapMut,
    transient: MmapMut,
    touched: Touched,
    /// The program whose steps have what they keep: the one that ran last, if no variable has been written since. Others may
    /// use the same memory.
    kept_by: Option<usize>,
    /// Losses of training steps that have not been asked for yet.
    losses: Vec<f32>,
}

impl CpuExecutable {
    /// Allocates the memory of `plan` and lowers its programs.
    ///
    /// # Errors
    /// There is not enough memory, or the plan contradicts the operations' rules (a bug of the planner).
    pub fn new(plan: Arc<Plan>, pool: Pool, how: Instructions, team: Option<Arc<dyn Collective>>) -> Result<Self> {
        let programs = plan
            .programs
            .iter()
            .map(|p| compile(&plan, p, how, pool.threads()).with_context(|| format!("program `{}`", p.name)))
            .collect::<Result<_>>()?;
        let persistent = zeroed(plan.persistent_bytes, "parameters and optimizer state")?;
        let transient = zeroed(plan.transient_bytes, "activations and gradients")?;
        Ok(CpuExecutable {
            plan,
            pool,
            programs,
            ahead: team.map(Ahead::new),
            persistent,
            transient,
            touched: Touched::default(),
            kept_by: None,
            losses: Vec::new(),
        })
    }

    fn variable(&self, var: VarId, bytes: usize) -> Result<std::ops::Range<usize>> {
        let v = &self.plan.variables[var];
        ensure!(bytes == v.bytes_here(), "variable `{}` has {} bytes, not {bytes}", v.name, v.bytes_here());
        self.part(var, 0, bytes)
    }

    fn part(&self, var: VarId, at: usize, bytes: usize) -> Result<std::ops::Range<usize>> {
        let v = &self.plan.variables[var];
        ensure!(
            at.checked_add(bytes).is_some_and(|end| end <= v.bytes_here()),
            "variable `{}` has {} bytes, not {bytes} from {at} on",
            v.name,
            v.bytes_here()
        );
        let start = self.plan.variable_offsets[var.0 as usize];
        self.touched.persistent(start + at + bytes);
        Ok(start + at..start + at + bytes)
    }

    fn bases(&mut self, batch: &HostBuffer) -> Result<Bases> {
        let bytes = batch.bytes();
        ensure!(
            bytes.len() >= self.plan.slot.bytes,
            "a batch of {} bytes for slots of {}",
            bytes.len(),
            self.plan.slot.bytes
        );
        Ok(Bases {
            persistent: (self.persistent.as_mut_ptr(), self.plan.persistent_bytes),
            transient: (self.transient.as_mut_ptr(), self.plan.transient_bytes),
            slot: (bytes.as_ptr(), bytes.len()),
        })
    }

    /// Runs `program`, calling `after(node, bases)` after each node until it answers `false`, for each part of the batch that it runs for.
    fn run_with(
        &mut self,
        program: usize,
        batch: &HostBuffer,
        mut after: impl FnMut(usize, &Self, Bases) -> bool,
    ) -> Result<()> {
        let bases = self.bases(batch)?;
        let together = self.plan.programs.get(program).map_or(1, |program| program.together);
        let (bytes, needed) = (batch.bytes().len(), self.plan.slot_bytes(together));
        ensure!(bytes >= needed, "{bytes} bytes for the {needed} of {together} shards");
        let ready = self.kept_by.take() == Some(program);
        let Compiled { steps, rounds } = self.programs.get(program).context("there is no such program")?;
        for Rounds { nodes, parts } in rounds {
            for (part, node) in (0..*parts).flat_map(|part| nodes.clone().map(move |node| (part, node))) {
                if let Some(step) = &steps[node] {
                    // SAFETY: the blocks belong to this executable, which is borrowed exclusively, and to the batch, which
                    // only operands that no step writes lie in; `compile` has checked that operands overlap only as the
                    // operation's rules allow, and that they lie inside the blocks, for all parts.
                    let frame = unsafe { Frame::new(bases, step, &self.pool, &self.touched, ready) };
                    step.kernel.run(&frame.at_part(part).with_team(self.ahead.as_ref()));
                } else if part + 1 < *parts {
                    // What is joined is there when all parts are.
                    continue;
                }
                if !after(node, self, bases) {
                    return Ok(());
                }
            }
        }
        self.kept_by = Some(program);
        self.ahead.as_ref().map_or(Ok(()), |ahead| ahead.team().check())
    }

    /// Keeps the loss of `program`, which has just run, if it trains.
    fn note_loss(&mut self, program: usize) -> Result<()> {
        if let Some(loss) = self.plan.programs[program].training_loss {
            let mut bytes = [0; 4];
            self.output(program, loss, &mut bytes)?;
            self.losses.push(f32::from_ne_bytes(bytes));
        }
        Ok(())
    }

    /// True if every number of a float value is finite.
    fn is_finite(&self, program: usize, value: ValueId, bases: Bases) -> bool {
        let program = &self.plan.programs[program];
        let v = program.graph.value(value);
        if v.dtype != DType::F32 {
            return true;
        }
        let (narrow, len) = (v.narrow, v.shape.len());
        let place = program.places[value.index()];
        let base = match place.region {
            Region::Persistent => bases.persistent.0.cast_const(),
            Region::Transient => bases.transient.0.cast_const(),
            Region::Slot => bases.slot.0,
        };
        // SAFETY: `compile` has checked that the value lies inside its block, aligned; no step is running.
        unsafe {
            let from = base.add(place.offset);
            match narrow {
                true => std::slice::from_raw_parts(from.cast::<bf16>(), len).iter().all(|x| x.is_finite()),
                false => std::slice::from_raw_parts(from.cast::<f32>(), len).iter().all(|x| x.is_finite()),
            }
        }
    }
}

impl Executable for CpuExecutable {
    fn upload(&mut self, var: VarId, bytes: &[u8]) -> Result<()> {
        let range = self.variable(var, bytes.len())?;
        self.kept_by = None;
        self.persistent[range].copy_from_slice(bytes);
        Ok(())
    }

    fn download(&mut self, var: VarId, bytes: &mut [u8]) -> Result<()> {
        let range = self.variable(var, bytes.len())?;
        bytes.copy_from_slice(&self.persistent[range]);
        Ok(())
    }

    fn upload_part(&mut self, var: VarId, at: usize, bytes: &[u8]) -> Result<()> {
        let range = self.part(var, at, bytes.len())?;
        self.kept_by = None;
        self.persistent[range].copy_from_slice(bytes);
        Ok(())
    }

    fn download_part(&mut self, var: VarId, at: usize, bytes: &mut [u8]) -> Result<()> {
        let range = self.part(var, at, bytes.len())?;
        bytes.copy_from_slice(&self.persistent[range]);
        Ok(())
    }

    fn run(&mut self, program: usize, _slot: usize, batch: &HostBuffer) -> Result<()> {
        self.run_with(program, batch, |_, _, _| true)?;
        self.note_loss(program)
    }

    fn losses(&mut self, _wait: bool, into: &mut Vec<f32>) -> Result<()> {
        into.append(&mut self.losses);
        Ok(())
    }

    /// Nothing to wait for: [`Executable::run`] returns when the program is done.
    fn wait_slot(&mut self, _slot: usize) -> Result<()> {
        Ok(())
    }

    fn output(&mut self, program: usize, value: ValueId, bytes: &mut [u8]) -> Result<()> {
        let planned = self.plan.programs.get(program).context("there is no such program")?;
        let size = planned.graph.value(value).bytes();
        ensure!(bytes.len() == size, "output {} has {size} bytes, not {}", value.0, bytes.len());
        self.output_part(program, value, 0, bytes)
    }

    fn output_part(&mut self, program: usize, value: ValueId, at: usize, bytes: &mut [u8]) -> Result<()> {
        let program = self.plan.programs.get(program).context("there is no such program")?;
        let (size, len) = (program.graph.value(value).bytes(), bytes.len());
        let inside = at.checked_add(len).is_some_and(|end| end <= size);
        ensure!(inside, "output {} has {size} bytes, not {len} from {at} on", value.0);
        let Place { region, offset } = program.places[value.index()];
        let block = match region {
            Region::Persistent => &self.persistent[..],
            Region::Transient => &self.transient[..],
            Region::Slot => anyhow::bail!("value {} is an input of the batch, not an output", value.0),
        };
        bytes.copy_from_slice(&block[offset + at..offset + at + len]);
        Ok(())
    }

    fn find_not_finite(&mut self, program: usize, batch: &HostBuffer) -> Result<Option<NodeId>> {
        let plan = self.plan.clone();
        // The program writes what may be read for sums that are under way.
        self.ahead.iter().for_each(Ahead::end_all);
        let mut found = None;
        self.run_with(program, batch, |node, this, bases| {
            let outputs = &plan.programs[program].graph.nodes[node].outputs;
            if !outputs.iter().all(|v| this.is_finite(program, *v, bases)) {
                found = Some(NodeId(node as u32));
            }
            found.is_none()
        })?;
        Ok(found)
    }

    fn trace(&mut self, programs: &[usize], batch: &HostBuffer, steps: usize, detail: Detail) -> Result<Vec<Span>> {
        let origin = Instant::now();
        let mut spans = Vec::new();
        for step in 0..steps {
            for &program in programs {
                let mut span = |work, start: Instant, end: Instant| {
                    let [start, end] = [start, end].map(|t| (t - origin).as_secs_f64());
                    spans.push(Span { step, program, track: Track::Compute, work, start, end });
                };
                let begun = Instant::now();
                let mut last = begun;
                self.run_with(program, batch, |node, _, _| {
                    if detail == Detail::Nodes {
                        let now = Instant::now();
                        span(Work::Node(NodeId(node as u32)), last, now);
                        last = now;
                    }
                    true
                })?;
                if detail == Detail::Programs {
                    span(Work::Program, begun, Instant::now());
                }
                self.note_loss(program)?;
            }
        }
        Ok(spans)
    }

    fn peak_bytes(&self) -> usize {
        self.touched.total()
    }
}

/// Lowers the nodes of a program and puts the places of their operands beside the kernels.
fn compile(plan: &Plan, program: &Program, how: Instructions, threads: usize) -> Result<Compiled> {
    let graph = &program.graph;
    let mut steps = Vec::with_capacity(graph.nodes.len());
    if let Some(v) = graph.values.iter().find(|v| v.dtype.is_half()) {
        bail!("the program has values of type {}, but the CPU computes in f32 only", v.dtype);
    }
    let parts = graph.parts();
    let operand = |value: &ValueId| operand(program, *value, parts[value.index()]);
    for (at, node) in graph.nodes.iter().enumerate() {
        let step = match lower(graph, node, how, threads) {
            None => {
                let (from, to) = (node.inputs[0], node.outputs[0]);
                ensure!(
                    program.places[from.index()] == program.places[to.index()],
                    "node {at} only renames memory, but its output has a place of its own"
                );
                None
            }
            Some(kernel) => {
                let (scratch, kept) = (program.workspace[at], program.kept[at]);
                let needs = kernel.kept().filter(|_| kept.1 > 0);
                let [bytes, to_keep] = needs.map_or([kernel.scratch_bytes(), 0], |k| [k.workspace, k.bytes]);
                ensure!(
                    scratch.1 >= bytes && kept.1 == to_keep,
                    "node {at} needs {bytes} bytes of workspace and keeps {to_keep}, but the plan has {} and {}",
                    scratch.1,
                    kept.1
                );
                let mut step = Step {
                    kernel,
                    inputs: node.inputs.iter().map(operand).collect(),
                    outputs: node.outputs.iter().map(operand).collect(),
                    scratch,
                    kept,
                };
                check(plan, node, &mut step).with_context(|| format!("node {at} (`{}`)", node.op.rules().name()))?;
                Some(step)
            }
        };
        steps.push(step);
    }
    Ok(Compiled { steps, rounds: graph.rounds() })
}

fn operand(program: &Program, value: ValueId, parts: usize) -> Operand {
    let v = program.graph.value(value);
    let Place { region, offset } = program.places[value.index()];
    Operand { region, offset, len: v.shape.len(), dtype: v.stored(), parts, written: false }
}

/// Marks the operands that the step writes, and makes sure that what it writes overlaps nothing else but where the
/// operation's rules allow it.
fn check(plan: &Plan, node: &Node, step: &mut Step) -> Result<()> {
    let rules = node.op.rules();
    let own =
        |(offset, len)| Operand { region: Region::Transient, offset, len, dtype: DType::U8, parts: 1, written: true };
    let (scratch, kept) = (own(step.scratch), own(step.kept));
    ensure!(!scratch.overlaps(&kept), "the workspace lies in what is kept");
    for o in step.inputs.iter().chain(&step.outputs).chain([&scratch, &kept]) {
        let size = match o.region {
            Region::Persistent => plan.persistent_bytes,
            Region::Transient => plan.transient_bytes,
            Region::Slot => plan.slot_bytes(plan.together),
        };
        let moved = if o.parts > 1 { o.bytes() } else { 0 };
        ensure!(
            o.offset % crate::plan::ALIGN == 0 && moved % crate::plan::ALIGN == 0,
            "an operand lies at {} + {moved} · n, which is not aligned",
            o.offset
        );
        ensure!(o.end() <= size, "an operand ends at {} of {size} bytes", o.end());
        let is_own = std::ptr::eq(o, &scratch) || std::ptr::eq(o, &kept);
        ensure!(is_own || !o.overlaps(&scratch) && !o.overlaps(&kept), "an operand lies in the workspace");
    }
    let in_place = rules.in_place();
    for (i, o) in step.outputs.iter().enumerate() {
        ensure!(o.region != Region::Slot, "output {i} lies in the batch slot");
        ensure!(!step.outputs[..i].iter().any(|p| p.overlaps(o)), "output {i} overlaps another output");
        // The same value may be an operand twice (`x · x`); then both may be taken over.
        let over = in_place
            .filter(|_| i == 0)
            .map(|k| step.inputs[k])
            .filter(|k| (k.region, k.offset, k.bytes()) == (o.region, o.offset, o.bytes()));
        for (k, x) in step.inputs.iter_mut().enumerate() {
            if x.overlaps(o) {
                let same = over.is_some_and(|v| v.offset == x.offset && v.bytes() == x.bytes());
                ensure!(same, "output {i} overlaps operand {k}");
                x.written = true;
            }
        }
    }
    let mut updated = vec![false; step.inputs.len()];
    for m in rules.mutates(node.inputs.len()) {
        let o = step.inputs[m];
        ensure!(o.region == Region::Persistent, "operand {m} is updated, but is no variable");
        ensure!(!step.outputs.iter().any(|x| x.overlaps(&o)), "operand {m} is updated and read");
        updated[m] = true;
    }
    ensure_apart(&step.inputs, &updated)?;
    step.inputs.iter_mut().zip(updated).for_each(|(o, updated)| o.written |= updated);
    Ok(())
}

/// Makes sure that nothing overlaps an operand that is updated. An update of all parameters has very many operands: they
/// are gone through once, in the order in which they lie.
fn ensure_apart(operands: &[Operand], updated: &[bool]) -> Result<()> {
    let mut order: Vec<usize> = (0..operands.len()).filter(|i| operands[*i].bytes() > 0).collect();
    order.sort_by_key(|i| (operands[*i].region as u8, operands[*i].offset));
    // How far the operands before reach, and how far those of them that are updated.
    let (mut end, mut end_of_updated) = (0, 0);
    let mut region = None;
    for i in order {
        let o = operands[i];
        if region.replace(o.region) != Some(o.region) {
            (end, end_of_updated) = (0, 0);
        }
        let reaches = if updated[i] { end } else { end_of_updated };
        ensure!(o.offset >= reaches, "operand {i}, or one that it overlaps, is updated and read");
        end = end.max(o.offset + o.bytes());
        if updated[i] {
            end_of_updated = end_of_updated.max(o.offset + o.bytes());
        }
    }
    Ok(())
}
