//! Figures of the spans that tags of words make: seqeval's micro averages with `mode = "strict"`.

use crate::data::text::Spans;
use crate::graph::op::Figure;

/// How many spans there are, and how many of them are right.
pub struct SpanCounts {
    spans: Spans,
    /// Of the sample that is taken in: what was predicted and what is true of each word.
    predictions: Vec<usize>,
    targets: Vec<usize>,
    right: u64,
    predicted: u64,
    there: u64,
}

impl SpanCounts {
    /// None so far; `None`: tags of these names make no spans.
    pub fn of(names: &[String]) -> Option<SpanCounts> {
        let spans = Spans::of(names)?;
        let (predictions, targets) = (Vec::new(), Vec::new());
        Some(SpanCounts { spans, predictions, targets, right: 0, predicted: 0, there: 0 })
    }

    /// Takes in the next word of a sample.
    pub fn add(&mut self, prediction: usize, target: usize) {
        self.predictions.push(prediction);
        self.targets.push(target);
    }

    /// The next word is one of another sample.
    pub fn end_sample(&mut self) {
        let [predicted, there] = [&self.predictions, &self.targets].map(|tags| self.spans.found(tags));
        // Both ascend, and no two spans overlap.
        self.right += predicted.iter().filter(|span| there.binary_search(span).is_ok()).count() as u64;
        self.predicted += predicted.len() as u64;
        self.there += there.len() as u64;
        self.predictions.clear();
        self.targets.clear();
    }

    /// One of the figures; 0 where there is nothing to divide by, as in seqeval.
    pub fn figure(&self, figure: Figure) -> f64 {
        let share = |part: u64, whole: u64| if whole > 0 { part as f64 / whole as f64 } else { 0.0 };
        match figure {
            Figure::SpanPrecision => share(self.right, self.predicted),
            Figure::SpanRecall => share(self.right, self.there),
            _ => share(2 * self.right, self.predicted + self.there),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    /// Of `scripts/golden/spans.py`.
    #[derive(Deserialize)]
    struct Case {
        tags: Vec<String>,
        targets: Vec<Vec<usize>>,
        predictions: Vec<Vec<usize>>,
        span_f1: f64,
        span_precision: f64,
        span_recall: f64,
    }

    #[derive(Deserialize)]
    struct All {
        figures: Vec<Case>,
    }

    #[test]
    fn figures_are_those_of_seqeval() {
        let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/spans.json"));
        let all: All = serde_json::from_str(text).unwrap();
        for case in &all.figures {
            let mut counts = SpanCounts::of(&case.tags).unwrap();
            for (predictions, targets) in case.predictions.iter().zip(&case.targets) {
                predictions.iter().zip(targets).for_each(|(prediction, target)| counts.add(*prediction, *target));
                counts.end_sample();
            }
            for (figure, expected) in [
                (Figure::SpanF1, case.span_f1),
                (Figure::SpanPrecision, case.span_precision),
                (Figure::SpanRecall, case.span_recall),
            ] {
                let got = counts.figure(figure);
                assert!((got - expected).abs() < 1e-12, "{:?}: {figure:?} is {got}, not {expected}", case.tags);
            }
        }
        assert_eq!(all.figures.len(), 4);
        let nothing = SpanCounts::of(&all.figures[0].tags).unwrap();
        assert_eq!(nothing.figure(Figure::SpanF1), 0.0);
    }
}
