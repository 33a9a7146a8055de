//! From running sums to what is reported.

use crate::data::NaiveErrors;
use crate::graph::op::{Figure, METRIC_SLOTS, Task};
use serde::{Serialize, Serializer};
use std::borrow::Cow;

/// Figures over a number of samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// By the order of [`Figure::ALL`]; those that there are.
    values: [Option<f64>; Figure::ALL.len()],
    /// Those of heads, in their order.
    heads: Vec<(String, Figures)>,
    /// The errors of naive forecasts, if the samples have them.
    naive: Option<NaiveErrors>,
}

/// What figures of naive forecasts are called.
pub const OF_NAIVE: [&str; 2] = ["naive_mae", "naive_rmse"];

impl Figures {
    /// The figures that `sums` (laid out by [`crate::graph::op::metric_slot`]) stand for.
    pub fn new(task: Task, sums: &[f64; METRIC_SLOTS]) -> Self {
        let measured = |figure: Figure| figure.value(sums).filter(|_| task.figures().contains(&figure));
        Figures { values: Figure::ALL.map(measured), heads: Vec::new(), naive: None }
    }

    /// None yet.
    pub fn none() -> Self {
        Figures { values: [None; Figure::ALL.len()], heads: Vec::new(), naive: None }
    }

    /// The figure, if it is one of them.
    pub fn get(&self, figure: Figure) -> Option<f64> {
        Figure::ALL.iter().zip(&self.values).find(|(f, _)| **f == figure)?.1.to_owned()
    }

    /// The same, but for one figure.
    pub fn with(mut self, figure: Figure, value: f64) -> Self {
        for (_, v) in Figure::ALL.iter().zip(&mut self.values).filter(|(f, _)| **f == figure) {
            *v = Some(value);
        }
        self
    }

    /// The same without one figure.
    pub fn without(mut self, figure: Figure) -> Self {
        for (_, v) in Figure::ALL.iter().zip(&mut self.values).filter(|(f, _)| **f == figure) {
            *v = None;
        }
        self
    }

    /// The same with those of a head, if something has been measured of it.
    pub fn and_of_head(mut self, name: String, figures: Option<Figures>) -> Self {
        self.heads.extend(figures.map(|figures| (name, figures)));
        self
    }

    /// The same with those of naive forecasts.
    pub fn and_of_naive(mut self, naive: Option<NaiveErrors>) -> Self {
        self.naive = naive;
        self
    }

    /// The errors of naive forecasts, if the samples have them.
    pub fn naive(&self) -> Option<NaiveErrors> {
        self.naive
    }

    /// Those of a head.
    pub fn of_head(&self, name: &str) -> Option<&Figures> {
        self.heads.iter().find(|(head, _)| head == name).map(|(_, figures)| figures)
    }

    /// Each figure with its name and its value: those of the main target, those of naive forecasts, then those of heads, whose names begin with that of the head.
    pub fn named(&self) -> impl Iterator<Item = (Cow<'static, str>, Figure, f64)> + '_ {
        let own = self.list().map(|(figure, value)| (Cow::Borrowed(figure.name()), figure, value));
        let of_heads = self.heads.iter().flat_map(|(head, figures)| {
            figures.list().map(move |(figure, value)| (format!("{head}_{}", figure.name()).into(), figure, value))
        });
        let naive = self.naive.iter().flat_map(|naive| [(Figure::Mae, naive.mae()), (Figure::Rmse, naive.rmse())]);
        let naive = naive.zip(OF_NAIVE).map(|((figure, value), name)| (Cow::Borrowed(name), figure, value));
        own.chain(naive).chain(of_heads)
    }

    /// Each figure of the main target that there is with its value, the loss first.
    pub fn list(&self) -> impl Iterator<Item = (Figure, f64)> {
        Figure::ALL.iter().zip(&self.values).filter_map(|(figure, value)| Some((*figure, (*value)?)))
    }
}

impl Serialize for Figures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.named().map(|(name, _, value)| (name, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_over_weights_and_items() {
        let sums = [6.0, 4.0, 3.0, 8.0, 18.0, 2.0, 0.0, 0.0];
        let json = |task| {
            let figures = Figures::new(task, &sums);
            assert!(figures.list().map(|(f, _)| f).eq(task.figures().iter().copied()));
            serde_json::to_string(&figures).unwrap()
        };
        assert_eq!(json(Task::Classification), r#"{"loss":1.5,"accuracy":1.5}"#);
        assert_eq!(json(Task::Regression), r#"{"loss":1.5,"mae":4.0,"rmse":3.0}"#);
        let figures = Figures::new(Task::BinaryClassification, &sums).with(Figure::Loss, 2.0);
        assert_eq!([Figure::Loss, Figure::Accuracy, Figure::Mae].map(|f| figures.get(f)), [Some(2.0), Some(1.5), None]);
    }
}
