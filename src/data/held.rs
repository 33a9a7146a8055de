//! How the classes of data that is read besides are held to those that a model was trained on: by their names.

use super::classes::Classes;
use super::dataset::Dataset;
use super::field::{DataSpec, Field, FieldKind, Lengths};
use super::row_names::RowName;
use super::split::Split;
use super::store::{Rows, Store, Unreadable, as_inner};
use crate::graph::DType;
use anyhow::{Result, bail, ensure};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// How many names a message shows of a list.
const SHOWN: usize = 12;

/// The class that stands for each one of a set, in the numbers of the model.
type Numbers = Vec<usize>;

impl Classes {
    /// A set as the model sees it, and what its classes are to it if that is something else than what they are.
    ///
    /// # Errors
    /// The set has a class that the model does not know.
    fn hold(&self, mut spec: DataSpec) -> Result<(DataSpec, Option<Numbers>)> {
        let one_of_them = spec.labels().is_some();
        let Some(classes) = spec.classes_mut() else { return Ok((spec, None)) };
        let found = classes.number;
        let (own, known) = match (&classes.names, &self.names) {
            (Some(own), Some(known)) => (own, known),
            // Labels without names are the numbers of the classes.
            (None, _) if one_of_them && found <= self.number => {
                *classes = self.clone();
                return Ok((spec, None));
            }
            (None, _) if one_of_them && self.exact => bail!(
                "the labels of the data go up to {}, but the model was trained on {} class{}, 0 .. {}; evaluate it on data with \
                 these classes, or train a model anew",
                found - 1,
                self.number,
                if self.number == 1 { "" } else { "es" },
                self.number - 1
            ),
            _ => return Ok((spec, None)),
        };
        if own == known {
            return Ok((spec, None));
        }
        let by_name: HashMap<&String, usize> = known.iter().enumerate().map(|(number, name)| (name, number)).collect();
        let unknown: Vec<String> = own.iter().filter(|name| !by_name.contains_key(name)).cloned().collect();
        ensure!(unknown.is_empty(), UnknownClasses::new(&unknown, own, known));
        let numbers: Numbers = own.iter().filter_map(|name| by_name.get(name).copied()).collect();
        *classes = Classes { number: known.len(), names: self.names.clone(), ..*classes };
        for field in spec.fields.iter_mut().filter(|field| field.is_target()) {
            if let FieldKind::Labels(_) = field.kind {
                field.shape = [known.len()].into();
            }
        }
        Ok((spec, Some(numbers)))
    }
}

impl DataSpec {
    /// The set as a model sees it that was trained on these classes: those of the set are theirs by name.
    ///
    /// # Errors
    /// The set has a class that the model does not know.
    pub fn held_to(self, trained: &Classes) -> Result<DataSpec> {
        Ok(trained.hold(self)?.0)
    }
}

impl Dataset {
    /// The same for a set that was read: its labels become those of the model.
    ///
    /// # Errors
    /// As [`DataSpec::held_to`]; the labels are not in memory. Those of masks in files are of the model when they are read.
    pub fn held_to(self, trained: &Classes) -> Result<Dataset> {
        let (spec, numbers) = trained.hold(self.spec)?;
        let Some(numbers) = numbers else { return Ok(Dataset { spec, ..self }) };
        let held = |split: Split| Renumbered::split(split, &numbers, &spec);
        let (train, val, test) = (held(self.train)?, held(self.val)?, self.test.map(held).transpose()?);
        Ok(Dataset { spec, train, val, test, ..self })
    }
}

/// Classes that a model does not know.
#[derive(Debug)]
pub struct UnknownClasses {
    /// Which those are.
    pub unknown: Vec<String>,
    /// All that the data has.
    own: Vec<String>,
    /// All that the model knows.
    pub known: Vec<String>,
}

impl UnknownClasses {
    pub(super) fn new(unknown: &[String], own: &[String], known: &[String]) -> UnknownClasses {
        UnknownClasses { unknown: unknown.into(), own: own.into(), known: known.into() }
    }
}

