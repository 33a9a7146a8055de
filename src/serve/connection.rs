//! Connections: how many there are, how long they may take, how they end.

use super::app::From;
use super::metrics::Metrics;
use super::tls::Identity;
use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tower_service::Service;

/// Most bytes of the head of a request.
const MAX_HEAD: usize = 64 << 10;
/// How long nothing is accepted where the system has no connection to give.
const PAUSE: Duration = Duration::from_millis(50);

/// What all connections have in common.
pub struct Connections {
    /// What answers.
    pub router: Router,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// How long the head of a request may take to arrive, and a piece of an answer to be taken.
    pub patience: Duration,
    /// A permit for each connection that may be open.
    pub open: Arc<Semaphore>,
    /// Those that are, to be ended.
    pub graceful: GracefulShutdown,
    /// Who the server is, if connections are to be secret.
    pub identity: Option<Arc<Identity>>,
}

impl Connections {
    /// Takes connections for ever. As long as all that may be open are open, others wait outside.
    pub async fn accept(&self, listener: &TcpListener) {
        loop {
            let Ok(permit) = Arc::clone(&self.open).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, from)) => self.serve(stream, from, permit),
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
                Ok(Ok((stream, from))) => self.serve(stream, from, permit),
                _ => return,
            }
        }
    }

    /// Answers all requests of a connection, in a task of its own.
    fn serve(&self, stream: TcpStream, from: SocketAddr, permit: tokio::sync::OwnedSemaphorePermit) {
        // A small answer goes out at once.
        let _ = stream.set_nodelay(true);
        let router = self.router.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(From(from));
            router.clone().call(request)
        });
        let (patience, watcher) = (self.patience, self.graceful.watcher());
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(patience).max_buf_size(MAX_HEAD).half_close(true);
        let acceptor = self.identity.as_ref().map(|identity| identity.acceptor());
        let held = (self.metrics.connected(), permit);
        tokio::spawn(async move {
            let stream = Patient::new(stream, patience);
            // How a client ends a connection is its own matter.
            match acceptor {
                None => _ = watcher.watch(builder.serve_connection(TokioIo::new(stream), service)).await,
                Some(acceptor) => {
                    if let Ok(Ok(stream)) = timeout(patience, acceptor.accept(stream)).await {
                        _ = watcher.watch(builder.serve_connection(TokioIo::new(stream), service)).await;
                    }
                }
            }
            drop(held);
        });
    }
}

/// A connection that ends when its other side does not take what is sent.
struct Patient {
    stream: TcpStream,
    patience: Duration,
    /// Since when nothing has been taken.
    waits: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    fn new(stream: TcpStream, patience: Duration) -> Self {
        Patient { stream, patience, waits: None }
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
        Pin::new(&mut self.stream).poll_read(context, into)
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
