//! Checkpoints, and weight files of other programs. Knows neither devices nor the configuration language: tensors come
//! and go as bytes in the outside (PyTorch's) layout.
//!
//! - [`write()`], [`read`]: a checkpoint is one safetensors file with a checksum over all of it, replaced in one instant.
//! - [`write_weights`], [`write_state_dict`]: weights alone, as a safetensors file or a PyTorch `.pth` state dict.
//! - [`load_tensors`]: weights from a checkpoint, a plain safetensors file, several of them by an index, or a PyTorch `.pth` state dict.
//! - [`match_names`]: which of them a model takes.
//! - [`newest_whole`], [`prune`], [`remove_unfinished`]: the checkpoints in a run's folder.

mod element;
mod error;
mod format;
mod index;
mod matching;
mod meta;
mod pth;
mod retention;
mod tensor;
mod unread;
mod weights;

pub use error::{CheckpointError, Reason};
pub use format::{
    Checkpoint, Content, Header, averaged_weight, is_checkpoint, is_optimizer_state, peek, read, read_header_of,
    read_streamed, verify, write, write_streamed, write_weights,
};
pub use index::{files_of, is_index, load_chosen, load_tensors};
pub use matching::{Matched, Mismatch, match_names, match_shapes, unwrap_all_names, unwrap_names, unwrapped};
pub use meta::{Best, Meta};
pub use pth::Choose;
pub use retention::{FileKind, Newest, newest_whole, prune, remove_unfinished, superseded};
pub use tensor::{CastError, Tensor, TensorInfo, TensorView};
pub use unread::Unread;
pub use weights::{Loaded, write_state_dict};

use std::path::Path;

/// The names of the tensors of a safetensors file, or of an index of several; no tensor is read.
///
/// # Errors
/// The file cannot be read, or is none.
pub fn names(path: &Path) -> Result<Vec<String>, CheckpointError> {
    if is_index(path) { index::names(path) } else { format::names_of_one(path) }
}
