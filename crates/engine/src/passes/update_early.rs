//! Early updates: a parameter is updated as soon as its gradient is computed and nothing reads the old value any more. The
//! gradient is then still in the cache, and its memory can be reused by the nodes after it.

use crate::graph::op::OptimizerStep;
use crate::graph::{Graph, Node, Op, ValueId};
use std::collections::HashMap;

/// The least number of elements that are updated together, unless there are no more: fewer are not worth an operation of
/// their own.
const TOGETHER: usize = 1 << 16;

/// Takes the optimizer's update apart by parameters and moves each part up; moves sums of gradients over micro-batches or shards up
/// likewise. An update that needs the norm of all gradients stays where it is, and so does any other unless `updates_apart`:
/// the device has a kernel for a part of it. Run it last: it keeps to the order in which the other operations are.
pub fn update_early(graph: &mut Graph, updates_apart: bool) {
    let root = graph.roots();
    let nodes = std::mem::take(&mut graph.nodes);
    let moves: Vec<bool> = nodes.iter().map(|n| can_move(&n.op, updates_apart)).collect();
    // For every value, the position after the last node so far that touches its memory.
    let mut touched = vec![0; graph.values.len()];
    // For every position, the parts that move there.
    let mut arrivals: Vec<Vec<Part>> = (0..=nodes.len()).map(|_| Vec::new()).collect();
    let mut begun = 0;
    for (at, node) in nodes.iter().enumerate() {
        if moves[at] {
            for part in parts(node, at) {
                let mut place = part.operands(node).map(|v| touched[root[v.index()].index()]).max().unwrap_or(at);
                if let Op::ShardBegin(_) = node.op {
                    // Their order is the same on all ranks, whatever each of them runs.
                    place = place.max(begun);
                    begun = place;
                }
                // A later part that takes what this one changes, such as a moving average, comes after it.
                for value in part.own(node) {
                    touched[root[value.index()].index()] = place;
                }
                arrivals[place].push(part);
            }
        } else {
            for value in node.inputs.iter().chain(&node.outputs) {
                touched[root[value.index()].index()] = at + 1;
            }
        }
    }
    let mut waiting: Vec<Part> = Vec::new();
    // Of the pending parts: the number of elements, and the first node that they must run before.
    let (mut elements, mut deadline) = (0, usize::MAX);
    let mut counted = vec![false; nodes.len()];
    for at in 0..=nodes.len() {
        for part in &arrivals[at] {
            elements += part.own(&nodes[part.node]).map(|v| graph.shape(v).len()).max().unwrap_or(0);
            deadline = deadline.min(part.node);
        }
        waiting.append(&mut arrivals[at]);
        let is_last = at == nodes.len();
        if deadline <= at || elements >= TOGETHER {
            emit(&mut graph.nodes, &nodes, std::mem::take(&mut waiting), &mut counted);
            (elements, deadline) = (0, usize::MAX);
        }
        if !is_last && !moves[at] {
            graph.nodes.push(nodes[at].clone());
        }
    }
}

fn can_move(op: &Op, updates_apart: bool) -> bool {
    match op {
        Op::AccumulateGrad(_) => true,
        Op::ShardSum(_) | Op::ShardBegin(_) => true,
        Op::OptimizerStep(op) => updates_apart && !op.has_norm() && !op.tensors.is_empty(),
        _ => false,
    }
}

/// A part that can be moved by itself.
struct Part {
    /// The node that it is a part of.
    node: usize,
    /// Which tensor of an update; `None` is the whole node.
    tensor: Option<usize>,
}

fn parts(node: &Node, at: usize) -> Vec<Part> {
    match &node.op {
        Op::OptimizerStep(op) => (0..op.tensors.len()).map(|t| Part { node: at, tensor: Some(t) }).collect(),
        _ => vec![Part { node: at, tensor: None }],
    }
}

impl Part {
    /// The values that it reads or writes.
    fn operands<'a>(&self, node: &'a Node) -> impl Iterator<Item = ValueId> + use<'a> {
        let then: &[ValueId] = match (&node.op, self.tensor) {
            (Op::OptimizerStep(op), Some(_)) => &node.inputs[..op.head()],
            (Op::ShardSum(_) | Op::ShardBegin(_), _) => &node.inputs[..1],
            _ => &[],
        };
        self.own(node).chain(then.iter().copied())
    }

    /// Those of them that no other part of the node has.
    fn own<'a>(&self, node: &'a Node) -> impl Iterator<Item = ValueId> + use<'a> {
        let own = match (&node.op, self.tensor) {
            (Op::OptimizerStep(op), Some(tensor)) => {
                let first = op.head() + tensor * op.stride();
                &node.inputs[first..first + op.stride()]
            }
            // All of them read the place of the shard.
            (Op::ShardSum(_) | Op::ShardBegin(_), _) => &node.inputs[1..],
            _ => &node.inputs,
        };
        own.iter().copied()
    }
}

