//! Text as numbers and back: bytes, characters, or the tokens of a `tokenizer.json`.

mod decoder;
mod dropout;
mod fallback;
mod lacking;
pub(super) mod pieces;
mod unknown;
pub(super) mod whole;
pub(super) mod words;

pub use decoder::Decoder;
pub use dropout::dropout_in_words;
pub use whole::{Passage, tokens_of};
pub use words::UNKNOWN_TOKEN;

use super::wrong_file::WrongFile;
use crate::files::{self, contained};
use anyhow::{Context, Result, anyhow, ensure};
use lacking::lacking;
use pieces::{parts_words, pieces};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use unknown::no_token;
use whole::before;
use words::Words;

/// Largest `tokenizer.json` that is read, in bytes. Those of large language models have some ten million.
const MAX_FILE: u64 = 256 << 20;
/// Tokens that are handed on together.
const SOME: usize = 1 << 14;
/// Bytes of memory that a byte of a usual text takes while a `tokenizer.json` makes tokens of it: of each token it keeps the text, the place and more.
const TOKENIZING: usize = 200;

/// Which tokenizer is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// A token for each byte.
    Bytes,
    /// A token for each character that the text of training has.
    Characters,
    /// A token for each of the most frequent words, so many at most.
    Words(usize),
    /// Byte pairs that are joined as often as they follow each other, until there are so many tokens (Sennrich et al. 2016).
    Bpe(usize),
    /// By a `tokenizer.json`.
    Json(PathBuf),
}

/// How text becomes tokens.
#[derive(Clone)]
pub enum Tokenizer {
    /// A token for each byte: 256 of them.
    Bytes,
    /// A token for each character that the text of training has, in the order of their code points.
    Characters(Arc<Characters>),
    /// A token for each of the most frequent words.
    Words(Arc<Words>),
    /// A tokenizer in the format of Hugging Face.
    Json(Arc<Json>),
}

/// The characters that have tokens.
#[derive(Debug, PartialEq, Eq)]
pub struct Characters {
    all: Vec<char>,
    /// The token of every character up to the last that has one.
    numbers: Vec<Option<u32>>,
}

/// A `tokenizer.json`.
pub struct Json {
    text: String,
    pub(super) tokenizer: tokenizers::Tokenizer,
    /// Whether it parts words at spaces, so that a text may be cut there.
    parts_words: bool,
    /// The tokens that it puts before a text.
    before: Vec<u32>,
    /// Whether tokens such as `<0x0A>` are bytes.
    has_bytes: bool,
}

/// A tokenizer as a checkpoint has it.
#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Written {
    Bytes,
    Characters { characters: String },
    Words { words: Vec<String> },
    TokenizerJson { json: String },
}

impl Characters {
    fn new(mut all: Vec<char>) -> Self {
        all.sort_unstable();
        all.dedup();
        let mut numbers = vec![None; all.last().map_or(0, |c| *c as usize + 1)];
        all.iter().zip(0..).for_each(|(c, number)| numbers[*c as usize] = Some(number));
        Characters { all, numbers }
    }

    fn number(&self, c: char) -> Option<u32> {
        *self.numbers.get(c as usize)?
    }
}

impl Tokenizer {
    /// The one of that kind for these texts.
    ///
    /// # Errors
    /// A file of a tokenizer cannot be read, or is none.
    pub fn choose(choice: &Choice, texts: &[&str]) -> Result<Tokenizer> {
        Ok(match choice {
            Choice::Bytes => Tokenizer::Bytes,
            Choice::Characters => {
                let mut seen = vec![false; char::MAX as usize + 1];
                texts.iter().flat_map(|text| text.chars()).for_each(|c| seen[c as usize] = true);
                let all = (0..=u32::from(char::MAX)).filter(|code| seen[*code as usize]);
                Tokenizer::Characters(Arc::new(Characters::new(all.filter_map(char::from_u32).collect())))
            }
            Choice::Words(most) => Tokenizer::Words(Arc::new(Words::in_texts(texts.iter().copied(), *most))),
            Choice::Bpe(most) => {
                // Its rule for words allows to cut texts. Words are counted piece by piece.
                let texts = texts.iter().flat_map(|text| pieces(text));
                return Tokenizer::of_json(trained(texts, *most, None)?);
            }
            Choice::Json(path) => return Tokenizer::read(path),
        })
    }

