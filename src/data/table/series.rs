//! The rows of a table as series: one after the other, each in its order.

use super::codec::Cells;
use super::raw::Raw;
use crate::terminal::thousands;
use anyhow::{Context, Result, bail, ensure};
use std::collections::HashMap;

/// Whole numbers below it are all read as they are written.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The rows of a table as series.
#[derive(Debug)]
pub struct Series {
    /// The rows of one series after those of another, each in its order.
    order: Vec<u32>,
    /// Where each row is in `order`; `u32::MAX`: it is left out.
    places: Vec<u32>,
    /// Where series begin in `order`, and where the last ends.
    begins: Vec<u32>,
    /// The time of each row, if a column says it.
    times: Option<Vec<f64>>,
    /// What each series is called, if a column says it.
    names: Vec<String>,
}

impl Series {
    /// Those of a table, of which a column may say the time of each row, and another one its series. Rows that are left out are in none.
    ///
    /// # Errors
    /// The column that orders rows is missing in one of them, or two rows of a series have the same there.
    pub fn of(time: Option<&str>, series: Option<&str>, raw: &Raw) -> Result<Series> {
        let called = |row: u32| raw.called(row as usize);
        let mut order: Vec<u32> = (0..raw.rows() as u32).filter(|row| !raw.skips(*row)).collect();
        let cells = series.map(|name| raw.column(name)).transpose()?;
        let numbers = cells.as_deref().map_or_else(|| vec![0; raw.rows()], numbered);
        let text = |name: &str| format!("the column `{name}` orders the rows, and was read as a text");
        let times = time.map(|name| raw.times(name)?.with_context(|| text(name))).transpose()?;
        if let (Some(times), Some(name)) = (&times, time) {
            if let Some(row) = order.iter().find(|row| times[**row as usize].is_nan()) {
                bail!("{}: `{name}` is missing, and rows are ordered by it", called(*row));
            }
            order.sort_by(|a, b| {
                let [a, b] = [*a, *b].map(|row| row as usize);
                numbers[a].cmp(&numbers[b]).then(times[a].total_cmp(&times[b])).then(a.cmp(&b))
            });
            let same = |pair: &&[u32]| {
                let [a, b] = [pair[0], pair[1]].map(|row| row as usize);
                numbers[a] == numbers[b] && times[a] == times[b]
            };
            if let Some(pair) = order.windows(2).find(same) {
                ensure!(
                    times[pair[0] as usize].abs() < EXACT,
                    "`{name}` has numbers of {} and more, the last digits of which are not read: write it in larger units, as seconds, or as dates",
                    thousands(EXACT as u64)
                );
                let [a, b] = [pair[0], pair[1]].map(called);
                bail!(
                    "{a} and {b} have the same `{name}`{}",
                    match series {
                        Some(series) => format!(" and the same `{series}`: a series has one row at a time"),
                        None => ": a series has one row at a time; where a table has several, `series_column` names the column that says which a row is of".to_owned(),
                    }
                );
            }
        } else {
            order.sort_by_key(|row| numbers[*row as usize]);
        }
        let mut places = vec![u32::MAX; raw.rows()];
        order.iter().zip(0..).for_each(|(row, place)| places[*row as usize] = place);
        let next = |pair: &[u32]| numbers[pair[0] as usize] != numbers[pair[1] as usize];
        let between = order.windows(2).zip(1..).filter(|(pair, _)| next(pair)).map(|(_, place)| place);
        let begins: Vec<u32> = std::iter::once(0).chain(between).chain([order.len() as u32]).collect();
        let first = begins.iter().filter_map(|begin| order.get(*begin as usize));
        let names = cells.map_or(Vec::new(), |cells| first.map(|row| text_of(&cells, *row as usize)).collect());
        Ok(Series { order, places, begins, times, names })
    }

    /// What the series of a row is called, if a column says it.
    pub fn name(&self, row: u32) -> Option<String> {
        let place = self.places[row as usize];
        self.names.get(self.begins.partition_point(|begin| *begin <= place) - 1).cloned()
    }

    /// The time of a row, if a column says it.
    pub fn time(&self, row: u32) -> Option<f64> {
        self.times.as_ref().map(|times| times[row as usize])
    }

    /// Where the series of a row begins and ends, and where the row is; `None`: it is left out.
    fn place(&self, row: u32) -> Option<[usize; 3]> {
        let place = self.places[row as usize];
        let end = self.begins.partition_point(|begin| *begin <= place);
        (place != u32::MAX).then(|| [self.begins[end - 1], place, self.begins[end]].map(|at| at as usize))
    }

    /// The rows of a window that ends with `row`, if so many are there.
    pub fn window(&self, row: u32, rows: usize) -> Option<&[u32]> {
        let [begin, place, _] = self.place(row)?;
        (place + 1 - begin >= rows).then(|| &self.order[place + 1 - rows..=place])
    }

