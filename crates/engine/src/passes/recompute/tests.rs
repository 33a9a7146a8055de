use super::recompute;
use crate::backend::cpu::fusions::FUSIONS;
use crate::graph::op::{Activation, ActivationOp, BatchNorm, Conv2d, Pattern};
use crate::graph::{DType, Graph, Role, Shape, ValueId, VarId, verify};
use crate::passes::fuse::fuse;
use crate::passes::grad::backward;

/// Batch normalisation with `act` after it, and both gradients: the graph and the normalised value.
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

/// Batch normalisation, an activation if there is one, and a convolution: the graph, and the value that the convolution reads.
fn net_with_conv(act: Option<Activation>, conv: &Conv2d, affine: bool) -> (Graph, ValueId) {
    let mut g = Graph::new();
    let shapes: [&[usize]; 5] =
        [&[2, 6, 5, 9], &[9], &[9], &[9, 1, 1, 9 / conv.groups], &[2, 6 / conv.stride[0], 5, 9]];
    let [x, gamma, beta, w, dy] =
        std::array::from_fn(|i| g.add_value(DType::F32, Shape::from(shapes[i]), Role::State(VarId(i as u32))));
    let operands = if affine { vec![x, gamma, beta] } else { vec![x] };
    let mut value = g.add(BatchNorm { eps: 1e-5, momentum: None, affine, track: false }, &operands).unwrap()[0];
    if let Some(act) = act {
        value = g.add1(ActivationOp { act }, &[value]).unwrap();
    }
    let y = g.add1(conv.clone(), &[value, w]).unwrap();
    for gradient in backward(&mut g, &[(y, dy)], &[&operands[..], &[w]].concat()).unwrap().into_iter().flatten() {
        g.values[gradient.index()].role = Role::Output;
    }
    (g, value)
}

fn plain(groups: usize) -> Conv2d {
    Conv2d { stride: [1, 1], padding: [0; 4], dilation: [1, 1], groups, bias: false }
}

fn by_readers(pattern: &Pattern) -> bool {
    at_once(pattern) || pattern.name == "norm_read"
}

#[test]
fn what_convolutions_alone_read_is_made_by_them() {
    for act in [None, Some(Activation::Relu), Some(Activation::Silu)] {
        for (groups, affine) in [(1, true), (9, false)] {
            let (mut g, value) = net_with_conv(act, &plain(groups), affine);
            run(&mut g, by_readers);
            for pattern in &FUSIONS {
                fuse(&mut g, pattern);
                verify(&g).unwrap();
            }
            let act = act.map_or(String::new(), |act| format!(" + {}", act.name()));
            let names = labels(&g);
            assert_eq!(names[..2], ["batch_norm_statistics".to_owned(), format!("batch_norm_apply{act} + conv2d")]);
            assert!(names.contains(&format!("batch_norm_apply{act} + conv2d_grad_weight")), "{names:?}");
            assert!(!g.nodes.iter().any(|n| n.inputs.contains(&value) || n.outputs.contains(&value)));
        }
    }
}

#[test]
fn what_is_read_elsewhere_is_made_once() {
    // By another operation, as a result, and by a convolution that has no kernel for it.
    let strided = Conv2d { stride: [2, 1], ..plain(1) };
    for (case, conv) in [plain(1), plain(1), strided].iter().enumerate() {
        let (mut g, value) = net_with_conv(Some(Activation::Silu), conv, true);
        match case {
            0 => drop(g.add1(ActivationOp { act: Activation::Tanh }, &[value]).unwrap()),
            1 => g.values[value.index()].role = Role::Output,
            _ => assert_eq!(g.shape(g.nodes[2].outputs[0]).dims(), [2, 3, 5, 9]),
        }
        run(&mut g, by_readers);
        assert_eq!(labels(&g)[..3], ["batch_norm", "silu", "conv2d"], "case {case}");
    }
    // The device makes the normalised value by itself.
    let (mut g, _) = net_with_conv(None, &plain(1), true);
    run(&mut g, at_once);
    assert_eq!(labels(&g)[..2], ["batch_norm", "conv2d"]);
}

/// Two convolutions, each with batch normalisation and ReLU after it; the second is 1 × 1.
fn two_convs(affine: bool) -> Graph {
    let mut g = Graph::new();
    let shapes: [&[usize]; 7] = [&[2, 7, 5, 3], &[9, 3, 3, 3], &[9, 1, 1, 9], &[9], &[9], &[9], &[9]];
    let [x, first, second, gamma, beta, mean, variance] =
        std::array::from_fn(|i| g.add_value(DType::F32, Shape::from(shapes[i]), Role::State(VarId(i as u32))));
    let count = g.add_value(DType::I64, Shape::from([0; 0]), Role::State(VarId(7)));
    let mut value = x;
    for (at, w) in [first, second].into_iter().enumerate() {
        value = g.add1(plain(1), &[value, w]).unwrap();
        let parameters = if affine { vec![gamma, beta] } else { Vec::new() };
        let running = if at == 1 { vec![mean, variance, count] } else { Vec::new() };
        let op = BatchNorm { eps: 1e-5, momentum: Some(0.1), affine, track: at == 1 };
        value = g.add(op, &[vec![value], parameters, running].concat()).unwrap()[0];
        value = g.add1(ActivationOp { act: Activation::Relu }, &[value]).unwrap();
    }
    g.values[value.index()].role = Role::Output;
    g
}

#[test]
fn statistics_are_made_with_what_they_are_of() {
    for affine in [false, true] {
        let mut g = two_convs(affine);
        run(&mut g, |pattern| by_readers(pattern) || pattern.name == "norm_statistics");
        for pattern in &FUSIONS {
            fuse(&mut g, pattern);
            verify(&g).unwrap();
        }
        let all = [
            "conv2d + batch_norm_statistics",
            "batch_norm_apply + relu + conv2d + batch_norm_statistics",
            "batch_norm_apply + relu",
        ];
        assert_eq!(labels(&g), all);
        // The device makes statistics by themselves.
        let mut g = two_convs(affine);
        run(&mut g, at_once);
        assert_eq!(labels(&g), ["conv2d", "batch_norm", "relu", "conv2d", "batch_norm", "relu"]);
    }
    // What the convolution makes is no operand of the normalisation.
    let (mut g, _) = net_with_conv(None, &plain(1), true);
    run(&mut g, |pattern| pattern.name == "norm_statistics");
    assert_eq!(labels(&g)[..2], ["batch_norm", "conv2d"]);
}
