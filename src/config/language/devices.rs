//! Several GPUs.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::config::declare::value::values;

values!(Devices);

/// Most GPUs that can be named.
const MOST: usize = 1024;

/// On which GPUs to train.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Devices {
    /// On all that there are.
    All,
    /// On those of these numbers, at least one, each once.
    Numbers(Vec<usize>),
}

impl Devices {
    /// The number of the first one.
    pub fn first(&self) -> usize {
        match self {
            Devices::All => 0,
            Devices::Numbers(numbers) => numbers.first().copied().unwrap_or(0),
        }
    }
}

impl Serialize for Devices {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Devices::All => serializer.serialize_str("all"),
            Devices::Numbers(numbers) => numbers.serialize(serializer),
        }
    }
}

struct Reads;

impl<'de> Visitor<'de> for Reads {
    type Value = Devices;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"all\", or a list of GPUs, as in [0, 1]")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Devices, E> {
        match text {
            "all" => Ok(Devices::All),
            other => Err(E::custom(format!("`{other}` is neither \"all\" nor a list of GPUs, as in [0, 1]"))),
        }
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Devices, A::Error> {
        let mut numbers = Vec::new();
        while let Some(number) = list.next_element::<usize>()? {
            if numbers.contains(&number) {
                return Err(de::Error::custom(format!("GPU {number} is named twice, and each is one rank")));
            }
            numbers.push(number);
            if numbers.len() > MOST {
                return Err(de::Error::custom(format!("more than {MOST} GPUs are named")));
            }
        }
        match numbers.is_empty() {
            true => Err(de::Error::custom("no GPU is named: \"all\", or at least one number")),
            false => Ok(Devices::Numbers(numbers)),
        }
    }
}

impl<'de> Deserialize<'de> for Devices {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reads)
    }
}

impl JsonSchema for Devices {
    fn schema_name() -> Cow<'static, str> {
        "Devices".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "const": "all" },
            { "type": "array", "items": { "type": "integer", "minimum": 0 }, "minItems": 1, "maxItems": MOST, "uniqueItems": true },
        ] })
    }
}
