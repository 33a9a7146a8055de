//! Texts that stand by themselves, one or two of them, as tokens: with those that a model expects around them, and cut where they are too long.

use super::words::UNKNOWN_TOKEN;
use super::{Json, Tokenizer};
use crate::files::contained;
use anyhow::{Context, Result, anyhow};
use std::collections::HashSet;
use tokenizers::TruncationDirection::Right;
use tokenizers::{Encoding, PostProcessor as _};

/// A text, or two of which a model says something together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    /// The text.
    pub text: String,
    /// The second one, of a pair.
    pub pair: Option<String>,
}

impl Passage {
    /// Its one text, or both.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.text.as_str()).chain(self.pair.as_deref())
    }
}

impl From<String> for Passage {
    fn from(text: String) -> Self {
        Passage { text, pair: None }
    }
}

/// The tokens of a passage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whole {
    /// All of them.
    pub tokens: Vec<u32>,
    /// How many of them belong to the first text, as the tokenizer has it: what stands between both does.
    pub pair_start: usize,
    /// Whether there were more.
    pub cut: bool,
}

/// The tokens that a tokenizer puts before a text, as `<s>`.
///
/// # Errors
/// It names tokens that it lacks.
pub(super) fn before(tokenizer: &tokenizers::Tokenizer) -> Result<Vec<u32>> {
    // A text of one token, which no vocabulary has.
    let text = u32::MAX;
    let (one, x) = (vec![1], vec!["x".to_owned()]);
    let encoding =
        Encoding::new(vec![text], vec![0], x, vec![None], vec![(0, 1)], vec![0], one, Vec::new(), Default::default());
    let whole = contained(|| tokenizer.post_process(encoding, None, true).map_err(|e| anyhow!("{e}")))?;
    Ok(whole.get_ids().iter().copied().take_while(|token| *token != text).collect())
}

impl Tokenizer {
    /// The tokens that a `tokenizer.json` puts before a text. What a language model goes on with begins with them.
    pub fn before(&self) -> &[u32] {
        match self {
            Tokenizer::Json(json) => &json.before,
            Tokenizer::Bytes | Tokenizer::Characters(_) | Tokenizer::Words(_) => &[],
        }
    }

    /// The tokens that a `tokenizer.json` calls special, as `<|endoftext|>`.
    pub fn special(&self) -> HashSet<u32> {
        let Tokenizer::Json(json) = self else { return HashSet::new() };
        let added = json.tokenizer.get_added_tokens_decoder().into_iter();
        added.filter(|(_, token)| token.special).map(|(number, _)| number).collect()
    }

    /// How many tokens a `tokenizer.json` adds to one text, or to a pair.
    pub fn added(&self, pair: bool) -> usize {
        let Tokenizer::Json(json) = self else { return 0 };
        json.tokenizer.get_post_processor().map_or(0, |processor| processor.added_tokens(pair))
    }

    /// The token that stands between two texts, where the tokenizer puts none there: one after all that it has.
    pub fn separator(&self) -> Option<u32> {
        (self.added(true) == 0).then(|| self.vocabulary() as u32)
    }

    /// The tokens of a passage, `longest` at most. A `tokenizer.json` adds the tokens that its model expects around texts, which are not cut. Of a pair
    /// the longer text is cut first, as transformers does with `truncation = "longest_first"`.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_whole(&self, passage: &Passage, longest: usize, called: &str) -> Result<Whole> {
        let mut whole = match (self, &passage.pair) {
            (Tokenizer::Json(json), pair) if self.added(pair.is_some()) > 0 => {
                let room = longest.saturating_sub(self.added(pair.is_some()));
                json.processed(passage, room).with_context(|| format!("{called} cannot be tokenized"))?
            }
            (_, None) => {
                let tokens = self.encode(&passage.text, called)?;
                Whole { pair_start: tokens.len(), cut: tokens.len() > longest, tokens }
            }
            (_, Some(pair)) => {
                let (mut tokens, mut second) = (self.encode(&passage.text, called)?, self.encode(pair, called)?);
                let before = tokens.len() + second.len();
                let [first_room, second_room] = rooms([tokens.len(), second.len()], longest.saturating_sub(1));
                tokens.truncate(first_room);
                second.truncate(second_room);
                let cut = tokens.len() + second.len() < before;
                tokens.extend(self.separator());
                let pair_start = tokens.len();
                tokens.extend(second);
                Whole { tokens, pair_start, cut }
            }
        };
        // Where a text has no more room than for what is added.
        whole.tokens.truncate(longest);
        whole.pair_start = whole.pair_start.min(longest);
        Ok(whole)
    }
}

