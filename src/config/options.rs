//! Options: each is declared once, and whatever else knows of it comes from that declaration.
//!
//! ```text
//! options! {
//!     /// The `[log]` section.
//!     pub struct Log {
//!         /// Steps from one line of `metrics.jsonl` to the next.
//!         #[option(default = 50, range = 1.., unit = "steps", resume = Harmless)]
//!         pub every_steps: u64,
//!     }
//! }
//! ```
//! From this come the struct, how it is read and checked, its part of the JSON Schema (and so what editors show), its table in
//! `docs/config.md`, and what a change of it means to a run that is resumed. The settings in `#[option(…)]` are the methods of
//! [`Field`]; all of them may be left out. An option without a default is required, unless its type is an `Option`.
//! What several options must agree on is said in `#[rules(…)]`, or else in code in [`super::part::Check`] and for the schema in
//! `#[schema(…)]`.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use super::de;
use super::part::{Check, Part};
use super::tree::Node;

pub use super::field::Field;

/// What a change of an option does to a run that is resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// None on the numbers.
    Harmless,
    /// The run goes on, but no longer as it would have without the change.
    Differs,
    /// The run cannot go on from where it stopped.
    Breaks,
}

/// What options of one table must agree on, as far as it concerns which of them are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Two keys that exclude each other, and why. Where one lies over the other in a base, that one is left behind.
    Excludes(&'static str, &'static str, &'static str),
    /// One of two keys must be there.
    OneOf(&'static str, &'static str),
}

/// A table of options. Made by the macro `options!`.
pub trait Options: Sized {
    /// All keys, in the order in which they are declared.
    const KEYS: &'static [&'static str];
    /// What they must agree on.
    const RULES: &'static [Rule];

    /// Reads all of them. Every bad value is reported, not only the first; `None` if one cannot be read.
    fn read(part: &Part) -> Option<Self>;

    /// What has been declared.
    fn declaration(generator: &mut SchemaGenerator) -> Declaration;
}

/// A table of options as data.
#[derive(Debug)]
pub struct Declaration {
    /// What the table is for.
    pub about: String,
    /// Its options.
    pub options: Vec<Declared>,
    /// What they must agree on.
    pub rules: &'static [Rule],
    /// The same for the schema, where [`Rule`] cannot say it.
    pub schema: Json,
    /// Reports all problems of a table that is read as this one.
    pub probe: fn(&Part),
}

/// An option as data.
#[derive(Debug)]
pub struct Declared {
    /// Its key.
    pub key: &'static str,
    /// What it is for, in Markdown.
    pub doc: String,
    /// Whether it must be written.
    pub required: bool,
    /// What it is if it is not written.
    pub default: Option<Json>,
    /// The same in words, where it depends on something else.
    pub otherwise: Option<&'static str>,
    /// What its number counts.
    pub unit: Option<&'static str>,
    /// A value, as TOML.
    pub example: Option<&'static str>,
    /// What a change of it does to a run that is resumed.
    pub resume: Effect,
    /// Whether it names a file or a folder.
    pub is_path: bool,
    /// Its part of the JSON Schema.
    pub schema: Json,
}

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
        impl $crate::config::options::Value for $type {
            fn read(
                part: &$crate::config::part::Part,
                key: &str,
                node: &$crate::config::tree::Node,
            ) -> Option<Self> {
                $crate::config::options::deserialize(part, key, node)
            }

            fn schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                generator.subschema_for::<Self>()
            }
        }
    )*};
}
pub(crate) use values;

values!(bool, i32, u64, usize, i64, f64, String, [f64; 2]);

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
        // All of them, so that all problems are told.
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

/// Reads a table of options that is the value of an option, or one of its elements; `what` is the table in messages.
pub fn table<T: Options + Check>(part: &Part, key: &str, node: &Node, what: &str) -> Option<T> {
    let Some(table) = node.as_table() else {
        part.wrong_value(key, node, "expected a table");
        return None;
    };
    let part = Part { table, span: node.span, what, bad: &[], sink: part.sink };
    part.known_keys(&[T::KEYS]);
    part.read()
}

/// Reads a table for the problems alone.
pub fn probe<T: Options>(part: &Part) {
    T::read(part);
}

/// Whether an option is left out of an effective configuration.
pub fn is_unset<T: Serialize>(value: &T) -> bool {
    serde_json::to_value(value).is_ok_and(|value| value.is_null())
}

/// A field's key: its own name, unless another is given.
macro_rules! option_key {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $key:literal) => {
        $key
    };
}
pub(crate) use option_key;

/// Declares tables of options: structs whose fields have comments and `#[option(…)]`.
macro_rules! options {
    ($(
        $(#[doc = $about:literal])*
        $(#[rules($($rule:expr),* $(,)?)])?
        $(#[schema($($schema:tt)*)])?
        $visible:vis struct $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $(#[option($($setting:ident = $value:expr),* $(,)?)])?
                pub $field:ident $(as $key:literal)?: $type:ty,
            )*
        }
    )*) => {$(
        $(#[doc = $about])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize)]
        $visible struct $name {
            $(
                $(#[doc = $doc])*
                #[serde(skip_serializing_if = "crate::config::options::is_unset")]
                $(#[serde(rename = $key)])?
                pub $field: $type,
            )*
        }

        #[allow(unused_imports, unused_variables, reason = "not every table needs all of it")]
        const _: () = {
            use $crate::config::options::{Declaration, Effect::*, Field, Options, Rule::{self, *}, option_key};

            impl Options for $name {
                const KEYS: &'static [&'static str] = &[$(option_key!($field $($key)?)),*];
                const RULES: &'static [Rule] = &[$($($rule),*)?];

                fn read(part: &$crate::config::part::Part) -> Option<Self> {
                    $(
                        let $field = Field::<$type>::new(option_key!($field $($key)?), concat!($($doc, "\n"),*))
                            $($(.$setting($value))*)?
                            .read(part);
                    )*
                    Some(Self { $($field: $field?,)* })
                }

                fn declaration(generator: &mut schemars::SchemaGenerator) -> Declaration {
                    Declaration {
                        about: $crate::config::field::markdown(concat!($($about, "\n"),*)),
                        options: vec![$(
                            Field::<$type>::new(option_key!($field $($key)?), concat!($($doc, "\n"),*))
                                $($(.$setting($value))*)?
                                .declare(generator)
                        ),*],
                        rules: Self::RULES,
                        schema: serde_json::json!({ $($($schema)*)? }),
                        probe: $crate::config::options::probe::<Self>,
                    }
                }
            }
        };
    )*};
}
pub(crate) use options;

/// Reports what [`Rule`] says of a table.
pub fn check_rules(rules: &[Rule], part: &Part) {
    for rule in rules {
        match rule {
            Rule::Excludes(a, b, why) => part.conflict(a, b, why),
            Rule::OneOf(a, b) => part.one_of(a, b),
        }
    }
}
