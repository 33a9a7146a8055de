//! The memory that a source's samples take, before they are read.

use super::{DataSpec, Field, Source, TargetSpec, cifar, digits, mnist, synthetic};
use crate::graph::DType;

/// Bytes of memory for a source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprint {
    /// The samples and their targets, as long as they are used.
    pub held: usize,
    /// What is in memory besides while they are read.
    pub reading: usize,
}

/// Room for what a decompressor of MNIST's files and the like holds.
const UNPACKING: usize = 1 << 20;
/// A record file of CIFAR-10, as read.
const CIFAR_FILE: usize = 30_730_000;
/// What unpacking `xz` takes, by its largest preset.
const XZ: usize = 65 << 20;

/// What `source` takes. Sets that are known need not be there; of tensors the file's size is looked at. Sets in a known
/// format with another number of samples take another amount: that is known when they have been read.
pub fn footprint(source: &Source) -> Footprint {
    match source {
        Source::Mnist(_) => Footprint { held: held(&mnist::spec(mnist::Variant::Digits)), reading: UNPACKING },
        Source::FashionMnist(_) => Footprint { held: held(&mnist::spec(mnist::Variant::Fashion)), reading: UNPACKING },
        Source::Cifar10(files) => {
            // An archive is unpacked before the samples are held, if it can be. Vectors that grow may hold twice their content.
            let reading = if cifar::is_unpacked(files) { CIFAR_FILE } else { 2 * CIFAR_FILE + XZ };
            Footprint { held: held(&cifar::spec()), reading }
        }
        Source::Digits => Footprint { held: held(&digits::spec()), reading: UNPACKING },
        Source::Tensors(options) => {
            let bytes = std::fs::metadata(&options.path).map_or(0, |m| m.len());
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            // Labels are read as 64-bit numbers, whatever they become.
            Footprint { held: bytes, reading: bytes / 8 + UNPACKING }
        }
        Source::Synthetic(options) => match synthetic::spec(options) {
            Ok(spec) => Footprint { held: held(&spec), reading: patterns(&spec) },
            Err(_) => Footprint::default(),
        },
    }
}

/// The bytes of the samples that `spec` counts.
fn held(spec: &DataSpec) -> usize {
    let samples = spec.train.unwrap_or(0).saturating_add(spec.val.unwrap_or(0));
    samples.saturating_mul(spec.fields.iter().map(Field::bytes).fold(0, usize::saturating_add))
}

/// The table that made-up samples are made with.
fn patterns(spec: &DataSpec) -> usize {
    let rows = match &spec.targets {
        TargetSpec::Classes(n) => *n,
        TargetSpec::Values => spec.target().map_or(0, |(_, field)| field.shape.len()),
    };
    let elements = spec.only_input().map_or(0, |field| field.shape.len());
    rows.saturating_mul(elements).saturating_mul(DType::F32.bytes())
}

#[cfg(test)]
mod tests {
    use super::super::Files;
    use super::super::synthetic::{SyntheticOptions, Task};
    use super::super::{open, tensors::TensorsOptions};
    use super::*;

    #[test]
    fn what_is_told_is_what_is_held() {
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
