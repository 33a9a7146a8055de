//! Training in shards: what a shard has is taken into sums over all of them, in the order of a tree, and the update is made from these.
//!
//! Each shard is a run of the step's program on a part of the batch. It must see what every other one sees, so what the forward pass changes,
//! running statistics and figures, is a copy of its own; the update takes the mean of the statistics over the shards, and the
//! sum of the figures.

use super::update_spec::UpdateSpec;
use crate::graph::op::{AccumulateGrad, KeepState, MeanLoss, SHARD_INPUTS, ShardMean, ShardReduce, ShardSum, ZeroGrad};
use crate::graph::{DType, Graph, Input, Role, Shape, ShapeError, ValueId, VarId, VarKind, Variable, Variables};
use crate::shards::Shards;
use std::collections::HashMap;

/// What the names of a shard's own variables begin with.
const OWN: &str = "shard";

/// What the names of sums over shards begin with.
const SUM: &str = "shard_sum";

/// A variable that each shard has for itself, and its sums.
#[derive(Debug, Clone, PartialEq)]
struct Shared {
    /// What all shards have in common.
    of: VarId,
    sums: Vec<VarId>,
}

/// The sums over shards that a step's program makes.
#[derive(Debug, Clone, PartialEq)]
pub struct ShardSums {
    shards: Shards,
    /// Of losses and shares.
    losses: Vec<VarId>,
    gradients: Vec<(VarId, Vec<VarId>)>,
    buffers: Vec<Shared>,
    figures: Vec<Shared>,
}

/// What the update of a step in shards is made from.
#[derive(Debug, Clone, PartialEq)]
pub struct ShardTotals {
    /// The mean loss.
    pub loss: ValueId,
    /// The sums of gradients, by parameters.
    pub gradients: HashMap<VarId, ValueId>,
}

/// What all shards have in common, and what the shard has in its place.
type Own = (VarId, VarId);

/// The place of the shard's sums.
fn place(graph: &mut Graph) -> ValueId {
    graph.input(Input::Shard, DType::I32, Shape::from([SHARD_INPUTS]))
}

/// A variable like `of`.
fn like(vars: &mut Variables, of: VarId, name: String, kind: VarKind) -> VarId {
    let Variable { dtype, shape, storage, origin, .. } = vars[of].clone();
    vars.get_or_add(Variable { storage, origin, ..Variable::zeros(name, dtype, shape, kind) })
}

/// The variables for the sums of `of` over shards: so many slots.
pub fn sums(vars: &mut Variables, of: VarId, slots: usize) -> Vec<VarId> {
    (0..slots)
        .map(|slot| {
            let name = format!("{SUM}.{slot}.{}", vars[of].name);
            like(vars, of, name, VarKind::Gradient)
        })
        .collect()
}

/// The sum over all shards of what is summed in `variable`, when it is complete.
pub fn total_of(graph: &mut Graph, vars: &Variables, variable: VarId) -> Option<ValueId> {
    let total = vars.find(&format!("{SUM}.0.{}", vars[variable].name))?;
    Some(graph.variable(vars, total))
}

/// Adds the sums over shards of gradients, losses, statistics and figures, in place of the update. `shares` are the sums of losses and
/// shares of micro-batches, here of one.
///
/// # Errors
/// None, unless there is a bug.
pub fn add_shard_sums(
    graph: &mut Graph,
    vars: &mut Variables,
    (spec, shards): (&UpdateSpec, Shards),
    shares: VarId,
    gradient: impl Fn(VarId) -> Option<ValueId>,
) -> Result<ShardSums, ShapeError> {
    graph.set_origin("");
    graph.in_backward = true;
    let slots = shards.slots();
    let (changed, figures) = own_variables(graph, vars);
    let place = place(graph);
    let mut cleared = vec![graph.variable(vars, shares)];
    cleared.extend(figures.iter().map(|(_, own)| graph.variable(vars, *own)));
    let mut copied = Vec::new();
    for (of, own) in &changed {
        copied.extend([graph.variable(vars, *of), graph.variable(vars, *own)]);
    }
    let before = graph.nodes.len();
    graph.add(ZeroGrad {}, &cleared)?;
    if !copied.is_empty() {
        graph.add(KeepState { once: false }, &copied)?;
    }
    let added = graph.nodes.len() - before;
    graph.nodes.rotate_right(added);

    let mut gradients = Vec::new();
    for (id, _) in spec.tensors.iter().chain(&spec.thawed) {
        let Some(grad) = gradient(*id) else { continue };
        let sums = sums(vars, *id, slots);
        let mut operands = vec![place, grad];
        operands.extend(sums.iter().map(|sum| graph.variable(vars, *sum)));
        graph.add(ShardSum { slots }, &operands)?;
        gradients.push((*id, sums));
    }
    let mut operands = vec![place];
    let mut add = |graph: &mut Graph, vars: &mut Variables, own: VarId, of: VarId| {
        let sums = sums(vars, of, slots);
        operands.push(graph.variable(vars, own));
        operands.extend(sums.iter().map(|sum| graph.variable(vars, *sum)));
        Shared { of, sums }
    };
    let losses = add(graph, vars, shares, shares).sums;
    let buffers = changed.iter().map(|(of, own)| add(graph, vars, *own, *of)).collect();
    let figures = figures.iter().map(|(of, own)| add(graph, vars, *own, *of)).collect();
    graph.add(ShardSum { slots }, &operands)?;
    Ok(ShardSums { shards, losses, gradients, buffers, figures })
}

