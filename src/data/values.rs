//! Numbers of one field of many samples.

use crate::graph::DType;
use memmap2::Mmap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The values of a field of all samples, sample after sample, images channels last.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Bytes.
    Bytes(Vec<u8>),
    /// Whole numbers.
    Ints(Vec<i32>),
    /// Floats.
    Floats(Vec<f32>),
    /// In a file.
    Mapped(Mapped),
}

/// Values in a file, as the process sees it.
#[derive(Clone)]
pub struct Mapped {
    map: Arc<Mmap>,
    range: Range<usize>,
    dtype: DType,
}

impl Mapped {
    /// The bytes `range` of a file, native endian.
    ///
    /// # Panics
    /// If the file ends before.
    pub fn new(map: Arc<Mmap>, range: Range<usize>, dtype: DType) -> Self {
        assert!(range.end <= map.len(), "values up to {} in a file of {}", range.end, map.len());
        Mapped { map, range, dtype }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.map[self.range.clone()]
    }
}

impl fmt::Debug for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapped").field("range", &self.range).field("dtype", &self.dtype).finish_non_exhaustive()
    }
}

impl PartialEq for Mapped {
    fn eq(&self, other: &Self) -> bool {
        (self.dtype, self.bytes()) == (other.dtype, other.bytes())
    }
}

/// Numbers whose bytes are all initialised, whatever they are.
pub trait Plain: Copy {}

impl Plain for u16 {}
impl Plain for i32 {}
impl Plain for u32 {}
impl Plain for f32 {}
impl Plain for f64 {}

/// The memory of numbers, native endian.
pub fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: the bytes of initialised numbers without padding, alive and unchanged as long as the borrow.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), std::mem::size_of_val(values)) }
}

impl Values {
    /// Element type.
    pub fn dtype(&self) -> DType {
        match self {
            Values::Bytes(_) => DType::U8,
            Values::Ints(_) => DType::I32,
            Values::Floats(_) => DType::F32,
            Values::Mapped(mapped) => mapped.dtype,
        }
    }

    /// The memory, native endian.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Values::Bytes(v) => v,
            Values::Ints(v) => bytes_of(v),
            Values::Floats(v) => bytes_of(v),
            Values::Mapped(mapped) => mapped.bytes(),
        }
    }

    /// Bytes of memory, and of files, that they take.
    pub fn taken(&self) -> [usize; 2] {
        match self {
            Values::Mapped(mapped) => [0, mapped.range.len()],
            others => [others.bytes().len(), 0],
        }
    }
}
