//! Sentences whose words have a tag each: words are cut into tokens, the first of a word bears its tag, and the others do not count.

use super::super::Split;
use super::super::classes::{Classes, in_order, numbering};
use super::super::field::{DataSpec, Field, FieldKind, INPUTS, LENGTHS, Lengths, TARGETS};
use super::super::found::Found;
use super::super::row_names::{Lines, RowName, RowNames};
use super::super::store::{Rows, Store, Unreadable};
use super::super::tokenizer::{Choice, Tokenizer, UNKNOWN_TOKEN};
use super::loaded::{Load, Loaded, is_known_without_the_file, tokenizer, working_memory};
use super::sentences::{Layout, Sentence, read_tagged, read_untagged};
use super::{Samples, TextCodec};
use crate::graph::DType;
use crate::terminal::counted;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file of sentences, and how their tags are learnt.
#[derive(Debug, Clone, PartialEq)]
pub struct TaggedOptions {
    /// The file.
    pub path: PathBuf,
    /// The same to validate on.
    pub val_path: Option<PathBuf>,
    /// Where words and tags stand.
    pub layout: Layout,
    /// The tags in the order of their numbers; `None`: those of the words, by name.
    pub tags: Option<Vec<String>>,
    /// How words become tokens.
    pub choice: Choice,
    /// The lengths of batches, ascending.
    pub lengths: Vec<usize>,
    /// The target of positions that do not count.
    pub ignore_index: i32,
    /// What was found in training, if the model is trained already.
    pub fitted: Option<Box<TextCodec>>,
}

impl Load for TaggedOptions {
    fn found() -> &'static Found<Self, Loaded> {
        static FOUND: Found<TaggedOptions, Loaded> = Found::new();
        &FOUND
    }

    fn load(&self) -> Result<Loaded> {
        load(self)
    }

    fn codec_of_options(&self) -> Result<Option<TextCodec>> {
        if self.fitted.is_some() || !is_known_without_the_file(&self.choice, self.tags.as_ref()) {
            return Ok(None);
        }
        Ok(Some(codec(self, Tokenizer::choose(&self.choice, &[])?, self.tags.clone().unwrap_or_default())))
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// What is known of sentences with these tags.
fn codec(options: &TaggedOptions, tokenizer: Tokenizer, tags: Vec<String>) -> TextCodec {
    let samples = Samples::Tagged { layout: options.layout.clone(), lengths: options.lengths.clone(), tags };
    let vocabulary = tokenizer.vocabulary();
    TextCodec { vocabulary, tokenizer: Some(tokenizer), chat: None, begin: Vec::new(), samples }
}

/// The fields of a sample: its tokens, how many they are, and the tag of each.
pub fn fields(lengths: &[usize], tags: &[String], vocabulary: usize) -> Vec<Field> {
    let longest = lengths.last().copied().unwrap_or(1);
    let tokens = Field::numbers(INPUTS, DType::I32, [longest]).of_any_length(0, 0);
    let tag = FieldKind::Category(Classes::named(tags.to_vec()));
    vec![
        Field { kind: FieldKind::Tokens(Classes::at_least(vocabulary)), ..tokens },
        Field { kind: FieldKind::Length, ..Field::numbers(LENGTHS, DType::I32, []) },
        Field::target(TARGETS, tag, [longest]).of_any_length(0, 0),
    ]
}

fn load(options: &TaggedOptions) -> Result<Loaded> {
    let sentences = read_tagged(&options.path, &options.layout)?;
    let codec = match options.fitted.as_deref() {
        Some(codec) if matches!(codec.samples, Samples::Tagged { .. }) => codec.clone(),
        other => {
            let words: Vec<&str> = sentences.iter().flat_map(|one| &one.words).map(String::as_str).collect();
            let tokenizer = tokenizer(other, &options.choice, &words)?;
            let of_words = || {
                let tags = sentences.iter().flat_map(|one| &one.tags).collect::<BTreeSet<_>>();
                let mut tags: Vec<String> = tags.into_iter().cloned().collect();
                in_order(&mut tags);
                tags
            };
            codec(options, tokenizer, options.tags.clone().unwrap_or_else(of_words))
        }
    };
    let mut notes = Vec::new();
    if options.fitted.is_none()
        && options.tags.is_none()
        && let Samples::Tagged { tags, .. } = &codec.samples
        && tags.iter().all(|tag| tag.bytes().all(|byte| byte.is_ascii_digit()))
    {
        notes.push(format!(
            "`{}`: its tags are numbers, which say no names: `classes` in `[data]` names them, in the order of their numbers, and without names there are no figures of spans",
            options.path.display()
        ));
    }
    let mut reading = working(&sentences, &codec);
    let train = split(&options.path, &sentences, &codec, options, &mut notes)?;
    let val = match &options.val_path {
        Some(path) => {
            let sentences = read_tagged(path, &options.layout)?;
            reading = reading.max(working(&sentences, &codec));
            split(path, &sentences, &codec, options, &mut notes)?
        }
        None => train.select(&[]),
    };
    let Samples::Tagged { lengths, .. } = &codec.samples else { bail!("{NO_TAGS}") };
    let spec = DataSpec {
        train: Some(train.len()),
        val: Some(val.len()),
        lengths: Lengths::firsts(lengths),
        fitted: Some(codec.written()?),
        ..DataSpec::new(codec.fields())
    };
    Ok(Loaded { spec, train, val, notes, reading })
}

/// Bytes of memory that sentences take while tokens are made of them.
fn working(sentences: &[Sentence], codec: &TextCodec) -> usize {
    working_memory(sentences.iter().flat_map(|one| one.words.iter().chain(&one.tags)).map(String::as_str), codec)
}

/// Why a model takes no sentences.
const NO_TAGS: &str = "the model learns no tags of words";

/// The sentences of a file as samples.
fn split(
    path: &Path,
    sentences: &[Sentence],
    codec: &TextCodec,
    options: &TaggedOptions,
    notes: &mut Vec<String>,
) -> Result<Split> {
    let Samples::Tagged { tags, lengths, .. } = &codec.samples else { bail!("{NO_TAGS}") };
    let number = numbering(tags, options.tags.is_some());
    let of = |(one, word): (&Sentence, usize)| match number(&one.tags[word]) {
        Some(number) => Ok(number as i32),
        None => {
            bail!(
                "`{}`, {}: `{}` has the tag `{}`, which is none of those that are learnt: {}",
                path.display(),
                one.place_of(word),
                one.words[word],
                one.tags[word],
                super::super::listed(tags)
            )
        }
    };
    let numbers = |one: &Sentence| (0..one.tags.len()).map(|word| of((one, word))).collect::<Result<Vec<i32>>>();
    let numbers = sentences.iter().map(numbers).collect::<Result<Vec<_>>>()?;
    let (tagged, _) = Tagged::new(codec, sentences, &numbers, options.ignore_index, path)?;
    if tagged.cut > 0 {
        let longest = lengths.last().copied().unwrap_or_default();
        notes.push(format!(
            "`{}`: {} of {} sentences are cut to {}",
            path.display(),
            tagged.cut,
            tagged.len(),
            counted(longest, "token")
        ));
    }
    Split::new(Arc::new(tagged))
}

/// A sentence for a trained model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// Its words.
    pub words: Vec<String>,
    /// The position of the first token of each; `None`: it has no token, or was cut off.
    pub at: Vec<Option<usize>>,
}

