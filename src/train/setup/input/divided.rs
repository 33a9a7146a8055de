//! What is to be told of samples that are divided into those that are trained on and those that are held out.

use crate::data::{Dataset, Source, Split};
use std::collections::HashSet;

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
    let names = |split: &Split| (0..split.len()).filter_map(|at| split.name(at)).collect::<HashSet<String>>();
    let (trained, held) = (names(train), names(val));
    let example = held.iter().filter(|name| trained.contains(*name)).min()?;
    let photos = match held.intersection(&trained).count() {
        1 => format!("1 photo, `{example}`, is"),
        n => format!("{n} photos, such as `{example}`, are"),
    };
    Some(format!(
        "{photos} both trained on and validated on: the list names photos several times, and `validation_split` divides its lines. What is validated \
         is better than on new photos: say by a column `split` or by `val_path` which lines to validate on"
    ))
}