/// The tokens of a passage, at most `longest`.
///
/// # Errors
/// A text, which `called` names, has a character without a token.
pub fn tokens_of(tokenizer: &Tokenizer, longest: usize, passage: &Passage, called: &str) -> Result<Whole> {
    let mut whole = tokenizer.encode_whole(passage, longest, called)?;
    // A text of no tokens would be a mean over nothing.
    if whole.tokens.is_empty() {
        whole.tokens.push(UNKNOWN_TOKEN);
    }
    // What is looked up stands at a position that there is.
    whole.pair_start = whole.pair_start.clamp(1, whole.tokens.len());
    Ok(whole)
}

/// The tokens of words, with those that a model expects around them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pieces {
    /// All of them.
    pub tokens: Vec<u32>,
    /// The number of the word that each is a piece of; `None`: it is none of a word.
    pub words: Vec<Option<u32>>,
    /// Whether there were more.
    pub cut: bool,
}

impl Pieces {
    /// Puts a token where there is none: a sample has at least one.
    pub fn fill(&mut self) {
        if self.tokens.is_empty() {
            self.tokens.push(UNKNOWN_TOKEN);
            self.words.push(None);
        }
    }

    /// The position of the first token of each of `words` words.
    pub fn firsts(&self, words: usize) -> Vec<Option<usize>> {
        let mut firsts = vec![None; words];
        for (at, word) in self.words.iter().enumerate() {
            let first = word.and_then(|word| firsts.get_mut(word as usize));
            first.into_iter().for_each(|first| _ = first.get_or_insert(at));
        }
        firsts
    }
}

impl Tokenizer {
    /// The tokens of words, `longest` at most: each word is cut into tokens by itself, as transformers does with `is_split_into_words = True`.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_words(&self, words: &[String], longest: usize, called: &str) -> Result<Pieces> {
        let mut pieces = match self {
            Tokenizer::Json(json) => {
                let room = longest.saturating_sub(self.added(false));
                json.pieces(words, room).with_context(|| format!("{called} cannot be tokenized"))?
            }
            _ => {
                let mut pieces = Pieces { tokens: Vec::new(), words: Vec::new(), cut: false };
                for (number, word) in (0..).zip(words) {
                    let tokens = self.encode(word, called)?;
                    pieces.words.resize(pieces.words.len() + tokens.len(), Some(number));
                    pieces.tokens.extend(tokens);
                }
                pieces.cut = pieces.tokens.len() > longest;
                pieces
            }
        };
        // Where words have no more room than for what is added.
        pieces.tokens.truncate(longest);
        pieces.words.truncate(longest);
        Ok(pieces)
    }
}

impl Json {
    /// The tokens of words with those around them; their own are cut to `room`.
    fn pieces(&self, words: &[String], room: usize) -> Result<Pieces> {
        contained(|| {
            // The faster way does not say of which word a token is.
            let mut encoding = self.tokenizer.encode(words, false).map_err(|e| anyhow!("{e}"))?;
            let cut = encoding.len() > room;
            if cut {
                encoding.truncate(room, 0, Right);
            }
            let whole = self.tokenizer.post_process(encoding, None, true).map_err(|e| anyhow!("{e}"))?;
            Ok(Pieces { tokens: whole.get_ids().to_vec(), words: whole.get_word_ids().to_vec(), cut })
        })
    }

    /// The tokens of a passage with those around it; its own are cut to `room`.
    fn processed(&self, passage: &Passage, room: usize) -> Result<Whole> {
        contained(|| {
            let encode = |text: &str| self.tokenizer.encode_fast(text, false).map_err(|e| anyhow!("{e}"));
            let mut first = encode(&passage.text)?;
            let mut second = passage.pair.as_deref().map(encode).transpose()?;
            // Some processors go by it.
            second.iter_mut().for_each(|second| second.set_type_ids(vec![1; second.len()]));
            let lengths = [first.len(), second.as_ref().map_or(0, Encoding::len)];
            let [first_room, second_room] = match second {
                Some(_) => rooms(lengths, room),
                None => [room, 0],
            };
            if lengths[0] > first_room {
                first.truncate(first_room, 0, Right);
            }
            if let Some(second) = second.as_mut().filter(|second| second.len() > second_room) {
                second.truncate(second_room, 0, Right);
            }
            let cut = lengths[0] > first_room || lengths[1] > second_room;
            let whole = self.tokenizer.post_process(first, second, true).map_err(|e| anyhow!("{e}"))?;
            let tokens = whole.get_ids().to_vec();
            let pair_start = whole.get_type_ids().iter().position(|id| *id > 0).unwrap_or(tokens.len());
            Ok(Whole { tokens, pair_start, cut })
        })
    }
}

