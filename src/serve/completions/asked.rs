//! What a request of OpenAI's interface asks for: <https://platform.openai.com/docs/api-reference/completions/create> and
//! <https://platform.openai.com/docs/api-reference/chat/create>. What is not done here is refused, unless it is asked for what is done anyway.

use super::super::reader::Limits;
use super::super::refusal::Refusal;
use crate::api::generate::Sampling;
use crate::data::text::Message;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value, json};
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::RangeInclusive;

/// Tokens that are generated where a request does not say how many.
const TOKENS: usize = 16;
/// Most texts that may end another.
const STOPS: usize = 16;
/// Longest piece of a client's word in an error, in characters.
const SHOWN: usize = 40;

/// A text to go on with.
#[derive(Debug, Clone, PartialEq)]
pub enum Prompt {
    /// As it is.
    Text(String),
    /// As tokens.
    Tokens(Vec<u32>),
}

/// What is to be gone on with.
#[derive(Debug, Clone, PartialEq)]
pub enum Given {
    /// Texts.
    Prompts(Vec<Prompt>),
    /// A conversation.
    Messages(Vec<Message>),
}

impl Given {
    /// How many there are.
    fn len(&self) -> usize {
        match self {
            Given::Prompts(prompts) => prompts.len(),
            Given::Messages(_) => 1,
        }
    }
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// What to go on with.
    pub given: Given,
    /// How many answers each gets.
    pub n: usize,
    /// How many tokens are generated at most; `None`: as many as the model still sees all of.
    pub max_tokens: Option<usize>,
    /// How they are drawn.
    pub sampling: Sampling,
    /// Texts that end a text.
    pub stop: Vec<String>,
    /// The prompt is a part of the answer.
    pub echo: bool,
    /// Pieces are sent as they come.
    pub stream: bool,
    /// How many tokens there were is sent after them.
    pub usage: bool,
}

/// An object of JSON, and the first of its keys that is there twice.
struct Object {
    keys: Map<String, Value>,
    twice: Option<String>,
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let (mut keys, mut twice) = (Map::new(), None);
                while let Some((key, value)) = map.next_entry::<String, Value>()? {
                    if keys.insert(key.clone(), value).is_some() {
                        twice.get_or_insert(key);
                    }
                }
                Ok(Object { keys, twice })
            }
        }
        deserializer.deserialize_any(Keys)
    }
}

/// Keys of a request that are not taken yet.
pub struct Keys(Map<String, Value>);

impl Keys {
    /// Of a body.
    ///
    /// # Errors
    /// It is no JSON object, or has a key twice.
    pub fn read(body: &[u8]) -> Result<Keys, Refusal> {
        match serde_json::from_slice(body) {
            Ok(Object { twice: Some(key), .. }) => {
                let key: String = key.chars().take(SHOWN).collect();
                Err(Refusal::bad(format!("the key `{key}` is there twice")).about(key))
            }
            // A key that is null is as good as not there.
            Ok(Object { keys, .. }) => Ok(Keys(keys.into_iter().filter(|(_, value)| !value.is_null()).collect())),
            Err(error) if error.is_data() => Err(Refusal::bad("the body is no object")),
            Err(error) => Err(Refusal::bad(format!("the body is no JSON: {error}"))),
        }
    }

    fn take(&mut self, key: &str) -> Option<Value> {
        self.0.remove(key)
    }

    /// The name of the model.
    ///
    /// # Errors
    /// It is no text.
    pub fn model(&mut self) -> Result<Option<String>, Refusal> {
        match self.take("model") {
            None => Ok(None),
            Some(Value::String(name)) => Ok(Some(name)),
            Some(_) => Err(wrong("model", "a text")),
        }
    }

    fn flag(&mut self, key: &str) -> Result<bool, Refusal> {
        match self.take(key) {
            None => Ok(false),
            Some(value) => value.as_bool().ok_or_else(|| wrong(key, "true or false")),
        }
    }

