//! Whether two runs came to the same.
//!
//! On another level of instructions, or without a pass, sums have another order and products other roundings: what that does to
//! a net is what errors of that size do to it, and how much a net makes of them is found out, not guessed. The same run is
//! made from parameters changed at random by [`NOISE`](crate::trained::NOISE), a few times; by how far those lead
//! elsewhere, times [`MARGIN`], any other may. A net that is well behaved is held to a few in a million, and one with a batch norm
//! over four numbers to what it can keep.

use crate::trained::{Trained, floats};
use runner::graph::DType;
use runner::train::setup::session::Saved;

/// The largest of some draws from a distribution is not its bound.
const MARGIN: f64 = 8.0;

/// What a number's own form cannot show: half of 2⁻²³ a step.
const ROUNDING: f64 = 6e-8;

/// Roundings of a sum over many elements. Kernels add up to 64 vectors in single precision, and vectors are longer on some levels. Noise does
/// not show that where the terms are the same in every run: all gradients clipped to one value, say.
const OF_A_SUM: f64 = 16.0;

/// Whether a state is a running mean, into which each step takes a mean over many elements.
fn is_mean(name: &str) -> bool {
    name.starts_with("optimizer.row_var.") || name.starts_with("optimizer.col_var.")
}

/// Both on other threads: every bit.
pub fn same_bits(a: &Trained, b: &Trained) -> Result<(), String> {
    let bits = |t: &Trained| t.losses.iter().map(|l| l.to_bits()).collect::<Vec<_>>();
    if bits(a) != bits(b) {
        return Err(format!("other losses: {:?} and {:?}", a.losses, b.losses));
    }
    for (a, b) in a.states.iter().flatten().zip(b.states.iter().flatten()) {
        if a != b {
            return Err(format!("`{}` has other bits", a.name));
        }
    }
    Ok(())
}

/// Holds `other` against `one`, as far as `noisy` runs like `one` stay with it; the largest share of what is allowed.
pub fn alike(one: &Trained, other: &Trained, noisy: &[Trained]) -> Result<f64, String> {
    if !finite(one) || !finite(other) {
        // The loss after which nothing is compared must be the same one, unless noise alone moves it.
        let same = |t: &Trained| t.losses.len() == one.losses.len() && finite(t) == finite(one);
        return match same(other) || !noisy.iter().all(same) {
            true => Ok(0.0),
            false => Err(format!("not finite in one: {:?} and {:?}", one.losses, other.losses)),
        };
    }
    if noisy.iter().any(|n| !finite(n)) {
        return Ok(0.0);
    }
    let mut most: f64 = 0.0;
    for (i, (a, b)) in one.losses.iter().zip(&other.losses).enumerate() {
        let spread = noisy.iter().map(|n| (n.losses[i] - a).abs()).fold(0.0, f64::max);
        let allowed = MARGIN * spread + OF_A_SUM * ROUNDING * a.abs();
        let found = (a - b).abs();
        if found > allowed {
            return Err(format!("loss {i} is {a} and {b}; {allowed:e} apart is allowed"));
        }
        most = most.max(found / allowed.max(f64::MIN_POSITIVE));
    }
    let [start, end] = &one.states;
    if *start != other.states[0] {
        return Err("another start".into());
    }
    for (i, (a, b)) in end.iter().zip(&other.states[1]).enumerate() {
        if a.dtype != DType::F32 {
            if a != b {
                return Err(format!("a counter: {a:?} and {b:?}"));
            }
            continue;
        }
        let way = |t: &Trained| moved(&t.states[0][i], &t.states[1][i]);
        let ours = way(one);
        let spread = noisy.iter().map(|n| distance(&ours, &way(n))).fold(0.0, f64::max);
        let length = distance(&floats(a), &vec![0.0; ours.len()]);
        let roundings = if is_mean(&a.name) { OF_A_SUM } else { 1.0 };
        let allowed = MARGIN * spread + roundings * ROUNDING * (one.steps + 1) as f64 * length;
        let found = distance(&ours, &way(other));
        if found > allowed {
            let far = distance(&ours, &vec![0.0; ours.len()]);
            return Err(format!("`{}` has moved by {far:e} and differs by {found:e}; {allowed:e} is allowed", a.name));
        }
        most = most.max(found / allowed.max(f64::MIN_POSITIVE));
    }
    Ok(most)
}

fn finite(t: &Trained) -> bool {
    t.losses.iter().all(|l| l.is_finite())
}

fn moved(start: &Saved, end: &Saved) -> Vec<f64> {
    floats(end).iter().zip(floats(start)).map(|(e, s)| e - s).collect()
}

/// The Euclidean length of `a - b`.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(weights: [f32; 2], loss: f64) -> Trained {
        let saved = |values: [f32; 2]| Saved {
            name: "w".into(),
            dtype: DType::F32,
            shape: vec![2],
            bytes: values.iter().flat_map(|v| v.to_ne_bytes()).collect(),
        };
        Trained { losses: vec![loss], states: [vec![saved([1.0, 1.0])], vec![saved(weights)]], steps: 3 }
    }

    #[test]
    fn a_wrong_step_is_noticed() {
        let one = run([1.1, 0.9], 2.0);
        let noisy = [run([1.100_001, 0.9], 2.000_001)];
        alike(&one, &run([1.100_002, 0.9], 2.000_002), &noisy).unwrap();
        assert!(alike(&one, &run([1.1001, 0.9], 2.0), &noisy).unwrap_err().contains("`w` has moved"));
        assert!(alike(&one, &run([1.1, 0.9], 2.0001), &noisy).unwrap_err().contains("loss 0"));
        assert!(alike(&one, &run([1.1, 0.9], f64::NAN), &noisy).unwrap_err().contains("not finite in one"));
        assert!(same_bits(&one, &noisy[0]).is_err());
    }
}
