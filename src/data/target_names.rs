//! What the numbers of a target are called.

use super::field::DataSpec;
use super::table::TableCodec;

/// The names of what is learnt: columns of a table, or of a list of photos; empty where nothing names them.
pub fn target_names(data: &DataSpec) -> Vec<String> {
    let of_list = || data.target().map(|(_, field)| field.columns.clone()).unwrap_or_default();
    TableCodec::of(data).map_or_else(of_list, |table| table.answers_named())
}
