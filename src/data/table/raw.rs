//! The cells of the columns that are used, read once.

use super::super::classes::{plain, value};
use super::super::parallel::{parallel, rounds};
use super::super::row_names::{Lines, RowName, RowNames, Texts};
use super::super::sheet::{Kind, Place, Sheet};
use super::aside::{AT_ONCE, Aside};
use super::cell;
use super::codec::{Cells, ColumnCodec, Read};
use super::hashed::murmur3;
use super::names::{expect_columns, no_column};
use super::skipped::Skipped;
use super::stored::{Piece, Runs, Stored};
use super::survey::Known;
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Minutes of a day.
pub const MINUTES_A_DAY: f64 = 1440.0;

/// The cells of the columns that are used.
pub struct Raw {
    /// Those that are read as numbers, by name. What a row weighs may be of a column that the model takes in another way.
    numbers: HashMap<String, Stored>,
    /// All others.
    others: HashMap<String, Stored>,
    names: Arc<RowNames>,
    rows: usize,
    /// Rows that are left out, if such are.
    skipped: Option<Skipped>,
    /// By how many minutes the clock of each date is ahead of UTC's, of columns in which some clock is.
    clocks: HashMap<String, Vec<i16>>,
    /// What there is to say of dates with a time zone, by the column.
    zones: Vec<(String, String)>,
}

/// There are more rows than may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyRows(pub usize);

impl fmt::Display for TooManyRows {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "there are more rows than {}", self.0)
    }
}

impl std::error::Error for TooManyRows {}

/// A column while it is read.
pub(super) struct Reading<'a> {
    pub name: &'a str,
    pub read: Read,
    /// Its place in a row.
    at: usize,
    values: Vec<f64>,
    numbers: Vec<Option<u32>>,
    texts: Vec<String>,
    known: HashMap<String, u32>,
    /// Where rows are that are in memory no more.
    aside: Option<Runs>,
    /// Its dates are in UTC, as its file says.
    utc: bool,
    /// The first date with the time of another zone.
    zoned: Option<String>,
    /// By how many minutes the clock of each date is ahead of UTC's, from that first one on.
    clocks: Vec<i16>,
    /// Dates that it has taken.
    rows: usize,
}

impl<'a> Reading<'a> {
    /// Of the column that is `at` in a row.
    pub fn new(name: &'a str, read: Read, at: usize) -> Self {
        let (values, numbers, texts, known, clocks) = (Vec::new(), Vec::new(), Vec::new(), HashMap::new(), Vec::new());
        Reading { name, read, at, values, numbers, texts, known, aside: None, utc: false, zoned: None, clocks, rows: 0 }
    }

    /// Takes a cell that is a text, or missing.
    pub fn text(&mut self, text: Option<&str>) {
        let text = text.map(value);
        if let Read::Hash { plain: is_plain } = self.read {
            let text = text.map(|text| plain(text).filter(|_| is_plain).unwrap_or(text));
            self.values.push(text.map_or(f64::NAN, |text| f64::from(murmur3(text.as_bytes()))));
            return;
        }
        let number = text.map(|text| self.number(text));
        self.numbers.push(number);
    }

    /// Takes a text as it is.
    pub fn word(&mut self, word: &str) {
        let number = self.number(word);
        self.numbers.push(Some(number));
    }

    /// Takes a cell that is a number; NaN where it is missing.
    pub fn value(&mut self, value: f64) {
        self.values.push(value);
    }

    /// Takes the clock of a cell as it is written, if that is a date.
    pub fn clock(&mut self, text: &str) {
        if !matches!(self.read, Read::Date(_)) {
            return;
        }
        let ahead = cell::minutes_ahead(text);
        if ahead != 0 && self.zoned.is_none() {
            self.zoned = Some(text.to_owned());
            self.clocks.resize(self.rows, 0);
        }
        if self.zoned.is_some() {
            self.clocks.push(ahead);
        }
        self.rows += 1;
    }

    /// Takes a cell as it is written; one that cannot be read is missing.
    fn take(&mut self, place: Place, text: &str, decimal: char) -> Result<()> {
        let missing = cell::is_missing(text);
        if self.read.is_text() {
            self.text((!missing).then_some(text));
            return Ok(());
        }
        let value = if missing { Ok(f64::NAN) } else { self.read.value(text, decimal) };
        self.clock(text);
        match value {
            Ok(value) => self.values.push(value),
            Err(expected) => {
                self.values.push(f64::NAN);
                let text: String = text.chars().take(40).collect();
                bail!("{place}: the column `{}` has `{text}`, and {expected} is expected", self.name)
            }
        }
        Ok(())
    }

