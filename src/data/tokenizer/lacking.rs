//! What a file that is no `tokenizer.json` lacks: the reader of the crate fails somewhere in its middle.

use anyhow::{Error, anyhow};
use serde_json::Value;

/// What a `tokenizer.json` consists of.
const PARTS: [&str; 9] = [
    "version",
    "truncation",
    "padding",
    "added_tokens",
    "normalizer",
    "pre_tokenizer",
    "post_processor",
    "decoder",
    "model",
];

/// What a text that is no `tokenizer.json` lacks, where that can be said better than by the reader, which fails somewhere in its middle.
pub fn lacking(text: &str) -> Option<Error> {
    let keys = match serde_json::from_str(text) {
        Err(error) => return Some(anyhow!("it is no JSON: {error}")),
        Ok(Value::Object(keys)) => keys,
        Ok(_) => return Some(anyhow!("it is JSON, and no object")),
    };
    if !keys.get("model").is_some_and(Value::is_object) {
        return Some(anyhow!("it has no `model`, which says what the tokens are"));
    }
    let unknown = keys.keys().find(|key| !PARTS.contains(&key.as_str()))?;
    Some(anyhow!("it has `{unknown}`, which no `tokenizer.json` has"))
}
