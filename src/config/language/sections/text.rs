//! Text: which files, and how they become tokens.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use super::documents::{Documents, EndToken, check_lengths};
use super::photos::Columns;
use super::public::AboutSource;
use crate::config::declare::bounds::MAX_SIZE;
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;
use crate::config::declare::value::Value;
use crate::config::text::diagnostics::Diagnostic;
use crate::config::text::tree::Node;

options! {
    /// Text in UTF-8. A sample is `context` tokens, and the model learns to tell each from those before it; in training, samples begin
    /// elsewhere in every epoch. `validation_split` holds out the end of the text: a part of its tokens, or a number of them.
    pub struct Text {
        /// A file, several by a pattern (`books/*.txt`), or a folder of files whose names end in `.txt`, `.md` or `.text`, which follow each other by
        /// their names. Or a table, of which `column` has the texts.
        #[option(example = r#""input.txt""#, resume = Differs)]
        pub path: PathBuf,
        /// Text to validate on, instead of the end that `validation_split` holds out.
        #[option(resume = Differs)]
        pub val_path: Option<PathBuf>,
        /// The column of a table (CSV and its relatives or JSON Lines, also packed, or Parquet) that has the texts: the cell of each row is a document, and rows without a text are left out.
        /// CSV and TSV that are not packed are texts as they are without it.
        #[option(otherwise = "the only one with texts, of JSON Lines, Parquet and packed tables", example = r#""text""#, resume = Differs)]
        pub column: Option<String>,
        /// `"bytes"`: a token for each of the 256 bytes. `"characters"`: a token for each character that the text has. `"words"`: a token for each of the
        /// most frequent words, in lower case, and one for all others. `"bpe"`: byte pairs are joined as often as they follow each other in the text
        /// (Sennrich et al. 2016), with GPT-2's rules for spaces. A path: a `tokenizer.json` of Hugging Face. The tokenizer travels in checkpoints.
        #[option(default = Tokenizer::Characters, example = r#""gpt2/tokenizer.json""#)]
        pub tokenizer: Tokenizer,
        /// How many tokens `"words"` and `"bpe"` have at most.
        #[option(otherwise = "`10000` words, `4096` byte pairs", range = 2..=MAX_SIZE, unit = "tokens")]
        pub vocab_size: Option<usize>,
        /// How a conversation becomes the text that the model goes on with, for `/v1/chat/completions` of `runner serve`: the path of a `tokenizer_config.json` of
        /// Hugging Face's, or of a file with the Jinja template alone, such as `chat_template.jinja`, whose `bos_token` and
        /// `eos_token` are those of a `tokenizer_config.json` beside it. It travels in checkpoints.
        #[option(example = r#""smollm2/tokenizer_config.json""#, resume = Harmless)]
        pub chat_template: Option<PathBuf>,
        /// Tokens of a sample: how far the model looks back.
        #[option(range = 1..=MAX_SIZE, unit = "tokens", example = "128")]
        pub context: usize,
        /// Recurrent layers begin a batch with the states in which they ended the batch before, across which no gradient goes (truncated backpropagation through time).
        /// The text is cut into as many streams as a batch has samples, and a batch has the next `context` tokens of each, in order, whatever `shuffle` says. An epoch and an evaluation begin
        /// with zeros. Tokens that do not fill the last batch of all streams are left out.
        #[option(default = false)]
        pub carry_state: bool,
        /// Whether samples are cut out of the whole row of tokens, so that they begin and end anywhere. `false`: a sample has tokens of one document, from its beginning or from where the
        /// sample before it ended. Documents are the files or the rows of a table, and what stands between two `end_token`.
        #[option(default = true)]
        pub packed: bool,
        /// The token that ends documents, by its name in the `tokenizer.json` or by its number: files and rows that do not end with it get it, and what `generate`
        /// writes ends with it.
        #[option(otherwise = "none with `packed = true`, else `<|endoftext|>`, `</s>` or their like, if the tokenizer has one", example = r#""<|endoftext|>""#)]
        pub end_token: Option<EndToken>,
        /// Lengths of batches, ascending and up to `context`: a sample of `packed = false` is filled up to the first that it fits into.
        #[option(otherwise = "a quarter and a half of `context`, and all of it", length = 1..=16, range = 1..=MAX_SIZE, unit = "tokens", example = "[32, 64, 128]")]
        pub buckets: Option<Vec<usize>>,
    }

    /// Text that is tokens already: bare numbers of 16 bits, as nanoGPT writes them, or files with the header of llm.c. A file is not read into memory, but where a batch asks for it.
    /// Samples are those of `text`.
    pub struct TokenFile {
        /// The file, or several by a pattern, as `fineweb_train_*.bin` or `{a,b}.bin`: they are one row of tokens.
        #[option(example = r#""train.bin""#, resume = Differs)]
        pub path: PathBuf,
        /// A file to validate on, instead of the end that `validation_split` holds out.
        #[option(resume = Differs)]
        pub val_path: Option<PathBuf>,
        /// How many tokens there may be. Without it and without `tokenizer` the files are read through once for their largest token.
        #[option(otherwise = "those of `tokenizer`, else the largest token of the files and one more", range = 2..=MAX_SIZE, example = "50257")]
        pub vocab_size: Option<usize>,
        /// The `tokenizer.json` that they were made with, or `"bytes"`: `generate` needs it to read and write text.
        #[option(example = r#""gpt2/tokenizer.json""#)]
        pub tokenizer: Option<Tokenizer>,
        /// As of `text`.
        #[option(example = r#""smollm2/tokenizer_config.json""#, resume = Harmless)]
        pub chat_template: Option<PathBuf>,
        /// Tokens of a sample: how far the model looks back.
        #[option(range = 1..=MAX_SIZE, unit = "tokens", example = "1024")]
        pub context: usize,
        /// As of `text`.
        #[option(default = false)]
        pub carry_state: bool,
        /// As of `text`. Documents are what stands between two `end_token`, across files as well.
        #[option(default = true)]
        pub packed: bool,
        /// The token that ends documents, by its name or by its number: documents end where it stands, and what `generate` writes does.
        #[option(otherwise = "none with `packed = true`, else `<|endoftext|>`, `</s>` or their like, if the tokenizer has one", example = "50256")]
        pub end_token: Option<EndToken>,
        /// As of `text`.
        #[option(otherwise = "a quarter and a half of `context`, and all of it", length = 1..=16, range = 1..=MAX_SIZE, unit = "tokens", example = "[256, 512, 1024]")]
        pub buckets: Option<Vec<usize>>,
    }
}

