//! Texts of a table, or pairs of them, each of a class: samples of as many tokens as each has, in batches of some lengths.

use super::super::Split;
use super::super::classes::{Classes, distinct, numbering, value};
use super::super::field::{DataSpec, Field, FieldKind, INPUTS, LENGTHS, Lengths, PAIR_START, TARGETS};
use super::super::found::Found;
use super::super::row_names::{Lines, RowName, RowNames};
use super::super::store::{Rows, Store, Unreadable};
use super::super::table::{Format, open_sheet, quoted};
use super::super::tokenizer::{Choice, Passage, Tokenizer, UNKNOWN_TOKEN, tokens_of};
use super::super::values::Values;
use super::super::weights::{no_weight, weight, weighted};
use super::super::wrong_columns::{WrongColumn, WrongColumns};
use super::loaded::{Load, Loaded, is_known_without_the_file, tokenizer, working_memory};
use super::{Samples, TextCodec};
use crate::graph::DType;
use crate::terminal::counted;
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::collections::BTreeSet;
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
    /// The column of the second text, of pairs.
    pub text_pair: Option<String>,
    /// The column of the class.
    pub target: String,
    /// The names of the classes in the order of their numbers; `None`: those of the rows, by name.
    pub classes: Option<Vec<String>>,
    /// The column with what a text weighs in the loss.
    pub sample_weight: Option<String>,
    /// How text becomes tokens.
    pub choice: Choice,
    /// The lengths of batches, ascending.
    pub lengths: Vec<usize>,
    /// What was found in training, if the model is trained already.
    pub fitted: Option<Box<TextCodec>>,
}

