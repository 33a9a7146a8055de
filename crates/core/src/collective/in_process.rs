//! Ranks that are threads of one process: they read each other's memory.

use super::total::{parts, total};
use super::{Collective, Division, Slots};
use crate::shards::Partial;
use anyhow::{Result, anyhow};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What all ranks share.
struct Shared {
    ranks: usize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Ranks that wait for the others now.
    waiting: usize,
    /// How often all have met.
    meetings: u64,
    /// The tensors that each rank has given for a sum, by their address.
    tensors: Vec<Given>,
    /// What each rank has given to each.
    bytes: Vec<Vec<Vec<u8>>>,
    /// The rank that cannot go on, and why.
    failed: Option<(usize, String)>,
}

/// A list of tensors in the memory of a rank, which lies where it is until all have met again.
#[derive(Clone, Copy)]
struct Given {
    first: *const Slots,
    len: usize,
}

// SAFETY: it is read between two meetings only, while its rank waits for the second one.
unsafe impl Send for Given {}

impl Given {
    const NOTHING: Given = Given { first: std::ptr::null(), len: 0 };

    /// # Safety
    /// The list is still there.
    unsafe fn list<'a>(self) -> &'a [Slots] {
        match self.len {
            0 => &[],
            // SAFETY: it was made from a slice of this length, which is there.
            n => unsafe { std::slice::from_raw_parts(self.first, n) },
        }
    }
}

/// One of them.
struct Member {
    rank: usize,
    shared: Arc<Shared>,
}

/// So many ranks of a team, one for each thread.
pub fn team(ranks: usize) -> Vec<Arc<dyn Collective>> {
    let state = State {
        waiting: 0,
        meetings: 0,
        tensors: vec![Given::NOTHING; ranks],
        bytes: vec![Vec::new(); ranks],
        failed: None,
    };
    let shared = Arc::new(Shared { ranks, state: Mutex::new(state), changed: Condvar::new() });
    (0..ranks).map(|rank| Arc::new(Member { rank, shared: shared.clone() }) as Arc<dyn Collective>).collect()
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.rank, self.shared.ranks)
    }
}

impl State {
    fn check(&self) -> Result<()> {
        match &self.failed {
            Some((rank, why)) => Err(anyhow!("rank {rank} has failed: {why}")),
            None => Ok(()),
        }
    }
}

impl Member {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock leaves nothing half done: it guards assignments alone.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all ranks are here.
    fn meet<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Result<MutexGuard<'a, State>> {
        state.check()?;
        state.waiting += 1;
        if state.waiting == self.shared.ranks {
            state.waiting = 0;
            state.meetings += 1;
            self.shared.changed.notify_all();
            return Ok(state);
        }
        let before = state.meetings;
        while state.meetings == before {
            state.check()?;
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(state)
    }
}

impl Member {
    /// Shows the other ranks the tensors of this one, and returns those of all, in the order of ranks. They are there until all meet again.
    ///
    /// # Safety
    /// As [`Collective::reduce_scatter`].
    unsafe fn publish<'a>(&self, tensors: &'a [Slots]) -> Result<Vec<&'a [Slots]>> {
        let mut state = self.lock();
        state.tensors[self.rank] = Given { first: tensors.as_ptr(), len: tensors.len() };
        let state = self.meet(state)?;
        // SAFETY: every rank waits until all have done with its list.
        Ok(state.tensors.iter().map(|given| unsafe { given.list() }).collect())
    }
}

impl Collective for Member {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.shared.ranks
    }

    unsafe fn reduce_scatter(&self, order: &[Partial], tensors: &[Slots], division: Division) -> Result<()> {
        // SAFETY: as the caller promises.
        let lists = unsafe { self.publish(tensors)? };
        let own = parts(tensors, division, (self.rank, self.shared.ranks));
        for (at, own) in own.into_iter().enumerate().filter(|(_, own)| !own.is_empty()) {
            let start = own.start * tensors[at].dtype.bytes();
            // SAFETY: inside the slot, which is as long as the tensor.
            let from = |of: &Partial| unsafe { lists[of.rank][at].slots[of.slot].cast_const().add(start) };
            // SAFETY: as the caller of each rank promises. These elements of the first slot are read and written here alone until all
            // meet again: the other ranks have other elements.
            unsafe { total(order, from, &tensors[at], own) };
        }
        self.meet(self.lock()).map(drop)
    }

    unsafe fn all_gather(&self, tensors: &[Slots], division: Division) -> Result<()> {
        // SAFETY: as the caller promises.
        let lists = unsafe { self.publish(tensors)? };
        for (rank, list) in lists.iter().enumerate().filter(|(rank, _)| *rank != self.rank) {
            for (at, part) in parts(tensors, division, (rank, self.shared.ranks)).into_iter().enumerate() {
                let size = tensors[at].dtype.bytes();
                // SAFETY: no rank writes these elements of that rank's first slot until all meet again. No other rank reads these elements
                // of this one's: the others copy the elements that belong to this rank.
                unsafe {
                    let from = list[at].slots[0].cast_const().add(part.start * size);
                    std::ptr::copy_nonoverlapping(from, tensors[at].slots[0].add(part.start * size), part.len() * size);
                }
            }
        }
        self.meet(self.lock()).map(drop)
    }

    fn exchange<'a>(&self, given: &dyn Fn(usize) -> &'a [u8]) -> Result<Vec<Vec<u8>>> {
        let of_this: Vec<Vec<u8>> = (0..self.shared.ranks).map(|rank| given(rank).to_vec()).collect();
        let mut state = self.lock();
        state.bytes[self.rank] = of_this;
        let mut state = self.meet(state)?;
        let all = state.bytes.iter_mut().map(|of_rank| std::mem::take(&mut of_rank[self.rank])).collect();
        // No rank gives anything new before all have read.
        self.meet(state).map(|_| all)
    }

    fn fail(&self, why: &str) {
        let mut state = self.lock();
        if state.failed.is_none() {
            state.failed = Some((self.rank, why.to_owned()));
        }
        self.shared.changed.notify_all();
    }

    fn check(&self) -> Result<()> {
        self.lock().check()
    }
}
