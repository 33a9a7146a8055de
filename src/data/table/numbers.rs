//! The numbers of a table's columns while they are read. Several threads write them, each those of its own rows.

use super::aside::Aside;
use super::codec::Cells;
use super::stored::{Runs, Stored};
use anyhow::Result;
use std::sync::Arc;

/// The numbers of columns, in memory or, some rows after the others, in a file.
pub struct Numbers {
    columns: Vec<Option<Column>>,
    /// Rows that are in memory.
    rows: usize,
}

struct Column {
    /// As many as there may be rows: what is not written yet takes no memory.
    numbers: Vec<f64>,
    file: Option<Runs>,
}

impl Numbers {
    /// Of so many `columns`, with at most so many `rows`; in a file `aside`, if there is one.
    pub fn new(columns: usize, rows: usize, aside: Option<&Arc<Aside>>) -> Self {
        let rows = if aside.is_some() { 0 } else { rows };
        let column = |_| Some(Column { numbers: vec![0.0; rows], file: aside.map(Runs::new) });
        Numbers { columns: (0..columns).map(column).collect(), rows: 0 }
    }

    /// Places for the numbers of the next pieces of the table, the most rows that each may have: for each piece those of all columns, of which there are none of
    /// a column that has other cells, too.
    pub fn places(&mut self, most: &[usize]) -> Vec<Vec<Option<&mut [f64]>>> {
        let (first, all) = (self.rows, most.iter().sum::<usize>());
        let mut places: Vec<Vec<Option<&mut [f64]>>> = most.iter().map(|_| Vec::new()).collect();
        for column in &mut self.columns {
            let Some(column) = column else {
                places.iter_mut().for_each(|places| places.push(None));
                continue;
            };
            if column.numbers.len() < first + all {
                // Of a file: what was here before is there.
                column.numbers = vec![0.0; all];
            }
            let mut rest = &mut column.numbers[first..];
            for (places, most) in places.iter_mut().zip(most) {
                let (own, others) = rest.split_at_mut(*most);
                places.push(Some(own));
                rest = others;
            }
        }
        places
    }

    /// Keeps what was written to these places: so many `rows` of each piece. Columns that have other cells are kept no longer.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(&mut self, most: &[usize], rows: &[usize], are_numbers: impl Fn(usize) -> bool) -> Result<()> {
        let first = self.rows;
        for (at, column) in self.columns.iter_mut().enumerate() {
            let Some(own) = column.as_mut().filter(|_| are_numbers(at)) else {
                *column = None;
                continue;
            };
            let (mut from, mut to) = (first, first);
            for (most, rows) in most.iter().zip(rows) {
                if from != to {
                    own.numbers.copy_within(from..from + rows, to);
                }
                (from, to) = (from + most, to + rows);
            }
            self.rows = to;
            if let Some(file) = &mut own.file {
                file.add_numbers(&own.numbers[..to])?;
                self.rows = 0;
            }
        }
        Ok(())
    }

    /// The cells of each column that has numbers alone.
    pub fn done(self) -> impl Iterator<Item = Option<Stored>> {
        let rows = self.rows;
        let stored = move |Column { mut numbers, file }| {
            numbers.truncate(rows);
            file.map_or(Stored::Here(Cells::Numbers(numbers)), |file| file.done(None))
        };
        self.columns.into_iter().map(move |column| column.map(stored))
    }
}

#[cfg(test)]
mod tests {
    use super::super::aside::{Lies, Room};
    use super::*;

    /// The numbers of two columns: the second has other cells in the last piece of the second round.
    fn read(aside: Option<&Arc<Aside>>) -> Vec<Option<Cells>> {
        let mut numbers = Numbers::new(2, 12, aside);
        let mut next = 1.0;
        for (most, rows) in [(vec![3], vec![2]), (vec![2, 4, 3], vec![0, 3, 3])] {
            for (piece, rows) in numbers.places(&most).into_iter().zip(&rows) {
                for (place, factor) in piece.into_iter().flatten().zip([1.0, 10.0]) {
                    (0..*rows).for_each(|row| place[row] = factor * (next + row as f64));
                }
                next += *rows as f64;
            }
            numbers.keep(&most, &rows, |column| column == 0 || most.len() == 1).unwrap();
        }
        numbers.done().map(|cells| cells.map(|cells| cells.all().unwrap().into_owned())).collect()
    }

    #[test]
    fn rows_stand_behind_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let room = Room { lies: Lies::Aside, folder: Some(folder.path().to_owned()) };
        let expected = vec![Some(Cells::Numbers((1..=8).map(f64::from).collect())), None];
        assert_eq!(read(None), expected);
        assert_eq!(read(room.aside(0).unwrap().as_ref()), expected);
    }
}
