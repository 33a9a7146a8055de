//! From the text of a table to samples: codecs fitted on the rows of training, and all rows as they write them.

use super::super::Split;
use super::super::field::DataSpec;
use super::super::parallel::parallel;
use super::aside::Lies;
use super::codec::{ColumnCodec, Encoding, Read};
use super::columns::{Use, choose, name_of};
use super::divide::{divide, expect_folds};
use super::fit_windows::{expect_numbers, expect_windows, fit_windows};
use super::fitted::{TableCodec, Target};
use super::kinds::{CellType, Column};
use super::leaks::leaks;
use super::names::{no_column, quoted};
use super::options::TableOptions;
use super::raw::Raw;
use super::survey::{Surveyed, survey};
use super::targets::{coarse, expect_learnt, expect_targets, fit_target, targets, with_targets};
use super::text::{expect_rows, open};
use super::tokens::TokensCodec;
use super::unseen::Unseen;
use super::weights::expect_weights;
use super::windows::{SetBy, Windows};
use crate::terminal::{counted, human_bytes};
use anyhow::{Context, Result, bail, ensure};
use std::collections::HashMap;
use std::fmt;
use std::path::Path;

/// Bytes of the columns whose codecs are fitted at a time, if that are several.
const FITTED: usize = 1 << 30;
/// Bytes that a cell takes while its column's codec is fitted: as it was read, and once more to be sorted.
const CELL: usize = 16;

/// Columns that are left out and named; of more, how many there are.
const NAMED: usize = 20;

/// A table, read.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What its samples are.
    pub spec: DataSpec,
    /// Rows that are trained on.
    pub train: Split,
    /// Rows that are validated on.
    pub val: Split,
    /// Rows of a test set.
    pub test: Option<Split>,
    /// Its columns.
    pub columns: Vec<Shown>,
    /// What the user should know of it.
    pub notes: Vec<String>,
    /// Bytes of a file in which its cells were while it was read.
    pub filing: usize,
}

/// A column, and what is made of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown {
    /// What it is like.
    pub column: Column,
    /// What becomes of it.
    pub becomes: String,
    /// How many numbers of a sample it becomes.
    pub width: usize,
}

