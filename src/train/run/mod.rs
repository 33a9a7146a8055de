//! The training loop.

mod averaging;
pub mod evaluate;
mod histograms;
mod live;
pub mod pace;
pub mod pending;
pub mod report;
pub mod sweep;
pub mod table;
mod unreadable;
pub mod waiting;
mod watched;

use crate::backend::{Backend, HostBuffer};
use crate::checkpoint::FileKind;
use crate::config::Experiment;
use crate::data::{Batch, Loader, LoaderOptions, Position};
use crate::graph::op::Figure;
use crate::model::{self, Mode};
use crate::train::files::folder::{Folder, file};
use crate::train::files::metrics_file::{MetricsFile, add_memory, add_unreadable, epoch_line, step_line};
use crate::train::files::state::{RunState, save};
use crate::train::setup::figures::Figures;
use crate::train::setup::input::{Samples, mixing, transforms};
use crate::train::setup::schedule::Schedule;
use crate::train::setup::session::{Session, StepInputs};
use crate::train::setup::slots;
use anyhow::{Context, Result, ensure};
use evaluate::{EvalOptions, Evaluation, NOTHING_COUNTS, evaluate};
use pace::{Horizon, Place};
use pending::{Pending, Settled, Update};
use report::Reporter;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use table::EpochRow;
use waiting::Waiting;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All epochs are done.
    Finished,
    /// The figure that early stopping watches no longer improved.
    EarlyStopped,
    /// `train.max_steps` are done.
    MaxSteps,
    /// So many epochs are done as were asked for now; there are more.
    Paused,
    /// Ctrl-C; the state is saved.
    Interrupted,
}

/// How an experiment evaluates.
pub fn eval_options(experiment: &Experiment) -> EvalOptions {
    let loading = &experiment.data.loading;
    EvalOptions {
        batch_size: loading.eval_batch_size(),
        workers: loading.workers,
        slots: slots::evaluation(experiment),
        transforms: transforms(experiment, false),
        seed: experiment.seed,
    }
}

/// How an experiment makes the batches that it trains on, up to an epoch.
pub fn train_options(experiment: &Experiment, end_epoch: Option<u64>) -> LoaderOptions {
    let loading = &experiment.data.loading;
    LoaderOptions {
        batch_size: loading.batch_size,
        shuffle: loading.shuffle,
        drop_last: loading.drop_last,
        seed: experiment.seed,
        workers: loading.workers,
        transforms: transforms(experiment, true),
        mixing: mixing(experiment),
        end_epoch,
    }
}

/// A run, ready to go on from where its state says.
pub struct Run<'a> {
    /// What is run.
    pub experiment: &'a Experiment,
    /// The effective configuration, for checkpoints.
    pub config: &'a str,
    /// The device.
    pub backend: &'a dyn Backend,
    /// The samples.
    pub samples: &'a Samples,
    /// The model and its state on the device.
    pub session: Session,
    /// Where the run stands.
    pub state: RunState,
    /// The learning rate.
    pub schedule: Schedule,
    /// Where files go.
    pub folder: Folder,
    /// The metrics.
    pub metrics: MetricsFile,
    /// What the user sees.
    pub reporter: Reporter,
    /// Updates whose losses are on their way.
    pub pending: Pending,
    /// What was waited for batches.
    pub waiting: Waiting,
    /// Epochs to stop after, with more to come.
    pub pause_after: Option<u64>,
}

