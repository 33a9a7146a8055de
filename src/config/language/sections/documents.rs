//! Documents of a text: how they end, and whether samples go on from one to the next.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use crate::config::declare::part::Part;
use crate::config::declare::value::Value;
use crate::config::text::tree::{Node, Value as Written};

/// A token that ends documents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum EndToken {
    /// By its name.
    Name(String),
    /// By its number.
    Number(u32),
}

impl Value for EndToken {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        let number = if let Written::Integer(number) = node.value { u32::try_from(number).ok() } else { None };
        let name = node.as_str().filter(|name| !name.is_empty()).map(|name| EndToken::Name(name.to_owned()));
        let read = name.or(number.map(EndToken::Number));
        if read.is_none() {
            part.wrong_value(key, node, "expected the name of a token, or its number from 0");
        }
        read
    }

    fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "string", "minLength": 1 }, { "type": "integer", "minimum": 0 }] })
    }
}

/// What a source says of the documents of its text.
pub(super) struct Documents<'a> {
    /// Whether samples go on from one to the next.
    pub packed: bool,
    /// The token that ends them.
    pub end_token: Option<&'a EndToken>,
    /// The lengths of batches.
    pub buckets: Option<&'a [usize]>,
}

impl Documents<'_> {
    /// Reports what does not go together. `context`: tokens of a sample. `has_names`: the tokenizer
    /// has names of tokens.
    pub fn check(self, part: &Part, context: usize, has_names: bool, carry_state: bool) {
        let apart = "is for `packed = false`, where samples do not go on from a document to the next";
        part.require("buckets", !self.packed || self.buckets.is_none(), apart);
        if !self.packed {
            check_lengths(part, self.buckets, context, "context");
        }
        part.require(
            "carry_state",
            self.packed || !carry_state,
            "does not go with `packed = false`: the state of a document is none of the next one",
        );
        let named = matches!(self.end_token, Some(EndToken::Name(_)));
        part.require(
            "end_token",
            !named || has_names,
            "names a token of a `tokenizer.json`, and there is none: write the number of the token",
        );
    }
}

/// Reports lengths of batches that are not ascending up to `longest`, which `key` has.
pub(super) fn check_lengths(part: &Part, buckets: Option<&[usize]>, longest: usize, key: &str) {
    let buckets = buckets.unwrap_or_default();
    let ascending = buckets.windows(2).all(|pair| pair[0] < pair[1]);
    part.require("buckets", ascending, "must be ascending");
    let last = buckets.last().is_none_or(|last| *last == longest);
    part.require("buckets", !ascending || last, &format!("must end with `{key}`"));
}
