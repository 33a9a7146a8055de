//! The connections of a rank to all others. Each rank reads arriving data at once, so two ranks that send do not wait for each other.

use super::frame::{self, HEADER, Kind};
use super::memory::{Incoming, Outbox, Place};
use super::rendezvous::{Connection, Connections};
use crate::collective::inbox::{Failed, Inbox, LEFT, Limits, SIGNS, Warn};
use crate::collective::messages::{Message, Parcels, Wire};
use anyhow::{Context, Result};
use std::fmt;
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// For the last words to those who still listen.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How often is looked whether a rank has failed while others do not take what is sent to them.
const LOOK: Duration = Duration::from_millis(100);

/// Longest reason that a rank has failed, in bytes.
const REASON: usize = 1 << 20;

/// What is read at once at most, if there is more than was asked for: a header and what follows it, if that is short.
const AHEAD: usize = 4 << 10;

/// A rank's connections.
pub struct TcpWire {
    shared: Arc<Shared>,
    readers: Vec<JoinHandle<()>>,
    watcher: Option<JoinHandle<()>>,
}

struct Shared {
    inbox: Inbox,
    peers: Vec<Option<Peer>>,
    /// What is written for ranks of this machine.
    outbox: Option<Mutex<Outbox>>,
    /// What is sent, whose memory is used again.
    buffer: Mutex<Vec<u8>>,
    began: Instant,
    silence: Duration,
}

/// Another rank.
struct Peer {
    /// Locked while a frame is written.
    writer: Mutex<TcpStream>,
    /// To end the connection even while a thread writes.
    stream: TcpStream,
    /// It reads what lies in the memory of this rank.
    reads: bool,
    /// When something came last, in milliseconds since the beginning.
    heard: AtomicU64,
}

impl fmt::Debug for TcpWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.shared.inbox.rank(), self.shared.inbox.ranks())
    }
}

impl TcpWire {
    /// Over these connections.
    ///
    /// # Errors
    /// The system refuses a thread or a connection.
    pub fn new(rank: usize, connections: Connections, limits: Limits, warn: Warn) -> Result<TcpWire> {
        let Connections { peers: connections, outbox } = connections;
        let ranks = connections.len();
        let mut peers = Vec::new();
        let mut readers = Vec::new();
        for connection in connections {
            let Some(Connection { stream, reads, incoming }) = connection else {
                peers.push(None);
                readers.push(None);
                continue;
            };
            // On Windows nothing is known of how much was sent before the time was up: there a failure closes the connection.
            if !cfg!(windows) {
                stream.set_write_timeout(Some(LOOK)).context("cannot set up a connection")?;
            }
            let clone = || stream.try_clone().context("cannot set up a connection");
            let (writer, reader) = (Mutex::new(clone()?), clone()?);
            // Its first sign of life may take twice as long: it may still wait for another one, and then says for which.
            let heard = AtomicU64::new(limits.silence.as_millis().try_into().unwrap_or(u64::MAX));
            peers.push(Some(Peer { writer, stream, reads, heard }));
            readers.push(Some((reader, incoming)));
        }
        let inbox = Inbox::new(rank, ranks, limits.patience, warn);
        let outbox = outbox.map(Mutex::new);
        let shared = Arc::new(Shared {
            inbox,
            peers,
            outbox,
            buffer: Mutex::default(),
            began: Instant::now(),
            silence: limits.silence,
        });
        let mut wire = TcpWire { shared: shared.clone(), readers: Vec::new(), watcher: None };
        let spawn = |name: String, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name).spawn(work).context("cannot start a thread for a connection")
        };
        for (other, reader) in readers.into_iter().enumerate() {
            let (Some((reader, incoming)), shared) = (reader, shared.clone()) else { continue };
            let work = Box::new(move || shared.listen(other, reader, incoming));
            wire.readers.push(spawn(format!("from-rank-{other}"), work)?);
        }
        wire.watcher = Some(spawn("ranks".into(), Box::new(move || shared.watch()))?);
        Ok(wire)
    }
}

impl Shared {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn others(&self) -> impl Iterator<Item = (usize, &Peer)> {
        self.peers.iter().enumerate().filter_map(|(rank, peer)| Some((rank, peer.as_ref()?)))
    }

