//! How long a run is, and how far it is from one validation to the next.

use std::fmt;

/// How long a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// So many times through the training samples.
    Epochs(u64),
    /// So many updates of the parameters.
    Steps(u64),
}

impl Length {
    /// The option that says so.
    pub fn key(self) -> &'static str {
        match self {
            Length::Epochs(_) => "train.epochs",
            Length::Steps(_) => "train.steps",
        }
    }

    /// Whole epochs, where it is set in epochs.
    pub fn in_epochs(self) -> Option<u64> {
        match self {
            Length::Epochs(epochs) => Some(epochs),
            Length::Steps(_) => None,
        }
    }

    /// Updates, of which an epoch has so many.
    pub fn updates(self, per_epoch: u64) -> u64 {
        match self {
            Length::Epochs(epochs) => epochs.saturating_mul(per_epoch),
            Length::Steps(steps) => steps,
        }
    }

    /// Epochs that are begun, of so many updates each.
    pub fn epochs(self, per_epoch: u64) -> u64 {
        match self {
            Length::Epochs(epochs) => epochs,
            Length::Steps(steps) => steps.div_ceil(per_epoch.max(1)),
        }
    }
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (n, what) = match self {
            Length::Epochs(n) => (n, "epoch"),
            Length::Steps(n) => (n, "step"),
        };
        write!(f, "{n} {what}{}", if *n == 1 { "" } else { "s" })
    }
}

/// How far it is from one validation to the next. There is one at the end of the run in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvalEvery {
    /// So many epochs.
    Epochs(u64),
    /// So many updates.
    Steps(u64),
}
