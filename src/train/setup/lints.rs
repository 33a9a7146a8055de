//! What model, data and options show together that is surely not meant; and what keeps a run from its first step.

use super::oversights;
use super::schedule::{Schedule, batches, updates};
use crate::config::experiment::Validation;
use crate::config::language::pattern::Pattern;
use crate::config::language::sections::{EvalEvery, Length, Monitor};
use crate::config::{Diagnostic, Experiment, Lint};
use crate::data::DataSpec;
use crate::graph::op::Op;
use crate::graph::{Graph, VarKind, Variable, Variables};

/// Refuses data of which `drop_last` leaves no batch to train on.
///
/// # Errors
/// There are fewer samples than a batch takes, and that they are left out.
pub fn require_a_batch(experiment: &Experiment, data: &DataSpec) -> Result<(), Diagnostic> {
    let loading = &experiment.data.loading;
    let Some(samples) = data.train.filter(|n| loading.drop_last && *n < loading.batch_size) else { return Ok(()) };
    let message = format!(
        "there {}, fewer than a batch of {}, and `drop_last` leaves them all out",
        training_samples(samples),
        loading.batch_size
    );
    let help = format!("take a `batch_size` of at most {samples}, or leave `drop_last` out");
    let places =
        [("data.drop_last", "leaves out what makes no full batch"), ("data.batch_size", "more than there are")];
    Err(at(experiment, Diagnostic::error(message).help(help), &places))
}

/// Refuses to join the statistics of batch normalisation in a model that has none. `forward` is a graph of training.
///
/// # Errors
/// There is nothing that `sync_batch_norm` could do.
pub fn require_batch_norm(experiment: &Experiment, forward: &Graph) -> Result<(), Diagnostic> {
    let has_it = || forward.nodes.iter().any(|node| matches!(node.op, Op::BatchNorm(_)));
    if !experiment.distributed.sync_batch_norm || has_it() {
        return Ok(());
    }
    let error = Diagnostic::error("`sync_batch_norm` has nothing to join: the model has no batch normalisation")
        .help("leave it out; other normalisations look at each sample by itself");
    Err(at(experiment, error, &[("distributed.sync_batch_norm", "of no layer")]))
}

/// The warnings about an experiment that trains on `data`; `vars` are the model's. Those that `[lint]` allows are among
/// them.
pub fn lints(experiment: &Experiment, data: &DataSpec, vars: &Variables) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    found.extend(batch_larger_than_data(experiment, data));
    found.extend(accumulate_beyond_epoch(experiment, data));
    found.extend(warmup_beyond_run(experiment, data));
    found.extend(patience_beyond_run(experiment, data));
    found.extend(epochs_beyond_run(experiment, data));
    found.extend(monitors_without_validation(experiment, data));
    if found.iter().all(|found| found.lint != Some(Lint::MonitorWithoutValidation)) {
        found.extend(no_validation(experiment, data));
    }
    found.extend(oversights::of_data(experiment, data));
    found.extend(oversights::frozen_without_weights(experiment));
    found.extend(chosen_on_test_set(experiment, data));
    found.extend(groups(experiment, vars));
    found
}

/// Points at the keys that were written, the first of them as the culprit; else at the section of the first.
pub fn at(experiment: &Experiment, mut diagnostic: Diagnostic, keys: &[(&str, &str)]) -> Diagnostic {
    for (key, text) in keys {
        if let Some(span) = experiment.span_of(key) {
            diagnostic = match diagnostic.labels.is_empty() {
                true => diagnostic.at(span, *text),
                false => diagnostic.context(span, *text),
            };
        }
    }
    let first = keys.first().filter(|_| diagnostic.labels.is_empty());
    match first.and_then(|(key, text)| Some((experiment.nearest_span(key)?, *text))) {
        Some((span, text)) => diagnostic.at(span, text),
        None => diagnostic,
    }
}

/// `is 1 training sample` or `are 20 training samples`.
fn training_samples(n: usize) -> String {
    if n == 1 { "is 1 training sample".into() } else { format!("are {n} training samples") }
}