    /// Reads what a rank sends, until it has no more to say.
    fn listen(&self, from: usize, stream: TcpStream, incoming: Option<Incoming>) {
        let Some(peer) = &self.peers[from] else { return };
        let why = match self.read(from, peer, &mut BufReader::with_capacity(AHEAD, stream), incoming) {
            Ok(()) => return,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => "it has ended without a word".to_owned(),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => "it has ended without a word".to_owned(),
            Err(error) => format!("the connection to it has failed: {error}"),
        };
        let state = self.inbox.lock();
        if state.ended || state.gone[from] {
            return;
        }
        drop(state);
        self.give_up(&Failed { rank: from, why });
    }

    /// # Errors
    /// The connection failed, or what comes is no frame.
    fn read(&self, from: usize, peer: &Peer, stream: &mut impl Read, mut incoming: Option<Incoming>) -> io::Result<()> {
        let heard = || peer.heard.store(self.now(), Ordering::Relaxed);
        loop {
            let mut header = [0; HEADER];
            stream.read_exact(&mut header)?;
            heard();
            let (kind, len) = frame::parse(header)?;
            let most = match kind {
                Kind::Data => {
                    self.inbox.admit(from, len, heard)?;
                    len
                }
                Kind::Failed => REASON,
                Kind::Placed => Place::BYTES,
                Kind::Alive | Kind::Bye | Kind::Hello => 0,
            };
            if len > most {
                return Err(io::Error::new(ErrorKind::InvalidData, "it sends more than there is to say"));
            }
            let Some(mut message) = self.inbox.room(len) else { return Err(ErrorKind::OutOfMemory.into()) };
            let bytes = message.bytes_mut();
            let mut at = 0;
            while at < bytes.len() {
                match stream.read(&mut bytes[at..]) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(n) => at += n,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
                heard();
            }
            match kind {
                Kind::Data => {
                    self.inbox.put(from, message);
                    continue;
                }
                Kind::Placed => {
                    let (Some(place), Some(incoming)) = (Place::parse(message.bytes()), &mut incoming) else {
                        return Err(ErrorKind::InvalidData.into());
                    };
                    self.inbox.put(from, incoming.message(place)?);
                }
                Kind::Failed => {
                    self.inbox.note(&Failed::from_message(from, message.bytes()));
                }
                Kind::Bye => self.inbox.note_goodbye(from),
                Kind::Alive | Kind::Hello => {}
            }
            self.inbox.recycle([message]);
        }
    }

