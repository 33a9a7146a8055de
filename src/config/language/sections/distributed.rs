//! `[distributed]`.

use crate::config::declare::options::{Check, options};

options! {
    /// The `[distributed]` section.
    pub struct Distributed {
        /// Cut every batch into so many shards, of `batch_size / shards` samples each. Each is computed by itself, and sums over them are made in one
        /// order: 1, 2 or more ranks that share them give the same result, to the bit, if their number divides that of shards. As with
        /// `DistributedDataParallel` in PyTorch, batch normalisation takes the statistics of each shard by itself, unless `sync_batch_norm` is set.
        /// Without shards there is one rank, and a batch is computed as a whole.
        #[option(range = 1..=4096, example = "8", unit = "shards")]
        pub shards: Option<usize>,
        /// In training, batch normalisation takes the statistics of all shards of a step together, whichever ranks have them, as PyTorch's `SyncBatchNorm`. A rank then
        /// computes its shards at the same time, and has the activations of all of them in memory.
        #[option(default = false)]
        pub sync_batch_norm: bool,
    }
}

impl Check for Distributed {}
