//! Rows of a Parquet file: column by column, a group of rows after the other. What the file says of itself is judged before memory is asked
//! for, and the decoder's panics are errors of the file.

mod copy;
mod depth;
mod pages;
mod values;
mod write;

pub use copy::Copied;
pub use write::{ColumnWriter, Value};

use super::kinds::Kind;
use super::packing::Packing;
use crate::files::host_memory::host_memory;
use crate::files::{contained, open};
use crate::terminal::{human_bytes, thousands};
use anyhow::{Context, Result, anyhow, bail, ensure};
use pages::{Pages, unknown_packing};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::{AsBytes, DataType};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use values::{Meaning, Stored};

/// What a file begins and ends with.
pub const MAGIC: &[u8; 4] = b"PAR1";
/// Rows whose cells are in memory at a time.
const ROWS: usize = 1024;
/// Rows of a piece at the least: enough work for a thread. Tests have many pieces.
const PIECE: usize = if cfg!(test) { 1 } else { 1 << 16 };
/// A page may unpack to so much of the memory that there is: the values that are made of it take some more.
const PART_OF_MEMORY: usize = 8;
/// Bytes that a row takes at the least for each column that is read.
const CELL: usize = 8;
/// 1970-01-01 as a Julian day.
const JULIAN_1970: i64 = 2_440_588;

/// A Parquet file.
pub struct Columns {
    path: PathBuf,
    /// Its bytes. It is opened to be read and closed again: a table may be of more files than a process may have open.
    size: u64,
    metadata: ParquetMetaData,
    names: Vec<String>,
    kinds: Vec<Kind>,
    /// The number of each column among those that are stored, and what its values stand for; none where it is unread.
    stored: Vec<Option<(usize, Meaning)>>,
    /// The groups of rows that are read at a time, and the rows before them.
    pieces: Vec<(Range<usize>, u64)>,
}

/// The cells of some rows of a column.
#[derive(Default)]
struct Cells {
    text: String,
    ends: Vec<usize>,
}

impl Cells {
    fn at(&self, row: usize) -> &str {
        let begin = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[begin..self.ends[row]]
    }
}

impl Columns {
    /// Looks at the file in `path`; its rows are not read yet.
    ///
    /// # Errors
    /// It cannot be read, is no Parquet file, is damaged, or has more rows than there is memory for.
    pub fn open(path: &Path) -> Result<Self> {
        let place = path.display();
        let opened = open(path)?;
        ensure!(opened.size > 0, "`{place}` is empty: it has no columns");
        ensure!(Packing::of(path).is_none(), "`{place}` is packed, and Parquet files are packed inside: unpack it");
        let file = opened.file;
        let none = || format!("`{place}` is no Parquet file that can be read");
        depth::check(&file, opened.size).with_context(none)?;
        let read = || Ok(ParquetMetaDataReader::new().parse_and_finish(&file)?);
        let metadata = contained(read).with_context(none)?;
        let schema = metadata.file_metadata().schema_descr_ptr();
        let (mut names, mut kinds, mut stored) = (Vec::new(), Vec::new(), Vec::new());
        let fields = schema.root_schema().get_fields();
        let mut leaf = 0;
        for (number, field) in fields.iter().enumerate() {
            let begin = leaf;
            while leaf < schema.num_columns() && schema.get_column_root_idx(leaf) == number {
                leaf += 1;
            }
            // What pandas has in place of numbers of rows, without a name.
            if field.name().starts_with("__index_level_") && field.name().ends_with("__") {
                continue;
            }
            let flat = leaf == begin + 1 && field.is_primitive() && schema.column(begin).max_rep_level() == 0;
            let (kind, meaning) = match flat.then(|| Meaning::of(&schema.column(begin))) {
                Some(Ok((meaning, kind))) => (kind, Some((begin, meaning))),
                Some(Err(what)) => (Kind::Unread(what), None),
                None => (Kind::Unread("lists or structs"), None),
            };
            names.push(field.name().to_owned());
            kinds.push(kind);
            stored.push(meaning);
        }
        let size = opened.size;
        let mut columns = Columns { path: path.to_owned(), size, metadata, names, kinds, stored, pieces: Vec::new() };
        columns.judge()?;
        columns.pieces = pieces(columns.metadata.row_groups());
        Ok(columns)
    }

