//! The cells of a column of all rows: in memory, or aside in a file, from which those of some rows are read.

use super::super::values::bytes_of;
use super::aside::Aside;
use super::codec::Cells;
use anyhow::Result;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Stands for a text that is missing.
const NO_TEXT: u32 = u32::MAX;

/// The cells of a column.
pub enum Stored {
    /// In memory.
    Here(Cells),
    /// In a file.
    Aside(Runs),
}

/// Cells in a file: some rows after the others.
pub struct Runs {
    file: Arc<Aside>,
    /// The rows before each run, and where it is.
    runs: Vec<(usize, u64)>,
    rows: usize,
    /// What the numbers of texts stand for, of a column of texts.
    texts: Option<Arc<Vec<String>>>,
}

/// Cells of some rows.
pub struct Piece<'a> {
    /// The cells.
    pub cells: Cow<'a, Cells>,
    /// The row of the first of them.
    pub first: usize,
}

impl Runs {
    /// No rows yet.
    pub fn new(file: &Arc<Aside>) -> Runs {
        Runs { file: Arc::clone(file), runs: Vec::new(), rows: 0, texts: None }
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Takes the next rows of a column of numbers.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add_numbers(&mut self, values: &[f64]) -> Result<()> {
        self.add(bytes_of(values), values.len())
    }

    /// Takes the next rows of a column of texts, by their numbers.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add_texts(&mut self, numbers: &[Option<u32>]) -> Result<()> {
        let numbers: Vec<u32> = numbers.iter().map(|number| number.unwrap_or(NO_TEXT)).collect();
        self.add(bytes_of(&numbers), numbers.len())
    }

    fn add(&mut self, bytes: &[u8], rows: usize) -> Result<()> {
        if rows > 0 {
            self.runs.push((self.rows, self.file.add(bytes)?));
            self.rows += rows;
        }
        Ok(())
    }

    /// All rows are there: the texts that numbers stand for, if it is a column of texts.
    pub fn done(self, texts: Option<Vec<String>>) -> Stored {
        Stored::Aside(Runs { texts: texts.map(Arc::new), ..self })
    }

    /// The bytes of some rows, so many of each.
    fn read(&self, rows: Range<usize>, each: usize) -> Result<Vec<u8>> {
        let mut all = vec![0; rows.len() * each];
        let mut run = self.runs.partition_point(|(before, _)| *before <= rows.start).saturating_sub(1);
        let mut at = rows.start;
        while at < rows.end {
            let (before, place) = self.runs[run];
            let end = self.runs.get(run + 1).map_or(self.rows, |(next, _)| *next).min(rows.end);
            let out = &mut all[(at - rows.start) * each..(end - rows.start) * each];
            self.file.get(out, place + ((at - before) * each) as u64)?;
            (at, run) = (end, run + 1);
        }
        Ok(all)
    }

    fn cells(&self, rows: Range<usize>) -> Result<Cells> {
        Ok(match &self.texts {
            None => {
                let bytes = self.read(rows, size_of::<f64>())?;
                Cells::Numbers(bytes.as_chunks().0.iter().map(|bytes| f64::from_ne_bytes(*bytes)).collect())
            }
            Some(texts) => {
                let bytes = self.read(rows, size_of::<u32>())?;
                let numbers = bytes.as_chunks().0.iter().map(|bytes| u32::from_ne_bytes(*bytes));
                let there = numbers.map(|number| Some(number).filter(|number| *number != NO_TEXT));
                Cells::Texts(there.collect(), Arc::clone(texts))
            }
        })
    }
}

impl Stored {
    /// The cells of all rows.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn all(&self) -> Result<Cow<'_, Cells>> {
        match self {
            Stored::Here(cells) => Ok(Cow::Borrowed(cells)),
            Stored::Aside(runs) => Ok(Cow::Owned(runs.cells(0..runs.rows)?)),
        }
    }

    /// Those of some rows, at least.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of(&self, rows: Range<usize>) -> Result<Piece<'_>> {
        match self {
            Stored::Here(cells) => Ok(Piece { cells: Cow::Borrowed(cells), first: 0 }),
            Stored::Aside(runs) => Ok(Piece { first: rows.start, cells: Cow::Owned(runs.cells(rows)?) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::aside::{Lies, Room};
    use super::*;

    #[test]
    fn rows_are_read_across_runs() {
        let folder = tempfile::tempdir().unwrap();
        let room = Room { lies: Lies::Aside, folder: Some(folder.path().to_owned()) };
        let file = room.aside(0).unwrap().unwrap();
        let (mut numbers, mut texts) = (Runs::new(&file), Runs::new(&file));
        for run in [0..3, 3..3, 3..4, 4..10] {
            numbers.add_numbers(&run.clone().map(f64::from).collect::<Vec<_>>()).unwrap();
            texts.add_texts(&run.map(|at| (at % 3 > 0).then_some(at)).collect::<Vec<_>>()).unwrap();
        }
        let names: Vec<String> = (0..10).map(|at| at.to_string()).collect();
        let (numbers, texts) = (numbers.done(None), texts.done(Some(names.clone())));
        for (begin, end) in (0..10).flat_map(|begin| (begin..=10).map(move |end| (begin, end))) {
            let rows = begin as u32..end as u32;
            let found = numbers.of(begin..end).unwrap();
            assert_eq!((found.first, &*found.cells), (begin, &Cells::Numbers(rows.clone().map(f64::from).collect())));
            let there = rows.map(|at| (at % 3 > 0).then_some(at)).collect();
            assert_eq!(*texts.of(begin..end).unwrap().cells, Cells::Texts(there, Arc::new(names.clone())));
        }
        assert_eq!(*numbers.all().unwrap(), Cells::Numbers((0..10).map(f64::from).collect()));
    }
}
