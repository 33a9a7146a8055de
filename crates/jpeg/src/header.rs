//! The segments before the coded data.

use crate::Unsupported;
use std::ops::Range;

/// A JPEG file of a kind that [`Decoder`](crate::Decoder) reads, judged by its header.
#[derive(Debug, Clone)]
pub struct Jpeg<'a> {
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// One of grey, three of YCbCr.
    pub(crate) components: [Component; 3],
    pub(crate) count: usize,
    /// By number, in zigzag order.
    pub(crate) quantization: [Option<[u16; 64]>; 4],
    /// Of DC and of AC coefficients, by number.
    pub(crate) huffman: [[Option<Codes<'a>>; 4]; 2],
    /// MCUs between restart markers; 0 without.
    pub(crate) restart_interval: usize,
    /// What follows the header.
    pub(crate) scan: &'a [u8],
    exif: Option<&'a [u8]>,
}

/// A component of the image.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Component {
    id: u8,
    /// Sampling factors: blocks of an MCU across and down.
    pub across: usize,
    pub down: usize,
    /// Numbers of its tables.
    pub quantization: usize,
    pub dc: usize,
    pub ac: usize,
}

/// A Huffman code as the file has it: how many codes there are of each length from 1 to 16, and what they stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Codes<'a> {
    pub counts: &'a [u8; 16],
    pub symbols: &'a [u8],
}

impl<'a> Jpeg<'a> {
    /// Reads the header of a file.
    ///
    /// # Errors
    /// It is not of a common kind, or broken.
    pub fn read(file: &'a [u8]) -> Result<Self, Unsupported> {
        let mut jpeg = Jpeg {
            width: 0,
            height: 0,
            components: [Component::default(); 3],
            count: 0,
            quantization: [None; 4],
            huffman: [[None; 4]; 2],
            restart_interval: 0,
            scan: &[],
            exif: None,
        };
        let mut colours = Colours::default();
        let mut rest = file.strip_prefix(&[0xff, 0xd8]).ok_or(Unsupported)?;
        loop {
            let (&[first, marker], after) = rest.split_first_chunk().ok_or(Unsupported)?;
            if first != 0xff {
                return Err(Unsupported);
            }
            if marker == 0xff {
                // Any number of these bytes may stand before a marker.
                rest = &rest[1..];
                continue;
            }
            let (length, _) = after.split_first_chunk().ok_or(Unsupported)?;
            let length = usize::from(u16::from_be_bytes(*length));
            let segment = after.get(2..length).ok_or(Unsupported)?;
            rest = &after[length..];
            match marker {
                0xc0 | 0xc1 => jpeg.frame(segment)?,
                0xc4 => jpeg.huffman_tables(segment)?,
                0xdb => jpeg.quantization_tables(segment)?,
                0xdd => {
                    jpeg.restart_interval = usize::from(u16::from_be_bytes(segment.try_into().map_err(drop_error)?))
                }
                0xda => {
                    jpeg.scan_header(segment)?;
                    jpeg.scan = rest;
                    break;
                }
                0xe0 if segment.starts_with(b"JFIF\0") && segment.len() >= JFIF => colours.jfif = true,
                0xe1 if segment.starts_with(b"Exif\0\0") => {
                    if jpeg.exif.replace(&segment[6..]).is_some() {
                        return Err(Unsupported);
                    }
                }
                0xee if segment.starts_with(b"Adobe") => colours.adobe = Some(*segment.get(11).ok_or(Unsupported)?),
                // Other applications' segments, and comments.
                0xe0..=0xef | 0xfe => {}
                _ => return Err(Unsupported),
            }
        }
        let ids = jpeg.components.map(|component| component.id);
        if jpeg.count == 3 && !colours.are_ycbcr(ids) {
            return Err(Unsupported);
        }
        Ok(jpeg)
    }

    /// Pixels across.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Pixels down.
    pub fn height(&self) -> usize {
        self.height
    }

