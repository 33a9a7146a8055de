//! Figures of a target, from the answers for its samples.

use super::super::learnt::Learnt;
use crate::api::scores::{sigmoid, softmax};
use crate::config::language::sections::middle;
use crate::data::Standard;
use crate::graph::op::{ElementwiseLoss, Figure, Loss, Task};
use crate::train::setup::class_report::ClassReport;
use crate::train::setup::error_report::ErrorReport;
use crate::train::setup::figures::Figures;
use crate::train::setup::scores::Scores;

/// What is learnt.
#[derive(Clone)]
pub struct Target {
    /// The head that learns it; `None`: it is the main one.
    pub head: Option<String>,
    /// The names of its classes, if they have some.
    pub names: Vec<String>,
    /// The figures that are asked for.
    pub asked: Vec<Figure>,
    /// What it is learnt by.
    pub loss: Loss,
    /// What its loss is multiplied by in the sum that training makes smaller.
    pub weight: f64,
    /// What its numbers are standardised by for the loss.
    standard: Option<Standard>,
    /// The quantiles of each number, if there are several.
    quantiles: Vec<f64>,
    /// Of what is put out for a sample, how many numbers are of it; and of what is learnt.
    pub widths: [usize; 2],
}

/// A sample as a target has it.
pub struct Part<'a> {
    /// What is put out.
    pub output: &'a [f32],
    /// What should be.
    pub target: &'a [f32],
    /// The loss, times what it weighs there by its class, and that weight.
    pub loss: [f64; 2],
    /// What it weighs in losses besides.
    pub weight: f64,
}

/// What is measured of a target.
pub struct Measured {
    /// The head that learns it; `None`: it is the main one.
    pub head: Option<String>,
    /// The names of its classes, if they have some.
    pub names: Vec<String>,
    /// Its figures.
    pub figures: Figures,
    /// Its `log_loss` is its loss, by another name.
    pub is_likelihood: bool,
    /// What was counted of its classes or labels.
    pub report: Option<ClassReport>,
    /// What was summed of each of its numbers.
    pub errors: Option<ErrorReport>,
}

impl Target {
    /// What a model learns, with the numbers of it.
    pub fn new(learnt: &Learnt, widths: [usize; 2]) -> Target {
        Target {
            head: learnt.head.map(str::to_owned),
            names: learnt.names.to_vec(),
            asked: Vec::new(),
            loss: learnt.loss.clone(),
            weight: learnt.weight,
            standard: learnt.standard.cloned(),
            quantiles: learnt.quantiles.to_vec(),
            widths,
        }
    }

