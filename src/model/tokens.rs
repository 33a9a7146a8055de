//! Parts of transformers and of other nets of blocks: learned positions and factors, samples that are left out.

use super::embeddings::normal;
use super::order::Order;
use super::params::Param;
use super::{Builder, Tensor};
use crate::config::LayerNode;
use crate::config::language::layers::{self as cfg, StochasticDepthMode};
use crate::graph::op::{Activation, ActivationOp, Binary, BinaryKind, Dropout, NewFull, Pad};
use crate::graph::{Fill, Shape, Storage, ValueId};

const ADD: Binary = Binary { kind: BinaryKind::Add };
const MUL: Binary = Binary { kind: BinaryKind::Mul };

impl Builder<'_> {
    /// `[N, L, E]` of the input of a layer for sequences; reports one that is given something else.
    pub(super) fn sequence_shape(&mut self, node: &LayerNode, x: Tensor) -> Option<[usize; 3]> {
        let shape = self.dims(x);
        if let Ok(dims) = <[usize; 3]>::try_from(shape.dims()) {
            return Some(dims);
        }
        let message = format!("`{}` takes sequences, [N, L, E], but its input has the shape {shape}", node.kind_name());
        let help = match shape.rank() {
            4 => {
                "\"flatten\" with `start_dim = 2`, then \"transpose\" with `dim0 = 1` and `dim1 = 2`, makes a sequence of the pixels of images"
            }
            _ => "",
        };
        self.refuse(node, &message, "takes sequences", &[x], help);
        None
    }

    pub(super) fn class_token(&mut self, node: &LayerNode, l: &cfg::ClassToken, x: Tensor) -> ValueId {
        let x = self.in_pytorch_order(x);
        let Some([_, length, e]) = self.sequence_shape(node, x) else { return x.value };
        let token = self.param(node, Param::plain("", [1, 1, e], normal(l.init_std)));
        // A zero in the place of the token, and zeros in the places of all others: their sum is exact.
        let room = self.plain(Pad { axis: 1, before: 1, after: 0 }, &[x.value]);
        let alone = self.plain(Pad { axis: 1, before: 0, after: length }, &[token]);
        self.plain(ADD, &[room, alone])
    }

    /// A parameter of `outside` with a number for each position of PyTorch's dimension `dim` of `x`, or one for all; with as many
    /// axes as `x` has.
    fn factors(&mut self, node: &LayerNode, name: &str, x: Tensor, dim: usize, outside: Shape, start: f64) -> ValueId {
        let mut inside = vec![1; self.shape(x).rank()];
        inside[self.axis(x, dim)] = outside.len();
        let inside = Shape(inside);
        let storage = Storage { outside, ..Storage::plain(inside.clone()) };
        self.param(node, Param { storage, ..Param::plain(name, inside, Fill::Constant(start)) })
    }

    pub(super) fn layer_scale(&mut self, node: &LayerNode, l: &cfg::LayerScale, x: Tensor) -> (ValueId, Order) {
        let x = self.whole(x);
        let shape = self.dims(x);
        let (dim, outside) = match *shape.dims() {
            [_, c, _, _] => (1, Shape::from([c, 1, 1])),
            _ => (shape.rank() - 1, Shape::from([shape.last()])),
        };
        let factors = self.factors(node, "", x, dim, outside, l.init_value);
        (self.plain(MUL, &[x.value, factors]), x.order)
    }

    pub(super) fn prelu(&mut self, node: &LayerNode, l: &cfg::Prelu, x: Tensor) -> (ValueId, Order) {
        let x = self.whole(x);
        let c = self.dims(x).dims()[1];
        if l.num_parameters != 1 && l.num_parameters != c {
            let at = node.fields.get("num_parameters").copied().unwrap_or(node.span);
            let (n, s) = (l.num_parameters, if c == 1 { "" } else { "s" });
            let message = format!("`prelu` has {n} parameters, but its input {c} channel{s}");
            self.refuse_at(node, at, &message, &format!("must be 1 or {c}"), &[x], "");
            return (x.value, x.order);
        }
        let weight = self.factors(node, "weight", x, 1, Shape::from([l.num_parameters]), l.init);
        let above = self.plain(ActivationOp { act: Activation::Relu }, &[x.value]);
        // What is below zero is what the ReLU has taken off. So the derivative at zero is the factor, as in PyTorch.
        let ones = vec![1; self.shape(x).rank()];
        let minus = self.plain(NewFull { shape: Shape(ones), value: -1.0 }, &[x.value]);
        let taken = self.plain(MUL, &[above, minus]);
        let below = self.plain(ADD, &[x.value, taken]);
        let scaled = self.plain(MUL, &[below, weight]);
        (self.plain(ADD, &[scaled, above]), x.order)
    }

    pub(super) fn stochastic_depth(&mut self, l: &cfg::StochasticDepth, x: Tensor) -> ValueId {
        let p = l.p as f32;
        let Some((random, stream)) = self.draws(p) else { return x.value };
        let mut shape = vec![1; self.shape(x).rank()];
        if l.mode == StochasticDepthMode::Row {
            // The batch is the first axis in every order.
            shape[0] = self.shape(x).dims()[0];
        }
        // A factor for each sample: 0, or the inverse of the probability to stay.
        let ones = self.plain(NewFull { shape: Shape(shape), value: 1.0 }, &[x.value]);
        let factors = self.plain(Dropout { p, stream }, &[ones, random]);
        self.plain(MUL, &[x.value, factors])
    }
}
