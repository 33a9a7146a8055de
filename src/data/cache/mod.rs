//! Images that are kept after their first transforms, so that they are decoded once and not in every epoch: in memory, or in files of
//! their own.
//!
//! What is kept of an image is its pixels after the transforms at the beginning of the list that draw nothing: they are the same in
//! every epoch. So what a batch holds is the same to the bit with a cache and without. Of a list that begins with a draw it is the
//! whole image.
//!
//! Nothing that is kept is given up for something else. In an order that is drawn anew every epoch each image is asked for as
//! often as any other, and by the time it is asked for again, whatever makes room by giving up the oldest would have given it up.

mod disk;
mod index;
mod memory;
#[cfg(test)]
mod tests;

use super::photo::{Photo, Sound};
use super::transforms::{Image, ImageSource, Transform, fixed, output_shape, transform_source};
use crate::files;
use crate::graph::Shape;
use crate::random::{Purpose, Stream};
use anyhow::Result;
use disk::Disk;
pub(super) use disk::write_at;
pub(super) use index::Stamp;
use memory::Memory;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How many images the index of a cache has whose pixels may be in a file of so many bytes.
///
/// # Errors
/// It cannot be read.
pub fn kept_in(index: &Path, pixels: u64) -> Result<usize> {
    let mut count = 0;
    disk::read_rows(&files::open(index)?.file, pixels, |_| count += 1)?;
    Ok(count)
}

/// Where images are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keep {
    /// In memory, as long as the process runs.
    Memory,
    /// In files of this folder, for later runs as well.
    Disk(PathBuf),
    /// What files of this folder have is read; nothing is added, and the folder is left as it is.
    ReadOnly(PathBuf),
}

/// Images that are kept of all samples of a source.
pub struct Cache {
    keep: Keep,
    budget: Arc<Budget>,
    areas: Mutex<Vec<(Part, Arc<Area>)>>,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("keep", &self.keep).field("kept", &self.kept()).finish_non_exhaustive()
    }
}

/// Which images are kept together: those of a part of the source, after the same transforms.
#[derive(Debug, Clone, PartialEq)]
struct Part {
    name: &'static str,
    transforms: Vec<Transform>,
}

/// How many bytes may be kept, and what has become of it.
struct Budget {
    limit: u64,
    used: AtomicU64,
    /// Images that are kept, and whether there was no room for another.
    images: AtomicU64,
    full: AtomicBool,
    /// What could not be done, for one note.
    trouble: Mutex<Option<String>>,
}

impl Budget {
    /// Takes so many bytes, if there are that many left.
    fn take(&self, bytes: u64) -> bool {
        let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.limit);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if !taken {
            self.full.store(true, Ordering::Relaxed);
        }
        taken
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn note(&self, trouble: String) {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(trouble);
    }
}

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// Images.
    pub images: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Bytes that they may be.
    pub limit: u64,
    /// Whether there was no room for another.
    pub full: bool,
}

/// Passes the identity of a sample's image to a hash.
pub(super) type Locate<'a> = &'a dyn Fn(usize, &mut dyn FnMut(&[u8]));

impl Cache {
    /// One that keeps at most `limit` bytes of pixels.
    pub fn new(keep: Keep, limit: u64) -> Arc<Self> {
        let (used, images, full) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let budget = Arc::new(Budget { limit, used, images, full, trouble: Mutex::default() });
        Arc::new(Cache { keep, budget, areas: Mutex::default() })
    }

    /// How much is kept.
    pub fn kept(&self) -> Kept {
        let Budget { limit, used, images, full, .. } = &*self.budget;
        let [bytes, images] = [used, images].map(|number| number.load(Ordering::Relaxed));
        Kept { images, bytes, limit: *limit, full: full.load(Ordering::Relaxed) }
    }

