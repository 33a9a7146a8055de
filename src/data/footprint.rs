//! The memory that a source's samples take, before they are read.

use super::{DataSpec, Field};

/// Bytes of memory for a source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprint {
    /// The samples and their targets, as long as they are used.
    pub held: usize,
    /// Extra memory while they are read.
    pub reading: usize,
    /// The photos that are decoded at a time.
    pub decoding: usize,
    /// Photos that are kept once they are decoded.
    pub cache: usize,
    /// Bytes of a disk for samples that do not lie in memory.
    pub filed: usize,
    /// More of a disk while they are read.
    pub filing: usize,
}

/// Room for what a decompressor of MNIST's files and the like holds.
pub(super) const UNPACKING: usize = 1 << 20;

impl Footprint {
    /// The memory of all samples that `spec` counts, which takes `reading` besides while they are read.
    pub(super) fn of(spec: &DataSpec, reading: usize) -> Self {
        let samples = spec.train.unwrap_or(0).saturating_add(spec.val.unwrap_or(0));
        let sample = spec.fields.iter().map(Field::bytes).fold(0, usize::saturating_add);
        Footprint { held: samples.saturating_mul(sample), reading, ..Footprint::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::synthetic::{SyntheticOptions, Task};
    use super::super::{Files, Source, footprint};
    use super::super::{open, tensors::TensorsOptions};

    #[test]
    fn footprints_are_the_bytes_that_are_held() {
        for (shape, task) in [(vec![3, 4, 5], Task::Classes(7)), (vec![9], Task::Values(2))] {
            let source = Source::Synthetic(SyntheticOptions { shape, task, samples: 40, val_samples: 11, seed: 1 });
            let set = open(&source).unwrap();
            assert_eq!(footprint(&source).held, set.train.held_bytes() + set.val.held_bytes());
        }
        let set = open(&Source::Digits).unwrap();
        assert_eq!(footprint(&Source::Digits).held, set.train.held_bytes() + set.val.held_bytes());
        assert_eq!(footprint(&Source::Mnist(Files::at("none"))).held, 70_000 * (784 + 4));
        assert_eq!(footprint(&Source::Cifar10(Files::at("none"))).held, 60_000 * (3072 + 4));
        let none = Source::Tensors(TensorsOptions { path: "none".into(), ..TensorsOptions::default() });
        assert_eq!(footprint(&none).held, 0);
    }
}
