//! What is printed of texts that are written at a time: one after the other, in order.

use super::prompts::Prompt;
use crate::api::generate::End;
use crate::terminal;
use serde_json::json;
use std::collections::VecDeque;
use std::io;

/// What stands between several texts.
pub(super) const BETWEEN: &str = "---------------\n";

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
    end: Option<End>,
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

    /// Takes more of a text, and prints what can be.
    ///
    /// # Errors
    /// As [`Written::open`].
    pub(super) fn take(&mut self, number: usize, piece: &str, end: Option<End>) -> io::Result<()> {
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
                let Some((finish, tokens)) = end else { break };
                let prompt = &self.prompts[self.done / self.samples].text;
                terminal::print_json(
                    &json!({ "prompt": prompt, "text": text, "tokens": tokens, "finish": finish.name() }),
                )?;
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
