//! From the bytes of a tensor in the file to its elements.

use super::super::values::Values;
use super::{Tensor, TensorFile};
use crate::graph::DType;
use crate::graph::op::TargetRange;
use anyhow::{Context, Result, bail};
use std::io::{Read, Seek, SeekFrom};

impl TensorFile {
    /// Reads a tensor of bytes or floats.
    pub fn values(&mut self, tensor: &Tensor) -> Result<Values> {
        Ok(match tensor.field.dtype {
            DType::U8 => Values::Bytes(self.channels_last(tensor, |[b]: [u8; 1]| b)?),
            _ => Values::Floats(self.channels_last(tensor, f32::from_le_bytes)?),
        })
    }

    /// Whether all numbers that are learnt are within `range`. Those that are not finite are found in training, as those of other sources are.
    ///
    /// # Errors
    /// One is not; the file cannot be read.
    pub fn expect_within(&mut self, target: &Tensor, range: TargetRange) -> Result<()> {
        let wrong = |value: &f32| value.is_finite() && !range.contains(f64::from(*value));
        let (mut sample, mut found) = (0, None);
        self.each(target, target.each() * size_of::<f32>(), |bytes| {
            let value = bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).find(wrong);
            found = found.or(value.map(|value| (sample, value)));
            sample += 1;
        })?;
        match found {
            None => Ok(()),
            Some((sample, value)) => {
                bail!("{}: sample {sample}, counted from 0, has the target {value}, and {range}", self.place(target))
            }
        }
    }

    /// Reads a tensor; images become channels-last.
    fn channels_last<T: Copy, const B: usize>(
        &mut self,
        tensor: &Tensor,
        decode: impl Fn([u8; B]) -> T,
    ) -> Result<Vec<T>> {
        let shape = &tensor.info.shape;
        let sample: usize = shape[1..].iter().product();
        let mut out = self.room(tensor, shape[0] * sample)?;
        let pixels = if shape.len() == 4 { shape[2] * shape[3] } else { sample };
        self.each(tensor, sample * B, |bytes| {
            let (elements, _) = bytes.as_chunks::<B>();
            for p in 0..pixels {
                out.extend(elements.iter().skip(p).step_by(pixels).map(|b| decode(*b)));
            }
        })?;
        Ok(out)
    }

    /// Room for `len` values of a tensor.
    pub fn room<T>(&self, tensor: &Tensor, len: usize) -> Result<Vec<T>> {
        let mut out = Vec::new();
        match out.try_reserve_exact(len) {
            Ok(()) => Ok(out),
            Err(_) => bail!("{}: there is not enough memory for `{}` ({len} values)", self.name, tensor.name),
        }
    }

    /// Hands a tensor's bytes to `take`, `size` bytes at a time.
    pub fn each(&mut self, tensor: &Tensor, size: usize, mut take: impl FnMut(&[u8])) -> Result<()> {
        let (begin, end) = tensor.info.data_offsets;
        let context = || format!("cannot read `{}` from {}", tensor.name, self.name);
        self.file.seek(SeekFrom::Start(self.start + begin as u64)).with_context(context)?;
        let mut bytes = vec![0; size];
        for _ in 0..(end - begin) / size.max(1) {
            self.file.read_exact(&mut bytes).with_context(context)?;
            take(&bytes);
        }
        Ok(())
    }
}
