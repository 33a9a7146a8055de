//! The chaining pass: element-wise operations one behind the other become one operation, which makes a single trip through
//! memory.

use super::Kernels;
use super::links::Links;
use crate::graph::op::{Chain, Link, LinkOp, MAX_LINKS, Source};
use crate::graph::{Graph, Node, Op, Role, ValueId};

/// Joins activations, their gradients, sums, products and dropout with the operations of that kind that make their
/// operands, in the place of the last of them, where nobody needs a result before. Operations keep their order; stretched
/// operands may take part. Run it after activations are joined with what makes their operands, which is better still.
pub fn chain(graph: &mut Graph, kernels: Kernels) {
    let links = Links::of(graph);
    // Of each node its group: the number of the group's first node.
    let mut group: Vec<Option<usize>> = vec![None; graph.nodes.len()];
    let mut groups: Vec<Vec<usize>> = vec![Vec::new(); graph.nodes.len()];
    for at in 0..graph.nodes.len() {
        let node = &graph.nodes[at];
        // A product of two stretched operands belongs to no chain.
        if links_of(&node.op).is_none() || !node.inputs.iter().any(|input| alike(graph, *input, node.outputs[0])) {
            continue;
        }
        let mut members = vec![at];
        for input in graph.nodes[at].inputs.clone() {
            let Some(before) = links.maker(input).and_then(|maker| group[maker]) else { continue };
            if members.contains(&before) || !alike(graph, input, graph.nodes[at].outputs[0]) {
                continue;
            }
            let mut all = [&groups[before][..], &members].concat();
            all.sort_unstable();
            if can_join(graph, &links, &all, &groups[before]) && kernels(&joined(graph, &links, &all).op) {
                groups[before].clear();
                members = all;
            }
        }
        for member in &members {
            group[*member] = Some(members[0]);
        }
        let first = members[0];
        groups[first] = members;
    }
    let mut gone = vec![false; graph.nodes.len()];
    for members in groups.into_iter().filter(|members| members.len() > 1) {
        let (last, rest) = members.split_last().expect("there are at least two");
        graph.nodes[*last] = joined(graph, &links, &members);
        rest.iter().for_each(|member| gone[*member] = true);
    }
    let mut gone = gone.into_iter();
    graph.nodes.retain(|_| gone.next() != Some(true));
}

/// What an element-wise operation is as links; `None` for any other.
fn links_of(op: &Op) -> Option<Vec<LinkOp>> {
    Some(match op {
        Op::Activation(op) => vec![LinkOp::Activation(op.act)],
        Op::ActivationGrad(op) => vec![LinkOp::ActivationGrad(op.act)],
        Op::Binary(op) => std::iter::once(LinkOp::Binary(op.kind)).chain(op.act.map(LinkOp::Activation)).collect(),
        Op::Dropout(op) => vec![LinkOp::Dropout(op.clone())],
        _ => return None,
    })
}

/// True if two values have one type and shape.
fn alike(graph: &Graph, a: ValueId, b: ValueId) -> bool {
    graph.value(a).dtype == graph.value(b).dtype && graph.shape(a) == graph.shape(b)
}

/// True if the nodes `all` can be one in the place of the last of them; those of `before` are one already.
fn can_join(graph: &Graph, links: &Links, all: &[usize], before: &[usize]) -> bool {
    let (first, last) = (all[0], all[all.len() - 1]);
    let count: usize = all.iter().filter_map(|at| links_of(&graph.nodes[*at].op)).map(|links| links.len()).sum();
    let early = |at: &usize| {
        let readers = links.readers(graph.nodes[*at].outputs[0]);
        readers.iter().any(|reader| *reader < last && !all.contains(reader))
    };
    if count > MAX_LINKS || all.iter().any(early) {
        return false;
    }
    // Whatever waits for the last node keeps its operands waiting. Past other work, it must not be more than it would leave.
    let between = (first..last).any(|at| !all.contains(&at) && !graph.nodes[at].op.rules().is_alias());
    let mut operands: Vec<ValueId> = before.iter().flat_map(|at| &graph.nodes[*at].inputs).copied().collect();
    operands.sort_unstable();
    operands.dedup();
    let result = graph.nodes[last].outputs[0];
    let own = |v: &ValueId| links.maker(*v).is_some_and(|maker| before.contains(&maker));
    let waiting = operands.iter().filter(|v| {
        graph.value(**v).role == Role::Temporary
            && alike(graph, **v, result)
            && !own(v)
            && links.readers(**v).iter().all(|reader| *reader < last)
    });
    !between || waiting.count() <= 1
}

