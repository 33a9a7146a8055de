//! Multi-head attention: the input projection, scaled dot-product attention, the output projection. Of one sequence, or of one to another.

use super::params::{Param, uniform_fan_in};
use super::{Builder, START, STARTS, TURN, Tensor};
use crate::config::LayerNode;
use crate::config::language::layers::{self as cfg, RopeType};
use crate::graph::op::{
    Attention, AttentionDropout, Binary, BinaryKind, CachedAttention, Concat, Embedding, Linear, NewFull, Reshape,
    Rotary, Slice,
};
use crate::graph::{Angles, DType, Fill, Scaling, Shape, ValueId, VarKind, Variable};

/// `torch.nn.init.xavier_uniform_` (Glorot & Bengio 2010).
fn xavier_uniform(fan_in: usize, fan_out: usize) -> Fill {
    Fill::Uniform { bound: (6.0 / (fan_in + fan_out).max(1) as f64).sqrt() }
}

/// How packed queries, keys and values meet.
#[derive(Clone, Copy)]
struct Heads {
    heads: usize,
    kv_heads: usize,
    dropout: f32,
    causal: bool,
    rope: Option<(f64, Scaling)>,
    window: Option<usize>,
    alibi: bool,
}

/// What angles grow with and how they are scaled, if heads are turned.
pub fn rope(theta: Option<f64>, scaling: Option<&cfg::RopeScaling>) -> Option<(f64, Scaling)> {
    let scaled = scaling.and_then(|scaling| {
        let factor = scaling.factor?;
        Some(match scaling.rope_type {
            RopeType::Default => Scaling::None,
            RopeType::Linear => Scaling::Linear { factor },
            RopeType::Llama3 => Scaling::Llama3 {
                factor,
                low: scaling.low_freq_factor?,
                high: scaling.high_freq_factor?,
                positions: scaling.original_max_position_embeddings? as f64,
            },
        })
    });
    Some((theta?, scaled.unwrap_or(Scaling::None)))
}

