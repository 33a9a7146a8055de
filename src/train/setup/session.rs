//! An experiment on a device: its compiled programs and their state.

mod again;
mod averaging;
mod explain;
mod gather;
mod gradients;
mod heads;
mod sums;
mod variables;

pub use again::put_numbers;
pub use gradients::Gradients;
pub use sums::EvalSums;
pub use variables::Saved;

use super::class_report::ClassReport;
use super::error_report::ErrorReport;
use super::figures::Figures;
use super::programs::{Kind, Programs};
use super::transfer::Transfer;
use crate::backend::{Backend, Detail, DeviceUse, Executable, HostBuffer, MemoryUse, Span};
use crate::collective::Collective;
use crate::graph::op::{Figure, METRIC_SLOTS, Task, metric_slot};
use crate::graph::{Input, Shape, ValueId, VarId, Variable};
use crate::model::{
    BatchShape, CLASS_COUNTS, ERROR_SUMS_VARIABLE, Mode, carried_variables, init, is_counted, metric_sums,
    metrics_variable,
};
use anyhow::{Context, Result, anyhow};
use gather::Gathered;
use std::sync::Arc;
use variables::Elsewhere;

/// The numbers that a training step reads from its batch slot.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepInputs {
    /// Learning rate.
    pub lr: f32,
    /// The part of it that is the same for all groups of parameters, whatever their own rates.
    pub lr_floor: f32,
    /// Factor of the gradients; 1 but in tests.
    pub grad_scale: f32,
    /// Seed of the run.
    pub seed: u64,
    /// Number of this micro-step, from 0 in the whole run.
    pub micro_step: u64,
}

/// A shard of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shard {
    /// Which, from 0.
    number: usize,
    /// How many the step has.
    present: usize,
    /// It is the last one of this rank in the step.
    is_last: bool,
}

/// Compiled programs with their state.
pub struct Session {
    /// The programs.
    pub programs: Programs,
    executable: Box<dyn Executable>,
    task: Task,
    transfer: Transfer,
    /// Parameters that are thawed later are not trained yet.
    frozen: bool,
    /// The share of the new values in averages.
    average_share: f32,
    /// There is no mean over epochs yet.
    waits: bool,
    /// The ranks that share the shards of a step.
    team: Option<Arc<dyn Collective>>,
    /// Which shard of its step comes next.
    shard: Shard,
    elsewhere: Elsewhere,
    gathered: Gathered,
}

impl Session {
    /// Compiles `programs` on `backend` and gives every variable its initial value.
    ///
    /// # Errors
    /// The device has not enough memory, or failed.
    pub fn new(programs: Programs, backend: &dyn Backend, task: Task, seed: u64) -> Result<Self> {
        let mut session = Session::unset(programs, backend, task)?;
        session.initialize(seed, |_| true)?;
        Ok(session)
    }

    /// Compiles `programs` on `backend`, for variables that are given a value afterwards: zeros until then.
    ///
    /// # Errors
    /// As [`Session::new`].
    pub fn unset(programs: Programs, backend: &dyn Backend, task: Task) -> Result<Self> {
        let executable = backend.compile(programs.plan.clone())?;
        let waits = programs.find(Kind::Average, 0).is_some();
        let (transfer, frozen) = (Transfer::default(), false);
        let (team, shard) = (backend.team().cloned(), Shard { number: 0, present: 1, is_last: false });
        let (elsewhere, gathered) = (Elsewhere::default(), Gathered::new(&programs.plan, backend)?);
        Ok(Session {
            programs,
            executable,
            task,
            transfer,
            frozen,
            average_share: 0.0,
            waits,
            team,
            shard,
            elsewhere,
            gathered,
        })
    }

    /// Waits until all ranks have ended what their devices do: from then on each may go. All ranks call it at the end of a run.
    ///
    /// # Errors
    /// The device, or a rank, failed.
    pub fn leave(&mut self) -> Result<()> {
        self.executable.leave()
    }