/// Sentences as samples for a trained model: those of a file, with or without tags.
///
/// # Errors
/// It cannot be read, or a word has a character without a token.
pub fn read_sentences(path: &Path, codec: &TextCodec) -> Result<(Split, Vec<Placed>)> {
    let mut codec = codec.clone();
    let Samples::Tagged { layout, lengths, .. } = &mut codec.samples else { bail!("{NO_TAGS}") };
    // All batches are of one length, so that samples stay in their order.
    lengths.drain(..lengths.len() - 1);
    let sentences = read_untagged(path, layout)?;
    let (tagged, at) = Tagged::new(&codec, &sentences, &vec![Vec::new(); sentences.len()], 0, path)?;
    let placed = sentences.into_iter().zip(at).map(|(one, at)| Placed { words: one.words, at });
    Ok((Split::new(Arc::new(tagged))?, placed.collect()))
}

/// The bytes of a sample of the longest length, field by field, and where its words are.
///
/// # Errors
/// The model takes no sentences; a word, which `called` names, has a character without a token.
pub fn sentence_bytes(codec: &TextCodec, words: Vec<String>, called: &str) -> Result<(Vec<Vec<u8>>, Placed)> {
    let Samples::Tagged { lengths, .. } = &codec.samples else { bail!("{NO_TAGS}") };
    let tokenizer = codec.tokenizer.as_ref().context("the checkpoint has no tokenizer")?;
    let longest = lengths.last().copied().unwrap_or(1);
    let mut pieces = tokenizer.encode_words(&words, longest, called)?;
    pieces.fill();
    let number = |number: u32| (number as i32).to_ne_bytes();
    let filled = pieces.tokens.iter().copied().chain(std::iter::repeat(UNKNOWN_TOKEN));
    let rows = vec![filled.take(longest).flat_map(number).collect(), number(pieces.tokens.len() as u32).to_vec()];
    let at = pieces.firsts(words.len());
    Ok((rows, Placed { words, at }))
}

