//! `[sweep]`: trials of one configuration with other values.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value as Json, json};
use std::collections::HashMap;

use super::interval::{Interval, MOST_TRIALS, RANGES, interval};
use super::monitor::Monitor;
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;
use crate::config::declare::value::{Value, values};
use crate::config::text::diagnostics::{Diagnostic, Span};
use crate::config::text::spelling::shorten;
use crate::config::text::tree::{Node, Table, Value as Written};

values!(Method, StopRule);

/// Trials, where nothing says how many.
const USUAL_TRIALS: usize = 16;

/// How the values of trials are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// All combinations.
    Grid,
    /// Drawn at random, by the seed and the number of the trial.
    Random,
    /// Drawn likewise; of trials that have had the same number of epochs only the best go on (successive halving).
    Halving,
}

impl Method {
    /// Its name in a configuration.
    pub fn name(self) -> &'static str {
        match self {
            Method::Grid => "grid",
            Method::Random => "random",
            Method::Halving => "halving",
        }
    }
}

/// By what a trial is stopped before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopRule {
    /// Its best value so far is worse than the median of what the trials before it had on average.
    Median,
}

options! {
    /// The `[sweep]` section.
    pub struct Sweep {
        /// How the values of trials are chosen: `"grid"` takes all combinations, `"random"` draws them; so does `"halving"`, which gives all
        /// trials `min_epochs` and only the best more.
        #[option(default = Method::Random, resume = Harmless)]
        pub method: Method,
        /// How many trials there are. Where all values are listed, no combination is drawn twice, and there are not more trials than
        /// combinations.
        #[option(otherwise = "16; of a grid all combinations", range = 1..=10_000usize, unit = "trials", resume = Harmless)]
        pub trials: Option<usize>,
        /// The figure by which trials are compared. Their `best.safetensors` is chosen by it, too.
        #[option(otherwise = "`checkpoint.monitor`", resume = Harmless)]
        pub monitor: Option<Monitor>,
        /// What is different from trial to trial: keys as `--set` takes them, each with a list of values, or with a range:
        /// `{ linear = [a, b] }` or `{ log = [a, b] }`. Between whole numbers lie whole numbers. `steps` makes so many values of a range,
        /// its ends among them.
        #[option(example = r#"{ "optimizer.lr" = { log = [1e-4, 1e-1] } }"#, resume = Harmless)]
        pub parameters: Space,
        /// Of so many trials one goes on, with so many times the epochs; only for `"halving"`.
        #[option(default = 3, range = 2..=1000usize, resume = Harmless)]
        pub reduction: usize,
        /// Epochs that every trial has, whatever comes of them: the first round of `"halving"`; before these `stop` stops nothing.
        #[option(default = 1, range = 1.., unit = "epochs", resume = Harmless)]
        pub min_epochs: usize,
        /// Stop trials that do badly, of a grid or of random ones: `"median"` stops a trial whose best value so far is worse than the median
        /// of what the trials before it had on average until that epoch.
        #[option(resume = Harmless)]
        pub stop: Option<StopRule>,
        /// So many trials come before the first that `stop` may stop.
        #[option(default = 5, range = 1.., unit = "trials", resume = Harmless)]
        pub stop_after: usize,
    }
}

impl Check for Sweep {
    fn check(&self, part: &Part) {
        let unset = |key: &str, why: &str| {
            if let Some(entry) = part.table.entry(key) {
                let error =
                    Diagnostic::error(format!("`{key}` in `[sweep]` does not go with `{}`", self.method.name()));
                part.sink.push(error.at(entry.key_span, why));
            }
        };
        match self.method {
            Method::Grid => {
                unset("trials", "a grid has as many as there are combinations");
                for axis in &self.parameters.0 {
                    if let Choice::Range(range) = &axis.choice
                        && range.steps.is_none()
                    {
                        part.sink.push(
                            Diagnostic::error(format!("a grid takes points, and `{}` is a range", shorten(&axis.key)))
                                .at(axis.span, "has no `steps`")
                                .help("say how many points: `{ log = [1e-4, 1e-1], steps = 4 }`, or list the values"),
                        );
                    }
                    axis.values_twice().into_iter().for_each(|error| part.sink.push(error));
                }
                if self.combinations().is_none() {
                    part.sink.push(
                        Diagnostic::error("this grid is too large")
                            .at(part.span_of("parameters"), format!("has more than {MOST_TRIALS} combinations"))
                            .help("`method = \"random\"` tries some of them"),
                    );
                }
            }
            Method::Random => {}
            Method::Halving => unset("stop", "it stops trials by itself"),
        }
        let place = |key: &str| self.parameters.0.iter().find(|axis| axis.key == key).map(|axis| axis.key_span);
        if let (Method::Halving, Some(span)) = (self.method, place("train.epochs")) {
            part.sink.push(
                Diagnostic::error("`halving` compares trials after the same epochs")
                    .at(span, "would give each trial another length"),
            );
        }
        if let (Some((_, what)), Some(span)) = (self.goes_by_epochs(), place("train.steps")) {
            part.sink.push(
                Diagnostic::error(format!("{what} compares trials after whole epochs"))
                    .at(span, "would tell the length of a trial in steps"),
            );
        }
    }
}

