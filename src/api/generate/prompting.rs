//! From a prompt to its tokens, before there is a generator and with it.

use super::language_of;
use crate::api::failure::Failure;
use crate::api::model::Model;
use crate::data::text::prompt;

/// Tokens that a text has at most which goes on with one of some prompts, each with what errors call it. They are put into those that the model was trained on, unless they are
/// `raw`; `None`, if the model writes answers into a sequence of their own, or if nothing says how many tokens a prompt has.
///
/// # Errors
/// A prompt has a character that has no token; a file that the configuration names cannot be read.
pub fn longest<'a>(
    model: &Model,
    (texts, raw): (impl Iterator<Item = (&'a str, &'a str)>, bool),
    max_tokens: usize,
) -> Result<Option<usize>, Failure> {
    let Some((_, codec, _)) = language_of(model)?.filter(|(_, codec, _)| !codec.has_answers()) else { return Ok(None) };
    let ends = codec.ends();
    let prompts = codec.prompts_and_end().filter(|_| !raw);
    let Some(tokenizer) = &codec.tokenizer else { return Ok(None) };
    let mut longest = 0;
    for (text, called) in texts {
        let tokens = match &prompts {
            Some((prompts, end)) => prompts.tokens((tokenizer, *end), text, called)?,
            None => prompt(tokenizer, [&codec.begin, &ends], text, called)?,
        };
        longest = longest.max(tokens.len());
    }
    Ok(Some(longest + max_tokens))
}
