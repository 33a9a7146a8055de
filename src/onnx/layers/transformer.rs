//! Attention, and what else transformers have.

use crate::config::language::layers::{
    MultiheadAttention, PoolMode, PositionEmbedding, PositionKind, ScaledDotProductAttention, TokenTypeEmbedding,
};
use crate::config::{Diagnostic, LayerNode};
use crate::data::{Field, FieldKind};
use crate::graph::op::alibi_slope;
use crate::graph::{Angles, Fill, Scaling};
use crate::model::rope;
use crate::onnx::graph::{Graph, int};
use crate::onnx::proto::{self, DataType};
use crate::onnx::{Translator, Value, internal};
use std::collections::{HashMap, HashSet};

/// The sequence with the queries, and that with the keys and values, which may be the same.
fn both<'a>(node: &LayerNode, operands: &'a [Value]) -> Result<(&'a Value, &'a Value), Diagnostic> {
    operands.first().zip(operands.last()).ok_or_else(|| internal(format!("`{}` has no input", node.path)))
}

/// How queries, keys and values meet.
struct Heads {
    heads: usize,
    kv_heads: usize,
    /// The width of a head.
    each: usize,
    /// Positions of queries, and of keys.
    lengths: [usize; 2],
    causal: bool,
    /// What angles grow with, if heads are turned.
    base: Option<(f64, Scaling)>,
    window: Option<usize>,
    alibi: bool,
}

impl Heads {
    /// What is added to the score of two positions in head `h`.
    fn added(&self, h: usize, i: usize, j: usize) -> f32 {
        let hidden = self.causal && j > i || self.window.is_some_and(|window| i.abs_diff(j) >= window);
        match (hidden, self.alibi) {
            (true, _) => f32::NEG_INFINITY,
            (false, true) => -(alibi_slope(self.heads, h) * i.abs_diff(j) as f64) as f32,
            (false, false) => 0.0,
        }
    }
}