impl Sweep {
    /// How many trials there are.
    pub fn count(&self) -> usize {
        match self.method {
            Method::Grid => self.combinations().unwrap_or(MOST_TRIALS),
            Method::Random | Method::Halving => {
                let asked = self.trials.unwrap_or(USUAL_TRIALS);
                self.listed().map_or(asked, |all| asked.min(all))
            }
        }
    }

    /// How many combinations there are to draw from, if all values can be counted, and they are not too many.
    pub fn listed(&self) -> Option<usize> {
        let all_are = self.parameters.0.iter().all(|axis| axis.points().is_some());
        self.combinations().filter(|_| all_are)
    }

    /// What of it looks at trials epoch by epoch, if anything does: its key, and what it is called.
    pub fn goes_by_epochs(&self) -> Option<(&'static str, &'static str)> {
        match (self.method, self.stop) {
            (Method::Halving, _) => Some(("sweep.method", "`halving`")),
            (_, Some(_)) => Some(("sweep.stop", "`stop`")),
            (_, None) => None,
        }
    }

    /// The combinations of a grid, if they are not too many.
    fn combinations(&self) -> Option<usize> {
        let mut counts = self.parameters.0.iter().map(|axis| axis.points().unwrap_or(1));
        let all = counts.try_fold(1usize, usize::checked_mul)?;
        (all <= MOST_TRIALS).then_some(all)
    }
}

/// The parameters of a sweep, with what each may be.
#[derive(Debug, Clone)]
pub struct Space(pub Vec<Axis>);

/// One key and its values.
#[derive(Debug, Clone)]
pub struct Axis {
    /// The dotted key, as `--set` takes it.
    pub key: String,
    /// Its place.
    pub key_span: Span,
    /// What it may be.
    pub choice: Choice,
    /// The place of that.
    pub span: Span,
}

/// What a key may be.
#[derive(Debug, Clone)]
pub enum Choice {
    /// One of these.
    Values(Vec<Node>),
    /// A number of a range.
    Range(Interval),
}

impl Axis {
    /// Reports values that a list of them has more than once: a grid would train their trials again.
    fn values_twice(&self) -> Vec<Diagnostic> {
        let Choice::Values(nodes) = &self.choice else { return Vec::new() };
        let mut seen = HashMap::new();
        let twice =
            nodes.iter().filter_map(|node| Some((seen.insert(as_json(node).to_string(), node.span)?, node.span)));
        let report = |(first, again)| {
            let error = Diagnostic::error(format!("a grid has a value of `{}` twice", shorten(&self.key)));
            let error = error.at(again, "once more").context(first, "the first");
            error.help("leave one out: its trials would be trained again, to the same end")
        };
        twice.map(report).collect()
    }

    /// How many values there are, if they can be counted.
    pub fn points(&self) -> Option<usize> {
        match &self.choice {
            Choice::Values(all) => Some(all.len()),
            Choice::Range(range) => range.count(),
        }
    }

    /// What it may be, as it is written.
    pub fn json(&self) -> Json {
        match &self.choice {
            Choice::Values(all) => all.iter().map(as_json).collect(),
            Choice::Range(range) => {
                let number = |x: f64| if range.whole { json!(x as i64) } else { json!(x) };
                let mut entry =
                    json!({ (if range.log { "log" } else { "linear" }): [number(range.low), number(range.high)] });
                if let Some(steps) = range.steps {
                    entry["steps"] = json!(steps);
                }
                entry
            }
        }
    }
}

/// A value of a configuration as JSON, which has no number for those that are not finite.
pub fn as_json(node: &Node) -> Json {
    match &node.value {
        Written::String(text) | Written::Datetime(text) => json!(text),
        Written::Integer(number) => json!(number),
        Written::Float(number) => json!(number),
        Written::Boolean(truth) => json!(truth),
        Written::Array(items) => items.iter().map(as_json).collect(),
        Written::Table(table) => table.entries.iter().map(|entry| (entry.key.clone(), as_json(&entry.node))).collect(),
    }
}

