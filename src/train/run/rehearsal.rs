//! One of everything that a run does, for a dry run: an update, the evaluation of a batch.

use super::evaluate::{Evaluation, evaluate};
use super::{Run, eval_options, train_options};
use crate::backend::HostBuffer;
use crate::data::{Loader, Position};
use crate::train::setup::figures::Figures;
use crate::train::setup::slots;
use anyhow::{Context, Result};
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;

/// An update that was made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Made {
    /// Its number, from 1.
    pub step: u64,
    /// Training samples that it took.
    pub samples: u64,
    /// Their mean loss before it.
    pub loss: f32,
    /// Its learning rate.
    pub lr: f64,
}

impl Run<'_> {
    /// Makes the next update, with all its batches, and waits for it.
    ///
    /// # Errors
    /// As [`Run::run`].
    pub fn one_update(&mut self) -> Result<Made> {
        let layout = self.session.programs.plan.slot.clone();
        let buffers: Vec<HostBuffer> = (0..slots::training(self.experiment))
            .map(|_| self.backend.host_buffer(layout.bytes))
            .collect::<Result<_>>()?;
        let options = train_options(self.experiment, None);
        let mut start = Position { epoch: self.state.epoch, batch: self.state.batch as usize };
        let batches = crate::train::setup::schedule::batches(self.experiment, self.samples.train.len());
        if start.batch >= batches {
            // An epoch of one update.
            start = Position { epoch: start.epoch + 1, batch: 0 };
            (self.state.epoch, self.state.batch) = (start.epoch, 0);
        }
        let mut loader = Loader::start(&self.samples.train, options, &layout, buffers, start)?;
        self.begin_phase();
        let lr = self.schedule.lr(self.state.step, self.state.epoch as usize) * self.plateau_factor();
        let lr = lr * self.experiment.optimizer.rule.warmth(self.state.step + 1);
        let samples = self.update(&mut loader, &mut VecDeque::new(), batches as u64, &AtomicBool::new(false))?;
        self.settle(true)?;
        let loss = self.pending.latest().context("the device has not returned the loss")?;
        Ok(Made { step: self.state.step, samples, loss, lr })
    }

    /// Evaluates one batch: how many samples, and their figures. `None`: there is nothing to validate on.
    ///
    /// # Errors
    /// As [`evaluate`].
    pub fn evaluate_one_batch(&mut self) -> Result<Option<(usize, Figures)>> {
        let options = eval_options(self.experiment);
        let samples = options.batch_size.min(self.samples.val.len());
        if samples == 0 {
            return Ok(None);
        }
        // Those that `limit_val` would take.
        let (split, never) = (self.samples.val.limit(samples, self.experiment.data_seed(), 1), AtomicBool::new(false));
        let unread = &mut self.state.extra.val_unreadable;
        let found = evaluate(&mut self.session, self.backend, &split, &options, &never, unread, |_| {})?;
        Ok(found.map(|Evaluation { figures, .. }| (samples, figures)))
    }
}
