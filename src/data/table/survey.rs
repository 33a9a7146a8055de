//! What the columns of a table are like: how much is missing, what the cells are, how many differ.

use super::super::classes::value;
use super::super::parallel::{at_once, parallel};
use super::super::row_names::Lines;
use super::super::sheet::{Kind, Place, Sheet};
use super::aside::{AT_ONCE, Aside};
use super::cell;
use super::codec::Cells;
use super::skipped::Skipped;
use super::stored::{Runs, Stored};
use anyhow::Result;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::Arc;

/// So many different values of a column are counted; of more, that there are more.
pub const MOST_DISTINCT: usize = 100_000;
/// A column has numbers nearly everywhere, if it has so many of them for each other cell.
const NEARLY: usize = 9;
/// Examples that are shown of a column.
const EXAMPLES: usize = 3;

/// What the cells of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellType {
    /// All missing.
    Nothing,
    /// Numbers.
    Numbers,
    /// Whole numbers, some of them with zeros before them, as `00062`: they name something.
    Codes,
    /// Truths, in words.
    Truths,
    /// Dates.
    Dates,
    /// Texts.
    Texts,
}

impl CellType {
    /// As a message and `data show` call it.
    pub fn name(self) -> &'static str {
        match self {
            CellType::Nothing => "empty",
            CellType::Numbers => "number",
            CellType::Codes => "code",
            CellType::Truths => "boolean",
            CellType::Dates => "date",
            CellType::Texts => "text",
        }
    }
}

/// A column, looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// What its cells are: as the file says, if it does.
    pub cells: CellType,
    /// What they could be taken for, if it is asked for: texts may all be dates or numbers.
    pub readable_as: CellType,
    /// What it has in place of cells, in a file of which such columns are not read.
    pub unread: Option<&'static str>,
    /// Rows in which it has nothing.
    pub missing: usize,
    /// Different values; [`MOST_DISTINCT`] stands for that many or more.
    pub distinct: usize,
    /// All numbers are whole.
    pub whole: bool,
    /// The least and the greatest number, or date in days since 1970.
    pub range: Option<[f64; 2]>,
    /// The first different values.
    pub examples: Vec<String>,
    /// Of a column of texts nearly all of which are meant as numbers: why they are none.
    pub odd: Option<Odd>,
}

/// Why a column that has numbers nearly everywhere is one of texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Odd {
    /// Some cells are no numbers.
    NoNumber {
        /// Where the first of them is: `line 3`, and the file, if there are several.
        line: String,
        /// What it has.
        cell: String,
        /// How many cells of the column are no numbers.
        count: usize,
        /// How many cells it has, those that are missing left out.
        of: usize,
    },
    /// There is a comma before the fraction of numbers, and they are read with a point: the first of them.
    Comma(String),
}

/// What a column may still be, while its cells are looked at.
#[derive(Clone)]
struct Look {
    filled: usize,
    missing: usize,
    numbers: usize,
    codes: usize,
    truths: usize,
    dates: usize,
    whole: bool,
    range: [f64; 2],
    odd: Option<(String, String)>,
    /// Numbers that are the same with a comma before the fraction, cells that are numbers with that alone, and the first that has one.
    plain: usize,
    commas: usize,
    comma: Option<String>,
    /// Hashes of the values; they are not counted any more where there are enough.
    seen: HashSet<u64, BuildHasherDefault<AsItIs>>,
    counts: bool,
    examples: Vec<String>,
    /// Its numbers, NaN where one is missing, as long as there is nothing else.
    values: Option<Vec<f64>>,
}

/// A table, looked at.
pub struct Surveyed {
    /// Its columns.
    pub columns: Vec<Column>,
    /// How many rows there are.
    pub rows: usize,
    /// Cells that need not be read once more.
    pub known: Known,
}

/// The cells that were read while the columns were looked at.
#[derive(Default)]
pub struct Known {
    /// The columns of numbers alone, by their names.
    pub numbers: HashMap<String, Stored>,
    /// Where the rows are.
    pub lines: Lines,
    /// Rows that cannot be read.
    pub skipped: Skipped,
}