    /// Takes the cells of the rows after its own.
    pub fn join(&mut self, next: Reading) {
        self.values.extend(next.values);
        self.zoned = self.zoned.take().or(next.zoned);
        self.rows += next.rows;
        if self.zoned.is_some() {
            // Those before its first one are at the begin.
            self.clocks.resize(self.rows - next.rows, 0);
            self.clocks.extend(next.clocks);
            self.clocks.resize(self.rows, 0);
        }
        let own: Vec<u32> = next.texts.iter().map(|text| self.number(text)).collect();
        self.numbers.extend(next.numbers.into_iter().map(|number| number.map(|number| own[number as usize])));
    }

    /// The number of a text.
    fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.known.get(text) {
            return *number;
        }
        let number = self.texts.len() as u32;
        self.texts.push(text.to_owned());
        self.known.insert(text.to_owned(), number);
        number
    }

    /// Bytes of the rows that are in memory.
    fn bytes(&self) -> usize {
        size_of_val(&self.values[..]) + size_of_val(&self.numbers[..])
    }

    /// Writes the rows that are in memory to a file.
    fn put(&mut self, file: &Arc<Aside>) -> Result<()> {
        let runs = self.aside.get_or_insert_with(|| Runs::new(file));
        runs.add_numbers(&std::mem::take(&mut self.values))?;
        runs.add_texts(&std::mem::take(&mut self.numbers))
    }

    /// The number of each row's text, and the texts.
    pub fn numbered(self) -> (Vec<Option<u32>>, Vec<String>) {
        (self.numbers, self.texts)
    }

    /// What there is to say of the time zone of its dates.
    fn zone_in_words(&self) -> Option<String> {
        let name = self.name;
        if self.utc {
            return Some(format!(
                "the column `{name}` is in UTC, as Parquet stores times with a zone, and so are the year, weekday and hour that the model takes; \
                 of CSV it takes them as they are written there"
            ));
        }
        self.zoned.as_ref().map(|cell| {
            format!(
                "the column `{name}` has dates with a time zone, as `{cell}`: the model takes year, weekday and hour as they are written, \
                 and of Parquet, which stores such times in UTC, it takes those of UTC"
            )
        })
    }

    fn stored(self) -> Stored {
        let is_text = self.read == Read::Text;
        match self.aside {
            Some(runs) => runs.done(is_text.then_some(self.texts)),
            None if is_text => Stored::Here(Cells::Texts(self.numbers, Arc::new(self.texts))),
            None => Stored::Here(Cells::Numbers(self.values)),
        }
    }
}

impl Raw {
    /// Reads these columns of a table, each in its way, and the one that names the rows, if it is there: to memory, or to a file `aside`.
    ///
    /// # Errors
    /// A column is not there; a cell is not what is expected, with its line.
    pub fn read(
        text: &Sheet,
        reads: &[(&str, Read)],
        id: Option<&str>,
        decimal: char,
        aside: Option<&Arc<Aside>>,
    ) -> Result<Raw> {
        Raw::read_some(text, reads, id, decimal, (usize::MAX, aside))
    }

    /// The same where some cells are `known`.
    ///
    /// # Errors
    /// As [`Raw::read`].
    pub fn read_rest(
        text: &Sheet,
        reads: &[(&str, Read)],
        id: Option<&str>,
        decimal: char,
        mut known: Known,
        aside: Option<&Arc<Aside>>,
    ) -> Result<Raw> {
        let is_known = |(name, read): &(&str, Read)| *read == Read::Number && known.numbers.contains_key(*name);
        let (read, left): (Vec<_>, Vec<_>) = reads.iter().copied().partition(is_known);
        let mut raw = if left.is_empty() && id.is_none() {
            let rows = known.lines.lines.len();
            let skipped = text.skips().then_some(known.skipped);
            Raw { skipped, ..Raw::of(Vec::new(), RowNames::Lines(known.lines), rows) }
        } else {
            Raw::read(text, &left, id, decimal, aside)?
        };
        raw.numbers.extend(read.into_iter().filter_map(|(name, _)| known.numbers.remove_entry(name)));
        Ok(raw)
    }

