//! Answers over HTTP from models that are trained.
//!
//! A request is received within its limits (`body`), made samples of (`samples`, `instances`, `open_inference`), waits with others for a batch (`batcher`), and
//! is answered. Everything that comes from a client is charged to one budget of memory (`budget`). Models stand in places, in which others may take theirs
//! while requests go on (`served`).
//!
//! An answer does not depend on who else asks: every batch is computed by one program for one number of samples, whether all of them are wanted or not, and no
//! sample of a batch looks at another.

pub mod access;
mod alone;
mod answers;
mod app;
mod batcher;
mod body;
mod budget;
mod charset;
mod completions;
mod connection;
mod instances;
mod key;
mod metrics;
mod names;
mod nested;
mod object;
mod open_inference;
mod page;
mod place;
mod predict;
mod protocol;
mod reader;
mod refusal;
mod routes;
mod samples;
mod served;
mod signals;
mod tls;
mod under_way;
mod writer;

pub use alone::Alone;
pub use key::Keys;
pub use reader::Limits;
pub use served::How;
pub use signals::Signals;
pub use tls::Identity;

use crate::api::failure::Failure;
use crate::terminal::say;
use access::Log;
use anyhow::{Context, anyhow};
use app::App;
use budget::Budget;
use connection::{Connections, OUTSIDE};
use hyper_util::server::graceful::GracefulShutdown;
use metrics::Metrics;
use names::Names;
use place::{Answers, Place};
use routes::{full, router};
use served::Takes;
use signals::Asked;
use std::future::{Future, poll_fn};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Threads that carry requests. What takes longer, reading samples and computing, has others.
const CARRIERS: usize = 2;
/// How long requests on their way have at the end until they have come too late.
const MOMENT: Duration = Duration::from_millis(50);
/// Threads beside those that read samples: for models that are loaded, and answers that are written.
const BESIDE: usize = 4;

/// What is served, and how.
pub struct Options {
    /// Models by their names.
    pub models: Vec<(String, PathBuf)>,
    /// The address: a name or a number.
    pub host: String,
    /// The port; 0: one that is free.
    pub port: u16,
    /// How models are opened.
    pub how: How,
    /// What a request may ask for.
    pub limits: Limits,
    /// How long a head or a body may take to arrive, and an answer to be taken.
    pub patience: Duration,
    /// How long a request may wait for what the device computes of it.
    pub answer_time: Duration,
    /// How many connections may be open.
    pub connections: usize,
    /// How long requests have that are under way at the end.
    pub drain: Duration,
    /// Who may ask; `None`: everyone.
    pub keys: Option<Keys>,
    /// Names besides `localhost` by which requests may come where there are no keys and the server listens for this machine alone.
    pub names: Vec<String>,
    /// Who the server is, by which connections are secret; `None`: they are plain.
    pub identity: Option<Identity>,
    /// How requests are written down.
    pub log: Log,
    /// Classes in an answer, if the request names no number.
    pub top: usize,
    /// Black and white are swapped in images, unless a request says so.
    pub invert: bool,
    /// Signals that are heeded.
    pub signals: Signals,
}

/// Serves until the process is asked to stop. `listening` gets the address once models are loaded and requests are taken; true: all were answered.
///
/// # Errors
/// A model cannot be opened; the address cannot be had.
pub fn serve(mut options: Options, listening: impl FnOnce(SocketAddr)) -> Result<bool, Failure> {
    let runtime = runtime()?;
    // Loading models may take long. A port that is in use is an error before that.
    let listener = runtime.block_on(bind(&options.host, options.port))?;
    let address = listener.local_addr().context("the system does not tell its address")?;
    let (patience, connections, drain, signals) =
        (options.patience, options.connections, options.drain, options.signals);
    let identity = options.identity.take().map(Arc::new);
    let app = app(options, address.ip())?;
    let connections = Connections {
        router: router(Arc::clone(&app)),
        full: full(Arc::clone(&app)),
        metrics: Arc::clone(&app.metrics),
        patience,
        open: Arc::new(Semaphore::new(connections.min(Semaphore::MAX_PERMITS))),
        outside: Arc::new(Semaphore::new(OUTSIDE)),
        graceful: GracefulShutdown::new(),
        ending: Arc::clone(&app.draining),
        identity,
    };
    run(runtime, listener, (app, connections), (signals, drain), || listening(address))
}

