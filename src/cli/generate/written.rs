//! What is printed of texts that are written at a time: one after the other, in order.

use super::prompts::Prompt;
use crate::api::generate::End;
use crate::terminal;
use serde_json::json;
use std::collections::VecDeque;
use std::io;
use std::time::Duration;

/// What stands between several texts.
pub(super) const BETWEEN: &str = "---------------\n";

/// How many of so many tokens there are a second, to a thousandth.
pub(super) fn per_second(tokens: usize, took: Duration) -> f64 {
    (tokens as f64 / took.as_secs_f64().max(1e-9) * 1e3).round() / 1e3
}

/// The texts that are not printed whole. The first of them is printed as it is written, and the others wait for it.
pub(super) struct Written<'a> {
    prompts: &'a [Prompt],
    /// Texts to each prompt.
    samples: usize,
    /// They stand by themselves, without their prompts.
    answers: bool,
    json: bool,
    /// How many are printed.
    done: usize,
    /// Whether what is printed ends a line.
    ends: bool,
    waiting: VecDeque<Waiting>,
}

/// What waits to be printed of a text.
#[derive(Default)]
struct Waiting {
    text: String,
    /// Its end, and how long it took from its beginning.
    end: Option<(End, Duration)>,
    /// Its prompt is printed.
    is_open: bool,
}

impl<'a> Written<'a> {
    pub(super) fn new(prompts: &'a [Prompt], samples: usize, answers: bool, json: bool) -> Self {
        Written { prompts, samples, answers, json, done: 0, ends: true, waiting: VecDeque::new() }
    }

    /// Prints what stands before the next text, which is being written.
    ///
    /// # Errors
    /// Standard output cannot be written to.
    pub(super) fn open(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            self.waiting.push_back(Waiting::default());
        }
        let first = &mut self.waiting[0];
        if self.json || std::mem::replace(&mut first.is_open, true) {
            return Ok(());
        }
        if self.done > 0 {
            terminal::print_piece(BETWEEN)?;
        }
        let prompt = &self.prompts[self.done / self.samples].text;
        self.ends = true;
        if !self.answers && !prompt.is_empty() {
            self.ends = prompt.ends_with('\n');
            terminal::print_piece(prompt)?;
        }
        Ok(())
    }

    /// Takes more of a text, or its end with how long it took, and prints what can be.
    ///
    /// # Errors
    /// As [`Written::open`].
    pub(super) fn take(&mut self, number: usize, piece: &str, end: Option<(End, Duration)>) -> io::Result<()> {
        let at = number - self.done;
        if self.waiting.len() <= at {
            self.waiting.resize_with(at + 1, Waiting::default);
        }
        self.waiting[at].text.push_str(piece);
        self.waiting[at].end = end;
        while !self.waiting.is_empty() {
            self.open()?;
            let Waiting { text, end, .. } = &mut self.waiting[0];
            if self.json {
                let Some(((finish, tokens), took)) = end else { break };
                let prompt = &self.prompts[self.done / self.samples].text;
                let (finish, speed) = (finish.name(), per_second(tokens.len(), *took));
                terminal::print_json(&json!({
                    "prompt": prompt, "text": text, "tokens": tokens, "tokens_per_s": speed, "finish": finish
                }))?;
            } else {
                if !text.is_empty() {
                    self.ends = text.ends_with('\n');
                    terminal::print_piece(&std::mem::take(text))?;
                }
                if end.is_none() {
                    break;
                }
                if !self.ends {
                    terminal::print_piece("\n")?;
                }
            }
            self.waiting.pop_front();
            self.done += 1;
        }
        Ok(())
    }
}
