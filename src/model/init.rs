//! The values that variables start with.

use crate::graph::{DType, Fill, Variable};
use crate::random::{Purpose, Stream, hash_name};
use half::{bf16, f16};

/// The bytes that `var` starts with, in the inside layout. Draws are keyed by the seed and the variable's name, so that
/// a layer starts the same whatever else is in the model.
pub fn initial(var: &Variable, seed: u64) -> Vec<u8> {
    let mut all = Vec::with_capacity(var.bytes());
    let done: Result<(), std::convert::Infallible> = initial_pieces(var, seed, |_, bytes| {
        all.extend_from_slice(bytes);
        Ok(())
    });
    match done {
        Ok(()) => all,
        Err(never) => match never {},
    }
}

/// As [`initial`], in the outside layout.
pub fn initial_outside(var: &Variable, seed: u64) -> Vec<u8> {
    let inside = initial(var, seed);
    match var.init {
        // All elements are the same.
        Fill::Constant(_) => inside,
        _ => var.storage.to_outside(inside.as_chunks::<4>().0).into_flattened(),
    }
}

/// As [`initial`], but a piece at a time: `take` is given the place of its first byte, and the bytes.
///
/// # Errors
/// Those of `take`.
pub fn initial_pieces<E>(
    var: &Variable,
    seed: u64,
    mut take: impl FnMut(usize, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    if let Fill::Constant(c) = var.init {
        let n = var.piece_bytes() / var.dtype.bytes();
        let piece = match var.dtype {
            DType::F32 => (c as f32).to_ne_bytes().repeat(n),
            DType::BF16 => bf16::from_f64(c).to_ne_bytes().repeat(n),
            DType::F16 => f16::from_f64(c).to_ne_bytes().repeat(n),
            DType::F64 => c.to_ne_bytes().repeat(n),
            DType::I64 => (c as i64).to_ne_bytes().repeat(n),
            DType::I32 => (c as i32).to_ne_bytes().repeat(n),
            DType::U32 => (c as u32).to_ne_bytes().repeat(n),
            DType::U8 => vec![c as u8; n],
        };
        return var.pieces().try_for_each(|p| take(p.at, &piece[..p.bytes]));
    }
    debug_assert_eq!(var.dtype, DType::F32, "only floats are drawn");
    let mut stream = Stream::new(seed, Purpose::Init, hash_name(&var.name), 0);
    let mut drawn = 0;
    let mut draw = || match var.init {
        Fill::Constant(c) => c,
        Fill::Sinusoids { width } => {
            let (position, number) = (drawn / width, drawn % width);
            drawn += 1;
            let angle = position as f64 / 10_000f64.powf((number - number % 2) as f64 / width as f64);
            if number % 2 == 0 { angle.sin() } else { angle.cos() }
        }
        Fill::Uniform { bound } => (2.0 * stream.uniform() - 1.0) * bound,
        Fill::Normal { std } => stream.normal() * std,
        Fill::TruncatedNormal { std } => loop {
            let x = stream.normal();
            if x.abs() <= 2.0 {
                break x * std;
            }
        },
    };
    let (mut outside, mut inside) = (Vec::<[u8; 4]>::new(), Vec::new());
    for piece in var.pieces() {
        outside.clear();
        outside.extend((0..piece.bytes / 4).map(|_| (draw() as f32).to_ne_bytes()));
        inside.resize(outside.len(), [0; 4]);
        piece.storage.to_inside_into(&outside, &mut inside);
        take(piece.at, inside.as_flattened())?;
    }
    Ok(())
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
