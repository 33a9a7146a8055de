//! Evaluates a batch in parts, so that what one layer writes is in the cache when the next one reads it.
//!
//! A layer of a large image writes more than any cache holds, for a batch of images: the next layer waits for memory. The nodes of a program that does not
//! train are therefore divided into sections, and each section runs for a few samples at a time ([`BatchPart`], [`BatchJoin`]). Early layers, with large
//! images, have few samples at a time; late ones, with many weights, have all of them. This is layer fusion by depth-first tiling (Alwani et al. 2016,
//! *Fused-layer CNN accelerators*) with whole samples as tiles. Which sections there are follows from an estimate of the time that depends on shapes alone
//! (`cost.rs`), so that the bits are the same on every machine with the same instructions.

mod cost;

use crate::graph::op::{BatchJoin, BatchPart};
use crate::graph::{Graph, Input, Node, Op, Role, Value, ValueId};
use cost::{Section, Work};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Divides the nodes of `graph` into sections, and makes rounds of those that run for parts of the batch. Each part of a value begins at a multiple of `line`
/// bytes.
pub fn split_batch(graph: &mut Graph, line: usize) {
    divide(graph, line, cost::sections);
}

/// The same with the sections that `choose` makes of the nodes' work and the number of samples.
pub(crate) fn divide(graph: &mut Graph, line: usize, choose: impl FnOnce(&[Work], usize) -> Vec<Section>) {
    let is_field = |value: &&Value| matches!(value.role, Role::Input(Input::Field(_)));
    let samples = graph.values.iter().find(is_field).and_then(|value| value.shape.dims().first().copied());
    let Some(samples) = samples.filter(|samples| *samples > 1) else { return };
    let (of_batch, splits) = samples_in(graph, samples);
    let at = read_at(graph);
    let live = live(graph, &of_batch, &at);
    let work = graph.nodes.iter().zip(splits.into_iter().zip(live));
    let work = work.map(|(node, facts)| self::work(graph, node, &of_batch, [samples, line], facts));
    let sections = choose(&work.collect::<Vec<_>>(), samples);
    let mut split = Split { at, of_batch, nodes: Vec::with_capacity(graph.nodes.len()), graph };
    for Section { nodes, parts } in sections {
        split.section(nodes, parts);
    }
    split.graph.nodes = split.nodes;
}

/// For every value whether it consists of samples, one after the other: what comes with the batch, and what is made of each sample by itself. And for every
/// node whether it can be divided.
fn samples_in(graph: &Graph, samples: usize) -> (Vec<bool>, Vec<bool>) {
    let comes_with = |value: &Value| matches!(value.role, Role::Input(Input::Field(_) | Input::Shares));
    let mut of_batch: Vec<bool> = graph.values.iter().map(comes_with).collect();
    // What depends on samples otherwise, such as their sum.
    let mut mixed = vec![false; graph.values.len()];
    let splits = graph.nodes.iter().map(|node| {
        let reads = |of: &[bool]| node.inputs.iter().any(|x| of[x.index()]);
        let (reads_samples, reads_mixed) = (reads(&of_batch), reads(&mixed));
        if !reads_samples && !reads_mixed {
            return node.op.rules().mutates(node.inputs.len()).is_empty();
        }
        // What can be divided into single samples can be divided into any parts.
        let splits = !reads_mixed && part_of(graph, node, &of_batch, samples).is_some();
        let of = if splits { &mut of_batch } else { &mut mixed };
        node.outputs.iter().for_each(|y| of[y.index()] = true);
        splits
    });
    let splits = splits.collect();
    (of_batch, splits)
}

/// For every value the places of the nodes that read it; a result of the program is read after the last one.
fn read_at(graph: &Graph) -> Vec<Vec<usize>> {
    let mut at = vec![Vec::new(); graph.values.len()];
    for (place, node) in graph.nodes.iter().enumerate() {
        node.inputs.iter().for_each(|x| at[x.index()].push(place));
    }
    for (value, at) in graph.values.iter().zip(&mut at) {
        if value.role == Role::Output {
            at.push(graph.nodes.len());
        }
    }
    at
}

/// For every node the bytes of samples that other nodes have made before, and that it or a later one reads.
fn live(graph: &Graph, of_batch: &[bool], at: &[Vec<usize>]) -> Vec<usize> {
    let mut change = vec![0isize; graph.nodes.len() + 2];
    for (place, node) in graph.nodes.iter().enumerate().filter(|(_, node)| !node.op.rules().is_alias()) {
        for y in node.outputs.iter().filter(|y| of_batch[y.index()]) {
            if let Some(last) = at[y.index()].iter().max() {
                let bytes = graph.value(*y).bytes() as isize;
                change[place + 1] += bytes;
                change[last + 1] -= bytes;
            }
        }
    }
    let sum = |sum: &mut isize, change: isize| {
        *sum += change;
        Some(*sum as usize)
    };
    change.into_iter().take(graph.nodes.len()).scan(0, sum).collect()
}

