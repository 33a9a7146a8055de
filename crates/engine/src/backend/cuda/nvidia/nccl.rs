//! NCCL: bytes from GPU to GPU. Which numbers are added in which order is not left to it: nothing but sends and receives is used.
//!
//! A rank has a GPU of its own and a [`Link`] to the others. What ranks must agree on first, the group's identifier, they send each other by
//! their [`Collective`], which also knows when one of them has failed. NCCL does not: a GPU waits for a message for as long as that takes. So a thread looks
//! after each link, and ends what is under way when a rank has failed.

mod link;

pub use link::Link;

use super::functions::functions;
use super::installed::{self, Library, Missing};
use crate::backend::DeviceError;
use crate::backend::cuda::driver::stream::Stream;
use crate::backend::cuda::ready::LibraryCall;
use crate::backend::cuda::settings::Source;
use crate::collective::Collective;
use anyhow::{Context as _, Result, anyhow, bail};
use cudarc::driver::sys::CUstream;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// The oldest version that is used, as it numbers itself: communicators that do not block.
const OLDEST: c_int = 21_800;

/// For the GPUs of all ranks to find each other.
const JOIN_LIMIT: Duration = Duration::from_secs(300);

/// Between two looks at what is under way: while the host waits for it, and otherwise.
const PAUSE: Duration = Duration::from_millis(1);
const WATCH: Duration = Duration::from_millis(50);

/// For what is being enqueued to be through.
const AT_MOST: Duration = Duration::from_secs(1);

/// `ncclUint8`: messages are bytes.
const BYTES: c_int = 1;

const SUCCESS: u32 = 0;
const IN_PROGRESS: u32 = 7;

/// What NCCL calls its answers, by their numbers.
const NAMES: [&str; 8] = [
    "ncclSuccess",
    "ncclUnhandledCudaError",
    "ncclSystemError",
    "ncclInternalError",
    "ncclInvalidArgument",
    "ncclInvalidUsage",
    "ncclRemoteError",
    "ncclInProgress",
];

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; 128]);

/// `ncclConfig_t` of version 2.17, which later ones take.
#[repr(C)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
}

/// What `ncclConfig_t` has where nothing is asked for.
const UNDEFINED: c_int = c_int::MIN;

/// `ncclComm_t`.
type Raw = *mut c_void;

functions! {
    /// What is used of NCCL.
    Functions {
        ncclGetVersion(*mut c_int);
        ncclGetUniqueId(*mut UniqueId);
        ncclCommInitRankConfig(*mut Raw, c_int, UniqueId, c_int, *mut Config);
        ncclCommGetAsyncError(Raw, *mut u32);
        ncclCommAbort(Raw);
        ncclGroupStart();
        ncclGroupEnd();
        ncclSend(*const c_void, usize, c_int, c_int, Raw, CUstream);
        ncclRecv(*mut c_void, usize, c_int, c_int, Raw, CUstream);
    }
}

/// A version for people.
fn version_text(version: c_int) -> String {
    format!("{}.{}.{}", version / 10_000, version % 10_000 / 100, version % 100)
}

/// Loads the library, and finds that it is new enough and complete; with its version.
fn load(path: &Path) -> Result<(Functions, c_int), String> {
    let functions = Functions::load(path)?;
    let mut version = 0;
    // SAFETY: the pointer is to a local.
    let code = unsafe { (functions.ncclGetVersion)(&mut version) };
    match version {
        _ if code != SUCCESS => Err("does not tell its version".into()),
        OLDEST.. => Ok((functions, version)),
        old => Err(format!("is too old ({}, and 2.18 is needed)", version_text(old))),
    }
}

/// What a library that was found lacks.
///
/// # Errors
/// It lacks something.
pub fn check(path: &Path) -> Result<(), String> {
    load(path).map(drop)
}

