//! The body `{"instances": […]}`: rows as objects or lists, texts, tensors as nested lists, several tensors as objects. What is made of an instance is made while the
//! text is read, so that the text becomes no tree.

mod rows;
mod tensors;

use super::reader::{READING, READING_TEXTS, Reader};
use super::refusal::Refusal;
use super::samples::{Names, Samples, looked_up};
use crate::data::text::{Passage, TextCodec};
use rows::Rows;
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;
use tensors::Tensors;

impl Reader<'_> {
    /// Samples of a JSON text.
    ///
    /// # Errors
    /// It is no JSON; an instance is not what the model takes; there are too many.
    pub fn instances(&mut self, text: &[u8]) -> Result<Samples, Refusal> {
        let texts = self.served.table.is_none() && self.served.texts.is_some() && are_texts(text);
        self.charge.add(text.len().saturating_mul(if texts { READING_TEXTS } else { READING }))?;
        let most = self.limits.rows;
        match &self.served.table {
            None if texts => {
                let mut texts = Texts { texts: Vec::new(), sentences: Vec::new() };
                read(text, &mut texts, most)?;
                match (texts.texts.is_empty(), texts.sentences.is_empty()) {
                    (_, true) => self.texts(texts.texts),
                    (true, false) if self.served.texts.as_ref().is_some_and(TextCodec::has_tags) => {
                        self.sentences(texts.sentences)
                    }
                    (true, false) => {
                        Err(Refusal::unfit("the model takes texts, and `tokens` are for one that tags words"))
                    }
                    (false, false) => Err(Refusal::unfit("some instances are texts and others have `tokens`")),
                }
            }
            Some(_) => {
                // Each of the others keeps the cells once more.
                self.charge.add(text.len().saturating_mul(READING).saturating_mul(self.served.other_tables.len()))?;
                let mut rows = Rows::new(self.served);
                read(text, &mut rows, most)?;
                self.given(rows.read())
            }
            None => {
                let fields = &self.served.seen.given;
                let mut tensors = Tensors::of(fields);
                read(text, &mut tensors, most)?;
                let (rows, count) = tensors.read();
                self.expect(count)?;
                looked_up(fields, &rows)?;
                Ok(Samples { rows, count, names: Names::Rows(None) })
            }
        }
    }
}

/// Whether the instances are texts: a model of texts takes tensors, too. The first one is no list of numbers, and no object of tensors.
fn are_texts(body: &[u8]) -> bool {
    let list = body.iter().position(|byte| *byte == b'[').map_or(&[][..], |at| body[at + 1..].trim_ascii_start());
    match list.first() {
        Some(b'[') => list[1..].trim_ascii_start().first() == Some(&b'"'),
        // Of a text in pieces that are escaped nothing is known; a key with a name like that is written plainly.
        Some(b'{') => [&b"\"text"[..], b"\"tokens\""].iter().any(|key| list[1..].trim_ascii_start().starts_with(key)),
        // The error for anything else says that texts are taken.
        first => first.is_some_and(|first| *first != b']'),
    }
}

/// What takes instances one by one.
pub trait Take {
    /// Reads one, and keeps it.
    fn take<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error>;
}

/// Reads `{"instances": […]}`, and hands over at most `most` of them.
///
/// # Errors
/// It is something else; there are more; one of them is not what is taken.
pub fn read(text: &[u8], take: &mut impl Take, most: usize) -> Result<(), Refusal> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let mut too_many = false;
    let body = Body { take, most, too_many: &mut too_many };
    let read = deserializer.deserialize_map(body).and_then(|()| deserializer.end());
    read.map_err(|error| match error.classify() {
        _ if too_many => {
            Refusal::too_large(format!("there are more samples than the {most} that a request may have (--max-rows)"))
        }
        serde_json::error::Category::Data => Refusal::unfit(error.to_string()),
        _ => Refusal::bad(format!("the body is no JSON: {error}")),
    })
}

struct Body<'a, T> {
    take: &'a mut T,
    most: usize,
    too_many: &'a mut bool,
}

impl<'de, T: Take> Visitor<'de> for Body<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object as {\"instances\": [...]}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Body { take, most, too_many } = self;
        let mut seen = false;
        while let Some(key) = map.next_key::<String>()? {
            if key != "instances" {
                let key: String = key.chars().take(40).collect();
                return Err(de::Error::custom(format!(
                    "`{key}` is not expected here: the body is {{\"instances\": [...]}}"
                )));
            }
            if seen {
                return Err(de::Error::custom("`instances` is there twice"));
            }
            seen = true;
            map.next_value_seed(List { take: &mut *take, most, too_many: &mut *too_many })?;
        }
        if !seen {
            return Err(de::Error::custom("there is no `instances`: the body is {\"instances\": [...]}"));
        }
        Ok(())
    }
}

struct List<'a, T> {
    take: &'a mut T,
    most: usize,
    too_many: &'a mut bool,
}

impl<'de, T: Take> DeserializeSeed<'de> for List<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: Take> Visitor<'de> for List<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list of instances")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut count = 0;
        while list.next_element_seed(One(&mut *self.take))?.is_some() {
            count += 1;
            if count > self.most {
                *self.too_many = true;
                return Err(de::Error::custom("too many instances"));
            }
        }
        Ok(())
    }
}

struct One<'a, T>(&'a mut T);

impl<'de, T: Take> DeserializeSeed<'de> for One<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.0.take(deserializer)
    }
}

/// Texts.
struct Texts {
    texts: Vec<Passage>,
    /// Words, sentence by sentence.
    sentences: Vec<Vec<String>>,
}

/// A text, two of them, or words.
#[derive(serde::Deserialize)]
#[serde(
    untagged,
    expecting = "expected a text, [text, text_pair], {\"text\": ..., \"text_pair\": ...} or {\"tokens\": [...]}"
)]
enum Text {
    One(String),
    Two([String; 2]),
    Named(NamedTexts),
    Words(NamedWords),
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedTexts {
    text: String,
    text_pair: Option<String>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedWords {
    tokens: Vec<String>,
}

impl Take for Texts {
    fn take<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        match Text::deserialize(deserializer)? {
            Text::One(text) => self.texts.push(text.into()),
            Text::Two([text, pair]) => self.texts.push(Passage { text, pair: Some(pair) }),
            Text::Named(NamedTexts { text, text_pair }) => self.texts.push(Passage { text, pair: text_pair }),
            Text::Words(NamedWords { tokens }) => self.sentences.push(tokens),
        }
        Ok(())
    }
}