/// Takes hashes for their own hashes.
#[derive(Default, Clone)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Looks at all columns of a table, in all rows. The numbers that are found lie in memory, or in a file `aside`.
///
/// # Errors
/// As [`Sheet::each_cells`]; the file cannot be written.
pub fn survey(text: &Sheet, decimal: char, aside: Option<&Arc<Aside>>) -> Result<Surveyed> {
    let hasher = RandomState::new();
    let mut looks = vec![Look::new(true); text.names().len()];
    let (mut rows, mut lines, mut skipped) = (0, Lines::default(), Skipped::default());
    let (decimal, several) = (text.decimal(decimal), text.paths().count() > 1);
    let readable = text.readable();
    let pieces = text.pieces();
    let mut kept: Vec<Option<Runs>> = looks.iter().map(|_| aside.map(Runs::new)).collect();
    // More pieces at once each time: those behind the first need not count the values of which there are enough already.
    let (mut left, mut count) = (&pieces[..], 1);
    while !left.is_empty() {
        let (now, later) = left.split_at(count.min(left.len()));
        let fresh: Vec<Look> = looks.iter().map(|look| Look::new(look.seen.len() < MOST_DISTINCT)).collect();
        let looked: Vec<Result<(Vec<Look>, Lines, Skipped)>> = parallel(now.to_vec(), |piece| {
            let (mut own, mut lines, mut skipped) = (fresh.clone(), Lines::default(), Skipped::default());
            text.each_cells_of(piece, &readable, |place, row| {
                lines.add(place, lines.lines.len(), several);
                if let Some(fault) = place.fault {
                    skipped.add(lines.lines.len() - 1, || fault.to_owned());
                    own.iter_mut().for_each(Look::pass);
                    return Ok(());
                }
                for (look, cell) in own.iter_mut().zip(row) {
                    look.take(place, several, cell, decimal, &hasher);
                }
                Ok(())
            })?;
            Ok((own, lines, skipped))
        });
        let mut parts: Vec<(Look, Vec<Look>)> = looks.into_iter().map(|look| (look, Vec::new())).collect();
        for piece in looked {
            let (own, more, more_skipped): (Vec<Look>, Lines, Skipped) = piece?;
            let before = rows;
            skipped.join(more_skipped, before);
            rows += more.lines.len();
            lines.join(more, before);
            parts.iter_mut().zip(own).for_each(|((_, next), own)| next.push(own));
        }
        looks = parallel(parts, |(mut look, next)| {
            next.into_iter().for_each(|next| look.join(next));
            look
        });
        (left, count) = (later, (2 * count).min(at_once()));
        let bytes: usize = looks.iter().flat_map(|look| &look.values).map(|values| size_of_val(&values[..])).sum();
        if bytes >= AT_ONCE || left.is_empty() {
            for (look, kept) in looks.iter_mut().zip(&mut kept) {
                match (&mut look.values, &mut *kept) {
                    (Some(values), Some(runs)) => runs.add_numbers(&std::mem::take(values))?,
                    (None, kept) => *kept = None,
                    (Some(_), None) => {}
                }
            }
        }
    }
    let kinds = text.kinds();
    let mut numbers = HashMap::new();
    let columns = text.names().iter().zip(looks).zip(kept).enumerate();
    let columns = columns.map(|(at, ((name, mut look), kept))| {
        let values = look.values.take().unwrap_or_default();
        // What is not read has no cells.
        let found = match kept {
            Some(runs) => (runs.rows() == rows).then(|| runs.done(None)),
            None => (values.len() == rows && aside.is_none()).then_some(Stored::Here(Cells::Numbers(values))),
        };
        numbers.extend(found.map(|cells| (name.clone(), cells)));
        look.column(name, kinds.map(|kinds| &kinds[at]), text.has_cells())
    });
    Ok(Surveyed { columns: columns.collect(), rows, known: Known { numbers, lines, skipped } })
}

impl Look {
    /// At no cell yet; whether it `counts` how many differ.
    fn new(counts: bool) -> Self {
        Look {
            filled: 0,
            missing: 0,
            numbers: 0,
            codes: 0,
            truths: 0,
            dates: 0,
            whole: true,
            range: [f64::INFINITY, f64::NEG_INFINITY],
            odd: None,
            plain: 0,
            commas: 0,
            comma: None,
            seen: HashSet::default(),
            counts,
            examples: Vec::new(),
            values: Some(Vec::new()),
        }
    }

    /// Takes what the rows behind its own have shown.
    fn join(&mut self, next: Look) {
        self.filled += next.filled;
        self.missing += next.missing;
        self.numbers += next.numbers;
        self.codes += next.codes;
        self.truths += next.truths;
        self.dates += next.dates;
        self.whole &= next.whole;
        self.range = [self.range[0].min(next.range[0]), self.range[1].max(next.range[1])];
        self.odd = self.odd.take().or(next.odd);
        self.plain += next.plain;
        self.commas += next.commas;
        self.comma = self.comma.take().or(next.comma);
        if self.seen.is_empty() {
            self.seen = next.seen;
        } else if self.seen.len() < MOST_DISTINCT {
            self.seen.extend(next.seen);
        }
        let new = next.examples.into_iter().filter(|example| !self.examples.contains(example)).collect::<Vec<_>>();
        self.examples.extend(new);
        self.examples.truncate(EXAMPLES);
        self.values = self.values.take().zip(next.values).map(|(mut all, more)| {
            all.extend(more);
            all
        });
    }

