//! The options of text, from the `[data]` section.

use super::held_out;
use crate::config::Experiment;
use crate::config::language::sections::{Text, TokenFile, Tokenizer};
use crate::config::load::paths::shown;
use crate::data::text::{Choice, Content, TextCodec, TextOptions};
use std::path::{Path, PathBuf};

/// What the data layer reads of text.
pub fn of_text(text: &Text, experiment: &Experiment) -> TextOptions {
    let choice = match &text.tokenizer {
        Tokenizer::Bytes => Choice::Bytes,
        Tokenizer::Characters => Choice::Characters,
        Tokenizer::File(path) => Choice::Json(shown(path)),
    };
    options((&text.path, text.val_path.as_deref()), Content::Text(choice), text.context, experiment)
}

/// What it reads of tokens.
pub fn of_tokens(tokens: &TokenFile, experiment: &Experiment) -> TextOptions {
    let content =
        Content::Tokens { vocabulary: tokens.vocabulary, tokenizer: tokens.tokenizer.as_deref().map(shown) };
    options((&tokens.path, tokens.val_path.as_deref()), content, tokens.context, experiment)
}

fn options(
    (path, val_path): (&PathBuf, Option<&Path>),
    content: Content,
    context: usize,
    experiment: &Experiment,
) -> TextOptions {
    let fitted = experiment.data.fitted.as_ref().and_then(|fitted| fitted.source.as_ref());
    TextOptions {
        path: shown(path),
        val_path: val_path.map(shown),
        content,
        context,
        hold_out: experiment.data.loading.validation_split.as_ref().map(held_out),
        fitted: fitted.and_then(|codec| TextCodec::read(codec).ok()).map(Box::new),
    }
}
