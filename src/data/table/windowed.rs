//! Windows of rows as samples.

use super::super::field::{Field, FieldKind};
use super::super::memory::Memory;
use super::super::naive::NaiveErrors;
use super::super::row_names::RowName;
use super::super::store::{Rows, Store, Unreadable};
use super::cell::time_text;
use super::codec::Read;
use super::series::Series;
use super::windows::Windows;
use crate::graph::DType;
use anyhow::{Result, ensure};
use std::sync::Arc;

/// Windows of rows in memory. The number of a sample is that of its last row; only rows with a whole window are samples.
#[derive(Debug)]
pub struct Windowed {
    rows: Memory,
    fields: Vec<Field>,
    series: Arc<Series>,
    windows: Windows,
}

impl Windowed {
    /// Those of `rows`, with these `fields`.
    ///
    /// # Errors
    /// The fields are no windows of those of the rows.
    pub fn new(rows: Memory, fields: Vec<Field>, series: Arc<Series>, windows: Windows) -> Result<Windowed> {
        let times = |field: &Field| if field.is_input() { windows.rows } else { windows.learnt() };
        let fits = |(own, row): (&Field, &Field)| own.bytes() == row.bytes() * times(own) && own.lengths.is_empty();
        ensure!(
            fields.len() == rows.fields().len() && fields.iter().zip(rows.fields()).all(fits),
            "the fields are no windows of rows"
        );
        Ok(Windowed { rows, fields, series, windows })
    }

    /// The bytes of a field of the sample whose last row is `sample`, piece by piece.
    ///
    /// # Panics
    /// If it is no sample.
    fn pieces(&self, sample: usize, field: usize, take: &mut dyn FnMut(&[u8])) {
        let row = sample as u32;
        if self.fields[field].is_input() {
            let window = self.series.window(row, self.windows.rows).expect("only whole windows are samples");
            window.iter().for_each(|row| take(self.rows.row(*row as usize, field)));
            return;
        }
        let learnt = self.series.learnt(row, self.windows.horizon).expect("only windows with rows behind are samples");
        let each = self.fields[field].dtype.bytes();
        // Column by column, each row by row.
        for column in 0..self.rows.fields()[field].bytes() / each {
            learnt.iter().for_each(|row| take(&self.rows.row(*row as usize, field)[column * each..][..each]));
        }
    }

    /// The bytes of the inputs of the samples whose last rows are `samples`, field by field.
    pub fn input_bytes(&self, samples: &[u32]) -> Vec<Vec<u8>> {
        let inputs = (0..self.fields.len()).filter(|field| self.fields[*field].is_input());
        let of = |field: usize| {
            let mut bytes = Vec::with_capacity(samples.len() * self.fields[field].bytes());
            samples
                .iter()
                .for_each(|row| self.pieces(*row as usize, field, &mut |piece| bytes.extend_from_slice(piece)));
            bytes
        };
        inputs.map(of).collect()
    }
}

impl Store for Windowed {
    fn len(&self) -> usize {
        self.rows.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn write(&self, sample: usize, rows: &mut Rows) -> Result<(), Unreadable> {
        (0..self.fields.len()).for_each(|field| rows.put_pieces(field, |take| self.pieces(sample, field, take)));
        Ok(())
    }

    fn identify(&self, sample: usize, field: usize, take: &mut dyn FnMut(&[u8])) {
        self.pieces(sample, field, take);
    }

    fn classes_in_file(&self, sample: usize, take: &mut dyn FnMut(i32)) -> bool {
        let target = self.fields.iter().position(|field| field.is_target() && field.dtype == DType::I32);
        let Some(target) = target else { return false };
        self.pieces(sample, target, &mut |class| {
            class.as_chunks().0.iter().for_each(|class| take(i32::from_ne_bytes(*class)))
        });
        true
    }

    fn name(&self, sample: usize) -> Option<String> {
        self.rows.name(sample)
    }

    fn row(&self, sample: usize) -> Option<RowName<'_>> {
        Store::row(&self.rows, sample)
    }

    fn series(&self, sample: usize) -> Vec<(String, String)> {
        let (row, windows) = (sample as u32, &self.windows);
        let name = windows.series.as_ref().zip(self.series.name(row)).map(|((column, _), name)| (column.clone(), name));
        let time = windows.time.as_ref().zip(self.series.time(row));
        let time = time.map(|((column, read), time)| match read {
            Read::Date(_) => (column.clone(), time_text(time)),
            _ => (column.clone(), time.to_string()),
        });
        name.into_iter().chain(time).collect()
    }

    fn naive_errors(&self, sample: usize) -> Option<NaiveErrors> {
        let row = sample as u32;
        let target = self.fields.iter().position(Field::is_target)?;
        let learnt = self.series.learnt(row, self.windows.horizon).filter(|_| self.windows.horizon > 0)?;
        let window = self.series.window(row, self.windows.rows)?;
        let numbers = self.fields[target].kind == FieldKind::Number && self.fields[target].dtype == DType::F32;
        let of = |row: &u32| self.rows.row(*row as usize, target).as_chunks::<4>().0;
        let mut errors = NaiveErrors::default();
        for column in (0..of(&learnt[0]).len()).filter(|_| numbers) {
            let value = |row: &u32| f32::from_ne_bytes(of(row)[column]);
            // Rows of a window may lack the target; those after it have it.
            let Some(last) = window.iter().rev().map(value).find(|value| !value.is_nan()) else { continue };
            learnt.iter().for_each(|row| errors.add(last, value(row)));
        }
        (errors != NaiveErrors::default()).then_some(errors)
    }

    fn held_bytes(&self) -> usize {
        self.rows.held_bytes() + self.series.bytes()
    }

    fn filed_bytes(&self) -> usize {
        self.rows.filed_bytes()
    }
}
