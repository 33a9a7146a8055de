//! Where the cells and the samples of a table lie: in memory, or in a file without a name, of which nothing is left however the process ends. On Windows
//! it has a name while it is open.

use super::super::cache::write_at;
use super::super::values::Mapped;
use crate::files::host_memory::host_memory;
use crate::files::{self, caches, durable};
use crate::graph::DType;
use crate::terminal::human_bytes;
use anyhow::{Context, Result};
use memmap2::Mmap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is larger than this part of the memory that there is lies in a file.
const PART_OF_MEMORY: u64 = 4;
/// Bytes of cells that are read before they go to a file. Tests have many times as much.
pub const AT_ONCE: usize = if cfg!(test) { 256 } else { 64 << 20 };
/// What is in a file begins where numbers may lie.
const ALIGNED: u64 = 8;

/// Where a table is to lie.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Lies {
    /// In memory, unless it takes too much of it.
    #[default]
    WhereThereIsRoom,
    /// In memory.
    InMemory,
    /// In a file.
    Aside,
}

/// Where a table is to lie, and the folder of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Room {
    /// Memory or file.
    pub lies: Lies,
    /// `None`: a folder among the user's caches.
    pub folder: Option<PathBuf>,
}

impl Room {
    /// A file for so many bytes, if they are not to lie in memory.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn aside(&self, bytes: u64) -> Result<Option<Arc<Aside>>> {
        let wanted = match self.lies {
            Lies::InMemory => false,
            Lies::Aside => true,
            Lies::WhereThereIsRoom => is_too_much(bytes, host_memory().map(|host| host.available)),
        };
        wanted.then(|| Aside::new(&self.folder()?)).transpose()
    }

    /// The folder of a file, if one is known.
    pub fn place(&self) -> Option<PathBuf> {
        let usual = || Some(caches::folder()?.join("tables"));
        self.folder.clone().or_else(usual)
    }

    fn folder(&self) -> Result<PathBuf> {
        self.place().with_context(|| {
            format!(
                "the table has no room in memory, and there is no folder for a file: {}; set `data.cache_dir`",
                caches::why_none()
            )
        })
    }
}

/// Whether so many bytes are more than a table may have of the memory that there is.
fn is_too_much(bytes: u64, available: Option<usize>) -> bool {
    available.is_some_and(|available| bytes > available as u64 / PART_OF_MEMORY)
}

/// A file that is gone when it is not used any more. It has no name; on Windows it has one, and only this process can open it.
#[derive(Debug)]
pub struct Aside {
    file: File,
    end: AtomicU64,
    folder: PathBuf,
}

impl Aside {
    /// One on the disk of `folder`, which is made if it is not there.
    fn new(folder: &Path) -> Result<Arc<Aside>> {
        let made = durable::create_folders(folder).and_then(|()| tempfile::tempfile_in(folder));
        let file = made.with_context(|| {
            format!(
                "cannot make a file in `{}`, where a table lies that has no room in memory: set `cache_dir` to a folder that can be written to",
                folder.display()
            )
        })?;
        Ok(Arc::new(Aside { file, end: AtomicU64::new(0), folder: folder.to_owned() }))
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    /// The folder on whose disk it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A place for so many bytes.
    pub fn place(&self, bytes: u64) -> u64 {
        self.end.fetch_add(bytes.next_multiple_of(ALIGNED), Ordering::Relaxed)
    }

    /// Writes bytes to a place.
    ///
    /// # Errors
    /// The disk is full, or the like.
    pub fn put(&self, bytes: &[u8], at: u64) -> Result<()> {
        write_at(&self.file, bytes, at).with_context(|| {
            let all = human_bytes(usize::try_from(self.bytes()).unwrap_or(usize::MAX));
            format!(
                "cannot write to a file in `{}`, where a table lies that has no room in memory; so far it takes {all}: set `cache_dir` to a folder with more room",
                self.folder.display()
            )
        })
    }

    /// Writes bytes after all others; where they are.
    ///
    /// # Errors
    /// As [`Aside::put`].
    pub fn add(&self, bytes: &[u8]) -> Result<u64> {
        let at = self.place(bytes.len() as u64);
        self.put(bytes, at)?;
        Ok(at)
    }

    /// Reads what was written to a place.
    ///
    /// # Errors
    /// The disk fails.
    pub fn get(&self, out: &mut [u8], at: u64) -> Result<()> {
        files::read_at(&self.file, out, at)
            .with_context(|| format!("cannot read the file in `{}` that a table lies in", self.folder.display()))
    }

    /// Values of the elements `dtype` that were written to these places, as many bytes at each.
    ///
    /// # Errors
    /// The file cannot be mapped.
    pub fn mapped(&self, places: &[(u64, u64, DType)]) -> Result<Vec<Mapped>> {
        // SAFETY: nothing writes to the file any more, and no other program can: it has no name, or on Windows is open for this process alone.
        let map = unsafe { Mmap::map(&self.file) };
        let map =
            map.with_context(|| format!("cannot map the file in `{}` that a table lies in", self.folder.display()))?;
        // Samples are asked for in an order that is drawn: what lies after one is of no use.
        #[cfg(unix)]
        let _ = map.advise(memmap2::Advice::Random);
        let map = Arc::new(map);
        let of = |(at, bytes, dtype): &(u64, u64, DType)| {
            let range = usize::try_from(*at)?..usize::try_from(at + bytes)?;
            Ok(Mapped::new(Arc::clone(&map), range, *dtype))
        };
        places.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_memory_is_what_a_table_may_have() {
        assert!(!is_too_much(25, Some(100)) && is_too_much(26, Some(100)) && !is_too_much(u64::MAX, None));
        let folder = tempfile::tempdir().unwrap();
        let room = |lies| Room { lies, folder: Some(folder.path().join("a/b")) };
        assert!(room(Lies::InMemory).aside(u64::MAX).unwrap().is_none());
        assert!(room(Lies::WhereThereIsRoom).aside(1).unwrap().is_none());
        let aside = room(Lies::Aside).aside(1).unwrap().unwrap();
        let files = || std::fs::read_dir(folder.path().join("a/b")).unwrap().count();
        assert_eq!(files(), usize::from(cfg!(windows)), "the file has no name, but on Windows");
        drop(aside);
        assert_eq!(files(), 0);
    }

    #[test]
    fn what_is_written_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let aside = Aside::new(folder.path()).unwrap();
        let (first, second) = (aside.add(&[1; 5]).unwrap(), aside.add(&[2; 8]).unwrap());
        assert_eq!((first, second), (0, 8));
        let mut out = [0; 8];
        aside.get(&mut out, second).unwrap();
        assert_eq!(out, [2; 8]);
        let mapped = aside.mapped(&[(second, 8, DType::F32), (first, 5, DType::U8)]).unwrap();
        assert_eq!((mapped[0].bytes(), mapped[1].bytes()), (&[2; 8][..], &[1; 5][..]));
        assert!(aside.get(&mut out, 9).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_cannot_be_used_is_named() {
        let error = format!("{:#}", Aside::new(Path::new("/dev/null/x")).unwrap_err());
        assert!(error.contains("`/dev/null/x`") && error.contains("`cache_dir`"), "{error}");
    }
}
