//! The number of batch slots: host buffers that batches are made in.

use crate::config::Experiment;

/// Batches that the device may still read while the next one is given to it.
pub const IN_FLIGHT: usize = 1;

/// Batch slots of training: what is made ahead, what is being made, what is being read.
pub fn training(experiment: &Experiment) -> usize {
    evaluation(experiment) + IN_FLIGHT
}

/// Batch slots of an evaluation, which waits for each of its batches.
pub fn evaluation(experiment: &Experiment) -> usize {
    let loading = &experiment.data.loading;
    loading.prefetch.max(loading.workers) + 1
}