    /// The rows whose targets are learnt with the window that ends with `row`: so many after it, if they are there, or that row itself.
    pub fn learnt(&self, row: u32, horizon: usize) -> Option<&[u32]> {
        let [_, place, end] = self.place(row)?;
        match horizon {
            0 => Some(&self.order[place..=place]),
            rows => (end - place > rows).then(|| &self.order[place + 1..=place + rows]),
        }
    }

    /// The last rows of all windows of so many rows, in the order of the table. From one to the next of a series are `stride` rows.
    pub fn ends(&self, window: usize, stride: usize) -> impl Iterator<Item = u32> {
        let whole = move |row: &u32| {
            let before = self.place(*row).and_then(|[begin, place, _]| (place + 1 - begin).checked_sub(window));
            before.is_some_and(|before| before % stride == 0)
        };
        (0..self.places.len() as u32).filter(whole)
    }

    /// The last row of each series of so many rows, in the order of the table.
    pub fn last(&self, window: usize) -> Vec<u32> {
        let ends = self.begins[1..].iter().filter_map(|end| (*end as usize).checked_sub(1));
        let mut rows: Vec<u32> = ends.filter_map(|end| self.order.get(end).copied()).collect();
        rows.retain(|row| self.window(*row, window).is_some());
        rows.sort_unstable();
        rows
    }

    /// How many rows the table has.
    pub fn rows(&self) -> usize {
        self.places.len()
    }

    /// How late each row is: its time or, where no column says one, how much of its series lies before it.
    pub fn times(&self) -> Vec<f64> {
        if let Some(times) = &self.times {
            return times.clone();
        }
        let share = |row: u32| {
            self.place(row).map_or(0.0, |[begin, place, end]| (place + 1 - begin) as f64 / (end - begin) as f64)
        };
        (0..self.places.len() as u32).map(share).collect()
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.order[..])
            + size_of_val(&self.places[..])
            + self.times.as_ref().map_or(0, |times| size_of_val(&times[..]))
    }

    /// How many series there are, and the rows of the longest.
    pub fn measures(&self) -> [usize; 2] {
        let lengths = self.begins.windows(2).map(|pair| (pair[1] - pair[0]) as usize);
        [lengths.clone().filter(|length| *length > 0).count(), lengths.max().unwrap_or(0)]
    }

    /// How many series are shorter than `rows`.
    pub fn shorter_than(&self, rows: usize) -> usize {
        self.begins.windows(2).filter(|pair| pair[1] > pair[0] && ((pair[1] - pair[0]) as usize) < rows).count()
    }

    /// The rows of each series.
    pub fn each(&self) -> impl Iterator<Item = &[u32]> {
        self.begins.windows(2).map(|pair| &self.order[pair[0] as usize..pair[1] as usize])
    }

    /// The steps from row to row within each of some lists of rows; `None` where no column has times, or there is no step.
    pub fn steps<'a>(&self, rows: impl Iterator<Item = &'a [u32]>) -> Option<Steps> {
        let times = self.times.as_ref()?;
        let pairs = rows.flat_map(|rows| rows.windows(2));
        let mut steps: Vec<f64> = pairs.map(|pair| times[pair[1] as usize] - times[pair[0] as usize]).collect();
        steps.sort_unstable_by(f64::total_cmp);
        let (usual, longest) = (*steps.get(steps.len() / 2)?, *steps.last()?);
        // Months differ in length.
        let longer = steps.len() - steps.partition_point(|step| *step <= 1.2 * usual);
        Some(Steps { all: steps.len(), longer, usual, longest })
    }
}

/// Steps in time from row to row.
pub struct Steps {
    /// How many there are.
    pub all: usize,
    /// How many are longer than most.
    pub longer: usize,
    /// How long most are.
    pub usual: f64,
    /// The longest.
    pub longest: f64,
}

/// The cell of a row, for people.
fn text_of(cells: &Cells, row: usize) -> String {
    match cells {
        Cells::Numbers(values) => values[row].to_string(),
        Cells::Texts(numbers, texts) => numbers[row].map_or_else(String::new, |text| texts[text as usize].clone()),
    }
}

/// A number for each row: the same where the cells are the same, in the order in which they come first.
fn numbered(cells: &Cells) -> Vec<u32> {
    let mut known = HashMap::new();
    let mut number = |key: u64| {
        let next = known.len() as u32;
        *known.entry(key).or_insert(next)
    };
    match cells {
        // Minus zero is zero.
        Cells::Numbers(values) => values.iter().map(|value| number((value + 0.0).to_bits())).collect(),
        Cells::Texts(numbers, _) => numbers.iter().map(|text| number(text.map_or(u64::MAX, u64::from))).collect(),
    }
}