/// The keys that make the training set smaller, with what they do.
const LESS: [(&str, &str); 2] =
    [("data.limit", "at most so many are taken"), ("data.validation_split", "holds some out")];

fn batch_larger_than_data(experiment: &Experiment, data: &DataSpec) -> Option<Diagnostic> {
    let batch = experiment.data.loading.batch_size;
    let samples = data.train.filter(|n| *n < batch)?;
    let message = format!("there {}, fewer than a batch of {batch}", training_samples(samples));
    let warning = Diagnostic::warning(Lint::BatchLargerThanData, message);
    let keys = [&[("data.batch_size", "no batch is that large")][..], &LESS].concat();
    Some(
        at(experiment, warning, &keys).help(format!(
            "every epoch is one step on all {samples}; if that is meant, write `batch_size = {samples}`"
        )),
    )
}

fn accumulate_beyond_epoch(experiment: &Experiment, data: &DataSpec) -> Option<Diagnostic> {
    let batches = batches(experiment, data.train?);
    let accumulate = experiment.train.accumulate;
    if batches == 0 || accumulate <= batches {
        return None;
    }
    let s = if batches == 1 { "" } else { "es" };
    let message = format!("`accumulate` is {accumulate}, but an epoch has {batches} batch{s}");
    let warning = Diagnostic::warning(Lint::AccumulateBeyondEpoch, message);
    let keys =
        [("train.accumulate", "never reached: an epoch ends with an update"), ("data.batch_size", "the batches")];
    Some(
        at(experiment, warning, &[&keys[..], &LESS].concat())
            .help(format!("take at most {batches}, or a smaller `batch_size`")),
    )
}

fn warmup_beyond_run(experiment: &Experiment, data: &DataSpec) -> Option<Diagnostic> {
    let warmup = &experiment.schedule.warmup;
    let length = experiment.train.length();
    // A length in epochs was held against those of the run before there were data.
    if warmup.warmup_epochs.zip(length.in_epochs()).is_some_and(|(n, epochs)| n as u64 >= epochs) {
        return None;
    }
    let (key, schedule) = match (warmup.warmup_steps, warmup.warmup_epochs) {
        (Some(_), _) => ("schedule.warmup_steps", Schedule::new(experiment, data.train?)),
        (None, Some(_)) => ("schedule.warmup_epochs", Schedule::new(experiment, data.train?)),
        (None, None) => return None,
    };
    let updates = updates(experiment, data.train?);
    let all = length.updates(updates);
    let (steps, end, why) = match experiment.train.max_steps {
        Some(max) if max < all => (max, "train.max_steps", "the run ends here"),
        _ => (all, length.key(), "the run ends with these"),
    };
    let warning = |message: &str| Diagnostic::warning(Lint::ScheduleBeyondRun, message);
    if schedule.warmup >= steps {
        let warning = warning("the warm-up takes the whole run: the full learning rate is never reached");
        let label = format!("{} of the run's {steps} steps", schedule.warmup.min(steps));
        return Some(at(experiment, warning, &[(key, &label), (end, why)]));
    }
    if let Some(end) = experiment.schedule.curve.end(length)
        && schedule.warmup >= end.updates(updates)
    {
        let warning = warning("the warm-up leaves the cosine no time: the learning rate falls at once");
        let label = format!("{} steps", schedule.warmup);
        return Some(at(
            experiment,
            warning,
            &[(key, &label), ("schedule.epochs", "the cosine ends with these epochs")],
        ));
    }
    None
}

/// Numbers of epochs that a run whose length is given in steps does not have.
fn epochs_beyond_run(experiment: &Experiment, data: &DataSpec) -> Option<Diagnostic> {
    let (length, after) = (experiment.train.length(), experiment.model.thaw_after?);
    let epochs = match length {
        Length::Steps(_) => length.epochs(updates(experiment, data.train?)),
        // A length in epochs was compared with them before there were data.
        Length::Epochs(_) => return None,
    };
    if (after as u64) < epochs {
        return None;
    }
    let s = if epochs == 1 { "" } else { "s" };
    let message = format!("`thaw_after` has no effect: the run has {length}, which are at most {epochs} epoch{s}");
    let keys = [("model.thaw_after", "nothing is trained after this"), ("train.steps", "the run ends with these")];
    Some(at(experiment, Diagnostic::warning(Lint::NoEffect, message), &keys))
}

