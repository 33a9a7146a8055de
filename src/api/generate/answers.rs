//! A model that answers texts: the text is read once, and the answer is written token by token.
//!
//! Where the layers allow it, keys and values of the answer so far are kept, and one token is computed at a time. Else each is computed from all before it, by the
//! program for the first of the lengths of batches that they fit into.

use super::{Finish, Generator, How, Options, Parts, Request, Sampling, fits, rows};
use crate::api::failure::Failure;
use crate::api::model::{Model, build, device};
use crate::data::text::{Passage, Samples, TextCodec, Tokenizer, tokens_of_passage};
use crate::data::{ANSWERS, DataSpec, Field, INPUTS, LENGTHS, Lengths};
use crate::graph::DType;
use crate::model::{AT, BatchShape, PARENTS, POSITIONS, START};
use crate::passes::PassOptions;
use crate::train::setup::kind::Kind;
use crate::train::setup::programs::{self, Sizes};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Takes the tokens of an answer. It returns whether more are wanted.
pub type TakeAnswer<'a> = dyn FnMut(&[u32]) -> Result<bool> + 'a;

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
    /// Rows of a batch: texts that are answered together, with all of their beams.
    pub batch: usize,
    /// The fields of a batch by their numbers: texts, their lengths, and answers.
    fields: [u32; 3],
    written: Written,
}

