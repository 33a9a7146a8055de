//! What text is like as samples: how many tokens there are, and some samples as text again.

use crate::api::failure::{Failure, refused};
use crate::api::samples;
use crate::cli::{print, print_json};
use crate::config::Loaded;
use crate::data::text::{Samples, TextCodec, Tokenizer, answer_of, prompt_and_answer, tokens_of};
use crate::data::{Field, Split};
use crate::graph::op::IGNORE_INDEX;
use crate::terminal::thousands;
use anyhow::Result;
use serde_json::json;
use std::process::ExitCode;

/// Samples that are shown.
const SHOWN: usize = 3;
/// Characters of a sample that are shown.
const LONGEST: usize = 400;

/// Shows the text of a configuration.
pub fn show(loaded: &Loaded, as_json: bool) -> Result<ExitCode, Failure> {
    let experiment = &loaded.experiment;
    let samples = samples::load(experiment, &samples::as_configured(experiment));
    let samples = samples.map_err(|error| refused(loaded, error))?;
    let Some(codec) = TextCodec::of(&samples.spec)? else {
        return Err(anyhow::anyhow!("there is nothing to show: the samples are no text").into());
    };
    let tokens = match &codec.tokenizer {
        Some(tokenizer) => format!("a vocabulary of {}: {}", thousands(codec.vocabulary as u64), tokenizer.in_words()),
        None => format!("a vocabulary of {}, whose texts are not known", thousands(codec.vocabulary as u64)),
    };
    let of = match &codec.samples {
        Samples::Windows { context, lengths, .. } if lengths.is_empty() => format!("samples of {context} tokens"),
        Samples::Windows { lengths, .. } => {
            let lengths: Vec<String> = lengths.iter().map(usize::to_string).collect();
            format!("parts of documents, in batches of {} tokens", lengths.join(", "))
        }
        Samples::Labelled { lengths, classes, .. } => {
            let lengths: Vec<String> = lengths.iter().map(usize::to_string).collect();
            let what = if codec.takes_pairs() { "pairs of texts" } else { "texts" };
            format!("{what} of {} classes, in batches of {} tokens", classes.len(), lengths.join(", "))
        }
        Samples::Answered { lengths, .. } => {
            let lengths: Vec<String> = lengths.iter().map(|[text, answer]| format!("{text} and {answer}")).collect();
            format!("texts with an answer each, in batches of {} tokens", lengths.join(", "))
        }
        Samples::Prompted { lengths, .. } => {
            let lengths: Vec<String> = lengths.iter().map(usize::to_string).collect();
            format!("prompts with an answer each, in batches of {} tokens", lengths.join(", "))
        }
        Samples::Tagged { lengths, tags, .. } => {
            let lengths: Vec<String> = lengths.iter().map(usize::to_string).collect();
            format!("sentences of words with {} tags, in batches of {} tokens", tags.len(), lengths.join(", "))
        }
    };
    let [train, val] = [&samples.train, &samples.val].map(Split::len);
    let ignored = experiment.loss.describe().ignore_index().unwrap_or(IGNORE_INDEX);
    let text = |i: usize| match (&codec.samples, &codec.tokenizer) {
        (Samples::Prompted { end, .. }, Some(tokenizer)) => {
            let (prompt, answer) = prompt_and_answer(&samples.train, i, ignored)?;
            answered(tokenizer, &prompt, &answer, *end)
        }
        _ => text_of(&samples.train, i, &codec),
    };
    let some: Vec<String> = (0..train.min(SHOWN)).map(text).collect::<Result<_>>()?;
    if as_json {
        let json = json!({ "vocabulary": codec.vocabulary, "train": train, "val": val, "samples": some });
        print_json(&json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let [shown_train, shown_val] = [train, val].map(|n| thousands(n as u64));
    let mut out = format!("{tokens}\n{of}: {shown_train} to train on, {shown_val} to validate on\n");
    for (i, text) in some.iter().enumerate() {
        out.push_str(&format!("\nsample {i}\n"));
        for line in text.lines() {
            out.push_str(&format!("  {line}\n"));
        }
    }
    print(out.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// The beginning of a sample: its text, or its tokens where their texts are not known.
fn text_of(split: &Split, sample: usize, codec: &TextCodec) -> Result<String> {
    let tokens = tokens_of(split, sample)?;
    if let (Samples::Answered { end, .. }, Some(tokenizer)) = (&codec.samples, &codec.tokenizer) {
        return answered(tokenizer, &tokens, &answer_of(split, sample)?, *end);
    }
    if let (Samples::Tagged { tags, .. }, Some(tokenizer)) = (&codec.samples, &codec.tokenizer) {
        return tagged(split, sample, (&tokens, tokenizer), tags);
    }
    let text = match &codec.tokenizer {
        Some(tokenizer) => {
            let separator = tokenizer.separator().filter(|_| codec.takes_pairs());
            let texts = tokens.split(|token| Some(*token) == separator).map(|tokens| tokenizer.decode(tokens));
            texts.collect::<Result<Vec<_>>>()?.join(" | ")
        }
        None => tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(" "),
    };
    Ok(cut(text))
}

/// A text and its answer, without the token that ends that.
fn answered(tokenizer: &Tokenizer, text: &[u32], answer: &[u32], end: u32) -> Result<String> {
    let answer = answer.split(|token| *token == end).next().unwrap_or_default();
    Ok(format!("{} → {}", cut(tokenizer.decode(text)?), cut(tokenizer.decode(answer)?)))
}

/// The beginning of a text, if it is long.
fn cut(text: String) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text,
    }
}

/// The tokens of a sentence as text; after each that bears a tag stands that.
fn tagged(split: &Split, sample: usize, (tokens, tokenizer): (&[u32], &Tokenizer), tags: &[String]) -> Result<String> {
    let mut numbers = Vec::new();
    let field = split.fields().iter().position(Field::is_target).unwrap_or_default();
    split.classes(sample, field, |tag| numbers.push(tag));
    let mut shown = Vec::new();
    for (token, number) in tokens.iter().zip(numbers) {
        let text = tokenizer.decode(&[*token])?;
        let tag = usize::try_from(number).ok().and_then(|number| tags.get(number));
        shown.push(tag.map_or_else(|| text.clone(), |tag| format!("{text} [{tag}]")));
        if shown.len() == LONGEST / 4 {
            shown.push("…".to_owned());
            break;
        }
    }
    Ok(shown.join(" "))
}
