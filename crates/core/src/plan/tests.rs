//! The planner on whole graphs.

use super::*;
use crate::graph::op::{Activation, ActivationOp, Binary, BinaryKind, Linear, Reshape};
use crate::graph::{VarKind, Variable};

fn chain() -> (Arc<Variables>, Graph, ValueId) {
    let mut vars = Variables::new();
    let w = Variable { trainable: true, ..Variable::zeros("w", DType::F32, [8, 8], VarKind::Parameter) };
    let w = vars.get_or_add(w);
    let mut g = Graph::new();
    let x = g.input(Input::Field(0), DType::F32, Shape::from([4, 2, 4]));
    let w = g.variable(&vars, w);
    let flat = g.add1(Reshape { shape: Shape::from([4, 8]) }, &[x]).unwrap();
    let a = g.add1(Linear { bias: false }, &[flat, w]).unwrap();
    let b = g.add1(ActivationOp { act: Activation::Relu }, &[a]).unwrap();
    let c = g.add1(Linear { bias: false }, &[b, w]).unwrap();
    let d = g.add1(Binary { kind: BinaryKind::Add }, &[c, b]).unwrap();
    g.values[d.index()].role = Role::Output;
    (Arc::new(vars), g, flat)
}

#[test]
fn aliases_and_in_place_results_share_memory() {
    let (vars, g, flat) = chain();
    let source = Source { name: "p".into(), graph: g, loss: None, prediction: None };
    let plan = Plan::new(vars, vec![source], |_, _| 0);
    let p = &plan.programs[0];
    // The reshaped input is the batch slot itself.
    assert_eq!(p.places[flat.index()], Place { region: Region::Slot, offset: 0 });
    // ReLU over the product, the sum over the second product: two buffers of 4 × 8 floats in all.
    assert_eq!(p.transient_bytes, 2 * 4 * 8 * 4);
    assert_eq!(plan.memory(3).total, 256 + 256 + 3 * 128);
    assert_eq!(plan.memory(3).unused, 0);
}

