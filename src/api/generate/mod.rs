//! A language model that goes on with a text, token by token.

mod sampler;

pub use sampler::{Sampler, Sampling};

use super::failure::Failure;
use super::memory::Planned;
use super::model::{Model, build, device};
use crate::backend::{Backend, HostBuffer};
use crate::data::text::{Decoder, Samples, TextCodec, Tokenizer};
use crate::data::{DataSpec, Field, FieldKind, Footprint, INPUTS, Lengths};
use crate::graph::{DType, Input};
use crate::model::{BatchShape, POSITIONS, START};
use crate::passes::PassOptions;
use crate::plan::SlotLayout;
use crate::train::setup::input::text_without_reading;
use crate::train::setup::kind::Kind;
use crate::train::setup::memory::{Needs, Use};
use crate::train::setup::programs::{self, Programs, Sizes};
use crate::train::setup::session::Session;
use anyhow::{Context, Result, ensure};
use std::ops::ControlFlow;

/// Tokens of a prompt that are computed at a time, with a cache.
const CHUNK: usize = 64;
/// Tokens that end a text, where the tokenizer has one of these names.
const ENDS: [&str; 6] = ["<|endoftext|>", "</s>", "<eos>", "<|im_end|>", "<|end_of_text|>", "<|eot_id|>"];

/// How a model is opened to generate.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Compute threads of the CPU; all cores, if `None`.
    pub threads: Option<usize>,
    /// Every token is computed from the whole text before it, not from what is kept of that.
    pub without_cache: bool,
}

/// What is to be generated.
#[derive(Debug, Clone)]
pub struct Request {
    /// The tokens to go on from.
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

/// A language model on a device.
pub struct Generator {
    session: Session,
    layout: SlotLayout,
    buffer: HostBuffer,
    tokenizer: Tokenizer,
    vocabulary: usize,
    /// Logits that it puts out.
    outputs: usize,
    /// The most tokens that attention sees at a position, with the position's own.
    capacity: usize,
    cache: Option<Cache>,
    ends: Vec<u32>,
    bytes: Vec<u8>,
    /// Why there is no cache, if one was wanted.
    note: Option<String>,
    /// What the device computes with.
    _backend: Box<dyn Backend>,
}

/// What is computed of the text so far.
struct Cache {
    /// Tokens of a prompt that are computed at a time.
    chunk: usize,
    /// Tokens whose keys and values are kept.
    filled: usize,
}

impl Generator {
    /// Of a model that is read.
    ///
    /// # Errors
    /// It is no language model; there is not enough memory; the weights do not fit.
    pub fn new(model: &Model, options: &Options) -> Result<Generator, Failure> {
        let sample = match model.checkpoint {
            Some(_) => model.sample()?,
            None => text_without_reading(&model.loaded.experiment)?.map_or_else(|| model.sample(), Ok)?,
        };
        let codec = TextCodec::of(&sample)?;
        let windows = |codec: &TextCodec| match codec.samples {
            Samples::Windows { context } => Some(context),
            Samples::Labelled { .. } => None,
        };
        let Some((codec, capacity)) = codec.and_then(|codec| windows(&codec).map(|context| (codec, context))) else {
            return Err(Failure::Usage(
                "the model is no language model: `generate` goes on with a text, and this one was trained on other data\nhelp: `runner predict` applies it to files".into(),
            ));
        };
        let Some(tokenizer) = codec.tokenizer.clone() else {
            return Err(Failure::Usage(
                "the checkpoint has no tokenizer, so that it cannot read or write text\nhelp: name the one that its tokens were made with, \
                 with `--set data.tokenizer=…/tokenizer.json`, or train with it in `[data]`"
                    .into(),
            ));
        };
        let backend = device(&model.loaded.experiment, options.threads)?;
        let mut note = None;
        let mut planned = None;
        if !options.without_cache {
            let chunk = CHUNK.min(capacity);
            let lengths = if chunk > 1 { vec![chunk, 1] } else { vec![1] };
            let of = |length| BatchShape { samples: 1, lengths: Lengths::first(length) };
            let sizes = Sizes { generate: lengths.into_iter().map(of).collect(), ..Sizes::default() };
            let spec = going_on(&sample, capacity);
            match programs::build(&model.loaded.experiment, &spec, &sizes, backend.as_ref(), &PassOptions::default()) {
                Ok(programs) => planned = Some((programs, spec, Some(Cache { chunk, filled: 0 }))),
                Err(diagnostics) => {
                    let why = diagnostics.first().map(|d| d.message.clone()).unwrap_or_default();
                    note = Some(format!("{why}: every token is computed from the whole text before it"));
                }
            }
        }
        let (programs, spec, cache) = match planned {
            Some(planned) => planned,
            None => {
                let sizes = Sizes { predict: vec![1.into()], ..Sizes::default() };
                let passes = PassOptions::default();
                (build(&model.loaded, &sample, &sizes, backend.as_ref(), &passes)?, sample.clone(), None)
            }
        };
        Planned {
            loaded: &model.loaded,
            data: &spec,
            plan: &programs.plan,
            backend: backend.as_ref(),
            what: Use::Prediction,
            needs: Needs::of_prediction(1, Footprint::default()),
            passes: &PassOptions::default(),
        }
        .require()?;
        Generator::with(model, programs, &spec, backend, (tokenizer, capacity, cache, note))
    }

