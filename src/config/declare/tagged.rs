//! Tables whose kind a word selects: `type = "conv2d"`, `source = "mnist"`.

use schemars::SchemaGenerator;

use super::declaration::{Declaration, Effect, Rule};
use super::part::{Part, known_word};
use crate::config::text::diagnostics::{Diagnostic, SourceKind, Sources, Span};
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

    /// The keys of all words that name a file or a folder.
    fn paths() -> Vec<&'static str>;

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
    /// Reads the word that selects the kind of this table.
    pub fn word<T: Tagged>(&self, default: Option<&'static str>) -> Option<&'static str> {
        let Some(node) = self.node(T::TAG) else {
            if default.is_none() && self.is_missed(T::TAG) {
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

    /// Reports what is wrong in a table of which it is not known what kind it is: keys, besides those of `others`, that no kind has,
    /// and values that are wrong for each kind that has their key.
    pub fn of_any_kind<T: Tagged>(&self, others: &[&[&str]]) {
        let keys: Vec<&[&str]> = T::TYPES.iter().map(|word| T::fields(word)).collect();
        let mut known = [&[&[T::TAG][..]], others, &keys].concat().concat();
        known.sort_unstable();
        known.dedup();
        for entry in self.table.entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            // They are too many to be listed.
            self.sink.push(Diagnostic { help: None, ..self.unknown_key(entry, &known) });
        }
        let read = T::TYPES.iter().map(|word| {
            let sink = Sink::default();
            T::read(word, &Part { sink: &sink, ..*self });
            (*word, sink.into_vec())
        });
        let found: Vec<(&str, Vec<Diagnostic>)> = read.collect();
        for entry in &self.table.entries {
            let mut kinds = found.iter().filter(|(word, _)| T::fields(word).contains(&entry.key.as_str()));
            let Some((_, first)) = kinds.next() else { continue };
            let common = first.iter().filter(|one| one.span().is_some_and(|span| entry.has(span)));
            common
                .filter(|one| kinds.clone().all(|(_, problems)| problems.contains(one)))
                .for_each(|one| self.sink.push(one.clone()));
        }
    }
}

/// How many words there are in some lists.
pub const fn count(lists: &[&[&str]]) -> usize {
    let (mut count, mut list) = (0, 0);
    while list < lists.len() {
        count += lists[list].len();
        list += 1;
    }
    count
}

/// Some lists of words, of which there are `N` in all, as one.
pub const fn join<const N: usize>(lists: &[&[&'static str]]) -> [&'static str; N] {
    let mut all = [""; N];
    let (mut at, mut list) = (0, 0);
    while list < lists.len() {
        let mut word = 0;
        while word < lists[list].len() {
            all[at] = lists[list][word];
            at += 1;
            word += 1;
        }
        list += 1;
    }
    all
}

/// Declares an enum and its [`Tagged`] from a list of `"word" => Variant(Struct)`, each a table of options. In between may stand
/// one `family Variant(Enum)`: all words of an enum that is declared likewise, with the same key.
macro_rules! tagged {
    (
        $(#[$doc:meta])*
        $enum:ident by $tag:literal, resume $resume:ident:
        $($name:literal => $variant:ident($args:ty),)*
        $(
            family $family:ident($members:ty),
            $($later_name:literal => $later:ident($later_args:ty),)*
        )?
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize)]
        #[serde(tag = $tag)]
        #[expect(missing_docs, reason = "each variant is documented at its struct")]
        pub enum $enum {
            $(#[serde(rename = $name)] $variant($args),)*
            $(
                $(#[serde(rename = $later_name)] $later($later_args),)*
                // It has written its own word.
                #[serde(untagged)]
                $family($members),
            )?
        }

        const _: () = {
            use $crate::config::declare::declaration::{Declaration, Effect, Rule};
            use $crate::config::declare::options::Options;
            use $crate::config::declare::part::Part;
            use $crate::config::declare::tagged::{Tagged, count, join};

            const WORDS: &[&[&str]] =
                &[&[$($name),*], $(<$members as Tagged>::TYPES, &[$($later_name),*])?];

            impl Tagged for $enum {
                const TAG: &'static str = $tag;
                const TYPES: &'static [&'static str] = &join::<{ count(WORDS) }>(WORDS);
                const RESUME: Effect = Effect::$resume;

                fn type_name(&self) -> &'static str {
                    match self {
                        $(Self::$variant(_) => $name,)*
                        $(
                            Self::$family(member) => member.type_name(),
                            $(Self::$later(_) => $later_name,)*
                        )?
                    }
                }

                fn fields(word: &str) -> &'static [&'static str] {
                    match word {
                        $($name => <$args as Options>::KEYS,)*
                        $(
                            $($later_name => <$later_args as Options>::KEYS,)*
                            word if <$members as Tagged>::TYPES.contains(&word) => <$members as Tagged>::fields(word),
                        )?
                        _ => &[],
                    }
                }

                fn rules() -> Vec<Rule> {
                    [
                        $(<$args as Options>::RULES.to_vec(),)*
                        $(
                            <$members as Tagged>::rules(),
                            $(<$later_args as Options>::RULES.to_vec(),)*
                        )?
                    ]
                    .concat()
                }

                fn paths() -> Vec<&'static str> {
                    [
                        $(<$args as Options>::paths(),)*
                        $(
                            <$members as Tagged>::paths(),
                            $(<$later_args as Options>::paths(),)*
                        )?
                    ]
                    .concat()
                }

                fn read(word: &str, part: &Part) -> Option<Self> {
                    match word {
                        $($name => part.read::<$args>().map(Self::$variant),)*
                        $(
                            $($later_name => part.read::<$later_args>().map(Self::$later),)*
                            word if <$members as Tagged>::TYPES.contains(&word) => {
                                <$members as Tagged>::read(word, part).map(Self::$family)
                            }
                        )?
                        _ => None,
                    }
                }

                fn declarations(generator: &mut schemars::SchemaGenerator) -> Vec<(&'static str, Declaration)> {
                    let all = [
                        vec![$(($name, <$args as Options>::declaration(generator)),)*],
                        $(
                            <$members as Tagged>::declarations(generator),
                            vec![$(($later_name, <$later_args as Options>::declaration(generator)),)*],
                        )?
                    ];
                    all.into_iter().flatten().collect()
                }
            }
        };
    };
}
pub(crate) use tagged;
