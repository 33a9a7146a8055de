//! Numbers of one field of many samples.

use crate::graph::DType;

/// The values of a field of all samples, sample after sample, images channels last.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Bytes.
    Bytes(Vec<u8>),
    /// Whole numbers.
    Ints(Vec<i32>),
    /// Floats.
    Floats(Vec<f32>),
}

impl Values {
    /// Element type.
    pub fn dtype(&self) -> DType {
        match self {
            Values::Bytes(_) => DType::U8,
            Values::Ints(_) => DType::I32,
            Values::Floats(_) => DType::F32,
        }
    }

    /// The memory, native endian.
    pub fn bytes(&self) -> &[u8] {
        fn bytes<T>(v: &[T]) -> &[u8] {
            // SAFETY: the bytes of initialised numbers without padding (this is called for `i32` and `f32` only), alive and
            // unchanged as long as the borrow.
            unsafe { std::slice::from_raw_parts(v.as_ptr().cast(), std::mem::size_of_val(v)) }
        }
        match self {
            Values::Bytes(v) => v,
            Values::Ints(v) => bytes(v),
            Values::Floats(v) => bytes(v),
        }
    }
}
