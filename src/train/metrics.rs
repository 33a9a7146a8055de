//! From running sums to what is reported.

use crate::graph::op::{METRIC_SLOTS, Task, metric_slot as slot};
use serde::Serialize;

/// Figures over a number of samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figures {
    /// Mean loss a row.
    pub loss: f64,
    /// Share of rows whose class is right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// Mean absolute error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mae: Option<f64>,
    /// Root of the mean squared error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rmse: Option<f64>,
}

impl Figures {
    /// The figures that `sums` (laid out by [`crate::graph::op::metric_slot`]) stand for.
    pub fn new(task: Task, sums: &[f64; METRIC_SLOTS]) -> Self {
        let rows = sums[slot::ROWS];
        let mean = |i: usize, n: f64| sums[i] / n;
        let class = task == Task::Classification;
        let elements = sums[slot::ELEMENTS];
        Figures {
            loss: mean(slot::LOSS, rows),
            accuracy: class.then(|| mean(slot::CORRECT, rows)),
            mae: (!class).then(|| mean(slot::ABS_ERROR, elements)),
            rmse: (!class).then(|| mean(slot::SQUARED_ERROR, elements).sqrt()),
        }
    }

    /// The figure of that name (`loss`, `accuracy`, `mae`, `rmse`).
    pub fn get(&self, name: &str) -> Option<f64> {
        match name {
            "loss" => Some(self.loss),
            "accuracy" => self.accuracy,
            "mae" => self.mae,
            "rmse" => self.rmse,
            _ => None,
        }
    }

    /// Names of the figures that there are for a task, the loss first.
    pub fn names(task: Task) -> &'static [&'static str] {
        match task {
            Task::Classification => &["loss", "accuracy"],
            Task::Regression => &["loss", "mae", "rmse"],
        }
    }

    /// Name and value of each figure that there is, the loss first.
    pub fn list(&self) -> impl Iterator<Item = (&'static str, f64)> {
        ["loss", "accuracy", "mae", "rmse"].into_iter().filter_map(|n| Some((n, self.get(n)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_over_rows_and_elements() {
        let sums = [6.0, 4.0, 3.0, 8.0, 18.0, 2.0, 0.0, 0.0];
        let c = Figures::new(Task::Classification, &sums);
        assert_eq!((c.loss, c.accuracy, c.mae), (1.5, Some(0.75), None));
        let r = Figures::new(Task::Regression, &sums);
        assert_eq!((r.mae, r.rmse, r.accuracy), (Some(4.0), Some(3.0), None));
        for (task, figures) in [(Task::Classification, c), (Task::Regression, r)] {
            assert_eq!(figures.list().map(|(n, _)| n).collect::<Vec<_>>(), Figures::names(task));
        }
    }
}
