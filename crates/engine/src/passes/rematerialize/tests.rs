use super::again::again;
use super::segments::{automatic, of_layers};
use super::{Recompute, rematerialize};
use crate::graph::op::{Activation, ActivationOp, BatchNorm, Binary, BinaryKind, Dropout, LayerNorm, Linear, Reshape};
use crate::graph::{DType, Graph, Input, Role, Shape, ValueId, VarId, verify};
use crate::passes::grad::backward;
use std::collections::HashMap;

/// A net of blocks and its gradients. Each block is a linear layer, an activation and a sum with what it was given.
struct Net {
    graph: Graph,
    variables: u32,
}

impl Net {
    fn variable(&mut self, shape: &[usize], role: fn(VarId) -> Role) -> ValueId {
        self.variables += 1;
        self.graph.add_value(DType::F32, Shape::from(shape), role(VarId(self.variables)))
    }

    fn blocks(count: usize, width: usize, rows: usize) -> Graph {
        let mut net = Net { graph: Graph::new(), variables: 0 };
        let mut x = net.variable(&[rows, width], Role::State);
        let mut weights = Vec::new();
        for block in 0..count {
            let w = net.variable(&[width, width], Role::Parameter);
            weights.push(w);
            net.graph.set_origin(&format!("blocks.{block}.linear"));
            let y = net.graph.add1(Linear::default(), &[x, w]).unwrap();
            net.graph.set_origin(&format!("blocks.{block}.act"));
            let y = net.graph.add1(ActivationOp { act: Activation::Gelu }, &[y]).unwrap();
            net.graph.set_origin(&format!("blocks.{block}"));
            x = net.graph.add1(Binary { kind: BinaryKind::Add }, &[y, x]).unwrap();
        }
        net.finish(x, &weights)
    }

    fn finish(mut self, y: ValueId, wrt: &[ValueId]) -> Graph {
        let shape = self.graph.shape(y).dims().to_vec();
        let dy = self.variable(&shape, Role::State);
        for gradient in backward(&mut self.graph, &[(y, dy)], wrt).unwrap().into_iter().flatten() {
            self.graph.values[gradient.index()].role = Role::Output;
        }
        verify(&self.graph).unwrap();
        self.graph
    }
}

fn labels(g: &Graph, part: impl Fn(&crate::graph::Node) -> bool) -> Vec<String> {
    g.nodes.iter().filter(|n| part(n)).map(|n| format!("{} {}", n.op.label(), g.origin(n))).collect()
}

/// The operations that are there twice: as many times as they were added.
fn repeated(before: &Graph, after: &Graph) -> Vec<String> {
    let mut rest: HashMap<String, usize> = HashMap::new();
    labels(before, |_| true).into_iter().for_each(|label| *rest.entry(label).or_default() += 1);
    let mut added = labels(after, |_| true);
    added.retain(|label| match rest.get_mut(label).filter(|n| **n > 0) {
        Some(n) => {
            *n -= 1;
            false
        }
        None => true,
    });
    added
}

#[test]
fn a_layer_is_computed_again_before_its_backward_pass() {
    let before = Net::blocks(3, 4, 2);
    let mut after = before.clone();
    rematerialize(&mut after, &Recompute::Layers(vec!["blocks.1".into()]), &|_| {});
    verify(&after).unwrap();
    // The gradient of GELU reads the result of the linear layer. The backward pass reads GELU's own result, and the sum, only as
    // the next block's operand, which is kept.
    assert_eq!(repeated(&before, &after), ["linear blocks.1.linear"]);
    let at = after.nodes.iter().rposition(|n| n.op.label() == "linear").unwrap();
    assert_eq!(after.origin(&after.nodes[at + 1]), "blocks.1.act", "at the last moment");
    // Nothing of the forward pass reads what is made again, and nothing of the backward pass what was made first.
    let first = after.nodes.iter().find(|n| after.origin(n) == "blocks.1.linear").unwrap().outputs[0];
    assert!(after.nodes.iter().filter(|n| n.backward).all(|n| !n.inputs.contains(&first)));
}

#[test]
fn of_layers_within_layers_the_outer_one_counts() {
    let graph = Net::blocks(3, 4, 2);
    let of = |paths: &[&str]| of_layers(&graph, &paths.iter().map(|p| p.to_string()).collect::<Vec<_>>());
    let outer = of(&["blocks.1.linear", "blocks.1"]);
    let segments: Vec<Option<usize>> =
        graph.nodes.iter().zip(&outer).filter(|(n, _)| !n.backward).map(|(_, s)| *s).collect();
    assert_eq!(segments, [None, None, None, Some(1), Some(1), Some(1), None, None, None]);
    // `blocks.1` is not around `blocks.10`.
    assert!(of(&["block"]).iter().all(Option::is_none));
    // The empty path is that of the whole model.
    assert!(graph.nodes.iter().zip(of(&[""])).all(|(n, s)| n.backward == s.is_none()));
}

