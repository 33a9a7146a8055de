//! What the optimizer does to the parameters of a graph.

use super::muon::Muon;
use crate::graph::op::{Algorithm, Part, TensorOptions, UpdateScale};
use crate::graph::{Holder, VarId, Variables};
use crate::shards::Shards;
use std::collections::HashMap;

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
    /// The parameters are divided among ranks, each of which updates its own and has the optimizer's state of those alone.
    pub division: Option<Division>,
    /// Gradients are summed over micro-batches: what a full one weighs in the mean.
    pub micro_batch: Option<f32>,
    /// Micro-batches are the shards of a step: their sums are made in the order of a tree.
    pub shards: Option<Shards>,
    /// Batch normalisation takes the statistics of all shards together.
    pub sync_batch_norm: bool,
    /// The parameters to train, with the options of each.
    pub tensors: Vec<(VarId, TensorOptions)>,
    /// Parameters that have been frozen until now. Their updates are counted by themselves, as in PyTorch, where each parameter
    /// has a step of its own: what depends on that begins anew.
    pub thawed: Vec<(VarId, TensorOptions)>,
    /// Variables of which exponential moving averages are kept.
    pub averaged: Vec<VarId>,
}

/// What each of several ranks updates, and has the optimizer's state of: a part of every parameter, or whole parameters.
///
/// Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models" (2020), divide the optimizer's state in this way (their first
/// stage).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Division {
    /// Which of them this is, and how many there are.
    pub rank: (usize, usize),
    /// The rank of each parameter, for rules that look at whole tensors; none where each rank has its part of every parameter.
    owners: Option<HashMap<VarId, usize>>,
}

impl Division {
    /// Each rank has its part of every parameter.
    pub fn by_parts(rank: (usize, usize)) -> Division {
        Division { rank, owners: None }
    }

    /// Gives each parameter, the largest first, to the rank that has the fewest elements so far.
    pub fn by_parameters(vars: &Variables, parameters: impl Iterator<Item = VarId>, rank: (usize, usize)) -> Division {
        let mut parameters: Vec<VarId> = parameters.collect();
        parameters.sort_by_key(|id| (std::cmp::Reverse(vars[*id].shape.len()), *id));
        let mut elements = vec![0; rank.1.max(1)];
        let mut owners = HashMap::new();
        for id in parameters {
            let least = (0..elements.len()).min_by_key(|rank| elements[*rank]).unwrap_or(0);
            elements[least] += vars[id].shape.len();
            owners.insert(id, least);
        }
        Division { rank, owners: Some(owners) }
    }

    /// Whether ranks have parts of parameters.
    pub fn is_by_parts(&self) -> bool {
        self.owners.is_none()
    }

    /// The rank of parameter `id`, where ranks have whole parameters.
    pub fn owner(&self, id: VarId) -> usize {
        self.owners.as_ref().and_then(|owners| owners.get(&id).copied()).unwrap_or(0)
    }

    /// Who has the state of the update of parameter `id`.
    pub fn holder(&self, id: VarId) -> Holder {
        let (rank, ranks) = self.rank;
        match &self.owners {
            None => Holder::Part(rank, ranks),
            Some(_) if self.owner(id) == rank => Holder::This,
            Some(_) => Holder::Other(self.owner(id)),
        }
    }

    /// How many of the `length` elements of parameter `id` which rank has, in their order.
    pub fn parts(&self, id: VarId, length: usize) -> Vec<(usize, usize)> {
        let (holder, (own, ranks)) = (self.holder(id), self.rank);
        let part = |rank: usize| (holder.elements_of(length, rank, rank == own).len(), rank);
        (0..ranks).map(part).filter(|(length, _)| *length > 0).collect()
    }

    /// The elements of parameter `id` that this rank has, of so many.
    pub fn own(&self, id: VarId, length: usize) -> Part {
        let range = self.holder(id).here(length);
        Part { start: range.start, len: range.len() }
    }
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
