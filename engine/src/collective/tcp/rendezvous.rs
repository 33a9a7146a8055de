//! How ranks find one another: all come to the first one, which tells each where the others are.

use super::frame::{self, Kind};
use super::memory::{Incoming, Offer, Outbox};
use super::{Limits, Meeting, Tell, World};
use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::fs;
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

/// Between attempts to reach somebody, and looks at who has come.
const PAUSE: Duration = Duration::from_millis(10);

/// For what somebody says who has come.
const SPEAK: Duration = Duration::from_secs(5);

/// What somebody says who has come.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    rank: usize,
    ranks: usize,
    /// Where it listens for ranks after it.
    port: u16,
}

/// What the first rank answers.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// Where all ranks listen.
    Places(Vec<SocketAddr>),
    /// Why there is nothing to join.
    Refused(String),
}

/// Names of ranks, for messages.
fn named(ranks: &[usize]) -> String {
    let numbers: Vec<String> = ranks.iter().map(usize::to_string).collect();
    match numbers.as_slice() {
        [one] => format!("rank {one}"),
        [some @ .., last] => format!("ranks {} and {last}", some.join(", ")),
        [] => "nobody".into(),
    }
}

/// How long is waited, and who is told that it takes long.
struct Wait<'a> {
    until: Instant,
    limit: Duration,
    /// When it is told; `None` if it was.
    told: Cell<Option<Instant>>,
    tell: &'a Tell,
}

impl Wait<'_> {
    fn is_over(&self) -> bool {
        Instant::now() > self.until
    }

    fn seconds(&self) -> u64 {
        self.limit.as_secs()
    }

    /// Tells once that it takes long.
    fn tell(&self, what: impl FnOnce() -> String) {
        if self.told.get().is_some_and(|at| Instant::now() > at) {
            self.told.set(None);
            (self.tell)(&what());
        }
    }
}

/// A connection to another rank.
#[derive(Debug)]
pub struct Connection {
    /// Where it is spoken to.
    pub stream: TcpStream,
    /// It reads what lies in the memory of this rank.
    pub reads: bool,
    /// Its own memory, if this rank can read that.
    pub incoming: Option<Incoming>,
}

/// A rank's connections.
#[derive(Debug)]
pub struct Connections {
    /// To all other ranks; none in this rank's own place.
    pub peers: Vec<Option<Connection>>,
    /// What it writes for ranks of its machine, if any of them reads that.
    pub outbox: Option<Outbox>,
}

/// Connects to all other ranks.
///
/// # Errors
/// A rank has not come in time, or does not fit.
pub fn connect(world: &World, limits: Limits, tell: &Tell) -> Result<Connections> {
    ensure!(world.rank < world.ranks, "rank {} of {} cannot be", world.rank, world.ranks);
    let now = Instant::now();
    let wait =
        Wait { until: now + limits.join, limit: limits.join, told: Cell::new(Some(now + limits.patience)), tell };
    let streams = match world.rank {
        0 => first(world, &wait),
        _ => other(world, &wait),
    }?;
    for stream in streams.iter().flatten() {
        stream.set_nonblocking(false).and_then(|()| stream.set_nodelay(true)).context("cannot set up a connection")?;
    }
    share(world, streams, &wait)
}

/// Finds out which ranks can read the memory of which: those of one machine.
fn share(world: &World, mut streams: Vec<Option<TcpStream>>, wait: &Wait) -> Result<Connections> {
    let outbox = world.shared_memory.then(Outbox::new).flatten();
    let offer = outbox.as_ref().and_then(Outbox::offer);
    let left = wait.until.saturating_duration_since(Instant::now()).max(SPEAK);
    let gone = |rank: usize| format!("rank {rank} has gone before all ranks were there");
    for (rank, stream) in others(&mut streams) {
        stream.set_read_timeout(Some(left)).context("cannot set up a connection")?;
        say(stream, &offer).with_context(|| gone(rank))?;
    }
    // All have been told before anybody is listened to, so nobody waits for somebody who waits.
    let mut incoming: Vec<Option<Incoming>> = streams.iter().map(|_| None).collect();
    for (rank, stream) in others(&mut streams) {
        let offer: Option<Offer> = hear(stream).with_context(|| gone(rank))?;
        incoming[rank] = offer.filter(|_| world.shared_memory).as_ref().and_then(Incoming::open);
        say(stream, &incoming[rank].is_some()).with_context(|| gone(rank))?;
    }
    let mut reads = vec![false; streams.len()];
    for (rank, stream) in others(&mut streams) {
        reads[rank] = hear(stream).with_context(|| gone(rank))?;
        stream.set_read_timeout(None).context("cannot set up a connection")?;
    }
    let outbox = outbox.filter(|_| reads.contains(&true));
    let peers = streams.into_iter().zip(incoming).zip(reads);
    let peers = peers.map(|((stream, incoming), reads)| stream.map(|stream| Connection { stream, reads, incoming }));
    Ok(Connections { peers: peers.collect(), outbox })
}

