//! What a run can be chosen and sorted by: what it is, its figures, the keys of its configuration.

use super::folder::Run;
use super::lines::number;
use crate::config::nearest;
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::time::SystemTime;

/// What a run has under a name.
#[derive(Debug, Clone, PartialEq)]
pub enum Datum {
    /// A number.
    Number(f64),
    /// Anything else.
    Text(String),
}

/// What every run is asked for.
const OWN: [&str; 11] =
    ["run", "state", "epochs", "step", "best", "best_epoch", "monitor", "seconds", "size", "modified", "name"];
/// Before the name of a figure: its best value instead of the last.
const BEST: &str = "best.";

/// What sorts by itself so that the best comes first.
pub fn is_figure(run: &Run, key: &str) -> bool {
    let key = key.strip_prefix(BEST).unwrap_or(key);
    key == "best"
        || run.lines.epochs.iter().chain(&run.lines.steps).any(|line| line.contains_key(key)) && run.key(key).is_none()
}

/// What a run has under `key`: a property of its own, a figure of its last epoch or evaluation or, with `best.`, its best one, the loss of the
/// last step, or a key of the configuration, of which the last words are enough where they are clear.
pub fn datum(run: &Run, key: &str) -> Option<Datum> {
    let figure = |value: f64| Some(Datum::Number(value));
    let text = |text: &str| Some(Datum::Text(text.to_owned()));
    match key {
        "run" | "name" => return text(&run.path.to_string_lossy()),
        "state" => return text(run.state.name()),
        "epochs" => return figure(run.epochs as f64),
        "step" => return figure(run.step as f64),
        "best" => return figure(run.best.as_ref()?.value),
        "best_epoch" => return figure(run.best.as_ref()?.at?.epoch as f64),
        "monitor" => return text(run.monitor()?),
        "seconds" => return figure(run.seconds),
        "size" => return figure(run.bytes as f64),
        "modified" => {
            let since = run.modified?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
            return figure(since.as_secs_f64());
        }
        _ => {}
    }
    if let Some(name) = key.strip_prefix(BEST)
        && let Some((value, _)) = run.best_figure(name)
    {
        return figure(value);
    }
    if let Some(value) = run.last().and_then(|line| number(line, key)) {
        return figure(value);
    }
    if let Some(value) = run.lines.steps.last().and_then(|line| number(line, key)) {
        return figure(value);
    }
    config_key(run, key).map(|value| match value {
        Value::Number(number) => Datum::Number(number.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => Datum::Text(text.clone()),
        other => Datum::Text(other.to_string()),
    })
}

/// A key as configurations of runs have it: `model.layers[1].type` for `model.layers.1.type`, as `--set` takes it.
fn indexed(key: &str) -> String {
    let mut out = String::with_capacity(key.len() + 1);
    for part in key.split('.') {
        match part.bytes().all(|byte| byte.is_ascii_digit()) && !part.is_empty() && !out.is_empty() {
            true => out += &format!("[{part}]"),
            false if out.is_empty() => out += part,
            false => out += &format!(".{part}"),
        }
    }
    out
}

/// The value of the key that is called so or, if it is the only one, ends so.
fn config_key<'a>(run: &'a Run, key: &str) -> Option<&'a Value> {
    let key = &indexed(key);
    run.key(key).or_else(|| {
        let end = format!(".{key}");
        // The layers have many keys of the same name.
        let of_layer = key.contains('[');
        let mut ends = run.config.iter().filter(|(name, _)| name.ends_with(&end) && (of_layer || !name.contains('[')));
        let (_, value) = ends.next()?;
        ends.next().is_none().then_some(value)
    })
}

/// What is wrong with a key that no run has anything under, with the one that was probably meant.
pub fn unknown(runs: &[Run], key: &str) -> String {
    let mut known: BTreeSet<String> = OWN.iter().map(|name| (*name).to_owned()).collect();
    for run in runs {
        known.extend(run.config.iter().map(|(key, _)| key.clone()));
        known.extend(figures(run).into_iter().flat_map(|name| [format!("{BEST}{name}"), name]));
    }
    let (last, mut help) = (key.rsplit('.').next().unwrap_or(key), String::new());
    let same: Vec<&str> = known.iter().map(String::as_str).filter(|k| k.rsplit('.').next() == Some(last)).collect();
    if let [_, _, ..] = same[..] {
        let all = same.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
        return match last == key {
            true => format!("`{key}` may be several keys\nhelp: say which: {all}"),
            false => format!("no run has `{key}`\nhelp: say which: {all}"),
        };
    } else if let Some(near) = nearest(key, known.iter().map(String::as_str)) {
        help = format!("\nhelp: did you mean `{near}`?");
    }
    if help.is_empty() {
        let figures: BTreeSet<String> = runs.iter().flat_map(figures).collect();
        let all = OWN.iter().map(|name| (*name).to_owned()).chain(figures);
        help =
            format!("\nhelp: runs have {}, and the keys of their configurations", all.collect::<Vec<_>>().join(", "));
    }
    format!("no run has `{key}`{help}")
}

/// The figures that a run has written down of its epochs, in their order.
pub fn figures(run: &Run) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for line in &run.lines.epochs {
        let of = |name: &&String| name.starts_with("train_") || name.starts_with("val_") && *name != "val_unreadable";
        for name in line.keys().filter(of) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    names
}

impl Datum {
    /// What comes first in a list that goes up; what is no number comes after all that are.
    pub fn compare(&self, other: &Datum) -> Ordering {
        match (self, other) {
            (Datum::Number(a), Datum::Number(b)) => a.is_nan().cmp(&b.is_nan()).then(a.total_cmp(b)),
            (Datum::Number(_), Datum::Text(_)) => Ordering::Less,
            (Datum::Text(_), Datum::Number(_)) => Ordering::Greater,
            (Datum::Text(a), Datum::Text(b)) => natural(a, b),
        }
    }
}

/// The order of texts in which numbers count as such: `a/2` before `a/10`.
pub fn natural(a: &str, b: &str) -> Ordering {
    fn parts(text: &str) -> Vec<(bool, &str)> {
        let mut out = Vec::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let digits = first.is_ascii_digit();
            let end = rest.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(rest.len());
            out.push((digits, &rest[..end]));
            rest = &rest[end..];
        }
        out
    }
    let (left, right) = (parts(a), parts(b));
    for ((number_a, x), (number_b, y)) in left.iter().zip(&right) {
        let order = match number_a & number_b {
            true => {
                let (x, y) = (x.trim_start_matches('0'), y.trim_start_matches('0'));
                x.len().cmp(&y.len()).then(x.cmp(y))
            }
            false => x.cmp(y),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    left.len().cmp(&right.len()).then(a.cmp(b))
}
