//! `source = "text_to_text"`: texts with an answer each.

use std::path::PathBuf;

use super::public::AboutSource;
use super::text::{Tokenizer, about_texts, check_buckets, paths, paths_mut};
use crate::config::declare::bounds::MAX_SIZE;
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;

options! {
    /// Texts of a table, each with an answer that the model writes: translations, summaries, texts in another form. A sample has `inputs`, the tokens of the
    /// text `[L]`; `answers`, a token that begins every answer and the tokens of the answer `[T]`; and as targets the answer and the token that ends it `[T]`.
    /// The padding after them does not count.
    pub struct TextToText {
        /// The table: CSV and its relatives or JSON Lines, also packed, or Parquet; several files by a pattern.
        #[option(example = r#""pairs.csv""#, resume = Differs)]
        pub path: PathBuf,
        /// A table with the same columns to validate on, instead of `validation_split`.
        #[option(resume = Differs)]
        pub val_path: Option<PathBuf>,
        /// The column of the text.
        #[option(default = "text".to_owned(), example = r#""english""#)]
        pub text: String,
        /// The column of the answer.
        #[option(default = "answer".to_owned(), example = r#""german""#)]
        pub target: String,
        /// As of `text`, for texts and answers alike. A `tokenizer.json` adds the tokens that stand before and after a text to the text alone.
        #[option(default = Tokenizer::Characters)]
        pub tokenizer: Tokenizer,
        /// As of `text`.
        #[option(otherwise = "`10000` words, `4096` byte pairs", range = 2..=MAX_SIZE, unit = "tokens")]
        pub vocab_size: Option<usize>,
        /// The token of a `tokenizer.json` that begins answers.
        #[option(otherwise = "`<s>`, `[CLS]` or their like, else the token that ends answers; a token of its own for the other tokenizers", example = r#""<pad>""#)]
        pub start_token: Option<String>,
        /// The token of a `tokenizer.json` that ends answers.
        #[option(otherwise = "`</s>`, `[SEP]`, `<|endoftext|>` or their like; a token of its own for the other tokenizers", example = r#""</s>""#)]
        pub end_token: Option<String>,
        /// Longer texts are cut to this.
        #[option(default = 256, range = 1..=MAX_SIZE, unit = "tokens")]
        pub max_length: usize,
        /// Answers, with the token that ends them, are cut to this.
        #[option(otherwise = "`max_length`", range = 1..=MAX_SIZE, unit = "tokens")]
        pub max_target_length: Option<usize>,
        /// Lengths of texts in batches, ascending and up to `max_length`: a sample is filled up to the first into which its text fits, and its answer into that of
        /// `target_buckets`. There is a program for each, so a few are enough.
        #[option(otherwise = "a quarter and a half of `max_length`, and all of it", length = 1..=16, range = 1..=MAX_SIZE, unit = "tokens", example = "[64, 128, 256]")]
        pub buckets: Option<Vec<usize>>,
        /// The lengths of answers in these batches, as many and up to `max_target_length`.
        #[option(otherwise = "as large a part of `max_target_length` as `buckets` are of `max_length`", length = 1..=16, range = 1..=MAX_SIZE, unit = "tokens", example = "[16, 32, 64]")]
        pub target_buckets: Option<Vec<usize>>,
    }
}

impl Check for TextToText {
    fn check(&self, part: &Part) {
        self.tokenizer.check(part, self.vocab_size);
        check_buckets(part, self.buckets.as_deref(), self.max_length);
        part.require("target", self.target != self.text, "is the text");
        let file = matches!(self.tokenizer, Tokenizer::File(_));
        for (key, token) in [("start_token", &self.start_token), ("end_token", &self.end_token)] {
            let fits = file || token.is_none();
            part.require(key, fits, "names a token of a `tokenizer.json`: for the others one is added");
        }
        let known = self.buckets.is_some() || self.target_buckets.is_none();
        part.require("target_buckets", known, "goes with `buckets`: write both");
        if let (Some(targets), Some(buckets)) = (&self.target_buckets, &self.buckets) {
            part.require("target_buckets", targets.len() == buckets.len(), "must be as many as `buckets`");
            part.require("target_buckets", targets.is_sorted(), "must be ascending");
            let last = targets.last() == Some(&self.longest_answer());
            part.require("target_buckets", !targets.is_sorted() || last, "must end with `max_target_length`");
        }
    }
}

impl TextToText {
    /// Most tokens of an answer, with the one that ends it.
    fn longest_answer(&self) -> usize {
        self.max_target_length.unwrap_or(self.max_length)
    }

    /// The lengths of texts and of answers in batches, ascending in both.
    pub fn lengths(&self) -> Vec<[usize; 2]> {
        let longest = self.longest_answer();
        let Some(buckets) = &self.buckets else {
            let part = |length: usize, by: usize| length.div_ceil(by);
            let mut all: Vec<_> = [4, 2, 1].map(|by| [part(self.max_length, by), part(longest, by)]).into();
            all.dedup();
            return all;
        };
        let part = |bucket: &usize| (bucket * longest).div_ceil(self.max_length);
        let targets = self.target_buckets.clone().unwrap_or_else(|| buckets.iter().map(part).collect());
        buckets.iter().zip(targets).map(|(text, answer)| [*text, answer]).collect()
    }
}

about_texts!(TextToText);