fn others(streams: &mut [Option<TcpStream>]) -> impl Iterator<Item = (usize, &mut TcpStream)> {
    streams.iter_mut().enumerate().filter_map(|(rank, stream)| Some((rank, stream.as_mut()?)))
}

fn hear<T: DeserializeOwned>(from: &mut TcpStream) -> Result<T> {
    let (_, content) = frame::read_short(from).context("the connection has failed")?;
    serde_json::from_slice(&content).context("what it says cannot be understood")
}

/// Rank 0: waits for all others, and tells each where they are.
fn first(world: &World, wait: &Wait) -> Result<Vec<Option<TcpStream>>> {
    let everywhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let (ip, port) = match &world.meeting {
        Meeting::Address { port, local, .. } => (if *local { here } else { everywhere }, *port),
        Meeting::File(_) => (here, 0),
    };
    let listener = TcpListener::bind((ip, port)).with_context(|| format!("rank 0 cannot listen at port {port}"))?;
    let at = listener.local_addr().context("rank 0 cannot listen")?;
    let _file = match &world.meeting {
        Meeting::File(path) => Some(Announced::new(path, at)?),
        Meeting::Address { .. } => None,
    };
    let mut come: Vec<Option<(TcpStream, SocketAddr)>> = (0..world.ranks).map(|_| None).collect();
    let missing = |come: &[Option<_>]| (1..world.ranks).filter(|rank| come[*rank].is_none()).collect::<Vec<_>>();
    listener.set_nonblocking(true).context("rank 0 cannot listen")?;
    while !missing(&come).is_empty() {
        let slow = || format!("rank 0 waits for {} at port {}", named(&missing(&come)), at.port());
        let Some((mut stream, Hello { rank, ranks, port })) = accept(&listener, wait, &slow)? else {
            let absent = named(&missing(&come));
            refuse(come, &format!("{absent} did not come"));
            bail!("rank 0 has waited {} s for {absent}", wait.seconds());
        };
        let wrong = if ranks != world.ranks {
            Some(format!("rank {rank} says that there are {ranks} ranks, and rank 0 that there are {}", world.ranks))
        } else if rank == 0 || rank >= ranks {
            Some(format!("two processes say that they are rank {rank}"))
        } else {
            come[rank]
                .as_ref()
                .map(|(_, other)| format!("two processes say that they are rank {rank}: one at {}", other.ip()))
        };
        if let Some(wrong) = wrong {
            say(&mut stream, &Answer::Refused(wrong.clone())).ok();
            refuse(come, &wrong);
            bail!(wrong);
        }
        let ip = stream.peer_addr().context("a rank that has come is gone")?.ip();
        come[rank] = Some((stream, SocketAddr::new(ip, port)));
    }
    let places: Vec<SocketAddr> = come.iter().map(|come| come.as_ref().map_or(at, |(_, place)| *place)).collect();
    let answer = Answer::Places(places);
    let tell = |(rank, come): (usize, Option<(TcpStream, SocketAddr)>)| {
        come.map(|(mut stream, _)| {
            say(&mut stream, &answer).with_context(|| format!("rank {rank} is gone"))?;
            Ok(stream)
        })
        .transpose()
    };
    come.into_iter().enumerate().map(tell).collect()
}

/// Tells those who have come that there is nothing to join.
fn refuse(come: Vec<Option<(TcpStream, SocketAddr)>>, why: &str) {
    for (mut stream, _) in come.into_iter().flatten() {
        say(&mut stream, &Answer::Refused(why.to_owned())).ok();
    }
}

