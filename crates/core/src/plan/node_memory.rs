//! What a node needs beside its operands and results.

use super::lifetime;
use crate::graph::{Graph, Role};

/// Bytes that a node needs on the device while it runs, and from run to run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeMemory {
    /// Scratch bytes of a run.
    pub workspace: usize,
    /// The scratch bytes may be in use until the run ends, by what goes on beside the nodes after it. All such nodes of a program use the same memory, one
    /// after the other.
    pub lasts: bool,
    /// What may be kept from run to run.
    pub kept: Option<Kept>,
}

/// What a node makes of one operand alone, such as weights in the layout of its kernel. Where that operand does not change
/// between runs, it is made in the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// The operand.
    pub operand: usize,
    /// Bytes to keep.
    pub bytes: usize,
    /// Scratch bytes of a run where they are kept.
    pub workspace: usize,
}

impl From<usize> for NodeMemory {
    fn from(workspace: usize) -> Self {
        NodeMemory { workspace, lasts: false, kept: None }
    }
}

/// For every node, the bytes of its workspace and those that it keeps.
///
/// Weights are kept in programs that do not train, where they are variables that the program does not write. In a step of
/// training they change each time, and its memory is scarce.
pub(super) fn settle(graph: &Graph, needs: &[NodeMemory]) -> Vec<[usize; 2]> {
    if needs.iter().all(|need| need.kept.is_none()) || graph.nodes.iter().any(|node| node.backward) {
        return needs.iter().map(|need| [need.workspace, 0]).collect();
    }
    let root = lifetime::borrowed(graph);
    let root = |value: usize| root[value].map_or(value, |r| r.index());
    let mut written = vec![false; graph.values.len()];
    for node in &graph.nodes {
        for operand in node.op.rules().mutates(node.inputs.len()) {
            written[root(node.inputs[operand].index())] = true;
        }
    }
    let settle = |(node, need): (&crate::graph::Node, &NodeMemory)| match need.kept {
        Some(kept) => {
            let of = root(node.inputs[kept.operand].index());
            let constant = matches!(graph.values[of].role, Role::Parameter(_) | Role::State(_)) && !written[of];
            if constant { [kept.workspace, kept.bytes] } else { [need.workspace, 0] }
        }
        None => [need.workspace, 0],
    };
    graph.nodes.iter().zip(needs).map(settle).collect()
}