    /// Passes over a row that is left out.
    fn pass(&mut self) {
        self.values.iter_mut().for_each(|values| values.push(f64::NAN));
    }

    fn take(&mut self, place: Place, several: bool, cell: &str, decimal: char, hasher: &RandomState) {
        if cell::is_missing(cell) {
            self.missing += 1;
            self.pass();
            return;
        }
        let cell = value(cell);
        // A column is of one kind: what it is not in one row is not asked again. But where it has hardly anything else than numbers,
        // the others may be mistakes.
        let nearly_all = |count: usize| count >= NEARLY * self.filled / (NEARLY + 1);
        let (numbers, commas, all_truths, all_dates) = (
            nearly_all(self.numbers),
            nearly_all(self.numbers + self.commas),
            self.truths == self.filled,
            self.dates == self.filled,
        );
        self.filled += 1;
        let mut within = |value: f64| self.range = [self.range[0].min(value), self.range[1].max(value)];
        if numbers && let Some(number) = cell::number(cell, decimal) {
            self.numbers += 1;
            self.codes += usize::from(cell::is_code(cell));
            self.plain += usize::from(number.fract() == 0.0);
            self.whole = self.whole && number.fract() == 0.0;
            within(number);
            self.values.iter_mut().for_each(|values| values.push(number));
        } else if all_dates && let Some(date) = cell::date(cell) {
            self.dates += 1;
            within(date);
        } else if all_truths && cell::truth(cell).is_some() {
            self.truths += 1;
        } else if commas && cell::number(cell, ',').is_some() {
            self.commas += 1;
            if self.comma.is_none() && cell::is_decimal_comma(cell) {
                self.comma = Some(cell.to_owned());
            }
        }
        if self.numbers < self.filled {
            self.values = None;
        }
        if self.numbers < self.filled && self.odd.is_none() && cell::number(cell, decimal).is_none() {
            let line = if several { place.to_string() } else { place.line_in_words() };
            self.odd = Some((line, cell.chars().take(40).collect()));
        }
        if self.counts
            && self.seen.len() < MOST_DISTINCT
            && self.seen.insert(hasher.hash_one(cell))
            && self.examples.len() < EXAMPLES
        {
            self.examples.push(cell.to_owned());
        }
    }

    /// The column; `kind`: what its file says of it; `written`: its cells are as `decimal` says.
    fn column(self, name: &str, kind: Option<&Kind>, written: bool) -> Column {
        let guessed = match self.filled {
            0 => CellType::Nothing,
            all if all == self.numbers && self.codes > 0 && self.whole => CellType::Codes,
            all if all == self.numbers => CellType::Numbers,
            all if all == self.truths => CellType::Truths,
            all if all == self.dates => CellType::Dates,
            _ => CellType::Texts,
        };
        let cells = match kind {
            _ if self.filled == 0 => CellType::Nothing,
            None | Some(Kind::Nothing | Kind::Unread(_)) => guessed,
            Some(Kind::Number) => CellType::Numbers,
            Some(Kind::Truth) => CellType::Truths,
            Some(Kind::Date) => CellType::Dates,
            Some(Kind::Text) => CellType::Texts,
        };
        let unread = match kind {
            Some(Kind::Unread(what)) => Some(*what),
            _ => None,
        };
        let meant = |numbers: usize| {
            kind.is_none() && cells == CellType::Texts && self.codes == 0 && numbers >= NEARLY * (self.filled - numbers)
        };
        let comma = self.comma.filter(|_| written && meant(self.plain + self.commas)).map(Odd::Comma);
        let no_number = self.odd.filter(|_| meant(self.numbers));
        let odd = comma.or(no_number.map(|(line, cell)| Odd::NoNumber {
            line,
            cell,
            count: self.filled - self.numbers,
            of: self.filled,
        }));
        let has_range = matches!(cells, CellType::Numbers | CellType::Dates);
        Column {
            name: name.to_owned(),
            cells,
            readable_as: guessed,
            unread,
            missing: self.missing,
            distinct: self.seen.len().min(MOST_DISTINCT),
            whole: cells == CellType::Numbers && self.whole,
            range: has_range.then_some(self.range),
            examples: self.examples,
            odd,
        }
    }
}

impl Odd {
    /// For a message.
    pub fn in_words(&self) -> String {
        match self {
            Odd::NoNumber { line, cell, count, of } => {
                let (cells, are) = if *count == 1 { ("cell", "is") } else { ("cells", "are") };
                format!("{count} {cells} of {of} that {are} no number, the first of them `{cell}` in {line}")
            }
            Odd::Comma(cell) => format!(
                "numbers with a comma before the fraction, as `{cell}`, which `decimal = \"comma\"` in `[data]` reads"
            ),
        }
    }
}

