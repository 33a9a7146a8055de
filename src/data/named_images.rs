//! Image files by their names, as samples that a model is applied to.

use super::field::Field;
use super::image_file::{image_sample, photo_sample};
use super::store::{Rows, Store, Unreadable};
use super::transforms::Transform;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Image files, each a sample of one field: what a model takes. One that cannot be read has zeros in its place, and
/// [`NamedImages::take_failure`] has the reason.
#[derive(Debug)]
pub struct NamedImages {
    fields: Vec<Field>,
    files: Vec<PathBuf>,
    transforms: Option<Vec<Transform>>,
    invert: bool,
    failures: Mutex<HashMap<usize, String>>,
}

impl NamedImages {
    /// The images in `files` as the field of a model's input. With `transforms`, which are those of validation, photos go
    /// through these; else images are brought to the shape of the field, and a loader may change them. `invert` swaps black and white first.
    pub fn new(files: Vec<PathBuf>, field: Field, transforms: Option<Vec<Transform>>, invert: bool) -> Self {
        NamedImages { fields: vec![field], files, transforms, invert, failures: Mutex::default() }
    }

    /// Their names.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Why sample number `sample` could not be read when a batch asked for it last; `None` if it was read.
    pub fn take_failure(&self, sample: usize) -> Option<String> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(&sample)
    }
}

impl Store for NamedImages {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn write(&self, sample: usize, rows: &mut Rows) -> Result<(), Unreadable> {
        let (file, field) = (&self.files[sample], &self.fields[0]);
        let read = match &self.transforms {
            Some(transforms) => photo_sample(file, transforms, self.invert),
            None => image_sample(file, field, self.invert),
        };
        let bytes = read.unwrap_or_else(|error| {
            let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
            failures.insert(sample, format!("{error:#}"));
            vec![0; field.bytes()]
        });
        rows.put(0, &bytes);
        Ok(())
    }

    fn identify(&self, sample: usize, _: usize, take: &mut dyn FnMut(&[u8])) {
        take(self.files[sample].as_os_str().as_encoded_bytes());
    }
}
