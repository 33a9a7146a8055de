//! Where the samples of a set are: in memory, or wherever they are made from when a batch asks for them.

use super::cache::{Area, Stamp};
use super::field::{Field, Lengths};
use super::naive::NaiveErrors;
use super::photo::Photo;
use super::row_names::RowName;
use super::transforms::{Image, ImageSource, Transform, apply, transform_mask, transform_source};
use crate::random::{Purpose, Stream};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The samples of a set. Each is written when it is asked for, by any of the loader's threads: what a sample is may depend on
/// its number and on the draws for it, and on nothing else.
pub trait Store: Send + Sync {
    /// Number of samples.
    fn len(&self) -> usize;

    /// True if there is no sample.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The fields of a sample. A field's place in this list is its number.
    fn fields(&self) -> &[Field];

    /// The lengths that batches may have, ascending in each, where samples differ in theirs; empty: all have those of their fields.
    fn lengths(&self) -> &[Lengths] {
        &[]
    }

    /// The first of these lengths that a sample fits into, by its place; the last one, for samples that are cut.
    fn length_of(&self, _sample: usize) -> usize {
        0
    }

    /// Writes the fields of sample number `sample` that `rows` wants.
    ///
    /// # Errors
    /// The sample cannot be read. The loader reports it, takes the next one in its place, and goes on.
    fn write(&self, sample: usize, rows: &mut Rows) -> Result<(), Unreadable>;

    /// Passes what identifies a field of a sample to `take`: its bytes or, where those would have to be made, what they are made
    /// from, such as the name, size and time of a file.
    fn identify(&self, sample: usize, field: usize, take: &mut dyn FnMut(&[u8]));

    /// The bytes of a field of all samples, one after the other, if they are in memory.
    fn stored(&self, _field: usize) -> Option<&[u8]> {
        None
    }

    /// Passes the classes of a sample's pixels to `take`, where they are in a file: none of one that cannot be read. False: they are not.
    fn classes_in_file(&self, _sample: usize, _take: &mut dyn FnMut(i32)) -> bool {
        false
    }

    /// True if a sample that cannot be read is left out; else it ends the run.
    fn skips_unreadable(&self) -> bool {
        true
    }

    /// Height and width of the image that a sample is made of, if each has a size of its own and it can be read.
    fn sides(&self, _sample: usize) -> Option<[usize; 2]> {
        None
    }

    /// What a sample is called, if it has a name: that of its file.
    fn name(&self, _sample: usize) -> Option<String> {
        None
    }

    /// Which row of a table a sample is, if it is one.
    fn row(&self, _sample: usize) -> Option<RowName<'_>> {
        None
    }

    /// Of which series of a table a sample is, and when it ends, with the names of those columns; empty: it is no window of a series.
    fn series(&self, _sample: usize) -> Vec<(String, String)> {
        Vec::new()
    }

    /// The errors of the naive forecast of a sample, if the sample is a window of a series with numbers after it to learn.
    fn naive_errors(&self, _sample: usize) -> Option<NaiveErrors> {
        None
    }

    /// The folder that its samples are read from, if they are images that can be kept once they are decoded.
    fn folder(&self) -> Option<String> {
        None
    }

    /// Passes the identity of a sample's image within the folder to `take`.
    fn locate(&self, _sample: usize, _take: &mut dyn FnMut(&[u8])) {}

    /// Bytes of memory that it holds for its samples.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Bytes of a file that is there for its samples as long as they are used.
    fn filed_bytes(&self) -> usize {
        0
    }
}

/// In the implementation of [`Store`] for samples of another store, `self.inner`: what is the same as there.
macro_rules! as_inner {
    () => {
        fn lengths(&self) -> &[Lengths] {
            self.inner.lengths()
        }

        fn length_of(&self, sample: usize) -> usize {
            self.inner.length_of(sample)
        }

        fn skips_unreadable(&self) -> bool {
            self.inner.skips_unreadable()
        }

        fn sides(&self, sample: usize) -> Option<[usize; 2]> {
            self.inner.sides(sample)
        }

        fn name(&self, sample: usize) -> Option<String> {
            self.inner.name(sample)
        }

        fn row(&self, sample: usize) -> Option<RowName<'_>> {
            self.inner.row(sample)
        }

        fn folder(&self) -> Option<String> {
            self.inner.folder()
        }

        fn locate(&self, sample: usize, take: &mut dyn FnMut(&[u8])) {
            self.inner.locate(sample, take);
        }

        fn filed_bytes(&self) -> usize {
            self.inner.filed_bytes()
        }
    };
}
pub(super) use as_inner;

