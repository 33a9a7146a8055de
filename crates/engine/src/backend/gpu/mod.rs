//! What GPUs have in common: what a node becomes, as data, without a driver.
//!
//! In layers, each of which names only those above it:
//! - [`formulas`]: the names and numbers by which kernels know activations, losses and optimizers' rules.
//! - [`launch`]: kernel launches, fills, copies, products and convolutions of a library, messages to other ranks.
//! - [`target`]: what lowering must know of the device, and what a library computes there.
//! - [`fusions`]: the groups of operations that have kernels.
//! - [`lower`]: from a node to launches, a file for each family of operations.

pub mod formulas;
pub mod fusions;
pub mod launch;
pub mod lower;
pub mod target;
