//! Scaled dot-product attention.

use super::Tensor;
use super::softmax::log_sum_exp;
use crate::graph::op::{
    Attention, AttentionDropout, AttentionGrad, AttentionGradOperands, AttentionOperands, alibi_slope, attention_scale,
};
use crate::random::{attention_draw, dropout_draws, dropout_keeps};
use std::ops::Range;

/// The operands of an attention.
struct Heads<'a> {
    op: &'a Attention,
    /// Queries, keys and values; or queries, and keys and values.
    sources: Vec<Tensor<'a>>,
    /// What is added to the scores.
    bias: Option<Tensor<'a>>,
    lengths: Option<Tensor<'a>>,
}

impl<'a> Heads<'a> {
    /// Positions of a sample's keys that are no padding.
    fn length(&self, n: usize) -> usize {
        let [_, _, l] = self.sizes();
        self.lengths.map_or(l, |lengths| lengths.data[n].clamp(0.0, l as f64) as usize)
    }

    /// Queries of a sample that have a result.
    fn queries(&self, n: usize) -> usize {
        match self.length(n) {
            0 => 0,
            _ if self.op.between => self.sizes()[1],
            length => length,
        }
    }

    /// N, and the positions of the queries and of the keys.
    fn sizes(&self) -> [usize; 3] {
        let keys = self.sources[self.sources.len() - 1];
        [keys.dims[0], self.sources[0].dims[1], keys.dims[1]]
    }

    /// Floats of a head.
    fn width(&self) -> usize {
        let parts = if self.op.between { 1 } else { 3 };
        self.sources[0].dims[2] / parts / self.op.heads
    }

    /// In which of the sources, and where there, the query (0), the key (1) or the value (2) of a position starts.
    fn start(&self, which: usize, [n, h, i]: [usize; 3]) -> (usize, usize) {
        let (source, part) = match (self.op.between, which) {
            (true, 1 | 2) => (1, which - 1),
            _ => (0, which),
        };
        let [_, l, packed] = self.sources[source].dims[..] else { unreachable!("the shape rule asks for three") };
        (source, (n * l + i) * packed + (part * self.op.heads + h) * self.width())
    }

    fn part(&self, which: usize, at: [usize; 3]) -> &[f64] {
        let (source, start) = self.start(which, at);
        &self.sources[source].data[start..start + self.width()]
    }

    /// The positions that `i` sees, of `length`.
    fn seen(&self, length: usize, i: usize) -> Range<usize> {
        let window = self.op.window.unwrap_or(usize::MAX);
        let end = if self.op.causal { i + 1 } else { length.min(i.saturating_add(window)) };
        (i + 1).saturating_sub(window)..end
    }

    /// Those, with their scores.
    fn scores(&self, [n, h, i]: [usize; 3]) -> Vec<(usize, f64)> {
        let q = self.part(0, [n, h, i]);
        let seen = if self.op.between { 0..self.length(n) } else { self.seen(self.length(n), i) };
        let slope = if self.op.alibi { alibi_slope(self.op.heads, h) } else { 0.0 };
        let score = |j: usize| {
            let added = self.bias.map_or(0.0, |bias| bias.data[self.bias_at([n, h, i]) + j]);
            dot(q, self.part(1, [n, h, j])) * attention_scale(self.width()) + added - slope * i.abs_diff(j) as f64
        };
        seen.map(|j| (j, score(j))).collect()
    }

    /// Where the bias of a position's scores starts.
    fn bias_at(&self, [n, h, i]: [usize; 3]) -> usize {
        let (windows, [_, _, l]) = (self.bias.map_or(1, |bias| bias.dims[0]), self.sizes());
        ((n % windows * self.op.heads + h) * l + i) * l
    }