impl fmt::Display for UnknownClasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (es, them) = if self.unknown.len() == 1 { ("", "it") } else { ("es", "them") };
        write!(
            f,
            "the model does not know the class{es} {} of the data: it was trained on {}, and the data has {}; give {them} a name that the \
             model knows, leave {them} out (`data.classes` names the classes that are read), or train a model anew",
            listed(&self.unknown),
            listed(&self.known),
            listed(&self.own)
        )
    }
}

impl std::error::Error for UnknownClasses {}

/// Names for people: the first few of them.
pub fn listed(names: &[String]) -> String {
    let some: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    match (names.len().saturating_sub(SHOWN), some.split_last()) {
        (0, Some((last, []))) => last.clone(),
        (0, Some((last, others))) => format!("{} and {last}", others.join(", ")),
        (0, None) => "none".to_owned(),
        (more, _) => format!("{} and {more} more", some.join(", ")),
    }
}

/// The name that is written nearly as `name` is, if there is one.
pub(super) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |known: &str| strsim::normalized_damerau_levenshtein(&known.to_lowercase(), &name.to_lowercase());
    let all = names.map(|known| (likeness(known), known)).filter(|(likeness, _)| *likeness > 0.6);
    all.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, known)| known)
}

/// Samples whose labels have other numbers than those of their store.
struct Renumbered {
    inner: Arc<dyn Store>,
    fields: Vec<Field>,
    /// The field of the labels, and the labels of all samples.
    target: usize,
    labels: Vec<u8>,
}

impl Renumbered {
    /// The samples of `split` with their labels renumbered, as `spec` says.
    fn split(split: Split, numbers: &[usize], spec: &DataSpec) -> Result<Split> {
        let target = split.fields().iter().position(Field::is_target);
        let Some((target, Some(stored))) = target.map(|target| (target, split.stored(target))) else {
            bail!("the classes of these samples are in another order than when the model was trained, and in no memory")
        };
        let mut fields = split.fields().to_vec();
        let own = fields[target].clone();
        fields[target].kind = spec.target().map_or(FieldKind::Number, |(_, field)| field.kind.clone());
        let labels = if own.dtype == DType::I32 {
            let new = |label: i32| {
                usize::try_from(label).ok().and_then(|old| numbers.get(old)).map_or(label, |new| *new as i32)
            };
            stored.as_chunks().0.iter().flat_map(|label| new(i32::from_ne_bytes(*label)).to_ne_bytes()).collect()
        } else {
            let width = spec.classes().map_or(0, |classes| classes.number);
            fields[target].shape = [width].into();
            let row = |old: &[u8]| {
                let mut row = vec![0; width * size_of::<f32>()];
                for (value, new) in old.as_chunks::<4>().0.iter().zip(numbers) {
                    row[new * 4..][..4].copy_from_slice(value);
                }
                row
            };
            stored.chunks_exact(own.bytes().max(1)).flat_map(row).collect()
        };
        split.in_store(|inner| Arc::new(Renumbered { inner, fields, target, labels }))
    }

    fn label(&self, sample: usize) -> &[u8] {
        let bytes = self.fields[self.target].bytes();
        &self.labels[sample * bytes..][..bytes]
    }
}

impl Store for Renumbered {
    as_inner!();

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn write(&self, sample: usize, rows: &mut Rows) -> Result<(), Unreadable> {
        rows.without(self.target, |rows| self.inner.write(sample, rows))?;
        rows.put(self.target, self.label(sample));
        Ok(())
    }

    fn identify(&self, sample: usize, field: usize, take: &mut dyn FnMut(&[u8])) {
        if field == self.target { take(self.label(sample)) } else { self.inner.identify(sample, field, take) }
    }

    fn stored(&self, field: usize) -> Option<&[u8]> {
        if field == self.target { Some(&self.labels) } else { self.inner.stored(field) }
    }

