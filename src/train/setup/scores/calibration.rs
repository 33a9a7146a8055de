//! How far confidence and accuracy differ.

/// Bins of equal width between 0 and 1, as in the paper.
const BINS: usize = 15;

/// Sums for each bin of confidence (Guo et al. 2017, "On Calibration of Modern Neural Networks", equations 2 and 3). A bin has its
/// upper end, not its lower one.
#[derive(Debug, Clone, Default)]
pub struct Calibration {
    bins: [Bin; BINS],
}

#[derive(Debug, Clone, Copy, Default)]
struct Bin {
    count: u64,
    right: u64,
    confidence: f64,
}

impl Calibration {
    /// Takes the probability of what is predicted, and whether it is right.
    pub fn add(&mut self, confidence: f64, right: bool) {
        let above = (1..BINS).filter(|k| confidence > *k as f64 / BINS as f64).count();
        let bin = &mut self.bins[above];
        bin.count += 1;
        bin.right += u64::from(right);
        bin.confidence += confidence;
    }

    /// The mean over all samples of the difference between the accuracy and the mean confidence of their bins.
    pub fn error(&self) -> f64 {
        let count: u64 = self.bins.iter().map(|bin| bin.count).sum();
        let gaps: f64 = self.bins.iter().map(|bin| (bin.right as f64 - bin.confidence).abs()).sum();
        gaps / count as f64
    }
}
