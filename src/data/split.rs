//! A list of samples: all of a store, or a part of them.

use super::cache::{Area, Cache};
use super::classes::Classes;
use super::field::{Field, FieldKind, INPUTS, Lengths, TARGETS};
use super::memory::Memory;
use super::naive::NaiveErrors;
use super::row_names::RowName;
use super::store::{Rows, Store, Unreadable};
use super::transforms::Transform;
use super::values::Values;
use crate::graph::{DType, Shape};
use anyhow::{Result, ensure};
use std::fmt;
use std::sync::Arc;

/// A list of samples. Cheap to copy and to divide: all splits of a source look into the same store.
#[derive(Clone)]
pub struct Split {
    store: Arc<dyn Store>,
    /// Which samples of the store, in order; `None`: all.
    index: Option<Arc<[u32]>>,
    len: usize,
    /// Where its images are kept once they are decoded, and the name of the part of the source that the store is.
    kept: Option<(Arc<Cache>, &'static str)>,
}

impl fmt::Debug for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Split").field("fields", &self.fields()).field("len", &self.len).finish_non_exhaustive()
    }
}

impl Split {
    /// All samples of a store.
    ///
    /// # Errors
    /// There are more than 2^32 samples.
    pub fn new(store: Arc<dyn Store>) -> Result<Self> {
        let len = store.len();
        ensure!(u32::try_from(len).is_ok(), "a split of {len} samples: more than 4,294,967,295 are not supported");
        Ok(Split { store, index: None, len, kept: None })
    }

    /// `len` samples in memory.
    ///
    /// # Errors
    /// The lengths of the lists do not fit the shapes, or there are more than 2^32 samples.
    pub fn in_memory(fields: Vec<(Field, Values)>, len: usize) -> Result<Self> {
        Split::new(Arc::new(Memory::new(fields, len)?))
    }

    /// Samples in memory with one label each.
    ///
    /// # Errors
    /// As [`Split::in_memory`].
    pub fn labelled(inputs: Values, shape: impl Into<Shape>, labels: Vec<i32>) -> Result<Self> {
        let len = labels.len();
        let inputs = (Field::by_rank(INPUTS, inputs.dtype(), shape), inputs);
        let seen = labels.iter().max().map_or(0, |label| usize::try_from(*label).map_or(0, |label| label + 1));
        let classes = Classes { exact: false, ..Classes::of(seen) };
        let target = Field::target(TARGETS, FieldKind::Category(classes), []);
        Split::in_memory(vec![inputs, (target, Values::Ints(labels))], len)
    }

    /// Samples in memory with values of the shape `target` each.
    ///
    /// # Errors
    /// As [`Split::in_memory`].
    pub fn valued(
        inputs: Values,
        shape: impl Into<Shape>,
        values: Vec<f32>,
        target: impl Into<Shape>,
        len: usize,
    ) -> Result<Self> {
        let inputs = (Field::by_rank(INPUTS, inputs.dtype(), shape), inputs);
        Split::in_memory(vec![inputs, (Field::target(TARGETS, FieldKind::Number, target), Values::Floats(values))], len)
    }

    /// The same samples of another store, which is made of this one.
    ///
    /// # Errors
    /// There are more than 2^32 samples.
    pub(super) fn in_store(&self, store: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>) -> Result<Self> {
        Ok(Split {
            index: self.index.clone(),
            len: self.len,
            kept: self.kept.clone(),
            ..Split::new(store(Arc::clone(&self.store)))?
        })
    }

    /// Bytes of memory that its store holds, whichever part of that it shows.
    pub fn held_bytes(&self) -> usize {
        self.store.held_bytes()
    }

    /// Bytes of a file that is there for its store.
    pub fn filed_bytes(&self) -> usize {
        self.store.filed_bytes()
    }

    /// The same samples, whose images are kept in `cache` when a loader applies `transforms` to them. `part` names
    /// the part of the source that the store is. Samples that are no photos stay as they are.
    ///
    /// # Errors
    /// The cache cannot be used.
    pub fn kept_in(mut self, cache: &Arc<Cache>, part: &'static str, transforms: &[Transform]) -> Result<Split> {
        if let Some(folder) = self.store.folder() {
            let locate = |sample: usize, take: &mut dyn FnMut(&[u8])| self.store.locate(sample, take);
            cache.prepare(part, &folder, transforms, self.store.len(), &locate)?;
            self.kept = Some((Arc::clone(cache), part));
        }
        Ok(self)
    }

    /// The images that are kept after the first of these transforms.
    pub(super) fn area(&self, transforms: &[Transform]) -> Option<Arc<Area>> {
        let (cache, part) = self.kept.as_ref()?;
        cache.area(part, transforms)
    }

    /// The lengths that batches may have: [`Store::lengths`].
    pub fn lengths(&self) -> &[Lengths] {
        self.store.lengths()
    }

    /// Which of them sample `i` has.
    pub(super) fn length_of(&self, i: usize) -> usize {
        self.store.length_of(self.at(i))
    }

    /// True if a sample that cannot be read is left out; else it ends the run.
    pub(super) fn skips_unreadable(&self) -> bool {
        self.store.skips_unreadable()
    }

