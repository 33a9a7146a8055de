//! The configuration language: from TOML text to a typed [`Experiment`], with every value's place kept.
//!
//! Nothing here knows graphs, data or devices. What can only be judged with the model at hand (shapes, the names that
//! `freeze` and `match` mean) is checked by others, with the spans that the experiment carries and the diagnostics
//! of this module.
//!
//! It is in layers. Each names only those before it:
//! - [`text`]: texts, places in them, diagnostics, TOML as a tree, how words are compared;
//! - [`declare`]: how options are declared, and how a table is read by what is declared;
//! - [`language`]: which sections, layers and options there are;
//! - [`experiment`]: what a configuration says, as plain data;
//! - [`mod@load`]: how files, blocks and `--set` become an experiment;
//! - `print`, [`schema`]: the effective configuration, and the JSON Schema of the language.

pub mod declare;
pub mod experiment;
pub mod language;
pub mod load;
mod print;
pub mod schema;
pub mod text;

pub use experiment::{Experiment, LayerKind, LayerNode};
pub use language::keys::for_option as keys_for_option;
pub use load::{
    Ask, Asked, Assigned, Counts, Failure, LeftBehind, Loaded, MAX_EFFECTIVE, Rest, SWEEP_OPTION, Trials, UNSET_OPTION,
    load, load_asking, load_effective, load_str, name_of,
};
pub use print::{inline as value_as_toml, print_with_origins, to_toml};
pub use text::diagnostics::{Diagnostic, Severity, Source, SourceId, Sources, Span};
pub use text::lints::Lint;
pub use text::words::nearest;
