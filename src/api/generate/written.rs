//! A text that is being written.

use super::{Generator, How, Sampler, Sampling};
use crate::data::text::Decoder;
use anyhow::{Context, Result, ensure};

/// What is to be generated.
#[derive(Debug, Clone)]
pub struct Request {
    /// The tokens to go on from or, of a model that answers texts, those of the text.
    pub prompt: Vec<u32>,
    /// How many tokens are generated at most.
    pub max_tokens: usize,
    /// How they are drawn.
    pub sampling: Sampling,
    /// Number of the text: each has draws of its own.
    pub text: u64,
    /// Texts that end it. They are not handed out.
    pub stop: Vec<String>,
}

/// Why a text ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// It is as long as it may be.
    Length,
    /// One of the texts that end it came.
    Stop,
    /// The token that ends a text came.
    End,
    /// The caller wanted no more.
    Cancelled,
}

impl Finish {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Finish::Length => "length",
            Finish::Stop => "stop",
            Finish::End => "end",
            Finish::Cancelled => "cancelled",
        }
    }
}

/// What one more turn has made of a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Step {
    /// What is certain of it now, and was not before; may be empty.
    pub piece: String,
    /// Why it ended, if it did.
    pub finish: Option<Finish>,
}

/// A text that is being written.
pub struct Text {
    max_tokens: usize,
    number: u64,
    sampler: Sampler,
    /// The text that is answered, until it is read.
    question: Option<Vec<u32>>,
    pub(super) tokens: Vec<u32>,
    /// How many of them are the prompt.
    known: usize,
    /// Where the part of the text begins that the model sees.
    pub(super) first: usize,
    /// Tokens of that part whose keys and values are kept.
    pub(super) filled: usize,
    /// Which of the texts it is that are written at a time.
    pub(super) turn: usize,
    decoder: Decoder,
    pending: Pending,
}

impl Text {
    /// Tokens that were generated.
    pub fn generated(&self) -> usize {
        self.tokens.len() - self.known
    }

    /// What was generated.
    pub fn into_tokens(mut self) -> Vec<u32> {
        self.tokens.split_off(self.known)
    }
}

impl Generator {
    /// Begins a text. `turn` says which of the [`Generator::texts`] it is: the text that had this number before cannot go on.
    ///
    /// # Errors
    /// The prompt has no tokens, or some that the model does not have.
    pub fn begin(&self, request: Request, turn: usize) -> Result<Text> {
        let Request { prompt: tokens, max_tokens, sampling, text: number, stop } = request;
        ensure!(turn < self.texts, "there is room for {} texts", self.texts);
        ensure!(self.beams.is_none(), "the model was opened for beam search");
        self.expect_tokens(&tokens)?;
        // An answer goes on from the token that begins all of them.
        let (question, tokens) = match &self.how {
            How::Answers(own) => (Some(tokens), vec![own.start]),
            How::Anew | How::Cached { .. } => (None, tokens),
        };
        Ok(Text {
            max_tokens,
            number,
            sampler: Sampler::new(sampling, self.vocabulary),
            known: tokens.len(),
            first: tokens.len().saturating_sub(self.capacity),
            question,
            tokens,
            filled: 0,
            turn,
            decoder: Decoder::new(self.tokenizer.clone()),
            pending: Pending { text: String::new(), stop },
        })
    }

    /// Refuses a prompt without tokens, or with some that the model does not have.
    pub(super) fn expect_tokens(&self, prompt: &[u32]) -> Result<()> {
        ensure!(!prompt.is_empty(), "a text has to begin with something");
        let unknown = prompt.iter().find(|token| **token as usize >= self.vocabulary);
        unknown.map_or(Ok(()), |token| {
            Err(anyhow::anyhow!("token {token} is none of the {} of the model", self.vocabulary))
        })
    }