    /// The EXIF data, if there are some.
    pub fn exif(&self) -> Option<&'a [u8]> {
        self.exif
    }

    /// Bytes of memory that decoding all of it takes: its samples, and three bytes for each pixel.
    pub fn decoding_bytes(&self) -> usize {
        let planes = self.components().iter().map(|component| {
            let [across, down] = self.samples(component).map(|samples| samples.div_ceil(8) * 8);
            across * down
        });
        planes.sum::<usize>() + 3 * self.width * self.height
    }

    pub(crate) fn components(&self) -> &[Component] {
        &self.components[..self.count]
    }

    fn frame(&mut self, segment: &[u8]) -> Result<(), Unsupported> {
        let (&[precision, h1, h0, w1, w0, count], components) = segment.split_first_chunk().ok_or(Unsupported)?;
        let (height, width) = (u16::from_be_bytes([h1, h0]), u16::from_be_bytes([w1, w0]));
        let components = components.as_chunks::<3>();
        let fits = components.0.len() == usize::from(count) && components.1.is_empty();
        if self.count != 0 || precision != 8 || height == 0 || width == 0 || !fits || ![1, 3].contains(&count) {
            return Err(Unsupported);
        }
        (self.width, self.height, self.count) = (width.into(), height.into(), count.into());
        for (component, &[id, sampling, quantization]) in self.components.iter_mut().zip(components.0) {
            let (across, down) = (usize::from(sampling >> 4), usize::from(sampling & 15));
            *component = Component { id, across, down, quantization: quantization.into(), dc: 0, ac: 0 };
        }
        if count == 1 {
            // The blocks of a single component come one by one, whatever its factors.
            (self.components[0].across, self.components[0].down) = (1, 1);
        }
        let [luma, chroma @ ..] = &self.components;
        let of_chroma = count == 1 || chroma.iter().all(|c| c.across == 1 && c.down == 1);
        let of_luma = [1, 2].contains(&luma.across) && [1, 2].contains(&luma.down);
        (of_chroma && of_luma).then_some(()).ok_or(Unsupported)
    }

    fn quantization_tables(&mut self, mut segment: &[u8]) -> Result<(), Unsupported> {
        while let Some((&how, after)) = segment.split_first() {
            let place = self.quantization.get_mut(usize::from(how & 15)).ok_or(Unsupported)?;
            let mut table = [0; 64];
            segment = match how >> 4 {
                0 => {
                    let (values, rest) = after.split_first_chunk::<64>().ok_or(Unsupported)?;
                    table = values.map(u16::from);
                    rest
                }
                1 => {
                    let (values, rest) = after.split_first_chunk::<128>().ok_or(Unsupported)?;
                    for (entry, value) in table.iter_mut().zip(values.as_chunks::<2>().0) {
                        *entry = u16::from_be_bytes(*value);
                    }
                    rest
                }
                _ => return Err(Unsupported),
            };
            *place = Some(table);
        }
        Ok(())
    }

    fn huffman_tables(&mut self, mut segment: &'a [u8]) -> Result<(), Unsupported> {
        while let Some((&how, after)) = segment.split_first() {
            let of = self.huffman.get_mut(usize::from(how >> 4)).ok_or(Unsupported)?;
            let place = of.get_mut(usize::from(how & 15)).ok_or(Unsupported)?;
            let (counts, after) = after.split_first_chunk::<16>().ok_or(Unsupported)?;
            let count = counts.iter().map(|count| usize::from(*count)).sum();
            let (symbols, rest) = after.split_at_checked(count).ok_or(Unsupported)?;
            if count > 256 {
                return Err(Unsupported);
            }
            *place = Some(Codes { counts, symbols });
            segment = rest;
        }
        Ok(())
    }

    fn scan_header(&mut self, segment: &[u8]) -> Result<(), Unsupported> {
        let (&count, after) = segment.split_first().ok_or(Unsupported)?;
        let (tables, spectrum) = after.as_chunks::<2>();
        // All coefficients, all their bits; the last three bytes are a pair and one.
        let (spectral, tables) = tables.split_last().ok_or(Unsupported)?;
        let complete = *spectral == [0, 63] && spectrum == [0];
        if self.count == 0 || usize::from(count) != self.count || tables.len() != self.count || !complete {
            return Err(Unsupported);
        }
        for (component, [id, numbers]) in self.components.iter_mut().zip(tables) {
            (component.dc, component.ac) = (usize::from(numbers >> 4), usize::from(numbers & 15));
            if component.id != *id || component.dc > 3 || component.ac > 3 || component.quantization > 3 {
                return Err(Unsupported);
            }
        }
        Ok(())
    }

    /// Most blocks of a component, across and down.
    pub(crate) fn most(&self) -> [usize; 2] {
        [self.components[0].across, self.components[0].down]
    }

    /// MCUs across and down.
    pub(crate) fn mcus(&self) -> [usize; 2] {
        let [across, down] = self.most();
        [self.width.div_ceil(8 * across), self.height.div_ceil(8 * down)]
    }

    /// Samples of a component across and down, without those that fill up blocks.
    pub(crate) fn samples(&self, component: &Component) -> [usize; 2] {
        let [across, down] = self.most();
        [(self.width * component.across).div_ceil(across), (self.height * component.down).div_ceil(down)]
    }
}

fn drop_error<E>(_: E) -> Unsupported {
    Unsupported
}

/// Bytes that a JFIF segment has at least.
const JFIF: usize = 14;

/// What a file says of its colours.
#[derive(Default)]
struct Colours {
    jfif: bool,
    adobe: Option<u8>,
}

impl Colours {
    /// Whether three components are YCbCr, by the rules that libjpeg has: JFIF knows nothing else, Adobe says so, and without both only these
    /// names are those of other colours.
    fn are_ycbcr(&self, ids: [u8; 3]) -> bool {
        match self.adobe {
            _ if self.jfif => true,
            Some(transform) => transform != 0,
            None => ids != *b"RGB",
        }
    }
}

/// A range of samples in blocks of 8: those that it touches.
pub(crate) fn blocks(samples: Range<usize>) -> Range<usize> {
    samples.start / 8..samples.end.div_ceil(8)
}
