use super::*;
use crate::graph::op::METRIC_SLOTS;
use crate::train::setup::error_report::ErrorReport;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Of `scripts/golden/scores.py`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Case {
    logits: Vec<Vec<f32>>,
    targets: Vec<i32>,
    ignored: Option<i32>,
    labels: Vec<Vec<f32>>,
    predictions: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
    expected: BTreeMap<String, Option<f64>>,
}

fn cases() -> BTreeMap<String, Case> {
    let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/scores.json"));
    serde_json::from_str(text).unwrap()
}

fn bytes<T: Copy, const N: usize>(all: impl IntoIterator<Item = T>, to: fn(T) -> [u8; N]) -> Vec<u8> {
    all.into_iter().flat_map(to).collect()
}

fn floats(rows: &[Vec<f32>]) -> Vec<u8> {
    bytes(rows.iter().flatten().copied(), f32::to_ne_bytes)
}

impl Case {
    /// The values of all figures, in batches of that many samples, with the notes about them.
    fn figures(&self, batch: usize) -> (Figures, Vec<String>) {
        let (task, rest) = match self.labels.is_empty() {
            true => (Task::Classification, &[Figure::Perplexity][..]),
            false => (Task::BinaryClassification, &[][..]),
        };
        let wanted =
            [&[Figure::Auroc, Figure::AveragePrecision, Figure::CalibrationError, Figure::LogLoss], rest].concat();
        let mut scores = Scores::of(wanted, task, self.logits[0].len(), self.ignored, self.logits.len()).unwrap();
        for start in (0..self.logits.len()).step_by(batch) {
            let range = start..(start + batch).min(self.logits.len());
            let targets = match task {
                Task::Classification => bytes(self.targets[range.clone()].iter().copied(), i32::to_ne_bytes),
                _ => floats(&self.labels[range.clone()]),
            };
            scores.add(&floats(&self.logits[range]), &targets, 1);
        }
        scores.finish(Figures::new(task, &[0.0; METRIC_SLOTS]), &["cat".into(), "dog".into()])
    }
}

#[test]
fn figures_are_those_of_scikit_learn() {
    let mut compared = 0;
    for (name, case) in cases().iter().filter(|(_, case)| !case.logits.is_empty()) {
        let (figures, _) = case.figures(7);
        assert_eq!(case.figures(1000).0.list().map(|f| f.1.to_bits()).collect::<Vec<_>>(), {
            figures.list().map(|f| f.1.to_bits()).collect::<Vec<_>>()
        });
        for (figure, expected) in &case.expected {
            let figure = Figure::ALL.iter().find(|f| f.name() == figure).unwrap();
            let got = figures.get(*figure).unwrap();
            match expected {
                Some(expected) => {
                    assert!((got / expected - 1.0).abs() < 1e-12, "{name}: {figure:?} is {got}, not {expected}");
                }
                None => assert!(got.is_nan(), "{name}: {figure:?} is {got}"),
            }
            compared += 1;
        }
    }
    assert_eq!(compared, 8 * 5 + 4 * 4);
}

#[test]
fn regressions_are_those_of_scikit_learn() {
    let mut compared = 0;
    for (name, case) in cases().iter().filter(|(_, case)| !case.values.is_empty()) {
        let outputs = case.values[0].len();
        // As the devices sum, which `tests/suites/ops` holds to each other.
        let mut sums = vec![0.0; 5 * outputs];
        for (x, t) in case.predictions.iter().zip(&case.values) {
            for (i, (x, t)) in x.iter().zip(t).map(|(x, t)| (f64::from(*x), f64::from(*t))).enumerate() {
                let each = [t, t * t, (x - t).powi(2), (x - t).abs() / t.abs().max(f64::EPSILON), (x - t).abs()];
                sums[5 * i..][..5].iter_mut().zip(each).for_each(|(sum, x)| *sum += x);
            }
        }
        let report = ErrorReport::new(&sums, (case.values.len() * outputs) as f64);
        for figure in [Figure::R2, Figure::Mape] {
            let got = report.figure(figure).unwrap();
            match case.expected[figure.name()] {
                Some(expected) => {
                    let scale = expected.abs().max(1.0);
                    assert!((got - expected).abs() < 1e-9 * scale, "{name}: {figure:?} is {got}, not {expected}");
                }
                None => assert!(got.is_nan(), "{name}: {figure:?} is {got}"),
            }
            compared += 1;
        }
        assert_eq!(report.figure(Figure::Mae), None);
    }
    assert_eq!(compared, 8 * 2);
}

#[test]
fn classes_that_figures_leave_out_are_noted() {
    let cases = cases();
    let notes = |name: &str| cases[name].figures(10).1;
    assert_eq!(notes("four classes"), Vec::<String>::new());
    assert_eq!(
        notes("a class without samples"),
        [
            "`auroc` is the mean over the others: no sample has the class 2",
            "`average_precision` is the mean over the others: no sample has the class 2"
        ]
    );
    assert_eq!(
        notes("all of one class"),
        [
            "there is no `auroc`: no sample has the class cat, dog; all samples have the class 2",
            "`average_precision` is the mean over the others: no sample has the class cat, dog"
        ]
    );
    assert_eq!(
        notes("labels of which one is always and one never"),
        [
            "`auroc` is the mean over the others: no sample has the label dog; all samples have the label 2",
            "`average_precision` is the mean over the others: no sample has the label dog"
        ]
    );
}

#[test]
fn an_output_that_is_no_number_leaves_no_figure() {
    let mut scores =
        Scores::of(vec![Figure::Auroc, Figure::CalibrationError], Task::Classification, 3, None, 2).unwrap();
    scores.add(&floats(&[vec![0.0, 1.0, 2.0], vec![0.0, f32::NAN, 1.0]]), &bytes([2, 1], i32::to_ne_bytes), 1);
    let (figures, _) = scores.finish(Figures::new(Task::Classification, &[0.0; METRIC_SLOTS]), &[]);
    assert!(figures.get(Figure::Auroc).unwrap().is_nan() && figures.get(Figure::CalibrationError).unwrap().is_nan());
    // Nor do targets that do not count.
    let mut scores = Scores::of(vec![Figure::Auroc], Task::Classification, 3, Some(1), 2).unwrap();
    scores.add(&floats(&[vec![0.0, 1.0, 2.0]]), &bytes([1], i32::to_ne_bytes), 1);
    let (figures, _) = scores.finish(Figures::new(Task::Classification, &[0.0; METRIC_SLOTS]), &[]);
    assert!(figures.get(Figure::Auroc).unwrap().is_nan());
}
