//! In which form results are written.

use super::super::args::{PredictArgs, PredictFormat};
use super::rows::Rows;
use crate::api::failure::Failure;
use crate::data::table::RowsAs;
use crate::files::output::Output;
use anyhow::Result;
use std::path::{Path, PathBuf};

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
    /// The table as a Parquet file.
    Parquet,
}

impl Form {
    /// The form that the command line asks for, or that of the `files`, if they are tables, which are read as `rows` says.
    ///
    /// # Errors
    /// A file's ending names no form, and nothing else does; the form has no place for the columns that are to be kept.
    pub fn of(args: &PredictArgs, files: &[PathBuf], rows: Option<&Rows>) -> Result<Form, Failure> {
        let form = Form::asked(args, files, rows)?;
        if args.keep_columns && matches!(form, Form::Paragraphs | Form::Lines | Form::Json) {
            return Err(Failure::Usage(
                "`--keep-columns` needs a form that has columns\nhelp: write --format csv, jsonl or parquet, or leave it out".into(),
            ));
        }
        Ok(form)
    }

    /// That of all of some tables, if it is one.
    fn of_files(files: &[PathBuf], rows: Option<&Rows>) -> Result<Option<Form>, Failure> {
        let mut form = None;
        for (file, rows) in files.iter().zip(std::iter::repeat(rows)) {
            let own = rows.map_or(Ok(None), |rows| rows.form(file))?.map(|rows| match rows {
                RowsAs::Cells => Form::Csv,
                RowsAs::Objects => Form::JsonLines,
                RowsAs::Columns => Form::Parquet,
            });
            if own.is_none() || form.is_some_and(|known| Some(known) != own) {
                return Ok(None);
            }
            form = own;
        }
        Ok(form)
    }

    fn asked(args: &PredictArgs, files: &[PathBuf], rows: Option<&Rows>) -> Result<Form, Failure> {
        let text = if files.len() == 1 { Form::Paragraphs } else { Form::Lines };
        if args.output.json {
            return Ok(Form::Json);
        }
        let no_terminal = || {
            Failure::Usage(
                "a Parquet file is no text for a terminal\nhelp: name the file with --out, or take another --format"
                    .into(),
            )
        };
        let ending = |out: &Path| out.extension().map(|e| e.to_ascii_lowercase());
        Ok(match (args.format, &args.out) {
            (None, None) if args.keep_columns => match Form::of_files(files, rows)? {
                Some(Form::Parquet) => return Err(no_terminal()),
                form => form.unwrap_or(text),
            },
            (Some(PredictFormat::Text), _) | (None, None) => text,
            (Some(PredictFormat::Csv), _) => Form::Csv,
            (Some(PredictFormat::Jsonl), _) => Form::JsonLines,
            (Some(PredictFormat::Parquet), Some(_)) => Form::Parquet,
            (Some(PredictFormat::Parquet), None) => return Err(no_terminal()),
            (None, Some(out)) => match ending(out).as_deref().and_then(|e| e.to_str()) {
                Some("csv") => Form::Csv,
                Some("jsonl" | "ndjson") => Form::JsonLines,
                Some("parquet" | "pq") => Form::Parquet,
                Some("txt") => text,
                _ => {
                    let form = if out.extension().is_none() { Form::of_files(files, rows)? } else { None };
                    // As without a name.
                    let form = form.or(Output::at(out).is_ok_and(|out| out.is_stream()).then_some(text));
                    form.ok_or_else(|| {
                        Failure::Usage(format!(
                            "the ending of `{}` names no format\nhelp: name one with --format text, csv, jsonl or parquet, or end the name with .csv, .jsonl or .parquet",
                            out.display()
                        ))
                    })?
                }
            },
        })
    }
}
