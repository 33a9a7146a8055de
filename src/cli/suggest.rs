//! Arguments that may be any text, with words that shells complete them to.

use crate::data::fetch::Known;
use crate::passes::FORWARD;
use crate::train::setup::programs::pass_names;
use clap::Arg;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use std::ffi::OsStr;

/// What stands in scripts of `clap` for values of keys and for keys: they are many, and each script has them once.
pub const SETTINGS: &str = "runner_settings";
pub const KEYS: &str = "runner_keys";

/// Accepts any text, and offers completions to shells. Whether the text is valid is for its user to check.
#[derive(Debug, Clone)]
pub struct Suggest(Vec<&'static str>);

impl Suggest {
    fn of(words: impl IntoIterator<Item = &'static str>) -> Self {
        Suggest(words.into_iter().collect())
    }

    /// Devices. There may be more GPUs.
    pub fn devices() -> Self {
        Suggest::of(["auto", "cpu", "cuda", "cuda:0", "cuda:1", "cuda:2", "cuda:3"])
    }

    /// Sets that can be downloaded.
    pub fn sets() -> Self {
        Suggest::of(Known::ALL.map(Known::name))
    }

    /// Stages of the graph: as it is built, and after each pass.
    pub fn stages() -> Self {
        Suggest::of(std::iter::once(FORWARD).chain(pass_names(false)))
    }

    /// What runs are often sorted by.
    pub fn run_keys() -> Self {
        Suggest::of([
            "run",
            "best",
            "val_loss",
            "val_accuracy",
            "best.val_loss",
            "train_loss",
            "state",
            "epochs",
            "step",
            "seconds",
            "size",
            "modified",
            "optimizer.lr",
        ])
    }

    /// Values of keys of a configuration.
    pub fn settings() -> Self {
        Suggest::of([SETTINGS])
    }

    /// Keys and sections of a configuration.
    pub fn keys() -> Self {
        Suggest::of([KEYS])
    }
}

impl TypedValueParser for Suggest {
    type Value = String;

    fn parse_ref(&self, cmd: &clap::Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(cmd, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(|word| PossibleValue::new(*word))))
    }
}