    fn with(
        model: &Model,
        programs: Programs,
        spec: &DataSpec,
        backend: Box<dyn Backend>,
        (tokenizer, capacity, cache, note): (Tokenizer, usize, Option<Cache>, Option<String>),
    ) -> Result<Generator, Failure> {
        let layout = programs.plan.slot.clone();
        let predicted = programs.plan.programs.first().and_then(|p| Some(p.graph.shape(p.prediction?).last()));
        // A model may have places for more tokens than the tokenizer has: they mean nothing.
        let outputs = predicted.context("the program predicts nothing")?;
        let vocabulary = outputs.min(tokenizer.vocabulary());
        let buffer = backend.host_buffer(layout.bytes)?;
        let session = model.session(programs, spec, backend.as_ref())?;
        let ends = ENDS.iter().filter_map(|name| tokenizer.token(name)).collect();
        let bytes = Vec::new();
        let _backend = backend;
        Ok(Generator {
            session,
            layout,
            buffer,
            tokenizer,
            vocabulary,
            outputs,
            capacity,
            cache,
            ends,
            bytes,
            note,
            _backend,
        })
    }

    /// How text becomes tokens.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Why nothing is kept from one token to the next, though it should be.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// The tokens of a prompt; of one without a text, what a text begins with: the token that ends texts, or a new line.
    ///
    /// # Errors
    /// It has a character that has no token.
    pub fn prompt(&self, text: &str) -> Result<Vec<u32>> {
        if !text.is_empty() {
            return self.tokenizer.encode(text, "the prompt");
        }
        let end = self.ends.first().map(|end| vec![*end]);
        Ok(end.or_else(|| self.tokenizer.encode("\n", "").ok().filter(|tokens| !tokens.is_empty())).unwrap_or(vec![0]))
    }

