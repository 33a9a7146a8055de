//! Made-up samples that can be learnt: for tests, timing, and configurations without data.

use super::{DataSpec, Dataset, Inputs, Split, TargetSpec, Targets};
use crate::graph::{DType, Shape};
use crate::random::{Purpose, Stream};
use anyhow::{Result, ensure};

/// What is to be learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// To tell this many classes apart.
    Classes(usize),
    /// To find this many real values.
    Values(usize),
}

/// The made-up set.
#[derive(Debug, Clone, PartialEq)]
pub struct SyntheticOptions {
    /// Shape of one sample in PyTorch's order: `[C, H, W]` for an image, `[F]` for a vector.
    pub shape: Vec<usize>,
    /// What is to be learnt.
    pub task: Task,
    /// Number of training samples.
    pub samples: usize,
    /// Number of test samples.
    pub val_samples: usize,
    /// Keys the draws.
    pub seed: u64,
}

/// Standard deviation of what is added to a class's pattern, whose own is 1.
const PATTERN_NOISE: f64 = 0.7;
/// Standard deviation of what is added to a value, whose own is 1.
const VALUE_NOISE: f64 = 0.1;

/// Independent sequences of draws.
mod stream {
    pub const PATTERNS: u64 = 0;
    pub const WEIGHTS: u64 = 1;
    pub const TRAIN: u64 = 2;
    pub const VAL: u64 = 3;
}

/// What the samples look like: images are bytes, as real ones are; vectors are floats.
///
/// # Errors
/// The shape is neither that of an image nor that of a vector, or something is empty or too large.
pub fn spec(options: &SyntheticOptions) -> Result<DataSpec> {
    let (input, dtype): (Shape, DType) = match options.shape[..] {
        [f] => ([f].into(), DType::F32),
        [c, h, w] => ([h, w, c].into(), DType::U8),
        _ => {
            let shape = Shape::from(options.shape.clone());
            anyhow::bail!("synthetic samples of shape {shape}: must be [F] for vectors or [C, H, W] for images")
        }
    };
    let elements = options.shape.iter().try_fold(1usize, |p, d| p.checked_mul(*d)).unwrap_or(usize::MAX);
    ensure!(elements > 0, "synthetic samples of shape {input} have no element");
    ensure!(options.samples > 0, "a synthetic set needs one sample at least");
    let (targets, patterns) = match options.task {
        Task::Classes(n) => (TargetSpec::Classes(n), n),
        Task::Values(n) => (TargetSpec::Values([n].into()), n),
    };
    ensure!(patterns > 0, "a synthetic set needs one class or one value at least");
    let largest = options.samples.max(options.val_samples).max(patterns);
    ensure!(
        i32::try_from(largest).is_ok() && elements.checked_mul(largest).is_some_and(|n| n <= 1 << 38),
        "a synthetic set of {} samples (and {} to test on) of {elements} elements is too large",
        options.samples,
        options.val_samples
    );
    Ok(DataSpec {
        input,
        dtype,
        targets,
        classes_exact: true,
        class_names: None,
        train: Some(options.samples),
        val: Some(options.val_samples),
    })
}

/// Makes the set. Classes: a normal pattern for each class, the same for both splits, plus noise. Values: a linear map
/// of normal samples, plus noise.
///
/// # Errors
/// As [`spec`].
pub fn open(options: &SyntheticOptions) -> Result<Dataset> {
    let spec = spec(options)?;
    let elements = spec.input.len();
    let (purpose, rows) = match options.task {
        Task::Classes(n) => (stream::PATTERNS, n),
        Task::Values(n) => (stream::WEIGHTS, n),
    };
    let mut table = vec![0f32; rows * elements];
    for (i, row) in table.chunks_exact_mut(elements).enumerate() {
        let mut draws = Stream::new(options.seed, Purpose::Synthetic, purpose, i as u64);
        row.iter_mut().for_each(|v| *v = draws.normal() as f32);
    }
    let train = make(options, &spec, &table, stream::TRAIN, options.samples)?;
    let val = make(options, &spec, &table, stream::VAL, options.val_samples)?;
    Ok(Dataset::new(spec, train, val))
}

