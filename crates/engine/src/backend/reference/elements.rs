//! What stands between values and the bytes of a backend, and between the results of two backends.
//!
//! It is here, and not beside the tests that use it, because this crate is optimised in debug builds: there it took a quarter of the
//! time of the cases on a CPU.

use crate::graph::DType;
use half::{bf16, f16};

/// The bytes of `data` as elements of type `dtype`, each the nearest.
pub fn encode(dtype: DType, data: &[f64]) -> Vec<u8> {
    match dtype {
        DType::F32 => write(data, |v| (v as f32).to_le_bytes()),
        DType::BF16 => write(data, |v| bf16::from_f64(v).to_le_bytes()),
        DType::F16 => write(data, |v| f16::from_f64(v).to_le_bytes()),
        DType::F64 => write(data, f64::to_le_bytes),
        DType::U8 => write(data, |v| [v as u8]),
        DType::U32 => write(data, |v| (v as u32).to_le_bytes()),
        DType::I32 => write(data, |v| (v as i32).to_le_bytes()),
        DType::I64 => write(data, |v| (v as i64).to_le_bytes()),
    }
}

/// The elements of type `dtype` in `bytes`.
///
/// # Panics
/// If the bytes are not a whole number of elements.
pub fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    match dtype {
        DType::F32 => read(bytes, |b| f64::from(f32::from_le_bytes(b))),
        DType::BF16 => read(bytes, |b| bf16::from_le_bytes(b).to_f64()),
        DType::F16 => read(bytes, |b| f16::from_le_bytes(b).to_f64()),
        DType::F64 => read(bytes, f64::from_le_bytes),
        DType::U8 => read(bytes, |[b]| f64::from(b)),
        DType::U32 => read(bytes, |b| f64::from(u32::from_le_bytes(b))),
        DType::I32 => read(bytes, |b| f64::from(i32::from_le_bytes(b))),
        DType::I64 => read(bytes, |b| i64::from_le_bytes(b) as f64),
    }
}

fn write<const N: usize>(data: &[f64], f: impl Fn(f64) -> [u8; N]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(data.len() * N);
    data.iter().for_each(|v| bytes.extend_from_slice(&f(*v)));
    bytes
}

fn read<const N: usize>(bytes: &[u8], f: impl Fn([u8; N]) -> f64) -> Vec<f64> {
    let (elements, rest) = bytes.as_chunks::<N>();
    assert!(rest.is_empty(), "{} bytes are no whole number of elements of {N}", bytes.len());
    elements.iter().map(|element| f(*element)).collect()
}

/// The absolute values.
pub fn magnitudes(data: &[f64]) -> Vec<f64> {
    data.iter().map(|x| x.abs()).collect()
}

/// `data`, each element times `factor`.
pub fn scaled(data: &[f64], factor: f64) -> Vec<f64> {
    data.iter().map(|x| factor * x).collect()
}

/// The largest absolute value of those that are finite; 0 if there are none.
pub fn largest(data: &[f64]) -> f64 {
    data.iter().filter(|v| v.is_finite()).fold(0.0, |most, v| most.max(v.abs()))
}

/// The first element of `found` that is farther from `expected` than `factor` times what is `allowed` to it, and that distance. What
/// is less than any number of single precision is 0 there.
///
/// # Panics
/// If the three do not have as many elements.
pub fn disagreement(found: &[f64], expected: &[f64], allowed: &[f64], factor: f64) -> Option<(usize, f64)> {
    assert!(found.len() == expected.len() && expected.len() == allowed.len(), "as many elements");
    let all = found.iter().zip(expected).zip(allowed).enumerate();
    all.map(|(i, ((f, e), a))| {
        let a = if *a > 0.0 { (a * factor).max(f64::from(f32::MIN_POSITIVE)) } else { 0.0 };
        (i, a, f == e || (f - e).abs() <= a || f.is_nan() && e.is_nan())
    })
    .find_map(|(i, a, agrees)| (!agrees).then_some((i, a)))
}
