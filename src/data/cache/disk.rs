//! Images in a file, and an index of them: two files for each part of a source and list of transforms.
//!
//! One process at a time adds to them, the one that holds the lock on the index; others read what was there when they began. Pixels are
//! added at the end of their file, and their row to the index when they are there. So nothing that a reader knows of ever changes,
//! but for files that are made anew and pixels that are damaged, and what is read is held to the hash in its row.

use super::super::claims::MAX_DECODED;
use super::super::transforms::Image;
use super::index::{HEADER, Hash, OVERHEAD, ROW, Row, Stamp, hash, located};
use super::{Budget, Locate};
use crate::files::{self, durable};
use anyhow::{Context, Result, anyhow};
use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

/// Largest index that is read: of some ten million images.
const MAX_INDEX: u64 = 1 << 30;

/// The images of a part of a source.
pub struct Disk {
    pixels: File,
    index: File,
    /// Of each sample its identity, and its image, if there is one.
    samples: Vec<Hash>,
    rows: RwLock<Vec<Option<Row>>>,
    /// `None`: nothing is added.
    ends: Option<Mutex<Ends>>,
    /// Whether something could not be written: nothing more is, then.
    failed: AtomicBool,
    /// For messages.
    folder: String,
}

/// What is being added.
struct Ends {
    /// Where the next pixels and the next row go.
    pixels: u64,
    rows: u64,
    /// The samples whose pixels threads are writing.
    writing: Vec<usize>,
    /// Of samples whose pixels were found damaged, where those begin and how many bytes they take.
    damaged: HashMap<usize, (u64, u64)>,
}

/// The error where photos cannot be kept.
fn failure(place: &str) -> String {
    format!(
        "cannot keep photos in `{place}`: set `cache_dir` to a folder that can be written to, or `cache` to \"memory\" or \"none\""
    )
}

/// The two files of `key`: pixels, and index.
fn names(folder: &Path, key: &str) -> [PathBuf; 2] {
    ["pixels", "index"].map(|ending| folder.join(format!("{key}.{ending}")))
}

