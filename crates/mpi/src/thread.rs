//! The thread that calls MPI: sends what others give it, takes what arrives, gives signs of life and looks for those of others.

use super::library::{Found, Library};
use super::parcel::{ALIVE, BYE, FAILED, Parcel};
use super::shared::{Shared, Stage};
use anyhow::Result;
use runner_engine::collective::inbox::{Failed, Limits, SIGNS};
use runner_engine::collective::messages::Message;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// Without a pause, after something has happened: as long as a short message takes. Not longer, and never by giving the core
/// away for a turn: who does that on a busy machine waits for milliseconds, and who sleeps is woken at once.
const EAGER: Duration = Duration::from_micros(50);

/// Between checks for arrivals, while this rank waits for them or bytes are under way: from the first to the second, and in
/// proportion to the time that has gone by.
const SHORT_NAPS: [Duration; 2] = [Duration::from_micros(20), Duration::from_micros(200)];

/// The same otherwise.
const NAP: Duration = Duration::from_millis(1);

/// MPI, and all that is on its way.
pub struct Carrier {
    pub library: Library,
    pub shared: Arc<Shared>,
    pub silence: Duration,
    pub peers: Vec<Peer>,
    /// Messages to other ranks that are no parts of an exchange.
    pub words: Vec<(usize, Parcel)>,
    /// Such messages from them.
    received: Vec<(usize, Parcel)>,
    /// A rank has failed.
    pub failed: bool,
    /// When signs of life were given last.
    signs: Instant,
    /// When something has happened last.
    active: Instant,
    /// When this was here last.
    turn: Instant,
    /// MPI has failed, and is not called any more.
    pub broken: bool,
}

/// What goes to another rank, and comes from it.
pub struct Peer {
    pub sent: Vec<Parcel>,
    /// In the order in which it was sent.
    coming: VecDeque<Parcel>,
    heard: Instant,
}

/// All of it, from the beginning of MPI to its end.
pub fn run(
    limits: Limits,
    begun: &Sender<Result<(usize, usize)>>,
    shared: &Receiver<Arc<Shared>>,
    ends: &Sender<Stage>,
) {
    be_woken_in_time();
    let library = match Library::begin() {
        Ok(library) => library,
        // Who waits may have given up.
        Err(error) => return begun.send(Err(error)).unwrap_or_default(),
    };
    if begun.send(Ok((library.rank, library.ranks))).is_err() {
        return library.abandon();
    }
    let Ok(shared) = shared.recv() else { return library.abandon() };
    let now = Instant::now();
    let peer = |_| Peer { sent: Vec::new(), coming: VecDeque::new(), heard: now };
    let peers = (0..library.ranks).map(peer).collect();
    let (signs, active, turn, silence) = (now, now, now, limits.silence);
    let _reports = ReportsPanic(shared.clone());
    let (words, received, failed, broken) = (Vec::new(), Vec::new(), false, false);
    Carrier { library, shared, silence, peers, words, received, failed, signs, active, turn, broken }.carry(ends);
}

/// Linux lets a thread sleep for 50 microseconds more than it asks for, which is longer than most messages take.
fn be_woken_in_time() {
    #[cfg(target_os = "linux")]
    // SAFETY: a plain call, of numbers; it concerns this thread alone.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1000 as libc::c_ulong);
    }
}

/// Ends the wait for a thread that has panicked.
struct ReportsPanic(Arc<Shared>);

impl Drop for ReportsPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let why = "its thread for MPI has panicked, which is a bug of runner".into();
            self.0.inbox.note(&Failed { rank: self.0.inbox.rank(), why });
        }
    }
}

impl Carrier {
    fn carry(mut self, ends: &Sender<Stage>) {
        while !self.shared.inbox.lock().ended {
            self.turn();
            self.rest();
        }
        let all = self.say_goodbye();
        ends.send(Stage::Ending).ok();
        match all {
            true => self.library.end(),
            false => self.library.abandon(),
        }
    }

    /// Does what there is to do. Where MPI fails, this rank does.
    pub fn turn(&mut self) {
        if self.broken {
            return;
        }
        if let Err(error) = self.try_turn() {
            self.shared.give_up(&Failed { rank: self.library.rank, why: format!("{error:#}") });
            self.begin_to_send();
            self.broken = true;
        }
    }

    fn try_turn(&mut self) -> Result<()> {
        let before = std::mem::replace(&mut self.turn, Instant::now());
        // A process that was stopped for a while has read no signs of life meanwhile.
        if self.turn - before > self.silence / 2 {
            self.peers.iter_mut().for_each(|peer| peer.heard = self.turn);
        }
        self.begin_to_send();
        while let Some(found) = self.library.find()? {
            self.active = self.turn;
            self.begin_to_receive(found)?;
        }
        self.take();
        self.end_sending();
        if self.signs.elapsed() > self.silence / SIGNS {
            self.signs = self.turn;
            self.look_for_signs();
        }
        Ok(())
    }

    fn begin_to_send(&mut self) {
        let mut jobs = self.shared.jobs();
        let (parts, failure) = (std::mem::take(&mut jobs.send), jobs.failure.take());
        drop(jobs);
        for (to, message) in parts {
            self.active = self.turn;
            let parcel = Parcel::send(&self.library, to, 0, message);
            self.sent(to, parcel);
        }
        if let Some(failed) = failure {
            self.failed = true;
            // That one, too: it may have left, and wait for the others.
            self.shared.inbox.others().for_each(|to| self.say(to, FAILED, &failed.to_bytes()));
        }
    }

