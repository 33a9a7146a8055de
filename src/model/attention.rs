//! Multi-head attention: the input projection, scaled dot-product attention, the output projection.

use super::params::{Param, uniform_fan_in};
use super::{Builder, Mode, START, Tensor};
use crate::config::LayerNode;
use crate::config::language::layers as cfg;
use crate::graph::op::{Attention, AttentionDropout, CachedAttention, Linear, Rotary};
use crate::graph::{DType, Fill, Shape, ValueId, VarKind, Variable};

/// `torch.nn.init.xavier_uniform_` (Glorot & Bengio 2010).
fn xavier_uniform(fan_in: usize, fan_out: usize) -> Fill {
    Fill::Uniform { bound: (6.0 / (fan_in + fan_out).max(1) as f64).sqrt() }
}

impl Builder<'_> {
    pub(super) fn multihead_attention(&mut self, node: &LayerNode, l: &cfg::MultiheadAttention, x: Tensor) -> ValueId {
        let x = self.in_pytorch_order(x);
        let shape = self.shape(x).clone();
        let (e, heads) = (shape.last(), l.num_heads);
        if shape.rank() != 3 {
            let (found, shape) = (if shape.rank() == 4 { "images" } else { "vectors" }, shape.to_pytorch());
            let message =
                format!("`multihead_attention` takes sequences, [N, L, E], but its input is {found} of shape {shape}");
            let help = if found == "images" {
                "\"flatten\" with `start_dim = 2` makes a sequence of an image: its channels, each with all pixels"
            } else {
                ""
            };
            self.refuse(node, &message, "takes sequences", &[x], help);
            return x.value;
        }
        if e % heads != 0 {
            let at = node.fields.get("num_heads").copied().unwrap_or(node.span);
            let message = format!("`multihead_attention` cannot split {e} features into {heads} heads");
            self.refuse_at(node, at, &message, &format!("must divide {e}"), &[x], "");
            return x.value;
        }
        // PyTorch draws this one by itself, the other as any `linear`; its biases start at zero.
        let packed = Param::plain("in_proj_weight", [3 * e, e], xavier_uniform(e, 3 * e));
        let qkv = self.projection(node, packed, "in_proj_bias", l.bias, x);
        let qkv = self.turned(node, l, qkv);
        if self.mode == Mode::Generate {
            let value = self.cached_attention(node, heads, qkv.value);
            let out = Param::plain("out_proj.weight", [e, e], uniform_fan_in(e));
            return self.projection(node, out, "out_proj.bias", l.bias, Tensor { value, ..qkv }).value;
        }
        let p = l.dropout as f32;
        let draws = self.draws(p);
        let lengths = self.lengths_of(shape.dims()[1]);
        let operands = [qkv.value].into_iter().chain(lengths).chain(draws.map(|(random, _)| random));
        let operands: Vec<ValueId> = operands.collect();
        let dropout = draws.map(|(_, stream)| AttentionDropout { p, stream });
        let op = Attention { heads, causal: l.is_causal, bias: false, lengths: lengths.is_some(), dropout };
        let value = self.apply(node, op, &operands, &[qkv], shape, "");
        let out = Param::plain("out_proj.weight", [e, e], uniform_fan_in(e));
        self.projection(node, out, "out_proj.bias", l.bias, Tensor { value, ..qkv }).value
    }

    /// Queries and keys turned by their positions, if that is asked for.
    fn turned(&mut self, node: &LayerNode, l: &cfg::MultiheadAttention, qkv: Tensor) -> Tensor {
        let Some(base) = l.rope_theta else { return qkv };
        let &[_, length, packed] = self.shape(qkv).dims() else { return qkv };
        let width = packed / 3 / l.num_heads;
        if !width.is_multiple_of(2) {
            let at = node.fields.get("rope_theta").copied().unwrap_or(node.span);
            let message = format!("`rope_theta` turns pairs of numbers, and heads have {width} here");
            self.refuse_at(node, at, &message, "needs heads of an even width", &[qkv], "");
            return qkv;
        }
        let generate = self.mode == Mode::Generate;
        let rows = if generate { self.capacity() } else { length };
        let name = format!("rotations[{rows}, {width}, {base}]");
        let table = self.constant(name, Shape::from([rows, width]), Fill::Rotations { width, base });
        let start = generate.then(|| self.given(START));
        let operands: Vec<ValueId> = [qkv.value, table].into_iter().chain(start).collect();
        let (heads, kv_heads) = (l.num_heads, l.num_heads);
        let value = self.plain(Rotary { heads, kv_heads, position: generate, back: false }, &operands);
        Tensor { value, ..qkv }
    }

    /// Attention to all positions before, whose keys and values are kept from run to run.
    fn cached_attention(&mut self, node: &LayerNode, heads: usize, qkv: ValueId) -> ValueId {
        let e = self.graph.shape(qkv).last() / 3;
        let cache = |of: &str| {
            let (name, shape) = (format!("{}.{of}", node.path), [self.batch, self.capacity(), e]);
            Variable::zeros(name, DType::F32, shape, VarKind::Kept)
        };
        let [keys, values] = ["keys", "values"].map(cache);
        let [keys, values] = [keys, values].map(|variable| {
            let id = self.vars.get_or_add(variable);
            self.graph.variable(self.vars, id)
        });
        let start = self.given(START);
        self.plain(CachedAttention { heads, kv_heads: heads }, &[qkv, keys, values, start])
    }

    /// `x` times `weight`, and plus the parameter `bias`, if there is to be one.
    pub(super) fn projection(
        &mut self,
        node: &LayerNode,
        weight: Param,
        bias: &str,
        with_bias: bool,
        x: Tensor,
    ) -> Tensor {
        let outputs = weight.shape.dims()[0];
        let mut meant = self.shape(x).clone();
        *meant.0.last_mut().expect("sequences have three dimensions") = outputs;
        let mut operands = vec![x.value, self.param(node, weight)];
        if with_bias {
            operands.push(self.param(node, Param::plain(bias, [outputs], Fill::Constant(0.0))));
        }
        let value = self.apply(node, Linear { bias: with_bias }, &operands, &[x], meant, "");
        Tensor { value, ..x }
    }
}