    /// The same of a table that may have `most` rows.
    ///
    /// # Errors
    /// As [`Raw::read`]; [`TooManyRows`], found by `downcast_ref`.
    pub fn read_some<'a>(
        text: &Sheet,
        reads: &[(&'a str, Read)],
        id: Option<&str>,
        decimal: char,
        (most, aside): (usize, Option<&Arc<Aside>>),
    ) -> Result<Raw> {
        expect_columns(text, reads.iter().map(|(name, _)| *name))?;
        let new = |(name, read): &(&'a str, Read)| {
            let at = text.column(name).unwrap_or(0);
            let kind = text.kinds().map(|kinds| &kinds[at]);
            let is_date = matches!(read, Read::Date(_));
            // A file that has dates writes them in its own way.
            let own = is_date && kind.is_some_and(Kind::is_date);
            let read = if own { Read::Date(None) } else { *read };
            Reading { utc: is_date && kind == Some(&Kind::Utc), ..Reading::new(name, read, at) }
        };
        let fresh = || -> Vec<Reading<'a>> { reads.iter().map(new).collect() };
        let id = id.and_then(|name| Some((name.to_owned(), text.column(name)?)));
        let (decimal, several) = (text.decimal(decimal), text.paths().count() > 1);
        let mut columns = fresh();
        let wanted: Vec<usize> = columns.iter().map(|column| column.at).chain(id.as_ref().map(|(_, at)| *at)).collect();
        let (mut ids, mut lines, mut rows, mut skipped) = (Texts::default(), Lines::default(), 0, Skipped::default());
        type Own<'a> = (Vec<Reading<'a>>, Texts, Lines, usize, Skipped);
        for pieces in rounds(&text.pieces()) {
            let read: Vec<Result<Own>> = parallel(pieces.to_vec(), |piece| {
                let (mut columns, mut ids, mut lines, mut rows) = (fresh(), Texts::default(), Lines::default(), 0);
                let mut skipped = Skipped::default();
                text.each_cells_of(piece, &wanted, |place, row| {
                    rows += 1;
                    ensure!(rows <= most, TooManyRows(most));
                    if let Some(fault) = place.fault {
                        skipped.add(rows - 1, || fault.to_owned());
                    }
                    for column in &mut columns {
                        match column.take(place, row[column.at], decimal) {
                            Err(fault) if text.skips() => skipped.add(rows - 1, || fault.to_string()),
                            taken => taken?,
                        }
                    }
                    match &id {
                        Some((_, at)) => ids.push(row[*at]),
                        None => lines.add(place, rows - 1, several),
                    }
                    Ok(())
                })?;
                Ok((columns, ids, lines, rows, skipped))
            });
            let mut parts: Vec<(Reading, Vec<Reading>)> = columns.into_iter().map(|own| (own, Vec::new())).collect();
            for piece in read {
                let (own, more_ids, more_lines, more, more_skipped) = piece?;
                parts.iter_mut().zip(own).for_each(|((_, next), own)| next.push(own));
                ids.join(&more_ids);
                lines.join(more_lines, rows);
                skipped.join(more_skipped, rows);
                rows += more;
                ensure!(rows <= most, TooManyRows(most));
            }
            columns = parallel(parts, |(mut column, next)| {
                next.into_iter().for_each(|next| column.join(next));
                column
            });
            if let Some(file) = aside
                && columns.iter().map(Reading::bytes).sum::<usize>() >= AT_ONCE
            {
                columns.iter_mut().try_for_each(|column| column.put(file))?;
            }
        }
        if let Some(file) = aside {
            columns.iter_mut().try_for_each(|column| column.put(file))?;
        }
        let names = match id {
            Some((name, _)) => RowNames::Ids(name, ids),
            None => RowNames::Lines(lines),
        };
        skipped.sort();
        let zones = columns.iter().filter_map(|column| Some((column.name.to_owned(), column.zone_in_words()?)));
        let zones = zones.collect();
        Ok(Raw { skipped: text.skips().then_some(skipped), zones, ..Raw::of(columns, names, rows) })
    }

    /// The cells that columns have taken.
    pub(super) fn of(mut columns: Vec<Reading>, names: RowNames, rows: usize) -> Raw {
        let zoned = columns.iter_mut().filter(|column| column.zoned.is_some());
        let clocks = zoned.map(|column| (column.name.to_owned(), std::mem::take(&mut column.clocks))).collect();
        let (numbers, others): (Vec<_>, Vec<_>) = columns.into_iter().partition(|column| column.read == Read::Number);
        let stored = |columns: Vec<Reading>| {
            columns.into_iter().map(|column| (column.name.to_owned(), column.stored())).collect::<HashMap<_, _>>()
        };
        let (numbers, others) = (stored(numbers), stored(others));
        Raw { numbers, others, names: Arc::new(names), rows, skipped: None, clocks, zones: Vec::new() }
    }