    fn number(&mut self, key: &str, range: RangeInclusive<f64>) -> Result<Option<f32>, Refusal> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let number = value.as_f64().filter(|number| range.contains(number));
        let expected = || match range.end() {
            end if *end < f64::from(f32::MAX) => format!("a number from {} to {end}", range.start()),
            // The largest number of single precision.
            _ => format!("a number from {} to 3.4e38", range.start()),
        };
        number.map(|number| Some(number as f32)).ok_or_else(|| wrong(key, &expected()))
    }

    fn whole(&mut self, key: &str, least: u64) -> Result<Option<usize>, Refusal> {
        let Some(value) = self.take(key) else { return Ok(None) };
        // `1.0` is whole, too. Larger numbers than these are no whole ones any more.
        let written = || value.as_f64().filter(|n| n.fract() == 0.0 && (0.0..9e15).contains(n)).map(|n| n as u64);
        let number = value.as_u64().or_else(written).filter(|number| *number >= least);
        let number = number.and_then(|number| usize::try_from(number).ok());
        number.map(Some).ok_or_else(|| wrong(key, &format!("a whole number from {least} up")))
    }

    fn stop(&mut self) -> Result<Vec<String>, Refusal> {
        let texts = match self.take("stop") {
            None => return Ok(Vec::new()),
            Some(Value::Array(texts)) => texts,
            Some(text) => vec![text],
        };
        let text = |value: Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let texts: Option<Vec<String>> = texts.into_iter().map(text).collect();
        let expected = format!("a text, or a list of at most {STOPS} texts, none of them empty");
        texts.filter(|texts| texts.len() <= STOPS).ok_or_else(|| wrong("stop", &expected))
    }

    fn sampling(&mut self) -> Result<Sampling, Refusal> {
        let usual = Sampling::default();
        let seed = match self.take("seed") {
            // Another one each time.
            None => RandomState::new().build_hasher().finish(),
            Some(value) => {
                let number = value.as_u64().or_else(|| value.as_i64().map(i64::cast_unsigned));
                number.ok_or_else(|| wrong("seed", "a whole number of 64 bits"))?
            }
        };
        let penalty = self.number("repetition_penalty", 0.0..=f64::from(f32::MAX))?;
        if penalty == Some(0.0) {
            return Err(wrong("repetition_penalty", "a number above 0"));
        }
        Ok(Sampling {
            temperature: self.number("temperature", 0.0..=f64::from(f32::MAX))?.unwrap_or(usual.temperature),
            top_k: self.whole("top_k", 1)?,
            top_p: self.number("top_p", 0.0..=1.0)?.unwrap_or(usual.top_p),
            min_p: self.number("min_p", 0.0..=1.0)?.unwrap_or(usual.min_p),
            repetition_penalty: penalty.unwrap_or(usual.repetition_penalty),
            seed,
        })
    }

    fn stream(&mut self) -> Result<(bool, bool), Refusal> {
        let stream = self.flag("stream")?;
        let Some(options) = self.take("stream_options") else { return Ok((stream, false)) };
        let refused = || wrong("stream_options", "{\"include_usage\": true or false}, and takes `stream`");
        let Value::Object(options) = options else { return Err(refused()) };
        let mut options = Keys(options.into_iter().filter(|(_, value)| !value.is_null()).collect());
        let usage = options.flag("include_usage").map_err(|_| refused())?;
        // Bytes that hide how long pieces are.
        let hidden = options.flag("include_obfuscation").map_err(|_| refused())?;
        if !stream || hidden || !options.0.is_empty() {
            return Err(refused());
        }
        Ok((stream, usage))
    }

    /// What both kinds of requests have.
    fn common(&mut self, given: Given, limits: &Limits) -> Result<Asked, Refusal> {
        let n = self.whole("n", 1)?.unwrap_or(1);
        let (prompts, most_texts) = (given.len(), limits.rows);
        if prompts.saturating_mul(n) > most_texts {
            let reason = match n {
                1 => format!("there are {prompts} prompts, and a request may have {most_texts} (--max-rows)"),
                _ => format!(
                    "{n} answers to {prompts} prompts are asked for, and a request may have {most_texts} (--max-rows)"
                ),
            };
            return Err(Refusal::too_large(reason).about(if n == 1 { "prompt" } else { "n" }));
        }
        let sampling = self.sampling()?;
        let stop = self.stop()?;
        let (stream, usage) = self.stream()?;
        let max_tokens = most(self, limits)?;
        Ok(Asked { given, n, max_tokens, sampling, stop, echo: false, stream, usage })
    }

    fn prompts(&mut self) -> Result<Vec<Prompt>, Refusal> {
        let expected = "a text, a list of texts, a list of tokens, or a list of such lists";
        let refused = || wrong("prompt", expected);
        Ok(match self.take("prompt") {
            // The beginning of a new text.
            None => vec![Prompt::Text(String::new())],
            Some(Value::String(text)) => vec![Prompt::Text(text)],
            Some(Value::Array(list)) if list.first().is_some_and(Value::is_number) => {
                vec![Prompt::Tokens(tokens(&list).ok_or_else(refused)?)]
            }
            Some(Value::Array(list)) if !list.is_empty() => {
                let one = |value: Value| match value {
                    Value::String(text) => Some(Prompt::Text(text)),
                    Value::Array(list) if !list.is_empty() => tokens(&list).map(Prompt::Tokens),
                    _ => None,
                };
                list.into_iter().map(one).collect::<Option<_>>().ok_or_else(refused)?
            }
            Some(_) => return Err(refused()),
        })
    }

    fn messages(&mut self) -> Result<Vec<Message>, Refusal> {
        let list = match self.take("messages") {
            Some(Value::Array(list)) if !list.is_empty() => list,
            Some(_) => return Err(wrong("messages", "a list of messages: [{\"role\": \"user\", \"content\": \"…\"}]")),
            None => return Err(Refusal::bad("there is no `messages`").about("messages")),
        };
        let read = |(number, value): (usize, Value)| {
            let key = format!("messages[{number}]");
            let Value::Object(keys) = value else { return Err(wrong(&key, "an object with `role` and `content`")) };
            let mut keys = Keys(keys.into_iter().filter(|(_, value)| !value.is_null()).collect());
            let Some(Value::String(role)) = keys.take("role") else {
                return Err(wrong(&format!("{key}.role"), "a text: `system`, `user` or `assistant`"));
            };
            let content = match keys.take("content") {
                Some(Value::String(text)) => Some(text),
                Some(Value::Array(parts)) => parts.into_iter().map(text_of_part).collect(),
                _ => None,
            };
            let content =
                content.ok_or_else(|| wrong(&format!("{key}.content"), "a text, or a list of parts of text"))?;
            let name = match keys.take("name") {
                Some(Value::String(name)) => Some(name),
                Some(_) => return Err(wrong(&format!("{key}.name"), "a text")),
                None => None,
            };
            match keys.0.keys().next() {
                Some(other) => {
                    let other: String = other.chars().take(SHOWN).collect();
                    let reason =
                        format!("`{other}` of a message is not done here: it has `role`, `content` and `name`");
                    Err(Refusal::bad(reason).about(key).coded("unsupported_parameter"))
                }
                None => Ok(Message { role, content, name }),
            }
        };
        list.into_iter().enumerate().map(read).collect()
    }

    /// Refuses whatever is left, unless it asks for what is done anyway.
    fn end(self, neutral: &dyn Fn(&str) -> Option<Vec<Value>>) -> Result<(), Refusal> {
        for (key, value) in self.0 {
            let shown: String = key.chars().take(SHOWN).collect();
            match neutral(&key) {
                _ if LABELS.contains(&key.as_str()) => {}
                None => return Err(Refusal::bad(format!("there is no key `{shown}`")).about(shown)),
                Some(neutral) if neutral.iter().any(|neutral| same(neutral, &value)) => {}
                Some(neutral) => {
                    let reason = match neutral.first() {
                        Some(neutral) => format!("`{key}` is not done here: leave it out, or set it to {neutral}"),
                        None => format!("`{key}` is not done here: leave it out"),
                    };
                    return Err(Refusal::bad(reason).about(key).coded("unsupported_parameter"));
                }
            }
        }
        Ok(())
    }
}

