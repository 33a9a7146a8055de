//! Patterns of parameters' names.

use schemars::{Schema, SchemaGenerator};
use serde::{Serialize, Serializer};

use crate::config::declare::part::Part;
use crate::config::declare::value::Value;
use crate::config::text::diagnostics::Span;
use crate::config::text::tree::Node;

/// Names of parameters, `*` standing for any characters; without a `*`, also that of a layer, for all parameters in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// As written.
    pub text: String,
    /// Where.
    pub span: Span,
}

impl Value for Pattern {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        Some(Self { text: String::read(part, key, node)?, span: node.span })
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        String::schema(generator)
    }
}

impl Pattern {
    /// Whether it fits a whole name, or is that of a layer around it.
    pub fn matches(&self, name: &str) -> bool {
        let mut pieces = self.text.split('*');
        let Some(mut rest) = pieces.next().and_then(|first| name.strip_prefix(first)) else { return false };
        let mut pieces = pieces.peekable();
        if pieces.peek().is_none() {
            return rest.is_empty() || rest.starts_with('.');
        }
        while let Some(piece) = pieces.next() {
            if pieces.peek().is_none() {
                return rest.ends_with(piece);
            }
            match rest.find(piece) {
                Some(at) => rest = &rest[at + piece.len()..],
                None => return false,
            }
        }
        true
    }
}

impl Pattern {
    /// Whether it may fit names of parameters of the layer at `path`, whatever they are called.
    pub fn may_be_of(&self, path: &str) -> bool {
        let (fixed, star) = self.text.split_once('*').map_or((&*self.text, false), |(fixed, _)| (fixed, true));
        let below = |outer: &str, inner: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        below(path, fixed) || if star { path.starts_with(fixed) } else { below(fixed, path) }
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}
