//! Tokens as text while they come.

use super::Tokenizer;
use anyhow::Result;

/// What stands for bytes that make no character.
const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;
/// How many of the last tokens are looked at for what stands before the next. A character has four bytes at most, and some tokenizers need the token before.
const KEPT: usize = 8;

/// Turns tokens into text as they come: a character is handed out when all of its bytes are there. All pieces together are the text of all tokens.
pub struct Decoder {
    tokenizer: Tokenizer,
    /// The last tokens.
    tokens: Vec<u32>,
    /// The text of those, as far as it is out.
    out: String,
}

impl Decoder {
    /// Nothing has come yet.
    pub fn new(tokenizer: Tokenizer) -> Self {
        Decoder { tokenizer, tokens: Vec::new(), out: String::new() }
    }

    /// The text that one more token completes; empty, if a character is not complete.
    ///
    /// # Errors
    /// There is no such token.
    pub fn push(&mut self, token: u32) -> Result<String> {
        self.tokens.push(token);
        let certain = self.certain()?;
        let new = self.take(certain);
        if self.tokens.len() == 2 * KEPT {
            self.tokens.drain(..KEPT);
            self.out = self.certain()?;
        }
        Ok(new)
    }

    /// What is left, though a character is not complete.
    ///
    /// # Errors
    /// As [`Decoder::push`].
    pub fn finish(&mut self) -> Result<String> {
        let all = self.tokenizer.decode(&self.tokens)?;
        Ok(self.take(all))
    }

    /// The text that no later token changes. Bytes that make no character may be the beginning of one, if they are the last; those before them are not.
    fn certain(&self) -> Result<String> {
        let mut text = self.tokenizer.decode(&self.tokens)?;
        if text.ends_with(REPLACEMENT) {
            text.pop();
        }
        Ok(text)
    }

    /// What is new in a text.
    fn take(&mut self, text: String) -> String {
        // A rule of a `tokenizer.json` may change what is out already: that stays as it was.
        let same = self.out.char_indices().zip(text.chars()).find(|((_, before), now)| before != now);
        let from = same.map_or(self.out.len().min(text.len()), |((at, _), _)| at);
        let new = text[from..].to_owned();
        self.out = text;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::text::Choice;
    use crate::random::{Purpose, Stream};
    use serde_json::{Map, Value, json};
    use std::path::Path;

    /// What Llama's tokenizer is like: spaces as `▁`, and bytes for what has no token.
    fn fallback() -> Tokenizer {
        let bytes = (0..=255).map(|byte| format!("<0x{byte:02X}>"));
        let all = ["<unk>".to_owned()].into_iter().chain(bytes).chain(["▁", "a", "▁a", "\u{fffd}"].map(String::from));
        let vocabulary: Map<String, Value> = all.zip(0..).map(|(token, number)| (token, json!(number))).collect();
        let decoders = json!([{ "type": "Replace", "pattern": { "String": "▁" }, "content": " " }, { "type": "ByteFallback" }, { "type": "Fuse" },
            { "type": "Strip", "content": " ", "start": 1, "stop": 0 }]);
        let file = json!({ "version": "1.0", "added_tokens": [{ "id": 0, "content": "<unk>", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true }], "normalizer": { "type": "Sequence", "normalizers": [{ "type": "Prepend", "prepend": "▁" },
            { "type": "Replace", "pattern": { "String": " " }, "content": "▁" }] }, "pre_tokenizer": null, "post_processor": null,
            "decoder": { "type": "Sequence", "decoders": decoders },
            "model": { "type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true, "vocab": vocabulary, "merges": ["▁ a"] } });
        Tokenizer::of_json(file.to_string()).unwrap()
    }

    /// All pieces of a text that comes token by token. After each token all is out but a last U+FFFD, which may be the beginning of a character.
    fn streamed(tokenizer: &Tokenizer, tokens: &[u32]) -> String {
        let (mut decoder, mut out) = (Decoder::new(tokenizer.clone()), String::new());
        for (at, token) in tokens.iter().enumerate() {
            out += &decoder.push(*token).unwrap();
            let whole = tokenizer.decode(&tokens[..=at]).unwrap();
            assert_eq!(out, whole.strip_suffix(REPLACEMENT).unwrap_or(&whole), "{:?}", &tokens[..=at]);
        }
        out + &decoder.finish().unwrap()
    }

    #[test]
    fn bytes_that_make_no_character_do_not_take_others_with_them() {
        // As Python's `bytes.decode("utf-8", "replace")` has them.
        for (bytes, text) in [
            (&[0x99, 0x82, 0xC2, 0xC2, 0xA0][..], "\u{fffd}\u{fffd}\u{fffd}\u{a0}"),
            (&[0xF0, 0x9F, 0x98, b'a', 0xF0, 0x9F, 0x98, 0x80], "\u{fffd}a😀"),
            (&[0xE2, 0x82, 0xE2, 0x82, 0xAC, 0xE2, 0x82], "\u{fffd}€\u{fffd}"),
            (&[0xC0, 0xAF, 0xED, 0xA0, 0x80, b'b'], "\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}b"),
        ] {
            let own: Vec<u32> = bytes.iter().copied().map(u32::from).collect();
            assert_eq!(streamed(&Tokenizer::Bytes, &own), text);
            let own: Vec<u32> = own.into_iter().map(|byte| byte + 1).collect();
            assert_eq!(streamed(&fallback(), &own), text);
        }
        // A space that begins a text is one that the tokenizer has put there; and characters of valid bytes are as ever.
        let text = " a—a 名a";
        assert_eq!(streamed(&fallback(), &fallback().encode(text, "").unwrap()), text);
    }

    #[test]
    fn pieces_are_the_text_of_all_tokens() {
        let texts = ["naïve 😀 — so it is, — naïve 😀 名前 it is €. 名前 is it 😀"];
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        let golden = |name: &str| Tokenizer::read(&folder.join(name)).unwrap();
        let tokenizers = [
            Tokenizer::Bytes,
            fallback(),
            Tokenizer::choose(&Choice::Bpe(300), &texts).unwrap(),
            Tokenizer::choose(&Choice::Characters, &texts).unwrap(),
            Tokenizer::choose(&Choice::Words(50), &texts).unwrap(),
            golden("text_classifiers/bert/tokenizer.json"),
            golden("language_models/llama/tokenizer.json"),
        ];
        let mut draws = Stream::new(1, Purpose::Synthetic, 0, 0);
        for (number, tokenizer) in tokenizers.iter().enumerate() {
            let most = tokenizer.vocabulary() as u32;
            for round in 0..300 {
                // Bytes that begin characters and go on with them stand beside each other often.
                let bytes = [0xf0, 0x9f, 0x98, 0x80, 0xe2, 0x82, 0xac, 0xc2, b'a'];
                let mut next = |_| match (number, round % 3) {
                    (0 | 1, 0 | 1) => u32::from(bytes[draws.below(bytes.len() as u32) as usize]) + number as u32,
                    _ => draws.below(most),
                };
                let tokens: Vec<u32> = (0..60).map(&mut next).collect();
                let text = streamed(tokenizer, &tokens);
                assert_eq!(text, tokenizer.decode(&tokens).unwrap(), "{tokens:?}");
                if number == 0 {
                    let bytes: Vec<u8> = tokens.iter().map(|token| *token as u8).collect();
                    assert_eq!(text, String::from_utf8_lossy(&bytes));
                }
            }
        }
    }
}
