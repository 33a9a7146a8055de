//! What samples weigh in the loss, of sources whose samples lie in a store of their own.

use super::Split;
use super::field::{Field, Lengths};
use super::row_names::RowName;
use super::store::{Rows, Store, Unreadable, as_inner};
use anyhow::{Result, ensure};
use std::sync::Arc;

/// What a text says that a sample weighs.
///
/// # Errors
/// It is no number of at least 0, or one that is too large: what there is, for a message.
pub fn weight(text: &str) -> Result<f32, String> {
    let text = text.trim();
    let shown = || format!("`{}`", text.chars().take(40).collect::<String>());
    match text.parse::<f32>() {
        Ok(weight) if is_weight(weight) => Ok(weight),
        // The number may be finite in double precision.
        Ok(_) if text.parse::<f64>().is_ok_and(|weight| weight.is_finite() && weight > 0.0) => {
            Err(format!("{}, which is too large for single precision (its largest number is 3.4e38)", shown()))
        }
        _ if text.is_empty() => Err("nothing".to_owned()),
        _ => Err(shown()),
    }
}

/// Whether a number is what a sample may weigh.
pub fn is_weight(weight: f32) -> bool {
    weight >= 0.0 && weight.is_finite()
}

/// The error for what is no weight, with its place.
pub fn no_weight(place: &str, column: &str, has: &str) -> String {
    format!("{place}: the column `{column}` has {has}, and a weight is a number of at least 0")
}

/// The samples of a split, which weigh so much: one weight for each sample of the store. `called` names them in messages.
///
/// # Errors
/// All are 0.
pub fn weighted(split: &Split, weights: Vec<f32>, called: &str) -> Result<Split> {
    ensure!(weights.is_empty() || weights.iter().any(|weight| *weight > 0.0), "every weight in {called} is 0");
    split.in_store(|inner| {
        assert_eq!(weights.len(), inner.len(), "a weight for each sample");
        let fields = inner.fields().iter().cloned().chain([Field::sample_weight()]).collect();
        Arc::new(Weighted { inner, fields, weights })
    })
}

/// Samples with a weight each, their last field.
struct Weighted {
    inner: Arc<dyn Store>,
    fields: Vec<Field>,
    weights: Vec<f32>,
}

impl Weighted {
    fn place(&self) -> usize {
        self.fields.len() - 1
    }
}

impl Store for Weighted {
    as_inner!();

    fn len(&self) -> usize {
        self.weights.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn write(&self, sample: usize, rows: &mut Rows) -> Result<(), Unreadable> {
        self.inner.write(sample, rows)?;
        rows.put(self.place(), &self.weights[sample].to_ne_bytes());
        Ok(())
    }

    fn identify(&self, sample: usize, field: usize, take: &mut dyn FnMut(&[u8])) {
        match field == self.place() {
            true => take(&self.weights[sample].to_ne_bytes()),
            false => self.inner.identify(sample, field, take),
        }
    }

    fn stored(&self, field: usize) -> Option<&[u8]> {
        match field == self.place() {
            true => Some(super::values::bytes_of(&self.weights)),
            false => self.inner.stored(field),
        }
    }

    fn classes_in_file(&self, sample: usize, take: &mut dyn FnMut(i32)) -> bool {
        self.inner.classes_in_file(sample, take)
    }

    fn held_bytes(&self) -> usize {
        self.inner.held_bytes() + size_of_val(&self.weights[..])
    }
}

#[cfg(test)]
mod tests {
    use super::super::Values;
    use super::*;

    #[test]
    fn weights_are_the_last_field() {
        let split = Split::labelled(Values::Bytes(vec![7, 8, 9]), [1], vec![0, 1, 2]).unwrap();
        let all = weighted(&split.select(&[2, 0]), vec![0.5, 0.0, 3.0], "`w`").unwrap();
        let weight = |i: usize| f32::from_ne_bytes(all.bytes(i, 2).unwrap().try_into().unwrap());
        assert_eq!((all.len(), weight(0), weight(1)), (2, 3.0, 0.5));
        assert_eq!((all.bytes(0, 0), all.label(1)), (split.bytes(2, 0), Some(0)));
        assert_eq!(all.held_bytes(), split.held_bytes() + 12);
        let error = weighted(&split, vec![0.0; 3], "`w`").unwrap_err().to_string();
        assert_eq!(error, "every weight in `w` is 0");
    }

    #[test]
    fn weights_are_numbers_of_at_least_0() {
        assert_eq!((weight(" 1.5 "), weight("0")), (Ok(1.5), Ok(0.0)));
        assert_eq!(
            ["", " ", "-1", "inf", "NaN", "-1e40", "much"].map(|text| weight(text).unwrap_err()),
            ["nothing", "nothing", "`-1`", "`inf`", "`NaN`", "`-1e40`", "`much`"]
        );
        let large = weight("1e39").unwrap_err();
        assert_eq!(large, "`1e39`, which is too large for single precision (its largest number is 3.4e38)");
    }
}
