//! What variables start with.

/// How a variable is initialised: the value of every element, or the distribution that they are drawn from. Elements are
/// drawn in the *outside* order (PyTorch's layout), so that the initial values do not depend on the layout inside.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fill {
    /// The same number everywhere.
    Constant(f64),
    /// Uniform on `[-bound, bound)`.
    Uniform {
        /// Half the width of the interval.
        bound: f64,
    },
    /// Uniform on `[low, high)`.
    Between {
        /// The least number.
        low: f64,
        /// The end of the interval.
        high: f64,
    },
    /// Normal.
    Normal {
        /// Mean.
        mean: f64,
        /// Standard deviation, above 0.
        std: f64,
    },
    /// Normal with mean 0, cut at both ends of `[low, high]`, which has 0 in it.
    TruncatedNormal {
        /// Standard deviation before the cut, above 0.
        std: f64,
        /// The least number.
        low: f64,
        /// The largest number.
        high: f64,
    },
    /// Rows of normally distributed numbers, of which one is 0 (`padding_idx` of an embedding).
    NormalRows {
        /// Standard deviation, above 0.
        std: f64,
        /// Numbers of a row.
        width: usize,
        /// The row of zeros.
        zeros: usize,
    },
    /// Rows of normally distributed numbers with mean 0 and standard deviation 1. The first numbers of a row are in runs of one draw each.
    NormalRuns {
        /// Numbers of a row.
        width: usize,
        /// How many numbers have a draw together.
        run: usize,
        /// How many numbers of a row are in runs; those after have draws of their own.
        until: usize,
    },
    /// 1 or −1, one as often as the other.
    Signs,
    /// A number for each whole number from 0: what lengths and positions are as floats.
    Counting(Counting),
    /// Rows of `width` numbers, one for each position `p`: `sin(p / 10000^(2i / width))` at `2i`, and the cosine at `2i + 1`
    /// (Vaswani et al., "Attention Is All You Need", 2017).
    Sinusoids {
        /// Numbers of a position.
        width: usize,
    },
    /// Rows of `width` numbers, one for each position: the cosines of its angles, and then their sines ([`super::op::Rotary`]).
    Rotations(Angles),
    /// For each pair of positions `i` and `j` of a window the number of their distance: `(yᵢ − yⱼ + h − 1) · (2w − 1) + xᵢ − xⱼ + w − 1`
    /// (Liu et al., "Swin Transformer", 2021).
    RelativePositions {
        /// Rows and columns of the window, `h` and `w`.
        window: [usize; 2],
    },
    /// For each pair of positions `i` and `j` of a row `2 · side − 1` numbers: a 1 at `i − j + side − 1`, and zeros.
    Distances {
        /// Positions of the row.
        side: usize,
    },
    /// For each window of an image, by rows, and for each pair of its positions: 0 if both come from the same region of the image before it
    /// was rolled by `shift` rows and columns up and to the left, else −100.
    ShiftMask {
        /// Rows and columns of the image, multiples of those of the window.
        image: [usize; 2],
        /// Rows and columns of a window.
        window: [usize; 2],
        /// Rows and columns that the image is rolled by.
        shift: [usize; 2],
    },
}

/// The angles by which pairs of numbers of a head are turned at a position `p`: `p / base^(2k / width)` for all `k` below half of `width`
/// (Su et al., "RoFormer", 2021), or less where they are scaled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Angles {
    /// Numbers of a head, which are even.
    pub width: usize,
    /// What angles grow with; 10000 in the paper.
    pub base: f64,
    /// How they are scaled.
    pub scaling: Scaling,
}

/// How [`Angles`] are made smaller, for longer texts than those that a model was trained on first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scaling {
    /// They are not.
    None,
    /// All of them are divided by it (Chen et al., "Extending Context Window of Large Language Models via Positional Interpolation", 2023).
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// As Llama 3.1 has it: pairs that turn around often within `positions` stay as they are, those that turn around seldom are divided by
    /// `factor`, and what lies between them goes over from one to the other.
    Llama3 {
        /// The divisor.
        factor: f64,
        /// Below so many turns they are divided.
        low: f64,
        /// Above so many turns they stay; more than `low`.
        high: f64,
        /// The positions that the model was trained on first.
        positions: f64,
    },
}

impl Angles {
    /// By how much pair `k` is turned from one position to the next.
    pub fn step(self, k: usize) -> f64 {
        let plain = self.base.powf(-2.0 * k as f64 / self.width as f64);
        match self.scaling {
            Scaling::None => plain,
            Scaling::Linear { factor } => plain / factor,
            Scaling::Llama3 { factor, low, high, positions } => {
                let turns = positions * plain / std::f64::consts::TAU;
                let share = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                (1.0 - share) * plain / factor + share * plain
            }
        }
    }

    /// The angle of pair `k` at a position.
    pub fn at(self, position: usize, k: usize) -> f64 {
        match self.scaling {
            Scaling::None => position as f64 / self.base.powf(2.0 * k as f64 / self.width as f64),
            _ => position as f64 * self.step(k),
        }
    }
}

/// What [`Fill::Counting`] makes of a whole number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// Itself.
    Up,
    /// Less than 0.
    Down,
    /// One divided by it; 0 of 0.
    Reciprocals,
}
