//! A range of numbers: what it may be, and the numbers of it.

use serde_json::{Value as Json, json};

use crate::config::text::diagnostics::Span;
use crate::config::text::spelling::list;
use crate::config::text::tree::{Node, Table, Value as Written};

/// Steps of a range, and combinations of a grid, at most.
pub(super) const MOST_TRIALS: usize = 10_000;
/// What a range may be.
pub(super) const RANGES: [&str; 2] = ["linear", "log"];
/// Up to this a double has every whole number.
const LARGEST: f64 = 9_007_199_254_740_992.0;
/// Digits that a fraction has after its first one; more where the ends of its range are close together.
const DIGITS: usize = 3;
/// All that a double has.
const ALL_DIGITS: usize = 16;

/// Numbers from one to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The logarithm is even, not the number.
    pub log: bool,
    /// The least.
    pub low: f64,
    /// The largest.
    pub high: f64,
    /// Only whole numbers.
    pub whole: bool,
    /// Only so many, the ends among them.
    pub steps: Option<usize>,
}

impl Interval {
    /// How many values there are, if they can be counted.
    pub fn count(&self) -> Option<usize> {
        self.steps.or_else(|| self.whole.then(|| (self.high - self.low) as usize + 1))
    }

    /// All of them, from end to end; without `steps` of whole numbers alone.
    pub fn values(&self) -> Vec<Json> {
        let Some(steps) = self.steps else {
            return match self.whole {
                true => (self.low as i64..=self.high as i64).map(Json::from).collect(),
                false => Vec::new(),
            };
        };
        let point = |i: usize, digits: usize| match i {
            0 => self.json(self.low),
            i if i + 1 >= steps => self.json(self.high),
            i => self.rounded(self.between(i as f64 / (steps - 1) as f64), digits),
        };
        let with = |digits: usize| {
            let mut values: Vec<Json> = (0..steps).map(|i| point(i, digits)).collect();
            values.dedup();
            values
        };
        let all = (self.digits()..=ALL_DIGITS).map(with).find(|values| values.len() == steps);
        all.unwrap_or_else(|| with(ALL_DIGITS))
    }

    /// The number at a share of the way, as the value of a trial.
    pub fn at(&self, share: f64) -> Json {
        self.rounded(self.between(share), self.digits())
    }

    fn between(&self, share: f64) -> f64 {
        let width = self.high - self.low;
        match self.log {
            true => (self.low.ln() + share * (self.high.ln() - self.low.ln())).exp(),
            false if width.is_finite() => self.low + share * width,
            false => self.low * (1.0 - share) + self.high * share,
        }
    }

    /// Digits after the first one of a fraction: more would add nothing, and these are the same on every machine.
    fn digits(&self) -> usize {
        let closeness = self.low.abs().max(self.high.abs()) / (self.high - self.low);
        (DIGITS + closeness.log10().max(0.0) as usize).min(ALL_DIGITS)
    }

    fn rounded(&self, value: f64, digits: usize) -> Json {
        let short = if self.whole { value.round() } else { format!("{value:.digits$e}").parse().unwrap_or(value) };
        self.json(short.clamp(self.low, self.high))
    }

    fn json(&self, number: f64) -> Json {
        if self.whole { json!(number as i64) } else { json!(number) }
    }
}

