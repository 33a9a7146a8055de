//! Which tensors of a file a model takes.

use super::tensor::Tensor;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

/// At most this many names of a kind are listed.
const SHOWN: usize = 12;
/// A counter that state dicts of old versions of PyTorch lack; PyTorch, too, starts it anew without complaint.
const OPTIONAL_SUFFIX: &str = ".num_batches_tracked";
/// Variables of `fp16` runs. A checkpoint moves between precisions: who lacks them starts them anew, who has no use for
/// them leaves them.
pub(super) const GRAD_SCALER: [&str; 2] = ["grad_scaler.scale", "grad_scaler.growth_tracker"];

/// How the tensors of a file and those of a model differ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mismatch {
    /// Names that the model has and the file lacks.
    pub missing: Vec<String>,
    /// Names that the file has and the model lacks.
    pub unexpected: Vec<String>,
    /// Name, the model's shape, the file's shape.
    pub wrong_shape: Vec<(String, Vec<usize>, Vec<usize>)>,
}

impl Mismatch {
    /// True if nothing differs.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty() && self.wrong_shape.is_empty()
    }
}

/// What fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matched {
    /// Names that both have, of equal shapes.
    pub names: BTreeSet<String>,
    /// Batch-norm counters and what belongs to a scaled loss that the file lacks; they keep their start.
    pub defaulted: Vec<String>,
    /// What was left out; empty if `strict`.
    pub left_out: Mismatch,
}

/// Compares the names and outside shapes that a model wants with a file's tensors.
///
/// # Errors
/// With `strict` any difference; without, only that nothing at all fits.
pub fn match_names<'a>(
    wanted: impl IntoIterator<Item = (&'a str, &'a [usize])>,
    have: &BTreeMap<String, Tensor>,
    strict: bool,
) -> Result<Matched, Mismatch> {
    match_shapes(wanted, have, |t| &t.shape, strict)
}

/// As [`match_names`], for anything that has a `shape`.
///
/// # Errors
/// As for [`match_names`].
pub fn match_shapes<'a, T>(
    wanted: impl IntoIterator<Item = (&'a str, &'a [usize])>,
    have: &BTreeMap<String, T>,
    shape_of: impl Fn(&T) -> &[usize],
    strict: bool,
) -> Result<Matched, Mismatch> {
    let mut out = Matched { names: BTreeSet::new(), defaulted: Vec::new(), left_out: Mismatch::default() };
    let mut known = HashSet::new();
    for (name, shape) in wanted {
        known.insert(name);
        match have.get(name) {
            Some(t) if shape_of(t) == shape => _ = out.names.insert(name.to_owned()),
            Some(t) => out.left_out.wrong_shape.push((name.to_owned(), shape.to_vec(), shape_of(t).to_vec())),
            None if name.ends_with(OPTIONAL_SUFFIX) || GRAD_SCALER.contains(&name) => {
                out.defaulted.push(name.to_owned())
            }
            None => out.left_out.missing.push(name.to_owned()),
        }
    }
    let unexpected = |n: &&String| !known.contains(n.as_str()) && !GRAD_SCALER.contains(&n.as_str());
    out.left_out.unexpected.extend(have.keys().filter(unexpected).cloned());
    let nothing_fits = out.names.is_empty() && !known.is_empty();
    if !out.left_out.is_empty() && (strict || nothing_fits) {
        return Err(out.left_out);
    }
    Ok(out)
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wrong: Vec<String> =
            self.wrong_shape.iter().map(|(n, w, h)| format!("{n}: {h:?}, the model has {w:?}")).collect();
        let sections = [
            ("missing (the model has them, the file does not)", &self.missing),
            ("unexpected (the file has them, the model does not)", &self.unexpected),
            ("of another shape", &wrong),
        ];
        let mut first = true;
        for (title, list) in sections.into_iter().filter(|(_, list)| !list.is_empty()) {
            write!(f, "{}{} {title}:", if first { "" } else { "\n" }, list.len())?;
            first = false;
            for line in list.iter().take(SHOWN) {
                write!(f, "\n  {line}")?;
            }
            if list.len() > SHOWN {
                write!(f, "\n  … and {} more", list.len() - SHOWN)?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Mismatch {}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(list: &[(&str, usize)]) -> BTreeMap<String, Tensor> {
        list.iter().map(|(n, len)| ((*n).to_owned(), Tensor::from_f32([*len], &vec![0.0; *len]))).collect()
    }

    fn wants(list: &'static [(&'static str, [usize; 1])]) -> impl Iterator<Item = (&'static str, &'static [usize])> {
        list.iter().map(|(n, s)| (*n, s.as_slice()))
    }

    #[test]
    fn all_differences_are_listed_together() {
        const MODEL: &[(&str, [usize; 1])] = &[("a", [2]), ("b", [3]), ("c", [1])];
        let have = file(&[("a", 2), ("b", 4), ("d", 1)]);
        let text = match_names(wants(MODEL), &have, true).unwrap_err().to_string();
        assert_eq!(
            text,
            "1 missing (the model has them, the file does not):\n  c\n\
             1 unexpected (the file has them, the model does not):\n  d\n\
             1 of another shape:\n  b: [4], the model has [3]"
        );
        let loose = match_names(wants(MODEL), &have, false).unwrap();
        assert_eq!(loose.names, BTreeSet::from(["a".to_owned()]));
        assert_eq!(
            (loose.left_out.missing.as_slice(), loose.left_out.unexpected.as_slice()),
            (&["c".to_owned()][..], &["d".to_owned()][..])
        );
    }

    #[test]
    fn a_file_of_which_nothing_fits_is_refused_even_if_not_strict() {
        const MODEL: &[(&str, [usize; 1])] = &[("a", [2])];
        assert!(match_names(wants(MODEL), &file(&[("b", 2)]), false).is_err());
        assert!(match_names(wants(MODEL), &file(&[]), false).is_err());
    }

    #[test]
    fn the_counter_of_batch_norm_may_be_missing() {
        const MODEL: &[(&str, [usize; 1])] = &[("bn.weight", [2]), ("bn.num_batches_tracked", [1])];
        let m = match_names(wants(MODEL), &file(&[("bn.weight", 2)]), true).unwrap();
        assert_eq!((m.names.len(), m.defaulted.len()), (1, 1));
    }

    #[test]
    fn a_checkpoint_moves_between_precisions() {
        const PLAIN: &[(&str, [usize; 1])] = &[("w", [2])];
        const SCALED: &[(&str, [usize; 1])] =
            &[("w", [2]), ("grad_scaler.scale", [1]), ("grad_scaler.growth_tracker", [1])];
        let (plain, scaled) =
            (file(&[("w", 2)]), file(&[("w", 2), ("grad_scaler.scale", 1), ("grad_scaler.growth_tracker", 1)]));
        let taken = |model, have| match_names(wants(model), have, true).unwrap();
        assert_eq!(taken(SCALED, &plain).defaulted.len(), 2);
        assert_eq!(taken(PLAIN, &scaled).names.len(), 1);
        assert_eq!(taken(SCALED, &scaled).names.len(), 3);
        // The names are those alone.
        assert!(match_names(wants(PLAIN), &file(&[("w", 2), ("grad_scaler.weight", 1)]), true).is_err());
    }

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<String> = (0..40).map(|i| format!("layer.{i}")).collect();
        let text =
            match_names(names.iter().map(|n| (n.as_str(), &[1usize][..])), &file(&[]), true).unwrap_err().to_string();
        assert!(text.starts_with("40 missing") && text.ends_with("… and 28 more"), "{text}");
    }
}
