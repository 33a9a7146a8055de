//! Texts of a table with an answer each, which goes on with a prompt: one row of tokens a sample, of which the answer alone is the target.

use super::super::Split;
use super::super::field::{DataSpec, Field, Lengths};
use super::super::found::Found;
use super::super::row_names::{Lines, RowName, RowNames};
use super::super::store::{Rows, Store, Unreadable};
use super::super::tokenizer::{Choice, Tokenizer, UNKNOWN_TOKEN};
use super::super::wrong_file::WrongFile;
use super::answered::{Ragged, Written, read};
use super::loaded::{Load, Loaded, tokenizer};
use super::prompts::{Prompts, fitted};
use super::{Chat, Samples, TextCodec};
use crate::terminal::counted;
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A table of texts and answers.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptedOptions {
    /// The file.
    pub path: PathBuf,
    /// The same to validate on.
    pub val_path: Option<PathBuf>,
    /// The column of the text.
    pub text: String,
    /// The column of the answer.
    pub target: String,
    /// What a prompt is, with the text at `{text}`.
    pub template: Option<String>,
    /// The file with a template for conversations in its place.
    pub chat: Option<PathBuf>,
    /// What these begin with.
    pub system: Option<String>,
    /// How text becomes tokens.
    pub choice: Choice,
    /// The name of the token that ends answers, if one is named.
    pub end: Option<String>,
    /// The lengths of batches, ascending.
    pub lengths: Vec<usize>,
    /// The target of positions that do not count.
    pub ignore_index: i32,
    /// What was found in training, if the model is trained already.
    pub fitted: Option<Box<TextCodec>>,
}

