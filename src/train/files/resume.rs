//! Going on with a run whose configuration may have changed.

use crate::config::Experiment;
pub use crate::config::declare::declaration::Effect;
use crate::config::language::keys;
use crate::config::load::paths::shown;
use serde_json::{Map, Value};
use std::path::Path;

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
        let show = |v: &Option<Value>| match v {
            None => "not set".to_string(),
            Some(Value::String(path)) if keys::paths().contains(&self.key) => {
                Value::from(shown(Path::new(path)).to_string_lossy()).to_string()
            }
            Some(v) => v.to_string(),
        };
        write!(f, "{}: was {}, is {}", self.key, show(&self.old), show(&self.new))
    }
}

/// Keys that say when is evaluated, and on what. Where the schedule watches a figure, the learning rate follows from them.
const EVALUATION: [&str; 4] = ["train.eval_every", "train.eval_every_steps", "data.limit_val", "data.eval_batch_size"];

/// What a change does, as the option's declaration says, and as the schedule makes of it.
fn effect(key: &str, length_matters: bool, watches: bool) -> Effect {
    match key {
        "train.epochs" | "train.steps" if !length_matters => Effect::Harmless,
        _ if watches && EVALUATION.contains(&key) => Effect::Differs,
        _ => keys::effect(key),
    }
}

/// What a value of the serialised model is called if it is a layer or a container: its type.
fn layer_type(value: &Value) -> Option<&str> {
    let (word, inside) = value.get("kind")?.as_object()?.iter().next()?;
    Some(if word == "layer" { inside.get("type")?.as_str()? } else { word })
}

/// The arguments of a layer and the layers inside of a container, under the keys that they have in a configuration.
fn layer_keys(value: &Value) -> Map<String, Value> {
    let mut keys = Map::new();
    for key in ["name", "from"] {
        keys.extend(value.get(key).map(|v| (key.to_string(), v.clone())));
    }
    for (word, inside) in value.get("kind").and_then(Value::as_object).into_iter().flatten() {
        match inside {
            Value::Array(layers) => {
                keys.insert("layers".into(), layers.clone().into());
            }
            Value::Object(arguments) => keys.extend(arguments.iter().map(|(key, v)| {
                let key = if word == "residual" && key == "body" { "layers" } else { key };
                (key.to_string(), v.clone())
            })),
            other => {
                keys.insert(word.clone(), other.clone());
            }
        }
    }
    keys
}

/// Adds the differences between two values, either of which may be missing, at `key`.
fn differences(key: &str, old: Option<&Value>, new: Option<&Value>, out: &mut Vec<(String, [Option<Value>; 2])>) {
    if old == new {
        return;
    }
    let join = |k: &str| if key.is_empty() { k.to_string() } else { format!("{key}.{k}") };
    let types = [old, new].map(|v| v.and_then(layer_type));
    if types.iter().any(Option::is_some) {
        // Where a layer is another one, its arguments do not matter.
        if types[0] != types[1] {
            out.push((key.to_string(), types.map(|t| t.map(Value::from))));
            return;
        }
        let keys = [old, new].map(|v| v.map(layer_keys).map(Value::Object));
        return differences(key, keys[0].as_ref(), keys[1].as_ref(), out);
    }
    let nested = |v: &Value| match v {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty() && !list.iter().all(Value::is_number),
        _ => false,
    };
    if ![old, new].iter().flatten().any(|v| nested(v)) {
        out.push((key.to_string(), [old.cloned(), new.cloned()]));
        return;
    }
    for value in [old, new] {
        // What is no table and no list on one side is a difference of its own.
        if value.is_some_and(|v| !nested(v)) {
            out.push((key.to_string(), if value == old { [old.cloned(), None] } else { [None, new.cloned()] }));
        }
    }
    let mut keys: Vec<String> = Vec::new();
    let mut length = 0;
    for value in [old, new].into_iter().flatten() {
        match value {
            Value::Object(map) => keys.extend(map.keys().cloned()),
            Value::Array(list) => length = length.max(list.len()),
            _ => {}
        }
    }
    keys.sort_unstable();
    keys.dedup();
    keys.extend((0..length).map(|i| i.to_string()));
    for k in keys {
        let at = |v: Option<&Value>| match v? {
            Value::Object(map) => map.get(&k).cloned(),
            Value::Array(list) if nested(v?) => k.parse::<usize>().ok().and_then(|i| list.get(i)).cloned(),
            _ => None,
        };
        differences(&join(&k), at(old).as_ref(), at(new).as_ref(), out);
    }
}

