//! Pictures, as they are handed to an event file.

/// A picture with the name that it is shown under.
#[derive(Debug, Clone, PartialEq)]
pub struct Image<'a> {
    /// The name; what comes before the slash is a group.
    pub tag: String,
    /// Pixels of a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Numbers of a pixel: 1 for shades, 3 for colours.
    pub channels: u32,
    /// Its PNG file.
    pub png: &'a [u8],
}
