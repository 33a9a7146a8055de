//! From counts of classes to what is reported of them. Averages are scikit-learn's with its defaults: 0/0 counts as 0, and
//! of classes those are averaged that occur among targets or predictions; of labels, all.

use crate::graph::op::{ClassCounts, Counted, Figure, RANKS};
use crate::model::MOST_IN_MATRIX;

/// How often a class was right, predicted, and the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassCount {
    /// Predicted where it was the target.
    pub right: u64,
    /// Predicted.
    pub predicted: u64,
    /// The target: scikit-learn's `support`.
    pub targets: u64,
}

impl ClassCount {
    /// Of the predictions, the share that is right; `None` if there is none.
    pub fn precision(&self) -> Option<f64> {
        share(self.right, self.predicted)
    }

    /// Of the targets, the share that is found; `None` if there is none.
    pub fn recall(&self) -> Option<f64> {
        share(self.right, self.targets)
    }

    /// The harmonic mean of both; `None` if the class occurs nowhere.
    pub fn f1(&self) -> Option<f64> {
        share(2 * self.right, self.predicted + self.targets)
    }

    /// Where prediction and target agree, of where either is the class; `None` if it occurs nowhere.
    pub fn iou(&self) -> Option<f64> {
        share(self.right, self.predicted + self.targets - self.right)
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// What an evaluation has counted.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassReport {
    /// Rows by the rank of their target.
    ranks: Vec<u64>,
    /// Of each class, or label.
    pub classes: Vec<ClassCount>,
    /// How often each class was predicted as each, target by target; `None` if that was not counted.
    pub matrix: Option<Vec<u64>>,
    /// Whether each of them is a question of yes or no; else they are classes of which one is right.
    pub labels: bool,
}

impl ClassReport {
    /// What the counts that `op` made stand for.
    pub fn new(op: &ClassCounts, counts: &[f64]) -> Self {
        let whole: Vec<u64> = counts.iter().map(|n| *n as u64).collect();
        let (ranks, rest) = whole.split_at(RANKS);
        let (matrix, labels) = match op.of {
            Counted::Classes { matrix, .. } => (matrix, false),
            Counted::Labels(_) => (false, true),
        };
        // Three for each class, and as many as there are classes with the matrix: n (3 + n) = all.
        let classes = match matrix {
            false => rest.len() / 3,
            true => (1..).find(|n| n * (3 + n) >= rest.len()).unwrap_or_default(),
        };
        let (each, pairs) = rest.split_at(3 * classes);
        let classes =
            each.chunks_exact(3).map(|n| ClassCount { right: n[0], predicted: n[1], targets: n[2] }).collect();
        ClassReport { ranks: ranks.to_vec(), classes, matrix: matrix.then(|| pairs.to_vec()), labels }
    }