fn make(options: &SyntheticOptions, spec: &DataSpec, table: &[f32], purpose: u64, n: usize) -> Result<Split> {
    let elements = spec.input.len();
    let mut sample = vec![0f32; elements];
    let mut inputs = match spec.dtype {
        DType::U8 => Inputs::Bytes(Vec::with_capacity(n * elements)),
        _ => Inputs::Floats(Vec::with_capacity(n * elements)),
    };
    let mut targets = match options.task {
        Task::Classes(_) => Targets::Classes(Vec::with_capacity(n)),
        Task::Values(values) => Targets::Values(Vec::with_capacity(n * values)),
    };
    for i in 0..n {
        let mut draws = Stream::new(options.seed, Purpose::Synthetic, purpose, i as u64);
        match &mut targets {
            Targets::Classes(labels) => {
                let label = draws.below((table.len() / elements) as u32);
                labels.push(label as i32);
                let pattern = &table[label as usize * elements..][..elements];
                for (x, p) in sample.iter_mut().zip(pattern) {
                    *x = p + (PATTERN_NOISE * draws.normal()) as f32;
                }
            }
            Targets::Values(values) => {
                sample.iter_mut().for_each(|x| *x = draws.normal() as f32);
                let scale = 1.0 / (elements as f64).sqrt();
                for row in table.chunks_exact(elements) {
                    let dot: f64 = row.iter().zip(&sample).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
                    values.push((dot * scale + VALUE_NOISE * draws.normal()) as f32);
                }
            }
        }
        match &mut inputs {
            // Three standard deviations of the sum of pattern and noise on either side of the middle.
            Inputs::Bytes(bytes) => bytes.extend(sample.iter().map(|x| (127.5 + 35.0 * x).round() as u8)),
            Inputs::Floats(floats) => floats.extend_from_slice(&sample),
        }
    }
    Split::new(inputs, targets, spec.input.clone(), spec.targets.shape(), n)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(shape: &[usize], task: Task) -> SyntheticOptions {
        SyntheticOptions { shape: shape.to_vec(), task, samples: 200, val_samples: 40, seed: 5 }
    }

    fn floats(bytes: &[u8]) -> Vec<f32> {
        bytes.chunks(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect()
    }

    #[test]
    fn classes_can_be_told_apart() {
        let set = open(&options(&[2, 5, 4], Task::Classes(4))).unwrap();
        assert_eq!(set.spec.input, [5, 4, 2].into());
        // Nearest mean of the training set, on the test set.
        let mut means = vec![[0f64; 41]; 4];
        for i in 0..set.train.len() {
            let m = &mut means[set.train.label(i).unwrap() as usize];
            set.train.input(i).iter().enumerate().for_each(|(e, x)| m[e] += f64::from(*x));
            m[40] += 1.0;
        }
        let distance = |m: &[f64; 41], x: &[u8]| -> f64 {
            x.iter().enumerate().map(|(e, v)| (f64::from(*v) - m[e] / m[40]).powi(2)).sum()
        };
        let right = (0..40)
            .filter(|i| {
                let x = set.val.input(*i);
                let best = (0..4).min_by(|a, b| distance(&means[*a], x).total_cmp(&distance(&means[*b], x)));
                best == set.val.label(*i).map(|l| l as usize)
            })
            .count();
        assert!(right >= 38, "{right} of 40");
    }

    #[test]
    fn values_are_linear_but_for_noise() {
        let o = options(&[1], Task::Values(2));
        let set = open(&o).unwrap();
        assert_eq!(set.spec.targets, TargetSpec::Values([2].into()));
        // One input: y = w x + noise, so the correlation of x and y is all but ±1 unless w is tiny.
        let (mut xx, mut xy) = (0.0, 0.0);
        let pairs: Vec<_> = (0..200).map(|i| (floats(set.train.input(i))[0], floats(set.train.target(i))[0])).collect();
        pairs.iter().for_each(|(x, y)| (xx, xy) = (xx + x * x, xy + x * y));
        let residual = pairs.iter().map(|(x, y)| (y - xy / xx * x).powi(2)).sum::<f32>() / 200.0;
        assert!((0.005..0.02).contains(&residual), "{residual}");
    }

    #[test]
    fn seeds_and_splits_differ_and_repeat() {
        let o = options(&[3], Task::Classes(2));
        let (a, b) = (open(&o).unwrap(), open(&o).unwrap());
        assert_eq!(a.train.input(7), b.train.input(7));
        assert_ne!(a.train.input(7), a.val.input(7));
        let c = open(&SyntheticOptions { seed: 6, ..o }).unwrap();
        assert_ne!(a.train.input(7), c.train.input(7));
    }

    #[test]
    fn senseless_options_are_refused() {
        for (shape, task, samples) in [
            (&[2usize, 2][..], Task::Classes(2), 1),
            (&[0], Task::Classes(2), 1),
            (&[4], Task::Classes(0), 1),
            (&[4], Task::Values(0), 1),
            (&[4], Task::Values(1), 0),
            (&[usize::MAX, 2, 2], Task::Values(1), 1),
            (&[1 << 30, 2, 2], Task::Values(1), 1 << 30),
        ] {
            assert!(spec(&SyntheticOptions { samples, ..options(shape, task) }).is_err(), "{shape:?} {task:?}");
        }
    }
}