    /// Gives a text its turn: a piece of its prompt is read, or a token is added.
    ///
    /// # Errors
    /// The device failed; the model's outputs are no numbers.
    pub fn step(&mut self, text: &mut Text) -> Result<Step> {
        if let Some(ended) = self.prepare(text)? {
            return Ok(ended);
        }
        let seen = &text.tokens[text.first..];
        let logits = match self.has_answers() {
            true => {
                if let Some(question) = text.question.take() {
                    self.read(&[&question])?;
                }
                self.next(&[seen])?.pop()
            }
            false => self.logits(&[seen], &mut text.filled, text.turn)?.and_then(|mut rows| rows.pop()),
        };
        logits.map_or_else(|| Ok(Step::default()), |logits| self.add(text, &logits))
    }

    /// Makes room for another token. The last step of a text that is as long as it may be.
    pub(super) fn prepare(&self, text: &mut Text) -> Result<Option<Step>> {
        let is_full = text.tokens.len() - text.first > self.capacity;
        if text.generated() >= text.max_tokens || is_full && self.has_answers() {
            return text.ended(Finish::Length).map(Some);
        }
        if is_full {
            text.first = text.tokens.len() - self.capacity.div_ceil(2);
            text.filled = 0;
        }
        Ok(None)
    }

    /// Draws a token by its logits, and adds it.
    pub(super) fn add(&self, text: &mut Text, logits: &[f32]) -> Result<Step> {
        let number = (text.tokens.len() - text.known) as u64;
        let next = text.sampler.next(logits, &text.tokens[text.first..], (text.number, number));
        let next = next.context("the model's outputs are no numbers: its weights are broken")?;
        if self.ends.contains(&next) {
            return text.ended(Finish::End);
        }
        text.tokens.push(next);
        let new = text.decoder.push(next)?;
        let (piece, finish) = text.pending.add(&new);
        match finish {
            None if text.generated() >= text.max_tokens => {
                let last = text.ended(Finish::Length)?;
                Ok(Step { piece: piece + &last.piece, ..last })
            }
            finish => Ok(Step { piece, finish }),
        }
    }
}

impl Text {
    /// The last step: what was held back is certain now.
    fn ended(&mut self, finish: Finish) -> Result<Step> {
        let rest = self.decoder.finish()?;
        let piece = std::mem::take(&mut self.pending.text) + &rest;
        Ok(Step { piece, finish: Some(finish) })
    }
}

/// Text that may be the beginning of one that ends it.
struct Pending {
    text: String,
    stop: Vec<String>,
}

impl Pending {
    /// Adds text; what is certain, and whether it has ended.
    fn add(&mut self, text: &str) -> (String, Option<Finish>) {
        self.text.push_str(text);
        let found = self.stop.iter().filter_map(|stop| self.text.find(stop.as_str())).min();
        if let Some(at) = found {
            self.text.truncate(at);
            return (std::mem::take(&mut self.text), Some(Finish::Stop));
        }
        let begins = |at: &usize| self.stop.iter().any(|stop| stop.starts_with(&self.text[*at..]));
        let certain = self.text.char_indices().map(|(at, _)| at).find(begins).unwrap_or(self.text.len());
        let rest = self.text.split_off(certain);
        (std::mem::replace(&mut self.text, rest), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces that are handed out, and the end.
    fn pieces(stop: &[&str], texts: &[&str]) -> (Vec<String>, Option<Finish>) {
        let stop: Vec<String> = stop.iter().map(|stop| (*stop).to_owned()).collect();
        let mut pending = Pending { text: String::new(), stop };
        let mut out = Vec::new();
        for text in texts {
            let (piece, finish) = pending.add(text);
            out.extend(Some(piece).filter(|piece| !piece.is_empty()));
            if finish.is_some() {
                return (out, finish);
            }
        }
        (out, None)
    }

    #[test]
    fn text_is_held_back_that_may_end_it() {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(pieces(&[], &["a", "", "bc"]), (owned(&["a", "bc"]), None));
        assert_eq!(pieces(&["\n\n"], &["a\n", "b", "\n", "\nc"]), (owned(&["a", "\nb"]), Some(Finish::Stop)));
        assert_eq!(pieces(&["END", "N"], &["aE", "xEND"]), (owned(&["a", "Ex"]), Some(Finish::Stop)));
        assert_eq!(pieces(&["é!"], &["aé", "?é!"]), (owned(&["a", "é?"]), Some(Finish::Stop)));
    }
}