#[test]
fn what_is_computed_again_draws_the_same_and_moves_no_statistics() {
    let mut net = Net { graph: Graph::new(), variables: 0 };
    let x = net.variable(&[6, 4], Role::State);
    let [w1, w2] = [(); 2].map(|()| net.variable(&[4, 4], Role::Parameter));
    let [gamma, beta] = [(); 2].map(|()| net.variable(&[4], Role::Parameter));
    let [mean, var] = [(); 2].map(|()| net.variable(&[4], Role::State));
    let count = net.graph.add_value(DType::I64, Shape::from([]), Role::State(VarId(99)));
    let random = net.graph.input(Input::Random, DType::U32, Shape::from([4]));
    net.graph.set_origin("a");
    let y = net.graph.add1(Linear::default(), &[x, w1]).unwrap();
    let norm = BatchNorm { eps: 1e-5, momentum: Some(0.1), affine: true, track: true };
    let y = net.graph.add(norm, &[y, gamma, beta, mean, var, count]).unwrap()[0];
    let y = net.graph.add1(ActivationOp { act: Activation::Silu }, &[y]).unwrap();
    let y = net.graph.add1(Dropout { p: 0.5, stream: 7 }, &[y, random]).unwrap();
    let y = net.graph.add1(Reshape { shape: Shape::from([6, 4]) }, &[y]).unwrap();
    let y = net.graph.add1(Linear::default(), &[y, w2]).unwrap();
    let before = net.finish(y, &[w1, w2, gamma, beta]);
    let mut after = before.clone();
    rematerialize(&mut after, &Recompute::Layers(vec!["a".into()]), &|_| {});
    verify(&after).unwrap();
    // Whose gradient is a reshape, too: the order of the two is of no meaning.
    let mut again = repeated(&before, &after);
    again.sort();
    assert_eq!(again, ["batch_norm_apply a", "dropout a", "linear a", "reshape a", "silu a"]);
    let dropouts: Vec<_> = after.nodes.iter().filter(|n| matches!(n.op, crate::graph::Op::Dropout(_))).collect();
    assert!(dropouts[0].op == dropouts[1].op && dropouts[0].inputs[1] == dropouts[1].inputs[1], "one key, one mask");
    let updates = |g: &Graph| g.nodes.iter().filter(|n| !n.op.rules().mutates(n.inputs.len()).is_empty()).count();
    assert_eq!(updates(&before), updates(&after));
}

#[test]
fn what_somebody_else_reads_is_kept() {
    // The normalised value goes over the segment's end by a reshape.
    let mut net = Net { graph: Graph::new(), variables: 0 };
    let x = net.variable(&[6, 4], Role::State);
    let [w1, w2] = [(); 2].map(|()| net.variable(&[4, 4], Role::Parameter));
    net.graph.set_origin("a");
    let y = net.graph.add1(Linear::default(), &[x, w1]).unwrap();
    let norm = LayerNorm { dims: 1, eps: 1e-5, weight: false, bias: false, centered: true };
    let y = net.graph.add(norm, &[y]).unwrap()[0];
    let alias = net.graph.add1(Reshape { shape: Shape::from([6, 4]) }, &[y]).unwrap();
    net.graph.set_origin("b");
    let y = net.graph.add1(Linear::default(), &[alias, w2]).unwrap();
    let before = net.finish(y, &[w1, w2]);
    let mut after = before.clone();
    rematerialize(&mut after, &Recompute::Layers(vec!["a".into()]), &|_| {});
    // What the normalisation was given is made again; its result is read by `b`, and its statistics are small.
    assert_eq!(repeated(&before, &after), ["linear a"]);
}

/// The most bytes of temporaries alive at one time, counted node by node.
fn alive(g: &Graph) -> usize {
    let roots = g.roots();
    let at = |t: usize| {
        let lives = |(v, value): (usize, &crate::graph::Value)| {
            let id = ValueId(v as u32);
            let touches: Vec<usize> = (0..g.nodes.len())
                .filter(|n| {
                    let node = &g.nodes[*n];
                    node.inputs.iter().chain(&node.outputs).any(|x| roots[x.index()] == id)
                })
                .collect();
            let own = roots[v] == id && matches!(value.role, Role::Temporary | Role::Output);
            (own && touches.first().is_some_and(|f| *f <= t) && touches.last().is_some_and(|l| *l >= t))
                .then(|| value.bytes())
        };
        g.values.iter().enumerate().filter_map(lives).sum::<usize>()
    };
    (0..g.nodes.len()).map(at).max().unwrap_or(0)
}

#[test]
fn by_itself_it_takes_much_less_memory_and_no_more_work_than_a_forward_pass() {
    let before = Net::blocks(24, 4, 64);
    let mut after = before.clone();
    rematerialize(&mut after, &Recompute::Automatic, &|_| {});
    verify(&after).unwrap();
    let (kept, least) = (alive(&before), alive(&after));
    assert!(2 * least < kept, "{least} of {kept}");
    let forward = before.nodes.iter().filter(|n| !n.backward).count();
    assert!(after.nodes.len() - before.nodes.len() < forward);
    // No layer left out of it by hand is better.
    for block in 0..24 {
        let mut other = before.clone();
        rematerialize(&mut other, &Recompute::Layers(vec![format!("blocks.{block}")]), &|_| {});
        assert!(alive(&other) >= least);
    }
}

#[test]
fn where_nothing_is_gained_nothing_is_done() {
    let mut graph = Net::blocks(1, 4, 2);
    let before = graph.clone();
    assert!(automatic(&graph, &|_| {}).is_none());
    rematerialize(&mut graph, &Recompute::Automatic, &|_| {});
    rematerialize(&mut graph, &Recompute::Nothing, &|_| {});
    assert_eq!(graph, before);
    assert_eq!(again(&before, &vec![None; before.nodes.len()]), before);
}
