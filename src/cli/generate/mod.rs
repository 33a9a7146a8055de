//! `runner generate`.

mod prompts;
mod written;

use super::args::GenerateArgs;
use super::{print_json, printed, signals};
use crate::api::failure::Failure;
use crate::api::generate::{self, Finish, Found, Generator, Options, Request, Sampling};
use crate::api::model::load_model;
use crate::config::language::sections::Source;
use crate::terminal::{self, counted, say, thousands};
use anyhow::Result;
use prompts::Prompt;
use serde_json::json;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use written::{BETWEEN, Written, per_second};

/// Goes on with texts.
pub(super) fn run(args: &GenerateArgs) -> Result<ExitCode, Failure> {
    if args.stop.iter().any(String::is_empty) {
        return Err(Failure::Usage(
            "`--stop` has no text, which would end every text before it begins\nhelp: leave it out".into(),
        ));
    }
    let mut prompts = prompts::read(args)?;
    let model = load_model(&args.model, &args.overrides.sets())?;
    let beams = args.writing.beams();
    if let Some(beams) = beams.filter(|beams| beams.count < args.samples as usize) {
        return Err(Failure::Usage(format!(
            "`--samples {}` asks for more texts than the {} that `--beams` goes on with\nhelp: raise `--beams`, or lower `--samples`",
            args.samples, beams.count
        )));
    }
    let named = prompts.iter().map(|prompt| (prompt.text.as_str(), prompt.called.as_str()));
    let longest = match beams {
        Some(_) => generate::longest(&model, (named, args.raw), args.max_tokens as usize)?,
        None => None,
    };
    let (threads, without_cache) = (args.threads, args.without_cache);
    let samples = args.samples as usize;
    let count = prompts.len().saturating_mul(samples);
    let texts = if without_cache { 1 } else { args.writing.texts(count) };
    let options = Options { threads, without_cache, texts, beams, longest, ..Options::default() };
    let mut generator = Generator::new(&model, &options)?;
    generator.notes(texts).for_each(|note| say(&format!("note: {note}")));
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
        prompts::as_texts(&mut prompts)?;
    }
    let tokens = prompts.iter().map(|prompt| generator.prompt((&prompt.text, &prompt.called), args.raw));
    let tokens = tokens.collect::<Result<Vec<_>>>()?;
    let (longest, seen) = (tokens.iter().map(Vec::len).max().unwrap_or(0), generator.capacity());
    if longest > seen && !generator.has_answers() {
        let what = if tokens.len() == 1 { "the prompt" } else { "the longest prompt" };
        let left_out = match longest - seen {
            1 => "the first one is left out".to_owned(),
            cut => format!("the first {} are left out", thousands(cut as u64)),
        };
        let [longest, seen] = [longest, seen].map(|tokens| thousands(tokens as u64));
        let more = match model.loaded.experiment.data.source {
            Source::Text(_) | Source::Tokens(_) => {
                " (a model that knows more positions sees more with `--set data.context=N`)"
            }
            _ => "",
        };
        say(&format!("note: {what} has {longest} tokens, and the model looks back {seen}: {left_out}{more}"));
    }
    let request = |number: usize| Request {
        prompt: tokens[number / samples].clone(),
        max_tokens: args.max_tokens as usize,
        sampling: Sampling {
            temperature: args.temperature.unwrap_or(if answers { 0.0 } else { 1.0 }),
            top_k: args.top_k.map(|k| k as usize),
            top_p: args.top_p,
            min_p: args.min_p,
            repetition_penalty: args.repetition_penalty,
            seed: args.seed,
        },
        text: number as u64,
        stop: args.stop.clone(),
    };
    if beams.is_some() {
        return search(args, &mut generator, (&prompts, answers), &request, &stopped);
    }
    let mut written = Written::new(&prompts, samples, answers, args.output.json);
    let (mut generated, mut whole, mut failed) = (0, 0, written.open().err());
    let started = Instant::now();
    // A text is asked for when it is begun.
    let begun = RefCell::new(Vec::new());
    let requests = (0..count).map(|number| {
        begun.borrow_mut().push(Instant::now());
        request(number)
    });
    generator.write(requests, &mut |number, piece, end| {
        if let Some((finish, tokens)) = &end {
            generated += tokens.len();
            whole += usize::from(*finish != Finish::Cancelled);
        }
        // What cannot be written once is not tried again.
        if failed.is_none() {
            let end = end.map(|end| (end, begun.borrow()[number].elapsed()));
            failed = written.take(number, piece, end).err();
        }
        let goes_on = failed.is_none() && !stopped.load(Ordering::Relaxed);
        if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    if let Some(error) = failed {
        printed(Err(error))?;
        // A reader that closes the pipe has read enough.
        if !stopped.load(Ordering::Relaxed) {
            return Ok(ExitCode::SUCCESS);
        }
    }
    if whole < count {
        return Ok(ExitCode::from(signals::INTERRUPTED));
    }
    if !args.output.json {
        let speed = per_second(generated, started.elapsed());
        say(&format!("{}, {speed:.1} a second", counted(generated, "token")));
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the texts that beam search finds to each prompt.
fn search(
    args: &GenerateArgs,
    generator: &mut Generator,
    (prompts, answers): (&[Prompt], bool),
    request: &dyn Fn(usize) -> Request,
    stopped: &AtomicBool,
) -> Result<ExitCode, Failure> {
    let samples = args.samples as usize;
    for (at, prompt) in prompts.iter().enumerate() {
        let request = request(at * samples);
        let started = Instant::now();
        let Some(found) = generator.search(&request, &|| !stopped.load(Ordering::Relaxed))? else {
            return Ok(ExitCode::from(signals::INTERRUPTED));
        };
        let took = started.elapsed();
        for (number, found) in found.iter().take(samples).enumerate() {
            if at + number > 0 && !args.output.json {
                printed(terminal::print_piece(BETWEEN))?;
            }
            write_found(generator, found, &request.stop, (&prompt.text, answers), args.output.json.then_some(took))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a text that beam search has found; as JSON with how fast that was, if `took` says how long it took.
fn write_found(
    generator: &Generator,
    found: &Found,
    stop: &[String],
    (prompt, answers): (&str, bool),
    took: Option<Duration>,
) -> Result<(), Failure> {
    let mut text = generator.tokenizer().decode(&found.tokens)?;
    if let Some(at) = stop.iter().filter_map(|stop| text.find(stop.as_str())).min() {
        text.truncate(at);
    }
    let Found { tokens, finish, score } = found;
    if let Some(took) = took {
        let (finish, speed) = (finish.name(), per_second(tokens.len(), took));
        return print_json(&json!({
            "prompt": prompt, "text": text, "tokens": tokens, "tokens_per_s": speed, "finish": finish, "score": score
        }));
    }
    // An answer stands by itself.
    let whole = if answers { text } else { format!("{prompt}{text}") };
    let end = if whole.ends_with('\n') { "" } else { "\n" };
    printed(terminal::print_piece(&format!("{whole}{end}")))
}
