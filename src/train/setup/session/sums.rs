//! What evaluation has summed, as a whole.

use super::Session;
use crate::graph::VarId;
use crate::graph::op::metric_slot;
use crate::model::eval_sums;
use anyhow::Result;

/// All sums of an evaluation: of what is always measured, of classes, of errors.
#[derive(Debug, Clone, PartialEq)]
pub struct EvalSums(Vec<(VarId, Vec<f64>)>);

impl EvalSums {
    /// Batches whose loss was not finite.
    pub fn not_finite(&self) -> f64 {
        self.0.first().map_or(0.0, |(_, sums)| sums[metric_slot::NOT_FINITE])
    }

    /// As they are before anything is evaluated.
    pub fn emptied(&self) -> EvalSums {
        EvalSums(self.0.iter().map(|(id, sums)| (*id, vec![0.0; sums.len()])).collect())
    }

    /// Adds others.
    pub fn add(&mut self, others: &EvalSums) {
        self.combine(others, |own, other| own + other);
    }

    /// Takes off what `copies` of the `samples` of others add, which are all the same: counts stay whole numbers.
    pub fn take_off(&mut self, others: &EvalSums, copies: usize, samples: usize) {
        let [copies, samples] = [copies, samples].map(|n| n as f64);
        self.combine(others, |own, other| own - copies * other / samples);
    }

    fn combine(&mut self, others: &EvalSums, with: impl Fn(f64, f64) -> f64) {
        for ((_, own), (_, others)) in self.0.iter_mut().zip(&others.0) {
            own.iter_mut().zip(others).for_each(|(own, other)| *own = with(*own, *other));
        }
    }

    /// Counts so many more that are not finite.
    pub fn count_not_finite(&mut self, more: usize) {
        if let Some((_, sums)) = self.0.first_mut() {
            sums[metric_slot::NOT_FINITE] += more as f64;
        }
    }
}

impl Session {
    /// What has been summed since the figures of evaluation were reset.
    ///
    /// # Errors
    /// The device failed.
    pub fn eval_sums(&mut self) -> Result<EvalSums> {
        let plan = self.programs.plan.clone();
        let ids = eval_sums(&plan.variables);
        Ok(EvalSums(ids.into_iter().map(|id| Ok((id, self.doubles(id)?))).collect::<Result<_>>()?))
    }

    /// Puts these sums in the place of those that there are.
    ///
    /// # Errors
    /// The device failed.
    pub fn set_eval_sums(&mut self, sums: &EvalSums) -> Result<()> {
        sums.0.iter().try_for_each(|(id, sums)| {
            let bytes: Vec<u8> = sums.iter().flat_map(|sum| sum.to_ne_bytes()).collect();
            self.restore(*id, &bytes)
        })
    }
}
