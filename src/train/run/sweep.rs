//! A run with a learning rate that rises from update to update, to see which rates there are to choose from (Smith 2017). Nothing
//! is written.

use super::train_options;
use crate::backend::{Backend, HostBuffer};
use crate::config::Experiment;
use crate::data::{Loader, Position, Split};
use crate::train::setup::session::{Session, StepInputs};
use crate::train::setup::slots;
use anyhow::{Context, Result};

/// Share of the smoothed loss that an update keeps.
const KEPT: f64 = 0.98;

/// The sweep ends when the smoothed loss is this many times its least value.
const DIVERGED: f64 = 4.0;

/// The rates to try, from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sweep {
    /// The first rate.
    pub from: f64,
    /// The last rate.
    pub to: f64,
    /// How many.
    pub steps: usize,
}

impl Sweep {
    /// The rate of update `step`, from 0: each is the one before times the same factor.
    pub fn rate(&self, step: usize) -> f64 {
        let last = self.steps.saturating_sub(1).max(1) as f64;
        self.from * (self.to / self.from).powf(step as f64 / last)
    }
}

/// A rate that was tried.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tried {
    /// The rate.
    pub lr: f64,
    /// The loss of the batch before its update.
    pub loss: f64,
    /// A mean of the losses so far, the last ones counting most.
    pub smooth: f64,
}

/// Trains with the rates of `sweep`, one an update, until the loss grows out of bounds. `report` is called after each with what was
/// tried so far.
///
/// # Errors
/// A batch could not be made, or the device failed.
pub fn sweep(
    session: &mut Session,
    backend: &dyn Backend,
    experiment: &Experiment,
    split: &Split,
    sweep: Sweep,
    mut report: impl FnMut(&[Tried]),
) -> Result<Vec<Tried>> {
    let layout = session.programs.plan.slot.clone();
    let buffers: Vec<HostBuffer> =
        (0..slots::training(experiment)).map(|_| backend.host_buffer(layout.bytes)).collect::<Result<_>>()?;
    let mut loader = Loader::start(split, train_options(experiment, None), &layout, buffers, Position::default())?;
    session.set_frozen(experiment.model.thaw_after.is_some_and(|after| after > 0));
    let batches = loader.batches_per_epoch() as u64;
    let together = experiment.micro_batches() as u64;
    let (mut batch_number, mut micro_step) = (0, 0);
    let (mut tried, mut losses) = (Vec::with_capacity(sweep.steps), Vec::new());
    let (mut mean, mut least) = (0.0, f64::INFINITY);
    for step in 0..sweep.steps {
        let lr = sweep.rate(step);
        let group = together.min(batches - batch_number);
        for k in 0..group {
            let mut batch = loader.next()?.context("the loader ended")?;
            let (lr, seed) = (lr as f32, experiment.seed);
            let inputs = StepInputs { lr, lr_floor: 0.0, grad_scale: 1.0, seed, micro_step };
            session.set_shard(k as usize, group as usize);
            session.train(batch.slot, &mut batch.buffer, batch.shape, inputs)?;
            if experiment.updates_apart() && k + 1 == group {
                session.wait_slot(batch.slot)?;
                session.update(batch.slot, &mut batch.buffer, inputs)?;
            }
            session.wait_slot(batch.slot)?;
            loader.release(batch);
            micro_step += 1;
        }
        batch_number = (batch_number + group) % batches;
        losses.clear();
        session.losses(true, &mut losses)?;
        // Of micro-batches it is the mean so far.
        let Some(loss) = losses.last().copied().map(f64::from).filter(|loss| loss.is_finite()) else { break };
        mean = KEPT * mean + (1.0 - KEPT) * loss;
        let smooth = mean / (1.0 - KEPT.powi(step as i32 + 1));
        tried.push(Tried { lr, loss, smooth });
        report(&tried);
        least = least.min(smooth);
        if smooth > DIVERGED * least {
            break;
        }
    }
    Ok(tried)
}

/// The least number of rates of which anything can be said.
pub const ENOUGH: usize = 20;

/// The rate at which the smoothed loss falls fastest with the logarithm of the rate; `None` if it does not fall, or too little has
/// been tried. The first tenth and the last twentieth do not count: the mean has not settled yet, or the loss has begun to rise. Nor does
/// what comes after the lowest loss: where it has grown out of bounds, or nearly, it falls again by no merit of the rate.
pub fn steepest(tried: &[Tried]) -> Option<Tried> {
    if tried.len() < ENOUGH {
        return None;
    }
    let slope = |i: usize| (tried[i + 1].smooth - tried[i - 1].smooth) / (tried[i + 1].lr / tried[i - 1].lr).ln();
    let lowest = (0..tried.len()).min_by(|a, b| tried[*a].smooth.total_cmp(&tried[*b].smooth))?;
    let inner = (tried.len() / 10).max(1)..(tried.len() - (tried.len() / 20).max(1)).min(lowest + 1);
    let best = inner.map(|i| (slope(i), i)).min_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 < 0.0).then(|| tried[best.1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_rise_by_the_same_factor() {
        let sweep = Sweep { from: 1e-4, to: 1.0, steps: 5 };
        let rates: Vec<f64> = (0..5).map(|step| sweep.rate(step)).collect();
        for (got, want) in rates.iter().zip([1e-4, 1e-3, 1e-2, 1e-1, 1.0]) {
            assert!((got / want - 1.0).abs() < 1e-12, "{rates:?}");
        }
    }

    #[test]
    fn the_steepest_descent_is_found() {
        let sweep = Sweep { from: 1e-6, to: 1.0, steps: 100 };
        // Falls around 1e-3, and rises at the end.
        let loss = |lr: f64| 2.0 - 1.0 / (1.0 + (1e-3 / lr).powi(2)) + 5.0 * lr * lr;
        let all: Vec<Tried> =
            (0..100).map(|step| sweep.rate(step)).map(|lr| Tried { lr, loss: loss(lr), smooth: loss(lr) }).collect();
        let best = steepest(&all).unwrap();
        assert!((best.lr / 1e-3).ln().abs() < 0.2, "{best:?}");
        assert_eq!(steepest(&all[..ENOUGH - 1]), None);
        // Far too large rates throw the loss up, from where it drops steeply, though not as low as it was.
        let loss = |lr: f64| if (0.02..0.2).contains(&lr) { 4.0 } else { loss(lr.min(0.2)) + f64::from(lr > 0.2) };
        let thrown: Vec<Tried> = all.iter().map(|t| Tried { smooth: loss(t.lr), ..*t }).collect();
        let again = steepest(&thrown).unwrap();
        assert!((again.lr / 1e-3).ln().abs() < 0.2, "{again:?}");
        let rising: Vec<Tried> = all.iter().map(|t| Tried { smooth: t.lr, ..*t }).collect();
        assert_eq!(steepest(&rising), None);
    }
}
