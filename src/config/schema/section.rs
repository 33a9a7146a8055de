//! Sections of the schema.

use schemars::SchemaGenerator;
use serde_json::{Value, json};

use crate::config::declare::schema::Table;
use crate::config::language::keys;
use crate::config::text::words::UNSET;

/// A section: what it may have, and what it must have besides where its file extends none.
pub struct Section {
    /// The first.
    pub loose: Value,
    /// The second.
    pub strict: Value,
}

impl Section {
    /// A section of one kind.
    pub fn plain(mut table: Table) -> Self {
        table.add(UNSET, unset());
        table.add_whole(no_unset());
        Self { loose: table.loose(), strict: table.strict() }
    }

    /// A section as its options are declared.
    pub fn of(generator: &mut SchemaGenerator, section: &keys::Section) -> Self {
        let mut common = Table::default().described(section.about);
        for declare in &section.shared {
            common.join(&Table::from_declaration(declare(generator)));
        }
        match section.tag {
            None => Self::plain(common),
            Some(tag) => Self::tagged(generator, section, tag, &common),
        }
    }

    /// A section of one of several kinds, with keys that they have in common.
    fn tagged(generator: &mut SchemaGenerator, section: &keys::Section, tag: &str, common: &Table) -> Self {
        let mut loose = Vec::new();
        let mut strict = vec![no_unset()];
        let is = |word: &str| json!({ "properties": { tag: { "const": word } }, "required": [tag] });
        for (word, declaration) in (section.kinds)(generator) {
            let mut table = Table::from_declaration(declaration);
            table.join(common);
            let rules = table.strict();
            if section.default == Some(word) {
                let keys: Vec<&String> = table.keys().collect();
                strict.push(json!({
                    "if": { "not": { "required": [tag] } },
                    "then": { "allOf": [{ "propertyNames": { "enum": keys } }, rules.clone()] },
                }));
            }
            strict.push(json!({ "if": is(word), "then": rules }));
            let mut table = table.tagged(tag, word);
            table.add(UNSET, unset());
            loose.push(table.loose());
        }
        if section.default.is_none() {
            strict.push(json!({ "required": [tag] }));
        }
        Self {
            loose: json!({ "type": "object", "description": section.about, "anyOf": loose }),
            strict: json!({ "allOf": strict }),
        }
    }
}

/// The key that takes away what a base has.
pub fn unset() -> Value {
    json!({ "const": true, "description": "Take away what the file in `extends` has here." })
}

/// Without a base there is nothing to take away.
pub fn no_unset() -> Value {
    json!({ "properties": { UNSET: false } })
}
