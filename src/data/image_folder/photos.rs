//! Photos that are read and decoded when a batch asks for them.

use super::super::Field;
use super::super::photo::{sides, with_photo};
use super::super::store::{Rows, Store, Unreadable};
use super::scan::Listing;
use std::path::Path;

/// The number of the field of the images, and of that of the classes.
const IMAGE: usize = 0;
const LABEL: usize = 1;

/// The samples of a part of the folder.
pub struct Photos {
    files: Listing,
    fields: Vec<Field>,
    /// The classes as bytes.
    labels: Vec<u8>,
    strict: bool,
}

impl Photos {
    /// Of these files: an image and a label each.
    pub fn new(mut files: Listing, fields: Vec<Field>, strict: bool) -> Self {
        let labels = std::mem::take(&mut files.labels).into_iter().flat_map(i32::to_ne_bytes).collect();
        Photos { files, fields, labels, strict }
    }

    fn label(&self, sample: usize) -> &[u8] {
        &self.labels[sample * size_of::<i32>()..][..size_of::<i32>()]
    }

    fn name(&self, sample: usize) -> &Path {
        &self.files.images[sample]
    }
}

impl Store for Photos {
    fn len(&self) -> usize {
        self.files.images.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn write(&self, sample: usize, rows: &mut Rows) -> Result<(), Unreadable> {
        if rows.wants(IMAGE) {
            let path = self.files.folder.join(self.name(sample));
            with_photo(&path, |photo| rows.image(IMAGE, photo)).map_err(|error| Unreadable {
                name: self.name(sample).display().to_string(),
                why: format!("{error:#}"),
            })?;
        }
        rows.put(LABEL, self.label(sample));
        Ok(())
    }

    /// An image is told from others by its name and its size in bytes: to read them all would take minutes.
    fn identify(&self, sample: usize, field: usize, take: &mut dyn FnMut(&[u8])) {
        if field == LABEL {
            return take(self.label(sample));
        }
        let size = std::fs::metadata(self.files.folder.join(self.name(sample))).map_or(0, |metadata| metadata.len());
        take(self.name(sample).as_os_str().as_encoded_bytes());
        take(&[0]);
        take(&size.to_le_bytes());
    }

    fn stored(&self, field: usize) -> Option<&[u8]> {
        (field == LABEL).then_some(&self.labels)
    }

    fn sides(&self, sample: usize) -> Option<[usize; 2]> {
        sides(&self.files.folder.join(self.name(sample))).ok()
    }

    fn held_bytes(&self) -> usize {
        self.files.held_bytes() + self.labels.len()
    }

    fn skips_unreadable(&self) -> bool {
        !self.strict
    }
}
