//! The precision pass: which operations compute on 16-bit floats, as `torch.autocast` decides it.
//!
//! Each operation belongs to one of PyTorch's lists for CUDA:
//!
//! - *Lower precision*: `linear`, `conv2d`, its transpose and `scaled_dot_product_attention`. Input and weight are cast to the
//!   16-bit type, and so are the results. The bias of a transposed convolution is a sum of its own, and is rounded, too.
//! - *Single precision*: `layer_norm`, `group_norm`, `local_response_norm`, `softmax`, `log_softmax`, attention to kept positions (which are `F32`), the steps of
//!   recurrent layers (after the product with their input, a `linear`), losses and metrics. Operands are cast to `F32`.
//! - *Widest type*: sums, products, `concat`. If one operand is `F32`, all others are cast to it.
//! - All others take what they are given: activations, pooling, dropout, batch normalisation (whose parameters and
//!   statistics are `F32` whatever its input is), the rows of a table (`F32`, as every parameter), and what only moves elements.
//!
//! More exact than PyTorch: states of recurrent layers are not rounded. The bias of `linear` and `conv2d` is not rounded, and the gradients of weights and biases are
//! `F32` sums that are never rounded to 16 bits on their way to the optimizer.

use crate::graph::op::{Cast, Normalize};
use crate::graph::{DType, Graph, Node, Op, Role, ShapeError, Value, ValueId};
use std::collections::HashMap;

/// Rewrites a forward graph whose floats are all `F32` to compute with `half` (`BF16` or `F16`) where that is safe. Run
/// it before the gradient pass, whose rules follow the types that they find.
///
/// A value is cast once, however many operations read the result: a weight that layers share, the logits that loss and
/// metrics read. Variables stay `F32`, and so does a value with [`Role::Output`], which the host reads. A [`Normalize`]
/// whose result would only be cast makes the 16-bit type itself. Other values keep their numbers, with another type.
///
/// # Errors
/// An operation refuses its new operands: a bug of this pass.
pub fn autocast(graph: &mut Graph, half: DType) -> Result<(), ShapeError> {
    let lowered = lowered_only(graph);
    let origin = graph.current_origin;
    let nodes = std::mem::take(&mut graph.nodes);
    let mut pass = Autocast { graph, half, casts: HashMap::new() };
    let result = nodes.into_iter().try_for_each(|node| pass.node(node, &lowered));
    graph.current_origin = origin;
    result
}

/// How an operation chooses the type that it computes in.
enum List {
    /// The 16-bit type, for its first operands: [`lower_operands`].
    Lower,
    /// `F32`.
    Single,
    /// The widest type of its operands.
    Widest,
    /// The type of what it is given.
    AsGiven,
}

fn list(op: &Op) -> List {
    match op {
        // The gradient by the input, in a forward graph, is a transposed convolution.
        Op::Linear(_) | Op::Conv2d(_) | Op::Conv2dGradInput(_) | Op::Attention(_) => List::Lower,
        Op::LayerNorm(_) | Op::GroupNorm(_) | Op::Softmax(_) | Op::LogSoftmax(_) => List::Single,
        Op::LocalResponseNorm(_) | Op::CachedAttention(_) | Op::Recurrent(_) => List::Single,
        // What a model puts out is brought to its own unit so.
        Op::Normalize(_) => List::Single,
        Op::Loss(_) | Op::Metrics(_) | Op::ClassCounts(_) | Op::ErrorSums(_) => List::Single,
        Op::Binary(_) | Op::Concat(_) => List::Widest,
        _ => List::AsGiven,
    }
}

/// The operands that are cast to the 16-bit type. What is added to the scores of an attention stays in single precision.
fn lower_operands(op: &Op) -> usize {
    if let Op::Attention(op) = op { op.sources() } else { 2 }
}

/// For every value, whether it is read, and read only in the 16-bit type. Operations that only move elements are looked
/// through: the cast may come before or after them.
fn lowered_only(graph: &Graph) -> Vec<bool> {
    let mut read = vec![false; graph.values.len()];
    let mut lowered = vec![true; graph.values.len()];
    for node in graph.nodes.iter().rev() {
        let moves = matches!(node.op, Op::Reshape(_) | Op::Permute(_) | Op::Slice(_) | Op::Pad(_));
        let through = moves && read[node.outputs[0].index()] && lowered[node.outputs[0].index()];
        for (i, input) in node.inputs.iter().enumerate() {
            read[input.index()] = true;
            lowered[input.index()] &= through || matches!(list(&node.op), List::Lower) && i < lower_operands(&node.op);
        }
    }
    let wanted = |v: &Value| v.role == Role::Temporary;
    graph.values.iter().zip(read).zip(lowered).map(|((v, read), lowered)| wanted(v) && read && lowered).collect()
}

