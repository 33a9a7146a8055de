//! Serde over a [`Node`]: the values of options are read from it, and errors keep the place.

use std::fmt::Display;

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, Expected, Unexpected, Visitor};
use serde::forward_to_deserialize_any;

use crate::config::text::diagnostics::Span;
use crate::config::text::tree::{Node, Value};

/// What keeps a value from being read.
#[derive(Debug)]
pub struct Error {
    /// The reason.
    pub reason: Reason,
    /// The value's place, once it is known.
    pub span: Option<Span>,
}

/// The reason of an [`Error`].
#[derive(Debug)]
pub enum Reason {
    /// A word that is none of those allowed.
    Variant(String, &'static [&'static str]),
    /// Anything else.
    Message(String),
}

impl Error {
    fn new(reason: Reason) -> Self {
        Self { reason, span: None }
    }

    fn wrong(node: &Node, expected: &str) -> Self {
        let why = if is_arithmetic(node) { ": an expression has a `$name` or `{i}` in it" } else { "" };
        let reason = Reason::Message(format!("expected {expected}, found {}{why}", node.describe()));
        Self { reason, span: Some(node.span) }
    }

    fn or_at(mut self, span: Span) -> Self {
        self.span.get_or_insert(span);
        self
    }
}

/// Whether a text is arithmetic over numbers alone.
fn is_arithmetic(node: &Node) -> bool {
    let of = |c: char| c.is_ascii_digit() || " .+-*/%()".contains(c);
    node.as_str().is_some_and(|text| {
        text.contains(['+', '-', '*', '/', '%']) && text.contains(|c: char| c.is_ascii_digit()) && text.chars().all(of)
    })
}

impl Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match &self.reason {
            Reason::Variant(word, _) => write!(f, "unknown word `{word}`"),
            Reason::Message(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: Display>(message: T) -> Self {
        Self::new(Reason::Message(message.to_string()))
    }

    fn invalid_type(found: Unexpected, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("expected {expected}, found {}", plain(found)))
    }

    fn invalid_value(found: Unexpected, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("expected {expected}, found {}", plain(found)))
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("expected {expected}, found a list of {length}"))
    }

    fn unknown_variant(word: &str, expected: &'static [&'static str]) -> Self {
        Self::new(Reason::Variant(word.to_owned(), expected))
    }
}

/// A value as a person would name it.
fn plain(found: Unexpected) -> String {
    match found {
        Unexpected::Bool(truth) => truth.to_string(),
        Unexpected::Unsigned(number) => number.to_string(),
        Unexpected::Signed(number) => number.to_string(),
        Unexpected::Float(number) => format!("{number:?}"),
        Unexpected::Str(text) => format!("the string {text:?}"),
        Unexpected::Seq => "a list".into(),
        Unexpected::Map => "a table".into(),
        other => other.to_string(),
    }
}

/// Whole numbers of any width, with what is wrong said in plain words.
macro_rules! whole_numbers {
    ($($method:ident $visit:ident $int:ty;)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
                let expected = if <$int>::MIN == 0 { "a whole number of at least 0" } else { "a whole number" };
                match &self.value {
                    Value::Integer(number) => match <$int>::try_from(*number) {
                        Ok(number) => visitor.$visit(number).map_err(|error: Error| error.or_at(self.span)),
                        Err(_) => Err(Error::wrong(self, expected)),
                    },
                    _ => Err(Error::wrong(self, "a whole number")),
                }
            }
        )*
    };
}

impl<'de> Deserializer<'de> for &Node {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.value {
            Value::String(text) => visitor.visit_str(text),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Boolean(truth) => visitor.visit_bool(*truth),
            Value::Datetime(_) | Value::Table(_) => Err(Error::custom_at(self, visitor)),
            Value::Array(items) => visitor.visit_seq(Items(items.iter())),
        }
        .map_err(|error| error.or_at(self.span))
    }

    whole_numbers! {
        deserialize_u8 visit_u8 u8;
        deserialize_u16 visit_u16 u16;
        deserialize_u32 visit_u32 u32;
        deserialize_u64 visit_u64 u64;
        deserialize_i8 visit_i8 i8;
        deserialize_i16 visit_i16 i16;
        deserialize_i32 visit_i32 i32;
        deserialize_i64 visit_i64 i64;
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.value {
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Integer(number) => visitor.visit_f64(*number as f64),
            _ => Err(Error::wrong(self, "a number")),
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.value {
            Value::Boolean(truth) => visitor.visit_bool(*truth),
            _ => Err(Error::wrong(self, "`true` or `false`")),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.value {
            Value::String(text) => visitor.visit_str(text).map_err(|error: Error| error.or_at(self.span)),
            _ => Err(Error::wrong(self, "a string")),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.value {
            Value::Array(items) => {
                visitor.visit_seq(Items(items.iter())).map_err(|error: Error| error.or_at(self.span))
            }
            _ => Err(Error::wrong(self, "a list")),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Error> {
        match &self.value {
            Value::Array(items) if items.len() == length => visitor.visit_seq(Items(items.iter())),
            Value::Array(items) => {
                let reason = Reason::Message(format!("expected a list of {length}, found a list of {}", items.len()));
                Err(Error { reason, span: Some(self.span) })
            }
            _ => Err(Error::wrong(self, &format!("a list of {length}"))),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match &self.value {
            Value::String(text) => {
                visitor.visit_enum(StrDeserializer::<Error>::new(text)).map_err(|error| error.or_at(self.span))
            }
            _ => Err(Error::wrong(self, "a string")),
        }
    }

    forward_to_deserialize_any! {
        i128 u128 char bytes byte_buf unit unit_struct tuple_struct map struct identifier ignored_any
    }
}

impl Error {
    fn custom_at<'de>(node: &Node, visitor: impl Visitor<'de>) -> Self {
        let expected: &dyn Expected = &visitor;
        Self::wrong(node, &expected.to_string())
    }
}

struct Items<'a>(std::slice::Iter<'a, Node>);

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Error> {
        self.0.next().map(|node| seed.deserialize(node).map_err(|error| error.or_at(node.span))).transpose()
    }
}
