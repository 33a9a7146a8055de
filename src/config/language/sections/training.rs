//! `[train]`, `[checkpoint]` and `[log]`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::config::declare::bounds::above;
use crate::config::declare::options::{self, Check, options};
use crate::config::declare::part::Part;
use crate::config::declare::schema::Table;
use crate::config::declare::value::Value;
use crate::config::language::pattern::Pattern;
use crate::config::text::diagnostics::Diagnostic;
use crate::config::text::tree::Node;

use super::length::{EvalEvery, Length};
use super::metrics::Metric;
use super::monitor::Monitor;
use super::recompute::Recompute;

options! {
    /// The `[train]` section.
    #[rules(
        Excludes("epochs", "steps", "the length of the run is given twice"),
        OneOf("epochs", "steps"),
        Excludes("eval_every", "eval_every_steps", "either epochs from one validation to the next, or steps"),
        Excludes("clip_grad_norm", "clip_grad_value", "gradients are clipped by their norm, or each element by itself"),
        Excludes("clip_grad_norm", "clip_grad_adaptive", "gradients are clipped by one norm, or by those of units"),
        Excludes("clip_grad_value", "clip_grad_adaptive", "each element is clipped by itself, or units by their norms"),
    )]
    pub struct Train {
        /// How many times to go through the training samples; either this or `steps`.
        #[option(range = 1.., example = "10", unit = "epochs", resume = Differs)]
        pub epochs: Option<usize>,
        /// How many steps, which are updates of the parameters, to make; either this or `epochs`. The run ends with the last of them, wherever in an
        /// epoch that is, and so do its schedules.
        #[option(range = 1.., example = "2000", unit = "steps", resume = Differs)]
        pub steps: Option<u64>,
        /// Train so many models, which differ in their seeds alone: `seed`, `seed` + 1 and so on. `train` trains one after the other, in folders of their own.
        /// `predict` and `eval` of that folder answer with the mean of the models.
        #[option(range = 2..=100, example = "5", unit = "models")]
        pub seeds: Option<usize>,
        /// Batches to a step, which is made with the gradient of the mean over all that counts in them, as with one large batch. What is
        /// left at an epoch's end makes a smaller group.
        #[option(default = 1, range = 1..=1 << 20, unit = "batches")]
        pub accumulate: usize,
        /// Scale gradients down whose norm, over all parameters together, is larger: `torch.nn.utils.clip_grad_norm_`.
        #[option(range = above(0.0), example = "1.0", resume = Differs)]
        pub clip_grad_norm: Option<f64>,
        /// Bring each element of a gradient to within this distance of 0: `torch.nn.utils.clip_grad_value_`.
        #[option(range = above(0.0), example = "0.5", resume = Differs)]
        pub clip_grad_value: Option<f64>,
        /// Scale the gradient of a unit down where its norm, in proportion to that of the unit's weights, is larger (Brock et al. 2021): by
        /// rows of matrices and output channels of convolutions, and vectors as a whole. `adaptive_clip_grad` in timm.
        #[option(range = above(0.0), example = "0.01", resume = Differs)]
        pub clip_grad_adaptive: Option<f64>,
        /// Parameters that it leaves as they are, as `match` of `[[optimizer.groups]]` names them: the paper leaves the last layer.
        #[option(otherwise = "none", example = r#"["head"]"#, resume = Differs)]
        pub clip_grad_adaptive_except: Option<Vec<Pattern>>,
        /// Compute results of the forward pass again for the backward pass instead of keeping them: less memory for more time, and the same
        /// results. `true`: as much as takes least memory; a list of layers' names, `*` standing for any characters: these, each as a
        /// whole. Known as activation or gradient checkpointing: `torch.utils.checkpoint`.
        #[option(default = Recompute::Nothing, example = r#"["layers.*"]"#, resume = Harmless)]
        pub recompute: Recompute,
        /// Stop when a figure no longer improves.
        #[option(example = r#"{ monitor = "val_loss", patience = 5 }"#, resume = Harmless)]
        pub early_stopping: Option<EarlyStopping>,
        /// Stop after so many steps, wherever in an epoch that is. The schedule does not look at it.
        #[option(range = 1.., unit = "steps", resume = Harmless)]
        pub max_steps: Option<u64>,
        /// Validate after every so many epochs, and at the end of the run.
        #[option(otherwise = "1, without `eval_every_steps`", range = 1.., unit = "epochs", resume = Harmless)]
        pub eval_every: Option<usize>,
        /// Validate after every so many steps, and at the end of the run; either this or `eval_every`. Each validation within an epoch is a line
        /// of `metrics.jsonl` and saves `last`.
        #[option(range = 1.., example = "250", unit = "steps", resume = Harmless)]
        pub eval_every_steps: Option<u64>,
    }

    /// When to stop early.
    pub struct EarlyStopping {
        /// The figure to watch, or one of a head, as `val_sold_loss`.
        #[option(default = Monitor::Model(Metric::ValLoss))]
        pub monitor: Monitor,
        /// How many validations without improvement to wait for.
        #[option(default = 10, range = 1.., unit = "validations")]
        pub patience: usize,
        /// What counts as an improvement must be larger than this.
        #[option(default = 0.0, range = 0.0..)]
        pub min_delta: f64,
    }
}