    /// As [`Inbox::note`], and sends it to all others, so that they do not take a rank that stops because of it for the cause.
    fn give_up(&self, failed: &Failed) {
        if !self.inbox.note(failed) {
            return;
        }
        let content = failed.to_bytes();
        let until = Instant::now() + LAST_WORDS;
        for (rank, peer) in self.others().filter(|(rank, _)| *rank != failed.rank) {
            while !self.inbox.lock().gone[rank] {
                // A rank that does not receive the present frame does not get this one, either.
                if let Ok(mut writer) = peer.writer.try_lock() {
                    frame::write(&mut *writer, Kind::Failed, &content).ok();
                    break;
                }
                if Instant::now() > until {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if cfg!(windows) {
            self.others().for_each(|(_, peer)| drop(peer.stream.shutdown(Shutdown::Both)));
        }
    }

    /// Gives signs of life, and looks for those of others, until this rank leaves.
    fn watch(&self) {
        let pause = self.silence / SIGNS;
        let mut before = Instant::now();
        loop {
            let state = self.inbox.lock();
            if state.ended {
                return;
            }
            drop(self.inbox.wait(state, pause));
            let slept = before.elapsed();
            if slept < pause {
                // Woken for another reason.
                std::thread::sleep((pause - slept).min(Duration::from_millis(10)));
                continue;
            }
            before = Instant::now();
            let now = self.now();
            // A process that was stopped for a while has read no signs of life meanwhile.
            if slept > self.silence / 2 {
                self.others().for_each(|(_, peer)| peer.heard.store(now, Ordering::Relaxed));
            }
            for (rank, peer) in self.others() {
                // What is being sent is a sign of life, too.
                if let Ok(mut writer) = peer.writer.try_lock() {
                    frame::write(&mut *writer, Kind::Alive, &[]).ok();
                }
                let silent = Duration::from_millis(now.saturating_sub(peer.heard.load(Ordering::Relaxed)));
                if silent > self.silence && !self.inbox.lock().gone[rank] {
                    self.give_up(&Failed::silent(rank, silent));
                }
            }
        }
    }

    /// Where those who read it find what they are given.
    fn place(&self, parcels: &dyn Parcels) -> Vec<Option<Place>> {
        let Some(outbox) = &self.outbox else { return vec![None; self.peers.len()] };
        let readers: Vec<bool> = self.peers.iter().map(|peer| peer.as_ref().is_some_and(|peer| peer.reads)).collect();
        outbox.lock().unwrap_or_else(PoisonError::into_inner).put(parcels, &readers)
    }

    /// Sends a part of an exchange.
    fn send(&self, to: usize, kind: Kind, bytes: &[u8]) -> Result<()> {
        let Some(peer) = &self.peers[to] else { return Ok(()) };
        let mut writer = peer.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let header = frame::header(kind, bytes.len());
        // What is short goes at once, so that the other is woken once.
        let (begin, rest) = bytes.split_at(bytes.len().min(AHEAD - HEADER));
        let mut first = [0; AHEAD];
        first[..HEADER].copy_from_slice(&header);
        first[HEADER..][..begin.len()].copy_from_slice(begin);
        for part in [&first[..HEADER + begin.len()], rest] {
            let mut at = 0;
            while at < part.len() {
                match writer.write(&part[at..]) {
                    Ok(n) => at += n,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                        self.inbox.check()?
                    }
                    Err(error) => {
                        drop(writer);
                        return Err(self.lost(to, &error));
                    }
                }
            }
        }
        Ok(())
    }

    /// What is wrong with a rank that nothing can be sent to: what is heard of it says more.
    fn lost(&self, rank: usize, error: &io::Error) -> anyhow::Error {
        let until = Instant::now() + LAST_WORDS;
        while Instant::now() < until {
            if let Err(failed) = self.inbox.check() {
                return failed;
            }
            if self.inbox.lock().gone[rank] {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let why = match self.inbox.lock().gone[rank] {
            true => LEFT.to_owned(),
            false => format!("nothing can be sent to it: {error}"),
        };
        let failed = Failed { rank, why };
        self.give_up(&failed);
        failed.error()
    }
}

impl Wire for TcpWire {
    fn rank(&self) -> usize {
        self.shared.inbox.rank()
    }

    fn ranks(&self) -> usize {
        self.shared.inbox.ranks()
    }

    fn exchange(&self, parcels: &dyn Parcels) -> Result<Vec<Message>> {
        let (own, ranks) = (self.rank(), self.ranks());
        self.shared.inbox.check()?;
        // Each begins with the one after it, so that not all send to the same.
        let places = self.shared.place(parcels);
        let mut buffer = self.shared.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut written = false;
        for to in (1..ranks).map(|after| (own + after) % ranks) {
            if let Some(place) = places[to] {
                self.shared.send(to, Kind::Placed, &place.to_bytes())?;
                continue;
            }
            if !(written && parcels.same()) {
                // Never shortened, or what is longer would be set to zero each time.
                let len = parcels.len(to).max(buffer.len());
                buffer.resize(len, 0);
                parcels.write(to, &mut buffer[..parcels.len(to)]);
                written = true;
            }
            self.shared.send(to, Kind::Data, &buffer[..parcels.len(to)])?;
        }
        drop(buffer);
        self.shared.inbox.receive(|failed| self.shared.give_up(failed))
    }

    fn allow(&self, bytes: usize) {
        self.shared.inbox.allow(bytes);
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

impl Drop for TcpWire {
    fn drop(&mut self) {
        self.shared.inbox.end();
        for (_, peer) in self.shared.others() {
            if let Ok(mut writer) = peer.writer.try_lock() {
                frame::write(&mut *writer, Kind::Bye, &[]).ok();
            }
            peer.stream.shutdown(Shutdown::Write).ok();
        }
        // What is not read when a connection is closed takes along what was sent last.
        let until = Instant::now() + LAST_WORDS;
        while self.readers.iter().any(|reader| !reader.is_finished()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        for (_, peer) in self.shared.others() {
            peer.stream.shutdown(Shutdown::Both).ok();
        }
        for thread in self.readers.drain(..).chain(self.watcher.take()) {
            thread.join().ok();
        }
    }
}
