//! The pages of a column of a Parquet file, unpacked. What their headers claim is judged before memory is asked for.

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use parquet::basic::{CompressionCodec, Encoding, Type};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::serialized_reader::SerializedPageReader;
use ruzstd::decoding::StreamingDecoder;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;

/// A byte of LZ4 stands for so many at most, and one of Snappy for so many.
const MOST_OF_LZ4: usize = 255;
const MOST_OF_SNAPPY: usize = 64;

/// The pages of a column within a group of rows.
pub struct Pages {
    inner: SerializedPageReader<File>,
    packing: CompressionCodec,
    column: Type,
    /// Bytes of a value, where all values have so many.
    width: usize,
    /// Pages say which values are missing.
    nullable: bool,
    /// No page unpacks to more.
    most: usize,
}

/// Why a column cannot be unpacked, if it cannot.
pub fn unknown_packing(packing: CompressionCodec) -> Option<&'static str> {
    match packing {
        CompressionCodec::UNCOMPRESSED
        | CompressionCodec::SNAPPY
        | CompressionCodec::GZIP
        | CompressionCodec::ZSTD
        | CompressionCodec::LZ4_RAW => None,
        CompressionCodec::BROTLI => Some("Brotli"),
        CompressionCodec::LZO => Some("LZO"),
        CompressionCodec::LZ4 => Some("LZ4 in the way of Hadoop"),
    }
}

impl Pages {
    /// Those of a column, of which none may unpack to more than `most` bytes.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn new(file: &Arc<File>, column: &ColumnChunkMetaData, rows: usize, most: usize) -> Result<Self> {
        let packing = column.compression_codec();
        let descriptor = column.column_descr();
        let width = match column.column_type() {
            Type::FIXED_LEN_BYTE_ARRAY => usize::try_from(descriptor.type_length()).unwrap_or(0),
            _ => 0,
        };
        let nullable = descriptor.max_def_level() > 0;
        let (column_type, as_it_is) = (column.column_type(), column.clone().into_builder());
        // It hands out the bytes of pages as they are stored, and they are unpacked here.
        let as_it_is = as_it_is.set_compression_codec(CompressionCodec::UNCOMPRESSED).build()?;
        let inner = SerializedPageReader::new(Arc::clone(file), &as_it_is, rows, None)?;
        Ok(Pages { inner, packing, column: column_type, width, nullable, most })
    }

    /// A page without packing.
    fn unpacked(&self, page: Page) -> Result<Page> {
        let page = match page {
            Page::DataPage { buf, num_values, encoding, def_level_encoding, rep_level_encoding, statistics } => {
                let buf = self.unpack(&buf, 0)?;
                Page::DataPage { buf, num_values, encoding, def_level_encoding, rep_level_encoding, statistics }
            }
            Page::DictionaryPage { buf, num_values, encoding, is_sorted } => {
                let buf = self.unpack(&buf, 0)?;
                let least = match self.column {
                    Type::BOOLEAN => return Err(broken("a dictionary of truths")),
                    Type::INT32 | Type::FLOAT | Type::BYTE_ARRAY => 4,
                    Type::INT64 | Type::DOUBLE => 8,
                    Type::INT96 => 12,
                    Type::FIXED_LEN_BYTE_ARRAY => self.width.max(1),
                };
                if num_values as usize > buf.len() / least {
                    return Err(broken("a dictionary that claims more values than it has bytes for"));
                }
                Page::DictionaryPage { buf, num_values, encoding, is_sorted }
            }
            Page::DataPageV2 {
                buf,
                num_values,
                encoding,
                num_nulls,
                num_rows,
                def_levels_byte_len,
                rep_levels_byte_len,
                is_compressed,
                statistics,
            } => {
                let levels = def_levels_byte_len as usize + rep_levels_byte_len as usize;
                if levels > buf.len() {
                    return Err(broken("a page whose levels end beyond it"));
                }
                let buf = if is_compressed { self.unpack(&buf, levels)? } else { buf };
                Page::DataPageV2 {
                    buf,
                    num_values,
                    encoding,
                    num_nulls,
                    num_rows,
                    def_levels_byte_len,
                    rep_levels_byte_len,
                    is_compressed: false,
                    statistics,
                }
            }
        };
        self.judge_lengths(&page)?;
        Ok(page)
    }

    /// The bytes of a page, the first `plain` of which are not packed.
    fn unpack(&self, packed: &Bytes, plain: usize) -> Result<Bytes> {
        let (before, packed_part) = packed.split_at(plain);
        if self.packing == CompressionCodec::UNCOMPRESSED || packed_part.is_empty() {
            return Ok(packed.clone());
        }
        let most = self.most;
        let too_much = || {
            broken(&format!("a page that unpacks to more than {most} bytes, which is all that its column says it has"))
        };
        let failed = |error: &dyn std::fmt::Display| broken(&format!("a page that cannot be unpacked: {error}"));
        let mut out = before.to_vec();
        match self.packing {
            CompressionCodec::SNAPPY => {
                let size = snap::raw::decompress_len(packed_part).map_err(|error| failed(&error))?;
                if size > most || size / MOST_OF_SNAPPY > packed_part.len() {
                    return Err(too_much());
                }
                out.resize(plain + size, 0);
                snap::raw::Decoder::new().decompress(packed_part, &mut out[plain..]).map_err(|error| failed(&error))?;
            }
            CompressionCodec::LZ4_RAW => {
                let room = most.min(packed_part.len().saturating_mul(MOST_OF_LZ4).saturating_add(64));
                out.resize(plain + room, 0);
                let size =
                    lz4_flex::block::decompress_into(packed_part, &mut out[plain..]).map_err(|error| failed(&error))?;
                out.truncate(plain + size);
            }
            CompressionCodec::GZIP | CompressionCodec::ZSTD => {
                let mut reader: Box<dyn Read> = match self.packing {
                    CompressionCodec::GZIP => Box::new(MultiGzDecoder::new(packed_part)),
                    _ => Box::new(StreamingDecoder::new(packed_part).map_err(|error| failed(&error))?),
                };
                let size =
                    reader.by_ref().take(most as u64 + 1).read_to_end(&mut out).map_err(|error| failed(&error))?;
                if size > most {
                    return Err(too_much());
                }
            }
            other => return Err(failed(&unknown_packing(other).unwrap_or("it is packed in an unknown way"))),
        }
        Ok(out.into())
    }

    /// Refuses texts stored by their lengths, if there are more lengths than values: memory for all lengths is asked for at once.
    fn judge_lengths(&self, page: &Page) -> Result<()> {
        let lists = match page.encoding() {
            Encoding::DELTA_LENGTH_BYTE_ARRAY => 1,
            // How much of the text before begins each text, and the length of the rest.
            Encoding::DELTA_BYTE_ARRAY => 2,
            _ => return Ok(()),
        };
        let (buf, values) = (page.buffer(), page.num_values());
        let mut at = match page {
            Page::DataPageV2 { def_levels_byte_len, rep_levels_byte_len, .. } => {
                *def_levels_byte_len as usize + *rep_levels_byte_len as usize
            }
            Page::DataPage { .. } if !self.nullable => 0,
            Page::DataPage { def_level_encoding: Encoding::RLE, .. } => {
                buf.first_chunk::<4>().map_or(0, |size| 4 + u32::from_le_bytes(*size) as usize)
            }
            _ => (values as usize).div_ceil(8),
        };
        for _ in 0..lists {
            match deltas(buf, at) {
                Some((count, end)) if count <= u64::from(values) => at = end,
                _ => return Err(broken("a page of texts with other lengths than it has values")),
            }
        }
        Ok(())
    }
}

