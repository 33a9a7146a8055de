//! Messages on their way. A long one goes in pieces, for MPI counts bytes in 32 bits: each says by its tag how many more come.

use super::library::{Found, Library, Request};
use anyhow::{Context, Result, bail, ensure};
use runner_engine::collective::messages::Message;

/// Bytes of a piece. With more, less would be under way while memory is made ready; with fewer, more calls would be made.
pub const PIECE: usize = 16 << 20;

/// A sign of life.
pub const ALIVE: u16 = 32_765;

/// A rank cannot go on: its number, and why.
pub const FAILED: u16 = 32_766;

/// The sender has done all that was to do. Every MPI has tags up to this one.
pub const BYE: u16 = 32_767;

/// Pieces of a message: 512 GiB.
const MOST: usize = ALIVE as usize;

/// A message, and what of it is being sent or received. MPI reads or writes its memory until that is done.
pub struct Parcel {
    /// What it is: [`ALIVE`], [`FAILED`], [`BYE`], or 0 for a part of an exchange.
    pub kind: u16,
    message: Message,
    /// How many bytes are there, or are coming.
    filled: usize,
    /// More pieces come.
    more: bool,
    requests: Vec<Request>,
}

impl Parcel {
    /// Begins to send a message.
    ///
    /// # Errors
    /// MPI refuses, or the message is too long.
    pub fn send(library: &Library, to: usize, kind: u16, message: Message) -> Result<Parcel> {
        let len = message.bytes().len();
        let pieces = len.div_ceil(PIECE).max(1);
        ensure!(pieces <= MOST, "{len} bytes are too many for one message");
        // Equal ones: from the first, the receiver knows the length of all together, but for a few bytes.
        let size = len.div_ceil(pieces);
        let mut parcel = Parcel { kind, message, filled: len, more: false, requests: Vec::with_capacity(pieces) };
        for piece in 0..pieces {
            let bytes = &parcel.message.bytes()[(piece * size).min(len)..((piece + 1) * size).min(len)];
            let tag = if kind == 0 { (pieces - 1 - piece) as u16 } else { kind };
            // SAFETY: the memory of the message stays where it is, and as it is, until that is done: see `Drop`.
            parcel.requests.push(unsafe { library.send(to, tag, bytes.as_ptr(), bytes.len()) }?);
        }
        Ok(parcel)
    }

    /// Begins to receive the first piece of a message, in memory that `room` gives.
    ///
    /// # Errors
    /// MPI refuses, or there is no memory.
    pub fn receive(library: &Library, found: Found, room: impl Fn(usize) -> Option<Message>) -> Result<Parcel> {
        let (kind, following) = if found.tag >= ALIVE { (found.tag, 0) } else { (0, found.tag) };
        let most = found.len.checked_mul(usize::from(following) + 1);
        let message = most.and_then(room).context("there is no memory for a message")?;
        let mut parcel = Parcel { kind, message, filled: 0, more: true, requests: Vec::new() };
        parcel.go_on(library, found)?;
        Ok(parcel)
    }

    /// Whether its next piece is still to come.
    pub fn wants_more(&self) -> bool {
        self.more
    }

    /// Begins to receive the next piece.
    ///
    /// # Errors
    /// MPI refuses, or it does not fit.
    pub fn go_on(&mut self, library: &Library, found: Found) -> Result<()> {
        let (len, following) = (found.len, if self.kind == 0 { found.tag } else { 0 });
        self.more = following > 0;
        let Some(to) = self.message.bytes_mut().get_mut(self.filled..).filter(|room| room.len() >= len) else {
            bail!("a piece of {len} bytes does not fit after the {} before it", self.filled)
        };
        // SAFETY: there is room for as many bytes, which nothing reads or writes before the request is done: see `Drop`.
        self.requests.push(unsafe { library.receive(found, to.as_mut_ptr()) }?);
        self.filled += len;
        Ok(())
    }

    /// Whether all of it has been sent or received.
    ///
    /// # Errors
    /// That has failed.
    pub fn is_done(&mut self, library: &Library) -> Result<bool> {
        let mut error = None;
        self.requests.retain_mut(|request| {
            // What has failed is not known to be over, and stays.
            library.is_done(request).map(|done| !done).unwrap_or_else(|failed| {
                error = Some(failed);
                true
            })
        });
        error.map_or(Ok(self.requests.is_empty() && !self.more), Err)
    }

    /// What has been received.
    pub fn content(&self) -> &[u8] {
        self.message.bytes()
    }

    /// The message, if all of it has been sent or received.
    pub fn into_message(mut self) -> Option<Message> {
        let message = std::mem::take(&mut self.message);
        if !self.requests.is_empty() {
            self.message = message;
            return None;
        }
        Message::with_len(message, self.filled)
    }
}

impl Drop for Parcel {
    /// Memory that MPI may still read or write is never freed: MPI cannot be stopped.
    fn drop(&mut self) {
        if !self.requests.is_empty() {
            std::mem::forget(std::mem::take(&mut self.message));
        }
    }
}
