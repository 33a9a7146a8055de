//! Tensors on their way from or to a file.

use crate::graph::DType;
use half::{bf16, f16};
use std::fmt;

/// A tensor of a file: row-major, in the outside layout, little-endian.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Element type.
    pub dtype: DType,
    /// Dimensions; empty for a scalar.
    pub shape: Vec<usize>,
    /// The elements.
    pub data: Vec<u8>,
}

/// A tensor to be written: row-major, in the outside layout, little-endian.
#[derive(Debug, Clone, Copy)]
pub struct TensorView<'a> {
    /// Name in the file.
    pub name: &'a str,
    /// Element type.
    pub dtype: DType,
    /// Dimensions; empty for a scalar.
    pub shape: &'a [usize],
    /// The elements.
    pub bytes: &'a [u8],
}

/// A tensor to be written whose bytes come later.
#[derive(Debug, Clone, Copy)]
pub struct TensorInfo<'a> {
    /// Name in the file.
    pub name: &'a str,
    /// Element type.
    pub dtype: DType,
    /// Dimensions; empty for a scalar.
    pub shape: &'a [usize],
}

/// A tensor's elements cannot be had as the type asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CastError {
    /// The tensor's type.
    pub from: DType,
    /// The type asked for.
    pub to: DType,
}

impl fmt::Display for CastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.named(None))
    }
}

impl CastError {
    /// The message, with PyTorch's names of types; `from` is that of the tensor's type, where it is another one in the file.
    pub fn named(self, from: Option<&str>) -> String {
        let from = from.unwrap_or(in_pytorch(self.from));
        format!("its elements are {from}, and cannot be taken as {}", in_pytorch(self.to))
    }
}

/// PyTorch's name of a type.
fn in_pytorch(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "torch.float16",
        DType::BF16 => "torch.bfloat16",
        DType::F32 => "torch.float32",
        DType::F64 => "torch.float64",
        DType::U8 => "torch.uint8",
        DType::U32 => "torch.uint32",
        DType::I32 => "torch.int32",
        DType::I64 => "torch.int64",
    }
}

impl std::error::Error for CastError {}

impl<'a> TensorView<'a> {
    /// All but the bytes.
    pub fn info(&self) -> TensorInfo<'a> {
        TensorInfo { name: self.name, dtype: self.dtype, shape: self.shape }
    }
}

impl Tensor {
    /// A tensor of 32-bit floats.
    pub fn from_f32(shape: impl Into<Vec<usize>>, values: &[f32]) -> Self {
        let data = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Tensor { dtype: DType::F32, shape: shape.into(), data }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.data.len() / self.dtype.bytes()
    }

    /// True if it holds no element.
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// The same tensor, to be written under `name`.
    pub fn view<'a>(&'a self, name: &'a str) -> TensorView<'a> {
        TensorView { name, dtype: self.dtype, shape: &self.shape, bytes: &self.data }
    }

    /// The elements as 32-bit floats.
    ///
    /// # Errors
    /// They are integers.
    pub fn to_f32(&self) -> Result<Vec<f32>, CastError> {
        match self.dtype {
            DType::F32 => Ok(elements(&self.data, f32::from_le_bytes).collect()),
            DType::BF16 => Ok(elements(&self.data, bf16::from_le_bytes).map(f32::from).collect()),
            DType::F16 => Ok(elements(&self.data, f16::from_le_bytes).map(f32::from).collect()),
            DType::F64 => Ok(elements(&self.data, f64::from_le_bytes).map(|v| v as f32).collect()),
            from => Err(CastError { from, to: DType::F32 }),
        }
    }