/// Reads a table, fits codecs (unless they were fitted in training) and makes samples.
///
/// # Errors
/// See [`TableOptions`].
pub fn load(options: &TableOptions) -> Result<Loaded> {
    let text = open(&options.path, options.format)?.skipping(options.skip);
    let at = || format!("`{}`", options.path.display());
    let aside = options.room.aside(text.bytes_as_numbers())?;
    let Surveyed { mut columns, rows, known } = survey(&text, options.decimal, aside.as_ref())?;
    expect_rows(&text, &options.path, rows)?;
    if options.skip {
        columns.iter_mut().for_each(Column::as_meant);
    }
    ensure!(u32::try_from(rows).is_ok(), "{} has {rows} rows, and at most {} are read", at(), u32::MAX);
    let fitted = options.fitted.as_deref();
    let uses = match fitted {
        Some(_) => Vec::new(),
        None => choose(options, &columns, rows).with_context(at)?,
    };
    if let Some(codec) = fitted {
        // One of the training's need not be there.
        if let Some(id) = options.id.as_ref().filter(|id| codec.id.as_ref() != Some(id) && text.column(id).is_none()) {
            bail!("{}: {}", at(), no_column(id, "id", text.names().iter().map(String::as_str)));
        }
        let learnt = codec.targets_named();
        ensure!(
            learnt == options.target,
            "{}: the model learnt {}, and `target` asks for {}: train a model anew for another target",
            at(),
            quoted(&learnt),
            quoted(&options.target)
        );
        let heads: Vec<_> = options.heads.iter().map(|head| (&head.name, &head.column)).collect();
        codec.expect_heads(&heads).with_context(at)?;
    }
    let windows = match fitted {
        Some(codec) => {
            expect_windows(codec, options).with_context(at)?;
            codec.windows_by(options)
        }
        None => fit_windows(options, &columns, &uses).with_context(at)?,
    };
    // The table is written as the configuration says, whatever that of the training was.
    let own = fitted.map(|codec| {
        let TableOptions { decimal, id, sample_weight, format, .. } = options.clone();
        TableCodec { decimal, id, sample_weight, format, windows: windows.clone(), ..codec.clone() }
    });
    let reads = match fitted {
        Some(_) => own.as_ref().map_or(Vec::new(), |codec| codec.reads(true)),
        None => {
            let mut reads = inputs(&columns, &uses);
            let learnt = targets(options, &columns).with_context(at)?;
            windows.iter().try_for_each(|windows| expect_numbers(windows, &learnt)).with_context(at)?;
            reads.extend(learnt);
            reads.extend(options.sample_weight.iter().map(|name| (name.as_str(), Read::Number)));
            let keys =
                windows.iter().flat_map(Windows::keys).filter(|(name, _)| !reads.iter().any(|(read, _)| read == name));
            let keys: Vec<_> = keys.collect();
            reads.extend(keys);
            reads
        }
    };
    own.iter().try_for_each(|codec| expect_learnt(&text, codec))?;
    let mut raw = Raw::read_rest(&text, &reads, options.id.as_deref(), options.decimal, known, aside.as_ref())?;
    expect_targets(options, &mut raw, fitted).with_context(at)?;
    expect_weights(options, &text, &mut raw).with_context(at)?;
    let mut notes = Vec::new();
    // Numbers of classes are seldom meant as numbers.
    let two = |column: &&Column| options.target.contains(&column.name) && column.whole && column.distinct == 2;
    if let Some(column) =
        columns.iter().find(two).filter(|_| own.is_none() && options.standardize_target && !options.classes)
    {
        notes.push(format!(
            "{}: the target `{}` has two values, {}, and is learnt as a number: `classes = true` in `[data]` with the loss `cross_entropy` learns which of the two it is",
            at(),
            column.name,
            quoted(&column.examples)
        ));
    }
    let whole = with_targets(options, &raw, &mut notes)?;
    ensure!(!whole.is_empty(), "{}: the target is missing in every row", at());
    let series = windows.as_ref().map(|windows| windows.series_of(&raw)).transpose().with_context(at)?;
    let parts = divide(options, &text, &raw, (&whole, series.as_deref()), fitted).with_context(at)?;
    if own.is_none() {
        let far = options.division.far_from_asked(&parts);
        notes.extend(far.map(|words| format!("{}: {words}", at())));
        expect_folds(options, &text, &raw, &whole).with_context(at)?;
    }
    // Its memory is for the samples now.
    drop(text);
    let codec = match own.clone() {
        Some(codec) => {
            let mut unseen = Unseen::default();
            unseen.look(&codec.columns, &raw, &whole)?;
            notes.extend(unseen.in_words().into_iter().map(|words| format!("{}: {words}", at())));
            codec
        }
        None => {
            // A row without a target is of no part, and the model sees it in windows of training.
            let seen = series.as_ref().zip(windows.as_ref()).map(|(series, windows)| windows.seen(series, &parts));
            let seen = seen.as_ref().unwrap_or(&parts.train);
            let learnt = (&whole[..], &parts.train[..]);
            TableCodec { windows, ..fit(options, (&columns, &uses), &raw, (seen, learnt)).with_context(at)? }
        }
    };
    notes.extend(raw.zones_in_words(&codec.columns).iter().map(|words| format!("{}: {words}", at())));
    if own.is_none() {
        notes.extend(coarse(&raw, &codec, &parts.train)?.iter().map(|words| format!("{}: {words}", at())));
    }
    let leaks = if own.is_none() { leaks(&raw, &codec, &parts.train).with_context(at)? } else { Vec::new() };
    let (all, cut) = codec.samples(&raw, series.as_ref(), true, &options.room).with_context(at)?;
    notes.extend(cut_in_words(&options.path, &codec, &all, cut));
    let mut parts = parts;
    if let (Some(series), Some(windows)) = (&series, &codec.windows) {
        if own.is_none() {
            notes.extend(windows.notes(series).into_iter().map(|words| format!("{}: {words}", at())));
        }
        let set_by = if own.is_some() { SetBy::Model } else { SetBy::Configuration };
        parts = windows.divided(series, &parts, set_by).with_context(at)?;
    }
    // What its cells took is for others now.
    drop(raw);
    let filing = aside.map_or(0, |file| usize::try_from(file.bytes()).unwrap_or(usize::MAX));
    let (train, mut val) = (all.select(&parts.train), all.select(&parts.val));
    let test = (!parts.test.is_empty()).then(|| all.select(&parts.test));
    if let Some(path) = &options.val_path {
        if *path == options.path {
            if own.is_none() {
                notes.push(format!(
                    "{} is both trained on and validated on: its figures say nothing of other rows",
                    at()
                ));
            }
            val = all.select(&codec.learnable(series.as_deref(), whole));
        } else {
            let (all, rows) = validation(path, options, &codec, &mut notes).context(OfValidation)?;
            val = all.select(&rows);
        }
    }
    let left = columns.iter().zip(&uses).filter_map(|(column, used)| match used {
        Use::Left(why) if column.useless(rows).is_some() => Some(format!("`{}` ({why})", column.name)),
        _ => None,
    });
    let left: Vec<String> = left.collect();
    for (column, used) in columns.iter().zip(&uses).filter(|(_, used)| matches!(used, Use::Input(_))) {
        let rule = options.rules.iter().any(|rule| rule.pattern == column.name);
        if column.cells == CellType::Codes && matches!(used, Use::Input(Encoding::Category { .. })) && !rule {
            notes.push(format!(
                "{}: `{}` is taken for a category: some of its numbers have zeros before them, as codes do; `columns` can make it a number",
                at(),
                column.name
            ));
        }
        let text = matches!(used, Use::Input(Encoding::Category { .. } | Encoding::Hashed { .. } | Encoding::Text(_)));
        if let Some(odd) = column.odd.as_ref().filter(|_| text && !rule) {
            notes.push(format!("{}: `{}` is taken for texts: it has {}", at(), column.name, odd.in_words()));
        } else if text && !rule && column.cells == CellType::Texts && column.readable_as == CellType::Dates {
            let name = &column.name;
            notes.push(format!(
                "{}: `{name}` is taken for texts, as the file says: `{name} = \"date\"` in `columns` reads its dates",
                at()
            ));
        }
    }
    if !left.is_empty() {
        let more = left.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let named = left[..left.len().min(NAMED)].join(", ");
        notes.push(format!("{}: columns that are left out: {named}{more}", at()));
    }
    let filed = all.filed_bytes();
    if filed > 0 && options.room.lies == Lies::WhereThereIsRoom {
        notes.push(format!(
            "{}: its samples take {}, more than a quarter of the memory that there is, and lie in a file in `{}`: `cache = \"memory\"` in `[data]` has them in memory",
            at(),
            human_bytes(filed),
            options.room.place().unwrap_or_default().display()
        ));
    }
    let columns = shown(columns, &uses, &codec);
    let spec = DataSpec {
        train: Some(train.len()),
        val: Some(val.len()),
        fitted: Some(codec.written()?),
        leaks,
        lengths: codec.tokens.as_ref().map_or(Vec::new(), TokensCodec::batches),
        ..DataSpec::new(codec.fields())
    };
    Ok(Loaded { spec, train, val, test, columns, notes, filing })
}

