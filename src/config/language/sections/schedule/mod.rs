//! `[schedule]`: how the learning rate changes.

mod curves;
mod rules;

pub use curves::*;

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use crate::config::declare::options::{Check, options};
use crate::config::declare::part::{Part, known_word};
use crate::config::declare::tagged::{Tagged, tagged};
use crate::config::declare::value::Value;
use crate::config::language::sections::length::Length;
use crate::config::language::sections::monitor::Monitor;
use crate::config::text::diagnostics::Diagnostic;
use crate::config::text::tree::{Node, Table};

/// The `[schedule]` section. The learning rate of each parameter group is its own times a factor.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Schedule {
    /// The factor after warm-up.
    #[serde(flatten)]
    pub curve: Curve,
    /// How it starts.
    #[serde(flatten)]
    pub warmup: Warmup,
}

tagged! {
    /// The course of the learning rate.
    Curve by "type", resume Differs:
    family Course(Course),
    "plateau" => Plateau(Plateau),
    "sequential" => Sequential(Sequential),
}

tagged! {
    /// A course of the learning rate that depends on the position in the run alone.
    Course by "type", resume Differs:
    "constant" => Constant(Constant),
    "step" => Step(Step),
    "multi_step" => MultiStep(MultiStep),
    "exponential" => Exponential(Exponential),
    "linear" => Linear(Linear),
    "polynomial" => Polynomial(Polynomial),
    "cosine" => Cosine(Cosine),
    "cosine_restarts" => CosineRestarts(CosineRestarts),
    "one_cycle" => OneCycle(OneCycle),
}

impl Value for Course {
    fn read(part: &Part, _: &str, node: &Node) -> Option<Self> {
        let what = "a schedule in `schedules`";
        let nothing = Table::default();
        let (table, word) =
            match (node.as_table(), node.as_str()) {
                (Some(table), _) => {
                    let part = Part { table, span: node.span, what, bad: &[], sink: part.sink };
                    (table, part.word::<Self>(None)?)
                }
                (None, Some(_)) => (&nothing, known_word(node, Self::TAG, what, Self::TYPES, part.sink)?),
                (None, None) => {
                    part.sink.push(Diagnostic::error("wrong value in `schedules`").at(
                        node.span,
                        format!("expected a table or the name of a schedule, found {}", node.describe()),
                    ));
                    return None;
                }
            };
        let what = format!("schedule `{word}`");
        let part = Part { table, span: node.span, what: &what, bad: &[], sink: part.sink };
        part.known_keys(&[&[Self::TAG], Self::fields(word)]);
        <Self as Tagged>::read(word, &part)
    }

    fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "$ref": "#/$defs/Course" })
    }
}

options! {
    /// A rise at the start of the run: at step `i` of `w` the rate is `s + (1 − s) · i / w` of the schedule's, `s` being
    /// `warmup_start_factor`. `torch.optim.lr_scheduler.LinearLR`.
    #[rules(Excludes("warmup_epochs", "warmup_steps", "the same length is given twice"))]
    #[schema(
        "dependentSchemas": {
            "warmup_start_factor": { "anyOf": [{ "required": ["warmup_epochs"] }, { "required": ["warmup_steps"] }] },
        },
    )]
    pub struct Warmup {
        /// Length of the warm-up in epochs.
        #[option(unit = "epochs", resume = Differs)]
        pub warmup_epochs: Option<usize>,
        /// Length of the warm-up in steps; either this or `warmup_epochs`.
        #[option(unit = "steps", resume = Differs)]
        pub warmup_steps: Option<usize>,
        /// Factor of the first step.
        #[option(otherwise = "1 / steps of the warm-up", range = 0.0..=1.0, resume = Differs)]
        pub warmup_start_factor: Option<f64>,
    }
}

impl Check for Warmup {
    fn check(&self, part: &Part) {
        if self.warmup_start_factor.is_some() && self.warmup_epochs.is_none() && self.warmup_steps.is_none() {
            part.sink.push(
                Diagnostic::error(format!("`warmup_start_factor` in {} has no warm-up to start", part.what))
                    .at(part.span_of("warmup_start_factor"), "needs `warmup_epochs` or `warmup_steps`"),
            );
        }
    }
}

impl Schedule {
    /// The figure that it watches, if it does.
    pub fn monitor(&self) -> Option<&Monitor> {
        match &self.curve {
            Curve::Plateau(plateau) => Some(&plateau.monitor),
            Curve::Course(_) | Curve::Sequential(_) => None,
        }
    }
}

impl Course {
    /// Whether it depends on how long the run is.
    fn takes_whole_run(&self) -> bool {
        match self {
            Course::Constant(_)
            | Course::Step(_)
            | Course::MultiStep(_)
            | Course::Exponential(_)
            | Course::CosineRestarts(_) => false,
            Course::Linear(linear) => linear.total_iters.is_none(),
            Course::Polynomial(polynomial) => polynomial.total_iters.is_none(),
            Course::Cosine(cosine) => cosine.epochs.is_none(),
            Course::OneCycle(cycle) => cycle.total_steps.is_none(),
        }
    }
}

impl Curve {
    /// Whether it depends on how long the run is.
    pub fn takes_whole_run(&self) -> bool {
        match self {
            Curve::Course(course) => course.takes_whole_run(),
            Curve::Plateau(_) => false,
            // All but the last end where the next one begins.
            Curve::Sequential(sequential) => sequential.schedules.last().is_some_and(Course::takes_whole_run),
        }
    }

    /// Where the cosine has fallen, in a run of that length; `None` if it is no cosine.
    pub fn end(&self, run: Length) -> Option<Length> {
        match self {
            Curve::Course(Course::Cosine(cosine)) => {
                Some(cosine.epochs.map_or(run, |epochs| Length::Epochs(epochs as u64)))
            }
            _ => None,
        }
    }
}
