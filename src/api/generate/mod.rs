//! A language model that goes on with a text, token by token.

mod answers;
mod beams;
mod kept;
mod language;
mod prompting;
mod together;
mod written;

pub use crate::data::text::prompt;
pub use crate::model::{Sampler, Sampling};
use answers::Answers;
pub use answers::text;
pub use beams::{Beams, Found};
pub use kept::{Kept, kept};
pub use language::language_of;
pub use prompting::longest;
pub use together::{End, Take};
pub use written::{Finish, Request, Step, Text};

use super::failure::Failure;
use super::memory::Planned;
use super::model::{Model, build, device};
use super::predictor::lacking;
use crate::backend::{Backend, DeviceError, HostBuffer};
use crate::data::text::{Chat, Prompts, Tokenizer};
use crate::data::{DataSpec, Field, FieldKind, Footprint, INPUTS, LENGTHS, Lengths};
use crate::graph::DType;
use crate::model::{BatchShape, PARENTS, POSITIONS, START, STARTS, TURN, keeps_states};
use crate::passes::PassOptions;
use crate::plan::SlotLayout;
use crate::train::setup::kind::Kind;
use crate::train::setup::memory::{Needs, Use};
use crate::train::setup::programs::{self, Programs, Sizes};
use crate::train::setup::session::{Session, put_numbers};
use anyhow::{Context, Result};

/// Tokens of a prompt that are computed at a time, with a cache.
const CHUNK: usize = 64;

/// Where texts start whose turn it is not: so far before the first position that they have none.
const NOWHERE: u32 = i32::MIN as u32;

/// Texts that are written at a time, if there are so many: with more rows than these the CPU's products are others, but for rounding.
pub const AT_A_TIME: usize = 8;

/// How a model is opened to generate.
#[derive(Debug, Clone)]
pub struct Options {
    /// Compute threads of the CPU; all cores, if `None`.
    pub threads: Option<usize>,
    /// Every token is computed from the whole text before it, not from what is kept of that.
    pub without_cache: bool,
    /// Texts that are written at a time, each with keys and values of its own. Where there is no room for them they are fewer.
    pub texts: usize,
    /// Texts that are answered together, by a model that answers texts. Where there is no room for them they are fewer.
    pub batch: usize,
    /// Texts are looked for by beam search; `None`: they are written token by token.
    pub beams: Option<Beams>,
    /// Tokens that a text has at most, with its prompt, where that is known. It keeps no more.
    pub longest: Option<usize>,
    /// How many times the model is opened like this: there has to be room for all.
    pub copies: usize,
    /// Bytes that are needed besides.
    pub held: usize,
}

impl Default for Options {
    /// One text at a time on all cores.
    fn default() -> Self {
        let (threads, beams, longest) = (None, None, None);
        Options { threads, without_cache: false, texts: 1, batch: 1, beams, longest, copies: 1, held: 0 }
    }
}

/// Rows of a batch for each text.
fn rows(beams: Option<Beams>) -> usize {
    beams.map_or(1, |beams| beams.count.max(1))
}

/// A language model on a device.
pub struct Generator {
    session: Session,
    layout: SlotLayout,
    buffer: HostBuffer,
    tokenizer: Tokenizer,
    chat: Option<Chat>,
    /// What stands around texts that it answers by going on with a prompt, and the token that ends answers.
    prompts: Option<(Prompts, u32)>,
    vocabulary: usize,
    /// Logits that it puts out.
    outputs: usize,
    /// The most tokens that attention sees at a position, with the position's own.
    capacity: usize,
    /// Tokens of a sample, of a model that computes all of them anew.
    context: usize,
    /// The field with their number, if samples are of several lengths.
    lengths: Option<u32>,
    /// Texts that may be written at a time.
    texts: usize,
    beams: Option<Beams>,
    /// Of beam search: the row that each row of the next run goes on from.
    parents: Vec<u32>,
    how: How,
    /// The tokens that texts begin with, and those of which each ends one.
    begin: Vec<u32>,
    ends: Vec<u32>,
    bytes: Vec<u8>,
    /// Why there is no cache, if one was wanted.
    note: Option<String>,
    /// What the device computes with.
    _backend: Box<dyn Backend>,
}