    /// As one model has it.
    pub fn learnt(&self) -> Learnt<'_> {
        let (standard, quantiles) = (self.standard.as_ref(), &self.quantiles[..]);
        Learnt { head: None, loss: &self.loss, weight: self.weight, standard, quantiles, names: &[], columns: &[] }
    }

    /// Its loss over samples, as of one model.
    fn loss(&self, samples: &[Part]) -> f64 {
        let add = |[sum, weights]: [f64; 2], part: &Part| {
            [sum + part.weight * part.loss[0], weights + part.weight * part.loss[1]]
        };
        let [sum, weights] = samples.iter().fold([0.0; 2], add);
        sum / weights
    }

    /// Whether its loss is the negative log-likelihood of its class or labels, where all samples weigh the same.
    pub fn loss_is_likelihood(&self) -> bool {
        self.loss.is_likelihood() || self.loss == Loss::Elementwise(ElementwiseLoss::BceWithLogits)
    }

    /// Whether a sample counts: one whose class is ignored does not.
    fn counts(&self, part: &Part) -> bool {
        self.loss.ignore_index().is_none_or(|class| part.target[0] != class as f32)
    }

    /// Its figures over samples. As of one model, the loss is the mean by what samples weigh, and other figures count all alike.
    fn usual(&self, samples: &[Part]) -> Vec<(Figure, f64)> {
        let (each, at) = (self.quantiles.len().max(1), middle(&self.quantiles));
        let pairs = |part: &Part| {
            let pairs = part.output.chunks_exact(each).zip(part.target);
            pairs.map(|(x, t)| (f64::from(x[at]), f64::from(*t))).collect::<Vec<_>>()
        };
        let numbers = || samples.iter().flat_map(pairs);
        let own = match self.loss.task() {
            Task::Classification => {
                let counted = || samples.iter().filter(|part| self.counts(part));
                let largest = |row: &[f32]| (1..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best });
                let right = |part: &Part| f64::from(largest(part.output) == part.target[0] as usize);
                vec![
                    (Figure::Accuracy, mean(&mut counted().map(right))),
                    (Figure::LogLoss, mean(&mut counted().map(log_loss))),
                ]
            }
            Task::BinaryClassification => {
                let right = |(x, t): (f64, f64)| f64::from((x > 0.0) == (t > 0.5));
                let log = |(x, t): (f64, f64)| {
                    let p = sigmoid(x as f32);
                    -(if t > 0.5 { p } else { 1.0 - p }).max(f64::MIN_POSITIVE).ln()
                };
                vec![
                    (Figure::Accuracy, mean(&mut numbers().map(right))),
                    (Figure::LogLoss, mean(&mut numbers().map(log))),
                ]
            }
            Task::Regression => {
                let square = mean(&mut numbers().map(|(x, t)| (x - t).powi(2)));
                let absolute = mean(&mut numbers().map(|(x, t)| (x - t).abs()));
                let mut own = vec![(Figure::Mae, absolute), (Figure::Rmse, square.sqrt())];
                if each > 1 {
                    let inside =
                        |(x, t): (&[f32], &f32)| f64::from(x.iter().any(|x| x <= t) && x.iter().any(|x| x >= t));
                    let covered =
                        samples.iter().flat_map(|part| part.output.chunks_exact(each).zip(part.target)).map(inside);
                    own.push((Figure::Coverage, mean(&mut { covered })));
                }
                own
            }
        };
        std::iter::once((Figure::Loss, self.loss(samples))).chain(own).collect()
    }

    /// What is measured of it.
    pub fn measured(&self, samples: &[Part]) -> Measured {
        let (report, errors) = (self.class_report(samples), self.error_report(samples));
        let counted =
            |figure: &Figure| report.as_ref().map_or_else(|| errors.as_ref()?.figure(*figure), |r| r.figure(*figure));
        let asked = self.asked.iter().filter_map(|figure| Some((*figure, counted(figure)?)));
        let all = self.usual(samples).into_iter().chain(asked);
        let figures = all.fold(Figures::none(), |figures, (figure, value)| figures.with(figure, value));
        let is_likelihood = self.loss_is_likelihood() && samples.iter().all(|part| part.weight == 1.0);
        Measured { head: self.head.clone(), names: self.names.clone(), figures, is_likelihood, report, errors }
    }

    /// Figures that come of the outputs of all samples; and what must be said of them.
    pub fn gathered(&self, mut scores: Scores, samples: &[Part]) -> (Figures, Vec<String>) {
        let bytes = |list: &[f32]| list.iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<u8>>();
        for part in samples {
            let targets = match self.loss.task() {
                Task::Classification => (part.target[0] as i32).to_ne_bytes().to_vec(),
                Task::BinaryClassification | Task::Regression => bytes(part.target),
            };
            scores.add(&bytes(part.output), &targets, 1);
        }
        scores.finish(Figures::none(), &self.names)
    }

    fn error_report(&self, samples: &[Part]) -> Option<ErrorReport> {
        let (each, at) = (self.quantiles.len().max(1), middle(&self.quantiles));
        let rows = samples
            .iter()
            .map(|part| part.output.iter().skip(at).step_by(each).copied().zip(part.target.iter().copied()));
        (self.loss.task() == Task::Regression).then(|| ErrorReport::of_rows(self.widths[1], rows))
    }

    /// What is counted of its classes or labels.
    fn class_report(&self, samples: &[Part]) -> Option<ClassReport> {
        let n = self.widths[0];
        match self.loss.task() {
            Task::Classification => {
                let counted = samples.iter().filter(|part| self.counts(part));
                Some(ClassReport::of_classes(n, counted.map(|part| (part.output, part.target[0] as usize))))
            }
            Task::BinaryClassification => {
                Some(ClassReport::of_labels(n, samples.iter().map(|part| (part.output, part.target))))
            }
            Task::Regression => None,
        }
    }
}

fn mean(all: &mut dyn Iterator<Item = f64>) -> f64 {
    let (sum, number) = all.fold((0.0, 0.0), |(sum, number), value| (sum + value, number + 1.0));
    sum / number
}

/// The likelihood of the class of a sample.
fn log_loss(part: &Part) -> f64 {
    let p = softmax(part.output.iter().copied()).nth(part.target[0] as usize).unwrap_or(0.0);
    -p.max(f64::MIN_POSITIVE).ln()
}