    /// The tensor with another element type: floats to floats (rounded), whole numbers to integers (unchanged in value). Counters are floats where
    /// a whole state dict was converted.
    ///
    /// # Errors
    /// Integers do not become floats, floats with a fraction do not become integers, and a value must fit.
    pub fn cast(&self, to: DType) -> Result<Tensor, CastError> {
        let from = self.dtype;
        if from == to {
            return Ok(self.clone());
        }
        let fail = || CastError { from, to };
        let integers = || -> Option<Vec<i64>> {
            Some(match from {
                DType::U8 => self.data.iter().map(|v| *v as i64).collect(),
                DType::U32 => elements(&self.data, u32::from_le_bytes).map(i64::from).collect(),
                DType::I32 => elements(&self.data, i32::from_le_bytes).map(i64::from).collect(),
                DType::I64 => elements(&self.data, i64::from_le_bytes).collect(),
                DType::F64 => elements(&self.data, f64::from_le_bytes).map(whole).collect::<Option<_>>()?,
                DType::F32 | DType::BF16 | DType::F16 => {
                    self.to_f32().ok()?.into_iter().map(|x| whole(x.into())).collect::<Option<_>>()?
                }
            })
        };
        let data: Option<Vec<u8>> = match to {
            DType::F32 => Some(self.to_f32()?.iter().flat_map(|v| v.to_le_bytes()).collect()),
            DType::BF16 => Some(self.to_f32()?.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect()),
            DType::F16 => Some(self.to_f32()?.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect()),
            DType::F64 => Some(self.to_f32()?.iter().flat_map(|v| (*v as f64).to_le_bytes()).collect()),
            DType::U8 => integers().and_then(|v| narrow(&v, |x| u8::try_from(x).map(u8::to_le_bytes))),
            DType::U32 => integers().and_then(|v| narrow(&v, |x| u32::try_from(x).map(u32::to_le_bytes))),
            DType::I32 => integers().and_then(|v| narrow(&v, |x| i32::try_from(x).map(i32::to_le_bytes))),
            DType::I64 => integers().map(|v| v.iter().flat_map(|x| x.to_le_bytes()).collect()),
        };
        Ok(Tensor { dtype: to, shape: self.shape.clone(), data: data.ok_or_else(fail)? })
    }
}

/// The elements of a little-endian array.
pub(super) fn elements<const N: usize, T>(data: &[u8], get: impl Fn([u8; N]) -> T) -> impl Iterator<Item = T> {
    data.as_chunks::<N>().0.iter().map(move |c| get(*c))
}

/// A float as an integer, if it is one.
fn whole(x: f64) -> Option<i64> {
    // Larger ones are whole because their fraction does not fit.
    (x.fract() == 0.0 && x.abs() <= (1u64 << f64::MANTISSA_DIGITS) as f64).then_some(x as i64)
}

fn narrow<const N: usize, E>(values: &[i64], put: impl Fn(i64) -> Result<[u8; N], E>) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(values.len() * N);
    for v in values {
        out.extend(put(*v).ok()?);
    }
    Some(out)
}

/// Number of elements of a shape; `None` if it does not fit into memory's addresses.
pub(super) fn count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn casts_keep_values_or_refuse() {
        let t = Tensor {
            dtype: DType::I64,
            shape: vec![2],
            data: [3i64, 200].iter().flat_map(|v| v.to_le_bytes()).collect(),
        };
        assert_eq!(t.cast(DType::U8).unwrap().data, [3, 200]);
        assert_eq!(t.cast(DType::U8).unwrap().cast(DType::I64).unwrap(), t);
        assert_eq!(t.cast(DType::F32), Err(CastError { from: DType::I64, to: DType::F32 }));
        let wide = Tensor { dtype: DType::I64, shape: vec![], data: (1i64 << 40).to_le_bytes().to_vec() };
        assert!(wide.cast(DType::I32).is_err());
        let f = Tensor::from_f32([2], &[1.5, -2.25]);
        assert_eq!(f.cast(DType::F64).unwrap().to_f32().unwrap(), [1.5, -2.25]);
        assert!(f.cast(DType::I32).is_err());
        let counter = Tensor::from_f32([2], &[3.0, 200.0]);
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            assert_eq!(counter.cast(dtype).unwrap().cast(DType::I64).unwrap(), t, "{dtype:?}");
        }
        for other in [f32::INFINITY, f32::NAN, 1e30] {
            assert!(Tensor::from_f32([1], &[other]).cast(DType::I64).is_err(), "{other}");
        }
    }
}
