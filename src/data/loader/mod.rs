//! Batches ahead of need: a ring of host buffers that worker threads fill in order.
//!
//! Batches are numbered through all epochs, and number `b` uses slot `b % slots`. Under one lock, a worker claims the
//! next number as soon as its slot is free, and copies the numbers of its samples; the filling itself needs no lock.
//! What a batch holds depends on the options and its place alone, so neither the number of workers nor their timing can
//! change it. Everything is allocated at the start: a batch costs no allocation, and moves only its buffer's handle.

mod fill;
mod mix;
mod order;

pub use mix::{Mix, Mixing};
pub use order::Own;

use super::{BatchShape, Split, Transform, Unreadable};
use crate::backend::HostBuffer;
use crate::plan::SlotLayout;
use anyhow::{Context, Result, bail, ensure};
use fill::Filler;
use order::Order;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// How batches are made of a split.
#[derive(Debug, Clone, PartialEq)]
pub struct LoaderOptions {
    /// Samples in a batch.
    pub batch_size: usize,
    /// With `drop_last`: batches that are left out together, where one of them has too few samples.
    pub batches_together: usize,
    /// The batches to make, where others make the rest of them.
    pub own: Option<Own>,
    /// Whether each epoch has an order of its own, or that of the split.
    pub shuffle: bool,
    /// Whether a last batch of fewer samples is left out.
    pub drop_last: bool,
    /// Keys all draws.
    pub seed: u64,
    /// Number of threads; 0: batches are made when they are asked for.
    pub workers: usize,
    /// Changes to every sample, of the field that [`super::transformed`] returns.
    pub transforms: Vec<Transform>,
    /// How the samples of a batch are mixed afterwards, in that field and in what is learnt.
    pub mixing: Option<Mixing>,
    /// The first epoch that is not made; `None`: batches never end.
    pub end_epoch: Option<u64>,
}

impl Default for LoaderOptions {
    /// Batches of one in a new order for every epoch, without end, made when they are asked for.
    fn default() -> Self {
        LoaderOptions {
            batch_size: 1,
            batches_together: 1,
            own: None,
            shuffle: true,
            drop_last: false,
            seed: 0,
            workers: 0,
            transforms: Vec::new(),
            mixing: None,
            end_epoch: None,
        }
    }
}

/// A place in the sequence of batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position {
    /// The epoch, which keys the order and the changes.
    pub epoch: u64,
    /// The batch in it, from 0. The number of batches in an epoch stands for the start of the next one.
    pub batch: usize,
}

/// A batch, with its buffer: to be given back by [`Loader::release`].
pub struct Batch {
    /// Which batch of which epoch.
    pub position: Position,
    /// Number of samples, and their lengths, where batches differ in those: the front of each input is filled.
    pub shape: BatchShape,
    /// True for the last batch of its epoch.
    pub last: bool,
    /// Which slot of the ring.
    pub slot: usize,
    /// The slot's memory, in the layout that the loader was given. The fields are written; the other inputs are the caller's.
    pub buffer: HostBuffer,
    /// The samples, as places in the split.
    samples: Vec<u32>,
    missing: Missing,
}

/// Samples that could not be read, and the rows of the batch in which others stand for them.
#[derive(Default)]
struct Missing {
    samples: Vec<Unreadable>,
    rows: Vec<usize>,
}

impl Batch {
    /// The samples in the batch, as places in the split: also those that were taken in the place of others.
    pub fn samples(&self) -> &[u32] {
        &self.samples
    }

    /// Samples that could not be read when it was made. The next ones of the split are in their places.
    pub fn unreadable(&self) -> &[Unreadable] {
        &self.missing.samples
    }

    /// The rows in which the next samples of the split stand for those that could not be read, ascending.
    pub fn replaced(&self) -> &[usize] {
        &self.missing.rows
    }
}

