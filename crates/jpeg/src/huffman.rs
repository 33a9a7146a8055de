//! Huffman codes as tables.

use crate::Unsupported;
use crate::header::Codes;

/// Bits by which a symbol is looked up. Longer codes are rare.
const BITS: u32 = 10;

/// Bits by which several symbols are looked up that are gone past.
const SKIP_BITS: u32 = 11;

/// What a code stands for. All zeros: no code, or one that is too long for the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Symbol(u32);

impl Symbol {
    /// At the end of a block: more places than there are.
    const END: u32 = 64;

    /// Of a code of `length` bits; `None` for those that a sequential file does not have.
    fn new(length: u32, symbol: u8, dc: bool) -> Option<Symbol> {
        let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
        let (size, places) = match (run, size) {
            (0..=1, _) if dc && symbol <= 16 => (u32::from(symbol), 0),
            _ if dc => return None,
            (0, 0) => (0, Symbol::END),
            (15, 0) => (0, 16),
            (_, 0) => return None,
            _ => (size, run + 1),
        };
        Some(Symbol((length + size) | length << 8 | size << 16 | places << 24))
    }

    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Bits of the code and of the value after it, 32 at most.
    #[inline(always)]
    pub fn total(self) -> u32 {
        self.0 & 0xff
    }

    #[inline(always)]
    fn length(self) -> u32 {
        self.0 >> 8 & 0xff
    }

    #[inline(always)]
    fn size(self) -> u32 {
        self.0 >> 16 & 0xff
    }

    /// How many places the coefficient is further than the last one; 64 at the end of a block.
    #[inline(always)]
    pub fn places(self) -> usize {
        (self.0 >> 24) as usize
    }

    /// The value after the code with which `bits` begin.
    #[inline(always)]
    pub fn value(self, bits: u64) -> i32 {
        let after = bits << self.length();
        // Of no bits the value is 0. A first bit of 0 says that it is negative.
        let value = (after >> 1 >> (63 - self.size())) as i32;
        let negative = !((after as i64) >> 63) as i32;
        value + (negative & (1 - (1 << self.size())))
    }
}

/// A table of symbols.
#[derive(Debug)]
pub(crate) struct Table {
    lookup: Box<[Symbol; 1 << BITS]>,
    /// For each length, the codes below this one, from the highest bit on, are of that length at most.
    limits: [u32; 17],
    /// For each length, what is added to a code to find its symbol.
    offsets: [i32; 17],
    symbols: [Symbol; 256],
    /// Whether it is that of a code, all of it; what it was made of.
    made: bool,
    counts: [u8; 16],
    bytes: Vec<u8>,
    dc: bool,
    skips: Skips,
}

impl Table {
    pub fn new(dc: bool) -> Self {
        Table {
            lookup: Box::new([Symbol(0); 1 << BITS]),
            limits: [0; 17],
            offsets: [0; 17],
            symbols: [Symbol(0); 256],
            made: false,
            counts: [0; 16],
            bytes: Vec::new(),
            dc,
            skips: Skips::default(),
        }
    }

    /// Makes it that of `codes`. Many files have the same.
    ///
    /// # Errors
    /// They are none. What is in the table then is made anew the next time, whatever that is of.
    pub fn set(&mut self, codes: Codes) -> Result<(), Unsupported> {
        if self.made && self.counts == *codes.counts && self.bytes == codes.symbols {
            return Ok(());
        }
        self.made = false;
        self.bytes.clear();
        if std::mem::take(&mut self.skips.made) {
            self.skips.lookup.fill(Skip(0));
        }
        self.lookup.fill(Symbol(0));
        let (mut code, mut number) = (0u32, 0usize);
        for length in 1..=16 {
            self.offsets[length] = number as i32 - code as i32;
            for &symbol in &codes.symbols[number..number + usize::from(codes.counts[length - 1])] {
                if code >= 1 << length {
                    // More codes than there are bits for.
                    return Err(Unsupported);
                }
                let symbol = Symbol::new(length as u32, symbol, self.dc).unwrap_or_default();
                self.symbols[number] = symbol;
                if length as u32 <= BITS {
                    let rest = BITS - length as u32;
                    self.lookup[(code << rest) as usize..((code + 1) << rest) as usize].fill(symbol);
                }
                (code, number) = (code + 1, number + 1);
            }
            self.limits[length] = code << (16 - length);
            code <<= 1;
        }
        self.counts = *codes.counts;
        self.bytes.extend_from_slice(codes.symbols);
        self.made = true;
        Ok(())
    }

    /// Fills the table of [`Table::skip`], which without this knows no symbol.
    pub fn with_skips(&mut self) {
        if !self.skips.made {
            self.skips.make(&self.lookup);
        }
    }

    /// The symbol with whose code `bits` begin.
    #[inline(always)]
    pub fn symbol(&self, bits: u64) -> Symbol {
        let symbol = self.lookup[(bits >> (64 - BITS)) as usize];
        if symbol.is_none() { self.long(bits) } else { symbol }
    }

    #[cold]
    fn long(&self, bits: u64) -> Symbol {
        let first = (bits >> 48) as u32;
        for length in 1..=16usize {
            if first < self.limits[length] {
                let number = (first >> (16 - length)) as i32 + self.offsets[length];
                return self.symbols.get(number as usize).copied().unwrap_or_default();
            }
        }
        Symbol(0)
    }

    /// The symbols of AC coefficients with which `bits` begin, as many as the table can find.
    #[inline(always)]
    pub fn skip(&self, bits: u64) -> Skip {
        self.skips.lookup[(bits >> (64 - SKIP_BITS)) as usize]
    }
}

/// Symbols of AC coefficients one after the other. All zeros: not even one can be skipped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Skip(u16);

impl Skip {
    /// Bits of all of them with their values, 32 at most.
    #[inline(always)]
    pub fn total(self) -> u32 {
        u32::from(self.0 & 63)
    }

    /// Whether the last one ends the block.
    #[inline(always)]
    pub fn ends(self) -> bool {
        self.0 & 64 != 0
    }

    /// Places that they take.
    #[inline(always)]
    pub fn places(self) -> usize {
        usize::from(self.0 >> 8)
    }
}

#[derive(Debug)]
struct Skips {
    lookup: Box<[Skip; 1 << SKIP_BITS]>,
    made: bool,
}

impl Default for Skips {
    fn default() -> Self {
        Skips { lookup: Box::new([Skip(0); 1 << SKIP_BITS]), made: false }
    }
}

impl Skips {
    fn make(&mut self, symbols: &[Symbol; 1 << BITS]) {
        for (bits, skip) in (0u32..).zip(self.lookup.iter_mut()) {
            let (mut total, mut places, mut ends) = (0, 0, 0);
            while total < SKIP_BITS {
                // What is missing is zeros; whether a code is there is seen by its length.
                let left = (bits << (32 - SKIP_BITS)) << total;
                let symbol = symbols[(left >> (32 - BITS)) as usize];
                if symbol.is_none() || total + symbol.length() > SKIP_BITS {
                    break;
                }
                if symbol.places() == Symbol::END as usize {
                    (total, ends) = (total + symbol.total(), 64);
                    break;
                }
                if places + symbol.places() > 63 {
                    break;
                }
                (total, places) = (total + symbol.total(), places + symbol.places());
            }
            *skip = Skip(total as u16 | ends | (places as u16) << 8);
        }
        self.made = true;
    }
}