    /// True if both look into the same store.
    pub fn shares_memory_with(&self, other: &Split) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.store), Arc::as_ptr(&other.store))
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is no sample.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The fields of a sample. A field's place in this list is its number.
    pub fn fields(&self) -> &[Field] {
        self.store.fields()
    }

    /// Writes sample `i` of the split.
    pub(super) fn write(&self, i: usize, rows: &mut Rows) -> Result<(), Unreadable> {
        self.store.write(self.at(i), rows)
    }

    /// Height and width of the image that sample `i` is made of, before any transform; `None` if it is no image, or cannot be read.
    pub fn sides(&self, i: usize) -> Option<[usize; 2]> {
        let images = || self.fields().iter().filter(|field| field.is_input() && field.is_image());
        let one = images().find_map(|field| match field.shape.dims() {
            &[h, w, _] if h > 0 => Some([h, w]),
            _ => None,
        });
        one.or_else(|| self.store.sides(self.at(i)))
    }

    /// What sample `i` is called, if it has a name: that of its file.
    pub fn name(&self, i: usize) -> Option<String> {
        self.store.name(self.at(i))
    }

    /// Which row of a table sample `i` is, if it is one.
    pub fn row(&self, i: usize) -> Option<RowName<'_>> {
        self.store.row(self.at(i))
    }

    /// Of which series of a table sample `i` is, and when it ends, with the names of those columns.
    pub fn series(&self, i: usize) -> Vec<(String, String)> {
        self.store.series(self.at(i))
    }

    /// The errors of naive forecasts of all samples, if these are windows of series with numbers after them to learn.
    pub fn naive_errors(&self) -> Option<NaiveErrors> {
        let each = (0..self.len).filter_map(|i| self.store.naive_errors(self.at(i)));
        each.reduce(|mut all, own| {
            all.merge(own);
            all
        })
    }

    /// Hands the identity of a field of sample `i` to `take`.
    pub(super) fn identify(&self, i: usize, field: usize, take: &mut dyn FnMut(&[u8])) {
        self.store.identify(self.at(i), field, take);
    }

    /// The bytes of field number `field` of sample `i`, native endian; `None` if there is no such field or if it is not in
    /// memory.
    ///
    /// # Panics
    /// If there is no sample `i`.
    pub fn bytes(&self, i: usize, field: usize) -> Option<&[u8]> {
        let at = self.at(i);
        let bytes = self.fields().get(field)?.bytes();
        Some(&self.store.stored(field)?[at * bytes..][..bytes])
    }

    /// The label of sample `i`; `None` if it has none, or if it is not in memory.
    ///
    /// # Panics
    /// If there is no sample `i`.
    pub fn label(&self, i: usize) -> Option<i32> {
        let field = self.fields().iter().position(|f| f.is_target() && f.dtype == DType::I32 && f.shape.len() == 1)?;
        Some(i32::from_ne_bytes(self.bytes(i, field)?.try_into().ok()?))
    }

    /// Passes the classes of sample `i` to `take`, of which field number `field` has one or several: from memory, or of its pixels from a
    /// file, before any transform. False if they are neither here nor there; what cannot be read has none.
    ///
    /// # Panics
    /// If there is no sample `i`.
    pub fn classes(&self, i: usize, field: usize, mut take: impl FnMut(i32)) -> bool {
        match self.bytes(i, field) {
            Some(bytes) => bytes.as_chunks().0.iter().for_each(|class| take(i32::from_ne_bytes(*class))),
            None => return self.store.classes_in_file(self.at(i), &mut take),
        }
        true
    }

    /// The bytes of a field of all samples of the store, if they are in memory: [`Split::at`] has the place of a sample.
    pub(super) fn stored(&self, field: usize) -> Option<&[u8]> {
        self.store.stored(field)
    }

    /// The bytes of a field of all samples in one piece, if they are that.
    pub(super) fn all(&self, field: usize) -> Option<&[u8]> {
        if self.index.is_some() { None } else { self.store.stored(field) }
    }

    /// The number in the store of sample `i`: of a table that of its row, from 0.
    ///
    /// # Panics
    /// If there is none.
    pub fn at(&self, i: usize) -> usize {
        assert!(i < self.len, "sample {i} of a split of {}", self.len);
        self.index.as_ref().map_or(i, |index| index[i] as usize)
    }

    /// The samples at these places, in this order.
    ///
    /// # Panics
    /// If a place is beyond the end.
    pub fn select(&self, places: &[u32]) -> Split {
        let index: Arc<[u32]> = places.iter().map(|p| self.at(*p as usize) as u32).collect();
        Split { store: Arc::clone(&self.store), len: index.len(), index: Some(index), kept: self.kept.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split() -> Split {
        let inputs = Values::Floats((0..12).map(|v| v as f32).collect());
        Split::labelled(inputs, [3], vec![5, 6, 7, 8]).unwrap()
    }

    #[test]
    fn samples_and_views() {
        let s = split();
        assert_eq!(s.bytes(1, 0).unwrap(), [3f32, 4., 5.].map(f32::to_ne_bytes).concat());
        assert_eq!(s.bytes(3, 1).unwrap(), 8i32.to_ne_bytes());
        assert_eq!(s.bytes(3, 2), None);
        let v = s.select(&[3, 1]).select(&[1]);
        assert_eq!((v.len(), v.label(0)), (1, Some(6)));
        assert_eq!(v.bytes(0, 0), s.bytes(1, 0));
        assert!(v.shares_memory_with(&s) && !v.shares_memory_with(&split()));
    }
}
