//! The courses of the learning rate as formulas. Each was read from `torch.optim.lr_scheduler`.

use crate::config::language::sections::{By, Course as Config};
use crate::config::language::values::Anneal;

/// A position in the run, or in the part of it that a course has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    /// Updates done.
    pub update: u64,
    /// Whole epochs done.
    pub epoch: u64,
}

impl At {
    /// What has been done of what is counted.
    pub fn by(self, by: By) -> u64 {
        match by {
            By::Epoch => self.epoch,
            By::Step => self.update,
        }
    }
}

/// A learning rate for any base rate `b`: `floor + (b − floor) · share`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// The share of what lies above the floor.
    pub share: f64,
    /// What the rate falls to, whatever the base rate.
    pub floor: f64,
}

/// A course of the learning rate.
#[derive(Debug, Clone, PartialEq)]
pub struct Course {
    /// What it counts.
    pub by: By,
    /// Where it begins to count.
    pub begin: u64,
    /// What it does then.
    pub shape: Shape,
}

/// What a course does after `t` of what it counts.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// Nothing.
    Constant,
    /// `gamma^⌊t / every⌋` (`StepLR`).
    Step {
        /// The distance of two steps.
        every: u64,
        /// Factor.
        gamma: f64,
    },
    /// `gamma^n` with the `n` milestones up to `t` (`MultiStepLR`).
    Milestones {
        /// Ascending.
        at: Vec<u64>,
        /// Factor.
        gamma: f64,
    },
    /// `gamma^t` (`ExponentialLR`).
    Exponential {
        /// Factor.
        gamma: f64,
    },
    /// A line (`LinearLR`).
    Linear {
        /// First factor.
        from: f64,
        /// Last factor.
        to: f64,
        /// Where it ends.
        length: u64,
    },
    /// `(1 − t / length)^power` (`PolynomialLR`).
    Polynomial {
        /// The power.
        power: f64,
        /// Where it ends.
        length: u64,
    },
    /// Half a cosine from the base rate to `min_lr` (`CosineAnnealingLR`; Loshchilov & Hutter 2017), then `min_lr`.
    Cosine {
        /// Where it ends.
        min_lr: f64,
        /// When it ends.
        length: u64,
    },
    /// The same again and again (`CosineAnnealingWarmRestarts`).
    Restarts {
        /// Where each ends.
        min_lr: f64,
        /// Length of the first.
        first: u64,
        /// How many times as long the next one is.
        times: u64,
    },
    /// Up and down (`OneCycleLR`).
    OneCycle(Cycle),
}

/// `OneCycleLR`.
#[derive(Debug, Clone, PartialEq)]
pub struct Cycle {
    /// Where each of its phases ends, with the share of the largest rate there.
    phases: Vec<(f64, f64)>,
    /// The share that it begins with.
    first: f64,
    anneal: Anneal,
}

impl Cycle {
    fn new(config: &crate::config::language::sections::OneCycle, total: u64) -> Self {
        let total = total as f64;
        let first = 1.0 / config.div_factor;
        let last = first / config.final_div_factor;
        let top = config.pct_start * total - 1.0;
        let mut phases = vec![(top, 1.0)];
        if config.three_phase {
            phases.push((2.0 * config.pct_start * total - 2.0, first));
        }
        phases.push((total - 1.0, last));
        Self { phases, first, anneal: config.anneal_strategy }
    }

    fn share(&self, t: f64) -> f64 {
        let (mut start, mut from) = (0.0, self.first);
        let last = self.phases.len() - 1;
        for (i, (end, to)) in self.phases.iter().copied().enumerate() {
            if t <= end || i == last {
                // A phase without length is at its end.
                let at = if end > start { ((t - start) / (end - start)).min(1.0) } else { 1.0 };
                return match self.anneal {
                    Anneal::Cos => to + (from - to) / 2.0 * (1.0 + (std::f64::consts::PI * at).cos()),
                    Anneal::Linear => from + (to - from) * at,
                };
            }
            (start, from) = (end, to);
        }
        from
    }
}

/// How long a course may be, in all that may be counted.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Updates of an epoch.
    pub per_epoch: u64,
    /// Updates that the course has.
    pub updates: u64,
    /// Updates of the warm-up, which come first.
    pub warmup: u64,
}

impl Room {
    /// Where a course that follows the warm-up begins.
    fn begin(self, by: By) -> u64 {
        match by {
            By::Step => self.warmup,
            By::Epoch => self.warmup.div_ceil(self.per_epoch.max(1)),
        }
    }

