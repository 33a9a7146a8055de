//! The columns of a table beside what a model says of its rows.

use super::form::Form;
use super::rows::Rows;
use crate::api::answer::{Answer, Meaning};
use crate::api::cells::guarded_cell;
use crate::data::table::{ColumnValue, ColumnWriter, Copied, Kept, KeptRow, RowForm};
use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use std::path::{Path, PathBuf};

/// The columns of the tables that are answered, one file after the other.
pub struct Keep<'a> {
    rows: &'a Rows,
    form: Form,
    now: Option<Now>,
}

/// The file that is answered.
struct Now {
    path: PathBuf,
    names: Vec<String>,
    source: Source,
}

enum Source {
    /// Its rows, as cells or objects.
    Rows(Kept),
    /// A Parquet file of which another one is made; `None` once that has it.
    Copied(Option<Box<Copied>>),
}

impl<'a> Keep<'a> {
    /// Those of tables that are read as `rows` says. Results are written in a form that has columns.
    pub fn new(rows: &'a Rows, form: Form) -> Self {
        Keep { rows, form, now: None }
    }

    /// Goes on with the rows of a file, whose answers come next. `columns`: the Parquet file that is written, once it is begun.
    ///
    /// # Errors
    /// It cannot be read, or has other columns than the file before it.
    pub fn file(&mut self, path: &Path, columns: Option<&mut ColumnWriter>) -> Result<()> {
        let sheet = self.rows.sheet(path)?.context("the model takes no table")?;
        let (names, typed) = (sheet.names().to_vec(), sheet.kinds().is_some());
        let source = match self.form {
            Form::Parquet if typed => Source::Copied(Some(Box::new(Copied::open(path)?))),
            Form::Parquet => Source::Rows(Kept::new(sheet, RowForm::Typed)?),
            Form::JsonLines => Source::Rows(Kept::new(sheet, RowForm::Object)?),
            _ => Source::Rows(Kept::new(sheet, RowForm::Texts)?),
        };
        let mut now = Now { path: path.to_owned(), names, source };
        if let Some(before) = self.now.take().filter(|_| self.form != Form::JsonLines) {
            let alike = matches!(
                (&before.source, &now.source),
                (Source::Rows(_), Source::Rows(_)) | (Source::Copied(_), Source::Copied(_))
            );
            ensure!(
                alike && before.names == now.names,
                "`{}` has other columns than `{}`, and the rows of both cannot stand in one table: write a file for each",
                path.display(),
                before.path.display()
            );
            if let (Some(columns), Source::Copied(next)) = (columns, &mut now.source) {
                next.take().map_or(Ok(()), |next| columns.go_on(*next))?;
            }
        }
        self.now = Some(now);
        Ok(())
    }

    fn now(&mut self) -> Result<&mut Now> {
        self.now.as_mut().context("no file is answered")
    }

    /// The names of all columns of a table: those of the file, and those of the answer.
    ///
    /// # Errors
    /// Both have one of the same name.
    pub fn names(&mut self, meaning: &Meaning, answer: &Answer) -> Result<Vec<String>> {
        let said = meaning.columns_of(answer);
        let now = self.now()?;
        now.expect_none_of(&said)?;
        Ok(now.names.iter().cloned().chain(said).collect())
    }

    /// The cells of a row of a table: those of the row `number` of the file, and those of the answer for it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn cells(&mut self, number: usize, meaning: &Meaning, answer: &Answer) -> Result<Vec<ColumnValue>> {
        let Source::Rows(rows) = &mut self.now()?.source else { bail!("a Parquet file has no cells") };
        let KeptRow::Cells(mut cells) = rows.row(number)? else { bail!("an object has no cells") };
        if meaning.guard_formulas {
            cells = cells.into_iter().map(guarded_cell).collect();
        }
        cells.extend(meaning.said(answer));
        Ok(cells)
    }

    /// The text of the object of row `number`, with the answer for it.
    ///
    /// # Errors
    /// The file cannot be read; both have a key of the same name.
    pub fn object(&mut self, (number, first): (usize, bool), meaning: &Meaning, answer: &Answer) -> Result<String> {
        let mut answer_json = json!({});
        meaning.write_json(answer, &mut answer_json);
        let now = self.now()?;
        if let Some(answer_json) = answer_json.as_object().filter(|_| first) {
            now.expect_none_of(&answer_json.keys().cloned().collect::<Vec<_>>())?;
        }
        let Source::Rows(rows) = &mut now.source else { bail!("a Parquet file has no objects") };
        let KeptRow::Object(own) = rows.row(number)? else { bail!("cells are no object") };
        let answer_json = answer_json.to_string();
        let comma = if own == "{" { "" } else { "," };
        Ok(format!("{own}{comma}{}", answer_json.strip_prefix('{').unwrap_or(&answer_json)))
    }

    /// Adds row `number` of the file to a Parquet file, with the answer for it.
    ///
    /// # Errors
    /// The file cannot be read; both have a column of the same name.
    pub fn column_row(
        &mut self,
        number: usize,
        (meaning, answer): (&Meaning, &Answer),
        columns: &mut Option<ColumnWriter>,
    ) -> Result<()> {
        if let Source::Copied(copied) = &mut self.now()?.source {
            let said = meaning.said(answer);
            if columns.is_none() {
                let copied = copied.take().map(|copied| *copied);
                let names = self.names(meaning, answer)?;
                let own = &names[names.len() - said.len()..];
                *columns = Some(ColumnWriter::behind(copied, own, &said)?);
            }
            return columns.as_mut().context("no file is begun")?.add_behind(number, said);
        }
        let names = if columns.is_none() { self.names(meaning, answer)? } else { Vec::new() };
        let cells = self.cells(number, meaning, answer)?;
        let columns = match columns {
            Some(columns) => columns,
            none => none.insert(ColumnWriter::new(&names, &cells)?),
        };
        columns.add(cells)
    }
}

impl Now {
    /// Refuses columns of the file that are called as some of the answer are.
    fn expect_none_of(&self, said: &[String]) -> Result<()> {
        match self.names.iter().find(|name| said.contains(name)) {
            None => Ok(()),
            Some(name) => bail!(
                "`{}` has a column `{name}`, and the prediction has a column `{name}`, too: rename that of the file, or predict without `--keep-columns`",
                self.path.display()
            ),
        }
    }
}
