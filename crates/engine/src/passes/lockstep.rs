//! Several shards of a rank in one program: where one of them needs the sums over all, all of them have come to the same place.
//!
//! What a shard computes is copied for each of them, with the same operations on the same shapes as if it were alone, so that the bits do not depend on how
//! many shards a rank has. An operation that joins what all shards have is there once; up to it comes the part of each shard, one after the other.

use crate::graph::{Graph, Node, Op, Role, Value, ValueId, VarId, VarKind, Variable, Variables};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Whether a node belongs to all shards together.
fn is_joint(node: &Node) -> bool {
    matches!(node.op, Op::ShardReduce(_) | Op::BatchNormFromSums(_))
}

/// A graph that computes `shards` together: the training graph of each after all other passes, in their order. `any` is such a graph, too: from it
/// a rank without a shard has the operations that all ranks take part in. `own` are the variables that each shard has for itself.
///
/// # Errors
/// The graphs do not come to the same places: a bug of the passes before.
pub fn lockstep(any: &Graph, shards: &[&Graph], vars: &mut Variables, own: &HashSet<VarId>) -> Result<Graph, String> {
    let joints = joints(any);
    let places: Vec<Vec<usize>> = shards.iter().map(|graph| self::joints(graph)).collect();
    let mut joined = Joined { graph: Graph::new(), vars, own };
    let mut shared = HashMap::new();
    let mut of_shards = vec![HashMap::new(); shards.len()];
    for at in 0..=joints.len() {
        for (number, graph) in shards.iter().enumerate() {
            if places[number].len() != joints.len() {
                return Err("the shards of a rank do not join the same sums".to_string());
            }
            for node in &graph.nodes[between(&places[number], at, graph.nodes.len())] {
                joined.copy(graph, node, number, &mut of_shards[number]);
            }
        }
        let Some(node) = joints.get(at).map(|place| &any.nodes[*place]) else { break };
        for (number, graph) in shards.iter().enumerate() {
            let same = &graph.nodes[places[number][at]];
            if same.op != node.op || variables(graph, same) != variables(any, node) {
                return Err("the shards of a rank join their sums in different orders".to_string());
            }
        }
        let outputs = joined.copy(any, node, 0, &mut shared);
        // Its results are those of every shard.
        for (number, graph) in shards.iter().enumerate() {
            let same = &graph.nodes[places[number][at]].outputs;
            of_shards[number].extend(same.iter().copied().zip(outputs.iter().copied()));
        }
    }
    Ok(joined.graph)
}

/// The places of nodes that belong to all shards.
fn joints(graph: &Graph) -> Vec<usize> {
    (0..graph.nodes.len()).filter(|at| is_joint(&graph.nodes[*at])).collect()
}

/// The nodes before joint number `at`, and after the one before it.
fn between(joints: &[usize], at: usize, nodes: usize) -> Range<usize> {
    let first = at.checked_sub(1).map_or(0, |before| joints[before] + 1);
    first..joints.get(at).copied().unwrap_or(nodes)
}

/// The variables that a node has.
fn variables(graph: &Graph, node: &Node) -> Vec<Option<VarId>> {
    let variable = |value: &ValueId| match graph.value(*value).role {
        Role::Parameter(id) | Role::State(id) => Some(id),
        Role::Input(_) | Role::ShardInput(_, _) | Role::Temporary | Role::Output => None,
    };
    node.inputs.iter().map(variable).collect()
}

struct Joined<'a> {
    graph: Graph,
    vars: &'a mut Variables,
    own: &'a HashSet<VarId>,
}

