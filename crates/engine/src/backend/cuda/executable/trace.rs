//! Start and end times of programs, nodes and copies, from timed events.

use super::CudaExecutable;
use super::storage::Area;
use crate::backend::cuda::driver::stream::{Event, Stream};
use crate::backend::cuda::driver::{Context, CudaError};
use crate::backend::{Detail, HostBuffer, Span, Track, Work};
use crate::graph::NodeId;
use anyhow::{Context as _, Result};
use std::sync::Arc;

/// Events in the streams, and the work between them.
struct Marks {
    context: Arc<Context>,
    events: Vec<Event>,
    /// Spans whose times are not known yet, each with the numbers of the events around it.
    work: Vec<(Span, usize, usize)>,
}

impl Marks {
    /// The number of a new event, on `stream`.
    fn mark(&mut self, stream: &Stream) -> Result<usize, CudaError> {
        let event = Event::new(&self.context, true)?;
        event.record(stream)?;
        self.events.push(event);
        Ok(self.events.len() - 1)
    }

    fn add(&mut self, [step, program]: [usize; 2], track: Track, work: Work, [from, to]: [usize; 2]) {
        self.work.push((Span { step, program, track, work, start: 0.0, end: 0.0 }, from, to));
    }

    /// The spans, once everything has been waited for. The first event is the beginning.
    fn spans(&self) -> Result<Vec<Span>> {
        let origin = self.events.first().context("nothing was traced")?;
        let at = self.events.iter().map(|e| e.seconds_since(origin)).collect::<Result<Vec<f64>, _>>()?;
        Ok(self.work.iter().map(|(span, from, to)| Span { start: at[*from], end: at[*to], ..*span }).collect())
    }
}

impl CudaExecutable {
    /// [`crate::backend::Executable::trace`].
    pub(super) fn trace_steps(
        &mut self,
        programs: &[usize],
        batch: &HostBuffer,
        steps: usize,
        detail: Detail,
    ) -> Result<Vec<Span>> {
        let context = self.compute.context().clone();
        context.bind()?;
        // What was enqueued before is not part of the trace.
        self.copy.synchronize()?;
        self.compute.synchronize()?;
        let mut marks = Marks { context, events: Vec::new(), work: Vec::new() };
        marks.mark(&self.copy)?;
        let noted = self.losses.noted();
        self.losses.time();
        let enqueued = (0..steps).try_for_each(|step| {
            programs.iter().try_for_each(|program| self.trace_program(step, *program, batch, detail, &mut marks))
        });
        // After a failure too, nothing may read the batch once the caller has it back.
        let waited = self.copy.synchronize().and_then(|()| self.compute.synchronize());
        let mut early = std::mem::take(&mut self.early);
        let taken = self.take_losses(true, &mut early);
        self.early = early;
        let fetches = self.losses.times();
        enqueued?;
        waited?;
        taken?;
        for (steps_noted, begun, end) in fetches {
            let step = steps_noted.saturating_sub(noted + 1) as usize;
            let at = marks.events.len();
            marks.events.extend([begun, end]);
            let program = programs.first().copied().unwrap_or_default();
            marks.add([step, program], Track::ReadBack, Work::Losses, [at, at + 1]);
        }
        marks.spans()
    }

    fn trace_program(
        &mut self,
        step: usize,
        program: usize,
        batch: &HostBuffer,
        detail: Detail,
        marks: &mut Marks,
    ) -> Result<()> {
        let watched = self.program(program)?.watch.is_some();
        let ahead = self.goes_ahead(program, batch)?;
        if watched {
            let (block, _) = self.storage.locate(Area::Losses, 0)?;
            self.losses.before_step(block, &self.compute, &mut self.early)?;
        }
        let copy = marks.events.len();
        let k = self.stage(batch, |stream| marks.mark(stream).map(|_| ()).map_err(Into::into))?;
        marks.add([step, program], Track::CopyIn, Work::Batch, [copy, copy + 1]);
        let mut from = marks.mark(&self.compute)?;
        match detail {
            Detail::Programs => {
                self.launch(program, k, ahead)?;
                let to = marks.mark(&self.compute)?;
                marks.add([step, program], Track::Compute, Work::Program, [from, to]);
            }
            Detail::Nodes => self.enqueue(program, k, ahead, |node| {
                let to = marks.mark(&self.compute)?;
                marks.add([step, program], Track::Compute, Work::Node(NodeId(node as u32)), [from, to]);
                from = to;
                Ok(())
            })?,
        }
        self.slots[k].used.record(&self.compute)?;
        if watched {
            let (block, _) = self.storage.locate(Area::Losses, 0)?;
            self.losses.after_step(block, &self.slots[k].used)?;
        }
        Ok(())
    }
}
