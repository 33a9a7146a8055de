//! `runner generate`.

use super::args::GenerateArgs;
use super::{print_json, printed, signals};
use crate::api::failure::Failure;
use crate::api::generate::{self, Finish, Found, Generator, Options, Request, Sampling};
use crate::api::model::load_model;
use crate::files;
use crate::terminal::{self, say};
use anyhow::{Context, Result};
use serde_json::json;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Largest file with a prompt, in bytes.
const MAX_PROMPT: u64 = 16 << 20;
/// What stands between several texts.
const BETWEEN: &str = "---------------";

/// Goes on with a text.
pub(super) fn run(args: &GenerateArgs) -> Result<ExitCode, Failure> {
    let mut prompt = prompt(args)?;
    let model = load_model(&args.model, &args.overrides.sets())?;
    let beams = args.search.beams();
    if let Some(beams) = beams.filter(|beams| beams.count < args.samples as usize) {
        return Err(Failure::Usage(format!(
            "`--samples {}` asks for more texts than the {} that `--beams` goes on with\nhelp: raise `--beams`, or lower `--samples`",
            args.samples, beams.count
        )));
    }
    let longest = match beams {
        Some(_) => generate::longest(&model, (&prompt, args.raw), args.max_tokens as usize)?,
        None => None,
    };
    let (threads, without_cache) = (args.threads, args.without_cache);
    let options = Options { threads, without_cache, beams, longest, ..Options::default() };
    let mut generator = Generator::new(&model, &options)?;
    if let Some(note) = generator.note() {
        say(&format!("note: {note}"));
    }
    let stopped = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stopped);
    signals::on_stop(move || flag.store(true, Ordering::Relaxed))?;
    if args.raw && generator.prompts().is_none() {
        return Err(Failure::Usage(
            "`--raw` leaves out what stands around a text, and of this model nothing does: it was not trained on `text_pairs`\nhelp: leave it out".into(),
        ));
    }
    let answers = generator.answers_texts() && !args.raw;
    if answers {
        // The end of a file's last line is no part of a text.
        prompt.truncate(prompt.trim_end_matches(['\n', '\r']).len());
        if prompt.is_empty() {
            return Err(Failure::Usage(
                "the model answers texts, and there is none\nhelp: give one with --prompt or --prompt-file".into(),
            ));
        }
    }
    let tokens = generator.prompt(&prompt, args.raw)?;
    let started = Instant::now();
    let mut generated = 0;
    let request = |text: u32| Request {
        prompt: tokens.clone(),
        max_tokens: args.max_tokens as usize,
        sampling: Sampling {
            temperature: args.temperature.unwrap_or(if answers { 0.0 } else { 1.0 }),
            top_k: args.top_k.map(|k| k as usize),
            top_p: args.top_p,
            min_p: args.min_p,
            repetition_penalty: args.repetition_penalty,
            seed: args.seed,
        },
        text: u64::from(text),
        stop: args.stop.iter().filter(|stop| !stop.is_empty()).cloned().collect(),
    };
    if beams.is_some() {
        let request = request(0);
        let Some(found) = generator.search(&request, &|| !stopped.load(Ordering::Relaxed))? else {
            return Ok(ExitCode::from(130));
        };
        let found = &found[..found.len().min(args.samples as usize)];
        for (number, found) in found.iter().enumerate() {
            if number > 0 && !args.output.json {
                printed(terminal::print_piece(&format!("{BETWEEN}\n")))?;
            }
            write_found(&generator, found, &request.stop, (&prompt, answers), args.output.json)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    for text in 0..args.samples {
        let request = request(text);
        if text > 0 && !args.output.json {
            printed(terminal::print_piece(&format!("{BETWEEN}\n")))?;
        }
        let (finish, count) = one(&mut generator, request, (&prompt, answers), (args.output.json, &stopped))?;
        generated += count;
        if finish == Finish::Cancelled {
            return Ok(ExitCode::from(130));
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    if !args.output.json {
        say(&format!("{generated} tokens, {:.1} a second", generated as f64 / seconds.max(1e-9)));
    }
    Ok(ExitCode::SUCCESS)
}

/// Generates and writes one text; why it ended, and how many tokens it has.
fn one(
    generator: &mut Generator,
    request: Request,
    (prompt, answers): (&str, bool),
    (json, stopped): (bool, &AtomicBool),
) -> Result<(Finish, usize), Failure> {
    let mut text = String::new();
    let mut failed = None;
    let mut ends = true;
    let mut write = |piece: &str| match terminal::print_piece(piece) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    };
    // An answer stands by itself.
    if !json && !prompt.is_empty() && !answers {
        let _ = write(prompt);
        ends = prompt.ends_with('\n');
    }
    let (tokens, finish) = generator.generate(request, &mut |piece| {
        let written = if json {
            text.push_str(piece);
            ControlFlow::Continue(())
        } else {
            ends = piece.ends_with('\n');
            write(piece)
        };
        if stopped.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { written }
    })?;
    if let Some(error) = failed {
        printed(Err(error))?;
    }
    if json {
        print_json(&json!({ "prompt": prompt, "text": text, "tokens": tokens, "finish": finish.name() }))?;
    } else if !ends {
        printed(terminal::print_piece("\n"))?;
    }
    Ok((finish, tokens.len()))
}

/// Writes a text that beam search has found.
fn write_found(
    generator: &Generator,
    found: &Found,
    stop: &[String],
    (prompt, answers): (&str, bool),
    json: bool,
) -> Result<(), Failure> {
    let mut text = generator.tokenizer().decode(&found.tokens)?;
    if let Some(at) = stop.iter().filter_map(|stop| text.find(stop.as_str())).min() {
        text.truncate(at);
    }
    let Found { tokens, finish, score } = found;
    if json {
        let finish = finish.name();
        return print_json(
            &json!({ "prompt": prompt, "text": text, "tokens": tokens, "finish": finish, "score": score }),
        );
    }
    // An answer stands by itself.
    let whole = if answers { text } else { format!("{prompt}{text}") };
    let end = if whole.ends_with('\n') { "" } else { "\n" };
    printed(terminal::print_piece(&format!("{whole}{end}")))
}

/// The text to go on with; empty, if none is given.
fn prompt(args: &GenerateArgs) -> Result<String> {
    let bytes = match args.prompt_file.as_deref() {
        None => return Ok(args.prompt.clone().unwrap_or_default()),
        Some(path) if path == Path::new("-") => {
            let mut bytes = Vec::new();
            std::io::stdin().take(MAX_PROMPT).read_to_end(&mut bytes).context("cannot read standard input")?;
            bytes
        }
        Some(path) => files::read(path, MAX_PROMPT)?,
    };
    String::from_utf8(bytes).context("the prompt is not UTF-8")
}
