//! What text is like as samples: how many tokens there are, and some samples as text again.

use crate::api::failure::Failure;
use crate::api::samples;
use crate::cli::{print, print_json};
use crate::config::Loaded;
use crate::data::Split;
use crate::data::text::{Samples, TextCodec, tokens_of};
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
    let samples = samples::load(experiment, &samples::as_configured(experiment))?;
    let Some(codec) = TextCodec::of(&samples.spec)? else {
        return Err(anyhow::anyhow!("there is nothing to show: the samples are no text").into());
    };
    let tokens = match &codec.tokenizer {
        Some(tokenizer) => format!("a vocabulary of {}: {}", thousands(codec.vocabulary as u64), tokenizer.in_words()),
        None => format!("a vocabulary of {}, whose texts are not known", thousands(codec.vocabulary as u64)),
    };
    let of = match &codec.samples {
        Samples::Windows { context } => format!("samples of {context} tokens"),
        Samples::Labelled { lengths, classes, .. } => {
            let lengths: Vec<String> = lengths.iter().map(usize::to_string).collect();
            format!("texts of {} classes, in batches of {} tokens", classes.len(), lengths.join(", "))
        }
    };
    let [train, val] = [&samples.train, &samples.val].map(Split::len);
    let some: Vec<String> = (0..train.min(SHOWN)).map(|i| text_of(&samples.train, i, &codec)).collect::<Result<_>>()?;
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
    let text = match &codec.tokenizer {
        Some(tokenizer) => tokenizer.decode(&tokens)?,
        None => tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(" "),
    };
    Ok(match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text,
    })
}