/// Marks an error of the file that is validated on, found by `downcast_ref`.
#[derive(Debug)]
pub struct OfValidation;

impl fmt::Display for OfValidation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the rows to validate on")
    }
}

/// The rows of a file of its own to validate on, and those of them whose target is there.
fn validation(
    path: &Path,
    options: &TableOptions,
    codec: &TableCodec,
    notes: &mut Vec<String>,
) -> Result<(Split, Vec<u32>)> {
    let text = open(path, codec.format())?.skipping(options.skip);
    let aside = options.room.aside(text.bytes_as_numbers())?;
    expect_learnt(&text, codec)?;
    let mut raw = Raw::read(&text, &codec.reads(true), codec.id.as_deref(), codec.decimal, aside.as_ref())?;
    let own = TableOptions { path: path.to_owned(), ..options.clone() };
    expect_targets(&own, &mut raw, Some(codec)).with_context(|| format!("`{}`", path.display()))?;
    expect_weights(&own, &text, &mut raw).with_context(|| format!("`{}`", path.display()))?;
    let rows = with_targets(&own, &raw, notes)?;
    ensure!(!rows.is_empty(), "`{}` has no row with a target", path.display());
    let at = || format!("`{}`", path.display());
    let series = codec.series(&raw).with_context(at)?;
    let (all, cut) = codec.samples(&raw, series.as_ref(), true, &options.room).with_context(at)?;
    notes.extend(cut_in_words(path, codec, &all, cut));
    notes.extend(raw.zones_in_words(&codec.columns).iter().map(|words| format!("{}: {words}", at())));
    let rows = codec.learnable(series.as_deref(), rows);
    ensure!(!rows.is_empty(), "{}: no series is long enough for a window with the rows after it", at());
    Ok((all, rows))
}

/// What there is to say of texts that are cut.
fn cut_in_words(path: &Path, codec: &TableCodec, all: &Split, cut: usize) -> Option<String> {
    let tokens = codec.tokens.as_ref().filter(|_| cut > 0)?;
    let (path, column, longest) = (path.display(), &tokens.column, tokens.longest());
    Some(format!("`{path}`: {cut} of {} texts of `{column}` are cut to {}", all.len(), counted(longest, "token")))
}

