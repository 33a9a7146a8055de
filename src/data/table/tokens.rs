//! A column of texts as tokens: a sequence beside the numbers of a row, with a length of its own.

use super::super::field::{Field, FieldKind, INPUTS, LENGTHS, Lengths, SAMPLE_WEIGHT, TARGETS};
use super::super::parallel::parallel;
use super::super::tokenizer::{Choice, Passage, Tokenizer, UNKNOWN_TOKEN, tokens_of};
use super::super::values::{Values, bytes_of};
use super::aside::Aside;
use super::codec::Cells;
use super::raw::Raw;
use crate::data::Classes;
use crate::graph::DType;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

/// Rows whose tokens are written to a file at a time.
const ROWS: usize = 4096;
/// Texts of which a thread makes tokens at a time.
const TEXTS: usize = 256;

/// How a column of texts becomes tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokensOptions {
    /// What makes them.
    pub tokenizer: Choice,
    /// The lengths of batches, ascending. Longer texts are cut to the last.
    pub lengths: Vec<usize>,
}

/// A column that becomes tokens, as it was fitted in training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokensCodec {
    /// The column.
    pub column: String,
    /// What makes the tokens.
    pub tokenizer: Tokenizer,
    /// The lengths of batches, ascending.
    pub lengths: Vec<usize>,
}

/// The tokens of a column, row by row.
pub struct Encoded {
    /// Those of each text that there is, and of a missing one; and whether there were more.
    texts: Vec<(Vec<u32>, bool)>,
    /// Which of them each row has.
    rows: Vec<u32>,
}

impl TokensCodec {
    /// Fits the tokenizer of a column on the texts of the rows of training.
    ///
    /// # Errors
    /// A tokenizer cannot be read, or none can be trained; samples have another field of the column's name.
    pub fn fit(column: &str, options: &TokensOptions, cells: &Cells, train: &[u32]) -> Result<TokensCodec> {
        let taken = [INPUTS, LENGTHS, SAMPLE_WEIGHT];
        ensure!(
            !taken.contains(&column) && !column.starts_with(TARGETS),
            "the column `{column}` becomes tokens, which the model takes by its name, and samples have something else of the name `{column}`: \
             give the column another name in the table"
        );
        let Cells::Texts(numbers, texts) = cells else { bail!("the column `{column}` was not read as a text") };
        let there = train.iter().filter_map(|row| Some(texts[numbers[*row as usize]? as usize].as_str()));
        let there: Vec<&str> = there.collect();
        ensure!(
            !there.is_empty(),
            "the column `{column}` has no text in any row of training, so there is nothing to make tokens of"
        );
        let tokenizer =
            Tokenizer::choose(&options.tokenizer, &there).with_context(|| format!("the column `{column}`"))?;
        Ok(TokensCodec { column: column.to_owned(), tokenizer, lengths: options.lengths.clone() })
    }

    /// Whether a training can have fitted it.
    pub fn is_sane(&self) -> bool {
        self.lengths.first().is_some_and(|length| *length > 0) && self.lengths.windows(2).all(|pair| pair[0] < pair[1])
    }

    /// Most tokens of a text.
    pub fn longest(&self) -> usize {
        self.lengths.last().copied().unwrap_or(1)
    }

    /// The lengths of batches.
    pub fn batches(&self) -> Vec<Lengths> {
        Lengths::firsts(&self.lengths)
    }

    /// The field of the tokens, which is called `name`.
    pub fn field(&self, name: &str) -> Field {
        let tokens = Field::numbers(name, DType::I32, [self.longest()]).of_any_length(0, 0);
        Field { kind: FieldKind::Tokens(Classes::at_least(self.tokenizer.vocabulary())), ..tokens }
    }

    /// The field that says how many they are.
    pub fn length_field() -> Field {
        Field { kind: FieldKind::Length, ..Field::numbers(LENGTHS, DType::I32, []) }
    }

    /// Bytes of memory that the texts of rows take at most while tokens are made of them.
    ///
    /// # Errors
    /// The cells are in a file that cannot be read.
    pub fn working_memory(&self, raw: &Raw) -> Result<usize> {
        let cells = raw.column(&self.column)?;
        let Cells::Texts(_, texts) = &*cells else { return Ok(0) };
        let bytes: usize = texts.iter().map(String::len).sum();
        Ok(bytes.saturating_mul(self.tokenizer.memory_of_a_byte()))
    }

    /// The tokens of all rows.
    ///
    /// # Errors
    /// A text has a character without a token, with its row; the cells are in a file that cannot be read.
    pub fn encoded(&self, raw: &Raw) -> Result<Encoded> {
        let cells = raw.column(&self.column)?;
        let Cells::Texts(numbers, texts) = &*cells else {
            bail!("the column `{}` was not read as a text", self.column)
        };
        // A missing cell is a text of no words.
        let missing = texts.len();
        let rows: Vec<u32> = numbers.iter().map(|number| number.unwrap_or(missing as u32)).collect();
        let mut first = vec![0; missing + 1];
        (0..rows.len()).rev().for_each(|row| first[rows[row] as usize] = row);
        let all: Vec<(&str, usize)> = texts.iter().map(String::as_str).chain([""]).zip(first).collect();
        let made = parallel(all.chunks(TEXTS).collect(), |some: &[(&str, usize)]| {
            let tokens = |(text, row): &(&str, usize)| {
                let called = format!("{}, in the text of `{}`", raw.called(*row), self.column);
                let whole = tokens_of(&self.tokenizer, self.longest(), &Passage::from((*text).to_owned()), &called);
                whole.map(|whole| (whole.tokens, whole.cut))
            };
            some.iter().map(tokens).collect::<Result<Vec<_>>>()
        });
        Ok(Encoded { texts: made.into_iter().collect::<Result<Vec<_>>>()?.concat(), rows })
    }
}

impl Encoded {
    fn tokens(&self, row: usize) -> &[u32] {
        &self.texts[self.rows[row] as usize].0
    }

    /// Those of some rows, filled up to `longest` each.
    fn filled(&self, rows: std::ops::Range<usize>, longest: usize) -> Vec<i32> {
        let mut all = Vec::with_capacity(rows.len() * longest);
        for row in rows {
            let tokens = self.tokens(row);
            all.extend(tokens.iter().map(|token| *token as i32));
            all.extend(std::iter::repeat_n(UNKNOWN_TOKEN as i32, longest - tokens.len()));
        }
        all
    }

    /// Those of all rows, filled up to `longest` each.
    pub fn values(&self, longest: usize) -> Values {
        Values::Ints(self.filled(0..self.rows.len(), longest))
    }

    /// The same written to a file: where they are, and how many bytes they have.
    ///
    /// # Errors
    /// There are too many; the file cannot be written.
    pub fn put(&self, longest: usize, file: &Aside) -> Result<(u64, u64, DType)> {
        let each = (size_of::<i32>() * longest) as u64;
        let bytes = each.checked_mul(self.rows.len() as u64).context("the table is too large")?;
        let begin = file.place(bytes);
        for first in (0..self.rows.len()).step_by(ROWS) {
            let block = self.filled(first..self.rows.len().min(first + ROWS), longest);
            file.put(bytes_of(&block), begin + first as u64 * each)?;
        }
        Ok((begin, bytes, DType::I32))
    }

    /// How many tokens each row has.
    pub fn lengths(&self) -> Values {
        Values::Ints((0..self.rows.len()).map(|row| self.tokens(row).len() as i32).collect())
    }

    /// How many rows have a text that was cut.
    pub fn cut(&self) -> usize {
        self.rows.iter().filter(|text| self.texts[**text as usize].1).count()
    }
}