/// All differences between the configuration of a checkpoint and today's.
pub fn changes(old: &Experiment, new: &Experiment) -> Vec<Change> {
    // A schedule that ends with the run depends on its length.
    let length_matters = new.schedule.curve.takes_whole_run();
    let watches = new.schedule.monitor().is_some();
    let [old, new] = [old, new].map(|e| serde_json::to_value(e).unwrap_or(Value::Null));
    let mut found = Vec::new();
    differences("", Some(&old), Some(&new), &mut found);
    found
        .into_iter()
        .map(|(key, [old, new])| Change { effect: effect(&key, length_matters, watches), key, old, new })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_are_those_that_options_declare() {
        assert_eq!(effect("train.epochs", false, false), Effect::Harmless);
        assert_eq!(effect("train.epochs", true, false), Effect::Differs);
        assert_eq!(effect("train.steps", false, false), Effect::Harmless);
        assert_eq!(effect("train.steps", true, false), Effect::Differs);
        assert_eq!(effect("train.eval_every_steps", true, false), Effect::Harmless);
        assert_eq!(effect("train.eval_every_steps", true, true), Effect::Differs);
        assert_eq!(effect("data.limit_val", true, true), Effect::Differs);
        assert_eq!(effect("optimizer.lr", false, false), Effect::Differs);
        assert_eq!(effect("optimizer.type", false, false), Effect::Breaks);
        assert_eq!(effect("optimizer.momentum", false, false), Effect::Breaks);
        assert_eq!(effect("data.batch_size", false, false), Effect::Breaks);
        assert_eq!(effect("data.workers", false, false), Effect::Harmless);
        assert_eq!(effect("model.layers.0.out_channels", false, false), Effect::Breaks);
        assert_eq!(effect("seed", false, false), Effect::Breaks);
        assert_eq!(effect("device", true, false), Effect::Harmless);
    }

    /// The changes between two models, as they are shown.
    fn shown(old: &str, new: &str) -> Vec<String> {
        let load = |layers: &str| {
            let text = format!(
                "[data]\nsource = \"digits\"\n[model]\nlayers = [{layers}]\n[loss]\ntype = \"cross_entropy\"\n[optimizer]\n\
                 type = \"adam\"\n[train]\nepochs = 1\n"
            );
            crate::config::load_str("c.toml", &text, &[]).unwrap_or_else(|failure| panic!("{failure}")).experiment
        };
        let changes = changes(&load(old), &load(new));
        assert!(changes.iter().all(|c| c.effect == Effect::Breaks), "{changes:?}");
        changes.iter().map(Change::to_string).collect()
    }

    #[test]
    fn layers_are_shown_as_in_a_configuration() {
        let linear = "{ type = \"linear\", out_features = 10 }";
        assert_eq!(shown("\"flatten\", \"relu\"", "\"flatten\", \"relu\""), [""; 0]);
        assert_eq!(
            shown(&format!("\"flatten\", {linear}, \"relu\""), &format!("\"flatten\", \"relu\", {linear}")),
            ["model.layers.1: was \"linear\", is \"relu\"", "model.layers.2: was \"relu\", is \"linear\""]
        );
        assert_eq!(
            shown("\"flatten\"", &format!("\"flatten\", {linear}")),
            ["model.layers.1: was not set, is \"linear\""]
        );
        let nested = |n: usize| {
            format!(
                "{{ name = \"a\", layers = [\"flatten\", {{ type = \"residual\", layers = [{{ type = \"linear\", out_features = {n} }}] }}] }}"
            )
        };
        assert_eq!(shown(&nested(64), &nested(65)), ["model.layers.0.layers.1.layers.0.out_features: was 64, is 65"]);
        assert_eq!(
            shown(&nested(64), &nested(64).replace("\"a\"", "\"b\"")),
            ["model.layers.0.name: was \"a\", is \"b\""]
        );
        let branches = |combine: &str| {
            format!("{{ type = \"branches\", combine = \"{combine}\", branches = [\"relu\", \"tanh\"] }}")
        };
        assert_eq!(
            shown(&branches("add"), &branches("multiply")),
            ["model.layers.0.combine: was \"add\", is \"multiply\""]
        );
    }
}
