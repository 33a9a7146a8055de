//! Synthetic samples that can be learnt: for tests, timing, and configurations without data.

use super::progress::Event;
use super::{DataSpec, Dataset, Describes, Footprint, Split, Values};
use crate::graph::{DType, Shape};
use crate::random::{Purpose, Stream};
use anyhow::{Result, ensure};

/// The task to learn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// To distinguish this many classes.
    Classes(usize),
    /// To find this many real values.
    Values(usize),
}

/// The options of the synthetic set.
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

impl Describes for &SyntheticOptions {
    fn describe(&self) -> Result<DataSpec> {
        spec(self)
    }

    fn open(&self, _: &mut dyn FnMut(Event)) -> Result<Dataset> {
        open(self)
    }

    fn footprint(&self) -> Footprint {
        let Ok(spec) = spec(self) else { return Footprint::default() };
        let (Task::Classes(rows) | Task::Values(rows)) = self.task;
        // The table that samples are made with.
        let table = rows.saturating_mul(spec.fields[0].shape.len()).saturating_mul(DType::F32.bytes());
        Footprint::of(&spec, table)
    }
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
    let (spec, patterns) = match options.task {
        Task::Classes(n) => (DataSpec::labelled(dtype, input.clone(), n), n),
        Task::Values(n) => (DataSpec::valued(dtype, input.clone(), [n]), n),
    };
    ensure!(patterns > 0, "a synthetic set needs one class or one value at least");
    let largest = options.samples.max(options.val_samples).max(patterns);
    ensure!(
        i32::try_from(largest).is_ok() && elements.checked_mul(largest).is_some_and(|n| n <= 1 << 38),
        "a synthetic set of {} samples (and {} to test on) of {elements} elements is too large",
        options.samples,
        options.val_samples
    );
    Ok(DataSpec { train: Some(options.samples), val: Some(options.val_samples), ..spec })
}

/// Makes the set. Classes: a normal pattern for each class, the same for both splits, plus noise. Values: a linear map
/// of normal samples, plus noise.
///
/// # Errors
/// As [`spec`].
pub fn open(options: &SyntheticOptions) -> Result<Dataset> {
    let spec = spec(options)?;
    let elements = spec.fields[0].shape.len();
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
    let (input, target) = (&spec.fields[0], &spec.fields[1]);
    let elements = input.shape.len();
    let mut sample = vec![0f32; elements];
    let mut bytes = Vec::with_capacity(if input.dtype == DType::U8 { n * elements } else { 0 });
    let mut floats = Vec::with_capacity(if input.dtype == DType::U8 { 0 } else { n * elements });
    let mut labels = Vec::with_capacity(if target.dtype == DType::I32 { n } else { 0 });
    let mut values = Vec::with_capacity(if target.dtype == DType::I32 { 0 } else { n * target.shape.len() });
    for i in 0..n {
        let mut draws = Stream::new(options.seed, Purpose::Synthetic, purpose, i as u64);
        match options.task {
            Task::Classes(_) => {
                let label = draws.below((table.len() / elements) as u32);
                labels.push(label as i32);
                let pattern = &table[label as usize * elements..][..elements];
                for (x, p) in sample.iter_mut().zip(pattern) {
                    *x = p + (PATTERN_NOISE * draws.normal()) as f32;
                }
            }
            Task::Values(_) => {
                sample.iter_mut().for_each(|x| *x = draws.normal() as f32);
                let scale = 1.0 / (elements as f64).sqrt();
                for row in table.chunks_exact(elements) {
                    let dot: f64 = row.iter().zip(&sample).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
                    values.push((dot * scale + VALUE_NOISE * draws.normal()) as f32);
                }
            }
        }
        match input.dtype {
            // Three standard deviations of the sum of pattern and noise on either side of the middle.
            DType::U8 => bytes.extend(sample.iter().map(|x| (127.5 + 35.0 * x).round() as u8)),
            _ => floats.extend_from_slice(&sample),
        }
    }
    let inputs = if input.dtype == DType::U8 { Values::Bytes(bytes) } else { Values::Floats(floats) };
    let targets = if target.dtype == DType::I32 { Values::Ints(labels) } else { Values::Floats(values) };
    Split::in_memory(vec![(input.clone(), inputs), (target.clone(), targets)], n)
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
    fn classes_can_be_distinguished() {
        let set = open(&options(&[2, 5, 4], Task::Classes(4))).unwrap();
        assert_eq!(set.spec.fields[0].shape, [5, 4, 2].into());
        // Nearest mean of the training set, on the test set.
        let mut means = vec![[0f64; 41]; 4];
        for i in 0..set.train.len() {
            let m = &mut means[set.train.label(i).unwrap() as usize];
            set.train.bytes(i, 0).unwrap().iter().enumerate().for_each(|(e, x)| m[e] += f64::from(*x));
            m[40] += 1.0;
        }
        let distance = |m: &[f64; 41], x: &[u8]| -> f64 {
            x.iter().enumerate().map(|(e, v)| (f64::from(*v) - m[e] / m[40]).powi(2)).sum()
        };
        let right = (0..40)
            .filter(|i| {
                let x = set.val.bytes(*i, 0).unwrap();
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
        assert_eq!(set.spec, DataSpec { train: Some(200), val: Some(40), ..DataSpec::valued(DType::F32, [1], [2]) });
        // One input: y = w x + noise, so the correlation of x and y is all but ±1 unless w is tiny.
        let (mut xx, mut xy) = (0.0, 0.0);
        let first = |i: usize, field: usize| floats(set.train.bytes(i, field).unwrap())[0];
        let pairs: Vec<_> = (0..200).map(|i| (first(i, 0), first(i, 1))).collect();
        pairs.iter().for_each(|(x, y)| (xx, xy) = (xx + x * x, xy + x * y));
        let residual = pairs.iter().map(|(x, y)| (y - xy / xx * x).powi(2)).sum::<f32>() / 200.0;
        assert!((0.005..0.02).contains(&residual), "{residual}");
    }

    #[test]
    fn seeds_and_splits_differ_and_repeat() {
        let o = options(&[3], Task::Classes(2));
        let (a, b) = (open(&o).unwrap(), open(&o).unwrap());
        assert_eq!(a.train.bytes(7, 0), b.train.bytes(7, 0));
        assert_ne!(a.train.bytes(7, 0), a.val.bytes(7, 0));
        let c = open(&SyntheticOptions { seed: 6, ..o }).unwrap();
        assert_ne!(a.train.bytes(7, 0), c.train.bytes(7, 0));
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
