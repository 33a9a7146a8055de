//! Text: one long row of tokens, of which a model learns to predict each from those before it.
//!
//! [`Tokenizer`] makes tokens of text, `tokens` keeps them in memory or reads them from a file as they are asked for, and `windows` cuts samples out of them, `apart` those that keep documents apart. `labelled` has texts that
//! are samples themselves, each of a class. The tokenizer travels in the checkpoint ([`TextCodec`]).

mod answered;
mod apart;
mod chat;
mod documents;
mod dumps;
mod given;
mod jinja;
mod labelled;
mod load;
mod loaded;
mod no_text;
mod options;
mod prompted;
mod prompts;
mod python;
mod sentences;
mod spans;
mod stretches;
mod tagged;
mod text_files;
mod tokenize;
mod tokens;
mod windows;

pub use answered::AnsweredOptions;
pub use chat::{BESIDE, Chat, Message};
pub use documents::WrongColumn;
pub use given::{STANDARD_INPUT, as_samples, passage, passage_bytes, read_given, read_passages};
pub use labelled::LabelledOptions;
pub use options::{ApartOptions, Content, End, TextOptions};
pub use prompted::PromptedOptions;
pub use prompts::{ENDS, Prompts, parted, prompt};
pub use sentences::{Layout, Sentence};
pub use spans::{Span, Spans};
pub use tagged::{Placed, TaggedOptions, read_sentences, sentence_bytes};
pub use text_files::MARK;
pub use tokenize::{Texts, Tokenizing};

pub use super::tokenizer::{Choice, Decoder, Passage, Tokenizer, tokens_of as tokens_of_passage};

use super::dataset::Dataset;
use super::field::{DataSpec, Field, FieldKind, Lengths};
use super::found::Found;
use super::progress::Event;
use super::store::{Column, Key, Rows};
use super::{Describes, Footprint, Split};
use crate::files;
use anyhow::{Context, Result, bail, ensure};
use load::{Loaded, load};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

static FOUND: Found<TextOptions, Loaded> = Found::new();

impl Describes for &TextOptions {
    fn describe(&self) -> Result<DataSpec> {
        let fitted = self.fitted.as_ref().map(|codec| codec.vocabulary);
        if let Content::Tokens { vocabulary, .. } = self.content
            && let Some(vocabulary) = vocabulary.or(fitted)
            && !files::is_there(&self.path)
        {
            // What the model depends on is known without the file.
            return Ok(DataSpec::new(load::samples(self, None, vocabulary)?.fields(vocabulary)));
        }
        FOUND.look(self, || load(self), |loaded| loaded.spec.clone())
    }

    fn open(&self, _: &mut dyn FnMut(Event)) -> Result<Dataset> {
        let Loaded { spec, train, val, notes, .. } = FOUND.look(self, || load(self), Loaded::clone)?;
        Ok(Dataset { notes, ..Dataset::new(spec, train, val) })
    }

    fn footprint(&self) -> Footprint {
        let bytes = |loaded: &Loaded| Footprint { held: loaded.held, reading: loaded.reading, ..Footprint::default() };
        FOUND.look(self, || load(self), bytes).unwrap_or_default()
    }
}

/// The tokens of a sample, without what fills a batch.
///
/// # Errors
/// It cannot be read, or is none of tokens.
pub fn tokens_of(split: &Split, sample: usize) -> Result<Vec<u32>> {
    let [tokens, others @ ..] = split.fields() else { bail!("the samples have no fields") };
    ensure!(matches!(tokens.kind, FieldKind::Tokens(_)), "the samples are no tokens");
    let mut numbers = whole_numbers(split, sample, 0)?;
    if let Some(length) = others.iter().position(|field| field.kind == FieldKind::Length) {
        let length = whole_numbers(split, sample, length + 1)?[0];
        numbers.truncate(length as usize);
    }
    Ok(numbers.into_iter().map(|number| number as u32).collect())
}

/// The targets of a sample, in their order.
///
/// # Errors
/// It cannot be read, or has no targets.
pub fn answer_of(split: &Split, sample: usize) -> Result<Vec<u32>> {
    let target = split.fields().iter().position(Field::is_target).context("the samples have no targets")?;
    let numbers = whole_numbers(split, sample, target)?;
    // What fills it is no token.
    Ok(numbers.into_iter().map_while(|number| u32::try_from(number).ok()).collect())
}