    /// Sends a rank a message that is not a part of an exchange.
    pub fn say(&mut self, to: usize, kind: u16, content: &[u8]) {
        let Some(mut message) = Message::with_len(Message::default(), content.len()) else { return };
        message.bytes_mut().copy_from_slice(content);
        match Parcel::send(&self.library, to, kind, message) {
            Ok(parcel) => self.words.push((to, parcel)),
            error => self.sent(to, error),
        }
    }

    fn sent(&mut self, to: usize, parcel: Result<Parcel>) {
        match parcel {
            Ok(parcel) => self.peers[to].sent.push(parcel),
            Err(error) => {
                self.shared.give_up(&Failed { rank: to, why: format!("nothing can be sent to it: {error:#}") });
            }
        }
    }

    fn begin_to_receive(&mut self, found: Found) -> Result<()> {
        let (from, tag) = (found.from, found.tag);
        let (peer, inbox) = (&mut self.peers[from], &self.shared.inbox);
        peer.heard = self.turn;
        if tag < ALIVE
            && let Some(parcel) = peer.coming.back_mut().filter(|parcel| parcel.wants_more())
        {
            return parcel.go_on(&self.library, found);
        }
        match tag {
            // These wait for nothing that was sent before.
            ALIVE | FAILED => {
                self.failed |= tag == FAILED;
                let new = |len| Message::with_len(Message::default(), len);
                self.received.push((from, Parcel::receive(&self.library, found, new)?));
            }
            _ => peer.coming.push_back(Parcel::receive(&self.library, found, |len| inbox.room(len))?),
        }
        Ok(())
    }

    /// Takes what has arrived.
    fn take(&mut self) {
        let (library, shared, active) = (&self.library, &self.shared, &mut self.active);
        let lost = |from, error| {
            shared.give_up(&Failed { rank: from, why: format!("nothing can be received from it: {error:#}") });
            false
        };
        self.received.retain_mut(|(from, parcel)| {
            let done = parcel.is_done(library).unwrap_or_else(|error| lost(*from, error));
            if done && parcel.kind == FAILED {
                shared.inbox.note(&Failed::from_message(*from, parcel.content()));
            }
            !done
        });
        for (from, peer) in self.peers.iter_mut().enumerate() {
            let mut is_there = |parcel: &mut Parcel| parcel.is_done(library).unwrap_or_else(|error| lost(from, error));
            while peer.coming.front_mut().is_some_and(&mut is_there) {
                *active = self.turn;
                let Some(parcel) = peer.coming.pop_front() else { break };
                match (parcel.kind, parcel.into_message()) {
                    (BYE, _) => shared.inbox.note_goodbye(from),
                    (_, Some(message)) => shared.inbox.put(from, message),
                    _ => {}
                }
            }
        }
    }

    /// Uses the memory again of what has been sent.
    fn end_sending(&mut self) {
        let (library, shared) = (&self.library, &self.shared);
        let is_done = |to: usize, parcel: &mut Parcel| {
            parcel.is_done(library).unwrap_or_else(|error| {
                shared.give_up(&Failed { rank: to, why: format!("nothing can be sent to it: {error:#}") });
                false
            })
        };
        self.words.retain_mut(|(to, parcel)| !is_done(*to, parcel));
        for (to, peer) in self.peers.iter_mut().enumerate() {
            let done = peer.sent.extract_if(.., |parcel| is_done(to, parcel));
            shared.inbox.recycle(done.filter_map(Parcel::into_message));
        }
    }

    /// Gives signs of life, and looks for those of others.
    fn look_for_signs(&mut self) {
        let state = self.shared.inbox.lock();
        let there: Vec<usize> = self.shared.inbox.others().filter(|rank| !state.gone[*rank]).collect();
        let ended = state.ended;
        drop(state);
        for rank in there {
            // After its goodbye no rank waits for this one; and one sign that was not taken yet is enough.
            if !ended && !self.words.iter().any(|(to, _)| *to == rank) {
                self.say(rank, ALIVE, &[]);
            }
            let silence = self.silence_of(rank);
            if silence > self.silence {
                self.shared.give_up(&Failed::silent(rank, silence));
            }
        }
    }

    pub fn silence_of(&self, rank: usize) -> Duration {
        self.turn.saturating_duration_since(self.peers[rank].heard)
    }

    /// Lets others compute, for as long as there is nothing to do.
    pub fn rest(&self) {
        let under_way = self.peers.iter().any(|peer| !peer.sent.is_empty() || !peer.coming.is_empty());
        let idle = self.active.elapsed();
        let jobs = self.shared.jobs();
        if !jobs.send.is_empty() || jobs.failure.is_some() {
            return;
        }
        if (under_way || jobs.urgent) && idle < EAGER {
            drop(jobs);
            return std::hint::spin_loop();
        }
        let [shortest, longest] = SHORT_NAPS;
        let nap = if under_way || jobs.urgent { (idle / 8).clamp(shortest, longest) } else { NAP };
        drop(self.shared.work.wait_timeout(jobs, nap).unwrap_or_else(PoisonError::into_inner));
    }
}