    /// That of a file `tokenizer.json`.
    ///
    /// # Errors
    /// It cannot be read, or is no tokenizer.
    pub fn read(path: &Path) -> Result<Tokenizer> {
        let read = || {
            let bytes = files::read(path, MAX_FILE)?;
            let text = String::from_utf8(bytes).map_err(|_| anyhow!("`{}` is not UTF-8", path.display()))?;
            Tokenizer::of_json(text).with_context(|| format!("`{}` is no tokenizer that can be read", path.display()))
        };
        read().map_err(WrongFile::of("tokenizer"))
    }

    /// That of the text of a `tokenizer.json`.
    ///
    /// # Errors
    /// It is none.
    pub(in crate::data) fn of_json(text: String) -> Result<Tokenizer> {
        let tokenizer = contained(|| text.parse::<tokenizers::Tokenizer>().map_err(|e| anyhow!("{e}")));
        let mut tokenizer = tokenizer.map_err(|error| lacking(&text).unwrap_or(error))?;
        // They are for batches of sentences. Texts are cut here.
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|e| anyhow!("{e}"))?;
        dropout::switch_off(&mut tokenizer);
        ensure!(tokenizer.get_vocab_size(true) > 0, "it has no tokens");
        // What it puts around a text may name tokens that it lacks, which shows only when it does so.
        contained(|| tokenizer.encode_fast("", true).map_err(|e| anyhow!("{e}")))
            .context("it fails on an empty text")?;
        let (parts_words, before, has_bytes) = (parts_words(&text), before(&tokenizer)?, fallback::has_bytes(&text));
        Ok(Tokenizer::Json(Arc::new(Json { text, tokenizer, parts_words, before, has_bytes })))
    }

    /// As a checkpoint has it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn written(&self) -> Result<serde_json::Value> {
        Ok(serde_json::to_value(self)?)
    }

    fn as_written(&self) -> Written {
        match self {
            Tokenizer::Bytes => Written::Bytes,
            Tokenizer::Characters(characters) => Written::Characters { characters: characters.all.iter().collect() },
            Tokenizer::Words(words) => Written::Words { words: words.all().to_vec() },
            Tokenizer::Json(json) => Written::TokenizerJson { json: json.text.clone() },
        }
    }

    /// That of a checkpoint, which may come from any source.
    ///
    /// # Errors
    /// It is none.
    pub fn of_written(written: &serde_json::Value) -> Result<Tokenizer> {
        Tokenizer::of(Written::deserialize(written).context("the checkpoint has no tokenizer that can be read")?)
    }

    fn of(written: Written) -> Result<Tokenizer> {
        match written {
            Written::Bytes => Ok(Tokenizer::Bytes),
            Written::Characters { characters } => {
                ensure!(!characters.is_empty(), "the tokenizer of the checkpoint has no characters");
                Ok(Tokenizer::Characters(Arc::new(Characters::new(characters.chars().collect()))))
            }
            Written::Words { words } => {
                let words = Words::of(words).context("the tokenizer of the checkpoint has words twice, or none")?;
                Ok(Tokenizer::Words(Arc::new(words)))
            }
            Written::TokenizerJson { json } => Tokenizer::of_json(json).context("the tokenizer of the checkpoint"),
        }
    }

    /// How many tokens there are.
    pub fn vocabulary(&self) -> usize {
        match self {
            Tokenizer::Bytes => 256,
            Tokenizer::Characters(characters) => characters.all.len(),
            Tokenizer::Words(words) => words.all().len(),
            // Numbers may have gaps: a model needs a place for the largest.
            Tokenizer::Json(json) => {
                let largest =
                    json.tokenizer.get_vocab(true).into_values().max().map_or(0, |largest| largest as usize + 1);
                largest.max(json.tokenizer.get_vocab_size(true))
            }
        }
    }

    /// What it is, in words.
    pub fn in_words(&self) -> String {
        match self {
            Tokenizer::Bytes => "bytes".into(),
            Tokenizer::Characters(characters) => format!("{} characters", characters.all.len()),
            Tokenizer::Words(words) => format!("{} words", words.all().len()),
            Tokenizer::Json(_) => format!("a vocabulary of {}", self.vocabulary()),
        }
    }

    /// Bytes of memory that a byte of a text takes at most while tokens are made of it.
    pub fn memory_of_a_byte(&self) -> usize {
        match self {
            Tokenizer::Bytes | Tokenizer::Characters(_) | Tokenizer::Words(_) => 16,
            // It keeps where each character was, and of each token its text, its place and more: up to 360 bytes were measured.
            Tokenizer::Json(_) => 400,
        }
    }

    /// The tokens of a text, which `called` names in errors.
    ///
    /// # Errors
    /// It has a character that has no token.
    pub fn encode(&self, text: &str, called: &str) -> Result<Vec<u32>> {
        let mut tokens = Vec::new();
        self.encode_each(text, called, &mut |some| tokens.extend_from_slice(some))?;
        Ok(tokens)
    }

    /// Hands the tokens of a text to `take`, some at a time.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_each(&self, text: &str, called: &str, take: &mut dyn FnMut(&[u32])) -> Result<()> {
        let mut some = Vec::with_capacity(SOME.min(text.len()));
        match self {
            Tokenizer::Bytes => {
                for bytes in text.as_bytes().chunks(SOME) {
                    some.clear();
                    some.extend(bytes.iter().copied().map(u32::from));
                    take(&some);
                }
            }
            Tokenizer::Characters(characters) => {
                for (at, c) in text.char_indices() {
                    match characters.number(c) {
                        Some(number) => some.push(number),
                        None => return Err(no_token(text, at, |c| characters.number(c).is_some(), called)),
                    }
                    if some.len() == SOME {
                        take(&some);
                        some.clear();
                    }
                }
                take(&some);
            }
            Tokenizer::Words(words) => {
                for token in words.encode(text) {
                    some.push(token);
                    if some.len() == SOME {
                        take(&some);
                        some.clear();
                    }
                }
                take(&some);
            }
            Tokenizer::Json(json) => {
                for piece in self.pieces(text) {
                    let encoding = contained(|| json.tokenizer.encode_fast(piece, false).map_err(|e| anyhow!("{e}")));
                    take(encoding.with_context(|| format!("{called} cannot be tokenized"))?.get_ids());
                }
            }
        }
        Ok(())
    }

    /// The pieces of a text that tokens are made of one after the other: all of it, unless that makes no difference.
    fn pieces<'a>(&self, text: &'a str) -> Box<dyn Iterator<Item = &'a str> + 'a> {
        match self {
            Tokenizer::Json(_) if !self.parts_words() => Box::new(std::iter::once(text)),
            _ => Box::new(pieces(text)),
        }
    }

    /// Whether a text may be cut at a space between letters or digits.
    pub(in crate::data) fn parts_words(&self) -> bool {
        !matches!(self, Tokenizer::Json(json) if !json.parts_words)
    }

    /// The file of it, `tokenizer.json`, if it has one.
    pub fn json(&self) -> Option<&str> {
        if let Tokenizer::Json(json) = self { Some(&json.text) } else { None }
    }

    /// Bytes of memory that making tokens of a text takes, besides the text and the tokens.
    pub fn working_memory(&self, text: &str) -> usize {
        match self {
            Tokenizer::Json(_) => self.pieces(text).map(str::len).max().unwrap_or(0).saturating_mul(TOKENIZING),
            Tokenizer::Bytes | Tokenizer::Characters(_) | Tokenizer::Words(_) => 4 * SOME.min(text.len()),
        }
    }

    /// The text of tokens. Bytes that are no UTF-8 become U+FFFD, one for each longest part that begins a character, as in Python's `bytes.decode("utf-8", "replace")`.
    ///
    /// # Errors
    /// There is no such token.
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        let unknown = |token: u32| anyhow!("there is no token {token}: the tokenizer has {}", self.vocabulary());
        match self {
            Tokenizer::Bytes => {
                let byte = |token: &u32| u8::try_from(*token).map_err(|_| unknown(*token));
                let bytes = tokens.iter().map(byte).collect::<Result<Vec<u8>>>()?;
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            Tokenizer::Characters(characters) => {
                let of = |token: &u32| characters.all.get(*token as usize).copied().ok_or_else(|| unknown(*token));
                tokens.iter().map(of).collect()
            }
            Tokenizer::Words(words) => {
                let word =
                    |token: &u32| words.all().get(*token as usize).map(String::as_str).ok_or_else(|| unknown(*token));
                Ok(tokens.iter().map(word).collect::<Result<Vec<&str>>>()?.join(" "))
            }
            Tokenizer::Json(json) if json.has_bytes => contained(|| fallback::decode(&json.tokenizer, tokens)),
            Tokenizer::Json(json) => contained(|| json.tokenizer.decode(tokens, false).map_err(|e| anyhow!("{e}"))),
        }
    }

    /// The number of a token by its text, where tokens have such names: `<|endoftext|>`.
    pub fn token(&self, name: &str) -> Option<u32> {
        match self {
            Tokenizer::Json(json) => json.tokenizer.token_to_id(name),
            Tokenizer::Bytes | Tokenizer::Characters(_) | Tokenizer::Words(_) => None,
        }
    }

    /// The text of a token by itself, if there is one of that number.
    pub fn piece(&self, token: u32) -> Option<String> {
        let at = token as usize;
        match self {
            Tokenizer::Bytes => u8::try_from(token).ok().map(|byte| byte.escape_ascii().to_string()),
            Tokenizer::Characters(characters) => characters.all.get(at).map(char::to_string),
            Tokenizer::Words(words) => words.all().get(at).cloned(),
            Tokenizer::Json(json) => json.tokenizer.id_to_token(token),
        }
    }

    /// How many tokens of one number are other texts for another tokenizer, and the first of them with both texts; `None` if there is none.
    pub fn differs_from(&self, other: &Tokenizer) -> Option<(usize, u32, [String; 2])> {
        let both = 0..self.vocabulary().min(other.vocabulary()) as u32;
        let mut differing = both.filter_map(|token| {
            let pieces = [self.piece(token)?, other.piece(token)?];
            (pieces[0] != pieces[1]).then_some((token, pieces))
        });
        let (token, pieces) = differing.next()?;
        Some((1 + differing.count(), token, pieces))
    }
}

