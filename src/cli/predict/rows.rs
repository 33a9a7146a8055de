//! Files with several samples each: rows of tables, and texts.

use crate::config::Experiment;
use crate::data::table::{TableCodec, Unseen, read_rows};
use crate::data::text::{Placed, TextCodec, read_passages, read_sentences};
use crate::data::{DataSpec, Split};
use crate::train::setup::input::table_codec;
use anyhow::Result;
use std::path::Path;

/// How the rows of a file become samples.
pub enum Rows {
    /// Columns become numbers.
    Table(TableCodec),
    /// Texts become tokens.
    Texts(TextCodec),
}

impl Rows {
    /// As the model was trained; `None`: it takes no rows.
    ///
    /// # Errors
    /// The checkpoint's tokenizer cannot be read.
    pub fn of(data: &DataSpec, experiment: &Experiment) -> Result<Option<Rows>> {
        match TextCodec::of(data)? {
            Some(codec) => Ok(Some(Rows::Texts(codec))),
            None => Ok(table_codec(data, experiment).map(Rows::Table)),
        }
    }

    /// The column that names a row.
    pub fn id(&self) -> Option<String> {
        match self {
            Rows::Table(table) => table.id.clone(),
            Rows::Texts(_) => None,
        }
    }

    /// The samples of a file and, of sentences whose words get tags, where the words are. `unseen` takes the categories that training has not seen.
    ///
    /// # Errors
    /// It cannot be read, or does not fit.
    pub fn read(&self, file: &Path, unseen: &mut Unseen) -> Result<(Split, Option<Vec<Placed>>)> {
        match self {
            Rows::Table(table) => Ok((read_rows(file, table, unseen)?, None)),
            Rows::Texts(codec) if codec.has_tags() => {
                let (split, sentences) = read_sentences(file, codec)?;
                Ok((split, Some(sentences)))
            }
            Rows::Texts(codec) => Ok((read_passages(file, codec)?, None)),
        }
    }
}
