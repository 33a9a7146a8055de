//! Labels of classes, as files have them.

use super::MAX_CLASSES;
use anyhow::{Result, bail, ensure};

/// Labels as `i32`, all of them within `0 .. classes`; each sample has `each` of them.
pub(super) fn checked_labels(
    labels: impl ExactSizeIterator<Item = i64>,
    classes: usize,
    ignore_index: Option<i32>,
    each: usize,
    file: &str,
) -> Result<Vec<i32>> {
    let mut out = Vec::with_capacity(labels.len());
    for (i, label) in labels.enumerate() {
        // A bound that was made of the largest label would be one that this label keeps.
        ensure!(
            label < MAX_CLASSES as i64,
            "{file}: label {label} of sample {} is no number of a class, which are counted from 0: there may be {MAX_CLASSES} classes at most",
            i / each.max(1)
        );
        match i32::try_from(label) {
            Ok(l) if l >= 0 && (l as usize) < classes || Some(l) == ignore_index => out.push(l),
            _ => bail!(
                "{file}: label {label} of sample {} is not within 0 .. {}",
                i / each.max(1),
                classes.saturating_sub(1)
            ),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_must_be_classes() {
        assert_eq!(checked_labels([0i64, 9].into_iter(), 10, None, 1, "f").unwrap(), [0, 9]);
        let message =
            |list: [i64; 2], each| checked_labels(list.into_iter(), 10, None, each, "f").unwrap_err().to_string();
        assert!(message([0, 10], 1).contains("label 10 of sample 1 is not within 0 .. 9"));
        assert!(message([0, 10], 2).contains("of sample 0"));
        assert!(message([-1, 0], 1).contains("label -1"));
        // Where the largest label makes the number of classes, no label is beyond them.
        let largest = checked_labels([1i64 << 31].into_iter(), (1 << 31) + 1, None, 1, "f").unwrap_err().to_string();
        assert!(largest.contains("label 2147483648 of sample 0 is no number of a class"), "{largest}");
        assert!(largest.contains("16777216 classes at most"), "{largest}");
        assert_eq!(checked_labels([3i64, -1].into_iter(), 10, Some(-1), 1, "f").unwrap(), [3, -1]);
    }
}