    fn held_bytes(&self) -> usize {
        self.inner.held_bytes() + self.labels.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Values;
    use super::super::store::{Column, Key};
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| name.to_string()).collect()
    }

    fn trained(list: &[&str]) -> Classes {
        Classes::named(names(list))
    }

    fn set(classes: &[&str], labels: &[i32]) -> Dataset {
        let split = || Split::labelled(Values::Bytes(vec![7; labels.len()]), [1], labels.to_vec()).unwrap();
        let spec = DataSpec::labelled(DType::U8, [1], classes.len()).named(names(classes));
        Dataset::new(spec, split(), split())
    }

    fn labels(split: &Split) -> Vec<i32> {
        (0..split.len()).map(|i| split.label(i).unwrap()).collect()
    }

    #[test]
    fn classes_are_matched_by_name() {
        let held = set(&["c", "a"], &[0, 1, 1, -1]).held_to(&trained(&["a", "b", "c"])).unwrap();
        assert_eq!(labels(&held.train), [2, 0, 0, -1]);
        assert_eq!(labels(&held.val), [2, 0, 0, -1]);
        assert_eq!(held.spec.labels(), Some(&trained(&["a", "b", "c"])));
        // What a batch gets is the same.
        let columns = [Some(Column { offset: 4, bytes: 1 }), Some(Column { offset: 0, bytes: 4 })];
        let mut slot = [0; 5];
        let key = Key { seed: 0, epoch: 0, sample: 0 };
        held.train.write(0, &mut Rows::new(&mut slot, &columns, 0, &[], key)).unwrap();
        assert_eq!((&slot[..4], slot[4]), (&2i32.to_ne_bytes()[..], 7));
    }

    #[test]
    fn several_classes_a_sample_are_matched_too() {
        let target = Field::target("targets", FieldKind::Labels(trained(&["c", "a"])), [2]);
        let spec = DataSpec::new(vec![Field::numbers("inputs", DType::U8, [1]), target.clone()]);
        let split = || {
            let fields = vec![
                (Field::numbers("inputs", DType::U8, [1]), Values::Bytes(vec![1, 2])),
                (target.clone(), Values::Floats(vec![1., 0., 0., 1.])),
            ];
            Split::in_memory(fields, 2).unwrap()
        };
        let held = Dataset::new(spec, split(), split()).held_to(&trained(&["a", "b", "c"])).unwrap();
        assert_eq!(held.spec.fields[1].shape.dims(), [3]);
        assert_eq!(held.train.fields()[1].shape.dims(), [3]);
        let row = |i| held.train.bytes(i, 1).unwrap().to_vec();
        assert_eq!(row(0), [0f32, 0., 1.].map(f32::to_ne_bytes).concat());
        assert_eq!(row(1), [1f32, 0., 0.].map(f32::to_ne_bytes).concat());
    }

    #[test]
    fn an_unknown_class_is_an_error_with_both_lists() {
        let error = set(&["b", "d"], &[0, 1]).held_to(&trained(&["a", "b"])).unwrap_err().to_string();
        for part in ["the class `d`", "trained on `a` and `b`", "the data has `b` and `d`"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn labels_without_names_are_numbers() {
        let plain = |n| DataSpec::labelled(DType::U8, [1], n);
        let held = plain(2).held_to(&trained(&["a", "b", "c"])).unwrap();
        assert_eq!(held.labels(), Some(&trained(&["a", "b", "c"])));
        assert!(plain(4).held_to(&trained(&["a", "b", "c"])).unwrap_err().to_string().contains("go up to 3"));
        // Where the number was only seen, the model may have more.
        let seen = Classes { exact: false, ..Classes::of(3) };
        assert_eq!(plain(4).held_to(&seen).unwrap().labels(), Some(&Classes::of(4)));
        assert_eq!(plain(2).held_to(&seen).unwrap().labels(), Some(&seen));
    }
}