/// Keys that label a request for accounting, and change no answer.
const LABELS: [&str; 4] = ["user", "metadata", "safety_identifier", "prompt_cache_key"];

/// What keys of `/v1/completions` that are not done here may be.
fn neutral(key: &str) -> Option<Vec<Value>> {
    Some(match key {
        "frequency_penalty" | "presence_penalty" => vec![json!(0)],
        "logit_bias" => vec![json!({})],
        "suffix" => vec![json!("")],
        "logprobs" => vec![],
        _ => return None,
    })
}

/// The same of `/v1/chat/completions`.
fn neutral_of_chat(key: &str) -> Option<Vec<Value>> {
    Some(match key {
        "frequency_penalty" | "presence_penalty" | "top_logprobs" => vec![json!(0)],
        "logit_bias" => vec![json!({})],
        "logprobs" | "store" => vec![json!(false)],
        "tools" | "functions" => vec![json!([])],
        "tool_choice" => vec![json!("none"), json!("auto")],
        "function_call" => vec![json!("none"), json!("auto")],
        "parallel_tool_calls" => vec![json!(true), json!(false)],
        "response_format" => vec![json!({ "type": "text" })],
        "modalities" => vec![json!(["text"])],
        "service_tier" => vec![json!("auto"), json!("default")],
        "reasoning_effort" => vec![json!("none")],
        "audio" | "prediction" | "verbosity" | "web_search_options" => vec![],
        _ => return None,
    })
}

