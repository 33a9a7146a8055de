//! A whole number, a list of them, or a word: what several types of values are read from.

use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Unexpected, Visitor};

/// What was written; `N`: `usize`, or `i64` where numbers may be negative.
pub enum Written<N> {
    /// A number.
    One(N),
    /// A list of numbers.
    List(Vec<N>),
    /// Text.
    Word(String),
}

impl<'de, N: Deserialize<'de> + TryFrom<i64> + TryFrom<u64>> Written<N> {
    /// Reads it; `expected` is what errors say.
    pub fn read<D: Deserializer<'de>>(deserializer: D, expected: &'static str) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WrittenVisitor(expected, PhantomData))
    }
}

impl<N> Written<N> {
    /// The error for a list of the wrong length, or what is of the wrong type.
    pub fn refused<E: de::Error>(&self, expected: &'static str) -> E {
        match self {
            Self::One(_) => E::invalid_type(Unexpected::Other("a whole number"), &expected),
            Self::List(list) => E::invalid_length(list.len(), &expected),
            Self::Word(word) => E::invalid_type(Unexpected::Str(word), &expected),
        }
    }
}

struct WrittenVisitor<N>(&'static str, PhantomData<N>);

impl<'de, N: Deserialize<'de> + TryFrom<i64> + TryFrom<u64>> Visitor<'de> for WrittenVisitor<N> {
    type Value = Written<N>;

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.0)
    }

    fn visit_i64<E: de::Error>(self, v: i64) -> Result<Written<N>, E> {
        N::try_from(v).map(Written::One).map_err(|_| E::invalid_value(Unexpected::Signed(v), &self))
    }

    fn visit_u64<E: de::Error>(self, v: u64) -> Result<Written<N>, E> {
        N::try_from(v).map(Written::One).map_err(|_| E::invalid_value(Unexpected::Unsigned(v), &self))
    }

    fn visit_str<E: de::Error>(self, v: &str) -> Result<Written<N>, E> {
        Ok(Written::Word(v.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Written<N>, A::Error> {
        let mut all = Vec::new();
        while let Some(v) = seq.next_element()? {
            all.push(v);
        }
        Ok(Written::List(all))
    }
}
