//! The plan in figures: what `check` prints and training then uses.

use super::Plan;
use super::align;
use super::lifetime::{Buffer, Class};
use crate::graph::op::Op;
use crate::graph::{Graph, VarKind};

/// The moment of a program at which the most transient memory is in use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peak {
    /// The layer that runs then (empty for what belongs to no layer, such as the update).
    pub layer: String,
    /// The operation that runs then.
    pub op: String,
    /// True if it belongs to the backward pass.
    pub backward: bool,
    /// Bytes of results of the forward pass.
    pub activations: usize,
    /// Bytes of gradients.
    pub gradients: usize,
    /// Bytes of scratch memory.
    pub workspace: usize,
}

impl Peak {
    pub(super) fn find(graph: &Graph, buffers: &[Buffer]) -> Peak {
        // Differences at the first node of each buffer and after its last one, summed up on the way.
        let mut change = vec![0isize; graph.nodes.len() + 2];
        for b in buffers {
            change[b.first] += align(b.bytes) as isize;
            change[(b.last + 1).min(graph.nodes.len() + 1)] -= align(b.bytes) as isize;
        }
        let mut live = 0;
        let mut best = (0, 0);
        for (at, d) in change.iter().enumerate().take(graph.nodes.len()) {
            live += d;
            if live > best.0 {
                best = (live, at);
            }
        }
        let Some(node) = graph.nodes.get(best.1) else { return Peak::default() };
        let sum = |class: Class| {
            let live = buffers.iter().filter(|b| b.class == class && b.first <= best.1 && best.1 <= b.last);
            live.map(|b| align(b.bytes)).sum()
        };
        Peak {
            layer: graph.origin(node).to_string(),
            op: node.op.rules().name().to_string(),
            backward: node.backward,
            activations: sum(Class::Activation),
            gradients: sum(Class::Gradient),
            workspace: sum(Class::Workspace),
        }
    }
}

/// Bytes by what they are for. All classes together make [`MemorySummary::total`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemorySummary {
    /// Weights.
    pub parameters: usize,
    /// Running statistics, twice where they are trained, and metric sums.
    pub buffers: usize,
    /// Momenta and the like.
    pub optimizer: usize,
    /// Gradients: those kept between micro-batches, and those alive at the peak.
    pub gradients: usize,
    /// Results of the forward pass alive at the peak.
    pub activations: usize,
    /// Scratch memory at the peak.
    pub workspace: usize,
    /// Transient memory that no value uses at the peak: what fragmentation costs.
    pub unused: usize,
    /// Batch slots.
    pub batches: usize,
    /// Everything.
    pub total: usize,
    /// The program and the moment that need the most transient memory.
    pub peak_program: String,
    /// That moment.
    pub peak: Peak,
}

impl Plan {
    /// Bytes by class, with `slots` batch slots.
    pub fn memory(&self, slots: usize) -> MemorySummary {
        let sum = |kinds: &[VarKind]| -> usize {
            self.variables.iter().filter(|(_, v)| kinds.contains(&v.kind)).map(|(_, v)| align(v.bytes_here())).sum()
        };
        let largest = self.programs.iter().max_by_key(|p| p.transient_bytes);
        let peak = largest.map(|p| p.peak.clone()).unwrap_or_default();
        // Where shards meet, they are gathered in one more slot, which has all of them.
        let gathered = if self.together > 1 { self.slot_bytes(self.together) } else { 0 };
        let batches = slots * self.slot.bytes + gathered;
        MemorySummary {
            parameters: sum(&[VarKind::Parameter]),
            buffers: sum(&[VarKind::Buffer, VarKind::Metric, VarKind::Carried, VarKind::Kept, VarKind::Constant]),
            optimizer: sum(&[VarKind::Optimizer]),
            gradients: sum(&[VarKind::Gradient]) + peak.gradients,
            activations: peak.activations,
            workspace: peak.workspace,
            unused: self.transient_bytes - peak.gradients - peak.activations - peak.workspace,
            batches,
            total: self.device_bytes() + batches,
            peak_program: largest.map(|p| p.name.clone()).unwrap_or_default(),
            peak,
        }
    }

    /// Most bytes that this rank gives all others together in one exchange of a step; 0 if it is alone. It is sums of gradients that others add, or
    /// its part of the parameters.
    pub fn message_bytes(&self) -> usize {
        let of_node = |graph: &Graph, node: &crate::graph::Node| match &node.op {
            Op::ShardReduce(op) => {
                let sums: usize = node.inputs[1..].iter().map(|id| graph.value(*id).bytes()).sum();
                sums - sums / op.shards.ranks.max(1)
            }
            Op::ShardGather(op) => {
                let ranks = op.parts.iter().map(|(_, rank)| rank + 1).max().unwrap_or(0);
                let mut of_rank = vec![0; ranks];
                op.parts.iter().for_each(|(elements, rank)| of_rank[*rank] += elements);
                let widest = node.inputs.iter().map(|id| graph.value(*id).dtype.bytes()).max().unwrap_or(0);
                if ranks > 1 { of_rank.iter().max().map_or(0, |elements| elements * widest) } else { 0 }
            }
            _ => 0,
        };
        let of_program = |graph: &Graph| graph.nodes.iter().map(|node| of_node(graph, node)).max();
        self.programs.iter().filter_map(|program| of_program(&program.graph)).max().unwrap_or(0)
    }

    /// Bytes that an executable allocates: everything but the batch slots.
    pub fn device_bytes(&self) -> usize {
        self.persistent_bytes + self.transient_bytes
    }
}
