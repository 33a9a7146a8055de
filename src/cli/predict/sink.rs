//! Where results go.

use super::form::Form;
use super::keep::Keep;
use super::rows::Rows;
use crate::api::answer::{Answer, Meaning, Of};
use crate::api::cells::csv;
use crate::cli::failure::as_json;
use crate::data::table::{ColumnValue, ColumnWriter};
use crate::terminal::{self, masked, say};
use anyhow::{Context, Result};
use serde_json::Value;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::Path;

/// Takes results.
pub struct Sink<'a> {
    form: Form,
    meaning: &'a Meaning<'a>,
    /// Whether a table has a column for the number of a sample in its file.
    with_sample: bool,
    file: Option<BufWriter<&'a mut dyn Write>>,
    /// What is to be written.
    text: String,
    list: Vec<Value>,
    /// Why there are no answers, for JSON.
    errors: Vec<String>,
    columns: Option<ColumnWriter>,
    begun: bool,
    keep: Option<Keep<'a>>,
}

impl<'a> Sink<'a> {
    /// Results in that form go to `file`, else to standard output.
    pub fn new(form: Form, meaning: &'a Meaning<'a>, with_sample: bool, file: Option<&'a mut dyn Write>) -> Self {
        let file = file.map(BufWriter::new);
        Sink {
            form,
            meaning,
            with_sample,
            file,
            text: String::new(),
            list: Vec::new(),
            errors: Vec::new(),
            columns: None,
            begun: false,
            keep: None,
        }
    }

    /// The same with the columns of the tables that are answered, as `rows` says how these are read.
    pub fn keeping(self, rows: Option<&'a Rows>) -> Self {
        let keep = rows.map(|rows| Keep::new(rows, self.form));
        Sink { keep, ..self }
    }

    /// Goes on with the answers to the rows of a file.
    ///
    /// # Errors
    /// Its columns are to be kept, and it cannot be read, or has other ones than the file before it.
    pub fn file(&mut self, file: &Path) -> Result<()> {
        self.keep.as_mut().map_or(Ok(()), |keep| keep.file(file, self.columns.as_mut()))
    }

    /// Takes what the model says of a row whose own columns are kept.
    fn add_kept(&mut self, number: usize, answer: &Answer) -> Result<()> {
        let first = !std::mem::replace(&mut self.begun, true);
        let Some(keep) = &mut self.keep else { return Ok(()) };
        match self.form {
            Form::JsonLines => {
                self.text.push_str(&terminal::visible_json(&keep.object((number, first), self.meaning, answer)?));
                self.text.push('\n');
            }
            Form::Parquet => keep.column_row(number, (self.meaning, answer), &mut self.columns)?,
            _ => {
                if first {
                    self.text.push_str(&csv(&keep.names(self.meaning, answer)?));
                }
                let cells = keep.cells(number, self.meaning, answer)?;
                self.text.push_str(&csv(&cells.iter().map(ColumnValue::text).collect::<Vec<_>>()));
            }
        }
        Ok(())
    }

    /// Takes what the model says of a sample.
    ///
    /// # Errors
    /// It cannot be a row of a Parquet file.
    pub fn add(&mut self, of: Of, answer: &Answer) -> Result<()> {
        if let (Some(number), true) = (of.sample, self.keep.is_some()) {
            return self.add_kept(number, answer);
        }
        let first = !std::mem::replace(&mut self.begun, true);
        match self.form {
            Form::Paragraphs => self.text.push_str(&self.meaning.paragraph(of, answer)),
            Form::Lines => self.text.push_str(&self.meaning.line(of, answer)),
            Form::Json => self.list.push(self.meaning.json(of, answer)),
            Form::JsonLines => {
                self.text.push_str(&terminal::json_line(&self.meaning.json(of, answer)));
                self.text.push('\n');
            }
            Form::Csv => {
                if first {
                    self.text.push_str(&self.meaning.header(answer, self.with_sample));
                }
                self.text.push_str(&self.meaning.row(of, answer, self.with_sample));
            }
            Form::Parquet => {
                let row = self.meaning.cells(of, answer, self.with_sample);
                let columns = match &mut self.columns {
                    Some(columns) => columns,
                    none => none.insert(ColumnWriter::new(&self.meaning.columns(answer, self.with_sample), &row)?),
                };
                columns.add(row)?;
            }
        }
        Ok(())
    }

    /// Reports why there is no answer.
    pub fn failed(&mut self, why: &str) {
        say(&format!("error: {why}"));
        if self.form == Form::Json {
            self.errors.push(masked(why));
        }
    }

    /// Writes what has been taken so far; false if no reader is left.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn flush(&mut self) -> Result<bool> {
        if let (Some(columns), Some(file)) = (&mut self.columns, &mut self.file) {
            return listens(file.write_all(&columns.take())).context("cannot write the results");
        }
        let text = std::mem::take(&mut self.text);
        if text.is_empty() {
            return Ok(true);
        }
        match &mut self.file {
            Some(file) => listens(file.write_all(text.as_bytes())).context("cannot write the results"),
            None if self.form == Form::Csv => printed(terminal::print_table(&text)),
            None => printed(terminal::print(&text)),
        }
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(mut self) -> Result<()> {
        self.flush()?;
        if let (Some(columns), Some(file)) = (self.columns.take(), &mut self.file) {
            listens(file.write_all(&columns.finish()?)).context("cannot write the results")?;
        }
        if let Some(mut file) = self.file {
            listens(file.flush()).context("cannot write the results")?;
        } else if self.form == Form::Json {
            // Where nothing was done, the errors are all that there is to say.
            let nothing = self.list.is_empty() && !self.errors.is_empty();
            let json = if nothing { as_json(&self.errors) } else { Value::Array(self.list) };
            printed(terminal::print_json(&json))?;
        }
        Ok(())
    }
}

fn printed(result: std::io::Result<()>) -> Result<bool> {
    listens(result).context("cannot write to standard output")
}

/// A closed pipe is no failure: who was reading has read enough.
fn listens(result: std::io::Result<()>) -> std::io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(e),
    }
}