/// Makes the batches of a split, epoch after epoch without a break.
pub struct Loader {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    filler: Filler,
    state: Mutex<State>,
    /// Signal to the workers: a slot became free, or the loader ends.
    free: Condvar,
    /// Signal to the consumer: a slot became ready, or a worker failed.
    ready: Condvar,
    batches_per_epoch: usize,
    batches_together: usize,
}

struct State {
    order: Order,
    slots: Vec<Slot>,
    /// The number of the batch to be filled next, counted from the loader's start; `order` stands at it.
    next_fill: u64,
    /// The number of the batch to be handed out next.
    next_out: u64,
    stop: bool,
}

/// The state of a slot. A buffer that is being filled or is with the caller is owned there.
enum Slot {
    Free(HostBuffer, Vec<u32>, Missing),
    Filling,
    Ready(Batch),
    /// It could not be made, and why. Reported when its turn comes, so that nothing depends on how far ahead the workers are.
    Failed(BatchError),
    Out,
}

/// A batch that could not be made.
#[derive(Debug, Clone)]
pub struct BatchError {
    /// Which, as they are configured: shards are parts of one.
    at: Position,
    /// Why.
    pub why: String,
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (batch, epoch) = (self.at.batch + 1, self.at.epoch + 1);
        write!(f, "making a batch failed: batch {batch} of epoch {epoch}: {}", self.why)
    }
}

impl std::error::Error for BatchError {}

impl Loader {
    /// Starts making the batches of `split` from `start` on. Each of `buffers` is a slot of the ring and is laid out by
    /// `layout`, of which the loader fills the fields.
    ///
    /// # Errors
    /// There are no samples, no whole batch (with `drop_last`) or no buffers; the layout, the transforms and the
    /// samples do not fit each other; `start` is beyond its epoch; threads cannot be started.
    pub fn start(
        split: &Split,
        options: LoaderOptions,
        layout: &SlotLayout,
        buffers: Vec<HostBuffer>,
        start: Position,
    ) -> Result<Loader> {
        ensure!(!buffers.is_empty(), "a loader needs one batch slot at least");
        for buffer in &buffers {
            let bytes = buffer.bytes().len();
            ensure!(
                bytes >= layout.bytes,
                "a batch slot of {bytes} bytes is smaller than its layout, {}",
                layout.bytes
            );
        }
        // Slots need not hold a batch larger than all samples together.
        let options = match options.drop_last {
            true => options,
            false => LoaderOptions { batch_size: options.batch_size.min(split.len().max(1)), ..options },
        };
        let filler = Filler::new(split, &options, layout)?;
        Self::start_with(filler, split, options, buffers, start)
    }

    fn start_with(
        filler: Filler,
        split: &Split,
        options: LoaderOptions,
        buffers: Vec<HostBuffer>,
        start: Position,
    ) -> Result<Loader> {
        let order = Order::new(split, &options, start)?;
        let slots = buffers
            .into_iter()
            .map(|b| Slot::Free(b, Vec::with_capacity(options.batch_size), Missing::default()))
            .collect();
        let shared = Arc::new(Shared {
            filler,
            batches_per_epoch: order.batches_per_epoch(),
            batches_together: options.batches_together.max(1),
            state: Mutex::new(State { order, slots, next_fill: 0, next_out: 0, stop: false }),
            free: Condvar::new(),
            ready: Condvar::new(),
        });
        let mut loader = Loader { shared, workers: Vec::with_capacity(options.workers) };
        for i in 0..options.workers {
            let shared = Arc::clone(&loader.shared);
            let thread = std::thread::Builder::new().name(format!("loader-{i}"));
            loader.workers.push(thread.spawn(move || shared.work()).context("cannot start a loader thread")?);
        }
        Ok(loader)
    }

    /// Number of batches in an epoch.
    pub fn batches_per_epoch(&self) -> usize {
        self.shared.batches_per_epoch
    }

