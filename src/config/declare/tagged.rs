//! Tables that a word tells apart: `type = "conv2d"`, `source = "mnist"`.

use schemars::SchemaGenerator;

use super::declaration::{Declaration, Effect, Rule};
use super::part::{Part, known_word};
use crate::config::text::diagnostics::Diagnostic;
use crate::config::text::diagnostics::{SourceKind, Sources, Span};
use crate::config::text::sink::Sink;
use crate::config::text::spelling::list;
use crate::config::text::tree::Table;

/// An enum of structs, one of which a table is read as. Made by the macro of the same name.
pub trait Tagged: Sized + 'static {
    /// The key that holds the word.
    const TAG: &'static str;
    /// All words.
    const TYPES: &'static [&'static str];
    /// What another word does to a run that is resumed.
    const RESUME: Effect;

    /// The word of this one.
    fn type_name(&self) -> &'static str;

    /// The keys of a word's struct.
    fn fields(word: &str) -> &'static [&'static str];

    /// What the options of all words must agree on.
    fn rules() -> Vec<Rule>;

    /// Reads a word's struct.
    fn read(word: &str, part: &Part) -> Option<Self>;

    /// One of every word, with the defaults of its options; words of which an option is required are left out.
    fn defaults() -> Vec<Self> {
        let (nothing, sink) = (Table::default(), Sink::default());
        let span = Span { source: Sources::default().add("", "", SourceKind::File), start: 0, end: 0 };
        let part = Part { table: &nothing, span, what: "", bad: &[], sink: &sink };
        Self::TYPES.iter().filter_map(|word| Self::read(word, &part)).collect()
    }

    /// What each word's struct declares.
    fn declarations(generator: &mut SchemaGenerator) -> Vec<(&'static str, Declaration)>;
}

impl Part<'_> {
    /// Reads the word that tells what kind of table this is.
    pub fn word<T: Tagged>(&self, default: Option<&'static str>) -> Option<&'static str> {
        let Some(node) = self.table.get(T::TAG) else {
            if default.is_none() && !self.sink.has_suggested(T::TAG, self.table) {
                self.sink.push(
                    Diagnostic::error(format!("{} needs `{}`", self.what, T::TAG))
                        .at(self.span, format!("`{}` is missing", T::TAG))
                        .help(format!("it may be {}", list(T::TYPES.iter().copied(), "or"))),
                );
            }
            return default;
        };
        known_word(node, T::TAG, self.what, T::TYPES, self.sink)
    }
}

/// Declares an enum and its [`Tagged`] from a list of `"word" => Variant(Struct)`, each a table of options.
macro_rules! tagged {
    ($(#[$doc:meta])* $enum:ident by $tag:literal, resume $resume:ident: $($name:literal => $variant:ident($args:ty),)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize)]
        #[serde(tag = $tag)]
        #[expect(missing_docs, reason = "each variant is documented at its struct")]
        pub enum $enum {
            $(#[serde(rename = $name)] $variant($args),)*
        }

        impl $crate::config::declare::tagged::Tagged for $enum {
            const TAG: &'static str = $tag;
            const TYPES: &'static [&'static str] = &[$($name,)*];
            const RESUME: $crate::config::declare::declaration::Effect = $crate::config::declare::declaration::Effect::$resume;

            fn type_name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)*
                }
            }

            fn fields(word: &str) -> &'static [&'static str] {
                match word {
                    $($name => <$args as $crate::config::declare::options::Options>::KEYS,)*
                    _ => &[],
                }
            }

            fn rules() -> Vec<$crate::config::declare::declaration::Rule> {
                [$(<$args as $crate::config::declare::options::Options>::RULES),*].concat()
            }

            fn read(word: &str, part: &$crate::config::declare::part::Part) -> Option<Self> {
                match word {
                    $($name => part.read::<$args>().map(Self::$variant),)*
                    _ => None,
                }
            }

            fn declarations(
                generator: &mut schemars::SchemaGenerator,
            ) -> Vec<(&'static str, $crate::config::declare::declaration::Declaration)> {
                vec![$(($name, <$args as $crate::config::declare::options::Options>::declaration(generator)),)*]
            }
        }
    };
}
pub(crate) use tagged;
