//! Tables that a word tells apart: `type = "conv2d"`, `source = "mnist"`.

use schemars::{Schema, SchemaGenerator};

use super::part::Part;

/// An enum of structs, one of which a table is read as. Made by the macro of the same name.
pub trait Tagged: Sized + 'static {
    /// The key that holds the word.
    const TAG: &'static str;
    /// All words.
    const TYPES: &'static [&'static str];

    /// The word of this one.
    fn type_name(&self) -> &'static str;

    /// The keys of a word's struct.
    fn fields(word: &str) -> &'static [&'static str];

    /// Reads a word's struct.
    fn read(word: &str, part: &Part) -> Option<Self>;

    /// The JSON Schema of each word's struct.
    fn schemas(generator: &mut SchemaGenerator) -> Vec<(&'static str, Schema)>;
}

/// Declares an enum and its [`Tagged`] from a list of `"word" => Variant(Struct)`.
macro_rules! tagged {
    ($(#[$doc:meta])* $enum:ident by $tag:literal: $($name:literal => $variant:ident($args:ty),)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize)]
        #[serde(tag = $tag)]
        #[expect(missing_docs, reason = "each variant is documented at its struct")]
        pub enum $enum {
            $(#[serde(rename = $name)] $variant($args),)*
        }

        impl $crate::config::tagged::Tagged for $enum {
            const TAG: &'static str = $tag;
            const TYPES: &'static [&'static str] = &[$($name,)*];

            fn type_name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)*
                }
            }

            fn fields(word: &str) -> &'static [&'static str] {
                match word {
                    $($name => $crate::config::de::field_names::<$args>(),)*
                    _ => &[],
                }
            }

            fn read(word: &str, part: &$crate::config::part::Part) -> Option<Self> {
                match word {
                    $($name => part.read::<$args>().map(Self::$variant),)*
                    _ => None,
                }
            }

            fn schemas(generator: &mut schemars::SchemaGenerator) -> Vec<(&'static str, schemars::Schema)> {
                vec![$(($name, <$args as schemars::JsonSchema>::json_schema(generator)),)*]
            }
        }
    };
}
pub(crate) use tagged;
