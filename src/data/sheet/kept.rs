//! The rows of a sheet once more, to be written beside what was found of each: as they stand in the file.

use super::{ColumnValue, Kind, Sheet};
use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Map, Number, Value};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;
use std::vec;

/// Rows that a thread reads at a time, before they are asked for.
const ROWS: usize = 1024;

/// How rows are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowForm {
    /// As texts.
    Texts,
    /// With their types, as far as the file has some.
    Typed,
    /// As the text of a JSON object.
    Object,
}

/// A row as it is wanted.
#[derive(Debug, Clone, PartialEq)]
pub enum KeptRow {
    /// The cell of each column.
    Cells(Vec<ColumnValue>),
    /// The text of an object, without the bracket that closes it.
    Object(String),
}

/// Rows, one after the other. A thread reads them, so that a few of them are in memory at a time.
pub struct Kept {
    rows: Receiver<Result<Vec<KeptRow>>>,
    some: vec::IntoIter<KeptRow>,
    /// The number of the next one.
    next: usize,
}

impl Kept {
    /// Those of a sheet.
    ///
    /// # Errors
    /// A column has what is no cell; the sheet cannot be read; there is no thread to be had.
    pub fn new(sheet: Sheet, form: RowForm) -> Result<Kept> {
        for (name, kind) in sheet.names().iter().zip(sheet.kinds().unwrap_or_default()) {
            if let Kind::Unread(what) = kind {
                bail!(
                    "`{}`: the column `{name}` has {what}, which no cell has room for: leave it out of the file, or predict without `--keep-columns`",
                    sheet.path().display()
                );
            }
        }
        let (send, rows) = sync_channel(2);
        let kinds = match sheet.kinds() {
            Some(kinds) if form != RowForm::Texts => kinds.iter().map(Type::of).collect(),
            None if form == RowForm::Typed && !sheet.has_cells() => types_of(&sheet)?,
            _ => vec![Type::Text; sheet.names().len()],
        };
        let read = move || {
            if let Err(error) = read(&sheet, form, &kinds, &send) {
                // The receiver may be gone: then this error has no reader.
                let _ = send.send(Err(error));
            }
        };
        Builder::new().spawn(read).context("no thread can be had that reads the rows")?;
        Ok(Kept { rows, some: Vec::new().into_iter(), next: 0 })
    }

    /// The row of a number, from 0, which is behind that of the last one. Those between are passed over.
    ///
    /// # Errors
    /// The sheet cannot be read, or has no such row.
    pub fn row(&mut self, number: usize) -> Result<KeptRow> {
        loop {
            for row in self.some.by_ref() {
                self.next += 1;
                if self.next > number {
                    return Ok(row);
                }
            }
            let some = self.rows.recv().map_err(|_| anyhow!("the file has fewer rows than before"))?;
            self.some = some?.into_iter();
        }
    }
}

/// What a column has in a file that knows types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    /// Nothing yet.
    Nothing,
    Whole,
    Number,
    Truth,
    Text,
}

impl Type {
    fn of(kind: &Kind) -> Type {
        match kind {
            Kind::Number => Type::Number,
            Kind::Truth => Type::Truth,
            Kind::Nothing | Kind::Date | Kind::Utc | Kind::Text | Kind::Unread(_) => Type::Text,
        }
    }

    fn of_value(value: &Value) -> Type {
        match value {
            Value::Null => Type::Nothing,
            Value::Bool(_) => Type::Truth,
            Value::Number(number) if number.is_i64() => Type::Whole,
            Value::Number(_) => Type::Number,
            Value::String(_) | Value::Array(_) | Value::Object(_) => Type::Text,
        }
    }

    /// What has room for both.
    fn and(self, other: Type) -> Type {
        match (self, other) {
            (Type::Nothing, one) | (one, Type::Nothing) => one,
            (Type::Whole, Type::Number) | (Type::Number, Type::Whole) => Type::Number,
            (one, other) if one == other => one,
            _ => Type::Text,
        }
    }

