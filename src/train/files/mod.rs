//! What a run leaves on disk, and how it is read again.

pub mod adapters;
pub mod folder;
pub mod metrics_csv;
pub mod metrics_file;
pub mod provenance;
pub mod resume;
pub mod sample;
pub mod state;
pub mod tensorboard;
pub mod tensors;
mod tied;
pub mod weights;
