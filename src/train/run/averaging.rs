//! The mean of the weights at the ends of epochs, and batch norm's statistics with it.

use super::{Run, train_options};
use crate::backend::HostBuffer;
use crate::data::{Loader, Position};
use crate::graph::{DType, Fill, Variable};
use crate::train::setup::session::StepInputs;
use crate::train::setup::slots;
use anyhow::Result;
use std::sync::atomic::{AtomicBool, Ordering};

impl Run<'_> {
    /// At the end of an epoch that counts: takes the weights into the mean, and makes the statistics of batch norm anew. Once the
    /// weights are in it, they are not taken in again: what was interrupted is done again from there. `false` if it was
    /// interrupted.
    pub(super) fn average(&mut self, interrupt: &AtomicBool) -> Result<bool> {
        if !self.follow_average(interrupt)? {
            return Ok(false);
        }
        let Some(swa) = &self.experiment.optimizer.swa else { return Ok(true) };
        let number = self.state.epoch + 1;
        if number <= swa.start as u64 {
            return Ok(true);
        }
        let averaged = self.state.extra.averaged;
        if averaged.epoch < number {
            if averaged.models == 0 {
                self.reporter
                    .info(&format!("epoch {number}: weights are averaged from here on, and the average is validated"));
            }
            let mut batch = self.backend.host_buffer(self.session.programs.plan.slot.bytes)?;
            let inputs = self.statistics_inputs(0);
            self.session.average(&mut batch, inputs, averaged.models)?;
            self.state.extra.averaged.models += 1;
            self.state.extra.averaged.epoch = number;
        }
        if self.session.has_statistics() { self.remake_statistics(interrupt) } else { Ok(true) }
    }

    /// Makes the statistics of batch norm anew for an optimizer that has an average of the weights itself. `false` if it was interrupted.
    pub(super) fn follow_average(&mut self, interrupt: &AtomicBool) -> Result<bool> {
        match self.experiment.optimizer.rule.is_schedule_free() && self.session.has_statistics() {
            true => self.remake_statistics(interrupt),
            false => Ok(true),
        }
    }

    /// One pass over the training samples, as they were in the epoch.
    fn remake_statistics(&mut self, interrupt: &AtomicBool) -> Result<bool> {
        let plan = self.session.programs.plan.clone();
        let ids = self.session.statistics();
        let mut before = Vec::new();
        for id in &ids {
            let mut bytes = Vec::new();
            self.session.read(*id, &mut |piece| {
                bytes.extend_from_slice(piece);
                Ok(())
            })?;
            before.push(bytes);
            self.session.restore(*id, &initial(&plan.variables[*id]))?;
        }
        let buffers: Vec<HostBuffer> = (0..slots::evaluation(self.experiment))
            .map(|_| self.backend.host_buffer(plan.slot.bytes))
            .collect::<Result<_>>()?;
        let epoch = self.state.epoch;
        let mut options = train_options(self.experiment, Some(epoch + 1));
        if self.session.programs.together {
            // The statistics of a step are those of its whole batch.
            (options.batch_size, options.batches_together) = (self.experiment.data.loading.batch_size, 1);
        }
        let mut loader =
            Loader::start(&self.samples.train, options, &plan.slot, buffers, Position { epoch, batch: 0 })?;
        let total = self.samples_per_epoch();
        self.reporter.begin("statistics of batch norm", total, 0, self.place(total, None));
        let (mut done, mut number) = (0, 0);
        while let Some(mut batch) = loader.next()? {
            if interrupt.load(Ordering::Relaxed) {
                self.reporter.end(None);
                for (id, bytes) in ids.iter().zip(&before) {
                    self.session.restore(*id, bytes)?;
                }
                return Ok(false);
            }
            let inputs = self.statistics_inputs(number);
            self.session.add_statistics(batch.slot, &mut batch.buffer, batch.shape, inputs)?;
            self.session.wait_slot(batch.slot)?;
            number += 1;
            done += batch.shape.samples as u64;
            loader.release(batch);
            if self.reporter.due() {
                self.reporter.progress(done, self.state.step, None);
            }
        }
        self.reporter.end(Some(total));
        Ok(true)
    }

    /// What a batch of the pass is given: random draws are those of the epoch.
    fn statistics_inputs(&self, batch: u64) -> StepInputs {
        StepInputs {
            lr: 0.0,
            lr_floor: 0.0,
            grad_scale: 1.0,
            seed: self.experiment.seed,
            micro_step: self.state.extra.micro_step.saturating_sub(self.state.batch) + batch,
        }
    }
}

/// What a buffer begins with, in the outside layout.
fn initial(var: &Variable) -> Vec<u8> {
    let value = if let Fill::Constant(value) = var.init { value } else { 0.0 };
    let element = match var.dtype {
        DType::I64 => (value as i64).to_ne_bytes().to_vec(),
        _ => (value as f32).to_ne_bytes().to_vec(),
    };
    element.repeat(var.shape.len())
}
