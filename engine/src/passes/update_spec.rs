//! What the optimizer does to the parameters of a graph.

use super::muon::Muon;
use crate::graph::VarId;
use crate::graph::op::{Algorithm, TensorOptions, UpdateScale};
use crate::shards::Shards;

/// The optimizer of an experiment.
#[derive(Debug, Clone, PartialEq)]
pub struct UpdateSpec {
    /// The rule.
    pub algorithm: Algorithm,
    /// Another one, and the parameters that are updated by it instead.
    pub muon: Option<Muon>,
    /// Largest norm of all gradients together.
    pub clip_norm: Option<f32>,
    /// Largest norm of the gradient of each unit, in proportion to that of its weights.
    pub clip_adaptive: Option<ClipAdaptive>,
    /// Largest absolute value of an element of a gradient.
    pub clip_value: Option<f32>,
    /// The loss is scaled before it is differentiated, and the scale follows the gradients ([`super::update::loss_gradient`]).
    pub scaler: Option<UpdateScale>,
    /// Gradients are summed over micro-batches: what a full one weighs in the mean.
    pub micro_batch: Option<f32>,
    /// Micro-batches are the shards of a step: their sums are made in the order of a tree.
    pub shards: Option<Shards>,
    /// The parameters to train, with the options of each.
    pub tensors: Vec<(VarId, TensorOptions)>,
    /// Parameters that have been frozen until now. Their updates are counted by themselves, as in PyTorch, where each parameter
    /// has a step of its own: what depends on that begins anew.
    pub thawed: Vec<(VarId, TensorOptions)>,
    /// Variables of which exponential moving averages are kept.
    pub averaged: Vec<VarId>,
}

/// Which gradients are clipped by the norms of their weights, and where ([`crate::graph::op::AdaptiveClip`]).
#[derive(Debug, Clone, PartialEq)]
pub struct ClipAdaptive {
    /// Largest norm of a gradient in proportion.
    pub factor: f32,
    /// Least norm of weights.
    pub eps: f32,
    /// Parameters whose gradients are left as they are.
    pub except: Vec<VarId>,
}
