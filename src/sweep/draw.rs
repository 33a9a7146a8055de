//! The values of trials.

use crate::config::Assigned;
use crate::config::language::sections::{Axis, Choice, Interval, Method, Space, Sweep, as_json};
use crate::config::{Span, value_as_toml};
use crate::random::{Purpose, Stream, hash_name};
use serde_json::{Value, json};
use std::collections::HashSet;

/// What the trials of a sweep assign, the first trial first. A draw depends on the seed, the key and the number of the trial alone:
/// another trial or another key changes none.
pub fn trials(sweep: &Sweep, seed: u64) -> Vec<Vec<Assigned>> {
    match sweep.method {
        Method::Grid => combinations(&sweep.parameters),
        Method::Random | Method::Halving => {
            let drawn = |number: usize| sweep.parameters.0.iter().map(|axis| draw(axis, seed, number)).collect();
            match sweep.listed() {
                Some(_) => without_repetition(&sweep.parameters, sweep.count(), drawn),
                None => (1..=sweep.count()).map(drawn).collect(),
            }
        }
    }
}

/// How often a trial is drawn, on average, before those that are left are taken in their order.
const DRAWS: usize = 20;

/// The first `count` different combinations that are drawn; the same ones for a larger `count`, and then others.
fn without_repetition(space: &Space, count: usize, drawn: impl Fn(usize) -> Vec<Assigned>) -> Vec<Vec<Assigned>> {
    let all = combinations(space);
    let (mut seen, mut trials) = (HashSet::new(), Vec::with_capacity(count));
    let left = (1..=DRAWS * all.len()).map(drawn).chain(all.iter().cloned());
    for trial in left {
        if trials.len() == count {
            break;
        }
        if seen.insert(trial.iter().map(Assigned::set).collect::<Vec<_>>()) {
            trials.push(trial);
        }
    }
    trials
}

/// All combinations; the last key changes from trial to trial.
fn combinations(space: &Space) -> Vec<Vec<Assigned>> {
    let mut all = vec![Vec::new()];
    for axis in &space.0 {
        let points: Vec<(Value, Span)> = match &axis.choice {
            Choice::Values(nodes) => nodes.iter().map(|node| (as_json(node), node.span)).collect(),
            Choice::Range(range) => {
                let steps = range.steps.unwrap_or(2);
                (0..steps).map(|i| (number(range, point(range, i, steps)), axis.span)).collect()
            }
        };
        let with = |before: &Vec<Assigned>| -> Vec<Vec<Assigned>> {
            let add = |(value, span): &(Value, Span)| {
                let mut trial = before.clone();
                trial.push(assigned(axis, value.clone(), *span));
                trial
            };
            points.iter().map(add).collect()
        };
        all = all.iter().flat_map(with).collect();
    }
    all
}

/// The value that a key has in a trial, whose number counts from 1.
fn draw(axis: &Axis, seed: u64, trial: usize) -> Assigned {
    let mut stream = Stream::new(seed, Purpose::Sweep, hash_name(&axis.key), trial as u64);
    let mut below = |n: usize| stream.below(u32::try_from(n).unwrap_or(u32::MAX).max(1)) as usize;
    let (value, span) = match &axis.choice {
        Choice::Values(nodes) => {
            let node = &nodes[below(nodes.len())];
            (as_json(node), node.span)
        }
        Choice::Range(range) => {
            let drawn = match (range.steps, range.whole && !range.log) {
                (Some(steps), _) => point(range, below(steps), steps),
                (None, true) => range.low + below((range.high - range.low) as usize + 1) as f64,
                (None, false) => between(range, stream.uniform()),
            };
            (number(range, drawn), axis.span)
        }
    };
    assigned(axis, value, span)
}

fn assigned(axis: &Axis, value: Value, span: Span) -> Assigned {
    Assigned { key: axis.key.clone(), toml: value_as_toml(&value), value, key_span: axis.key_span, span }
}