/// How often a run validates, if that is known.
fn validations(experiment: &Experiment, data: &DataSpec) -> Option<u64> {
    let (length, every) = (experiment.train.length(), experiment.train.eval_every());
    Some(match (length, every) {
        (Length::Epochs(epochs), EvalEvery::Epochs(every)) => epochs.div_ceil(every),
        (Length::Steps(steps), EvalEvery::Steps(every)) => steps.div_ceil(every),
        (_, EvalEvery::Epochs(every)) => length.epochs(updates(experiment, data.train?)).div_ceil(every),
        (_, EvalEvery::Steps(every)) => length.updates(updates(experiment, data.train?)).div_ceil(every),
    })
}

fn patience_beyond_run(experiment: &Experiment, data: &DataSpec) -> Option<Diagnostic> {
    let train = &experiment.train;
    let stopping = train.early_stopping.as_ref()?;
    let validations = validations(experiment, data)?;
    if (stopping.patience as u64) < validations {
        return None;
    }
    let s = if validations == 1 { "" } else { "s" };
    let message = format!("`early_stopping` never stops the run, which has {validations} validation{s}");
    let warning = Diagnostic::warning(Lint::PatienceBeyondRun, message);
    let label = format!("waits for {}", stopping.patience);
    let keys = [("train.early_stopping.patience", label.as_str()), (train.length().key(), "the run ends with these")];
    let keys = match train.early_stopping.as_ref().and(experiment.span_of("train.early_stopping.patience")) {
        Some(_) => keys,
        None => [("train.early_stopping", label.as_str()), keys[1]],
    };
    Some(at(experiment, warning, &keys).help("take a smaller `patience`, or leave `early_stopping` out"))
}

fn monitors_without_validation(experiment: &Experiment, data: &DataSpec) -> Vec<Diagnostic> {
    if data.val != Some(0) {
        return Vec::new();
    }
    let warning = |message: String, key: &str, monitor: &Monitor| {
        let warning = Diagnostic::warning(Lint::MonitorWithoutValidation, message)
            .help("`validation_split` in `[data]` holds samples out; `train_loss` is there in any case");
        at(experiment, warning, &[(key, &format!("there is no `{}`", monitor.name()))])
    };
    let mut found = Vec::new();
    let watched = Monitor::of_validation;
    if let Some(stopping) = experiment.train.early_stopping.as_ref().filter(|s| watched(&s.monitor)) {
        let message = "`early_stopping` has no effect: there are no samples to validate on";
        let written = experiment.span_of("train.early_stopping.monitor").is_some();
        let key = if written { "train.early_stopping.monitor" } else { "train.early_stopping" };
        found.push(warning(message.into(), key, &stopping.monitor));
    }
    if let Some(monitor) = experiment.schedule.monitor().filter(|monitor| watched(monitor)) {
        let message = "the learning rate never drops: there are no samples to validate on";
        let written = experiment.span_of("schedule.monitor").is_some();
        found.push(warning(message.into(), if written { "schedule.monitor" } else { "schedule.type" }, monitor));
    }
    // By default a run without validation simply has no `best`.
    if let Some(monitor) = experiment.chosen_monitor().filter(|monitor| watched(monitor)) {
        let message = "there will be no `best` checkpoint: there are no samples to validate on";
        found.push(warning(message.into(), "checkpoint.monitor", monitor));
    }
    found
}

/// No samples to validate on.
fn no_validation(experiment: &Experiment, data: &DataSpec) -> Option<Diagnostic> {
    // Who watches the training alone has said so.
    if data.val != Some(0) || experiment.chosen_monitor().is_some() {
        return None;
    }
    let message = "there are no samples to validate on, so no figure shows how the model does on new ones";
    let warning = Diagnostic::warning(Lint::NoValidation, message)
        .help("`validation_split = 0.1` in `[data]` holds a tenth of the training samples out");
    Some(at(experiment, warning, &[("data.source", "has training samples alone")]))
}

