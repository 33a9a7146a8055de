//! The metadata of a checkpoint.

use serde::{Deserialize, Serialize};

/// The best value of the monitored figure so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// The figure: `val_accuracy`.
    pub monitor: String,
    /// Its value; finite.
    pub value: f64,
}

/// The state of a run without its tensors: the JSON under the metadata key `runner`.
///
/// Randomness is counter-based, so `seed`, `epoch`, `batch` and `step` are the whole random state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    // First, so that its position in the file is found by the text before it.
    pub(super) checksum: String,
    /// Version of this format; [`Meta::VERSION`] in what is written.
    pub version: u32,
    /// Version of the program that wrote the file.
    pub program: String,
    /// The effective configuration, as TOML.
    pub config: String,
    /// Epochs finished.
    pub epoch: u64,
    /// Optimizer steps done.
    pub step: u64,
    /// Batches of the current epoch that are done; 0 at an epoch's end.
    pub batch: u64,
    /// The best value so far.
    pub best: Option<Best>,
    /// The seed.
    pub seed: u64,
    /// Whatever else the training loop needs to go on (early stopping's patience, running sums).
    #[serde(default)]
    pub extra: serde_json::Value,
}

impl Meta {
    /// The version of the format that this program writes, and the latest that it reads.
    pub const VERSION: u32 = 1;

    /// The state before the first step.
    pub fn new(config: impl Into<String>, seed: u64) -> Self {
        Meta {
            checksum: String::new(),
            version: Self::VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            config: config.into(),
            epoch: 0,
            step: 0,
            batch: 0,
            best: None,
            seed,
            extra: serde_json::Value::Null,
        }
    }
}