struct Autocast<'a> {
    graph: &'a mut Graph,
    half: DType,
    /// The casts of each value so far.
    casts: HashMap<(ValueId, DType), ValueId>,
}

impl Autocast<'_> {
    /// `value` in the type `to`; what is not made of floats stays.
    fn cast(&mut self, value: ValueId, to: DType) -> Result<ValueId, ShapeError> {
        let from = self.graph.value(value).dtype;
        if from == to || !from.is_activation() {
            return Ok(value);
        }
        if let Some(done) = self.casts.get(&(value, to)) {
            return Ok(*done);
        }
        let done = self.graph.add1(Cast { to }, &[value])?;
        self.casts.insert((value, to), done);
        Ok(done)
    }

    /// The type of `value` to those that take what they are given: that of the result after the host's copy.
    fn given(&self, value: ValueId) -> DType {
        let host = self.graph.value(value).role == Role::Output && self.casts.contains_key(&(value, self.half));
        if host { self.half } else { self.graph.value(value).dtype }
    }

    /// Whether `node` adds the bias of a transposed convolution to its result.
    fn adds_bias(&self, node: &Node) -> bool {
        let [sum, bias] = node.inputs[..] else { return false };
        let maker = || self.graph.nodes.iter().rev().find(|maker| maker.outputs.contains(&sum));
        matches!(self.graph.value(bias).role, Role::Parameter(_))
            && maker().is_some_and(|n| matches!(n.op, Op::Conv2dGradInput(_)) && n.origin == node.origin)
    }

    /// Adds `node` on operands of the types that it is to compute in.
    fn node(&mut self, mut node: Node, lowered: &[bool]) -> Result<(), ShapeError> {
        self.graph.current_origin = node.origin;
        self.graph.in_backward = node.backward;
        let to = match list(&node.op) {
            List::Lower => self.half,
            List::Single => DType::F32,
            List::Widest if self.adds_bias(&node) => self.half,
            List::Widest if node.inputs.iter().any(|v| self.given(*v) == DType::F32) => DType::F32,
            List::Widest => self.half,
            List::AsGiven => node.inputs.first().map_or(DType::F32, |v| self.given(*v)),
        };
        let cast = match list(&node.op) {
            List::Lower => lower_operands(&node.op),
            List::Single | List::Widest => node.inputs.len(),
            List::AsGiven => 1,
        };
        for input in node.inputs.iter_mut().take(cast) {
            *input = self.cast(*input, to)?;
        }
        if matches!(&node.op, Op::Attention(op) if op.bias) {
            node.inputs[1] = self.cast(node.inputs[1], DType::F32)?;
        }
        if let Op::Normalize(op) = &node.op
            && lowered[node.outputs[0].index()]
        {
            node.op = Normalize { to: self.half, ..op.clone() }.into();
        }
        let infos: Vec<&Value> = node.inputs.iter().map(|v| self.graph.value(*v)).collect();
        let outputs = node.op.rules().infer(&infos)?;
        let mut for_host = Vec::new();
        for (value, (dtype, shape)) in node.outputs.iter_mut().zip(outputs) {
            if self.graph.value(*value).role == Role::Output && dtype.is_half() {
                let result = self.graph.add_value(dtype, shape, Role::Temporary);
                for_host.push((result, std::mem::replace(value, result)));
            } else {
                self.graph.values[value.index()].dtype = dtype;
            }
        }
        self.graph.nodes.push(node);
        for (result, host) in for_host {
            let Node { origin, backward, .. } = self.graph.nodes[self.graph.nodes.len() - 1];
            let (inputs, outputs) = (vec![result], vec![host]);
            self.graph.nodes.push(Node { op: Cast { to: DType::F32 }.into(), inputs, outputs, origin, backward });
            self.casts.extend([((result, DType::F32), host), ((host, self.half), result)]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::op::{
        Activation, ActivationOp, Attention, BatchNormInfer, Binary, BinaryKind, CachedAttention, Conv2d,
        Conv2dGradInput, ElementwiseLoss, Embedding, LayerNorm, Linear, LossOp, Reshape, Rotary, Softmax,
    };
    use crate::graph::{Input, Shape, VarId, verify};
    use crate::passes::{grad::backward, simplify::simplify};

    const HALF: DType = DType::BF16;

    fn parameter(g: &mut Graph, shape: impl Into<Shape>) -> ValueId {
        let id = VarId(g.values.len() as u32);
        g.add_value(DType::F32, shape.into(), Role::Parameter(id))
    }

    fn normalize(g: &mut Graph, shape: impl Into<Shape>) -> ValueId {
        let x = g.input(Input::Field(0), DType::U8, shape.into());
        g.add1(Normalize { scale: 1.0, mean: vec![0.0], std: vec![1.0], to: DType::F32 }, &[x]).unwrap()
    }

    /// Each node with the type of its first result.
    fn typed(g: &Graph) -> Vec<String> {
        let one = |n: &Node| {
            let dtype = n.outputs.first().map_or(String::new(), |o| format!(":{}", g.value(*o).dtype));
            format!("{}{dtype}", n.op.rules().name())
        };
        g.nodes.iter().map(one).collect()
    }

    /// The graph after the pass, which leaves variables and what the host reads in single precision.
    fn cast(g: &mut Graph) -> Vec<String> {
        let origin = g.current_origin;
        autocast(g, HALF).unwrap();
        verify(g).unwrap();
        assert_eq!(g.current_origin, origin);
        assert!(g.values.iter().all(|v| v.role == Role::Temporary || !v.dtype.is_half()));
        typed(g)
    }

    #[test]
    fn operations_follow_their_lists() {
        let mut g = Graph::new();
        let x = normalize(&mut g, [2, 4, 4, 3]);
        let (w, b) = (parameter(&mut g, [5, 1, 1, 3]), parameter(&mut g, [5]));
        let conv = Conv2d { stride: [1, 1], padding: [0; 4], dilation: [1, 1], groups: 1, bias: true };
        let x = g.add1(conv, &[x, w, b]).unwrap();
        let stats = [parameter(&mut g, [5]), parameter(&mut g, [5])];
        let x = g.add1(BatchNormInfer { eps: 1e-5, affine: false }, &[x, stats[0], stats[1]]).unwrap();
        let x = g.add1(ActivationOp { act: Activation::Gelu }, &[x]).unwrap();
        let norm = LayerNorm { dims: 1, eps: 1e-5, weight: false, bias: false, centered: true };
        let y = g.add1(norm, &[x]).unwrap();
        // Of a 16-bit and a 32-bit operand.
        let z = g.add1(Binary { kind: BinaryKind::Add }, &[x, y]).unwrap();
        let z = g.add1(ActivationOp { act: Activation::Tanh }, &[z]).unwrap();
        g.values[z.index()].role = Role::Output;
        assert_eq!(
            cast(&mut g),
            [
                "normalize:bf16",
                "cast:bf16",
                "conv2d:bf16",
                "batch_norm_infer:bf16",
                "gelu:bf16",
                "cast:f32",
                "layer_norm:f32",
                "add:f32",
                "tanh:f32"
            ]
        );
    }

    #[test]
    fn a_shared_weight_is_cast_once() {
        let mut g = Graph::new();
        let x = parameter(&mut g, [2, 3]);
        let w = parameter(&mut g, [3, 3]);
        let y = g.add1(Linear::default(), &[x, w]).unwrap();
        let y = g.add1(Linear::default(), &[y, w]).unwrap();
        let y = g.add1(Softmax {}, &[y]).unwrap();
        assert_eq!(cast(&mut g), ["cast:bf16", "cast:bf16", "linear:bf16", "linear:bf16", "cast:f32", "softmax:f32"]);
        let dy = g.add_value(DType::F32, g.shape(y).clone(), Role::State(VarId(99)));
        let grads = backward(&mut g, &[(y, dy)], &[w, x]).unwrap();
        verify(&g).unwrap();
        assert!(grads.iter().flatten().all(|grad| g.value(*grad).dtype == DType::F32) && grads.len() == 2);
        // Both gradients of the weight are sums in 32 bits, and so is their sum.
        let backward = &typed(&g)[6..];
        assert_eq!(
            backward,
            [
                "softmax_grad:f32",
                "cast:bf16",
                "linear_grad_input:bf16",
                "linear_grad_weight:f32",
                "linear_grad_input:bf16",
                "linear_grad_weight:f32",
                "add:f32",
                "cast:f32"
            ]
        );
    }

    #[test]
    fn attention_computes_on_16_bits_and_keeps_its_logarithms_in_32() {
        let mut g = Graph::new();
        let (x, w) = (parameter(&mut g, [2, 5, 4]), parameter(&mut g, [12, 4]));
        let qkv = g.add1(Linear::default(), &[x, w]).unwrap();
        let y = g.add(Attention { heads: 2, causal: true, ..Attention::default() }, &[qkv]).unwrap();
        assert_eq!(cast(&mut g), ["cast:bf16", "cast:bf16", "linear:bf16", "scaled_dot_product_attention:bf16"]);
        assert_eq!(g.value(y[1]).dtype, DType::F32);
        let dy = g.add_value(HALF, g.shape(y[0]).clone(), Role::State(VarId(99)));
        backward(&mut g, &[(y[0], dy)], &[w]).unwrap();
        verify(&g).unwrap();
        assert_eq!(typed(&g)[4..], ["scaled_dot_product_attention_grad:bf16", "linear_grad_weight:f32"]);
    }

    /// A table's rows are in its own type. As the weight of a projection it is cast, and both of its gradients are sums in 32 bits.
    #[test]
    fn a_table_is_read_in_32_bits_and_multiplied_in_16() {
        let mut g = Graph::new();
        let table = parameter(&mut g, [7, 4]);
        let ids = g.input(Input::Field(0), DType::I32, Shape::from([2, 3]));
        let x = g.add1(Embedding::default(), &[table, ids]).unwrap();
        let y = g.add1(Linear::default(), &[x, table]).unwrap();
        assert_eq!(cast(&mut g), ["embedding:f32", "cast:bf16", "cast:bf16", "linear:bf16"]);
        let dy = g.add_value(HALF, g.shape(y).clone(), Role::State(VarId(99)));
        let grad = backward(&mut g, &[(y, dy)], &[table]).unwrap()[0].unwrap();
        verify(&g).unwrap();
        assert_eq!(g.value(grad).dtype, DType::F32);
        let backward =
            ["linear_grad_input:bf16", "linear_grad_weight:f32", "cast:f32", "embedding_grad:f32", "add:f32"];
        assert_eq!(typed(&g)[4..], backward);
    }

    /// What is kept from position to position is 32 bits wide, and so is what is computed with it. Positions are turned in the type that they have.
    #[test]
    fn kept_keys_and_values_stay_in_32_bits() {
        let mut g = Graph::new();
        let (x, w, table) = (parameter(&mut g, [2, 1, 4]), parameter(&mut g, [12, 4]), parameter(&mut g, [9, 2]));
        let kept = [parameter(&mut g, [2, 9, 4]), parameter(&mut g, [2, 9, 4])];
        let position = g.input(Input::Field(1), DType::I32, Shape::from([2]));
        let qkv = g.add1(Linear::default(), &[x, w]).unwrap();
        let rotary = Rotary { heads: 2, kv_heads: 2, position: true, back: false };
        let qkv = g.add1(rotary, &[qkv, table, position]).unwrap();
        let attention = CachedAttention { heads: 2, kv_heads: 2, ..CachedAttention::default() };
        g.add1(attention, &[qkv, kept[0], kept[1], position]).unwrap();
        let cast = cast(&mut g);
        assert_eq!(cast, ["cast:bf16", "cast:bf16", "linear:bf16", "rotary:bf16", "cast:f32", "cached_attention:f32"]);
        assert_eq!(g.nodes[5].inputs[1..3], kept);
    }

    /// What is added to the scores is 32 bits wide, wherever it comes from, and so is its gradient.
    #[test]
    fn the_bias_of_an_attention_stays_in_32_bits() {
        let mut g = Graph::new();
        let (x, table, w) = (parameter(&mut g, [2, 5, 12]), parameter(&mut g, [50, 3]), parameter(&mut g, [1, 3]));
        let bias = g.add1(Linear::default(), &[table, w]).unwrap();
        let bias = g.add1(Reshape { shape: Shape::from([1, 2, 5, 5]) }, &[bias]).unwrap();
        let op = Attention { heads: 2, bias: true, ..Attention::default() };
        let y = g.add(op, &[x, bias]).unwrap();
        let cast = cast(&mut g);
        let attention = "scaled_dot_product_attention:bf16";
        assert_eq!(cast, ["cast:bf16", "cast:bf16", "linear:bf16", "reshape:bf16", "cast:bf16", "cast:f32", attention]);
        let dy = g.add_value(HALF, g.shape(y[0]).clone(), Role::State(VarId(99)));
        backward(&mut g, &[(y[0], dy)], &[x, table]).unwrap();
        verify(&g).unwrap();
        let grad = g.nodes.iter().find(|n| matches!(n.op, Op::AttentionGrad(_))).unwrap();
        assert_eq!(grad.outputs.iter().map(|v| g.value(*v).dtype).collect::<Vec<_>>(), [HALF, DType::F32]);
    }

    #[test]
    fn the_bias_of_a_transposed_convolution_keeps_its_result_in_16_bits() {
        for (bias, expected) in
            [(true, ["cast:bf16", "add:bf16", "relu:bf16"]), (false, ["cast:f32", "add:f32", "relu:f32"])]
        {
            let mut g = Graph::new();
            let x = normalize(&mut g, [2, 3, 3, 5]);
            let (w, b) = (parameter(&mut g, [5, 2, 2, 4]), parameter(&mut g, [1, 1, 1, 4]));
            let conv = Conv2d { stride: [2, 2], padding: [0; 4], dilation: [1, 1], groups: 1, bias: false };
            g.set_origin("first");
            let y = g.add1(Conv2dGradInput { conv, input: [6, 6] }, &[x, w]).unwrap();
            // What another layer adds is no bias.
            g.set_origin(if bias { "first" } else { "second" });
            let y = g.add1(Binary { kind: BinaryKind::Add }, &[y, b]).unwrap();
            g.add1(ActivationOp { act: Activation::Relu }, &[y]).unwrap();
            let typed = cast(&mut g);
            assert_eq!(typed[..3], ["normalize:bf16", "cast:bf16", "conv2d_grad_input:bf16"]);
            assert_eq!(typed[3..], expected);
        }
    }

    #[test]
    fn images_are_normalised_to_16_bits_if_no_node_needs_more() {
        for (second, expected) in [(false, "normalize:bf16"), (true, "normalize:f32")] {
            let mut g = Graph::new();
            let x = normalize(&mut g, [2, 2, 1, 3]);
            let w = parameter(&mut g, [4, 6]);
            let flat = g.add1(Reshape { shape: Shape::from([2, 6]) }, &[x]).unwrap();
            g.add1(Linear::default(), &[flat, w]).unwrap();
            if second {
                g.add1(Softmax {}, &[flat]).unwrap();
            }
            assert_eq!(cast(&mut g)[0], expected);
        }
    }

    #[test]
    fn the_host_reads_single_precision_and_layers_do_not_cast_twice() {
        let mut g = Graph::new();
        let x = parameter(&mut g, [2, 3]);
        let w = parameter(&mut g, [3, 3]);
        let y = g.add1(Linear::default(), &[x, w]).unwrap();
        g.values[y.index()].role = Role::Output;
        let t = parameter(&mut g, [2, 3]);
        g.add1(LossOp::from(ElementwiseLoss::Mse), &[y, t]).unwrap();
        let z = g.add1(ActivationOp { act: Activation::Relu }, &[y]).unwrap();
        g.add1(Linear::default(), &[z, w]).unwrap();
        assert_eq!(
            cast(&mut g),
            ["cast:bf16", "cast:bf16", "linear:bf16", "cast:f32", "mse:f32", "relu:bf16", "linear:bf16"]
        );
        assert_eq!(g.nodes[3].outputs, [y]);
    }

    #[test]
    fn gradients_of_promoted_operands_are_not_cast_there_and_back() {
        let mut g = Graph::new();
        let (x, w) = (parameter(&mut g, [2, 3]), parameter(&mut g, [3, 3]));
        let h = g.add1(Linear::default(), &[x, w]).unwrap();
        let sum = g.add1(Binary { kind: BinaryKind::Add }, &[h, x]).unwrap();
        let y = g.add1(Linear::default(), &[sum, w]).unwrap();
        cast(&mut g);
        let dy = g.add_value(HALF, g.shape(y).clone(), Role::State(VarId(99)));
        let grad = backward(&mut g, &[(y, dy)], &[w]).unwrap()[0].unwrap();
        g.values[grad.index()].role = Role::Output;
        simplify(&mut g);
        verify(&g).unwrap();
        // What reaches the first layer is the second one's gradient as it is.
        let casts = g.nodes.iter().filter(|n| n.backward && matches!(n.op, Op::Cast(_))).count();
        assert_eq!(casts, 0, "{g}");
    }
}
