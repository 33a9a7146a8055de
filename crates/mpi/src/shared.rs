//! What a rank's threads and the one that calls MPI share.

use runner_engine::collective::inbox::{Failed, Inbox};
use runner_engine::collective::messages::Message;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What has arrived, and what is to be done.
pub struct Shared {
    /// What has arrived.
    pub inbox: Inbox,
    jobs: Mutex<Jobs>,
    /// There is something in `jobs`.
    pub work: Condvar,
}

/// What the thread is to do.
#[derive(Default)]
pub struct Jobs {
    /// Parts of exchanges, and to whom.
    pub send: VecDeque<(usize, Message)>,
    /// A failure that all others are to get.
    pub failure: Option<Failed>,
    /// This rank waits for others: what arrives is looked for without a pause.
    pub urgent: bool,
}

impl Shared {
    /// Nothing is to be done yet.
    pub fn new(inbox: Inbox) -> Shared {
        Shared { inbox, jobs: Mutex::default(), work: Condvar::new() }
    }

    pub fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a rank cannot go on, and has this sent to all others.
    pub fn give_up(&self, failed: &Failed) {
        if self.inbox.note(failed) {
            self.jobs().failure = Some(failed.clone());
            self.work.notify_all();
        }
    }
}

/// A stage of the end.
pub enum Stage {
    /// All others are about to end, too.
    Ending,
}
