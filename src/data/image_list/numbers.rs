//! What the labels of a list are like, if they are numbers.

use super::{FOUND, ImageListOptions, Lists};
use anyhow::Result;
use std::collections::HashSet;

/// What the labels of a list are, if they are numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// How many a photo has.
    pub width: usize,
    /// How many different ones there are.
    pub distinct: usize,
    /// None has a fraction.
    pub whole: bool,
}

/// What numbers the labels are.
///
/// # Errors
/// As for describing them.
pub fn numbers(options: &ImageListOptions) -> Result<Numbers> {
    let of = |lists: &Lists| {
        let bytes = lists.parts.iter().flat_map(|part| part.targets.as_chunks().0);
        let values: HashSet<u32> = bytes.map(|bytes| f32::from_ne_bytes(*bytes).to_bits()).collect();
        let whole = values.iter().all(|bits| f32::from_bits(*bits).fract() == 0.0);
        Numbers { width: lists.width, distinct: values.len(), whole }
    };
    FOUND.look(options, || options.lists(), of)
}
