//! How the data of a checkpoint is read: what belongs to the model, and what a command may say anew.

use crate::config::language::sections::{self as config, Csv, Fitted, ImageList, LabelKind, Source};
use crate::config::load::paths::shown;
use crate::config::text::diagnostics::SourceKind;
use crate::config::{Diagnostic, Experiment, Loaded};
use crate::data::listed;
use crate::data::text::{Chat, Tokenizer};
use crate::train::files::weights::{codec_of, tokenizer_of};
use std::path::PathBuf;

/// Refuses another way to make numbers of a table's rows than that which the model was trained on, the configuration of which is `own`: what was fitted in
/// training is used, and nothing else.
///
/// # Errors
/// The configuration asks for another one.
pub fn expect_own_columns(experiment: &Experiment, own: &Experiment) -> Result<(), Diagnostic> {
    let (Some(asked), Some(own)) = (experiment.data.source.table(), own.data.source.table()) else { return Ok(()) };
    let at = |error: Diagnostic, key: &str| {
        let key = format!("data.{key}");
        match experiment.span_of(&key).or_else(|| experiment.nearest_span(&key)) {
            Some(span) => error.at(span, "the checkpoint has this otherwise"),
            None => error,
        }
    };
    if asked.target.names() != own.target.names() {
        let learnt = own.target.names().iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let error = format!("`data.target` cannot be another one than in training: the model learnt {learnt}");
        return Err(at(Diagnostic::error(error).help("leave it out, or train a model anew"), "target"));
    }
    let differ = [
        // Where a rule is written is no difference.
        ("columns", rules(asked) != rules(own)),
        ("drop", asked.drop != own.drop),
        ("classes", asked.classes != own.classes),
        ("series_column", asked.series_column != own.series_column),
        // `eval --data` divides nothing, and asks for none.
        ("time_column", own.window.is_some() && asked.time_column.is_some() && asked.time_column != own.time_column),
        ("standardize_target", asked.standardize_target != own.standardize_target),
    ];
    let Some((key, _)) = differ.into_iter().find(|(_, differs)| *differs) else { return Ok(()) };
    let error = Diagnostic::error(format!(
        "`data.{key}` cannot be another one than in training: how the cells of a table become numbers is a part of the checkpoint"
    ));
    let error = error
        .help("leave it out, or train a model anew; the file, `id`, `separator`, `quote`, `encoding`, `decimal` and `header` may be others");
    Err(at(error, key))
}

/// Refuses another tokenizer than that of a training, whose configuration is `own`; `fitted` is what it has found. A training on tokens without a tokenizer may be
/// given one.
///
/// # Errors
/// The configuration asks for another one.
pub fn expect_own_tokenizer(
    experiment: &Experiment,
    own: &Experiment,
    fitted: Option<&Fitted>,
) -> Result<(), Diagnostic> {
    let (Some(asked), Some(known)) = (experiment.data.source.tokenizer(), fitted.and_then(tokenizer_of)) else {
        return Ok(());
    };
    let Some(span) = experiment.span_of("data.tokenizer") else { return Ok(()) };
    if own.data.source.tokenizer() == Some(asked) || is_of(asked, &known) {
        return Ok(());
    }
    let error = "`data.tokenizer` cannot be another one than in training: the tokenizer is a part of the checkpoint";
    Err(Diagnostic::error(error.to_owned())
        .at(span, "the checkpoint has another one")
        .help(format!("leave it out, and text becomes tokens as it did in training ({})", known.in_words())))
}

/// Refuses another number of tokens than that of a training, whose configuration is `own`; `fitted` is what it has found. And another prompt, if the model has learnt answers to it.
///
/// # Errors
/// The configuration asks for another one.
pub fn expect_own_tokens(experiment: &Experiment, own: &Experiment, fitted: Option<&Fitted>) -> Result<(), Diagnostic> {
    let refuse = |key: &str, why: &str, label: &str, help: &str| {
        let error = Diagnostic::error(format!("`data.{key}` cannot be another one than in training: {why}")).help(help);
        match experiment.span_of(&format!("data.{key}")) {
            Some(span) => Err(error.at(span, label)),
            None => Err(error),
        }
    };
    // A large tokenizer takes its time to be read.
    let codec = || fitted.and_then(codec_of);
    if let Some(asked) =
        experiment.data.source.vocab_size().filter(|asked| own.data.source.vocab_size() != Some(*asked))
        && let Some(known) = codec().map(|codec| codec.vocabulary).filter(|known| *known != asked)
    {
        let label = format!("the checkpoint has {known}");
        return refuse("vocab_size", "the model has a place for each of its tokens", &label, "leave it out");
    }
    let (Source::TextPairs(asked), Source::TextPairs(own)) = (&experiment.data.source, &own.data.source) else {
        return Ok(());
    };
    let moved = |path: &PathBuf| {
        let chat = codec().and_then(|codec| codec.chat);
        chat.is_some_and(|chat| Chat::read(&shown(path)).is_ok_and(|named| named.is_like(&chat)))
    };
    let another_chat = asked.chat_template != own.chat_template && !asked.chat_template.as_ref().is_some_and(moved);
    let differ = [
        ("chat_template", another_chat),
        ("template", asked.template != own.template),
        ("system", asked.system != own.system),
    ];
    let Some((key, _)) = differ.into_iter().find(|(_, differs)| *differs) else { return Ok(()) };
    let why = "the model has learnt answers to prompts that are made so";
    refuse(
        key,
        why,
        "the checkpoint has this otherwise",
        "leave it out; `runner generate --raw` puts nothing around a prompt",
    )
}

