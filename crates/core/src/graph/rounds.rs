//! Which nodes run once, and which once for each part of a batch.

use super::{Graph, Op, ValueId};
use std::collections::HashMap;
use std::ops::Range;

/// Nodes that run one after the other, and that `parts` times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rounds {
    /// Their places in [`Graph::nodes`].
    pub nodes: Range<usize>,
    /// How often. More than once where they begin with [`super::op::BatchPart`]s and end with [`super::op::BatchJoin`]s.
    pub parts: usize,
}

impl Graph {
    /// All nodes, in the order in which they run.
    pub fn rounds(&self) -> Vec<Rounds> {
        let mut rounds: Vec<Rounds> = Vec::new();
        let (mut inside, mut joining) = (false, false);
        for (at, node) in self.nodes.iter().enumerate() {
            let begins = match &node.op {
                Op::BatchPart(op) if !inside || joining => Some(op.parts),
                Op::BatchJoin(_) => {
                    joining = true;
                    None
                }
                _ => (joining || rounds.is_empty()).then_some(1),
            };
            if let Some(parts) = begins {
                (inside, joining) = (matches!(node.op, Op::BatchPart(_)), false);
                rounds.push(Rounds { nodes: at..at, parts });
            }
            if let Some(last) = rounds.last_mut() {
                last.nodes.end = at + 1;
            }
        }
        rounds
    }

    /// For every value, how many parts of its memory follow one another from round to round: 1 where it stays in its place.
    pub fn parts(&self) -> Vec<usize> {
        let joined = self.joined();
        let root = self.roots();
        let mut parts = vec![1; self.values.len()];
        for node in &self.nodes {
            let first = node.outputs.first().map(|first| first.index());
            match (&node.op, first) {
                (Op::BatchPart(op), Some(y)) => parts[y] = op.parts,
                (Op::BatchJoin(_), _) => {}
                (op, Some(y)) if op.rules().is_alias() => parts[y] = parts[node.inputs[0].index()],
                _ => {
                    for y in &node.outputs {
                        parts[y.index()] = joined.get(&root[y.index()]).copied().unwrap_or(1);
                    }
                }
            }
        }
        parts
    }

    /// The values that are joined, by the one that is computed, with the number of parts.
    pub fn joined(&self) -> HashMap<ValueId, usize> {
        let joins = self.nodes.iter().filter_map(|node| match &node.op {
            Op::BatchJoin(op) => Some((node.inputs[0], op.parts)),
            _ => None,
        });
        let joins: Vec<(ValueId, usize)> = joins.collect();
        if joins.is_empty() {
            return HashMap::new();
        }
        let root = self.roots();
        joins.into_iter().map(|(value, parts)| (root[value.index()], parts)).collect()
    }

    /// Checks that every round is about one number of parts, and that nothing outside reads what a round has made but by [`super::op::BatchJoin`].
    pub(super) fn check_rounds(&self) -> Result<(), String> {
        let rounds = self.rounds();
        let mut made_by: HashMap<ValueId, usize> = HashMap::new();
        for (number, Rounds { nodes, parts }) in rounds.iter().enumerate() {
            for at in nodes.clone() {
                let node = &self.nodes[at];
                let wrong = match &node.op {
                    Op::BatchPart(op) => op.parts != *parts,
                    Op::BatchJoin(op) => op.parts != *parts || made_by.get(&node.inputs[0]) != Some(&number),
                    _ => false,
                };
                if wrong {
                    return Err(format!("node {at} (`{}`) does not fit its rounds", node.op.rules().name()));
                }
                if let Some(inside) = node.inputs.iter().find(|x| made_by.get(x).is_some_and(|by| *by != number)) {
                    return Err(format!("node {at} reads value {}, of which each round makes another part", inside.0));
                }
                if *parts > 1 && !matches!(node.op, Op::BatchJoin(_)) {
                    made_by.extend(node.outputs.iter().map(|y| (*y, number)));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::op::{Activation, ActivationOp, BatchJoin, BatchPart};
    use super::super::{DType, Input, Shape, verify};
    use super::*;

    const RELU: ActivationOp = ActivationOp { act: Activation::Relu };

    /// Layers on the whole batch, on two parts of it, on four, and on the whole.
    fn graph() -> (Graph, Vec<ValueId>) {
        let mut graph = Graph::new();
        let mut values = vec![graph.input(Input::Field(0), DType::F32, Shape::from([8, 3]))];
        let [two, four] = [2, 4].map(|parts| (BatchPart { parts }, BatchJoin { parts }));
        let ops: [Op; 8] = [
            RELU.into(),
            two.0.into(),
            RELU.into(),
            two.1.into(),
            four.0.into(),
            RELU.into(),
            four.1.into(),
            RELU.into(),
        ];
        for op in ops {
            values.push(graph.add1(op, &[values[values.len() - 1]]).unwrap());
        }
        (graph, values)
    }

    #[test]
    fn rounds_begin_with_parts_and_end_with_joins() {
        let (graph, values) = graph();
        verify(&graph).unwrap();
        let expected = [(0..1, 1), (1..4, 2), (4..7, 4), (7..8, 1)].map(|(nodes, parts)| Rounds { nodes, parts });
        assert_eq!(graph.rounds(), expected);
        let parts: Vec<usize> = values.iter().map(|value| graph.parts()[value.index()]).collect();
        assert_eq!(parts, [1, 1, 2, 2, 1, 4, 4, 1, 1]);
        assert_eq!(graph.joined(), HashMap::from([(values[3], 2), (values[6], 4)]));
        assert_eq!(Graph::new().rounds(), []);
    }

    #[test]
    fn what_a_round_makes_is_read_inside_alone() {
        let (mut graph, values) = graph();
        graph.nodes[7].inputs[0] = values[6];
        graph.values[values[8].index()].shape = Shape::from([2, 3]);
        assert!(verify(&graph).unwrap_err().contains("each round makes another part"));
    }

    #[test]
    fn a_round_is_about_one_number_of_parts() {
        let mut graph = self::graph().0;
        let nodes = &mut graph.nodes;
        nodes.remove(3);
        nodes.remove(3);
        let from = nodes[2].outputs[0];
        nodes[3].inputs[0] = from;
        let made = nodes[3].outputs[0];
        graph.values[made.index()].shape = Shape::from([4, 3]);
        let joined = graph.nodes[4].outputs[0];
        graph.values[joined.index()].shape = Shape::from([16, 3]);
        let last = graph.nodes[5].outputs[0];
        graph.values[last.index()].shape = Shape::from([16, 3]);
        assert!(verify(&graph).unwrap_err().contains("does not fit its rounds"));
    }
}