    /// What could not be done, such as writing to a full disk; once.
    pub fn trouble(&self) -> Option<String> {
        self.budget.trouble.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Makes ready for the `len` samples of a part of the source, which is read from `folder`, when `transforms` are applied to them.
    ///
    /// # Errors
    /// The files cannot be made or read.
    pub(super) fn prepare(
        &self,
        name: &'static str,
        folder: &str,
        transforms: &[Transform],
        len: usize,
        locate: Locate,
    ) -> Result<()> {
        let first = transforms[..fixed(transforms)].to_vec();
        let part = Part { name, transforms: first };
        let mut areas = self.areas.lock().unwrap_or_else(PoisonError::into_inner);
        if areas.iter().any(|(known, _)| *known == part) {
            return Ok(());
        }
        let shape = part.transforms.iter().try_fold([0, 0, 3].into(), |shape, list| list.output_shape(&shape))?;
        let key = || index::key(name, folder, &part.transforms);
        let store = match &self.keep {
            Keep::Memory => Held::Memory(Memory::new(len)),
            Keep::Disk(at) => Held::Disk(Disk::open(at, &key(), len, locate, &self.budget)?),
            Keep::ReadOnly(at) => match Disk::look(at, &key(), len, locate, &self.budget)? {
                Some(disk) => Held::Disk(disk),
                None => return Ok(()),
            },
        };
        let area = Area { transforms: part.transforms.clone(), shape, budget: Arc::clone(&self.budget), held: store };
        areas.push((part, Arc::new(area)));
        Ok(())
    }

    /// What is kept of a part of the source for a list of transforms, if it was prepared.
    pub(super) fn area(&self, name: &'static str, transforms: &[Transform]) -> Option<Arc<Area>> {
        let first = &transforms[..fixed(transforms)];
        let areas = self.areas.lock().unwrap_or_else(PoisonError::into_inner);
        areas.iter().find(|(part, _)| part.name == name && part.transforms == first).map(|(_, area)| Arc::clone(area))
    }
}

/// The images of a part of a source after the same first transforms.
pub(super) struct Area {
    transforms: Vec<Transform>,
    /// What is kept is of this shape; 0 where photos differ.
    shape: Shape,
    budget: Arc<Budget>,
    held: Held,
}

enum Held {
    Memory(Memory),
    Disk(Disk),
}

impl Area {
    /// The number of transforms that what is kept has gone through.
    pub fn done(&self) -> usize {
        self.transforms.len()
    }

    /// Whether a stamp of the file shows that a kept image is no longer the one that is there.
    pub fn wants_stamp(&self) -> bool {
        matches!(self.held, Held::Disk(_))
    }

    /// Hands over what is kept of a sample, if it is kept of the file as it is now.
    pub fn look<T>(&self, sample: usize, stamp: Option<Stamp>, act: impl FnOnce(&Image) -> T) -> Option<T> {
        match &self.held {
            Held::Memory(memory) => memory.get(sample).map(act),
            Held::Disk(disk) => {
                disk.read(sample, stamp?, |sides| self.fits(sides), &self.budget).map(|image| act(&image))
            }
        }
    }

    /// Whether height, width and channels are those that an image may have here: files may hold anything.
    fn fits(&self, sides: [usize; 3]) -> bool {
        self.shape.dims().iter().zip(sides).all(|(expected, side)| side > 0 && [0, side].contains(expected))
    }

    /// Makes what is kept of a sample from a photo, keeps it and hands it over. `None`: there is no room for it, or the photo is
    /// damaged. What is left of a damaged one may depend on the rectangle that is asked for, so it is not kept.
    pub fn add<T>(
        &self,
        sample: usize,
        stamp: Option<Stamp>,
        photo: &Photo,
        act: impl FnOnce(&Image) -> T,
    ) -> Option<T> {
        if let Held::Disk(disk) = &self.held
            && (stamp.is_none() || !disk.may_write())
        {
            return None;
        }
        let [h, w] = photo.sides();
        let pixels = output_shape(&self.transforms, &[h, w, 3].into()).ok()?.len() as u64;
        let bytes = match &self.held {
            // Those have been counted, and another row is added.
            Held::Disk(disk) if disk.replaces(sample, pixels) => index::OVERHEAD,
            _ => pixels + index::OVERHEAD,
        };
        if !self.budget.take(bytes) {
            return None;
        }
        // They draw nothing.
        let mut draws = Stream::new(0, Purpose::Augment, 0, 0);
        let Ok(image) = transform_source(&self.transforms, &mut draws, &Sound(photo)) else {
            self.budget.give_back(bytes);
            return None;
        };
        let result = act(&image);
        let kept = match (&self.held, stamp) {
            (Held::Memory(memory), _) => {
                let kept = memory.put(sample, image);
                self.budget.images.fetch_add(u64::from(kept), Ordering::Relaxed);
                kept
            }
            (Held::Disk(disk), Some(stamp)) => disk.write(sample, stamp, &image, &self.budget),
            (Held::Disk(_), None) => false,
        };
        if !kept {
            self.budget.give_back(bytes);
        }
        Some(result)
    }
}