options! {
    /// Texts of a table, or pairs of texts, each of a class: a column has the text, another the class. A sample is the tokens of a text or of a pair; batches have
    /// samples of about one length.
    pub struct TextClasses {
        /// The table: CSV and its relatives or JSON Lines, also packed, or Parquet; several files by a pattern.
        #[option(example = r#""reviews.csv""#, resume = Differs)]
        pub path: PathBuf,
        /// A table with the same columns to validate on, instead of `validation_split`.
        #[option(resume = Differs)]
        pub val_path: Option<PathBuf>,
        /// The column of the text. Two columns: pairs of texts, of which the model says something together. A `tokenizer.json` joins them as its model expects,
        /// `[CLS] a [SEP] b [SEP]`; with the others a token of its own stands between them.
        #[option(default = Columns::One("text".to_owned()), example = r#"["premise", "hypothesis"]"#)]
        pub text: Columns,
        /// The column of the class.
        #[option(default = "label".to_owned(), example = r#""label""#)]
        pub target: String,
        /// The classes, in this order: that of the outputs of a model which knows them already.
        #[option(otherwise = "those of the rows, by name", length = 1..=MAX_SIZE, example = r#"["negative", "positive"]"#)]
        pub classes: Option<Vec<String>>,
        /// A column with what each text weighs in the loss, a number of at least 0: the loss is the weighted mean, in training and in evaluation. `predict` does
        /// without it, and all other figures count every text alike.
        #[option(example = r#""weight""#)]
        pub sample_weight: Option<String>,
        /// As of `text`. A `tokenizer.json` adds the tokens that stand before and after each text, as `[CLS]` and `[SEP]`.
        #[option(default = Tokenizer::Words)]
        pub tokenizer: Tokenizer,
        /// As of `text`.
        #[option(otherwise = "`10000` words, `4096` byte pairs", range = 2..=MAX_SIZE, unit = "tokens")]
        pub vocab_size: Option<usize>,
        /// Longer texts are cut to this.
        #[option(default = 256, range = 1..=MAX_SIZE, unit = "tokens")]
        pub max_length: usize,
        /// Lengths of batches, ascending and up to `max_length`: a text is filled up to the first that it fits into. There is a program for each, so a few are
        /// enough.
        #[option(otherwise = "a quarter and a half of `max_length`, and all of it", length = 1..=16, range = 1..=MAX_SIZE, unit = "tokens", example = "[64, 128, 256]")]
        pub buckets: Option<Vec<usize>>,
    }
}

