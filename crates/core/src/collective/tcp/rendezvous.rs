//! How ranks find one another: all connect to the first one, which sends each the addresses of the others.
//!
//! Where a rank does not answer, those that wait for it must name it, and not one another. So each part has more time than the one before: a rank that
//! gives up sends the reason to the others while they still wait for it.
//!
//! | part | who gives up first | after |
//! | --- | --- | --- |
//! | until all are there | rank 0 | `join` |
//! | connections between the others | each | `silence` |
//! | which memory can be read | each | one and a half times `silence` |
//! | the first sign of life (`wire`) | each | two times `silence` |

use super::announced::{self, Announced};
use super::frame::{self, Kind};
use super::guests::{Guests, SPEAK};
use super::handshake::{Hello, Secret, Timed, come, hear, io_kind, say};
use super::memory::{Incoming, Offer, Outbox};
use super::{Limits, Meeting, Warn, World};
use crate::collective::inbox::Failed;
use crate::failure::SettingError;
use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Between attempts to reach a rank, and between checks for ranks that have connected.
const PAUSE: Duration = Duration::from_millis(10);

/// For the reason that a rank gives up to come to the others.
const LAST_WORDS: Duration = Duration::from_millis(200);

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

/// How long a rank waits, and where a long wait is reported.
struct Wait<'a> {
    until: Instant,
    limit: Duration,
    /// For a rank that is there.
    silence: Duration,
    /// When it will be reported; `None` if it was.
    report_at: Cell<Option<Instant>>,
    warn: &'a Warn,
}

