//! A model that answers texts: the text is read once, and the answer is written token by token.
//!
//! Nothing is kept from one token of the answer to the next: each is computed from all before it, by the program for the first of the lengths of batches that
//! they fit into.

use super::{Generator, How, Options, Parts, fits};
use crate::api::failure::Failure;
use crate::api::model::{Model, build, device};
use crate::data::text::{Passage, Samples, TextCodec, Tokenizer, tokens_of_passage};
use crate::data::{ANSWERS, DataSpec, Field, INPUTS, LENGTHS, Lengths};
use crate::graph::DType;
use crate::model::{AT, BatchShape};
use crate::passes::PassOptions;
use crate::train::setup::kind::Kind;
use crate::train::setup::programs::Sizes;
use anyhow::{Context, Result};

/// What there is besides programs to answer texts.
#[derive(Debug, Clone)]
pub(super) struct Answers {
    /// The token that begins answers, and the one that ends them.
    pub start: u32,
    end: u32,
    /// Tokens of a text in a batch.
    longest_text: usize,
    /// Tokens of answers in batches, ascending.
    lengths: Vec<usize>,
    /// Texts that are answered together.
    pub batch: usize,
    /// The fields of a batch by their numbers: texts, their lengths, answers, and where the next tokens are.
    fields: [u32; 4],
}

impl Generator {
    /// Of a model that answers texts.
    pub(super) fn of_answers(
        model: &Model,
        sample: &DataSpec,
        codec: TextCodec,
        options: &Options,
    ) -> Result<Generator, Failure> {
        let Samples::Answered { lengths, start, end, .. } = codec.samples else {
            return Err(anyhow::anyhow!("the model writes no answers to texts").into());
        };
        let tokenizer = codec.tokenizer.context("the checkpoint has no tokenizer")?;
        let [longest_text, capacity] = lengths.last().copied().context("the checkpoint has no lengths")?;
        let mut of_answers: Vec<usize> = lengths.iter().map(|[_, answer]| *answer).collect();
        of_answers.dedup();
        let spec = with_places(sample);
        let number = |name: &str| spec.fields.iter().position(|field| field.name == name).unwrap_or_default() as u32;
        let fields = [INPUTS, LENGTHS, ANSWERS, AT].map(number);
        let backend = device(&model.loaded.experiment, options.threads)?;
        let passes = PassOptions::default();
        let mut batch = options.batch.max(1);
        loop {
            let of = |length: &usize| BatchShape { samples: batch, lengths: Lengths::both(longest_text, *length) };
            let answer = of_answers.iter().rev().map(of).collect();
            let sizes = Sizes { answer, ..Sizes::default() };
            let programs = build(&model.loaded, &spec, &sizes, backend.as_ref(), &passes)?;
            if !fits(model, (&programs, &spec), backend.as_ref(), options, batch == 1)? {
                batch = batch.div_ceil(2);
                continue;
            }
            let answers = Answers { start, end, longest_text, lengths: of_answers, batch, fields };
            let vocabulary = codec.vocabulary;
            let how = How::Answers(answers);
            let parts = Parts { tokenizer, chat: None, vocabulary, capacity, texts: 1, how, note: None };
            let generator = Generator::with(model, programs, &spec, backend, parts)?;
            return Ok(Generator { ends: vec![end], ..generator });
        }
    }

