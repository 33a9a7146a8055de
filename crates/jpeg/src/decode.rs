//! Rectangles of an image.

use crate::Unsupported;
use crate::bits::Bits;
use crate::block::{self, Block, Place, places};
use crate::header::{Component, Jpeg, blocks};
use crate::huffman::Table;
use crate::idct;
use crate::scan::Scan;
use crate::{colour, upsample};
use std::ops::Range;

/// A rectangle of an image, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The first column.
    pub x: usize,
    /// The first row.
    pub y: usize,
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

/// Decodes one image after the other with the same memory.
#[derive(Debug)]
pub struct Decoder {
    scan: Scan,
    /// Of DC and of AC coefficients.
    tables: [[Table; 4]; 2],
    /// The samples of each component, as far as they are needed.
    planes: [Vec<u8>; 3],
    /// A row of each chroma component at the size of luma.
    rows: [Vec<u8>; 2],
    /// A row of chroma before it is made wider.
    sums: Vec<u16>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

/// A component, and the part of it that a rectangle needs.
struct Part {
    component: Component,
    /// Its samples across and down.
    samples: [usize; 2],
    /// Blocks across and down.
    columns: Range<usize>,
    rows: Range<usize>,
    places: [Place; 64],
}

/// Most blocks of an MCU: four of luma, one of each chroma component.
const MOST_BLOCKS: usize = 6;

/// A block that is ready to be transformed.
struct Decoded {
    numbers: Block,
    flat: bool,
    /// Where in the plane its samples begin.
    at: usize,
}

impl Part {
    fn new(jpeg: &Jpeg, component: &Component, region: Region) -> Result<Part, Unsupported> {
        let samples = jpeg.samples(component);
        let pixels = [region.x..region.x + region.width, region.y..region.y + region.height];
        let factors = [component.across, component.down];
        let [columns, rows] = [0, 1].map(|axis| {
            let pixels = pixels[axis].clone();
            blocks(match jpeg.most()[axis] / factors[axis] {
                1 => pixels,
                // Between samples there are both neighbours.
                _ => (pixels.start / 2).saturating_sub(1)..((pixels.end - 1) / 2 + 2).min(samples[axis]),
            })
        });
        let quantization = jpeg.quantization[component.quantization].as_ref().ok_or(Unsupported)?;
        Ok(Part { component: *component, samples, columns, rows, places: places(quantization) })
    }

    /// Length of a row of its plane.
    fn stride(&self) -> usize {
        8 * self.columns.len()
    }

    /// The MCUs in which its blocks are, across and down.
    fn mcus(&self) -> [Range<usize>; 2] {
        let mcus = |blocks: &Range<usize>, factor| blocks.start / factor..blocks.end.div_ceil(factor);
        [mcus(&self.columns, self.component.across), mcus(&self.rows, self.component.down)]
    }

    /// Samples of a row of its plane from a column of the component on.
    #[inline(always)]
    fn row<'a>(&self, plane: &'a [u8], y: usize, x: Range<usize>) -> &'a [u8] {
        let start = (y - 8 * self.rows.start) * self.stride();
        &plane[start + x.start - 8 * self.columns.start..][..x.len()]
    }
}

impl Decoder {
    /// One that has no memory yet.
    pub fn new() -> Self {
        let tables = [true, false].map(|dc| std::array::from_fn(|_| Table::new(dc)));
        Decoder {
            scan: Scan::default(),
            tables,
            planes: Default::default(),
            rows: Default::default(),
            sums: Vec::new(),
        }
    }

    /// Bytes of memory that it keeps for the next image.
    pub fn held_bytes(&self) -> usize {
        let rows = self.rows.iter().chain(&self.planes).map(Vec::capacity).sum::<usize>();
        self.scan.capacity() + rows + 2 * self.sums.capacity()
    }

