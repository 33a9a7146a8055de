//! What two ranks say first on a connection: who comes, and that both know the secret of their job.
//!
//! ```text
//! comes   ── who it is, and a number of its own ──▶  is there
//!         ◀── its number, and its proof ──────────
//!         ── its own proof ───────────────────────▶
//! ```
//! A proof is a keyed hash (BLAKE3) over both numbers and over who comes: one that was heard on another connection proves nothing.

use super::frame::{self, Kind};
use crate::collective::inbox::Failed;
use crate::system::unguessable;
use anyhow::{Context, Result, bail, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

/// Longest message that is read before the other side has proved anything, in bytes.
const SHORT: usize = 4 << 10;
/// Longest message of a rank while ranks meet, in bytes: where all of them are.
const LONG: usize = 1 << 20;

/// What the ranks of a job know, and no other process.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    /// Characters that a secret has at least.
    pub const LEAST: usize = 16;

    /// That which stands in a text.
    pub fn of(text: &str) -> Secret {
        Secret(blake3::derive_key("runner 2026-11 ranks that meet", text.as_bytes()))
    }

    /// A new text for one: 64 hexadecimal digits.
    pub fn draw() -> String {
        unguessable::<32>().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn proof(&self, side: &str, hello: &Hello, number: &[u8; 32]) -> blake3::Hash {
        let Hello { rank, ranks, port, number: of_guest } = hello;
        let mut hash = blake3::Hasher::new_keyed(&self.0);
        hash.update(side.as_bytes()).update(of_guest).update(number);
        for part in [*rank as u64, *ranks as u64, u64::from(*port)] {
            hash.update(&part.to_le_bytes());
        }
        hash.finalize()
    }
}

/// Who comes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hello {
    /// Which rank.
    pub rank: usize,
    /// Of how many.
    pub ranks: usize,
    /// Where it listens for ranks after it.
    pub port: u16,
    number: [u8; 32],
}

impl Hello {
    /// That of a rank.
    pub fn new(rank: usize, ranks: usize, port: u16) -> Hello {
        Hello { rank, ranks, port, number: unguessable() }
    }
}

/// The answer of the rank that listens.
#[derive(Debug, Serialize, Deserialize)]
struct Challenge {
    number: [u8; 32],
    proof: Option<[u8; 32]>,
}

/// The last word of the rank that comes.
#[derive(Debug, Serialize, Deserialize)]
struct Proof(Option<[u8; 32]>);

/// A process that says that it is this rank, and does not prove that it knows the secret of the job.
#[derive(Debug)]
pub struct Unproved(pub usize);

impl fmt::Display for Unproved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "says that it is rank {}, and does not prove that it knows the secret of this job", self.0)
    }
}

impl std::error::Error for Unproved {}

/// A connection on which all has to be said until then, however it comes.
pub struct Timed<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl<'a> Timed<'a> {
    /// That of `stream`.
    pub fn new(stream: &'a TcpStream, until: Instant) -> Self {
        Timed { stream, until }
    }