    /// Leaves rows out that cannot be learnt from, if such are left out. `why`: by what is wrong and what the row is called.
    ///
    /// # Errors
    /// The first of them, if none are.
    pub fn leave_out<T>(&mut self, bad: Vec<(usize, T)>, why: impl Fn(RowName, T) -> String) -> Result<()> {
        let (names, mut bad) = (&self.names, bad.into_iter());
        let Some(skipped) = &mut self.skipped else {
            return bad.next().map_or(Ok(()), |(row, what)| Err(anyhow!(why(names.at(row), what))));
        };
        bad.for_each(|(row, what)| skipped.add(row, || why(names.at(row), what)));
        skipped.sort();
        Ok(())
    }

    /// Whether rows are left out that cannot be read.
    pub fn leaves_out(&self) -> bool {
        self.skipped.is_some()
    }

    /// Whether a row is left out.
    pub fn skips(&self, row: u32) -> bool {
        self.skipped.as_ref().is_some_and(|skipped| skipped.has(row))
    }

    /// What there is to say of the rows that are left out.
    ///
    /// # Errors
    /// They are too many.
    pub fn skipped_in_words(&self, done: &str) -> Result<Option<String>> {
        self.skipped.as_ref().map_or(Ok(None), |skipped| skipped.in_words(self.rows, done))
    }

    /// What there is to say of dates with a time zone in columns that the model takes.
    pub fn zones_in_words(&self, taken: &[ColumnCodec]) -> Vec<String> {
        let own = self.zones.iter().filter(|(name, _)| taken.iter().any(|column| column.name == *name));
        own.map(|(_, words)| words.clone()).collect()
    }

    /// The numbers of a column, or its dates as points in time: days since 1970 in UTC, where a zone says how far its clock is ahead. `None`: it was read as texts.
    ///
    /// # Errors
    /// They are in a file that cannot be read.
    ///
    /// # Panics
    /// If it was not asked for.
    pub fn times(&self, name: &str) -> Result<Option<Vec<f64>>> {
        let Cells::Numbers(mut times) = self.column(name)?.into_owned() else { return Ok(None) };
        if let Some(clocks) = self.clocks.get(name) {
            times.iter_mut().zip(clocks).for_each(|(time, minutes)| *time -= f64::from(*minutes) / MINUTES_A_DAY);
        }
        Ok(Some(times))
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The cells of a column.
    ///
    /// # Errors
    /// They are in a file that cannot be read.
    ///
    /// # Panics
    /// If it was not asked for.
    pub fn column(&self, name: &str) -> Result<Cow<'_, Cells>> {
        self.stored(name).all()
    }

    /// The cells of a column that was asked for as numbers, even if it was also in another way.
    ///
    /// # Errors
    /// They are in a file that cannot be read.
    ///
    /// # Panics
    /// If it was not asked for so.
    pub fn numbers(&self, name: &str) -> Result<Cow<'_, Cells>> {
        self.numbers[name].all()
    }

    fn stored(&self, name: &str) -> &Stored {
        self.others.get(name).unwrap_or_else(|| &self.numbers[name])
    }

    /// The cells that a column has in some rows, at least.
    ///
    /// # Errors
    /// They are in a file that cannot be read.
    ///
    /// # Panics
    /// If it was not asked for.
    pub(super) fn some(&self, name: &str, rows: Range<usize>) -> Result<Piece<'_>> {
        self.stored(name).of(rows)
    }

    /// What the column that names rows has.
    pub fn ids(&self) -> Option<&Texts> {
        match &*self.names {
            RowNames::Ids(_, ids) => Some(ids),
            RowNames::Lines(_) => None,
        }
    }

    /// What messages call a row. Rows that come one by one may have no names: they have the numbers of their answers, from 0.
    pub fn called(&self, row: usize) -> String {
        if row < self.names.len() { self.names.at(row).to_string() } else { format!("sample {row}") }
    }

    /// What the rows are called.
    pub fn names(&self) -> &Arc<RowNames> {
        &self.names
    }
}

/// What `take` makes of the cells of a column, row by row; `key` names the column.
///
/// # Errors
/// The column is not there, or `take` fails.
pub(super) fn each_of<T: Send>(
    text: &Sheet,
    (column, key): (&str, &str),
    fresh: impl Fn() -> T + Sync,
    take: impl Fn(&mut T, Place, &str) -> Result<()> + Sync,
    mut join: impl FnMut(T),
) -> Result<()> {
    let names = || text.names().iter().map(String::as_str);
    let at = text.column(column).with_context(|| no_column(column, key, names()))?;
    for pieces in rounds(&text.pieces()) {
        let read = parallel(pieces.to_vec(), |piece| {
            let mut own = fresh();
            text.each_cells_of(piece, &[at], |place, row| take(&mut own, place, row[at]))?;
            Ok::<T, anyhow::Error>(own)
        });
        for own in read {
            join(own?);
        }
    }
    Ok(())
}
