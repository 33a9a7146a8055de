//! What has arrived at a rank and was not taken yet, and who has failed or left: the same for whatever carries messages.

use super::messages::Message;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Signs of life within the time that a rank may be silent.
pub const SIGNS: u32 = 10;

/// Longest message that may arrive before this rank knows of a longer one, in bytes: a configuration, the state of a run, a tensor of it.
const LONGEST: usize = 1 << 30;

/// Messages of a rank that may have arrived and not been taken: none is further ahead than by two exchanges.
const WAITING: usize = 4;

/// How often a thread that holds a message back checks whether it may come now.
const LOOK: Duration = Duration::from_millis(200);

/// How the reason begins why a rank has failed that is silent.
const SILENT: &str = "nothing was heard of it";

/// Why a rank that has said goodbye has failed.
pub const LEFT: &str = "it has ended before the others";

/// How long is waited for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Until all ranks are there.
    pub join: Duration,
    /// Without any sign of life from a rank.
    pub silence: Duration,
    /// For a rank that gives signs of life, or has not come yet. Then the wait is reported, and again after twice as long.
    pub patience: Duration,
}

/// What a rank says that waits for others longer than usual.
pub type Warn = Box<dyn Fn(&str) + Send + Sync>;

/// A rank that cannot go on, and why.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Failed {
    /// Which.
    pub rank: usize,
    /// What it says.
    pub why: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} has failed: {}", self.rank, self.why)
    }
}

impl std::error::Error for Failed {}

impl Failed {
    /// The error of the ranks that wait for it.
    pub fn error(&self) -> anyhow::Error {
        self.clone().into()
    }

    /// Of which nothing was heard for so long.
    pub fn silent(rank: usize, silence: Duration) -> Failed {
        Failed { rank, why: format!("{SILENT} for {} s", silence.as_secs().max(1)) }
    }

    /// Whether it is [`Failed::silent`]: it cannot report that itself.
    pub fn is_silent(&self) -> bool {
        self.why.starts_with(SILENT)
    }

    /// As a message for other ranks.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// From a message of rank `from`.
    pub fn from_message(from: usize, bytes: &[u8]) -> Failed {
        serde_json::from_slice(bytes).unwrap_or_else(|_| Failed { rank: from, why: "it does not say why".into() })
    }
}

/// What has arrived at a rank.
pub struct Inbox {
    rank: usize,
    ranks: usize,
    patience: Duration,
    warn: Warn,
    state: Mutex<State>,
    changed: Condvar,
}

/// What is known of the others.
pub struct State {
    /// What each rank has sent that was not taken yet.
    arrived: Vec<VecDeque<Message>>,
    /// Who has done all that was to do.
    pub gone: Vec<bool>,
    /// The longest message that may arrive, and whether this rank waits for one.
    longest: usize,
    receives: bool,
    /// Memory of messages that have been read.
    spare: Vec<Message>,
    /// The first that has failed.
    pub failed: Option<Failed>,
    /// This rank leaves.
    pub ended: bool,
}

impl Inbox {
    /// That of a rank.
    pub fn new(rank: usize, ranks: usize, patience: Duration, warn: Warn) -> Inbox {
        let state = State {
            arrived: (0..ranks).map(|_| VecDeque::new()).collect(),
            gone: vec![false; ranks],
            longest: LONGEST,
            receives: false,
            spare: Vec::new(),
            failed: None,
            ended: false,
        };
        Inbox { rank, ranks, patience, warn, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Which rank it is of.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many there are.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// All other ranks.
    pub fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.rank;
        (0..self.ranks).filter(move |rank| *rank != own)
    }

    /// The present state. No other thread changes it while the guard is held.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something has changed, or for so long.
    pub fn wait<'a>(&'a self, state: MutexGuard<'a, State>, at_most: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, at_most).unwrap_or_else(PoisonError::into_inner).0
    }

    /// This rank leaves.
    pub fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// # Errors
    /// A rank has failed.
    pub fn check(&self) -> Result<()> {
        self.lock().failed.as_ref().map_or(Ok(()), |failed| Err(failed.error()))
    }

