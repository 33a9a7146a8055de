//! What the engine of `runner` is built on: values and operations ([`graph`]), where every value lives ([`plan`]), several
//! ranks ([`collective`], [`shards`]), files, random numbers, loops over whole data sets ([`bulk`]), and what the system says of the machine ([`system`]). It knows no device and no kernel.

#[cfg(target_endian = "big")]
compile_error!("parameters and batches are read and written in place, as little-endian memory");

pub mod bulk;
pub mod collective;
pub mod failure;
pub mod files;
pub mod graph;
pub mod plan;
pub mod random;
pub mod shards;
pub mod system;