/// The template for conversations that the command line names for a language model, which need not have been trained with it.
///
/// # Errors
/// The file cannot be read, or has none.
pub fn given_chat(loaded: &Loaded) -> anyhow::Result<Option<Chat>> {
    let path = match &loaded.experiment.data.source {
        Source::Text(text) => text.chat_template.as_ref(),
        Source::Tokens(tokens) => tokens.chat_template.as_ref(),
        _ => None,
    };
    let span = loaded.experiment.span_of("data.chat_template");
    let typed = span.is_some_and(|span| loaded.sources.get(span.source).kind == SourceKind::Set);
    path.filter(|_| typed).map(|path| Chat::read(&shown(path))).transpose()
}

/// Whether a configuration names that tokenizer.
pub fn is_of(named: &config::Tokenizer, known: &Tokenizer) -> bool {
    match (named, known) {
        (config::Tokenizer::Bytes, Tokenizer::Bytes)
        | (config::Tokenizer::Characters, Tokenizer::Characters(_))
        | (config::Tokenizer::Words, Tokenizer::Words(_))
        | (config::Tokenizer::Bpe, Tokenizer::Json(_)) => true,
        (config::Tokenizer::File(path), known) => Tokenizer::read(&shown(path))
            .is_ok_and(|own| own.vocabulary() == known.vocabulary() && own.differs_from(known).is_none()),
        (
            config::Tokenizer::Bytes
            | config::Tokenizer::Characters
            | config::Tokenizer::Words
            | config::Tokenizer::Bpe,
            _,
        ) => false,
    }
}

/// A tokenizer as a configuration names it.
pub fn written(tokenizer: &config::Tokenizer) -> String {
    match tokenizer {
        config::Tokenizer::Bytes => "bytes".into(),
        config::Tokenizer::Characters => "characters".into(),
        config::Tokenizer::Words => "words".into(),
        config::Tokenizer::Bpe => "bpe".into(),
        config::Tokenizer::File(path) => shown(path).display().to_string(),
    }
}

fn rules(csv: &Csv) -> Option<Vec<(&String, String)>> {
    let rules = csv.columns.as_ref()?.0.iter();
    Some(rules.map(|rule| (&rule.name, format!("{:?}", rule.column))).collect())
}

/// What is to be said where the masks of the data have other values for a class than those of the training, whose configuration is
/// `own`.
pub fn other_mask_values(experiment: &Experiment, own: &Experiment) -> Option<String> {
    let (Source::ImageList(asked), Source::ImageList(own)) = (&experiment.data.source, &own.data.source) else {
        return None;
    };
    let trained = mask_values(own);
    let other = |(name, value): (String, usize)| {
        let before = trained.iter().find(|(known, _)| *known == name)?.1;
        (before != value).then_some((name, before, value))
    };
    let others: Vec<_> = mask_values(asked).into_iter().filter_map(other).collect();
    let (_, before, now) = others.first()?;
    let names: Vec<String> = others.iter().map(|(name, _, _)| name.clone()).collect();
    Some(format!(
        "`data.mask_values` or `data.classes` give {} another value in the masks than in training ({now} instead of {before}): that is right for \
         masks that are written in another way",
        listed(&names)
    ))
}

/// The value of each class in the masks of a list.
fn mask_values(list: &ImageList) -> Vec<(String, usize)> {
    let names = list.classes.iter().flatten().filter(|_| list.label_kind == LabelKind::Mask);
    let value = |class: usize| list.mask_values.as_ref().map_or(Some(class), |values| values.get(class).copied());
    names.enumerate().filter_map(|(class, name)| Some((name.clone(), value(class)?))).collect()
}
