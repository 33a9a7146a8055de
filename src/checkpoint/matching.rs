//! Which tensors of a file a model takes.

use super::tensor::Tensor;
use super::unread::Unread;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

/// At most this many names of a kind are listed.
const SHOWN: usize = 12;
/// A counter that state dicts of old versions of PyTorch lack. PyTorch, too, starts it from zero without an error.
const OPTIONAL_SUFFIX: &str = ".num_batches_tracked";
/// Variables of `fp16` runs. A checkpoint moves between precisions: who lacks them starts them anew, who has no use for
/// them leaves them.
pub(super) const GRAD_SCALER: [&str; 2] = ["grad_scaler.scale", "grad_scaler.growth_tracker"];

/// What wrappers put before all names of a model: `torch.compile`, `DataParallel`, and modules that hold a model.
const WRAPPERS: [(&str, &str); 3] =
    [("_orig_mod.", "`torch.compile`"), ("module.", "`DataParallel`"), ("model.", "a module around the model")];

/// How the tensors of a file and those of a model differ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mismatch {
    /// Names that the model has and the file lacks.
    pub missing: Vec<String>,
    /// Names that the file has and the model lacks.
    pub unexpected: Vec<String>,
    /// Name, the model's shape, the file's shape.
    pub wrong_shape: Vec<(String, Vec<usize>, Vec<usize>)>,
    /// Names that the model has, and the file in a form that is not read.
    pub unread: Vec<(String, Unread)>,
}

impl Mismatch {
    /// How many names differ.
    pub fn len(&self) -> usize {
        self.missing.len() + self.unexpected.len() + self.wrong_shape.len() + self.unread.len()
    }

    /// Of the names that the file lacks: those that it has in a form that is not read.
    pub fn name_unread(&mut self, unread: &BTreeMap<String, Unread>) {
        self.missing.retain(|name| match unread.get(name) {
            Some(what) => {
                self.unread.push((name.clone(), what.clone()));
                false
            }
            None => true,
        });
    }

    /// The tensors of the one layer that alone differs, in shape alone, if it is made for another number of classes: the
    /// last of a model; with the file's number and the model's.
    pub fn other_classes(&self) -> Option<(Vec<&str>, usize, usize)> {
        let layer = |name: &str| name.rsplit_once('.').map_or(String::new(), |(layer, _)| layer.to_owned());
        let (first, wanted, has) = self.wrong_shape.first()?;
        let classes = (*has.first()?, *wanted.first()?);
        if wanted == has || wanted[1..] != has[1..] {
            return None;
        }
        let alike = |(name, wanted, has): &(String, Vec<usize>, Vec<usize>)| {
            layer(name) == layer(first)
                && wanted.len() == has.len()
                && wanted[1..] == has[1..]
                && (has[0], wanted[0]) == classes
        };
        let all = self.len() == self.wrong_shape.len() && self.wrong_shape.iter().all(alike);
        all.then(|| (self.wrong_shape.iter().map(|(n, _, _)| n.as_str()).collect(), classes.0, classes.1))
    }

    /// The tensors that alone differ, if all of them do in how many rows they have, and have as many: embeddings and the head of another vocabulary; with the
    /// file's number and the model's.
    pub fn other_rows(&self) -> Option<(Vec<&str>, usize, usize)> {
        let (_, wanted, has) = self.wrong_shape.first()?;
        let rows = (*has.first()?, *wanted.first()?);
        let alike = |(_, wanted, has): &(String, Vec<usize>, Vec<usize>)| {
            (has.first(), wanted.first()) == (Some(&rows.0), Some(&rows.1)) && wanted[1..] == has[1..]
        };
        let all = self.len() == self.wrong_shape.len() && self.wrong_shape.iter().all(alike);
        (all && rows.0 != rows.1)
            .then(|| (self.wrong_shape.iter().map(|(name, ..)| name.as_str()).collect(), rows.0, rows.1))
    }

