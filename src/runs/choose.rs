//! Choosing among runs: conditions, an order, the best.

use super::datum::{Datum, datum, is_figure, natural, unknown};
use super::figure::higher_is_better;
use super::folder::{Run, State};
use crate::config::nearest;
use std::cmp::Ordering;

/// A condition on a run: `optimizer.lr<1e-3`, `state=finished`.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    key: String,
    compare: Compare,
    value: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compare {
    Equal,
    NotEqual,
    Less,
    AtMost,
    More,
    AtLeast,
}

impl Condition {
    /// Reads a condition.
    ///
    /// # Errors
    /// It has no comparison, or nothing on one side of it.
    pub fn parse(text: &str) -> Result<Condition, String> {
        // Those of two characters before those that they begin with.
        let known = [
            ("==", Compare::Equal),
            ("!=", Compare::NotEqual),
            ("<=", Compare::AtMost),
            (">=", Compare::AtLeast),
            ("=", Compare::Equal),
            ("<", Compare::Less),
            (">", Compare::More),
        ];
        let first = text.find(['!', '<', '>', '=']).unwrap_or(text.len());
        let found = known.iter().find_map(|(sign, compare)| Some((text[first..].strip_prefix(sign)?, *compare)));
        let (key, Some((value, compare))) = (text[..first].trim(), found) else {
            return Err("expected KEY=VALUE, or a comparison by !=, <, <=, > or >=, as in val_accuracy>0.9".into());
        };
        let value = value.trim().trim_matches('"');
        if key.is_empty() || value.is_empty() && compare != Compare::Equal && compare != Compare::NotEqual {
            return Err("expected a key before the comparison and a value after it".into());
        }
        Ok(Condition { key: key.to_owned(), compare, value: value.to_owned() })
    }

    /// The value, if it is a number; a share may be given in percent.
    fn number(&self) -> Option<f64> {
        let percent = || Some(self.value.strip_suffix('%')?.trim().parse::<f64>().ok()? / 100.0);
        self.value.parse().ok().or_else(percent)
    }

    /// Refuses what says nothing of runs: a state that there is not, a word where all runs have numbers.
    fn can_hold(&self, runs: &[Run]) -> Result<(), String> {
        let states = State::ALL.map(State::name);
        if self.key == "state" && !runs.is_empty() && !states.contains(&self.value.as_str()) {
            let near =
                nearest(&self.value, states).map_or(String::new(), |near| format!("\nhelp: did you mean `{near}`?"));
            return Err(format!("no run has the state `{}`: there are {}{near}", self.value, states.join(", ")));
        }
        let mut has = runs.iter().filter_map(|run| datum(run, &self.key)).peekable();
        if self.number().is_none() && has.peek().is_some() && has.all(|datum| matches!(datum, Datum::Number(_))) {
            return Err(format!("`{}` is a number, and `{}` is none", self.key, self.value));
        }
        Ok(())
    }

    /// Whether a run meets it. A run that has nothing under the key meets `!=` alone.
    fn holds(&self, run: &Run) -> bool {
        let Some(datum) = datum(run, &self.key) else { return self.compare == Compare::NotEqual };
        let order = match (&datum, self.number()) {
            // No number is less or more than one that is none, or equal to it.
            (Datum::Number(has), Some(value)) => has.partial_cmp(&value),
            (Datum::Number(_), None) => None,
            (Datum::Text(has), _) => Some(natural(has, &self.value)),
        };
        match self.compare {
            Compare::Equal => order == Some(Ordering::Equal),
            Compare::NotEqual => order != Some(Ordering::Equal),
            Compare::Less => order == Some(Ordering::Less),
            Compare::AtMost => order.is_some_and(Ordering::is_le),
            Compare::More => order == Some(Ordering::Greater),
            Compare::AtLeast => order.is_some_and(Ordering::is_ge),
        }
    }
}

