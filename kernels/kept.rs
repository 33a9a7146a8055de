//! What was unpacked, kept: training, evaluation and every trial of a batch size load the kernels they need, and all of a
//! GPU's machine code is about 10 MB.

use crate::Module;
use anyhow::Result;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The unpacked files of one kind, by module and architecture.
pub(crate) struct Kept(OnceLock<Mutex<Files>>);

type Files = HashMap<(Module, u32), Arc<Vec<u8>>>;

impl Kept {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Kept(OnceLock::new())
    }

    /// The file of `module` for `architecture`, which `unpack` makes the first time. Threads that want a file at once may
    /// unpack it several times.
    pub(crate) fn file(
        &self,
        module: Module,
        architecture: u32,
        unpack: impl FnOnce() -> Result<Vec<u8>>,
    ) -> Result<Arc<Vec<u8>>> {
        let files = || self.0.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        let known = files().get(&(module, architecture)).cloned();
        if let Some(file) = known {
            return Ok(file);
        }
        let file = Arc::new(unpack()?);
        files().insert((module, architecture), file.clone());
        Ok(file)
    }
}
