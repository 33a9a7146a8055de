//! What is learnt of a table: which rows have it, how its cells are read, and what is fitted on it.

use super::super::classes::numbering;
use super::super::field::Standard;
use super::super::held::listed;
use super::super::sheet::Sheet;
use super::codec::{Cells, Read, mean_and_deviation};
use super::fitted::{Head, TableCodec, Target};
use super::kinds::{CellType, Column, Odd};
use super::names::{no_column, quoted};
use super::options::{HeadOptions, TableOptions};
use super::raw::Raw;
use crate::terminal::counted;
use anyhow::{Context, Result, bail, ensure};

/// A standard deviation of a target should have more steps of single precision.
const STEPS: f64 = 100.0;
/// So many different numbers with a unit may be names of classes.
const FEW: usize = 10;

/// The rows that have every target. `notes` gets a line if others are left out.
pub fn with_targets(options: &TableOptions, raw: &Raw, notes: &mut Vec<String>) -> Result<Vec<u32>> {
    let mut rows: Vec<u32> = (0..raw.rows() as u32).collect();
    let learnt: Vec<String> = options.learnt().cloned().collect();
    for name in &learnt {
        let cells = raw.column(name)?;
        rows.retain(|row| !cells.is_missing(*row) || raw.skips(*row));
    }
    let missing = raw.rows() - rows.len();
    if missing > 0 {
        let (rows, learnt) = (counted(missing, "row"), quoted(&learnt));
        let done = if options.windows.is_some() { "in windows, and not learnt" } else { "left out" };
        notes.push(format!("`{}`: {rows} without {learnt} {done}", options.path.display()));
    }
    let at = || format!("`{}`", options.path.display());
    notes.extend(raw.skipped_in_words("are left out").with_context(at)?.map(|words| format!("{}: {words}", at())));
    rows.retain(|row| !raw.skips(*row));
    Ok(rows)
}

/// Refuses what cannot be learnt, or leaves the rows out that have it: a number that a loss is not for and, where rows are left out, a class that is none of the known ones.
/// `fitted`: what was found in training, if the model is trained already.
pub fn expect_targets(options: &TableOptions, raw: &mut Raw, fitted: Option<&TableCodec>) -> Result<()> {
    let own = options.target.iter().map(|name| (name, options.range));
    for (name, range) in own.chain(options.heads.iter().map(|head| (&head.column, head.range))) {
        let Some(range) = range else { continue };
        let bad = {
            let cells = raw.column(name)?;
            let Cells::Numbers(values) = &*cells else { continue };
            // A cell that is missing is NaN.
            let bad = values.iter().enumerate().filter(|(_, value)| !value.is_nan() && !range.contains(**value));
            bad.map(|(row, value)| (row, *value)).collect::<Vec<_>>()
        };
        raw.leave_out(bad, |row, value: f64| format!("{row}: the target `{name}` has `{value}`, and {range}"))?;
    }
    if !raw.leaves_out() {
        return Ok(());
    }
    let known = match fitted {
        Some(codec) => codec.classes(),
        None => options.class_names.iter().map(|names| (&options.target[0], &names[..])).collect(),
    };
    for (column, known) in known {
        let number = numbering(known, false);
        let bad = {
            let cells = raw.column(column)?;
            let Cells::Texts(numbers, texts) = &*cells else { continue };
            let unknown: Vec<bool> = texts.iter().map(|text| number(text).is_none()).collect();
            let bad = numbers.iter().enumerate().filter_map(|(row, number)| Some((row, (*number)? as usize)));
            let bad = bad.filter(|(_, number)| unknown[*number]);
            bad.map(|(row, number)| (row, texts[number].clone())).collect::<Vec<_>>()
        };
        raw.leave_out(bad, |row, text: String| {
            format!("{row}: the target `{column}` has `{text}`, which is none of {}", listed(known))
        })?;
    }
    Ok(())
}

/// Refuses a table of a trained model that lacks what is learnt, or what rows weigh, which the model does not take.
pub fn expect_learnt(text: &Sheet, codec: &TableCodec) -> Result<()> {
    let learnt = codec.learnt().flat_map(Target::columns).map(|name| (name, "target"));
    for (name, key) in learnt.chain(codec.sample_weight.iter().map(|name| (name, "sample_weight"))) {
        let names = text.names().iter().map(String::as_str);
        let lacks = || format!("`{}`: {}", text.path().display(), no_column(name, key, names));
        text.column(name).with_context(lacks)?;
    }
    Ok(())
}

