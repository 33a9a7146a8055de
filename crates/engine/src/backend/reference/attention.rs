//! Scaled dot-product attention.

use super::Tensor;
use super::softmax::log_sum_exp;
use crate::graph::op::{Attention, AttentionDropout, AttentionGrad, attention_scale};
use crate::random::{attention_draw, dropout_draws, dropout_keeps};

/// The packed operand of the projection.
struct Packed<'a> {
    qkv: Tensor<'a>,
    /// What is added to the scores.
    bias: Option<Tensor<'a>>,
    lengths: Option<Tensor<'a>>,
    heads: usize,
    causal: bool,
}

impl<'a> Packed<'a> {
    /// Of `qkv` and of the operands `others`; what is left of these.
    fn of(op: &Attention, qkv: Tensor<'a>, mut others: &'a [Tensor<'a>]) -> (Self, &'a [Tensor<'a>]) {
        let mut take = |there: bool| {
            let (first, rest) = if there { others.split_first()? } else { return None };
            others = rest;
            Some(*first)
        };
        let (bias, lengths) = (take(op.bias), take(op.lengths));
        (Packed { qkv, bias, lengths, heads: op.heads, causal: op.causal }, others)
    }

    /// Positions of a sample that are no padding.
    fn length(&self, n: usize) -> usize {
        let [_, l] = self.sizes();
        self.lengths.map_or(l, |lengths| lengths.data[n].clamp(0.0, l as f64) as usize)
    }

    /// N and L.
    fn sizes(&self) -> [usize; 2] {
        [self.qkv.dims[0], self.qkv.dims[1]]
    }

    /// Floats of a head.
    fn width(&self) -> usize {
        self.qkv.dims[2] / 3 / self.heads
    }

    /// Where in `qkv` the query (0), the key (1) or the value (2) of a position starts.
    fn start(&self, which: usize, [n, h, i]: [usize; 3]) -> usize {
        let [_, l] = self.sizes();
        ((n * l + i) * 3 + which) * self.heads * self.width() + h * self.width()
    }

    fn part(&self, which: usize, at: [usize; 3]) -> &[f64] {
        let start = self.start(which, at);
        &self.qkv.data[start..start + self.width()]
    }

    /// The positions that `i` sees.
    fn seen(&self, n: usize, i: usize) -> usize {
        if self.causal { i + 1 } else { self.length(n) }
    }

    /// The scores of those.
    fn scores(&self, [n, h, i]: [usize; 3]) -> Vec<f64> {
        let q = self.part(0, [n, h, i]);
        let score = |j| dot(q, self.part(1, [n, h, j])) * attention_scale(self.width());
        (0..self.seen(n, i))
            .map(|j| score(j) + self.bias.map_or(0.0, |bias| bias.data[self.bias_at([n, h, i]) + j]))
            .collect()
    }

    /// Where the bias of a position's scores starts.
    fn bias_at(&self, [n, h, i]: [usize; 3]) -> usize {
        let windows = self.bias.map_or(1, |bias| bias.dims[0]);
        ((n % windows * self.heads + h) * self.sizes()[1] + i) * self.sizes()[1]
    }

    /// Calls `f` with each sample, head and position that is no padding.
    fn for_each(&self, mut f: impl FnMut([usize; 3])) {
        let [samples, _] = self.sizes();
        for n in 0..samples {
            for h in 0..self.heads {
                (0..self.length(n)).for_each(|i| f([n, h, i]));
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
fn mask(dropout: Option<AttentionDropout>, key: Option<&Tensor>, row: usize, length: usize) -> Vec<f64> {
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
    let (packed, key) = Packed::of(op, x[0], &x[1..]);
    let ([samples, l], d) = (packed.sizes(), packed.width());
    let mut y = vec![0.0; x[0].data.len() / 3];
    let mut lse = vec![0.0; samples * op.heads * l];
    packed.for_each(|[n, h, i]| {
        let scores = packed.scores([n, h, i]);
        let sum = log_sum_exp(&scores);
        let row = (n * op.heads + h) * l + i;
        lse[row] = sum;
        let start = ((n * l + i) * op.heads + h) * d;
        let mask = mask(op.dropout, key.first(), row, l);
        for (j, s) in scores.into_iter().enumerate() {
            add(&mut y[start..start + d], (s - sum).exp() * mask[j], packed.part(2, [n, h, j]));
        }
    });
    vec![y, lse]
}

pub(super) fn grad(op: &AttentionGrad, x: &[Tensor]) -> Vec<Vec<f64>> {
    let [dy, qkv, y, lse] = [0, 1, 2, 3].map(|i| x[i]);
    let op = &op.attention;
    let (packed, key) = Packed::of(op, qkv, &x[4..]);
    let ([_, l], d) = (packed.sizes(), packed.width());
    let mut dqkv = vec![0.0; qkv.data.len()];
    let mut dbias = vec![0.0; packed.bias.map_or(0, |bias| bias.data.len())];
    packed.for_each(|[n, h, i]| {
        let row = ((n * l + i) * op.heads + h) * d;
        let (dy, y) = (&dy.data[row..row + d], &y.data[row..row + d]);
        let delta = dot(dy, y);
        let at = (n * op.heads + h) * l + i;
        let mask = mask(op.dropout, key.first(), at, l);
        for (j, s) in packed.scores([n, h, i]).into_iter().enumerate() {
            let p = (s - lse.data[at]).exp();
            let by_score = p * (mask[j] * dot(dy, packed.part(2, [n, h, j])) - delta);
            if op.bias {
                dbias[packed.bias_at([n, h, i]) + j] += by_score;
            }
            let ds = by_score * attention_scale(d);
            let [dq, dk, dv] = [(0, i), (1, j), (2, j)].map(|(which, at)| packed.start(which, [n, h, at]));
            add(&mut dqkv[dq..dq + d], ds, packed.part(1, [n, h, j]));
            add(&mut dqkv[dk..dk + d], ds, packed.part(0, [n, h, i]));
            add(&mut dqkv[dv..dv + d], p * mask[j], dy);
        }
    });
    if op.bias { vec![dqkv, dbias] } else { vec![dqkv] }
}
