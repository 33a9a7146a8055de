//! Writes a Parquet file: some rows at a time, column by column, packed by Snappy.

use super::copy::Copied;
use anyhow::{Context, Result, ensure};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Stored};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// Rows that are held before they are written.
const ROWS: usize = 1 << 16;

/// A cell of a table of results.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A whole number.
    Whole(i64),
    /// A number in single precision.
    Single(f32),
    /// A number in double precision.
    Double(f64),
    /// A truth.
    Truth(bool),
    /// Nothing, where others of the column have what this one has.
    Missing(Box<Value>),
}

impl Value {
    /// The cell as a text has it.
    pub fn text(&self) -> String {
        match self {
            Value::Text(text) => text.clone(),
            Value::Whole(number) => number.to_string(),
            Value::Single(number) => number.to_string(),
            Value::Double(number) => number.to_string(),
            Value::Truth(truth) => truth.to_string(),
            Value::Missing(_) => String::new(),
        }
    }
}

/// The cells of a column that are not written yet.
enum Column {
    Texts(Cells<ByteArrayType>),
    Wholes(Cells<Int64Type>),
    Singles(Cells<FloatType>),
    Doubles(Cells<DoubleType>),
    Truths(Cells<BoolType>),
}

struct Cells<T: DataType> {
    values: Vec<T::T>,
    /// 1 where there is a value.
    levels: Vec<i16>,
}

impl<T: DataType> Default for Cells<T> {
    fn default() -> Self {
        Cells { values: Vec::new(), levels: Vec::new() }
    }
}

impl<T: DataType> Cells<T> {
    fn put(&mut self, value: Option<T::T>) {
        self.levels.push(i16::from(value.is_some()));
        self.values.extend(value);
    }

    fn write<W: Write + Send>(&mut self, group: &mut SerializedRowGroupWriter<W>) -> Result<()> {
        let mut column = group.next_column()?.context("a column less than there are")?;
        column.typed::<T>().write_batch(&self.values, Some(&self.levels), None)?;
        column.close()?;
        self.values.clear();
        self.levels.clear();
        Ok(())
    }
}

impl Column {
    fn like(value: &Value) -> Column {
        match value {
            Value::Text(_) => Column::Texts(Cells::default()),
            Value::Whole(_) => Column::Wholes(Cells::default()),
            Value::Single(_) => Column::Singles(Cells::default()),
            Value::Double(_) => Column::Doubles(Cells::default()),
            Value::Truth(_) => Column::Truths(Cells::default()),
            Value::Missing(like) => Column::like(like),
        }
    }

    fn stored(&self) -> Stored {
        match self {
            Column::Texts(_) => Stored::BYTE_ARRAY,
            Column::Wholes(_) => Stored::INT64,
            Column::Singles(_) => Stored::FLOAT,
            Column::Doubles(_) => Stored::DOUBLE,
            Column::Truths(_) => Stored::BOOLEAN,
        }
    }

    /// Takes a cell; false if it is of another kind.
    fn put(&mut self, value: Value) -> bool {
        match (self, value) {
            (Column::Texts(cells), Value::Text(text)) => cells.put(Some(ByteArray::from(text.into_bytes()))),
            (Column::Wholes(cells), Value::Whole(number)) => cells.put(Some(number)),
            (Column::Singles(cells), Value::Single(number)) => cells.put(Some(number)),
            (Column::Doubles(cells), Value::Double(number)) => cells.put(Some(number)),
            (Column::Truths(cells), Value::Truth(truth)) => cells.put(Some(truth)),
            (Column::Texts(cells), Value::Missing(_)) => cells.put(None),
            (Column::Wholes(cells), Value::Missing(_)) => cells.put(None),
            (Column::Singles(cells), Value::Missing(_)) => cells.put(None),
            (Column::Doubles(cells), Value::Missing(_)) => cells.put(None),
            (Column::Truths(cells), Value::Missing(_)) => cells.put(None),
            _ => return false,
        }
        true
    }

    fn write<W: Write + Send>(&mut self, group: &mut SerializedRowGroupWriter<W>) -> Result<()> {
        match self {
            Column::Texts(cells) => cells.write(group),
            Column::Wholes(cells) => cells.write(group),
            Column::Singles(cells) => cells.write(group),
            Column::Doubles(cells) => cells.write(group),
            Column::Truths(cells) => cells.write(group),
        }
    }
}