impl Check for Text {
    fn check(&self, part: &Part) {
        for (key, path) in [("path", Some(&self.path)), ("val_path", self.val_path.as_ref())] {
            if path.is_some_and(|path| path.extension().is_some_and(|ending| ending == "bin")) {
                part.sink.push(
                    Diagnostic::error(format!("`{key}` in {} names a file of tokens", part.what))
                        .at(part.span_of(key), "ends in `.bin`")
                        .help("`source = \"tokens\"` reads tokens; a text has another ending, as `.txt`"),
                );
            }
            let text = path.filter(|path| is_text(path)).map_or(String::new(), |path| path.display().to_string());
            part.require(
                "column",
                self.column.is_none() || text.is_empty(),
                &format!("is of a table (.csv, .tsv, .jsonl, .parquet, also as .gz and .zst), and `{key}` is the text `{text}`: leave `column` out"),
            );
        }
        self.tokenizer.check(part, self.vocab_size);
        check_chat(part, self.chat_template.as_deref());
        Documents { packed: self.packed, end_token: self.end_token.as_ref(), buckets: self.buckets.as_deref() }.check(
            part,
            self.context,
            matches!(self.tokenizer, Tokenizer::File(_)),
            self.carry_state,
        );
    }
}

/// Reports a template that stands where its file is named.
pub(super) fn check_chat(part: &Part, chat: Option<&Path>) {
    let inline = chat.and_then(Path::to_str).is_some_and(|path| ["{{", "{%"].iter().any(|start| path.contains(start)));
    part.require(
        "chat_template",
        !inline,
        "is the path of a file, and this is a template: put it into a file such as `chat_template.jinja`, and name that",
    );
}

/// Whether a file has the name of a text.
fn is_text(path: &Path) -> bool {
    let packed = path.extension().is_some_and(|ending| ending == "gz" || ending == "zst");
    let inner = if packed { path.file_stem().map(Path::new) } else { Some(path) };
    let ending = inner.and_then(|path| path.extension()?.to_str());
    ending.is_some_and(|ending| ["txt", "md", "text"].contains(&ending.to_ascii_lowercase().as_str()))
}

impl Check for TokenFile {
    fn check(&self, part: &Part) {
        Documents { packed: self.packed, end_token: self.end_token.as_ref(), buckets: self.buckets.as_deref() }.check(
            part,
            self.context,
            matches!(self.tokenizer, Some(Tokenizer::File(_))),
            self.carry_state,
        );
        check_chat(part, self.chat_template.as_deref());
        let is_decodable = self.tokenizer.as_ref().is_none_or(|t| matches!(t, Tokenizer::Bytes | Tokenizer::File(_)));
        part.require(
            "tokenizer",
            is_decodable,
            "must be \"bytes\" or the path of a tokenizer.json: of the others the tokens do not tell the text",
        );
    }
}