/// The columns that the model takes, and how their cells are read.
fn inputs<'a>(columns: &'a [Column], uses: &[Use]) -> Vec<(&'a str, Read)> {
    let used = columns.iter().zip(uses).filter_map(|(column, used)| match used {
        Use::Input(encoding) => Some((column.name.as_str(), encoding.read())),
        Use::Tokens(_) => Some((column.name.as_str(), Read::Text)),
        _ => None,
    });
    used.collect()
}

/// Fits the codecs on the rows that the model sees in training, `seen`, and on those that it learns, `train`; in all of `rows` nothing is missing that is learnt.
fn fit(
    options: &TableOptions,
    (columns, uses): (&[Column], &[Use]),
    raw: &Raw,
    (seen, (rows, train)): (&[u32], (&[u32], &[u32])),
) -> Result<TableCodec> {
    let inputs = columns.iter().zip(uses).filter_map(|(column, used)| match used {
        Use::Input(encoding) | Use::Target(Some(encoding)) => Some((&column.name, encoding)),
        _ => None,
    });
    let inputs: Vec<(&String, &Encoding)> = inputs.collect();
    let mut codecs = Vec::new();
    // All values of a column are in memory while its codec is fitted.
    for some in inputs.chunks((FITTED / (CELL * raw.rows().max(1))).max(1)) {
        let fitted = parallel(some.to_vec(), |(name, encoding)| {
            let cells = raw.column(name)?;
            Ok(ColumnCodec::fit(name, encoding, &cells, seen, options.bins))
        });
        codecs.extend(fitted.into_iter().collect::<Result<Vec<_>>>()?);
    }
    let tokens = columns.iter().zip(uses).find_map(|(column, used)| match used {
        Use::Tokens(tokens) => Some((&column.name, tokens)),
        _ => None,
    });
    let tokens = tokens.map(|(name, own)| TokensCodec::fit(name, own, &*raw.column(name)?, train)).transpose()?;
    let target = fit_target(options, raw, (rows, train))?;
    let heads = options.heads.iter().map(|head| head.fit(raw, (rows, train))).collect::<Result<_>>()?;
    Ok(TableCodec {
        columns: codecs,
        takes: if tokens.is_some() { options.takes.clone() } else { Vec::new() },
        tokens,
        target,
        heads,
        decimal: options.decimal,
        id: options.id.clone(),
        sample_weight: options.sample_weight.clone(),
        format: options.format,
        bins: options.bins,
        windows: None,
    })
}

/// What becomes of each column, for people.
fn shown(columns: Vec<Column>, uses: &[Use], codec: &TableCodec) -> Vec<Shown> {
    let known: HashMap<&str, &ColumnCodec> = codec.columns.iter().map(|own| (own.name.as_str(), own)).collect();
    let of = |(at, column): (usize, Column)| {
        let own = known.get(column.name.as_str()).copied();
        let width = own.map_or(0, ColumnCodec::width);
        let becomes = match uses.get(at) {
            Some(Use::Input(encoding)) => name_of(*encoding).to_owned(),
            Some(Use::Tokens(_)) => codec.tokens.as_ref().map_or_else(String::new, |tokens| {
                format!("tokens, at most {}: {}", tokens.longest(), tokens.tokenizer.in_words())
            }),
            Some(Use::Target(before)) => {
                let learnt = match codec.target {
                    Target::Classes { .. } => "the target, a class",
                    Target::Numbers { .. } => "the target, a number",
                };
                let before = before.map_or_else(String::new, |before| format!("; before, {}", name_of(before)));
                format!("{learnt}{before}")
            }
            Some(Use::Head(name)) => {
                match codec.heads.iter().find(|head| head.name == *name).map(|head| &head.target) {
                    Some(Target::Classes { .. }) => format!("the target of the head `{name}`, a class"),
                    Some(Target::Numbers { .. }) | None => format!("the target of the head `{name}`, a number"),
                }
            }
            Some(Use::Id) => "names the row".to_owned(),
            Some(Use::Weight) => "what the row weighs".to_owned(),
            Some(Use::Left(why)) => format!("left out: {why}"),
            None if own.is_some() => "taken by the model".to_owned(),
            None => "not taken by the model".to_owned(),
        };
        Shown { column, becomes, width }
    };
    columns.into_iter().enumerate().map(of).collect()
}
