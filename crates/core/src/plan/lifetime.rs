//! Which values share memory, and from when to when they live.

use super::align;
use crate::graph::{Graph, Role, Rounds, ValueId};
use std::collections::HashMap;

/// A buffer that one or more values use in turn: aliases, and results written in place of an operand that is not read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buffer {
    /// Index of the first node that writes it.
    pub first: usize,
    /// Index of the last node that touches it.
    pub last: usize,
    /// Size.
    pub bytes: usize,
    /// What it holds.
    pub class: Class,
}

/// What a transient buffer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Results of the forward pass.
    Activation,
    /// Results of the backward pass.
    Gradient,
    /// Scratch memory of one node, and weights in the layout of a node's kernel.
    Workspace,
}

/// For every value the buffer that holds it (`None`: it is no temporary, or no node computes it), and the buffers.
pub struct Lifetimes {
    /// Indexed by value.
    pub buffer_of: Vec<Option<usize>>,
    /// All buffers.
    pub buffers: Vec<Buffer>,
}

/// True if the memory of `value` may be reused by another value afterwards.
fn is_temporary(graph: &Graph, value: ValueId) -> bool {
    matches!(graph.value(value).role, Role::Temporary | Role::Output)
}

/// For values that are reshapes of variables or inputs: the value whose place they take.
pub fn borrowed(graph: &Graph) -> Vec<Option<ValueId>> {
    let root = graph.roots();
    root.iter().enumerate().map(|(i, r)| (r.index() != i && !is_temporary(graph, *r)).then_some(*r)).collect()
}

/// Computes the buffers of `graph`.
pub fn lifetimes(graph: &Graph) -> Lifetimes {
    let root = graph.roots();
    // The last node that touches each root; results that the host reads live to the end.
    let mut last = vec![0usize; graph.values.len()];
    for (at, node) in graph.nodes.iter().enumerate() {
        for v in node.inputs.iter().chain(&node.outputs) {
            last[root[v.index()].index()] = at;
        }
    }
    for (i, v) in graph.values.iter().enumerate() {
        if v.role == Role::Output {
            last[root[i].index()] = graph.nodes.len();
        }
    }
    let rounds = rounds(graph, &root, &mut last);

    let mut buffer_of: Vec<Option<usize>> = vec![None; graph.values.len()];
    let mut buffers: Vec<Buffer> = Vec::new();
    for (at, node) in graph.nodes.iter().enumerate() {
        let rules = node.op.rules();
        if rules.is_alias() {
            buffer_of[node.outputs[0].index()] = buffer_of[node.inputs[0].index()];
            continue;
        }
        for (o, output) in node.outputs.iter().enumerate() {
            let joined = rounds.get(output);
            let bytes = graph.value(*output).bytes() * joined.map_or(1, |(_, parts)| *parts);
            let end = last[output.index()];
            let taken = (o == 0 && joined.is_none()).then(|| rules.in_place()).flatten().and_then(|i| {
                let operand = node.inputs[i];
                let r = root[operand.index()];
                let b = buffer_of[operand.index()]?;
                // Another operand may share the memory only if it is the very same value, read element by element.
                let shared = node.inputs.iter().any(|v| *v != operand && root[v.index()] == r);
                let fits = is_temporary(graph, r)
                    && last[r.index()] == at
                    && buffers[b].last == at
                    && graph.value(operand).bytes() == bytes
                    && !shared;
                fits.then_some(b)
            });
            let b = match taken {
                Some(b) => {
                    buffers[b].last = end;
                    b
                }
                None => {
                    let class = if node.backward { Class::Gradient } else { Class::Activation };
                    let first = joined.map_or(at, |(start, _)| *start);
                    buffers.push(Buffer { first, last: end, bytes, class });
                    buffers.len() - 1
                }
            };
            buffer_of[output.index()] = Some(b);
        }
    }
    Lifetimes { buffer_of, buffers }
}

/// What is read in rounds lives until the last of them. What they join has room for all parts: it lives from the node on that is returned with their number.
fn rounds(graph: &Graph, root: &[ValueId], last: &mut [usize]) -> HashMap<ValueId, (usize, usize)> {
    let joined = graph.joined();
    let mut starts = HashMap::new();
    if joined.is_empty() {
        return starts;
    }
    let mut made_at: HashMap<ValueId, usize> = HashMap::new();
    for (at, node) in graph.nodes.iter().enumerate() {
        node.outputs.iter().for_each(|y| _ = made_at.insert(*y, at));
    }
    for Rounds { nodes, .. } in graph.rounds().into_iter().filter(|rounds| rounds.parts > 1) {
        let end = nodes.end - 1;
        for value in graph.nodes[nodes.clone()].iter().flat_map(|node| node.inputs.iter().chain(&node.outputs)) {
            let value = root[value.index()];
            let inside = made_at.get(&value).is_some_and(|at| nodes.contains(at));
            if let Some(parts) = joined.get(&value).filter(|_| inside) {
                starts.insert(value, (nodes.start, *parts));
            }
            if !inside || joined.contains_key(&value) {
                last[value.index()] = last[value.index()].max(end);
            }
        }
    }
    starts
}

/// The most bytes that are alive at one time: no block can be smaller.
pub fn most_alive(buffers: &[Buffer]) -> usize {
    let mut changes: Vec<(usize, isize)> = Vec::with_capacity(2 * buffers.len());
    for b in buffers {
        changes.push((b.first, align(b.bytes) as isize));
        changes.push((b.last + 1, -(align(b.bytes) as isize)));
    }
    // What ends at a time goes before what begins then.
    changes.sort_unstable();
    let mut alive = 0;
    let mut most = 0;
    for (_, change) in changes {
        alive += change;
        most = most.max(alive);
    }
    most as usize
}
