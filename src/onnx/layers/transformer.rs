//! Attention, and what else transformers have.

use crate::config::LayerNode;
use crate::config::language::layers::{MultiheadAttention, PositionEmbedding, PositionKind};
use crate::graph::Fill;
use crate::onnx::graph::int;
use crate::onnx::{Translator, Value};

impl Translator<'_> {
    pub(super) fn multihead_attention(&mut self, node: &LayerNode, l: &MultiheadAttention, x: &Value) -> String {
        let (length, width, heads) = (x.shape[1], x.shape[2], l.num_heads);
        let each = width / heads;
        let weight = self.parameter(node, "in_proj_weight");
        let bias = l.bias.then(|| self.parameter(node, "in_proj_bias"));
        let packed = self.product(&x.name, &weight, bias.as_deref());
        let thirds = self.graph.list(&[width as i64; 3]);
        let [q, k, v] = self.graph.ops("Split", &[&packed, &thirds], [int("axis", 2)]);
        // [N, L, E] as [N, heads, L, E / heads], the keys transposed.
        let [q, k, v] = [(q, [0, 2, 1, 3]), (k, [0, 2, 3, 1]), (v, [0, 2, 1, 3])].map(|(part, dims)| {
            let split = self.graph.reshape(&part, &[0, length, heads, each]);
            self.permuted(&split, &dims)
        });
        let q = self.graph.with_scalar("Mul", &q, 1.0 / (each as f32).sqrt());
        let mut scores = self.graph.op("MatMul", &[&q, &k], []);
        if l.is_causal {
            let hidden = |i: usize| if i % length > i / length { f32::NEG_INFINITY } else { 0.0 };
            let mask: Vec<f32> = (0..length * length).map(hidden).collect();
            let mask = self.graph.floats(&[length, length], &mask);
            scores = self.graph.op("Add", &[&scores, &mask], []);
        }
        let shares = self.graph.op("Softmax", &[&scores], [int("axis", -1)]);
        let mixed = self.graph.op("MatMul", &[&shares, &v], []);
        let joined = self.permuted(&mixed, &[0, 2, 1, 3]);
        let joined = self.graph.reshape(&joined, &x.shape);
        let weight = self.parameter(node, "out_proj.weight");
        let bias = l.bias.then(|| self.parameter(node, "out_proj.bias"));
        self.product(&joined, &weight, bias.as_deref())
    }

    pub(super) fn class_token(&mut self, node: &LayerNode, x: &Value) -> String {
        let token = self.parameter(node, "");
        // As many tokens as the batch has samples.
        let shape = self.graph.op("Shape", &[&x.name], []);
        let batch = self.graph.slice(&shape, 0, 0, 1);
        let sample = self.graph.list(&[1, x.shape[2] as i64]);
        let shape = self.graph.op("Concat", &[&batch, &sample], [int("axis", 0)]);
        let tokens = self.graph.op("Expand", &[&token, &shape], []);
        self.graph.op("Concat", &[&tokens, &x.name], [int("axis", 1)])
    }

    pub(super) fn embedding(&mut self, node: &LayerNode, x: &Value) -> String {
        let table = self.parameter(node, "weight");
        self.graph.op("Gather", &[&table, &x.name], [int("axis", 0)])
    }

    pub(super) fn position_embedding(&mut self, node: &LayerNode, l: &PositionEmbedding, x: &Value) -> String {
        let positions = match (l.kind, l.max_length) {
            (PositionKind::Learned, Some(_)) => {
                let all = self.parameter(node, "weight");
                self.graph.slice(&all, 0, 0, x.shape[1])
            }
            (PositionKind::Learned, None) => self.parameter(node, ""),
            (PositionKind::Sinusoidal, _) => {
                let [length, width] = [x.shape[1], x.shape[2]];
                self.constant(Fill::Sinusoids { width }, length * width)
            }
        };
        self.graph.op("Add", &[&x.name, &positions], [])
    }

    pub(super) fn layer_scale(&mut self, node: &LayerNode, x: &Value) -> String {
        let factors = self.parameter(node, "");
        self.graph.op("Mul", &[&x.name, &factors], [])
    }
}
