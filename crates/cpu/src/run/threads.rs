//! A pool of threads that share the tasks of one kernel after another.
//!
//! What a task covers is the caller's choice and depends on shapes only; which thread does it is left to chance. So a
//! kernel whose tasks write to places of their own, or leave partial sums *by task*, gives the same bits for any number
//! of threads.
//!
//! A thread begins with its own share of the tasks, which are in order, and then helps the others. So from kernel to kernel
//! and from step to step it mostly meets the same part of the batch, and finds it in its own cache.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};

/// Turns of an idle thread's loop before it parks: some 50 µs, longer than the gaps between the kernels of a step.
const SPINS: usize = 1000;

/// Tasks wanted for each thread, where the number of tasks decides no sum: a slow thread then takes fewer.
pub const TASKS_PER_THREAD: usize = 4;

/// In [`Shared::state`]: threads inside the job, whether more may enter, and the job's number in the bits above.
const INSIDE: usize = 0xffff;
const OPEN: usize = 0x1_0000;
const NUMBER: usize = 0x2_0000;

type Task<'a> = dyn Fn(usize, usize) + Sync + 'a;

struct Job {
    task: *const Task<'static>,
    tasks: usize,
    caller: Thread,
}

/// The next task of a thread's share that no thread has taken. Cache lines of its own: two, as machines fetch them in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Share(AtomicUsize);

struct Shared {
    state: AtomicUsize,
    /// The shares of the threads.
    shares: Box<[Share]>,
    /// Written by the caller while no thread is inside, read by the threads inside.
    job: UnsafeCell<Option<Job>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    stop: AtomicBool,
    parked: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
}

// SAFETY: `job` is written only while no thread is inside and the job is closed, which `state` orders.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `job` is to a `Sync` closure that the caller keeps alive while any thread is inside.
unsafe impl Send for Shared {}

/// Threads that live until the pool is dropped. The thread that calls [`Pool::run`] is one of them.
///
/// A pool is not `Sync`, so a task cannot use the pool that runs it.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    one_caller: PhantomData<Cell<()>>,
}

impl Pool {
    /// A pool of `threads` threads, the caller's among them (0 counts as 1).
    ///
    /// # Errors
    /// The system refused a thread.
    pub fn new(threads: usize) -> std::io::Result<Pool> {
        let shared = Arc::new(Shared {
            state: AtomicUsize::new(0),
            shares: (0..threads.clamp(1, INSIDE)).map(|_| Share::default()).collect(),
            job: UnsafeCell::new(None),
            panic: Mutex::new(None),
            stop: AtomicBool::new(false),
            parked: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
        });
        let mut pool = Pool { shared, workers: Vec::new(), one_caller: PhantomData };
        for worker in 1..threads.min(INSIDE) {
            let shared = Arc::clone(&pool.shared);
            let thread = thread::Builder::new().name(format!("compute-{worker}"));
            pool.workers.push(thread.spawn(move || shared.work(worker))?);
        }
        Ok(pool)
    }