/// How the next token is computed.
#[derive(Debug, Clone)]
enum How {
    /// From the whole text before it.
    Anew,
    /// What is computed of the texts so far is kept.
    Cached {
        /// Tokens of a prompt that are computed at a time.
        chunk: usize,
        /// A piece of a prompt has so many, and what is left is computed token by token: a state that is kept has seen all of a piece.
        whole: bool,
    },
    /// As that of an answer to a text.
    Answers(Answers),
}

/// What a generator is made of besides programs: as its fields are.
struct Parts {
    tokenizer: Tokenizer,
    chat: Option<Chat>,
    prompts: Option<(Prompts, u32)>,
    begin: Vec<u32>,
    ends: Vec<u32>,
    /// Tokens that there may be.
    vocabulary: usize,
    capacity: usize,
    texts: usize,
    beams: Option<Beams>,
    how: How,
    note: Option<String>,
}

impl Generator {
    /// Of a model that is read.
    ///
    /// # Errors
    /// It is no language model; there is not enough memory; the weights do not fit.
    pub fn new(model: &Model, options: &Options) -> Result<Generator, Failure> {
        let Some((sample, codec, capacity)) = language_of(model)? else {
            return Err(Failure::Usage(
                "the model is no language model: `generate` goes on with a text, and this one was trained on other data\nhelp: `runner predict` applies it to files".into(),
            ));
        };
        if codec.has_answers() {
            return Generator::of_answers(model, &sample, codec, options);
        }
        let (prompts, ends) = (codec.prompts_and_end(), codec.ends());
        let (chat, begin) = (codec.chat, codec.begin);
        let Some(tokenizer) = codec.tokenizer else {
            return Err(Failure::Usage(
                "the checkpoint has no tokenizer, so that it cannot read or write text\nhelp: name the one that its tokens were made with, \
                 with `--set data.tokenizer=…/tokenizer.json`, or train with it in `[data]`"
                    .into(),
            ));
        };
        let backend = device(&model.loaded.experiment, options.threads)?;
        let passes = PassOptions::default();
        // The token that ends answers may stand after those of the tokenizer.
        let ended = prompts.as_ref().map_or(0, |(_, end)| *end as usize + 1);
        let vocabulary = tokenizer.vocabulary().max(ended);
        let (mut note, mut texts, rows) = (None, options.texts.max(1), rows(options.beams));
        let (beams, capacity) =
            (options.beams, options.longest.map_or(capacity, |longest| capacity.min(longest.max(1))));
        loop {
            if options.without_cache {
                break;
            }
            let chunk = CHUNK.min(capacity);
            let lengths = if chunk > 1 { vec![chunk, 1] } else { vec![1] };
            let of = |samples, length| BatchShape { samples, lengths: Lengths::first(length) };
            let shapes = lengths.into_iter().map(|length| of(rows, length));
            let mut sizes = Sizes { generate: shapes.collect(), ..Sizes::default() };
            let spec = going_on(&sample, capacity, texts, beams.is_some());
            let built =
                |sizes: &Sizes| programs::build(&model.loaded.experiment, &spec, sizes, backend.as_ref(), &passes);
            let mut whole = false;
            let programs = built(&sizes).and_then(|programs| {
                whole = keeps_states(&programs.plan.variables);
                if texts == 1 || whole {
                    return Ok(programs);
                }
                sizes.generate.push(of(texts, 1));
                built(&sizes)
            });
            match programs {
                Ok(programs) => {
                    if fits(model, (&programs, &spec), backend.as_ref(), options, texts == 1)? {
                        let how = How::Cached { chunk, whole };
                        let parts = Parts {
                            tokenizer,
                            chat,
                            prompts,
                            begin,
                            ends,
                            vocabulary,
                            capacity,
                            texts,
                            beams,
                            how,
                            note,
                        };
                        return Generator::with(model, programs, &spec, backend, parts);
                    }
                    texts /= 2;
                }
                Err(diagnostics) => {
                    let why = diagnostics.first().map(|d| d.message.clone()).unwrap_or_default();
                    note = Some(format!("{why}: every token is computed from the whole text before it"));
                    break;
                }
            }
        }
        let sizes = Sizes { predict: vec![rows.into()], ..Sizes::default() };
        let programs = build(&model.loaded, &sample, &sizes, backend.as_ref(), &passes)?;
        fits(model, (&programs, &sample), backend.as_ref(), options, true)?;
        let how = How::Anew;
        let parts = Parts { tokenizer, chat, prompts, begin, ends, vocabulary, capacity, texts, beams, how, note };
        Generator::with(model, programs, &sample, backend, parts)
    }