impl Load for PromptedOptions {
    fn found() -> &'static Found<Self, Loaded> {
        static FOUND: Found<PromptedOptions, Loaded> = Found::new();
        &FOUND
    }

    fn load(&self) -> Result<Loaded> {
        load(self)
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// Why a model takes no such samples.
const NO_PROMPTS: &str = "the model was not trained on pairs of texts and answers";

fn load(options: &PromptedOptions) -> Result<Loaded> {
    let columns = (options.text.as_str(), options.target.as_str());
    let written = read(&options.path, columns)?;
    let codec = match options.fitted.as_deref() {
        Some(codec) if matches!(codec.samples, Samples::Prompted { .. }) => codec.clone(),
        other => learnt(options, &written, other)?,
    };
    let Samples::Prompted { lengths, .. } = &codec.samples else { bail!("{NO_PROMPTS}") };
    let ignored = options.ignore_index;
    ensure!(
        usize::try_from(ignored).map_or(true, |token| token >= codec.vocabulary),
        "`ignore_index` of the loss is {ignored}, which is a token, too: leave it out, or write a number below 0"
    );
    let mut notes = Vec::new();
    let mut reading = written.working_memory(&codec);
    let train = split(&options.path, written, &codec, ignored, &mut notes)?;
    let val = match &options.val_path {
        Some(path) => {
            let written = read(path, columns)?;
            reading = reading.max(written.working_memory(&codec));
            split(path, written, &codec, ignored, &mut notes)?
        }
        None => train.select(&[]),
    };
    let spec = DataSpec {
        train: Some(train.len()),
        val: Some(val.len()),
        lengths: Lengths::firsts(lengths),
        fitted: Some(codec.written()?),
        ..DataSpec::new(codec.fields())
    };
    Ok(Loaded { spec, train, val, notes, reading })
}

/// The tokenizer for these texts and answers, and the token that ends answers.
fn learnt(options: &PromptedOptions, written: &Written, fitted: Option<&TextCodec>) -> Result<TextCodec> {
    let chat = options.chat.as_deref().map(Chat::read).transpose()?.map(Chat::begun);
    if let (Some(path), Some(says)) = (&options.chat, chat.as_ref().map(Chat::says)) {
        let left = match says {
            [true, true] => None,
            [true, false] => Some("no answer"),
            [false, true] => Some("no text"),
            [false, false] => Some("neither of them"),
        };
        let why = |left| {
            anyhow!(
                "`{}` is no template for conversations: what it makes of a text and its answer has {left}; give a `tokenizer_config.json`, or a Jinja \
                 template that writes `messages`",
                path.display()
            )
        };
        left.map_or(Ok(()), |left| Err(why(left))).map_err(WrongFile::of("chat_template"))?;
    }
    let (template, system) = (options.template.clone(), options.system.clone());
    // Here prompts are texts. Their tokens come after the tokenizer.
    let begin = Vec::new();
    let prompts = Prompts { template: template.clone(), chat: chat.clone(), system: system.clone(), begin };
    let called = |row: usize| place(&options.path, &written.lines, row);
    let tokenizer = match &options.choice {
        choice if fitted.is_some() => tokenizer(fitted, choice, &[])?,
        Choice::Bytes | Choice::Json(_) => Tokenizer::choose(&options.choice, &[])?,
        // What is learnt of texts is learnt of prompts, too.
        Choice::Characters | Choice::Words(_) | Choice::Bpe(_) => {
            let pairs = written.rows.iter().enumerate();
            let pairs = pairs.map(|(row, [text, answer])| prompts.pair(text, answer).with_context(|| called(row)));
            let pairs = pairs.collect::<Result<Vec<_>>>()?;
            let texts: Vec<&str> = pairs.iter().flatten().map(String::as_str).collect();
            Tokenizer::choose(&options.choice, &texts)?
        }
    };
    let [text, answer] = &written.rows[0];
    let end = prompts.end(&tokenizer, options.end.as_deref(), [text, answer]).with_context(|| called(0))?;
    let vocabulary = tokenizer.vocabulary().max(end as usize + 1);
    if let Some(known) = fitted.map(|codec| codec.vocabulary) {
        ensure!(
            vocabulary <= known,
            "the weights know {known} tokens, and none of them ends answers: `end_token` names one of a `tokenizer.json`, and `runner data tokenize --end-of-text` \
             makes a tokenizer that has such a token for the language model to be trained with"
        );
    }
    let samples = Samples::Prompted {
        text: options.text.clone(),
        target: options.target.clone(),
        lengths: options.lengths.clone(),
        template,
        system,
        end,
    };
    let begin = tokenizer.before().to_vec();
    Ok(TextCodec { vocabulary, tokenizer: Some(tokenizer), chat, begin, samples })
}

/// Where a row is, for errors.
fn place(path: &Path, lines: &Lines, row: usize) -> String {
    match lines.at(row) {
        RowName::Line(Some(file), line) => format!("`{file}`, row at line {line}"),
        RowName::Line(None, line) => format!("`{}`, row at line {line}", path.display()),
        RowName::Id(_, id) => id.to_owned(),
    }
}

/// The rows of a table as samples.
fn split(
    path: &Path,
    written: Written,
    codec: &TextCodec,
    ignore_index: i32,
    notes: &mut Vec<String>,
) -> Result<Split> {
    let prompted = Prompted::new(codec, &written, ignore_index, path)?;
    let (all, path) = (prompted.len(), path.display());
    if written.empty > 0 {
        notes.push(format!("`{path}`: {} rows without a text or an answer are left out", written.empty));
    }
    let longest = prompted.longest;
    let [prompts, answers] = prompted.cut;
    if prompts > 0 {
        notes.push(format!(
            "`{path}`: {prompts} of {all} prompts are cut at their beginning, so that they have {} with their answers",
            counted(longest, "token")
        ));
    }
    if answers > 0 {
        notes.push(format!("`{path}`: {answers} of {all} answers are cut to {}", counted(longest, "token")));
    }
    Split::new(Arc::new(Prompted { names: RowNames::Lines(written.lines), ..prompted }))
}

/// Prompts with answers as tokens.
struct Prompted {
    /// Each prompt with its answer and the token that ends it.
    rows: Ragged,
    /// How many tokens of each are the prompt.
    prompts: Vec<u32>,
    ignore_index: i32,
    longest: usize,
    lengths: Vec<Lengths>,
    /// How many prompts and answers were cut.
    cut: [usize; 2],
    fields: Vec<Field>,
    names: RowNames,
}

impl Prompted {
    fn new(codec: &TextCodec, written: &Written, ignore_index: i32, path: &Path) -> Result<Prompted> {
        let Samples::Prompted { lengths, end, .. } = &codec.samples else { bail!("{NO_PROMPTS}") };
        let prompts = codec.prompts().context(NO_PROMPTS)?;
        let tokenizer = codec.tokenizer.as_ref().context("the checkpoint has no tokenizer")?;
        let longest = lengths.last().copied().unwrap_or(1);
        let mut all = Prompted {
            rows: Ragged::new(),
            prompts: Vec::with_capacity(written.rows.len()),
            ignore_index,
            longest,
            lengths: Lengths::firsts(lengths),
            cut: [0, 0],
            fields: codec.fields(),
            names: RowNames::Lines(Lines::default()),
        };
        for (row, [text, answer]) in written.rows.iter().enumerate() {
            let called = place(path, &written.lines, row);
            let pair = prompts.pair_of_tokens((tokenizer, *end), [text, answer], &called)?;
            let (tokens, prompt, cut) = fitted(pair, longest);
            all.cut.iter_mut().zip(cut).for_each(|(all, cut)| *all += usize::from(cut));
            all.rows.push(tokens);
            all.prompts.push(prompt as u32);
        }
        Ok(all)
    }

    /// The tokens that the model is given.
    fn given(&self, sample: usize) -> &[u32] {
        let row = self.rows.row(sample);
        &row[..row.len() - 1]
    }
}

impl Store for Prompted {
    fn len(&self) -> usize {
        self.prompts.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn lengths(&self) -> &[Lengths] {
        &self.lengths
    }

    fn length_of(&self, sample: usize) -> usize {
        Lengths::place(&self.lengths, [self.given(sample).len(), 0])
    }

    fn write(&self, sample: usize, rows: &mut Rows) -> Result<(), Unreadable> {
        let (row, given, prompt) = (self.rows.row(sample), self.given(sample), self.prompts[sample] as usize);
        rows.fill(0, |at, out| *out = (given.get(at).copied().unwrap_or(UNKNOWN_TOKEN) as i32).to_ne_bytes());
        rows.put(1, &(given.len() as i32).to_ne_bytes());
        rows.fill(2, |at, out| {
            let target = row.get(at + 1).filter(|_| at + 1 >= prompt);
            *out = target.map_or(self.ignore_index, |token| *token as i32).to_ne_bytes();
        });
        Ok(())
    }

    fn identify(&self, sample: usize, field: usize, take: &mut dyn FnMut(&[u8])) {
        match field {
            0 => self.rows.row(sample).iter().for_each(|token| take(&token.to_ne_bytes())),
            1 => take(&(self.rows.row(sample).len() as u64).to_le_bytes()),
            _ => take(&self.prompts[sample].to_ne_bytes()),
        }
    }

    fn skips_unreadable(&self) -> bool {
        false
    }

    fn row(&self, sample: usize) -> Option<RowName<'_>> {
        Some(self.names.at(sample))
    }

    fn held_bytes(&self) -> usize {
        self.rows.held_bytes() + self.prompts.len() * 4 + self.names.held_bytes()
    }
}
