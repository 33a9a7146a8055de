//! Samples in memory, field by field.

use super::field::{Field, FieldKind, Length, Lengths};
use super::row_names::{RowName, RowNames};
use super::store::{Rows, Store, Unreadable};
use super::values::Values;
use anyhow::{Result, ensure};
use std::sync::Arc;

/// Samples in memory, or in a file that is seen as memory.
#[derive(Debug)]
pub struct Memory {
    fields: Vec<Field>,
    values: Vec<Values>,
    len: usize,
    names: Option<Arc<RowNames>>,
    /// The lengths that batches may have, of fields that are filled up to the longest.
    lengths: Vec<Lengths>,
}

impl Memory {
    /// `len` samples of these fields with their values.
    ///
    /// # Errors
    /// The lengths of the lists do not fit the shapes.
    pub fn new(list: Vec<(Field, Values)>, len: usize) -> Result<Self> {
        for (field, values) in &list {
            let (bytes, dtype) = (values.bytes().len(), values.dtype());
            let needed = field.shape.len().checked_mul(dtype.bytes()).and_then(|b| b.checked_mul(len));
            ensure!(
                needed == Some(bytes) && dtype == field.dtype,
                "{len} samples with {} of shape {} ({}) cannot be {bytes} bytes of {dtype}",
                field.name,
                field.shape,
                field.dtype
            );
        }
        let (fields, values) = list.into_iter().unzip();
        Ok(Memory { fields, values, len, names: None, lengths: Vec::new() })
    }

    /// The same as rows of a table.
    ///
    /// # Panics
    /// If there are not as many names as samples.
    pub fn named(self, names: Arc<RowNames>) -> Self {
        assert_eq!(names.len(), self.len, "a name for each sample");
        Memory { names: Some(names), ..self }
    }

    /// The same in batches of these lengths, ascending. A field says how long each sample is.
    pub(super) fn in_batches_of(self, lengths: Vec<Lengths>) -> Self {
        Memory { lengths, ..self }
    }

    /// The bytes of a field of a sample.
    pub(super) fn row(&self, sample: usize, field: usize) -> &[u8] {
        let bytes = self.fields[field].bytes();
        &self.values[field].bytes()[sample * bytes..][..bytes]
    }
}

impl Store for Memory {
    fn len(&self) -> usize {
        self.len
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn lengths(&self) -> &[Lengths] {
        &self.lengths
    }

    fn length_of(&self, sample: usize) -> usize {
        let field = self.fields.iter().position(|field| field.kind == FieldKind::Length);
        let bytes = field.and_then(|field| self.row(sample, field).first_chunk());
        let length = bytes.map_or(0, |bytes| i32::from_ne_bytes(*bytes));
        Lengths::place(&self.lengths, [usize::try_from(length).unwrap_or(0), 0])
    }

    fn write(&self, sample: usize, rows: &mut Rows) -> Result<(), Unreadable> {
        for (number, field) in self.fields.iter().enumerate() {
            let row = self.row(sample, number);
            match field.lengths[..] {
                // A shorter batch has what is in front.
                [Length { axis: 0, .. }] => rows.put_front(number, row),
                _ if rows.wants(number) => rows.put(number, row),
                _ => {}
            }
        }
        Ok(())
    }

    fn identify(&self, sample: usize, field: usize, take: &mut dyn FnMut(&[u8])) {
        take(self.row(sample, field));
    }

    fn stored(&self, field: usize) -> Option<&[u8]> {
        self.values.get(field).map(Values::bytes)
    }

    fn name(&self, sample: usize) -> Option<String> {
        Some(match Store::row(self, sample)? {
            RowName::Id(_, id) => id.to_owned(),
            RowName::Line(None, line) => format!("line {line}"),
            RowName::Line(Some(file), line) => format!("{file}, line {line}"),
        })
    }

    fn row(&self, sample: usize) -> Option<RowName<'_>> {
        self.names.as_ref().map(|names| names.at(sample))
    }

    fn held_bytes(&self) -> usize {
        let names = self.names.as_ref().map_or(0, |names| names.held_bytes());
        names + self.values.iter().map(|values| values.taken()[0]).sum::<usize>()
    }

    fn filed_bytes(&self) -> usize {
        self.values.iter().map(|values| values.taken()[1]).sum()
    }
}