impl Wait<'_> {
    fn seconds(&self) -> u64 {
        self.limit.as_secs()
    }

    /// Reports once that it takes long.
    fn report(&self, what: impl FnOnce() -> String) {
        if self.report_at.get().is_some_and(|at| Instant::now() > at) {
            self.report_at.set(None);
            (self.warn)(&what());
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
pub fn connect(world: &World, limits: Limits, warn: &Warn) -> Result<Connections> {
    ensure!(world.rank < world.ranks, "rank {} of {} cannot be", world.rank, world.ranks);
    let now = Instant::now();
    let wait = Wait {
        until: now + limits.join,
        limit: limits.join,
        silence: limits.silence,
        report_at: Cell::new(Some(now + limits.patience)),
        warn,
    };
    let streams = match world.rank {
        0 => first(world, &wait),
        _ => other(world, &wait),
    }?;
    for stream in streams.iter().flatten() {
        stream.set_nonblocking(false).and_then(|()| stream.set_nodelay(true)).context("cannot set up a connection")?;
    }
    let outbox = world.shared_memory.then(Outbox::new).flatten();
    let offer = outbox.as_ref().and_then(Outbox::offer);
    let shared = share(&streams, &offer, world.shared_memory, wait.silence);
    let (incoming, reads) = shared.inspect_err(|error| tell(&streams, error))?;
    let outbox = outbox.filter(|_| reads.contains(&true));
    let peers = streams.into_iter().zip(incoming).zip(reads);
    let peers = peers.map(|((stream, incoming), reads)| stream.map(|stream| Connection { stream, reads, incoming }));
    Ok(Connections { peers: peers.collect(), outbox })
}

/// Finds out which ranks can read the memory of which: those of one machine.
fn share(
    streams: &[Option<TcpStream>],
    offer: &Option<Offer>,
    shared_memory: bool,
    silence: Duration,
) -> Result<(Vec<Option<Incoming>>, Vec<bool>)> {
    let until = Instant::now() + silence * 3 / 2;
    let gone = |rank: usize| move |error| fault(rank, silence, error);
    for (rank, stream) in others(streams) {
        say(stream, until, offer).map_err(gone(rank))?;
    }
    // Each rank sends to all before it receives from any, so no two ranks wait for each other.
    let mut incoming: Vec<Option<Incoming>> = streams.iter().map(|_| None).collect();
    for (rank, stream) in others(streams) {
        let offer: Option<Offer> = hear(stream, until).map_err(gone(rank))?;
        incoming[rank] = offer.filter(|_| shared_memory).as_ref().and_then(Incoming::open);
        say(stream, until, &incoming[rank].is_some()).map_err(gone(rank))?;
    }
    let mut reads = vec![false; streams.len()];
    for (rank, stream) in others(streams) {
        reads[rank] = hear(stream, until).map_err(gone(rank))?;
        stream.set_read_timeout(None).context("cannot set up a connection")?;
    }
    Ok((incoming, reads))
}

fn others(streams: &[Option<TcpStream>]) -> impl Iterator<Item = (usize, &TcpStream)> {
    streams.iter().enumerate().filter_map(|(rank, stream)| Some((rank, stream.as_ref()?)))
}

/// What is wrong where rank `rank` does not say what it should: another rank, if it has reported that one.
fn fault(rank: usize, silence: Duration, error: anyhow::Error) -> anyhow::Error {
    if error.is::<Failed>() {
        return error;
    }
    match io_kind(&error) {
        Some(ErrorKind::WouldBlock | ErrorKind::TimedOut) => Failed::silent(rank, silence),
        _ => Failed { rank, why: "it has gone before all ranks were there".into() },
    }
    .error()
}

/// Reports to the others which rank is missing.
fn tell(streams: &[Option<TcpStream>], error: &anyhow::Error) {
    let Some(failed) = error.downcast_ref::<Failed>() else { return };
    let until = Instant::now() + LAST_WORDS;
    for (_, stream) in others(streams).filter(|(rank, _)| *rank != failed.rank) {
        frame::write(&mut Timed::new(stream, until), Kind::Failed, &failed.to_bytes()).ok();
        stream.shutdown(Shutdown::Write).ok();
    }
    // What is not read when a connection is closed takes along what was sent last.
    std::thread::sleep(LAST_WORDS);
}

/// Rank 0: waits for all others, and sends each their addresses.
fn first(world: &World, wait: &Wait) -> Result<Vec<Option<TcpStream>>> {
    let everywhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let (ip, port) = match &world.meeting {
        Meeting::Address { port, local, host } => (if *local || is_here(host) { here } else { everywhere }, *port),
        Meeting::File(_) => (here, 0),
    };
    let listener = TcpListener::bind((ip, port)).with_context(|| format!("rank 0 cannot listen at port {port}"))?;
    let at = listener.local_addr().context("rank 0 cannot listen")?;
    // Other ranks read the secret from the file.
    let drawn = (world.secret.is_none() && matches!(world.meeting, Meeting::File(_))).then(Secret::draw);
    let secret = world.secret.clone().or(drawn.as_deref().map(Secret::of));
    let _file = match &world.meeting {
        Meeting::File(path) => Some(Announced::new(path, at, drawn.as_deref())?),
        Meeting::Address { .. } => None,
    };
    let guests = Guests::new(listener, secret.as_ref(), world.ranks)?;
    let mut come: Vec<Option<(TcpStream, SocketAddr)>> = (0..world.ranks).map(|_| None).collect();
    let missing = |come: &[Option<_>]| (1..world.ranks).filter(|rank| come[*rank].is_none()).collect::<Vec<_>>();
    while !missing(&come).is_empty() {
        let slow = || format!("rank 0 waits for {} at port {}{}", named(&missing(&come)), at.port(), guests.refused());
        let Some((stream, Hello { rank, ranks, port, .. })) = next(&guests, wait, wait.until, &slow)? else {
            let absent = named(&missing(&come));
            refuse(come, &format!("{absent} did not come"));
            bail!("rank 0 has waited {} s for {absent}{}", wait.seconds(), guests.refused());
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
            say(&stream, Instant::now() + SPEAK, &Answer::Refused(wrong.clone())).ok();
            refuse(come, &wrong);
            bail!(wrong);
        }
        let ip = stream.peer_addr().context("a rank that has come is gone")?.ip();
        come[rank] = Some((stream, SocketAddr::new(ip, port)));
    }
    let places: Vec<SocketAddr> = come.iter().map(|come| come.as_ref().map_or(at, |(_, place)| *place)).collect();
    let (answer, until) = (Answer::Places(places), Instant::now() + SPEAK);
    let send_answer = |(rank, come): (usize, Option<(TcpStream, SocketAddr)>)| {
        come.map(|(stream, _)| {
            say(&stream, until, &answer).with_context(|| format!("rank {rank} is gone"))?;
            Ok(stream)
        })
        .transpose()
    };
    come.into_iter().enumerate().map(send_answer).collect()
}

/// Refuses the ranks that have come: there is nothing to join.
fn refuse(come: Vec<Option<(TcpStream, SocketAddr)>>, why: &str) {
    let until = Instant::now() + SPEAK;
    for (stream, _) in come.into_iter().flatten() {
        say(&stream, until, &Answer::Refused(why.to_owned())).ok();
    }
}

/// Whether it is a name of this machine for itself.
fn is_here(host: &str) -> bool {
    host == "localhost" || host.parse::<Ipv4Addr>().is_ok_and(|ip| ip.is_loopback())
}

/// The next connection after its handshake; `None` if there is none until then.
fn next(guests: &Guests, wait: &Wait, until: Instant, slow: &dyn Fn() -> String) -> Result<Option<(TcpStream, Hello)>> {
    loop {
        if let Some(guest) = guests.next()? {
            return Ok(Some(guest));
        }
        wait.report(slow);
        if Instant::now() > until {
            return Ok(None);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Another rank: goes to the first one, then to those before it, and waits for those after it.
fn other(world: &World, wait: &Wait) -> Result<Vec<Option<TcpStream>>> {
    let World { rank, ranks, .. } = *world;
    let (stream, secret) = reach(world, wait)?;
    let secret = secret.as_ref();
    let here = stream.local_addr().context("the connection to rank 0 has failed")?.ip();
    let listener = TcpListener::bind((here, 0)).with_context(|| format!("rank {rank} cannot listen"))?;
    let port = listener.local_addr().with_context(|| format!("rank {rank} cannot listen"))?.port();
    let guests = Guests::new(listener, secret, ranks)?;
    let hello = || Hello::new(rank, ranks, port);
    come(&stream, &hello(), secret, Instant::now() + SPEAK)
        .with_context(|| format!("rank {rank} cannot join rank 0"))?;
    // It began to wait before this rank came, and says who is missing.
    let answered = wait.limit + wait.silence;
    let answer = hear::<Answer>(&stream, Instant::now() + answered).map_err(|error| match io_kind(&error) {
        Some(ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            anyhow!("rank 0 has not said within {} s that all are there", answered.as_secs())
        }
        _ => {
            anyhow!("rank 0 has gone before all ranks were there, or does not take this one: is its secret another?")
        }
    })?;
    let places = match answer {
        Answer::Places(places) if places.len() == ranks => places,
        Answer::Places(_) => bail!("rank 0 knows of another number of ranks"),
        Answer::Refused(why) => bail!(why),
    };
    let mut streams: Vec<Option<TcpStream>> = (0..ranks).map(|_| None).collect();
    streams[0] = Some(stream);
    let hello = |to: &TcpStream, until: Instant| come(to, &hello(), secret, until);
    meet(rank, &places, &guests, wait, &hello, &mut streams).inspect_err(|error| tell(&streams, error))?;
    Ok(streams)
}

/// Connects rank `rank` to the others but the first one, which all have come to.
fn meet(
    rank: usize,
    places: &[SocketAddr],
    guests: &Guests,
    wait: &Wait,
    come: &dyn Fn(&TcpStream, Instant) -> Result<()>,
    streams: &mut [Option<TcpStream>],
) -> Result<()> {
    let (ranks, until) = (places.len(), Instant::now() + wait.silence);
    for before in 1..rank {
        let place = places[before];
        let stream = attempt(&[place], until).map_err(|error| {
            Failed { rank: before, why: format!("rank {rank} cannot reach it at {place}: {error:#}") }.error()
        })?;
        come(&stream, until).map_err(|error| fault(before, wait.silence, error))?;
        streams[before] = Some(stream);
    }
    loop {
        let missing: Vec<usize> = (rank + 1..ranks).filter(|after| streams[*after].is_none()).collect();
        let Some(first) = missing.first() else { return Ok(()) };
        let slow = || format!("rank {rank} waits for {}", named(&missing));
        let Some((stream, hello)) = next(guests, wait, until, &slow)? else {
            return Err(Failed::silent(*first, wait.silence).error());
        };
        if missing.contains(&hello.rank) && hello.ranks == ranks {
            streams[hello.rank] = Some(stream);
        }
    }
}

/// Connects to rank 0; with the secret of the job, if there is one.
fn reach(world: &World, wait: &Wait) -> Result<(TcpStream, Option<Secret>)> {
    let gave_up = |what: &str| format!("rank {} cannot reach rank 0 {what} within {} s", world.rank, wait.seconds());
    loop {
        let soon = wait.until.min(Instant::now() + SPEAK);
        let (reached, place) = match &world.meeting {
            Meeting::Address { host, port, .. } => {
                // Names, too, may not be known before that machine is up.
                let found = (host.as_str(), *port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
                let stream = found.map_err(anyhow::Error::from).and_then(|places| attempt(&places, soon));
                (stream.map(|stream| (stream, None)), format!("at {host}:{port}"))
            }
            // One of an earlier job leads nowhere, and is replaced.
            Meeting::File(path) => {
                let at = announced::read(path);
                let stream = at.and_then(|(at, secret)| Ok((attempt(&[at], Instant::now())?, secret)));
                (stream, format!("through `{}`", path.display()))
            }
        };
        let error = match reached {
            Ok((stream, secret)) => return Ok((stream, world.secret.clone().or(secret))),
            Err(error) if error.is::<SettingError>() => return Err(error),
            Err(error) => error,
        };
        wait.report(|| format!("rank {} tries to reach rank 0 {place}: {error:#}", world.rank));
        if Instant::now() > wait.until {
            return Err(error.context(gave_up(&place)));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Connects to any of these places, trying at least once.
fn attempt(places: &[SocketAddr], until: Instant) -> Result<TcpStream> {
    loop {
        let mut last = anyhow!("it has no address");
        for place in places {
            match TcpStream::connect_timeout(place, SPEAK) {
                // A port of this machine without a listener can be connected with itself.
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

/// The connections of a rank that has stopped: with `moment` 0 before it came, 1 when it had come to the first one, 2 when it was connected to all.
#[cfg(test)]
pub fn stopped(world: &World, limits: Limits, moment: usize) -> Vec<Option<TcpStream>> {
    let until = Instant::now() + limits.join;
    let (limit, silence) = (limits.join, limits.silence);
    let wait = Wait { until, limit, silence, report_at: Cell::new(None), warn: &(Box::new(|_: &str| ()) as Warn) };
    match moment {
        0 => Vec::new(),
        1 => {
            let (stream, secret) = reach(world, &wait).unwrap();
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            come(&stream, &Hello::new(world.rank, world.ranks, port), secret.as_ref(), until).unwrap();
            // It takes connections, as the system does for a process that is stopped.
            std::mem::forget(listener);
            vec![Some(stream)]
        }
        _ => other(world, &wait).unwrap(),
    }
}
