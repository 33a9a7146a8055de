//! Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror & Shaw, "Parallel random numbers: as easy as
//! 1, 2, 3", SC 2011). A draw is a pure function of a key and a counter, so it depends neither on threads nor on what
//! was drawn before, and a run that resumes draws what it would have drawn.

/// The purpose of draws: draws for different purposes are independent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Purpose {
    /// Initial values of parameters; stream: hash of the parameter's name.
    Init = 1,
    /// Order of the samples of an epoch; stream: epoch.
    Shuffle = 2,
    /// Augmentation of a sample; stream: epoch, index: sample.
    Augment = 3,
    /// Dropout masks; stream: layer, index: micro-step.
    Dropout = 4,
    /// Synthetic data.
    Synthetic = 5,
    /// Which samples go to the validation split.
    Split = 6,
    /// How the samples of a batch are mixed; stream: epoch, index: batch.
    Mix = 7,
    /// Values of the trials of a sweep; stream: hash of the key, index: number of the trial.
    Sweep = 8,
    /// Tokens that a language model chooses; stream: number of the text, index: number of the token.
    Generate = 9,
    /// How the cells of a column are shuffled among rows; stream: number of the column, index: number of the shuffle.
    Explain = 10,
}

/// Ten rounds of Philox4x32 on `counter` under `key`.
#[inline(always)]
pub fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let [mut c0, mut c1, mut c2, mut c3] = counter;
    let [mut k0, mut k1] = key;
    for _ in 0..10 {
        let p0 = 0xD251_1F53_u64 * c0 as u64;
        let p1 = 0xCD9E_8D57_u64 * c2 as u64;
        (c0, c1, c2, c3) = ((p1 >> 32) as u32 ^ c1 ^ k0, p1 as u32, (p0 >> 32) as u32 ^ c3 ^ k1, p0 as u32);
        k0 = k0.wrapping_add(0x9E37_79B9);
        k1 = k1.wrapping_add(0xBB67_AE85);
    }
    [c0, c1, c2, c3]
}

/// A reader of one sequence of draws: that of `(seed, purpose, stream, index)`.
#[derive(Debug, Clone)]
pub struct Stream {
    key: [u32; 2],
    base: [u32; 3],
    at: u32,
    buffer: [u32; 4],
}

impl Stream {
    /// The sequence for `purpose`. `index` is cut to 32 bits.
    pub fn new(seed: u64, purpose: Purpose, stream: u64, index: u64) -> Self {
        // Purpose and stream are mixed into the key by one application of the generator, so that four words of counter
        // are left for the index and the position.
        let mixed = philox(
            [purpose as u32, stream as u32, (stream >> 32) as u32, (index >> 32) as u32],
            [seed as u32, (seed >> 32) as u32],
        );
        Stream { key: [mixed[0], mixed[1]], base: [index as u32, mixed[2], mixed[3]], at: 0, buffer: [0; 4] }
    }

    /// 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        if self.at.is_multiple_of(4) {
            self.buffer = philox([self.at / 4, self.base[0], self.base[1], self.base[2]], self.key);
        }
        let x = self.buffer[(self.at % 4) as usize];
        self.at = self.at.wrapping_add(1);
        x
    }

    /// Uniform on `[0, 1)` with 24 bits.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u32() >> 8) as f64 / (1u64 << 24) as f64
    }

    /// Uniform on `0 .. n`, without bias (Lemire 2019).
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn below(&mut self, n: u32) -> u32 {
        assert!(n > 0);
        loop {
            let m = self.next_u32() as u64 * n as u64;
            if m as u32 >= n.wrapping_neg() % n {
                return (m >> 32) as u32;
            }
        }
    }

    /// Standard normal (Box & Muller 1958).
    pub fn normal(&mut self) -> f64 {
        // In (0, 1], so that the logarithm is finite.
        let u = (self.next_u32() as f64 + 1.0) / (1u64 << 32) as f64;
        let v = self.next_u32() as f64 / (1u64 << 32) as f64;
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// The beta distribution with both parameters `alpha`, which is above 0: one of two gamma variates, as a share of their sum. Those
    /// are of Marsaglia & Tsang (2000), in logarithms, so that a small `alpha` leaves numbers that can be compared.
    pub fn beta(&mut self, alpha: f64) -> f64 {
        let (a, b) = (self.log_gamma(alpha), self.log_gamma(alpha));
        1.0 / (1.0 + (b - a).exp())
    }

    /// The logarithm of a gamma variate: one of `alpha + 1`, times a power of a uniform number.
    fn log_gamma(&mut self, alpha: f64) -> f64 {
        let d = alpha + 1.0 - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        // In (0, 1], so that logarithms are finite.
        let uniform = |s: &mut Self| (s.next_u32() as f64 + 1.0) / (1u64 << 32) as f64;
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && uniform(self).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return (d * v).ln() + uniform(self).ln() / alpha;
            }
        }
    }

    /// Fisher–Yates.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            list.swap(i, self.below(i as u32 + 1) as usize);
        }
    }
}