    /// Gives the variables that are `wanted` their initial value.
    ///
    /// # Errors
    /// The device failed.
    pub fn initialize(&mut self, seed: u64, wanted: impl Fn(&Variable) -> bool) -> Result<()> {
        let plan = self.programs.plan.clone();
        for (id, var) in plan.variables.iter().filter(|(_, v)| wanted(v)) {
            init::initial_pieces(var, seed, |at, bytes| self.put(id, at, bytes))?;
        }
        self.begin_averages(wanted)
    }

    /// Whether parameters that are thawed later are left as they are from here on.
    pub fn set_frozen(&mut self, frozen: bool) {
        self.frozen = frozen && self.programs.kinds.iter().any(|(kind, _)| *kind == Kind::TrainFrozen);
    }

    /// The share of the new values in moving averages from here on.
    pub fn set_average_share(&mut self, share: f64) {
        self.average_share = share as f32;
    }

    /// The next micro-batch of training is shard `number` of a step that has `present` of them, if steps are cut into shards.
    pub fn set_shard(&mut self, number: usize, present: usize) {
        self.shard = Shard { number, present, is_last: false };
    }

    /// It is the last one of this rank in its step: sums over ranks begin while it is computed.
    pub fn begin_sums(&mut self) {
        self.shard.is_last = true;
    }

    /// Runs one micro-batch of training on `batch`, which is of that shape: a number of samples, or one with a length. Where the shards of a step
    /// are computed together, it is gathered until the update.
    ///
    /// # Errors
    /// The device failed.
    pub fn train(
        &mut self,
        slot: usize,
        batch: &mut HostBuffer,
        shape: impl Into<BatchShape>,
        inputs: StepInputs,
    ) -> Result<()> {
        if self.programs.together {
            return self.gather(batch, shape, inputs);
        }
        self.write_inputs(batch, inputs);
        let program = self.program(Kind::Train, shape)?;
        self.executable.run(program, slot, batch)
    }

    /// Updates the parameters from the sums over micro-batches.
    ///
    /// # Errors
    /// The device failed.
    pub fn update(&mut self, slot: usize, batch: &mut HostBuffer, inputs: StepInputs) -> Result<()> {
        if self.programs.together {
            self.train_gathered(slot, batch, inputs)?;
        }
        self.write_inputs(batch, inputs);
        let program = self.program(Kind::Update, 0)?;
        self.executable.run(program, slot, batch)
    }

    /// Adds the samples of `batch`, which is of that shape, to the evaluation's figures.
    ///
    /// # Errors
    /// The device failed.
    pub fn evaluate(&mut self, slot: usize, batch: &HostBuffer, shape: impl Into<BatchShape>) -> Result<()> {
        let program = self.program(Kind::Eval, shape)?;
        self.executable.run(program, slot, batch)
    }

    /// Takes what has been evaluated since the last call into the sums over shards, as that of shard `number`. The numbers in `batch` alone are
    /// used, and written.
    ///
    /// # Errors
    /// The device failed.
    pub fn end_shard(&mut self, batch: &mut HostBuffer, number: usize) -> Result<()> {
        self.run_apart(Kind::EvalShard, batch, number)
    }

    /// Makes the sums over all shards those of the evaluation. `batch` as for [`Session::end_shard`].
    ///
    /// # Errors
    /// The device, or another rank, failed.
    pub fn end_shards(&mut self, batch: &mut HostBuffer) -> Result<()> {
        let first = self.programs.shards.map_or(0, |shards| shards.of(self.rank()).start);
        self.run_apart(Kind::EvalTotal, batch, first)
    }

