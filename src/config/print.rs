//! The effective configuration: every default filled in, blocks unrolled, `extends` and `--set` applied.

use std::fmt::Write;

use serde::Serialize;
use serde_json::{Map, Value};

use super::declare::options::Options;
use super::declare::tagged::Tagged;
use super::experiment::{Combine, Experiment, LayerKind, LayerNode};
use super::language::layers::Layer;
use super::language::sections::{
    Checkpoint, Curve, Distributed, Lints, Loading, Log, Lora, Loss, Metrics, ModelKeys, OptimizerRule, ParamGroups,
    Source, Sweep, Train, Warmup,
};
use super::load::Loaded;
use crate::terminal::is_hidden;

/// A configuration that, loaded again, gives an experiment that serialises alike, from whatever folder.
pub fn to_toml(loaded: &Loaded) -> String {
    Printer { loaded, origins: false, out: String::new() }.print()
}

/// The same with the place of every value in a comment after it: `# file:line`, `# --set KEY=VALUE` or
/// `# default`.
pub fn print_with_origins(loaded: &Loaded) -> String {
    Printer { loaded, origins: true, out: String::new() }.print()
}

/// `[data]` with `batch_size = "auto"`, as it was written; `eval_batch_size` goes with it unless it was written too.
fn unresolved(experiment: &Experiment) -> Value {
    let mut data = json(&experiment.data);
    if let Value::Object(data) = &mut data {
        data.insert("batch_size".into(), "auto".into());
        if experiment.span_of("data.eval_batch_size").is_none() {
            data.remove("eval_batch_size");
        }
    }
    data
}

struct Printer<'a> {
    loaded: &'a Loaded,
    origins: bool,
    out: String,
}