/// The library that is to be used.
fn find(source: &Source) -> Result<(Functions, c_int), DeviceError> {
    let refuse = |why: String| {
        DeviceError(format!(
            "several GPUs need NCCL, and it {why}\nhelp: install it (`libnccl2` of NVIDIA's packages, `pip install nvidia-nccl-cu12`), or train on \
             one GPU; `runner devices` shows what is found"
        ))
    };
    let path = match source {
        Source::Nowhere => return Err(refuse("may not be used".into())),
        Source::File(path) => path.clone(),
        Source::Found => match installed::open(Library::Nccl) {
            Ok(found) => found.path,
            Err(Missing::NotFound) => return Err(refuse("was not found".into())),
            Err(Missing::Broken { path, why }) => {
                return Err(refuse(format!("does not load from {}: {why}", path.display())));
            }
        },
    };
    load(&path).map_err(|why| refuse(format!("cannot be used: {} {why}", path.display())))
}

/// What a link and the thread that looks after it share.
struct Shared {
    functions: Functions,
    version: c_int,
    team: Arc<dyn Collective>,
    comm: OnceLock<Comm>,
    /// Why nothing can be sent any more.
    failed: Mutex<Option<String>>,
    /// A thread that enqueues something holds it for reading: meanwhile the watching thread does not ask NCCL for errors.
    busy: RwLock<()>,
    /// The link is gone.
    over: Mutex<bool>,
    changed: Condvar,
}

/// A communicator.
struct Comm(Raw);

// SAFETY: one thread at a time enqueues, and NCCL allows to ask for errors and to abort from another one.
unsafe impl Send for Comm {}
// SAFETY: as above.
unsafe impl Sync for Comm {}

impl Shared {
    /// The text for an answer that is no success. The communicator may be null.
    fn text(&self, raw: Raw, doing: &str, code: u32) -> String {
        let name = NAMES.get(code as usize).copied().unwrap_or("an answer that is not known");
        // SAFETY: the function has had this type since version 2.13, and gives a C string or null.
        let last = unsafe {
            let ask = self.functions._loaded.get::<unsafe extern "C" fn(Raw) -> *const c_char>(b"ncclGetLastError\0");
            ask.ok()
                .map(|ask| ask(raw))
                .filter(|text| !text.is_null())
                .map(|text| CStr::from_ptr(text).to_string_lossy().into_owned())
        };
        let last =
            last.filter(|text| !text.trim().is_empty()).map_or(String::new(), |text| format!(": {}", text.trim()));
        format!(
            "NCCL failed while {doing} ({name}, status {code}){last}\nhelp: with `NCCL_DEBUG=WARN` in the environment NCCL says more"
        )
    }

    /// NCCL's answer as a result.
    fn answer(&self, raw: Raw, doing: &str, code: u32) -> Result<()> {
        if code == SUCCESS { Ok(()) } else { Err(anyhow!(self.text(raw, doing, code))) }
    }

    /// Waits until a call that answered `code` is through: NCCL does what takes longer in threads of its own.
    fn through(&self, raw: Raw, doing: &str, code: u32, limit: Option<Instant>) -> Result<()> {
        let mut state = code;
        while state == IN_PROGRESS {
            self.team.check()?;
            if limit.is_some_and(|limit| Instant::now() > limit) {
                bail!(
                    "NCCL has not ended {doing} in {} seconds\nhelp: with `NCCL_DEBUG=INFO` in the environment NCCL says what it waits for",
                    JOIN_LIMIT.as_secs()
                );
            }
            // SAFETY: the communicator lives; the pointer is to a local.
            let asked = unsafe { (self.functions.ncclCommGetAsyncError)(raw, &mut state) };
            self.answer(raw, doing, asked)?;
            if state == IN_PROGRESS {
                std::thread::sleep(PAUSE);
            }
        }
        self.answer(raw, doing, state)
    }