/// What the writer of the crate has written and the file does not have yet: that writer wants something that threads may share.
#[derive(Clone, Default)]
struct Held(Arc<Mutex<Vec<u8>>>);

impl Write for Held {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes a Parquet file of rows, piece by piece.
pub struct ColumnWriter {
    writer: SerializedFileWriter<Held>,
    held: Held,
    columns: Vec<Column>,
    rows: usize,
    /// Columns of another file, which stand before those.
    copied: Option<Copied>,
}

impl ColumnWriter {
    /// A file with columns of these names, which have what is in the first row.
    ///
    /// # Errors
    /// Two columns have one name.
    pub fn new(names: &[String], first: &[Value]) -> Result<Self> {
        ColumnWriter::behind(None, names, first)
    }

    /// The same with these columns after all those of another file.
    ///
    /// # Errors
    /// Two columns have one name.
    pub fn behind(copied: Option<Copied>, names: &[String], first: &[Value]) -> Result<Self> {
        ensure!(names.len() == first.len(), "there are {} names of {} columns", names.len(), first.len());
        let mut known = HashSet::new();
        for name in names {
            ensure!(known.insert(name), "two columns are called `{name}`, which a Parquet file does not have");
        }
        let columns: Vec<Column> = first.iter().map(Column::like).collect();
        let field = |(name, column): (&String, &Column)| {
            let text = matches!(column, Column::Texts(_)).then_some(LogicalType::String);
            let field = Type::primitive_type_builder(name, column.stored()).with_repetition(Repetition::OPTIONAL);
            Ok(Arc::new(field.with_logical_type(text).build()?))
        };
        let own = names.iter().zip(&columns).map(field).collect::<Result<Vec<_>>>()?;
        let fields = copied.iter().flat_map(Copied::fields).chain(own).collect();
        let schema = Arc::new(Type::group_type_builder("rows").with_fields(fields).build()?);
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(format!("runner {}", env!("CARGO_PKG_VERSION")))
            .build();
        let held = Held::default();
        let writer = SerializedFileWriter::new(held.clone(), schema, Arc::new(properties))?;
        Ok(ColumnWriter { writer, held, columns, rows: 0, copied })
    }

    /// Takes a row.
    ///
    /// # Errors
    /// It is of other cells than the first.
    pub fn add(&mut self, row: Vec<Value>) -> Result<()> {
        ensure!(row.len() == self.columns.len(), "a row has {} cells of {} columns", row.len(), self.columns.len());
        for (column, value) in self.columns.iter_mut().zip(row) {
            ensure!(column.put(value), "a row has a cell of another kind than those before");
        }
        self.rows += 1;
        if self.rows >= ROWS { self.write_group() } else { Ok(()) }
    }

    /// Takes a row that stands after row `number` of the other file, which comes after all that were taken.
    ///
    /// # Errors
    /// As [`ColumnWriter::add`]; the other file cannot be read.
    pub fn add_behind(&mut self, number: usize, row: Vec<Value>) -> Result<()> {
        let begins_group = self.copied.as_mut().context("no file is copied")?.begins_group(number as u64)?;
        if begins_group && self.rows > 0 {
            self.write_group()?;
        }
        self.copied.as_mut().context("no file is copied")?.take(number as u64)?;
        self.add(row)
    }

    /// Goes on with the rows of the next file.
    ///
    /// # Errors
    /// It has other columns.
    pub fn go_on(&mut self, next: Copied) -> Result<()> {
        if self.rows > 0 {
            self.write_group()?;
        }
        if let Some(copied) = &self.copied {
            copied.expect_like(&next)?;
        }
        self.copied = Some(next);
        Ok(())
    }

    fn write_group(&mut self) -> Result<()> {
        let mut group = self.writer.next_row_group()?;
        if let Some(copied) = &mut self.copied {
            copied.write(&mut group)?;
        }
        self.columns.iter_mut().try_for_each(|column| column.write(&mut group))?;
        group.close()?;
        self.rows = 0;
        Ok(self.writer.flush()?)
    }

    /// The bytes that are made and were not taken yet.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut *self.held.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The bytes that are left, with the end of the file.
    ///
    /// # Errors
    /// They cannot be packed.
    pub fn finish(mut self) -> Result<Vec<u8>> {
        if self.rows > 0 {
            self.write_group()?;
        }
        let mut bytes = self.take();
        self.writer.finish()?;
        self.writer.flush()?;
        bytes.extend(self.take());
        Ok(bytes)
    }
}
