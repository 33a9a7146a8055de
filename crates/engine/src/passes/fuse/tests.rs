use super::fuse;
use crate::backend::cpu::fusions::{FUSIONS, MAX_STEPS};
use crate::graph::op::{
    Activation, ActivationGrad, ActivationOp, BatchNormInfer, Binary, BinaryKind, Conv2d, Linear, MaxPool2d, Pattern,
    Softmax,
};
use crate::graph::{DType, Graph, Op, Role, Shape, ValueId, VarId, verify};
use crate::passes::grad::backward;

const TANH: ActivationOp = ActivationOp { act: Activation::Tanh };
const RELU: ActivationOp = ActivationOp { act: Activation::Relu };
const ADD: Binary = Binary { kind: BinaryKind::Add };
const MUL: Binary = Binary { kind: BinaryKind::Mul };
const LINEAR: Linear = Linear { bias: false };

fn pattern(name: &str) -> &'static Pattern {
    FUSIONS.iter().find(|pattern| pattern.name == name).unwrap()
}

fn variable(g: &mut Graph, shape: &[usize]) -> ValueId {
    let id = VarId(g.values.len() as u32);
    g.add_value(DType::F32, Shape::from(shape), Role::State(id))
}

/// The operations after the patterns of these names, one after the other.
fn joined(g: &mut Graph, names: &[&str]) -> Vec<String> {
    for name in names {
        fuse(g, pattern(name));
        verify(g).unwrap();
    }
    g.nodes.iter().map(|n| n.op.label()).collect()
}

/// `x [2, 3]`, and a square weight.
fn start() -> (Graph, ValueId, ValueId) {
    let mut g = Graph::new();
    let (x, w) = (variable(&mut g, &[2, 3]), variable(&mut g, &[3, 3]));
    (g, x, w)
}

/// A convolution and normalisation as in evaluation: the graph, what lies between, the result.
fn normalised(bias: bool, affine: bool) -> (Graph, ValueId, ValueId) {
    let mut g = Graph::new();
    let mut operands = vec![variable(&mut g, &[2, 5, 4, 3]), variable(&mut g, &[6, 3, 3, 3])];
    operands.extend(bias.then(|| variable(&mut g, &[6])));
    let parameters: Vec<ValueId> = (0..2 + 2 * usize::from(affine)).map(|_| variable(&mut g, &[6])).collect();
    let conv = Conv2d { stride: [1, 1], padding: [1; 4], dilation: [1, 1], groups: 1, bias };
    let between = g.add1(conv, &operands).unwrap();
    let y = g.add1(BatchNormInfer { eps: 1e-3, affine }, &[&[between], &parameters[..]].concat()).unwrap();
    (g, between, y)
}

#[test]
fn a_normalised_convolution_takes_a_sum_and_an_activation() {
    for (bias, affine) in [(false, false), (true, false), (false, true), (true, true)] {
        let (mut g, _, y) = normalised(bias, affine);
        let other = variable(&mut g, &[2, 5, 4, 6]);
        let sum = g.add1(ADD, &[other, y]).unwrap();
        g.add1(RELU, &[sum]).unwrap();
        let names = joined(&mut g, &["fold", "residual", "fuse"]);
        assert_eq!(names, ["conv2d + batch_norm_infer + add + relu"]);
        assert_eq!(g.nodes[0].inputs.len(), 5 + usize::from(bias) + 2 * usize::from(affine));
    }
}

#[test]
fn what_is_read_elsewhere_is_not_folded() {
    let (mut g, between, _) = normalised(true, true);
    g.add1(TANH, &[between]).unwrap();
    assert_eq!(joined(&mut g, &["fold"]), ["conv2d", "batch_norm_infer", "tanh"]);
    let (mut g, between, _) = normalised(true, true);
    g.values[between.index()].role = Role::Output;
    assert_eq!(joined(&mut g, &["fold"]), ["conv2d", "batch_norm_infer"]);
}