impl Run<'_> {
    /// Trains until the end, or until `interrupt` is set; the state is saved whenever the run ends well.
    ///
    /// # Errors
    /// The loss is not finite, a batch could not be made, a file could not be written, the device failed. The
    /// checkpoints written before stay.
    pub fn run(&mut self, interrupt: &AtomicBool) -> Result<Outcome> {
        let layout = self.session.programs.plan.slot.clone();
        let buffers: Vec<HostBuffer> = (0..slots::training(self.experiment))
            .map(|_| self.backend.host_buffer(layout.bytes))
            .collect::<Result<_>>()?;
        let epochs = self.experiment.train.epochs as u64;
        let options = self.loader_options();
        let horizon = self.horizon();
        self.reporter.plan(model::task(self.experiment), &self.session.programs.asked, horizon);
        let start = Position { epoch: self.state.epoch, batch: self.state.batch as usize };
        let mut loader = Loader::start(&self.samples.train, options, &layout, buffers, start)?;
        let mut in_flight = VecDeque::with_capacity(slots::IN_FLIGHT + 1);
        while self.state.epoch < epochs {
            // Stopping where an epoch has ended: its lines and checkpoints are written.
            if self.state.batch == 0 && self.state.epoch > 0 && self.reached_max_steps() {
                return Ok(Outcome::MaxSteps);
            }
            if self.pause_after.is_some_and(|epochs| self.state.epoch >= epochs) {
                return Ok(Outcome::Paused);
            }
            if let Some(outcome) = self.epoch(&mut loader, &mut in_flight, interrupt)? {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Finished)
    }

    fn loader_options(&self) -> LoaderOptions {
        train_options(self.experiment, Some(self.experiment.train.epochs as u64))
    }

    /// The parts of the run, from which its remaining time is estimated.
    fn horizon(&self) -> Horizon {
        let (train, batch) = (&self.experiment.train, self.experiment.data.loading.batch_size);
        Horizon {
            epochs: train.epochs as u64,
            samples: self.samples_per_epoch(),
            val_samples: self.samples.val.len() as u64,
            eval_every: train.eval_every as u64,
            max_steps: train.max_steps,
            step_samples: (batch * train.accumulate) as u64,
            may_stop_early: train.early_stopping.is_some(),
        }
    }

    fn samples_per_epoch(&self) -> u64 {
        let (samples, loading) = (self.samples.train.len(), &self.experiment.data.loading);
        let left_out = if loading.drop_last { samples % loading.batch_size } else { 0 };
        (samples - left_out) as u64
    }

    /// Where the run is, `done` samples of the epoch being done.
    fn place(&self, done: u64, evaluated: Option<u64>) -> Place {
        Place { epoch: self.state.epoch, done, step: self.state.step, evaluated }
    }

    /// One epoch, or what is left of it.
    fn epoch(
        &mut self,
        loader: &mut Loader,
        in_flight: &mut VecDeque<Batch>,
        interrupt: &AtomicBool,
    ) -> Result<Option<Outcome>> {
        let batches = loader.batches_per_epoch() as u64;
        let samples = self.samples_per_epoch();
        let what = format!("epoch {}/{}", self.state.epoch + 1, self.experiment.train.epochs);
        self.begin_phase();
        let start = Instant::now();
        let before = self.state.extra.epoch_seconds;
        let mut done = (self.state.batch * self.experiment.data.loading.batch_size as u64).min(samples);
        self.reporter.begin(&what, samples, done, self.place(done, None));
        while self.state.batch < batches {
            if interrupt.load(Ordering::Relaxed) {
                return self.interrupted(start, before).map(Some);
            }
            if self.reached_max_steps() {
                return self.max_steps(start, before, interrupt).map(Some);
            }
            done += self.update(loader, in_flight, batches)?;
            if self.reporter.due() {
                // Reading them back from a device that is still at work would wait for it.
                if !self.backend.is_asynchronous() {
                    self.note_accuracy()?;
                }
                self.reporter.progress(done, self.state.step, self.pending.latest());
            }
            if let Some(every) = self.experiment.checkpoint.every_steps
                && self.state.step.is_multiple_of(every)
            {
                self.settle(true)?;
                self.note_accuracy()?;
                self.state.extra.epoch_seconds = before + start.elapsed().as_secs_f64();
                let kept = self.folder.file(&FileKind::Step(self.state.step).to_string());
                self.save(&[kept, self.folder.file(file::LAST)])?;
                self.folder.prune(self.experiment.checkpoint.keep)?;
            }
        }
        self.settle(true)?;
        self.reporter.end(Some(done));
        self.state.extra.epoch_seconds = before + start.elapsed().as_secs_f64();
        self.end_of_epoch(samples, interrupt)
    }

    /// Trains with or without the parameters that are thawed in this run, as the epoch says.
    fn begin_phase(&mut self) {
        let Some(after) = self.experiment.model.thaw_after.map(|after| after as u64) else { return };
        self.session.set_frozen(self.state.epoch < after);
        if self.state.epoch == after && self.state.batch == 0 {
            let thawed = self.session.programs.thawed as u64;
            self.reporter.info(&format!(
                "epoch {}: the {thawed} parameters that were frozen are trained from here on",
                after + 1
            ));
        }
    }

    /// Has the training accuracy over the epoch so far shown. The device must be at rest.
    fn note_accuracy(&mut self) -> Result<()> {
        let figures = self.session.figures(Mode::Train)?.0;
        self.reporter.note_accuracy(figures.and_then(|figures| figures.get(Figure::Accuracy)));
        Ok(())
    }

    /// One update of the parameters: a batch, or several whose gradients are averaged. The number of samples.
    fn update(&mut self, loader: &mut Loader, in_flight: &mut VecDeque<Batch>, batches: u64) -> Result<u64> {
        let accumulate = self.experiment.train.accumulate as u64;
        let group = accumulate.min(batches - self.state.batch);
        let (step, epoch) = (self.state.step, self.state.epoch as usize);
        let lr = self.schedule.lr(step, epoch) * self.plateau_factor();
        let mut inputs = StepInputs {
            lr: lr as f32,
            lr_floor: self.schedule.floor(step, epoch) as f32,
            grad_scale: 1.0,
            seed: self.experiment.seed,
            micro_step: self.state.extra.micro_step,
        };
        if let Some(ema) = &self.experiment.optimizer.ema {
            self.session.set_average_share(ema.share(self.state.step + 1));
        }
        let start = Position { epoch: self.state.epoch, batch: self.state.batch as usize };
        self.pending.push(Update { step: self.state.step + 1, start, batches: group, lr, inputs });
        let mut samples = 0;
        for k in 0..group {
            let mut batch = self.waiting.time(|| loader.next())?.context("the loader ended before the epoch")?;
            debug_assert_eq!((batch.position.epoch, batch.position.batch as u64), (self.state.epoch, self.state.batch));
            self.note_unreadable(batch.unreadable())?;
            self.session.train(batch.slot, &mut batch.buffer, batch.len, inputs)?;
            self.settle(false)?;
            if accumulate > 1 && k + 1 == group {
                self.session.wait_slot(batch.slot)?;
                self.session.update(batch.slot, &mut batch.buffer, inputs)?;
            }
            samples += batch.len as u64;
            self.state.batch += 1;
            self.state.extra.micro_step += 1;
            inputs.micro_step += 1;
            in_flight.push_back(batch);
            if in_flight.len() > slots::IN_FLIGHT
                && let Some(old) = in_flight.pop_front()
            {
                self.session.wait_slot(old.slot)?;
                loader.release(old);
            }
        }
        self.state.step += 1;
        Ok(samples)
    }

    /// Takes in the losses that have come back from the device, all of them with `wait`, and writes the lines of the steps
    /// that they complete. Before anything is saved all losses must be known: what is saved is sound.
    fn settle(&mut self, wait: bool) -> Result<()> {
        self.session.losses(wait, &mut self.pending.losses)?;
        while let Some(settled) = self.pending.pop() {
            match settled {
                Settled::Loss(update, loss) => {
                    if update.step == 1 || update.step.is_multiple_of(self.experiment.log.every_steps) {
                        let line = step_line(update.step, update.start.epoch as usize + 1, loss, update.lr);
                        self.metrics.write(&line)?;
                        self.reporter.record(&line);
                    }
                }
                Settled::NotFinite(update, k, loss) => return Err(self.not_finite(update, k, loss)),
            }
        }
        Ok(())
    }

    /// The error for the loss of batch `k` of `update`, which is not finite. The state on the device is still that of
    /// before the update.
    fn not_finite(&mut self, update: Update, k: u64, loss: f32) -> anyhow::Error {
        self.reporter.end(None);
        let start = Position { batch: update.start.batch + k as usize, ..update.start };
        let at = format!(
            "the loss is {loss} at step {} (epoch {}, batch {})",
            update.step,
            start.epoch + 1,
            start.batch + 1
        );
        let inputs = StepInputs { micro_step: update.inputs.micro_step + k, ..update.inputs };
        let place = match self.explain(start, inputs) {
            Ok(text) => text,
            Err(e) => format!("where it began could not be found: {e:#}"),
        };
        let saved = match self.folder.file(file::LAST).exists() {
            true => format!("; the checkpoints in `{}` are from before this step", self.folder.path.display()),
            false => String::new(),
        };
        anyhow::anyhow!("{at}: {place}\nhelp: try a smaller learning rate, a warm-up, or `clip_grad_norm`{saved}")
    }

    /// Runs the batch at `start` again, operation by operation. It is made anew: by the time its loss is known, its buffer
    /// may hold another one.
    fn explain(&mut self, start: Position, inputs: StepInputs) -> Result<String> {
        let layout = self.session.programs.plan.slot.clone();
        let options = LoaderOptions { workers: 1, ..self.loader_options() };
        let buffers = vec![self.backend.host_buffer(layout.bytes)?];
        let mut loader = Loader::start(&self.samples.train, options, &layout, buffers, start)?;
        let mut batch = loader.next()?.context("the batch is no longer there")?;
        self.session.explain_not_finite(&mut batch.buffer, batch.len, inputs)
    }

    /// Evaluation, the epoch's lines, checkpoints, early stopping.
    fn end_of_epoch(&mut self, samples: u64, interrupt: &AtomicBool) -> Result<Option<Outcome>> {
        let number = self.state.epoch + 1;
        let last = number == self.experiment.train.epochs as u64;
        let due = last || number.is_multiple_of(self.experiment.train.eval_every as u64);
        let train = self.session.figures(Mode::Train)?.0;
        ensure!(train.is_some(), "nothing was learnt in epoch {number}: {NOTHING_COUNTS}");
        if !self.average(interrupt)? {
            return self.interrupted_at_rest().map(Some);
        }
        let val = match due && !self.samples.val.is_empty() {
            true => match self.evaluate(interrupt)? {
                Some(figures) => Some(figures),
                // The epoch's training is done and will not be repeated; the evaluation will.
                None => return self.interrupted_at_rest().map(Some),
            },
            false => None,
        };
        let best = self.note_best(train.as_ref(), val.as_ref());
        let stop = due && self.out_of_patience(train.as_ref(), val.as_ref());
        let drop = if due { self.note_plateau(train.as_ref(), val.as_ref()) } else { None };
        self.write_epoch(number, samples, train, val, best)?;
        if let Some(told) = drop {
            self.reporter.info(&told);
        }
        self.write_histograms()?;
        self.state.epoch += 1;
        self.state.batch = 0;
        self.state.extra.epoch_seconds = 0.0;
        self.session.reset_figures(Mode::Train)?;
        let mut paths = Vec::from_iter(best.then(|| self.folder.file(file::BEST)));
        paths.push(self.folder.file(file::LAST));
        self.save(&paths)?;
        Ok((stop && !last).then_some(Outcome::EarlyStopped))
    }

    fn write_epoch(
        &mut self,
        number: u64,
        samples: u64,
        train: Option<Figures>,
        val: Option<Figures>,
        best: bool,
    ) -> Result<()> {
        let seconds = self.state.extra.epoch_seconds;
        let samples_per_s = if seconds > 0.0 { samples as f64 / seconds } else { 0.0 };
        let mut line =
            epoch_line(number as usize, self.state.step, train.as_ref(), val.as_ref(), seconds, samples_per_s);
        if let Some(memory) = self.session.memory_use() {
            add_memory(&mut line, memory);
        }
        let extra = &self.state.extra;
        add_unreadable(&mut line, extra.unreadable.list().len(), extra.val_unreadable.list().len());
        self.metrics.write(&line)?;
        self.reporter.record(&line);
        let extra = &self.state.extra;
        self.reporter.unreadable([&extra.unreadable, &extra.val_unreadable]);
        let epoch = (number, self.experiment.train.epochs);
        self.reporter.epoch(&EpochRow { epoch, train, val, seconds, samples_per_s, best });
        self.tell_loading(seconds);
        Ok(())
    }

    fn evaluate(&mut self, interrupt: &AtomicBool) -> Result<Option<Figures>> {
        let split = &self.samples.val;
        let total = split.len() as u64;
        let done = (self.state.batch * self.experiment.data.loading.batch_size as u64).min(self.samples_per_epoch());
        let place = self.place(done, Some(0));
        let (reporter, unread) = (&mut self.reporter, &mut self.state.extra.val_unreadable);
        let before = unread.list().len();
        reporter.begin("evaluation", total, 0, place);
        let options = eval_options(self.experiment);
        let found = evaluate(&mut self.session, self.backend, split, &options, interrupt, unread, |done| {
            if reporter.due() {
                reporter.progress(done, place.step, None);
            }
        });
        reporter.end(matches!(found, Ok(Some(_))).then_some(total));
        self.note_unreadable_in_evaluation(before)?;
        let found = found.with_context(|| format!("the evaluation in epoch {}", self.state.epoch + 1))?;
        Ok(found.map(|Evaluation { figures, notes }| {
            notes.iter().for_each(|note| self.reporter.warn_once(note));
            figures
        }))
    }

    /// Ends at `train.max_steps`: saves first, so that a run with more steps goes on from here as if it had not stopped.
    /// For the same reason this evaluation, which a longer run does not have, is no match for the `best` of an epoch's
    /// end. Where there is none, it makes one that does not count, so that there is something to use.
    fn max_steps(&mut self, start: Instant, before: f64, interrupt: &AtomicBool) -> Result<Outcome> {
        self.settle(true)?;
        self.reporter.end(None);
        self.state.extra.epoch_seconds = before + start.elapsed().as_secs_f64();
        self.save(&[self.folder.file(file::LAST)])?;
        let val = match self.samples.val.is_empty() {
            true => None,
            false => match self.evaluate(interrupt)? {
                Some(figures) => Some(figures),
                None => return Ok(Outcome::Interrupted),
            },
        };
        let train = self.session.figures(Mode::Train)?.0;
        let samples = self.state.batch * self.experiment.data.loading.batch_size as u64;
        let monitored = Self::figure(self.experiment.checkpoint.monitor(), train.as_ref(), val.as_ref());
        if self.state.best.is_none() && monitored.is_some_and(f64::is_finite) {
            self.save(&[self.folder.file(file::BEST)])?;
        }
        self.write_epoch(self.state.epoch + 1, samples, train, val, false)?;
        self.metrics.flush()?;
        Ok(Outcome::MaxSteps)
    }

    fn interrupted(&mut self, start: Instant, before: f64) -> Result<Outcome> {
        self.settle(true)?;
        self.state.extra.epoch_seconds = before + start.elapsed().as_secs_f64();
        self.interrupted_at_rest()
    }

    fn interrupted_at_rest(&mut self) -> Result<Outcome> {
        self.reporter.end(None);
        self.save(&[self.folder.file(file::LAST)])?;
        Ok(Outcome::Interrupted)
    }

    fn reached_max_steps(&self) -> bool {
        self.experiment.train.max_steps.is_some_and(|m| self.state.step >= m)
    }

    /// Writes the state as `last`: a run that was killed between `best` and `last` of one moment goes on from the first
    /// and may have nothing more to do.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save_last(&mut self) -> Result<()> {
        self.save(&[self.folder.file(file::LAST)])
    }

    /// Writes the checkpoint `paths` in this order: `last` comes at the end, so that a run that is killed in between is
    /// continued from before the write, or from what was written, and no file of it is ever missing.
    fn save(&mut self, paths: &[PathBuf]) -> Result<()> {
        self.state.extra.metrics_bytes = self.metrics.flush()?;
        let files: Vec<&std::path::Path> = paths.iter().map(PathBuf::as_path).collect();
        save(&mut self.session, &mut self.state, self.config, self.experiment.seed, &files)?;
        if paths.contains(&self.folder.file(file::LAST)) && self.folder.saved()? {
            self.metrics.moved_to(&self.folder.path);
        }
        Ok(())
    }
}