/// The tokens of a sample's prompt, and the targets after it, where those that are `ignored` do not count.
///
/// # Errors
/// It cannot be read, or has no such targets.
pub fn prompt_and_answer(split: &Split, sample: usize, ignored: i32) -> Result<(Vec<u32>, Vec<u32>)> {
    let given = tokens_of(split, sample)?;
    let target = split.fields().iter().position(Field::is_target).context("the samples have no targets")?;
    let targets: Vec<u32> = whole_numbers(split, sample, target)?.into_iter().map(|number| number as u32).collect();
    let (prompt, answer) = parted(&given, &targets, ignored as u32)?;
    Ok((prompt.to_vec(), answer.to_vec()))
}

/// What samples of a text are; its tokenizer is not read. `None`: the data is none, or from a checkpoint that is broken.
pub fn samples_of(fitted: Option<&Value>) -> Option<Samples> {
    Samples::deserialize(fitted?.get("samples")?).ok()
}

/// A field of whole numbers of a sample.
fn whole_numbers(split: &Split, sample: usize, field: usize) -> Result<Vec<i32>> {
    let bytes = split.fields()[field].bytes();
    let mut columns = vec![None; split.fields().len()];
    columns[field] = Some(Column { offset: 0, bytes });
    let mut slot = vec![0; bytes];
    let key = Key { seed: 0, epoch: 0, sample: sample as u64 };
    split.write(sample, &mut Rows::new(&mut slot, &columns, 0, &[], key))?;
    Ok(slot.as_chunks().0.iter().map(|bytes| i32::from_ne_bytes(*bytes)).collect())
}

/// What samples look like where the tokenizer does not depend on the text; `None`: it does.
///
/// # Errors
/// The tokenizer cannot be read.
pub fn without_reading(options: &TextOptions) -> Result<Option<DataSpec>> {
    let (choice, vocabulary) = match &options.content {
        Content::Text(choice) => (Some(choice), None),
        Content::Tokens { vocabulary, tokenizer } => (tokenizer.as_ref(), *vocabulary),
    };
    let Some(choice @ (Choice::Bytes | Choice::Json(_))) = choice else { return Ok(None) };
    let tokenizer = Tokenizer::choose(choice, &[])?;
    let vocabulary = tokenizer.vocabulary().max(vocabulary.unwrap_or(0));
    let samples = load::samples(options, Some(&tokenizer), vocabulary)?;
    let chat = options.chat.as_deref().map(Chat::read).transpose()?;
    let begin = tokenizer.before().to_vec();
    let codec = TextCodec { tokenizer: Some(tokenizer), chat, begin, vocabulary, samples };
    Ok(Some(DataSpec { fitted: Some(codec.written()?), ..DataSpec::new(codec.fields()) }))
}

/// What a training knows of its text: all that is needed to make tokens of another, and text of tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct TextCodec {
    /// How text becomes tokens, if that is known.
    pub tokenizer: Option<Tokenizer>,
    /// How conversations become text, if that is known.
    pub chat: Option<Chat>,
    /// The tokens that texts begin with which a language model goes on with, as the tokenizer puts them there.
    pub begin: Vec<u32>,
    /// How many tokens there are.
    pub vocabulary: usize,
    /// What samples are.
    pub samples: Samples,
}

/// What samples of text are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Samples {
    /// Parts of one long text; the model predicts each token from those before it.
    Windows {
        /// Most of their tokens.
        context: usize,
        /// The lengths of batches, ascending, if documents are kept apart.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lengths: Vec<usize>,
        /// The token that ends documents, if these are kept apart and one does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<u32>,
    },
    /// Texts of their own, each of a class.
    Labelled {
        /// The column of the text.
        text: String,
        /// The column of the second text, of pairs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text_pair: Option<String>,
        /// The column of the class.
        target: String,
        /// The lengths of batches, ascending. Longer texts are cut to the last.
        lengths: Vec<usize>,
        /// The names of the classes.
        classes: Vec<String>,
    },
    /// Texts with an answer each, which the model writes.
    Answered {
        /// The column of the text.
        text: String,
        /// The column of the answer.
        target: String,
        /// The lengths of texts and of answers in batches, ascending in both. Longer ones are cut to the last.
        lengths: Vec<[usize; 2]>,
        /// The token that begins answers.
        start: u32,
        /// The token that ends them.
        end: u32,
    },
    /// Texts with an answer each that goes on with a prompt.
    Prompted {
        /// The column of the text.
        text: String,
        /// The column of the answer.
        target: String,
        /// The lengths of batches, ascending. Longer prompts with answers are cut to the last.
        lengths: Vec<usize>,
        /// What a prompt is, with the text at `{text}`, if it is more than the text and no conversation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        template: Option<String>,
        /// What a conversation begins with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        system: Option<String>,
        /// The token that ends answers.
        end: u32,
    },
    /// Sentences whose words have a tag each.
    Tagged {
        /// Where words and tags stand in files.
        layout: Layout,
        /// The lengths of batches, ascending. Longer sentences are cut to the last.
        lengths: Vec<usize>,
        /// The names of the tags.
        tags: Vec<String>,
    },
}