impl Check for Train {
    fn check(&self, part: &Part) {
        if self.clip_grad_adaptive_except.is_some() && self.clip_grad_adaptive.is_none() {
            part.sink.push(
                Diagnostic::error(format!("`clip_grad_adaptive_except` in {} has nothing to leave out of", part.what))
                    .at(part.span_of("clip_grad_adaptive_except"), "needs `clip_grad_adaptive`"),
            );
        }
    }
}

impl Train {
    /// How long the run is.
    pub fn length(&self) -> Length {
        match (self.steps, self.epochs) {
            (Some(steps), _) => Length::Steps(steps),
            // One of the two is there.
            (None, epochs) => Length::Epochs(epochs.unwrap_or(1) as u64),
        }
    }

    /// When it validates.
    pub fn eval_every(&self) -> EvalEvery {
        match self.eval_every_steps {
            Some(steps) => EvalEvery::Steps(steps),
            None => EvalEvery::Epochs(self.eval_every.unwrap_or(1) as u64),
        }
    }

    /// Whether its course is counted in steps, as one with lines within epochs is.
    pub fn counts_steps(&self) -> bool {
        self.steps.is_some() || self.eval_every_steps.is_some()
    }
}

impl Check for EarlyStopping {}

impl Value for EarlyStopping {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        options::table(part, key, node, &format!("`{key}`"))
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Self>()
    }
}

impl JsonSchema for EarlyStopping {
    fn schema_name() -> Cow<'static, str> {
        "EarlyStopping".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Table::of::<Self>(generator).whole().try_into().unwrap_or_default()
    }
}

options! {
    /// The `[checkpoint]` section.
    pub struct Checkpoint {
        /// The figure by which `best` is chosen, or one of a head, as `val_sold_accuracy`.
        #[option(otherwise = "`val_accuracy` for classes, else `val_loss`", resume = Harmless)]
        pub monitor: Option<Monitor>,
        /// How many of the `step-N` checkpoints to keep, the newest.
        #[option(default = 3, range = 1.., unit = "checkpoints", resume = Harmless)]
        pub keep: usize,
        /// Save a checkpoint, `step-N.safetensors`, after every so many steps, besides those at the end of each epoch.
        #[option(range = 1.., unit = "steps", resume = Harmless)]
        pub every_steps: Option<u64>,
    }

    /// The `[log]` section.
    pub struct Log {
        /// Write every so many steps to `metrics.jsonl`.
        #[option(default = 50, range = 1.., unit = "steps", resume = Harmless)]
        pub every_steps: u64,
        /// Write event files for TensorBoard into the folder `tensorboard` of the run: the numbers of `metrics.jsonl`, the configuration, the
        /// graph, histograms of weights and gradients after every epoch, and pictures of mistakes.
        #[option(default = false, resume = Harmless)]
        pub tensorboard: bool,
        /// With `tensorboard`: so many pictures of each validation's samples whose class was not found, the worst by their cross-entropy.
        #[option(default = 8, range = 0..=100, unit = "samples", resume = Harmless)]
        pub mistakes: usize,
        /// Whenever the run evaluates, a language model goes on with each of these texts: what it writes is shown, stands in `metrics.jsonl` and the
        /// report and, with `tensorboard`, in event files. Of an empty one it begins by itself. Each token takes a run over as many tokens as a sample has.
        #[option(default = Vec::new(), resume = Harmless)]
        pub sample_prompts: Vec<String>,
        /// Tokens of each text that is written so, unless it ends before.
        #[option(default = 100, range = 1..=10_000, unit = "tokens", resume = Harmless)]
        pub sample_tokens: usize,
        /// What logits are divided by before a token is drawn; 0 takes the most probable one. The draws are those of the run's `seed`, and the same each time.
        #[option(default = 1.0, range = 0.0.., resume = Harmless)]
        pub sample_temperature: f64,
        /// One of so many of the most probable tokens is drawn.
        #[option(otherwise = "of all", range = 1.., unit = "tokens", resume = Harmless)]
        pub sample_top_k: Option<usize>,
    }
}

impl Check for Checkpoint {}

impl Checkpoint {
    /// The figure by which `best` is chosen.
    pub fn monitor(&self) -> &Monitor {
        self.monitor.as_ref().unwrap_or(&Monitor::Model(Metric::ValLoss))
    }
}

impl Check for Log {}
