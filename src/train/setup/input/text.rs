//! The options of text, from the `[data]` section.

use super::held_out;
use crate::config::Experiment;
use crate::config::language::sections::{
    EndToken, Text, TextClasses, TextPairs, TextTags, TextToText, TokenFile, Tokenizer,
};
use crate::config::load::paths::shown;
use crate::data::text::{
    AnsweredOptions, ApartOptions, Choice, Content, End, LabelledOptions, Layout, PromptedOptions, TaggedOptions,
    TextCodec, TextOptions,
};
use crate::graph::op::{Figure, IGNORE_INDEX};
use std::path::{Path, PathBuf};

/// Words that have tokens, by default.
const WORDS: usize = 10_000;
/// Tokens of byte pairs, by default.
const BYTE_PAIRS: usize = 4096;

/// What the data layer reads of text.
pub fn of_text(text: &Text, experiment: &Experiment) -> TextOptions {
    let content = Content::Text(choice(&text.tokenizer, text.vocab_size));
    let chat = text.chat_template.as_deref();
    let apart = apart(text.lengths(), experiment);
    let options = options((&text.path, text.val_path.as_deref(), chat), content, (text.context, apart), experiment);
    TextOptions { column: text.column.clone(), end: end(text.end_token.as_ref()), ..options }
}

/// What it reads of tokens.
pub fn of_tokens(tokens: &TokenFile, experiment: &Experiment) -> TextOptions {
    let tokenizer = tokens.tokenizer.as_ref().map(|tokenizer| choice(tokenizer, None));
    let content = Content::Tokens { vocabulary: tokens.vocab_size, tokenizer };
    let chat = tokens.chat_template.as_deref();
    let apart = apart(tokens.lengths(), experiment);
    let options =
        options((&tokens.path, tokens.val_path.as_deref(), chat), content, (tokens.context, apart), experiment);
    TextOptions { end: end(tokens.end_token.as_ref()), ..options }
}

/// What it reads of texts that have a class each.
pub fn of_classes(texts: &TextClasses, experiment: &Experiment) -> LabelledOptions {
    LabelledOptions {
        path: shown(&texts.path),
        val_path: texts.val_path.as_deref().map(shown),
        text: texts.text.names()[0].clone(),
        text_pair: texts.text.names().get(1).cloned(),
        target: texts.target.clone(),
        classes: texts.classes.clone(),
        sample_weight: texts.sample_weight.clone(),
        choice: choice(&texts.tokenizer, texts.vocab_size),
        lengths: texts.lengths(),
        fitted: fitted(experiment),
    }
}

/// What it reads of sentences whose words have a tag each.
pub fn of_tags(tags: &TextTags, experiment: &Experiment) -> TaggedOptions {
    let (words, key) = (tags.words.clone(), tags.tags.clone());
    TaggedOptions {
        path: shown(&tags.path),
        val_path: tags.val_path.as_deref().map(shown),
        layout: Layout { words, tags: key, word_column: tags.word_column, tag_column: tags.tag_column },
        tags: tags.classes.clone(),
        choice: choice(&tags.tokenizer, tags.vocab_size),
        lengths: tags.lengths(),
        // Another loss than that of classes is refused where the model is built.
        ignore_index: experiment.loss.describe().ignore_index().unwrap_or(IGNORE_INDEX),
        fitted: fitted(experiment),
    }
}

/// What it reads of texts that have an answer each.
pub fn of_answers(texts: &TextToText, experiment: &Experiment) -> AnsweredOptions {
    AnsweredOptions {
        path: shown(&texts.path),
        val_path: texts.val_path.as_deref().map(shown),
        text: texts.text.clone(),
        target: texts.target.clone(),
        choice: choice(&texts.tokenizer, texts.vocab_size),
        start: texts.start_token.clone(),
        end: texts.end_token.clone(),
        lengths: texts.lengths(),
        ignore_index: experiment.loss.describe().ignore_index().unwrap_or(IGNORE_INDEX),
        fitted: fitted(experiment),
    }
}

/// What it reads of texts that have an answer each which goes on with a prompt.
pub fn of_pairs(texts: &TextPairs, experiment: &Experiment) -> PromptedOptions {
    PromptedOptions {
        path: shown(&texts.path),
        val_path: texts.val_path.as_deref().map(shown),
        text: texts.text.clone(),
        target: texts.target.clone(),
        template: texts.template.clone(),
        chat: texts.chat_template.as_deref().map(shown),
        system: texts.system.clone(),
        choice: choice(&texts.tokenizer, texts.vocab_size),
        end: texts.end_token.clone(),
        lengths: texts.lengths(),
        ignore_index: experiment.loss.describe().ignore_index().unwrap_or(IGNORE_INDEX),
        fitted: fitted(experiment),
    }
}

/// How documents are kept apart, if batches have lengths.
fn apart(lengths: Option<Vec<usize>>, experiment: &Experiment) -> Option<ApartOptions> {
    Some(ApartOptions {
        lengths: lengths?,
        ignore_index: experiment.loss.describe().ignore_index().unwrap_or(IGNORE_INDEX),
    })
}

fn end(token: Option<&EndToken>) -> Option<End> {
    token.map(|token| match token {
        EndToken::Name(name) => End::Name(name.clone()),
        EndToken::Number(number) => End::Number(*number),
    })
}

pub(super) fn choice(tokenizer: &Tokenizer, vocab_size: Option<usize>) -> Choice {
    match tokenizer {
        Tokenizer::Bytes => Choice::Bytes,
        Tokenizer::Characters => Choice::Characters,
        Tokenizer::Words => Choice::Words(vocab_size.unwrap_or(WORDS)),
        Tokenizer::Bpe => Choice::Bpe(vocab_size.unwrap_or(BYTE_PAIRS)),
        Tokenizer::File(path) => Choice::Json(shown(path)),
    }
}

fn fitted(experiment: &Experiment) -> Option<Box<TextCodec>> {
    let fitted = experiment.data.fitted.as_ref().and_then(|fitted| fitted.source.as_ref());
    fitted.and_then(|codec| TextCodec::read(codec).ok()).map(Box::new)
}

fn options(
    (path, val_path, chat): (&PathBuf, Option<&Path>, Option<&Path>),
    content: Content,
    (context, apart): (usize, Option<ApartOptions>),
    experiment: &Experiment,
) -> TextOptions {
    TextOptions {
        path: shown(path),
        val_path: val_path.map(shown),
        content,
        column: None,
        chat: chat.map(shown),
        context,
        end: None,
        apart,
        streams: experiment
            .data
            .source
            .carries_state()
            .then(|| [experiment.micro_batch(), experiment.data.loading.eval_batch_size()]),
        hold_out: experiment.data.loading.validation_split.as_ref().map(held_out),
        counts_bytes: experiment.asked_figures().contains(&Figure::BitsPerByte),
        fitted: fitted(experiment),
    }
}
