//! What turns the graph of a model's forward pass into the graph of a whole training step.
//!
//! A pass is a function on a [`crate::graph::Graph`]. They run in the order of [`Pass::ALL`], and the graph is verified
//! after each.

pub mod advance;
pub mod chain;
pub mod fold;
pub mod fuse;
pub mod grad;
pub mod keep;
mod links;
pub mod pool;
pub mod precision;
pub mod reorder;
pub mod residual;
pub mod simplify;
pub mod update;

use crate::graph::{Graph, Op, verify};

/// A pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// Activations behind the pooling that follows them.
    Reorder,
    /// 16-bit floats where autocast has them, in mixed precision.
    Precision,
    /// The backward pass.
    Grad,
    /// The optimizer, or the sums of gradients for it.
    Update,
    /// Removal of what changes nothing.
    Simplify,
    /// Batch normalisation in evaluation joined with the convolutions before it, where the device has kernels for it.
    Fold,
    /// Convolutions joined with the max-pooling behind them, where the device has kernels for it.
    Pool,
    /// Sums joined with the operations that make one of their operands, where the device has kernels for it.
    Residual,
    /// Activations joined with the operations that make their operands.
    Fuse,
    /// Element-wise operations that follow each other joined.
    Chain,
    /// Parameters updated as soon as their gradients are there, where the device has a kernel for updates in parts.
    Advance,
}

impl Pass {
    /// All passes, in order.
    pub const ALL: [Pass; 11] = [
        Pass::Reorder,
        Pass::Precision,
        Pass::Grad,
        Pass::Update,
        Pass::Simplify,
        Pass::Fold,
        Pass::Pool,
        Pass::Residual,
        Pass::Fuse,
        Pass::Chain,
        Pass::Advance,
    ];

    /// Those over a graph that has all its operations.
    pub const LAST: [Pass; 7] =
        [Pass::Simplify, Pass::Fold, Pass::Pool, Pass::Residual, Pass::Fuse, Pass::Chain, Pass::Advance];

    /// Those that may be left out: without them nothing is computed otherwise, only slower or with more memory. (Without
    /// [`Pass::Grad`] and [`Pass::Update`] nothing is trained, and [`Pass::Precision`] is a question of the configuration.)
    pub const OPTIONAL: [Pass; 8] =
        [Pass::Reorder, Pass::Simplify, Pass::Fold, Pass::Pool, Pass::Residual, Pass::Fuse, Pass::Chain, Pass::Advance];

    /// The name that people use.
    pub fn name(self) -> &'static str {
        match self {
            Pass::Reorder => "reorder",
            Pass::Precision => "precision",
            Pass::Grad => "grad",
            Pass::Update => "update",
            Pass::Simplify => "simplify",
            Pass::Fold => "fold",
            Pass::Pool => "pool",
            Pass::Residual => "residual",
            Pass::Fuse => "fuse",
            Pass::Chain => "chain",
            Pass::Advance => "advance",
        }
    }

    /// The pass of that name.
    pub fn parse(name: &str) -> Option<Pass> {
        Pass::ALL.into_iter().find(|p| p.name() == name)
    }
}

/// True for the operations that a device has kernels for. Those of the layers, of their gradients and of the optimizer it
/// has in any case.
pub type Kernels<'a> = &'a dyn Fn(&Op) -> bool;

/// Which passes run: all of them by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PassOptions {
    /// Passes that are left out, of those in [`Pass::OPTIONAL`] or [`Pass::Precision`]; others run nevertheless.
    pub without: Vec<Pass>,
    /// Stop before this pass.
    pub stop_before: Option<Pass>,
}

impl PassOptions {
    /// True if `pass` and all after it are not to run.
    pub fn stops_before(&self, pass: Pass) -> bool {
        self.stop_before.is_some_and(|s| s <= pass)
    }

    /// True if `pass` is to run.
    pub fn wants(&self, pass: Pass) -> bool {
        !self.stops_before(pass) && !self.without.contains(&pass)
    }

    /// Runs those of `passes` that need nothing but the graph, for a device that has the kernels that `kernels` says.
    ///
    /// # Errors
    /// A pass left the graph inconsistent: a bug of that pass.
    pub fn run(&self, graph: &mut Graph, passes: &[Pass], kernels: Kernels) -> Result<(), String> {
        for pass in passes {
            if !self.wants(*pass) {
                continue;
            }
            match pass {
                Pass::Reorder => reorder::reorder(graph),
                Pass::Simplify => simplify::simplify(graph),
                Pass::Fold => fold::fold(graph, kernels),
                Pass::Pool => pool::pool(graph, kernels),
                Pass::Residual => residual::residual(graph, kernels),
                Pass::Fuse => fuse::fuse(graph, kernels),
                Pass::Chain => chain::chain(graph, kernels),
                Pass::Advance => advance::advance(graph, kernels),
                // These need the precision or the optimizer too; whoever builds a graph calls them.
                Pass::Precision | Pass::Grad | Pass::Update => continue,
            }
            verify(graph).map_err(|e| format!("after pass `{}`: {e}", pass.name()))?;
        }
        Ok(())
    }
}