    /// Runs a program that reads no samples.
    fn run_apart(&mut self, kind: Kind, batch: &mut HostBuffer, shard: usize) -> Result<()> {
        let present = self.programs.shards.map_or(1, |shards| shards.count);
        self.set_shard(shard, present);
        let nothing = StepInputs { lr: 0.0, lr_floor: 0.0, grad_scale: 1.0, seed: 0, micro_step: 0 };
        self.write_inputs(batch, nothing);
        let program = self.program(kind, 0)?;
        self.executable.run(program, 0, batch)?;
        self.executable.wait_slot(0)
    }

    /// The model's output for `batch`, which is of that shape: rows of floats, in PyTorch's order.
    ///
    /// # Errors
    /// The device failed.
    pub fn predict(&mut self, batch: &HostBuffer, shape: impl Into<BatchShape>) -> Result<Vec<f32>> {
        let shape = shape.into();
        let program = self.program(Kind::Predict, shape)?;
        self.executable.run(program, 0, batch)?;
        self.last_prediction(Kind::Predict, shape)
    }

    /// What the model put out for the last batch of that shape that a program of `kind` was run on: rows of floats, in
    /// PyTorch's order, images channels-first.
    ///
    /// # Errors
    /// The device failed.
    pub fn last_prediction(&mut self, kind: Kind, shape: impl Into<BatchShape>) -> Result<Vec<f32>> {
        let mut bytes = Vec::new();
        let shape = self.outputs(kind, shape, &mut bytes)?;
        let mut floats = vec![0.0; shape.len()];
        in_pytorch_order(&shape, &bytes, &mut floats);
        Ok(floats)
    }

    /// As [`Session::predict`], for the batch in that slot of a ring, into memory that is there: `into` for as many floats as the model puts out for a batch,
    /// `bytes` for what the device has of them.
    ///
    /// # Errors
    /// The device failed.
    pub fn predict_into(
        &mut self,
        (slot, batch): (usize, &HostBuffer),
        shape: impl Into<BatchShape>,
        bytes: &mut Vec<u8>,
        into: &mut [f32],
    ) -> Result<()> {
        let shape = shape.into();
        let program = self.program(Kind::Predict, shape)?;
        self.executable.run(program, slot, batch)?;
        self.output_of(program, bytes)?;
        let program = &self.programs.plan.programs[program];
        // A copy of the shape would be memory for each call.
        program.prediction.iter().for_each(|value| in_pytorch_order(&program.graph.value(*value).shape, bytes, into));
        Ok(())
    }

    /// As [`Session::last_prediction`], but in `into` as native-endian bytes, in the order of the device: its shape.
    ///
    /// # Errors
    /// The device failed.
    pub fn outputs(&mut self, kind: Kind, shape: impl Into<BatchShape>, into: &mut Vec<u8>) -> Result<Shape> {
        let program = self.program(kind, shape)?;
        let value = self.output_of(program, into)?;
        Ok(self.programs.plan.programs[program].graph.value(value).shape.clone())
    }

    fn output_of(&mut self, program: usize, into: &mut Vec<u8>) -> Result<ValueId> {
        let of = &self.programs.plan.programs[program];
        let value = of.prediction.context("the program predicts nothing")?;
        into.resize(of.graph.value(value).bytes(), 0);
        self.executable.output(program, value, into)?;
        Ok(value)
    }

    /// Adds to `into` the losses of training batches since the last call, oldest first: those that are known or, with
    /// `wait`, all.
    ///
    /// # Errors
    /// The device failed.
    pub fn losses(&mut self, wait: bool, into: &mut Vec<f32>) -> Result<()> {
        self.executable.losses(wait, into)
    }

    /// Waits until the batch in `slot` has been read.
    ///
    /// # Errors
    /// The device failed.
    pub fn wait_slot(&mut self, slot: usize) -> Result<()> {
        self.executable.wait_slot(slot)
    }

