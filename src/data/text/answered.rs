//! Texts of a table with an answer each, which the model writes token by token: two sequences a sample, in batches of some pairs of lengths.

use super::super::Split;
use super::super::classes::Classes;
use super::super::field::{ANSWERS, DataSpec, Field, FieldKind, INPUTS, LENGTHS, Lengths, TARGETS};
use super::super::found::Found;
use super::super::row_names::{Lines, RowName, RowNames};
use super::super::store::{Rows, Store, Unreadable};
use super::super::tokenizer::{Choice, Passage, Tokenizer, UNKNOWN_TOKEN, tokens_of};
use super::labelled::{Filled, filled};
use super::loaded::{Load, Loaded, working_memory};
use super::{Samples, TextCodec};
use crate::graph::DType;
use crate::terminal::counted;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Tokens of a `tokenizer.json` that begin answers, where it has one of these names.
const STARTS: [&str; 5] = ["<s>", "[CLS]", "<bos>", "<|startoftext|>", "<|begin_of_text|>"];
/// Tokens that end them.
const ENDS: [&str; 6] = ["</s>", "[SEP]", "<|endoftext|>", "<eos>", "<|end_of_text|>", "<|im_end|>"];

/// A table of texts and answers.
#[derive(Debug, Clone, PartialEq)]
pub struct AnsweredOptions {
    /// The file.
    pub path: PathBuf,
    /// The same to validate on.
    pub val_path: Option<PathBuf>,
    /// The column of the text.
    pub text: String,
    /// The column of the answer.
    pub target: String,
    /// How text becomes tokens.
    pub choice: Choice,
    /// The name of the token that begins answers, if one is named.
    pub start: Option<String>,
    /// The name of the token that ends them, if one is named.
    pub end: Option<String>,
    /// The lengths of texts and of answers in batches, ascending in both.
    pub lengths: Vec<[usize; 2]>,
    /// The target of positions that do not count.
    pub ignore_index: i32,
    /// What was found in training, if the model is trained already.
    pub fitted: Option<Box<TextCodec>>,
}

