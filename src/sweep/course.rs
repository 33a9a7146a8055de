//! How a trial has gone so far.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// What is known of a trial.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Course {
    /// The monitored figure after epochs, counted from 1. Not every epoch has one.
    pub values: BTreeMap<u64, Measured>,
    /// Epochs that are done.
    pub epochs: u64,
    /// Nothing more is to come, though not all epochs are done: it has failed, or stopped early by itself.
    pub ended: bool,
}

/// The monitored figure at a validation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// It.
    pub value: f64,
    /// The loss that was measured with it.
    pub loss: Option<f64>,
}

impl From<f64> for Measured {
    fn from(value: f64) -> Self {
        Measured { value, loss: None }
    }
}

/// What becomes of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It trains until so many epochs are done.
    Train {
        /// These.
        until: u64,
    },
    /// It waits for others.
    Wait,
    /// It is whole.
    Done,
    /// It goes no further than this; later epochs do not count.
    Out {
        /// Epochs that count.
        after: u64,
    },
}

/// Which values are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Larger ones.
    Higher,
    /// Smaller ones.
    Lower,
}

impl Better {
    /// Whether `a` is better than `b`; what is no number is worse than any.
    pub fn is(self, a: f64, b: f64) -> bool {
        match (a.is_nan(), b.is_nan()) {
            (true, _) => false,
            (false, true) => true,
            (false, false) => {
                if self == Better::Higher {
                    a > b
                } else {
                    a < b
                }
            }
        }
    }

    /// The same of what was measured: of equal values that with less loss is better, as a run chooses its best.
    pub fn is_of(self, a: Measured, b: Measured) -> bool {
        let less = || a.loss.zip(b.loss).is_some_and(|(a, b)| a < b);
        self.is(a.value, b.value) || a.value == b.value && less()
    }
}

impl Course {
    /// Whether so many epochs are done, or no more are to come.
    pub fn reached(&self, epochs: u64) -> bool {
        self.ended || self.epochs >= epochs
    }

    /// The best of the first `epochs`, and the epoch that first had it.
    pub fn best(&self, epochs: u64, better: Better) -> Option<(Measured, u64)> {
        let values = self.values.range(..=epochs).map(|(epoch, measured)| (*measured, *epoch));
        values
            .filter(|(measured, _)| !measured.value.is_nan())
            .reduce(|best, next| if better.is_of(next.0, best.0) { next } else { best })
    }

    /// The mean of the values of the first `epochs`.
    pub fn mean(&self, epochs: u64) -> Option<f64> {
        let values = self.values.range(..=epochs).map(|(_, measured)| measured.value);
        let values: Vec<f64> = values.filter(|value| !value.is_nan()).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }
}

/// Numbers of trials, the best of the first `epochs` first; of equals that with less loss, then the earlier one, and those without a value
/// last.
pub fn ranked(courses: &[Course], among: &[usize], epochs: u64, better: Better) -> Vec<usize> {
    let mut order = among.to_vec();
    let best = |i: usize| {
        let best = courses[i].best(epochs, better).map_or(Measured::from(f64::NAN), |(best, _)| best);
        (best.value, best.loss.filter(|loss| !loss.is_nan()).unwrap_or(f64::INFINITY))
    };
    order.sort_by(|a, b| {
        let ((value_a, loss_a), (value_b, loss_b)) = (best(*a), best(*b));
        match (better.is(value_a, value_b), better.is(value_b, value_a)) {
            (true, _) => Ordering::Less,
            (_, true) => Ordering::Greater,
            _ => loss_a.total_cmp(&loss_b).then(a.cmp(b)),
        }
    });
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equal_values_that_with_the_least_loss_is_the_best() {
        let course = |measured: &[(f64, f64)]| {
            let values = (1..)
                .zip(measured)
                .map(|(epoch, (value, loss))| (epoch, Measured { value: *value, loss: Some(*loss) }));
            Course { values: values.collect(), epochs: measured.len() as u64, ended: false }
        };
        let one = course(&[(0.5, 3.0), (0.7, 2.0), (0.7, 1.0), (0.7, 1.0), (0.6, 0.1)]);
        assert_eq!(one.best(9, Better::Higher).map(|(best, epoch)| (best.value, epoch)), Some((0.7, 3)));
        assert_eq!(one.best(2, Better::Higher).map(|(_, epoch)| epoch), Some(2));
        let courses = [course(&[(0.7, 2.0)]), one, course(&[(0.7, 1.0)]), course(&[(0.7, f64::NAN)]), course(&[])];
        assert_eq!(ranked(&courses, &[0, 1, 2, 3, 4], 9, Better::Higher), [1, 2, 0, 3, 4]);
    }
}