/// As a checkpoint has it.
#[derive(Serialize, Deserialize)]
struct Written {
    tokenizer: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    chat: Option<Chat>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    begin: Vec<u32>,
    vocabulary: usize,
    samples: Samples,
}

impl TextCodec {
    /// That of a data set, if it is a text.
    ///
    /// # Errors
    /// It comes from a checkpoint, and is broken.
    pub fn of(spec: &DataSpec) -> Result<Option<TextCodec>> {
        match &spec.fitted {
            Some(written) if TextCodec::is(written) => TextCodec::read(written).map(Some),
            _ => Ok(None),
        }
    }

    /// Whether what a source has fitted is that of a text.
    pub fn is(fitted: &Value) -> bool {
        fitted.get("tokenizer").is_some()
    }

    /// That of a checkpoint, which may come from any source.
    ///
    /// # Errors
    /// It is none that a training has written.
    pub fn read(written: &Value) -> Result<TextCodec> {
        let broken = "what the checkpoint says of its text cannot be read";
        let Written { tokenizer, chat, begin, vocabulary, samples } = Written::deserialize(written).context(broken)?;
        let tokenizer = tokenizer.as_ref().map(Tokenizer::of_written).transpose()?;
        let own = tokenizer.as_ref().map_or(1, Tokenizer::vocabulary);
        ensure!(own <= vocabulary, "the checkpoint says {vocabulary} tokens, and its tokenizer has {own}");
        let ascending = |lengths: &[usize]| {
            lengths.first().is_some_and(|length| *length > 0) && lengths.windows(2).all(|pair| pair[0] < pair[1])
        };
        let sane = match &samples {
            Samples::Windows { context, lengths, end } => {
                *context > 0
                    && end.is_none_or(|end| (end as usize) < vocabulary)
                    && (lengths.is_empty() || ascending(lengths) && lengths.last() == Some(context))
            }
            Samples::Labelled { lengths, classes, text_pair, .. } => {
                let separator = tokenizer.as_ref().filter(|_| text_pair.is_some()).and_then(Tokenizer::separator);
                let room = separator.is_none_or(|separator| (separator as usize) < vocabulary);
                !classes.is_empty() && ascending(lengths) && room
            }
            Samples::Answered { lengths, start, end, .. } => {
                let pairs =
                    lengths.windows(2).all(|pair| pair[0] != pair[1] && (0..2).all(|i| pair[0][i] <= pair[1][i]));
                let sane = lengths.first().is_some_and(|[text, answer]| *text > 0 && *answer > 0);
                pairs && sane && [start, end].into_iter().all(|token| (*token as usize) < vocabulary)
            }
            Samples::Prompted { lengths, end, .. } => ascending(lengths) && (*end as usize) < vocabulary,
            Samples::Tagged { layout, lengths, tags } => {
                !tags.is_empty() && ascending(lengths) && layout.word_column > 0 && layout.tag_column != Some(0)
            }
        };
        ensure!(sane && begin.iter().all(|token| (*token as usize) < vocabulary), "{broken}");
        Ok(TextCodec { tokenizer, chat, begin, vocabulary, samples })
    }

    /// As a checkpoint has it.
    ///
    /// # Errors
    /// The tokenizer cannot be written.
    pub fn written(&self) -> Result<Arc<Value>> {
        let tokenizer = self.tokenizer.as_ref().map(Tokenizer::written).transpose()?;
        let (chat, begin) = (self.chat.clone(), self.begin.clone());
        let (vocabulary, samples) = (self.vocabulary, self.samples.clone());
        Ok(Arc::new(serde_json::to_value(Written { tokenizer, chat, begin, vocabulary, samples })?))
    }

