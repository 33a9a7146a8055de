//! Sums over ranks that are made while a rank goes on computing.

use super::{Collective, Division, Slots};
use crate::shards::Partial;
use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// A sum, of which each rank is given what belongs to it.
#[derive(Debug)]
pub struct Reduce {
    /// Its number. No other sum has the same while this one is under way.
    pub bucket: usize,
    /// In which order.
    pub order: Vec<Partial>,
    /// Of which tensors.
    pub tensors: Vec<Slots>,
    /// The rank that each tensor belongs to; `None`: each rank has its part of each.
    pub owners: Option<Vec<usize>>,
}

/// A rank, and a thread that makes sums over all ranks one after the other, in the order in which they are begun.
///
/// Ranks exchange other messages only while no sum is under way: all ranks make the same steps in the same order.
pub struct Ahead {
    team: Arc<dyn Collective>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Reduce>,
    /// Begun, and not waited for yet.
    begun: HashSet<usize>,
    /// Made, and not waited for yet.
    made: HashSet<usize>,
    ended: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under the lock leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.team.fmt(f)
    }
}

impl Ahead {
    /// With a thread of its own. Without one, which the system may not give, nothing is begun ahead.
    pub fn new(team: Arc<dyn Collective>) -> Ahead {
        let shared = Arc::new(Shared::default());
        let of_thread = (team.clone(), shared.clone());
        let name = format!("sums-{}", team.rank());
        let thread =
            std::thread::Builder::new().name(name).spawn(move || work(of_thread.0.as_ref(), &of_thread.1)).ok();
        Ahead { team, shared, thread }
    }

    /// The rank.
    pub fn team(&self) -> &dyn Collective {
        self.team.as_ref()
    }

    /// Begins a sum, and returns at once.
    ///
    /// # Safety
    /// As [`Collective::reduce_scatter`], until [`Ahead::end`] has returned or this is dropped.
    pub unsafe fn begin(&self, reduce: Reduce) {
        if self.thread.is_none() {
            return;
        }
        let mut state = self.shared.lock();
        state.begun.insert(reduce.bucket);
        state.waiting.push_back(reduce);
        self.shared.changed.notify_all();
    }

    /// Waits for the sum of that bucket; false if it was not begun. [`Collective::check`] returns its failure.
    pub fn end(&self, bucket: usize) -> bool {
        let mut state = self.shared.lock();
        if !state.begun.remove(&bucket) {
            return false;
        }
        while !state.made.remove(&bucket) {
            state = self.shared.wait(state);
        }
        true
    }

    /// Waits for all sums that were begun.
    pub fn end_all(&self) {
        let begun: Vec<usize> = self.shared.lock().begun.iter().copied().collect();
        for bucket in begun {
            self.end(bucket);
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        let is_busy = !self.shared.lock().begun.is_empty();
        if is_busy && self.team.check().is_ok() {
            // The others wait for sums that this rank will not end.
            self.team.fail("it has stopped in the middle of a step");
        }
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
        self.thread.take().map(JoinHandle::join);
    }
}

fn work(team: &dyn Collective, shared: &Shared) {
    loop {
        let mut state = shared.lock();
        let reduce = loop {
            match state.waiting.pop_front() {
                Some(reduce) => break reduce,
                None if state.ended => return,
                None => state = shared.wait(state),
            }
        };
        drop(state);
        let Reduce { bucket, order, tensors, owners } = reduce;
        let division = owners.as_ref().map_or(Division::Elements, |owners| Division::Tensors(owners));
        // What has failed is asked for when the program has run.
        // SAFETY: the caller of `begin` promises this of the slots until the sum has ended.
        let _ = unsafe { team.reduce_scatter(&order, &tensors, division) };
        shared.lock().made.insert(bucket);
        shared.changed.notify_all();
    }
}