impl Disk {
    /// Opens those of `key` in `folder`, or makes them.
    ///
    /// # Errors
    /// There are none, and none can be made.
    pub fn open(folder: &Path, key: &str, len: usize, locate: Locate, budget: &Budget) -> Result<Disk> {
        let place = folder.display().to_string();
        let [pixels, index] = names(folder, key);
        let (pixels, index, may_write) = match write_both(folder, &pixels, &index) {
            Ok((pixels, index)) => (pixels, index, true),
            // Somebody else's folder, which may be read.
            Err(error) => match (files::open(&pixels), files::open(&index)) {
                (Ok(pixels), Ok(index)) => (pixels.file, index.file, false),
                _ => return Err(anyhow!(error)).with_context(|| failure(&place)),
            },
        };
        let locked = may_write
            && match index.try_lock() {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) => {
                    budget.note(format!(
                        "another run adds photos to the cache in `{place}`: this one reads what was there when it began"
                    ));
                    false
                }
                Err(TryLockError::Error(e)) => {
                    budget.note(format!("the cache in `{place}` cannot be locked ({e}): nothing is added to it"));
                    false
                }
            };
        Disk::of([pixels, index], locked, place, (len, locate), budget)
    }

    /// Opens those of `key` in `folder`, to which nothing is added. `None`: there are none, and they could be made.
    ///
    /// # Errors
    /// There are none, and none could be made.
    pub fn look(folder: &Path, key: &str, len: usize, locate: Locate, budget: &Budget) -> Result<Option<Disk>> {
        let place = folder.display().to_string();
        let [pixels, index] = names(folder, key);
        if let (Ok(pixels), Ok(index)) = (files::open(&pixels), files::open(&index)) {
            return Disk::of([pixels.file, index.file], false, place, (len, locate), budget).map(Some);
        }
        let there = folder.ancestors().find(|above| above.exists()).unwrap_or(Path::new("."));
        // A file without a name, of which nothing is left.
        tempfile::tempfile_in(there).with_context(|| failure(&place))?;
        Ok(None)
    }

    /// Those in two files, to which nothing is added unless they are `locked`.
    fn of(
        [pixels, index]: [File; 2],
        locked: bool,
        place: String,
        (len, locate): (usize, Locate),
        budget: &Budget,
    ) -> Result<Disk> {
        let failure = || failure(&place);
        let samples: Vec<Hash> = (0..len).map(|sample| located(sample, locate)).collect();
        // Of several of a sample the last one counts. Rows of others are of an earlier state of the source, and there may be any number.
        let mut known: HashMap<Hash, Option<Row>> = samples.iter().map(|sample| (*sample, None)).collect();
        let (mut end, mut all) = (0, 0u64);
        let take = |row: Row| {
            (end, all) = (row.end().max(end), all + 1);
            if let Some(place) = known.get_mut(&row.image) {
                *place = Some(row);
            }
        };
        read_rows(&index, pixels.metadata().with_context(failure)?.len(), take).with_context(failure)?;
        let ends = match locked {
            false => None,
            true => Some(Mutex::new(begin(&pixels, &index, end, all == 0).with_context(failure)?)),
        };
        let rows: Vec<Option<Row>> = samples.iter().map(|sample| known.get(sample).copied().flatten()).collect();
        let there = rows.iter().flatten().count() as u64;
        budget.images.fetch_add(there, Ordering::Relaxed);
        budget.used.fetch_add(end.saturating_add(all * OVERHEAD), Ordering::Relaxed);
        let failed = AtomicBool::new(false);
        Ok(Disk { pixels, index, samples, rows: RwLock::new(rows), ends, failed, folder: place })
    }

    /// Whether images are added.
    pub fn may_write(&self) -> bool {
        self.ends.is_some() && !self.failed.load(Ordering::Relaxed)
    }

    /// The image of a sample, if it was made of a file with this stamp, and height, width and channels are those of one that `fits`.
    pub fn read(
        &self,
        sample: usize,
        stamp: Stamp,
        fits: impl FnOnce([usize; 3]) -> bool,
        budget: &Budget,
    ) -> Option<Image> {
        let row = self.row(sample).filter(|row| row.stamp == stamp)?;
        let [h, w, channels] = row.shape.map(|side| side as usize);
        // Before there is memory for it: a file with holes has any number of bytes.
        if row.bytes() <= MAX_DECODED && fits([h, w, channels]) {
            let bytes = usize::try_from(row.bytes()).ok()?;
            let mut pixels = Vec::new();
            pixels.try_reserve_exact(bytes).ok()?;
            pixels.resize(bytes, 0);
            files::read_at(&self.pixels, &mut pixels, row.offset).ok()?;
            if hash(&pixels) == row.pixels {
                return Some(Image { sides: [h, w], channels, pixels });
            }
        }
        // A power cut may have left the row and not the pixels. They are written anew.
        let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
        let taken = rows.get_mut(sample).and_then(|place| place.take_if(|known| *known == row));
        drop(rows);
        if taken.is_some() {
            budget.images.fetch_sub(1, Ordering::Relaxed);
            if let Some(ends) = &self.ends {
                lock(ends).damaged.insert(sample, (row.offset, row.bytes()));
            }
        }
        None
    }

    /// Whether damaged pixels of a sample have so many bytes: its own take their place.
    pub fn replaces(&self, sample: usize, bytes: u64) -> bool {
        let known = |ends| lock(ends).damaged.get(&sample).is_some_and(|(_, damaged)| *damaged == bytes);
        self.ends.as_ref().is_some_and(known)
    }

    fn row(&self, sample: usize) -> Option<Row> {
        *self.rows.read().unwrap_or_else(PoisonError::into_inner).get(sample)?
    }

    /// Adds the image of a sample, which may take the place of one of the file as it was before; whether it did.
    pub fn write(&self, sample: usize, stamp: Stamp, image: &Image, budget: &Budget) -> bool {
        let (Some(ends), Some(located)) = (&self.ends, self.samples.get(sample)) else { return false };
        let [h, w] = image.sides;
        // A place of its own, so that threads need not wait for each other's pixels.
        let offset = {
            let mut ends = lock(ends);
            // Where one epoch follows the other, two threads may come to a sample at once.
            if ends.writing.contains(&sample) || self.row(sample).is_some_and(|row| row.stamp == stamp) {
                return false;
            }
            ends.writing.push(sample);
            let bytes = image.pixels.len() as u64;
            // What others have read of damaged ones is held to its hash, and so is what they read now.
            match ends.damaged.remove(&sample).filter(|(_, damaged)| *damaged == bytes) {
                Some((offset, _)) => offset,
                None => {
                    let offset = ends.pixels;
                    ends.pixels += bytes;
                    offset
                }
            }
        };
        let shape = [h, w, image.channels].map(|side| side as u32);
        let row = Row { image: *located, stamp, offset, shape, pixels: hash(&image.pixels) };
        let pixels = write_at(&self.pixels, &image.pixels, offset);
        let mut ends = lock(ends);
        let written = pixels.and_then(|()| write_at(&self.index, &row.to_bytes(), ends.rows));
        if written.is_ok() {
            ends.rows += ROW as u64;
            if let Some(place) = self.rows.write().unwrap_or_else(PoisonError::into_inner).get_mut(sample)
                && place.replace(row).is_none()
            {
                budget.images.fetch_add(1, Ordering::Relaxed);
            }
        }
        ends.writing.retain(|other| *other != sample);
        if let Err(e) = written {
            self.failed.store(true, Ordering::Relaxed);
            budget.note(format!("cannot write to the cache in `{}`: {e}; nothing more is added to it", self.folder));
            return false;
        }
        true
    }
}