    /// Number of threads, the caller's included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `task(i, worker)` once for every `i < tasks`, in no particular order, and returns when all are done.
    /// `worker < threads()` is the thread that runs it, for scratch memory by thread.
    ///
    /// # Panics
    /// A task panicked; the panic is passed on once no task runs any more.
    pub fn run(&self, tasks: usize, task: impl Fn(usize, usize) + Sync) {
        if self.workers.is_empty() || tasks <= 1 {
            return (0..tasks).for_each(|i| task(i, 0));
        }
        let shared = &*self.shared;
        let task: &Task<'_> = &task;
        // SAFETY: only the lifetime changes; the job is closed and left by all before this function returns.
        let task: *const Task<'static> = unsafe { std::mem::transmute(task) };
        // SAFETY: the job before is closed and no thread is inside, and only one thread can call this (not `Sync`).
        unsafe { *shared.job.get() = Some(Job { task, tasks, caller: thread::current() }) };
        for (worker, share) in shared.shares.iter().enumerate() {
            share.0.store(shared.share(worker, tasks).start, Ordering::Relaxed);
        }
        let number = (shared.state.load(Ordering::Relaxed) & !(NUMBER - 1)).wrapping_add(NUMBER);
        shared.state.store(number | OPEN, Ordering::SeqCst);
        if shared.parked.load(Ordering::SeqCst) > 0 {
            // A thread about to park holds the lock from its last look at `state` until it waits.
            drop(shared.sleep.lock().unwrap_or_else(PoisonError::into_inner));
            shared.wake.notify_all();
        }
        shared.take_tasks(0);
        // A thread that has not come by now is not waited for.
        shared.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut spins = 0;
        while shared.state.load(Ordering::Acquire) & INSIDE != 0 {
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
            } else {
                thread::park();
            }
        }
        let panic = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        drop(self.shared.sleep.lock().unwrap_or_else(PoisonError::into_inner));
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its tasks, so it ends well.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// The tasks that a thread begins with.
    fn share(&self, worker: usize, tasks: usize) -> Range<usize> {
        let threads = self.shares.len();
        tasks * worker / threads..tasks * (worker + 1) / threads
    }

    /// Takes tasks until there are none left. The calling thread is inside the job.
    fn take_tasks(&self, worker: usize) {
        // SAFETY: inside the job, so no thread writes it.
        let Some(job) = (unsafe { &*self.job.get() }) else { return };
        let result = catch_unwind(AssertUnwindSafe(|| {
            let threads = self.shares.len();
            for whose in (worker..threads).chain(0..worker) {
                let (next, end) = (&self.shares[whose].0, self.share(whose, job.tasks).end);
                // Looked at before it is changed: nothing is left of most shares.
                while next.load(Ordering::Relaxed) < end {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= end {
                        break;
                    }
                    // SAFETY: the caller keeps the closure while any thread is inside.
                    unsafe { (*job.task)(i, worker) };
                }
            }
        }));
        if let Err(panic) = result {
            // No further tasks: the result is lost anyway.
            self.shares.iter().for_each(|share| share.0.store(job.tasks, Ordering::Relaxed));
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(panic);
        }
    }

    /// Enters the job that is open, unless it is number `last`, which this thread has been in.
    fn enter(&self, last: usize) -> Option<usize> {
        let mut state = self.state.load(Ordering::SeqCst);
        while state & OPEN != 0 && state & !(NUMBER - 1) != last {
            match self.state.compare_exchange_weak(state, state + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(state & !(NUMBER - 1)),
                Err(now) => state = now,
            }
        }
        None
    }

    /// Life of a worker.
    fn work(&self, worker: usize) {
        let mut last = 0;
        while let Some(number) = self.wait(last) {
            last = number;
            self.take_tasks(worker);
            // SAFETY: inside the job. The handle is taken before leaving: afterwards the job may be gone.
            let caller = unsafe { &*self.job.get() }.as_ref().map(|job| job.caller.clone());
            let before = self.state.fetch_sub(1, Ordering::AcqRel);
            if before & INSIDE == 1 && before & OPEN == 0 {
                caller.inspect(Thread::unpark);
            }
        }
    }

    /// Waits for a job and enters it; `None` if the pool is dropped.
    fn wait(&self, last: usize) -> Option<usize> {
        for _ in 0..SPINS {
            if let Some(number) = self.enter(last) {
                return Some(number);
            }
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            std::hint::spin_loop();
        }
        let mut guard = self.sleep.lock().unwrap_or_else(PoisonError::into_inner);
        self.parked.fetch_add(1, Ordering::SeqCst);
        let found = loop {
            if let Some(number) = self.enter(last) {
                break Some(number);
            }
            if self.stop.load(Ordering::SeqCst) {
                break None;
            }
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        };
        self.parked.fetch_sub(1, Ordering::SeqCst);
        found
    }
}

/// `0..len` in pieces of `grain`, the last one shorter: the same pieces whatever the number of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunks {
    len: usize,
    grain: usize,
}

