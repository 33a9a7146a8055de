//! From a text to what a model goes on with, and from that and an answer to the tokens that it learns.

use super::super::tokenizer::Tokenizer;
use super::chat::{Chat, Message};
use anyhow::{Context, Result, ensure};

/// Where the text stands in a template.
const PLACE: &str = "{text}";

/// Tokens that end what a language model writes, where the tokenizer has one of these names.
pub const ENDS: [&str; 10] = [
    "<|endoftext|>",
    "</s>",
    "<eos>",
    "<|im_end|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<｜end▁of▁sentence｜>",
    "<|end|>",
];

/// The tokens of a prompt after `begin`, those that texts begin with. Of one without a text: `begin` alone, or the first of `ends`, the tokens that end texts, or a new line.
///
/// # Errors
/// It has a character that has no token, which `called` names.
pub fn prompt(tokenizer: &Tokenizer, [begin, ends]: [&[u32]; 2], text: &str, called: &str) -> Result<Vec<u32>> {
    if !text.is_empty() {
        return Ok(begun(begin, tokenizer.encode(text, called)?));
    }
    let end = Some(begin).filter(|begin| !begin.is_empty()).or(ends.get(..1)).map(<[u32]>::to_vec);
    Ok(end.or_else(|| tokenizer.encode("\n", "").ok().filter(|tokens| !tokens.is_empty())).unwrap_or(vec![0]))
}

/// `tokens` behind `begin`, unless they begin like that already: a text may have its first token in words.
fn begun(begin: &[u32], tokens: Vec<u32>) -> Vec<u32> {
    if tokens.starts_with(begin) { tokens } else { [begin, &tokens].concat() }
}

/// What stands around texts that a model answers, which it was trained on.
#[derive(Debug, Clone, PartialEq)]
pub struct Prompts {
    /// A text that has the other one at `{text}`.
    pub template: Option<String>,
    /// A template for conversations in its place.
    pub chat: Option<Chat>,
    /// What these begin with.
    pub system: Option<String>,
    /// The tokens that texts begin with. A template for conversations writes them itself.
    pub begin: Vec<u32>,
}

impl Prompts {
    /// The prompt of a text.
    ///
    /// # Errors
    /// The template for conversations does not take it.
    pub fn text(&self, text: &str) -> Result<String> {
        self.around(text, Chat::render)
    }

    fn around(&self, text: &str, render: fn(&Chat, &[Message]) -> Result<String>) -> Result<String> {
        match (&self.template, &self.chat) {
            (Some(template), _) => Ok(template.replacen(PLACE, text, 1)),
            (None, Some(chat)) => render(chat, &self.conversation(said("user", text))),
            (None, None) => Ok(text.to_owned()),
        }
    }

    /// The prompt of a text, and what goes on with it where the model gives this answer.
    ///
    /// # Errors
    /// The template for conversations does not take them, or writes a conversation in another way as soon as it is answered.
    pub fn pair(&self, text: &str, answer: &str) -> Result<[String; 2]> {
        let prompt = self.around(text, |chat, messages| chat.learnt(messages, true))?;
        let chat = self.chat.as_ref().filter(|_| self.template.is_none());
        let Some(chat) = chat else { return Ok([prompt, answer.to_owned()]) };
        let mut messages = self.conversation(said("user", text));
        messages.push(said("assistant", answer));
        let whole = chat.learnt(&messages, false)?;
        let rest = whole.strip_prefix(&prompt).context(
            "the chat template writes what is before an answer in another way once there is one, so that its prompt cannot be told: \
             write `template` in its place",
        )?;
        let rest = rest.to_owned();
        Ok([prompt, rest])
    }

    /// The conversation with what it begins with, unless it has that already.
    pub fn beginning(&self, messages: Vec<Message>) -> Vec<Message> {
        let has = messages.first().is_some_and(|first| first.role == "system");
        let system = self.system.iter().filter(|_| !has).map(|text| said("system", text));
        system.chain(messages).collect()
    }

    /// Bytes of text that stand around another one, about: those of the templates.
    pub fn bytes(&self) -> usize {
        let chat = self.chat.as_ref().filter(|_| self.template.is_none()).map_or(0, Chat::bytes);
        self.template.iter().chain(&self.system).map(String::len).sum::<usize>() + chat
    }

    fn conversation(&self, first: Message) -> Vec<Message> {
        self.beginning(vec![first])
    }

    /// The tokens of the prompt of a text. There is one at least, as what goes on has to go on from something: `end`, the token that ends answers.
    ///
    /// # Errors
    /// As [`Prompts::text`]; it has a character without a token, which `called` names.
    pub fn tokens(&self, (tokenizer, end): (&Tokenizer, u32), text: &str, called: &str) -> Result<Vec<u32>> {
        let prompt = self.text(text).with_context(|| called.to_owned())?;
        of_own(tokenizer, [&prompt, text], called, &|| self.of_prompt((tokenizer, end), &prompt, called))
    }

