//! What has been declared, as data: what the schema, the tables of the manual and the rules of resuming are made from.

use schemars::SchemaGenerator;
use serde_json::Value as Json;

use super::part::Part;

/// What some options declare.
pub type Declare = fn(&mut SchemaGenerator) -> Declaration;

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
    /// Two keys that exclude each other where a third one is not there, and why.
    ExcludesWithout(&'static str, &'static str, &'static str, &'static str),
    /// Two keys that exclude each other (unless a third one is there), and why. They are about different things, so none of them stands for the other: a base keeps its own, and the
    /// conflict is reported.
    Conflicts(&'static str, &'static str, Option<&'static str>, &'static str),
    /// One of two keys must be there.
    OneOf(&'static str, &'static str),
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
