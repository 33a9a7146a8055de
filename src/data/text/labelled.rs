//! Texts of a table, each of a class: samples of as many tokens as each has, in batches of some lengths.

use super::super::classes::{Classes, in_order};
use super::super::dataset::Dataset;
use super::super::field::{DataSpec, Field, FieldKind, INPUTS, LENGTHS, TARGETS};
use super::super::found::Found;
use super::super::progress::Event;
use super::super::row_names::{Lines, RowName, RowNames};
use super::super::store::{Rows, Store, Unreadable};
use super::super::table::{Format, is_table, open_sheet};
use super::super::values::Values;
use super::super::{Describes, Footprint, Split};
use super::options::Choice;
use super::tokenizer::Tokenizer;
use super::words::UNKNOWN_TOKEN;
use super::{Samples, TextCodec};
use crate::files::Lines as FileLines;
use crate::graph::DType;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A table of texts, and what of it is learnt.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelledOptions {
    /// The file.
    pub path: PathBuf,
    /// The same to validate on.
    pub val_path: Option<PathBuf>,
    /// The column of the text.
    pub text: String,
    /// The column of the class.
    pub target: String,
    /// The names of the classes in the order of their numbers; `None`: those of the rows, by name.
    pub classes: Option<Vec<String>>,
    /// How text becomes tokens.
    pub choice: Choice,
    /// The lengths of batches, ascending.
    pub lengths: Vec<usize>,
    /// What was found in training, if the model is trained already.
    pub fitted: Option<Box<TextCodec>>,
}

/// Longest line of a file of texts, in bytes.
const MAX_LINE: usize = 1 << 24;

/// Texts that are read.
#[derive(Debug, Clone)]
struct Loaded {
    spec: DataSpec,
    train: Split,
    val: Split,
    told: Vec<String>,
}

static FOUND: Found<LabelledOptions, Loaded> = Found::new();

impl Describes for &LabelledOptions {
    fn describe(&self) -> Result<DataSpec> {
        FOUND.look(self, || load(self), |loaded| loaded.spec.clone())
    }

    fn open(&self, _: &mut dyn FnMut(Event)) -> Result<Dataset> {
        let Loaded { spec, train, val, told } = FOUND.look(self, || load(self), Loaded::clone)?;
        Ok(Dataset { told, ..Dataset::new(spec, train, val) })
    }

    fn footprint(&self) -> Footprint {
        let held = FOUND.look(self, || load(self), |loaded| loaded.train.held_bytes() + loaded.val.held_bytes());
        Footprint { held: held.unwrap_or_default(), ..Footprint::default() }
    }
}

/// The fields of a sample: its tokens, how many they are, and its class.
pub fn fields(lengths: &[usize], classes: &[String], vocabulary: usize) -> Vec<Field> {
    let longest = lengths.last().copied().unwrap_or(1);
    let tokens = Field::numbers(INPUTS, DType::I32, [longest]).of_any_length(0, 0);
    vec![
        Field { kind: FieldKind::Tokens(Classes::at_least(vocabulary)), ..tokens },
        Field { kind: FieldKind::Length, ..Field::numbers(LENGTHS, DType::I32, []) },
        Field::target(TARGETS, FieldKind::Category(Classes::named(classes.to_vec())), []),
    ]
}

/// The texts of a table with their classes.
struct Written {
    texts: Vec<String>,
    labels: Vec<String>,
    /// The line of each in the file, from 1.
    lines: Lines,
    /// Rows that are left out: they have no text, or no class.
    empty: usize,
}

fn read(path: &Path, text: &str, target: &str) -> Result<Written> {
    let table = open_sheet(path, Format { separator: None, header: true })?;
    let column = |name: &str| {
        table.column(name).with_context(|| {
            let known: Vec<String> = table.names().iter().map(|name| format!("`{name}`")).collect();
            format!("`{}` has no column `{name}`; its columns are {}", path.display(), known.join(", "))
        })
    };
    let (text, target) = (column(text)?, column(target)?);
    let mut all = Written { texts: Vec::new(), labels: Vec::new(), lines: Lines::default(), empty: 0 };
    let several = table.paths().count() > 1;
    table.each_cells(&[text, target], |place, row| {
        let (text, label) = (row.get(text).unwrap_or_default(), row.get(target).unwrap_or_default().trim());
        if text.trim().is_empty() || label.is_empty() {
            all.empty += 1;
        } else {
            all.lines.add(place, all.texts.len(), several);
            all.texts.push(text.to_owned());
            all.labels.push(label.to_owned());
        }
        Ok(())
    })?;
    ensure!(!all.texts.is_empty(), "`{}` has no row with a text and a class", path.display());
    Ok(all)
}