/// A sample that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreadable {
    /// What it is called: the name of its file.
    pub name: String,
    /// Why it cannot be read.
    pub why: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.name, self.why)
    }
}

impl std::error::Error for Unreadable {}

/// Where a field's rows are in a batch slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Column {
    /// Where the first begins.
    pub offset: usize,
    /// Bytes of each.
    pub bytes: usize,
}

/// Changes of one field, which is made of images or of their masks.
#[derive(Debug, Clone)]
pub(super) struct Changes {
    /// The field's number.
    pub field: usize,
    /// It has a class for every pixel of the images.
    pub of_masks: bool,
    /// What is done, in order.
    pub transforms: Vec<Transform>,
    /// Height and width of an image as it is put; zeros where each has a size of its own.
    pub sides: [usize; 2],
    /// Bytes of a pixel.
    pub pixel: usize,
}

impl Changes {
    /// Writes the changed image.
    pub fn apply(&self, draws: &mut Stream, image: &[u8], out: &mut [u8]) {
        if self.of_masks {
            let mask = Image { sides: self.sides, channels: self.pixel, pixels: image.to_vec() };
            out.copy_from_slice(&transform_mask(&self.transforms, draws, mask).pixels);
        } else {
            apply(&self.transforms, draws, image, self.sides, self.pixel, out);
        }
    }
}

/// What the draws for a sample are keyed by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub seed: u64,
    pub epoch: u64,
    pub sample: u64,
}

impl Key {
    /// The draws.
    pub fn draws(self) -> Stream {
        Stream::new(self.seed, Purpose::Augment, self.epoch, self.sample)
    }
}

/// The rows of one sample in a batch slot.
pub struct Rows<'a> {
    slot: &'a mut [u8],
    columns: &'a [Option<Column>],
    row: usize,
    changes: &'a [Changes],
    area: Option<&'a Area>,
    /// A field that is not written though the batch has a place for it.
    left_out: Option<usize>,
    key: Key,
    draws: Option<Stream>,
}

impl<'a> Rows<'a> {
    pub(super) fn new(
        slot: &'a mut [u8],
        columns: &'a [Option<Column>],
        row: usize,
        changes: &'a [Changes],
        key: Key,
    ) -> Self {
        Rows { slot, columns, row, changes, area: None, left_out: None, key, draws: None }
    }

    /// The same, for images that are kept after the transforms of `changes`.
    pub(super) fn kept_in(self, area: Option<&'a Area>) -> Self {
        Rows { area: area.filter(|_| !self.changes.is_empty()), ..self }
    }

    /// True if the batch has a place for this field: others are not read.
    pub fn wants(&self, field: usize) -> bool {
        self.column(field).is_some()
    }

    /// The place of a field in the batch, if it is to be written.
    fn column(&self, field: usize) -> Option<Column> {
        self.columns.get(field).copied().flatten().filter(|_| self.left_out != Some(field))
    }

    /// Lets `write` write this sample as if the batch had no place for the field.
    pub(super) fn without<T>(&mut self, field: usize, write: impl FnOnce(&mut Rows) -> T) -> T {
        let before = self.left_out.replace(field);
        let result = write(self);
        self.left_out = before;
        result
    }

    /// The draws for this sample in this epoch, which are the same whatever thread asks for them and when. Transforms of a field
    /// that is put later go on with them.
    pub fn draws(&mut self) -> &mut Stream {
        self.draws.get_or_insert_with(|| self.key.draws())
    }

