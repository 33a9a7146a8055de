//! Which requests of a connection are under way: from the end of their heads until their answers are handed over.

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

/// The requests of a connection.
pub struct Turns {
    ending: Arc<AtomicBool>,
    under_way: AtomicUsize,
}

impl Turns {
    /// None so far; `ending`: the server is about to end.
    pub fn new(ending: Arc<AtomicBool>) -> Arc<Turns> {
        Arc::new(Turns { ending, under_way: AtomicUsize::new(0) })
    }

    /// One more is under way, until the turn is dropped.
    pub fn begin(turns: &Arc<Turns>) -> Turn {
        turns.under_way.fetch_add(1, Ordering::Relaxed);
        Turn(Arc::clone(turns))
    }

    /// None is under way, and the server is about to end.
    pub fn are_over(&self) -> bool {
        self.ending.load(Ordering::Relaxed) && self.under_way.load(Ordering::Relaxed) == 0
    }
}

/// A request that is under way.
pub struct Turn(Arc<Turns>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The answer to a request, which is under way as long as there is more of it.
pub struct UnderWay {
    body: Body,
    _turn: Turn,
}

impl UnderWay {
    /// Of that request.
    pub fn new(body: Body, turn: Turn) -> UnderWay {
        UnderWay { body, _turn: turn }
    }
}

impl HttpBody for UnderWay {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