impl Column {
    /// Takes it for numbers if it has those nearly everywhere: rows with other cells are left out.
    pub fn as_meant(&mut self) {
        if matches!(self.odd, Some(Odd::NoNumber { .. })) {
            (self.cells, self.readable_as, self.odd) = (CellType::Numbers, CellType::Numbers, None);
        }
    }

    /// Why the column is of no use to a model, if it is not.
    pub fn useless(&self, rows: usize) -> Option<&'static str> {
        match self.cells {
            CellType::Nothing => Some("it is empty"),
            _ if self.distinct == 1 && self.missing == 0 => Some("it has the same value in every row"),
            // A name or a number of the row itself.
            CellType::Texts | CellType::Codes
                if self.odd.is_none()
                    && rows > 20
                    && self.distinct + self.missing == rows
                    && self.distinct < MOST_DISTINCT =>
            {
                Some(match self.examples.iter().any(|text| text.contains(' ')) {
                    true => {
                        "its text is another one in every row: with `type = \"text\"` in `columns` the model takes its words"
                    }
                    false => "its text is another one in every row, as an identifier is",
                })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::text::{Format, open};
    use super::*;

    #[test]
    fn columns_are_what_all_their_rows_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        let content = "number,whole,mixed,date,truth,empty,same,code\n1.5,1,1,2026-01-01,yes,NA,x,00062\n-2,NA,one,2026-01-03,no,,x,10115\n";
        std::fs::write(&path, content).unwrap();
        let text = open(&path, Format::default()).unwrap();
        let Surveyed { columns, rows, known } = survey(&text, '.', None).unwrap();
        let numbers = |name: &str| known.numbers[name].all().unwrap().into_owned();
        assert_eq!(numbers("number"), Cells::Numbers(vec![1.5, -2.0]));
        assert!(numbers("whole").is_missing(1));
        assert!(!["mixed", "date", "truth", "same"].iter().any(|name| known.numbers.contains_key(*name)));
        assert_eq!(known.lines.lines, [2, 3]);
        let cells: Vec<CellType> = columns.iter().map(|column| column.cells).collect();
        use CellType::{Codes, Dates, Nothing, Numbers, Texts, Truths};
        assert_eq!((cells, rows), (vec![Numbers, Numbers, Texts, Dates, Truths, Nothing, Texts, Codes], 2));
        assert_eq!([columns[0].whole, columns[1].whole], [false, true]);
        assert_eq!((columns[1].missing, columns[1].distinct), (1, 1));
        assert_eq!(
            (columns[0].range, &columns[0].examples[..]),
            (Some([-2.0, 1.5]), &["1.5".to_owned(), "-2".to_owned()][..])
        );
        assert_eq!(columns[2].odd, None);
        let rows_of = (0..20).map(|i| if i == 7 { "about 3\n".to_owned() } else { format!("{i}\n") });
        std::fs::write(&path, "x\n".to_owned() + &rows_of.collect::<String>()).unwrap();
        let text = open(&path, Format::default()).unwrap();
        let odd = survey(&text, '.', None).unwrap().columns.remove(0).odd.unwrap();
        assert_eq!(odd, Odd::NoNumber { line: "line 9".into(), cell: "about 3".into(), count: 1, of: 20 });
        let useless: Vec<bool> = columns.iter().map(|column| column.useless(rows).is_some()).collect();
        assert_eq!(useless, [false, false, false, false, false, true, true, false]);
    }

    /// Numbers with a comma before the fraction, if nearly all cells are that.
    #[test]
    fn decimal_commas_are_told_from_texts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        let rows: String = (0..30).map(|i| format!("{i},5;{i};{i},500;{i},5;{i};{i},{i}\n")).collect();
        let content = format!("comma;whole;thousands;point;odd;list\n{rows}7;7;7;7.5;7,5;1,2,3\nNA;;;;;4,5,6\n");
        std::fs::write(&path, &content).unwrap();
        let odd = |decimal| {
            let text = open(&path, Format::default()).unwrap();
            let columns = survey(&text, decimal, None).unwrap().columns;
            columns.into_iter().map(|column| column.odd).collect::<Vec<_>>()
        };
        let of = |cell: &str| Some(Odd::Comma(cell.to_owned()));
        assert_eq!(odd('.'), [of("0,5"), None, None, of("0,5"), of("7,5"), of("0,0")]);
        let others = odd(',');
        let count = |odd: &Option<Odd>| odd.as_ref().map(|odd| matches!(odd, Odd::NoNumber { .. }));
        assert_eq!(others.iter().map(count).collect::<Vec<_>>(), [None, None, None, Some(true), None, Some(true)]);
    }
}
