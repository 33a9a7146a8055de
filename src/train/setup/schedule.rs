//! The learning rate as a function of the position in the run.

use crate::config::Experiment;
use crate::config::language::sections::Curve;

/// How the learning rate moves after the warm-up.
#[derive(Debug, Clone, PartialEq)]
pub enum Decay {
    /// It does not.
    Constant,
    /// Multiplied by `gamma` every `epochs` epochs (`torch.optim.lr_scheduler.StepLR`).
    Step {
        /// Epochs between two steps.
        epochs: usize,
        /// Factor.
        gamma: f64,
    },
    /// Multiplied by `gamma` when each of these epochs is done (`MultiStepLR`).
    Milestones {
        /// Ascending numbers of finished epochs.
        epochs: Vec<usize>,
        /// Factor.
        gamma: f64,
    },
    /// Half a cosine from the base rate to `min_lr` at update `updates` (`CosineAnnealingLR`; Loshchilov & Hutter 2017), then `min_lr`.
    Cosine {
        /// Where it ends.
        min_lr: f64,
        /// Update at which it ends, counted from the start of the run.
        updates: u64,
    },
}

/// Batches of an epoch over `samples` samples.
pub fn batches(experiment: &Experiment, samples: usize) -> usize {
    let loading = &experiment.data.loading;
    if loading.drop_last { samples / loading.batch_size } else { samples.div_ceil(loading.batch_size) }
}

/// Updates of an epoch over `samples` samples. It ends with one, of fewer batches than the others if need be.
pub fn updates(experiment: &Experiment, samples: usize) -> u64 {
    batches(experiment, samples).div_ceil(experiment.train.accumulate) as u64
}

/// The learning rate of every update.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// The optimizer's `lr`.
    pub base: f64,
    /// Updates over which the rate rises linearly.
    pub warmup: u64,
    /// Share of the rate at the first update of the warm-up.
    pub warmup_start: f64,
    /// What comes after.
    pub decay: Decay,
}

impl Schedule {
    /// The schedule of an experiment that trains on `samples` samples.
    pub fn new(experiment: &Experiment, samples: usize) -> Self {
        let config = &experiment.schedule;
        let updates = updates(experiment, samples);
        let warmup = match (config.warmup.warmup_steps, config.warmup.warmup_epochs) {
            (Some(steps), _) => steps as u64,
            (None, epochs) => (epochs.unwrap_or(0) as u64).saturating_mul(updates),
        };
        let decay = match &config.curve {
            Curve::Constant(_) => Decay::Constant,
            Curve::Step(s) => match (&s.milestones, s.step_epochs) {
                (Some(epochs), _) => Decay::Milestones { epochs: epochs.clone(), gamma: s.gamma },
                (None, epochs) => Decay::Step { epochs: epochs.unwrap_or(1), gamma: s.gamma },
            },
            Curve::Cosine(c) => Decay::Cosine {
                min_lr: c.min_lr,
                updates: (c.epochs.unwrap_or(experiment.train.epochs) as u64).saturating_mul(updates),
            },
        };
        let warmup_start = config.warmup.warmup_start_factor.unwrap_or(1.0 / warmup.max(1) as f64);
        Schedule { base: experiment.optimizer.rule.lr(), warmup, warmup_start, decay }
    }

    /// The rate of update `update` (from 0) in an epoch after `epochs_done` whole ones.
    pub fn lr(&self, update: u64, epochs_done: usize) -> f64 {
        let decayed = match &self.decay {
            Decay::Constant => self.base,
            Decay::Step { epochs, gamma } => self.base * gamma.powi((epochs_done / epochs) as i32),
            Decay::Milestones { epochs, gamma } => {
                self.base * gamma.powi(epochs.iter().filter(|e| **e <= epochs_done).count() as i32)
            }
            Decay::Cosine { min_lr, updates } => min_lr + (self.base - min_lr) * self.cosine(update, *updates),
        };
        if update < self.warmup {
            decayed * (self.warmup_start + (1.0 - self.warmup_start) * update as f64 / self.warmup as f64)
        } else {
            decayed
        }
    }

    /// The part of the rate of update `update` that does not grow with the base rate: `min_lr` is the same for groups of
    /// parameters whose base rates differ, so that with base rate `b` the rate is `(lr − floor) · b / base + floor`.
    pub fn floor(&self, update: u64) -> f64 {
        match &self.decay {
            Decay::Cosine { min_lr, updates } => min_lr * (1.0 - self.cosine(update, *updates)),
            Decay::Constant | Decay::Step { .. } | Decay::Milestones { .. } => 0.0,
        }
    }

    /// Falls from 1, at the end of the warm-up, to 0, at `end`.
    fn cosine(&self, update: u64, end: u64) -> f64 {
        let length = end.saturating_sub(self.warmup).max(1);
        let at = update.saturating_sub(self.warmup).min(length) as f64 / length as f64;
        0.5 * (1.0 + (std::f64::consts::PI * at).cos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_then_cosine() {
        let decay = Decay::Cosine { min_lr: 0.01, updates: 14 };
        let s = Schedule { base: 0.1, warmup: 4, warmup_start: 0.25, decay };
        assert_eq!(s.lr(0, 0), 0.025);
        assert!((s.lr(2, 0) - 0.0625).abs() < 1e-12);
        assert_eq!(s.lr(4, 0), 0.1);
        assert!((s.lr(9, 0) - 0.055).abs() < 1e-12);
        assert!((s.lr(14, 0) - 0.01).abs() < 1e-12 && s.lr(99, 0) == s.lr(14, 0));
        // A group with a base rate of 0.2 falls to the same end: halfway it has (0.2 + 0.01) / 2.
        let group = |update| (s.lr(update, 0) - s.floor(update)) * 2.0 + s.floor(update);
        assert_eq!(group(2), 2.0 * s.lr(2, 0));
        assert!((group(9) - 0.105).abs() < 1e-12 && (group(14) - 0.01).abs() < 1e-12);
    }

    #[test]
    fn steps_count_whole_epochs() {
        let s = |decay| Schedule { base: 1.0, warmup: 0, warmup_start: 0.0, decay };
        let step = s(Decay::Step { epochs: 2, gamma: 0.5 });
        assert_eq!([0, 1, 2, 3, 4].map(|e| step.lr(9, e)), [1.0, 1.0, 0.5, 0.5, 0.25]);
        let many = s(Decay::Milestones { epochs: vec![1, 3], gamma: 0.5 });
        assert_eq!([0, 1, 2, 3, 4].map(|e| many.lr(9, e)), [1.0, 0.5, 0.5, 0.25, 0.25]);
    }
}