impl Check for TextClasses {
    fn check(&self, part: &Part) {
        self.tokenizer.check(part, self.vocab_size);
        check_buckets(part, self.buckets.as_deref(), self.max_length);
        let texts = self.text.names();
        part.require("text", texts.len() <= 2, "must be one column, or two for pairs of texts");
        part.require("text", texts.len() != 2 || texts[0] != texts[1], "names a column twice");
        part.require("target", !texts.contains(&self.target), "is the text");
        check_classes(part, self.classes.as_deref());
    }
}

/// Reports lengths of batches that are none up to `max_length`.
pub(super) fn check_buckets(part: &Part, buckets: Option<&[usize]>, longest: usize) {
    check_lengths(part, buckets, longest, "max_length");
}

/// Reports a class that is named twice.
pub(super) fn check_classes(part: &Part, classes: Option<&[String]>) {
    let mut seen = HashSet::new();
    let once = classes.unwrap_or_default().iter().all(|class| seen.insert(class));
    part.require("classes", once, "names a class twice");
}

/// The lengths of batches, ascending.
pub(super) fn lengths_of(buckets: Option<&[usize]>, longest: usize) -> Vec<usize> {
    buckets.map_or_else(
        || {
            let mut all = vec![longest.div_ceil(4), longest.div_ceil(2), longest];
            all.dedup();
            all
        },
        <[usize]>::to_vec,
    )
}

impl TextClasses {
    /// The lengths of batches, ascending.
    pub fn lengths(&self) -> Vec<usize> {
        lengths_of(self.buckets.as_deref(), self.max_length)
    }
}

/// The files of a source of text, by their keys.
pub(super) fn paths<'a>(
    path: &'a PathBuf,
    val_path: Option<&'a PathBuf>,
    tokenizer: Option<&'a Tokenizer>,
    chat: Option<&'a PathBuf>,
) -> Vec<(&'static str, &'a PathBuf)> {
    let val = val_path.map(|path| ("val_path", path));
    let chat = chat.map(|path| ("chat_template", path));
    [("path", path)].into_iter().chain(val).chain(tokenizer.and_then(Tokenizer::path)).chain(chat).collect()
}

/// As [`paths()`], to change them.
pub(super) fn paths_mut<'a>(
    path: &'a mut PathBuf,
    val_path: Option<&'a mut PathBuf>,
    tokenizer: Option<&'a mut Tokenizer>,
    chat: Option<&'a mut PathBuf>,
) -> Vec<(&'static str, &'a mut PathBuf)> {
    let val = val_path.map(|path| ("val_path", path));
    let chat = chat.map(|path| ("chat_template", path));
    [("path", path)].into_iter().chain(val).chain(tokenizer.and_then(Tokenizer::path_mut)).chain(chat).collect()
}

/// What is asked of a source of texts that a table or a file has whole.
macro_rules! about_texts {
    ($source:ty) => {
        impl AboutSource for $source {
            fn paths(&self) -> Vec<(&'static str, &PathBuf)> {
                paths(&self.path, self.val_path.as_ref(), Some(&self.tokenizer), None)
            }

            fn paths_mut(&mut self) -> Vec<(&'static str, &mut PathBuf)> {
                paths_mut(&mut self.path, self.val_path.as_mut(), Some(&mut self.tokenizer), None)
            }

            fn has_classes(&self) -> Option<bool> {
                Some(true)
            }
        }
    };
}
pub(super) use about_texts;

about_texts!(TextClasses);

impl Text {
    /// The lengths of batches, ascending, if documents are kept apart.
    pub fn lengths(&self) -> Option<Vec<usize>> {
        (!self.packed).then(|| lengths_of(self.buckets.as_deref(), self.context))
    }
}