impl Joined<'_> {
    /// Adds `node` of `from` for shard `number`, whose values `known` has: its results.
    fn copy(
        &mut self,
        from: &Graph,
        node: &Node,
        number: usize,
        known: &mut HashMap<ValueId, ValueId>,
    ) -> Vec<ValueId> {
        self.graph.set_origin(from.origin(node));
        let [inputs, outputs] = [&node.inputs, &node.outputs]
            .map(|list| list.iter().map(|value| self.value(from, *value, number, known)).collect::<Vec<_>>());
        let origin = self.graph.current_origin;
        self.graph.nodes.push(Node { op: node.op.clone(), inputs, outputs: outputs.clone(), origin, ..node.clone() });
        outputs
    }

    fn value(&mut self, from: &Graph, value: ValueId, number: usize, known: &mut HashMap<ValueId, ValueId>) -> ValueId {
        if let Some(value) = known.get(&value) {
            return *value;
        }
        let Value { dtype, shape, role, .. } = from.value(value).clone();
        let copy = match role {
            Role::Input(input) if number == 0 => self.graph.input(input, dtype, shape),
            Role::Input(input) => self.graph.add_value(dtype, shape, Role::ShardInput(input, number as u32)),
            Role::Parameter(id) | Role::State(id) => {
                let id = if self.own.contains(&id) { self.own_of(id, number) } else { id };
                self.graph.variable(self.vars, id)
            }
            // The host reads the results of all shards together.
            Role::ShardInput(_, _) | Role::Temporary | Role::Output => {
                self.graph.add_value(dtype, shape, Role::Temporary)
            }
        };
        known.insert(value, copy);
        copy
    }

    /// What shard `number` has in the place of a variable that each has for itself.
    fn own_of(&mut self, id: VarId, number: usize) -> VarId {
        if number == 0 {
            return id;
        }
        let Variable { name, dtype, shape, storage, origin, .. } = self.vars[id].clone();
        let name = format!("{name}.{number}");
        let like = Variable::zeros(name, dtype, shape, VarKind::Kept);
        self.vars.get_or_add(Variable { storage, origin, ..like })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::op::{Binary, BinaryKind, KeepState, Receivers, SHARD_INPUTS, ShardReduce};
    use crate::graph::{DType, Input, Shape, verify};
    use crate::shards::Shards;

    /// A shard: what it has of the batch and a parameter, in a variable of its own; the sums over all shards in `joins`; and what it makes of the last of those.
    fn shard(vars: &mut Variables, joins: &[&str]) -> Graph {
        let mut graph = Graph::new();
        let mut variable = |graph: &mut Graph, name: &str, kind| {
            let id = vars.get_or_add(Variable::zeros(name, DType::F32, [4], kind));
            graph.variable(vars, id)
        };
        let x = graph.input(Input::Field(0), DType::F32, Shape::from([4]));
        let weight = variable(&mut graph, "weight", VarKind::Parameter);
        let own = variable(&mut graph, "own", VarKind::Kept);
        let y = graph.add1(Binary { kind: BinaryKind::Add }, &[x, weight]).unwrap();
        graph.add(KeepState { once: false }, &[y, own]).unwrap();
        let place = graph.input(Input::Shard, DType::I32, Shape::from([SHARD_INPUTS]));
        let mut last = y;
        for name in joins {
            last = variable(&mut graph, name, VarKind::Gradient);
            let shards = Shards { count: 4, ranks: 2 };
            graph.add(ShardReduce { slots: 1, shards, to: Receivers::All, bucket: None }, &[place, last]).unwrap();
        }
        let z = graph.add1(Binary { kind: BinaryKind::Mul }, &[y, last]).unwrap();
        graph.values[z.index()].role = Role::Output;
        graph
    }

    fn own(vars: &Variables) -> HashSet<VarId> {
        vars.find("own").into_iter().collect()
    }

    #[test]
    fn shards_come_to_their_sums_together() {
        let mut vars = Variables::new();
        let graph = shard(&mut vars, &["a", "b"]);
        let own = own(&vars);
        let joined = lockstep(&graph, &[&graph, &graph, &graph], &mut vars, &own).unwrap();
        verify(&joined).unwrap();
        let names: Vec<&str> = joined.nodes.iter().map(|node| node.op.rules().name()).collect();
        let alone = ["add", "keep_state"];
        let expected =
            [&alone, &alone, &alone, &["shard_reduce", "shard_reduce"][..], &["multiply", "multiply", "multiply"]];
        assert_eq!(names, expected.concat());
        // Each reads its own part of the batch and the same parameter, and has a variable of its own.
        let role = |node: usize, operand: usize| joined.value(joined.nodes[node].inputs[operand]).role;
        let inputs = [0, 2, 4].map(|node| role(node, 0));
        let field = Input::Field(0);
        assert_eq!(inputs, [Role::Input(field), Role::ShardInput(field, 1), Role::ShardInput(field, 2)]);
        assert!([2, 4].into_iter().all(|node| role(node, 1) == role(0, 1)));
        let names = [1, 3, 5].map(|node| match role(node, 1) {
            Role::State(id) => vars[id].name.clone(),
            role => panic!("{role:?}"),
        });
        assert_eq!(names, ["own", "own.1", "own.2"]);
        for (shard, node) in (8..11).enumerate() {
            // Its own value, and the sum that all have.
            assert_eq!(joined.nodes[node].inputs, [joined.nodes[2 * shard].outputs[0], joined.nodes[7].inputs[1]]);
        }
    }

    /// A rank without a shard takes part in the sums alone.
    #[test]
    fn a_rank_without_shards_has_the_sums_alone() {
        let mut vars = Variables::new();
        let graph = shard(&mut vars, &["a", "b"]);
        let own = own(&vars);
        let joined = lockstep(&graph, &[], &mut vars, &own).unwrap();
        let names: Vec<&str> = joined.nodes.iter().map(|node| node.op.rules().name()).collect();
        assert_eq!(names, ["shard_reduce", "shard_reduce"]);
    }

    #[test]
    fn shards_that_do_not_come_to_the_same_sums_are_refused() {
        let mut vars = Variables::new();
        let [graph, other, fewer] = [&["a", "b"][..], &["b", "a"], &["a"]].map(|joins| shard(&mut vars, joins));
        let own = own(&vars);
        let mut refused = |of: &Graph| lockstep(&graph, &[&graph, of], &mut vars, &own).unwrap_err();
        assert!(refused(&other).contains("in different orders"));
        assert!(refused(&fewer).contains("do not join the same sums"));
    }
}
