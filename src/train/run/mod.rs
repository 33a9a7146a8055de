//! The training loop.

mod averaging;
mod by_sample;
pub mod evaluate;
pub mod events;
mod live;
pub mod mistakes;
mod moments;
mod not_finite;
pub mod pace;
pub mod parts;
pub mod pending;
pub mod rank_message;
mod ranks;
pub mod rehearsal;
pub mod report;
pub mod sweep;
pub mod table;
pub mod texts;
pub mod timing;
mod unreadable;
pub mod unusable;
pub mod waiting;
mod watched;

use crate::backend::{Backend, HostBuffer};
use crate::checkpoint::FileKind;
use crate::config::Experiment;
use crate::config::language::sections::Length;
use crate::data::{Batch, Loader, LoaderOptions, Position};
use crate::graph::op::Figure;
use crate::model::{self, Mode};
use crate::terminal::thousands;
use crate::train::files::folder::{Folder, file};
use crate::train::files::metrics_file::{MetricsFile, step_line};
use crate::train::files::state::{RunState, save};
use crate::train::setup::figures::Figures;
use crate::train::setup::input::{Samples, mixing, transforms};
use crate::train::setup::schedule::{Schedule, updates};
use crate::train::setup::session::{Session, StepInputs};
use crate::train::setup::slots;
use anyhow::{Context, Result};
use evaluate::EvalOptions;
use pace::{Horizon, Place};
use pending::{Pending, Settled, Update};
use report::Reporter;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use texts::Texts;
use waiting::Waiting;

pub use watched::stopped_early;

/// Updates between two moments at which ranks whose devices run behind look at their losses.
const SETTLED_EVERY: u64 = 16;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All epochs, or steps, are done.
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
        batch_size: experiment.micro_batch(),
        batches_together: experiment.shards(),
        own: None,
        shuffle: loading.shuffle && !experiment.data.source.carries_state(),
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
    /// The updates after which this process last evaluated, with what it found.
    pub evaluated: Option<(u64, Figures)>,
    /// A batch without samples, for updates of a step of which this rank has no shard.
    pub empty: Option<HostBuffer>,
    /// What writes texts where the run evaluates.
    pub texts: Option<Texts>,
    /// Whether any rank was asked to stop, as all ranks have exchanged after the update that was just made.
    pub any_stopped: Option<bool>,
}

/// The time that an epoch has been trained for.
struct Clock {
    /// Seconds before `since`.
    before: f64,
    since: Instant,
}

impl Clock {
    fn new(before: f64) -> Clock {
        Clock { before, since: Instant::now() }
    }

    fn seconds(&self) -> f64 {
        self.before + self.since.elapsed().as_secs_f64()
    }
}

fn at_end(experiment: &Experiment, state: &RunState) -> bool {
    match experiment.train.length() {
        Length::Epochs(epochs) => state.epoch >= epochs,
        Length::Steps(steps) => state.step >= steps,
    }
}

