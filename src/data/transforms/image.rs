//! An image in memory.

/// An image of bytes, as it is decoded from a file: row after row from the top, the channels of a pixel side by side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Height and width.
    pub sides: [usize; 2],
    /// Channels of a pixel.
    pub channels: usize,
    /// The bytes.
    pub pixels: Vec<u8>,
}

/// A rectangle of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::data) struct Window {
    /// Its first row and column.
    pub at: [usize; 2],
    /// Height and width.
    pub sides: [usize; 2],
}

impl Image {
    /// The whole image.
    pub(in crate::data) fn whole(&self) -> Window {
        Window { at: [0, 0], sides: self.sides }
    }

    /// The bytes of a rectangle, row after row.
    pub(in crate::data) fn rows(&self, window: Window) -> impl Iterator<Item = &[u8]> {
        let ([top, left], [height, width]) = (window.at, window.sides);
        let line = self.sides[1] * self.channels;
        let within = left * self.channels..(left + width) * self.channels;
        (top..top + height).map(move |y| &self.pixels[y * line..][within.clone()])
    }
}
