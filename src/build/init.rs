//! The values that variables start with.

use crate::graph::{DType, Fill, Variable};
use crate::random::{Purpose, Stream, hash_name};
use half::{bf16, f16};

/// The bytes that `var` starts with, in the inside layout. Draws are keyed by the seed and the variable's name, so that
/// a layer starts the same whatever else is in the model.
pub fn initial(var: &Variable, seed: u64) -> Vec<u8> {
    let n = var.shape.len();
    if let Fill::Constant(c) = var.init {
        return match var.dtype {
            DType::F32 => (c as f32).to_ne_bytes().repeat(n),
            DType::BF16 => bf16::from_f64(c).to_ne_bytes().repeat(n),
            DType::F16 => f16::from_f64(c).to_ne_bytes().repeat(n),
            DType::F64 => c.to_ne_bytes().repeat(n),
            DType::I64 => (c as i64).to_ne_bytes().repeat(n),
            DType::I32 => (c as i32).to_ne_bytes().repeat(n),
            DType::U32 => (c as u32).to_ne_bytes().repeat(n),
            DType::U8 => vec![c as u8; n],
        };
    }
    debug_assert_eq!(var.dtype, DType::F32, "only floats are drawn");
    let mut stream = Stream::new(seed, Purpose::Init, hash_name(&var.name), 0);
    let mut draw = || match var.init {
        Fill::Constant(c) => c,
        Fill::Uniform { bound } => (2.0 * stream.uniform() - 1.0) * bound,
        Fill::Normal { std } => stream.normal() * std,
        Fill::TruncatedNormal { std } => loop {
            let x = stream.normal();
            if x.abs() <= 2.0 {
                break x * std;
            }
        },
    };
    let outside: Vec<f32> = (0..n).map(|_| draw() as f32).collect();
    var.storage.to_inside(&outside).into_iter().flat_map(f32::to_ne_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Shape, Storage, VarKind};

    fn floats(init: Fill, name: &str) -> Vec<f32> {
        let storage = Storage::conv_weight(8, 4, 5, 5);
        let var = Variable {
            name: name.into(),
            dtype: DType::F32,
            shape: Shape::from([8, 5, 5, 4]),
            kind: VarKind::Parameter,
            trainable: true,
            storage,
            init,
            origin: String::new(),
        };
        let bytes = initial(&var, 3);
        bytes.chunks_exact(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect()
    }

    #[test]
    fn uniform_fills_its_interval_and_depends_on_the_name() {
        let x = floats(Fill::Uniform { bound: 0.25 }, "a");
        assert!(x.iter().all(|v| v.abs() <= 0.25));
        let var = x.iter().map(|v| v * v).sum::<f32>() / x.len() as f32;
        assert!((var - 0.25f32.powi(2) / 3.0).abs() < 0.002, "{var}");
        assert_ne!(x, floats(Fill::Uniform { bound: 0.25 }, "b"));
        assert_eq!(x, floats(Fill::Uniform { bound: 0.25 }, "a"));
    }

    #[test]
    fn truncated_normal_is_cut() {
        let x = floats(Fill::TruncatedNormal { std: 0.02 }, "a");
        assert!(x.iter().all(|v| v.abs() <= 0.04) && x.iter().any(|v| v.abs() > 0.02));
        assert_eq!(floats(Fill::Constant(1.0), "a"), vec![1.0; 800]);
    }
}
