//! Steps whose shards are computed together: they are gathered in one buffer, as they come.

use super::{Session, StepInputs};
use crate::backend::{Backend, Detail, HostBuffer, Span};
use crate::graph::Input;
use crate::model::BatchShape;
use crate::plan::{Plan, SlotInput};
use crate::train::setup::programs::Kind;
use anyhow::{Context, Result};

/// The shards of a step so far.
pub(super) struct Gathered {
    /// For all shards of this rank. A rank that never has more than one needs none: its batch is the step.
    buffer: Option<HostBuffer>,
    shards: usize,
    samples: usize,
}

impl Gathered {
    /// None yet.
    ///
    /// # Errors
    /// There is no memory.
    pub(super) fn new(plan: &Plan, backend: &dyn Backend) -> Result<Gathered> {
        let buffer = (plan.together > 1).then(|| backend.host_buffer(plan.slot_bytes(plan.together))).transpose()?;
        Ok(Gathered { buffer, shards: 0, samples: 0 })
    }

    fn take(&mut self, plan: &Plan, batch: &HostBuffer, samples: usize) -> Result<()> {
        let shard = self.shards;
        self.shards += 1;
        self.samples += samples;
        let Some(buffer) = &mut self.buffer else { return Ok(()) };
        anyhow::ensure!(shard < plan.together, "a step of this rank has no more than {} shards", plan.together);
        let to = buffer.bytes_mut();
        for input in &plan.slot.inputs {
            let place = if shard == 0 { Some(input) } else { plan.beside.find(input.input) };
            // What no program of training reads has no place.
            let Some(place) = place else { continue };
            let start = place.offset + if shard == 0 { 0 } else { plan.slot_bytes(shard) };
            let bytes = used(input, samples).min(used(place, samples));
            to[start..start + bytes].copy_from_slice(&batch.bytes()[input.offset..][..bytes]);
        }
        Ok(())
    }
}

/// Bytes that so many samples have of an input.
fn used(input: &SlotInput, samples: usize) -> usize {
    let all = input.shape.len() * input.dtype.bytes();
    match input.input {
        Input::Field(_) | Input::Shares => all / input.shape.dims().first().copied().unwrap_or(1).max(1) * samples,
        Input::Schedule | Input::Averaging | Input::Shard | Input::Random => all,
    }
}

impl Session {
    /// Takes in the next shard of a step, which is `batch` of that shape.
    ///
    /// # Errors
    /// None, unless there is a bug.
    pub(super) fn gather(
        &mut self,
        batch: &mut HostBuffer,
        shape: impl Into<BatchShape>,
        inputs: StepInputs,
    ) -> Result<()> {
        self.write_inputs(batch, inputs);
        self.gathered.take(&self.programs.plan, batch, shape.into().samples)
    }

    /// The program for what was gathered; nothing is gathered afterwards. `batch` is the last shard, or any if there was none.
    fn gathered_program(&mut self, batch: &mut HostBuffer, inputs: StepInputs) -> Result<usize> {
        if self.gathered.shards == 0 {
            // The sums over ranks read where this one would stand.
            self.gather(batch, 0, inputs)?;
        }
        let program = self.program(Kind::Train, self.gathered.samples)?;
        (self.gathered.shards, self.gathered.samples) = (0, 0);
        Ok(program)
    }

    /// Computes all that was gathered of a step.
    pub(super) fn train_gathered(&mut self, slot: usize, batch: &mut HostBuffer, inputs: StepInputs) -> Result<()> {
        let program = self.gathered_program(batch, inputs)?;
        self.executable.run(program, slot, self.gathered.buffer.as_ref().unwrap_or(batch))?;
        // The next step is gathered there.
        self.executable.wait_slot(slot)
    }

    /// Where the computation of all that was gathered stops being finite.
    pub(super) fn find_in_gathered(&mut self, batch: &mut HostBuffer) -> Result<String> {
        let nothing = StepInputs { lr: 0.0, lr_floor: 0.0, grad_scale: 1.0, seed: 0, micro_step: 0 };
        let program = self.gathered_program(batch, nothing)?;
        let found = self.executable.find_not_finite(program, self.gathered.buffer.as_ref().unwrap_or(batch))?;
        Ok(self.describe_origin(program, found))
    }

    /// Runs steps in which every shard of this rank is `batch`.
    pub(super) fn trace_gathered(
        &mut self,
        batch: &mut HostBuffer,
        shape: BatchShape,
        inputs: StepInputs,
        (update, steps, detail): (Option<usize>, usize, Detail),
    ) -> Result<Vec<Span>> {
        let shards = self.programs.shards.context("a step without shards")?;
        for number in shards.of(self.rank()) {
            self.set_shard(number, shards.count);
            self.gather(batch, shape, inputs)?;
        }
        let programs: Vec<usize> = std::iter::once(self.gathered_program(batch, inputs)?).chain(update).collect();
        self.executable.trace(&programs, self.gathered.buffer.as_ref().unwrap_or(batch), steps, detail)
    }
}