impl Builder<'_> {
    pub(super) fn multihead_attention(
        &mut self,
        node: &LayerNode,
        l: &cfg::MultiheadAttention,
        operands: &[Tensor],
    ) -> ValueId {
        let operands: Vec<Tensor> = operands.iter().map(|x| self.in_pytorch_order(*x)).collect();
        let x = operands[0];
        if !operands.iter().all(|x| self.is_sequence(node, *x)) {
            return x.value;
        }
        let (e, heads) = (self.shape(x).last(), l.num_heads);
        if e % heads != 0 {
            let at = node.fields.get("num_heads").copied().unwrap_or(node.span);
            let message = format!("`multihead_attention` cannot split {e} features into {heads} heads");
            self.refuse_at(node, at, &message, &format!("must divide {e}"), &[x], "");
            return x.value;
        }
        let kv_heads = l.num_kv_heads.unwrap_or(heads);
        let how = Heads {
            heads,
            kv_heads,
            dropout: l.dropout as f32,
            causal: l.is_causal,
            rope: rope(l.rope_theta, l.rope_scaling.as_ref()),
            window: l.sliding_window,
            alibi: l.alibi,
        };
        if let [x, memory] = operands[..] {
            if !self.knows_two(node, how, [x, memory]) {
                return x.value;
            }
            let width = self.shape(memory).last();
            if width != e {
                let message = format!(
                    "`multihead_attention` takes a second sequence of as many features as the first has, {e}, not {width}"
                );
                let help = format!("a `linear` with `out_features = {e}` before it makes as many");
                self.refuse(node, &message, "takes two sequences of one width", &[x, memory], &help);
                return x.value;
            }
        }
        let like = x;
        // PyTorch draws these by themselves, the other as any `linear`; its biases start at zero.
        let packed = || Param::plain("in_proj_weight", [3 * e, e], xavier_uniform(e, 3 * e));
        let value = match operands[..] {
            _ if kv_heads < heads => {
                let memory = *operands.last().expect("a layer has an input");
                let [q, k, v] =
                    self.projections_of_groups(node, e, kv_heads * (e / heads), l.bias, [x, memory, memory]);
                match operands.len() {
                    1 => {
                        let value = self.plain(Concat { axis: 2 }, &[q.value, k.value, v.value]);
                        self.attended(node, how, Tensor { value, ..q })
                    }
                    _ => {
                        let value = self.plain(Concat { axis: 2 }, &[k.value, v.value]);
                        self.attended_to(node, how, q, Tensor { value, ..k })
                    }
                }
            }
            [x, memory] => {
                let [q, kv] = self.projections(node, packed(), l.bias, [x, memory]);
                self.attended_to(node, how, q, kv)
            }
            _ => {
                let qkv = self.projection(node, packed(), "in_proj_bias", l.bias, x);
                self.attended(node, how, qkv)
            }
        };
        let out = Param::plain("out_proj.weight", [e, e], uniform_fan_in(e));
        self.projection(node, out, "out_proj.bias", l.bias, Tensor { value, ..like }).value
    }

    /// Whether `x` is a sequence, as `multihead_attention` takes it; says so otherwise.
    fn is_sequence(&mut self, node: &LayerNode, x: Tensor) -> bool {
        let shape = self.shape(x).clone();
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
        }
        shape.rank() == 3
    }

    /// Whether all that is asked for has a meaning between two sequences; says so otherwise.
    fn knows_two(&mut self, node: &LayerNode, how: Heads, from: [Tensor; 2]) -> bool {
        let asked = [
            ("is_causal", how.causal),
            ("rope_theta", how.rope.is_some()),
            ("sliding_window", how.window.is_some()),
            ("alibi", how.alibi),
        ];
        for (key, _) in asked.iter().filter(|(_, asked)| *asked) {
            let at = node.fields.get(*key).copied().unwrap_or(node.span);
            let message =
                format!("`{key}` is of the positions of one sequence, and `{}` takes two here", node.kind_name());
            self.refuse_at(node, at, &message, "has no meaning between two sequences", &from, "leave it out");
        }
        asked.iter().all(|(_, asked)| !asked)
    }

    pub(super) fn scaled_dot_product_attention(
        &mut self,
        node: &LayerNode,
        l: &cfg::ScaledDotProductAttention,
        operands: &[Tensor],
    ) -> ValueId {
        let operands: Vec<Tensor> = operands.iter().map(|x| self.in_pytorch_order(*x)).collect();
        let x = operands[0];
        let Some([n, length, packed]) = self.sequence_shape(node, x) else { return x.value };
        let (heads, kv_heads) = (l.num_heads, l.num_kv_heads.unwrap_or(l.num_heads));
        let how = Heads {
            heads,
            kv_heads,
            dropout: l.dropout as f32,
            causal: l.is_causal,
            rope: rope(l.rope_theta, l.rope_scaling.as_ref()),
            window: l.sliding_window,
            alibi: l.alibi,
        };
        if let [q, kv] = operands[..] {
            let Some([_, _, keys]) = self.sequence_shape(node, kv) else { return q.value };
            if !self.knows_two(node, how, [q, kv]) {
                return q.value;
            }
            if packed % heads != 0 || keys != packed / heads * 2 * kv_heads {
                let message = format!(
                    "`scaled_dot_product_attention` cannot split {packed} numbers into queries of {heads} heads, and {keys} into keys and values of {kv_heads} heads of their width"
                );
                let help = "of two inputs the first has the queries of all heads, and the second the keys and the values of theirs, side by side";
                self.refuse(node, &message, "does not fit its inputs", &[q, kv], help);
                return q.value;
            }
            return self.attended_to(node, how, q, kv);
        }
        let all = heads + 2 * kv_heads;
        if packed % all != 0 {
            let message = format!(
                "`scaled_dot_product_attention` cannot split {packed} numbers into queries of {heads} heads, and keys and values of {kv_heads}"
            );
            let help = "queries, keys and values come side by side: `out_features` of the `linear` before is the number of all of these heads times the width of one";
            self.refuse(node, &message, &format!("must be divided by {all}"), &[x], help);
            return self.guess(Shape::from([n, length, packed / all.max(1) * heads]));
        }
        self.attended(node, how, x)
    }

    /// Attention of packed queries, keys and values.
    fn attended(&mut self, node: &LayerNode, how: Heads, qkv: Tensor) -> ValueId {
        let qkv = self.turned(node, how, qkv);
        if self.goes_on(qkv.value) {
            return self.cached_attention(node, how, qkv.value);
        }
        let qkv = Tensor { value: self.with_own_keys(how, how.heads, qkv.value), ..qkv };
        let mut meant = self.shape(qkv).clone();
        *meant.0.last_mut().expect("sequences have three dimensions") /= 3;
        let Heads { heads, causal, window, alibi, .. } = how;
        let op = Attention { heads, causal, window, alibi, ..Attention::default() };
        self.dropped_attention(node, op, how.dropout, &[qkv], meant)
    }

    /// Attention of queries to the packed keys and values of another sequence.
    fn attended_to(&mut self, node: &LayerNode, how: Heads, q: Tensor, kv: Tensor) -> ValueId {
        let (kv, meant) = (Tensor { value: self.with_own_keys(how, 0, kv.value), ..kv }, self.shape(q).clone());
        let op = Attention { heads: how.heads, between: true, ..Attention::default() };
        self.dropped_attention(node, op, how.dropout, &[q, kv], meant)
    }

    /// Attention with the lengths of the keys, if samples have lengths, and with dropout.
    fn dropped_attention(&mut self, node: &LayerNode, op: Attention, p: f32, of: &[Tensor], meant: Shape) -> ValueId {
        let (draws, keys) = (self.draws(p), of[of.len() - 1]);
        let lengths = self.lengths_of(keys.value);
        let operands = of.iter().map(|x| x.value).chain(lengths).chain(draws.map(|(random, _)| random));
        let operands: Vec<ValueId> = operands.collect();
        let dropout = draws.map(|(_, stream)| AttentionDropout { p, stream });
        self.apply(node, Attention { lengths: lengths.is_some(), dropout, ..op }, &operands, of, meant, "")
    }

    /// Queries of the first sequence, and keys and values of the second, by a packed weight.
    fn projections(&mut self, node: &LayerNode, packed: Param, bias: bool, from: [Tensor; 2]) -> [Tensor; 2] {
        let e = packed.shape.dims()[1];
        let weight = self.param(node, packed);
        let bias = self.in_proj_bias(node, bias, 3 * e);
        let mut at = 0;
        from.map(|x| {
            let len = if at == 0 { e } else { 2 * e };
            let rows = Slice { axis: 0, start: at, len };
            at += len;
            let weight = self.plain(rows.clone(), &[weight]);
            self.projected(node, x, weight, bias.map(|bias| (bias, rows)))
        })
    }

    /// Queries of the first sequence, and keys and values of the others, which are narrower: each by a weight of its own, as PyTorch has them where
    /// keys have another width than queries. Their biases are one.
    fn projections_of_groups(
        &mut self,
        node: &LayerNode,
        e: usize,
        narrow: usize,
        bias: bool,
        from: [Tensor; 3],
    ) -> [Tensor; 3] {
        let names = ["q_proj_weight", "k_proj_weight", "v_proj_weight"];
        let bias = self.in_proj_bias(node, bias, e + 2 * narrow);
        let mut at = 0;
        std::array::from_fn(|i| {
            let len = if i == 0 { e } else { narrow };
            let rows = Slice { axis: 0, start: at, len };
            at += len;
            let weight = self.param(node, Param::plain(names[i], [len, e], xavier_uniform(e, len)));
            self.projected(node, from[i], weight, bias.map(|bias| (bias, rows)))
        })
    }

    /// The bias of queries, keys and values, if there is to be one.
    fn in_proj_bias(&mut self, node: &LayerNode, bias: bool, len: usize) -> Option<ValueId> {
        bias.then(|| self.param(node, Param::plain("in_proj_bias", [len], Fill::Constant(0.0))))
    }

    /// `x` times `weight`, and plus a part of a bias.
    fn projected(&mut self, node: &LayerNode, x: Tensor, weight: ValueId, bias: Option<(ValueId, Slice)>) -> Tensor {
        let mut meant = self.shape(x).clone();
        *meant.0.last_mut().expect("sequences have three dimensions") = self.graph.shape(weight).dims()[0];
        let bias = bias.map(|(bias, part)| self.plain(part, &[bias]));
        let operands: Vec<ValueId> = [x.value, weight].into_iter().chain(bias).collect();
        Tensor { value: self.apply(node, Linear { bias: bias.is_some() }, &operands, &[x], meant, ""), ..x }
    }

    /// Packed heads, `queries` of them of queries, in which every head of queries has keys and values of its own: those that several share are repeated.
    fn with_own_keys(&mut self, how: Heads, queries: usize, packed: ValueId) -> ValueId {
        let Heads { heads, kv_heads, .. } = how;
        if heads == kv_heads {
            return packed;
        }
        let &[n, length, all] = self.graph.shape(packed).dims() else { return packed };
        let width = all / (queries + 2 * kv_heads);
        let part = |from: &mut Self, start: usize, len: usize| {
            from.plain(Slice { axis: 2, start: start * width, len: len * width }, &[packed])
        };
        let queries_alone = (queries > 0).then(|| part(self, 0, queries));
        let zeros = self.plain(NewFull { shape: Shape::from([1, 1, heads / kv_heads, 1]), value: 0.0 }, &[packed]);
        let shared = [queries, queries + kv_heads].map(|start| {
            let some = part(self, start, kv_heads);
            let some = self.plain(Reshape { shape: Shape::from([n * length, kv_heads, 1, width]) }, &[some]);
            // A sum with zeros stretches it.
            let all = self.plain(Binary { kind: BinaryKind::Add }, &[some, zeros]);
            self.plain(Reshape { shape: Shape::from([n, length, heads * width]) }, &[all])
        });
        let parts: Vec<ValueId> = queries_alone.into_iter().chain(shared).collect();
        self.plain(Concat { axis: 2 }, &parts)
    }

    /// Queries and keys turned by their positions, if that is asked for.
    fn turned(&mut self, node: &LayerNode, how: Heads, qkv: Tensor) -> Tensor {
        let Heads { heads, kv_heads, rope: Some((base, scaling)), .. } = how else { return qkv };
        let &[_, length, packed] = self.shape(qkv).dims() else { return qkv };
        let width = packed / (heads + 2 * kv_heads);
        if !width.is_multiple_of(2) {
            let at = node.fields.get("rope_theta").copied().unwrap_or(node.span);
            let message = format!("`rope_theta` turns pairs of numbers, and heads have {width} here");
            self.refuse_at(node, at, &message, "needs heads of an even width", &[qkv], "");
            return qkv;
        }
        let generate = self.goes_on(qkv.value);
        let rows = if generate { self.capacity() } else { length };
        // Layers that need the same ones share them.
        let scaled = if scaling == Scaling::None { String::new() } else { format!(", {scaling:?}") };
        let name = format!("rotations[{rows}, {width}, {base}{scaled}]");
        let angles = Fill::Rotations(Angles { width, base, scaling });
        let table = self.constant(name, Shape::from([rows, width]), angles);
        let start = generate.then(|| self.given(START));
        let operands: Vec<ValueId> = [qkv.value, table].into_iter().chain(start).collect();
        let value = self.plain(Rotary { heads, kv_heads, position: generate, back: false }, &operands);
        Tensor { value, ..qkv }
    }

    /// Attention to all positions before, whose keys and values are kept from run to run.
    ///
    /// Of several texts each has caches of its own, side by side. All are handed to the operation, and those whose turn it is not start so far before the first
    /// position that nothing is kept or seen: they cost next to nothing. So one program serves each of them in turn; and another one, of as many samples as
    /// there are texts, serves those together that add a token.
    fn cached_attention(&mut self, node: &LayerNode, how: Heads, qkv: ValueId) -> ValueId {
        let Heads { heads, kv_heads, window, alibi, .. } = how;
        let &[samples, length, packed] = self.graph.shape(qkv).dims() else { return qkv };
        let starts = self.found(STARTS).map(|starts| (starts, self.graph.shape(starts).last()));
        let width = packed / (heads + 2 * kv_heads);
        let texts = starts.map_or(samples, |(_, texts)| texts);
        let cache = |of: &str| {
            let (name, shape) = (format!("{}.{of}", node.path), [texts, self.capacity(), kv_heads * width]);
            Variable::zeros(name, DType::F32, shape, VarKind::Kept)
        };
        let [keys, values] = ["keys", "values"].map(cache);
        let [keys, values] = [keys, values].map(|variable| {
            let id = self.vars.get_or_add(variable);
            let kept = self.graph.variable(self.vars, id);
            self.come_from_parents(kept, length);
            kept
        });
        let op = CachedAttention { heads, kv_heads, window, alibi };
        let Some((starts, _)) = starts else {
            let start = self.given(START);
            return self.plain(op, &[qkv, keys, values, start]);
        };
        // Of all samples the first says it.
        let starts = self.plain(Slice { axis: 0, start: 0, len: 1 }, &[starts]);
        let starts = self.plain(Reshape { shape: Shape::from([texts]) }, &[starts]);
        if samples == texts {
            return self.plain(op, &[qkv, keys, values, starts]);
        }
        let zeros = self.plain(NewFull { shape: Shape::from([texts, 1, 1]), value: 0.0 }, &[qkv]);
        // A sum with zeros stretches it.
        let all = self.plain(Binary { kind: BinaryKind::Add }, &[qkv, zeros]);
        let all = self.plain(op, &[all, keys, values, starts]);
        let e = heads * width;
        let all = self.plain(Reshape { shape: Shape::from([texts, length * e]) }, &[all]);
        let turn = self.given(TURN);
        let one = self.plain(Embedding::default(), &[all, turn]);
        self.plain(Reshape { shape: Shape::from([1, length, e]) }, &[one])
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