impl Load for AnsweredOptions {
    fn found() -> &'static Found<Self, Loaded> {
        static FOUND: Found<AnsweredOptions, Loaded> = Found::new();
        &FOUND
    }

    fn load(&self) -> Result<Loaded> {
        load(self)
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// The fields of a sample: the tokens of its text, those of its answer after the one that begins it, how many the first are, and the tokens of the answer
/// before the one that ends it.
pub fn fields(lengths: &[[usize; 2]], vocabulary: usize) -> Vec<Field> {
    let [text, answer] = lengths.last().copied().unwrap_or([1, 1]);
    let kind = || FieldKind::Tokens(Classes::at_least(vocabulary));
    let tokens = |name: &str, length: usize, number: usize| Field {
        kind: kind(),
        ..Field::numbers(name, DType::I32, [length]).of_any_length(0, number)
    };
    vec![
        tokens(INPUTS, text, 0),
        tokens(ANSWERS, answer, 1),
        Field { kind: FieldKind::Length, ..Field::numbers(LENGTHS, DType::I32, []) },
        Field::target(TARGETS, kind(), [answer]).of_any_length(0, 1),
    ]
}

/// Texts and answers.
pub(super) struct Written {
    /// Both of each.
    pub(super) rows: Vec<[String; 2]>,
    /// The line of each in the file, from 1.
    pub(super) lines: Lines,
    /// Rows that are left out: they have no text, or no answer.
    pub(super) empty: usize,
}

impl Written {
    pub(super) fn working_memory(&self, codec: &TextCodec) -> usize {
        working_memory(self.rows.iter().flatten().map(String::as_str), codec)
    }
}

/// Reads a table with these columns of texts and of answers.
pub(super) fn read(path: &Path, (text, target): (&str, &str)) -> Result<Written> {
    let Filled { rows, lines, empty, .. } = filled(path, &[text, target], None)?;
    ensure!(!rows.is_empty(), "`{}` has no row with a text and an answer", path.display());
    let pair = |row: Vec<String>| <[String; 2]>::try_from(row).unwrap_or_default();
    Ok(Written { rows: rows.into_iter().map(pair).collect(), lines, empty })
}

fn load(options: &AnsweredOptions) -> Result<Loaded> {
    let columns = (options.text.as_str(), options.target.as_str());
    let written = read(&options.path, columns)?;
    let codec = match options.fitted.as_deref() {
        Some(codec) => codec.clone(),
        None => fitted(options, &written)?,
    };
    let Samples::Answered { .. } = &codec.samples else { bail!("{NO_ANSWERS}") };
    let mut notes = Vec::new();
    let mut reading = written.working_memory(&codec);
    let train = split(&options.path, written, &codec, options.ignore_index, &mut notes)?;
    let val = match &options.val_path {
        Some(path) => {
            let written = read(path, columns)?;
            reading = reading.max(written.working_memory(&codec));
            split(path, written, &codec, options.ignore_index, &mut notes)?
        }
        None => train.select(&[]),
    };
    let spec = DataSpec {
        train: Some(train.len()),
        val: Some(val.len()),
        lengths: codec.samples.lengths(),
        fitted: Some(codec.written()?),
        ..DataSpec::new(codec.fields())
    };
    Ok(Loaded { spec, train, val, notes, reading })
}

/// Why a model takes no such samples.
const NO_ANSWERS: &str = "the model writes no answers to texts";

/// The tokenizer for these texts and answers, and the tokens around answers.
fn fitted(options: &AnsweredOptions, written: &Written) -> Result<TextCodec> {
    let texts: Vec<&str> = written.rows.iter().flatten().map(String::as_str).collect();
    let tokenizer = Tokenizer::choose(&options.choice, &texts)?;
    let own = tokenizer.vocabulary() as u32;
    let named = |name: &Option<String>, key: &str| match name {
        None => Ok(None),
        Some(name) => {
            let token = tokenizer.token(name);
            token.map(Some).with_context(|| format!("the tokenizer has no token `{name}`, which `{key}` names"))
        }
    };
    let first = |names: &[&str]| names.iter().find_map(|name| tokenizer.token(name));
    let [start, end] = [named(&options.start, "start_token")?, named(&options.end, "end_token")?];
    let end = end.or_else(|| first(&ENDS));
    let start = start.or_else(|| first(&STARTS)).or(end);
    // Tokens of their own stand after all others.
    let start = start.unwrap_or(own);
    let end = end.unwrap_or(own.max(start + 1));
    let samples = Samples::Answered {
        text: options.text.clone(),
        target: options.target.clone(),
        lengths: options.lengths.clone(),
        start,
        end,
    };
    let vocabulary = own.max(start + 1).max(end + 1) as usize;
    Ok(TextCodec { vocabulary, tokenizer: Some(tokenizer), chat: None, begin: Vec::new(), samples })
}

/// The rows of a table as samples.
fn split(
    path: &Path,
    written: Written,
    codec: &TextCodec,
    ignore_index: i32,
    notes: &mut Vec<String>,
) -> Result<Split> {
    let answered = Answered::new(codec, &written, ignore_index, path)?;
    if written.empty > 0 {
        notes.push(format!("`{}`: {} rows without a text or an answer are left out", path.display(), written.empty));
    }
    let Samples::Answered { lengths, .. } = &codec.samples else { bail!("{NO_ANSWERS}") };
    let longest = lengths.last().copied().unwrap_or_default();
    for (cut, longest, what) in [(answered.cut[0], longest[0], "texts"), (answered.cut[1], longest[1], "answers")] {
        if cut > 0 {
            let all = answered.len();
            notes.push(format!("`{}`: {cut} of {all} {what} are cut to {}", path.display(), counted(longest, "token")));
        }
    }
    Split::new(Arc::new(Answered { names: RowNames::Lines(written.lines), ..answered }))
}

/// Rows of tokens, one after the other.
pub(super) struct Ragged {
    tokens: Vec<u32>,
    /// Where each begins, and where the last one ends.
    begins: Vec<usize>,
}

impl Ragged {
    pub(super) fn new() -> Self {
        Ragged { tokens: Vec::new(), begins: vec![0] }
    }

    pub(super) fn push(&mut self, row: impl IntoIterator<Item = u32>) {
        self.tokens.extend(row);
        self.begins.push(self.tokens.len());
    }

    pub(super) fn row(&self, row: usize) -> &[u32] {
        &self.tokens[self.begins[row]..self.begins[row + 1]]
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.tokens.len() * 4 + self.begins.len() * size_of::<usize>()
    }
}

/// Texts with answers as tokens.
struct Answered {
    texts: Ragged,
    /// The targets of each: the answer and the token that ends it or, of one that is cut, its beginning.
    answers: Ragged,
    start: u32,
    ignore_index: i32,
    lengths: Vec<Lengths>,
    /// How many texts and answers were longer than the longest batch.
    cut: [usize; 2],
    fields: Vec<Field>,
    names: RowNames,
}

impl Answered {
    fn new(codec: &TextCodec, written: &Written, ignore_index: i32, path: &Path) -> Result<Answered> {
        let Samples::Answered { lengths, start, end, .. } = &codec.samples else { bail!("{NO_ANSWERS}") };
        let tokenizer = codec.tokenizer.as_ref().context("the checkpoint has no tokenizer")?;
        let [longest, longest_answer] = lengths.last().copied().unwrap_or([1, 1]);
        let mut all = Answered {
            texts: Ragged::new(),
            answers: Ragged::new(),
            start: *start,
            ignore_index,
            lengths: codec.samples.lengths(),
            cut: [0, 0],
            fields: codec.fields(),
            names: RowNames::Lines(Lines::default()),
        };
        for (row, [text, answer]) in written.rows.iter().enumerate() {
            let line = match written.lines.at(row) {
                RowName::Line(Some(file), line) => format!("`{file}`, row at line {line}"),
                RowName::Line(None, line) => format!("`{}`, row at line {line}", path.display()),
                RowName::Id(_, id) => id.to_owned(),
            };
            let whole = tokens_of(tokenizer, longest, &Passage::from(text.clone()), &format!("{line}, the text"))?;
            let mut answer = tokenizer.encode(answer, &format!("{line}, the answer"))?;
            let cut = answer.len() >= longest_answer;
            // One that is cut does not end there.
            answer.truncate(longest_answer);
            if !cut {
                answer.push(*end);
            }
            all.cut[0] += usize::from(whole.cut);
            all.cut[1] += usize::from(cut);
            all.texts.push(whole.tokens);
            all.answers.push(answer);
        }
        Ok(all)
    }
}

impl Store for Answered {
    fn len(&self) -> usize {
        self.texts.begins.len() - 1
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn lengths(&self) -> &[Lengths] {
        &self.lengths
    }

    fn length_of(&self, sample: usize) -> usize {
        Lengths::place(&self.lengths, [self.texts.row(sample).len(), self.answers.row(sample).len()])
    }

    fn write(&self, sample: usize, rows: &mut Rows) -> Result<(), Unreadable> {
        let (text, answer) = (self.texts.row(sample), self.answers.row(sample));
        let number = |token: Option<&u32>| (token.copied().unwrap_or(UNKNOWN_TOKEN) as i32).to_ne_bytes();
        rows.fill(0, |at, out| *out = number(text.get(at)));
        rows.fill(1, |at, out| {
            *out = number(match at.checked_sub(1) {
                None => Some(&self.start),
                // After the last target nothing counts.
                Some(before) => answer.get(before).filter(|_| at < answer.len()),
            });
        });
        rows.put(2, &(text.len() as i32).to_ne_bytes());
        rows.fill(3, |at, out| {
            *out = answer.get(at).map_or(self.ignore_index, |token| *token as i32).to_ne_bytes();
        });
        Ok(())
    }

    fn identify(&self, sample: usize, field: usize, take: &mut dyn FnMut(&[u8])) {
        match field {
            0 => self.texts.row(sample).iter().for_each(|token| take(&token.to_ne_bytes())),
            1 => take(&self.start.to_ne_bytes()),
            2 => take(&(self.texts.row(sample).len() as u64).to_le_bytes()),
            _ => self.answers.row(sample).iter().for_each(|token| take(&token.to_ne_bytes())),
        }
    }

    fn skips_unreadable(&self) -> bool {
        false
    }

    fn row(&self, sample: usize) -> Option<RowName<'_>> {
        Some(self.names.at(sample))
    }

    fn held_bytes(&self) -> usize {
        self.texts.held_bytes() + self.answers.held_bytes() + self.names.held_bytes()
    }
}
