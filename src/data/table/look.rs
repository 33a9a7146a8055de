//! What a column of a table is, found out cell by cell.

use super::super::classes::value;
use super::super::sheet::{Kind, Place};
use super::cell;
use super::dates::{Written, is_time};
use super::kinds::{At, CellType, Column, Odd};
use foldhash::quality::RandomState;
use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};

/// So many different values of a column are counted; of more, that there are more.
const MOST_DISTINCT: usize = 100_000;
/// The same for numbers with a fraction, of which nearly all differ.
const MOST_FRACTIONS: usize = 1000;
/// A column has numbers nearly everywhere, if it has so many of them for each other cell.
const NEARLY: usize = 9;
/// Examples that are shown of a column.
const EXAMPLES: usize = 3;

/// What a column may still be, while its cells are looked at.
#[derive(Clone)]
pub struct Look {
    filled: usize,
    missing: usize,
    numbers: usize,
    codes: usize,
    truths: usize,
    dates: usize,
    whole: bool,
    range: [f64; 2],
    /// The first cell that is no number, the first that is no date, the first that is no truth, and their places.
    odd: [Option<(String, String)>; 3],
    /// Dates in another form.
    written: Written,
    /// Numbers that are the same with a comma before the fraction, cells that are numbers with that alone, the first that has one there, and
    /// the first whose comma may stand between thousands.
    plain: usize,
    commas: usize,
    comma: Option<At>,
    thousands: Option<At>,
    /// Numbers with a unit or a currency, which is the same for all of them, and the first.
    units: usize,
    unit: Option<(At, [String; 2])>,
    /// Times of day without a date, and the first.
    times: usize,
    time: Option<At>,
    /// Hashes of the values; they are not counted any more where there are enough.
    seen: HashSet<u64, BuildHasherDefault<AsItIs>>,
    counts: bool,
    /// There are more values than were counted.
    more: bool,
    examples: Vec<String>,
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

impl Look {
    /// At no cell yet; whether it `counts` how many differ.
    pub fn new(counts: bool) -> Self {
        Look {
            filled: 0,
            missing: 0,
            numbers: 0,
            codes: 0,
            truths: 0,
            dates: 0,
            whole: true,
            range: [f64::INFINITY, f64::NEG_INFINITY],
            odd: [const { None }; 3],
            written: Written::default(),
            plain: 0,
            commas: 0,
            comma: None,
            thousands: None,
            units: 0,
            unit: None,
            times: 0,
            time: None,
            seen: HashSet::default(),
            counts,
            more: false,
            examples: Vec::new(),
        }
    }

    /// Takes what the rows after its own have shown.
    pub fn join(&mut self, next: Look) {
        self.filled += next.filled;
        self.missing += next.missing;
        self.numbers += next.numbers;
        self.codes += next.codes;
        self.truths += next.truths;
        self.dates += next.dates;
        self.whole &= next.whole;
        self.range = [self.range[0].min(next.range[0]), self.range[1].max(next.range[1])];
        self.odd.iter_mut().zip(next.odd).for_each(|(odd, next)| *odd = odd.take().or(next));
        self.written.join(next.written);
        self.plain += next.plain;
        self.commas += next.commas;
        self.comma = self.comma.take().or(next.comma);
        self.thousands = self.thousands.take().or(next.thousands);
        match (&self.unit, &next.unit) {
            (Some((_, own)), Some((_, other))) if own != other => {}
            _ => self.units += next.units,
        }
        self.unit = self.unit.take().or(next.unit);
        self.times += next.times;
        self.time = self.time.take().or(next.time);
        self.more |= next.more;
        if self.seen.is_empty() {
            self.seen = next.seen;
        } else if self.counts_on() || next.more {
            self.seen.extend(next.seen);
        }
        self.more |= self.seen.len() > self.most();
        let new = next.examples.into_iter().filter(|example| !self.examples.contains(example)).collect::<Vec<_>>();
        self.examples.extend(new);
        self.examples.truncate(EXAMPLES);
    }

    /// Whether values are still counted.
    pub fn counts_on(&self) -> bool {
        self.counts && !self.more
    }

    /// So many values are counted.
    fn most(&self) -> usize {
        if self.has_numbers_alone() && !self.whole { MOST_FRACTIONS } else { MOST_DISTINCT }
    }

    /// Whether it has seen nothing but numbers and what is missing.
    pub fn has_numbers_alone(&self) -> bool {
        self.numbers == self.filled
    }

    /// Takes the next cell: its number, as long as there are numbers alone; NaN where it is missing.
    pub fn take(
        &mut self,
        place: Place,
        several: bool,
        cell: &str,
        decimal: char,
        hasher: &RandomState,
    ) -> Option<f64> {
        // Most cells of most tables are plain numbers in a column of such. Zero may have a sign that is left out.
        if decimal == '.'
            && self.has_numbers_alone()
            && let Some(number) = cell::short(cell).filter(|number| *number != 0.0)
        {
            self.filled += 1;
            self.number(cell, number);
            if self.counts_on() {
                self.see(cell, hasher);
            }
            return Some(number);
        }
        self.take_any(place, several, cell, decimal, hasher)
    }

    fn number(&mut self, cell: &str, number: f64) {
        let whole = is_whole(number);
        self.numbers += 1;
        self.codes += usize::from(whole && cell::is_code(cell));
        self.plain += usize::from(whole);
        self.whole &= whole;
        self.within(number);
    }

    fn within(&mut self, value: f64) {
        self.range = [self.range[0].min(value), self.range[1].max(value)];
    }

