//! Rows of a Parquet file that go into another one, as they are stored: with the type of each column, value by value.

use super::{Columns, decoder_message};
use crate::files::{contained, open};
use anyhow::{Context, Result, anyhow, ensure};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::file::writer::SerializedRowGroupWriter;
use parquet::schema::types::TypePtr;
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// The rows of a file, in their order; some may be left out.
pub struct Copied {
    columns: Columns,
    file: Arc<File>,
    /// The columns, and the number of each among those that are stored.
    fields: Vec<(TypePtr, usize)>,
    /// The group of rows that is read, and the rows before it.
    group: usize,
    before: u64,
    /// A reader for each column, once the group is begun, and how many of its rows they have read.
    readers: Vec<ColumnReader>,
    read: u64,
    /// Rows of the group that are to be written.
    taken: Vec<u64>,
}

impl Copied {
    /// The file at `path`, with all of its columns.
    ///
    /// # Errors
    /// It cannot be read; it has lists or structs.
    pub fn open(path: &Path) -> Result<Copied> {
        let columns = Columns::open(path)?;
        let opened = open(path)?;
        ensure!(opened.size == columns.size, "`{}` has changed since it was looked at", path.display());
        let schema = columns.metadata.file_metadata().schema_descr();
        let roots = schema.root_schema().get_fields();
        let known: HashMap<&str, &TypePtr> = roots.iter().map(|field| (field.name(), field)).collect();
        let leaves = (0..schema.num_columns()).map(|leaf| (schema.get_column_root(leaf).name(), leaf));
        let leaves: HashMap<&str, usize> = leaves.collect();
        let mut fields = Vec::new();
        for name in &columns.names {
            let (field, leaf) = known.get(name.as_str()).zip(leaves.get(name.as_str())).context("a column is gone")?;
            ensure!(
                field.is_primitive() && schema.column(*leaf).max_rep_level() == 0,
                "`{}`: the column `{name}` has lists or structs, which are not copied: leave it out of the file, or predict without `--keep-columns`",
                path.display()
            );
            fields.push((Arc::clone(field), *leaf));
        }
        // What cannot be read as cells was not judged yet.
        for group in columns.metadata.row_groups() {
            for (field, leaf) in &fields {
                columns.judge_column(field.name(), group.column(*leaf))?;
            }
        }
        let file = Arc::new(opened.file);
        Ok(Copied { columns, file, fields, group: 0, before: 0, readers: Vec::new(), read: 0, taken: Vec::new() })
    }

    /// The columns as the file has them.
    pub fn fields(&self) -> impl Iterator<Item = TypePtr> {
        self.fields.iter().map(|(field, _)| Arc::clone(field))
    }

    /// The names of the columns.
    pub fn names(&self) -> &[String] {
        &self.columns.names
    }

    /// Refuses a file with other columns.
    ///
    /// # Errors
    /// It has some.
    pub fn expect_like(&self, other: &Copied) -> Result<()> {
        let (first, next) = (self.columns.path.display(), other.columns.path.display());
        ensure!(
            self.fields().eq(other.fields()),
            "`{next}` has other columns than `{first}`, or columns of other types, and the rows of both cannot stand in one file: write a file for each"
        );
        Ok(())
    }

    fn group_rows(&self) -> Result<u64> {
        let group = self.columns.metadata.row_groups().get(self.group);
        Ok(u64::try_from(group.context("there are more rows than the file has")?.num_rows())?)
    }

    /// Whether a row, from 0, is in a group after that of the rows that were taken.
    ///
    /// # Errors
    /// There is no such row.
    pub fn begins_group(&self, row: u64) -> Result<bool> {
        Ok(row >= self.before + self.group_rows()?)
    }

    /// Takes the next row; those before it that were not taken are left out. What was taken of other groups is written.
    ///
    /// # Errors
    /// There is no such row.
    pub fn take(&mut self, row: u64) -> Result<()> {
        while self.begins_group(row)? {
            self.before += self.group_rows()?;
            self.group += 1;
            self.readers.clear();
            self.read = 0;
        }
        self.taken.push(row - self.before);
        Ok(())
    }

    /// Writes the rows that were taken.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn write<W: Write + Send>(&mut self, to: &mut SerializedRowGroupWriter<W>) -> Result<()> {
        let taken = std::mem::take(&mut self.taken);
        let count = taken.last().map_or(0, |last| last + 1 - self.read) as usize;
        let wanted: Vec<usize> = taken.iter().map(|row| (row - self.read) as usize).collect();
        if self.readers.is_empty() {
            let rows = usize::try_from(self.group_rows()?)?;
            let group = &self.columns.metadata.row_groups()[self.group];
            let open = |(_, leaf): &(TypePtr, usize)| self.columns.leaf(&self.file, group, *leaf, rows);
            self.readers = self.fields.iter().map(open).collect::<Result<_>>()?;
        }
        for (reader, (field, _)) in self.readers.iter_mut().zip(&self.fields) {
            let written = match reader {
                ColumnReader::BoolColumnReader(reader) => copy(reader, count, &wanted, to),
                ColumnReader::Int32ColumnReader(reader) => copy(reader, count, &wanted, to),
                ColumnReader::Int64ColumnReader(reader) => copy(reader, count, &wanted, to),
                ColumnReader::Int96ColumnReader(reader) => copy(reader, count, &wanted, to),
                ColumnReader::FloatColumnReader(reader) => copy(reader, count, &wanted, to),
                ColumnReader::DoubleColumnReader(reader) => copy(reader, count, &wanted, to),
                ColumnReader::ByteArrayColumnReader(reader) => copy(reader, count, &wanted, to),
                ColumnReader::FixedLenByteArrayColumnReader(reader) => copy(reader, count, &wanted, to),
            };
            let place = || format!("`{}`, the column `{}`", self.columns.path.display(), field.name());
            written.with_context(place)?;
        }
        self.read += count as u64;
        Ok(())
    }
}

/// Reads the next `count` rows of a column, and writes those of them that are `wanted`.
fn copy<T: DataType, W: Write + Send>(
    reader: &mut ColumnReaderImpl<T>,
    count: usize,
    wanted: &[usize],
    to: &mut SerializedRowGroupWriter<W>,
) -> Result<()> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let read = || Ok(reader.read_records(count, Some(&mut levels), None, &mut values)?);
    let (rows, ..) =
        contained(read).map_err(|error| anyhow!("it is damaged or cut off: {}", decoder_message(&error)))?;
    ensure!(rows == count, "it is damaged or cut off: it ends before its last row");
    if wanted.len() < count {
        let (mut next, mut wanted) = (values.into_iter(), wanted.iter().peekable());
        let (mut kept_levels, mut kept) = (Vec::new(), Vec::new());
        for row in 0..count {
            // Without levels all values are there.
            let level = levels.get(row).copied();
            let value = if level == Some(0) { None } else { next.next() };
            if wanted.next_if_eq(&&row).is_some() {
                kept_levels.extend(level);
                kept.extend(value);
            }
        }
        (levels, values) = (kept_levels, kept);
    }
    let mut column = to.next_column()?.context("a column less than there are")?;
    column.typed::<T>().write_batch(&values, (!levels.is_empty()).then_some(&levels[..]), None)?;
    Ok(column.close()?)
}
