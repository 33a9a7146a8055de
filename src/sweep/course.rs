//! How a trial has gone so far.

use std::collections::BTreeMap;

/// What is known of a trial.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Course {
    /// The monitored figure after epochs, counted from 1. Not every epoch has one.
    pub values: BTreeMap<u64, f64>,
    /// Epochs that are done.
    pub epochs: u64,
    /// Nothing more is to come, though not all epochs are done: it has failed, or stopped early by itself.
    pub ended: bool,
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
}

impl Course {
    /// Whether so many epochs are done, or no more are to come.
    pub fn reached(&self, epochs: u64) -> bool {
        self.ended || self.epochs >= epochs
    }

    /// The best value of the first `epochs`, and the epoch that first had it.
    pub fn best(&self, epochs: u64, better: Better) -> Option<(f64, u64)> {
        let values = self.values.range(..=epochs).map(|(epoch, value)| (*value, *epoch));
        values
            .filter(|(value, _)| !value.is_nan())
            .reduce(|best, next| if better.is(next.0, best.0) { next } else { best })
    }

    /// The mean of the values of the first `epochs`.
    pub fn mean(&self, epochs: u64) -> Option<f64> {
        let values: Vec<f64> = self.values.range(..=epochs).map(|(_, value)| *value).filter(|v| !v.is_nan()).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }
}

/// Numbers of trials, the best of the first `epochs` first; of equals the earlier one, and those without a value last.
pub fn ranked(courses: &[Course], among: &[usize], epochs: u64, better: Better) -> Vec<usize> {
    let mut order = among.to_vec();
    let value = |i: usize| courses[i].best(epochs, better).map_or(f64::NAN, |(value, _)| value);
    order.sort_by(|a, b| match (better.is(value(*a), value(*b)), better.is(value(*b), value(*a))) {
        (true, _) => std::cmp::Ordering::Less,
        (_, true) => std::cmp::Ordering::Greater,
        _ => a.cmp(b),
    });
    order
}