fn load(options: &LabelledOptions) -> Result<Loaded> {
    let written = read(&options.path, &options.text, &options.target)?;
    let codec = match options.fitted.as_deref() {
        Some(codec) => codec.clone(),
        None => {
            let texts: Vec<&str> = written.texts.iter().map(String::as_str).collect();
            let tokenizer = Tokenizer::choose(&options.choice, &texts)?;
            let of_rows = || {
                let mut names: Vec<String> =
                    written.labels.iter().collect::<BTreeSet<_>>().into_iter().cloned().collect();
                in_order(&mut names);
                names
            };
            TextCodec {
                vocabulary: tokenizer.vocabulary(),
                tokenizer: Some(tokenizer),
                chat: None,
                samples: Samples::Labelled {
                    text: options.text.clone(),
                    target: options.target.clone(),
                    lengths: options.lengths.clone(),
                    classes: options.classes.clone().unwrap_or_else(of_rows),
                },
            }
        }
    };
    let mut told = Vec::new();
    let named = options.classes.is_some();
    let train = texts(&options.path, &written, &codec, named, &mut told)?;
    let val = match &options.val_path {
        Some(path) => texts(path, &read(path, &options.text, &options.target)?, &codec, named, &mut told)?,
        None => train.select(&[]),
    };
    let Samples::Labelled { lengths, .. } = &codec.samples else {
        bail!("the model was trained on one long text, and these are texts of their own")
    };
    let spec = DataSpec {
        train: Some(train.len()),
        val: Some(val.len()),
        lengths: lengths.clone(),
        fitted: Some(codec.written()?),
        ..DataSpec::new(codec.fields())
    };
    Ok(Loaded { spec, train, val, told })
}

/// The rows of a table as samples. `named`: the configuration has the names of the classes.
fn texts(path: &Path, written: &Written, codec: &TextCodec, named: bool, told: &mut Vec<String>) -> Result<Split> {
    let Samples::Labelled { classes, .. } = &codec.samples else { bail!("the model learns no classes of texts") };
    let mut labels = Vec::with_capacity(written.labels.len());
    // Where the classes have names, a row may have the number of one.
    let numbered = named && classes.iter().all(|name| name.parse::<f64>().is_err());
    let number = |label: &str| label.parse().ok().filter(|number| numbered && *number < classes.len());
    for label in &written.labels {
        let Some(class) = classes.iter().position(|class| class == label).or_else(|| number(label)) else {
            bail!(
                "`{}` has the class `{label}`, which is none of those that are learnt: {}",
                path.display(),
                super::super::listed(classes)
            )
        };
        labels.push(class as i32);
    }
    let mut texts =
        Texts::new(codec, written.texts.iter().map(String::as_str), labels, &format!("`{}`", path.display()))?;
    texts.names = Some(RowNames::Lines(written.lines.clone()));
    if written.empty > 0 {
        told.push(format!("`{}`: {} rows without a text or a class are left out", path.display(), written.empty));
    }
    if texts.cut > 0 {
        let longest = texts.lengths.last().copied().unwrap_or_default();
        told.push(format!("`{}`: {} of {} texts are cut to {longest} tokens", path.display(), texts.cut, texts.len()));
    }
    Split::new(Arc::new(texts))
}

/// Texts as samples for a trained model: the rows of a table, or the lines of any other file.
///
/// # Errors
/// It cannot be read, has no such column, or a text has a character without a token.
pub fn read_texts(path: &Path, codec: &TextCodec) -> Result<Split> {
    let mut codec = codec.clone();
    let Samples::Labelled { text, lengths, .. } = &mut codec.samples else {
        bail!(
            "a language model is trained on one long text: `runner generate` goes on with a text, and there is nothing to predict"
        )
    };
    // All batches are of one length, so that samples stay in their order.
    lengths.drain(..lengths.len() - 1);
    let text = text.clone();
    let codec = &codec;
    let mut all = Vec::new();
    if is_table(path) {
        let table = open_sheet(path, Format { separator: None, header: true })?;
        let column = table.column(&text).with_context(|| format!("`{}` has no column `{text}`", path.display()))?;
        table.each_cells(&[column], |_, row| {
            all.push(row.get(column).unwrap_or_default().to_owned());
            Ok(())
        })?;
    } else {
        let mut lines = FileLines::new(BufReader::new(crate::files::open(path)?.file), MAX_LINE);
        while let Some(line) = lines.read().with_context(|| format!("cannot read `{}`", path.display()))? {
            let at = || format!("`{}`, line {}", path.display(), all.len() + 1);
            ensure!(!line.too_long, "{}: it has more than {MAX_LINE} bytes", at());
            let text = std::str::from_utf8(line.bytes).with_context(|| format!("{} is no UTF-8", at()))?;
            all.push(text.trim_end_matches(['\n', '\r']).to_owned());
        }
    }
    ensure!(!all.is_empty(), "`{}` has no texts", path.display());
    let labels = vec![0; all.len()];
    Split::new(Arc::new(Texts::new(codec, all.iter().map(String::as_str), labels, &format!("`{}`", path.display()))?))
}

