//! The coefficients of a block, or the way past them.

use crate::Unsupported;
use crate::bits::Bits;
use crate::huffman::Table;

/// Coefficients by rows, of the lowest vertical frequency first.
pub(crate) type Block = [i16; 64];

/// Where the coefficients lie in a block, in the order of the file.
const ZIGZAG: [u8; 64] = {
    let mut order = [0; 64];
    let (mut row, mut column, mut at) = (0i32, 0i32, 0);
    while at < 64 {
        order[at] = (8 * row + column) as u8;
        // Up to the right on even diagonals, down to the left on odd ones; along the edge at their ends.
        let up = (row + column) % 2 == 0;
        (row, column) = match (row, column) {
            (_, 7) if up => (row + 1, 7),
            (0, _) if up => (0, column + 1),
            _ if up => (row - 1, column + 1),
            (7, _) => (7, column + 1),
            (_, 0) => (row + 1, 0),
            _ => (row + 1, column - 1),
        };
        at += 1;
    }
    order
};

/// A coefficient's place in the block, and what it is multiplied by.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    at: u8,
    factor: u16,
}

impl Place {
    /// The coefficient that is coded as `level`.
    #[inline(always)]
    pub fn value(self, level: i32) -> i16 {
        level.wrapping_mul(i32::from(self.factor)) as i16
    }
}

/// The places by their order in the file, for a table of factors in that order.
pub(crate) fn places(quantization: &[u16; 64]) -> [Place; 64] {
    std::array::from_fn(|i| Place { at: ZIGZAG[i], factor: quantization[i] })
}

/// Symbols that are read with one look at the file.
const SYMBOLS: usize = 3;

/// The difference of a block's DC coefficient to that of the one before.
#[inline(always)]
pub(crate) fn dc(bits: &mut Bits, table: &Table) -> Result<i32, Unsupported> {
    let held = bits.look();
    let symbol = table.symbol(held);
    if symbol.is_none() {
        return Err(Unsupported);
    }
    bits.skip(symbol.total());
    Ok(symbol.value(held))
}

/// Reads the AC coefficients of a block into `block`, which has zeros there. Returns the number of the last one in the order of the file, or 0.
#[inline(always)]
pub(crate) fn ac(
    bits: &mut Bits,
    table: &Table,
    places: &[Place; 64],
    block: &mut Block,
) -> Result<usize, Unsupported> {
    let mut at = 0;
    loop {
        // Always, since the need for it is not known in advance. As a rule it brings enough bits for some symbols.
        bits.refill();
        for _ in 0..SYMBOLS {
            let held = bits.look();
            let symbol = table.symbol(held);
            bits.skip(symbol.total());
            let next = at + symbol.places();
            if next > 63 {
                // The end, unless the run leads out of the block.
                return if symbol.places() == 64 { Ok(at) } else { Err(Unsupported) };
            }
            if symbol.is_none() {
                return Err(Unsupported);
            }
            at = next;
            let place = places[at];
            // A run of 16 zeros has the value 0.
            block[usize::from(place.at & 63)] = place.value(symbol.value(held));
            if at == 63 {
                return Ok(at);
            }
        }
    }
}

/// Goes past the AC coefficients of a block.
#[inline(always)]
pub(crate) fn skip_ac(bits: &mut Bits, table: &Table) -> Result<(), Unsupported> {
    let mut at = 0;
    while at < 63 {
        bits.refill();
        let held = bits.look();
        let skip = table.skip(held);
        let next = at + skip.places();
        // After the last coefficient there is another block, of which the table does not know.
        if skip.total() != 0 && next + usize::from(skip.ends()) <= 63 {
            bits.skip(skip.total());
            if skip.ends() {
                return Ok(());
            }
            at = next;
            continue;
        }
        let symbol = table.symbol(held);
        bits.skip(symbol.total());
        if symbol.places() == 64 {
            return Ok(());
        }
        at += symbol.places();
        if symbol.is_none() || at > 63 {
            return Err(Unsupported);
        }
    }
    Ok(())
}