/// The operation of `node` for one of `parts` parts, with the shapes of what it makes, if it can be computed so.
fn part_of(graph: &Graph, node: &Node, of_batch: &[bool], parts: usize) -> Option<Op> {
    let inputs: Vec<&Value> = node.inputs.iter().map(|x| graph.value(*x)).collect();
    let batch: Vec<bool> = node.inputs.iter().map(|x| of_batch[x.index()]).collect();
    let op = node.op.of_part(&inputs, &batch, parts)?;
    let divided = |x: &Value| Some(Value { shape: x.shape.part(parts)?, ..x.clone() });
    let inputs: Vec<Value> = inputs
        .iter()
        .zip(&batch)
        .map(|(x, of)| if *of { divided(x) } else { Some((*x).clone()) })
        .collect::<Option<_>>()?;
    let made = op.rules().infer(&inputs.iter().collect::<Vec<_>>()).ok()?;
    let fits =
        node.outputs.iter().zip(&made).all(|(y, (_, shape))| graph.shape(*y).part(parts).as_ref() == Some(shape));
    fits.then_some(op)
}

/// What `node` has to do, of which is known whether it can be divided and how many bytes are alive then. `line` is a power of two.
fn work(
    graph: &Graph,
    node: &Node,
    of_batch: &[bool],
    [samples, line]: [usize; 2],
    (splits, live): (bool, usize),
) -> Work {
    let bytes = |list: &[ValueId], of: bool| -> usize {
        list.iter().filter(|v| of_batch[v.index()] == of).map(|v| graph.value(*v).bytes()).sum()
    };
    let values = |list: &[ValueId]| list.iter().map(|v| graph.value(*v)).collect::<Vec<_>>();
    let rules = node.op.rules();
    let is_free = rules.is_alias() || !node.inputs.iter().any(|x| of_batch[x.index()]);
    let of_samples = node.inputs.iter().chain(&node.outputs).filter(|v| of_batch[v.index()]);
    Work {
        splits,
        samples: if is_free { 0 } else { bytes(&node.inputs, true) + bytes(&node.outputs, true) },
        weights: if is_free { 0 } else { bytes(&node.inputs, false) },
        flops: if is_free { 0 } else { rules.flops(&values(&node.inputs), &values(&node.outputs)) },
        rows: node.outputs.first().map_or(1, |y| graph.shape(*y).rows()),
        least: of_samples.map(|v| cost::least(graph.value(*v).bytes() / samples, line)).max().unwrap_or(1),
        live,
    }
}

struct Split<'a> {
    graph: &'a mut Graph,
    of_batch: Vec<bool>,
    at: Vec<Vec<usize>>,
    nodes: Vec<Node>,
}

impl Split<'_> {
    /// Adds a section.
    fn section(&mut self, nodes: Range<usize>, parts: usize) {
        if parts == 1 {
            return self.nodes.extend_from_slice(&self.graph.nodes[nodes]);
        }
        let (before, inside) = self.hoist(&self.graph.nodes[nodes.clone()]);
        self.nodes.extend(before);
        let made: HashSet<ValueId> = inside.iter().flat_map(|node| node.outputs.iter().copied()).collect();
        let mut divided: HashMap<ValueId, ValueId> = HashMap::new();
        let (mut takes, mut joins) = (Vec::new(), Vec::new());
        let mut round = Vec::with_capacity(inside.len());
        for node in inside {
            let op = part_of(self.graph, &node, &self.of_batch, parts).expect("a section has what can be divided");
            let around = |op: Op, from, to| Node { op, inputs: vec![from], outputs: vec![to], ..node.clone() };
            for x in &node.inputs {
                if self.of_batch[x.index()] && !made.contains(x) && !divided.contains_key(x) {
                    let part = self.part(*x, parts, &mut divided);
                    takes.push(around(BatchPart { parts }.into(), *x, part));
                }
            }
            for y in &node.outputs {
                let part = self.part(*y, parts, &mut divided);
                if self.at[y.index()].iter().any(|at| *at >= nodes.end) {
                    joins.push(around(BatchJoin { parts }.into(), part, *y));
                }
            }
            let [inputs, outputs] = [&node.inputs, &node.outputs]
                .map(|list| list.iter().map(|v| divided.get(v).copied().unwrap_or(*v)).collect());
            round.push(Node { op, inputs, outputs, ..node });
        }
        self.nodes.extend([takes, round, joins].into_iter().flatten());
    }

    /// The nodes of a section that run once before all others, which are those that no sample goes into and those that only give what was made before another
    /// shape, and the others.
    fn hoist(&self, nodes: &[Node]) -> (Vec<Node>, Vec<Node>) {
        let mut made: HashSet<ValueId> = HashSet::new();
        nodes.iter().cloned().partition(|node| {
            let is_renamed = node.op.rules().is_alias() && !made.contains(&node.inputs[0]);
            let is_before = is_renamed || !node.inputs.iter().any(|x| self.of_batch[x.index()]);
            if !is_before {
                made.extend(node.outputs.iter().copied());
            }
            is_before
        })
    }

    /// The value for a part of `whole`.
    fn part(&mut self, whole: ValueId, parts: usize, divided: &mut HashMap<ValueId, ValueId>) -> ValueId {
        let Value { dtype, shape, narrow, .. } = self.graph.value(whole).clone();
        let shape = shape.part(parts).expect("a section has what can be divided");
        let part = self.graph.add_value(dtype, shape, Role::Temporary);
        self.graph.values[part.index()].narrow = narrow;
        divided.insert(whole, part);
        part
    }
}

#[cfg(test)]
pub(crate) mod tests;
