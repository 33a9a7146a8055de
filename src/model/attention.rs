//! Multi-head attention: the input projection, scaled dot-product attention, the output projection.

use super::params::{Param, uniform_fan_in};
use super::{Builder, Tensor};
use crate::config::LayerNode;
use crate::config::language::layers as cfg;
use crate::graph::op::{Attention, AttentionDropout, Linear};
use crate::graph::{Fill, ValueId};

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
        let p = l.dropout as f32;
        let draws = self.draws(p);
        let operands: Vec<ValueId> = [qkv.value].into_iter().chain(draws.map(|(random, _)| random)).collect();
        let dropout = draws.map(|(_, stream)| AttentionDropout { p, stream });
        let op = Attention { heads, causal: l.is_causal, bias: false, lengths: false, dropout };
        let value = self.apply(node, op, &operands, &[qkv], shape, "");
        let out = Param::plain("out_proj.weight", [e, e], uniform_fan_in(e));
        self.projection(node, out, "out_proj.bias", l.bias, Tensor { value, ..qkv }).value
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