    /// Counts a value.
    fn see(&mut self, cell: &str, hasher: &RandomState) {
        if self.counts_on() && self.seen.insert(hasher.hash_one(cell)) {
            self.more = self.seen.len() > self.most();
            if self.examples.len() < EXAMPLES {
                self.examples.push(cell.to_owned());
            }
        }
    }

    fn take_any(
        &mut self,
        place: Place,
        several: bool,
        cell: &str,
        decimal: char,
        hasher: &RandomState,
    ) -> Option<f64> {
        if cell::is_missing(cell) {
            self.missing += 1;
            return self.has_numbers_alone().then_some(f64::NAN);
        }
        let cell = value(cell);
        // A column is of one kind: what it is not in one row is not asked again. But where it has hardly anything else than numbers,
        // the others may be mistakes.
        let nearly_all = |count: usize| count >= NEARLY * self.filled / (NEARLY + 1);
        let [numbers, dates, truths] = [self.numbers, self.dates, self.truths].map(nearly_all);
        let (commas, written) = (nearly_all(self.numbers + self.commas), self.written.count == self.filled);
        let units = nearly_all(self.numbers + self.units);
        let line = || if several { place.to_string() } else { place.line_in_words() };
        let at = || At { cell: cell.to_owned(), line: line() };
        self.filled += 1;
        let mut found = None;
        if numbers && let Some(number) = cell::number(cell, decimal) {
            self.number(cell, number);
            found = Some(number);
        } else if dates && let Some(date) = cell::date(cell) {
            self.dates += 1;
            self.within(date);
        } else if truths && cell::truth(cell).is_some() {
            self.truths += 1;
        } else if commas && (cell::number(cell, ',').is_some() || cell::is_thousands(cell)) {
            self.commas += 1;
            let first = if cell::is_decimal_comma(cell) { &mut self.comma } else { &mut self.thousands };
            first.get_or_insert_with(at);
        } else if units && let Some(unit) = cell::unit(cell) {
            let (_, own) = self.unit.get_or_insert_with(|| (at(), unit.map(str::to_owned)));
            self.units += usize::from(*own == unit);
        } else if self.times + 1 == self.filled && is_time(cell) {
            self.times += 1;
            self.time.get_or_insert_with(at);
        } else if written {
            self.written.see(cell, line);
        }
        let is_other = [
            self.numbers < self.filled && self.odd[0].is_none() && cell::number(cell, decimal).is_none(),
            self.dates < self.filled && self.odd[1].is_none() && cell::date(cell).is_none(),
            self.truths < self.filled && self.odd[2].is_none() && cell::truth(cell).is_none(),
        ];
        for (odd, _) in self.odd.iter_mut().zip(is_other).filter(|(_, is_other)| *is_other) {
            *odd = Some((line(), cell.chars().take(40).collect()));
        }
        self.see(cell, hasher);
        found.filter(|_| self.has_numbers_alone())
    }

    /// The column; `kind`: what its file says of it; `written`: its cells are as `decimal` says.
    pub fn column(self, name: &str, kind: Option<&Kind>, written: bool) -> Column {
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
            Some(Kind::Date | Kind::Utc) => CellType::Dates,
            Some(Kind::Text) => CellType::Texts,
        };
        let unread = match kind {
            Some(Kind::Unread(what)) => Some(*what),
            _ => None,
        };
        let meant = |others: usize| {
            kind.is_none() && cells == CellType::Texts && self.codes == 0 && others >= NEARLY * (self.filled - others)
        };
        let comma = self.comma.map(Odd::Comma).or(self.thousands.map(Odd::Thousands));
        // Where a comma may be one before a fraction, a point may be one between thousands.
        let plain = if matches!(comma, Some(Odd::Comma(_))) { self.plain } else { self.numbers };
        let comma = comma.filter(|_| written && meant(plain + self.commas));
        let unit = self.unit.filter(|_| written && meant(self.numbers + self.units));
        let kinds = [(CellType::Numbers, self.numbers), (CellType::Dates, self.dates), (CellType::Truths, self.truths)];
        let other = kinds.into_iter().zip(self.odd).find_map(|((kind, count), odd)| {
            let (line, cell) = odd.filter(|_| meant(count))?;
            Some(Odd::Others { meant: kind, line, cell, count: self.filled - count, of: self.filled })
        });
        let time = self.time.filter(|_| cells == CellType::Texts && self.times == self.filled);
        let dated = Some(self.written).filter(|written| cells == CellType::Texts && written.count == self.filled);
        let odd = comma
            .or(other)
            .or(unit.map(|(at, unit)| Odd::Unit(at, unit)))
            .or(time.map(Odd::Time))
            .or_else(|| dated?.odd());
        let has_range = matches!(cells, CellType::Numbers | CellType::Dates);
        Column {
            name: name.to_owned(),
            cells,
            readable_as: guessed,
            unread,
            missing: self.missing,
            distinct: match self.more {
                false => self.seen.len(),
                true if self.seen.len() > MOST_DISTINCT => MOST_DISTINCT,
                true => MOST_FRACTIONS,
            },
            more: self.more,
            whole: cells == CellType::Numbers && self.whole,
            range: has_range.then_some(self.range),
            examples: self.examples,
            odd,
        }
    }
}

/// Whether a number has no fraction.
fn is_whole(number: f64) -> bool {
    // From 2^53 on none has.
    number.abs() >= 9_007_199_254_740_992.0 || number as i64 as f64 == number
}
