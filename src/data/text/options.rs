//! Which text is read, and how it becomes tokens.

use super::super::HoldOut;
use super::super::tokenizer::Choice;
use super::TextCodec;
use std::path::PathBuf;

/// A text, or tokens that were made of one.
#[derive(Debug, Clone, PartialEq)]
pub struct TextOptions {
    /// A file, several by a pattern, or a folder of them.
    pub path: PathBuf,
    /// The same to validate on.
    pub val_path: Option<PathBuf>,
    /// What the files hold.
    pub content: Content,
    /// The column of tables that has the texts, if one is named.
    pub column: Option<String>,
    /// The file that says how conversations become text.
    pub chat: Option<PathBuf>,
    /// Tokens of a sample.
    pub context: usize,
    /// Samples of a batch of training and of evaluation, where a batch goes on where the one before it ended.
    pub streams: Option<[usize; 2]>,
    /// The token that ends documents, if one is named.
    pub end: Option<End>,
    /// How documents are kept apart, if samples do not go on from one to the next.
    pub apart: Option<ApartOptions>,
    /// What is held out at the end to validate on: a part of the tokens, or a number of them.
    pub hold_out: Option<HoldOut>,
    /// How many bytes the tokens are that are validated on is counted.
    pub counts_bytes: bool,
    /// What was found in training, if the model is trained already.
    pub fitted: Option<Box<TextCodec>>,
}

/// How documents are kept apart.
#[derive(Debug, Clone, PartialEq)]
pub struct ApartOptions {
    /// The lengths of batches, ascending.
    pub lengths: Vec<usize>,
    /// The target of what fills a batch.
    pub ignore_index: i32,
}

/// A token that ends documents.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    /// By its name.
    Name(String),
    /// By its number.
    Number(u32),
}

/// What the files hold.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Text in UTF-8.
    Text(Choice),
    /// Tokens.
    Tokens {
        /// How many there may be, unless the tokenizer says so.
        vocabulary: Option<usize>,
        /// The tokenizer that they were made with.
        tokenizer: Option<Choice>,
    },
}