/// A number of seven bits a byte, the lowest first (ULEB128), at byte `at`, and where it ends.
fn variable(buf: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut number = 0u64;
    for (nth, byte) in buf.get(at..)?.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * nth).min(63);
        if byte & 0x80 == 0 {
            return Some((number, at + nth + 1));
        }
    }
    None
}

/// How many numbers are stored by their differences (`DELTA_BINARY_PACKED`) from byte `at` on, and where they end.
fn deltas(buf: &[u8], at: usize) -> Option<(u64, usize)> {
    let (block, at) = variable(buf, at)?;
    let (parts, at) = variable(buf, at)?;
    let (count, at) = variable(buf, at)?;
    let (_, mut at) = variable(buf, at)?;
    let of_part = block.checked_div(parts).filter(|values| *values > 0)?;
    let mut left = count.saturating_sub(1);
    while left > 0 {
        at = variable(buf, at)?.1;
        let widths = buf.get(at..at.checked_add(usize::try_from(parts).ok()?)?)?;
        at += widths.len();
        for width in widths {
            // Parts after the last number have no bytes, whatever their width says.
            if left == 0 {
                break;
            }
            left = left.saturating_sub(of_part);
            at = at.checked_add(usize::try_from(of_part.checked_mul(u64::from(*width))? / 8).ok()?)?;
        }
    }
    Some((count, at))
}

impl Iterator for Pages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        self.inner.get_next_page()?.map(|page| self.unpacked(page)).transpose()
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.inner.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.inner.skip_next_page()
    }
}

fn broken(what: &str) -> ParquetError {
    ParquetError::General(format!("it has {what}"))
}