impl Load for LabelledOptions {
    fn found() -> &'static Found<Self, Loaded> {
        static FOUND: Found<LabelledOptions, Loaded> = Found::new();
        &FOUND
    }

    fn load(&self) -> Result<Loaded> {
        load(self)
    }

    fn codec_of_options(&self) -> Result<Option<TextCodec>> {
        if self.fitted.is_some() || !is_known_without_the_file(&self.choice, self.classes.as_ref()) {
            return Ok(None);
        }
        Ok(Some(codec(self, Tokenizer::choose(&self.choice, &[])?, self.classes.clone().unwrap_or_default())))
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// What is known of texts with these classes.
fn codec(options: &LabelledOptions, tokenizer: Tokenizer, classes: Vec<String>) -> TextCodec {
    let separator = tokenizer.separator().filter(|_| options.text_pair.is_some());
    TextCodec {
        vocabulary: tokenizer.vocabulary() + usize::from(separator.is_some()),
        tokenizer: Some(tokenizer),
        chat: None,
        begin: Vec::new(),
        samples: Samples::Labelled {
            text: options.text.clone(),
            text_pair: options.text_pair.clone(),
            target: options.target.clone(),
            lengths: options.lengths.clone(),
            classes,
        },
    }
}

/// The fields of a sample: its tokens, how many they are, of pairs how many of them belong to the first text, and its class.
pub fn fields(lengths: &[usize], classes: &[String], vocabulary: usize, pairs: bool) -> Vec<Field> {
    let longest = lengths.last().copied().unwrap_or(1);
    let tokens = Field::numbers(INPUTS, DType::I32, [longest]).of_any_length(0, 0);
    let number = |name: &str, kind| Field { kind, ..Field::numbers(name, DType::I32, []) };
    let mut all = vec![
        Field { kind: FieldKind::Tokens(Classes::at_least(vocabulary)), ..tokens },
        number(LENGTHS, FieldKind::Length),
    ];
    all.extend(pairs.then(|| number(PAIR_START, FieldKind::PairStart)));
    all.push(Field::target(TARGETS, FieldKind::Category(Classes::named(classes.to_vec())), []));
    all
}

/// The texts of a table with their classes.
struct Written {
    texts: Vec<Passage>,
    labels: Vec<String>,
    /// The line of each in the file, from 1.
    lines: Lines,
    /// Rows that are left out: they have no text, or no class.
    empty: usize,
    /// What each weighs, if they weigh differently.
    weights: Option<Vec<f32>>,
}

impl Written {
    fn working_memory(&self, codec: &TextCodec) -> usize {
        working_memory(self.texts.iter().flat_map(Passage::texts).chain(self.labels.iter().map(String::as_str)), codec)
    }
}

/// The rows of a table that have something in all of some columns.
pub struct Filled {
    /// Their cells.
    pub rows: Vec<Vec<String>>,
    /// Where they stand.
    pub lines: Lines,
    /// How many others there are.
    pub empty: usize,
    /// What each weighs, if a column says that.
    pub weights: Vec<f32>,
}

/// The rows of a table that have something in all of some columns; what they weigh is in the column `weighs`.
///
/// # Errors
/// The table cannot be read, or lacks one of the columns; what a row weighs is no number of at least 0.
pub fn filled(path: &Path, columns: &[&str], weighs: Option<&str>) -> Result<Filled> {
    let table = open_sheet(path, Format::default())?;
    let missing: Vec<String> = columns
        .iter()
        .chain(&weighs)
        .filter(|name| table.column(name).is_none())
        .map(|name| (*name).to_owned())
        .collect();
    if !missing.is_empty() {
        let (names, there) = (quoted(&missing), quoted(table.names()));
        let s = if missing.len() == 1 { "" } else { "s" };
        let message = format!("`{}` has no column{s} {names}; its columns are {there}", path.display());
        let label = "the table has no such column".to_owned();
        let wrong = missing.into_iter().map(|name| WrongColumn { key: "", name, label: label.clone() });
        bail!(WrongColumns::new(wrong.collect(), message));
    }
    let columns: Vec<usize> = columns.iter().filter_map(|name| table.column(name)).collect();
    let weighs = weighs.and_then(|name| Some((name, table.column(name)?)));
    let wanted: Vec<usize> = columns.iter().copied().chain(weighs.map(|(_, at)| at)).collect();
    let several = table.paths().count() > 1;
    let (rows, lines, weights) = (Vec::new(), Lines::default(), Vec::new());
    let mut all = Filled { rows, lines, empty: 0, weights };
    table.each_cells(&wanted, |place, row| {
        let cells: Vec<&str> = columns.iter().map(|column| row[*column]).collect();
        if cells.iter().any(|cell| cell.trim().is_empty()) {
            all.empty += 1;
        } else {
            if let Some((name, at)) = weighs {
                let weight = weight(row[at]).map_err(|has| anyhow!(no_weight(&place.to_string(), name, &has)))?;
                all.weights.push(weight);
            }
            all.lines.add(place, all.rows.len(), several);
            all.rows.push(cells.into_iter().map(str::to_owned).collect());
        }
        Ok(())
    })?;
    Ok(all)
}

fn read(path: &Path, options: &LabelledOptions) -> Result<Written> {
    let columns = [&options.text, &options.target].into_iter().chain(&options.text_pair);
    let columns: Vec<&str> = columns.map(String::as_str).collect();
    let Filled { rows, lines, empty, weights } = filled(path, &columns, options.sample_weight.as_deref())?;
    ensure!(!rows.is_empty(), "`{}` has no row with a text and a class", path.display());
    let weights = options.sample_weight.as_ref().map(|_| weights);
    let mut all = Written { texts: Vec::new(), labels: Vec::new(), lines, empty, weights };
    for row in rows {
        let mut cells = row.into_iter();
        let mut next = || cells.next().unwrap_or_default();
        let (text, label) = (next(), next());
        all.texts.push(Passage { text, pair: cells.next() });
        all.labels.push(value(label.trim()).to_owned());
    }
    Ok(all)
}

fn load(options: &LabelledOptions) -> Result<Loaded> {
    let written = read(&options.path, options)?;
    let codec = match options.fitted.as_deref() {
        Some(codec) if matches!(codec.samples, Samples::Labelled { .. }) => codec.clone(),
        other => {
            let texts: Vec<&str> = written.texts.iter().flat_map(Passage::texts).collect();
            let tokenizer = tokenizer(other, &options.choice, &texts)?;
            let of_rows = || {
                let mut names: Vec<String> =
                    written.labels.iter().collect::<BTreeSet<_>>().into_iter().cloned().collect();
                distinct(&mut names);
                names
            };
            codec(options, tokenizer, options.classes.clone().unwrap_or_else(of_rows))
        }
    };
    let mut notes = Vec::new();
    let mut reading = written.working_memory(&codec);
    let named = options.classes.is_some();
    let train = texts(&options.path, &written, &codec, named, &mut notes)?;
    let val = match &options.val_path {
        Some(path) => {
            let written = read(path, options)?;
            reading = reading.max(written.working_memory(&codec));
            texts(path, &written, &codec, named, &mut notes)?
        }
        None => train.select(&[]),
    };
    let Samples::Labelled { lengths, .. } = &codec.samples else {
        bail!("the model was trained on one long text, and these are texts of their own")
    };
    let spec = DataSpec {
        train: Some(train.len()),
        val: Some(val.len()),
        lengths: Lengths::firsts(lengths),
        fitted: Some(codec.written()?),
        ..DataSpec::new(train.fields().to_vec())
    };
    Ok(Loaded { spec, train, val, notes, reading })
}

/// The rows of a table as samples. `named`: the configuration has the names of the classes.
fn texts(path: &Path, written: &Written, codec: &TextCodec, named: bool, notes: &mut Vec<String>) -> Result<Split> {
    let Samples::Labelled { classes, lengths, .. } = &codec.samples else {
        bail!("the model learns no classes of texts")
    };
    let mut labels = Vec::with_capacity(written.labels.len());
    let number = numbering(classes, named);
    for (row, label) in written.labels.iter().enumerate() {
        let Some(class) = number(label) else {
            bail!(
                "`{}`: {} has the class `{label}`, which is none of those that are learnt: {}",
                path.display(),
                written.lines.at(row),
                super::super::listed(classes)
            )
        };
        labels.push(class as i32);
    }
    let mut texts = Texts::new(codec, &written.texts, labels, &format!("`{}`", path.display()))?;
    texts.names = Some(RowNames::Lines(written.lines.clone()));
    if written.empty > 0 {
        notes.push(format!("`{}`: {} rows without a text or a class are left out", path.display(), written.empty));
    }
    if texts.cut > 0 {
        let longest = lengths.last().copied().unwrap_or_default();
        notes.push(format!(
            "`{}`: {} of {} texts are cut to {}",
            path.display(),
            texts.cut,
            texts.len(),
            counted(longest, "token")
        ));
    }
    let split = Split::new(Arc::new(texts))?;
    match &written.weights {
        Some(weights) => weighted(&split, weights.clone(), &format!("`{}`", path.display())),
        None => Ok(split),
    }
}

/// Texts as tokens, one after the other.
pub struct Texts {
    tokens: Vec<u32>,
    /// Where each begins, and where the last one ends.
    begins: Vec<usize>,
    /// Of pairs, how many tokens of each belong to the first text.
    pair_starts: Option<Vec<i32>>,
    labels: Values,
    lengths: Vec<Lengths>,
    /// How many were longer than the longest batch.
    cut: usize,
    fields: Vec<Field>,
    /// Which rows of a table they are.
    names: Option<RowNames>,
}

impl Texts {
    /// Those of these classes. `called` names their file in errors.
    ///
    /// # Errors
    /// A text has a character without a token.
    pub fn new(codec: &TextCodec, texts: &[Passage], labels: Vec<i32>, called: &str) -> Result<Texts> {
        let Samples::Labelled { lengths, text_pair, .. } = &codec.samples else {
            bail!("the model learns no classes of texts")
        };
        let tokenizer = codec.tokenizer.as_ref().context("the checkpoint has no tokenizer")?;
        let longest = lengths.last().copied().unwrap_or(1);
        let mut all = Texts {
            tokens: Vec::new(),
            begins: vec![0],
            pair_starts: text_pair.as_ref().map(|_| Vec::with_capacity(texts.len())),
            labels: Values::Ints(labels),
            lengths: Lengths::firsts(lengths),
            cut: 0,
            fields: codec.fields(),
            names: None,
        };
        for (row, text) in texts.iter().enumerate() {
            let whole = tokens_of(tokenizer, longest, text, &format!("{called}, sample {row}"))?;
            all.cut += usize::from(whole.cut);
            all.tokens.extend(whole.tokens);
            all.pair_starts.iter_mut().for_each(|starts| starts.push(whole.pair_start as i32));
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

    fn lengths(&self) -> &[Lengths] {
        &self.lengths
    }

    fn length_of(&self, sample: usize) -> usize {
        let tokens = self.text(sample).len();
        Lengths::place(&self.lengths, [tokens, 0])
    }

    fn write(&self, sample: usize, rows: &mut Rows) -> Result<(), Unreadable> {
        let text = self.text(sample);
        rows.fill(0, |at, out| *out = (text.get(at).copied().unwrap_or(UNKNOWN_TOKEN) as i32).to_ne_bytes());
        rows.put(1, &(text.len() as i32).to_ne_bytes());
        if let Some(starts) = &self.pair_starts {
            rows.put(2, &starts[sample].to_ne_bytes());
        }
        rows.put(self.fields.len() - 1, &self.labels.bytes()[sample * 4..][..4]);
        Ok(())
    }

    fn identify(&self, sample: usize, field: usize, take: &mut dyn FnMut(&[u8])) {
        match (field, &self.pair_starts) {
            (0, _) => self.text(sample).iter().for_each(|token| take(&token.to_ne_bytes())),
            (1, _) => take(&(self.text(sample).len() as u64).to_le_bytes()),
            (2, Some(starts)) => take(&starts[sample].to_ne_bytes()),
            _ => take(&self.labels.bytes()[sample * 4..][..4]),
        }
    }

    fn stored(&self, field: usize) -> Option<&[u8]> {
        (field == self.fields.len() - 1).then(|| self.labels.bytes())
    }

    fn skips_unreadable(&self) -> bool {
        false
    }

    fn row(&self, sample: usize) -> Option<RowName<'_>> {
        self.names.as_ref().map(|names| names.at(sample))
    }

    fn held_bytes(&self) -> usize {
        let names = self.names.as_ref().map_or(0, RowNames::held_bytes);
        let starts = self.pair_starts.as_ref().map_or(0, |starts| starts.len() * 4);
        self.tokens.len() * 4 + self.begins.len() * size_of::<usize>() + self.labels.bytes().len() + starts + names
    }
}
