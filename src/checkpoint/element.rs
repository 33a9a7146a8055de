//! Element types of files, and what each becomes in a [`Tensor`](super::Tensor).

use super::tensor::elements;
use crate::graph::DType;
use half::{bf16, f16};

/// Element types that tensors of safetensors files and of PyTorch's storages may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    F16,
    BF16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U32,
    Bool,
}

impl Element {
    /// Size of one in bytes.
    pub(super) fn bytes(self) -> usize {
        match self {
            Element::I8 | Element::U8 | Element::Bool => 1,
            Element::F16 | Element::BF16 | Element::I16 => 2,
            Element::F32 | Element::I32 | Element::U32 => 4,
            Element::F64 | Element::I64 => 8,
        }
    }

    /// Whether [`Element::widen`] makes another type of whole numbers of it.
    pub(super) fn is_narrow(self) -> bool {
        matches!(self, Element::I8 | Element::I16 | Element::Bool)
    }

    /// Its name in PyTorch.
    pub(super) fn in_pytorch(self) -> &'static str {
        match self {
            Element::F16 => "torch.float16",
            Element::BF16 => "torch.bfloat16",
            Element::F32 => "torch.float32",
            Element::F64 => "torch.float64",
            Element::I8 => "torch.int8",
            Element::I16 => "torch.int16",
            Element::I32 => "torch.int32",
            Element::I64 => "torch.int64",
            Element::U8 => "torch.uint8",
            Element::U32 => "torch.uint32",
            Element::Bool => "torch.bool",
        }
    }

    /// The little-endian elements `data` as a type that runner has: floats become `F32`, `I8` and `I16` become `I32`, truth
    /// values `U8`.
    pub(super) fn widen(self, data: Vec<u8>) -> (DType, Vec<u8>) {
        let floats = |values: &mut dyn Iterator<Item = f32>| (DType::F32, values.flat_map(f32::to_le_bytes).collect());
        let integers =
            |values: &mut dyn Iterator<Item = i32>| (DType::I32, values.flat_map(i32::to_le_bytes).collect());
        match self {
            Element::F32 => (DType::F32, data),
            Element::F16 => floats(&mut elements(&data, f16::from_le_bytes).map(f32::from)),
            Element::BF16 => floats(&mut elements(&data, bf16::from_le_bytes).map(f32::from)),
            Element::F64 => floats(&mut elements(&data, f64::from_le_bytes).map(|v| v as f32)),
            Element::I64 => (DType::I64, data),
            Element::I32 => (DType::I32, data),
            Element::I16 => integers(&mut elements(&data, i16::from_le_bytes).map(i32::from)),
            Element::I8 => integers(&mut elements(&data, i8::from_le_bytes).map(i32::from)),
            Element::U32 => (DType::U32, data),
            Element::U8 | Element::Bool => (DType::U8, data),
        }
    }
}