    /// Enqueues messages, all at once.
    fn exchange(&self, comm: &Comm, sends: &[Place], receives: &[Place], stream: &Stream) -> Result<()> {
        let doing = "exchanging bytes";
        let f = &self.functions;
        // SAFETY: the caller's word for the memory, which lives until the exchange is over.
        let ended = unsafe {
            self.answer(comm.0, doing, (f.ncclGroupStart)())?;
            let mut enqueued = Ok(());
            let mut note = |code| {
                if enqueued.is_ok() && code != IN_PROGRESS {
                    enqueued = self.answer(comm.0, doing, code);
                }
            };
            for Place { peer, address, bytes } in sends {
                note((f.ncclSend)(*address as *const c_void, *bytes, BYTES, *peer as c_int, comm.0, stream.raw));
            }
            for Place { peer, address, bytes } in receives {
                note((f.ncclRecv)(*address as *mut c_void, *bytes, BYTES, *peer as c_int, comm.0, stream.raw));
            }
            // Ended even after an error: what is begun holds for the whole thread.
            let ended = (f.ncclGroupEnd)();
            enqueued?;
            ended
        };
        self.through(comm.0, doing, ended, None)
    }

    /// Why the link cannot be used any more, if NCCL or a rank says so now.
    fn trouble(&self, comm: &Comm) -> Option<String> {
        if let Err(error) = self.team.check() {
            return Some(format!("{error:#}"));
        }
        let mut state = SUCCESS;
        // SAFETY: the communicator lives; the pointer is to a local.
        let asked = unsafe { (self.functions.ncclCommGetAsyncError)(comm.0, &mut state) };
        let code = if asked == SUCCESS { state } else { asked };
        (!matches!(code, SUCCESS | IN_PROGRESS)).then(|| self.text(comm.0, "exchanging bytes", code))
    }

    fn check(&self) -> Result<()> {
        match self.failed.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            Some(why) => Err(anyhow!(why.clone())),
            None => Ok(()),
        }
    }

    /// Ends the communicator, and what it has under way. NCCL returns when no graph with exchanges is left.
    fn abort(&self, comm: &Comm) {
        // What it answers is of no use: nothing is sent any more.
        // SAFETY: it lives, and nothing is enqueued any more.
        unsafe { (self.functions.ncclCommAbort)(comm.0) };
    }

    /// Looks after the link until it is gone.
    fn watch(&self) {
        let Some(comm) = self.comm.get() else { return };
        let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        while !*over {
            over = self.changed.wait_timeout(over, WATCH).unwrap_or_else(PoisonError::into_inner).0;
            if *over {
                break;
            }
            let known = self.check().err().or_else(|| self.team.check().err()).map(|error| format!("{error:#}"));
            let trouble = known.or_else(|| self.busy.try_write().ok().and_then(|_alone| self.trouble(comm)));
            if let Some(why) = trouble {
                drop(over);
                *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                // Nothing more is enqueued now. Who waits for the device in between, as where every launch is waited for, waits for this.
                let limit = Instant::now() + AT_MOST;
                while self.busy.try_write().is_err() && Instant::now() < limit {
                    std::thread::sleep(PAUSE);
                }
                return self.abort(comm);
            }
        }
        drop(over);
        self.abort(comm);
    }
}

/// Bytes on the device for another rank, or from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The other rank.
    pub peer: usize,
    /// Where they are.
    pub address: u64,
    /// How many.
    pub bytes: usize,
}

/// An exchange with its addresses.
#[derive(Debug)]
pub struct ExchangeCall {
    /// The other ranks.
    pub link: Arc<Link>,
    /// What is sent.
    pub sends: Vec<Place>,
    /// What is received.
    pub receives: Vec<Place>,
}

impl LibraryCall for ExchangeCall {
    unsafe fn enqueue(&self, stream: &Stream) -> Result<()> {
        let shared = &self.link.shared;
        // Where every launch is waited for, a rank may have failed since the run began, and the communicator be gone.
        shared.check()?;
        let comm = shared.comm.get().context("internal error: the GPUs are not connected")?;
        let done = shared.exchange(comm, &self.sends, &self.receives, stream);
        if let Err(error) = &done {
            // What has not ended well is not gone on with.
            let mut failed = shared.failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.get_or_insert_with(|| format!("{error:#}"));
        }
        done
    }
}