/// The tokens of a text, at most `longest`; whether there were more.
fn tokens_of(tokenizer: &Tokenizer, longest: usize, text: &str, called: &str) -> Result<(Vec<u32>, bool)> {
    let (mut tokens, cut) = tokenizer.encode_whole(text, longest, called)?;
    // A text of no tokens would be a mean over nothing.
    if tokens.is_empty() {
        tokens.push(UNKNOWN_TOKEN);
    }
    Ok((tokens, cut))
}

/// The bytes of a sample of the longest length: its tokens, and how many they are.
///
/// # Errors
/// The model takes no texts; the text, which `called` names, has a character without a token.
pub fn text_bytes(codec: &TextCodec, text: &str, called: &str) -> Result<[Vec<u8>; 2]> {
    let Samples::Labelled { lengths, .. } = &codec.samples else { bail!("the model learns no classes of texts") };
    let tokenizer = codec.tokenizer.as_ref().context("the checkpoint has no tokenizer")?;
    let (tokens, _) = tokens_of(tokenizer, lengths.last().copied().unwrap_or(1), text, called)?;
    let number = |number: u32| (number as i32).to_ne_bytes();
    let length = number(tokens.len() as u32).to_vec();
    let filled = tokens.iter().copied().chain(std::iter::repeat(UNKNOWN_TOKEN));
    let longest = lengths.last().copied().unwrap_or(1);
    Ok([filled.take(longest).flat_map(number).collect(), length])
}

/// Texts as tokens, one behind the other.
struct Texts {
    tokens: Vec<u32>,
    /// Where each begins, and where the last one ends.
    begins: Vec<usize>,
    labels: Values,
    lengths: Vec<usize>,
    /// How many were longer than the longest batch.
    cut: usize,
    fields: Vec<Field>,
    /// Which rows of a table they are.
    names: Option<RowNames>,
}

impl Texts {
    fn new<'a>(
        codec: &TextCodec,
        texts: impl Iterator<Item = &'a str>,
        labels: Vec<i32>,
        called: &str,
    ) -> Result<Texts> {
        let Samples::Labelled { lengths, .. } = &codec.samples else { bail!("the model learns no classes of texts") };
        let tokenizer = codec.tokenizer.as_ref().context("the checkpoint has no tokenizer")?;
        let longest = lengths.last().copied().unwrap_or(1);
        let mut all = Texts {
            tokens: Vec::new(),
            begins: vec![0],
            labels: Values::Ints(labels),
            lengths: lengths.clone(),
            cut: 0,
            fields: codec.fields(),
            names: None,
        };
        for (row, text) in texts.enumerate() {
            let (tokens, cut) = tokens_of(tokenizer, longest, text, &format!("{called}, text {}", row + 1))?;
            all.cut += usize::from(cut);
            all.tokens.extend(tokens);
            all.begins.push(all.tokens.len());
        }
        Ok(all)
    }

    fn text(&self, sample: usize) -> &[u32] {
        &self.tokens[self.begins[sample]..self.begins[sample + 1]]
    }
}

impl Store for Texts {
    fn len(&self) -> usize {
        self.begins.len() - 1
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    fn length_of(&self, sample: usize) -> usize {
        let tokens = self.text(sample).len();
        self.lengths.iter().position(|length| tokens <= *length).unwrap_or(self.lengths.len() - 1)
    }

    fn write(&self, sample: usize, rows: &mut Rows) -> Result<(), Unreadable> {
        let text = self.text(sample);
        rows.fill(0, |at, out| *out = (text.get(at).copied().unwrap_or(UNKNOWN_TOKEN) as i32).to_ne_bytes());
        rows.put(1, &(text.len() as i32).to_ne_bytes());
        rows.put(2, &self.labels.bytes()[sample * 4..][..4]);
        Ok(())
    }

    fn identify(&self, sample: usize, field: usize, take: &mut dyn FnMut(&[u8])) {
        match field {
            0 => self.text(sample).iter().for_each(|token| take(&token.to_ne_bytes())),
            1 => take(&(self.text(sample).len() as u64).to_le_bytes()),
            _ => take(&self.labels.bytes()[sample * 4..][..4]),
        }
    }

    fn stored(&self, field: usize) -> Option<&[u8]> {
        (field == 2).then(|| self.labels.bytes())
    }

    fn skips_unreadable(&self) -> bool {
        false
    }

    fn row(&self, sample: usize) -> Option<RowName<'_>> {
        self.names.as_ref().map(|names| names.at(sample))
    }

    fn held_bytes(&self) -> usize {
        let names = self.names.as_ref().map_or(0, RowNames::held_bytes);
        self.tokens.len() * 4 + self.begins.len() * size_of::<usize>() + self.labels.bytes().len() + names
    }
}
