//! `[[heads]]`: targets that the same model learns beside the main one.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use super::loss::Loss;
use crate::config::declare::options::{self, Check, options};
use crate::config::declare::part::{Part, known_word};
use crate::config::declare::schema::Table;
use crate::config::declare::tagged::Tagged;
use crate::config::declare::value::Value;
use crate::config::text::diagnostics::Diagnostic;
use crate::config::text::tree::{Node, Table as Written};

options! {
    /// A target that is learnt beside the main one.
    pub struct Head {
        /// What figures, columns of predictions and keys of JSON begin with: letters, digits, `_` and `-`.
        #[option(otherwise = "that of the target", example = r#""sold""#)]
        pub name: Option<String>,
        /// The column that is learnt. The model does not take it, and rows in which it is missing are left out. Texts and numbers alike are classes for a
        /// loss of classes; for any other its cells are numbers.
        #[option(example = r#""sold""#)]
        pub target: String,
        /// The layer whose output is compared with the target: its name, or its path if it stands in a group, as `from` has it.
        #[option(otherwise = "the layer of the head's name", example = r#""sold""#)]
        pub output: Option<String>,
        /// Its loss: a table as `[loss]`, or a word alone. Without `target`, several quantiles and `ordinal`.
        #[option(example = r#"{ type = "cross_entropy" }"#)]
        pub loss: HeadLoss,
        /// What its loss is multiplied by in the sum that training makes smaller. The main loss weighs 1.
        #[option(default = 1.0, range = 0.0..)]
        pub weight: f64,
    }
}

impl Head {
    /// What it is called.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.target)
    }

    /// The path of the layer whose output it compares.
    pub fn output(&self) -> &str {
        self.output.as_deref().unwrap_or(self.name())
    }
}

impl Check for Head {
    fn check(&self, part: &Part) {
        let sound = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        if self.name().is_empty() || !self.name().chars().all(sound) {
            let error = Diagnostic::error(format!("`{}` cannot be the name of a head", self.name()));
            let key = if self.name.is_some() { "name" } else { "target" };
            let error = error.at(part.span_of(key), "figures and columns begin with it");
            part.sink.push(error.help("give the head a `name` of letters, digits, `_` and `-`"));
        }
        let loss = &self.loss.0;
        let refused = [
            (loss.target().is_some(), "has no `target` in a head: that is the head's own key, a column of the table"),
            (!loss.quantiles().is_empty(), "takes one quantile in a head: several are for `[loss]` alone"),
            (loss.is_ordinal(), "cannot be `ordinal` in a head: that is for `[loss]` alone"),
        ];
        for (_, rule) in refused.into_iter().filter(|(is, _)| *is) {
            part.sink.push(
                Diagnostic::error(format!("`loss` in {} is not one that heads have", part.what))
                    .at(part.span_of("loss"), rule),
            );
        }
    }
}

impl Value for Head {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        options::table(part, key, node, "a head")
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        Table::of::<Self>(generator).whole().try_into().unwrap_or_default()
    }
}

/// The loss of a head.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct HeadLoss(pub Loss);

impl Value for HeadLoss {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        const WHAT: &str = "`loss` of a head";
        let nothing = Written::default();
        let (table, word) = match (node.as_table(), node.as_str()) {
            (Some(table), _) => {
                let part = Part { table, span: node.span, what: WHAT, bad: &[], sink: part.sink };
                (table, part.word::<Loss>(None)?)
            }
            (None, Some(_)) => (&nothing, known_word(node, Loss::TAG, WHAT, Loss::TYPES, part.sink)?),
            (None, None) => {
                part.wrong_value(key, node, "expected a table as `[loss]`, or the type of a loss");
                return None;
            }
        };
        let part = Part { table, span: node.span, what: WHAT, bad: &[], sink: part.sink };
        part.known_keys(&[&[Loss::TAG], Loss::fields(word)]);
        <Loss as Tagged>::read(word, &part).map(HeadLoss)
    }

    fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "string", "enum": Loss::TYPES }, { "$ref": "#/$defs/Loss" }] })
    }
}