    /// Whether samples are sentences whose words have a tag each.
    pub fn has_tags(&self) -> bool {
        matches!(&self.samples, Samples::Tagged { .. })
    }

    /// Whether samples are texts with an answer each, in a sequence of its own.
    pub fn has_answers(&self) -> bool {
        matches!(&self.samples, Samples::Answered { .. })
    }

    /// Whether the model answers texts.
    pub fn answers_texts(&self) -> bool {
        self.has_answers() || matches!(&self.samples, Samples::Prompted { .. })
    }

    /// What stands around texts, where answers go on with them.
    pub fn prompts(&self) -> Option<Prompts> {
        let Samples::Prompted { template, system, .. } = &self.samples else { return None };
        let (template, chat, system) = (template.clone(), self.chat.clone(), system.clone());
        Some(Prompts { template, chat, system, begin: self.begin.clone() })
    }

    /// The same, and the token that ends answers.
    pub fn prompts_and_end(&self) -> Option<(Prompts, u32)> {
        let Samples::Prompted { end, .. } = &self.samples else { return None };
        self.prompts().map(|prompts| (prompts, *end))
    }

    /// The tokens that end what a language model writes.
    pub fn ends(&self) -> Vec<u32> {
        let own = self.chat.as_ref().map(Chat::end).filter(|end| !end.is_empty());
        let named = ENDS.into_iter().chain(own);
        let mut ends = Vec::new();
        if let Samples::Windows { end: Some(end), .. } = self.samples {
            ends.push(end);
        }
        ends.extend(named.filter_map(|name| self.tokenizer.as_ref()?.token(name)));
        ends.extend(self.prompts_and_end().map(|(_, end)| end));
        ends
    }

    /// Most tokens of a text, where texts are samples of their own.
    pub fn longest_text(&self) -> Option<usize> {
        match &self.samples {
            Samples::Labelled { lengths, .. } => lengths.last().copied(),
            Samples::Answered { lengths, .. } => lengths.last().map(|[text, _]| *text),
            Samples::Windows { .. } | Samples::Prompted { .. } | Samples::Tagged { .. } => None,
        }
    }

    /// Whether samples are pairs of texts.
    pub fn takes_pairs(&self) -> bool {
        matches!(&self.samples, Samples::Labelled { text_pair: Some(_), .. })
    }

    /// The fields of its samples.
    pub fn fields(&self) -> Vec<Field> {
        self.samples.fields(self.vocabulary)
    }
}

impl Samples {
    /// Whether each position of a sample predicts the token after it.
    pub fn predicts_next_tokens(&self) -> bool {
        match self {
            Samples::Windows { .. } | Samples::Prompted { .. } => true,
            Samples::Labelled { .. } | Samples::Answered { .. } | Samples::Tagged { .. } => false,
        }
    }

    /// The lengths of batches, if samples differ in theirs.
    pub fn lengths(&self) -> Vec<Lengths> {
        match self {
            Samples::Windows { lengths, .. }
            | Samples::Labelled { lengths, .. }
            | Samples::Prompted { lengths, .. }
            | Samples::Tagged { lengths, .. } => Lengths::firsts(lengths),
            Samples::Answered { lengths, .. } => {
                lengths.iter().map(|[text, answer]| Lengths::both(*text, *answer)).collect()
            }
        }
    }

    /// Their fields, of so many tokens.
    pub fn fields(&self, vocabulary: usize) -> Vec<Field> {
        match self {
            Samples::Windows { context, lengths, .. } if lengths.is_empty() => windows::fields(*context, vocabulary),
            Samples::Windows { lengths, .. } | Samples::Prompted { lengths, .. } => {
                windows::fields_of_lengths(lengths, vocabulary)
            }
            Samples::Labelled { lengths, classes, text_pair, .. } => {
                labelled::fields(lengths, classes, vocabulary, text_pair.is_some())
            }
            Samples::Answered { lengths, .. } => answered::fields(lengths, vocabulary),
            Samples::Tagged { lengths, tags, .. } => tagged::fields(lengths, tags, vocabulary),
        }
    }
}

#[cfg(test)]
mod tests;
