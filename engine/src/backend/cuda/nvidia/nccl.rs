//! NCCL: bytes from GPU to GPU. Which numbers are added in which order is not left to it: nothing but sends and receives is used.
//!
//! A rank has a GPU of its own and a [`Link`] to the others. What ranks must agree on first, the group's identifier, they tell each other by
//! their [`Collective`], which also knows when one of them has failed. NCCL does not: a GPU waits for a message for as long as that takes. So a thread looks
//! after each link, and ends what is under way when a rank has failed.

use super::functions::functions;
use super::installed::{self, Library, Missing};
use crate::backend::DeviceError;
use crate::backend::cuda::driver::Context;
use crate::backend::cuda::driver::memory::DeviceBlock;
use crate::backend::cuda::driver::stream::{Event, Stream};
use crate::backend::cuda::ready::LibraryCall;
use crate::backend::cuda::settings::Source;
use crate::collective::Collective;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use cudarc::driver::sys::CUstream;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The oldest version that is used, as it numbers itself: communicators that do not block.
const OLDEST: c_int = 21_800;

/// For the GPUs of all ranks to find each other.
const JOIN_LIMIT: Duration = Duration::from_secs(300);

/// Between two looks at what is under way: while the host waits for it, and otherwise.
const PAUSE: Duration = Duration::from_millis(1);
const WATCH: Duration = Duration::from_millis(50);

/// Bytes that each rank sends every other one when they connect.
const GREETING: usize = 256;

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
    /// Why nothing can be sent any more. Who enqueues something holds it, so that nothing is enqueued once that is known.
    failed: RwLock<Option<String>>,
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

/// The other ranks of a GPU.
pub struct Link {
    shared: Arc<Shared>,
    context: Arc<Context>,
    watcher: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("team", &self.shared.team).finish_non_exhaustive()
    }
}

