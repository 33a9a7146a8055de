//! How long a section takes, by what its nodes read, write and compute, and the sections of which all together take the least time.
//!
//! The constants are those of a core with 1 MiB of second-level cache and some MiB of the third level, beside others that use the same memory. They only
//! need to show whether what a layer writes comes from a cache or from memory, which differ by three times and more.

use std::ops::Range;

/// What a node has to do for a whole batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    /// It can be done in parts.
    pub splits: bool,
    /// Bytes that it reads and writes of samples.
    pub samples: usize,
    /// Bytes that it reads of everything else.
    pub weights: usize,
    /// Floating-point operations.
    pub flops: u64,
    /// Rows of what it writes: pixels, of images.
    pub rows: usize,
    /// The number of samples of a part is a multiple of this one.
    pub least: usize,
    /// Bytes of samples that were made before and are read by it or later.
    pub live: usize,
}

/// Nodes that run one after the other for one of `parts` parts of the batch, and so for all parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Which.
    pub nodes: Range<usize>,
    /// How many.
    pub parts: usize,
}

/// Bytes that stay in the second-level cache until the next node reads them.
const NEAR: f64 = 2.0 * 1024.0 * 1024.0;
/// Bytes of which nothing is left in any cache.
const FAR: f64 = 24.0 * 1024.0 * 1024.0;
/// Bytes a nanosecond, read or written near and far.
const RATES: [f64; 2] = [50.0, 12.0];
/// Operations a nanosecond.
const FLOPS: f64 = 250.0;
/// Rows that are lost at the edges, where threads and tiles share out the rows of a node.
const EDGE: f64 = 64.0;
/// Samples of a part, at least: threads share out what one has less well than what two have.
const FEWEST: usize = 2;
/// Nanoseconds until all threads have begun and ended.
const START: f64 = 4000.0;
/// Parts must save this share of the time: less may be none.
const GAIN: f64 = 0.03;

/// The least number of samples of `bytes` bytes of which a part consists, or a multiple of them, where each begins at a multiple of `line` bytes.
pub fn least(bytes: usize, line: usize) -> usize {
    (1..=line).find(|n| (n * bytes).is_multiple_of(line)).unwrap_or(line)
}

/// Bytes a nanosecond of what is read `bytes` bytes after it was written.
fn rate(bytes: f64) -> f64 {
    let [near, far] = RATES;
    let share = ((bytes.max(1.0) / NEAR).ln() / (FAR / NEAR).ln()).clamp(0.0, 1.0);
    near + (far - near) * share
}

impl Work {
    /// Nanoseconds in `parts` parts, and all parts together; `None` if that cannot be. Weights that are read once more come from where `all_weights` bytes of them stay.
    fn time(&self, samples: usize, parts: usize, all_weights: f64) -> Option<f64> {
        if parts > 1 && (!self.splits || !(samples / parts).is_multiple_of(self.least)) {
            return None;
        }
        if self.samples == 0 {
            return Some(0.0);
        }
        let count = parts as f64;
        let bytes = self.samples as f64 / count;
        let edge = 1.0 + EDGE * count / self.rows.max(1) as f64;
        let weights = self.weights as f64 * (1.0 / RATES[1] + (count - 1.0) / rate(all_weights));
        Some(count * (START + bytes / rate(bytes)) + self.flops as f64 / FLOPS * edge + weights)
    }

    /// Nanoseconds that it costs to begin a section here, beside what the nodes take: what is alive is written and read far from each other.
    fn cut(&self) -> f64 {
        let bytes = self.live as f64;
        2.0 * bytes * (1.0 / rate(bytes) - 1.0 / RATES[0])
    }
}