fn lock(ends: &Mutex<Ends>) -> MutexGuard<'_, Ends> {
    ends.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens both files, to be written to, and makes what is not there.
fn write_both(folder: &Path, pixels: &Path, index: &Path) -> io::Result<(File, File)> {
    durable::create_folders(folder)?;
    let open = |path: &Path| {
        // Never a pipe that stands there in the place of a file: this would wait for its other end.
        match fs::symlink_metadata(path) {
            Ok(there) if !there.is_file() => {
                return Err(io::Error::new(ErrorKind::InvalidInput, format!("`{}` is no file", path.display())));
            }
            _ => {}
        }
        File::options().read(true).write(true).create(true).truncate(false).open(path)
    };
    Ok((open(pixels)?, open(index)?))
}

/// Hands out the rows of an index that are whole, and whose pixels can be in a file of so many bytes.
///
/// # Errors
/// It cannot be read.
pub fn read_rows(index: &File, pixels: u64, mut take: impl FnMut(Row)) -> io::Result<()> {
    const AT_ONCE: u64 = 4096 * ROW as u64;
    let size = index.metadata()?.len().min(MAX_INDEX);
    let mut at = HEADER.len() as u64;
    let mut header = [0; HEADER.len()];
    if size < at || files::read_at(index, &mut header, 0).is_err() || header != *HEADER {
        return Ok(());
    }
    let mut piece = Vec::new();
    while at < size {
        piece.resize(AT_ONCE.min(size - at) as usize, 0);
        files::read_at(index, &mut piece, at)?;
        at += piece.len() as u64;
        piece.as_chunks::<ROW>().0.iter().filter_map(Row::read).filter(|row| row.end() <= pixels).for_each(&mut take);
    }
    Ok(())
}

/// Takes away what a run that was killed has left unfinished; where the next pixels and the next row go.
fn begin(pixels: &File, index: &File, end: u64, is_empty: bool) -> io::Result<Ends> {
    pixels.set_len(end)?;
    let size = index.metadata()?.len();
    let header = HEADER.len() as u64;
    let rows = if is_empty || size < header {
        index.set_len(0)?;
        write_at(index, HEADER, 0)?;
        header
    } else {
        header + (size - header) / ROW as u64 * ROW as u64
    };
    index.set_len(rows)?;
    Ok(Ends { pixels: end, rows, writing: Vec::new(), damaged: HashMap::new() })
}

/// Writes all bytes, at a place of the file.
pub fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::write_all_at(file, bytes, offset);
    #[cfg(windows)]
    {
        let mut done = 0;
        while done < bytes.len() {
            done += std::os::windows::fs::FileExt::seek_write(file, &bytes[done..], offset + done as u64)?;
        }
        Ok(())
    }
}