    /// Gives a field its native-endian `bytes`, to which transforms are applied on their way. A field without a place in the batch is dropped.
    ///
    /// # Panics
    /// If there are more or fewer bytes than the field has.
    pub fn put(&mut self, field: usize, bytes: &[u8]) {
        let Some(column) = self.column(field) else { return };
        let range = column.offset + self.row * column.bytes..column.offset + (self.row + 1) * column.bytes;
        match self.changes.iter().find(|changes| changes.field == field) {
            Some(changes) => {
                let (sides, pixel) = (changes.sides, changes.pixel);
                assert_eq!(bytes.len(), sides[0] * sides[1] * pixel, "an image of {sides:?} pixels of {pixel} bytes");
                // The draws of a mask are those of its image from the beginning.
                let draws = match changes.of_masks {
                    true => &mut self.key.draws(),
                    false => self.draws.get_or_insert_with(|| self.key.draws()),
                };
                changes.apply(draws, bytes, &mut self.slot[range]);
            }
            None => self.slot[range].copy_from_slice(bytes),
        }
    }

    /// Gives a field the front of its bytes, as many as the batch has room for. No transforms change it. A field that the batch has no place for is left out.
    ///
    /// # Panics
    /// If the batch has room for more.
    pub(super) fn put_front(&mut self, field: usize, bytes: &[u8]) {
        let Some(column) = self.column(field) else { return };
        self.slot[column.offset + self.row * column.bytes..][..column.bytes].copy_from_slice(&bytes[..column.bytes]);
    }

    /// Gives a field the pieces of its bytes that `each` hands on, one after the other. No transforms change it. A field without a place in the batch is left out.
    ///
    /// # Panics
    /// If they are more or fewer bytes than the field has.
    pub(super) fn put_pieces(&mut self, field: usize, each: impl FnOnce(&mut dyn FnMut(&[u8]))) {
        let Some(column) = self.column(field) else { return };
        let mut out = &mut self.slot[column.offset + self.row * column.bytes..][..column.bytes];
        each(&mut |piece| {
            let (place, rest) = std::mem::take(&mut out).split_at_mut(piece.len());
            place.copy_from_slice(piece);
            out = rest;
        });
        assert!(out.is_empty(), "a field has {} bytes more", out.len());
    }

    /// Gives a field of whole numbers, which no transforms change, what `element` writes for each of them, in their order. A field
    /// without a place in the batch is dropped.
    pub(super) fn fill(&mut self, field: usize, mut element: impl FnMut(usize, &mut [u8; 4])) {
        let Some(column) = self.column(field) else { return };
        let out = &mut self.slot[column.offset + self.row * column.bytes..][..column.bytes];
        for (at, out) in out.as_chunks_mut().0.iter_mut().enumerate() {
            element(at, out);
        }
    }

    /// Gives a field of masks of any size that of the image of this sample: a byte a pixel, which `widen` makes what a pixel of the
    /// field is. A field without a place in the batch is dropped.
    ///
    /// # Panics
    /// If transforms do not bring it to the size that the batch has.
    pub(super) fn mask(&mut self, field: usize, mask: Image, widen: impl Fn(u8) -> i32) {
        let Some(column) = self.column(field) else { return };
        let mask = transform_mask(self.transforms(field), &mut self.key.draws(), mask);
        let out = &mut self.slot[column.offset + self.row * column.bytes..][..column.bytes];
        assert_eq!(out.len(), mask.pixels.len() * size_of::<i32>(), "a mask of {:?} pixels", mask.sides);
        for (out, class) in out.as_chunks_mut().0.iter_mut().zip(&mask.pixels) {
            *out = widen(*class).to_ne_bytes();
        }
    }

    /// Whether images are kept and identified by the stamps of their files.
    pub(super) fn want_stamp(&self) -> bool {
        self.area.is_some_and(Area::wants_stamp)
    }

    /// Gives a field of images of any size that of a sample of the store, if it is kept; whether it is.
    pub(super) fn kept(&mut self, field: usize, sample: usize, stamp: Option<Stamp>) -> Result<bool> {
        let (Some(area), Some(mut way)) = (self.area, self.way(field)) else { return Ok(false) };
        let put = area.look(sample, stamp, |image| way.put(area.done(), image));
        put.transpose().map(|put| put.is_some())
    }