#[test]
fn a_sum_joins_its_later_operand_on_either_side() {
    for swap in [false, true] {
        let (mut g, x, w) = start();
        let first = g.add1(LINEAR, &[x, w]).unwrap();
        let second = g.add1(LINEAR, &[first, w]).unwrap();
        let third = g.add1(LINEAR, &[second, w]).unwrap();
        let y = g.add1(ADD, &if swap { [third, second] } else { [second, third] }).unwrap();
        g.add1(RELU, &[y]).unwrap();
        let names = joined(&mut g, &["residual", "fuse"]);
        assert_eq!(names, ["linear", "linear", "linear + add + relu"]);
        assert_eq!(g.nodes[2].inputs, [second, w]);
    }
}

#[test]
fn a_sum_of_what_is_read_elsewhere_or_stretched_stays() {
    let (mut g, x, w) = start();
    let y = g.add1(LINEAR, &[x, w]).unwrap();
    g.add1(ADD, &[y, x]).unwrap();
    g.add1(TANH, &[y]).unwrap();
    assert_eq!(joined(&mut g, &["residual"]), ["linear", "add", "tanh"]);
    let (mut g, x, w) = start();
    let y = g.add1(LINEAR, &[x, w]).unwrap();
    g.add1(ADD, &[y, y]).unwrap();
    assert_eq!(joined(&mut g, &["residual"]), ["linear", "add"]);
    let (mut g, x, w) = start();
    let y = g.add1(LINEAR, &[x, w]).unwrap();
    let row = variable(&mut g, &[1, 3]);
    g.add1(ADD, &[y, row]).unwrap();
    assert_eq!(joined(&mut g, &["residual"]), ["linear", "add"]);
}

#[test]
fn a_product_takes_one_sum_and_one_activation() {
    let (mut g, x, w) = start();
    let y = g.add1(LINEAR, &[x, w]).unwrap();
    let y = g.add1(ADD, &[y, x]).unwrap();
    let y = g.add1(ADD, &[y, x]).unwrap();
    let y = g.add1(RELU, &[y]).unwrap();
    g.add1(TANH, &[y]).unwrap();
    assert_eq!(joined(&mut g, &["residual"]), ["linear + add", "add", "relu", "tanh"]);
    // The activation is not that of the product.
    assert_eq!(joined(&mut g, &["fuse"]), ["linear + add", "add + relu", "tanh"]);
}

#[test]
fn an_activation_of_a_result_that_is_wanted_stays() {
    let (mut g, x, w) = start();
    let h = g.add1(LINEAR, &[x, w]).unwrap();
    g.add1(RELU, &[h]).unwrap();
    let mut other = g.clone();
    g.values[h.index()].role = Role::Output;
    assert_eq!(joined(&mut g, &["fuse"]), ["linear", "relu"]);
    other.add1(Softmax {}, &[h]).unwrap();
    assert_eq!(joined(&mut other, &["fuse"]), ["linear", "relu", "softmax"]);
}

/// Two layers with an activation between, and their gradients.
fn two_layers(act: Activation) -> Graph {
    let (mut g, x, w) = start();
    let h = g.add1(LINEAR, &[x, w]).unwrap();
    let y = g.add1(ActivationOp { act }, &[h]).unwrap();
    let z = g.add1(LINEAR, &[y, w]).unwrap();
    let dz = variable(&mut g, &[2, 3]);
    backward(&mut g, &[(z, dz)], &[x, w]).unwrap();
    g
}

#[test]
fn the_gradient_of_a_relu_joins_the_product_before() {
    let names = joined(&mut two_layers(Activation::Relu), &["fuse"]);
    // Where the product was, before the gradient by the weight that reads the same.
    let expected = ["linear + relu", "linear", "linear_grad_input + activation_grad", "linear_grad_weight"];
    assert_eq!(names[..4], expected);
    // Differentiated from its input, which must be kept; and no kernel for its gradient.
    let names = joined(&mut two_layers(Activation::Gelu), &["fuse"]);
    assert_eq!(names[..3], ["linear", "gelu", "linear"]);
    assert!(names.contains(&"activation_grad".to_owned()), "{names:?}");
}