    /// Writes the pixels of a rectangle to `out`: three bytes each, row after row. They are those that the whole image has there. What
    /// follows the rectangle in the file is not decoded, but the file must have an end.
    ///
    /// # Errors
    /// The file is broken. What is in `out` then means nothing.
    ///
    /// # Panics
    /// If the rectangle is empty, or not all inside of the image.
    pub fn decode(&mut self, jpeg: &Jpeg, region: Region, out: &mut Vec<u8>) -> Result<(), Unsupported> {
        let parts = self.prepare(jpeg, region, out)?;
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
            // SAFETY: the processor has both.
            return unsafe { self.with_avx2(jpeg, &parts, region, out) };
        }
        self.all::<false>(jpeg, &parts, region, out)
    }

    /// Everything but the work: tables, memory, and what of the image is needed.
    fn prepare(&mut self, jpeg: &Jpeg, region: Region, out: &mut Vec<u8>) -> Result<Vec<Part>, Unsupported> {
        let inside = |from: usize, length: usize, side: usize| length > 0 && from < side && length <= side - from;
        assert!(
            inside(region.x, region.width, jpeg.width) && inside(region.y, region.height, jpeg.height),
            "{region:?} of an image of {}×{} pixels",
            jpeg.width,
            jpeg.height
        );
        self.scan.read(jpeg.scan)?;
        let [across, down] = jpeg.mcus();
        let in_mcu: usize = jpeg.components().iter().map(|c| c.across * c.down).sum();
        // Each block has two codes of one bit at least, so there is no memory for what the file cannot have.
        if across * down * in_mcu * 2 > 8 * self.scan.bytes().len() {
            return Err(Unsupported);
        }
        let mut parts = Vec::with_capacity(jpeg.count);
        for component in jpeg.components() {
            parts.push(Part::new(jpeg, component, region)?);
        }
        // The few blocks that only fill up MCUs are not worth a table.
        let whole = parts.iter().all(|part| {
            let [columns, rows] = part.mcus();
            columns == (0..across) && rows.start == 0
        });
        for (part, plane) in parts.iter().zip(&mut self.planes) {
            plane.resize(part.stride() * 8 * part.rows.len(), 0);
            for (kind, number) in [part.component.dc, part.component.ac].into_iter().enumerate() {
                let table = &mut self.tables[kind][number];
                table.set(jpeg.huffman[kind][number].ok_or(Unsupported)?)?;
                if kind == 1 && !whole {
                    table.with_skips();
                }
            }
        }
        out.resize(3 * region.width * region.height, 0);
        Ok(parts)
    }

    /// The same code, compiled for vectors of 32 bytes, and shifts by any register.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi2")]
    fn with_avx2(&mut self, jpeg: &Jpeg, parts: &[Part], region: Region, out: &mut [u8]) -> Result<(), Unsupported> {
        self.all::<true>(jpeg, parts, region, out)
    }

    #[inline(always)]
    fn all<const AVX2: bool>(
        &mut self,
        jpeg: &Jpeg,
        parts: &[Part],
        region: Region,
        out: &mut [u8],
    ) -> Result<(), Unsupported> {
        self.samples::<AVX2>(jpeg, parts)?;
        self.pixels::<AVX2>(jpeg, parts, region, out);
        Ok(())
    }

    /// Fills the planes.
    #[inline(always)]
    fn samples<const AVX2: bool>(&mut self, jpeg: &Jpeg, parts: &[Part]) -> Result<(), Unsupported> {
        let [across, down] = jpeg.mcus();
        let mcus = across * down;
        let interval = if jpeg.restart_interval == 0 { mcus } else { jpeg.restart_interval };
        if self.scan.segments() != mcus.div_ceil(interval) {
            return Err(Unsupported);
        }
        let needed = Needed::new(parts, across);
        for segment in 0..self.scan.segments() {
            let (first, end) = (segment * interval, mcus.min((segment + 1) * interval));
            // Whole segments are left out, and all that follows the last MCU that is needed.
            let Some(last) = needed.last(first, end) else { continue };
            let [start, behind] = self.scan.segment(segment);
            let mut bits = Bits::new(self.scan.bytes(), start);
            let mut dc = [0i32; 3];
            let mut decoded = [const { Decoded { numbers: [0; 64], flat: false, at: 0 } }; MOST_BLOCKS];
            let (mut row, mut column) = (first / across, first % across);
            for _ in first..=last {
                let mut counts = [0; 3];
                let mut count = 0;
                for (part, (dc, upto)) in parts.iter().zip(dc.iter_mut().zip(&mut counts)) {
                    let Component { across, down, dc: dc_number, ac: ac_number, .. } = part.component;
                    let [dcs, acs] = [&self.tables[0][dc_number], &self.tables[1][ac_number]];
                    for y in row * down..(row + 1) * down {
                        for x in column * across..(column + 1) * across {
                            *dc = dc.wrapping_add(block::dc(&mut bits, dcs)?);
                            if !part.rows.contains(&y) || !part.columns.contains(&x) {
                                block::skip_ac(&mut bits, acs)?;
                                continue;
                            }
                            let block = &mut decoded[count];
                            block.numbers = [0; 64];
                            block.flat = block::ac(&mut bits, acs, &part.places, &mut block.numbers)? == 0;
                            block.numbers[0] = part.places[0].value(*dc);
                            block.at = 8 * ((y - part.rows.start) * part.stride() + x - part.columns.start);
                            count += 1;
                        }
                    }
                    *upto = count;
                }
                // All blocks of the MCU are read before the first is transformed: numbers that were just written cannot be read as vectors at once.
                let mut blocks = decoded.iter();
                let mut done = 0;
                for (part, (plane, upto)) in parts.iter().zip(self.planes.iter_mut().zip(counts)) {
                    let stride = part.stride();
                    for block in blocks.by_ref().take(upto - done) {
                        let out = &mut plane[block.at..][..7 * stride + 8];
                        #[cfg(target_arch = "x86_64")]
                        if AVX2 {
                            // SAFETY: this is chosen where the processor has it.
                            unsafe { idct::avx2::idct(&block.numbers, block.flat, out, stride) };
                            continue;
                        }
                        idct::idct(&block.numbers, block.flat, out, stride);
                    }
                    done = upto;
                }
                if bits.position() > 8 * behind {
                    return Err(Unsupported);
                }
                column += 1;
                if column == across {
                    (row, column) = (row + 1, 0);
                }
            }
            // Less than a byte fills up the last one.
            if last + 1 == end && 8 * behind - bits.position() >= 8 {
                return Err(Unsupported);
            }
        }
        Ok(())
    }

    /// Makes the pixels of the samples.
    #[inline(always)]
    fn pixels<const AVX2: bool>(&mut self, jpeg: &Jpeg, parts: &[Part], region: Region, out: &mut [u8]) {
        let columns = region.x..region.x + region.width;
        let [luma, chroma @ ..] = parts else { return };
        let [luma_plane, chroma_planes @ ..] = &self.planes;
        let [wide, high] = jpeg.most().map(|most| most == 2);
        // The samples that the row of pixels lies in; two for each are made of them.
        let samples = columns.start / 2..columns.end.div_ceil(2);
        let shift = if wide { columns.start % 2 } else { 0 };
        for row in &mut self.rows {
            row.resize(2 * samples.len().max(region.width.div_ceil(2)), 0);
        }
        self.sums.resize(samples.len() + 2, 0);
        for (y, out) in (region.y..).zip(out.chunks_exact_mut(3 * region.width)) {
            let luma = luma.row(luma_plane, y, columns.clone());
            let [cb, cr] = chroma else {
                colour::grey_to_rgb(luma, out);
                continue;
            };
            for (part, (plane, row)) in [cb, cr].into_iter().zip(chroma_planes.iter().zip(&mut self.rows)) {
                let [width, height] = part.samples;
                let near = if high { y / 2 } else { y };
                let lower = y % 2 == 1;
                let far = if lower { (near + 1).min(height - 1) } else { near.saturating_sub(1) };
                if !wide {
                    let near_row = part.row(plane, near, columns.clone());
                    match high {
                        true => upsample::between(near_row, part.row(plane, far, columns.clone()), lower, row),
                        false => row[..region.width].copy_from_slice(near_row),
                    }
                    continue;
                }
                if width <= 2 {
                    upsample::repeat(part.row(plane, near, samples.clone()), row);
                    continue;
                }
                // One more on each side, unless it is the edge.
                let with_neighbours = samples.start.saturating_sub(1)..(samples.end + 1).min(width);
                let first = with_neighbours.start + 1 - samples.start;
                let count = with_neighbours.len();
                let sums = &mut self.sums[first..][..count];
                let near_row = part.row(plane, near, with_neighbours.clone());
                match high {
                    true => upsample::four_times(near_row, part.row(plane, far, with_neighbours), sums),
                    false => upsample::once(near_row, sums),
                }
                if first == 1 {
                    self.sums[0] = self.sums[1];
                }
                if first + count < self.sums.len() {
                    self.sums[first + count] = self.sums[first + count - 1];
                }
                match high {
                    true => upsample::double::<4>(&self.sums, row),
                    false => upsample::double::<1>(&self.sums, row),
                }
            }
            let [cb, cr] = &self.rows;
            let (cb, cr) = (&cb[shift..][..region.width], &cr[shift..][..region.width]);
            #[cfg(target_arch = "x86_64")]
            if AVX2 {
                // SAFETY: this is chosen where the processor has it.
                unsafe { colour::avx2::to_rgb(luma, cb, cr, out) };
                continue;
            }
            colour::to_rgb(luma, cb, cr, out);
        }
    }
}

