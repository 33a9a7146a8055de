//! What the cores can do at most: multiply-adds that touch no memory.

use super::run::threads::Pool;
use super::simd::{Kernel, Simd, SimdLevel};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Multiply-adds that each chain makes between two looks at the clock.
const TURNS: usize = 1 << 18;

/// Looks at the clock; the fastest counts, as others may have been disturbed.
const ROUNDS: usize = 20;

/// Multiply-adds in `CHAINS` chains that do not depend on each other: as many as it takes to keep the units busy while
/// each result is on its way.
struct Chains<const CHAINS: usize> {
    turns: usize,
}

impl<const CHAINS: usize> Kernel for Chains<CHAINS> {
    /// Operations done, a multiply-add counted as two.
    type Output = u64;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> u64 {
        let mut sums = [s.splat(black_box(1.0)); CHAINS];
        // Towards c / (1 - m) = 1: the numbers neither grow nor vanish.
        let (m, c) = (s.splat(black_box(0.75)), s.splat(black_box(0.25)));
        for _ in 0..self.turns {
            for sum in &mut sums {
                *sum = s.fma(*sum, m, c);
            }
        }
        let mut all = s.zero();
        for sum in sums {
            all = s.add(all, sum);
        }
        black_box(s.sum(all));
        2 * (self.turns * CHAINS * S::LANES) as u64
    }
}

/// GFLOP/s of multiply-adds in registers, on all threads of `pool`.
pub fn multiply_adds(pool: &Pool, level: SimdLevel) -> f64 {
    let run = || match level {
        // Two thirds and more of 16 or 32 registers, with room for the two factors.
        SimdLevel::Avx512 | SimdLevel::Neon => level.run(Chains::<24> { turns: TURNS }),
        SimdLevel::Avx2 | SimdLevel::Scalar => level.run(Chains::<12> { turns: TURNS }),
    };
    let mut best = 0.0f64;
    for _ in 0..ROUNDS {
        let operations = AtomicU64::new(0);
        let start = Instant::now();
        pool.run(pool.threads(), |_, _| {
            operations.fetch_add(run(), Ordering::Relaxed);
        });
        best = best.max(operations.into_inner() as f64 / start.elapsed().as_secs_f64() / 1e9);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_has_a_peak() {
        let pool = Pool::new(1).unwrap();
        for level in SimdLevel::supported() {
            let peak = multiply_adds(&pool, level);
            assert!(peak.is_finite() && peak > 0.0, "{level}: {peak}");
        }
    }
}
