//! Where results go, and in which form.

use super::super::args::{PredictArgs, PredictFormat};
use crate::api::answer::{Answer, Meaning, Of};
use crate::api::failure::Failure;
use crate::terminal;
use anyhow::{Context, Result};
use serde_json::Value;
use std::io::{BufWriter, ErrorKind, Write};

/// The form of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A paragraph for each sample.
    Paragraphs,
    /// A line for each sample.
    Lines,
    /// A table.
    Csv,
    /// A JSON object a line.
    JsonLines,
    /// One list of JSON objects.
    Json,
}

impl Form {
    /// The form that the command line asks for, with so many `files`.
    ///
    /// # Errors
    /// A file's ending tells no form, and nothing else does.
    pub fn of(args: &PredictArgs, files: usize) -> Result<Form, Failure> {
        let text = if files == 1 { Form::Paragraphs } else { Form::Lines };
        if args.output.json {
            return Ok(Form::Json);
        }
        let ending = |out: &std::path::Path| out.extension().map(|e| e.to_ascii_lowercase());
        Ok(match (args.format, &args.out) {
            (Some(PredictFormat::Text), _) | (None, None) => text,
            (Some(PredictFormat::Csv), _) => Form::Csv,
            (Some(PredictFormat::Jsonl), _) => Form::JsonLines,
            (None, Some(out)) => match ending(out).as_deref().and_then(|e| e.to_str()) {
                Some("csv") => Form::Csv,
                Some("jsonl" | "ndjson") => Form::JsonLines,
                Some("txt") => text,
                _ => {
                    return Err(Failure::Usage(format!(
                        "the ending of `{}` tells no format\nhelp: name one with --format text, csv or jsonl, or end the name with .csv or .jsonl",
                        out.display()
                    )));
                }
            },
        })
    }
}

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
    begun: bool,
}

impl<'a> Sink<'a> {
    /// Results in that form go to `file`, else to standard output.
    pub fn new(form: Form, meaning: &'a Meaning<'a>, with_sample: bool, file: Option<&'a mut dyn Write>) -> Self {
        let file = file.map(BufWriter::new);
        Sink { form, meaning, with_sample, file, text: String::new(), list: Vec::new(), begun: false }
    }

    /// Takes what the model says of a sample.
    pub fn add(&mut self, of: Of, answer: &Answer) {
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
        }
    }

    /// Writes what has been taken so far; false if nobody reads it any more.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn flush(&mut self) -> Result<bool> {
        let text = std::mem::take(&mut self.text);
        if text.is_empty() {
            return Ok(true);
        }
        match &mut self.file {
            Some(file) => listens(file.write_all(text.as_bytes())).context("cannot write the results"),
            None if self.form == Form::Csv => told(terminal::print_table(&text)),
            None => told(terminal::print(&text)),
        }
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(mut self) -> Result<()> {
        self.flush()?;
        if let Some(mut file) = self.file {
            listens(file.flush()).context("cannot write the results")?;
        } else if self.form == Form::Json {
            told(terminal::print_json(&Value::Array(self.list)))?;
        }
        Ok(())
    }
}

fn told(result: std::io::Result<()>) -> Result<bool> {
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
