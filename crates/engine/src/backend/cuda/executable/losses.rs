//! Losses on their way to the host. The device records one at every step in a ring buffer; a stream of its own copies the ring
//! to the host every [`EVERY`] steps. Nothing waits for that unless losses are asked for.

use crate::backend::HostBuffer;
use crate::backend::cuda::driver::memory::{DeviceBlock, pinned};
use crate::backend::cuda::driver::stream::{Event, Stream};
use crate::backend::cuda::driver::{Context, CudaError};
use crate::backend::cuda::extents::{self, Extent};
use crate::backend::cuda::modules::{Function, Modules};
use crate::backend::cuda::ready::Ready;
use crate::backend::gpu::launch::{LaunchConfig, Module};
use anyhow::Result;
use std::sync::Arc;

/// Entries of the ring buffer on the device.
const RING: usize = 256;

/// Steps between two copies to the host.
const EVERY: u64 = 16;

/// Bytes on the device: the ring, the number of losses recorded, and the flag that the run has halted.
pub const BYTES: usize = 4 * RING + 128;

const TAKEN_AT: u64 = 4 * RING as u64;
const HALTED_AT: u64 = TAKEN_AT + 64;

/// The losses of a run.
pub struct Losses {
    address: u64,
    offset: usize,
    function: Function,
    stream: Stream,
    host: HostBuffer,
    fetched: Event,
    /// Steps enqueued, steps covered by the last copy that was enqueued, steps handed out.
    noted: u64,
    fetching: u64,
    given: u64,
    /// While fetches are timed: the number of steps noted, the beginning and the end of each.
    timed: Option<Vec<(u64, Event, Event)>>,
}

impl Losses {
    /// Keeps the losses at `offset` of `block`, [`BYTES`] bytes, which are zero.
    ///
    /// # Errors
    /// The driver failed.
    pub fn new(context: &Arc<Context>, modules: &mut Modules, block: &DeviceBlock, offset: usize) -> Result<Losses> {
        Ok(Losses {
            address: block.address() + offset as u64,
            offset,
            function: modules.function(Module::Runtime, "watch_loss", 0)?,
            stream: Stream::new(context)?,
            host: pinned(context, 4 * RING)?,
            fetched: Event::new(context, false)?,
            noted: 0,
            fetching: 0,
            given: 0,
            timed: None,
        })
    }

    /// The launch that records the loss at `loss`.
    pub fn watch(&self, loss: u64) -> Ready {
        let cells = [loss, self.address, self.address + TAKEN_AT, self.address + HALTED_AT, RING as u64];
        let config = LaunchConfig { grid: [1; 3], block: [32, 1, 1], shared_bytes: 0 };
        extents::report("watch_loss", config, &cells, || {
            let given = |what: &str, address, bytes| Extent { what: what.into(), address, bytes, written: true };
            vec![
                given("the loss", cells[0], 4),
                given("the ring of losses", cells[1], 4 * RING),
                given("the number of losses", cells[2], 4),
                given("the mark that the run has halted", cells[3], 4),
            ]
        });
        Ready::Kernel { function: self.function.clone(), config, cells: cells.into() }
    }

    /// To be called before a step that records its loss is enqueued on `compute`: makes room in the ring.
    ///
    /// # Errors
    /// The device failed.
    pub fn before_step(&mut self, block: &DeviceBlock, compute: &Stream, into: &mut Vec<f32>) -> Result<(), CudaError> {
        if self.noted - self.given >= RING as u64 - 1 {
            self.take(block, compute, true, into)?;
        }
        Ok(())
    }

    /// To be called once the step has been enqueued.
    ///
    /// # Errors
    /// The device failed.
    pub fn after_step(&mut self, block: &DeviceBlock, done: &Event) -> Result<(), CudaError> {
        self.noted += 1;
        if self.noted - self.fetching >= EVERY && self.fetching == self.given {
            self.fetch(block, done)?;
        }
        Ok(())
    }

    /// Begins to time fetches.
    pub fn time(&mut self) {
        self.timed = Some(Vec::new());
    }

    /// The fetches since [`Losses::time`], which are no longer timed from now on: the number of steps that had been noted in
    /// all, beginning, end.
    pub fn times(&mut self) -> Vec<(u64, Event, Event)> {
        self.timed.take().unwrap_or_default()
    }

    /// Steps noted so far.
    pub fn noted(&self) -> u64 {
        self.noted
    }

    fn timed_mark(&self) -> Result<Option<Event>, CudaError> {
        if self.timed.is_none() {
            return Ok(None);
        }
        let event = Event::new(self.stream.context(), true)?;
        event.record(&self.stream)?;
        Ok(Some(event))
    }

    /// Enqueues a copy of the ring after `done`.
    fn fetch(&mut self, block: &DeviceBlock, done: &Event) -> Result<(), CudaError> {
        self.stream.wait(done)?;
        let begun = self.timed_mark()?;
        // SAFETY: the buffer is looked at once `fetched` has happened, and begun anew only after that; it lives as long
        // as the stream, which is waited for when it is dropped.
        unsafe { block.read(&self.stream, self.offset, self.host.bytes_mut())? };
        // Before `fetched`, which is what is waited for: by then both marks have happened.
        if let Some(begun) = begun
            && let Some(end) = self.timed_mark()?
            && let Some(timed) = &mut self.timed
        {
            timed.push((self.noted, begun, end));
        }
        self.fetched.record(&self.stream)?;
        self.fetching = self.noted;
        Ok(())
    }

    /// Puts the losses that have arrived into `into`, oldest first; with `wait`, those of all steps on `compute`.
    ///
    /// # Errors
    /// The device failed.
    pub fn take(
        &mut self,
        block: &DeviceBlock,
        compute: &Stream,
        wait: bool,
        into: &mut Vec<f32>,
    ) -> Result<(), CudaError> {
        if self.fetching > self.given && (wait || self.fetched.happened()?) {
            self.fetched.synchronize()?;
            self.give(into);
        }
        if wait && self.noted > self.given {
            let done = Event::new(compute.context(), false)?;
            done.record(compute)?;
            self.fetch(block, &done)?;
            self.fetched.synchronize()?;
            self.give(into);
        }
        Ok(())
    }

    fn give(&mut self, into: &mut Vec<f32>) {
        let ring = self.host.bytes().as_chunks::<4>().0;
        into.extend((self.given..self.fetching).map(|step| f32::from_ne_bytes(ring[step as usize % RING])));
        self.given = self.fetching;
    }
}
