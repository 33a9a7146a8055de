//! Text files that memory need not have room for, read block by block.

use super::super::tokenizer::pieces::{first_place, last_place};
use super::text_files::{MARK, is_table_alone, text_files};
use crate::files;
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Bytes of a block.
const BLOCK: usize = 1 << 20;

/// Bytes after a wanted place among which a better one is looked for.
const NEAR: usize = 1 << 16;

/// Where a text may be cut so that its tokens stay the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Between any two bytes.
    Bytes,
    /// At a space between letters or digits.
    Words,
    /// Nowhere: a file is one block.
    Nowhere,
}

/// A part of a text file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    /// The file.
    pub path: PathBuf,
    /// Its bytes.
    pub range: Range<u64>,
    /// The file begins where it does.
    pub begins: bool,
    /// The file ends where it does.
    pub ends: bool,
}

/// The files that `paths` stand for, each a stretch without the mark of the order of bytes; of the last `held_out` of all bytes a second list is made, which
/// begins where the text may be cut.
///
/// # Errors
/// A file is not there, or cannot be read; there is no text.
pub fn stretches(paths: &[PathBuf], held_out: Option<f64>, cut: Cut) -> Result<[Vec<Stretch>; 2]> {
    let mut all = Vec::new();
    for path in paths {
        for path in text_files(path)? {
            ensure!(
                !is_table_alone(&path),
                "`{}` is a table, and other files are none: `--column NAME` says which column of tables has the texts",
                path.display()
            );
            let opened = files::open(&path)?;
            let mut first = Vec::new();
            let read = opened.file.take(MARK.len() as u64).read_to_end(&mut first);
            read.with_context(|| format!("cannot read `{}`", path.display()))?;
            let mark = if first == MARK.as_bytes() { MARK.len() as u64 } else { 0 };
            all.push(Stretch { path, range: mark..opened.size, begins: true, ends: true });
        }
    }
    let bytes: u64 = all.iter().map(Stretch::bytes).sum();
    ensure!(bytes > 0, "there is no text: {} empty", if all.len() == 1 { "the file is" } else { "all files are" });
    let Some(part) = held_out else { return Ok([all, Vec::new()]) };
    let mut left = (bytes as f64 * (1.0 - part)).round() as u64;
    let mut held = Vec::new();
    let mut kept = Vec::new();
    for stretch in all {
        let own = stretch.bytes();
        if left >= own && held.is_empty() {
            left -= own;
            kept.push(stretch);
        } else if held.is_empty() && left > 0 {
            let at = stretch.place(stretch.range.start + left, cut)?;
            let (before, behind) = (stretch.range.start..at, at..stretch.range.end);
            let ends = behind.is_empty();
            kept.push(Stretch { range: before, ends, ..stretch.clone() });
            held.extend((!ends).then_some(Stretch { range: behind, begins: false, ..stretch }));
            left = 0;
        } else {
            held.push(stretch);
        }
    }
    ensure!(!kept.is_empty() && !held.is_empty(), "{part} of the text leaves nothing to train or to validate on");
    Ok([kept, held])
}

impl Stretch {
    /// How long it is.
    pub fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// The place at or after byte `at` where it may be cut; between any two characters, if there is none near.
    fn place(&self, at: u64, cut: Cut) -> Result<u64> {
        if cut == Cut::Bytes {
            return Ok(at);
        }
        let mut near = Vec::new();
        let mut file = self.open(at)?;
        file.by_ref().take(NEAR as u64).read_to_end(&mut near).with_context(|| self.unreadable())?;
        let character = || near.iter().position(|byte| byte & 0xC0 != 0x80).unwrap_or(near.len());
        let place = first_place(&near).unwrap_or_else(character);
        Ok((at + place as u64).min(self.range.end))
    }

    fn open(&self, at: u64) -> Result<File> {
        let mut file = files::open(&self.path)?.file;
        file.seek(SeekFrom::Start(at)).with_context(|| self.unreadable())?;
        Ok(file)
    }

    fn unreadable(&self) -> String {
        format!("cannot read `{}`", self.path.display())
    }

    /// Its blocks, one after the other, each with the place of its first byte in the file.
    ///
    /// # Errors
    /// The file cannot be opened. Blocks are errors where it cannot be read, or has become shorter.
    pub fn blocks(&self, cut: Cut) -> Result<Blocks<'_>> {
        Ok(Blocks {
            stretch: self,
            file: self.open(self.range.start)?,
            at: self.range.start,
            left: self.bytes(),
            begun: Vec::new(),
            cut,
        })
    }
}

/// The blocks of a [`Stretch`].
pub struct Blocks<'a> {
    stretch: &'a Stretch,
    file: File,
    /// The place of the first byte that has not been handed out.
    at: u64,
    /// Bytes that have not been read.
    left: u64,
    /// Bytes that have been read and not been handed out.
    begun: Vec<u8>,
    cut: Cut,
}

