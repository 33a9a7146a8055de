//! Connections to a rank that listens. Each is heard by itself, so that one that is slow, or says nothing, delays no other.

use super::handshake::{Hello, Secret, Unproved, welcome};
use anyhow::{Context, Result, anyhow};
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time limit for the handshake on a connection.
pub const SPEAK: Duration = Duration::from_secs(5);

/// How many may be heard at once, beside ranks that are expected. Others wait until one of them has been heard.
const MOST: usize = 256;

/// Bytes of the stack of a thread that hears one.
const STACK: usize = 256 << 10;

/// A rank's door.
pub struct Guests {
    listener: TcpListener,
    secret: Option<Arc<Secret>>,
    most: usize,
    /// How many are being heard.
    heard: Arc<AtomicUsize>,
    /// The last that seemed to be a rank and was not let in, in words.
    refused: Arc<Mutex<Option<String>>>,
    sender: Sender<(TcpStream, Hello)>,
    receiver: Receiver<(TcpStream, Hello)>,
}

impl Guests {
    /// That of a rank that expects at most `ranks` others.
    ///
    /// # Errors
    /// The system refuses.
    pub fn new(listener: TcpListener, secret: Option<&Secret>, ranks: usize) -> Result<Guests> {
        listener.set_nonblocking(true).context("cannot wait for other ranks")?;
        let (sender, receiver) = channel();
        let (secret, heard) = (secret.cloned().map(Arc::new), Arc::default());
        Ok(Guests { listener, secret, most: MOST + ranks, heard, refused: Arc::default(), sender, receiver })
    }

    /// An addition to a message about ranks that are missing: the last process that was not let in, though it said that it is a rank.
    pub fn refused(&self) -> String {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused
            .as_ref()
            .map_or(String::new(), |refused| format!("; {refused} (`RUNNER_SECRET` must be the same for all)"))
    }

    /// The next connection after its handshake, if there is one by now. Does not wait.
    ///
    /// # Errors
    /// No connection can be accepted any more.
    pub fn next(&self) -> Result<Option<(TcpStream, Hello)>> {
        while self.heard.load(Ordering::Acquire) < self.most {
            match self.listener.accept() {
                Ok((stream, _)) => self.hear(stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // A connection that was closed before, or a signal.
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(error) => return Err(anyhow!(error).context("cannot wait for other ranks")),
            }
        }
        Ok(self.receiver.try_recv().ok())
    }

    /// In a thread of its own, which ends in time by itself.
    fn hear(&self, stream: TcpStream) {
        let (secret, sender, heard) = (self.secret.clone(), self.sender.clone(), self.heard.clone());
        let refused = self.refused.clone();
        let until = Instant::now() + SPEAK;
        heard.fetch_add(1, Ordering::AcqRel);
        let listen = move || {
            let welcomed = stream.set_nonblocking(false).map_err(anyhow::Error::from);
            match welcomed.and_then(|()| welcome(&stream, secret.as_deref(), until)) {
                // The rank may not listen any more.
                Ok(hello) => drop(sender.send((stream, hello))),
                Err(error) if error.is::<Unproved>() => {
                    let who = stream.peer_addr().map_or("a process".into(), |at| format!("a process at {}", at.ip()));
                    *refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{who} {error}"));
                }
                // Whatever else may try ports is passed over.
                Err(_) => {}
            }
            heard.fetch_sub(1, Ordering::AcqRel);
        };
        let thread = std::thread::Builder::new().name("guest".into()).stack_size(STACK).spawn(listen);
        if thread.is_err() {
            // Without a thread it is as if it had not come, and it may come again.
            self.heard.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