/// Keeps the runs that meet all conditions.
///
/// # Errors
/// No run has anything under a key.
pub fn keep(runs: &mut Vec<Run>, conditions: &[Condition]) -> Result<(), String> {
    for condition in conditions {
        if !runs.is_empty() && runs.iter().all(|run| datum(run, &condition.key).is_none()) {
            return Err(unknown(runs, &condition.key));
        }
        condition.can_hold(runs)?;
    }
    runs.retain(|run| conditions.iter().all(|condition| condition.holds(run)));
    Ok(())
}

/// Sorts runs by `key`: figures from the best on, all else upwards. Runs that have nothing under it come last.
///
/// # Errors
/// No run has anything under the key.
pub fn sort(runs: &mut [Run], key: &str) -> Result<(), String> {
    if !runs.is_empty() && runs.iter().all(|run| datum(run, key).is_none()) {
        return Err(unknown(runs, key));
    }
    let figures = runs.iter().any(|run| is_figure(run, key));
    let down = |run: &Run| match key {
        "best" => run.monitor().is_some_and(higher_is_better),
        key => higher_is_better(key.strip_prefix("best.").unwrap_or(key)),
    };
    let down = figures && runs.iter().any(down);
    runs.sort_by(|a, b| match (datum(a, key), datum(b, key)) {
        (Some(x), Some(y)) => {
            let order = x.compare(&y);
            // What is no number stays last.
            let numbers = [&x, &y].iter().all(|datum| matches!(datum, Datum::Number(n) if !n.is_nan()));
            if down && numbers { order.reverse() } else { order }
        }
        (x, y) => y.is_some().cmp(&x.is_some()),
    });
    Ok(())
}

