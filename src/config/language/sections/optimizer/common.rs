//! What every optimizer has besides the options of its rule.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::config::declare::bounds::above;
use crate::config::declare::options::{self, Check, options};
use crate::config::declare::part::Part;
use crate::config::declare::schema::Table;
use crate::config::declare::value::{Value, values};
use crate::config::language::pattern::Pattern;
use crate::config::language::values::Anneal;
use crate::config::text::diagnostics::Diagnostic;
use crate::config::text::tree::Node;

options! {
    /// The keys of `[optimizer]` that every rule has.
    #[rules(Excludes("ema", "swa", "there is one average of the weights"))]
    pub struct ParamGroups {
        /// Parameters that are treated differently; a parameter belongs to the first group that matches it.
        #[option(default = Vec::new(), resume = Differs)]
        pub groups: Vec<ParamGroup>,
        /// Factor of the learning rate from each layer to the one below it: the last one that has parameters has the full rate, the one before it this
        /// factor of it, the next its square. Each block of a stack is a layer. A group's own `lr` is taken as it is. `check` shows the rates.
        #[option(range = above(0.0).to(1.0), resume = Differs)]
        pub layer_decay: Option<f64>,
        /// Parameters without weight decay: `"norm"`, those of normalisation layers, `"bias"`, all whose name ends with `bias`. A group's own
        /// `weight_decay` is taken as it is.
        #[option(default = Vec::new(), example = r#"["norm", "bias"]"#, resume = Differs)]
        pub no_decay: Vec<NoDecay>,
        /// Keep an exponential moving average of the weights, which is what is validated, and what `eval`, `predict` and `export` take
        /// from a checkpoint.
        #[option(example = "{ decay = 0.999 }")]
        pub ema: Option<Ema>,
        /// Stochastic weight averaging (Izmailov et al. 2018): keep the mean of the weights at the ends of the last epochs, which is what is
        /// validated from then on, and what `eval`, `predict` and `export` take from a checkpoint.
        #[option(example = "{ start = 75, lr = 0.05 }")]
        pub swa: Option<Swa>,
        /// The number of samples in an update that `lr`, also that of groups, is for. With another one, `data.batch_size` times
        /// `train.accumulate`, the rates are scaled as `lr_base_scale` says (Goyal et al. 2017).
        #[option(range = 1.., unit = "samples", example = "256", resume = Differs)]
        pub lr_base_size: Option<usize>,
        /// How the rates are scaled: in proportion to the samples, or to their square root. Needs `lr_base_size`.
        #[option(otherwise = "`\"linear\"`", resume = Differs)]
        pub lr_base_scale: Option<LrScale>,
    }

    /// An exponential moving average of parameters, and of the statistics of batch norm.
    pub struct Ema {
        /// Share of the average that an update keeps; the rest is the new value.
        #[option(default = 0.999, range = 0.0..1.0)]
        pub decay: f64,
        /// Keep less at first: after `n` updates at most `(1 + n) / (10 + n)`, so that the average soon forgets where it began.
        #[option(default = true)]
        pub warmup: bool,
    }

    /// The mean of the weights at the ends of epochs. `torch.optim.swa_utils`.
    #[schema("dependentRequired": { "anneal_epochs": ["lr"], "anneal_strategy": ["lr"] })]
    pub struct Swa {
        /// Epochs before: the weights at the end of the next one are the first of the mean.
        #[option(range = 0.., unit = "epochs", example = "75")]
        pub start: usize,
        /// Learning rate from then on, in place of the schedule's.
        #[option(otherwise = "the schedule's", range = 0.0..)]
        pub lr: Option<f64>,
        /// Epochs over which the rate goes there from where the schedule left it, once an epoch.
        #[option(otherwise = "10", range = 0.., unit = "epochs")]
        pub anneal_epochs: Option<usize>,
        /// How it goes there.
        #[option(otherwise = "`\"cos\"`")]
        pub anneal_strategy: Option<Anneal>,
    }

    /// What some parameters have of their own.
    #[schema("anyOf": [{ "required": ["lr"] }, { "required": ["weight_decay"] }])]
    pub struct ParamGroup {
        /// Names of parameters, `*` standing for any characters, or of layers, for all of their parameters.
        #[option(length = 1.., example = r#"["*.bias"]"#)]
        pub patterns as "match": Vec<Pattern>,
        /// Learning rate.
        #[option(otherwise = "the section's", range = 0.0..)]
        pub lr: Option<f64>,
        /// Weight decay.
        #[option(otherwise = "the section's", range = 0.0..)]
        pub weight_decay: Option<f64>,
    }
}

impl Check for ParamGroups {
    fn check(&self, part: &Part) {
        if self.lr_base_scale.is_some() && self.lr_base_size.is_none() {
            part.sink.push(
                Diagnostic::error(format!("`lr_base_scale` in {} has nothing to scale by", part.what))
                    .at(part.span_of("lr_base_scale"), "needs `lr_base_size`"),
            );
        }
    }
}

impl Check for Ema {}

impl Ema {
    /// The share of the new value in the average after `update`, counted from 1.
    pub fn share(&self, update: u64) -> f64 {
        let n = update as f64;
        let decay = if self.warmup { self.decay.min((1.0 + n) / (10.0 + n)) } else { self.decay };
        1.0 - decay
    }
}

impl Check for Swa {
    fn check(&self, part: &Part) {
        let written =
            [("anneal_epochs", self.anneal_epochs.is_some()), ("anneal_strategy", self.anneal_strategy.is_some())];
        for (key, _) in written.into_iter().filter(|(_, is)| *is && self.lr.is_none()) {
            part.sink.push(
                Diagnostic::error(format!("`{key}` in {} has no learning rate to go to", part.what))
                    .at(part.span_of(key), "needs `lr`"),
            );
        }
    }
}

impl Swa {
    /// The learning rate that it goes to, in how many epochs, and how.
    pub fn anneal(&self) -> Option<(f64, usize, Anneal)> {
        let strategy = self.anneal_strategy.unwrap_or(Anneal::Cos);
        self.lr.map(|lr| (lr, self.anneal_epochs.unwrap_or(10), strategy))
    }
}

impl Value for Swa {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        options::table(part, key, node, &format!("`{key}`"))
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Self>()
    }
}

impl JsonSchema for Swa {
    fn schema_name() -> Cow<'static, str> {
        "Swa".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Table::of::<Self>(generator).whole().try_into().unwrap_or_default()
    }
}

impl Value for Ema {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        options::table(part, key, node, &format!("`{key}`"))
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Self>()
    }
}

impl JsonSchema for Ema {
    fn schema_name() -> Cow<'static, str> {
        "Ema".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Table::of::<Self>(generator).whole().try_into().unwrap_or_default()
    }
}

values!(NoDecay, LrScale);

/// How learning rates change with the number of samples in an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LrScale {
    /// In proportion.
    Linear,
    /// In proportion to its square root.
    Sqrt,
}

/// Parameters that are often left without weight decay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NoDecay {
    /// Those of normalisation layers.
    Norm,
    /// Those whose name ends with `bias`.
    Bias,
}

impl Check for ParamGroup {
    fn check(&self, part: &Part) {
        if self.lr.is_none() && self.weight_decay.is_none() {
            part.sink.push(
                Diagnostic::error(format!("{} changes nothing", part.what)).at(part.span, "set `lr` or `weight_decay`"),
            );
        }
    }
}

impl Value for ParamGroup {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        options::table(part, key, node, "a group of parameters")
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        Table::of::<Self>(generator).whole().try_into().unwrap_or_default()
    }
}
