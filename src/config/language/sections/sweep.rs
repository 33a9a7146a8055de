//! `[sweep]`: trials of one configuration with other values.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value as Json, json};

use super::monitor::Monitor;
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;
use crate::config::declare::value::{Value, values};
use crate::config::text::diagnostics::{Diagnostic, Span};
use crate::config::text::spelling::{list, shorten};
use crate::config::text::tree::{Node, Table, Value as Written};

values!(Method, StopRule);

/// Combinations of a grid, at most.
const MOST_TRIALS: usize = 10_000;
/// Trials, where nothing says how many.
const USUAL_TRIALS: usize = 16;
/// What a range may be.
const RANGES: [&str; 2] = ["linear", "log"];

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

/// Numbers from one to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The logarithm is even, not the number.
    pub log: bool,
    /// The least.
    pub low: f64,
    /// The largest.
    pub high: f64,
    /// Only whole numbers.
    pub whole: bool,
    /// Only so many, the ends among them.
    pub steps: Option<usize>,
}

impl Axis {
    /// How many values there are, if they can be counted.
    pub fn points(&self) -> Option<usize> {
        match &self.choice {
            Choice::Values(all) => Some(all.len()),
            Choice::Range(range) => range.steps,
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

/// A value of a configuration as JSON.
pub fn as_json(node: &Node) -> Json {
    Json::deserialize(node).unwrap_or(Json::Null)
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
        let choice = match &entry.node.value {
            Written::Array(items) if items.is_empty() => {
                wrong(entry.node.span, "the list is empty".into());
                continue;
            }
            Written::Array(items) => {
                // Files of trials are JSON, which has no such numbers.
                let is_none = |item: &&Node| matches!(item.value, Written::Float(number) if !number.is_finite());
                if let Some(item) = items.iter().find(is_none) {
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

/// The range that a table says; `wrong` reports what is wrong with it, and where.
fn interval(table: &Table, wrong: &dyn Fn(Span, String)) -> Option<Interval> {
    let mut sound = true;
    let mut refuse = |span: Span, reason: String| {
        wrong(span, reason);
        sound = false;
    };
    for entry in &table.entries {
        if entry.key != "steps" && !RANGES.contains(&entry.key.as_str()) {
            let keys = list(RANGES.into_iter().chain(["steps"]), "and");
            refuse(entry.key_span, format!("a range has the keys {keys}"));
        }
    }
    let named: Vec<_> = table.entries.iter().filter(|entry| RANGES.contains(&entry.key.as_str())).collect();
    if let [_, second, ..] = named[..] {
        refuse(second.key_span, "a range is linear or logarithmic, not both".into());
    }
    let range = named.first()?;
    let ends = range.node.as_array().unwrap_or_default();
    let numbers: Vec<f64> = ends.iter().filter_map(Node::as_number).collect();
    let (&[low, high], 2) = (&numbers[..], ends.len()) else {
        refuse(range.node.span, format!("expected a list of two numbers, found {}", range.node.describe()));
        return None;
    };
    let log = range.key == "log";
    if !low.is_finite() || !high.is_finite() {
        refuse(range.node.span, "both ends must be finite".into());
    } else if low >= high {
        refuse(range.node.span, "the first number must be below the second".into());
    } else if log && low <= 0.0 {
        refuse(ends[0].span, "must be above 0: a logarithm has no other".into());
    }
    let whole = ends.iter().all(|end| matches!(end.value, Written::Integer(_)));
    if whole && high - low >= f64::from(u32::MAX) {
        refuse(range.node.span, "there are too many whole numbers between".into());
    }
    let steps = match table.get("steps").map(|node| (node.span, &node.value)) {
        None => None,
        Some((_, Written::Integer(n))) if (2..=MOST_TRIALS as i64).contains(n) => Some(*n as usize),
        Some((span, _)) => {
            refuse(span, format!("`steps` must be a whole number from 2 to {MOST_TRIALS}"));
            None
        }
    };
    sound.then_some(Interval { log, low, high, whole, steps })
}
