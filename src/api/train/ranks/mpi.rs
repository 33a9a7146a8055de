//! MPI as what carries the messages of ranks. The program does not have it: the package `runner-mpi`, which does, hands it in.

use crate::collective::Collective;
use crate::collective::tcp::{Limits, Warn};
use anyhow::Result;
use std::sync::{Arc, OnceLock};

/// Joins the other ranks of the job that `mpirun` has started. Which rank this is, and how many there are, MPI says.
pub type Join = fn(Limits, Warn) -> Result<Arc<dyn Collective>>;

static JOIN: OnceLock<Join> = OnceLock::new();

/// Has MPI carry the messages of ranks that `mpirun`, `mpiexec` or `srun` has started. To be called before anything is trained; the first call counts.
pub fn carry_by_mpi(join: Join) {
    let _ = JOIN.set(join);
}

/// How to join over MPI; `None` in a program without it.
pub fn join() -> Option<Join> {
    JOIN.get().copied()
}
