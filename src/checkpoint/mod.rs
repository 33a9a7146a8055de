//! Checkpoints, and weight files of other programs. Knows neither devices nor the configuration language: tensors come
//! and go as bytes in the outside (PyTorch's) layout.
//!
//! - [`write()`], [`read`]: a checkpoint is one safetensors file with a checksum over all of it, replaced in one instant.
//! - [`write_weights`], [`write_state_dict`]: weights alone, as a safetensors file or a PyTorch `.pth` state dict.
//! - [`load_tensors`]: weights from a checkpoint, a plain safetensors file, or a PyTorch `.pth` state dict.
//! - [`match_names`]: which of them a model takes.
//! - [`newest_whole`], [`prune`], [`remove_unfinished`]: the checkpoints in a run's folder.

mod element;
mod error;
mod format;
mod matching;
mod meta;
mod pth;
mod retention;
mod tensor;
mod weights;

pub use error::{CheckpointError, Reason};
pub use format::{
    Checkpoint, Content, Header, averaged_weight, is_checkpoint, is_optimizer_state, names, peek, read, read_header_of,
    read_streamed, verify, write, write_streamed, write_weights,
};
pub use matching::{Matched, Mismatch, match_names, match_shapes, unwrap_all_names, unwrap_names, unwrapped};
pub use meta::{Best, Meta};
pub use pth::Choose;
pub use retention::{FileKind, Newest, newest_whole, prune, remove_unfinished, superseded};
pub use tensor::{CastError, Tensor, TensorInfo, TensorView};
pub use weights::{Loaded, load_chosen, load_tensors, write_state_dict};
