//! Ranks that are processes, on one machine or several: each has a connection by TCP to each of the others. What is long goes
//! through memory between those of one machine (`memory`).

mod announced;
mod frame;
mod guests;
mod handshake;
mod memory;
mod rendezvous;
mod wire;

pub use super::inbox::{Limits, Warn};
pub use handshake::Secret;

use super::Collective;
use super::messages::Messages;
use anyhow::Result;
use std::path::PathBuf;
use std::sync::Arc;

/// Where ranks find one another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meeting {
    /// Rank 0 listens there.
    Address {
        /// Name or address of its machine.
        host: String,
        /// Port.
        port: u16,
        /// All ranks are on one machine: no other machine needs to connect.
        local: bool,
    },
    /// Rank 0 listens at a port that it finds free, for ranks of its machine, and writes into this file which one it is.
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
    /// Ranks of one machine give each other long messages through memory that they share, where the system has such memory.
    pub shared_memory: bool,
    /// What proves that a connection is one of this job. Those who meet through a file have one from there, if this is `None`.
    pub secret: Option<Secret>,
}

/// The connections of a rank that then says nothing.
#[cfg(test)]
pub use rendezvous::{connect as connections, stopped};

/// Whether these bytes are a valid message of ranks that meet. Any program that connects can send them: fuzzers begin here.
pub fn is_understood(bytes: &[u8]) -> bool {
    handshake::is_understood(bytes)
}

/// Joins the others.
///
/// # Errors
/// They cannot be reached, do not come in time, or do not fit together.
pub fn join(world: &World, limits: Limits, warn: Warn) -> Result<Arc<dyn Collective>> {
    let connections = rendezvous::connect(world, limits, &warn)?;
    Ok(Arc::new(Messages::new(wire::TcpWire::new(world.rank, connections, limits, warn)?)))
}
