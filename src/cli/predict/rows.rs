//! Files with several samples each: rows of tables, and texts.

use super::names::is_standard_input;
use crate::config::Experiment;
use crate::config::language::sections::OnError;
use crate::data::table::{RowsAs, Sheet, TableCodec, Unseen, input_sheet, open_sheet, read_input, read_rows};
use crate::data::text::{Placed, Samples, TextCodec, as_samples, read_given, read_sentences};
use crate::data::{DataSpec, Split};
use crate::terminal::{counted, say};
use crate::train::setup::input::table_codec;
use anyhow::{Context, Result, ensure};
use std::io::Read;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Most bytes of rows on standard input.
const MOST_OF_INPUT: u64 = 1 << 30;

/// How the rows of a file become samples.
pub enum Rows {
    /// Columns become numbers; rows that cannot be read are left out, or are errors.
    Table(Box<TableCodec>, bool),
    /// Texts become tokens.
    Texts(Box<TextCodec>),
}

impl Rows {
    /// As the model was trained; `None`: it takes no rows.
    ///
    /// # Errors
    /// The checkpoint's tokenizer cannot be read.
    pub fn of(data: &DataSpec, experiment: &Experiment) -> Result<Option<Rows>> {
        match TextCodec::of(data)? {
            Some(codec) => Ok(Some(Rows::Texts(Box::new(codec)))),
            None => {
                let skips = experiment.data.source.table().is_some_and(|csv| csv.on_error == OnError::Skip);
                Ok(table_codec(data, experiment).map(|codec| Rows::Table(Box::new(codec), skips)))
            }
        }
    }

    /// Whether the texts are those of a language model, which has nothing to say of one.
    pub fn are_gone_on_with(&self) -> bool {
        matches!(self, Rows::Texts(codec) if matches!(codec.samples, Samples::Windows { .. }))
    }

    /// How texts become samples, if the model answers them.
    pub fn answers(&self) -> Option<&TextCodec> {
        match self {
            Rows::Texts(codec) => Some(&**codec).filter(|codec| codec.answers_texts()),
            Rows::Table(..) => None,
        }
    }

    /// The column that names a row.
    pub fn id(&self) -> Option<String> {
        match self {
            Rows::Table(table, _) => table.row_id().map(str::to_owned),
            Rows::Texts(_) => None,
        }
    }

    /// The table in a file, if the model takes tables, as it is read again to be written beside the answers.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn sheet(&self, file: &Path) -> Result<Option<Sheet>> {
        let Rows::Table(table, skips) = self else { return Ok(None) };
        let sheet = match is_standard_input(file) {
            true => input_sheet(standard_input()?, table.format())?,
            false => open_sheet(file, table.format())?,
        };
        Ok(Some(sheet.skipping(*skips)))
    }

    /// The form in which a file has its rows, if the model takes tables.
    ///
    /// # Errors
    /// Standard input cannot be read.
    pub fn form(&self, file: &Path) -> Result<Option<RowsAs>> {
        match self {
            Rows::Texts(_) => Ok(None),
            Rows::Table(..) if is_standard_input(file) => Ok(Some(RowsAs::of_bytes(&standard_input()?))),
            Rows::Table(..) => Ok(Some(RowsAs::of(file))),
        }
    }

    /// The samples of a file and, of sentences whose words get tags, where the words are. `unseen` takes the categories that training has not seen.
    ///
    /// # Errors
    /// It cannot be read, or does not fit.
    pub fn read(&self, file: &Path, unseen: &mut Unseen) -> Result<(Split, Option<Vec<Placed>>)> {
        match self {
            Rows::Table(table, skips) if is_standard_input(file) => {
                Ok((read_input(standard_input()?, table, *skips, unseen)?, None))
            }
            Rows::Table(table, skips) => Ok((read_rows(file, table, *skips, unseen)?, None)),
            Rows::Texts(codec) if codec.has_tags() => {
                let (split, sentences) = read_sentences(file, codec)?;
                Ok((split, Some(sentences)))
            }
            Rows::Texts(codec) => {
                let texts = read_given(file, codec)?;
                let empty = texts.iter().filter(|text| text.texts().all(|text| text.trim().is_empty())).count();
                if empty > 0 {
                    let (file, are) = (file.display(), if empty == 1 { "is" } else { "are" });
                    say(&format!(
                        "note: `{file}`: {empty} of {} {are} empty, and answered as any other",
                        counted(texts.len(), "text")
                    ));
                }
                Ok((as_samples(file, &texts, codec)?, None))
            }
        }
    }
}

/// All of standard input, which is read once.
fn standard_input() -> Result<Vec<u8>> {
    static READ: Mutex<Option<Vec<u8>>> = Mutex::new(None);
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(bytes) = &*read {
        return Ok(bytes.clone());
    }
    let mut bytes = Vec::new();
    std::io::stdin().take(MOST_OF_INPUT + 1).read_to_end(&mut bytes).context("cannot read rows from standard input")?;
    ensure!(
        bytes.len() as u64 <= MOST_OF_INPUT,
        "standard input has more than {MOST_OF_INPUT} bytes: write it to a file"
    );
    Ok(read.insert(bytes).clone())
}
