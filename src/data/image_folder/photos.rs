//! Photos that are read and decoded when a batch asks for them, wherever their files are.

use super::super::Field;
use super::super::cache::Stamp;
use super::super::photo::{read_photo, sides, with_photo};
use super::super::store::{Rows, Store, Unreadable};
use crate::files;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Endings of the names of images, in lower case.
pub const ENDINGS: [&str; 6] = ["jpg", "jpeg", "png", "webp", "bmp", "gif"];

/// The number of the field of the images, and of that of the targets.
const IMAGE: usize = 0;
const TARGET: usize = 1;

/// Where images are read from.
pub trait Images: Send + Sync {
    /// How many there are.
    fn len(&self) -> usize;

    /// What number `at` is called in messages.
    fn name(&self, at: usize) -> String;

    /// Reads the file of number `at` into `file`, in place of what is in there.
    ///
    /// # Errors
    /// It cannot be read.
    fn read(&self, at: usize, file: &mut Vec<u8>) -> Result<()>;

    /// How the file of number `at` is now; `None` if that cannot be known.
    fn stamp(&self, at: usize) -> Option<Stamp>;

    /// The folder that they are in.
    fn folder(&self) -> &Path;

    /// Passes where in the folder number `at` is to `take`.
    fn locate(&self, at: usize, take: &mut dyn FnMut(&[u8]));

    /// Passes what tells number `at` from other images to `take`: to read them all would take minutes.
    fn identify(&self, at: usize, take: &mut dyn FnMut(&[u8]));

    /// Bytes of memory for what is known of them.
    fn held_bytes(&self) -> usize;
}

/// Image files.
pub struct Files {
    /// The folder that their paths are relative to.
    folder: PathBuf,
    /// Their paths.
    paths: Vec<Box<Path>>,
    /// Their sizes in bytes; 0 of one that is not known.
    sizes: Vec<u64>,
}

impl Files {
    /// Those of these paths, relative to `folder`.
    ///
    /// # Errors
    /// One is not there, or nothing can be known of it; unless that is no error.
    pub fn new(folder: PathBuf, paths: Vec<Box<Path>>, strict: bool) -> Result<Self> {
        let size = |path: &Path| match files::uninterrupted(|| std::fs::metadata(folder.join(path))) {
            Ok(metadata) => Ok(metadata.len()),
            Err(_) if !strict => Ok(0),
            Err(e) => Err(e).with_context(|| format!("cannot read the image `{}`", path.display())),
        };
        let sizes = paths.iter().map(|path| size(path)).collect::<Result<_>>()?;
        Ok(Files { folder, paths, sizes })
    }
}

/// Bytes that so many such files take.
pub fn bytes_of_paths(paths: &[Box<Path>]) -> usize {
    paths.iter().map(|path| path.as_os_str().len() + size_of::<Box<Path>>() + size_of::<u64>()).sum()
}

impl Images for Files {
    fn len(&self) -> usize {
        self.paths.len()
    }

    fn name(&self, at: usize) -> String {
        self.paths[at].display().to_string()
    }

    fn read(&self, at: usize, file: &mut Vec<u8>) -> Result<()> {
        read_photo(&self.folder.join(&self.paths[at]), file)
    }

    fn stamp(&self, at: usize) -> Option<Stamp> {
        let path = self.folder.join(&self.paths[at]);
        Stamp::of(&files::uninterrupted(|| std::fs::metadata(&path)).ok()?)
    }

    fn folder(&self) -> &Path {
        &self.folder
    }

    fn locate(&self, at: usize, take: &mut dyn FnMut(&[u8])) {
        take(self.paths[at].as_os_str().as_encoded_bytes());
    }

    /// By its name and its size in bytes.
    fn identify(&self, at: usize, take: &mut dyn FnMut(&[u8])) {
        take(self.paths[at].as_os_str().as_encoded_bytes());
        take(&[0]);
        take(&self.sizes[at].to_le_bytes());
    }

    fn held_bytes(&self) -> usize {
        bytes_of_paths(&self.paths)
    }
}

/// Images with a target each.
pub struct Photos<I> {
    images: I,
    fields: Vec<Field>,
    /// The targets as bytes, one after the other.
    targets: Vec<u8>,
    strict: bool,
}

impl<I: Images> Photos<I> {
    /// These images with these targets, native endian. `fields` are those of a sample: the image and the target.
    ///
    /// # Panics
    /// If there is not a target for each image.
    pub fn new(images: I, targets: Vec<u8>, fields: Vec<Field>, strict: bool) -> Self {
        assert_eq!(targets.len(), images.len() * fields[TARGET].bytes(), "a target for each image");
        Photos { images, fields, targets, strict }
    }

    fn image(&self, sample: usize, rows: &mut Rows) -> Result<()> {
        // Before it is read: a file that changes meanwhile is another next time.
        let stamp = if rows.want_stamp() { self.images.stamp(sample) } else { None };
        if rows.kept(IMAGE, sample, stamp)? {
            return Ok(());
        }
        let read = |file: &mut Vec<u8>| self.images.read(sample, file);
        with_photo(read, |photo| rows.image(IMAGE, sample, &photo, stamp))
    }

    fn target(&self, sample: usize) -> &[u8] {
        let bytes = self.fields[TARGET].bytes();
        &self.targets[sample * bytes..][..bytes]
    }
}

impl<I: Images> Store for Photos<I> {
    fn len(&self) -> usize {
        self.images.len()
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn write(&self, sample: usize, rows: &mut Rows) -> Result<(), Unreadable> {
        if rows.wants(IMAGE) {
            self.image(sample, rows)
                .map_err(|error| Unreadable { name: self.images.name(sample), why: format!("{error:#}") })?;
        }
        rows.put(TARGET, self.target(sample));
        Ok(())
    }

    fn identify(&self, sample: usize, field: usize, take: &mut dyn FnMut(&[u8])) {
        if field == TARGET {
            return take(self.target(sample));
        }
        self.images.identify(sample, take);
    }

    fn stored(&self, field: usize) -> Option<&[u8]> {
        (field == TARGET).then_some(&self.targets)
    }

    fn sides(&self, sample: usize) -> Option<[usize; 2]> {
        let mut file = Vec::new();
        self.images.read(sample, &mut file).and_then(|()| sides(&file)).ok()
    }

    fn name(&self, sample: usize) -> Option<String> {
        Some(self.images.name(sample))
    }

    fn folder(&self) -> Option<String> {
        let folder = self.images.folder();
        Some(std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()).to_string_lossy().into_owned())
    }

    fn locate(&self, sample: usize, take: &mut dyn FnMut(&[u8])) {
        self.images.locate(sample, take);
    }

    fn held_bytes(&self) -> usize {
        self.images.held_bytes() + self.targets.len()
    }

    fn skips_unreadable(&self) -> bool {
        !self.strict
    }
}
