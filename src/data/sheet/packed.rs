//! A packed text that does not lie in memory: it is unpacked piece by piece as it is read, and from its begin again by each pass over its pieces.

use super::packing::{NOT_UNPACKED, Packing, expect_size};
use super::parts::{HEAD, SMALL, head_of, scan};
use super::quotes::Begin;
use crate::files;
use anyhow::{Context, Result, anyhow, ensure};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;
use std::time::SystemTime;

/// A packed text.
pub struct PackedText {
    path: PathBuf,
    packing: Packing,
    /// How the file was when it was looked at.
    stamp: (u64, Option<SystemTime>),
    /// Bytes that it may have once it is unpacked.
    most: u64,
    /// Bytes before the text: a mark that some programs begin it with.
    mark: usize,
    /// What it begins with.
    head: String,
    /// The pass over its pieces that is under way.
    pass: Mutex<Option<Pass>>,
}

/// A pass over the pieces of a text, in their order.
struct Pass {
    unpacked: BufReader<Box<dyn Read + Send>>,
    /// The piece that is unpacked next.
    next: usize,
    /// Pieces that were passed over, of which one thread asks later than another for the next.
    passed: VecDeque<(usize, String)>,
}

/// What a packed file turns out to be.
pub enum Opened {
    /// A text that is read in pieces.
    Large(PackedText),
    /// A small one, unpacked.
    Small(Vec<u8>),
    /// One that has to be decoded as a whole, or is damaged.
    Other,
}