/// Threads that read samples.
fn readers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The threads of requests.
fn runtime() -> Result<Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(CARRIERS)
        .max_blocking_threads(readers() + BESIDE)
        .thread_name("requests")
        .enable_io()
        .enable_time()
        .build();
    Ok(runtime.context("cannot start threads for requests")?)
}

/// Opens the models.
fn app(options: Options, address: IpAddr) -> Result<Arc<App>, Failure> {
    let metrics = Metrics::new(options.models.iter().map(|(name, _)| name.clone()));
    let mut models = Vec::new();
    for (name, path) in &options.models {
        models.push(Place::open(name.clone(), path.clone(), &options.how, metrics.model(name))?);
    }
    let takes_images =
        |place: &Place| matches!(place.now(), Answers::Samples(served) if served.takes() == Takes::Images);
    if options.invert && !models.iter().any(takes_images) {
        let what = if models.len() == 1 { "the model takes none" } else { "none of the models takes any" };
        return Err(Failure::Usage(format!("`--invert` is for images, and {what}\nhelp: leave it out")));
    }
    Ok(Arc::new(App {
        models,
        limits: options.limits,
        patience: options.patience,
        answer_time: options.answer_time,
        budget: Budget::new(options.how.memory),
        metrics,
        keys: options.keys,
        names: Names::of(options.names, address),
        log: options.log,
        top: options.top,
        invert: options.invert,
        draining: Arc::default(),
        readers: Semaphore::new(readers()),
        loading: Semaphore::new(1),
    }))
}

/// Takes connections until the process is asked to stop, then lets them end.
fn run(
    runtime: Runtime,
    listener: TcpListener,
    (app, connections): (Arc<App>, Connections),
    (signals, drain): (Signals, Duration),
    ready: impl FnOnce(),
) -> Result<bool, Failure> {
    let ended = runtime.block_on(async {
        let mut asked = signals.listen()?;
        ready();
        let (connections, listener) = (Arc::new(connections), Arc::new(listener));
        let accepting = {
            let (connections, listener) = (Arc::clone(&connections), Arc::clone(&listener));
            tokio::spawn(async move { connections.accept(&listener).await })
        };
        while let Some(Asked::Reload) = asked.recv().await {
            if let Some(Err(error)) = connections.identity.as_ref().map(|identity| identity.reload()) {
                say(&format!("error: the certificate that was read before goes on: {error:#}"));
            }
            let app = Arc::clone(&app);
            // Beside this, so that the process can be asked to stop meanwhile.
            tokio::spawn(async move {
                for place in &app.models {
                    // It reports its outcome itself.
                    let _ = protocol::reload(&app, &place.name).await;
                }
            });
        }
        accepting.abort();
        let _ = accepting.await;
        // Those that have come already are heard, and what they have sent.
        connections.accept_waiting(&listener).await;
        drop(listener);
        sleep(MOMENT).await;
        app.draining.store(true, Ordering::Relaxed);
        say("stopping: requests that are under way are answered (once more to stop at once)");
        let connections = Arc::into_inner(connections).context("a connection is still taken")?;
        let mut ended = pin!(timeout(drain, connections.graceful.shutdown()));
        let mut again = pin!(signals::again(asked));
        let ended = poll_fn(|context| match again.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(false),
            Poll::Pending => ended.as_mut().poll(context).map(|ended| ended.is_ok()),
        });
        let ended = ended.await;
        Ok::<bool, anyhow::Error>(ended)
    });
    // Threads that still compute for requests whose clients have gone.
    runtime.shutdown_background();
    Ok(ended?)
}

/// The socket.
async fn bind(host: &str, port: u16) -> Result<TcpListener, Failure> {
    TcpListener::bind((host, port)).await.map_err(|error| {
        let help = match error.kind() {
            ErrorKind::AddrInUse => {
                "\nhelp: another program listens there already: name another port with --port, or 0 for one that is free"
            }
            ErrorKind::PermissionDenied => "\nhelp: ports below 1024 are for the system: name another one with --port",
            _ => "\nhelp: --host names an address of this machine",
        };
        Failure::Other(anyhow!("cannot listen on {host}, port {port}: {error}{help}"))
    })
}