    fn with(
        model: &Model,
        programs: Programs,
        spec: &DataSpec,
        backend: Box<dyn Backend>,
        parts: Parts,
    ) -> Result<Generator, Failure> {
        let Parts { tokenizer, chat, prompts, begin, ends, vocabulary, capacity, texts, beams, how, note } = parts;
        let in_batch = if let How::Answers(own) = &how { own.batch } else { rows(beams) };
        let parents = beams.map_or_else(Vec::new, |_| (0..in_batch as u32).collect());
        let layout = programs.plan.slot.clone();
        let context = spec.inputs().next().map_or(1, |(_, field)| field.shape.len());
        let predicted = programs.plan.programs.iter().find_map(|p| Some(p.graph.shape(p.prediction?).last()));
        // A model may have places for more tokens than the tokenizer has: they mean nothing.
        let outputs = predicted.context("the program predicts nothing")?;
        let vocabulary = outputs.min(vocabulary);
        let buffer = backend.host_buffer(layout.bytes)?;
        let session = model.session(programs, spec, backend.as_ref())?;
        let lengths = spec.fields.iter().position(|field| field.name == LENGTHS).map(|number| number as u32);
        let bytes = Vec::new();
        let _backend = backend;
        Ok(Generator {
            session,
            layout,
            buffer,
            tokenizer,
            chat,
            prompts,
            vocabulary,
            outputs,
            capacity,
            context,
            lengths,
            texts,
            beams,
            parents,
            how,
            begin,
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

    /// How conversations become text, if that is known.
    pub fn chat(&self) -> Option<&Chat> {
        self.chat.as_ref()
    }

    /// Texts that may be written at a time.
    pub fn texts(&self) -> usize {
        self.texts
    }

    /// The tokens that it may be given, and draws.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// The most tokens that it looks back.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// What is other than it was asked for: why nothing is kept from one token to the next, and that there is no memory for `texts` at a time.
    pub fn notes(&self, texts: usize) -> impl Iterator<Item = String> {
        // Answers in a sequence of their own have no part in that.
        let fewer = !self.has_answers() && self.texts < texts;
        let fewer = fewer.then(|| format!("there is memory for {} texts at a time, not {texts}", self.texts));
        self.note.clone().into_iter().chain(fewer)
    }

    /// What stands around texts that it answers by going on with a prompt, and the token that ends answers.
    pub fn prompts(&self) -> Option<&(Prompts, u32)> {
        self.prompts.as_ref()
    }

    /// The tokens of a prompt; of one without a text, what a text begins with: the token that ends texts, or a new line. That of a model that was trained on prompts and
    /// answers is put into one, unless it is `raw`.
    ///
    /// # Errors
    /// It has a character that has no token, which `called` names.
    pub fn prompt(&self, (text, called): (&str, &str), raw: bool) -> Result<Vec<u32>> {
        match self.answers_texts() && !raw {
            true => self.text(text, called),
            false => prompt(&self.tokenizer, [&self.begin, &self.ends], text, called),
        }
    }

    /// Whether it answers texts; else it goes on with them.
    pub fn answers_texts(&self) -> bool {
        self.has_answers() || self.prompts.is_some()
    }

    /// Whether it writes answers into a sequence of their own.
    pub fn has_answers(&self) -> bool {
        matches!(self.how, How::Answers(_))
    }

    /// The logits of the token after each of some texts of one length, of which `filled` tokens are computed; they are the text `turn`. `None`: another piece of
    /// the prompt is computed, and there is more of it.
    fn logits(&mut self, texts: &[&[u32]], filled: &mut usize, turn: usize) -> Result<Option<Vec<Vec<f32>>>> {
        let (rows, all) = (rows(self.beams), texts[0].len());
        let text = |row: usize| texts.get(row).unwrap_or(&texts[0]);
        let How::Cached { chunk, whole } = self.how else {
            let width = self.context;
            let mut tokens = vec![0; rows * width];
            for (row, tokens) in tokens.chunks_mut(width).enumerate() {
                tokens.iter_mut().zip(*text(row)).for_each(|(to, token)| *to = *token);
            }
            self.put(0, &tokens);
            if let Some(field) = self.lengths {
                self.put(field, &vec![all as u32; rows]);
            }
            return self.run(Kind::Predict, rows.into(), (width, all - 1)).map(Some);
        };
        let left = all - *filled;
        // What lies after the last token is written over later.
        let piece = left > 1 && *filled + chunk <= self.capacity && (!whole || left >= chunk);
        let length = if piece { chunk } else { 1 };
        let count = left.min(length);
        let (mut some, mut positions) = (Vec::new(), Vec::new());
        for row in 0..rows {
            some.extend_from_slice(&text(row)[*filled..*filled + count]);
            some.resize((row + 1) * length, 0);
            positions.extend((*filled..*filled + length).map(|at| at as u32));
        }
        let mut fields = vec![some, positions, vec![*filled as u32; rows]];
        if self.texts > 1 {
            let mut starts = vec![NOWHERE; self.texts];
            starts[turn] = *filled as u32;
            fields.extend([starts, vec![turn as u32]]);
        }
        if self.beams.is_some() {
            fields.push(self.take_parents());
        }
        (0..).zip(&fields).for_each(|(field, numbers)| self.put(field, numbers));
        let shape = BatchShape { samples: rows, lengths: Lengths::first(length) };
        *filled += count;
        let logits = self.run(Kind::Generate, shape, (length, count - 1))?;
        Ok((*filled == all).then_some(logits))
    }

    /// Says which row each row of the next run goes on from.
    fn come_from(&mut self, parents: &[u32]) {
        self.parents.iter_mut().zip(parents).for_each(|(own, parent)| *own = *parent);
    }

    /// The rows that the next run goes on from; each goes on from itself after that.
    fn take_parents(&mut self) -> Vec<u32> {
        let itself = (0..self.parents.len() as u32).collect();
        std::mem::replace(&mut self.parents, itself)
    }

    /// Writes the beginning of a field of the batch.
    fn put(&mut self, field: u32, numbers: &[u32]) {
        put_numbers(&self.layout, &mut self.buffer, field, numbers);
    }

    /// Runs a program; the logits at the position `at` of each of its rows, which have `width` positions.
    fn run(&mut self, kind: Kind, shape: BatchShape, (width, at): (usize, usize)) -> Result<Vec<Vec<f32>>> {
        self.session.run_again(kind, shape, &self.buffer, &mut self.bytes)?;
        let all = self.bytes.as_chunks().0;
        let row = |row: usize| {
            let row = &all[(row * width + at) * self.outputs..][..self.vocabulary];
            row.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect()
        };
        Ok((0..shape.samples).map(row).collect())
    }
}

/// Whether there is memory for such programs; an error, if there is not and they are the `last` that can be had.
fn fits(
    model: &Model,
    (programs, spec): (&Programs, &DataSpec),
    backend: &dyn Backend,
    options: &Options,
    last: bool,
) -> Result<bool, Failure> {
    let planned = Planned {
        loaded: &model.loaded,
        data: spec,
        plan: &programs.plan,
        backend,
        what: Use::Prediction,
        needs: Needs::of_prediction(1, Footprint { held: options.held, ..Footprint::default() }),
        passes: &PassOptions::default(),
    };
    match lacking(&planned.memory()?, options.copies) {
        Some(_) if !last => Ok(false),
        lacking => {
            planned.require()?;
            lacking.map_or(Ok(true), |text| Err(DeviceError(text).into()))
        }
    }
}

/// Batches of tokens that follow others, with room for `capacity` of them in all, of one of `texts` texts at a time, or of `beams`.
fn going_on(sample: &DataSpec, capacity: usize, texts: usize, beams: bool) -> DataSpec {
    let tokens = sample.inputs().next().map(|(_, field)| field.kind.clone()).unwrap_or(FieldKind::Number);
    let number = |name: &str, shape: &[usize]| Field::numbers(name, DType::I32, shape);
    let mut fields = vec![
        Field { kind: tokens, ..number(INPUTS, &[capacity]).of_any_length(0, 0) },
        number(POSITIONS, &[capacity]).of_any_length(0, 0),
        number(START, &[]),
    ];
    if texts > 1 {
        fields.extend([number(STARTS, &[texts]), number(TURN, &[])]);
    }
    fields.extend(beams.then(|| number(PARENTS, &[])));
    let targets = sample.target().map(|(_, field)| Field { lengths: Vec::new(), ..field.clone() }.of_any_length(0, 0));
    DataSpec { fields: fields.into_iter().chain(targets).collect(), ..sample.clone() }
}
