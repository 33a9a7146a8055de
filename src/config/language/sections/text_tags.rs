//! `source = "text_tags"`: sentences whose words have a tag each.

use std::path::PathBuf;

use super::public::AboutSource;
use super::text::{Tokenizer, about_texts, lengths_of, paths, paths_mut};
use crate::config::declare::bounds::MAX_SIZE;
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;

options! {
    /// Sentences whose words have a tag each, as for named entities and parts of speech. A file has a word and its tag a line and an empty line between sentences
    /// (CoNLL), or a JSON object with two lists for each sentence (names that end in `.jsonl`). Words are cut into tokens; the first token of a word bears its
    /// tag, and the others do not count. Targets `[L]`.
    pub struct TextTags {
        /// The file, also packed.
        #[option(example = r#""train.conll""#, resume = Differs)]
        pub path: PathBuf,
        /// The same to validate on, instead of `validation_split`.
        #[option(resume = Differs)]
        pub val_path: Option<PathBuf>,
        /// The column of the word, from 1. Columns are parted by tabs or, in a file without tabs, by spaces.
        #[option(default = 1, range = 1..=MAX_SIZE)]
        pub word_column: usize,
        /// The column of the tag.
        #[option(otherwise = "the last", range = 1..=MAX_SIZE)]
        pub tag_column: Option<usize>,
        /// The key of the words in a JSON object.
        #[option(default = "tokens".to_owned())]
        pub words: String,
        /// The key of their tags: names, or numbers, which `classes` gives names to.
        #[option(default = "tags".to_owned(), example = r#""ner_tags""#)]
        pub tags: String,
        /// The tags, in this order: that of the outputs of a model which knows them already.
        #[option(otherwise = "those of the words, by name", length = 1..=MAX_SIZE, example = r#"["O", "B-PER", "I-PER"]"#)]
        pub classes: Option<Vec<String>>,
        /// As of `text`. A `tokenizer.json` cuts each word by itself, and adds the tokens that stand before and after a text, as `[CLS]` and `[SEP]`.
        #[option(default = Tokenizer::Words)]
        pub tokenizer: Tokenizer,
        /// As of `text`.
        #[option(otherwise = "`10000` words, `4096` byte pairs", range = 2..=MAX_SIZE, unit = "tokens")]
        pub vocab_size: Option<usize>,
        /// Longer sentences are cut to this: words after it have no tag.
        #[option(default = 256, range = 1..=MAX_SIZE, unit = "tokens")]
        pub max_length: usize,
        /// As of `text_classes`.
        #[option(otherwise = "a quarter and a half of `max_length`, and all of it", length = 1..=16, range = 1..=MAX_SIZE, unit = "tokens", example = "[64, 128, 256]")]
        pub buckets: Option<Vec<usize>>,
    }
}

impl Check for TextTags {
    fn check(&self, part: &Part) {
        self.tokenizer.check(part, self.vocab_size);
        super::text::check_buckets(part, self.buckets.as_deref(), self.max_length);
        super::text::check_classes(part, self.classes.as_deref());
        part.require("tags", self.tags != self.words, "is the key of the words");
        part.require("tag_column", self.tag_column != Some(self.word_column), "is the column of the words");
    }
}

impl TextTags {
    /// The lengths of batches, ascending.
    pub fn lengths(&self) -> Vec<usize> {
        lengths_of(self.buckets.as_deref(), self.max_length)
    }
}

about_texts!(TextTags);
