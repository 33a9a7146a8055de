//! Whether the figure by which trials are compared means the same in all of them.

use crate::config::language::sections::{Axis, Choice, Metric, Monitor, as_json};
use crate::config::{Diagnostic, Experiment, Lint};
use std::collections::HashSet;

/// What a parameter changes, so that a figure is another one in each trial.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// The loss, and no other figure.
    Loss,
    /// The tokens of a text, and figures that are means over tokens.
    Tokens,
    /// The samples that are validated on.
    Samples,
    /// The numbers or classes that are learnt.
    Target,
}

/// Keys that change it, with all below them.
const KEYS: [(Change, &[&str]); 4] = [
    (Change::Loss, &["loss", "heads", "data.standardize_target", "data.sample_weight"]),
    (Change::Tokens, &["data.tokenizer", "data.vocab_size"]),
    (
        Change::Samples,
        &["data.fold", "data.folds", "data.validation_split", "data.val_path", "data.split_column", "data.limit_val"],
    ),
    (Change::Target, &["data.target"]),
];

/// Whether a key is another one, or lies below it.
fn is_of(key: &str, of: &str) -> bool {
    key.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// How a value of `key` makes another figure of what `monitor` watches, if it does.
fn change(monitor: &Monitor, key: &str) -> Option<Change> {
    let (change, _) = KEYS.into_iter().find(|(_, keys)| keys.iter().any(|of| is_of(key, of)))?;
    let is_one_of = |metrics: &[Metric]| metrics.iter().any(|metric| metric.figure() == monitor.figure());
    let (of_model, of_loss) = (monitor.of_model().is_some(), is_one_of(&[Metric::ValLoss]));
    let changes = match change {
        // A `weight` of a head is of the sum alone.
        Change::Loss if !of_model => of_loss && is_of(key, "heads") && !key.ends_with(".weight"),
        Change::Loss => of_loss,
        Change::Tokens => of_loss || is_one_of(&[Metric::ValAccuracy, Metric::ValPerplexity]),
        Change::Samples => monitor.of_validation(),
        Change::Target => of_model,
    };
    changes.then_some(change)
}

/// Whether a key has several values.
fn differs(axis: &Axis) -> bool {
    match &axis.choice {
        Choice::Values(nodes) => nodes.iter().map(|node| as_json(node).to_string()).collect::<HashSet<_>>().len() > 1,
        Choice::Range(_) => true,
    }
}

/// Warns of parameters of the sweep that make another figure in each trial of that by which the trials are compared: the best value is not that of the best
/// trial then.
pub fn incomparable(experiment: &Experiment) -> Vec<Diagnostic> {
    let Some(sweep) = &experiment.sweep else { return Vec::new() };
    let monitor = sweep.monitor.as_ref().unwrap_or_else(|| experiment.checkpoint.monitor());
    let task = experiment.loss.describe().task();
    let measured = [task.figures(), task.asked_figures()].concat();
    let of_all = |change: Change| {
        let others: &[Metric] = match change {
            Change::Loss if monitor.of_model().is_some() => &[Metric::ValRmse, Metric::ValLogLoss],
            Change::Tokens => &[Metric::ValBitsPerByte],
            _ => &[],
        };
        others.iter().find(|metric| measured.contains(&metric.figure())).map(|metric| metric.name())
    };
    let warning = |axis: &Axis| {
        let change = change(monitor, &axis.key)?;
        let message =
            format!("trials are compared by `{}`, and `{}` makes it another figure in each", monitor.name(), axis.key);
        let label = match change {
            Change::Samples => "changes the samples that it is of",
            _ => "changes what is compared",
        };
        let warning = Diagnostic::warning(Lint::IncomparableTrials, message).at(axis.key_span, label);
        Some(warning.help(match of_all(change) {
            Some(other) => {
                format!("compare by a figure that it does not change: `monitor = \"{other}\"` in `[sweep]`, or `--monitor {other}`")
            }
            None => "leave it out of the parameters, and compare the trials of one value with one another".into(),
        }))
    };
    let found = sweep.parameters.0.iter().filter(|axis| differs(axis)).filter_map(warning);
    experiment.lint.without_allowed(found.collect())
}
