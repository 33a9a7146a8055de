//! Tokens as vectors, and the numbers that mark their positions.

use super::params::Param;
use super::{AT, Builder, Mode, PARENTS, POSITIONS, Tensor};
use crate::config::declare::part::with_suggestion;
use crate::config::language::layers::{self as cfg, Layer, PoolMode, PositionKind};
use crate::config::text::spelling::shorten;
use crate::config::{Diagnostic, LayerNode};
use crate::data::{ANSWERS, Field, FieldKind, Lengths};
use crate::graph::op::{
    Activation, ActivationOp, AdaptiveAvgPool2d, AdaptiveMaxPool2d, Binary, BinaryKind, Embedding, KeepState, NewFull,
    Reshape, Slice, SumTo,
};
use crate::graph::{Counting, DType, Fill, Input, MAX_ELEMENTS, Node, Role, Shape, ValueId, VarKind};
use std::collections::{HashMap, HashSet};

pub(super) const ADD: Binary = Binary { kind: BinaryKind::Add };
pub(super) const MUL: Binary = Binary { kind: BinaryKind::Mul };

/// A normal distribution around 0, or 0.
pub(super) fn normal(std: f64) -> Fill {
    if std == 0.0 { Fill::Constant(0.0) } else { Fill::Normal { mean: 0.0, std } }
}