    /// Refuses what the file cannot have, or there is no memory for.
    fn judge(&self) -> Result<()> {
        let place = self.path.display();
        ensure!(!self.names.is_empty(), "`{place}` is empty: it has no columns");
        let rows = self.metadata.file_metadata().num_rows();
        let groups = self.metadata.row_groups();
        let sum = groups.iter().try_fold(0i64, |sum, group| {
            let rows = group.num_rows();
            if rows < 0 { None } else { sum.checked_add(rows) }
        });
        ensure!(
            sum == Some(rows),
            "`{place}` is damaged: its header has {rows} rows, and its groups have another number"
        );
        ensure!(
            rows <= i64::from(u32::MAX),
            "`{place}` has {} rows, and at most {} are read",
            thousands(rows as u64),
            thousands(u64::from(u32::MAX))
        );
        if let Some(host) = host_memory() {
            let least = (rows as usize).saturating_mul(CELL);
            ensure!(
                least <= host.available,
                "`{place}` has {} rows, which take {} at least, and {} can be had ({})",
                thousands(rows as u64),
                human_bytes(least),
                human_bytes(host.available),
                host.because
            );
        }
        for group in groups {
            let expected = self.metadata.file_metadata().schema_descr().num_columns();
            ensure!(group.num_columns() == expected, "`{place}` is damaged: a group of rows lacks columns");
            for (name, (column, _)) in self.names.iter().zip(&self.stored).filter_map(|(n, s)| Some((n, (*s)?))) {
                self.judge_column(name, group.column(column))?;
            }
        }
        Ok(())
    }

    /// Refuses a column of a group of rows that cannot lie where its header puts it, or that cannot be unpacked.
    fn judge_column(&self, name: &str, column: &ColumnChunkMetaData) -> Result<()> {
        let (place, size) = (self.path.display(), self.size);
        let begin = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        let end = begin.checked_add(column.compressed_size()).and_then(|end| u64::try_from(end).ok());
        let lies_within = begin >= 0 && column.compressed_size() >= 0 && end.is_some_and(|end| end <= size);
        ensure!(lies_within, "`{place}` is damaged or cut off: the column `{name}` ends beyond the file");
        ensure!(column.uncompressed_size() >= 0, "`{place}` is damaged: the column `{name}` has a size below 0");
        ensure!(column.file_path().is_none(), "`{place}`: the column `{name}` is in another file");
        if let Some(packing) = unknown_packing(column.compression_codec()) {
            bail!(
                "`{place}`: the column `{name}` is packed by {packing}, which is not read: write the file with Snappy, Zstandard, gzip or LZ4 (`LZ4_RAW`)"
            );
        }
        Ok(())
    }

    /// The names of the columns.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// What they have.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// How many pieces there are that are read apart from each other.
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        usize::try_from(self.metadata.file_metadata().num_rows()).unwrap_or_default()
    }

    /// How many rows a piece has.
    pub fn rows_of(&self, piece: usize) -> usize {
        let before = |piece: usize| self.pieces.get(piece).map_or(self.rows() as u64, |(_, before)| *before);
        usize::try_from(before(piece + 1).saturating_sub(before(piece))).unwrap_or_default()
    }

    /// Hands the number of each row of a piece, from 1, and its cells to `take`: all columns in their order, those empty that are not `wanted`. Cells are without
    /// the white space around them, unless texts are wanted `as_they_are`.
    ///
    /// # Errors
    /// The file is damaged, a value is no cell, or `take` fails.
    pub fn each(
        &self,
        piece: usize,
        wanted: &[usize],
        as_they_are: bool,
        mut take: impl FnMut(u64, &[&str]) -> Result<()>,
    ) -> Result<()> {
        let mut wanted: Vec<usize> = wanted.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        let (groups, mut before) = self.pieces[piece].clone();
        let opened = open(&self.path)?;
        ensure!(opened.size == self.size, "`{}` has changed since it was looked at", self.path.display());
        let file = Arc::new(opened.file);
        for group in &self.metadata.row_groups()[groups] {
            let rows = usize::try_from(group.num_rows())?;
            let open = |column: &usize| self.reader(&file, group, *column, rows).with_context(|| self.at(*column));
            let mut readers = wanted.iter().map(open).collect::<Result<Vec<_>>>()?;
            let mut cells: Vec<Cells> = wanted.iter().map(|_| Cells::default()).collect();
            let mut done = 0;
            while done < rows {
                let count = ROWS.min(rows - done);
                for ((column, reader), cells) in wanted.iter().zip(&mut readers).zip(&mut cells) {
                    reader.read(count, before + done as u64, cells).with_context(|| self.at(*column))?;
                }
                for row in 0..count {
                    let mut record = vec![""; self.names.len()];
                    for (column, cells) in wanted.iter().zip(&cells) {
                        let cell = cells.at(row);
                        record[*column] = if as_they_are { cell } else { cell.trim() };
                    }
                    take(before + (done + row) as u64 + 1, &record)?;
                }
                done += count;
            }
            before += rows as u64;
        }
        Ok(())
    }

    fn at(&self, column: usize) -> String {
        format!("`{}`, the column `{}`", self.path.display(), self.names[column])
    }

    fn reader(&self, file: &Arc<File>, group: &RowGroupMetaData, column: usize, rows: usize) -> Result<Reader> {
        let (stored, meaning) = match (self.stored[column], &self.kinds[column]) {
            (Some(stored), _) => stored,
            (None, kind) => bail!("it has {}, of which no cell can be made", kind.in_words()),
        };
        Ok(Reader { reader: self.leaf(file, group, stored, rows)?, meaning })
    }

    /// What reads a column, by its number among those that are stored, in a group of so many rows.
    fn leaf(&self, file: &Arc<File>, group: &RowGroupMetaData, leaf: usize, rows: usize) -> Result<ColumnReader> {
        let chunk = group.column(leaf);
        let room = host_memory().map_or(usize::MAX, |host| host.available / PART_OF_MEMORY);
        let most = usize::try_from(chunk.uncompressed_size())?.min(room);
        let pages = contained(|| Ok(Pages::new(file, chunk, rows, most)?))?;
        Ok(get_column_reader(chunk.column_descr_ptr(), Box::new(pages)))
    }
}

