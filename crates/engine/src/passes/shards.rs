//! Training in shards: what a shard has is taken into sums over all of them, in the order of a tree, and the update is made from these.
//!
//! Each shard is a run of the step's program on a part of the batch. It must see what every other one sees, so what the forward pass changes,
//! running statistics and figures, is a copy of its own; the update takes the mean of the statistics over the shards, and the
//! sum of the figures.

use super::keep::{self, Kept};
use super::update_spec::{Division, UpdateSpec};
use crate::graph::op::{
    AccumulateGrad, GradBlocks, GradSquares, KeepState, MeanLoss, NormOfSquares, Part, Receivers, SHARD_INPUTS,
    ShardBegin, ShardGather, ShardMean, ShardReduce, ShardSum, ZeroGrad,
};
use crate::graph::{
    DType, Graph, Input, Op, Role, Shape, ShapeError, Value, ValueId, VarId, VarKind, Variable, Variables,
};
use crate::shards::{BLOCK, Shards};
use std::collections::{HashMap, HashSet};

/// What the names of a shard's own variables begin with.
const OWN: &str = "shard";

/// What the names of sums over shards begin with.
const SUM: &str = "shard_sum";

/// What the name of the sums of squares of all gradients begins with.
const SQUARES: &str = "shard_squares";

