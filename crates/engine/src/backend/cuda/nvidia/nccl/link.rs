//! The other ranks of a GPU, from when they find each other until the last has gone.

use super::{Comm, Config, Place, Raw, Shared, UNDEFINED, UniqueId, find, version_text};
use super::{JOIN_LIMIT, PAUSE};
use crate::backend::DeviceError;
use crate::backend::cuda::driver::Context;
use crate::backend::cuda::driver::memory::DeviceBlock;
use crate::backend::cuda::driver::stream::{Event, Stream};
use crate::backend::cuda::settings::Source;
use crate::collective::Collective;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use std::ffi::c_int;
use std::fmt;
use std::ptr::null_mut;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;
use std::time::Instant;

/// Bytes that each rank sends every other one when they connect.
const GREETING: usize = 256;

/// The other ranks of a GPU.
pub struct Link {
    pub(super) shared: Arc<Shared>,
    context: Arc<Context>,
    watcher: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("team", &self.shared.team).finish_non_exhaustive()
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
            failed: Mutex::new(None),
            busy: RwLock::new(()),
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
            shared.answer(raw, "connecting the GPUs", code)?;
            bail!("NCCL has made no communicator");
        }
        let comm = Comm(raw);
        // Freed after the abort: that waits for the device, which may wait for another rank.
        let block = DeviceBlock::new(&self.context, 2 * GREETING * ranks);
        let joined = shared
            .through(comm.0, "connecting the GPUs", code, Some(Instant::now() + JOIN_LIMIT))
            .and_then(|()| self.greet(&comm, block.as_ref().map_err(|error| *error)?, stream));
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
            shared.answer(null_mut(), "beginning a group", unsafe { (shared.functions.ncclGetUniqueId)(&mut id) })?;
            own.extend(id.0);
        }
        let all = shared.team.gather(&own)?;
        let unread = || anyhow!("the message of another rank about NCCL cannot be read");
        for (rank, message) in all.iter().enumerate() {
            let version = c_int::from_ne_bytes(*message.first_chunk().ok_or_else(unread)?);
            ensure!(
                version == shared.version,
                "rank {rank} has NCCL {}, and rank {} has {}\nhelp: all ranks need the same version",
                version_text(version),
                shared.team.rank(),
                version_text(shared.version)
            );
        }
        let id = all.first().and_then(|message| message.get(size_of::<c_int>()..)?.first_chunk()).ok_or_else(unread)?;
        Ok(UniqueId(*id))
    }

    /// A message from each rank to every other: NCCL connects two ranks with their first one, which cannot be while a stream is captured.
    fn greet(&self, comm: &Comm, block: &DeviceBlock, stream: &Stream) -> Result<()> {
        let shared = &self.shared;
        let (rank, ranks) = (shared.team.rank(), shared.team.ranks());
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
    pub fn hold(&self) -> Result<RwLockReadGuard<'_, ()>> {
        let held = self.shared.busy.read().unwrap_or_else(PoisonError::into_inner);
        self.check()?;
        self.check_ranks()?;
        Ok(held)
    }

    /// Fails if a rank has, or NCCL.
    ///
    /// # Errors
    /// The reason.
    pub fn check(&self) -> Result<()> {
        self.shared.check()
    }

    /// Fails if another rank has: what has gone wrong here comes from that.
    ///
    /// # Errors
    /// The reason.
    pub fn check_ranks(&self) -> Result<()> {
        self.shared.team.check()
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
