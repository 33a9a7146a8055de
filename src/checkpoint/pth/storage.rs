//! From windows into storages to dense tensors.

use super::archive::Storages;
use super::value;
use super::{PthError, malformed};
use crate::checkpoint::tensor::{Tensor, count};

/// All tensors together may be this many times as large as the file (shared and expanded storages, wider elements).
const MAX_GROWTH: usize = 64;
/// PyTorch's own limit on the number of dimensions.
const MAX_RANK: usize = 64;

/// Reads tensors. Only the storage read last is kept: tensors that share one are best asked for in a row.
pub(super) struct Reader<'r> {
    archive: &'r mut dyn Storages,
    last: Option<(value::Storage, Vec<u8>)>,
    /// Bytes that storages, and tensors, may still take.
    storage_budget: usize,
    tensor_budget: usize,
}

impl<'r> Reader<'r> {
    pub(super) fn new(archive: &'r mut dyn Storages, file_bytes: usize) -> Self {
        let tensor_budget = file_bytes.saturating_mul(MAX_GROWTH);
        Reader { archive, last: None, storage_budget: file_bytes, tensor_budget }
    }

    /// The dense tensor that a window shows. Floats become `F32`; `I8` and `I16` become `I32`, truth values `U8`.
    pub(super) fn tensor(&mut self, t: &value::Tensor) -> Result<Tensor, PthError> {
        if t.stride.len() != t.shape.len() || t.shape.len() > MAX_RANK {
            return Err(malformed("its strides do not belong to its sizes"));
        }
        let len = count(&t.shape).ok_or_else(|| malformed("its sizes are absurd"))?;
        check_bounds(t, len)?;
        self.tensor_budget = len
            .checked_mul(8)
            .and_then(|bytes| self.tensor_budget.checked_sub(bytes))
            .ok_or_else(|| malformed("the tensors are far larger than the file"))?;
        let data = if len == 0 { Vec::new() } else { gather(self.storage(&t.storage)?, t, len) };
        let (dtype, data) = t.storage.element.widen(data);
        Ok(Tensor { dtype, shape: t.shape.clone(), data })
    }

    fn storage(&mut self, storage: &value::Storage) -> Result<&[u8], PthError> {
        let bytes = storage
            .len
            .checked_mul(storage.element.bytes())
            .ok_or_else(|| malformed("its storage's length is absurd"))?;
        match &self.last {
            Some((last, _)) if last == storage => {}
            Some((last, _)) if last.key == storage.key => {
                return Err(malformed("its storage is described in two ways"));
            }
            _ => {
                self.storage_budget = self
                    .storage_budget
                    .checked_sub(bytes)
                    .ok_or_else(|| malformed("the storages are larger than the file"))?;
                self.last = None;
                let data = self.archive.storage(&storage.key, bytes as u64)?;
                self.last = Some((storage.clone(), data));
            }
        }
        Ok(self.last.as_ref().map_or(&[], |(_, data)| data))
    }
}

/// The last element of the window lies inside the storage.
fn check_bounds(t: &value::Tensor, len: usize) -> Result<(), PthError> {
    if len == 0 {
        return Ok(());
    }
    let last = t
        .shape
        .iter()
        .zip(&t.stride)
        .try_fold(t.offset, |at, (size, stride)| at.checked_add((size - 1).checked_mul(*stride)?));
    match last {
        Some(last) if last < t.storage.len => Ok(()),
        _ => Err(malformed("it reaches outside its storage")),
    }
}

/// Copies the elements of a window that was checked, in row-major order.
fn gather(storage: &[u8], t: &value::Tensor, len: usize) -> Vec<u8> {
    let width = t.storage.element.bytes();
    if is_dense(t) {
        return storage[t.offset * width..(t.offset + len) * width].to_vec();
    }
    let mut out = Vec::with_capacity(len * width);
    let mut index = vec![0usize; t.shape.len()];
    let mut at = t.offset;
    for _ in 0..len {
        out.extend_from_slice(&storage[at * width..(at + 1) * width]);
        for d in (0..index.len()).rev() {
            index[d] += 1;
            if index[d] < t.shape[d] {
                at += t.stride[d];
                break;
            }
            at -= t.stride[d] * (t.shape[d] - 1);
            index[d] = 0;
        }
    }
    out
}

/// True if the window is one piece in row-major order. Strides of dimensions of size 1 mean nothing.
fn is_dense(t: &value::Tensor) -> bool {
    let mut expected = 1;
    t.shape.iter().zip(&t.stride).rev().all(|(size, stride)| {
        let fits = *size == 1 || *stride == expected;
        expected *= size;
        fits
    })
}