impl Shared {
    /// The text for an answer that is no success.
    fn text(&self, doing: &str, code: u32) -> String {
        let name = NAMES.get(code as usize).copied().unwrap_or("an answer that is not known");
        let comm = self.comm.get().map_or(null_mut(), |comm| comm.0);
        // SAFETY: the function has had this type since version 2.13, and gives a C string or null.
        let last = unsafe {
            let ask = self.functions._loaded.get::<unsafe extern "C" fn(Raw) -> *const c_char>(b"ncclGetLastError\0");
            ask.ok()
                .map(|ask| ask(comm))
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
    fn answer(&self, doing: &str, code: u32) -> Result<()> {
        if code == SUCCESS { Ok(()) } else { Err(anyhow!(self.text(doing, code))) }
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
            self.answer(doing, asked)?;
            if state == IN_PROGRESS {
                std::thread::sleep(PAUSE);
            }
        }
        self.answer(doing, state)
    }

    /// Enqueues messages, all at once.
    fn exchange(&self, comm: &Comm, sends: &[Place], receives: &[Place], stream: &Stream) -> Result<()> {
        let doing = "exchanging bytes";
        let f = &self.functions;
        // SAFETY: the caller's word for the memory, which lives until the exchange is over.
        let ended = unsafe {
            self.answer(doing, (f.ncclGroupStart)())?;
            let mut enqueued = Ok(());
            let mut note = |code| {
                if enqueued.is_ok() && code != IN_PROGRESS {
                    enqueued = self.answer(doing, code);
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
        (!matches!(code, SUCCESS | IN_PROGRESS)).then(|| self.text("exchanging bytes", code))
    }

    fn check(&self) -> Result<()> {
        match self.failed.read().unwrap_or_else(PoisonError::into_inner).as_ref() {
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
            if let Some(why) = self.trouble(comm) {
                drop(over);
                *self.failed.write().unwrap_or_else(PoisonError::into_inner) = Some(why);
                return self.abort(comm);
            }
        }
        drop(over);
        self.abort(comm);
    }
}

impl Link {
    /// Not connected yet.
    ///
    /// # Errors
    /// NCCL is not there, or cannot be used.
    pub fn new(context: &Arc<Context>, team: Arc<dyn Collective>, source: &Source) -> Result<Link, DeviceError> {
        let (functions, version) = find(source)?;
        let shared = Shared {
            functions,
            version,
            team,
            comm: OnceLock::new(),
            failed: RwLock::new(None),
            over: Mutex::new(false),
            changed: Condvar::new(),
        };
        Ok(Link { shared: Arc::new(shared), context: context.clone(), watcher: Mutex::new(None) })
    }

    /// Connects with the other ranks, which all call it at once; returns when a message has come from each. Does nothing if they are connected.
    ///
    /// # Errors
    /// NCCL, the device or another rank failed, or the ranks do not find each other.
    pub fn connect(&self, stream: &Stream) -> Result<()> {
        let shared = &self.shared;
        if shared.comm.get().is_some() {
            return self.check();
        }
        self.context.bind()?;
        let (rank, ranks) = (shared.team.rank(), shared.team.ranks());
        let id = self.agree()?;
        let mut config = Config {
            size: size_of::<Config>(),
            magic: 0xcafe_beef,
            version: 21_700,
            blocking: 0,
            cga_cluster_size: UNDEFINED,
            min_ctas: UNDEFINED,
            max_ctas: UNDEFINED,
            net_name: std::ptr::null(),
            split_share: UNDEFINED,
        };
        let mut raw: Raw = null_mut();
        // SAFETY: the context is current, and the pointers are to locals.
        let code = unsafe {
            (shared.functions.ncclCommInitRankConfig)(&mut raw, ranks as c_int, id, rank as c_int, &mut config)
        };
        if raw.is_null() {
            shared.answer("connecting the GPUs", code)?;
            bail!("NCCL has made no communicator");
        }
        let comm = Comm(raw);
        let joined = shared
            .through(comm.0, "connecting the GPUs", code, Some(Instant::now() + JOIN_LIMIT))
            .and_then(|()| self.greet(&comm, stream));
        if let Err(error) = joined {
            shared.abort(&comm);
            return Err(error);
        }
        shared.comm.get_or_init(|| comm);
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name(format!("nccl-{rank}")).spawn(move || of_thread.watch());
        *self.watcher.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(thread.context("cannot start the thread that looks after NCCL")?);
        Ok(())
    }

    /// The identifier of the group, which is rank 0's; NCCL is of one version everywhere.
    fn agree(&self) -> Result<UniqueId> {
        let shared = &self.shared;
        let mut own = shared.version.to_ne_bytes().to_vec();
        if shared.team.rank() == 0 {
            let mut id = UniqueId([0; 128]);
            // SAFETY: the pointer is to a local.
            shared.answer("beginning a group", unsafe { (shared.functions.ncclGetUniqueId)(&mut id) })?;
            own.extend(id.0);
        }
        let all = shared.team.gather(&own)?;
        let unread = || anyhow!("what another rank tells of NCCL cannot be read");
        for (rank, told) in all.iter().enumerate() {
            let version = c_int::from_ne_bytes(*told.first_chunk().ok_or_else(unread)?);
            ensure!(
                version == shared.version,
                "rank {rank} has NCCL {}, and rank {} has {}\nhelp: all ranks need the same version",
                version_text(version),
                shared.team.rank(),
                version_text(shared.version)
            );
        }
        let id = all.first().and_then(|told| told.get(size_of::<c_int>()..)?.first_chunk()).ok_or_else(unread)?;
        Ok(UniqueId(*id))
    }

    /// A message from each rank to every other: NCCL connects two ranks with their first one, which cannot be while a stream is captured.
    fn greet(&self, comm: &Comm, stream: &Stream) -> Result<()> {
        let shared = &self.shared;
        let (rank, ranks) = (shared.team.rank(), shared.team.ranks());
        let block = DeviceBlock::new(&self.context, 2 * GREETING * ranks)?;
        block.zero(stream, 0, 2 * GREETING * ranks)?;
        let of = |half: usize| -> Vec<Place> {
            let address = |peer: usize| block.address() + (GREETING * (half * ranks + peer)) as u64;
            (0..ranks)
                .filter(|peer| *peer != rank)
                .map(|peer| Place { peer, address: address(peer), bytes: GREETING })
                .collect()
        };
        shared.exchange(comm, &of(0), &of(1), stream)?;
        let done = Event::new(&self.context, false)?;
        done.record(stream)?;
        let limit = Instant::now() + JOIN_LIMIT;
        while !done.happened()? {
            if let Some(why) = shared.trouble(comm) {
                bail!(why);
            }
            ensure!(
                Instant::now() < limit,
                "no message has come from the other GPUs in {} seconds",
                JOIN_LIMIT.as_secs()
            );
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Holds off the end of what is under way while something is enqueued.
    ///
    /// # Errors
    /// A rank has failed.
    pub fn hold(&self) -> Result<RwLockReadGuard<'_, Option<String>>> {
        let held = self.shared.failed.read().unwrap_or_else(PoisonError::into_inner);
        match held.as_ref() {
            Some(why) => Err(anyhow!(why.clone())),
            None => Ok(held),
        }
    }

    /// Fails if a rank has, or NCCL.
    ///
    /// # Errors
    /// The reason.
    pub fn check(&self) -> Result<()> {
        self.shared.check()
    }

    /// Waits until all ranks are here: what one of them has sent it may still read from the memory of another.
    ///
    /// # Errors
    /// Another rank failed.
    pub fn leave(&self) -> Result<()> {
        self.shared.team.gather(&[]).map(drop)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        *self.shared.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.changed.notify_all();
        let thread = self.watcher.lock().unwrap_or_else(PoisonError::into_inner).take();
        match thread {
            // It ends the communicator.
            Some(thread) => drop(thread.join()),
            None => {
                if let Some(comm) = self.shared.comm.get() {
                    self.shared.abort(comm);
                }
            }
        }
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
        let comm = shared.comm.get().context("internal error: the GPUs are not connected")?;
        shared.exchange(comm, &self.sends, &self.receives, stream)
    }
}
