//! A long row of tokens, in memory or in files that are read where samples ask for them.

use super::super::store::{Rows, Unreadable};
use super::super::values::bytes_of;
use crate::files::{self, pattern};
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Bytes of the header of a token file of llm.c: 256 whole numbers.
pub(super) const HEADER: usize = 256 * 4;
/// Its first number, and the bytes of a token; the second number has more of the format.
pub(super) const MAGIC: [(i32, usize); 2] = [(20_240_520, 2), (20_240_801, 4)];

/// Bytes of a file that are read at once: most samples have fewer.
const READ: usize = 4096;

/// Bytes of a file that are looked through at once.
const SEARCHED: usize = 1 << 20;

/// The number of places in a file that are read to identify it.
const LOOKED_AT: usize = 16;

/// Tokens one after the other.
#[derive(Debug)]
pub enum Tokens {
    /// In memory, where there are at most 65,536 of them.
    Narrow(Vec<u16>),
    /// In memory.
    Wide(Vec<u32>),
    /// In files.
    InFiles(Vec<TokenFile>),
}

/// A file of tokens. It is not mapped into memory: there, a file that another program cuts short ends the process.
#[derive(Debug)]
pub struct TokenFile {
    file: File,
    /// Where tokens begin.
    offset: usize,
    /// Bytes of each: 2 or 4, the lowest first.
    width: usize,
    /// Which of all tokens it has; as many as there were when it was opened.
    has: Range<usize>,
    /// Its identity: its size, and the bytes in some places. Its name and time may change without it.
    stamp: String,
    path: PathBuf,
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
            Tokens::InFiles(_) => unreachable!("a file's tokens are all there"),
        }
    }

    /// All are there: gives back the memory of those that might have come.
    pub fn whole(mut self) -> Tokens {
        match &mut self {
            Tokens::Narrow(tokens) => tokens.shrink_to_fit(),
            Tokens::Wide(tokens) => tokens.shrink_to_fit(),
            Tokens::InFiles(_) => {}
        }
        self
    }

    /// Those of a file, or of all that `path` stands for, one after the other: bare numbers of 16 bits, as nanoGPT writes them, or with the header of
    /// llm.c.
    ///
    /// # Errors
    /// A file cannot be read, or holds something else.
    pub fn in_files(path: &Path) -> Result<Tokens> {
        let paths = if files::is_there(path) { vec![path.to_owned()] } else { pattern::paths(path)? };
        let mut all: Vec<TokenFile> = Vec::new();
        for path in paths {
            let first = all.last().map_or(0, |file| file.has.end);
            all.push(TokenFile::open(&path, first)?);
        }
        Ok(Tokens::InFiles(all))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Tokens::Narrow(tokens) => tokens.len(),
            Tokens::Wide(tokens) => tokens.len(),
            Tokens::InFiles(files) => files.last().map_or(0, |file| file.has.end),
        }
    }

    /// Whether these stand first.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn start_with(&self, first: &[u32]) -> Result<bool> {
        let mut reader = self.reader(first.len());
        for (at, token) in first.iter().enumerate() {
            if at >= self.len() || reader.get(at)? != *token {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The last one of those in memory.
    pub fn last(&self) -> Option<u32> {
        match self {
            Tokens::Narrow(tokens) => tokens.last().map(|token| u32::from(*token)),
            Tokens::Wide(tokens) => tokens.last().copied(),
            Tokens::InFiles(_) => None,
        }
    }

    /// Reads some of them, of which those before `end` will be asked for.
    pub fn reader(&self, end: usize) -> Reader<'_> {
        Reader { tokens: self, end, piece: [0; READ], has: 0..0, file: 0 }
    }

    /// The bytes of memory that they take: those of a file are the system's.
    pub fn held_bytes(&self) -> usize {
        match self {
            Tokens::Narrow(tokens) => tokens.len() * 2,
            Tokens::Wide(tokens) => tokens.len() * 4,
            Tokens::InFiles(_) => 0,
        }
    }

    /// The file that token `at` is read from when it is needed, and its number there.
    pub fn place(&self, at: usize) -> Option<(&Path, usize)> {
        match self {
            Tokens::InFiles(files) => {
                let file = &files[TokenFile::of(files, at)];
                Some((&file.path, at - file.has.start))
            }
            Tokens::Narrow(_) | Tokens::Wide(_) => None,
        }
    }

    /// Hands each place of a token to `take`, in their order.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn each_place_of(&self, token: u32, take: &mut dyn FnMut(usize)) -> Result<()> {
        match self {
            Tokens::Narrow(tokens) => {
                if let Ok(token) = u16::try_from(token) {
                    places(tokens, token, 0, take);
                }
            }
            Tokens::Wide(tokens) => places(tokens, token, 0, take),
            Tokens::InFiles(files) => {
                each_piece(files, &mut |bytes, width, first| match (width, u16::try_from(token)) {
                    (2, Ok(token)) => places(bytes.as_chunks().0, token.to_le_bytes(), first, take),
                    (2, Err(_)) => {}
                    _ => places(bytes.as_chunks().0, token.to_le_bytes(), first, take),
                })?
            }
        }
        Ok(())
    }

    /// The largest one; 0 where there is none.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn largest(&self) -> Result<u32> {
        let mut largest = 0u32;
        match self {
            Tokens::Narrow(tokens) => largest = tokens.iter().copied().max().unwrap_or(0).into(),
            Tokens::Wide(tokens) => largest = tokens.iter().copied().max().unwrap_or(0),
            Tokens::InFiles(files) => each_piece(files, &mut |bytes, width, _| {
                let of_piece = match width {
                    2 => bytes.as_chunks().0.iter().map(|token| u16::from_le_bytes(*token)).max().map(u32::from),
                    _ => bytes.as_chunks().0.iter().map(|token| u32::from_le_bytes(*token)).max(),
                };
                largest = largest.max(of_piece.unwrap_or(0));
            })?,
        }
        Ok(largest)
    }

    /// Their identity: themselves, or the stamps of their files.
    pub fn identify(&self, take: &mut dyn FnMut(&[u8])) {
        match self {
            Tokens::Narrow(tokens) => take(bytes_of(tokens)),
            Tokens::Wide(tokens) => take(bytes_of(tokens)),
            Tokens::InFiles(files) => files.iter().for_each(|file| take(file.stamp.as_bytes())),
        }
    }
}