/// Cuts `0..len` in pieces of `grain` (0 counts as 1).
pub const fn chunks(len: usize, grain: usize) -> Chunks {
    Chunks { len, grain: if grain == 0 { 1 } else { grain } }
}

impl Chunks {
    /// How many pieces there are.
    pub const fn count(&self) -> usize {
        self.len.div_ceil(self.grain)
    }

    /// Number of the piece that holds element `at`.
    pub const fn holding(&self, at: usize) -> usize {
        at / self.grain
    }

    /// Piece number `i < count()`.
    pub fn range(&self, i: usize) -> Range<usize> {
        let start = (i * self.grain).min(self.len);
        start..(start + self.grain).min(self.len)
    }
}

/// A slice that several tasks write to, each in places of its own.
pub struct Parts<'a, T> {
    ptr: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

impl<T> Clone for Parts<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Parts<'_, T> {}

// SAFETY: parts are handed out under the promise that they do not overlap.
unsafe impl<T: Send> Sync for Parts<'_, T> {}
// SAFETY: as a `&mut [T]`.
unsafe impl<T: Send> Send for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    /// Shares out `slice`.
    pub fn new(slice: &'a mut [T]) -> Self {
        Parts { ptr: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// The elements in `range`.
    ///
    /// # Safety
    /// While the result is used nothing else uses these elements.
    ///
    /// # Panics
    /// The range leaves the slice.
    #[allow(clippy::mut_from_ref, reason = "that is the point, and the caller promises that parts do not overlap")]
    pub unsafe fn part(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "part {range:?} of {} elements", self.len);
        // SAFETY: inside the slice, and the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(range.start), range.end - range.start) }
    }

    /// The first element's address, for kernels that write with strides.
    pub fn as_ptr(&self) -> *mut T {
        self.ptr
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// There are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_task_runs_once() {
        for threads in [0, 1, 2, 5] {
            let pool = Pool::new(threads).unwrap();
            assert_eq!(pool.threads(), threads.max(1));
            for tasks in [0, 1, 2, 3, 100] {
                let hits: Vec<_> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                pool.run(tasks, |i, worker| {
                    assert!(worker < pool_size(threads));
                    hits[i].fetch_add(1, Ordering::Relaxed);
                });
                assert!(hits.iter().all(|h| h.load(Ordering::Relaxed) == 1));
            }
        }
    }

    fn pool_size(threads: usize) -> usize {
        threads.max(1)
    }

    #[test]
    fn many_short_runs_and_parked_workers() {
        let pool = Pool::new(4).unwrap();
        let mut data = vec![0u32; 16];
        for round in 0..2000 {
            if round % 500 == 0 {
                // Long enough for the workers to park.
                thread::sleep(Duration::from_millis(2));
            }
            let parts = Parts::new(&mut data);
            // SAFETY: each task has an element of its own.
            pool.run(16, |i, _| unsafe { parts.part(i..i + 1) }[0] += i as u32);
        }
        assert!(data.iter().enumerate().all(|(i, &x)| x == 2000 * i as u32));
    }

    #[test]
    fn a_panic_is_passed_on_and_the_pool_survives() {
        let pool = Pool::new(3).unwrap();
        for bad in [0, 7, 19] {
            let caught = catch_unwind(AssertUnwindSafe(|| {
                pool.run(20, |i, _| {
                    if i == bad {
                        resume_unwind(Box::new("task failed"));
                    }
                })
            }));
            assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "task failed");
            let done = AtomicUsize::new(0);
            pool.run(20, |_, _| {
                done.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(done.load(Ordering::Relaxed), 20);
        }
    }

    #[test]
    fn chunks_tile_the_range() {
        for (len, grain) in [(0, 4), (1, 4), (8, 4), (9, 4), (5, 0)] {
            let pieces = chunks(len, grain);
            let joined: Vec<usize> = (0..pieces.count()).flat_map(|i| pieces.range(i)).collect();
            assert_eq!(joined, (0..len).collect::<Vec<_>>());
        }
    }
}
