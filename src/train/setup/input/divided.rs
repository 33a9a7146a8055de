//! Notes about samples that are divided into those that are trained on and those that are held out.

use crate::data::image_folder::several;
use crate::data::{Dataset, Source, Split};
use std::collections::{BTreeSet, HashSet};

/// That samples to validate on are used for nothing, as others are held out; those of a source without a test set are its test set then.
pub(super) fn unused(set: &Dataset) -> Option<String> {
    let samples = match set.val.len() {
        0 => return None,
        1 => "1 sample".to_owned(),
        n => format!("{n} samples"),
    };
    set.test.as_ref()?;
    Some(format!(
        "`validation_split` holds out training samples to validate on, so that {samples} of the data for validation are not used at all: leave \
         `validation_split` out to validate on those"
    ))
}

/// That photos are on both sides, as a list names them several times.
pub(super) fn on_both_sides(source: &Source, train: &Split, val: &Split) -> Option<String> {
    let Source::ImageList(_) = source else { return None };
    fn names(split: &Split) -> impl Iterator<Item = String> {
        (0..split.len()).filter_map(|at| split.name(at))
    }
    // Of a large list only the names of the smaller side are in memory.
    let held: HashSet<String> = names(val).collect();
    let both: BTreeSet<String> = names(train).filter(|name| held.contains(name)).collect();
    let photos = several(both.len(), both.first()?);
    Some(format!(
        "{photos} both trained on and validated on: the list names photos several times, and `validation_split` divides its lines. What is validated \
         is better than on new photos: say by a column `split` or by `val_path` which lines to validate on"
    ))
}