impl Printer<'_> {
    fn print(mut self) -> String {
        let loaded = self.loaded;
        let Experiment {
            data,
            model,
            loss,
            optimizer,
            schedule,
            train,
            distributed,
            checkpoint,
            log,
            metrics,
            lint,
            ..
        } = &loaded.experiment;
        let experiment = &loaded.experiment;
        self.line("", "seed", &json(&experiment.seed));
        match &experiment.devices {
            Some(devices) => self.line("", "devices", &json(devices)),
            None => self.line("", "device", &json(&experiment.device)),
        }
        self.line("", "precision", &json(&experiment.precision));
        self.line("", "graph", &json(&experiment.graph));
        if !experiment.heads.is_empty() {
            self.line("", "heads", &json(&experiment.heads));
        }

        let mut keys = vec!["source"];
        keys.extend(Source::fields(data.source.type_name()));
        keys.extend(Loading::KEYS);
        keys.extend(["train_transforms", "val_transforms", "transforms"]);
        match data.auto_batch_size {
            // No device has been asked yet.
            true => self.section("data", &unresolved(experiment), &keys),
            false => self.section("data", data, &keys),
        }

        self.section("loss", loss, &with_type(Loss::fields(loss.type_name())));
        let mut keys = with_type(OptimizerRule::fields(optimizer.rule.type_name()));
        keys.extend(ParamGroups::KEYS);
        self.section("optimizer", optimizer, &keys);
        let mut keys = with_type(Curve::fields(schedule.curve.type_name()));
        keys.extend(Warmup::KEYS);
        self.section("schedule", schedule, &keys);
        self.section("train", train, Train::KEYS);
        self.section("distributed", distributed, Distributed::KEYS);
        self.section("checkpoint", checkpoint, Checkpoint::KEYS);
        self.section("log", log, Log::KEYS);
        self.section("metrics", metrics, Metrics::KEYS);
        self.section("lint", lint, Lints::KEYS);
        if let Some(sweep) = &experiment.sweep {
            self.sweep(sweep);
        }

        // A table within it would take the layers into it. Beside adapters, nothing is frozen by name.
        let shown = |key: &&str| *key != "lora" && (*key != "freeze" || model.lora.is_none());
        let keys: Vec<&str> = ModelKeys::KEYS.iter().copied().filter(shown).collect();
        self.section("model", model, &keys);
        self.out.push_str("layers = [\n");
        self.layers(&model.layers, 1);
        self.out.push_str("]\n");
        if let Some(lora) = &model.lora {
            self.section("model.lora", lora, Lora::KEYS);
        }
        if self.origins && !loaded.left_behind.is_empty() {
            self.out.push_str("\n# Left behind:\n");
            for left in &loaded.left_behind {
                let _ = writeln!(self.out, "# {}", one_line(&left.describe(&loaded.sources)));
            }
        }
        self.out
    }

    /// Its keys have dots, which are no tables here.
    fn sweep(&mut self, sweep: &Sweep) {
        let keys: Vec<&str> = Sweep::KEYS.iter().copied().filter(|key| *key != "parameters").collect();
        self.section("sweep", sweep, &keys);
        let _ = writeln!(self.out, "\n[sweep.parameters]");
        for axis in &sweep.parameters.0 {
            let line = format!("{} = {}", quote(&axis.key), inline(&axis.json()));
            match self.origins {
                true => {
                    let origin = one_line(&self.loaded.sources.place(axis.span));
                    let _ = writeln!(self.out, "{line:<40}  # {origin}");
                }
                false => {
                    let _ = writeln!(self.out, "{line}");
                }
            }
        }
    }

    fn section(&mut self, name: &str, content: &impl Serialize, keys: &[&str]) {
        let Value::Object(content) = json(content) else { return };
        self.table(name, &content, keys);
    }

    fn table(&mut self, name: &str, content: &Map<String, Value>, keys: &[&str]) {
        let _ = writeln!(self.out, "\n[{name}]");
        let present = || keys.iter().filter_map(|key| Some((*key, content.get(*key)?)));
        // An option without effect would be warned of when this is read again.
        let shown = |key: &str| key != "weights_strict" || content.contains_key("weights");
        for (key, value) in present().filter(|(key, value)| !value.is_object() && shown(key)) {
            self.line(name, key, value);
        }
        for (key, value) in present() {
            if let Value::Object(inner) = value {
                let keys: Vec<&str> = inner.keys().map(String::as_str).collect();
                self.table(&format!("{name}.{}", key_of(key)), inner, &keys);
            }
        }
    }

    fn line(&mut self, section: &str, key: &str, value: &Value) {
        if value.is_null() {
            return;
        }
        let path = if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") };
        let line = format!("{} = {}", key_of(key), inline(value));
        match self.origins {
            true => {
                let origin = match self.loaded.experiment.span_of(&path) {
                    Some(span) => one_line(&self.loaded.sources.place(span)),
                    None => "default".into(),
                };
                let _ = writeln!(self.out, "{line:<40}  # {origin}");
            }
            false => {
                let _ = writeln!(self.out, "{line}");
            }
        }
    }

    /// The elements of a list of layers, one a line.
    fn layers(&mut self, nodes: &[LayerNode], depth: usize) {
        for (i, node) in nodes.iter().enumerate() {
            self.out.push_str(&"  ".repeat(depth));
            self.node(node, &i.to_string(), depth);
            self.out.push(',');
            if self.origins && matches!(node.kind, LayerKind::Layer(_)) {
                let origin = self.origin(node);
                let _ = write!(self.out, "  # {origin}");
            }
            self.out.push('\n');
        }
    }

    /// One layer; `default` is the name that it has without being named.
    fn node(&mut self, node: &LayerNode, default: &str, depth: usize) {
        let mut head: Vec<String> = Vec::new();
        // Without a name these have none, not the default: a name that is the index must be written.
        let default = match node.kind {
            LayerKind::Residual { .. } | LayerKind::Branches { .. } => "",
            LayerKind::Layer(_) | LayerKind::Group(_) | LayerKind::Gate(_) => default,
        };
        if node.name != default {
            head.push(format!("name = {}", quote(&node.name)));
        }
        let kind = match &node.kind {
            LayerKind::Layer(layer) => Some(layer.type_name()),
            LayerKind::Group(_) => None,
            LayerKind::Residual { .. } => Some("residual"),
            LayerKind::Gate(_) => Some("gate"),
            LayerKind::Branches { .. } => Some("branches"),
        };
        head.extend(kind.map(|kind| format!("type = {}", quote(kind))));
        if !node.from_names.is_empty() {
            let names: Vec<Value> = node.from_names.iter().map(|name| Value::from(name.as_str())).collect();
            head.push(format!("from = {}", inline(&Value::Array(names))));
        }
        match &node.kind {
            LayerKind::Layer(layer) => {
                if let Value::Object(arguments) = json(layer) {
                    head.extend(
                        Layer::fields(layer.type_name())
                            .iter()
                            .filter_map(|key| Some(format!("{key} = {}", inline(arguments.get(*key)?)))),
                    );
                }
                let _ = write!(self.out, "{{ {} }}", head.join(", "));
            }
            LayerKind::Group(body) | LayerKind::Gate(body) => {
                self.open(&head, "layers", node);
                self.layers(body, depth + 1);
                self.close(depth);
            }
            LayerKind::Residual { body, projection, if_same_shape } => {
                if *if_same_shape {
                    head.push("shortcut = \"if_same_shape\"".into());
                }
                self.open(&head, "layers", node);
                self.layers(body, depth + 1);
                let _ = write!(self.out, "{}]", "  ".repeat(depth));
                if let Some(projection) = projection {
                    self.out.push_str(", projection = ");
                    self.node(projection, "projection", depth);
                }
                self.out.push_str(" }");
            }
            LayerKind::Branches { branches, combine } => {
                let word = match combine {
                    Combine::Add => "add",
                    Combine::Multiply => "multiply",
                    Combine::Concat => "concat",
                };
                head.push(format!("combine = {}", quote(word)));
                self.open(&head, "branches", node);
                self.layers(branches, depth + 1);
                self.close(depth);
            }
        }
    }

    fn open(&mut self, head: &[String], list: &str, node: &LayerNode) {
        self.out.push_str("{ ");
        for part in head {
            let _ = write!(self.out, "{part}, ");
        }
        let _ = write!(self.out, "{list} = [");
        if self.origins {
            let _ = write!(self.out, "  # {}", one_line(&self.loaded.sources.place(node.span)));
        }
        self.out.push('\n');
    }

    fn close(&mut self, depth: usize) {
        let _ = write!(self.out, "{}] }}", "  ".repeat(depth));
    }

    /// Where a layer was written, which arguments come from elsewhere, and which are defaults.
    fn origin(&self, node: &LayerNode) -> String {
        let LayerKind::Layer(layer) = &node.kind else { return String::new() };
        let main = one_line(&self.loaded.sources.place(node.span));
        let mut parts = vec![main.clone()];
        let Value::Object(arguments) = json(layer) else { return main };
        let mut defaults: Vec<&str> = Vec::new();
        for key in Layer::fields(layer.type_name()) {
            match node.fields.get(*key) {
                Some(span) => {
                    let place = one_line(&self.loaded.sources.place(*span));
                    if place != main {
                        parts.push(format!("{key}: {place}"));
                    }
                }
                None if arguments.contains_key(*key) => defaults.push(key),
                None => {}
            }
        }
        if !defaults.is_empty() {
            parts.push(format!("default: {}", defaults.join(", ")));
        }
        parts.join("; ")
    }
}