/// A stable 64-bit hash of a name (FNV-1a), for streams that belong to a name.
pub fn hash_name(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ b as u64).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The four draws that decide elements `4 i .. 4 i + 4` of a dropout mask. `random` is the step's key
/// ([`crate::graph::Input::Random`]): seed (low, high), micro-step (low, high).
#[inline(always)]
pub fn dropout_draws(random: [u32; 4], stream: u32, i: u64) -> [u32; 4] {
    // The micro-step's high word shares a counter word with the purpose: more than 2^59 steps are not a concern.
    philox(
        [i as u32, (i >> 32) as u32 ^ (stream << 8), random[2], random[3] ^ ((Purpose::Dropout as u32) << 27)],
        [random[0], random[1]],
    )
}

/// Which draws decide a weight of an attention: `i` for [`dropout_draws`], and the word of the four. The weight is that of
/// column `column` in row `row` of all rows (`[N, heads, L]`) of `length` columns. Columns are taken 64 at a time, of which
/// neighbours have the same word of neighbouring draws, as vectors have them side by side.
#[inline(always)]
pub fn attention_draw(row: usize, length: usize, column: usize) -> (u64, usize) {
    let quads = (row as u64 * length.div_ceil(64) as u64 + column as u64 / 64) * 16;
    (quads + column as u64 % 16, column / 16 % 4)
}

/// True if a draw keeps its element, for the dropout probability `p`: an integer comparison, the same on every device.
#[inline(always)]
pub fn dropout_keeps(draw: u32, p: f32) -> bool {
    draw >= dropout_threshold(p)
}

/// Draws below this number drop their element.
#[inline(always)]
pub fn dropout_threshold(p: f32) -> u32 {
    (p as f64 * 4294967296.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_matches_the_published_vectors() {
        // Known-answer tests of Random123 (kat_vectors, philox4x32 10).
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn streams_differ_and_moments_are_right() {
        let mut a = Stream::new(1, Purpose::Init, 7, 0);
        let mut b = Stream::new(1, Purpose::Init, 8, 0);
        assert_ne!([a.next_u32(), a.next_u32()], [b.next_u32(), b.next_u32()]);
        let n = 20_000;
        let x: Vec<f64> = (0..n).map(|_| a.normal()).collect();
        let mean = x.iter().sum::<f64>() / n as f64;
        let var = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
        assert!(mean.abs() < 0.03 && (var - 1.0).abs() < 0.05, "{mean} {var}");
    }

    /// Variance, and the share below a tenth (of the regularised incomplete beta function).
    #[test]
    #[cfg_attr(miri, ignore = "plain arithmetic, which takes Miri half an hour")]
    fn shares_are_of_the_beta_distribution() {
        for (alpha, below) in [(0.2, 0.3367), (1.0, 0.1), (4.0, 0.002728)] {
            let mut s = Stream::new(1, Purpose::Mix, 0, 0);
            let x: Vec<f64> = (0..20_000).map(|_| s.beta(alpha)).collect();
            let n = x.len() as f64;
            let mean = x.iter().sum::<f64>() / n;
            let var = x.iter().map(|v| (v - 0.5).powi(2)).sum::<f64>() / n;
            let low = x.iter().filter(|v| **v < 0.1).count() as f64 / n;
            // Four standard errors.
            let error = 4.0 * (below * (1.0 - below) / n).sqrt();
            assert!((mean - 0.5).abs() < 0.013 && (var * 4.0 * (2.0 * alpha + 1.0) - 1.0).abs() < 0.05, "{mean} {var}");
            assert!((low - below).abs() < error, "{alpha}: {low}, not {below}");
        }
        // Nearly always one of the two alone.
        let mut s = Stream::new(1, Purpose::Mix, 0, 0);
        assert!((0..100).map(|_| s.beta(1e-6)).all(|v| v.min(1.0 - v) < 1e-6));
    }

    #[test]
    fn dropout_rate_is_p() {
        let dropped =
            (0..10_000).flat_map(|i| dropout_draws([1, 0, 5, 0], 2, i)).filter(|d| !dropout_keeps(*d, 0.3)).count();
        assert!((dropped as f64 / 40_000.0 - 0.3).abs() < 0.01);
    }
}