    fn of_prompt(&self, (tokenizer, end): (&Tokenizer, u32), prompt: &str, called: &str) -> Result<Vec<u32>> {
        let tokens = tokenizer.encode(prompt, called)?;
        let tokens = if self.is_conversation() { tokens } else { begun(&self.begin, tokens) };
        Ok(if tokens.is_empty() { vec![end] } else { tokens })
    }

    fn is_conversation(&self) -> bool {
        self.template.is_none() && self.chat.is_some()
    }

    /// The tokens of a text's prompt, and those of an answer with the one that ends it, `end`.
    ///
    /// # Errors
    /// As [`Prompts::pair`]; one of them has a character without a token.
    pub fn pair_of_tokens(
        &self,
        (tokenizer, end): (&Tokenizer, u32),
        [text, answer]: [&str; 2],
        called: &str,
    ) -> Result<[Vec<u32>; 2]> {
        let [prompt, rest] = self.pair(text, answer).with_context(|| called.to_owned())?;
        let [of_text, of_answer] = ["text", "answer"].map(|what| format!("{called}, the {what}"));
        let prompt =
            of_own(tokenizer, [&prompt, text], &of_text, &|| self.of_prompt((tokenizer, end), &prompt, &of_text))?;
        let mut rest = of_own(tokenizer, [&rest, answer], &of_answer, &|| tokenizer.encode(&rest, &of_answer))?;
        // A template for conversations may write it itself, and something after it that is never come to.
        match rest.iter().rposition(|token| *token == end).filter(|_| self.chat.is_some()) {
            Some(at) => rest.truncate(at + 1),
            None => rest.push(end),
        }
        Ok([prompt, rest])
    }

    /// The token that ends answers: `named`, or the one that the template for conversations writes behind `answered`, or the first that ends texts in the tokenizer, or one
    /// of its own after all others.
    ///
    /// # Errors
    /// The tokenizer does not have the one that is named.
    pub fn end(&self, tokenizer: &Tokenizer, named: Option<&str>, answered: [&str; 2]) -> Result<u32> {
        if let Some(name) = named {
            return tokenizer
                .token(name)
                .with_context(|| format!("the tokenizer has no token `{name}`, which `end_token` names"));
        }
        let own = self.chat.as_ref().map(Chat::end).filter(|end| !end.is_empty());
        let known: Vec<u32> = own.into_iter().chain(ENDS).filter_map(|name| tokenizer.token(name)).collect();
        let mut written = None;
        if self.chat.is_some() && !known.is_empty() {
            let [_, rest] = self.pair(answered[0], answered[1])?;
            let tokens = tokenizer.encode(&rest, "the first answer")?;
            written = tokens.into_iter().rev().find(|token| known.contains(token));
        }
        Ok(written.or_else(|| known.first().copied()).unwrap_or(tokenizer.vocabulary() as u32))
    }
}

/// The tokens of what a template makes of a user's text. The error about a character without a token gives its place in that text.
fn of_own(
    tokenizer: &Tokenizer,
    [made, own]: [&str; 2],
    called: &str,
    encode: &dyn Fn() -> Result<Vec<u32>>,
) -> Result<Vec<u32>> {
    let tokens = encode();
    if tokens.is_err() && made != own {
        tokenizer.encode(own, called)?;
    }
    tokens
}

fn said(role: &str, content: &str) -> Message {
    Message::new(role, content)
}

/// Joins a prompt and its answer to at most `longest + 1` tokens: the model is given all but the last, and learns all but the first. A prompt is cut at its beginning, so that the
/// answer stays. An answer that is too long by itself is cut at its end. Returns the tokens, how many of them are the prompt, and whether the prompt and the answer were cut.
pub fn fitted([prompt, mut answer]: [Vec<u32>; 2], longest: usize) -> (Vec<u32>, usize, [bool; 2]) {
    let cut_answer = answer.len() > longest;
    // One that is cut does not end there.
    answer.truncate(longest);
    let room = longest + 1 - answer.len();
    let first = prompt.len().saturating_sub(room);
    let kept = prompt.len() - first;
    (prompt.into_iter().skip(first).chain(answer).collect(), kept, [first > 0, cut_answer])
}

/// Divides a sample into its prompt and its answer. `given`: the tokens that the model is given. `targets`: the tokens that it learns, with `ignored` where no token counts.
///
/// # Errors
/// No target counts.
pub fn parted<'a>(given: &'a [u32], targets: &'a [u32], ignored: u32) -> Result<(&'a [u32], &'a [u32])> {
    let first = targets.iter().position(|token| *token != ignored).filter(|first| *first < given.len());
    ensure!(first.is_some(), "a sample has nothing to be told");
    let first = first.unwrap_or_default();
    Ok((&given[..=first], &targets[first..given.len().min(targets.len())]))
}
