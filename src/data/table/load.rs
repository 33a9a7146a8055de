//! From the text of a table to samples: codecs fitted on the rows of training, and all rows as they write them.

use super::super::Split;
use super::super::field::DataSpec;
use super::super::parallel::parallel;
use super::super::sheet::{Place, Sheet};
use super::aside::Lies;
use super::cell;
use super::codec::{Cells, ColumnCodec, Encoding, Read};
use super::columns::{Use, choose, name_of};
use super::division::{Division, Fold, Parts, at_random, by_groups, by_time, fold_at_random, fold_by_groups, strata};
use super::fitted::{TableCodec, Target};
use super::kinds::{CellType, Column};
use super::leaks::leaks;
use super::names::{no_column, quoted};
use super::options::{Choice, TableOptions};
use super::raw::{Raw, Reading, each_of};
use super::survey::{Surveyed, survey};
use super::targets::{expect_learnt, expect_targets, fit_target, targets, with_targets};
use super::text::{expect_rows, open};
use super::tokens::TokensCodec;
use super::unseen::Unseen;
use super::weights::expect_weights;
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
    // The table is written as the configuration says, whatever that of the training was.
    let own = fitted.map(|codec| {
        let TableOptions { decimal, id, sample_weight, format, .. } = options.clone();
        TableCodec { decimal, id, sample_weight, format, ..codec.clone() }
    });
    let reads = match fitted {
        Some(_) => own.as_ref().map_or(Vec::new(), |codec| codec.reads(true)),
        None => {
            let mut reads = inputs(&columns, &uses);
            reads.extend(targets(options, &columns).with_context(at)?);
            reads.extend(options.sample_weight.iter().map(|name| (name.as_str(), Read::Number)));
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
    let parts = divide(options, &text, &raw, &whole, fitted).with_context(at)?;
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
        None => fit(options, (&columns, &uses), &raw, (&whole, &parts.train)).with_context(at)?,
    };
    let leaks = if own.is_none() { leaks(&raw, &codec, &parts.train).with_context(at)? } else { Vec::new() };
    let (all, cut) = codec.samples(&raw, true, &options.room).with_context(at)?;
    notes.extend(cut_in_words(&options.path, &codec, &all, cut));
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
            val = all.select(&whole);
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
    let (all, cut) = codec.samples(&raw, true, &options.room).with_context(|| format!("`{}`", path.display()))?;
    notes.extend(cut_in_words(path, codec, &all, cut));
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

/// The rows of each part.
fn divide(options: &TableOptions, text: &Sheet, raw: &Raw, rows: &[u32], fitted: Option<&TableCodec>) -> Result<Parts> {
    let (division, several) = (&options.division, text.paths().count() > 1);
    let at = |place: Place| if several { place.to_string() } else { place.line_in_words() };
    let everything = || Parts { train: rows.to_vec(), ..Parts::default() };
    if let Some(column) = &division.split_column {
        let (mut parts, mut all) = (Parts::default(), 0);
        let take = |(parts, rows): &mut (Parts, usize), place: Place, word: &str| {
            if place.fault.is_none() {
                parts.add(*rows, column, word).with_context(|| at(place))?;
            }
            *rows += 1;
            Ok(())
        };
        each_of(text, (column, "split_column"), Default::default, take, |(next, rows)| {
            parts.join(next, all);
            all += rows;
        })?;
        for part in [&mut parts.train, &mut parts.val, &mut parts.test] {
            part.retain(|row| rows.binary_search(row).is_ok());
        }
        ensure!(!parts.train.is_empty(), "no row of `{column}` is for training");
        return Ok(parts);
    }
    if division.hold_out.is_none() && division.fold.is_none() {
        return Ok(everything());
    }
    if let (Some(column), Some(how)) = (&division.time_column, division.hold_out) {
        let decimal = text.decimal(options.decimal);
        let form = options.rules.iter().find(|rule| rule.pattern == *column).and_then(|rule| match &rule.choice {
            Choice::Encode(Encoding::Date { form, .. }) => *form,
            _ => None,
        });
        let own = text.column(column).is_some_and(|at| text.kinds().is_some_and(|kinds| kinds[at].is_date()));
        let date = |word: &str| form.filter(|_| !own).map_or_else(|| cell::date(word), |form| form.days(word));
        let take = |times: &mut Vec<f64>, place: Place, word: &str| {
            if place.fault.is_some() {
                times.push(f64::NAN);
                return Ok(());
            }
            let value = date(word).or_else(|| cell::number(word, decimal));
            times.push(value.with_context(|| match cell::is_missing(word) {
                true => format!("{}: `{column}` is missing, and rows are held out by it", at(place)),
                false => {
                    format!(
                        "{}: `{column}` has `{word}`, which is neither a date, as 2026-11-26, nor a number",
                        at(place)
                    )
                }
            })?);
            Ok(())
        };
        let mut times = Vec::new();
        each_of(text, (column, "time_column"), Vec::new, take, |next| times.extend(next))?;
        return by_time(rows, how, &times);
    }
    if let Some(column) = &division.group_column {
        // Numbers in the order of their first rows.
        let (words, _) = words_of(text, (column, "group_column"), |words, word| words.word(word))?;
        let groups: Vec<u64> = words.into_iter().flatten().map(u64::from).collect();
        return match (division.fold, division.hold_out) {
            (Some(fold), _) => fold_by_groups(rows, fold, division.seed, &groups),
            (None, Some(how)) => by_groups(rows, how, division.seed, &groups),
            (None, None) => Ok(everything()),
        };
    }
    if let Some(column) = &division.stratify_column {
        let take = |words: &mut Reading, word: &str| words.text((!cell::is_missing(word)).then_some(word));
        let (numbers, texts) = words_of(text, (column, "stratify_column"), take)?;
        let labels = strata(&numbers, &texts, rows);
        return match (division.fold, division.hold_out) {
            (Some(fold), _) => fold_at_random(rows, fold, division.seed, Some(&labels)),
            (None, Some(how)) => at_random(rows, how, division.seed, Some(&labels)),
            (None, None) => Ok(everything()),
        };
    }
    // The same rows as in training, whatever the numbers of the classes are called now.
    let column = match fitted.map(|codec| &codec.target) {
        Some(Target::Classes { column, .. }) => Some(column.as_str()),
        Some(Target::Numbers { .. }) => None,
        None => options.target.first().map(String::as_str),
    };
    let cells = column.map(|column| raw.column(column)).transpose()?;
    let labels = cells.as_deref().and_then(|column| match column {
        Cells::Texts(numbers, texts) => Some((numbers, texts)),
        Cells::Numbers(_) => None,
    });
    let labels = labels.map(|(numbers, texts)| {
        let mut order: Vec<u32> = (0..texts.len() as u32).collect();
        order.sort_by(|a, b| texts[*a as usize].cmp(&texts[*b as usize]));
        let mut rank = vec![0i32; texts.len()];
        order.iter().zip(0..).for_each(|(text, at)| rank[*text as usize] = at);
        numbers.iter().map(|number| number.map_or(-1, |number| rank[number as usize])).collect::<Vec<i32>>()
    });
    match (division.fold, division.hold_out) {
        (Some(fold), _) => fold_at_random(rows, fold, division.seed, labels.as_deref()),
        (None, Some(how)) => at_random(rows, how, division.seed, labels.as_deref()),
        (None, None) => Ok(everything()),
    }
}

/// The cells of a column as numbers of texts, as `take` takes them; `key` names the column.
fn words_of(
    text: &Sheet,
    (column, key): (&str, &str),
    take: impl Fn(&mut Reading, &str) + Sync,
) -> Result<(Vec<Option<u32>>, Vec<String>)> {
    let fresh = || Reading::new(column, Read::Text, 0);
    let take = |words: &mut Reading, _: Place, word: &str| {
        take(words, word);
        Ok(())
    };
    let mut words = fresh();
    each_of(text, (column, key), fresh, take, |next| words.join(next))?;
    Ok(words.numbered())
}

/// Refuses folds one of which alone has a class, before the first of them is trained.
fn expect_folds(options: &TableOptions, text: &Sheet, raw: &Raw, rows: &[u32]) -> Result<()> {
    let Some(Fold { number: 0, of }) = options.division.fold else { return Ok(()) };
    let mut learnt = options.learnt().map(|name| raw.column(name));
    if !learnt.try_fold(false, |any, cells| Ok::<_, anyhow::Error>(any | matches!(&*cells?, Cells::Texts(..))))? {
        return Ok(());
    }
    for number in 0..of {
        let division = Division { fold: Some(Fold { number, of }), ..options.division.clone() };
        let parts = divide(&TableOptions { division, ..options.clone() }, text, raw, rows, None)?;
        let fitted = fit_target(options, raw, (rows, &parts.train))
            .and_then(|_| options.heads.iter().try_for_each(|head| head.fit(raw, (rows, &parts.train)).map(|_| ())));
        fitted.with_context(|| format!("without the rows of fold {} of {of}", number + 1))?;
    }
    Ok(())
}

/// Fits the codecs on the rows of training, `train`; in all of `rows` nothing is missing that is learnt.
fn fit(
    options: &TableOptions,
    (columns, uses): (&[Column], &[Use]),
    raw: &Raw,
    (rows, train): (&[u32], &[u32]),
) -> Result<TableCodec> {
    let inputs = columns.iter().zip(uses).filter_map(|(column, used)| match used {
        Use::Input(encoding) => Some((&column.name, encoding)),
        _ => None,
    });
    let inputs: Vec<(&String, &Encoding)> = inputs.collect();
    let mut codecs = Vec::new();
    // All values of a column are in memory while its codec is fitted.
    for some in inputs.chunks((FITTED / (CELL * raw.rows().max(1))).max(1)) {
        let fitted = parallel(some.to_vec(), |(name, encoding)| {
            let cells = raw.column(name)?;
            Ok(ColumnCodec::fit(name, encoding, &cells, train, options.bins))
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
            Some(Use::Target) => match codec.target {
                Target::Classes { .. } => "the target, a class".to_owned(),
                Target::Numbers { .. } => "the target, a number".to_owned(),
            },
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
