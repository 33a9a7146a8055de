//! Ranks that are processes started by `mpirun`, `mpiexec` or `srun`: MPI carries their messages, over whatever network it knows.
//!
//! MPI carries bytes from one rank to another, and no more than that: its own sums have an order of their own. Only one
//! thread calls it.

mod goodbye;
mod library;
mod parcel;
mod shared;
mod thread;
mod wire;

use anyhow::{Context, Result, anyhow, bail};
use runner_engine::collective::Collective;
use runner_engine::collective::inbox::{Inbox, Limits, Warn};
use runner_engine::collective::messages::Messages;
use shared::Shared;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;
use wire::MpiWire;

/// Joins the others. Which rank this is, and how many there are, MPI says.
///
/// # Errors
/// MPI cannot be used, or does not begin in time.
pub fn join(limits: Limits, warn: Warn) -> Result<Arc<dyn Collective>> {
    let (to_thread, inbox) = channel();
    let (to_here, begun) = channel();
    let (on_end, ends) = channel();
    let work = move || thread::run(limits, &to_here, &inbox, &on_end);
    std::thread::Builder::new().name("mpi".into()).spawn(work).context("cannot start a thread for MPI")?;
    let (rank, ranks) = begin(&begun, limits, &warn)?;
    let shared = Arc::new(Shared::new(Inbox::new(rank, ranks, limits.patience, warn)));
    to_thread.send(shared.clone()).map_err(|_| anyhow!("the thread for MPI has ended"))?;
    Ok(Arc::new(Messages::new(MpiWire::new(shared, ends, limits))))
}

/// Waits until MPI has begun, which it has when all ranks are there: which one this is, and of how many.
fn begin(begun: &Receiver<Result<(usize, usize)>>, limits: Limits, warn: &Warn) -> Result<(usize, usize)> {
    let began = Instant::now();
    let mut pause = limits.patience.min(limits.join);
    loop {
        match begun.recv_timeout(pause) {
            Ok(outcome) => return outcome,
            Err(RecvTimeoutError::Disconnected) => bail!("the thread for MPI has ended"),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let left = limits.join.saturating_sub(began.elapsed());
        if left.is_zero() {
            bail!(
                "MPI has not begun within {} s: a rank has not come\nhelp: set `RUNNER_TRANSPORT=tcp` to do without it",
                limits.join.as_secs()
            );
        }
        warn("MPI has not begun yet: this rank waits for the others");
        pause = left;
    }
}