#[test]
fn sums_of_gradients_join_the_activation_behind() {
    let mut g = Graph::new();
    let [a, b, saved] = [(); 3].map(|()| variable(&mut g, &[4, 5]));
    let sum = g.add1(ADD, &[a, b]).unwrap();
    let y = g.add1(ActivationGrad { act: Activation::Relu }, &[saved, sum]).unwrap();
    let w = variable(&mut g, &[3, 5]);
    g.add1(LINEAR, &[y, w]).unwrap();
    assert_eq!(joined(&mut g, &["chain"]), ["add + activation_grad", "linear"]);
    assert_eq!((&g.nodes[0].inputs[..], &g.nodes[0].outputs[..]), (&[a, b, saved][..], &[y][..]));
}

#[test]
fn what_is_read_elsewhere_is_a_result_too() {
    let mut g = Graph::new();
    let [a, b] = [(); 2].map(|()| variable(&mut g, &[4, 5]));
    let sum = g.add1(ADD, &[a, b]).unwrap();
    let y = g.add1(TANH, &[sum]).unwrap();
    let w = variable(&mut g, &[3, 5]);
    g.add1(LINEAR, &[sum, w]).unwrap();
    assert_eq!(joined(&mut g, &["chain"]), ["add + tanh", "linear"]);
    assert_eq!(g.nodes[0].outputs, [y, sum]);
}

#[test]
fn nothing_is_made_after_it_is_needed() {
    let mut g = Graph::new();
    let [a, b] = [(); 2].map(|()| variable(&mut g, &[4, 5]));
    let sum = g.add1(ADD, &[a, b]).unwrap();
    let w = variable(&mut g, &[5, 5]);
    let y = g.add1(LINEAR, &[sum, w]).unwrap();
    g.add1(MUL, &[sum, y]).unwrap();
    assert_eq!(joined(&mut g, &["chain"]), ["add", "linear", "multiply"]);
}

#[test]
fn past_other_work_only_what_keeps_no_more_waiting() {
    for (two, expected) in
        [(false, &["linear", "linear", "tanh + add"][..]), (true, &["linear", "linear", "add", "linear", "add"])]
    {
        let mut g = Graph::new();
        let (x, w) = (variable(&mut g, &[4, 5]), variable(&mut g, &[5, 5]));
        let a = g.add1(LINEAR, &[x, w]).unwrap();
        let early = if two {
            let b = g.add1(LINEAR, &[x, w]).unwrap();
            g.add1(ADD, &[a, b]).unwrap()
        } else {
            g.add1(TANH, &[a]).unwrap()
        };
        let late = g.add1(LINEAR, &[x, w]).unwrap();
        g.add1(ADD, &[early, late]).unwrap();
        assert_eq!(joined(&mut g, &["chain"]), expected);
    }
}

#[test]
fn stretched_operands_take_part_and_stretched_results_do_not() {
    let mut g = Graph::new();
    let (x, gate) = (variable(&mut g, &[2, 3, 5]), variable(&mut g, &[2, 1, 5]));
    let gate = g.add1(TANH, &[gate]).unwrap();
    let y = g.add1(MUL, &[x, gate]).unwrap();
    g.add1(ADD, &[y, x]).unwrap();
    assert_eq!(joined(&mut g, &["chain"]), ["tanh", "multiply + add"]);
    let mut g = Graph::new();
    let (row, column) = (variable(&mut g, &[1, 5]), variable(&mut g, &[4, 1]));
    let y = g.add1(MUL, &[row, column]).unwrap();
    g.add1(TANH, &[y]).unwrap();
    assert_eq!(joined(&mut g, &["chain"]), ["multiply", "tanh"]);
}

#[test]
fn a_group_ends_where_it_is_as_long_as_may_be() {
    let mut g = Graph::new();
    let mut x = variable(&mut g, &[4, 5]);
    for _ in 0..MAX_STEPS + 2 {
        x = g.add1(TANH, &[x]).unwrap();
    }
    let names = joined(&mut g, &["chain"]);
    assert_eq!(names, [["tanh"; MAX_STEPS].join(" + "), "tanh + tanh".into()]);
}