/// Appends the operations of all pending parts; parts of one update become one operation.
fn emit(to: &mut Vec<Node>, nodes: &[Node], mut waiting: Vec<Part>, counted: &mut [bool]) {
    // One update may take what another one before it has changed.
    waiting.sort_by_key(|part| part.tensor.map(|_| part.node));
    let mut together: HashMap<usize, Vec<usize>> = HashMap::new();
    for part in &waiting {
        together.entry(part.node).or_default().extend(part.tensor);
    }
    for Part { node: at, tensor } in waiting {
        let node = &nodes[at];
        let (Op::OptimizerStep(op), Some(_)) = (&node.op, tensor) else {
            to.push(node.clone());
            continue;
        };
        // The first of them takes the others along.
        let Some(mut tensors) = together.remove(&at) else { continue };
        tensors.sort_unstable();
        let mut inputs = node.inputs[..op.head()].to_vec();
        for tensor in &tensors {
            let first = op.head() + tensor * op.stride();
            inputs.extend(&node.inputs[first..first + op.stride()]);
        }
        let counts = !std::mem::replace(&mut counted[at], true);
        let options = tensors.iter().map(|t| op.tensors[*t]).collect();
        let parts = tensors.iter().filter_map(|t| op.parts.get(*t).copied()).collect();
        let part = OptimizerStep { counts: op.counts && counts, tensors: options, parts, ..op.clone() };
        to.push(Node { op: part.into(), inputs, ..node.clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::op::{
        Algorithm, ElementwiseLoss, Linear, LossOp, Receivers, SHARD_INPUTS, ShardBegin, ShardReduce, ShardSum,
        TensorOptions, ZeroGrad,
    };
    use crate::graph::{DType, Input, Role, Shape, VarId, verify};
    use crate::passes::grad::backward;
    use crate::shards::Shards;

    /// A perceptron of three layers with plain gradient descent, its step counter in the last variable.
    fn perceptron(clip_norm: Option<f32>) -> Graph {
        let mut g = Graph::new();
        let variable = |g: &mut Graph, dtype, shape: &[usize]| {
            let id = VarId(g.values.len() as u32);
            g.add_value(dtype, Shape::from(shape), Role::State(id))
        };
        let x = variable(&mut g, DType::F32, &[4, 16]);
        let target = variable(&mut g, DType::F32, &[4, 3]);
        let single: Vec<ValueId> = [4, 1, 1].map(|n| variable(&mut g, DType::F32, &[n])).to_vec();
        let counter = variable(&mut g, DType::I64, &[1]);
        let weights = [[256, 16], [512, 256], [3, 512]].map(|shape| variable(&mut g, DType::F32, &shape));
        let mut y = x;
        for w in weights {
            y = g.add1(Linear::default(), &[y, w]).unwrap();
        }
        let loss = g.add1(LossOp::from(ElementwiseLoss::Mse), &[y, target]).unwrap();
        let grads = backward(&mut g, &[(loss, single[1])], &weights).unwrap();
        let mut operands = vec![single[0], loss];
        operands.extend(clip_norm.map(|_| single[2]));
        operands.push(counter);
        operands.extend(weights.iter().zip(&grads).flat_map(|(w, grad)| [*w, grad.unwrap()]));
        let algorithm = Algorithm::Sgd { momentum: 0.0, dampening: 0.0, nesterov: false };
        let tensors = (0..3).map(|i| TensorOptions { lr_scale: 1.0, weight_decay: i as f32 }).collect();
        g.add(
            OptimizerStep {
                algorithm,
                clip_norm,
                clip_value: None,
                scaled: false,
                counts: true,
                tensors,
                parts: Vec::new(),
            },
            &operands,
        )
        .unwrap();
        g
    }

    /// The nodes, and for updates whether they count and the decays that identify their tensors.
    fn described(g: &Graph) -> Vec<String> {
        let one = |node: &Node| match &node.op {
            Op::OptimizerStep(op) => {
                let decays: Vec<f32> = op.tensors.iter().map(|t| t.weight_decay).collect();
                format!("{} {decays:?}", if op.counts { "first" } else { "then" })
            }
            op => op.rules().name().to_string(),
        };
        g.nodes.iter().map(one).collect()
    }

    #[test]
    fn parameters_are_updated_behind_their_last_reader() {
        let mut g = perceptron(None);
        update_early(&mut g, true);
        verify(&g).unwrap();
        let described = described(&g);
        let (forward, rest) = described.split_at(5);
        assert_eq!(forward, ["linear", "linear", "linear", "mse", "mse_grad"]);
        // The last layer's weight is small, and waits for the second's.
        let expected = [
            "linear_grad_input",
            "linear_grad_weight",
            "linear_grad_input",
            "linear_grad_weight",
            "first [1.0, 2.0]",
            "linear_grad_weight",
            "then [0.0]",
        ];
        assert_eq!(rest, expected);
    }

    /// Sums over shards follow their gradients, and sums over ranks begin when the last of a bucket is there.
    #[test]
    fn sums_over_ranks_begin_before_all_gradients_are_made() {
        let mut g = perceptron(None);
        let update = g.nodes.pop().unwrap().inputs;
        let place = g.input(Input::Shard, DType::I32, Shape::from([SHARD_INPUTS]));
        let sums: Vec<[ValueId; 2]> = (3..9)
            .step_by(2)
            .map(|i| {
                let (shape, id) = (g.shape(update[i + 1]).clone(), VarId(g.values.len() as u32));
                [update[i + 1], g.add_value(DType::F32, shape, Role::State(id))]
            })
            .collect();
        for [gradient, sum] in &sums {
            g.add(ShardSum { slots: 1 }, &[place, *gradient, *sum]).unwrap();
        }
        let shards = Shards { count: 2, ranks: 2 };
        for (bucket, members) in [&sums[1..], &sums[..1]].into_iter().enumerate() {
            let operands: Vec<ValueId> = [place].into_iter().chain(members.iter().map(|[_, sum]| *sum)).collect();
            let reduce = ShardReduce { slots: 1, shards, to: Receivers::Parts, bucket: Some(bucket) };
            g.add(ShardBegin { reduce }, &operands).unwrap();
        }
        update_early(&mut g, true);
        verify(&g).unwrap();
        let expected = [
            "linear_grad_input",
            "linear_grad_weight",
            "linear_grad_input",
            "linear_grad_weight",
            "shard_sum",
            "shard_sum",
            "shard_begin",
            "linear_grad_weight",
            "shard_sum",
            "shard_begin",
        ];
        assert_eq!(described(&g)[5..], expected);
    }

    #[test]
    fn an_update_with_a_norm_stays_whole() {
        let mut g = perceptron(Some(1.0));
        let before = g.clone();
        update_early(&mut g, true);
        assert_eq!(g, before);
        let mut g = perceptron(None);
        let before = g.clone();
        update_early(&mut g, false);
        assert_eq!(g, before);
    }

    /// Moving averages are of the parameters after their update, and those of what is not updated come when they will.
    #[test]
    fn averages_come_after_what_they_are_of() {
        let mut g = perceptron(None);
        let update = g.nodes.last().unwrap().inputs.clone();
        let (schedule, loss, counter) = (update[0], update[1], update[2]);
        let mut operands = vec![schedule, loss, counter];
        let mut average = |g: &mut Graph, of: ValueId| {
            let (dtype, shape) = (g.value(of).dtype, g.shape(of).clone());
            let id = VarId(g.values.len() as u32);
            operands.extend([g.add_value(dtype, shape, Role::State(id)), of]);
        };
        // Nothing updates this one, so that its average could come first of all.
        let other = g.add_value(DType::F32, Shape::from([2]), Role::State(VarId(1000)));
        average(&mut g, other);
        (3..9).step_by(2).for_each(|i| average(&mut g, update[i]));
        let algorithm = Algorithm::Sgd { momentum: 0.0, dampening: 0.0, nesterov: false };
        let tensors = (10..14).map(|i| TensorOptions { lr_scale: 1.0, weight_decay: i as f32 }).collect();
        g.add(
            OptimizerStep {
                algorithm,
                clip_norm: None,
                clip_value: None,
                scaled: false,
                counts: false,
                tensors,
                parts: Vec::new(),
            },
            &operands,
        )
        .unwrap();
        update_early(&mut g, true);
        verify(&g).unwrap();
        let order: Vec<f32> = g
            .nodes
            .iter()
            .flat_map(|node| match &node.op {
                Op::OptimizerStep(op) => op.tensors.iter().map(|t| t.weight_decay).collect(),
                _ => Vec::new(),
            })
            .collect();
        let place = |decay: f32| order.iter().position(|d| *d == decay).unwrap();
        for i in 0..3 {
            assert!(place(i as f32) < place(11.0 + i as f32), "{order:?}");
        }
        assert_eq!(order.len(), 7);
    }

    /// A variable that is cleared after the update is not cleared before it.
    #[test]
    fn what_comes_after_an_update_stays_after_it() {
        let mut g = perceptron(None);
        let last = g.nodes.last().unwrap().inputs.clone();
        g.add(ZeroGrad {}, &last[3..4]).unwrap();
        update_early(&mut g, true);
        assert_eq!(described(&g)[9..], ["first [1.0, 2.0]", "linear_grad_weight", "then [0.0]", "zero_grad"]);
    }
}
