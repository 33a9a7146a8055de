use super::recompute;
use crate::backend::cpu::fusions::FUSIONS;
use crate::graph::op::{Activation, ActivationOp, BatchNorm, Pattern};
use crate::graph::{DType, Graph, Role, Shape, ValueId, VarId, verify};
use crate::passes::fuse::fuse;
use crate::passes::grad::backward;

/// Batch normalisation with `act` behind it, and both gradients: the graph and the normalised value.
fn net(act: Activation, affine: bool, second_reader: bool) -> (Graph, ValueId) {
    let mut g = Graph::new();
    let shapes: [&[usize]; 5] = [&[2, 3, 4, 5], &[5], &[5], &[2, 3, 4, 5], &[2, 3, 4, 5]];
    let [x, gamma, beta, dy, other] =
        std::array::from_fn(|i| g.add_value(DType::F32, Shape::from(shapes[i]), Role::State(VarId(i as u32))));
    let operands = if affine { vec![x, gamma, beta] } else { vec![x] };
    let y = g.add(BatchNorm { eps: 1e-5, momentum: None, affine, track: false }, &operands).unwrap()[0];
    let z = g.add1(ActivationOp { act }, &[y]).unwrap();
    let mut ends = vec![(z, dy)];
    if second_reader {
        let tanh = g.add1(ActivationOp { act: Activation::Tanh }, &[y]).unwrap();
        ends.push((tanh, other));
    }
    for gradient in backward(&mut g, &ends, &operands).unwrap().into_iter().flatten() {
        g.values[gradient.index()].role = Role::Output;
    }
    (g, y)
}

fn labels(g: &Graph) -> Vec<String> {
    g.nodes.iter().map(|n| n.op.label()).collect()
}

fn at_once(pattern: &Pattern) -> bool {
    pattern.name == "norm_grad"
}

/// Runs the pass for a device with those of the CPU's patterns that `has` says.
fn run(g: &mut Graph, has: fn(&Pattern) -> bool) {
    recompute(g, &|op, operands| {
        FUSIONS.iter().filter(|p| has(p)).any(|p| Pattern::any_takes(std::slice::from_ref(p), op, operands.clone()))
    });
    verify(g).unwrap();
}

#[test]
fn the_normalised_value_is_not_kept() {
    let softplus = Activation::Softplus { beta: 1.0, threshold: 20.0 };
    for act in [Activation::Hardswish, Activation::Silu, Activation::Gelu, Activation::Mish, softplus] {
        for affine in [false, true] {
            let (mut g, y) = net(act, affine, false);
            run(&mut g, at_once);
            assert_eq!(g.nodes.iter().filter(|n| n.inputs.contains(&y)).count(), 1, "the activation alone reads it");
            for pattern in FUSIONS.iter().filter(|p| ["fuse", "norm_grad"].contains(&p.name)) {
                fuse(&mut g, pattern);
                verify(&g).unwrap();
            }
            let act = act.name();
            let all = [format!("batch_norm + {act}"), "batch_norm_apply + activation_grad + batch_norm_grad".into()];
            assert_eq!(labels(&g), all);
        }
    }
}

#[test]
fn the_result_of_what_clamps_is_not_read_for_its_gradient() {
    for act in [Activation::Relu, Activation::Relu6, Activation::Hardtanh { low: -2.0, high: 0.5 }] {
        for affine in [false, true] {
            let (mut g, y) = net(act, affine, false);
            let z = g.nodes.iter().find(|n| n.inputs == [y]).unwrap().outputs[0];
            run(&mut g, at_once);
            for value in [y, z] {
                let readers = g.nodes.iter().filter(|n| n.inputs.contains(&value)).count();
                assert_eq!(readers, usize::from(value == y), "{act:?}");
            }
            for pattern in FUSIONS.iter().filter(|p| ["fuse", "norm_grad"].contains(&p.name)) {
                fuse(&mut g, pattern);
                verify(&g).unwrap();
            }
            let act = act.name();
            let all = [format!("batch_norm + {act}"), "batch_norm_apply + activation_grad + batch_norm_grad".into()];
            assert_eq!(labels(&g), all);
        }
    }
}

#[test]
fn it_is_kept_where_that_gains_nothing() {
    // The gradient of tanh is a function of its result, and not the same function of its operand.
    for (act, second_reader) in [(Activation::Tanh, false), (Activation::Relu, true), (Activation::Hardswish, true)] {
        let (mut g, _) = net(act, true, second_reader);
        let before = labels(&g);
        run(&mut g, at_once);
        assert_eq!(labels(&g), before, "{act:?}");
    }
    // The device would take one operation more.
    let (mut g, _) = net(Activation::Hardswish, true, false);
    let before = labels(&g);
    run(&mut g, |_| false);
    assert_eq!(labels(&g), before);
}
