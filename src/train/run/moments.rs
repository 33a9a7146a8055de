//! What a run does where an epoch ends, where it evaluates within one, and where it stops: figures, their lines, checkpoints.

use super::evaluate::{Evaluation, NOTHING_COUNTS, evaluate_batches};
use super::mistakes::{Keep, Worst};
use super::table::Row;
use super::unusable::Unusable;
use super::{Clock, Outcome, Run, eval_options};
use crate::collective::inbox::Failed;
use crate::config::language::sections::{EvalEvery, Length};
use crate::data::Batch;
use crate::graph::op::Figure;
use crate::model::Mode;
use crate::train::files::folder::file;
use crate::train::files::metrics_file::{RowOf, add_memory, add_unreadable, row_line};
use crate::train::setup::figures::Figures;
use crate::train::setup::session::Session;
use anyhow::{Result, ensure};
use std::sync::atomic::AtomicBool;

/// The figures of a moment.
#[derive(Clone)]
struct Measured {
    /// Over the epoch so far, unless nothing of it is done.
    train: Option<Figures>,
    /// Of the validation, if there was one.
    val: Option<Figures>,
}

/// What came of the figures of a moment.
struct Noted {
    /// The monitored one is the best so far.
    best: bool,
    /// Early stopping has waited long enough.
    stop: bool,
    /// What is to be said of the learning rate.
    drop: Option<String>,
}