    /// The figures since the last reset (`None`: nothing has been measured), and the number of batches whose loss was
    /// not finite. `mode` is [`Mode::Train`] or [`Mode::Eval`].
    ///
    /// # Errors
    /// The device failed.
    pub fn figures(&mut self, mode: Mode) -> Result<(Option<Figures>, u64)> {
        let sums = self.metric_sums(metrics_variable(mode))?;
        let mut figures = (sums[metric_slot::WEIGHT] > 0.0).then(|| Figures::new(self.task, &sums));
        figures = figures.map(|figures| self.with_heads(figures, mode)).transpose()?;
        if mode == Mode::Eval && !self.programs.asked.is_empty() {
            let (classes, errors) = (self.class_report()?, self.error_report()?);
            let value = |figure: Figure| {
                let of_classes = classes.as_ref().and_then(|report| report.figure(figure));
                of_classes.or_else(|| errors.as_ref()?.figure(figure))
            };
            for figure in &self.programs.asked {
                if let Some(value) = value(*figure) {
                    figures = figures.map(|figures| figures.with(*figure, value));
                }
            }
        }
        Ok((figures, sums[metric_slot::NOT_FINITE] as u64))
    }

    /// What has been counted of classes since the figures of evaluation were reset; `None` if that is not counted.
    ///
    /// # Errors
    /// The device failed.
    pub fn class_report(&mut self) -> Result<Option<ClassReport>> {
        self.counted_classes(CLASS_COUNTS)
    }

    /// What has been summed of errors since the figures of evaluation were reset; `None` if that is not summed.
    ///
    /// # Errors
    /// The device failed.
    pub fn error_report(&mut self) -> Result<Option<ErrorReport>> {
        let Some(id) = self.programs.plan.variables.find(ERROR_SUMS_VARIABLE) else { return Ok(None) };
        let (sums, items) = (self.doubles(id)?, self.metric_sums(metrics_variable(Mode::Eval))?[metric_slot::ITEMS]);
        Ok(Some(ErrorReport::new(&sums, items)))
    }

    /// The content of a variable of doubles.
    fn doubles(&mut self, id: VarId) -> Result<Vec<f64>> {
        let mut out: Vec<f64> = Vec::new();
        self.read(id, &mut |piece| {
            out.extend(piece.as_chunks().0.iter().map(|bytes| f64::from_ne_bytes(*bytes)));
            Ok(())
        })?;
        Ok(out)
    }

    fn metric_sums(&mut self, variable: &str) -> Result<[f64; METRIC_SLOTS]> {
        let mut bytes = [0; 8 * METRIC_SLOTS];
        let mut sums = [0.0; METRIC_SLOTS];
        if let Some(id) = self.programs.plan.variables.find(variable) {
            self.executable.download(id, &mut bytes)?;
            for (s, b) in sums.iter_mut().zip(bytes.as_chunks().0) {
                *s = f64::from_ne_bytes(*b);
            }
        }
        Ok(sums)
    }

    /// Resets the figures of `mode`, and what recurrent layers carry on from batch to batch in it.
    ///
    /// # Errors
    /// The device failed.
    pub fn reset_figures(&mut self, mode: Mode) -> Result<()> {
        for id in metric_sums(&self.programs.plan.variables, mode) {
            self.executable.upload(id, &[0; 8 * METRIC_SLOTS])?;
        }
        let counted = |name: &str| mode == Mode::Eval && is_counted(name);
        self.initialize(0, |var| counted(&var.name) || var.name.starts_with(carried_variables(mode)))
    }

    /// Runs the program of `kind` on `batch`, which is of that shape, `steps` times; in training with the update that there
    /// is where gradients are summed. What was done when ([`Executable::trace`]).
    ///
    /// # Errors
    /// The device failed.
    pub fn trace(
        &mut self,
        kind: Kind,
        batch: &mut HostBuffer,
        shape: impl Into<BatchShape>,
        inputs: StepInputs,
        steps: usize,
        detail: Detail,
    ) -> Result<Vec<Span>> {
        let update = self.programs.find(self.now(Kind::Update), 0).filter(|_| kind == Kind::Train);
        if self.programs.together && kind == Kind::Train {
            return self.trace_gathered(batch, shape.into(), inputs, (update, steps, detail));
        }
        self.write_inputs(batch, inputs);
        let mut programs = vec![self.program(kind, shape)?];
        programs.extend(update);
        self.executable.trace(&programs, batch, steps, detail)
    }

