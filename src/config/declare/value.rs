//! The types that options may have: how a value is read, and what the schema says of it.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::de;
use super::part::Part;
use crate::config::text::tree::Node;

/// The value of an option.
pub trait Value: Sized {
    /// Reads what is written at a key. What is wrong is reported; then there is none.
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self>;

    /// What it is where the key is not written, if that needs no default.
    fn absent() -> Option<Self> {
        None
    }

    /// Its JSON Schema.
    fn schema(generator: &mut SchemaGenerator) -> Schema;

    /// Whether it names a file or a folder.
    const IS_PATH: bool = false;
}

/// Makes values of types that serde reads.
macro_rules! values {
    ($($type:ty),* $(,)?) => {$(
        impl $crate::config::declare::value::Value for $type {
            fn read(
                part: &$crate::config::declare::part::Part,
                key: &str,
                node: &$crate::config::text::tree::Node,
            ) -> Option<Self> {
                $crate::config::declare::value::deserialize(part, key, node)
            }

            fn schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                generator.subschema_for::<Self>()
            }
        }
    )*};
}
pub(crate) use values;

values!(bool, i32, u64, usize, i64, f64, String, [f64; 2], [f64; 3], [f64; 4]);

impl<T: Value> Value for Option<T> {
    const IS_PATH: bool = T::IS_PATH;

    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        T::read(part, key, node).map(Some)
    }

    fn absent() -> Option<Self> {
        Some(None)
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        T::schema(generator)
    }
}

impl<T: Value> Value for Vec<T> {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        let Some(items) = node.as_array() else {
            part.wrong_value(key, node, "expected a list");
            return None;
        };
        // All of them, so that all problems are reported.
        let read: Vec<Option<T>> = items.iter().map(|item| T::read(part, key, item)).collect();
        read.into_iter().collect()
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "array", "items": T::schema(generator) })
    }
}

/// A key of a table whose value is read elsewhere, or by hand: layers, blocks, files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Elsewhere;

impl Value for Elsewhere {
    fn read(_: &Part, _: &str, _: &Node) -> Option<Self> {
        Some(Self)
    }

    fn absent() -> Option<Self> {
        Some(Self)
    }

    fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({})
    }
}

/// Reads a value by serde.
pub fn deserialize<T: DeserializeOwned>(part: &Part, key: &str, node: &Node) -> Option<T> {
    T::deserialize(node).map_err(|error: de::Error| part.report(key, node, error)).ok()
}

/// Whether an option is left out of an effective configuration.
pub fn is_unset<T: Serialize>(value: &T) -> bool {
    serde_json::to_value(value).is_ok_and(|value| value.is_null())
}