    /// The most probable answers to texts, whose tokens are given, and those of each answer: `max_tokens` at most.
    ///
    /// # Errors
    /// The device failed; the model's outputs are no numbers; it does not answer texts.
    pub fn answers(&mut self, texts: &[Vec<u32>], max_tokens: usize) -> Result<Vec<Vec<u32>>> {
        let How::Answers(own) = &self.how else { anyhow::bail!("the model does not answer texts") };
        let (start, batch, most) = (own.start, own.batch, max_tokens.min(self.capacity));
        let mut all = Vec::with_capacity(texts.len());
        for some in texts.chunks(batch) {
            self.read(&some.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
            let mut answers = vec![vec![start]; some.len()];
            let mut done = vec![false; some.len()];
            while done.contains(&false) && answers.iter().any(|answer| answer.len() <= most) {
                let rows = self.next(&answers.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
                for ((answer, done), row) in answers.iter_mut().zip(&mut done).zip(rows) {
                    let broken = "the model's outputs are no numbers: its weights are broken";
                    let best = largest(&row).context(broken)?;
                    match *done {
                        true => {}
                        false if self.ends.contains(&best) => *done = true,
                        false => answer.push(best),
                    }
                    *done |= answer.len() > most;
                }
            }
            all.extend(answers.into_iter().map(|answer| answer[1..].to_vec()));
        }
        Ok(all)
    }

    /// The tokens that end a text.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// Texts that are answered together.
    pub fn together(&self) -> usize {
        match &self.how {
            How::Answers(own) => own.batch,
            How::Anew | How::Cached { .. } => 1,
        }
    }

    /// The tokens of a text that is to be answered.
    ///
    /// # Errors
    /// It has a character that has no token, which `called` names.
    pub fn text(&self, text: &str, called: &str) -> Result<Vec<u32>> {
        super::text(&self.tokenizer, self.longest_text().unwrap_or(self.capacity), text, called)
    }

    /// Most tokens of a text that is answered; `None`: texts are gone on with.
    pub fn longest_text(&self) -> Option<usize> {
        match &self.how {
            How::Answers(own) => Some(own.longest_text),
            How::Anew | How::Cached { .. } => None,
        }
    }

    /// Reads texts, whose answers are written next.
    pub(super) fn read(&mut self, texts: &[&[u32]]) -> Result<()> {
        let How::Answers(own) = &self.how else { return Ok(()) };
        let [inputs, lengths, ..] = own.fields;
        let (width, shape) = (own.longest_text, own.shape(self.capacity));
        // A row without a text has a token, too: nothing of it is looked at.
        let lists: Vec<u32> =
            (0..shape.samples).map(|row| texts.get(row).map_or(1, |text| text.len() as u32)).collect();
        let mut tokens = vec![0; shape.samples * width];
        for (row, text) in tokens.chunks_mut(width).zip(texts) {
            row.iter_mut().zip(*text).for_each(|(to, token)| *to = *token);
        }
        self.put(inputs, &tokens);
        self.put(lengths, &lists);
        self.session.run_silently(Kind::Encode, shape, &self.buffer)
    }

    /// The logits of the tokens behind these, for each of the texts that were read.
    pub(super) fn next(&mut self, answers: &[&[u32]]) -> Result<Vec<Vec<f32>>> {
        let How::Answers(own) = &self.how else { anyhow::bail!("the model does not answer texts") };
        let [_, _, field, at] = own.fields;
        let (start, end) = (own.start, own.end);
        let longest = answers.iter().map(|answer| answer.len()).max().unwrap_or(1);
        let width = own.lengths.iter().copied().find(|length| longest <= *length).unwrap_or(self.capacity);
        let shape = own.shape(width);
        let mut tokens = vec![0; shape.samples * width];
        let mut places: Vec<u32> = (0..shape.samples).map(|row| (row * width) as u32).collect();
        for ((row, place), answer) in tokens.chunks_mut(width).zip(&mut places).zip(answers) {
            row.iter_mut().zip(*answer).for_each(|(to, token)| *to = *token);
            *place += answer.len().clamp(1, width) as u32 - 1;
        }
        self.put(field, &tokens);
        self.put(at, &places);
        self.session.run_again(Kind::Decode, shape, &self.buffer, &mut self.bytes)?;
        let rows = self.bytes.as_chunks().0.chunks_exact(self.outputs).take(answers.len());
        let row = |row: &[[u8; 4]]| {
            let mut row: Vec<f32> = row[..self.vocabulary].iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect();
            // It stands at the beginning alone.
            if let Some(logit) = row.get_mut(start as usize).filter(|logit| start != end && !logit.is_nan()) {
                *logit = f32::NEG_INFINITY;
            }
            row
        };
        Ok(rows.map(row).collect())
    }
}

impl Answers {
    fn shape(&self, length: usize) -> BatchShape {
        BatchShape { samples: self.batch, lengths: Lengths::both(self.longest_text, length) }
    }
}

/// The tokens of a text that is to be answered, `longest` at most.
///
/// # Errors
/// It has a character that has no token, which `called` names.
pub fn text(tokenizer: &Tokenizer, longest: usize, text: &str, called: &str) -> Result<Vec<u32>> {
    let passage = Passage::from(text.to_owned());
    Ok(tokens_of_passage(tokenizer, longest, &passage, called)?.tokens)
}

/// The place of the largest logit, the first of equals; `None`, if one is no number.
fn largest(row: &[f32]) -> Option<u32> {
    let best = (1..row.len()).fold(0, |best, at| if row[at] > row[best] { at } else { best });
    (!row.iter().any(|logit| logit.is_nan())).then_some(best as u32)
}

/// The samples with a field that says at which position the next token is wanted.
fn with_places(sample: &DataSpec) -> DataSpec {
    let mut fields = sample.fields.clone();
    let targets = fields.iter().position(Field::is_target).unwrap_or(fields.len());
    fields.insert(targets, Field::numbers(AT, DType::I32, []));
    DataSpec { fields, ..sample.clone() }
}