/// The sections of nodes with this work on so many samples that take the least time, by dynamic programming over the number of parts of each node.
pub fn sections(work: &[Work], samples: usize) -> Vec<Section> {
    let fits = |parts: &usize| *parts == 1 || samples.is_multiple_of(*parts) && samples / parts >= FEWEST;
    let parts: Vec<usize> = (1..=samples).filter(fits).collect();
    let weights: f64 = work.iter().map(|node| node.weights as f64).sum();
    // For every node and number of parts: the least time up to it, and the number before.
    let mut best: Vec<Vec<(f64, usize)>> = Vec::with_capacity(work.len());
    for node in work {
        let before = best.last();
        let least = before
            .and_then(|before| before.iter().map(|(time, _)| *time).enumerate().min_by(|a, b| a.1.total_cmp(&b.1)));
        let of = |(number, parts): (usize, &usize)| {
            let Some(own) = node.time(samples, *parts, weights) else { return (f64::INFINITY, number) };
            let (Some(before), Some((other, least))) = (before, least) else { return (own, number) };
            let (stay, change) = (before[number].0, least + node.cut());
            if stay <= change { (stay + own, number) } else { (change + own, other) }
        };
        best.push(parts.iter().enumerate().map(of).collect());
    }
    let whole: f64 = work.iter().filter_map(|node| node.time(samples, 1, weights)).sum();
    let last = best.last().and_then(|last| last.iter().enumerate().min_by(|a, b| a.1.0.total_cmp(&b.1.0)));
    let Some((mut number, (time, _))) = last else { return Vec::new() };
    if *time > (1.0 - GAIN) * whole {
        return vec![Section { nodes: 0..work.len(), parts: 1 }];
    }
    let mut sections: Vec<Section> = Vec::new();
    for (at, times) in best.iter().enumerate().rev() {
        match sections.last_mut() {
            Some(section) if section.parts == parts[number] => section.nodes.start = at,
            _ => sections.push(Section { nodes: at..at + 1, parts: parts[number] }),
        }
        number = times[number].1;
    }
    sections.reverse();
    sections
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: usize = 1 << 20;

    fn work(samples: usize, weights: usize) -> Work {
        Work { splits: true, samples, weights, flops: 0, rows: 100_000, least: 1, live: samples / 2 }
    }

    fn parts(work: &[Work], samples: usize) -> Vec<usize> {
        let of = |section: Section| section.nodes.map(move |_| section.parts);
        sections(work, samples).into_iter().flat_map(of).collect()
    }

    fn time(work: &[Work], samples: usize, parts: &[usize]) -> Option<f64> {
        let weights = work.iter().map(|work| work.weights as f64).sum();
        let own: Option<Vec<f64>> =
            work.iter().zip(parts).map(|(work, parts)| work.time(samples, *parts, weights)).collect();
        let cuts = work[1..].iter().zip(parts.windows(2)).filter(|(_, parts)| parts[0] != parts[1]);
        Some(own?.iter().sum::<f64>() + cuts.map(|(work, _)| work.cut()).sum::<f64>())
    }

    #[test]
    fn large_images_go_through_in_parts_and_large_weights_once() {
        let layers = [vec![work(64 * MIB, 0); 6], vec![work(MIB, 16 * MIB); 6]].concat();
        let parts = parts(&layers, 16);
        assert!(parts[..6].iter().all(|parts| *parts >= 4), "{parts:?}");
        assert!(parts[6..].iter().all(|parts| *parts == 1), "{parts:?}");
        // A layer that needs the whole batch.
        let mut layers = vec![work(64 * MIB, 0); 7];
        layers[3].splits = false;
        let parts = self::parts(&layers, 16);
        assert!(parts[0] > 1 && parts[3] == 1 && parts[6] > 1, "{parts:?}");
    }

    #[test]
    fn little_is_not_divided() {
        assert_eq!(sections(&[work(MIB, 0); 5], 16), [Section { nodes: 0..5, parts: 1 }]);
        assert_eq!(sections(&[], 16), []);
        // A prime number has no parts.
        assert_eq!(parts(&[work(64 * MIB, 0); 3], 13), [1; 3]);
        assert_eq!(parts(&[work(64 * MIB, 0); 3], 2), [1; 3]);
    }

    #[test]
    fn parts_begin_at_cache_lines() {
        assert_eq!([64, 128, 32, 48, 1, 100].map(|bytes| least(bytes, 64)), [1, 1, 2, 4, 64, 16]);
        let layers = [Work { least: 8, ..work(32 * MIB, 0) }; 3];
        assert_eq!(parts(&layers, 16), [2; 3]);
        assert_eq!(parts(&layers, 12), [1; 3]);
    }

    proptest! {
        /// All ways to divide three layers, which are few.
        #[test]
        fn no_other_sections_take_less(sizes in prop::collection::vec((0usize..80, 0usize..8, 0u64..1000), 3)) {
            let layers: Vec<Work> = sizes
                .into_iter()
                .map(|(samples, weights, flops)| Work { flops: flops * 1_000_000, ..work(samples * MIB, weights * MIB) })
                .collect();
            let found = time(&layers, 8, &parts(&layers, 8)).unwrap();
            for a in [1, 2, 4] {
                for b in [1, 2, 4] {
                    for c in [1, 2, 4] {
                        let other = time(&layers, 8, &[a, b, c]).unwrap();
                        prop_assert!(found <= other * (1.0 + 1e-9) / (1.0 - GAIN), "{found} {other}: {a} {b} {c}");
                    }
                }
            }
        }
    }
}