/// Groups of rows, some together where they are small, and the rows before them.
fn pieces(groups: &[RowGroupMetaData]) -> Vec<(Range<usize>, u64)> {
    let (mut all, mut begin, mut before, mut rows) = (Vec::new(), 0, 0, 0);
    for (at, group) in groups.iter().enumerate() {
        rows += usize::try_from(group.num_rows()).unwrap_or_default();
        if rows >= PIECE || at + 1 == groups.len() {
            all.push((begin..at + 1, before));
            (begin, before, rows) = (at + 1, before + rows as u64, 0);
        }
    }
    all
}

/// Reads a column of a group of rows.
struct Reader {
    reader: ColumnReader,
    meaning: Meaning,
}

impl Reader {
    /// Reads the next `count` rows, before which there are so many in the file.
    fn read(&mut self, count: usize, before: u64, cells: &mut Cells) -> Result<()> {
        cells.text.clear();
        cells.ends.clear();
        let meaning = self.meaning;
        let whole = (count, before);
        match &mut self.reader {
            ColumnReader::BoolColumnReader(reader) => {
                fill(reader, meaning, whole, cells, |value| Stored::Truth(*value))
            }
            ColumnReader::Int32ColumnReader(reader) => fill(reader, meaning, whole, cells, |value| Stored::Int(*value)),
            ColumnReader::Int64ColumnReader(reader) => {
                fill(reader, meaning, whole, cells, |value| Stored::Long(*value))
            }
            ColumnReader::Int96ColumnReader(reader) => fill(reader, meaning, whole, cells, |value| {
                let [low, high, day] = <[u32; 3]>::try_from(value.data()).unwrap_or_default();
                let rest = (u64::from(high) << 32 | u64::from(low)).cast_signed();
                Stored::Nanoseconds(i64::from(day) - JULIAN_1970, rest)
            }),
            ColumnReader::FloatColumnReader(reader) => {
                fill(reader, meaning, whole, cells, |value| Stored::Float(*value))
            }
            ColumnReader::DoubleColumnReader(reader) => {
                fill(reader, meaning, whole, cells, |value| Stored::Double(*value))
            }
            ColumnReader::ByteArrayColumnReader(reader) => {
                fill(reader, meaning, whole, cells, |value| Stored::Bytes(value.as_bytes()))
            }
            ColumnReader::FixedLenByteArrayColumnReader(reader) => {
                fill(reader, meaning, whole, cells, |value| Stored::Bytes(value.as_bytes()))
            }
        }
    }
}

/// Writes the next values of a column as cells.
fn fill<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    meaning: Meaning,
    (count, before): (usize, u64),
    cells: &mut Cells,
    stored: impl Fn(&T::T) -> Stored<'_>,
) -> Result<()> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let read = || Ok(reader.read_records(count, Some(&mut levels), None, &mut values)?);
    let (rows, ..) =
        contained(read).map_err(|error| anyhow!("it is damaged or cut off: {}", decoder_message(&error)))?;
    ensure!(rows == count, "it is damaged or cut off: it ends before row {}", before + rows as u64 + 1);
    // Without levels all values are there.
    let there = |row: usize| levels.is_empty() || levels.get(row).is_some_and(|level| *level > 0);
    let mut next = values.iter();
    for row in 0..count {
        if there(row) {
            let value = next.next().context("it is damaged: it has fewer values than its header says")?;
            let in_row = |what| anyhow!("row {} has {what}", before + row as u64 + 1);
            meaning.write(&stored(value), &mut cells.text).map_err(in_row)?;
        }
        cells.ends.push(cells.text.len());
    }
    Ok(())
}

/// The message of an error of the decoder, without its name for itself.
fn decoder_message(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    ["Parquet error: ", "EOF: ", "External: ", "NYI: "]
        .into_iter()
        .find_map(|before| text.strip_prefix(before).map(str::to_owned))
        .unwrap_or(text)
}

#[cfg(test)]
mod tests;