    /// The length of a course that begins there and goes on to the end.
    fn rest(self, by: By) -> u64 {
        let all = match by {
            By::Step => self.updates,
            By::Epoch => self.updates.div_ceil(self.per_epoch.max(1)),
        };
        all.saturating_sub(self.begin(by)).max(1)
    }
}

impl Course {
    /// The course that is configured.
    pub fn new(config: &Config, room: Room) -> Self {
        let after_warmup = |by: By, shape: Shape| Course { by, begin: room.begin(by), shape };
        let length = |given: Option<usize>, by: By| given.map_or_else(|| room.rest(by), |n| n as u64);
        let from_start = |by: By, shape: Shape| Course { by, begin: 0, shape };
        let wide = |list: &[usize]| list.iter().map(|n| *n as u64).collect();
        match config {
            Config::Constant(_) => from_start(By::Epoch, Shape::Constant),
            Config::Step(s) => {
                let gamma = s.gamma;
                let shape = match (&s.milestones, s.step_epochs) {
                    (Some(epochs), _) => Shape::Milestones { at: wide(epochs), gamma },
                    (None, every) => Shape::Step { every: every.unwrap_or(1) as u64, gamma },
                };
                from_start(By::Epoch, shape)
            }
            Config::MultiStep(s) => from_start(s.by, Shape::Milestones { at: wide(&s.milestones), gamma: s.gamma }),
            Config::Exponential(e) => from_start(e.by, Shape::Exponential { gamma: e.gamma }),
            Config::Linear(l) => {
                let length = length(l.total_iters, l.by);
                after_warmup(l.by, Shape::Linear { from: l.start_factor, to: l.end_factor, length })
            }
            Config::Polynomial(p) => {
                after_warmup(p.by, Shape::Polynomial { power: p.power, length: length(p.total_iters, p.by) })
            }
            Config::Cosine(c) => {
                let end = c.epochs.map_or(room.updates, |epochs| (epochs as u64).saturating_mul(room.per_epoch));
                let length = end.saturating_sub(room.warmup).max(1);
                after_warmup(By::Step, Shape::Cosine { min_lr: c.min_lr, length })
            }
            Config::CosineRestarts(c) => {
                let (first, times) = (c.t_0 as u64, c.t_mult as u64);
                after_warmup(c.by, Shape::Restarts { min_lr: c.min_lr, first, times })
            }
            Config::OneCycle(c) => after_warmup(c.by, Shape::OneCycle(Cycle::new(c, length(c.total_steps, c.by)))),
        }
    }

    /// The rate at a position.
    pub fn rate(&self, at: At) -> Rate {
        let t = at.by(self.by).saturating_sub(self.begin);
        let part = |length: u64| t.min(length) as f64 / length as f64;
        let power = |gamma: f64, n: u64| gamma.powi(i32::try_from(n).unwrap_or(i32::MAX));
        let (share, floor) = match &self.shape {
            Shape::Constant => (1.0, 0.0),
            Shape::Step { every, gamma } => (power(*gamma, t / every), 0.0),
            Shape::Milestones { at, gamma } => (power(*gamma, at.partition_point(|m| *m <= t) as u64), 0.0),
            Shape::Exponential { gamma } => (power(*gamma, t), 0.0),
            Shape::Linear { from, to, length } => (from + (to - from) * part(*length), 0.0),
            Shape::Polynomial { power, length } => ((1.0 - part(*length)).powf(*power), 0.0),
            Shape::Cosine { min_lr, length } => (cosine(part(*length)), *min_lr),
            Shape::Restarts { min_lr, first, times } => {
                let (t, length) = since_restart(t, *first, *times);
                (cosine(t as f64 / length as f64), *min_lr)
            }
            Shape::OneCycle(cycle) => (cycle.share(t as f64), 0.0),
        };
        Rate { share, floor }
    }
}

/// Falls from 1, at 0, to 0, at 1.
fn cosine(at: f64) -> f64 {
    0.5 * (1.0 + (std::f64::consts::PI * at).cos())
}

/// How far `t` lies after the last restart, and how far that one lies before the next.
fn since_restart(t: u64, first: u64, times: u64) -> (u64, u64) {
    if times == 1 {
        return (t % first, first);
    }
    let (mut since, mut length) = (t, first);
    while since >= length {
        since -= length;
        length = length.saturating_mul(times);
    }
    (since, length)
}
