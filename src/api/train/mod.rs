//! A run as one call: what is asked for, the run made ready, the loop, and how it ended.

mod announce;
mod best;
mod data;
mod folder;
mod outcome;
mod past;
pub mod ranks;
mod ready;
mod request;
mod resumed;
mod team;
mod words;

pub use folder::in_folder;
pub use outcome::Trained;
pub use ready::{Build, Ready};
pub use request::{Asked, Interrupt, Request, Resume};
pub use team::{Agreed, Team};

use super::failure::Failure;
use crate::terminal::heard_by;
use ready::with_run;

/// Trains: a new run from its configuration, or one that is there from its checkpoint, to its end or until it is asked to stop.
///
/// # Errors
/// All that is wrong with what is asked for; the device, the data or the disk failed; the loss is not finite. What was saved before is whole.
pub fn start(request: &Request) -> Result<Trained, Failure> {
    heard_by(request.listener.clone(), || {
        with_run(request, false, |ready| {
            let Ready { mut run, programs, others, resumed } = ready;
            match others {
                Some(others) => others.train(&mut run, programs, request, resumed),
                None => outcome::train(&mut run, request, resumed),
            }
        })
        .map_err(|failure| outcome::full_again(failure, request))
    })
}

/// Makes a run ready in a temporary folder, and hands it to `work`, which does what it likes with it. Nothing of it is kept.
///
/// # Errors
/// As [`start`]; `work` fails.
pub fn rehearse<T>(request: &Request, work: impl FnOnce(Ready) -> Result<T, Failure>) -> Result<T, Failure> {
    heard_by(request.listener.clone(), || with_run(request, true, work))
}