/// The nodes `members` as one.
fn joined(graph: &Graph, links: &Links, members: &[usize]) -> Node {
    let (mut operands, mut steps): (Vec<ValueId>, Vec<Link>) = (Vec::new(), Vec::new());
    let (mut results, mut outputs) = (Vec::new(), Vec::new());
    // The link that makes each result of a member.
    let mut made: Vec<(ValueId, usize)> = Vec::new();
    for at in members {
        let node = &graph.nodes[*at];
        let mut from: Vec<Source> = Vec::new();
        for input in &node.inputs {
            let link = made.iter().find(|(value, _)| value == input).map(|(_, link)| Source::Link(*link));
            from.push(link.unwrap_or_else(|| {
                let known = operands.iter().position(|v| v == input);
                Source::Operand(known.unwrap_or_else(|| {
                    operands.push(*input);
                    operands.len() - 1
                }))
            }));
        }
        for op in links_of(&node.op).expect("members are element-wise") {
            steps.push(Link { op, from: std::mem::replace(&mut from, vec![Source::Link(steps.len())]) });
        }
        let output = node.outputs[0];
        made.push((output, steps.len() - 1));
        let wanted = graph.value(output).role == Role::Output
            || links.readers(output).iter().any(|reader| !members.contains(reader));
        if wanted || at == &members[members.len() - 1] {
            results.push(steps.len() - 1);
            outputs.push(output);
        }
    }
    let mut op = Chain { links: steps, results, in_place: None };
    let last = members[members.len() - 1];
    let dies = |i: &usize| {
        let value = operands[*i];
        let after = op.last_reader(Source::Operand(*i)).is_some_and(|link| link > op.results[0]);
        !op.is_key(*i)
            && !after
            && alike(graph, value, outputs[0])
            && links.readers(value).iter().all(|reader| *reader <= last)
    };
    op.in_place = (0..operands.len()).find(dies);
    Node { op: op.into(), inputs: operands, outputs, ..graph.nodes[last].clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::op::{Activation, ActivationGrad, ActivationOp, Binary, BinaryKind, Linear};
    use crate::graph::{DType, Shape, VarId, verify};

    const TANH: ActivationOp = ActivationOp { act: Activation::Tanh };
    const ADD: Binary = Binary { kind: BinaryKind::Add, act: None };
    const MUL: Binary = Binary { kind: BinaryKind::Mul, act: None };

    fn variable(g: &mut Graph, shape: &[usize]) -> ValueId {
        let id = VarId(g.values.len() as u32);
        g.add_value(DType::F32, Shape::from(shape), Role::State(id))
    }

    fn names(g: &Graph) -> Vec<&'static str> {
        verify(g).unwrap();
        g.nodes.iter().map(|n| n.op.rules().name()).collect()
    }

    fn chained(mut g: Graph) -> Graph {
        chain(&mut g, &|_| true);
        verify(&g).unwrap();
        g
    }

    #[test]
    fn sums_of_gradients_join_the_activation_behind() {
        let mut g = Graph::new();
        let [a, b, saved] = [(); 3].map(|()| variable(&mut g, &[4, 5]));
        let sum = g.add1(ADD, &[a, b]).unwrap();
        let y = g.add1(ActivationGrad { act: Activation::Relu }, &[saved, sum]).unwrap();
        let w = variable(&mut g, &[3, 5]);
        g.add1(Linear::default(), &[y, w]).unwrap();
        let g = chained(g);
        assert_eq!(names(&g), ["chain", "linear"]);
        assert_eq!((&g.nodes[0].inputs[..], &g.nodes[0].outputs[..]), (&[a, b, saved][..], &[y][..]));
    }

    #[test]
    fn what_is_read_elsewhere_is_a_result_too() {
        let mut g = Graph::new();
        let [a, b] = [(); 2].map(|()| variable(&mut g, &[4, 5]));
        let sum = g.add1(ADD, &[a, b]).unwrap();
        let y = g.add1(TANH, &[sum]).unwrap();
        let w = variable(&mut g, &[3, 5]);
        g.add1(Linear::default(), &[sum, w]).unwrap();
        let g = chained(g);
        assert_eq!(names(&g), ["chain", "linear"]);
        assert_eq!(g.nodes[0].outputs, [sum, y]);
    }

    #[test]
    fn nothing_is_made_after_it_is_needed() {
        let mut g = Graph::new();
        let [a, b] = [(); 2].map(|()| variable(&mut g, &[4, 5]));
        let sum = g.add1(ADD, &[a, b]).unwrap();
        let w = variable(&mut g, &[5, 5]);
        let y = g.add1(Linear::default(), &[sum, w]).unwrap();
        g.add1(MUL, &[sum, y]).unwrap();
        assert_eq!(names(&chained(g)), ["add", "linear", "multiply"]);
    }

    #[test]
    fn past_other_work_only_what_keeps_no_more_waiting() {
        for (two, expected) in
            [(false, &["linear", "linear", "chain"][..]), (true, &["linear", "linear", "add", "linear", "add"])]
        {
            let mut g = Graph::new();
            let (x, w) = (variable(&mut g, &[4, 5]), variable(&mut g, &[5, 5]));
            let a = g.add1(Linear::default(), &[x, w]).unwrap();
            let early = if two {
                let b = g.add1(Linear::default(), &[x, w]).unwrap();
                g.add1(ADD, &[a, b]).unwrap()
            } else {
                g.add1(TANH, &[a]).unwrap()
            };
            let late = g.add1(Linear::default(), &[x, w]).unwrap();
            g.add1(ADD, &[early, late]).unwrap();
            assert_eq!(names(&chained(g)), expected);
        }
    }

    #[test]
    fn stretched_operands_take_part_and_stretched_results_do_not() {
        let mut g = Graph::new();
        let (x, gate) = (variable(&mut g, &[2, 3, 5]), variable(&mut g, &[2, 1, 5]));
        let gate = g.add1(TANH, &[gate]).unwrap();
        let y = g.add1(MUL, &[x, gate]).unwrap();
        g.add1(ADD, &[y, x]).unwrap();
        assert_eq!(names(&chained(g)), ["tanh", "chain"]);
        let mut g = Graph::new();
        let (row, column) = (variable(&mut g, &[1, 5]), variable(&mut g, &[4, 1]));
        let y = g.add1(MUL, &[row, column]).unwrap();
        g.add1(TANH, &[y]).unwrap();
        assert_eq!(names(&chained(g)), ["multiply", "tanh"]);
    }

    #[test]
    fn a_chain_ends_where_it_is_as_long_as_may_be() {
        let mut g = Graph::new();
        let mut x = variable(&mut g, &[4, 5]);
        for _ in 0..MAX_LINKS + 2 {
            x = g.add1(TANH, &[x]).unwrap();
        }
        assert_eq!(names(&chained(g)), ["chain", "chain"]);
    }

    #[test]
    fn a_result_may_lie_where_an_operand_dies() {
        let mut g = Graph::new();
        let (x, w) = (variable(&mut g, &[4, 5]), variable(&mut g, &[5, 5]));
        let [a, b] = [(); 2].map(|()| g.add1(Linear::default(), &[x, w]).unwrap());
        // `a` is read again behind the first result; `b` is not.
        let sum = g.add1(ADD, &[a, b]).unwrap();
        let product = g.add1(MUL, &[sum, a]).unwrap();
        g.add1(Linear::default(), &[sum, w]).unwrap();
        g.add1(Linear::default(), &[product, w]).unwrap();
        let g = chained(g);
        let Op::Chain(op) = &g.nodes[2].op else { panic!("{g}") };
        assert_eq!((op.in_place, &g.nodes[2].inputs[..]), (Some(1), &[a, b][..]));
    }
}