/// The first number in a value that is not finite.
fn not_finite(node: &Node) -> Option<&Node> {
    match &node.value {
        Written::Float(number) => (!number.is_finite()).then_some(node),
        Written::Array(items) => items.iter().find_map(not_finite),
        Written::Table(table) => table.entries.iter().find_map(|entry| not_finite(&entry.node)),
        _ => None,
    }
}

impl Serialize for Space {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        self.0.iter().try_for_each(|axis| map.serialize_entry(&axis.key, &axis.json()))?;
        map.end()
    }
}

impl PartialEq for Space {
    fn eq(&self, other: &Self) -> bool {
        let axes = |space: &Self| space.0.iter().map(|axis| (axis.key.clone(), axis.json())).collect::<Vec<_>>();
        axes(self) == axes(other)
    }
}

impl Value for Space {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        let Some(table) = node.as_table() else {
            part.wrong_value(key, node, "expected a table of keys");
            return None;
        };
        let before = part.sink.len();
        let mut axes = Vec::new();
        collect("", table, part, &mut axes);
        if axes.is_empty() && part.sink.len() == before {
            part.sink.push(Diagnostic::error("nothing is different from trial to trial").at(node.span, "has no keys"));
        }
        (part.sink.len() == before).then_some(Space(axes))
    }

    fn schema(_: &mut SchemaGenerator) -> Schema {
        let ends = json!({ "type": "array", "items": { "type": "number" }, "minItems": 2, "maxItems": 2 });
        let steps = json!({ "type": "integer", "minimum": 2, "maximum": MOST_TRIALS });
        let range = |word: &str| {
            json!({
                "type": "object",
                "properties": { word: ends, "steps": steps },
                "required": [word],
                "additionalProperties": false,
            })
        };
        // A key with dots may be written without quotes, and is then tables in tables.
        json_schema!({
            "type": "object",
            "additionalProperties": {
                "anyOf": [
                    { "type": "array", "minItems": 1 },
                    range(RANGES[0]),
                    range(RANGES[1]),
                    { "type": "object", "not": { "anyOf": [{ "required": ["linear"] }, { "required": ["log"] }] } },
                ],
            },
        })
    }
}

/// Adds what a table says of the keys below `path`.
fn collect(path: &str, table: &Table, part: &Part, axes: &mut Vec<Axis>) {
    for entry in &table.entries {
        let key = if path.is_empty() { entry.key.clone() } else { format!("{path}.{}", entry.key) };
        let wrong = |span: Span, reason: String| {
            part.sink
                .push(Diagnostic::error(format!("wrong values for `{}` in `[sweep]`", shorten(&key))).at(span, reason));
        };
        if path.is_empty() && (key == "sweep" || key.starts_with("sweep.")) {
            wrong(entry.key_span, "is a key of the sweep itself, and not of a trial".into());
            continue;
        }
        let choice = match &entry.node.value {
            Written::Array(items) if items.is_empty() => {
                wrong(entry.node.span, "the list is empty".into());
                continue;
            }
            Written::Array(items) => {
                // Files of trials are JSON, which has no such numbers.
                if let Some(item) = items.iter().find_map(not_finite) {
                    wrong(item.span, "must be a finite number".into());
                    continue;
                }
                Choice::Values(items.clone())
            }
            Written::Table(inner) if RANGES.iter().any(|word| inner.get(word).is_some()) => {
                match interval(inner, &wrong) {
                    Some(range) => Choice::Range(range),
                    None => continue,
                }
            }
            Written::Table(inner) if inner.entries.is_empty() => {
                wrong(entry.node.span, "expected `linear` or `log`".into());
                continue;
            }
            // A key that is written without quotes is a table in a table.
            Written::Table(inner) => {
                collect(&key, inner, part, axes);
                continue;
            }
            _ => {
                let found = entry.node.describe();
                wrong(
                    entry.node.span,
                    format!("expected a list of values, or a range `{{ linear = [a, b] }}`, found {found}"),
                );
                continue;
            }
        };
        let axis = Axis { key, key_span: entry.key_span, choice, span: entry.node.span };
        // What is said on the command line comes last, and in the place of the file's.
        match axes.iter_mut().find(|known| known.key == axis.key) {
            Some(known) => *known = axis,
            None => axes.push(axis),
        }
    }
}