/// A tokenizer of byte pairs that is trained on texts, as a `tokenizer.json`: GPT-2's way to cut texts into words and to write bytes.
/// `special`: a token that no text becomes.
pub(in crate::data) fn trained(
    texts: impl Iterator<Item = impl AsRef<str> + Send> + Send,
    most: usize,
    special: Option<&str>,
) -> Result<String> {
    use tokenizers::AddedToken;
    use tokenizers::models::bpe::{BPE, BpeTrainer};
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;
    contained(|| {
        let mut tokenizer = tokenizers::Tokenizer::new(BPE::default());
        let bytes = ByteLevel::new(false, true, true);
        tokenizer.with_pre_tokenizer(Some(bytes));
        tokenizer.with_decoder(Some(bytes));
        let alphabet = ByteLevel::alphabet().into_iter().collect();
        let special = special.map(|name| AddedToken::from(name, true)).into_iter().collect();
        let trainer = BpeTrainer::builder().vocab_size(most).show_progress(false).initial_alphabet(alphabet);
        let mut trainer = tokenizers::models::TrainerWrapper::from(trainer.special_tokens(special).build());
        tokenizer.train(&mut trainer, texts).map_err(|e| anyhow!("{e}"))?;
        tokenizer.to_string(false).map_err(|e| anyhow!("{e}"))
    })
    .context("no tokenizer can be trained on the text")
}

impl Serialize for Tokenizer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_written().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Tokenizer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Tokenizer::of(Written::deserialize(deserializer)?).map_err(|error| D::Error::custom(format!("{error:#}")))
    }
}

impl PartialEq for Tokenizer {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Tokenizer::Bytes, Tokenizer::Bytes) => true,
            (Tokenizer::Characters(a), Tokenizer::Characters(b)) => a == b,
            (Tokenizer::Words(a), Tokenizer::Words(b)) => a == b,
            (Tokenizer::Json(a), Tokenizer::Json(b)) => a.text == b.text,
            _ => false,
        }
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.in_words())
    }
}
