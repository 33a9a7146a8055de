//! A rank that hands its messages to the thread that calls MPI.

use super::shared::{Shared, Stage};
use anyhow::{Result, bail};
use runner_engine::collective::inbox::{Failed, Limits};
use runner_engine::collective::messages::{Message, Parcels, Wire};
use std::fmt;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A rank of MPI's.
pub struct MpiWire {
    shared: Arc<Shared>,
    /// Closed when the thread has done all.
    ends: Mutex<Receiver<Stage>>,
    limits: Limits,
}

impl MpiWire {
    /// Over the thread that shares this, and reports the stages of its end by `ends`.
    pub fn new(shared: Arc<Shared>, ends: Receiver<Stage>, limits: Limits) -> MpiWire {
        MpiWire { shared, ends: Mutex::new(ends), limits }
    }
}

impl fmt::Debug for MpiWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank(), self.ranks())
    }
}

impl Wire for MpiWire {
    fn rank(&self) -> usize {
        self.shared.inbox.rank()
    }

    fn ranks(&self) -> usize {
        self.shared.inbox.ranks()
    }

    fn exchange(&self, parcels: &dyn Parcels) -> Result<Vec<Message>> {
        let (own, ranks, inbox) = (self.rank(), self.ranks(), &self.shared.inbox);
        inbox.check()?;
        // Each begins with the one after it, so that not all send to the same.
        for to in (1..ranks).map(|after| (own + after) % ranks) {
            let len = parcels.len(to);
            // A copy for each: what MPI has been given it may read for as long as the process lives, also where a rank has failed.
            let Some(mut message) = inbox.room(len) else {
                let why = format!("there is no memory for a message of {len} bytes");
                self.fail(&why);
                bail!(why);
            };
            parcels.write(to, message.bytes_mut());
            self.shared.jobs().send.push_back((to, message));
            self.shared.work.notify_all();
        }
        self.shared.jobs().urgent = true;
        self.shared.work.notify_all();
        let received = inbox.receive(|failed| self.shared.give_up(failed));
        self.shared.jobs().urgent = false;
        received
    }

    fn recycle(&self, messages: Vec<Message>) {
        self.shared.inbox.recycle(messages);
    }

    fn fail(&self, why: &str) {
        self.shared.give_up(&Failed { rank: self.rank(), why: why.to_owned() });
    }

    fn check(&self) -> Result<()> {
        self.shared.inbox.check()
    }
}

impl Drop for MpiWire {
    /// Waits for the others: `mpirun` ends all ranks when one has ended, and each is to send its last messages first.
    fn drop(&mut self) {
        self.shared.inbox.end();
        self.shared.work.notify_all();
        let ends = self.ends.get_mut().unwrap_or_else(PoisonError::into_inner);
        // The thread looks for signs of life until here.
        if let Ok(Stage::Ending) = ends.recv() {
            // The end of MPI itself cannot be looked into.
            ends.recv_timeout(self.limits.silence.max(Duration::from_secs(1))).ok();
        }
    }
}
