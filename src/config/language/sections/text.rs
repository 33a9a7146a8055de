//! Text: which files, and how they become tokens.

use std::path::PathBuf;

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use super::public::AboutSource;
use crate::config::declare::bounds::MAX_SIZE;
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;
use crate::config::declare::value::Value;
use crate::config::text::tree::Node;

options! {
    /// Text in UTF-8. A sample is `context` tokens, and the model learns to tell each from those before it; in training, samples begin
    /// elsewhere in every epoch. `validation_split` holds out the end of the text: a part of its tokens, or a number of them.
    pub struct Text {
        /// A file, several by a pattern (`books/*.txt`), or a folder of files whose names end in `.txt`, `.md` or `.text`, which follow each other by
        /// their names.
        #[option(example = r#""input.txt""#, resume = Differs)]
        pub path: PathBuf,
        /// Text to validate on, instead of the end that `validation_split` holds out.
        #[option(resume = Differs)]
        pub val_path: Option<PathBuf>,
        /// `"bytes"`: a token for each of the 256 bytes. `"characters"`: a token for each character that the text has. A path: a `tokenizer.json` of
        /// Hugging Face. The tokenizer travels in checkpoints.
        #[option(default = Tokenizer::Characters, example = r#""gpt2/tokenizer.json""#)]
        pub tokenizer: Tokenizer,
        /// Tokens of a sample: how far the model looks back.
        #[option(range = 1..=MAX_SIZE, unit = "tokens", example = "128")]
        pub context: usize,
    }

    /// Text that is tokens already: bare numbers of 16 bits, as nanoGPT writes them, or files with the header of llm.c. A file is mapped into memory, not read.
    /// Samples are those of `text`.
    #[rules(OneOf("vocabulary", "tokenizer"))]
    pub struct TokenFile {
        /// The file.
        #[option(example = r#""train.bin""#, resume = Differs)]
        pub path: PathBuf,
        /// A file to validate on, instead of the end that `validation_split` holds out.
        #[option(resume = Differs)]
        pub val_path: Option<PathBuf>,
        /// How many tokens there may be; needed where no `tokenizer` says so.
        #[option(range = 2..=MAX_SIZE, example = "50257")]
        pub vocabulary: Option<usize>,
        /// The `tokenizer.json` that they were made with: `generate` needs it to read and write text.
        #[option(example = r#""gpt2/tokenizer.json""#)]
        pub tokenizer: Option<PathBuf>,
        /// Tokens of a sample: how far the model looks back.
        #[option(range = 1..=MAX_SIZE, unit = "tokens", example = "1024")]
        pub context: usize,
    }
}

impl Check for Text {}
impl Check for TokenFile {}

/// How text becomes tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tokenizer {
    /// By bytes.
    Bytes,
    /// By characters.
    Characters,
    /// By a `tokenizer.json`.
    File(PathBuf),
}

impl Serialize for Tokenizer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Tokenizer::Bytes => serializer.serialize_str("bytes"),
            Tokenizer::Characters => serializer.serialize_str("characters"),
            Tokenizer::File(path) => path.serialize(serializer),
        }
    }
}

impl Value for Tokenizer {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        match node.as_str() {
            Some("bytes") => Some(Tokenizer::Bytes),
            Some("characters") => Some(Tokenizer::Characters),
            Some(path) if path.ends_with(".json") => PathBuf::read(part, key, node).map(Tokenizer::File),
            _ => {
                part.wrong_value(key, node, "expected \"bytes\", \"characters\" or the path of a tokenizer.json");
                None
            }
        }
    }

    fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "enum": ["bytes", "characters"] }, { "type": "string", "pattern": "\\.json$" }] })
    }
}

impl AboutSource for Text {
    fn paths(&self) -> Vec<(&'static str, &PathBuf)> {
        let val = self.val_path.as_ref().map(|path| ("val_path", path));
        let tokenizer = match &self.tokenizer {
            Tokenizer::File(path) => Some(("tokenizer", path)),
            Tokenizer::Bytes | Tokenizer::Characters => None,
        };
        [("path", &self.path)].into_iter().chain(val).chain(tokenizer).collect()
    }

    fn paths_mut(&mut self) -> Vec<(&'static str, &mut PathBuf)> {
        let val = self.val_path.as_mut().map(|path| ("val_path", path));
        let tokenizer = match &mut self.tokenizer {
            Tokenizer::File(path) => Some(("tokenizer", path)),
            Tokenizer::Bytes | Tokenizer::Characters => None,
        };
        [("path", &mut self.path)].into_iter().chain(val).chain(tokenizer).collect()
    }

    fn divides_itself(&self) -> bool {
        true
    }

    fn has_classes(&self) -> Option<bool> {
        Some(true)
    }
}

impl AboutSource for TokenFile {
    fn paths(&self) -> Vec<(&'static str, &PathBuf)> {
        let others = [("val_path", &self.val_path), ("tokenizer", &self.tokenizer)];
        let others = others.into_iter().filter_map(|(key, path)| Some((key, path.as_ref()?)));
        [("path", &self.path)].into_iter().chain(others).collect()
    }

    fn paths_mut(&mut self) -> Vec<(&'static str, &mut PathBuf)> {
        let others = [("val_path", &mut self.val_path), ("tokenizer", &mut self.tokenizer)];
        let others = others.into_iter().filter_map(|(key, path)| Some((key, path.as_mut()?)));
        [("path", &mut self.path)].into_iter().chain(others).collect()
    }

    fn named_classes(&self) -> Option<usize> {
        self.vocabulary
    }

    fn divides_itself(&self) -> bool {
        true
    }

    fn has_classes(&self) -> Option<bool> {
        Some(true)
    }
}