/// The position of the first token of each word of a sentence.
type Places = Vec<Option<usize>>;

/// Sentences as tokens, one after the other.
struct Tagged {
    tokens: Vec<u32>,
    /// The tag of each token.
    tags: Vec<i32>,
    /// Where each begins, and where the last one ends.
    begins: Vec<usize>,
    lengths: Vec<Lengths>,
    ignore_index: i32,
    /// How many were longer than the longest batch.
    cut: usize,
    fields: Vec<Field>,
    /// The lines at which they begin.
    names: RowNames,
}

impl Tagged {
    /// Sentences with the numbers of their tags, and where the first tokens of words are.
    fn new(
        codec: &TextCodec,
        sentences: &[Sentence],
        tags: &[Vec<i32>],
        ignore_index: i32,
        path: &Path,
    ) -> Result<(Tagged, Vec<Places>)> {
        let Samples::Tagged { lengths, .. } = &codec.samples else { bail!("{NO_TAGS}") };
        let tokenizer = codec.tokenizer.as_ref().context("the checkpoint has no tokenizer")?;
        let longest = lengths.last().copied().unwrap_or(1);
        let mut all = Tagged {
            tokens: Vec::new(),
            tags: Vec::new(),
            begins: vec![0],
            lengths: Lengths::firsts(lengths),
            ignore_index,
            cut: 0,
            fields: codec.fields(),
            names: RowNames::Lines(Lines { lines: sentences.iter().map(|one| one.line).collect(), files: Vec::new() }),
        };
        let mut places = Vec::with_capacity(sentences.len());
        for (one, tags) in sentences.iter().zip(tags) {
            let called = format!("`{}`, the sentence at line {}", path.display(), one.line);
            let mut pieces = tokenizer.encode_words(&one.words, longest, &called)?;
            pieces.fill();
            all.cut += usize::from(pieces.cut);
            let at = pieces.firsts(one.words.len());
            let begin = all.tags.len();
            all.tags.resize(begin + pieces.tokens.len(), ignore_index);
            for (tag, at) in tags.iter().zip(&at) {
                if let Some(at) = at {
                    all.tags[begin + at] = *tag;
                }
            }
            all.tokens.extend(pieces.tokens);
            all.begins.push(all.tokens.len());
            places.push(at);
        }
        Ok((all, places))
    }

    fn of<'a, T>(&self, list: &'a [T], sample: usize) -> &'a [T] {
        &list[self.begins[sample]..self.begins[sample + 1]]
    }
}

impl Store for Tagged {
    fn len(&self) -> usize {
        self.begins.len() - 1
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn lengths(&self) -> &[Lengths] {
        &self.lengths
    }

    fn length_of(&self, sample: usize) -> usize {
        let tokens = self.begins[sample + 1] - self.begins[sample];
        Lengths::place(&self.lengths, [tokens, 0])
    }

    fn write(&self, sample: usize, rows: &mut Rows) -> Result<(), Unreadable> {
        let (tokens, tags) = (self.of(&self.tokens, sample), self.of(&self.tags, sample));
        rows.fill(0, |at, out| *out = (tokens.get(at).copied().unwrap_or(UNKNOWN_TOKEN) as i32).to_ne_bytes());
        rows.put(1, &(tokens.len() as i32).to_ne_bytes());
        rows.fill(2, |at, out| *out = tags.get(at).copied().unwrap_or(self.ignore_index).to_ne_bytes());
        Ok(())
    }

    fn identify(&self, sample: usize, field: usize, take: &mut dyn FnMut(&[u8])) {
        match field {
            0 => self.of(&self.tokens, sample).iter().for_each(|token| take(&token.to_ne_bytes())),
            1 => take(&((self.begins[sample + 1] - self.begins[sample]) as u64).to_le_bytes()),
            _ => self.of(&self.tags, sample).iter().for_each(|tag| take(&tag.to_ne_bytes())),
        }
    }

    fn classes_in_file(&self, sample: usize, take: &mut dyn FnMut(i32)) -> bool {
        self.of(&self.tags, sample).iter().for_each(|tag| take(*tag));
        true
    }

    fn skips_unreadable(&self) -> bool {
        false
    }

    fn row(&self, sample: usize) -> Option<RowName<'_>> {
        Some(self.names.at(sample))
    }

    fn held_bytes(&self) -> usize {
        self.tokens.len() * 8 + self.begins.len() * size_of::<usize>() + self.names.held_bytes()
    }
}