/// Bytes of gradients whose sums over ranks are begun together: as many as cost far more than a message does.
const BUCKET_BYTES: usize = 4 << 20;

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
    /// If parameters are divided among ranks: gradients whose sums are made together, by their numbers.
    buckets: Vec<Vec<usize>>,
    /// Of losses and shares.
    losses: Vec<VarId>,
    gradients: Vec<(VarId, Vec<VarId>)>,
    buffers: Vec<Shared>,
    figures: Vec<Shared>,
    /// Running statistics of all shards together, with what they were before the step.
    kept: Kept,
    /// The variables that each shard has for itself.
    pub own: HashSet<VarId>,
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
pub(super) fn place(graph: &mut Graph) -> ValueId {
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

/// The variables for sums over shards of values like `of`, by that name.
pub(super) fn sums_like(vars: &mut Variables, of: &Value, name: &str, slots: usize) -> Vec<VarId> {
    let Value { dtype, shape, .. } = of;
    let zeros = |slot: usize| Variable::zeros(format!("{name}.{slot}"), *dtype, shape.clone(), VarKind::Gradient);
    (0..slots).map(|slot| vars.get_or_add(zeros(slot))).collect()
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
    let (changed, figures) = own_variables(graph, vars, spec.sync_batch_norm);
    let mut own: HashSet<VarId> = changed.iter().chain(&figures).map(|(_, own)| *own).collect();
    own.insert(shares);
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
    let buckets = match &spec.division {
        Some(_) => buckets(vars, &gradients),
        None => Vec::new(),
    };
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
    // What is left are statistics of all shards together.
    let kept = keep::keep(graph, vars, false)?;
    Ok(ShardSums { shards, buckets, losses, gradients, buffers, figures, kept, own })
}

/// Gradients whose sums over ranks are made together, in about the order in which the backward pass makes them: that of the parameters, reversed.
fn buckets(vars: &Variables, gradients: &[(VarId, Vec<VarId>)]) -> Vec<Vec<usize>> {
    let mut buckets: Vec<Vec<usize>> = Vec::new();
    let mut bytes = BUCKET_BYTES;
    for (at, (id, _)) in gradients.iter().enumerate().rev() {
        if bytes >= BUCKET_BYTES {
            buckets.push(Vec::new());
            bytes = 0;
        }
        bytes += vars[*id].bytes();
        buckets.iter_mut().last().into_iter().for_each(|bucket| bucket.push(at));
    }
    buckets
}

/// The sum over ranks of the gradients that are `members` of a bucket.
fn reduce_bucket(
    shards: Shards,
    division: Option<&Division>,
    gradients: &[(VarId, Vec<VarId>)],
    (bucket, members): (usize, &[usize]),
) -> ShardReduce {
    let to = match division {
        None => Receivers::All,
        Some(division) if division.is_by_parts() => Receivers::Parts,
        Some(division) => Receivers::Owners(members.iter().map(|at| division.owner(gradients[*at].0)).collect()),
    };
    ShardReduce { slots: shards.slots(), shards, to, bucket: Some(bucket) }
}

fn bucket_operands(
    graph: &mut Graph,
    vars: &Variables,
    gradients: &[(VarId, Vec<VarId>)],
    members: &[usize],
) -> Vec<ValueId> {
    let sums = members.iter().flat_map(|at| &gradients[*at].1);
    let mut operands = vec![place(graph)];
    operands.extend(sums.map(|sum| graph.variable(vars, *sum)));
    operands
}

/// The norm of all gradients from the sums of squares of each. Where ranks have divided them, each makes its own, and all get all of them.
///
/// # Errors
/// None, unless there is a bug.
pub(super) fn norm(
    graph: &mut Graph,
    vars: &mut Variables,
    division: Option<&Division>,
    schedule: ValueId,
    gradients: &[(VarId, ValueId)],
) -> Result<ValueId, ShapeError> {
    let blocks: Vec<usize> = gradients.iter().map(|(id, _)| vars[*id].shape.len().div_ceil(BLOCK)).collect();
    let all = blocks.iter().sum::<usize>().max(1);
    // While parameters are frozen there are fewer, and then all of them are of these.
    let name = format!("{SQUARES}.{all}");
    let squares = vars.get_or_add(Variable::zeros(name, DType::F64, [all], VarKind::Gradient));
    let squares = graph.variable(vars, squares);
    let (mut operands, mut own, mut parts) = (vec![squares], Vec::new(), Vec::new());
    let mut first = 0;
    for ((id, gradient), blocks) in gradients.iter().zip(blocks) {
        let length = vars[*id].shape.len();
        let part = division.map_or(Part { start: 0, len: length }, |division| division.own(*id, length));
        if part.len > 0 {
            operands.push(*gradient);
            own.push(GradBlocks { first: first + part.start / BLOCK, part });
        }
        // Who has elements has their blocks, which are whole.
        let of_ranks = division.map_or(Vec::new(), |division| division.parts(*id, length));
        parts.extend(of_ranks.into_iter().map(|(length, rank)| (length.div_ceil(BLOCK), rank)));
        first += blocks;
    }
    graph.add(GradSquares { gradients: own }, &operands)?;
    if !parts.is_empty() {
        graph.add(ShardGather { parts }, &[squares])?;
    }
    graph.add1(NormOfSquares {}, &[schedule, squares])
}

/// Has the sums over ranks begun while the rank computes its last shard: after the sums of each bucket, from where the pass `update_early` moves them up.
///
/// # Errors
/// None, unless there is a bug.
pub(super) fn begin_sums(
    graph: &mut Graph,
    vars: &Variables,
    spec: &UpdateSpec,
    sums: &ShardSums,
) -> Result<(), ShapeError> {
    graph.set_origin("");
    graph.in_backward = true;
    for (bucket, members) in sums.buckets.iter().enumerate() {
        let reduce = reduce_bucket(sums.shards, spec.division.as_ref(), &sums.gradients, (bucket, members));
        let operands = bucket_operands(graph, vars, &sums.gradients, members);
        graph.add(ShardBegin { reduce }, &operands)?;
    }
    Ok(())
}

/// Gives the shard variables of its own in place of the buffers and figures that `graph` changes: those, and these. If batch norm is `synced`, its running statistics stay.
fn own_variables(graph: &mut Graph, vars: &mut Variables, synced: bool) -> (Vec<Own>, Vec<Own>) {
    let mut changed: Vec<VarId> = Vec::new();
    let shared = |op: &Op| synced && matches!(op, Op::BatchNorm(_));
    for node in graph.nodes.iter().filter(|node| !shared(&node.op)) {
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
    pub fn totals(
        &self,
        graph: &mut Graph,
        vars: &Variables,
        division: Option<&Division>,
    ) -> Result<ShardTotals, ShapeError> {
        graph.set_origin("");
        graph.in_backward = true;
        for (bucket, members) in self.buckets.iter().enumerate() {
            let reduce = reduce_bucket(self.shards, division, &self.gradients, (bucket, members));
            let operands = bucket_operands(graph, vars, &self.gradients, members);
            graph.add(reduce, &operands)?;
        }
        if self.shards.ranks > 1 {
            let mut operands = vec![place(graph)];
            let shared = self.buffers.iter().chain(&self.figures).map(|shared| &shared.sums);
            // Those of gradients that no rank has for itself, too.
            let apart = if self.buckets.is_empty() { self.gradients.as_slice() } else { &[] };
            let all = apart.iter().map(|(_, sums)| sums).chain([&self.losses]).chain(shared);
            operands.extend(all.flatten().map(|sum| graph.variable(vars, *sum)));
            let (slots, shards) = (self.shards.slots(), self.shards);
            graph.add(ShardReduce { slots, shards, to: Receivers::All, bucket: None }, &operands)?;
        }
        let losses = graph.variable(vars, self.losses[0]);
        let loss = graph.add1(MeanLoss {}, &[losses])?;
        graph.values[loss.index()].role = Role::Output;
        let gradients = self.gradients.iter().map(|(id, sums)| (*id, graph.variable(vars, sums[0]))).collect();
        Ok(ShardTotals { loss, gradients })
    }

    /// Gives all ranks the parameters that each has updated.
    ///
    /// # Errors
    /// None, unless there is a bug.
    pub fn gather(&self, graph: &mut Graph, vars: &Variables, division: Option<&Division>) -> Result<(), ShapeError> {
        let Some(division) = division else { return Ok(()) };
        graph.set_origin("");
        graph.in_backward = true;
        for members in &self.buckets {
            let ids = || members.iter().map(|at| self.gradients[*at].0);
            let parts = ids().flat_map(|id| division.parts(id, vars[id].shape.len())).collect();
            let operands: Vec<ValueId> = ids().map(|id| graph.variable(vars, id)).collect();
            graph.add(ShardGather { parts }, &operands)?;
        }
        Ok(())
    }

    /// Gives all shards the statistics and figures, from the sums over them, after the update.
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
        self.kept.restore(graph, vars, loss)
    }
}
