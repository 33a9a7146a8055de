//! Streams, events, and graphs captured from a stream.

use super::code::Code;
use super::context::Context;
use super::error::{CudaError, check, check_wait};
use super::sys as cu;
use std::sync::Arc;

/// A CUDA stream: work that runs in order, and is ordered with other streams by events alone.
#[derive(Debug)]
pub struct Stream {
    context: Arc<Context>,
    pub(in crate::backend::cuda) raw: cu::CUstream,
    /// The owner of the handle, where that is `cust`.
    #[cfg(feature = "cust")]
    cust: Option<cust::stream::Stream>,
}

// SAFETY: the driver's calls are thread-safe; each binds the context first.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A new stream.
    ///
    /// # Errors
    /// The driver failed.
    pub fn new(context: &Arc<Context>) -> Result<Stream, CudaError> {
        context.bind()?;
        let mut raw = std::ptr::null_mut();
        let flags = cu::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current.
        check("making a stream", unsafe { cu::cuStreamCreate(&mut raw, flags) })?;
        Ok(Stream {
            context: context.clone(),
            raw,
            #[cfg(feature = "cust")]
            cust: None,
        })
    }

    /// A stream of `cust`, whose handle is borrowed.
    #[cfg(feature = "cust")]
    pub(in crate::backend::cuda) fn of_cust(context: &Arc<Context>, owner: cust::stream::Stream) -> Stream {
        Stream { context: context.clone(), raw: owner.as_inner().cast(), cust: Some(owner) }
    }

    /// The stream as `cust` knows it, if it is one of its.
    #[cfg(feature = "cust")]
    pub(in crate::backend::cuda) fn cust(&self) -> Option<&cust::stream::Stream> {
        self.cust.as_ref()
    }

    /// The context that it lives in.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Work that is enqueued from now on waits for `event`.
    ///
    /// # Errors
    /// The driver failed.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        // SAFETY: both live.
        check("ordering two streams", unsafe { cu::cuStreamWaitEvent(self.raw, event.raw, 0) })
    }

    /// Blocks until all enqueued work is done.
    ///
    /// # Errors
    /// The work failed.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: the stream lives.
        check_wait("waiting for the computation", unsafe { cu::cuStreamSynchronize(self.raw) })
    }

    /// Captures what `enqueue` puts on this stream into a graph, instead of running it.
    ///
    /// # Errors
    /// As `enqueue`, or the driver failed.
    pub fn capture(&self, enqueue: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<GraphExec> {
        self.context.bind()?;
        let mode = cu::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives.
        check("beginning a capture", unsafe { cu::cuStreamBeginCapture_v2(self.raw, mode) })?;
        let enqueued = enqueue();
        let mut graph = std::ptr::null_mut();
        // Ended even after an error: a stream that stays in capture mode cannot be used.
        // SAFETY: the stream is capturing.
        let ended = check("ending a capture", unsafe { cu::cuStreamEndCapture(self.raw, &mut graph) });
        let result = enqueued.and_then(|()| Ok(ended?)).and_then(|()| {
            let mut raw = std::ptr::null_mut();
            // SAFETY: the capture gave a graph.
            check("making a graph of the step", unsafe { cu::cuGraphInstantiateWithFlags(&mut raw, graph, 0) })?;
            Ok(GraphExec { context: self.context.clone(), raw })
        });
        if !graph.is_null() {
            // SAFETY: the executable graph does not refer to the one it was made from.
            unsafe { cu::cuGraphDestroy(graph) };
        }
        result
    }

    /// Enqueues a captured graph.
    ///
    /// # Errors
    /// The driver failed.
    pub fn launch(&self, graph: &GraphExec) -> Result<(), CudaError> {
        // SAFETY: both live in the same context.
        check("starting the step", unsafe { cu::cuGraphLaunch(graph.raw, self.raw) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: created in `new`. What is still enqueued runs to its end; memory is freed after the streams.
            unsafe {
                cu::cuStreamSynchronize(self.raw);
                #[cfg(feature = "cust")]
                if self.cust.is_some() {
                    // Its owner destroys it next.
                    return;
                }
                cu::cuStreamDestroy_v2(self.raw);
            }
        }
    }
}

/// A CUDA event: a point in a stream's work.
#[derive(Debug)]
pub struct Event {
    context: Arc<Context>,
    raw: cu::CUevent,
}

// SAFETY: the driver's calls are thread-safe.
unsafe impl Send for Event {}

impl Event {
    /// An event for ordering; with `timed`, also for measuring.
    ///
    /// # Errors
    /// The driver failed.
    pub fn new(context: &Arc<Context>, timed: bool) -> Result<Event, CudaError> {
        context.bind()?;
        let flags = match timed {
            true => cu::CUevent_flags_enum::CU_EVENT_DEFAULT,
            false => cu::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING,
        };
        let mut raw = std::ptr::null_mut();
        // SAFETY: the context is current.
        check("making an event", unsafe { cu::cuEventCreate(&mut raw, flags as u32) })?;
        Ok(Event { context: context.clone(), raw })
    }

    /// Records the event: it completes when all work that is on `stream` by now is done.
    ///
    /// # Errors
    /// The driver failed.
    pub fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: both live.
        check("marking a point in a stream", unsafe { cu::cuEventRecord(self.raw, stream.raw) })
    }

    /// Blocks until it has completed. An event that was never recorded counts as completed.
    ///
    /// # Errors
    /// The work before it failed.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: the event lives.
        check_wait("waiting for the computation", unsafe { cu::cuEventSynchronize(self.raw) })
    }

    /// True if it has completed.
    ///
    /// # Errors
    /// The work before it failed.
    pub fn happened(&self) -> Result<bool, CudaError> {
        self.context.bind()?;
        // SAFETY: the event lives.
        match unsafe { cu::cuEventQuery(self.raw) } {
            Code::NOT_READY => Ok(false),
            code => check_wait("looking at the computation", code).map(|()| true),
        }
    }

    /// Seconds from `earlier` to this one. Both are timed and have completed.
    ///
    /// # Errors
    /// The driver failed.
    pub fn seconds_since(&self, earlier: &Event) -> Result<f64, CudaError> {
        let mut ms = 0.0;
        // SAFETY: both live.
        check("measuring", unsafe { cu::cuEventElapsedTime(&mut ms, earlier.raw, self.raw) })?;
        Ok(f64::from(ms) / 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: created in `new`; the driver keeps what streams still wait for.
            unsafe { cu::cuEventDestroy_v2(self.raw) };
        }
    }
}

/// An executable CUDA graph.
#[derive(Debug)]
pub struct GraphExec {
    context: Arc<Context>,
    raw: cu::CUgraphExec,
}

// SAFETY: the driver's calls are thread-safe, and a graph is launched by one thread at a time.
unsafe impl Send for GraphExec {}

impl Drop for GraphExec {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: made in `capture`.
            unsafe { cu::cuGraphExecDestroy(self.raw) };
        }
    }
}