/// Decisions that were asked for and are made on the test set. By default every run has its `best`; that alone is reported when
/// the run has ended.
fn chosen_on_test_set(experiment: &Experiment, data: &DataSpec) -> Option<Diagnostic> {
    if experiment.validation() != Validation::TestSet || data.val == Some(0) {
        return None;
    }
    let written = |key: &str| experiment.span_of(key).is_some();
    let stopping = experiment.train.early_stopping.as_ref().map(|stopping| &stopping.monitor);
    let stopping_key =
        if written("train.early_stopping.monitor") { "train.early_stopping.monitor" } else { "train.early_stopping" };
    let plateau_key = if written("schedule.monitor") { "schedule.monitor" } else { "schedule.type" };
    let best = experiment.chosen_monitor();
    let keys = [
        (best, "checkpoint.monitor", "chooses `best`"),
        (stopping, stopping_key, "ends the run"),
        (experiment.schedule.monitor(), plateau_key, "lowers the learning rate"),
    ];
    let keys = keys.iter().filter(|(monitor, ..)| monitor.is_some_and(Monitor::of_validation));
    let keys: Vec<(&str, &str)> = keys.map(|(_, key, what)| (*key, *what)).collect();
    if keys.is_empty() {
        return None;
    }
    let message = "the test set makes decisions, so its figures no longer show how the model does on new samples";
    let help = "hold samples out for them: `validation_split = 0.1` in `[data]`; then `eval --split test` shows how it does on new ones";
    Some(at(experiment, Diagnostic::warning(Lint::ChosenOnTestSet, message).help(help), &keys))
}

/// Patterns in `match` that no parameter is left for.
fn groups(experiment: &Experiment, vars: &Variables) -> Vec<Diagnostic> {
    let parameters: Vec<&Variable> = vars.iter().map(|(_, v)| v).filter(|v| v.kind == VarKind::Parameter).collect();
    let mut found = Vec::new();
    let groups = &experiment.optimizer.groups;
    for (i, group) in groups.iter().enumerate() {
        let earlier = |name: &str| groups[..i].iter().flat_map(|g| &g.patterns).find(|p| p.matches(name));
        for pattern in &group.patterns {
            let fits: Vec<&&Variable> = parameters.iter().filter(|v| pattern.matches(&v.name)).collect();
            if fits.is_empty() || fits.iter().any(|v| v.trainable && earlier(&v.name).is_none()) {
                continue;
            }
            // Those that are trained belong to others; if none is, that is the reason.
            let taken: Vec<&Pattern> = fits.iter().filter(|v| v.trainable).filter_map(|v| earlier(&v.name)).collect();
            found.push(match taken.first() {
                Some(first) => shadowed(pattern, first),
                None => frozen(experiment, pattern, fits.iter().map(|v| v.name.as_str())),
            });
        }
    }
    found
}

fn shadowed(pattern: &Pattern, by: &Pattern) -> Diagnostic {
    let message = format!("`{}` in `match` has no effect: earlier groups have all its parameters", pattern.text);
    Diagnostic::warning(Lint::ShadowedGroup, message)
        .at(pattern.span, "nothing is left for this group")
        .context(by.span, "the first that fits decides")
        .help("put the group with the narrower pattern first")
}

fn frozen<'a>(experiment: &Experiment, pattern: &Pattern, mut names: impl Iterator<Item = &'a str>) -> Diagnostic {
    let message = format!("`{}` in `match` has no effect: all its parameters are frozen", pattern.text);
    let warning = Diagnostic::warning(Lint::FrozenGroup, message).at(pattern.span, "fits nothing that is trained");
    let by = names.find_map(|name| experiment.model.freeze.iter().find(|f| f.matches(name)));
    match by {
        Some(by) => warning.context(by.span, "frozen here"),
        None => warning,
    }
}
