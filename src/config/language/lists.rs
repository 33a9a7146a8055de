//! Values that are a number for all places or a list with one for each.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::written::Written;
use crate::config::declare::value::values;

values!(Integers, Sides, Padding1d, Factors);

/// A whole number, or a list of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Integers(pub Vec<i64>);

impl<'de> Deserialize<'de> for Integers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a whole number or a list of them";
        match Written::<i64>::read(deserializer, EXPECTED)? {
            Written::One(one) => Ok(Self(vec![one])),
            Written::List(list) if !list.is_empty() => Ok(Self(list)),
            other => Err(other.refused(EXPECTED)),
        }
    }
}

impl Serialize for Integers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0[..] {
            [one] => one.serialize(serializer),
            all => all.serialize(serializer),
        }
    }
}

impl JsonSchema for Integers {
    // Inline, so that each use has its own range and says whether an expression may stand there.
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Integers".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "a whole number, or a list of them",
            "anyOf": [{ "type": "integer" }, { "type": "array", "items": { "type": "integer" }, "minItems": 1 }],
        })
    }
}

/// Pixels at the left, right, top and bottom of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sides(pub [usize; 4]);

impl<'de> Deserialize<'de> for Sides {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a whole number or [left, right, top, bottom]";
        match Written::<usize>::read(deserializer, EXPECTED)? {
            Written::One(one) => Ok(Self([one; 4])),
            Written::List(list) => list.try_into().map(Self).map_err(|list| Written::List(list).refused(EXPECTED)),
            word @ Written::Word(_) => Err(word.refused(EXPECTED)),
        }
    }
}

impl Serialize for Sides {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            [one, ..] if self.0 == [one; 4] => one.serialize(serializer),
            all => all.serialize(serializer),
        }
    }
}

impl JsonSchema for Sides {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Sides".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "a whole number, or [left, right, top, bottom]",
            "anyOf": [
                { "type": "integer", "minimum": 0 },
                { "type": "array", "items": { "type": "integer", "minimum": 0 }, "minItems": 4, "maxItems": 4 },
            ],
        })
    }
}

/// The zeros at each end of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding1d {
    /// So many.
    Explicit(usize),
    /// As many as keep the length; of an odd number the extra zero is at the end, as in PyTorch.
    Same,
}

impl<'de> Deserialize<'de> for Padding1d {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a whole number, \"same\" or \"valid\"";
        match Written::<usize>::read(deserializer, EXPECTED)? {
            Written::One(one) => Ok(Self::Explicit(one)),
            Written::Word(word) if word == "same" => Ok(Self::Same),
            Written::Word(word) if word == "valid" => Ok(Self::Explicit(0)),
            Written::Word(word) => Err(de::Error::invalid_value(de::Unexpected::Str(&word), &EXPECTED)),
            list @ Written::List(_) => Err(list.refused(EXPECTED)),
        }
    }
}

impl Serialize for Padding1d {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Explicit(zeros) => zeros.serialize(serializer),
            Self::Same => serializer.serialize_str("same"),
        }
    }
}

impl JsonSchema for Padding1d {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Padding1d".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "a whole number, \"same\" or \"valid\"",
            "anyOf": [{ "type": "integer", "minimum": 0 }, { "enum": ["same", "valid"] }],
        })
    }
}

/// A factor for both directions of an image, or `[height, width]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Factors(pub [f64; 2]);

struct FactorsVisitor;

impl<'de> Visitor<'de> for FactorsVisitor {
    type Value = Factors;

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a number or [height, width]")
    }

    fn visit_i64<E: de::Error>(self, v: i64) -> Result<Factors, E> {
        self.visit_f64(v as f64)
    }

    fn visit_u64<E: de::Error>(self, v: u64) -> Result<Factors, E> {
        self.visit_f64(v as f64)
    }

    fn visit_f64<E: de::Error>(self, v: f64) -> Result<Factors, E> {
        Ok(Factors([v, v]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Factors, A::Error> {
        let mut all: Vec<f64> = Vec::new();
        while let Some(v) = seq.next_element()? {
            all.push(v);
        }
        let length = all.len();
        all.try_into().map(Factors).map_err(|_| de::Error::invalid_length(length, &self))
    }
}

impl<'de> Deserialize<'de> for Factors {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FactorsVisitor)
    }
}

impl Serialize for Factors {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            [h, w] if h == w => h.serialize(serializer),
            pair => pair.serialize(serializer),
        }
    }
}

impl JsonSchema for Factors {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Factors".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "a number, or [height, width]",
            "anyOf": [{ "type": "number" }, { "type": "array", "items": { "type": "number" }, "minItems": 2, "maxItems": 2 }],
        })
    }
}