impl Builder<'_> {
    pub(super) fn embedding(&mut self, node: &LayerNode, l: &cfg::Embedding, x: Tensor) -> ValueId {
        let shape = self.shape(x).clone();
        let mut meant = shape.clone();
        meant.0.push(l.embedding_dim);
        if self.graph.value(x.value).dtype != DType::I32 {
            if !self.guesses.contains(&x.value) {
                let message = {
                    let (name, shape) = (node.kind_name(), self.dims(x));
                    format!("`{name}` takes tokens, but its input is numbers of shape {shape}")
                };
                let help =
                    "tokens come from `source = \"text\"` and `source = \"tokens\"`; `linear` makes vectors of numbers";
                self.refuse(node, &message, "takes tokens", &[x], help);
            }
            return self.guess(meant);
        }
        let tokens = self.data.inputs().filter_map(|(_, field)| field.kind.classes()).map(|tokens| tokens.number).max();
        if let Some(tokens) = tokens.filter(|tokens| *tokens > l.num_embeddings) {
            let at = node.fields.get("num_embeddings").copied().unwrap_or(node.span);
            let (name, own) = (node.kind_name(), l.num_embeddings);
            let message = format!("`{name}` has vectors for {own} tokens, and the data has {tokens}");
            let help = "write `\"$vocabulary\"`, which is what the data says";
            self.refuse_at(node, at, &message, &format!("at least {tokens} are needed"), &[x], help);
        }
        let start = match l.padding_idx {
            Some(zeros) => Fill::NormalRows { std: 1.0, width: l.embedding_dim, zeros },
            None => normal(1.0),
        };
        let weight = Param::plain("weight", [l.num_embeddings, l.embedding_dim], start);
        let table = self.param(node, weight);
        let padding = l.padding_idx.map(|padding| padding as u32);
        self.apply(node, Embedding { padding }, &[table, x.value], &[x], meant, "")
    }

    pub(super) fn embedding_bag(&mut self, node: &LayerNode, l: &cfg::EmbeddingBag, x: Tensor) -> ValueId {
        let cfg::EmbeddingBag { num_embeddings, embedding_dim, mode } = *l;
        let each = cfg::Embedding { num_embeddings, embedding_dim, padding_idx: None };
        let value = self.embedding(node, &each, x);
        if self.shape(Tensor { value, ..x }).rank() != 3 {
            if !self.guesses.contains(&value) {
                let message =
                    format!("`embedding_bag` takes tokens, [N, L], but its input has the shape {}", self.dims(x));
                self.refuse(node, &message, "takes one row of tokens for each sample", &[x], "");
            }
            return self.guess(Shape::from([self.batch, embedding_dim]));
        }
        self.sequence_pool(node, mode.into(), Tensor { value, ..x })
    }

    pub(super) fn position_embedding(&mut self, node: &LayerNode, l: &cfg::PositionEmbedding, x: Tensor) -> ValueId {
        let x = self.in_pytorch_order(x);
        let Some([_, length, e]) = self.sequence_shape(node, x) else { return x.value };
        if let Some(most) = l.max_length.filter(|most| *most < length) {
            let at = node.fields.get("max_length").copied().unwrap_or(node.span);
            let message = format!("`position_embedding` has {most} positions, but its input has {length}");
            self.refuse_at(node, at, &message, &format!("at least {length} are needed"), &[x], "");
            return x.value;
        }
        let goes_on = self.goes_on(x.value);
        let rows = match (l.kind, l.max_length) {
            _ if self.lengths != Lengths::default() && l.max_length.is_none() && !goes_on => {
                let message = "`position_embedding` needs sequences of one length";
                let help = "set `max_length`, the length of the longest";
                self.refuse(node, message, "the lengths of batches differ", &[x], help);
                return x.value;
            }
            (PositionKind::Learned, Some(most)) => {
                self.param(node, Param::plain("weight", [most, e], normal(l.init_std.unwrap_or(0.02))))
            }
            (PositionKind::Sinusoidal, Some(most)) => {
                let table = self.sinusoids(node, most, e);
                self.plain(Reshape { shape: Shape::from([most, e]) }, &[table])
            }
            (PositionKind::Learned, None) if goes_on => {
                let all = self.capacity();
                let table = Param::plain("", [1, all, e], normal(l.init_std.unwrap_or(0.02)));
                let table = self.param(node, table);
                self.plain(Reshape { shape: Shape::from([all, e]) }, &[table])
            }
            (PositionKind::Learned, None) => {
                let all = self.param(node, Param::plain("", [1, length, e], normal(l.init_std.unwrap_or(0.02))));
                return self.plain(ADD, &[x.value, all]);
            }
            (PositionKind::Sinusoidal, None) if goes_on => {
                let all = self.capacity();
                let table = self.sinusoids(node, all, e);
                self.plain(Reshape { shape: Shape::from([all, e]) }, &[table])
            }
            (PositionKind::Sinusoidal, None) => {
                let all = self.sinusoids(node, length, e);
                return self.plain(ADD, &[x.value, all]);
            }
        };
        if goes_on {
            let at = self.given(POSITIONS);
            let some = self.plain(Embedding::default(), &[rows, at]);
            return self.plain(ADD, &[x.value, some]);
        }
        let first = self.plain(Slice { axis: 0, start: 0, len: length }, &[rows]);
        let first = self.plain(Reshape { shape: Shape::from([1, length, e]) }, &[first]);
        self.plain(ADD, &[x.value, first])
    }

    pub(super) fn token_type_embedding(&mut self, node: &LayerNode, l: &cfg::TokenTypeEmbedding, x: Tensor) -> ValueId {
        let x = self.in_pytorch_order(x);
        let Some([n, length, e]) = self.sequence_shape(node, x) else { return x.value };
        // Models that do not distinguish the two texts have one vector.
        let starts = self.data.inputs().find(|(_, field)| field.kind == FieldKind::PairStart);
        let starts = starts.filter(|_| l.num_embeddings > 1).and_then(|(_, field)| self.found(&field.name));
        let all = self.param(node, Param::plain("weight", [l.num_embeddings, e], normal(0.02)));
        let vector = |from: &mut Self, of: usize| {
            let one = from.plain(Slice { axis: 0, start: of, len: 1 }, &[all]);
            from.plain(Reshape { shape: Shape::from([1, 1, e]) }, &[one])
        };
        let first = vector(self, 0);
        let Some(starts) = starts else { return self.plain(ADD, &[x.value, first]) };
        // 1 at the positions of the first text, and 0 at those of the second; and the other way round. So the sum has one of both vectors as it is.
        let inside = self.inside(starts, [n, length], 0.0);
        let outside = self.less_one(inside);
        let second = vector(self, 1);
        let [first, second] = [(first, inside), (second, outside)].map(|(vector, at)| {
            let at = self.plain(Reshape { shape: Shape::from([n, length, 1]) }, &[at]);
            self.plain(MUL, &[vector, at])
        });
        let types = self.plain(ADD, &[first, second]);
        self.plain(ADD, &[x.value, types])
    }

    /// Tokens that caches have room for.
    pub(super) fn capacity(&self) -> usize {
        let of_answers = || self.data.inputs().find(|(_, field)| field.name == ANSWERS);
        if self.mode == Mode::Answer {
            return of_answers().map_or(1, |(_, field)| field.shape.len());
        }
        // Beside a sequence there may be a vector, as of the other columns of a table.
        let of_sequence = |(_, field): (_, &Field)| {
            let axis = field.lengths.iter().find(|length| length.number == 0)?.axis;
            Some(field.shape.dims()[axis])
        };
        let first = || self.data.inputs().next().map(|(_, field)| field.shape.len());
        self.data.inputs().find_map(of_sequence).or_else(first).unwrap_or(1)
    }

    /// Whether the positions of `x` follow those of earlier runs.
    pub(super) fn goes_on(&self, x: ValueId) -> bool {
        match self.mode {
            Mode::Train | Mode::Eval | Mode::Predict => false,
            Mode::Generate => true,
            Mode::Answer => {
                let (mut open, mut seen) = (vec![x], HashSet::from([x]));
                let answers = self.found(ANSWERS);
                while let Some(value) = open.pop() {
                    if Some(value) == answers {
                        return true;
                    }
                    let makers = self.graph.nodes.iter().filter(|node| node.outputs.contains(&value));
                    open.extend(makers.flat_map(|node| &node.inputs).copied().filter(|input| seen.insert(*input)));
                }
                false
            }
        }
    }

    /// A field of the batch by its name, of [`Mode::Generate`] or [`Mode::Answer`].
    pub(super) fn given(&self, name: &str) -> ValueId {
        self.found(name).expect("a program that generates describes batches that have it")
    }

    /// The same, if batches have it.
    pub(super) fn found(&self, name: &str) -> Option<ValueId> {
        self.prepared.iter().find(|(known, _)| known == name).map(|(_, x)| x.value)
    }

    /// Where rows go on from those of others: what is kept of each row becomes what is kept of its parent. The prompt, of which several tokens are computed at a
    /// time, is that of all rows.
    pub(super) fn come_from_parents(&mut self, kept: ValueId, length: usize) {
        let Some(parents) = self.found(PARENTS).filter(|_| length == 1) else { return };
        let shape = self.graph.shape(kept).clone();
        let rows = shape.dims()[0];
        let table = self.plain(Reshape { shape: Shape::from([rows, shape.len() / rows.max(1)]) }, &[kept]);
        let taken = self.plain(Embedding::default(), &[table, parents]);
        let taken = self.plain(Reshape { shape }, &[taken]);
        self.graph.add(KeepState { once: false }, &[taken, kept]).expect("a copy has the shape of what it is kept in");
    }

    /// The output at one position of each sample, `[N, V]` of `[N, T, V]`, if the batch says at which.
    pub(super) fn at_position(&mut self, y: ValueId) -> ValueId {
        let (Some(at), &[n, length, v]) = (self.found(AT), self.graph.shape(y).dims()) else { return y };
        let rows = self.plain(Reshape { shape: Shape::from([n * length, v]) }, &[y]);
        self.plain(Embedding::default(), &[rows, at])
    }

    /// Reports a layer that would have to see all positions at once, where tokens follow those of earlier runs.
    pub(super) fn goes_by_position(&mut self, node: &LayerNode, layer: &Layer, operands: &[Tensor]) {
        let (x, others) = (operands[0], operands[operands.len() - 1]);
        let last = |dim: i64, rank: usize| dim == -1 || dim == rank as i64 - 1;
        let rank = self.shape(x).rank();
        let attends = matches!(layer, Layer::MultiheadAttention(_) | Layer::ScaledDotProductAttention(_));
        let two = attends && node.from.as_ref().is_some_and(|from| from.len() > 1);
        let each = match layer {
            Layer::Linear(_)
            | Layer::Embedding(_)
            | Layer::Activation(_)
            | Layer::Dropout(_)
            | Layer::StochasticDepth(_)
            | Layer::Identity(_)
            | Layer::RmsNorm(_)
            | Layer::PositionEmbedding(_)
            | Layer::TokenTypeEmbedding(_)
            | Layer::LayerScale(_)
            | Layer::Add(_)
            | Layer::Multiply(_) => true,
            Layer::LayerNorm(norm) => norm.normalized_dims == 1,
            // What is looked at does not depend on the answer.
            Layer::MultiheadAttention(_) | Layer::ScaledDotProductAttention(_) if two && self.mode == Mode::Answer => {
                !self.goes_on(others.value)
            }
            Layer::MultiheadAttention(attention) => attention.is_causal,
            Layer::ScaledDotProductAttention(attention) => attention.is_causal,
            Layer::Glu(cfg::Glu { dim }) | Layer::Swiglu(cfg::Swiglu { dim }) | Layer::Geglu(cfg::Geglu { dim }) => {
                last(*dim, rank)
            }
            Layer::Concat(concat) => last(concat.dim, rank),
            // The state is kept.
            Layer::Lstm(l) => !l.bidirectional,
            Layer::Gru(l) => !l.bidirectional,
            Layer::Rnn(l) => !l.bidirectional,
            _ => false,
        };
        if !each {
            let why = match two {
                true => "looks at another text, of which nothing is kept from one token to the next",
                false => "sees all positions at once, so that no token can be added to those before",
            };
            let message = format!("`{}` {why}", node.kind_name());
            self.refuse(node, &message, "needs the whole text", &[x], "");
        }
    }

    /// Sines and cosines of positions, `[1, length, e]`: layers that need the same ones share them.
    fn sinusoids(&mut self, node: &LayerNode, length: usize, e: usize) -> ValueId {
        let shape = Shape::from([1, length, e]);
        if shape.len() > MAX_ELEMENTS {
            return self.param(node, Param::plain("", shape, Fill::Constant(0.0)));
        }
        // No layer has such a name.
        let name = format!("sinusoids[{length}, {e}]");
        self.constant(name, shape, Fill::Sinusoids { width: e })
    }

    /// One vector for each sequence `[N, L, E]`: what stands after a sequence to fill the batch does not count.
    pub(super) fn sequence_pool(&mut self, node: &LayerNode, mode: PoolMode, x: Tensor) -> ValueId {
        let x = self.in_pytorch_order(x);
        let Some([n, length, e]) = self.sequence_shape(node, x) else {
            return self.guess(Shape::from([self.batch, self.shape(x).last()]));
        };
        let whole = Shape::from([n, e]);
        let lengths = self.lengths_of(x.value);
        let first = |from: &mut Self, start: usize| from.plain(Slice { axis: 1, start, len: 1 }, &[x.value]);
        let one = match (mode, lengths) {
            (PoolMode::First, _) => first(self, 0),
            (PoolMode::Last, None) => first(self, length - 1),
            (PoolMode::Last, Some(lengths)) => {
                // 1 at the positions of a text, less 1 at those that have another one after them.
                let [own, others] = [0.0, -1.0].map(|less| self.inside(lengths, [n, length], less));
                let others = self.times(others, -1.0);
                let last = self.plain(ADD, &[own, others]);
                self.weighted(x.value, last, [n, length, e])
            }
            (PoolMode::Sum, Some(lengths)) => {
                let inside = self.inside(lengths, [n, length], 0.0);
                self.weighted(x.value, inside, [n, length, e])
            }
            (PoolMode::Sum, None) => self.plain(SumTo { shape: Shape::from([n, 1, e]) }, &[x.value]),
            (PoolMode::Mean, Some(lengths)) => {
                let inside = self.inside(lengths, [n, length], 0.0);
                let sum = self.weighted(x.value, inside, [n, length, e]);
                let shares = self.by_length(lengths, [n, length], Counting::Reciprocals);
                let shares = self.plain(Reshape { shape: Shape::from([n, 1, 1]) }, &[shares]);
                self.plain(MUL, &[sum, shares])
            }
            (PoolMode::Mean, None) => {
                let image = self.plain(Reshape { shape: Shape::from([n, length, 1, e]) }, &[x.value]);
                self.plain(AdaptiveAvgPool2d { output: [1, 1] }, &[image])
            }
            (PoolMode::Max, lengths) => {
                let mut value = x.value;
                if let Some(lengths) = lengths {
                    // 0 at the positions of a text, and after it less than any number.
                    let inside = self.inside(lengths, [n, length], 0.0);
                    let ones = self.plain(NewFull { shape: Shape::from([1, 1]), value: -1.0 }, &[inside]);
                    let behind = self.plain(ADD, &[inside, ones]);
                    let behind = self.times(behind, 1e30);
                    let behind = self.plain(Reshape { shape: Shape::from([n, length, 1]) }, &[behind]);
                    value = self.plain(ADD, &[value, behind]);
                }
                let image = self.plain(Reshape { shape: Shape::from([n, length, 1, e]) }, &[value]);
                self.plain(AdaptiveMaxPool2d { output: [1, 1] }, &[image])
            }
        };
        self.plain(Reshape { shape: whole }, &[one])
    }

    /// The lengths of the samples, `[N]`, where they differ and the sequence `x` has their positions.
    pub(super) fn lengths_of(&self, x: ValueId) -> Option<ValueId> {
        let (_, field) = self.data.inputs().find(|(_, field)| field.kind == FieldKind::Length)?;
        let all = self.lengths.0[0].map_or_else(|| self.capacity(), |length| length as usize);
        let found = self.prepared.iter().find(|(name, _)| *name == field.name).map(|(_, x)| x.value);
        found.filter(|_| self.graph.shape(x).dims()[1] == all && !self.is_of_another_length(x))
    }

    /// Whether the positions of a sequence are those of a field that does not have length number 0, which the samples' lengths are of: two texts of
    /// a batch may be of one length by chance, and a table may have as many columns.
    fn is_of_another_length(&self, x: ValueId) -> bool {
        let others = |field: &Field| {
            let counts = matches!(field.kind, FieldKind::Length | FieldKind::PairStart);
            !counts && field.lengths.iter().all(|length| length.number != 0)
        };
        if !self.data.inputs().any(|(_, field)| others(field)) {
            return false;
        }
        let made: HashMap<ValueId, &Node> =
            self.graph.nodes.iter().flat_map(|node| node.outputs.iter().map(move |value| (*value, node))).collect();
        // Positions come from the first operand that comes from a field: of a table's rows those of the ids, of attention those of the queries.
        let (mut open, mut seen) = (vec![x], HashSet::new());
        while let Some(value) = open.pop() {
            if let Role::Input(Input::Field(number)) = self.graph.value(value).role {
                return self.data.fields.get(number as usize).is_some_and(others);
            }
            if let Some(node) = made.get(&value).filter(|_| seen.insert(value)) {
                // What is added to all positions alike is stretched, and has none of them.
                let mut operands: Vec<ValueId> = node.inputs.iter().rev().copied().collect();
                operands.sort_by_key(|operand| self.graph.shape(*operand) == self.graph.shape(value));
                open.extend(operands);
            }
        }
        false
    }

    /// What is made of the length of each sample, `[N, 1]`.
    fn by_length(&mut self, lengths: ValueId, [n, length]: [usize; 2], of: Counting) -> ValueId {
        let table = self.constant(format!("{of:?}[{length}]"), Shape::from([length + 1, 1]), Fill::Counting(of));
        let rows = self.plain(Embedding::default(), &[table, lengths]);
        self.plain(Reshape { shape: Shape::from([n, 1]) }, &[rows])
    }

    /// 1 where some tokens come before, and 0 at the first one, `[N, 1]`.
    pub(super) fn begun(&mut self, start: ValueId, n: usize) -> ValueId {
        let capacity = self.capacity();
        let before = self.by_length(start, [n, capacity], Counting::Up);
        self.plain(ActivationOp { act: Activation::Hardtanh { low: 0.0, high: 1.0 } }, &[before])
    }

    /// 1 less these numbers, of which each is 0 or 1.
    pub(super) fn less_one(&mut self, x: ValueId) -> ValueId {
        let minus = self.plain(NewFull { shape: Shape::from([1, 1]), value: -1.0 }, &[x]);
        let less = self.plain(ADD, &[x, minus]);
        self.times(less, -1.0)
    }

    /// 1 for each position of a sample, and 0 after it, `[N, L]`; as if samples were so much longer.
    pub(super) fn inside(&mut self, lengths: ValueId, [n, length]: [usize; 2], longer: f32) -> ValueId {
        let mut ends = self.by_length(lengths, [n, length], Counting::Up);
        if longer != 0.0 {
            let more = self.plain(NewFull { shape: Shape::from([1, 1]), value: longer }, &[ends]);
            ends = self.plain(ADD, &[ends, more]);
        }
        // Whole numbers: what is left of a length at a position is 1 or more within it, and 0 or less after it.
        let down = Fill::Counting(Counting::Down);
        let positions = self.constant(format!("positions[{length}]"), Shape::from([1, length]), down);
        let left = self.plain(ADD, &[positions, ends]);
        self.plain(ActivationOp { act: Activation::Hardtanh { low: 0.0, high: 1.0 } }, &[left])
    }

    pub(super) fn times(&mut self, x: ValueId, factor: f32) -> ValueId {
        let factor = self.plain(NewFull { shape: Shape::from([1, 1]), value: factor }, &[x]);
        self.plain(MUL, &[x, factor])
    }

    /// The sum over positions, each with its weight, of weights `[N, L]`.
    fn weighted(&mut self, x: ValueId, weights: ValueId, [n, length, e]: [usize; 3]) -> ValueId {
        let weights = self.plain(Reshape { shape: Shape::from([n, length, 1]) }, &[weights]);
        let weighted = self.plain(MUL, &[x, weights]);
        self.plain(SumTo { shape: Shape::from([n, 1, e]) }, &[weighted])
    }

    /// The parameter of an earlier layer that a layer takes as its own, `[outputs, inputs]`.
    pub(super) fn tied(&mut self, node: &LayerNode, name: &str, wanted: Shape) -> ValueId {
        let at = node.fields.get("tie").copied().unwrap_or(node.span);
        let found = self.vars.iter().find(|(_, var)| var.kind == VarKind::Parameter && var.name == name);
        let Some((id, var)) = found else {
            let known: Vec<String> = self
                .vars
                .iter()
                .filter(|(_, var)| var.kind == VarKind::Parameter && var.shape.rank() == 2)
                .map(|(_, var)| var.name.clone())
                .collect();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            let error = Diagnostic::error(format!("there is no parameter `{}` before this layer", shorten(name)));
            self.report(with_suggestion(error, at, "not found", name, &known));
            return self.guess(wanted);
        };
        if var.shape != wanted || !var.storage.is_plain() {
            let message = format!("`{name}` is of shape {}, and this layer needs {wanted}", var.storage.outside);
            self.report(Diagnostic::error(message).at(at, "cannot be tied to it"));
            return self.guess(wanted);
        }
        self.graph.variable(self.vars, id)
    }
}