    /// Calls `f` with each sample, head and query that has a result.
    fn for_each(&self, mut f: impl FnMut([usize; 3])) {
        let [samples, _, _] = self.sizes();
        for n in 0..samples {
            for h in 0..self.op.heads {
                (0..self.queries(n)).for_each(|i| f([n, h, i]));
            }
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `to += factor · x`.
fn add(to: &mut [f64], factor: f64, x: &[f64]) {
    to.iter_mut().zip(x).for_each(|(to, x)| *to += factor * x);
}

/// What each of `length` weights in row `row` is multiplied by, `key` being the random key.
fn mask(dropout: Option<AttentionDropout>, key: Option<Tensor>, row: usize, length: usize) -> Vec<f64> {
    let Some((AttentionDropout { p, stream }, key)) = dropout.zip(key) else { return vec![1.0; length] };
    let key: Vec<u32> = key.data.iter().map(|k| *k as u32).collect();
    let one = |column| {
        let (i, word) = attention_draw(row, length, column);
        let draw = dropout_draws([key[0], key[1], key[2], key[3]], stream, i)[word];
        if dropout_keeps(draw, p) { 1.0 / (1.0 - f64::from(p)) } else { 0.0 }
    };
    (0..length).map(one).collect()
}

pub(super) fn forward(op: &Attention, x: &[Tensor]) -> Vec<Vec<f64>> {
    let AttentionOperands { q, kv, bias, lengths, key } = op.operands(x);
    let heads = Heads { op, sources: [q].into_iter().chain(kv).collect(), bias, lengths };
    let ([samples, queries, keys], d) = (heads.sizes(), heads.width());
    let mut y = vec![0.0; samples * queries * op.heads * d];
    let mut lse = vec![0.0; samples * op.heads * queries];
    heads.for_each(|[n, h, i]| {
        let scores = heads.scores([n, h, i]);
        let sum = log_sum_exp(&scores.iter().map(|(_, s)| *s).collect::<Vec<f64>>());
        let row = (n * op.heads + h) * queries + i;
        lse[row] = sum;
        let start = ((n * queries + i) * op.heads + h) * d;
        let mask = mask(op.dropout, key, row, keys);
        for (j, s) in scores {
            add(&mut y[start..start + d], (s - sum).exp() * mask[j], heads.part(2, [n, h, j]));
        }
    });
    vec![y, lse]
}

pub(super) fn grad(op: &AttentionGrad, x: &[Tensor]) -> Vec<Vec<f64>> {
    let AttentionGradOperands { dy, q, kv, y, lse, bias, lengths, key } = op.operands(x);
    let op = &op.attention;
    let heads = Heads { op, sources: [q].into_iter().chain(kv).collect(), bias, lengths };
    let ([_, queries, keys], d) = (heads.sizes(), heads.width());
    let mut dx: Vec<Vec<f64>> = heads.sources.iter().map(|source| vec![0.0; source.data.len()]).collect();
    let mut dbias = vec![0.0; heads.bias.map_or(0, |bias| bias.data.len())];
    heads.for_each(|[n, h, i]| {
        let row = ((n * queries + i) * op.heads + h) * d;
        let (dy, y) = (&dy.data[row..row + d], &y.data[row..row + d]);
        let delta = dot(dy, y);
        let at = (n * op.heads + h) * queries + i;
        let mask = mask(op.dropout, key, at, keys);
        for (j, s) in heads.scores([n, h, i]) {
            let p = (s - lse.data[at]).exp();
            let by_score = p * (mask[j] * dot(dy, heads.part(2, [n, h, j])) - delta);
            if op.bias {
                dbias[heads.bias_at([n, h, i]) + j] += by_score;
            }
            let ds = by_score * attention_scale(d);
            let mut to = |which: usize, at: usize, factor: f64, of: &[f64]| {
                let (source, start) = heads.start(which, [n, h, at]);
                add(&mut dx[source][start..start + d], factor, of);
            };
            to(0, i, ds, heads.part(1, [n, h, j]));
            to(1, j, ds, heads.part(0, [n, h, i]));
            to(2, j, p * mask[j], dy);
        }
    });
    dx.extend(op.bias.then_some(dbias));
    dx
}
