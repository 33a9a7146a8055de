//! Updates that the device was given and whose losses have not come back yet.

use crate::data::Position;
use crate::train::setup::session::StepInputs;
use std::collections::VecDeque;

/// An update of the parameters.
#[derive(Debug, Clone, Copy)]
pub struct Update {
    /// Its number, from 1.
    pub step: u64,
    /// Its first batch.
    pub start: Position,
    /// Number of the losses that come back of it, of which the last is that of all its batches: one for each, and with shards one more, or that one alone where
    /// shards are computed together.
    pub batches: u64,
    /// Number of its micro-batches that all ranks have, and that this one has.
    pub shards: [u64; 2],
    /// Its learning rate.
    pub lr: f64,
    /// What its first batch was given.
    pub inputs: StepInputs,
}

/// What has become of an update.
#[derive(Debug, Clone, Copy)]
pub enum Settled {
    /// The mean loss of its batches, over what counts in them.
    Loss(Update, f32),
    /// The loss of this batch of it, counted from 0, is not finite.
    NotFinite(Update, u64, f32),
}

/// Updates in the order in which they were given to the device, and the losses that have come back.
#[derive(Debug, Default)]
pub struct Pending {
    updates: VecDeque<Update>,
    /// For the batches of `updates`, in order, the mean loss of the update so far.
    pub losses: Vec<f32>,
    latest: Option<f32>,
}

impl Pending {
    /// One more.
    pub fn push(&mut self, update: Update) {
        self.updates.push_back(update);
    }

    /// The loss of the last update of which it is known.
    pub fn latest(&self) -> Option<f32> {
        self.latest
    }

    /// The oldest update, if its fate is known; it is no longer pending.
    pub fn pop(&mut self) -> Option<Settled> {
        let update = *self.updates.front()?;
        let known = &self.losses[..self.losses.len().min(update.batches as usize)];
        if let Some(k) = known.iter().position(|loss| !loss.is_finite()) {
            return Some(Settled::NotFinite(update, k as u64, known[k]));
        }
        if known.len() < update.batches as usize {
            return None;
        }
        // Each is the mean over the update's batches so far.
        let loss = *known.last()?;
        self.losses.drain(..update.batches as usize);
        self.updates.pop_front();
        self.latest = Some(loss);
        Some(Settled::Loss(update, loss))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(step: u64, batches: u64) -> Update {
        let inputs = StepInputs { lr: 0.1, lr_floor: 0.0, grad_scale: 1.0, seed: 1, micro_step: 0 };
        Update { step, start: Position::default(), batches, shards: [batches; 2], lr: 0.1, inputs }
    }

    #[test]
    fn losses_go_to_the_updates_that_they_belong_to() {
        let mut pending = Pending::default();
        pending.push(update(1, 2));
        pending.push(update(2, 1));
        pending.losses.push(1.0);
        assert!(pending.pop().is_none(), "one of two batches");
        pending.losses.extend([2.0, 5.0]);
        assert!(matches!(pending.pop(), Some(Settled::Loss(u, loss)) if u.step == 1 && loss == 2.0));
        assert!(matches!(pending.pop(), Some(Settled::Loss(u, loss)) if u.step == 2 && loss == 5.0));
        assert!(pending.pop().is_none());
        assert_eq!(pending.latest(), Some(5.0));
    }

    #[test]
    fn a_loss_that_is_not_finite_is_reported_before_the_update_is_complete() {
        let mut pending = Pending::default();
        pending.push(update(7, 3));
        pending.losses.extend([1.0, f32::NAN]);
        assert!(matches!(pending.pop(), Some(Settled::NotFinite(u, 1, _)) if u.step == 7));
    }
}
