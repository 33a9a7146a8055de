//! Element types and shapes.

use std::fmt;

/// Element type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DType {
    /// 32-bit float.
    F32,
    /// 16-bit float with the exponent of `F32` and 8 significant bits (bfloat16).
    BF16,
    /// 16-bit float of IEEE 754: 11 significant bits, at most 65504.
    F16,
    /// 64-bit float (metric sums).
    F64,
    /// 8-bit unsigned: image bytes, indices within a pooling window.
    U8,
    /// 32-bit unsigned: random keys.
    U32,
    /// 32-bit signed: class labels, long indices.
    I32,
    /// 64-bit signed: counters.
    I64,
}

impl DType {
    /// Size of one element in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            DType::U8 => 1,
            DType::BF16 | DType::F16 => 2,
            DType::F32 | DType::U32 | DType::I32 => 4,
            DType::F64 | DType::I64 => 8,
        }
    }

    /// The short name, as in `f32`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::BF16 => "bf16",
            DType::F16 => "f16",
            DType::F64 => "f64",
            DType::U8 => "u8",
            DType::U32 => "u32",
            DType::I32 => "i32",
            DType::I64 => "i64",
        }
    }

    /// True for the floats that activations, weights and their gradients may be made of.
    pub const fn is_activation(self) -> bool {
        matches!(self, DType::F32 | DType::BF16 | DType::F16)
    }

    /// True for floats of 16 bits.
    pub const fn is_half(self) -> bool {
        matches!(self, DType::BF16 | DType::F16)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Most elements that a value may have: far more than any memory, and few enough that no sum of sizes overflows.
pub const MAX_ELEMENTS: usize = 1 << 40;

/// The dimensions of a value, outermost first. Row-major and dense.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape(pub Vec<usize>);

impl Shape {
    /// Number of elements (1 for a scalar). [`usize::MAX`] if there are more than that.
    pub fn len(&self) -> usize {
        self.0.iter().fold(1, |n: usize, d| n.saturating_mul(*d))
    }

    /// True if it holds no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The dimensions.
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// The last dimension (1 for a scalar).
    pub fn last(&self) -> usize {
        self.0.last().copied().unwrap_or(1)
    }

    /// Product of all dimensions but the last: the rows of a matrix with [`Shape::last`] columns.
    pub fn rows(&self) -> usize {
        self.0.split_last().map_or(1, |(_, lead)| lead.iter().fold(1, |n: usize, d| n.saturating_mul(*d)))
    }

    /// The shape of one of `parts` equal parts along the first dimension; `None` if it cannot be divided so.
    pub fn part(&self, parts: usize) -> Option<Shape> {
        let (first, rest) = self.0.split_first()?;
        let part = (parts > 0 && first.is_multiple_of(parts)).then(|| first / parts)?;
        Some(Shape([&[part], rest].concat()))
    }

    /// `[N, H, W, C]` of a batch of images; `None` for any other rank.
    pub fn nhwc(&self) -> Option<[usize; 4]> {
        <[usize; 4]>::try_from(self.0.as_slice()).ok()
    }

    /// The shape as PyTorch would show it: images as `[N, C, H, W]`.
    pub fn to_pytorch(&self) -> Shape {
        match self.nhwc() {
            Some([n, h, w, c]) => Shape(vec![n, c, h, w]),
            None => self.clone(),
        }
    }
}

impl From<&[usize]> for Shape {
    fn from(d: &[usize]) -> Self {
        Shape(d.to_vec())
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(d: [usize; N]) -> Self {
        Shape(d.to_vec())
    }
}

impl From<Vec<usize>> for Shape {
    fn from(d: Vec<usize>) -> Self {
        Shape(d)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[")?;
        for (i, d) in self.0.iter().enumerate() {
            write!(f, "{}{d}", if i > 0 { ", " } else { "" })?;
        }
        write!(f, "]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