/// Somebody who has come and says who that is; `None` if nobody does in time.
fn accept(listener: &TcpListener, wait: &Wait, slow: &dyn Fn() -> String) -> Result<Option<(TcpStream, Hello)>> {
    loop {
        match listener.accept() {
            Ok((mut stream, _)) => {
                stream.set_nonblocking(false).ok();
                stream.set_read_timeout(Some(SPEAK)).ok();
                // Whatever else may try ports.
                if let Ok((Kind::Hello, content)) = frame::read_short(&mut stream)
                    && let Ok(hello) = serde_json::from_slice(&content)
                {
                    return Ok(Some((stream, hello)));
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(anyhow!(error).context("cannot wait for other ranks")),
        }
        wait.tell(slow);
        if wait.is_over() {
            return Ok(None);
        }
    }
}

fn say(to: &mut TcpStream, what: &impl Serialize) -> Result<()> {
    let content = serde_json::to_vec(what).context("what is said to a rank")?;
    frame::write(to, Kind::Hello, &content).context("the connection has failed")
}

/// Another rank: goes to the first one, then to those before it, and waits for those after it.
fn other(world: &World, wait: &Wait) -> Result<Vec<Option<TcpStream>>> {
    let World { rank, ranks, .. } = *world;
    let mut stream = reach(world, wait)?;
    let here = stream.local_addr().context("the connection to rank 0 has failed")?.ip();
    let listener = TcpListener::bind((here, 0)).with_context(|| format!("rank {rank} cannot listen"))?;
    let port = listener.local_addr().with_context(|| format!("rank {rank} cannot listen"))?.port();
    say(&mut stream, &Hello { rank, ranks, port }).context("rank 0 is gone")?;
    let left = wait.until.saturating_duration_since(Instant::now()).max(SPEAK);
    stream.set_read_timeout(Some(left)).context("cannot set up a connection")?;
    let answer = frame::read_short(&mut stream).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            anyhow!("rank 0 has not said within {} s that all are there", wait.seconds())
        }
        _ => anyhow!("rank 0 has gone before all ranks were there"),
    })?;
    let places = match serde_json::from_slice(&answer.1).context("what rank 0 says cannot be understood")? {
        Answer::Places(places) if places.len() == ranks => places,
        Answer::Places(_) => bail!("rank 0 knows of another number of ranks"),
        Answer::Refused(why) => bail!(why),
    };
    let mut streams: Vec<Option<TcpStream>> = (0..ranks).map(|_| None).collect();
    streams[0] = Some(stream);
    for before in 1..rank {
        let mut stream = attempt(&[places[before]], wait.until)
            .with_context(|| format!("rank {rank} cannot reach rank {before} at {}", places[before]))?;
        say(&mut stream, &Hello { rank, ranks, port }).with_context(|| format!("rank {before} is gone"))?;
        streams[before] = Some(stream);
    }
    listener.set_nonblocking(true).with_context(|| format!("rank {rank} cannot listen"))?;
    loop {
        let missing: Vec<usize> = (rank + 1..ranks).filter(|after| streams[*after].is_none()).collect();
        if missing.is_empty() {
            return Ok(streams);
        }
        let slow = || format!("rank {rank} waits for {}", named(&missing));
        let Some((stream, hello)) = accept(&listener, wait, &slow)? else {
            bail!("rank {rank} has waited {} s for {}", wait.seconds(), named(&missing));
        };
        if missing.contains(&hello.rank) && hello.ranks == ranks {
            streams[hello.rank] = Some(stream);
        }
    }
}

/// Connects to rank 0.
fn reach(world: &World, wait: &Wait) -> Result<TcpStream> {
    let gave_up = |what: &str| format!("rank {} cannot reach rank 0 {what} within {} s", world.rank, wait.seconds());
    match &world.meeting {
        Meeting::Address { host, port, .. } => loop {
            // Names, too, may not be known before that machine is up.
            let found = (host.as_str(), *port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
            let soon = wait.until.min(Instant::now() + SPEAK);
            let error = match found.map_err(anyhow::Error::from).and_then(|places| attempt(&places, soon)) {
                Ok(stream) => return Ok(stream),
                Err(error) => error,
            };
            wait.tell(|| format!("rank {} tries to reach rank 0 at {host}:{port}: {error:#}", world.rank));
            if wait.is_over() {
                return Err(error.context(gave_up(&format!("at {host}:{port}"))));
            }
            std::thread::sleep(PAUSE);
        },
        Meeting::File(path) => loop {
            // One of an earlier job leads nowhere, and is replaced.
            if let Some(place) = fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok())
                && let Ok(stream) = attempt(&[place], Instant::now())
            {
                return Ok(stream);
            }
            wait.tell(|| format!("rank {} tries to reach rank 0 through `{}`", world.rank, path.display()));
            ensure!(!wait.is_over(), gave_up(&format!("through `{}`", path.display())));
            std::thread::sleep(PAUSE);
        },
    }
}

/// Connects to any of these places, trying at least once.
fn attempt(places: &[SocketAddr], until: Instant) -> Result<TcpStream> {
    loop {
        let mut last = anyhow!("it has no address");
        for place in places {
            match TcpStream::connect_timeout(place, SPEAK) {
                // A port of this machine that nobody listens at can be connected with itself.
                Ok(stream) if stream.local_addr().ok() != stream.peer_addr().ok() => return Ok(stream),
                Ok(_) => {}
                Err(error) => last = error.into(),
            }
        }
        if Instant::now() >= until {
            return Err(last);
        }
        std::thread::sleep(PAUSE);
    }
}

/// The file that says where rank 0 listens, while it does.
struct Announced<'a>(&'a Path);

impl Announced<'_> {
    fn new(path: &Path, at: SocketAddr) -> Result<Announced<'_>> {
        let part = path.with_extension(format!("part-{}", std::process::id()));
        // Never through a link that somebody else has put there.
        let new = fs::OpenOptions::new().write(true).create_new(true).open(&part);
        new.and_then(|mut file| file.write_all(at.to_string().as_bytes()))
            .and_then(|()| fs::rename(&part, path))
            .with_context(|| format!("rank 0 cannot say in `{}` where it listens", path.display()))?;
        Ok(Announced(path))
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        // It leads nowhere from now on; what is left does no harm.
        fs::remove_file(self.0).ok();
    }
}