    /// A cell as a value of this type; a text, if it is none.
    fn value(self, cell: &str) -> ColumnValue {
        let text = || ColumnValue::Text(cell.to_owned());
        let like = match self {
            Type::Whole => cell.parse().map(ColumnValue::Whole).ok(),
            Type::Number => cell.parse().map(ColumnValue::Double).ok(),
            Type::Truth => cell.parse().map(ColumnValue::Truth).ok(),
            Type::Nothing | Type::Text => None,
        };
        like.unwrap_or_else(text)
    }

    fn missing(self) -> ColumnValue {
        ColumnValue::Missing(Box::new(match self {
            Type::Whole => ColumnValue::Whole(0),
            Type::Number => ColumnValue::Double(0.0),
            Type::Truth => ColumnValue::Truth(false),
            Type::Nothing | Type::Text => ColumnValue::Text(String::new()),
        }))
    }

    /// A cell as JSON has it.
    fn json(self, cell: &str) -> Value {
        let number = || {
            let whole = cell.parse().map(|n: i64| n.into()).or_else(|_| cell.parse().map(|n: u64| n.into()));
            whole.ok().or_else(|| Number::from_f64(cell.parse().ok()?)).map(Value::Number)
        };
        match self {
            // What JSON has no number for, such as NaN, is nothing.
            Type::Whole | Type::Number => number().unwrap_or(Value::Null),
            Type::Truth => cell.parse().map_or(Value::Null, Value::Bool),
            Type::Nothing | Type::Text => Value::String(cell.to_owned()),
        }
    }
}

/// What each column of a sheet of objects has, in all rows.
fn types_of(sheet: &Sheet) -> Result<Vec<Type>> {
    let mut types = vec![Type::Nothing; sheet.names().len()];
    sheet.each_object(|_, object| {
        for (name, value) in object {
            let kind = sheet.column(name).map(|at| &mut types[at]);
            kind.into_iter().for_each(|kind| *kind = kind.and(Type::of_value(value)));
        }
        Ok(())
    })?;
    Ok(types)
}

/// Sends all rows, some at a time, until the receiver is gone.
fn read(sheet: &Sheet, form: RowForm, kinds: &[Type], send: &SyncSender<Result<Vec<KeptRow>>>) -> Result<()> {
    let mut some = Vec::with_capacity(ROWS);
    let mut put = |row: KeptRow| {
        some.push(row);
        if some.len() == ROWS {
            send.send(Ok(std::mem::take(&mut some))).context("the receiver of the rows is gone")
        } else {
            Ok(())
        }
    };
    let typed = sheet.kinds().is_some();
    if form == RowForm::Object && !sheet.has_cells() && !typed {
        sheet.each_object(|text, _| put(KeptRow::Object(opened(text))))?;
    } else {
        let wanted = sheet.readable();
        for piece in sheet.pieces() {
            sheet.each_row_of(piece, &wanted, true, |_, row| {
                let cells = kinds.iter().zip(row);
                if form != RowForm::Object {
                    let value = |(kind, cell): (&Type, &&str)| match cell.is_empty() {
                        true => kind.missing(),
                        false => kind.value(cell),
                    };
                    return put(KeptRow::Cells(cells.map(value).collect()));
                }
                // A file with types says what is missing; a cell of a text that has nothing in it is an empty text.
                let value = |(kind, cell): (&Type, &&str)| match cell.is_empty() {
                    true if typed => Value::Null,
                    _ => kind.json(cell),
                };
                let named = sheet.names().iter().cloned().zip(cells.map(value));
                put(KeptRow::Object(opened(&Value::Object(named.collect::<Map<_, _>>()).to_string())))
            })?;
        }
    }
    if !some.is_empty() {
        send.send(Ok(some)).context("the receiver of the rows is gone")?;
    }
    Ok(())
}

/// The text of an object without its last bracket.
fn opened(text: &str) -> String {
    let text = text.trim();
    text.strip_suffix('}').unwrap_or(text).trim_end().to_owned()
}