impl Translator<'_> {
    pub(super) fn multihead_attention(
        &mut self,
        node: &LayerNode,
        l: &MultiheadAttention,
        operands: &[Value],
    ) -> Result<String, Diagnostic> {
        let (x, keys) = both(node, operands)?;
        let (width, heads) = (x.shape[2], l.num_heads);
        let how = Heads {
            heads,
            kv_heads: l.num_kv_heads.unwrap_or(heads),
            each: width / heads,
            lengths: [x.shape[1], keys.shape[1]],
            causal: l.is_causal,
            base: rope(l.rope_theta, l.rope_scaling.as_ref()),
            window: l.sliding_window,
            alibi: l.alibi,
        };
        let bias = l.bias.then(|| self.parameter(node, "in_proj_bias"));
        let parts = if how.kv_heads < heads {
            let narrow = how.kv_heads * how.each;
            let mut part = |of: &Value, name: &str, from: usize, len: usize| {
                let weight = self.parameter(node, name);
                let bias = bias.as_ref().map(|all| self.graph.slice(all, 0, from, from + len));
                self.product(&of.name, &weight, bias.as_deref())
            };
            [
                part(x, "q_proj_weight", 0, width),
                part(keys, "k_proj_weight", width, narrow),
                part(keys, "v_proj_weight", width + narrow, narrow),
            ]
        } else {
            self.packed_parts(node, bias.as_ref(), operands, &how)?
        };
        let joined = self.attended(parts, &keys.name, &how);
        let weight = self.parameter(node, "out_proj.weight");
        let bias = l.bias.then(|| self.parameter(node, "out_proj.bias"));
        Ok(self.product(&joined, &weight, bias.as_deref()))
    }

    /// Queries, keys and values by one weight.
    fn packed_parts(
        &mut self,
        node: &LayerNode,
        bias: Option<&String>,
        operands: &[Value],
        how: &Heads,
    ) -> Result<[String; 3], Diagnostic> {
        let (x, memory) = both(node, operands)?;
        let (weight, width) = (self.parameter(node, "in_proj_weight"), x.shape[2]);
        if operands.len() == 1 {
            let packed = self.product(&x.name, &weight, bias.map(String::as_str));
            return Ok(self.apart(None, &packed, how));
        }
        let mut part = |of: &Value, from: usize, to: usize| {
            let bias = bias.map(|all| self.graph.slice(all, 0, from, to));
            let weight = self.graph.slice(&weight, 0, from, to);
            self.product(&of.name, &weight, bias.as_deref())
        };
        let [q, kv] = [part(x, 0, width), part(memory, width, 3 * width)];
        Ok(self.apart(Some(q), &kv, how))
    }

    pub(super) fn scaled_dot_product_attention(
        &mut self,
        node: &LayerNode,
        l: &ScaledDotProductAttention,
        operands: &[Value],
    ) -> Result<String, Diagnostic> {
        let (x, keys) = both(node, operands)?;
        let (heads, kv_heads) = (l.num_heads, l.num_kv_heads.unwrap_or(l.num_heads));
        let apart = operands.len() == 2;
        let how = Heads {
            heads,
            kv_heads,
            each: x.shape[2] / (heads + if apart { 0 } else { 2 * kv_heads }),
            lengths: [x.shape[1], keys.shape[1]],
            causal: l.is_causal,
            base: rope(l.rope_theta, l.rope_scaling.as_ref()),
            window: l.sliding_window,
            alibi: l.alibi,
        };
        let parts = self.apart(apart.then(|| x.name.clone()), &keys.name, &how);
        Ok(self.attended(parts, &keys.name, &how))
    }

    /// Queries, keys and values, which lie side by side in `packed`, the queries unless they are `q`.
    fn apart(&mut self, q: Option<String>, packed: &str, how: &Heads) -> [String; 3] {
        let all = [how.heads, how.kv_heads, how.kv_heads].map(|heads| (heads * how.each) as i64);
        let widths = self.graph.list(if q.is_some() { &all[1..] } else { &all });
        match q {
            Some(q) => {
                let [k, v] = self.graph.ops("Split", &[packed, &widths], [int("axis", 2)]);
                [q, k, v]
            }
            None => self.graph.ops("Split", &[packed, &widths], [int("axis", 2)]),
        }
    }

    /// Attention of queries to keys, and what it takes of the values. `keys` are what the keys come of.
    fn attended(&mut self, [q, k, v]: [String; 3], keys: &str, how: &Heads) -> String {
        let &Heads { heads, kv_heads, each, lengths: [queries, length], base, .. } = how;
        // [N, L, E] as [N, heads, L, E / heads], the keys transposed.
        let q = self.head(&q, how, (queries, heads, base), &[0, 2, 1, 3]);
        let k = self.head(&k, how, (length, kv_heads, base), &[0, 2, 3, 1]);
        let v = self.head(&v, how, (length, kv_heads, None), &[0, 2, 1, 3]);
        let q = self.graph.with_scalar("Mul", &q, 1.0 / (each as f32).sqrt());
        let mut scores = self.graph.op("MatMul", &[&q, &k], []);
        if how.causal || how.window.is_some() || how.alibi {
            // Without slopes it is the same for all heads.
            let of_heads = if how.alibi { heads } else { 1 };
            let square = length * length;
            let added = |at: usize| how.added(at / square, at % square / length, at % length);
            let added: Vec<f32> = (0..of_heads * square).map(added).collect();
            let dims = if how.alibi { vec![heads, length, length] } else { vec![length, length] };
            let added = self.graph.floats(&dims, &added);
            scores = self.graph.op("Add", &[&scores, &added], []);
        }
        if let Some(lengths) = self.lengths(keys) {
            // What fills a batch is not seen.
            let (seen, _) = self.seen(&lengths, &[0, 1, 1, 1], length, 0.0);
            let hidden = self.graph.floats(&[1], &[f32::NEG_INFINITY]);
            scores = self.graph.op("Where", &[&seen, &scores, &hidden], []);
        }
        let shares = self.graph.op("Softmax", &[&scores], [int("axis", -1)]);
        let mixed = self.graph.op("MatMul", &[&shares, &v], []);
        let joined = self.permuted(&mixed, &[0, 2, 1, 3]);
        self.graph.reshape(&joined, &[0, queries, heads * each])
    }

    /// The heads of queries, keys or values, turned by their positions if there is a `base`, in the order `dims`. Those that several heads of queries
    /// share are repeated.
    fn head(
        &mut self,
        x: &str,
        how: &Heads,
        (length, own, base): (usize, usize, Option<(f64, Scaling)>),
        dims: &[usize],
    ) -> String {
        let &Heads { heads, each, .. } = how;
        let mut x = self.graph.reshape(x, &[0, length, own, each]);
        if let Some(base) = base {
            x = self.turned(&x, [length, each], base);
        }
        if own < heads {
            let apart = self.graph.reshape(&x, &[0, length, own, 1, each]);
            let times = self.graph.list(&[1, 1, 1, (heads / own) as i64, 1]);
            let all = self.graph.op("Tile", &[&apart, &times], []);
            x = self.graph.reshape(&all, &[0, length, heads, each]);
        }
        self.permuted(&x, dims)
    }

    /// Heads `[N, L, heads, d]` turned by their positions.
    fn turned(&mut self, x: &str, [length, width]: [usize; 2], (base, scaling): (f64, Scaling)) -> String {
        let half = width / 2;
        let angles = Angles { width, base, scaling };
        let angle = |i: usize| angles.at(i / width, i % half);
        let table = |of: fn(f64) -> f64| (0..length * width).map(|i| of(angle(i)) as f32).collect::<Vec<f32>>();
        let [cos, sin] = [table(f64::cos), table(f64::sin)].map(|t| self.graph.floats(&[1, length, 1, width], &t));
        let [first, second] = [(0, half), (half, width)].map(|(from, to)| self.graph.slice(x, 3, from, to));
        let minus = self.graph.op("Neg", &[&second], []);
        let across = self.graph.op("Concat", &[&minus, &first], [int("axis", 3)]);
        let [along, across] = [(x, &cos), (&across, &sin)].map(|(x, by)| self.graph.op("Mul", &[x, by], []));
        self.graph.op("Add", &[&along, &across], [])
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
            (PositionKind::Sinusoidal, most) => {
                let [length, width] = [x.shape[1], x.shape[2]];
                let most = most.unwrap_or(length);
                let all = self.constant(Fill::Sinusoids { width }, most * width);
                if most > length { self.graph.slice(&all, 1, 0, length) } else { all }
            }
        };
        self.graph.op("Add", &[&x.name, &positions], [])
    }

    /// The vector of the first type, `[1, E]`, is added to all positions.
    pub(super) fn token_type_embedding(&mut self, node: &LayerNode, l: &TokenTypeEmbedding, x: &Value) -> String {
        let all = self.parameter(node, "weight");
        let first = self.graph.slice(&all, 0, 0, 1);
        let starts = self.source.data.inputs().find(|(_, field)| field.kind == FieldKind::PairStart);
        let starts = starts.filter(|_| l.num_embeddings > 1);
        let types = match starts.map(|(_, field)| field.name.clone()) {
            None => first,
            Some(starts) => {
                let second = self.graph.slice(&all, 0, 1, 2);
                let (of_first, _) = self.seen(&starts, &[0, 1, 1], x.shape[1], 0.0);
                self.graph.op("Where", &[&of_first, &first, &second], [])
            }
        };
        self.graph.op("Add", &[&x.name, &types], [])
    }

    pub(super) fn sequence_pool(&mut self, mode: PoolMode, x: &Value) -> String {
        let [length, width] = [x.shape[1], x.shape[2]];
        let axes = self.graph.list(&[1]);
        let over = |graph: &mut Graph, op: &str, x: &str| graph.op(op, &[x, &axes], [int("keepdims", 1)]);
        let one = match (mode, self.lengths(&x.name)) {
            (PoolMode::First, _) => return self.one_position(x, 0),
            (PoolMode::Last, None) => return self.one_position(x, length - 1),
            (PoolMode::Mean, None) => over(&mut self.graph, "ReduceMean", &x.name),
            (PoolMode::Max, None) => over(&mut self.graph, "ReduceMax", &x.name),
            (PoolMode::Max, Some(lengths)) => {
                let (seen, _) = self.seen(&lengths, &[0, 1, 1], length, 0.0);
                let hidden = self.graph.floats(&[1], &[f32::NEG_INFINITY]);
                let own = self.graph.op("Where", &[&seen, &x.name, &hidden], []);
                over(&mut self.graph, "ReduceMax", &own)
            }
            (PoolMode::Sum, None) => over(&mut self.graph, "ReduceSum", &x.name),
            (PoolMode::Sum, Some(lengths)) => {
                let (seen, _) = self.seen(&lengths, &[0, 1, 1], length, 0.0);
                let nothing = self.graph.floats(&[1], &[0.0]);
                let own = self.graph.op("Where", &[&seen, &x.name, &nothing], []);
                over(&mut self.graph, "ReduceSum", &own)
            }
            (PoolMode::Mean, Some(lengths)) => {
                let (seen, lengths) = self.seen(&lengths, &[0, 1, 1], length, 0.0);
                let nothing = self.graph.floats(&[1], &[0.0]);
                let own = self.graph.op("Where", &[&seen, &x.name, &nothing], []);
                let sum = over(&mut self.graph, "ReduceSum", &own);
                self.graph.op("Div", &[&sum, &lengths], [])
            }
            (PoolMode::Last, Some(lengths)) => {
                // Of the positions of a text the one that has no other after it.
                let (own, _) = self.seen(&lengths, &[0, 1, 1], length, 0.0);
                let (others, _) = self.seen(&lengths, &[0, 1, 1], length, 1.0);
                let last = self.graph.op("Xor", &[&own, &others], []);
                let nothing = self.graph.floats(&[1], &[0.0]);
                let own = self.graph.op("Where", &[&last, &x.name, &nothing], []);
                over(&mut self.graph, "ReduceSum", &own)
            }
        };
        self.graph.reshape(&one, &[0, width])
    }

    /// Whether each position is one of a text's, and the lengths of texts as floats, in a shape that stretches; as if positions were so much later.
    fn seen(&mut self, lengths: &str, shape: &[usize], length: usize, later: f32) -> (String, String) {
        let positions: Vec<f32> = (0..length).map(|position| position as f32 + later).collect();
        // Positions stand in the second dimension of three, and in the last of four.
        let stretched = if shape.len() == 3 { vec![1, length, 1] } else { vec![1, 1, 1, length] };
        let positions = self.graph.floats(&stretched, &positions);
        let lengths = self.graph.op("Cast", &[lengths], [int("to", DataType::Float as i64)]);
        let lengths = self.graph.reshape(&lengths, shape);
        (self.graph.op("Less", &[&positions, &lengths], []), lengths)
    }

    /// The input with the lengths of samples, where they differ and the sequence `x` has their positions.
    pub(super) fn lengths(&self, x: &str) -> Option<String> {
        let field = self.source.data.inputs().find(|(_, field)| field.kind == FieldKind::Length);
        field.filter(|_| !self.is_of_another_length(x)).map(|(_, field)| field.name.clone())
    }

    /// Whether the positions of a sequence are those of an input that is of another length than number 0, which the samples' lengths are of. They come from
    /// the first operand that comes from an input.
    fn is_of_another_length(&self, x: &str) -> bool {
        let others = |field: &Field| !field.lengths.is_empty() && field.lengths.iter().all(|length| length.number != 0);
        let others: Vec<&str> = self
            .source
            .data
            .inputs()
            .filter(|(_, field)| others(field))
            .map(|(_, field)| field.name.as_str())
            .collect();
        if others.is_empty() {
            return false;
        }
        let nodes = &self.graph.nodes;
        let made: HashMap<&str, &proto::Node> =
            nodes.iter().flat_map(|node| node.output.iter().map(move |name| (name.as_str(), node))).collect();
        let (mut open, mut seen) = (vec![x], HashSet::new());
        while let Some(name) = open.pop() {
            if self.inputs.iter().any(|input| input.name() == name) {
                return others.contains(&name);
            }
            if let Some(node) = made.get(name).filter(|_| seen.insert(name)) {
                open.extend(node.input.iter().rev().map(String::as_str));
            }
        }
        false
    }

    /// The vector of one position.
    fn one_position(&mut self, x: &Value, at: usize) -> String {
        let one = self.graph.slice(&x.name, 1, at, at + 1);
        self.graph.reshape(&one, &[0, x.shape[2]])
    }

    pub(super) fn layer_scale(&mut self, node: &LayerNode, x: &Value) -> String {
        let factors = self.parameter(node, "");
        self.graph.op("Mul", &[&x.name, &factors], [])
    }
}
