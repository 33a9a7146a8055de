//! Curves of the run that is at work, made of the lines that it writes down.

use crate::terminal::{self, Look, Series, Stream, chart};
use serde_json::Value;

/// Lines of the curves themselves.
const HEIGHT: usize = 10;
/// Points of a curve. Of more, every other one is left out: a terminal has far fewer columns.
const MOST: usize = 4096;

/// The losses so far.
#[derive(Debug, Default)]
pub struct Live {
    train: Curve,
    val: Curve,
}

#[derive(Debug, Default)]
struct Curve {
    points: Vec<(f64, f64)>,
    /// Of so many values one is kept.
    every: usize,
    seen: usize,
}

impl Curve {
    fn push(&mut self, point: (f64, f64)) {
        let every = self.every.max(1);
        if self.seen.is_multiple_of(every) {
            self.points.push(point);
        }
        self.seen += 1;
        if self.points.len() >= MOST {
            let mut number = 0;
            self.points.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.every = 2 * every;
        }
    }
}

impl Live {
    /// Takes in a line of `metrics.jsonl`.
    pub fn take(&mut self, line: &Value) {
        let number = |key: &str| line.get(key).and_then(Value::as_f64);
        let Some(step) = number("step") else { return };
        if let Some(loss) = number("loss") {
            self.train.push((step, loss));
        }
        if let Some(loss) = number("val_loss") {
            self.val.push((step, loss));
        }
    }

    /// The curves, as wide as the terminal behind standard error.
    pub fn lines(&self) -> Vec<String> {
        let look = Look {
            width: terminal::width(Stream::Err),
            height: HEIGHT,
            unicode: terminal::unicode(),
            color: terminal::color(Stream::Err),
            log: false,
        };
        let named = [("loss", &self.train), ("val_loss", &self.val)];
        let there = named.into_iter().filter(|(_, curve)| !curve.points.is_empty());
        let series: Vec<Series> =
            there.map(|(name, curve)| Series { name: name.into(), points: curve.points.clone() }).collect();
        chart(&series, &look)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn long_curves_are_thinned_out_evenly() {
        let mut live = Live::default();
        for step in 0..20_000 {
            live.take(&json!({ "kind": "step", "step": step, "loss": 1.0 }));
        }
        live.take(&json!({ "kind": "epoch", "step": 20_000, "val_loss": null, "train_loss": 1.0 }));
        live.take(&json!({ "kind": "note", "note": "x" }));
        let points = &live.train.points;
        assert!(points.len() < MOST && points.len() > MOST / 3 && live.val.points.is_empty());
        let gap = points[1].0 - points[0].0;
        assert!(points.windows(2).all(|pair| pair[1].0 - pair[0].0 == gap), "{gap}");
    }
}
