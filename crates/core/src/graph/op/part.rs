//! A part of a tensor.

/// Elements of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The first one.
    pub start: usize,
    /// How many.
    pub len: usize,
}