/// Whether a whole run is done, with the evaluation at its end.
pub fn is_done(experiment: &Experiment, state: &RunState) -> bool {
    match experiment.train.length() {
        Length::Epochs(_) => at_end(experiment, state),
        // It may have had more steps before, and then ends where it is.
        Length::Steps(steps) => {
            at_end(experiment, state) && (state.step > steps || state.extra.evaluated == state.step)
        }
    }
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
        let options = LoaderOptions { own: self.own_batches(), ..self.loader_options() };
        let horizon = self.horizon();
        let programs = &self.session.programs;
        self.reporter.plan(model::task(self.experiment), &programs.asked, &programs.heads, horizon);
        let start = Position { epoch: self.state.epoch, batch: self.state.batch as usize };
        let mut loader = Loader::start(&self.samples.train, options, &layout, buffers, start)?;
        let mut in_flight = VecDeque::with_capacity(slots::IN_FLIGHT + 1);
        while !self.is_done() {
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
        train_options(self.experiment, Some(self.epochs()))
    }

    /// Updates of an epoch.
    fn updates_per_epoch(&self) -> u64 {
        updates(self.experiment, self.samples.train.len())
    }

    /// Epochs that will have been begun at the end of the run. The data may have had another number of samples before.
    fn epochs(&self) -> u64 {
        let steps = match self.experiment.train.length() {
            Length::Epochs(epochs) => return epochs,
            Length::Steps(steps) => steps,
        };
        let per_epoch = self.updates_per_epoch();
        let here = per_epoch.saturating_sub(self.state.batch.div_ceil(self.experiment.micro_batches() as u64));
        let later = steps.saturating_sub(self.state.step).saturating_sub(here);
        self.state.epoch + 1 + later.div_ceil(per_epoch.max(1))
    }

    /// Whether the last update of the whole run has been made.
    fn at_end(&self) -> bool {
        at_end(self.experiment, &self.state)
    }

    /// Whether the whole run is done, with the evaluation at its end.
    fn is_done(&self) -> bool {
        is_done(self.experiment, &self.state)
    }

    /// The parts of the run, from which its remaining time is estimated.
    fn horizon(&self) -> Horizon {
        let whole = Horizon::new(self.experiment, self.samples.train.len(), self.samples.val.len());
        Horizon { epochs: self.epochs(), ..whole }
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
        self.begin_phase();
        self.any_stopped = None;
        let mut clock = Clock::new(self.state.extra.epoch_seconds);
        let mut done = self.done();
        self.begin_stretch(done);
        while self.state.batch < batches {
            if self.is_interrupted(interrupt)? {
                return self.interrupted(&clock).map(Some);
            }
            if self.is_evaluation_due() {
                if let Some(outcome) = self.evaluate_within(&clock, interrupt)? {
                    return Ok(Some(outcome));
                }
                clock = Clock::new(self.state.extra.epoch_seconds);
                self.begin_stretch(done);
            }
            if self.at_end() {
                self.reporter.end(None);
                return Ok(Some(Outcome::Finished));
            }
            if self.reached_max_steps() {
                return self.max_steps(&clock, interrupt).map(Some);
            }
            done += self.update(loader, in_flight, batches, interrupt)?;
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
                self.state.extra.epoch_seconds = clock.seconds();
                let kept = self.folder.file(&FileKind::Step(self.state.step).to_string());
                self.save(&[kept, self.folder.file(file::LAST)])?;
                self.folder.prune(self.experiment.checkpoint.keep)?;
            }
        }
        self.settle(true)?;
        self.reporter.end(Some(done));
        self.state.extra.epoch_seconds = clock.seconds();
        self.end_of_epoch(interrupt)
    }

    /// Training samples of this epoch that are done.
    fn done(&self) -> u64 {
        (self.state.batch * self.experiment.micro_batch() as u64).min(self.samples_per_epoch())
    }

    /// Has the training of this epoch shown from where it is: to its end, or to the run's.
    fn begin_stretch(&mut self, done: u64) {
        let (train, batch) = (&self.experiment.train, self.experiment.data.loading.batch_size);
        let left = match train.length() {
            Length::Epochs(_) => u64::MAX,
            Length::Steps(steps) => {
                steps.saturating_sub(self.state.step).saturating_mul((batch * train.accumulate) as u64)
            }
        };
        let what = format!("epoch {}/{}", self.state.epoch + 1, self.epochs());
        let samples = self.samples_per_epoch().min(done.saturating_add(left));
        self.reporter.begin(&what, samples, done, self.place(done, None));
    }

    /// Trains with or without the parameters that are thawed in this run, as the epoch says.
    fn begin_phase(&mut self) {
        let Some(after) = self.experiment.model.thaw_after.map(|after| after as u64) else { return };
        self.session.set_frozen(self.state.epoch < after);
        if self.state.epoch == after && self.state.batch == 0 {
            let thawed = thousands(self.session.programs.thawed as u64);
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
    fn update(
        &mut self,
        loader: &mut Loader,
        in_flight: &mut VecDeque<Batch>,
        batches: u64,
        interrupt: &AtomicBool,
    ) -> Result<u64> {
        let group = (self.experiment.micro_batches() as u64).min(batches - self.state.batch);
        let (own, apart) = (self.own_of(group), self.experiment.updates_apart());
        // Each shard has a loss, and so has their update.
        let (in_shards, together) = (self.session.programs.shards.is_some(), self.session.programs.together);
        let losses = if together { 1 } else { own.end - own.start + u64::from(in_shards) };
        let (step, epoch) = (self.state.step, self.state.epoch as usize);
        let lr = self.schedule.lr(step, epoch) * self.plateau_factor();
        let mut inputs = StepInputs {
            lr: lr as f32,
            lr_floor: self.schedule.floor(step, epoch) as f32,
            grad_scale: 1.0,
            seed: self.experiment.seed,
            micro_step: self.state.extra.micro_step + own.start,
        };
        if let Some(ema) = &self.experiment.optimizer.ema {
            self.session.set_average_share(ema.share(self.state.step + 1));
        }
        let start = Position { epoch: self.state.epoch, batch: (self.state.batch + own.start) as usize };
        // The rate that is used, with what the optimizer makes of it.
        let lr = lr * self.experiment.optimizer.rule.warmth(step + 1);
        let shards = [group, own.end - own.start];
        self.pending.push(Update { step: step + 1, start, batches: losses, shards, lr, inputs });
        let before = self.done();
        let mut unreadable = Vec::new();
        for k in own.clone() {
            let mut batch = self.waiting.time(|| loader.next())?.context("the loader ended before the epoch")?;
            debug_assert_eq!(batch.position.epoch, self.state.epoch);
            debug_assert_eq!(batch.position.batch as u64, self.state.batch + k);
            unreadable.extend_from_slice(batch.unreadable());
            self.session.set_shard(k as usize, group as usize);
            if k + 1 == own.end {
                self.session.begin_sums();
            }
            self.session.train(batch.slot, &mut batch.buffer, batch.shape, inputs)?;
            if !self.settles_together() {
                self.settle(false)?;
            }
            if apart && k + 1 == own.end {
                self.session.wait_slot(batch.slot)?;
                self.session.update(batch.slot, &mut batch.buffer, inputs)?;
            }
            inputs.micro_step += 1;
            in_flight.push_back(batch);
            if in_flight.len() > slots::IN_FLIGHT
                && let Some(old) = in_flight.pop_front()
            {
                self.session.wait_slot(old.slot)?;
                loader.release(old);
            }
        }
        if own.is_empty() {
            self.update_without_shards(group, inputs)?;
        }
        if together && !self.settles_together() {
            // All ranks come to know a loss that is not finite here: they look for its reason together.
            self.settle(false)?;
        }
        self.state.batch += group;
        self.state.extra.micro_step += group;
        self.state.step += 1;
        if self.settles_together() && self.state.step.is_multiple_of(SETTLED_EVERY) {
            self.settle(true)?;
        }
        self.exchange_messages(unreadable, interrupt)?;
        Ok(self.done() - before)
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
        if !self.is_leader() {
            return self.session.give();
        }
        self.state.extra.metrics_bytes = self.metrics.flush()?;
        let files: Vec<&std::path::Path> = paths.iter().map(PathBuf::as_path).collect();
        save(&mut self.session, &mut self.state, self.config, self.experiment.seed, &files)
            .map_err(|error| self.not_saved(error))?;
        if paths.contains(&self.folder.file(file::LAST)) && self.folder.saved()? {
            self.metrics.moved_to(&self.folder.path);
        }
        Ok(())
    }
}
