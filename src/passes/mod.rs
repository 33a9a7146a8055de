//! What turns the graph of a model's forward pass into the graph of a whole training step.
//!
//! A pass is a function on a [`crate::graph::Graph`]. They run in the order of [`Pass::ALL`], and the graph is verified
//! after each.

pub mod fold;
pub mod fuse;
pub mod grad;
pub mod pool;
pub mod precision;
pub mod reorder;
pub mod simplify;
pub mod update;

use crate::graph::{Graph, verify};

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
    /// Activations joined with the operations that make their operands.
    Fuse,
}

impl Pass {
    /// All passes, in order.
    pub const ALL: [Pass; 8] =
        [Pass::Reorder, Pass::Precision, Pass::Grad, Pass::Update, Pass::Simplify, Pass::Fold, Pass::Pool, Pass::Fuse];

    /// Those that may be left out: without them nothing is computed otherwise, only slower or with more memory. (Without
    /// [`Pass::Grad`] and [`Pass::Update`] nothing is trained, and [`Pass::Precision`] is a question of the configuration.)
    pub const OPTIONAL: [Pass; 5] = [Pass::Reorder, Pass::Simplify, Pass::Fold, Pass::Pool, Pass::Fuse];

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
            Pass::Fuse => "fuse",
        }
    }

    /// The pass of that name.
    pub fn parse(name: &str) -> Option<Pass> {
        Pass::ALL.into_iter().find(|p| p.name() == name)
    }
}

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

    /// Runs those of `passes` that need nothing but the graph.
    ///
    /// # Errors
    /// A pass left the graph inconsistent: a bug of that pass.
    pub fn run(&self, graph: &mut Graph, passes: &[Pass]) -> Result<(), String> {
        for pass in passes {
            if !self.wants(*pass) {
                continue;
            }
            match pass {
                Pass::Reorder => reorder::reorder(graph),
                Pass::Simplify => simplify::simplify(graph),
                Pass::Fold => fold::fold(graph),
                Pass::Pool => pool::pool(graph),
                Pass::Fuse => fuse::fuse(graph),
                // These need the precision or the optimizer too; whoever builds a graph calls them.
                Pass::Precision | Pass::Grad | Pass::Update => continue,
            }
            verify(graph).map_err(|e| format!("after pass `{}`: {e}", pass.name()))?;
        }
        Ok(())
    }
}