    /// Bytes in use at the peak, batch slots excluded.
    pub fn peak_bytes(&self) -> usize {
        self.executable.peak_bytes()
    }

    /// What it has of the device's memory; `None` if the device has none of its own.
    pub fn memory_use(&self) -> Option<MemoryUse> {
        self.executable.memory_use()
    }

    /// What the device's driver says of its memory; `None` if the device has none of its own.
    ///
    /// # Errors
    /// The device failed.
    pub fn device_use(&self) -> Result<Option<DeviceUse>> {
        self.executable.device_use()
    }

    /// Which of the ranks this is.
    fn rank(&self) -> usize {
        self.team.as_ref().map_or(0, |team| team.rank())
    }

    fn program(&self, kind: Kind, shape: impl Into<BatchShape>) -> Result<usize> {
        let (kind, shape) = (self.now(kind), shape.into());
        self.programs.find(kind, shape).ok_or_else(|| anyhow!("no program for {kind:?} with a batch of {shape}"))
    }

    /// The kind that stands for `kind` in the phase that training is in.
    fn now(&self, kind: Kind) -> Kind {
        match kind {
            Kind::Train if self.frozen => Kind::TrainFrozen,
            Kind::Update if self.frozen => Kind::UpdateFrozen,
            Kind::Eval if self.waits => Kind::EvalWeights,
            Kind::Predict if self.waits => Kind::PredictWeights,
            kind => kind,
        }
    }

    fn write_inputs(&self, batch: &mut HostBuffer, i: StepInputs) {
        let layout = &self.programs.plan.slot;
        let bytes = batch.bytes_mut();
        let schedule = [i.lr, i.grad_scale, 1.0, i.lr_floor];
        for (input, list) in [(Input::Schedule, schedule), (Input::Averaging, [self.average_share, -1.0, 1.0, 0.0])] {
            let Some(at) = layout.find(input) else { continue };
            for (k, v) in list.into_iter().enumerate() {
                bytes[at.offset + 4 * k..][..4].copy_from_slice(&v.to_ne_bytes());
            }
        }
        if let (Some(at), Some(shards)) = (layout.find(Input::Shard), self.programs.shards) {
            let Shard { number, present, is_last } = self.shard;
            let place = shards.place(self.rank(), number, present);
            for (k, v) in [place.slot, place.merged, present, usize::from(is_last)].into_iter().enumerate() {
                bytes[at.offset + 4 * k..][..4].copy_from_slice(&(v as i32).to_ne_bytes());
            }
        }
        if let Some(at) = layout.find(Input::Random) {
            let words = [i.seed as u32, (i.seed >> 32) as u32, i.micro_step as u32, (i.micro_step >> 32) as u32];
            for (k, v) in words.into_iter().enumerate() {
                bytes[at.offset + 4 * k..][..4].copy_from_slice(&v.to_ne_bytes());
            }
        }
    }
}

/// Brings floats of that shape, which are `bytes` on the device, into PyTorch's order: images channels-first.
fn in_pytorch_order(shape: &Shape, bytes: &[u8], into: &mut [f32]) {
    let floats = bytes.as_chunks().0;
    let (pixels, channels) = shape.nhwc().map_or((1, shape.len().max(1)), |[_, h, w, c]| (h * w, c));
    for (image, into) in floats.chunks_exact(pixels * channels).zip(into.chunks_exact_mut(pixels * channels)) {
        for (i, float) in into.iter_mut().enumerate() {
            *float = f32::from_ne_bytes(image[i % pixels * channels + i / pixels]);
        }
    }
}