/// What there is to say of targets whose values lie so far from 0 that single precision, in which they are learnt, has few steps where they lie. `train`: the rows that are
/// trained on.
pub fn coarse(raw: &Raw, codec: &TableCodec, train: &[u32]) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    for name in codec.learnt().flat_map(Target::columns) {
        let Cells::Numbers(values) = &*raw.column(name)? else { continue };
        let own = train.iter().map(|row| values[*row as usize]);
        let largest = own.clone().fold(0f64, |most, value| most.max(value.abs())) as f32;
        let (mean, deviation) = mean_and_deviation(own);
        let step = f64::from(largest.next_up() - largest);
        if deviation > 0.0 && step > deviation / STEPS {
            notes.push(format!(
                "the target `{name}` has a mean of {mean:.0} and a standard deviation of {deviation:.3}, and is learnt in single precision, which has steps of {step} there: \
                 learn by how much it differs from some number, or from the row before"
            ));
        }
    }
    Ok(notes)
}

/// The columns that are learnt, and how their cells are read.
pub fn targets<'a>(options: &'a TableOptions, columns: &[Column]) -> Result<Vec<(&'a str, Read)>> {
    let find = |name: &String| columns.iter().find(|column| column.name == *name).context("looked for before");
    let all: Vec<&Column> = options.target.iter().map(find).collect::<Result<_>>()?;
    let of_heads: Vec<&Column> = options.heads.iter().map(|head| find(&head.column)).collect::<Result<_>>()?;
    for column in all.iter().chain(&of_heads) {
        ensure!(column.cells != CellType::Nothing, "the target `{}` is missing in every row", column.name);
        ensure!(
            column.distinct > 1,
            "the target `{}` is {} in every row: there is nothing to learn",
            column.name,
            column.examples.first().map_or(String::new(), |text| format!("`{text}`"))
        );
    }
    let numbers = |column: &&Column| column.cells == CellType::Numbers;
    // Words beside truths may be classes, and so may some numbers with a unit: `1 star` to `5 star`.
    let meant_as_number = |odd: &Odd, distinct: usize| match odd {
        Odd::Others { meant, .. } => *meant == CellType::Numbers,
        Odd::Unit(..) | Odd::Time(_) => distinct > FEW,
        Odd::Comma(_) | Odd::Thousands(_) => true,
        Odd::DateFormat(..) => false,
    };
    for column in all.iter().filter(|_| !options.classes) {
        let name = &column.name;
        if let Some(odd) = column.odd.as_ref().filter(|odd| meant_as_number(odd, column.distinct)) {
            bail!(
                "the target `{name}` has {}. Mend them, or set `classes = true` if each text is a class",
                odd.in_words()
            );
        }
        ensure!(
            column.readable_as != CellType::Dates && !matches!(column.odd, Some(Odd::DateFormat(..))),
            "the target `{name}` has dates, and a model learns numbers or classes: add a column with the days since some date, or set \
             `classes = true` if each date is a class"
        );
    }
    let classes = options.classes || !all.iter().all(numbers);
    if classes && all.len() > 1 {
        bail!(
            "of several targets each is a number, and {}",
            match all.iter().find(|column| !numbers(column)) {
                Some(column) => format!(
                    "`{}` has {} cells: learn that by a `[[heads]]` of its own, or alone, or leave it out",
                    column.name,
                    column.cells.name()
                ),
                None => "`classes = true` asks for one of some classes: leave that out, or learn one column, and each other by a `[[heads]]`".to_owned(),
            }
        );
    }
    let read = if classes { Read::Text } else { Read::Number };
    let mut reads: Vec<(&str, Read)> = options.target.iter().map(|name| (name.as_str(), read)).collect();
    for (head, column) in options.heads.iter().zip(of_heads) {
        reads.push((&head.column, head.read(column)?));
    }
    Ok(reads)
}