impl PackedText {
    /// That of the file at `path`, which may have `most` bytes once it is unpacked.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path, packing: Packing, most: u64) -> Result<Opened> {
        let opened = files::open(path)?;
        let stamp = (opened.size, opened.metadata.modified().ok());
        let mut begin = Vec::new();
        if packing.unpacked(opened.file).take(SMALL.min(most) + 1).read_to_end(&mut begin).is_err() {
            return Ok(Opened::Other);
        }
        if begin.len() as u64 <= SMALL.min(most) {
            return Ok(Opened::Small(begin));
        }
        begin.truncate(HEAD as usize);
        let Some((mark, head)) = head_of(&begin) else { return Ok(Opened::Other) };
        let (path, pass) = (path.to_owned(), Mutex::default());
        Ok(Opened::Large(PackedText { path, packing, stamp, most, mark, head, pass }))
    }

    /// What it begins with.
    pub fn head(&self) -> &str {
        &self.head
    }

    fn changed(&self) -> anyhow::Error {
        anyhow!("`{}` has changed since it was looked at", self.path.display())
    }

    /// The error where it cannot be unpacked.
    fn named<T>(&self, unpacked: Result<T>) -> Result<T> {
        unpacked.with_context(|| format!("`{}`", self.path.display()))
    }

    /// All of it, unpacked, after its mark.
    fn begin(&self) -> Result<BufReader<Box<dyn Read + Send>>> {
        let opened = files::open(&self.path)?;
        ensure!((opened.size, opened.metadata.modified().ok()) == self.stamp, self.changed());
        let mut unpacked = BufReader::new(self.packing.unpacked(opened.file));
        let mut mark = vec![0; self.mark];
        self.named(unpacked.read_exact(&mut mark).context(NOT_UNPACKED))?;
        Ok(unpacked)
    }

    /// Hands the text in parts to `look`, as [`scan`] does.
    ///
    /// # Errors
    /// It cannot be read, is no text or too large, or `look` fails.
    pub fn scan(&self, look: impl FnMut(&str, bool) -> Result<usize>) -> Result<()> {
        let (mut unpacked, mut size) = (self.begin()?, self.mark as u64);
        let mut more = |buffer: &mut Vec<u8>, wanted: usize| {
            let read = unpacked.by_ref().take(wanted as u64).read_to_end(buffer).context(NOT_UNPACKED)?;
            size += read as u64;
            expect_size(size, self.most, "")?;
            Ok(unpacked.fill_buf().context(NOT_UNPACKED)?.is_empty())
        };
        scan(&self.path, |buffer, wanted| self.named(more(buffer, wanted)), look)
    }

    /// The piece of a number, all of which `begins`; where the last one ends is `end`. A new pass begins if the one that is under way has left the piece behind.
    ///
    /// # Errors
    /// The file cannot be read, or has changed.
    pub fn piece(&self, number: usize, begins: &[Begin], end: Begin) -> Result<String> {
        let mut under_way = self.pass.lock().unwrap_or_else(PoisonError::into_inner);
        // A pass that fails is not gone on with.
        let mut pass = match under_way.take() {
            Some(pass) if pass.next <= number || pass.passed.iter().any(|(passed, _)| *passed == number) => pass,
            _ => Pass { unpacked: self.begin()?, next: 0, passed: VecDeque::new() },
        };
        let passed = pass.passed.iter().position(|(passed, _)| *passed == number);
        let text = match passed.and_then(|at| pass.passed.remove(at)) {
            Some((_, text)) => text,
            None => self.next(&mut pass, number, begins, end)?,
        };
        // A table may be of more files than a process may have open.
        *under_way = Some(pass).filter(|pass| pass.next < begins.len() || !pass.passed.is_empty());
        Ok(text)
    }

    /// Ends the pass that is under way.
    pub fn close(&self) {
        *self.pass.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Unpacks up to the piece of a number, which is still to come.
    fn next(&self, pass: &mut Pass, number: usize, begins: &[Begin], end: Begin) -> Result<String> {
        loop {
            let bytes = begins.get(pass.next + 1).unwrap_or(&end).byte - begins[pass.next].byte;
            let mut text = Vec::with_capacity(bytes);
            let read = pass.unpacked.by_ref().take(bytes as u64).read_to_end(&mut text).context(NOT_UNPACKED);
            // It was text before.
            let whole = self.named(read)? == bytes;
            let text = String::from_utf8(text).ok().filter(|_| whole).ok_or_else(|| self.changed())?;
            pass.next += 1;
            if pass.next > number {
                return Ok(text);
            }
            // No more threads than there are ask at a time.
            if pass.passed.len() >= available_parallelism().map_or(1, usize::from) {
                pass.passed.pop_front();
            }
            pass.passed.push_back((pass.next - 1, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::text::Text;
    use super::super::written::Written;
    use super::super::{Form, Format, Limits};
    use super::*;
    use crate::random::{Purpose, Stream};
    use std::fs;
    use std::io::Write;

    const LIMITS: Limits = Limits { file: 1 << 20, row: 1000 };
    const CELLS: Form = Form::Cells(Format { separator: None, header: true, quote: Some(b'"'), encoding: None });

    /// Members that are packed one by one, as tools that work in parallel do.
    fn packed(content: &[u8], members: usize, packing: Packing) -> Vec<u8> {
        let parts = content.chunks(content.len().div_ceil(members).max(1));
        let pack = |part: &[u8]| match packing {
            Packing::Gzip => {
                let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                gzip.write_all(part).unwrap();
                gzip.finish().unwrap()
            }
            Packing::Zstandard => ruzstd::encoding::compress_to_vec(part, ruzstd::encoding::CompressionLevel::Fastest),
        };
        parts.flat_map(pack).collect()
    }

    fn written(path: &Path, bytes: &[u8]) {
        fs::write(path, bytes).unwrap();
    }

    /// The names of the columns and the rows of some pieces with their lines, or the text of the error.
    type Rows = Result<(Vec<String>, Vec<(u64, Vec<String>)>), String>;

    fn rows(sheet: Result<Written>, order: impl Fn(usize) -> Vec<usize>) -> Rows {
        let message = |error: anyhow::Error| format!("{error:#}");
        let sheet = sheet.map_err(message)?;
        let mut all = Vec::new();
        for piece in order(sheet.pieces()) {
            let take = |line: u64, _: Option<&str>, cells: &[&str]| {
                all.push((line, cells.iter().map(|cell| (*cell).to_owned()).collect()));
                Ok(())
            };
            sheet.each_cells(piece, (false, false), take).map_err(message)?;
        }
        all.sort();
        Ok((sheet.names().to_vec(), all))
    }

    #[test]
    fn a_packed_text_is_read_in_pieces_as_the_whole() {
        let folder = tempfile::tempdir().unwrap();
        let mut draw = Stream::new(3, Purpose::Split, 0, 0);
        let cells: [&[u8]; 6] = [b"1.5", b"\"a,\r\nb\"", "é€".as_bytes(), b"", b"\"say \"\"so\"\"\"", b"x y"];
        let faults: [&[u8]; 5] = [b"\0", b"\xff", b"\xe2\x82", b"\"", b"1,2,3\n"];
        let (mut large, mut refused) = (0, 0);
        for round in 0..300 {
            let packing = [Packing::Gzip, Packing::Zstandard][round % 2];
            let path = folder.path().join(["t.csv.gz", "t.csv.zst"][round % 2]);
            let mut content: Vec<u8> = if round % 3 == 0 { b"\xef\xbb\xbf".to_vec() } else { Vec::new() };
            content.extend(b"a,b\n");
            for _ in 0..10 + draw.below(60) {
                let mut cell = || cells[draw.below(cells.len() as u32) as usize];
                content.extend([cell(), b",", cell()].concat());
                content.extend([&b"\n"[..], b"\n\n", b"\r\n", b"\r"][draw.below(4) as usize]);
            }
            if round % 4 == 1 {
                let at = draw.below(content.len() as u32) as usize;
                content.splice(at..at, faults[draw.below(faults.len() as u32) as usize].iter().copied());
            }
            written(&path, &packed(&content, 1 + round % 5, packing));
            large += u32::from(matches!(Text::open(&path, LIMITS.file, None), Ok(Text::Packed(_))));
            let whole = rows(Written::of(&path, content.clone(), CELLS, LIMITS), |count| (0..count).collect());
            refused += u32::from(whole.is_err());
            // In any order, as threads may ask.
            let shuffled = |count: usize| {
                let mut order: Vec<usize> = (0..count).collect();
                (1..count).for_each(|at| order.swap(at, at - at.min(round % 3)));
                order
            };
            for order in [&(|count: usize| (0..count).collect()) as &dyn Fn(usize) -> Vec<usize>, &shuffled] {
                let pieces = rows(Written::open(&path, CELLS, LIMITS), order);
                assert!(
                    pieces == whole || pieces.is_err() && whole.is_err(),
                    "{pieces:?} {whole:?} {:?}",
                    String::from_utf8_lossy(&content)
                );
            }
            assert_eq!(rows(Written::open(&path, CELLS, LIMITS), |count| (0..count).collect()), whole);
        }
        assert!(large > 200 && (30..200).contains(&refused), "{large} {refused}");
    }

    #[test]
    fn pieces_are_kept_for_threads_and_passes_begin_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv.gz");
        let lines: Vec<String> = (0..400).map(|i| format!("{i},{i}\n")).collect();
        written(&path, &packed(format!("a,b\n{}", lines.concat()).as_bytes(), 3, Packing::Gzip));
        let sheet = Written::open(&path, CELLS, LIMITS).unwrap();
        let count = sheet.pieces();
        assert!(count > 20);
        let rows = |piece: usize| {
            let mut all = 0;
            sheet.each(piece, false, |_, _| {
                all += 1;
                Ok(())
            })?;
            Ok::<usize, anyhow::Error>(all)
        };
        for _ in 0..3 {
            let read = super::super::super::parallel::parallel((0..count).collect(), |piece| rows(piece).unwrap());
            assert_eq!(read.iter().sum::<usize>(), 400);
        }
        // The file is closed when all pieces are read, or before.
        let is_open = || {
            fs::read_dir("/proc/self/fd")
                .is_ok_and(|all| all.flatten().filter_map(|one| fs::read_link(one.path()).ok()).any(|to| to == path))
        };
        let other = Written::open(&path, CELLS, LIMITS).unwrap();
        assert!(!is_open());
        rows(0).unwrap();
        assert_eq!(is_open(), cfg!(target_os = "linux"));
        drop(other);
        // From the last to the first: a pass for each.
        assert_eq!((0..count).rev().map(|piece| rows(piece).unwrap()).sum::<usize>(), 400);
        // A file that has changed in between is an error.
        written(&path, b"another file");
        assert!(rows(0).unwrap_err().to_string().contains("has changed since it was looked at"));
    }

    #[test]
    fn damaged_files_and_those_that_are_too_large_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let content = format!("a,b\n{}", "1,2\n".repeat(5000));
        for (name, packing) in [("t.csv.gz", Packing::Gzip), ("t.csv.zst", Packing::Zstandard)] {
            let path = folder.path().join(name);
            let whole = packed(content.as_bytes(), 7, packing);
            let open = |bytes: &[u8], most: u64| {
                written(&path, bytes);
                let opened = Written::open(&path, CELLS, Limits { file: most, ..LIMITS });
                format!("{:#}", opened.map(|_| ()).unwrap_err())
            };
            let mut damaged = whole.clone();
            let at = damaged.len() - 3;
            damaged[at] ^= 0x55;
            for bytes in
                [&whole[..whole.len() - 1], &whole[..whole.len() / 2], &damaged, &[&whole[..], b"xyz"].concat()]
            {
                let message = open(bytes, 1 << 20);
                assert!(message.contains(name) && message.contains("cannot be unpacked"), "{message}");
            }
            let message = open(&whole, 10_000);
            assert!(
                message.contains(name) && message.contains("is larger than 9.8 KiB once it is unpacked"),
                "{message}"
            );
        }
    }
}
