//! Texts and places in them, diagnostics and the names of warnings, TOML as a tree, and how words are compared: with slips of the
//! pen, and with those of PyTorch and its relatives. The code that reads a table gives its keys and words.

mod brackets;
pub mod diagnostics;
pub mod foreign;
pub mod lints;
pub(super) mod origins;
pub(super) mod parse;
pub(super) mod sink;
pub mod spelling;
pub(super) mod syntax;
pub(super) mod tree;
pub(super) mod words;
