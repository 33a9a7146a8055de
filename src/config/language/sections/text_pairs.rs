//! `source = "text_pairs"`: texts with an answer each, for a model that goes on with a text.

use std::path::PathBuf;

use super::public::AboutSource;
use super::text::{Tokenizer, check_buckets, check_chat, lengths_of, paths, paths_mut};
use crate::config::declare::bounds::MAX_SIZE;
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;

/// Tokens of a sample, where nothing is said of it.
pub const LONGEST_PAIR: usize = 256;

/// Where the text stands in a template.
const PLACE: &str = "{text}";

options! {
    /// Texts of a table, each with an answer, for a language model that goes on with a text: instructions and responses, questions and replies. A sample is one
    /// row of tokens: a prompt that has the text, the answer, and the token that ends it. The loss is over the answer and that token alone.
    #[rules(Excludes("template", "chat_template", "one of them says what stands around a text"))]
    pub struct TextPairs {
        /// The table: CSV and its relatives or JSON Lines, also packed, or Parquet; several files by a pattern.
        #[option(example = r#""pairs.jsonl""#, resume = Differs)]
        pub path: PathBuf,
        /// A table with the same columns to validate on, instead of `validation_split`.
        #[option(resume = Differs)]
        pub val_path: Option<PathBuf>,
        /// The column of the text.
        #[option(default = "text".to_owned(), example = r#""instruction""#)]
        pub text: String,
        /// The column of the answer.
        #[option(default = "answer".to_owned(), example = r#""response""#)]
        pub target: String,
        /// The prompt that a text is put into, at `{text}`.
        #[option(otherwise = "the text as it is", example = r####""### Instruction:\n{text}\n\n### Response:\n""####)]
        pub template: Option<String>,
        /// The template for conversations in place of `template`, as of `text`. The prompt is a conversation in which the user says the text, and the answer is what
        /// the template adds to it where the model says the answer, up to the token that ends it.
        #[option(example = r#""smollm2/tokenizer_config.json""#)]
        pub chat_template: Option<PathBuf>,
        /// What `system` says at the beginning of these conversations.
        #[option(otherwise = "what the template says itself, if anything", example = r#""Answer in one sentence.""#)]
        pub system: Option<String>,
        /// As of `text`, for texts and answers alike. What a `tokenizer.json` puts around a text is left out: a template says what stands there.
        #[option(default = Tokenizer::Characters)]
        pub tokenizer: Tokenizer,
        /// As of `text`.
        #[option(otherwise = "`10000` words, `4096` byte pairs", range = 2..=MAX_SIZE, unit = "tokens")]
        pub vocab_size: Option<usize>,
        /// The token of a `tokenizer.json` that ends answers.
        #[option(otherwise = "the one that the template for conversations writes, else `<|endoftext|>`, `</s>` or their like; a token of its own where there is none", example = r#""<|im_end|>""#)]
        pub end_token: Option<String>,
        /// Most tokens of a prompt with its answer. A longer prompt is cut at its beginning, so that the answer stays, and an answer that is longer by itself at its
        /// end.
        #[option(default = LONGEST_PAIR, range = 1..=MAX_SIZE, unit = "tokens")]
        pub max_length: usize,
        /// As of `text_classes`, of prompts with their answers.
        #[option(otherwise = "a quarter and a half of `max_length`, and all of it", length = 1..=16, range = 1..=MAX_SIZE, unit = "tokens", example = "[64, 128, 256]")]
        pub buckets: Option<Vec<usize>>,
    }
}

impl Check for TextPairs {
    fn check(&self, part: &Part) {
        self.tokenizer.check(part, self.vocab_size);
        check_buckets(part, self.buckets.as_deref(), self.max_length);
        check_chat(part, self.chat_template.as_deref());
        part.require("target", self.target != self.text, "is the text");
        let places = self.template.as_ref().map_or(1, |template| template.matches(PLACE).count());
        part.require("template", places == 1, "must have `{text}` once, which is where the text stands");
        let is_allowed = self.chat_template.is_some() || self.system.is_none();
        part.require("system", is_allowed, "goes with `chat_template`: write it into `template`");
        let fits = matches!(self.tokenizer, Tokenizer::File(_)) || self.end_token.is_none();
        part.require("end_token", fits, "names a token of a `tokenizer.json`: for the others one is added");
    }
}

impl TextPairs {
    /// The lengths of batches, ascending.
    pub fn lengths(&self) -> Vec<usize> {
        lengths_of(self.buckets.as_deref(), self.max_length)
    }
}

impl AboutSource for TextPairs {
    fn paths(&self) -> Vec<(&'static str, &PathBuf)> {
        paths(&self.path, self.val_path.as_ref(), Some(&self.tokenizer), self.chat_template.as_ref())
    }

    fn paths_mut(&mut self) -> Vec<(&'static str, &mut PathBuf)> {
        paths_mut(&mut self.path, self.val_path.as_mut(), Some(&mut self.tokenizer), self.chat_template.as_mut())
    }

    fn has_classes(&self) -> Option<bool> {
        Some(true)
    }
}