/// A part of a message, if it is text.
fn text_of_part(part: Value) -> Option<String> {
    let Value::Object(mut part) = part else { return None };
    let is_text = part.get("type").is_some_and(|kind| kind == "text");
    match part.remove("text") {
        Some(Value::String(text)) if is_text => Some(text),
        _ => None,
    }
}

impl Asked {
    /// Of `/v1/chat/completions`.
    ///
    /// # Errors
    /// As [`Asked::completions`].
    pub fn chat(mut keys: Keys, limits: &Limits) -> Result<Asked, Refusal> {
        let given = Given::Messages(keys.messages()?);
        let asked = keys.common(given, limits)?;
        keys.end(&neutral_of_chat)?;
        Ok(asked)
    }

    /// Of `/v1/completions`.
    ///
    /// # Errors
    /// A key has a value that it cannot have, or asks for what is not done here.
    pub fn completions(mut keys: Keys, limits: &Limits) -> Result<Asked, Refusal> {
        let given = Given::Prompts(keys.prompts()?);
        let echo = keys.flag("echo")?;
        let asked = keys.common(given, limits)?;
        // So many are written, of which the best `n` are wanted.
        keys.end(&|key| if key == "best_of" { Some(vec![json!(asked.n)]) } else { neutral(key) })?;
        let max_tokens = asked.max_tokens.or(Some(TOKENS.min(limits.tokens)));
        Ok(Asked { echo, max_tokens, ..asked })
    }
}

/// How many tokens are wanted at most.
fn most(keys: &mut Keys, limits: &Limits) -> Result<Option<usize>, Refusal> {
    let mut wanted = None;
    for key in ["max_tokens", "max_completion_tokens"] {
        let Some(tokens) = keys.whole(key, 0)? else { continue };
        if tokens > limits.tokens {
            let reason =
                format!("{tokens} tokens are too many: a request may ask for {} (--max-tokens)", limits.tokens);
            return Err(Refusal::too_large(reason).about(key));
        }
        wanted = Some(wanted.map_or(tokens, |other: usize| other.min(tokens)));
    }
    Ok(wanted)
}

fn tokens(list: &[Value]) -> Option<Vec<u32>> {
    list.iter().map(|token| token.as_u64().and_then(|token| u32::try_from(token).ok())).collect()
}

/// Whether a value is this one: numbers by their value.
fn same(neutral: &Value, value: &Value) -> bool {
    neutral == value || neutral.as_f64().is_some_and(|number| value.as_f64() == Some(number))
}

fn wrong(key: &str, expected: &str) -> Refusal {
    Refusal::bad(format!("`{key}` is {expected}")).about(key)
}

#[cfg(test)]
mod tests;
