//! The values that variables start with.

use crate::graph::{Angles, Counting, DType, Fill, Variable};
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
        _ if var.storage.is_plain() => inside,
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
    if let Fill::RelativePositions { window } = var.init {
        debug_assert!(var.dtype == DType::I64 && var.storage.is_plain());
        let mut number = 0;
        for piece in var.pieces() {
            let numbers = (0..piece.bytes / 8).map(|_| {
                number += 1;
                (relative_position(window, number - 1) as i64).to_ne_bytes()
            });
            take(piece.at, numbers.collect::<Vec<_>>().as_flattened())?;
        }
        return Ok(());
    }
    debug_assert_eq!(var.dtype, DType::F32, "only floats are drawn");
    let mut stream = Stream::new(seed, Purpose::Init, hash_name(&var.name), 0);
    let (mut drawn, mut last) = (0, 0.0);
    let mut draw = || match var.init {
        Fill::Constant(c) => c,
        Fill::RelativePositions { window } => {
            drawn += 1;
            relative_position(window, drawn - 1) as f64
        }
        Fill::Distances { side } => {
            let (pair, at) = (drawn / (2 * side - 1), drawn % (2 * side - 1));
            drawn += 1;
            if pair / side + side - 1 == at + pair % side { 1.0 } else { 0.0 }
        }
        Fill::ShiftMask { image, window, shift } => {
            drawn += 1;
            if same_region(image, window, shift, drawn - 1) { 0.0 } else { -100.0 }
        }
        Fill::Sinusoids { width } => {
            let (position, number) = (drawn / width, drawn % width);
            drawn += 1;
            let angle = position as f64 / 10_000f64.powf((number - number % 2) as f64 / width as f64);
            if number % 2 == 0 { angle.sin() } else { angle.cos() }
        }
        Fill::NormalRows { std, width, zeros } => {
            let row = drawn / width;
            drawn += 1;
            // Drawn in any case, so that the other rows do not depend on it.
            let number = stream.normal() * std;
            if row == zeros { 0.0 } else { number }
        }
        Fill::NormalRuns { width, run, until } => {
            let at = drawn % width;
            drawn += 1;
            if at >= until || at.is_multiple_of(run) {
                last = stream.normal();
            }
            last
        }
        Fill::Signs => {
            if stream.uniform() < 0.5 {
                -1.0
            } else {
                1.0
            }
        }
        Fill::Counting(of) => {
            let number = drawn as f64;
            drawn += 1;
            match of {
                Counting::Up => number,
                Counting::Down => -number,
                Counting::Reciprocals => {
                    if number == 0.0 {
                        0.0
                    } else {
                        1.0 / number
                    }
                }
            }
        }
        Fill::Rotations(angles) => {
            let Angles { width, .. } = angles;
            let (position, number) = (drawn / width, drawn % width);
            drawn += 1;
            let angle = angles.at(position, number % (width / 2));
            if number < width / 2 { angle.cos() } else { angle.sin() }
        }
        Fill::Uniform { bound } => (2.0 * stream.uniform() - 1.0) * bound,
        Fill::Between { low, high } => low + (high - low) * stream.uniform(),
        Fill::Normal { mean, std } => mean + stream.normal() * std,
        Fill::TruncatedNormal { std, low, high } => truncated_normal(&mut stream, std, low, high),
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

/// The number of the distance of a pair of positions of a window.
fn relative_position([h, w]: [usize; 2], pair: usize) -> usize {
    let (i, j) = (pair / (h * w), pair % (h * w));
    (i / w + h - 1 - j / w) * (2 * w - 1) + i % w + w - 1 - j % w
}

/// Whether the two positions of number `at`, among all pairs of all windows, come from the same region of an image before it was rolled. The
/// last rows and columns of windows have what was first, beside what was last.
fn same_region(image: [usize; 2], window: [usize; 2], shift: [usize; 2], at: usize) -> bool {
    let length = window[0] * window[1];
    let (number, i, j) = (at / (length * length), at / length % length, at % length);
    let across = image[1] / window[1];
    let origin = [number / across * window[0], number % across * window[1]];
    let region = |d: usize, inside: usize| {
        let place = origin[d] + inside;
        let region = usize::from(place >= image[d] - window[d]) + usize::from(place >= image[d] - shift[d]);
        if shift[d] == 0 { 0 } else { region }
    };
    let regions = |position: usize| [region(0, position / window[1]), region(1, position % window[1])];
    regions(i) == regions(j)
}

/// A draw of the normal distribution with mean 0 that lies in `[low, high]`, which has 0 in it. Draws of another distribution are thrown
/// away until one is kept: of the normal one where the interval is wide, else of the uniform one. So nearly half of them are kept at
/// least, whatever the interval.
fn truncated_normal(stream: &mut Stream, std: f64, low: f64, high: f64) -> f64 {
    if high - low >= 2.0 * std {
        loop {
            let x = stream.normal() * std;
            if (low..=high).contains(&x) {
                return x;
            }
        }
    }
    loop {
        let x = low + (high - low) * stream.uniform();
        if stream.uniform() <= (-0.5 * (x / std).powi(2)).exp() {
            return x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Holder, Scaling, Shape, Storage, VarKind};

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
            holder: Holder::All,
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
        let drawn = |std, low, high| floats(Fill::TruncatedNormal { std, low, high }, "a");
        let x = drawn(0.02, -0.04, 0.04);
        assert!(x.iter().all(|v| v.abs() <= 0.04) && x.iter().any(|v| v.abs() > 0.02));
        // Almost all of its weight is cut off, on one side.
        let x = drawn(1.0, 0.0, 1e-3);
        assert!(x.iter().all(|v| (0.0..=1e-3).contains(v)) && x.iter().any(|v| *v > 9e-4));
        assert_eq!(floats(Fill::Constant(1.0), "a"), vec![1.0; 800]);
    }

    #[test]
    fn rotations_are_cosines_and_then_sines() {
        let shape = Shape::from([3, 4]);
        let var = Variable {
            init: Fill::Rotations(Angles { width: 4, base: 100.0, scaling: Scaling::None }),
            ..Variable::zeros("angles", DType::F32, shape, VarKind::Constant)
        };
        let found = initial(&var, 3);
        let found = found.chunks_exact(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap()));
        let row = |p: f64| [p.cos(), (p / 10.0).cos(), p.sin(), (p / 10.0).sin()];
        let wanted = [0.0, 1.0, 2.0].map(row);
        assert!(found.eq(wanted.iter().flatten().map(|x| *x as f32)));
    }

    /// Mean and standard deviation of 800 draws, which lie within five standard errors of those of the distribution: `std / √n` of the mean;
    /// of the standard deviation, no more than `std / √(2n)`, as none of these has heavier tails than the normal one.
    #[test]
    fn draws_have_the_mean_and_the_deviation_of_their_distribution() {
        // Of the normal one between ±1 standard deviation: √(1 − 2 φ(1) / (2 Φ(1) − 1)).
        let within_one = 0.539_560_f64;
        for (init, mean, std) in [
            (Fill::Uniform { bound: 0.3 }, 0.0, 0.3 / 3f64.sqrt()),
            (Fill::Between { low: 1.0, high: 3.0 }, 2.0, 1.0 / 3f64.sqrt()),
            (Fill::Normal { mean: -1.0, std: 0.5 }, -1.0, 0.5),
            (Fill::TruncatedNormal { std: 0.02, low: -2.0, high: 2.0 }, 0.0, 0.02),
            (Fill::TruncatedNormal { std: 2.0, low: -2.0, high: 2.0 }, 0.0, 2.0 * within_one),
            (Fill::TruncatedNormal { std: 4.0, low: -2.0, high: 2.0 }, 0.0, 4.0 * 0.283_882),
        ] {
            let x: Vec<f64> = floats(init, "some").into_iter().map(f64::from).collect();
            let n = x.len() as f64;
            let found = x.iter().sum::<f64>() / n;
            let spread = (x.iter().map(|v| (v - found).powi(2)).sum::<f64>() / n).sqrt();
            assert!((found - mean).abs() < 5.0 * std / n.sqrt(), "{init:?}: mean {found}");
            assert!((spread - std).abs() < 5.0 * std / (2.0 * n).sqrt(), "{init:?}: deviation {spread}");
        }
    }
}