/// The range that a table says; `wrong` reports what is wrong with it, and where.
pub(super) fn interval(table: &Table, wrong: &dyn Fn(Span, String)) -> Option<Interval> {
    let mut sound = true;
    let mut refuse = |span: Span, reason: String| {
        wrong(span, reason);
        sound = false;
    };
    for entry in &table.entries {
        if entry.key != "steps" && !RANGES.contains(&entry.key.as_str()) {
            let keys = list(RANGES.into_iter().chain(["steps"]), "and");
            refuse(entry.key_span, format!("a range has the keys {keys}"));
        }
    }
    let named: Vec<_> = table.entries.iter().filter(|entry| RANGES.contains(&entry.key.as_str())).collect();
    if let [_, second, ..] = named[..] {
        refuse(second.key_span, "a range is linear or logarithmic, not both".into());
    }
    let range = named.first()?;
    let ends = range.node.as_array().unwrap_or_default();
    let numbers: Vec<f64> = ends.iter().filter_map(Node::as_number).collect();
    let (&[low, high], 2) = (&numbers[..], ends.len()) else {
        match ends.iter().find(|end| end.as_number().is_none()).filter(|_| ends.len() == 2) {
            Some(end) => refuse(end.span, format!("must be a number, found {}", end.describe())),
            None => refuse(range.node.span, format!("expected a list of two numbers, found {}", range.node.describe())),
        }
        return None;
    };
    let log = range.key == "log";
    if !low.is_finite() || !high.is_finite() {
        refuse(range.node.span, "both ends must be finite".into());
    } else if low >= high {
        refuse(range.node.span, "the first number must be below the second".into());
    } else if log && low <= 0.0 {
        refuse(ends[0].span, "must be above 0: a logarithm has no other".into());
    }
    let whole = ends.iter().all(|end| matches!(end.value, Written::Integer(_)));
    if whole && high - low >= f64::from(u32::MAX) {
        refuse(range.node.span, "there are too many whole numbers between".into());
    } else if whole && low.abs().max(high.abs()) > LARGEST {
        refuse(range.node.span, "whole numbers of a range are at most 2^53".into());
    }
    let steps = match table.get("steps").map(|node| (node.span, &node.value)) {
        None => None,
        Some((_, Written::Integer(n))) if (2..=MOST_TRIALS as i64).contains(n) => Some(*n as usize),
        Some((span, _)) => {
            refuse(span, format!("`steps` must be a whole number from 2 to {MOST_TRIALS}"));
            None
        }
    };
    if !sound {
        return None;
    }
    let made = Interval { log, low, high, whole, steps };
    if let (Some(steps), Some(node)) = (steps, table.get("steps")) {
        let different = made.values().len();
        if different < steps {
            wrong(node.span, format!("there are only {different} different values"));
            return None;
        }
    }
    Some(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(log: bool, low: f64, high: f64, steps: Option<usize>) -> Interval {
        let whole = low.fract() == 0.0 && high.fract() == 0.0 && high < 1e9;
        Interval { log, low, high, whole, steps }
    }

    #[test]
    fn ends_are_as_they_were_written_and_no_value_is_there_twice() {
        let values = |log, low, high, steps| Json::from(range(log, low, high, Some(steps)).values()).to_string();
        assert_eq!(values(false, 0.0123456, 0.0987654, 2), "[0.0123456,0.0987654]");
        assert_eq!(values(true, 1e-4, 0.1, 4), "[0.0001,0.001,0.01,0.1]");
        assert_eq!(values(false, 0.1, 0.10001, 3), "[0.1,0.100005,0.10001]");
        assert_eq!(values(false, 1.0, 9.0, 3), "[1,5,9]");
        let all = range(false, 0.5, 1.5, Some(10_000)).values();
        assert_eq!(all.len(), 10_000);
        assert_eq!(range(false, 8.0, 10.0, Some(4)).values().len(), 3);
        assert_eq!(Json::from(range(false, 1.0, 3.0, None).values()).to_string(), "[1,2,3]");
    }

    #[test]
    fn draws_lie_between_ends_that_are_close_together_or_far_apart() {
        let close = range(false, 0.99991, 0.99999, None);
        assert_eq!([0.0, 0.3, 0.6].map(|share| close.at(share).to_string()), ["0.99991", "0.999934", "0.999958"]);
        let far = range(false, -1e308, 1e308, None);
        assert_eq!([0.25, 0.5, 0.75].map(|share| far.at(share).as_f64()), [Some(-5e307), Some(0.0), Some(5e307)]);
        assert_eq!(range(true, 1e-4, 1e-1, None).at(0.61).to_string(), "0.006761");
    }
}