/// The MCUs that have a block that is needed.
struct Needed {
    columns: Range<usize>,
    rows: Range<usize>,
    across: usize,
}

impl Needed {
    fn new(parts: &[Part], across: usize) -> Self {
        let around = |axis: usize| {
            let mut ranges = parts.iter().map(|part| part.mcus()[axis].clone());
            let first = ranges.next().unwrap_or(0..0);
            ranges.fold(first, |a, b| a.start.min(b.start)..a.end.max(b.end))
        };
        Needed { columns: around(0), rows: around(1), across }
    }

    /// The last one of `first .. end` that is needed.
    fn last(&self, first: usize, end: usize) -> Option<usize> {
        let Needed { columns, rows, across } = self;
        let (row, column) = ((end - 1) / across, (end - 1) % across);
        let (row, column) = match () {
            _ if row >= rows.end => (rows.end - 1, columns.end - 1),
            _ if column >= columns.end => (row, columns.end - 1),
            _ if column < columns.start => (row.checked_sub(1)?, columns.end - 1),
            _ => (row, column),
        };
        let last = row * across + column;
        (row >= rows.start && last >= first).then_some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// With vectors and without.
    #[test]
    fn pixels_do_not_depend_on_the_machine() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/jpeg");
        let mut compared = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let file = std::fs::read(entry.unwrap().path()).unwrap();
            let Ok(jpeg) = Jpeg::read(&file) else { continue };
            let region = Region { x: 0, y: 0, width: jpeg.width, height: jpeg.height };
            let (mut found, mut plain) = (Vec::new(), Vec::new());
            Decoder::new().decode(&jpeg, region, &mut found).unwrap();
            let mut decoder = Decoder::new();
            let parts = decoder.prepare(&jpeg, region, &mut plain).unwrap();
            decoder.all::<false>(&jpeg, &parts, region, &mut plain).unwrap();
            assert_eq!(found, plain);
            compared += 1;
        }
        assert!(compared > 50);
    }
}