fn with_type(fields: &[&'static str]) -> Vec<&'static str> {
    std::iter::once("type").chain(fields.iter().copied()).collect()
}

/// The types of an experiment are plain: they all have a JSON form.
fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or(Value::Null)
}

/// A basic string of TOML; JSON's escapes are a part of TOML's. What a terminal would obey or not show is escaped too.
fn quote(text: &str) -> String {
    let mut out = String::new();
    for c in Value::from(text).to_string().chars() {
        match c {
            _ if !is_hidden(c) => out.push(c),
            '\0'..='\u{ffff}' => _ = write!(out, "\\u{:04x}", c as u32),
            _ => _ = write!(out, "\\U{:08x}", c as u32),
        }
    }
    out
}

/// A place for a comment, which ends with its line.
fn one_line(place: &str) -> String {
    place.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A key as TOML has it: in quotes, unless it is of letters, digits, `_` and `-`.
fn key_of(key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if bare { key.to_owned() } else { quote(key) }
}

/// A value as TOML on one line.
pub fn inline(value: &Value) -> String {
    match value {
        Value::Null => "\"\"".into(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => quote(text),
        Value::Array(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Value::Object(entries) => {
            let mut entries: Vec<(&String, &Value)> = entries.iter().collect();
            // What it is, then the rest.
            entries.sort_by_key(|(key, _)| !matches!(key.as_str(), "type" | "match"));
            let entries: Vec<String> =
                entries.iter().map(|(key, value)| format!("{} = {}", key_of(key), inline(value))).collect();
            format!("{{ {} }}", entries.join(", "))
        }
    }
}
