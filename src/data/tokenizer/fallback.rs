//! Tokens that are bytes, as `<0x0A>`: SentencePiece writes characters so that have no token.
//!
//! The crate makes as many U+FFFD of bytes side by side as they are, if one of them makes no character. So valid characters would be lost, and what has been
//! handed out already would become another text with the next token. Here the others stay what they are.

use anyhow::{Context, Result, anyhow};
use serde_json::Value;
use tokenizers::{Decoder, Tokenizer};

/// Whether a `tokenizer.json` has such tokens become text.
pub fn has_bytes(json: &str) -> bool {
    serde_json::from_str::<Value>(json).is_ok_and(|file| reads_bytes(&file["decoder"]))
}

fn reads_bytes(decoder: &Value) -> bool {
    let all = decoder["decoders"].as_array().map_or(&[][..], Vec::as_slice);
    decoder["type"] == "ByteFallback" || all.iter().any(reads_bytes)
}

/// The text of tokens.
pub fn decode(tokenizer: &Tokenizer, tokens: &[u32]) -> Result<String> {
    let decoder = tokenizer.get_decoder().context("the tokenizer has no decoder")?;
    let (mut pieces, mut bytes) = (Vec::new(), Vec::new());
    for piece in tokens.iter().filter_map(|token| tokenizer.id_to_token(*token)) {
        if let Some(byte) = byte(&piece) {
            bytes.push(byte);
        } else {
            put(&mut bytes, &mut pieces);
            pieces.push(piece);
        }
    }
    put(&mut bytes, &mut pieces);
    decoder.decode(pieces).map_err(|e| anyhow!("{e}"))
}

/// The byte that a token is.
fn byte(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    u8::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 2)
}

/// Adds bytes side by side as tokens: those of characters as they were, and U+FFFD for each part that makes none.
fn put(bytes: &mut Vec<u8>, pieces: &mut Vec<String>) {
    for chunk in bytes.utf8_chunks() {
        pieces.extend(chunk.valid().bytes().map(|byte| format!("<0x{byte:02X}>")));
        pieces.extend((!chunk.invalid().is_empty()).then(|| char::REPLACEMENT_CHARACTER.to_string()));
    }
    bytes.clear();
}