/// The run with the best of the monitored figure.
///
/// # Errors
/// There is none, or they watch different figures.
pub fn best<'a>(runs: impl Iterator<Item = &'a Run> + Clone) -> Result<&'a Run, String> {
    let mut monitors: Vec<&str> = runs.clone().filter_map(|run| Some(run.best.as_ref()?.monitor.as_str())).collect();
    monitors.sort_unstable();
    monitors.dedup();
    let [monitor] = monitors[..] else {
        return Err(match monitors.len() {
            0 => "no run has a monitored figure yet".into(),
            _ => format!(
                "the runs watch different figures: {}\nhelp: say which by --sort, as in `--best --sort best.{}`",
                monitors.join(", "),
                monitors[0]
            ),
        });
    };
    let higher = higher_is_better(monitor);
    let value = |run: &&Run| run.best.as_ref().map(|best| if higher { -best.value } else { best.value });
    let valued = runs.filter(|run| value(run).is_some());
    let order = |a: &&Run, b: &&Run| value(a).unwrap_or(f64::MAX).total_cmp(&value(b).unwrap_or(f64::MAX));
    valued.min_by(order).ok_or_else(|| "no run has a monitored figure yet".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::folder::{At, Best, State, flat};
    use crate::runs::lines::{Lines, Wanted};
    use serde_json::json;

    fn run(name: &str, lr: f64, accuracy: f64) -> Run {
        let line =
            json!({ "kind": "epoch", "epoch": 1, "step": 5, "val_accuracy": accuracy, "val_loss": 1.0 - accuracy });
        let config = json!({
            "optimizer": { "type": "sgd", "lr": lr },
            "loss": { "type": "mse" },
            "model": { "layers": [{ "width": 4 }, { "width": 8 }] },
            "checkpoint": { "monitor": "val_accuracy" },
        });
        Run {
            path: name.into(),
            state: State::Finished,
            why: None,
            config: flat(&config),
            config_text: String::new(),
            lines: Lines::of(line.to_string().as_bytes(), Wanted::All),
            epochs: 1,
            step: 5,
            best: Some(Best { monitor: "val_accuracy".into(), value: accuracy, at: Some(At { epoch: 1, step: None }) }),
            seconds: 1.0,
            bytes: 10,
            modified: None,
            problems: Vec::new(),
        }
    }

    fn runs() -> Vec<Run> {
        vec![run("a/10", 0.1, 0.5), run("a/2", 0.01, 0.9), run("b/1", 0.001, f64::NAN)]
    }

    fn names(runs: &[Run]) -> String {
        runs.iter().map(|run| run.path.display().to_string()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn conditions_hold_or_do_not() {
        for (text, kept) in [
            ("optimizer.lr<0.05", "a/2 b/1"),
            ("lr>=0.01", "a/10 a/2"),
            ("lr = 1e-1", "a/10"),
            ("lr==0.1", "a/10"),
            ("val_accuracy=90%", "a/2"),
            ("layers.1.width=8", "a/10 a/2 b/1"),
            ("model.layers[1].width=8", "a/10 a/2 b/1"),
            ("val_accuracy>0.4", "a/10 a/2"),
            ("val_accuracy!=0.5", "a/2 b/1"),
            ("best.val_loss<=0.2", "a/2"),
            ("optimizer.type=\"sgd\"", "a/10 a/2 b/1"),
            ("optimizer.type=adam", ""),
            ("optimizer.type!=adam", "a/10 a/2 b/1"),
            ("state=finished", "a/10 a/2 b/1"),
            ("epochs>1", ""),
            ("run=a/2", "a/2"),
        ] {
            let mut runs = runs();
            keep(&mut runs, &[Condition::parse(text).unwrap()]).unwrap();
            assert_eq!(names(&runs), kept, "{text}");
        }
        for text in ["lr", "", "=3", "lr<", " > 1"] {
            assert!(Condition::parse(text).is_err(), "{text}");
        }
        let wrong = |text: &str| keep(&mut runs(), &[Condition::parse(text).unwrap()]).unwrap_err();
        assert!(wrong("optimizer.l=1").contains("did you mean `optimizer.lr`?"), "{}", wrong("optimizer.l=1"));
        assert!(wrong("val_acuracy>1").contains("did you mean `val_accuracy`?"));
        assert!(wrong("type=sgd").contains("say which: `loss.type`, `optimizer.type`"), "{}", wrong("type=sgd"));
        assert!(wrong("zzzzzzzzzzz=1").contains("runs have run, state"));
        assert!(wrong("type=sgd").starts_with("`type` may be several keys"), "{}", wrong("type=sgd"));
        for sign in [">", "=", "=="] {
            let said = wrong(&format!("val_accuracy{sign}high"));
            assert_eq!(said, "`val_accuracy` is a number, and `high` is none");
        }
        assert!(wrong("state!=finshed").ends_with("help: did you mean `finished`?"), "{}", wrong("state!=finshed"));
    }

    #[test]
    fn figures_sort_from_the_best_on_and_all_else_upwards() {
        for (key, order) in [
            ("run", "a/2 a/10 b/1"),
            ("val_accuracy", "a/2 a/10 b/1"),
            ("best.val_loss", "a/2 a/10 b/1"),
            ("lr", "b/1 a/2 a/10"),
            ("best", "a/2 a/10 b/1"),
        ] {
            let mut runs = runs();
            sort(&mut runs, key).unwrap();
            assert_eq!(names(&runs), order, "{key}");
        }
        assert!(sort(&mut runs(), "val_los").unwrap_err().contains("`val_loss`"));
    }

    #[test]
    fn the_best_is_of_one_figure() {
        let mut all = runs();
        all.truncate(2);
        assert_eq!(best(all.iter()).unwrap().path.to_str(), Some("a/2"));
        all[0].best.as_mut().unwrap().monitor = "val_loss".into();
        assert!(best(all.iter()).unwrap_err().contains("different figures: val_accuracy, val_loss"));
        all.iter_mut().for_each(|run| run.best = None);
        assert!(best(all.iter()).is_err());
    }
}