/// Persistent variables, and operations in place, still are one buffer.
#[test]
fn apart_no_two_buffers_share_a_byte_in_whatever_program() {
    let (vars, g, _) = chain();
    let source = |name: &str| Source { name: name.into(), graph: g.clone(), loss: None, prediction: None };
    let plan = Plan::laid_out(vars, vec![source("p"), source("q")], |_, _| 100, true);
    let mut taken: Vec<(usize, usize)> = Vec::new();
    for p in &plan.programs {
        let mut own: Vec<(usize, usize)> = p.workspace.clone();
        let values = p.graph.nodes.iter().flat_map(|n| &n.outputs);
        own.extend(values.filter(|v| p.places[v.index()].region == Region::Transient).map(|v| {
            let offset = p.places[v.index()].offset;
            (offset, p.graph.value(*v).bytes())
        }));
        own.sort_unstable();
        own.dedup();
        taken.extend(own);
    }
    taken.sort_unstable();
    assert!(taken.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{taken:?}");
    let (offset, bytes) = *taken.last().unwrap();
    assert!(offset + bytes <= plan.transient_bytes && plan.transient_bytes == plan.programs[1].transient_bytes);
    // The peak is that of a program; what else there is counts as unused.
    let m = plan.memory(1);
    assert_eq!(m.activations + m.gradients + m.workspace + m.unused, plan.transient_bytes);
}

#[test]
fn workspace_is_planned_beside_its_nodes_values() {
    let (vars, g, _) = chain();
    let source = Source { name: "p".into(), graph: g, loss: None, prediction: None };
    let plan = Plan::new(vars, vec![source], |_, n| if matches!(n.op, crate::graph::Op::Linear(_)) { 100 } else { 0 });
    let p = &plan.programs[0];
    for (node, (offset, bytes)) in p.graph.nodes.iter().zip(&p.workspace) {
        for v in node.inputs.iter().chain(&node.outputs).filter(|_| *bytes > 0) {
            let place = p.places[v.index()];
            let len = p.graph.value(*v).bytes();
            let apart = offset + bytes <= place.offset || place.offset + len <= *offset;
            assert!(place.region != Region::Transient || apart);
        }
    }
    assert_eq!(plan.memory(1).workspace, 128);
}

/// A product that would keep 1000 bytes made of its weight: it does unless the program trains or writes the weight.
#[test]
fn weights_are_kept_in_programs_that_leave_them_alone() {
    let needs = |_: &Graph, n: &Node| match n.op {
        crate::graph::Op::Linear(_) => {
            NodeMemory { workspace: 500, lasts: false, kept: Some(Kept { operand: 1, bytes: 1000, workspace: 100 }) }
        }
        _ => 0.into(),
    };
    let of = |change: &dyn Fn(&mut Graph)| {
        let (vars, mut g, _) = chain();
        change(&mut g);
        let source = Source { name: "p".into(), graph: g, loss: None, prediction: None };
        Plan::new(vars, vec![source], needs).programs.remove(0)
    };
    let p = of(&|_| ());
    let kept: Vec<_> = p.kept.iter().filter(|(_, bytes)| *bytes > 0).collect();
    let products = p.graph.nodes.iter().filter(|n| matches!(n.op, crate::graph::Op::Linear(_))).count();
    assert!(products >= 2 && kept.len() == products && kept.iter().all(|(_, bytes)| *bytes == 1000));
    assert!(p.workspace.iter().all(|(_, bytes)| [0, 100].contains(bytes)));
    // No other memory overlaps them during the whole program.
    for (offset, bytes) in &kept {
        let free = |(o, b): (usize, usize)| o + b <= *offset || offset + bytes <= o;
        assert!(p.workspace.iter().all(|w| free(*w)));
        assert!(kept.iter().all(|k| k.0 == *offset || free(**k)));
        let transient = p.places.iter().enumerate().filter(|(_, place)| place.region == Region::Transient);
        let made = transient.filter(|(v, _)| p.graph.nodes.iter().any(|n| n.outputs.contains(&ValueId(*v as u32))));
        made.for_each(|(v, place)| assert!(free((place.offset, p.graph.values[v].bytes())), "value {v}"));
    }

    let nothing = |p: Program| {
        assert!(p.kept.iter().all(|(_, bytes)| *bytes == 0));
        assert!(p.workspace.iter().all(|(_, bytes)| [0, 500].contains(bytes)));
    };
    nothing(of(&|g| g.nodes[0].backward = true));
    nothing(of(&|g| {
        let weights = g.nodes.iter().filter(|n| matches!(n.op, crate::graph::Op::Linear(_))).map(|n| n.inputs[1]);
        let weights: Vec<_> = weights.collect();
        for w in weights {
            let copy = g.values[w.index()].clone();
            let loss = g.input(Input::Field(7), DType::F32, Shape::from([1]));
            g.values.push(copy);
            let old = ValueId(g.values.len() as u32 - 1);
            g.add(crate::graph::op::RestoreState {}, &[loss, w, old]).unwrap();
        }
    }));
}

/// Workspace that lasts: all nodes that have it share it, and nothing after the first of them takes it.
#[test]
fn workspace_that_lasts_is_not_shared_until_the_end() {
    let (vars, mut g, _) = chain();
    // Large values after it, which would fit in what is free by then.
    let mut last = *g.nodes[g.nodes.len() - 1].outputs.first().unwrap();
    g.values[last.index()].role = Role::Temporary;
    for _ in 0..3 {
        let other = g.add1(ActivationOp { act: Activation::Relu }, &[last]).unwrap();
        last = g.add1(Binary { kind: BinaryKind::Add }, &[other, last]).unwrap();
    }
    g.values[last.index()].role = Role::Output;
    let mut sizes = [300, 200].into_iter().cycle();
    let sizes: Vec<usize> = g
        .nodes
        .iter()
        .map(|n| if matches!(n.op, crate::graph::Op::Linear(_)) { sizes.next().unwrap() } else { 0 })
        .collect();
    let at = |g: &Graph, node: &Node| g.nodes.iter().position(|n| std::ptr::eq(n, node)).unwrap();
    let source = Source { name: "p".into(), graph: g, loss: None, prediction: None };
    let plan = Plan::new(vars, vec![source], |g, n| {
        let bytes = sizes[at(g, n)];
        NodeMemory { lasts: bytes > 0, ..bytes.into() }
    });
    let p = &plan.programs[0];
    let lasting: Vec<usize> = (0..sizes.len()).filter(|at| sizes[*at] > 0).collect();
    assert_eq!(lasting.len(), 2);
    let (offset, bytes) = p.workspace[lasting[0]];
    assert_eq!((bytes, p.workspace[lasting[1]]), (300, (offset, 300)));
    for node in &p.graph.nodes[lasting[0]..] {
        for v in node.inputs.iter().chain(&node.outputs) {
            let (place, len) = (p.places[v.index()], p.graph.value(*v).bytes());
            let apart = offset + bytes <= place.offset || place.offset + len <= offset;
            assert!(place.region != Region::Transient || apart);
        }
    }
    assert_eq!(plan.memory(1).workspace, align(300));
}