    /// True if nothing differs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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

/// Counts the models in a mean of weights (`torch.optim.swa_utils.AveragedModel`), which holds the model as a module.
const AVERAGED: &str = "n_averaged";

/// The name that the model has for a name of a file, if that is the same but for what wrappers have put before it, one within another too.
/// As little as possible is taken off.
pub fn unwrapped(name: &str, is_wanted: impl Fn(&str) -> bool) -> Option<&str> {
    let mut rest = name;
    loop {
        if is_wanted(rest) {
            return Some(rest);
        }
        let inner = WRAPPERS.iter().find_map(|(prefix, _)| rest.strip_prefix(prefix));
        rest = inner.filter(|inner| !inner.is_empty())?;
    }
}

/// Takes off what wrappers have put before names, from each by itself, where what is left is a name that the model has; and from names that
/// the model has not where the same was taken off others. What was taken off, for the user to know.
pub fn unwrap_names<'a>(
    wanted: impl IntoIterator<Item = &'a str>,
    tensors: &mut BTreeMap<String, Tensor>,
) -> Option<String> {
    let wanted: HashSet<&str> = wanted.into_iter().collect();
    let is_wanted = |name: &str| wanted.contains(name);
    let all: BTreeSet<String> = tensors.keys().cloned().collect();
    let mut prefixes = BTreeSet::new();
    let mut renamed = Vec::new();
    for name in tensors.keys() {
        let Some(short) = unwrapped(name, is_wanted).filter(|short| *short != name) else { continue };
        // Two tensors of a file may be one to the model: that with its very name is meant.
        if !tensors.contains_key(short) {
            prefixes.insert(name[..name.len() - short.len()].to_owned());
            renamed.push((name.clone(), short.to_owned()));
        }
    }
    // Those of which less has been taken off come first, and keep their name if two would have it.
    renamed.sort_by_key(|(name, short)| name.len() - short.len());
    for (name, short) in renamed {
        if !tensors.contains_key(&short)
            && let Some(tensor) = tensors.remove(&name)
        {
            tensors.insert(short, tensor);
        }
    }
    let longest = prefixes.iter().max_by_key(|prefix| prefix.len())?.clone();
    let strange: Vec<String> = tensors.keys().filter(|name| !is_wanted(name)).cloned().collect();
    for name in strange {
        let short = name.strip_prefix(&longest).filter(|short| !short.is_empty() && !tensors.contains_key(*short));
        if let Some(short) = short.map(str::to_owned)
            && let Some(tensor) = tensors.remove(&name)
        {
            tensors.insert(short, tensor);
        }
    }
    let averaged = tensors.contains_key(AVERAGED) && !is_wanted(AVERAGED) && longest.starts_with("module.");
    if averaged {
        tensors.remove(AVERAGED);
    }
    let shown: Vec<String> = prefixes.iter().map(|prefix| format!("`{prefix}`")).collect();
    let which = match all.iter().filter(|name| !tensors.contains_key(*name)).count() {
        n if n == all.len() => "all names".to_owned(),
        1 => "a name".into(),
        n => format!("{n} names"),
    };
    Some(format!("took {} off {which} (saved from {})", shown.join(" and "), wrappers_of(&longest, averaged)))
}

/// What has put a prefix before names, the outermost first. That is a mean of models, if one counts them.
fn wrappers_of(prefix: &str, averaged: bool) -> String {
    let (mut rest, mut by) = (prefix, Vec::new());
    if let Some(inner) = rest.strip_prefix("module.").filter(|_| averaged) {
        by.push("`torch.optim.swa_utils.AveragedModel`");
        rest = inner;
    }
    while let Some((inner, wrapper)) = WRAPPERS.iter().find_map(|(p, wrapper)| Some((rest.strip_prefix(p)?, *wrapper)))
    {
        by.push(wrapper);
        rest = inner;
    }
    by.join(" around ")
}

