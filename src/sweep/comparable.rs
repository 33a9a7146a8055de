//! Whether the figure by which trials are compared means the same in all of them.

use crate::config::language::sections::{Axis, Choice, Metric, Monitor, as_json};
use crate::config::{Diagnostic, Experiment, Lint};
use std::collections::HashSet;

/// Keys that make another loss of the model's, with all below them.
const OF_LOSS: [&str; 5] = ["loss", "heads", "data.standardize_target", "data.sample_weight", TARGET];
/// Other numbers are learnt: no figure means the same.
const TARGET: &str = "data.target";

/// Whether a key is another one, or lies below it.
fn is_of(key: &str, of: &str) -> bool {
    key.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Whether a value of `key` makes another figure of what `monitor` watches.
fn changes(monitor: &Monitor, key: &str) -> bool {
    match monitor {
        Monitor::Model(_) if monitor.is_loss() => OF_LOSS.iter().any(|of| is_of(key, of)),
        Monitor::Model(_) => is_of(key, TARGET),
        // A `weight` of a head is of the sum alone.
        Monitor::Head(_) => monitor.is_loss() && is_of(key, "heads") && !key.ends_with(".weight"),
    }
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
    let of_all = [Metric::ValRmse, Metric::ValLogLoss].into_iter().find(|metric| measured.contains(&metric.figure()));
    let other = of_all.filter(|_| monitor.is_loss() && monitor.of_model().is_some()).map(Metric::name);
    let warning = |axis: &Axis| {
        let message =
            format!("trials are compared by `{}`, and `{}` makes it another figure in each", monitor.name(), axis.key);
        let warning =
            Diagnostic::warning(Lint::IncomparableTrials, message).at(axis.key_span, "changes what is compared");
        warning.help(match other.filter(|_| !is_of(&axis.key, TARGET)) {
            Some(other) => {
                format!("compare by a figure that it does not change: `monitor = \"{other}\"` in `[sweep]`, or `--monitor {other}`")
            }
            None => "leave it out of the parameters, and compare the trials of one value with one another".into(),
        })
    };
    let found = sweep.parameters.0.iter().filter(|axis| changes(monitor, &axis.key) && differs(axis));
    experiment.lint.without_allowed(found.map(warning).collect())
}