    /// The next batch, waiting for it if need be; `None` after the last epoch.
    ///
    /// # Errors
    /// A batch could not be made (a [`BatchError`]), or the caller holds all slots.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Batch>> {
        let shared = &*self.shared;
        let mut state = shared.lock();
        loop {
            let slot = state.slot_of(state.next_out);
            match std::mem::replace(&mut state.slots[slot], Slot::Out) {
                Slot::Ready(batch) => {
                    state.next_out += 1;
                    return Ok(Some(batch));
                }
                Slot::Failed(error) => {
                    state.slots[slot] = Slot::Failed(error.clone());
                    return Err(error.into());
                }
                Slot::Out => bail!("batch slot {slot} has not been given back, so the next batch cannot be made"),
                other => state.slots[slot] = other,
            }
            if state.next_out == state.next_fill && state.order.at_end() {
                return Ok(None);
            }
            state = if self.workers.is_empty() {
                // The slot is free: it is neither out nor ready, and no other thread fills it.
                shared.make_one(state).0
            } else {
                shared.ready.wait(state).unwrap_or_else(PoisonError::into_inner)
            };
        }
    }

    /// Gives a batch's slot back, to be filled again. Its buffer must not be in use any more.
    pub fn release(&mut self, batch: Batch) {
        let mut state = self.shared.lock();
        let Batch { slot, buffer, samples, mut missing, .. } = batch;
        missing.samples.clear();
        missing.rows.clear();
        state.slots[slot] = Slot::Free(buffer, samples, missing);
        drop(state);
        self.shared.free.notify_one();
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.free.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches its panics; there is nothing to learn from the result.
            let _ = worker.join();
        }
    }
}

impl State {
    fn slot_of(&self, batch: u64) -> usize {
        (batch % self.slots.len() as u64) as usize
    }

    /// Takes the next batch to be filled, if there is one and its slot is free.
    fn claim(&mut self) -> Option<Batch> {
        let slot = self.slot_of(self.next_fill);
        if self.order.at_end() || !matches!(self.slots[slot], Slot::Free(..)) {
            return None;
        }
        let Slot::Free(buffer, mut samples, missing) = std::mem::replace(&mut self.slots[slot], Slot::Filling) else {
            return None;
        };
        self.next_fill += 1;
        let (position, lengths, last) = self.order.take(&mut samples);
        let shape = BatchShape { samples: samples.len(), lengths };
        Some(Batch { position, shape, last, slot, buffer, samples, missing })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock but the shuffle, which leaves nothing half-done that matters.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one batch, if there is one to be made; says whether.
    fn make_one<'a>(&'a self, mut state: MutexGuard<'a, State>) -> (MutexGuard<'a, State>, bool) {
        let Some(mut batch) = state.claim() else {
            return (state, false);
        };
        drop(state);
        let Batch { position, shape, slot, .. } = batch;
        let filled = catch_unwind(AssertUnwindSafe(|| {
            self.filler.fill(
                (position, shape.lengths),
                &mut batch.samples,
                batch.buffer.bytes_mut(),
                &mut batch.missing,
            )
        }));
        let failure = match filled {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(format!("{error:#}")),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                Some(text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("unknown reason").to_string())
            }
        };
        let mut state = self.lock();
        state.slots[slot] = match failure {
            None => Slot::Ready(batch),
            Some(why) => {
                let batch = position.batch / self.batches_together;
                Slot::Failed(BatchError { at: Position { batch, ..position }, why })
            }
        };
        (state, true)
    }

    /// A worker's life.
    fn work(&self) {
        let mut state = self.lock();
        while !state.stop && !state.order.at_end() {
            let (guard, made) = self.make_one(state);
            state = guard;
            if made {
                self.ready.notify_one();
            } else if !state.stop && !state.order.at_end() {
                state = self.free.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        drop(state);
        // The other workers have to see, too, that it is over.
        self.free.notify_all();
    }
}

#[cfg(test)]
mod tests;