/// The classes of a column, in their order: those of `order`, if it is given. `rows` are those in which nothing is missing, `train` those of them that are
/// trained on.
fn classes_of(
    column: &str,
    (numbers, texts): (&[Option<u32>], &[String]),
    order: Option<&Vec<String>>,
    (rows, train): (&[u32], &[u32]),
) -> Result<Vec<String>> {
    let numbers_of = |rows: &[u32]| {
        let mut seen: Vec<u32> = rows.iter().filter_map(|row| numbers[*row as usize]).collect();
        seen.sort_unstable();
        seen.dedup();
        seen
    };
    let seen = numbers_of(train);
    let mut names: Vec<String> = seen.iter().map(|number| texts[*number as usize].clone()).collect();
    sort_names(&mut names);
    if let Some(order) = order {
        let texts = numbers_of(rows).into_iter().map(|number| &texts[number as usize]);
        let number = numbering(order, false);
        if let Some(other) = texts.into_iter().find(|text| number(text).is_none()) {
            bail!("`{column}` has the class `{other}`, which `classes` does not name: {}", listed(order));
        }
        names.clone_from(order);
    }
    // A class that only rows held out have is one that the model never sees.
    let unseen = numbers_of(rows).into_iter().find(|number| seen.binary_search(number).is_err());
    if let Some(number) = unseen {
        let text = &texts[number as usize];
        bail!(
            "the class `{text}` of `{column}` has no row in the training part: hold out fewer rows, give the class more of them, or leave it out"
        );
    }
    Ok(names)
}

/// The mean and the standard deviation of columns in the rows of training.
fn standard_of(columns: &[String], raw: &Raw, train: &[u32]) -> Result<Standard> {
    let (mut mean, mut deviation) = (Vec::new(), Vec::new());
    for name in columns {
        let (m, d) = match &*raw.column(name)? {
            Cells::Numbers(values) => mean_and_deviation(train.iter().map(|row| values[*row as usize])),
            Cells::Texts(..) => (0.0, 1.0),
        };
        mean.push(m as f32);
        deviation.push(d as f32);
    }
    Ok(Standard { mean, deviation })
}

/// What is fitted on the target in the rows of training, `train`; in all of `rows` it is there.
pub fn fit_target(options: &TableOptions, raw: &Raw, (rows, train): (&[u32], &[u32])) -> Result<Target> {
    let columns = &options.target;
    Ok(match &*raw.column(&columns[0])? {
        Cells::Texts(numbers, texts) => {
            let names = classes_of(&columns[0], (numbers, texts), options.class_names.as_ref(), (rows, train))?;
            Target::Classes { column: columns[0].clone(), names }
        }
        Cells::Numbers(_) => {
            let standard = options.standardize_target.then(|| standard_of(columns, raw, train)).transpose()?;
            Target::Numbers { columns: columns.clone(), standard }
        }
    })
}

impl HeadOptions {
    /// How the cells of its column are read.
    fn read(&self, column: &Column) -> Result<Read> {
        if self.classes {
            return Ok(Read::Text);
        }
        ensure!(
            column.cells == CellType::Numbers,
            "the head `{}` has the loss `{}`, which is for numbers, and `{}` has {}. Mend them, or take a loss of classes, such as `cross_entropy`",
            self.name,
            self.loss,
            column.name,
            match &column.odd {
                Some(odd) => odd.in_words(),
                None => format!("{} cells", column.cells.name()),
            }
        );
        Ok(Read::Number)
    }

    /// What is fitted on it, as on the main target.
    ///
    /// # Errors
    /// As of the main target.
    pub fn fit(&self, raw: &Raw, rows: (&[u32], &[u32])) -> Result<Head> {
        let target = match &*raw.column(&self.column)? {
            Cells::Texts(numbers, texts) => {
                let names = classes_of(&self.column, (numbers, texts), None, rows)?;
                Target::Classes { column: self.column.clone(), names }
            }
            Cells::Numbers(_) => {
                let columns = vec![self.column.clone()];
                let standard = self.standardize.then(|| standard_of(&columns, raw, rows.1)).transpose()?;
                Target::Numbers { columns, standard }
            }
        };
        Ok(Head { name: self.name.clone(), target })
    }
}

/// In the order of their numbers, if all are numbers, else by name.
fn sort_names(names: &mut [String]) {
    let number = |name: &String| name.parse::<f64>().ok();
    if names.iter().all(|name| number(name).is_some()) {
        names.sort_by(|a, b| number(a).unwrap_or(0.0).total_cmp(&number(b).unwrap_or(0.0)));
    } else {
        names.sort_unstable();
    }
}
