//! The token that ends texts of a model of Hugging Face's.

use crate::data::text::{Chat, ENDS, Tokenizer};
use anyhow::{Result, bail};
use serde_json::Value;

/// The name of the token that ends texts, where that would not be found without being named. `configs`: of these the first that has an `eos_token_id` counts. Of
/// several tokens the first is meant.
pub(super) fn end_token(configs: &[&Value], tokenizer: &Tokenizer, chat: Option<&Chat>) -> Result<Option<String>> {
    let named = configs.iter().find_map(|keys| keys.get("eos_token_id").filter(|end| !end.is_null()));
    let first = match named {
        Some(Value::Array(several)) => several.first(),
        one => one,
    };
    let number = match first {
        Some(Value::Number(number)) => number.as_u64().and_then(|number| u32::try_from(number).ok()),
        Some(other) => bail!("`eos_token_id` has {other}, and a number is expected, or a list of them"),
        None => None,
    };
    // Small models are made with the numbers of large ones, which their tokenizers do not have.
    let Some(name) = number.and_then(|number| tokenizer.piece(number)) else { return Ok(None) };
    let is_known = ENDS.contains(&name.as_str()) || chat.is_some_and(|chat| chat.end() == name);
    Ok(Some(name).filter(|_| !is_known))
}
