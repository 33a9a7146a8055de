//! The coded data of a file as plain bits.

use crate::Unsupported;

/// Bytes that are looked at together.
const STEP: usize = 16;

/// Zeros after the last bit, so that a reader need not look where the end is with every word.
const AFTER: usize = 16;

/// Bits of the segments between restart markers, without the zeros that are stuffed in after bytes of ones.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    bytes: Vec<u8>,
    /// Where each segment ends.
    ends: Vec<usize>,
}

impl Scan {
    /// Reads up to the marker that ends the image.
    pub fn read(&mut self, data: &[u8]) -> Result<(), Unsupported> {
        self.ends.clear();
        if self.bytes.len() < data.len() + STEP + AFTER {
            self.bytes.resize(data.len() + STEP + AFTER, 0);
        }
        let (mut from, mut to) = (0, 0);
        loop {
            // No byte becomes two, so there is room for every step that can be read.
            while let Some(step) = data.get(from..from + STEP) {
                self.bytes[to..to + STEP].copy_from_slice(step);
                let ones = step.iter().fold(0, |any, byte| any | u8::from(*byte == 0xff));
                if ones != 0 {
                    let plain = step.iter().position(|byte| *byte == 0xff).unwrap_or(0);
                    (from, to) = (from + plain, to + plain);
                    break;
                }
                (from, to) = (from + STEP, to + STEP);
            }
            match data.get(from..) {
                Some([0xff, 0, ..]) => {
                    self.bytes[to] = 0xff;
                    (from, to) = (from + 2, to + 1);
                }
                // The numbers of restart markers go round.
                Some([0xff, marker @ 0xd0..=0xd7, ..]) if usize::from(marker - 0xd0) == self.ends.len() % 8 => {
                    self.ends.push(to);
                    from += 2;
                }
                Some([0xff, 0xd9, ..]) => {
                    self.ends.push(to);
                    break;
                }
                Some([byte, ..]) if *byte != 0xff => {
                    self.bytes[to] = *byte;
                    (from, to) = (from + 1, to + 1);
                }
                _ => return Err(Unsupported),
            }
        }
        self.bytes[to..to + AFTER].fill(0);
        Ok(())
    }

    /// Bytes of memory that it keeps.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity() + size_of::<usize>() * self.ends.capacity()
    }

    /// All bytes, with some zeros after.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.ends.last().map_or(0, |end| end + AFTER)]
    }

    /// Number of segments.
    pub fn segments(&self) -> usize {
        self.ends.len()
    }

    /// Where a segment begins and ends.
    pub fn segment(&self, number: usize) -> [usize; 2] {
        [if number == 0 { 0 } else { self.ends[number - 1] }, self.ends[number]]
    }
}
