//! Each layer type as operations.

use super::params::{Param, uniform_fan_in};
use super::{Builder, LayerRow, Mode, Tensor};
use crate::config::declare::tagged::Tagged as _;
use crate::config::language::layers::{self as cfg, Layer};
use crate::config::{LayerKind, LayerNode};
use crate::graph::op::{ActivationOp, BinaryKind, Dropout, Linear};
use crate::graph::{DType, Input, Shape, Storage, ValueId};

impl Builder<'_> {
    /// One layer or container.
    pub(super) fn node(&mut self, node: &LayerNode, x: Tensor) -> Tensor {
        let y = match &node.kind {
            LayerKind::Layer(layer) => self.layer(node, layer, x),
            LayerKind::Group(list) => {
                let x = self.operands(node, x).first().copied().unwrap_or(x);
                self.sequence(list, x)
            }
            LayerKind::Residual { .. } | LayerKind::Gate(_) | LayerKind::Branches { .. } => self.container(node, x),
        };
        if !node.name.is_empty() {
            self.named.insert(node.path.clone(), y);
        }
        y
    }

    /// Adds the line of `node` to the layer table and makes `value` its result.
    pub(super) fn made(&mut self, node: &LayerNode, kind: &str, value: ValueId, flat: Option<[usize; 3]>) -> Tensor {
        self.rows.push(LayerRow {
            path: node.path.clone(),
            kind: kind.to_string(),
            output: self.graph.shape(value).to_pytorch(),
            params: 0,
            flops: 0,
            span: node.span,
            value,
        });
        Tensor { value, flat, made_by: Some(self.rows.len() - 1) }
    }

    fn layer(&mut self, node: &LayerNode, layer: &Layer, x: Tensor) -> Tensor {
        self.graph.set_origin(&node.path);
        let operands = self.operands(node, x);
        let x = operands.first().copied().unwrap_or(x);
        // Results that are a flattened image, if the operand is one: what works element by element keeps the order.
        let (value, flat) = match layer {
            Layer::Activation(l) => (self.plain(ActivationOp { act: l.describe() }, &[x.value]), x.flat),
            Layer::Dropout(l) => (self.dropout(l.p as f32, x), x.flat),
            Layer::Identity(_) => (x.value, x.flat),
            Layer::Flatten(l) => self.flatten(node, l, x),
            Layer::Linear(l) => (self.linear(node, l, x), None),
            Layer::Conv2d(l) => (self.conv2d(node, l, x), None),
            Layer::BatchNorm1d(l) => (self.batch_norm1d(node, l, x), None),
            Layer::BatchNorm2d(l) => (self.batch_norm2d(node, l, x), None),
            Layer::GroupNorm(l) => (self.group_norm(node, l, x), None),
            Layer::LayerNorm(l) => (self.layer_norm(node, l, x), None),
            Layer::MultiheadAttention(l) => (self.multihead_attention(node, l, x), None),
            Layer::MaxPool2d(l) => (self.max_pool2d(node, l, x), None),
            Layer::AvgPool2d(l) => (self.avg_pool2d(node, l, x), None),
            Layer::AdaptiveAvgPool2d(l) => (self.adaptive_avg_pool2d(node, l, x), None),
            Layer::Softmax(l) => (self.softmax(l, x), None),
            Layer::Add(_) => (self.combine(node, BinaryKind::Add, &operands), None),
            Layer::Multiply(_) => (self.combine(node, BinaryKind::Mul, &operands), None),
            Layer::Concat(l) => (self.concat(node, l.dim, &operands), None),
        };
        self.made(node, layer.type_name(), value, flat)
    }

    fn dropout(&mut self, p: f32, x: Tensor) -> ValueId {
        match self.draws(p) {
            Some((random, stream)) => self.plain(Dropout { p, stream }, &[x.value, random]),
            None => x.value,
        }
    }

    /// The random key and the number of one more layer that drops with probability `p`, if it does so in this mode.
    pub(super) fn draws(&mut self, p: f32) -> Option<(ValueId, u32)> {
        // Counted in every mode, so that a layer's number does not depend on it.
        self.dropouts += 1;
        if self.mode != Mode::Train || p == 0.0 {
            return None;
        }
        Some((self.graph.input(Input::Random, DType::U32, Shape::from([4])), self.dropouts - 1))
    }

    fn linear(&mut self, node: &LayerNode, l: &cfg::Linear, x: Tensor) -> ValueId {
        let shape = self.shape(x).clone();
        let (out, inp) = (l.out_features, shape.last());
        if shape.rank() == 4 {
            let message = format!("`linear` takes vectors, but its input is images of shape {}", shape.to_pytorch());
            let help = "put \"flatten\" before it, or \"adaptive_avg_pool2d\" with `output_size = 1` and \"flatten\"";
            self.refuse(node, &message, "cannot take images", &[x], help);
            return self.stand_in(Shape::from([self.batch, out]));
        }
        let storage = match x.flat {
            Some(hwc) => Storage::linear_after_flatten(out, hwc),
            None => Storage::plain([out, inp]),
        };
        let init = uniform_fan_in(inp);
        let w = self.param(node, Param { storage, ..Param::plain("weight", [out, inp], init) });
        let mut ops = vec![x.value, w];
        if l.bias {
            ops.push(self.param(node, Param::plain("bias", [out], init)));
        }
        let mut meant = shape.dims().to_vec();
        meant[shape.rank() - 1] = out;
        let y = self.apply(node, Linear { bias: l.bias }, &ops, &[x], Shape(meant), "");
        // The number of outputs is as written, whatever comes in: what follows can be judged again.
        // Only a value that is too large has fewer samples.
        if self.graph.shape(y).dims()[0] == self.batch {
            self.guesses.remove(&y);
        }
        y
    }
}
