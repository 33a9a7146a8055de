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
//! `docs/config/`, and what a change of it means to a run that is resumed. The settings in `#[option(…)]` are the methods of
//! `Field` (`field.rs`); all of them may be left out. An option without a default is required, unless its type is
//! an `Option`. Rules for several options together stand in `#[rules(…)]`, or else in code in [`Check`] and for the schema
//! in `#[schema(…)]`.

use schemars::SchemaGenerator;

use super::declaration::{Declaration, Rule};
use super::part::Part;
use crate::config::text::spelling::list;
use crate::config::text::tree::Node;

/// What the options of a table must agree on, beyond what is declared of each.
pub trait Check {
    /// Reports what is in conflict; by default nothing is.
    fn check(&self, _: &Part) {}
}

/// A table of options. Made by the macro `options!`.
pub trait Options: Sized {
    /// All keys, in the order in which they are declared.
    const KEYS: &'static [&'static str];
    /// What they must agree on.
    const RULES: &'static [Rule];

    /// Those that name a file or a folder.
    fn paths() -> Vec<&'static str>;

    /// Reads all of them. Every bad value is reported, not only the first; `None` if one cannot be read.
    fn read(part: &Part) -> Option<Self>;

    /// What has been declared.
    fn declaration(generator: &mut SchemaGenerator) -> Declaration;
}

impl Part<'_> {
    /// Reads the options that `T` has. Every bad value is reported, not only the first; `None` if there was any.
    pub fn read<T: Options + Check>(&self) -> Option<T> {
        // What is warned of is read all the same.
        let before = self.sink.refusals();
        let value = T::read(self)?;
        check_rules(T::RULES, self);
        value.check(self);
        (self.sink.refusals() == before).then_some(value)
    }
}

/// Reads a table of options that is the value of an option, or one of its elements; `what` is the table in messages.
pub fn table<T: Options + Check>(part: &Part, key: &str, node: &Node, what: &str) -> Option<T> {
    let Some(table) = node.as_table() else {
        part.wrong_value(key, node, &format!("expected a table of {}", list(T::KEYS.iter().copied(), "and")));
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
                #[serde(skip_serializing_if = "crate::config::declare::value::is_unset")]
                $(#[serde(rename = $key)])?
                pub $field: $type,
            )*
        }

        #[allow(unused_imports, unused_variables, reason = "not every table needs all of it")]
        const _: () = {
            use $crate::config::declare::declaration::{Declaration, Effect::*, Rule::{self, *}};
            use $crate::config::declare::field::{Field, markdown};
            use $crate::config::declare::options::{Options, option_key};

            impl Options for $name {
                const KEYS: &'static [&'static str] = &[$(option_key!($field $($key)?)),*];
                const RULES: &'static [Rule] = &[$($($rule),*)?];

                fn paths() -> Vec<&'static str> {
                    let are_paths: &[bool] = &[$(<$type as $crate::config::declare::value::Value>::IS_PATH),*];
                    Self::KEYS.iter().zip(are_paths).filter(|(_, is_path)| **is_path).map(|(key, _)| *key).collect()
                }

                fn read(part: &$crate::config::declare::part::Part) -> Option<Self> {
                    $(
                        let $field = Field::<$type>::new(option_key!($field $($key)?), concat!($($doc, "\n"),*))
                            $($(.$setting($value))*)?
                            .read(part);
                    )*
                    Some(Self { $($field: $field?,)* })
                }

                fn declaration(generator: &mut schemars::SchemaGenerator) -> Declaration {
                    Declaration {
                        about: markdown(concat!($($about, "\n"),*)),
                        options: vec![$(
                            Field::<$type>::new(option_key!($field $($key)?), concat!($($doc, "\n"),*))
                                $($(.$setting($value))*)?
                                .declare(generator)
                        ),*],
                        rules: Self::RULES,
                        schema: serde_json::json!({ $($($schema)*)? }),
                        probe: $crate::config::declare::options::probe::<Self>,
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
            Rule::ExcludesWithout(a, b, key, why) if part.table.get(key).is_none() => part.conflict(a, b, why),
            Rule::Conflicts(a, b, unless, why) if unless.is_none_or(|key| part.table.get(key).is_none()) => {
                part.conflict(a, b, why);
            }
            Rule::ExcludesWithout(..) | Rule::Conflicts(..) => {}
            Rule::OneOf(a, b) => part.one_of(a, b),
        }
    }
}
