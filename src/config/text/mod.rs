//! The ground: texts and places in them, diagnostics, TOML as a tree. Nothing here knows an option.

pub mod diagnostics;
pub mod lints;
pub mod origins;
pub mod parse;
pub mod sink;
pub mod spelling;
pub mod syntax;
pub mod tree;
pub mod words;
