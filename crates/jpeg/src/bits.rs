//! A reader of bits.

/// Reads bits, the highest of a byte first. After the end there are zeros: the caller checks [`Bits::position`] now and then.
pub(crate) struct Bits<'a> {
    bytes: &'a [u8],
    /// The next byte.
    at: usize,
    /// The next bits, from the highest on.
    held: u64,
    /// How many of them are read; those below may be read already, but do not count.
    count: u32,
}

impl<'a> Bits<'a> {
    /// From a byte on.
    pub fn new(bytes: &'a [u8], at: usize) -> Self {
        Bits { bytes, at, held: 0, count: 0 }
    }

    /// The next bits, of which at least 32 are real.
    #[inline(always)]
    pub fn look(&mut self) -> u64 {
        if self.count < 32 {
            self.refill();
        }
        self.held
    }

    /// Reads as many bytes as there is room for.
    #[inline(always)]
    pub fn refill(&mut self) {
        let word = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk);
        self.held |= word.map_or(0, |word| u64::from_be_bytes(*word)) >> self.count;
        let bytes = (63 - self.count) >> 3;
        self.at += bytes as usize;
        self.count += 8 * bytes;
    }

    /// Goes on by up to 32 bits that were looked at.
    #[inline(always)]
    pub fn skip(&mut self, count: u32) {
        self.held <<= count;
        self.count = self.count.wrapping_sub(count);
    }

    /// Bits that were gone past, from the first byte on.
    #[inline(always)]
    pub fn position(&self) -> usize {
        8 * self.at - self.count as usize
    }
}
