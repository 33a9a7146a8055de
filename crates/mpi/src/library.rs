//! The calls of MPI that are made, all of them by one thread, and what goes wrong in them.

use anyhow::{Result, anyhow, bail, ensure};
use mpi::environment::{Threading, Universe, initialize_with_threading};
use mpi::ffi;
use mpi::traits::{AsRaw, Communicator};
use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;

/// Longer than the text of any error.
const ERROR_TEXT: usize = 4096;

/// MPI, from its beginning to its end.
pub struct Library {
    universe: Universe,
    world: ffi::MPI_Comm,
    /// Which rank this is.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
}

/// A message that has arrived, and was not received yet.
pub struct Found {
    /// Who has sent it.
    pub from: usize,
    /// What it is.
    pub tag: u16,
    /// Its bytes.
    pub len: usize,
    message: ffi::MPI_Message,
}

/// Something that is being sent or received.
pub struct Request(ffi::MPI_Request);

impl Library {
    /// Begins, with all other ranks.
    ///
    /// # Errors
    /// MPI allows no thread but one in this process, or has begun already.
    pub fn begin() -> Result<Library> {
        // Other threads compute meanwhile; this one alone calls MPI.
        let begun = initialize_with_threading(Threading::Funneled);
        let (universe, threading) = begun.ok_or_else(|| anyhow!("MPI has begun already in this process"))?;
        let world = universe.world();
        // SAFETY: the communicator of all ranks is valid from the beginning to the end of MPI.
        let code = unsafe { ffi::MPI_Comm_set_errhandler(world.as_raw(), ffi::RSMPI_ERRORS_RETURN) };
        succeeded(code)?;
        let (rank, ranks) = (usize::try_from(world.rank())?, usize::try_from(world.size())?);
        let library = Library { world: world.as_raw(), universe, rank, ranks };
        if threading < Threading::Funneled {
            library.end();
            bail!(
                "this MPI allows no threads beside the one that uses it (MPI_THREAD_SINGLE)\n\
                 help: build `runner` with an MPI that does, or set `RUNNER_TRANSPORT=tcp`"
            );
        }
        Ok(library)
    }

    /// Begins to send so many bytes.
    ///
    /// # Errors
    /// MPI refuses.
    ///
    /// # Safety
    /// The bytes are valid, and nothing writes them, until the request is done.
    pub unsafe fn send(&self, to: usize, tag: u16, bytes: *const u8, len: usize) -> Result<Request> {
        let (count, to) = (c_int::try_from(len)?, c_int::try_from(to)?);
        // SAFETY: a constant of the library.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        // SAFETY: as is promised of the bytes; the rest is valid until MPI ends.
        succeeded(unsafe {
            ffi::MPI_Isend(bytes.cast(), count, ffi::RSMPI_UINT8_T, to, tag.into(), self.world, &mut request)
        })?;
        Ok(Request(request))
    }

    /// A message that has arrived.
    ///
    /// # Errors
    /// MPI has failed.
    pub fn find(&self) -> Result<Option<Found>> {
        let mut there: c_int = 0;
        let mut status = MaybeUninit::<ffi::MPI_Status>::zeroed();
        let mut count: c_int = 0;
        // SAFETY: a constant of the library.
        let mut message = unsafe { ffi::RSMPI_MESSAGE_NULL };
        // SAFETY: the addresses are those of variables that live until the call returns.
        succeeded(unsafe {
            ffi::MPI_Improbe(
                ffi::RSMPI_ANY_SOURCE,
                ffi::RSMPI_ANY_TAG,
                self.world,
                &mut there,
                &mut message,
                status.as_mut_ptr(),
            )
        })?;
        if there == 0 {
            return Ok(None);
        }
        // SAFETY: as above; the call before has set the status.
        succeeded(unsafe { ffi::MPI_Get_count(status.as_ptr(), ffi::RSMPI_UINT8_T, &mut count) })?;
        // SAFETY: numbers, which have been set.
        let status = unsafe { status.assume_init() };
        let from = usize::try_from(status.MPI_SOURCE).ok().filter(|from| *from < self.ranks);
        let from = from.ok_or_else(|| anyhow!("MPI has a message of rank {}", status.MPI_SOURCE))?;
        let (tag, len) = (u16::try_from(status.MPI_TAG)?, usize::try_from(count)?);
        Ok(Some(Found { from, tag, len, message }))
    }

    /// Begins to receive a message.
    ///
    /// # Errors
    /// MPI refuses.
    ///
    /// # Safety
    /// As many bytes as the message has can be written there, and nothing else reads or writes them until the request is done.
    pub unsafe fn receive(&self, found: Found, to: *mut u8) -> Result<Request> {
        let Found { len, mut message, .. } = found;
        // SAFETY: a constant of the library.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        let count = c_int::try_from(len)?;
        // SAFETY: as is promised of the bytes; the message is one that was found, and no other call receives it.
        succeeded(unsafe { ffi::MPI_Imrecv(to.cast(), count, ffi::RSMPI_UINT8_T, &mut message, &mut request) })?;
        Ok(Request(request))
    }

    /// Whether all has been sent or received.
    ///
    /// # Errors
    /// It has failed.
    pub fn is_done(&self, request: &mut Request) -> Result<bool> {
        let mut done: c_int = 0;
        // SAFETY: the request is one that MPI has begun; one that is done has become none, for which this is true.
        succeeded(unsafe { ffi::MPI_Test(&mut request.0, &mut done, ffi::RSMPI_STATUS_IGNORE) })?;
        Ok(done != 0)
    }

    /// Ends, with all other ranks.
    pub fn end(self) {
        drop(self.universe);
    }

    /// Calls MPI no more: where a rank has failed, the end would wait for it.
    pub fn abandon(self) {
        std::mem::forget(self.universe);
    }
}

/// What a call has returned.
fn succeeded(code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    let mut text = [0u8; ERROR_TEXT];
    let mut len: c_int = 0;
    // SAFETY: there is room for the longest text.
    unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast::<c_char>(), &mut len) };
    let len = usize::try_from(len).unwrap_or(0).min(ERROR_TEXT);
    let text = String::from_utf8_lossy(&text[..len]);
    // Some say where in the library it was, in a line for each place.
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    ensure!(!lines.is_empty(), "MPI has failed with code {code}");
    Err(anyhow!("MPI: {}", lines.join("; ")))
}
