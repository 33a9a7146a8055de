//! Going on with a run whose configuration may have changed.

use crate::config::Experiment;
use serde_json::Value;
use std::collections::BTreeMap;

/// What a change does to the continuation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// None on the numbers.
    Harmless,
    /// The run goes on, but no longer as it would have without the change.
    Differs,
    /// The run cannot go on from where it stopped.
    Breaks,
}

/// A value that is not what it was.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Dotted key.
    pub key: String,
    /// The value in the checkpoint's configuration, `None` if there was none.
    pub old: Option<Value>,
    /// The value now.
    pub new: Option<Value>,
    /// What that does.
    pub effect: Effect,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let show = |v: &Option<Value>| v.as_ref().map_or("not set".to_string(), Value::to_string);
        write!(f, "{}: was {}, is {}", self.key, show(&self.old), show(&self.new))
    }
}

/// Keys (or what they begin with) by effect; the longest that fits decides. Everything else breaks the continuation.
const HARMLESS: &[&str] = &[
    "device",
    "checkpoint",
    "log",
    "data.root",
    "data.download",
    "data.mirrors",
    "data.workers",
    "data.prefetch",
    "data.eval_batch_size",
    "data.limit_val",
    "model.weights",
    "model.weights_strict",
    "train.max_steps",
    "train.eval_every",
    "train.early_stopping",
];
const DIFFERS: &[&str] = &[
    "train.epochs",
    "train.clip_grad_norm",
    "optimizer",
    "schedule",
    "loss.label_smoothing",
    "data.transforms",
    "data.train_transforms",
    "data.path",
    "precision",
];
/// Within the keys above.
const BREAKS: &[&str] = &["optimizer.type", "optimizer.momentum", "optimizer.amsgrad", "optimizer.centered"];

fn effect(key: &str, epochs_matter: bool) -> Effect {
    let under = |list: &[&str]| {
        list.iter()
            .filter(|p| key == **p || key.strip_prefix(**p).is_some_and(|r| r.starts_with('.')))
            .map(|p| p.len())
            .max()
    };
    if key == "train.epochs" && !epochs_matter {
        return Effect::Harmless;
    }
    let longest =
        [(Effect::Harmless, under(HARMLESS)), (Effect::Differs, under(DIFFERS)), (Effect::Breaks, under(BREAKS))];
    longest.into_iter().filter_map(|(e, len)| Some((len?, e))).max().map_or(Effect::Breaks, |(_, e)| e)
}

fn flatten(prefix: &str, value: Value, out: &mut BTreeMap<String, Value>) {
    let join = |k: &str| if prefix.is_empty() { k.to_string() } else { format!("{prefix}.{k}") };
    match value {
        Value::Object(map) if !map.is_empty() => map.into_iter().for_each(|(k, v)| flatten(&join(&k), v, out)),
        Value::Array(list) if !list.is_empty() && !list.iter().all(Value::is_number) => {
            list.into_iter().enumerate().for_each(|(i, v)| flatten(&join(&i.to_string()), v, out));
        }
        leaf => {
            out.insert(prefix.to_string(), leaf);
        }
    }
}

/// All differences between the configuration of a checkpoint and today's.
pub fn changes(old: &Experiment, new: &Experiment) -> Vec<Change> {
    let leaves = |e: &Experiment| {
        let mut out = BTreeMap::new();
        flatten("", serde_json::to_value(e).unwrap_or(Value::Null), &mut out);
        out
    };
    let (old_leaves, new_leaves) = (leaves(old), leaves(new));
    // A cosine that ends with the run depends on its length.
    let epochs_matter = matches!(
        new.schedule.curve,
        crate::config::sections::Curve::Cosine(crate::config::sections::Cosine { epochs: None, .. })
    );
    let mut keys: Vec<&String> = old_leaves.keys().chain(new_leaves.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter()
        .filter_map(|key| {
            let (old, new) = (old_leaves.get(key).cloned(), new_leaves.get(key).cloned());
            (old != new).then(|| Change { key: key.clone(), old, new, effect: effect(key, epochs_matter) })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_go_by_the_longest_key() {
        assert_eq!(effect("train.epochs", false), Effect::Harmless);
        assert_eq!(effect("train.epochs", true), Effect::Differs);
        assert_eq!(effect("optimizer.lr", false), Effect::Differs);
        assert_eq!(effect("optimizer.type", false), Effect::Breaks);
        assert_eq!(effect("optimizer.momentum", false), Effect::Breaks);
        assert_eq!(effect("data.batch_size", false), Effect::Breaks);
        assert_eq!(effect("data.workers", false), Effect::Harmless);
        assert_eq!(effect("model.layers.0.kind.layer.out_channels", false), Effect::Breaks);
        assert_eq!(effect("seed", false), Effect::Breaks);
        assert_eq!(effect("device", true), Effect::Harmless);
    }
}