    /// The same counts of what models put out for `n` classes, row by row, and the right class of each.
    pub fn of_classes<'a>(n: usize, rows: impl Iterator<Item = (&'a [f32], usize)>) -> Self {
        let none = ClassCount { right: 0, predicted: 0, targets: 0 };
        let (mut ranks, mut classes, mut matrix) = (vec![0; RANKS], vec![none; n], vec![0; n * n]);
        for (row, target) in rows.filter(|(_, target)| *target < n) {
            // Of equal ones, the first is first.
            let before = |i: usize, of: usize| row[i] > row[of] || row[i] == row[of] && i < of;
            let predicted = (1..n).fold(0, |best, i| if before(i, best) { i } else { best });
            let rank = (0..n).filter(|i| before(*i, target)).count();
            ranks.iter_mut().skip(rank).take(1).for_each(|rank| *rank += 1);
            classes[target].right += u64::from(predicted == target);
            classes[predicted].predicted += 1;
            classes[target].targets += 1;
            matrix[n * target + predicted] += 1;
        }
        ClassReport { ranks, classes, matrix: (n <= MOST_IN_MATRIX).then_some(matrix), labels: false }
    }

    /// The same of `n` labels. A label is predicted where its output is above 0.
    pub fn of_labels<'a>(n: usize, rows: impl Iterator<Item = (&'a [f32], &'a [f32])>) -> Self {
        let mut classes = vec![ClassCount { right: 0, predicted: 0, targets: 0 }; n];
        for (row, targets) in rows {
            for (class, (x, t)) in classes.iter_mut().zip(row.iter().zip(targets)) {
                let (said, is) = (*x > 0.0, *t > 0.5);
                class.right += u64::from(said && is);
                class.predicted += u64::from(said);
                class.targets += u64::from(is);
            }
        }
        ClassReport { ranks: vec![0; RANKS], classes, matrix: None, labels: true }
    }

    /// What has been compared: rows that count or, of labels, those that apply.
    pub fn targets(&self) -> u64 {
        self.classes.iter().map(|class| class.targets).sum()
    }

    /// The mean over the classes of one of their figures.
    pub fn mean(&self, of: impl Fn(&ClassCount) -> Option<f64>) -> f64 {
        let counted = self.classes.iter().filter(|c| self.labels || c.predicted + c.targets > 0);
        let (sum, n) = counted.fold((0.0, 0u64), |(sum, n), class| (sum + of(class).unwrap_or(0.0), n + 1));
        if n > 0 { sum / n as f64 } else { 0.0 }
    }

    /// The same, each class weighed by how often it is the target.
    pub fn weighted(&self, of: impl Fn(&ClassCount) -> Option<f64>) -> f64 {
        let sum: f64 = self.classes.iter().map(|class| of(class).unwrap_or(0.0) * class.targets as f64).sum();
        if self.targets() > 0 { sum / self.targets() as f64 } else { 0.0 }
    }

    /// A figure that comes from these counts; `None` for any other.
    pub fn figure(&self, figure: Figure) -> Option<f64> {
        let total = |of: fn(&ClassCount) -> u64| self.classes.iter().map(of).sum::<u64>();
        let right = || total(|class| class.right);
        Some(match figure {
            Figure::Top2Accuracy | Figure::Top3Accuracy | Figure::Top5Accuracy | Figure::Top10Accuracy => {
                let found = self.ranks.iter().take(figure.top_k()?).sum();
                share(found, self.targets()).unwrap_or(0.0)
            }
            Figure::BalancedAccuracy => {
                let recalls: Vec<f64> = self.classes.iter().filter_map(ClassCount::recall).collect();
                if recalls.is_empty() { 0.0 } else { recalls.iter().sum::<f64>() / recalls.len() as f64 }
            }
            Figure::MacroPrecision => self.mean(ClassCount::precision),
            Figure::MacroRecall => self.mean(ClassCount::recall),
            Figure::MacroF1 => self.mean(ClassCount::f1),
            Figure::WeightedF1 => self.weighted(ClassCount::f1),
            Figure::MicroF1 => share(2 * right(), total(|class| class.predicted) + self.targets()).unwrap_or(0.0),
            Figure::MeanIou => self.mean(ClassCount::iou),
            Figure::Loss
            | Figure::Accuracy
            | Figure::ExactMatch
            | Figure::SpanF1
            | Figure::SpanPrecision
            | Figure::SpanRecall
            | Figure::Auroc
            | Figure::AveragePrecision
            | Figure::CalibrationError
            | Figure::LogLoss
            | Figure::Perplexity
            | Figure::BitsPerByte
            | Figure::Mae
            | Figure::Rmse
            | Figure::R2
            | Figure::Mape
            | Figure::Coverage => return None,
        })
    }

    /// The pairs of classes of which one was taken for the other most often: which, for which, and how often.
    pub fn most_confused(&self, at_most: usize) -> Vec<(usize, usize, u64)> {
        let (n, matrix) = (self.classes.len(), self.matrix.as_deref().unwrap_or_default());
        let all = matrix.iter().enumerate().map(|(at, count)| (at / n, at % n, *count));
        let mut wrong: Vec<(usize, usize, u64)> = all.filter(|(is, taken, count)| is != taken && *count > 0).collect();
        wrong.sort_by_key(|(_, _, count)| std::cmp::Reverse(*count));
        wrong.truncate(at_most);
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::collections::BTreeMap;

    /// Of `scripts/golden/figures.py`.
    #[derive(Deserialize)]
    struct Case {
        logits: Vec<Vec<i32>>,
        #[serde(default)]
        targets: Vec<usize>,
        #[serde(default)]
        labels: Vec<Vec<u8>>,
        expected: BTreeMap<String, f64>,
        #[serde(default)]
        precision: Vec<Option<f64>>,
        #[serde(default)]
        recall: Vec<Option<f64>>,
        #[serde(default)]
        f1: Vec<Option<f64>>,
        #[serde(default)]
        iou: Vec<Option<f64>>,
        #[serde(default)]
        matrix: Vec<u64>,
    }

    impl Case {
        /// As the devices count, which `tests/suites/ops` holds to each other.
        fn report(&self) -> ClassReport {
            let n = self.logits[0].len();
            let numbers = |list: &[i32]| list.iter().map(|x| *x as f32).collect::<Vec<_>>();
            let rows: Vec<Vec<f32>> = self.logits.iter().map(|row| numbers(row)).collect();
            if self.labels.is_empty() {
                return ClassReport::of_classes(n, rows.iter().map(Vec::as_slice).zip(self.targets.iter().copied()));
            }
            let labels: Vec<Vec<f32>> =
                self.labels.iter().map(|row| row.iter().map(|t| f32::from(*t)).collect()).collect();
            ClassReport::of_labels(n, rows.iter().map(Vec::as_slice).zip(labels.iter().map(Vec::as_slice)))
        }
    }

    #[test]
    fn figures_are_those_of_scikit_learn() {
        let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/figures.json"));
        let cases: BTreeMap<String, Case> = serde_json::from_str(text).unwrap();
        let mut compared = 0;
        for (name, case) in &cases {
            let report = case.report();
            for (figure, expected) in &case.expected {
                let figure = Figure::ALL.iter().find(|f| f.name() == figure).unwrap();
                let got = report.figure(*figure).unwrap();
                assert!((got - expected).abs() < 1e-12, "{name}: {figure:?} is {got}, not {expected}");
                compared += 1;
            }
            if case.labels.is_empty() {
                type Of = fn(&ClassCount) -> Option<f64>;
                let all: [(_, Of); 4] = [
                    (&case.precision, ClassCount::precision),
                    (&case.recall, ClassCount::recall),
                    (&case.f1, ClassCount::f1),
                    (&case.iou, ClassCount::iou),
                ];
                for (expected, of) in all {
                    let same = |(a, b): (Option<f64>, &Option<f64>)| match (a, b) {
                        (Some(a), Some(b)) => (a - b).abs() < 1e-12,
                        (a, b) => a.is_none() && b.is_none(),
                    };
                    assert!(report.classes.iter().map(of).zip(expected).all(same), "{name}: {report:?}");
                }
                assert_eq!(report.matrix.as_ref(), Some(&case.matrix), "{name}");
            }
        }
        assert_eq!((cases.len(), compared), (5, 10 + 9 + 7 + 6 + 6));
    }

    #[test]
    fn the_worst_confusions_come_first() {
        let of = Counted::Classes { ignore_index: None, matrix: true };
        let mut counts = vec![0.0; RANKS + 9];
        counts.extend([9.0, 1.0, 0.0, 4.0, 9.0, 1.0, 0.0, 7.0, 9.0]);
        let report = ClassReport::new(&ClassCounts { of }, &counts);
        assert_eq!(report.most_confused(3), [(2, 1, 7), (1, 0, 4), (0, 1, 1)]);
        // Nothing has been counted of them.
        assert_eq!((report.mean(ClassCount::f1), report.weighted(ClassCount::f1)), (0.0, 0.0));
    }
}
