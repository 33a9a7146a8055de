//! The settings of an option, how it is read and checked by them, and how it is described.

use schemars::{Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::bounds::Bounds;
use super::declaration::{Declared, Effect};
use super::part::Part;
use super::value::Value;
use crate::config::text::tree::Node;

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

    /// Whether it must be written although its type does not say so: for what is read elsewhere.
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
        let Some(node) = part.node(self.key) else {
            let value = self.default.or_else(T::absent);
            if value.is_none() {
                part.missing(self.key, self.example);
            }
            return value;
        };
        // A type has a range of its own, which is as wide as that of no option.
        if let Some(rule) = self.range.broken_below_zero(node) {
            part.out_of_range(self.key, node.span, &rule);
            return None;
        }
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
