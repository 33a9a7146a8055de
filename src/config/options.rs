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
use serde_json::{Value as Json, json};

use super::bounds::Bounds;
use super::de;
use super::part::{Check, Part};
use super::tree::Node;

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

values!(bool, u64, usize, i64, f64, String, [f64; 2]);

impl<T: Value> Value for Option<T> {
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

/// Whether an option is left out of an effective configuration.
pub fn is_unset<T: Serialize>(value: &T) -> bool {
    serde_json::to_value(value).is_ok_and(|value| value.is_null())
}

/// An option in the making: the methods are the settings of `#[option(…)]`.
pub struct Field<T> {
    key: &'static str,
    doc: &'static str,
    default: Option<T>,
    otherwise: Option<&'static str>,
    required: bool,
    range: Bounds,
    length: Bounds,
    one_of: &'static [i64],
    unit: Option<&'static str>,
    example: Option<&'static str>,
    resume: Effect,
    read: fn(&Part, &str, &Node) -> Option<T>,
    schema: fn(&mut SchemaGenerator) -> Schema,
}

impl<T: Value> Field<T> {
    /// An option that is required unless its type says otherwise, has no range, and breaks the continuation of a run.
    pub fn new(key: &'static str, doc: &'static str) -> Self {
        Self {
            key,
            doc,
            default: None,
            otherwise: None,
            required: false,
            range: Bounds::NONE,
            length: Bounds::NONE,
            one_of: &[],
            unit: None,
            example: None,
            resume: Effect::Breaks,
            read: T::read,
            schema: T::schema,
        }
    }

    /// What it is if it is not written.
    pub fn default(mut self, default: T) -> Self {
        self.default = Some(default);
        self
    }

    /// The default in words, in Markdown: for an `Option` whose default depends on something else.
    pub fn otherwise(mut self, words: &'static str) -> Self {
        self.otherwise = Some(words);
        self
    }

    /// Whether it must be written though its type does not tell: for what is read elsewhere.
    pub fn required(mut self, required: bool) -> Self {
        self.required = required;
        self
    }

    /// Where its number lies, or every number in it: `1..`, `0.0..=1.0`, `above(0.0)`.
    pub fn range(mut self, range: impl Into<Bounds>) -> Self {
        self.range = range.into();
        self
    }

    /// How many elements its list has.
    pub fn length(mut self, length: impl Into<Bounds>) -> Self {
        self.length = length.into();
        self
    }

    /// The only numbers that it may be.
    pub fn one_of(mut self, numbers: &'static [i64]) -> Self {
        self.one_of = numbers;
        self
    }

    /// What its number counts.
    pub fn unit(mut self, unit: &'static str) -> Self {
        self.unit = Some(unit);
        self
    }

    /// A value, as TOML: shown where the option is missing, and by editors.
    pub fn example(mut self, toml: &'static str) -> Self {
        self.example = Some(toml);
        self
    }

    /// What a change of it does to a run that is resumed; without, it breaks the continuation.
    pub fn resume(mut self, effect: Effect) -> Self {
        self.resume = effect;
        self
    }

    /// Reads it in another way than its type is read.
    pub fn read_by(mut self, read: fn(&Part, &str, &Node) -> Option<T>) -> Self {
        self.read = read;
        self
    }

    /// Its schema, if it is not that of its type.
    pub fn schema_by(mut self, schema: fn(&mut SchemaGenerator) -> Schema) -> Self {
        self.schema = schema;
        self
    }

    /// Reads it from a table.
    pub fn read(self, part: &Part) -> Option<T> {
        if part.bad.iter().any(|key| key == self.key) {
            return None;
        }
        let Some(node) = part.table.get(self.key) else {
            let value = self.default.or_else(T::absent);
            if value.is_none() {
                part.missing(self.key, self.example);
            }
            return value;
        };
        let value = (self.read)(part, self.key, node)?;
        if let Some(items) = node.as_array() {
            let rule = self.length.broken_by_length(items.len());
            if let Some(rule) = rule {
                part.out_of_range(self.key, node.span, &rule);
            }
        }
        self.check_numbers(part, node);
        Some(value)
    }

    /// Reports every number that is out of range, at its own place.
    fn check_numbers(&self, part: &Part, node: &Node) {
        if let Some(items) = node.as_array() {
            items.iter().for_each(|item| self.check_numbers(part, item));
            return;
        }
        let Some(number) = node.as_number() else { return };
        let rule = match self.one_of {
            [] => self.range.broken_by(number),
            choices if choices.iter().any(|choice| *choice as f64 == number) => None,
            choices => Some(format!("must be {}", one_of(choices))),
        };
        if let Some(rule) = rule {
            part.out_of_range(self.key, node.span, &rule);
        }
    }
}

impl<T: Value + Serialize> Field<T> {
    /// It as data.
    pub fn declare(self, generator: &mut SchemaGenerator) -> Declared {
        let doc = markdown(self.doc);
        let mut schema = (self.schema)(generator).to_value();
        self.range.restrict_numbers(&mut schema);
        self.length.restrict_length(&mut schema);
        let default = self.default.as_ref().and_then(|value| serde_json::to_value(value).ok());
        if let Json::Object(schema) = &mut schema {
            if !self.one_of.is_empty() {
                schema.insert("enum".into(), json!(self.one_of));
            }
            schema.insert("description".into(), doc.as_str().into());
            schema.extend(default.clone().map(|value| ("default".to_owned(), value)));
            let example = self.example.and_then(|toml| toml::from_str::<toml::Table>(&format!("x = {toml}")).ok());
            let example = example.and_then(|table| serde_json::to_value(table.get("x")?).ok());
            schema.extend(example.map(|value| ("examples".to_owned(), json!([value]))));
        }
        Declared {
            key: self.key,
            doc,
            required: self.required || self.default.is_none() && T::absent().is_none(),
            default,
            otherwise: self.otherwise,
            unit: self.unit,
            example: self.example,
            resume: self.resume,
            schema,
        }
    }
}

/// `1 or -1`.
fn one_of(choices: &[i64]) -> String {
    let words: Vec<String> = choices.iter().map(i64::to_string).collect();
    words.join(" or ")
}

/// Comments of the source as Markdown: lines are joined, an empty one ends a paragraph.
pub fn markdown(doc: &str) -> String {
    let mut text = String::new();
    for line in doc.lines().map(str::trim) {
        let ends = text.is_empty() || text.ends_with('\n');
        match line {
            "" if !ends => text.push_str("\n\n"),
            "" => {}
            _ => {
                if !ends {
                    text.push(' ');
                }
                text.push_str(line);
            }
        }
    }
    text.trim_end().to_owned()
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
                        about: $crate::config::options::markdown(concat!($($about, "\n"),*)),
                        options: vec![$(
                            Field::<$type>::new(option_key!($field $($key)?), concat!($($doc, "\n"),*))
                                $($(.$setting($value))*)?
                                .declare(generator)
                        ),*],
                        rules: Self::RULES,
                        schema: serde_json::json!({ $($($schema)*)? }),
                        probe: |part| drop(<Self as Options>::read(part)),
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
