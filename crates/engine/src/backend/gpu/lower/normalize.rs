//! Launches of the normalisation of samples.

use super::Context;
use super::layout::pack;
use crate::backend::gpu::launch::{Arg, Cell, Kernel, Lowered, Memory, Module, suffix};
use crate::graph::op::Normalize;

/// `Statistics` of the kernel: mean and inverse of the standard deviation of each channel, or of all.
fn statistics(op: &Normalize) -> Vec<Cell> {
    let channels = op.mean.len().max(op.std.len());
    let of = |list: &[f32], c: usize| if list.len() == 1 { list[0] } else { list[c] };
    let cell = |c: usize| {
        let (mean, inverse) = (of(&op.mean, c), (1.0 / f64::from(of(&op.std, c))) as f32);
        // The first of two floats is the lower half: GPUs are little-endian.
        Cell::I64((u64::from(mean.to_bits()) | u64::from(inverse.to_bits()) << 32) as i64)
    };
    (0..channels).map(cell).collect()
}

/// Lowers the operation.
pub fn normalize(cx: &Context, op: &Normalize) -> Lowered {
    let (n, statistics) = (cx.y(0).len(), statistics(op));
    let name = format!("normalize_{}_{}", suffix(cx.x_type(0)), suffix(cx.y_type(0)));
    let kernel = Kernel::new(Module::Normalize, name).over(n.div_ceil(pack(cx.y_type(0))));
    let (kernel, channels) = (kernel.arg(Memory::Input(0)).arg(Memory::Output(0)).long(n), statistics.len());
    Lowered::one(kernel.float(op.scale).arg(Arg::Table(statistics)).int(channels))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::DType;

    #[test]
    fn one_number_serves_all_channels() {
        let pair = |mean: f32, inverse: f32| {
            let bytes = [mean.to_le_bytes(), inverse.to_le_bytes()].concat();
            Cell::I64(i64::from_le_bytes(bytes.try_into().unwrap()))
        };
        let op =
            |mean: &[f32], std: &[f32]| Normalize { scale: 1.0, mean: mean.into(), std: std.into(), to: DType::F32 };
        assert_eq!(statistics(&op(&[0.5], &[0.25])), [pair(0.5, 4.0)]);
        assert_eq!(statistics(&op(&[0.5], &[0.25, 2.0])), [pair(0.5, 4.0), pair(0.5, 0.5)]);
    }
}
