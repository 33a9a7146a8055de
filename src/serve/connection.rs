//! Connections: how many there are, how long they may take, how they end.

use super::app::From;
use super::metrics::Metrics;
use super::tls::Identity;
use super::under_way::{Turns, UnderWay};
use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tower_service::Service;

/// Most bytes of the head of a request.
const MAX_HEAD: usize = 64 << 10;
/// How long nothing is accepted where the system has no connection to give.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a connection waits for a place before it is sent away: clients close one and open the next, and come a moment too early.
const FOR_A_PLACE: Duration = Duration::from_secs(1);
/// How long one that is sent away may take for the head of its request, and for its answer; and any other for a head once the server is about to end.
const AWAY: Duration = Duration::from_secs(2);
/// How many connections may wait and be sent away beside those that are open.
pub const OUTSIDE: usize = 64;

/// What all connections have in common.
pub struct Connections {
    /// What answers.
    pub router: Router,
    /// What answers those for whom there is no place.
    pub full: Router,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// How long the head of a request may take to arrive, and a piece of an answer to be taken.
    pub patience: Duration,
    /// A permit for each connection that may be open.
    pub open: Arc<Semaphore>,
    /// A permit for each that may wait for one of those.
    pub outside: Arc<Semaphore>,
    /// Those that are, to be ended.
    pub graceful: GracefulShutdown,
    /// The server is about to end.
    pub ending: Arc<AtomicBool>,
    /// Who the server is, if connections are to be secret.
    pub identity: Option<Arc<Identity>>,
}

impl Connections {
    /// Takes connections for ever. Where all that may be open are open, another one waits a moment for a place, and is sent away. Where many wait so, further
    /// ones stay with the system.
    pub async fn accept(&self, listener: &TcpListener) {
        loop {
            let Ok(outside) = Arc::clone(&self.outside).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, from)) => match Arc::clone(&self.open).try_acquire_owned() {
                    Ok(place) => {
                        tokio::spawn(self.connection(stream, from).serve(Some(place)));
                    }
                    Err(_) => {
                        let (connection, open) = (self.connection(stream, from), Arc::clone(&self.open));
                        tokio::spawn(async move {
                            let place = timeout(FOR_A_PLACE, open.acquire_owned()).await;
                            let place = place.ok().and_then(Result::ok);
                            // One that has a place leaves room for others to wait.
                            let outside = Some(outside).filter(|_| place.is_none());
                            connection.serve(place).await;
                            drop(outside);
                        });
                    }
                },
                // It is gone already, or the system has no more files for this process.
                Err(_) => sleep(PAUSE).await,
            }
        }
    }

    /// Takes those that wait outside, and no others.
    pub async fn accept_waiting(&self, listener: &TcpListener) {
        loop {
            let Ok(permit) = Arc::clone(&self.open).try_acquire_owned() else { return };
            match timeout(Duration::ZERO, listener.accept()).await {
                Ok(Ok((stream, from))) => {
                    tokio::spawn(self.connection(stream, from).serve(Some(permit)));
                }
                _ => return,
            }
        }
    }

    /// One that has come.
    fn connection(&self, stream: TcpStream, from: SocketAddr) -> Connection {
        Connection {
            stream,
            from,
            router: self.router.clone(),
            full: self.full.clone(),
            metrics: Arc::clone(&self.metrics),
            patience: self.patience,
            watcher: self.graceful.watcher(),
            turns: Turns::new(Arc::clone(&self.ending)),
            identity: self.identity.clone(),
        }
    }
}

/// A connection, and what is needed to answer it.
struct Connection {
    stream: TcpStream,
    from: SocketAddr,
    router: Router,
    full: Router,
    metrics: Arc<Metrics>,
    patience: Duration,
    watcher: Watcher,
    turns: Arc<Turns>,
    identity: Option<Arc<Identity>>,
}

impl Connection {
    /// Answers all its requests; without a place the answer says that there is none, and the connection ends.
    async fn serve(self, place: Option<OwnedSemaphorePermit>) {
        let Connection { stream, from, watcher, turns, .. } = self;
        // A small answer goes out at once.
        let _ = stream.set_nodelay(true);
        let (router, patience) = match place {
            Some(_) => (self.router, self.patience),
            None => (self.full, self.patience.min(AWAY)),
        };
        let of_requests = Arc::clone(&turns);
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(From(from));
            let turn = Turns::begin(&of_requests);
            let answer = router.clone().call(request);
            async move { answer.await.map(|answer| answer.map(|body| UnderWay::new(body, turn))) }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(patience).max_buf_size(MAX_HEAD).half_close(true);
        let counted = place.as_ref().map(|_| self.metrics.connected());
        let stream = Patient::new(stream, patience, turns);
        // How a client ends a connection is its own matter.
        match self.identity.map(|identity| identity.acceptor()) {
            None => _ = watcher.watch(builder.serve_connection(TokioIo::new(stream), service)).await,
            Some(acceptor) => {
                if let Ok(Ok(stream)) = timeout(patience, acceptor.accept(stream)).await {
                    _ = watcher.watch(builder.serve_connection(TokioIo::new(stream), service)).await;
                }
            }
        }
        drop((counted, place));
    }
}

/// A connection that ends when its other side does not take what is sent; and when the server is about to end, and the head of a request does not come whole.
struct Patient {
    stream: TcpStream,
    patience: Duration,
    /// Until when something must be taken, where that is waited for.
    waits: Option<Pin<Box<Sleep>>>,
    turns: Arc<Turns>,
    /// Until when a head must be there, once the server is about to end.
    heads: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    fn new(stream: TcpStream, patience: Duration, turns: Arc<Turns>) -> Self {
        Patient { stream, patience, waits: None, turns, heads: None }
    }

    fn watched<T>(&mut self, context: &mut Context, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = None;
            return written;
        }
        let until = Instant::now() + self.patience;
        let waits = self.waits.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        match waits.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Patient {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context, into: &mut ReadBuf) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if !self.turns.are_over() || self.waits.is_some() {
            self.heads = None;
            return read;
        }
        if read.is_ready() {
            return read;
        }
        let patience = self.patience.min(AWAY);
        match self.heads.get_or_insert_with(|| Box::pin(sleep(patience))).as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncWrite for Patient {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watched(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context,
        pieces: &[io::IoSlice],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.watched(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