impl TokenFile {
    /// A file whose first token is number `first` of all.
    fn open(path: &Path, first: usize) -> Result<TokenFile> {
        let opened = files::open(path)?;
        let size = usize::try_from(opened.size).context("the file is too large for this machine")?;
        ensure!(size > 0, "`{}` is empty", path.display());
        let mut head = vec![0; size.min(HEADER)];
        files::read_at(&opened.file, &mut head, 0).with_context(|| format!("cannot read `{}`", path.display()))?;
        let number = |at: usize| i32::from_le_bytes(head[at * 4..][..4].try_into().expect("four bytes"));
        if (4..HEADER).contains(&size) && MAGIC.iter().any(|(magic, _)| number(0) == *magic) {
            bail!(
                "`{}` begins with the header of llm.c, which has {HEADER} bytes, and the file has {size}: it is cut short",
                path.display()
            );
        }
        let header = (size >= HEADER).then(|| MAGIC.iter().find(|(magic, _)| number(0) == *magic)).flatten();
        let (offset, width) = match header {
            Some((_, width)) => {
                let (declared, found) = (number(2), (size - HEADER) / width);
                if usize::try_from(declared) != Ok(found) || !(size - HEADER).is_multiple_of(*width) {
                    let why = if usize::try_from(declared).is_ok_and(|declared| declared > found) {
                        "cut short"
                    } else {
                        "damaged"
                    };
                    bail!(
                        "`{}` has the header of llm.c, which says {declared} tokens, and {} bytes after it, which are not so many of {width} \
                         bytes each: the file is {why}",
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
        let mut digest = blake3::Hasher::new();
        for n in 0..LOOKED_AT {
            let at = (size.saturating_sub(READ) / (LOOKED_AT - 1)).saturating_mul(n);
            let mut some = vec![0; READ.min(size - at)];
            files::read_at(&opened.file, &mut some, at as u64)
                .with_context(|| format!("cannot read `{}`", path.display()))?;
            digest.update(&some);
        }
        let stamp = format!("{size} {}", digest.finalize().to_hex());
        let len = (size - offset) / width;
        let end = first.checked_add(len).context("these are more tokens than can be counted")?;
        Ok(TokenFile { file: opened.file, offset, width, has: first..end, stamp, path: path.to_owned() })
    }

    /// Which of the files has token `at`.
    fn of(files: &[TokenFile], at: usize) -> usize {
        files.partition_point(|file| file.has.end <= at).min(files.len() - 1)
    }
}

/// Hands the bytes of all tokens to `take`, piece by piece, with how many a token has, and which is the first.
fn each_piece(files: &[TokenFile], take: &mut dyn FnMut(&[u8], usize, usize)) -> Result<()> {
    let mut bytes = vec![0; SEARCHED];
    for TokenFile { file, offset, width, has, path, .. } in files {
        for first in has.clone().step_by(SEARCHED / width) {
            let count = (SEARCHED / width).min(has.end - first);
            let bytes = &mut bytes[..count * width];
            files::read_at(file, bytes, (offset + (first - has.start) * width) as u64)
                .with_context(|| format!("cannot read `{}`", path.display()))?;
            take(bytes, *width, first);
        }
    }
    Ok(())
}

/// Hands the places of `one` to `take`, where the first of all is `first`.
fn places<T: PartialEq>(all: &[T], one: T, first: usize, take: &mut dyn FnMut(usize)) {
    /// Most parts of this size do not have it, which is seen of all their tokens at a time.
    const PART: usize = 64;
    for (number, part) in all.chunks(PART).enumerate() {
        if part.iter().fold(false, |found, token| found | (*token == one)) {
            let at = |(at, token): (usize, &T)| (*token == one).then_some(first + number * PART + at);
            part.iter().enumerate().filter_map(at).for_each(&mut *take);
        }
    }
}

/// Writes tokens into a field of whole numbers, and `filling` after them.
///
/// # Errors
/// A file cannot be read, or has a token that a vocabulary of so many does not have.
pub fn put_tokens(
    reader: &mut Reader,
    rows: &mut Rows,
    (field, filling): (usize, i32),
    range: Range<usize>,
    vocabulary: usize,
) -> Result<(), Unreadable> {
    let mut wrong = None;
    rows.fill(field, |at, out| {
        let place = range.start + at;
        let token = if place < range.end && wrong.is_none() {
            match reader.get(place) {
                Ok(token) if (token as usize) < vocabulary => token as i32,
                Ok(token) => {
                    wrong = Some((place, Err(token)));
                    filling
                }
                Err(error) => {
                    wrong = Some((place, Ok(error.to_string())));
                    filling
                }
            }
        } else {
            filling
        };
        *out = token.to_ne_bytes();
    });
    let Some((place, why)) = wrong else { return Ok(()) };
    let file = reader.tokens.place(place);
    let why = why.unwrap_or_else(|token| {
        let number = file.map_or(place, |(_, number)| number);
        format!("token {number} is {token}, and the vocabulary has {vocabulary}, 0 .. {}", vocabulary - 1)
    });
    let name = file.map_or("the text".into(), |(path, _)| path.display().to_string());
    Err(Unreadable { name, why })
}

/// Reads tokens one after the other.
pub struct Reader<'a> {
    tokens: &'a Tokens,
    end: usize,
    piece: [u8; READ],
    /// The tokens that `piece` has.
    has: Range<usize>,
    /// The file that they are from.
    file: usize,
}

impl Reader<'_> {
    /// Number `at`.
    ///
    /// # Errors
    /// The file cannot be read, or was cut short.
    pub fn get(&mut self, at: usize) -> Result<u32> {
        let files = match self.tokens {
            Tokens::Narrow(tokens) => return Ok(u32::from(tokens[at])),
            Tokens::Wide(tokens) => return Ok(tokens[at]),
            Tokens::InFiles(files) => files,
        };
        if !self.has.contains(&at) {
            self.file = TokenFile::of(files, at);
            let TokenFile { file, offset, width, has: own, .. } = &files[self.file];
            let has = at..self.end.min(at + READ / width).min(own.end).max(at + 1);
            let bytes = &mut self.piece[..has.len() * width];
            let (at, end) = (at - own.start, has.end - own.start);
            files::read_at(file, bytes, (offset + at * width) as u64).map_err(|error| match error.kind() {
                ErrorKind::UnexpectedEof => {
                    anyhow!("the file ends before token {end}: it was cut short after it was opened")
                }
                _ => anyhow!("tokens {at} to {} cannot be read: {error}", end - 1),
            })?;
            self.has = has;
        }
        let width = files[self.file].width;
        let bytes = &self.piece[(at - self.has.start) * width..][..width];
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }
}