    /// Generates a text, and hands each piece of it to `take` as soon as it is certain. The tokens, and why there are no more.
    ///
    /// A model looks back at `context` tokens at most. When these are full, the first half of them is forgotten.
    ///
    /// # Errors
    /// The device failed; the model's outputs are no numbers.
    pub fn generate(
        &mut self,
        request: &Request,
        take: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<(Vec<u32>, Finish)> {
        ensure!(!request.prompt.is_empty(), "a text has to begin with something");
        for token in &request.prompt {
            ensure!(
                (*token as usize) < self.vocabulary,
                "token {token} is none of the {} of the model",
                self.vocabulary
            );
        }
        let mut sampler = Sampler::new(request.sampling.clone(), self.vocabulary);
        let mut tokens = request.prompt.clone();
        let mut decoder = Decoder::new(self.tokenizer.clone());
        let mut pending = Pending { text: String::new(), stop: &request.stop };
        // Where the part of the text begins that the model sees.
        let mut first = tokens.len().saturating_sub(self.capacity);
        self.forget();
        let known = request.prompt.len();
        let finish = loop {
            if tokens.len() - known >= request.max_tokens {
                break Finish::Length;
            }
            if tokens.len() - first > self.capacity {
                first = tokens.len() - self.capacity.div_ceil(2);
                self.forget();
            }
            let logits = self.logits(&tokens[first..])?;
            let number = (tokens.len() - known) as u64;
            let next = sampler.next(&logits, &tokens[first..], (request.text, number));
            let next = next.context("the model's outputs are no numbers: its weights are broken")?;
            if self.ends.contains(&next) {
                break Finish::End;
            }
            tokens.push(next);
            let text = decoder.push(next)?;
            match pending.add(&text, take) {
                Some(finish) => break finish,
                None => continue,
            }
        };
        if matches!(finish, Finish::Length | Finish::End) {
            pending.text.push_str(&decoder.finish()?);
            if !pending.text.is_empty() {
                let _ = take(&pending.text);
            }
        }
        Ok((tokens.split_off(known), finish))
    }

    fn forget(&mut self) {
        if let Some(cache) = &mut self.cache {
            cache.filled = 0;
        }
    }

    /// The logits of the token behind these.
    fn logits(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        match &mut self.cache {
            None => {
                self.put(0, tokens);
                self.run(Kind::Predict, 1.into(), tokens.len() - 1)
            }
            Some(cache) => {
                let (chunk, filled) = (cache.chunk, cache.filled);
                self.add(tokens, filled, chunk)
            }
        }
    }

    /// Computes what is not kept yet of `tokens`, of which `filled` are; the logits of the token behind.
    fn add(&mut self, tokens: &[u32], mut filled: usize, chunk: usize) -> Result<Vec<f32>> {
        loop {
            let left = tokens.len() - filled;
            // What lies behind the last token is written over later.
            let length = if left > 1 && filled + chunk <= self.capacity { chunk } else { 1 };
            let count = left.min(length);
            let mut some = tokens[filled..filled + count].to_vec();
            some.resize(length, 0);
            let positions: Vec<u32> = (filled..filled + length).map(|at| at as u32).collect();
            self.put(0, &some);
            self.put(1, &positions);
            self.put(2, &[filled as u32]);
            let shape = BatchShape { samples: 1, lengths: Lengths::first(length) };
            filled += count;
            let logits = self.run(Kind::Generate, shape, count - 1)?;
            if let Some(cache) = &mut self.cache {
                cache.filled = filled;
            }
            if filled == tokens.len() {
                return Ok(logits);
            }
        }
    }

    /// Writes the beginning of a field of the batch.
    fn put(&mut self, field: u32, numbers: &[u32]) {
        // One that the model does not look at has no place.
        let Some(place) = self.layout.find(Input::Field(field)) else { return };
        let bytes = self.buffer.bytes_mut()[place.offset..].as_chunks_mut().0;
        bytes.iter_mut().zip(numbers).for_each(|(bytes, number)| *bytes = (*number as i32).to_ne_bytes());
    }

    /// Runs a program; the logits of the row `row`.
    fn run(&mut self, kind: Kind, shape: BatchShape, row: usize) -> Result<Vec<f32>> {
        self.session.run_again(kind, shape, &self.buffer, &mut self.bytes)?;
        let row = &self.bytes.as_chunks().0[row * self.outputs..][..self.vocabulary];
        Ok(row.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect())
    }
}

/// Batches of tokens that follow others, with room for `capacity` of them in all.
fn going_on(sample: &DataSpec, capacity: usize) -> DataSpec {
    let tokens = sample.inputs().next().map(|(_, field)| field.kind.clone()).unwrap_or(FieldKind::Number);
    let number = |name: &str, shape: &[usize]| Field::numbers(name, DType::I32, shape);
    let fields = vec![
        Field { kind: tokens, ..number(INPUTS, &[capacity]).of_any_length(0, 0) },
        number(POSITIONS, &[capacity]).of_any_length(0, 0),
        number(START, &[]),
    ];
    let targets = sample.target().map(|(_, field)| field.clone().of_any_length(0, 0));
    DataSpec { fields: fields.into_iter().chain(targets).collect(), ..sample.clone() }
}

/// Text that may be the beginning of one that ends it.
struct Pending<'a> {
    text: String,
    stop: &'a [String],
}

impl Pending<'_> {
    /// Adds text, and hands out what is certain.
    fn add(&mut self, text: &str, take: &mut dyn FnMut(&str) -> ControlFlow<()>) -> Option<Finish> {
        self.text.push_str(text);
        let found = self.stop.iter().filter_map(|stop| self.text.find(stop.as_str())).min();
        if let Some(at) = found {
            if at > 0 {
                let _ = take(&self.text[..at]);
            }
            return Some(Finish::Stop);
        }
        let begins = |at: &usize| self.stop.iter().any(|stop| stop.starts_with(&self.text[*at..]));
        let certain = self.text.char_indices().map(|(at, _)| at).find(begins).unwrap_or(self.text.len());
        if certain == 0 {
            return None;
        }
        let rest = self.text.split_off(certain);
        let out = std::mem::replace(&mut self.text, rest);
        take(&out).is_break().then_some(Finish::Cancelled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pieces that are handed out, and the end.
    fn pieces(stop: &[&str], texts: &[&str]) -> (Vec<String>, Option<Finish>) {
        let stop: Vec<String> = stop.iter().map(|stop| (*stop).to_owned()).collect();
        let mut pending = Pending { text: String::new(), stop: &stop };
        let mut out = Vec::new();
        let mut take = |text: &str| {
            out.push(text.to_owned());
            ControlFlow::Continue(())
        };
        let finish = texts.iter().find_map(|text| pending.add(text, &mut take));
        (out, finish)
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
