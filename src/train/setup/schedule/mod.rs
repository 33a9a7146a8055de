//! The learning rate as a function of the position in the run.

mod course;
mod plateau;

pub use plateau::PlateauState;

use crate::config::Experiment;
use crate::config::language::sections::{By, Curve, Plateau};
use crate::config::language::values::Anneal;
use course::{At, Course, Rate, Room};

/// Batches of an epoch over `samples` samples, or shards of them.
pub fn batches(experiment: &Experiment, samples: usize) -> usize {
    let loading = &experiment.data.loading;
    match loading.drop_last {
        true => samples / loading.batch_size * experiment.shards(),
        false => samples.div_ceil(experiment.micro_batch()),
    }
}

/// Updates of an epoch over `samples` samples. It ends with one, of fewer batches than the others if need be.
pub fn updates(experiment: &Experiment, samples: usize) -> u64 {
    batches(experiment, samples).div_ceil(experiment.micro_batches()) as u64
}

/// The learning rate of every update.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// The optimizer's `lr`, scaled for the batch if that is asked for.
    pub base: f64,
    /// Updates over which the rate rises linearly.
    pub warmup: u64,
    /// Share of the rate at the first update of the warm-up.
    pub warmup_start: f64,
    /// What lets the rate drop besides its position in the run.
    pub plateau: Option<Plateau>,
    /// What the rate does, each with where it begins; the first begins at once.
    courses: Vec<(At, Course)>,
    /// The unit of the places where they begin.
    by: By,
    /// Updates of an epoch.
    per_epoch: u64,
    /// Where the rate goes once weights are averaged.
    swa: Option<Averaging>,
}

/// The rate's way from where it is at the beginning of an epoch to another value, a step an epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Averaging {
    /// Epochs before.
    start: u64,
    /// The value.
    lr: f64,
    /// Epochs until it is reached.
    epochs: u64,
    strategy: Anneal,
}

impl Averaging {
    /// How much of the way is done in an epoch after `epoch` whole ones; `None` before it begins.
    fn way(&self, epoch: u64) -> Option<f64> {
        let done = epoch.checked_sub(self.start)?;
        if done >= self.epochs {
            return Some(1.0);
        }
        let share = done as f64 / self.epochs as f64;
        Some(match self.strategy {
            Anneal::Cos => (1.0 - (std::f64::consts::PI * share).cos()) / 2.0,
            Anneal::Linear => share,
        })
    }
}

impl Schedule {
    /// The schedule of an experiment that trains on `samples` samples.
    pub fn new(experiment: &Experiment, samples: usize) -> Self {
        let config = &experiment.schedule;
        let per_epoch = updates(experiment, samples);
        let in_epochs = |epochs: usize| (epochs as u64).saturating_mul(per_epoch);
        let warmup = match (config.warmup.warmup_steps, config.warmup.warmup_epochs) {
            (Some(steps), _) => steps as u64,
            (None, epochs) => in_epochs(epochs.unwrap_or(0)),
        };
        let warmup_start = config.warmup.warmup_start_factor.unwrap_or(1.0 / warmup.max(1) as f64);
        let all = experiment.train.length().updates(per_epoch);
        let (mut plateau, mut by) = (None, By::Epoch);
        let start = At { update: 0, epoch: 0 };
        let courses = match &config.curve {
            Curve::Course(course) => {
                vec![(start, Course::new(course, Room { per_epoch, updates: all, warmup }))]
            }
            Curve::Plateau(rule) => {
                plateau = Some(rule.clone());
                Vec::new()
            }
            Curve::Sequential(list) => {
                by = list.by;
                let begins: Vec<At> = std::iter::once(start)
                    .chain(list.milestones.iter().map(|n| match by {
                        By::Epoch => At { update: in_epochs(*n), epoch: *n as u64 },
                        By::Step => At { update: *n as u64, epoch: *n as u64 / per_epoch.max(1) },
                    }))
                    .collect();
                let ends = begins.iter().skip(1).map(|at| at.update).chain([all]);
                let room =
                    |(begin, end): (&At, u64)| Room { per_epoch, updates: end.saturating_sub(begin.update), warmup: 0 };
                let rooms = begins.iter().zip(ends).map(room);
                let courses = list.schedules.iter().zip(rooms).map(|(course, room)| Course::new(course, room));
                begins.iter().copied().zip(courses).collect()
            }
        };
        let optimizer = &experiment.optimizer;
        let batch = experiment.data.loading.batch_size.saturating_mul(experiment.train.accumulate);
        let factor = optimizer.lr_factor(batch);
        let base = optimizer.rule.lr() * factor;
        let swa = optimizer.swa.as_ref().and_then(|swa| {
            let (lr, epochs, strategy) = swa.anneal()?;
            Some(Averaging { start: swa.start as u64, lr: lr * factor, epochs: epochs as u64, strategy })
        });
        Schedule { base, warmup, warmup_start, plateau, courses, by, per_epoch, swa }
    }

    /// The rate of update `update` (from 0) in an epoch after `epochs_done` whole ones.
    pub fn lr(&self, update: u64, epochs_done: usize) -> f64 {
        match self.annealed(epochs_done) {
            Some((swa, way, update)) => {
                let from = self.scheduled(update, swa.start as usize);
                from + way * (swa.lr - from)
            }
            None => self.scheduled(update, epochs_done),
        }
    }

    /// The rate without that of averaging.
    fn scheduled(&self, update: u64, epochs_done: usize) -> f64 {
        let Rate { share, floor } = self.rate(At { update, epoch: epochs_done as u64 });
        self.warm(update, floor + (self.base - floor) * share)
    }

    /// What the rate goes to, how much of the way is done, and the update at which it began.
    fn annealed(&self, epochs_done: usize) -> Option<(Averaging, f64, u64)> {
        let swa = self.swa?;
        Some((swa, swa.way(epochs_done as u64)?, swa.start.saturating_mul(self.per_epoch)))
    }

    /// The part of the rate of update `update` that does not grow with the base rate: `min_lr` is the same for groups of
    /// parameters whose base rates differ, so that with base rate `b` the rate is `(lr − floor) · b / base + floor`. That of averaging
    /// has none: groups keep their proportions.
    pub fn floor(&self, update: u64, epochs_done: usize) -> f64 {
        match self.annealed(epochs_done) {
            Some((swa, way, update)) => (1.0 - way) * self.scheduled_floor(update, swa.start as usize),
            None => self.scheduled_floor(update, epochs_done),
        }
    }

    fn scheduled_floor(&self, update: u64, epochs_done: usize) -> f64 {
        let Rate { share, floor } = self.rate(At { update, epoch: epochs_done as u64 });
        self.warm(update, floor * (1.0 - share))
    }

    fn rate(&self, at: At) -> Rate {
        let course = self.courses.iter().rev().find(|(begin, _)| begin.by(self.by) <= at.by(self.by));
        let Some((begin, course)) = course else { return Rate { share: 1.0, floor: 0.0 } };
        let update = at.update.saturating_sub(begin.update);
        let epoch = match self.by {
            By::Epoch => at.epoch.saturating_sub(begin.epoch),
            // Epochs of the course's own, which begins within one of the run's.
            By::Step if begin.update > 0 => update / self.per_epoch.max(1),
            By::Step => at.epoch,
        };
        course.rate(At { update, epoch })
    }

    /// A rate as the warm-up lets it be.
    fn warm(&self, update: u64, rate: f64) -> f64 {
        if update < self.warmup {
            rate * (self.warmup_start + (1.0 - self.warmup_start) * update as f64 / self.warmup as f64)
        } else {
            rate
        }
    }
}