impl TokenFile {
    /// The lengths of batches, ascending, if documents are kept apart.
    pub fn lengths(&self) -> Option<Vec<usize>> {
        (!self.packed).then(|| lengths_of(self.buckets.as_deref(), self.context))
    }
}

/// How text becomes tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tokenizer {
    /// By bytes.
    Bytes,
    /// By characters.
    Characters,
    /// By words.
    Words,
    /// By byte pairs.
    Bpe,
    /// By a `tokenizer.json`.
    File(PathBuf),
}

impl Tokenizer {
    /// Reports a number of tokens where the tokenizer says itself how many it has.
    pub(super) fn check(&self, part: &Part, vocab_size: Option<usize>) {
        let learnt = matches!(self, Tokenizer::Words | Tokenizer::Bpe);
        let fits = learnt || vocab_size.is_none();
        part.require(
            "vocab_size",
            fits,
            "is for `tokenizer = \"words\"` and `\"bpe\"`: this one says itself how many tokens it has",
        );
        let bytes = *self != Tokenizer::Bpe || vocab_size.is_none_or(|size| size > 256);
        part.require(
            "vocab_size",
            bytes,
            "must be from 257 for `tokenizer = \"bpe\"`: the 256 bytes are tokens already",
        );
    }

    /// The file that it names, with its key.
    pub(super) fn path(&self) -> Option<(&'static str, &PathBuf)> {
        if let Tokenizer::File(path) = self { Some(("tokenizer", path)) } else { None }
    }

    /// As [`Tokenizer::path`], to change it.
    pub(super) fn path_mut(&mut self) -> Option<(&'static str, &mut PathBuf)> {
        if let Tokenizer::File(path) = self { Some(("tokenizer", path)) } else { None }
    }
}

impl Serialize for Tokenizer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Tokenizer::Bytes => serializer.serialize_str("bytes"),
            Tokenizer::Characters => serializer.serialize_str("characters"),
            Tokenizer::Words => serializer.serialize_str("words"),
            Tokenizer::Bpe => serializer.serialize_str("bpe"),
            Tokenizer::File(path) => path.serialize(serializer),
        }
    }
}

impl Value for Tokenizer {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        match node.as_str() {
            Some("bytes") => Some(Tokenizer::Bytes),
            Some("characters") => Some(Tokenizer::Characters),
            Some("words") => Some(Tokenizer::Words),
            Some("bpe") => Some(Tokenizer::Bpe),
            Some(path) if path.ends_with(".json") => PathBuf::read(part, key, node).map(Tokenizer::File),
            _ => {
                part.wrong_value(
                    key,
                    node,
                    "expected \"bytes\", \"characters\", \"words\", \"bpe\" or the path of a tokenizer.json",
                );
                None
            }
        }
    }

    fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "enum": ["bytes", "characters", "words", "bpe"] }, { "type": "string", "pattern": "\\.json$" }] })
    }
}

impl AboutSource for Text {
    fn paths(&self) -> Vec<(&'static str, &PathBuf)> {
        paths(&self.path, self.val_path.as_ref(), Some(&self.tokenizer), self.chat_template.as_ref())
    }

    fn paths_mut(&mut self) -> Vec<(&'static str, &mut PathBuf)> {
        paths_mut(&mut self.path, self.val_path.as_mut(), Some(&mut self.tokenizer), self.chat_template.as_mut())
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
        paths(&self.path, self.val_path.as_ref(), self.tokenizer.as_ref(), self.chat_template.as_ref())
    }

    fn paths_mut(&mut self) -> Vec<(&'static str, &mut PathBuf)> {
        paths_mut(&mut self.path, self.val_path.as_mut(), self.tokenizer.as_mut(), self.chat_template.as_mut())
    }

    fn named_classes(&self) -> Option<usize> {
        self.vocab_size
    }

    fn divides_itself(&self) -> bool {
        true
    }

    fn has_classes(&self) -> Option<bool> {
        Some(true)
    }
}
