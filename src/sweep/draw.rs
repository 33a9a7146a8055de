//! The values of trials.

use crate::config::Assigned;
use crate::config::language::sections::{Axis, Choice, Method, Space, Sweep, as_json};
use crate::config::{Span, value_as_toml};
use crate::random::{Purpose, Stream, hash_name};
use serde_json::Value;
use std::collections::HashSet;

/// What the trials of a sweep assign, the first trial first. A draw depends on the seed, the key and the number of the trial alone:
/// another trial or another key changes none.
pub fn trials(sweep: &Sweep, seed: u64) -> Vec<Vec<Assigned>> {
    match sweep.method {
        Method::Grid => combinations(&sweep.parameters),
        Method::Random | Method::Halving => {
            let axes = &sweep.parameters.0;
            let counted = axes.iter().map(|axis| if is_drawn_between(axis) { Vec::new() } else { points(axis) });
            let counted: Vec<Vec<Point>> = counted.collect();
            let drawn = |number: usize| {
                axes.iter().zip(&counted).map(|(axis, points)| draw(axis, points, seed, number)).collect::<Vec<_>>()
            };
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

/// A value of a key, with its place.
type Point = (Value, Span);

/// The values of a key that are counted.
fn points(axis: &Axis) -> Vec<Point> {
    match &axis.choice {
        Choice::Values(nodes) => nodes.iter().map(|node| (as_json(node), node.span)).collect(),
        Choice::Range(range) => range.values().into_iter().map(|value| (value, axis.span)).collect(),
    }
}

/// Whether it may be any number of a range.
fn is_drawn_between(axis: &Axis) -> bool {
    matches!(&axis.choice, Choice::Range(range) if range.steps.is_none())
}

/// All combinations; the last key changes from trial to trial.
fn combinations(space: &Space) -> Vec<Vec<Assigned>> {
    let mut all = vec![Vec::new()];
    for axis in &space.0 {
        let points = points(axis);
        let with = |before: &Vec<Assigned>| -> Vec<Vec<Assigned>> {
            let add = |(value, span): &Point| {
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

/// The value that a key has in a trial, whose number counts from 1: one of the `points`, if it has some.
fn draw(axis: &Axis, points: &[Point], seed: u64, trial: usize) -> Assigned {
    let mut stream = Stream::new(seed, Purpose::Sweep, hash_name(&axis.key), trial as u64);
    let mut below = |n: usize| stream.below(u32::try_from(n).unwrap_or(u32::MAX).max(1)) as usize;
    let (value, span) = match &axis.choice {
        Choice::Range(range) if range.steps.is_none() => {
            let drawn = match range.whole && !range.log {
                true => (range.low as i64 + below((range.high - range.low) as usize + 1) as i64).into(),
                false => range.at(stream.uniform()),
            };
            (drawn, axis.span)
        }
        _ => points[below(points.len())].clone(),
    };
    assigned(axis, value, span)
}

fn assigned(axis: &Axis, value: Value, span: Span) -> Assigned {
    Assigned { key: axis.key.clone(), toml: value_as_toml(&value), value, key_span: axis.key_span, span }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SourceId;
    use crate::config::language::sections::Interval;

    fn axis(key: &str, choice: Choice) -> Axis {
        let span = Span { source: SourceId(0), start: 0, end: 0 };
        Axis { key: key.into(), key_span: span, choice, span }
    }

    fn range(log: bool, low: f64, high: f64, whole: bool) -> Interval {
        Interval { log, low, high, whole, steps: None }
    }

    fn values(interval: Interval, trials: usize) -> Vec<f64> {
        let axis = axis("optimizer.lr", Choice::Range(interval));
        (1..=trials).map(|trial| draw(&axis, &[], 7, trial).value.as_f64().unwrap()).collect()
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
        let of = |key: &str, seed, trial| draw(&axis(key, Choice::Range(interval)), &[], seed, trial).value;
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
