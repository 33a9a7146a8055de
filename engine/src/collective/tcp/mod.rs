//! Ranks that are processes, on one machine or several: each has a connection by TCP to each of the others.

mod frame;
mod rendezvous;
mod wire;

use super::Collective;
use super::messages::Messages;
use anyhow::Result;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Where ranks find one another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meeting {
    /// Rank 0 listens there.
    Address {
        /// Name or address of its machine.
        host: String,
        /// Port.
        port: u16,
        /// All ranks are on one machine, and nobody else needs to get in.
        local: bool,
    },
    /// Rank 0 listens at a port that it finds free, and writes into this file which one it is.
    File(PathBuf),
}

/// A rank, and how it finds the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct World {
    /// Which rank this is, from 0.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
    /// Where they meet.
    pub meeting: Meeting,
}

/// How long is waited for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Until all ranks are there.
    pub join: Duration,
    /// Without any sign of life from a rank.
    pub silence: Duration,
    /// For a rank that gives signs of life, or has not come yet: then the wait is told, and again after twice as long.
    pub patience: Duration,
}

/// What a rank says that waits for others longer than usual.
pub type Tell = Box<dyn Fn(&str) + Send + Sync>;

/// The connections of a rank that then says nothing.
#[cfg(test)]
pub use rendezvous::connect as connections;

/// Joins the others.
///
/// # Errors
/// They cannot be reached, do not come in time, or do not fit together.
pub fn join(world: &World, limits: Limits, tell: Tell) -> Result<Arc<dyn Collective>> {
    let streams = rendezvous::connect(world, limits, &tell)?;
    Ok(Arc::new(Messages::new(wire::TcpWire::new(world.rank, streams, limits, tell)?)))
}