/// Point `i` of `steps`, the ends among them.
fn point(range: &Interval, i: usize, steps: usize) -> f64 {
    match i {
        0 => range.low,
        i if i + 1 >= steps => range.high,
        i => between(range, i as f64 / (steps - 1) as f64),
    }
}

/// The number at a share of the way.
fn between(range: &Interval, share: f64) -> f64 {
    match range.log {
        true => (range.low.ln() + share * (range.high.ln() - range.low.ln())).exp(),
        false => range.low + share * (range.high - range.low),
    }
}

/// A number of a range. Fractions have four digits: more would add nothing, and these are the same on every machine.
fn number(range: &Interval, value: f64) -> Value {
    if range.whole {
        return json!(value.round().clamp(range.low, range.high) as i64);
    }
    let short = format!("{value:.3e}").parse().unwrap_or(value);
    json!(f64::clamp(short, range.low, range.high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SourceId;

    fn axis(key: &str, choice: Choice) -> Axis {
        let span = Span { source: SourceId(0), start: 0, end: 0 };
        Axis { key: key.into(), key_span: span, choice, span }
    }

    fn range(log: bool, low: f64, high: f64, whole: bool) -> Interval {
        Interval { log, low, high, whole, steps: None }
    }

    fn values(interval: Interval, trials: usize) -> Vec<f64> {
        let axis = axis("optimizer.lr", Choice::Range(interval));
        (1..=trials).map(|trial| draw(&axis, 7, trial).value.as_f64().unwrap()).collect()
    }

    #[test]
    fn draws_fill_their_range_evenly() {
        for (interval, middle) in [
            (range(true, 1e-4, 1e-2, false), 1e-3),
            (range(false, -1.0, 1.0, false), 0.0),
            (range(false, 1.0, 9.0, true), 5.0),
            (range(true, 16.0, 256.0, true), 64.0),
        ] {
            let all = values(interval, 1000);
            assert!(all.iter().all(|x| (interval.low..=interval.high).contains(x)), "{interval:?}");
            // Half of them below the middle: of 1000 draws within six standard deviations.
            let below = all.iter().filter(|x| **x < middle).count() + all.iter().filter(|x| **x == middle).count() / 2;
            assert!(below.abs_diff(500) < 95, "{interval:?}: {below}");
            assert!(!interval.whole || all.iter().all(|x| x.fract() == 0.0), "{interval:?}");
        }
        // Both ends of whole numbers are drawn.
        let all = values(range(false, 1.0, 3.0, true), 100);
        assert!([1.0, 2.0, 3.0].iter().all(|end| all.contains(end)), "{all:?}");
    }

    #[test]
    fn a_draw_depends_on_seed_key_and_number_alone() {
        let interval = range(false, 0.0, 1.0, false);
        let of = |key: &str, seed, trial| draw(&axis(key, Choice::Range(interval)), seed, trial).value;
        assert_eq!(of("a", 1, 1), of("a", 1, 1));
        for (key, seed, trial) in [("b", 1, 1), ("a", 2, 1), ("a", 1, 2)] {
            assert_ne!(of("a", 1, 1), of(key, seed, trial));
        }
        assert_eq!(values(interval, 4), values(interval, 9)[..4]);
    }

    #[test]
    fn a_grid_has_all_combinations_and_both_ends() {
        let points = Interval { steps: Some(3), ..range(true, 1e-4, 1e-2, false) };
        let whole = Interval { steps: Some(2), ..range(false, 1.0, 2.0, true) };
        let space = Space(vec![axis("a", Choice::Range(points)), axis("b", Choice::Range(whole))]);
        let trials: Vec<String> = combinations(&space)
            .iter()
            .map(|trial| trial.iter().map(Assigned::set).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(trials, ["a=0.0001 b=1", "a=0.0001 b=2", "a=0.001 b=1", "a=0.001 b=2", "a=0.01 b=1", "a=0.01 b=2"]);
    }
}