#[test]
fn a_result_may_lie_where_an_operand_dies() {
    let mut g = Graph::new();
    let (x, w) = (variable(&mut g, &[4, 5]), variable(&mut g, &[5, 5]));
    let [a, b] = [(); 2].map(|()| g.add1(LINEAR, &[x, w]).unwrap());
    // `a` is read again behind the group; `b` is not.
    let sum = g.add1(ADD, &[a, b]).unwrap();
    let product = g.add1(MUL, &[sum, a]).unwrap();
    let y = g.add1(LINEAR, &[product, w]).unwrap();
    g.add1(MUL, &[a, y]).unwrap();
    joined(&mut g, &["chain"]);
    let Op::Fused(op) = &g.nodes[2].op else { panic!("{g}") };
    assert_eq!((op.in_place, &g.nodes[2].inputs[..]), (Some(1), &[a, b][..]));
}

/// A convolution, pooling and an activation after it, and their gradients by input and weight.
fn pooled(act: Activation, pool: MaxPool2d) -> Graph {
    let mut g = Graph::new();
    let (x, w) = (variable(&mut g, &[2, 8, 8, 3]), variable(&mut g, &[4, 3, 3, 3]));
    let conv = Conv2d { stride: [1, 1], padding: [1; 4], dilation: [1, 1], groups: 1, bias: false };
    let y = g.add1(conv, &[x, w]).unwrap();
    let y = g.add1(pool, &[y]).unwrap();
    let y = g.add1(ActivationOp { act }, &[y]).unwrap();
    let dy = g.shape(y).dims().to_vec();
    let dy = variable(&mut g, &dy);
    backward(&mut g, &[(y, dy)], &[x, w]).unwrap();
    g
}

#[test]
fn a_pooled_image_is_never_stored_and_its_gradient_is_made_where_it_is_read() {
    let pairs = MaxPool2d { kernel: [2; 2], stride: [2; 2], padding: [0; 2], dilation: [1; 2], ceil_mode: false };
    let gradients = ["max_pool2d_grad + conv2d_grad_weight", "max_pool2d_grad + conv2d_grad_input"];
    let names = joined(&mut pooled(Activation::Relu, pairs.clone()), &["pool"]);
    assert_eq!(names[..2], ["conv2d + max_pool2d + relu", "activation_grad"]);
    assert_eq!(names[2..], gradients);
    // An activation that no kernel has there stays, and so do windows that overlap.
    let names = joined(&mut pooled(Activation::Tanh, pairs.clone()), &["pool"]);
    assert_eq!(names[..3], ["conv2d + max_pool2d", "tanh", "activation_grad"]);
    assert_eq!(names[3..], gradients);
    let names =
        joined(&mut pooled(Activation::Relu, MaxPool2d { kernel: [3; 2], padding: [1; 2], ..pairs }), &["pool"]);
    assert_eq!(names[..3], ["conv2d", "max_pool2d", "relu"]);
    assert_eq!(names.len(), 7);
}

#[test]
fn a_convolution_is_normalised_and_pooled_at_once() {
    let pairs = MaxPool2d { kernel: [2; 2], stride: [2; 2], padding: [0; 2], dilation: [1; 2], ceil_mode: false };
    for (bias, affine) in [(false, true), (true, false)] {
        let (mut g, between, y) = normalised(bias, affine);
        let pooled = g.add1(pairs.clone(), &[y]).unwrap();
        let relu = g.add1(RELU, &[pooled]).unwrap();
        g.values[relu.index()].role = Role::Output;
        let names = joined(&mut g, &["fold", "pool"]);
        assert_eq!(names, ["conv2d + batch_norm_infer + max_pool2d + relu"]);
        assert!(g.nodes[0].outputs.contains(&relu) && !g.nodes[0].outputs.contains(&between));
    }
    // What is normalised is wanted itself.
    let (mut g, _, y) = normalised(false, true);
    g.values[y.index()].role = Role::Output;
    g.add1(pairs, &[y]).unwrap();
    assert_eq!(joined(&mut g, &["fold", "pool"]), ["conv2d + batch_norm_infer", "max_pool2d"]);
}