/// Gives the shard variables of its own in place of the buffers and figures that `graph` changes: those, and these.
fn own_variables(graph: &mut Graph, vars: &mut Variables) -> (Vec<Own>, Vec<Own>) {
    let mut changed: Vec<VarId> = Vec::new();
    for node in &graph.nodes {
        for m in node.op.rules().mutates(node.inputs.len()) {
            if let Role::State(id) = graph.value(node.inputs[m]).role
                && matches!(vars[id].kind, VarKind::Buffer | VarKind::Metric)
            {
                changed.push(id);
            }
        }
    }
    changed.sort_unstable();
    changed.dedup();
    let mut instead: HashMap<ValueId, ValueId> = HashMap::new();
    let mut own = |vars: &mut Variables, of: VarId| {
        let name = format!("{OWN}.{}", vars[of].name);
        let own = like(vars, of, name, VarKind::Kept);
        instead.insert(graph.variable(vars, of), graph.variable(vars, own));
        (of, own)
    };
    let pairs: Vec<Own> = changed.into_iter().map(|of| own(vars, of)).collect();
    for input in graph.nodes.iter_mut().flat_map(|node| &mut node.inputs) {
        *input = instead.get(input).copied().unwrap_or(*input);
    }
    pairs.into_iter().partition(|(of, _)| vars[*of].kind == VarKind::Buffer)
}

impl ShardSums {
    /// Begins the graph of the update: sums over all ranks where there are several, the mean loss, and the gradients.
    ///
    /// # Errors
    /// None, unless there is a bug.
    pub fn totals(&self, graph: &mut Graph, vars: &Variables) -> Result<ShardTotals, ShapeError> {
        graph.set_origin("");
        graph.in_backward = true;
        if self.shards.ranks > 1 {
            let mut operands = vec![place(graph)];
            let shared = self.buffers.iter().chain(&self.figures).map(|shared| &shared.sums);
            let all = self.gradients.iter().map(|(_, sums)| sums).chain([&self.losses]).chain(shared);
            operands.extend(all.flatten().map(|sum| graph.variable(vars, *sum)));
            graph.add(ShardReduce { slots: self.shards.slots(), shards: self.shards }, &operands)?;
        }
        let losses = graph.variable(vars, self.losses[0]);
        let loss = graph.add1(MeanLoss {}, &[losses])?;
        graph.values[loss.index()].role = Role::Output;
        let gradients = self.gradients.iter().map(|(id, sums)| (*id, graph.variable(vars, sums[0]))).collect();
        Ok(ShardTotals { loss, gradients })
    }

    /// Gives all shards the statistics and figures, from the sums over them, behind the update.
    ///
    /// # Errors
    /// None, unless there is a bug.
    pub fn share(&self, graph: &mut Graph, vars: &Variables, loss: ValueId) -> Result<(), ShapeError> {
        graph.set_origin("");
        graph.in_backward = true;
        if !self.buffers.is_empty() {
            let mut operands = vec![loss, place(graph)];
            for shared in &self.buffers {
                operands.extend([graph.variable(vars, shared.of), graph.variable(vars, shared.sums[0])]);
            }
            graph.add(ShardMean {}, &operands)?;
        }
        for shared in &self.figures {
            let operands = [graph.variable(vars, shared.sums[0]), graph.variable(vars, shared.of)];
            graph.add(AccumulateGrad {}, &operands)?;
        }
        Ok(())
    }
}