impl Blocks<'_> {
    fn read(&mut self) -> Result<Option<(u64, Vec<u8>)>> {
        while self.left > 0 {
            let (old, more) = (self.begun.len(), self.left.min(BLOCK as u64) as usize);
            let room = self.begun.try_reserve(more);
            let path = self.stretch.path.display();
            room.with_context(|| {
                format!("`{path}`, byte {}: there is no memory for the text up to a place where it can be cut", self.at)
            })?;
            self.begun.resize(old + more, 0);
            self.file.read_exact(&mut self.begun[old..]).with_context(|| self.stretch.unreadable())?;
            self.left -= more as u64;
            let end = match self.cut {
                _ if self.left == 0 => self.begun.len(),
                Cut::Bytes => self.begun.len(),
                // Two bytes may be the beginning of a place.
                Cut::Words => match last_place(&self.begun[old.saturating_sub(2)..]) {
                    Some(place) => old.saturating_sub(2) + place,
                    None => continue,
                },
                Cut::Nowhere => continue,
            };
            let rest = self.begun.split_off(end);
            let block = std::mem::replace(&mut self.begun, rest);
            self.at += block.len() as u64;
            return Ok(Some((self.at - block.len() as u64, block)));
        }
        Ok(None)
    }
}

impl Iterator for Blocks<'_> {
    type Item = Result<(u64, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let block = self.read();
        if block.is_err() {
            self.left = 0;
        }
        block.transpose()
    }
}

/// The line of a file that byte `at` is on, the first being 1.
///
/// # Errors
/// It cannot be read.
pub fn line_of(path: &Path, at: u64) -> Result<usize> {
    let mut lines = 1;
    let stretch = Stretch { path: path.to_owned(), range: 0..at, begins: true, ends: false };
    for block in stretch.blocks(Cut::Bytes)? {
        lines += block?.1.iter().filter(|byte| **byte == b'\n').count();
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(stretches: &[Stretch], cut: Cut) -> Vec<u8> {
        let blocks = |stretch: &Stretch| stretch.blocks(cut).unwrap().map(|block| block.unwrap().1).collect::<Vec<_>>();
        stretches.iter().flat_map(blocks).flatten().collect()
    }

    #[test]
    fn blocks_are_the_text_and_end_between_words() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        let text = "naïve words, and more of them ".repeat(80_000);
        std::fs::write(&path, format!("{MARK}{text}")).unwrap();
        for cut in [Cut::Bytes, Cut::Words, Cut::Nowhere] {
            let [all, none] = stretches(std::slice::from_ref(&path), None, cut).unwrap();
            assert!(none.is_empty() && all.len() == 1 && all[0].ends);
            assert!(whole(&all, cut) == text.as_bytes(), "{cut:?}");
            let blocks: Vec<_> = all[0].blocks(cut).unwrap().map(Result::unwrap).collect();
            assert_eq!(blocks.len() > 1, cut != Cut::Nowhere);
            let mut at = MARK.len() as u64;
            for (n, (start, block)) in blocks.iter().enumerate() {
                assert_eq!(*start, at);
                at += block.len() as u64;
                if cut == Cut::Words && n > 0 {
                    assert!(block[0] == b' ' && block[1].is_ascii_alphabetic());
                    std::str::from_utf8(block).unwrap();
                }
            }
        }
    }

    #[test]
    fn the_end_is_held_out_where_the_text_may_be_cut() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a.txt", "b.txt", "c.txt"].map(|name| folder.path().join(name));
        for (path, text) in paths.iter().zip(["one two three four five", "", "sechs sieben acht"]) {
            std::fs::write(path, text).unwrap();
        }
        let texts = |part: f64, cut: Cut| {
            stretches(&paths, Some(part), cut).unwrap().map(|of| String::from_utf8(whole(&of, cut)).unwrap())
        };
        assert_eq!(texts(0.6, Cut::Words), ["one two three four", " fivesechs sieben acht"]);
        assert_eq!(texts(0.25, Cut::Words), ["one two three four fivesechs sieben", " acht"]);
        assert_eq!(texts(0.75, Cut::Bytes), ["one two th", "ree four fivesechs sieben acht"]);
        for part in [0.0001, 0.9999] {
            let error = stretches(&paths, Some(part), Cut::Words).unwrap_err().to_string();
            assert!(error.contains("leaves nothing"), "{error}");
        }
        let error = stretches(&paths[1..2], None, Cut::Words).unwrap_err().to_string();
        assert!(error.contains("the file is empty"), "{error}");
    }

    #[test]
    fn a_text_without_words_is_cut_between_characters() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, "日本語の文章".repeat(50)).unwrap();
        let [kept, held] = stretches(std::slice::from_ref(&path), Some(0.3), Cut::Words).unwrap();
        for part in [&kept, &held] {
            String::from_utf8(whole(part, Cut::Words)).unwrap();
        }
        assert!(!kept[0].ends && held[0].ends);
    }

    #[test]
    fn a_file_that_becomes_shorter_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, "one two three").unwrap();
        let [all, _] = stretches(std::slice::from_ref(&path), None, Cut::Words).unwrap();
        std::fs::write(&path, "one").unwrap();
        let error = all[0].blocks(Cut::Words).unwrap().next().unwrap().unwrap_err();
        assert!(format!("{error:#}").contains("a.txt"), "{error:#}");
    }
}