    fn left(&self) -> io::Result<std::time::Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        (&mut &*self.stream).read(out)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        (&mut &*self.stream).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Says something to a rank.
///
/// # Errors
/// The connection has failed, or it takes too long.
pub fn say(to: &TcpStream, until: Instant, what: &impl Serialize) -> Result<()> {
    let content = serde_json::to_vec(what).context("a message for a rank")?;
    frame::write(&mut Timed::new(to, until), Kind::Hello, &content).context("the connection has failed")
}

/// Hears what a rank says.
///
/// # Errors
/// As [`say`]; or it cannot be understood; [`Failed`] if it reports a rank that cannot go on.
pub fn hear<T: DeserializeOwned>(from: &TcpStream, until: Instant) -> Result<T> {
    hear_at_most(from, until, LONG)
}

/// What the system says of a connection, if that is what went wrong.
pub fn io_kind(error: &anyhow::Error) -> Option<ErrorKind> {
    error.root_cause().downcast_ref::<io::Error>().map(io::Error::kind)
}

/// Whether bytes are a frame with one of the words that ranks begin with.
pub fn is_understood(mut bytes: &[u8]) -> bool {
    let Ok((kind, content)) = frame::read_short(&mut bytes, SHORT) else { return false };
    let parsed = |parsed: bool| parsed && kind == Kind::Hello;
    parsed(serde_json::from_slice::<Hello>(&content).is_ok())
        || parsed(serde_json::from_slice::<Challenge>(&content).is_ok())
        || parsed(serde_json::from_slice::<Proof>(&content).is_ok())
}

fn hear_at_most<T: DeserializeOwned>(from: &TcpStream, until: Instant, most: usize) -> Result<T> {
    let (kind, content) = frame::read_short(&mut Timed::new(from, until), most).context("the connection has failed")?;
    if kind == Kind::Failed {
        let failed: Failed = serde_json::from_slice(&content).context("its message cannot be read")?;
        return Err(failed.error());
    }
    ensure!(kind == Kind::Hello, "its first message is no introduction");
    serde_json::from_slice(&content).context("its message cannot be read")
}

/// Comes to another rank.
///
/// # Errors
/// The connection has failed, or the process that listens there does not know the secret.
pub fn come(stream: &TcpStream, hello: &Hello, secret: Option<&Secret>, until: Instant) -> Result<()> {
    say(stream, until, hello)?;
    let Challenge { number, proof } = hear_at_most(stream, until, SHORT)?;
    if let Some(secret) = secret {
        let known = proof.is_some_and(|proof| secret.proof("is there", hello, &number) == blake3::Hash::from(proof));
        ensure!(known, "what listens there does not know the secret of this job");
    }
    let proof = secret.map(|secret| secret.proof("comes", hello, &number).into());
    say(stream, until, &Proof(proof))
}

/// Hears who comes.
///
/// # Errors
/// The connection has failed, or it is no rank of this job: [`Unproved`] if it says that it is one.
pub fn welcome(stream: &TcpStream, secret: Option<&Secret>, until: Instant) -> Result<Hello> {
    let hello: Hello = hear_at_most(stream, until, SHORT)?;
    let number = unguessable();
    let proof = secret.map(|secret| secret.proof("is there", &hello, &number).into());
    say(stream, until, &Challenge { number, proof })?;
    let proof = match hear_at_most(stream, until, SHORT) {
        Ok(Proof(proof)) => proof,
        // It has seen that the secret of this rank is another.
        Err(error) if io_kind(&error) == Some(ErrorKind::UnexpectedEof) => bail!(Unproved(hello.rank)),
        Err(error) => return Err(error),
    };
    let is_proved = |secret: &Secret| {
        proof.is_some_and(|proof| secret.proof("comes", &hello, &number) == blake3::Hash::from(proof))
    };
    ensure!(secret.is_none_or(is_proved), Unproved(hello.rank));
    Ok(hello)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::time::Duration;

    fn pair() -> [TcpStream; 2] {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [here, listener.accept().unwrap().0]
    }

    #[test]
    fn both_sides_prove_that_they_know_the_secret() {
        let [one, other] = [Secret::of("the first secret"), Secret::of("another secret ..")];
        for (of_guest, of_host, fits) in [
            (None, None, true),
            (Some(&one), Some(&one), true),
            (Some(&one), Some(&other), false),
            (None, Some(&one), false),
            (Some(&one), None, false),
        ] {
            let [here, there] = pair();
            let until = Instant::now() + Duration::from_secs(20);
            std::thread::scope(|scope| {
                // A side that refuses closes the connection, so that the other one does not wait.
                let guest = scope.spawn(move || come(&here, &Hello::new(1, 2, 3), of_guest, until).is_ok());
                let host = scope.spawn(move || welcome(&there, of_host, until).is_ok());
                let (guest, host) = (guest.join().unwrap(), host.join().unwrap());
                assert_eq!(guest && host, fits, "{guest} {host}");
            });
        }
    }

    /// What was heard on one connection, said again on another.
    #[test]
    fn a_proof_holds_once() {
        let secret = Secret::of("the first secret");
        let hello = Hello::new(1, 2, 3);
        let number = unguessable();
        let proof = secret.proof("comes", &hello, &number);
        assert_ne!(proof, secret.proof("comes", &hello, &unguessable()));
        assert_ne!(proof, secret.proof("is there", &hello, &number));
        assert_ne!(proof, secret.proof("comes", &Hello { rank: 0, ..hello.clone() }, &number));
        assert_ne!(proof, Secret::of("another secret ..").proof("comes", &hello, &number));
        assert_ne!(Secret::draw(), Secret::draw());
        assert!(!format!("{secret:?}").contains(|c: char| c.is_ascii_digit()));
    }

    /// A byte every so often is no sign of anything.
    #[test]
    fn what_drips_ends_in_time() {
        let [mut here, there] = pair();
        let dripping = std::thread::spawn(move || {
            let bytes = frame::header(Kind::Hello, 4000);
            let mut all = bytes.iter().copied().chain(std::iter::repeat(b' '));
            while here.write_all(&[all.next().unwrap_or(b' ')]).is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let heard = welcome(&there, None, Instant::now() + Duration::from_millis(300));
        assert!(format!("{:#}", heard.unwrap_err()).contains("the connection has failed"));
        drop(there);
        dripping.join().unwrap();
    }
}