/// How many tokens are left of two texts that have `room` together: the longer one is cut first. Where both are longer than half of it, each has a half, and the
/// longer one the odd token. This is what the crate `tokenizers` does.
fn rooms(lengths: [usize; 2], room: usize) -> [usize; 2] {
    let [shorter, longer] = [lengths[0].min(lengths[1]), lengths[0].max(lengths[1])];
    let (shorter, longer) = match shorter + longer > room {
        false => (shorter, longer),
        true if shorter <= room / 2 => (shorter, room - shorter),
        true => (room / 2, room / 2 + room % 2),
    };
    if lengths[0] > lengths[1] { [longer, shorter] } else { [shorter, longer] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokenizers::utils::truncation::{TruncationParams, TruncationStrategy, truncate_encodings};

    #[test]
    fn the_longer_text_is_cut_first() {
        let text = |tokens: usize| {
            Encoding::new(
                vec![7; tokens],
                vec![0; tokens],
                vec!["x".into(); tokens],
                vec![None; tokens],
                vec![(0, 1); tokens],
                vec![0; tokens],
                vec![1; tokens],
                Vec::new(),
                Default::default(),
            )
        };
        let strategy = TruncationStrategy::LongestFirst;
        for (a, b, room) in (0..9).flat_map(|a| (0..9).flat_map(move |b| (1..14).map(move |room| (a, b, room)))) {
            let params = TruncationParams { max_length: room, strategy, ..TruncationParams::default() };
            let (one, two) = truncate_encodings(text(a), Some(text(b)), &params).unwrap();
            assert_eq!(rooms([a, b], room), [one.len(), two.unwrap().len()], "{a} and {b} of {room}");
        }
    }

    #[test]
    fn words_know_their_first_token() {
        let words = ["ab", "", "c", "de"].map(str::to_owned);
        let pieces = Tokenizer::Bytes.encode_words(&words, 4, "it").unwrap();
        assert_eq!(pieces.words, [Some(0), Some(0), Some(2), Some(3)]);
        assert_eq!((pieces.cut, pieces.firsts(4)), (true, vec![Some(0), None, Some(2), Some(3)]));
        let mut none = Tokenizer::Bytes.encode_words(&[], 4, "it").unwrap();
        none.fill();
        assert_eq!((none.tokens, none.words), (vec![0], vec![None]));
    }

    #[test]
    fn a_token_of_its_own_stands_between_two_texts() {
        let pair = |text: &str, pair: &str| Passage { text: text.into(), pair: Some(pair.into()) };
        let whole = Tokenizer::Bytes.encode_whole(&pair("ab", "cde"), 9, "it").unwrap();
        assert_eq!(whole, Whole { tokens: vec![97, 98, 256, 99, 100, 101], pair_start: 3, cut: false });
        let whole = Tokenizer::Bytes.encode_whole(&pair("abcd", "efgh"), 6, "it").unwrap();
        assert_eq!(whole, Whole { tokens: vec![97, 98, 256, 101, 102, 103], pair_start: 3, cut: true });
        let whole = Tokenizer::Bytes.encode_whole(&pair("", ""), 6, "it").unwrap();
        assert_eq!(whole, Whole { tokens: vec![256], pair_start: 1, cut: false });
        let whole = Tokenizer::Bytes.encode_whole(&pair("a", "b"), 1, "it").unwrap();
        assert_eq!((whole.tokens, whole.pair_start), (vec![256], 1));
        let one = Tokenizer::Bytes.encode_whole(&Passage::from("abc".to_owned()), 2, "it").unwrap();
        assert_eq!(one, Whole { tokens: vec![97, 98], pair_start: 2, cut: true });
    }
}
