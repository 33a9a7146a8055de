//! The kinds of programs that an experiment has.

/// What a program does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Forward, backward, and the update (or, with accumulation, the sums for it).
    Train,
    /// The update from sums over micro-batches.
    Update,
    /// As `Train`, for the epochs before parameters are thawed.
    TrainFrozen,
    /// As `Update`, for those epochs.
    UpdateFrozen,
    /// The weights are taken into their mean over epochs.
    Average,
    /// Batch norm's statistics with that mean, a batch of training.
    Statistics,
    /// The gradients of a batch of training, which are looked at and not used.
    Gradients,
    /// Loss and metrics.
    Eval,
    /// As `Eval`, before there is a mean.
    EvalWeights,
    /// The model's output alone.
    Predict,
    /// As `Predict`, before there is a mean.
    PredictWeights,
    /// The same for tokens that follow those of earlier runs.
    Generate,
    /// What a model of two sequences makes of the first, which is kept.
    Encode,
    /// Its output for the second, from what is kept of the first.
    Decode,
    /// The sums of a shard's evaluation are taken into those over all shards.
    EvalShard,
    /// Those are the evaluation's.
    EvalTotal,
}
