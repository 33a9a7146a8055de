//! A long row of tokens, in memory or in a file that is mapped into it.

use crate::files;
use anyhow::{Context, Result, bail, ensure};
use memmap2::Mmap;
use std::path::{Path, PathBuf};

/// Bytes of the header of a token file of llm.c: 256 whole numbers.
pub(super) const HEADER: usize = 256 * 4;
/// Its first number, and the bytes of a token, of which the second number tells more.
pub(super) const MAGIC: [(i32, usize); 2] = [(20_240_520, 2), (20_240_801, 4)];

/// Tokens whose bytes are looked at together.
const PIECE: usize = 1 << 14;

/// Tokens one after the other.
#[derive(Debug)]
pub enum Tokens {
    /// In memory, where there are at most 65,536 of them.
    Narrow(Vec<u16>),
    /// In memory.
    Wide(Vec<u32>),
    /// In a file.
    Mapped {
        /// The file's content.
        map: Mmap,
        /// Where tokens begin.
        offset: usize,
        /// Bytes of each: 2 or 4, the lowest first.
        width: usize,
        /// What tells it from other files: its name, size and time.
        stamp: String,
        /// The file.
        path: PathBuf,
    },
}

impl Tokens {
    /// Tokens of a vocabulary of that size, in memory, where they are put with [`Tokens::extend`].
    pub fn in_memory(vocabulary: usize) -> Tokens {
        if vocabulary <= 1 << 16 { Tokens::Narrow(Vec::new()) } else { Tokens::Wide(Vec::new()) }
    }

    /// Adds tokens to those in memory.
    pub fn extend(&mut self, more: &[u32]) {
        match self {
            Tokens::Narrow(tokens) => tokens.extend(more.iter().map(|token| *token as u16)),
            Tokens::Wide(tokens) => tokens.extend_from_slice(more),
            Tokens::Mapped { .. } => unreachable!("a file's tokens are all there"),
        }
    }

    /// All are there: gives back the memory of those that might have come.
    pub fn whole(mut self) -> Tokens {
        match &mut self {
            Tokens::Narrow(tokens) => tokens.shrink_to_fit(),
            Tokens::Wide(tokens) => tokens.shrink_to_fit(),
            Tokens::Mapped { .. } => {}
        }
        self
    }

    /// Those of a file: bare numbers of 16 bits, as nanoGPT writes them, or with the header of llm.c.
    ///
    /// # Errors
    /// It cannot be read, or holds something else.
    pub fn mapped(path: &Path) -> Result<Tokens> {
        let opened = files::open(path)?;
        let size = usize::try_from(opened.size).context("the file is too large for this machine")?;
        ensure!(size > 0, "`{}` is empty", path.display());
        // SAFETY: the map is only read. If another program changes the file meanwhile, tokens change, which are checked when they
        // are used; if it is cut short, the process ends as with every mapped file, which the guide says.
        let map = unsafe { Mmap::map(&opened.file) }.with_context(|| format!("cannot read `{}`", path.display()))?;
        let number = |at: usize| i32::from_le_bytes(map[at * 4..][..4].try_into().expect("four bytes"));
        if (4..HEADER).contains(&size) && MAGIC.iter().any(|(magic, _)| number(0) == *magic) {
            bail!(
                "`{}` begins with the header of llm.c, which has {HEADER} bytes, and the file has {size}: it is cut short",
                path.display()
            );
        }
        let header = (size >= HEADER).then(|| MAGIC.iter().find(|(magic, _)| number(0) == *magic)).flatten();
        let (offset, width) = match header {
            Some((_, width)) => {
                let (told, found) = (number(2), (size - HEADER) / width);
                if usize::try_from(told) != Ok(found) || !(size - HEADER).is_multiple_of(*width) {
                    bail!(
                        "`{}` has the header of llm.c, which says {told} tokens, and {} bytes behind it, which are not so many of {width} \
                         bytes each: the file is cut short",
                        path.display(),
                        size - HEADER
                    );
                }
                (HEADER, *width)
            }
            None => (0, 2),
        };
        ensure!(
            (size - offset).is_multiple_of(width),
            "`{}` has {size} bytes, an odd number: tokens have two bytes each",
            path.display()
        );
        let modified = opened.metadata.modified().ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let stamp = format!("{name} {size} {}", modified.map_or(0, |time| time.as_nanos()));
        Ok(Tokens::Mapped { map, offset, width, stamp, path: path.to_owned() })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Tokens::Narrow(tokens) => tokens.len(),
            Tokens::Wide(tokens) => tokens.len(),
            Tokens::Mapped { map, offset, width, .. } => (map.len() - offset) / width,
        }
    }

    /// Number `at`.
    pub fn get(&self, at: usize) -> u32 {
        match self {
            Tokens::Narrow(tokens) => u32::from(tokens[at]),
            Tokens::Wide(tokens) => tokens[at],
            Tokens::Mapped { map, offset, width: 2, .. } => {
                u32::from(u16::from_le_bytes(map[offset + 2 * at..][..2].try_into().expect("two bytes")))
            }
            Tokens::Mapped { map, offset, .. } => {
                u32::from_le_bytes(map[offset + 4 * at..][..4].try_into().expect("four bytes"))
            }
        }
    }

    /// The bytes of memory that they take: those of a file are the system's.
    pub fn held_bytes(&self) -> usize {
        match self {
            Tokens::Narrow(tokens) => tokens.len() * 2,
            Tokens::Wide(tokens) => tokens.len() * 4,
            Tokens::Mapped { .. } => 0,
        }
    }

    /// The file that they are read from as they are needed.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Tokens::Mapped { path, .. } => Some(path),
            Tokens::Narrow(_) | Tokens::Wide(_) => None,
        }
    }

    /// What tells them from others: themselves, or the stamp of their file.
    pub fn identify(&self, take: &mut dyn FnMut(&[u8])) {
        match self {
            Tokens::Narrow(tokens) => {
                for some in tokens.chunks(PIECE) {
                    take(&some.iter().flat_map(|token| token.to_le_bytes()).collect::<Vec<u8>>());
                }
            }
            Tokens::Wide(tokens) => {
                for some in tokens.chunks(PIECE) {
                    take(&some.iter().flat_map(|token| token.to_le_bytes()).collect::<Vec<u8>>());
                }
            }
            Tokens::Mapped { stamp, .. } => take(stamp.as_bytes()),
        }
    }
}