/// The same where no model is at hand: what is before all names, and certain not to be a layer's, which `model.` is not.
pub fn unwrap_all_names(tensors: &mut BTreeMap<String, Tensor>) -> Option<String> {
    let averaged = tensors.contains_key(AVERAGED);
    let first = tensors.keys().find(|name| *name != AVERAGED)?.clone();
    let mut taken = 0;
    while let Some((prefix, _)) = WRAPPERS[..2].iter().find(|(prefix, _)| first[taken..].starts_with(prefix)) {
        let whole = &first[..taken + prefix.len()];
        let has = |name: &String| name == AVERAGED || name.len() > whole.len() && name.starts_with(whole);
        if !tensors.keys().all(has) {
            break;
        }
        taken += prefix.len();
    }
    let prefix = &first[..taken];
    if prefix.is_empty() {
        return None;
    }
    if averaged {
        tensors.remove(AVERAGED);
    }
    let short = std::mem::take(tensors).into_iter().map(|(name, t)| (name[taken..].to_owned(), t));
    tensors.extend(short);
    Some(format!("took `{prefix}` off all names (saved from {})", wrappers_of(prefix, averaged)))
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
        let unread: Vec<String> = self.unread.iter().map(|(name, what)| format!("{name}: it is {what}")).collect();
        let sections = [
            ("in the file, but not read", &unread),
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
    fn wrappers_are_taken_off_each_name() {
        let off = |names: &[&str], model: &[&str]| {
            let mut have = file(&names.iter().map(|n| (*n, 1)).collect::<Vec<_>>());
            let note = unwrap_names(model.iter().copied(), &mut have);
            (have.into_keys().collect::<Vec<_>>(), note)
        };
        let (names, note) = off(&["_orig_mod.module.a.w", "_orig_mod.module.b"], &["a.w", "b"]);
        assert_eq!(names, ["a.w", "b"]);
        let note = note.unwrap();
        assert!(
            note.contains("`_orig_mod.module.`") && note.contains("`torch.compile` around `DataParallel`"),
            "{note}"
        );
        // The model's own names, some of them or all.
        for model in [&["model.a", "model.b"][..], &["model.a", "fc"]] {
            assert_eq!(off(&["model.a", "model.b"], model), (vec!["model.a".into(), "model.b".into()], None));
        }
        assert_eq!(off(&["model.model.a"], &["model.a"]).0, ["model.a"]);
        // Nothing of it is known.
        // Each name by itself, and with those taken off that others have lost.
        assert_eq!(off(&["module.a", "b", "module.c"], &["a", "b"]).0, ["a", "b", "c"]);
        assert_eq!(off(&["_orig_mod.a", "module.b"], &["a", "b"]).0, ["a", "b"]);
        // The very name is meant where the file has both.
        assert_eq!(off(&["a", "module.a", "module.b"], &["a", "b"]).0, ["a", "b", "module.a"]);
        // The count of models in a mean goes with its wrapper.
        assert_eq!(off(&["module.a", "n_averaged"], &["a"]).0, ["a"]);
        assert_eq!(off(&["a", "n_averaged"], &["a"]).0, ["a", "n_averaged"]);
        assert_eq!(off(&["module.a"], &["c"]).1, None);
        assert_eq!(off(&["module."], &[""]).1, None);
        assert_eq!(off(&[], &["a"]).1, None);
        // Without a model only what no layer is called.
        let all = |name: &str| {
            let mut have = file(&[(name, 1)]);
            unwrap_all_names(&mut have);
            have.into_keys().next().unwrap()
        };
        assert_eq!([all("_orig_mod.module.a"), all("model.a"), all("a.module.b")], ["a", "model.a", "a.module.b"]);
    }

    #[test]
    fn another_number_of_classes_is_recognised() {
        let shape = |name: &str, model: &[usize], file: &[usize]| (name.to_owned(), model.to_vec(), file.to_vec());
        let mismatch = |wrong_shape| Mismatch { wrong_shape, ..Mismatch::default() };
        let head = mismatch(vec![shape("fc.weight", &[10, 8], &[1000, 8]), shape("fc.bias", &[10], &[1000])]);
        assert_eq!(head.other_classes(), Some((vec!["fc.weight", "fc.bias"], 1000, 10)));
        let width = mismatch(vec![shape("fc.weight", &[10, 8], &[10, 9])]);
        let two = mismatch(vec![shape("a.weight", &[10, 8], &[9, 8]), shape("b.bias", &[10], &[9])]);
        let missing = Mismatch { missing: vec!["x".into()], ..head.clone() };
        assert!(
            [width, two, missing, mismatch(vec![shape("s", &[], &[])])].iter().all(|m| m.other_classes().is_none())
        );
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