    /// Gives a field of images of any size that of a sample of the store, which transforms bring to the size that the batch has: what
    /// they need of it is decoded. It is kept, if images are. A field without a place in the batch is dropped.
    ///
    /// # Errors
    /// It cannot be decoded.
    ///
    /// # Panics
    /// If they do not come to that size.
    pub(super) fn image(&mut self, field: usize, sample: usize, photo: &Photo, stamp: Option<Stamp>) -> Result<()> {
        let (area, Some(mut way)) = (self.area, self.way(field)) else { return Ok(()) };
        let kept = area.and_then(|area| area.add(sample, stamp, photo, |image| way.put(area.done(), image)));
        kept.unwrap_or_else(|| way.put(0, photo))
    }

    /// What is done to a field.
    fn transforms(&self, field: usize) -> &'a [Transform] {
        self.changes.iter().find(|changes| changes.field == field).map_or(&[], |changes| &changes.transforms)
    }

    /// The way of an image to its place, if the batch has one for it.
    fn way(&mut self, field: usize) -> Option<Way<'_>> {
        let column = self.column(field)?;
        let transforms = self.transforms(field);
        let draws = self.draws.get_or_insert_with(|| self.key.draws());
        let out = &mut self.slot[column.offset + self.row * column.bytes..][..column.bytes];
        Some(Way { transforms, draws, out })
    }
}

/// The way of an image of any size to its place in a batch slot.
struct Way<'a> {
    transforms: &'a [Transform],
    draws: &'a mut Stream,
    out: &'a mut [u8],
}

impl Way<'_> {
    /// Writes an image that has gone through the first `done` transforms.
    fn put(&mut self, done: usize, image: &impl ImageSource) -> Result<()> {
        let image = transform_source(&self.transforms[done..], self.draws, image)?;
        self.out.copy_from_slice(&image.pixels);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::classes::Classes;
    use super::super::field::{FieldKind, INPUTS, TARGETS};
    use super::super::memory::Memory;
    use super::super::values::Values;
    use super::*;
    use crate::graph::DType;

    #[test]
    fn lengths_and_types_must_fit() {
        let input = || (Field::numbers(INPUTS, DType::U8, [3]), Values::Bytes(vec![0; 6]));
        let message = |list| Memory::new(list, 2).unwrap_err().to_string();
        assert!(Memory::new(vec![input()], 2).is_ok());
        let short = (Field::numbers(INPUTS, DType::U8, [3]), Values::Bytes(vec![0; 5]));
        assert!(message(vec![short]).contains("inputs of shape [3]"));
        let few = (Field::target(TARGETS, FieldKind::Number, [2]), Values::Floats(vec![0.0; 3]));
        assert!(message(vec![input(), few]).contains("targets of shape [2]"));
        let other = (Field::target(TARGETS, FieldKind::Number, [1]), Values::Ints(vec![0; 2]));
        assert!(message(vec![input(), other]).contains("bytes of i32"));
    }

    /// Targets may be of any shape and of any type.
    #[test]
    fn rows_go_where_the_batch_has_them() {
        let list = vec![
            (Field::numbers("a", DType::U8, [2]), Values::Bytes(vec![1, 2, 3, 4])),
            (Field::numbers("b", DType::F32, [1]), Values::Floats(vec![1.0, 2.0])),
            (Field::target(TARGETS, FieldKind::Category(Classes::of(10)), [2]), Values::Ints(vec![5, 6, 7, 8])),
        ];
        let store = Memory::new(list, 2).unwrap();
        // The batch has no place for `b`.
        let columns = [Some(Column { offset: 16, bytes: 2 }), None, Some(Column { offset: 0, bytes: 8 })];
        let mut slot = [0; 20];
        for row in 0..2 {
            let key = Key { seed: 0, epoch: 0, sample: 0 };
            let mut rows = Rows::new(&mut slot, &columns, row, &[], key);
            assert_eq!([0, 1, 2, 3].map(|field| rows.wants(field)), [true, false, true, false]);
            store.write(1 - row, &mut rows).unwrap();
        }
        assert_eq!(slot[16..], [3, 4, 1, 2]);
        assert_eq!(slot[..16], [7i32, 8, 5, 6].map(i32::to_ne_bytes).concat());
    }
}