/// How the next token of an answer is computed.
#[derive(Debug, Clone)]
enum Written {
    /// From all before it.
    Anew {
        /// The field that says where the next tokens are.
        at: u32,
    },
    /// From what is kept of those before it.
    Kept {
        /// The fields with the positions of tokens, and with how many there are already.
        fields: [u32; 2],
        /// The field with the row that each row goes on from, of beam search.
        parents: Option<u32>,
        /// How many tokens of each answer are kept.
        kept: Vec<usize>,
    },
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
        let backend = device(&model.loaded.experiment, options.threads)?;
        let passes = PassOptions::default();
        let (rows, beams) = (rows(options.beams), options.beams);
        let mut batch = options.batch.max(1) * rows;
        let (mut keeps, mut note) = (!options.without_cache, None);
        loop {
            let spec = if keeps { going_on(sample, capacity, beams.is_some()) } else { with_places(sample) };
            let number = |name: &str| spec.fields.iter().position(|field| field.name == name).unwrap_or_default();
            let number = |name: &str| number(name) as u32;
            let of = |length: &usize| BatchShape { samples: batch, lengths: Lengths::both(longest_text, *length) };
            let answer = if keeps { vec![of(&1)] } else { of_answers.iter().rev().map(of).collect() };
            let sizes = Sizes { answer, ..Sizes::default() };
            let programs = match programs::build(&model.loaded.experiment, &spec, &sizes, backend.as_ref(), &passes) {
                Ok(programs) => programs,
                Err(diagnostics) if keeps => {
                    let why = diagnostics.first().map(|d| d.message.clone()).unwrap_or_default();
                    note = Some(format!("{why}: every token is computed from the whole answer before it"));
                    keeps = false;
                    continue;
                }
                Err(_) => build(&model.loaded, &spec, &sizes, backend.as_ref(), &passes)?,
            };
            if !fits(model, (&programs, &spec), backend.as_ref(), options, batch == rows)? {
                batch = (batch / rows).div_ceil(2) * rows;
                continue;
            }
            let written = match keeps {
                true => {
                    let parents = beams.map(|_| number(PARENTS));
                    Written::Kept { fields: [POSITIONS, START].map(number), parents, kept: vec![0; batch] }
                }
                false => Written::Anew { at: number(AT) },
            };
            let fields = [INPUTS, LENGTHS, ANSWERS].map(number);
            let answers = Answers { start, end, longest_text, lengths: of_answers, batch, fields, written };
            let vocabulary = codec.vocabulary;
            let how = How::Answers(answers);
            let (chat, prompts) = (None, None);
            let ends = vec![end];
            let parts = Parts {
                tokenizer,
                chat,
                prompts,
                begin: Vec::new(),
                ends,
                vocabulary,
                capacity,
                texts: 1,
                beams,
                how,
                note,
            };
            return Generator::with(model, programs, &spec, backend, parts);
        }
    }

    /// Writes the most probable answers to texts, several at a time. The texts are given by their tokens, and so are their answers, of `max_tokens` at most, which `take` gets in
    /// the order of the texts. It returns whether more are wanted.
    ///
    /// # Errors
    /// The device failed; the model's outputs are no numbers; it does not answer texts; `take` fails.
    pub fn answers(&mut self, texts: &[Vec<u32>], max_tokens: usize, take: &mut TakeAnswer<'_>) -> Result<()> {
        let together = match &self.how {
            How::Answers(own) => own.batch / rows(self.beams),
            How::Anew | How::Cached { .. } if self.beams.is_some() => 1,
            How::Anew | How::Cached { .. } => return self.go_on_with_each(texts, max_tokens, take),
        };
        for some in texts.chunks(together) {
            let some: Vec<&[u32]> = some.iter().map(Vec::as_slice).collect();
            let answers = match self.beams {
                Some(_) => {
                    let found = self.search_all(&some, max_tokens, 1.0, &|_| Ok(false), &|| true)?.unwrap_or_default();
                    found
                        .into_iter()
                        .map(|found| found.into_iter().next().map_or(Vec::new(), |best| best.tokens))
                        .collect()
                }
                None => self.answer_all(&some, max_tokens.min(self.capacity))?,
            };
            for answer in answers {
                if !take(&answer)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The most probable answers to texts that are read together, of `most` tokens at most.
    fn answer_all(&mut self, texts: &[&[u32]], most: usize) -> Result<Vec<Vec<u32>>> {
        let How::Answers(Answers { start, .. }) = self.how else { return Ok(Vec::new()) };
        self.read(texts)?;
        let mut answers = vec![vec![start]; texts.len()];
        let mut done = vec![false; texts.len()];
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
        Ok(answers.into_iter().map(|answer| answer[1..].to_vec()).collect())
    }

    /// The same of a model that goes on with prompts, as many at a time as there is room for: where an answer ends, the next one is begun.
    fn go_on_with_each(&mut self, prompts: &[Vec<u32>], max_tokens: usize, take: &mut TakeAnswer<'_>) -> Result<()> {
        let request = |prompt: &Vec<u32>| {
            let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
            Request { prompt: prompt.clone(), max_tokens, sampling, text: 0, stop: Vec::new() }
        };
        // An answer that has ended waits for those before it.
        let (mut waiting, mut next, mut goes_on) = (BTreeMap::new(), 0, Ok(true));
        self.write(prompts.iter().map(request), &mut |number, _, end| {
            let end = end.filter(|(finish, _)| *finish != Finish::Cancelled);
            waiting.extend(end.map(|(_, tokens)| (number, tokens)));
            while let (Ok(true), Some(tokens)) = (&goes_on, waiting.remove(&next)) {
                next += 1;
                goes_on = take(&tokens);
            }
            if let Ok(true) = goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        goes_on.map(drop)
    }

    /// The tokens that texts begin with, as the tokenizer puts them there.
    pub fn beginning(&self) -> &[u32] {
        &self.begin
    }

    /// The tokens that end a text.
    pub fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// The tokens of a text that is to be answered, or of its prompt.
    ///
    /// # Errors
    /// It has a character that has no token, which `called` names.
    pub fn text(&self, text: &str, called: &str) -> Result<Vec<u32>> {
        match &self.prompts {
            Some((prompts, end)) => prompts.tokens((&self.tokenizer, *end), text, called),
            None => super::text(&self.tokenizer, self.longest_text().unwrap_or(self.capacity), text, called),
        }
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
        let How::Answers(own) = &mut self.how else { return Ok(()) };
        let [inputs, lengths, _] = own.fields;
        let length = match &mut own.written {
            Written::Kept { kept, .. } => {
                kept.fill(0);
                1
            }
            Written::Anew { .. } => self.capacity,
        };
        let (width, shape) = (own.longest_text, own.shape(length));
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

    /// The logits of the tokens after these, for each of the texts that were read.
    pub(super) fn next(&mut self, answers: &[&[u32]]) -> Result<Vec<Vec<f32>>> {
        let How::Answers(own) = &self.how else { anyhow::bail!("the model does not answer texts") };
        let (start, end) = (own.start, own.end);
        match &own.written {
            Written::Anew { at } => self.anew(answers, *at)?,
            Written::Kept { .. } => self.going_on(answers)?,
        }
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

    /// Computes the tokens of answers that are not kept, one position of all answers at a time. An answer that has no more is given its last token again.
    fn going_on(&mut self, answers: &[&[u32]]) -> Result<()> {
        let How::Answers(Answers {
            fields: [_, _, field],
            written: Written::Kept { fields: [at, before], parents, kept },
            ..
        }) = &self.how
        else {
            return Ok(());
        };
        let (field, at, before, parents, mut kept) = (*field, *at, *before, *parents, kept.clone());
        let own_shape = BatchShape { samples: kept.len(), lengths: Lengths::both(self.longest_text().unwrap_or(1), 1) };
        loop {
            let place = |row: usize| kept[row].min(answers.get(row).map_or(1, |answer| answer.len()) - 1);
            let places: Vec<usize> = (0..kept.len()).map(place).collect();
            let token = |(row, place): (usize, &usize)| answers.get(row).map_or(0, |answer| answer[*place]);
            let tokens: Vec<u32> = places.iter().enumerate().map(token).collect();
            let numbers: Vec<u32> = places.iter().map(|place| *place as u32).collect();
            for (field, numbers) in [(field, &tokens), (at, &numbers), (before, &numbers)] {
                self.put(field, numbers);
            }
            if let Some(field) = parents {
                let rows = self.take_parents();
                self.put(field, &rows);
            }
            self.session.run_again(Kind::Decode, own_shape, &self.buffer, &mut self.bytes)?;
            kept.iter_mut().zip(&places).for_each(|(kept, place)| *kept = place + 1);
            if answers.iter().zip(&kept).all(|(answer, kept)| answer.len() <= *kept) {
                break;
            }
        }
        if let How::Answers(Answers { written: Written::Kept { kept: own, .. }, .. }) = &mut self.how {
            *own = kept;
        }
        Ok(())
    }

    /// Computes answers from their first token on.
    fn anew(&mut self, answers: &[&[u32]], at: u32) -> Result<()> {
        let How::Answers(own) = &self.how else { return Ok(()) };
        let [_, _, field] = own.fields;
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
        self.session.run_again(Kind::Decode, shape, &self.buffer, &mut self.bytes)
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

/// The samples with one token of an answer at a time, its position, and how many there are already; of `beams` with the row that each goes on from.
fn going_on(sample: &DataSpec, capacity: usize, beams: bool) -> DataSpec {
    let mut fields = sample.fields.clone();
    let targets = fields.iter().position(Field::is_target).unwrap_or(fields.len());
    let positions = Field::numbers(POSITIONS, DType::I32, [capacity]).of_any_length(0, 1);
    let number = |name: &str| Field::numbers(name, DType::I32, []);
    let parents = beams.then(|| number(PARENTS));
    fields.splice(targets..targets, [positions, number(START)].into_iter().chain(parents));
    DataSpec { fields, ..sample.clone() }
}

/// The samples with a field that says at which position the next token is wanted.
fn with_places(sample: &DataSpec) -> DataSpec {
    let mut fields = sample.fields.clone();
    let targets = fields.iter().position(Field::is_target).unwrap_or(fields.len());
    fields.insert(targets, Field::numbers(AT, DType::I32, []));
    DataSpec { fields, ..sample.clone() }
}
