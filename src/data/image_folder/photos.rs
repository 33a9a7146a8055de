//! Photos that are read and decoded when a batch asks for them, wherever their files are.

use super::super::Field;
use super::super::cache::Stamp;
use super::super::decoders::sides;
use super::super::mask_file::read_mask;
use super::super::photo::{read_photo, with_photo};
use super::super::store::{Rows, Store, Unreadable};
use super::super::transforms::{Image, ImageSource as _};
use super::identity::Identity;
use crate::files;
use anyhow::{Context, Result, bail, ensure};
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

    /// Passes the identity of image `at` to `take`: to read them all would take minutes.
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
        Ok(Files::identified(folder, paths, strict)?.0)
    }

    /// The same, with what each file is; `None` of one of which nothing can be known.
    ///
    /// # Errors
    /// As for [`Files::new`].
    pub fn identified(folder: PathBuf, paths: Vec<Box<Path>>, strict: bool) -> Result<(Self, Vec<Option<Identity>>)> {
        let known = |path: &Path| {
            let whole = folder.join(path);
            match files::uninterrupted(|| std::fs::metadata(&whole)) {
                Ok(metadata) => Ok((metadata.len(), Identity::by(&whole, &metadata).ok())),
                Err(_) if !strict => Ok((0, None)),
                Err(e) => Err(e).with_context(|| format!("cannot read the image `{}`", path.display())),
            }
        };
        let known = paths.iter().map(|path| known(path)).collect::<Result<Vec<_>>>()?;
        let (sizes, identities) = known.into_iter().unzip();
        Ok((Files { folder, paths, sizes }, identities))
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

/// What is learnt of each image.
pub enum Targets {
    /// A target each, as bytes, native endian, one after the other.
    Values(Vec<u8>),
    /// A file each, with a class for every pixel.
    Masks(Box<Masks>),
}

/// Masks in files.
pub struct Masks {
    files: Files,
    /// The class of each value; none of one that is none.
    classes: [Option<u8>; 256],
    /// What a pixel that counts for nothing has in a file, and in a batch.
    ignored: Option<(u8, i32)>,
}

/// The class of a pixel that is ignored, as long as it is a byte.
const IGNORED: u8 = 255;

impl Masks {
    /// Those in `files`. `values` are those of the classes, in order, `None` of one that has none. `ignored` is what pixels that count for nothing have
    /// in a file, and in a batch.
    pub fn new(files: Files, values: &[Option<u8>], ignored: Option<(u8, i32)>) -> Self {
        let mut classes = [None; 256];
        for (class, value) in (0..IGNORED).zip(values) {
            if let Some(value) = value {
                classes[usize::from(*value)] = Some(class);
            }
        }
        Masks { files, classes, ignored }
    }

    /// The mask of an image of these sides, as far as they are known: the class of each pixel.
    fn read(&self, at: usize, sides: Option<[usize; 2]>) -> Result<Image> {
        let mut file = Vec::new();
        self.files.read(at, &mut file)?;
        let mut mask = read_mask(&file)?;
        let ([h, w], [height, width]) = (mask.sides, sides.unwrap_or(mask.sides));
        ensure!(
            [h, w] == [height, width],
            "the mask has {h}×{w} pixels (height × width), and its image {height}×{width}"
        );
        for (place, value) in mask.pixels.iter_mut().enumerate() {
            *value = match (self.classes[usize::from(*value)], self.ignored) {
                (_, Some((ignored, _))) if ignored == *value => IGNORED,
                (Some(class), _) => class,
                (None, _) => bail!(
                    "the mask has the value {value} (row {}, column {}, counted from 0), which is no class: `mask_values` names those of the classes, \
                     and `ignore_index` of the loss one that is ignored",
                    place / w,
                    place % w
                ),
            };
        }
        Ok(mask)
    }

    fn write(&self, at: usize, sides: Option<[usize; 2]>, rows: &mut Rows) -> Result<()> {
        let mask = self.read(at, sides)?;
        rows.mask(TARGET, mask, |class| self.in_a_batch(class));
        Ok(())
    }

    /// What stands for a class in a batch.
    fn in_a_batch(&self, class: u8) -> i32 {
        match self.ignored {
            Some((_, index)) if class == IGNORED => index,
            _ => i32::from(class),
        }
    }
}

/// Images with a target each.
pub struct Photos<I> {
    images: I,
    fields: Vec<Field>,
    targets: Targets,
    strict: bool,
}

impl<I: Images> Photos<I> {
    /// These images with these targets. `fields` are those of a sample: the image and the target.
    ///
    /// # Panics
    /// If there is not a target for each image.
    pub fn new(images: I, targets: Targets, fields: Vec<Field>, strict: bool) -> Self {
        let fit = match &targets {
            Targets::Values(bytes) => bytes.len() == images.len() * fields[TARGET].bytes(),
            Targets::Masks(masks) => masks.files.len() == images.len(),
        };
        assert!(fit, "a target for each image");
        Photos { images, fields, targets, strict }
    }

    /// Writes the image; its sides, if it had to be decoded.
    fn image(&self, sample: usize, rows: &mut Rows) -> Result<Option<[usize; 2]>> {
        // Before it is read: a file that changes meanwhile is another next time.
        let stamp = if rows.want_stamp() { self.images.stamp(sample) } else { None };
        if rows.kept(IMAGE, sample, stamp)? {
            return Ok(None);
        }
        let read = |file: &mut Vec<u8>| self.images.read(sample, file);
        with_photo(read, |photo| {
            rows.image(IMAGE, sample, &photo, stamp)?;
            Ok(Some(photo.sides()))
        })
    }

    fn target<'a>(&self, values: &'a [u8], sample: usize) -> &'a [u8] {
        let bytes = self.fields[TARGET].bytes();
        &values[sample * bytes..][..bytes]
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
        let unreadable = |name: String| move |error| Unreadable { name, why: format!("{error:#}") };
        let sides = match rows.wants(IMAGE) {
            true => self.image(sample, rows).map_err(unreadable(self.images.name(sample)))?,
            false => None,
        };
        match &self.targets {
            Targets::Values(values) => rows.put(TARGET, self.target(values, sample)),
            Targets::Masks(masks) if rows.wants(TARGET) => {
                masks.write(sample, sides, rows).map_err(unreadable(masks.files.name(sample)))?;
            }
            Targets::Masks(_) => {}
        }
        Ok(())
    }

    fn identify(&self, sample: usize, field: usize, take: &mut dyn FnMut(&[u8])) {
        match &self.targets {
            _ if field != TARGET => self.images.identify(sample, take),
            Targets::Values(values) => take(self.target(values, sample)),
            Targets::Masks(masks) => masks.files.identify(sample, take),
        }
    }

    fn stored(&self, field: usize) -> Option<&[u8]> {
        match &self.targets {
            Targets::Values(values) if field == TARGET => Some(values),
            _ => None,
        }
    }

    fn classes_in_file(&self, sample: usize, take: &mut dyn FnMut(i32)) -> bool {
        let Targets::Masks(masks) = &self.targets else { return false };
        if let Ok(mask) = masks.read(sample, None) {
            mask.pixels.iter().for_each(|class| take(masks.in_a_batch(*class)));
        }
        true
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
        let targets = match &self.targets {
            Targets::Values(values) => values.len(),
            Targets::Masks(masks) => masks.files.held_bytes(),
        };
        self.images.held_bytes() + targets
    }

    fn skips_unreadable(&self) -> bool {
        !self.strict
    }
}