    /// Notes that a rank cannot go on. Whether it is the first.
    pub fn note(&self, failed: &Failed) -> bool {
        let mut state = self.lock();
        let first = state.failed.is_none() && !state.ended;
        if first {
            state.failed = Some(failed.clone());
        }
        self.changed.notify_all();
        first
    }

    /// Notes that a rank has done all that was to do.
    pub fn note_goodbye(&self, from: usize) {
        self.lock().gone[from] = true;
        self.changed.notify_all();
    }

    /// Messages of so many bytes may arrive from now on.
    pub fn allow(&self, bytes: usize) {
        let mut state = self.lock();
        if bytes > state.longest {
            state.longest = bytes;
            self.changed.notify_all();
        }
    }

    /// Waits until rank `from` may send a message of so many bytes. A rank may be ahead of this one, which then does not know yet of what it
    /// sends; and what is no rank may claim any length. `meanwhile` is done every so often.
    ///
    /// # Errors
    /// This rank waits for that message, and knows that it cannot be as long; or nothing is to be received any more.
    pub fn admit(&self, from: usize, bytes: usize, meanwhile: impl Fn()) -> io::Result<()> {
        let mut state = self.lock();
        loop {
            if state.ended || state.failed.is_some() {
                return Err(ErrorKind::ConnectionAborted.into());
            }
            let next = state.arrived[from].is_empty();
            if bytes > state.longest && next && state.receives {
                let why = format!("it sends {bytes} bytes, and at most {} are expected", state.longest);
                return Err(io::Error::new(ErrorKind::InvalidData, why));
            }
            if bytes <= state.longest && state.arrived[from].len() < WAITING {
                return Ok(());
            }
            meanwhile();
            state = self.wait(state, LOOK);
        }
    }

    /// A message of so many bytes, in memory that was used before; `None` if there is no memory for it.
    pub fn room(&self, len: usize) -> Option<Message> {
        let spare = self.lock().spare.pop().unwrap_or_default();
        Message::with_len(spare, len)
    }

    /// Takes back messages that have been read.
    pub fn recycle(&self, messages: impl IntoIterator<Item = Message>) {
        self.lock().spare.extend(messages.into_iter().filter(Message::has_memory));
    }

    /// A message that has arrived.
    pub fn put(&self, from: usize, message: Message) {
        self.lock().arrived[from].push_back(message);
        self.changed.notify_all();
    }

    /// Waits for a message of each other rank. A rank that has left is given up.
    ///
    /// # Errors
    /// A rank has failed.
    pub fn receive(&self, give_up: impl FnOnce(&Failed)) -> Result<Vec<Message>> {
        let began = Instant::now();
        let mut next_report = self.patience;
        let mut state = self.lock();
        state.receives = true;
        self.changed.notify_all();
        loop {
            if let Some(failed) = &state.failed {
                return Err(failed.error());
            }
            let missing: Vec<usize> = self.others().filter(|rank| state.arrived[*rank].is_empty()).collect();
            if missing.is_empty() {
                let taken = state.arrived.iter_mut().map(|arrived| arrived.pop_front().unwrap_or_default()).collect();
                state.receives = false;
                self.changed.notify_all();
                return Ok(taken);
            }
            if let Some(rank) = missing.iter().find(|rank| state.gone[**rank]) {
                let failed = Failed { rank: *rank, why: LEFT.into() };
                drop(state);
                give_up(&failed);
                return Err(failed.error());
            }
            if began.elapsed() > next_report {
                drop(state);
                // One of those who wait says it.
                if (0..self.ranks).find(|rank| !missing.contains(rank)) == Some(self.rank) {
                    let names: Vec<String> = missing.iter().map(usize::to_string).collect();
                    (self.warn)(&format!(
                        "rank {} has waited {} s for rank{} {}, and goes on waiting: there are signs of life",
                        self.rank,
                        next_report.as_secs_f32().round(),
                        if missing.len() == 1 { "" } else { "s" },
                        names.join(", ")
                    ));
                }
                next_report *= 2;
                state = self.lock();
                continue;
            }
            let until = next_report.saturating_sub(began.elapsed()) + Duration::from_millis(1);
            state = self.wait(state, until);
        }
    }
}