impl Run<'_> {
    /// Whether the run has to evaluate before its next update. Which evaluation was the last is a part of the state, so a run that
    /// goes on has the same ones as one that never stopped.
    pub(super) fn is_evaluation_due(&self) -> bool {
        let step = self.state.step;
        let due = match self.experiment.train.eval_every() {
            EvalEvery::Steps(every) => step.is_multiple_of(every),
            EvalEvery::Epochs(_) => false,
        };
        let last = self.experiment.train.length() == Length::Steps(step);
        step > 0 && self.state.extra.evaluated != step && (due || last)
    }

    /// An evaluation within an epoch: its line, checkpoints, early stopping. All losses become known before.
    pub(super) fn evaluate_within(&mut self, clock: &Clock, interrupt: &AtomicBool) -> Result<Option<Outcome>> {
        self.settle(true)?;
        self.state.extra.epoch_seconds = clock.seconds();
        let done = self.done();
        self.reporter.end(Some(done));
        let train = self.session.figures(Mode::Train)?.0;
        if !self.follow_average(interrupt)? {
            return self.interrupted_at_rest().map(Some);
        }
        let val = match self.samples.val.is_empty() {
            true => None,
            false => match self.evaluate(interrupt)? {
                Some(figures) => Some(figures),
                // The state says that it is still due.
                None => return self.interrupted_at_rest().map(Some),
            },
        };
        let Some(texts) = self.texts(interrupt)? else { return self.interrupted_at_rest().map(Some) };
        let measured = Measured { train, val };
        let Noted { best, stop, drop } = self.note(&measured, true);
        self.write_texts(&texts)?;
        self.write_row(RowOf::Evaluation, done, measured, best)?;
        if let Some(note) = drop {
            self.reporter.info(&note);
        }
        self.write_histograms()?;
        self.save_moment(best)?;
        Ok((stop && !self.at_end()).then_some(Outcome::EarlyStopped))
    }

    /// Evaluation, the epoch's lines, checkpoints, early stopping.
    pub(super) fn end_of_epoch(&mut self, interrupt: &AtomicBool) -> Result<Option<Outcome>> {
        let number = self.state.epoch + 1;
        let last = match self.experiment.train.length() {
            Length::Epochs(epochs) => number == epochs,
            Length::Steps(steps) => self.state.step >= steps,
        };
        let due = last
            || match self.experiment.train.eval_every() {
                EvalEvery::Epochs(every) => number.is_multiple_of(every),
                EvalEvery::Steps(every) => self.state.step.is_multiple_of(every),
            };
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
        let texts = if due { self.texts(interrupt)? } else { Some(Vec::new()) };
        let Some(texts) = texts else { return self.interrupted_at_rest().map(Some) };
        let measured = Measured { train, val };
        let Noted { best, stop, drop } = self.note(&measured, due);
        self.write_texts(&texts)?;
        self.write_row(RowOf::Epoch, self.samples_per_epoch(), measured, best)?;
        self.report_loading(self.state.extra.epoch_seconds);
        if let Some(note) = drop {
            self.reporter.info(&note);
        }
        self.write_histograms()?;
        self.state.epoch += 1;
        self.state.batch = 0;
        self.state.extra.epoch_seconds = 0.0;
        self.session.reset_figures(Mode::Train)?;
        self.save_moment(best)?;
        Ok((stop && !last).then_some(Outcome::EarlyStopped))
    }

    /// Takes in the figures of a moment, at which an evaluation was `due` or not.
    fn note(&mut self, measured: &Measured, due: bool) -> Noted {
        let Measured { train, val } = measured;
        let best = self.note_best(train.as_ref(), val.as_ref());
        let monitor = self.experiment.checkpoint.monitor();
        if let Some(value) = Self::figure(monitor, train.as_ref(), val.as_ref()) {
            self.reporter.note_watched(monitor, value);
        }
        let early = self.experiment.train.early_stopping.as_ref().filter(|_| due).map(|early| &early.monitor);
        if let Some(watched) = early
            && Self::figure(watched, train.as_ref(), val.as_ref()).is_some_and(|value| !value.is_finite())
        {
            let name = watched.name();
            self.reporter.warn_once(&format!("`{name}` is no number: to early stopping that is no improvement"));
        }
        let stop = due && self.out_of_patience(train.as_ref(), val.as_ref());
        let drop = if due { self.note_plateau(train.as_ref(), val.as_ref()) } else { None };
        if due {
            self.state.extra.evaluated = self.state.step;
        }
        Noted { best, stop, drop }
    }

    /// Saves the state as it is after the figures of a moment.
    fn save_moment(&mut self, best: bool) -> Result<()> {
        let mut paths = Vec::from_iter(best.then(|| self.folder.file(file::BEST)));
        paths.push(self.folder.file(file::LAST));
        self.save(&paths)
    }

    /// Writes down the figures of a moment at which so many samples of the epoch are done.
    fn write_row(&mut self, of: RowOf, samples: u64, measured: Measured, best: bool) -> Result<()> {
        let Measured { train, val } = measured;
        let seconds = self.state.extra.epoch_seconds;
        let samples_per_s = if seconds > 0.0 { samples as f64 / seconds } else { 0.0 };
        let (number, step) = (self.state.epoch + 1, self.state.step);
        let mut line = row_line(of, number as usize, step, train.as_ref(), val.as_ref(), seconds, samples_per_s);
        if let Some(memory) = self.session.memory_use() {
            add_memory(&mut line, memory);
        }
        let extra = &self.state.extra;
        add_unreadable(&mut line, extra.unreadable.list().len(), extra.val_unreadable.list().len());
        self.metrics.write(&line)?;
        self.reporter.record(&line);
        let extra = &self.state.extra;
        self.reporter.unreadable([&extra.unreadable, &extra.val_unreadable]);
        let at = if self.experiment.train.counts_steps() { step } else { number };
        self.reporter.row(&Row { at, train, val, seconds, samples_per_s, best });
        Ok(())
    }

    fn evaluate(&mut self, interrupt: &AtomicBool) -> Result<Option<Figures>> {
        let split = &self.samples.val;
        let total = split.len() as u64;
        let place = self.place(self.done(), Some(0));
        let (reporter, unread) = (&mut self.reporter, &mut self.state.extra.val_unreadable);
        let before = unread.list().len();
        reporter.begin("evaluation", total, 0, place);
        let options = eval_options(self.experiment);
        let most = self.experiment.log.mistakes;
        // Every rank sees a part of them; the first one has the file.
        let mut worst = (self.experiment.log.tensorboard && most > 0).then(|| Worst::new(Keep::Any(most)));
        let (mut done, asynchronous) = (0, self.backend.is_asynchronous());
        let mut see = |session: &mut Session, batch: &Batch| {
            done += batch.shape.samples as u64;
            if reporter.due() {
                // What has been measured so far; to ask a device that is still at work would wait for it.
                let so_far = if asynchronous { None } else { session.figures(Mode::Eval)?.0 };
                let of = |figure| so_far.as_ref().and_then(|figures: &Figures| figures.get(figure));
                reporter.note_accuracy(of(Figure::Accuracy));
                reporter.progress(done, place.step, of(Figure::Loss).map(|loss| loss as f32));
            }
            worst.as_mut().map_or(Ok(()), |worst| worst.see(session, batch))
        };
        let found = evaluate_batches(&mut self.session, self.backend, split, &options, interrupt, unread, &mut see);
        reporter.end(matches!(found, Ok(Some(_))).then_some(total));
        if found.as_ref().is_err_and(|error| error.is::<Unusable>()) {
            // The run goes on with this evaluation, when the samples can be read. It knows nothing of them then.
            self.state.extra.val_unreadable.truncate(before);
            self.save_last()?;
        }
        self.note_unreadable_in_evaluation(before)?;
        let at = || match self.experiment.train.counts_steps() {
            true => format!("the evaluation at step {}", self.state.step),
            false => format!("the evaluation in epoch {}", self.state.epoch + 1),
        };
        // That another rank has failed has nothing to do with the evaluation.
        let found = found.map_err(|error| if error.is::<Failed>() { error } else { error.context(at()) })?;
        let Some(Evaluation { figures, notes, .. }) = found else { return Ok(None) };
        notes.iter().for_each(|note| self.reporter.warn_once(note));
        self.evaluated = Some((self.state.step, figures.clone()));
        if let Some(mut worst) = worst {
            self.backend.team().map_or(Ok(()), |team| worst.join(team.as_ref()))?;
            self.write_mistakes(&worst.list())?;
        }
        Ok(Some(figures))
    }

    /// Ends at `train.max_steps`: saves first, so that a run with more steps goes on from here as if it had not stopped.
    /// For the same reason this evaluation, which a longer run does not have, is no match for the `best` of an epoch's
    /// end. Where there is none, it makes one that does not count, so that there is something to use.
    pub(super) fn max_steps(&mut self, clock: &Clock, interrupt: &AtomicBool) -> Result<Outcome> {
        self.settle(true)?;
        self.reporter.end(None);
        self.state.extra.epoch_seconds = clock.seconds();
        self.save(&[self.folder.file(file::LAST)])?;
        let just_now = self.evaluated.clone().filter(|(step, _)| *step == self.state.step);
        let val = match (self.samples.val.is_empty(), just_now) {
            (true, _) => None,
            (false, Some((_, figures))) => Some(figures),
            (false, None) => match self.evaluate(interrupt)? {
                Some(figures) => Some(figures),
                None => return Ok(Outcome::Interrupted),
            },
        };
        let train = self.session.figures(Mode::Train)?.0;
        let samples = self.done();
        let monitored = Self::figure(self.experiment.checkpoint.monitor(), train.as_ref(), val.as_ref());
        if self.state.best.is_none() && monitored.is_some_and(f64::is_finite) {
            self.save(&[self.folder.file(file::BEST)])?;
        }
        self.write_row(RowOf::Evaluation, samples, Measured { train, val }, false)?;
        self.report_loading(self.state.extra.epoch_seconds);
        self.metrics.flush()?;
        Ok(Outcome::MaxSteps)
    }

    pub(super) fn interrupted(&mut self, clock: &Clock) -> Result<Outcome> {
        self.settle(true)?;
        self.state.extra.epoch_seconds = clock.seconds();
        self.interrupted_at_rest()
    }

    fn interrupted_at_rest(&mut self) -> Result<Outcome> {
        self.reporter.end(None);
        self.save(&[self.folder.file(file::LAST)])?;
        Ok(Outcome::Interrupted)
    }
}
