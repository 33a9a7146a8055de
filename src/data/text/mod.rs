//! Text: one long row of tokens, of which a model learns to tell each from those before it.
//!
//! `tokenizer` makes tokens of text, `tokens` keeps them in memory or maps a file of them, and `windows` cuts samples out of them. The
//! tokenizer travels in the checkpoint ([`TextCodec`]).

mod load;
mod options;
mod tokenizer;
mod tokens;
mod windows;

pub use options::{Choice, Content, TextOptions};
pub use tokenizer::{Decoder, Tokenizer};
pub use windows::fields;

use super::dataset::Dataset;
use super::field::DataSpec;
use super::found::Found;
use super::progress::Event;
use super::{Describes, Footprint};
use anyhow::{Context, Result, ensure};
use load::{Loaded, load};
use serde_json::{Value, json};
use std::sync::Arc;

static FOUND: Found<TextOptions, Loaded> = Found::new();

impl Describes for &TextOptions {
    fn describe(&self) -> Result<DataSpec> {
        FOUND.look(self, || load(self), |loaded| loaded.spec.clone())
    }

    fn open(&self, _: &mut dyn FnMut(Event)) -> Result<Dataset> {
        let Loaded { spec, train, val, told, .. } = FOUND.look(self, || load(self), Loaded::clone)?;
        Ok(Dataset { told, ..Dataset::new(spec, train, val) })
    }

    fn footprint(&self) -> Footprint {
        let held = FOUND.look(self, || load(self), |loaded| loaded.held).unwrap_or_default();
        Footprint { held, ..Footprint::default() }
    }
}

/// What a training knows of its text: all that is needed to make tokens of another, and text of tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct TextCodec {
    /// How text becomes tokens, if that is known.
    pub tokenizer: Option<Tokenizer>,
    /// How many tokens there are.
    pub vocabulary: usize,
    /// Tokens of a sample of training.
    pub context: usize,
}

impl TextCodec {
    /// That of a data set, if it is a text.
    ///
    /// # Errors
    /// It comes from a checkpoint, and is broken.
    pub fn of(spec: &DataSpec) -> Result<Option<TextCodec>> {
        match &spec.fitted {
            Some(written) if written.get("context").is_some() => TextCodec::read(written).map(Some),
            _ => Ok(None),
        }
    }

    /// That of a checkpoint, which may come from anybody.
    ///
    /// # Errors
    /// It is none that a training has written.
    pub fn read(written: &Value) -> Result<TextCodec> {
        let number = |key: &str| {
            let number = written.get(key).and_then(Value::as_u64).and_then(|number| usize::try_from(number).ok());
            number.filter(|number| *number > 0).with_context(|| format!("the checkpoint does not say the `{key}` of its text"))
        };
        let tokenizer = written.get("tokenizer").filter(|tokenizer| !tokenizer.is_null());
        let tokenizer = tokenizer.map(Tokenizer::of_written).transpose()?;
        let codec = TextCodec { tokenizer, vocabulary: number("vocabulary")?, context: number("context")? };
        if let Some(tokenizer) = &codec.tokenizer {
            ensure!(
                tokenizer.vocabulary() <= codec.vocabulary,
                "the checkpoint says {} tokens, and its tokenizer has {}",
                codec.vocabulary,
                tokenizer.vocabulary()
            );
        }
        Ok(codec)
    }

    /// As a checkpoint has it.
    ///
    /// # Errors
    /// The tokenizer cannot be written.
    pub fn written(&self) -> Result<Arc<Value>> {
        let tokenizer = self.tokenizer.as_ref().map(Tokenizer::written).transpose()?;
        Ok(Arc::new(json!({ "tokenizer": tokenizer, "vocabulary": self.vocabulary, "context": self.context })))
    }
}

#[cfg(test)]
mod tests;
