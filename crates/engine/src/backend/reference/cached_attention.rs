//! Attention to kept positions, and rotary positions.

use super::Tensor;
use super::softmax::log_sum_exp;
use crate::graph::op::{CachedAttention, Rotary, alibi_slope, attention_scale};

pub(super) fn cached(op: &CachedAttention, x: &[Tensor]) -> Vec<Vec<f64>> {
    let (qkv, position) = (x[0], x[3]);
    let (mut keys, mut values) = (x[1].data.to_vec(), x[2].data.to_vec());
    let [samples, new, packed] = [0, 1, 2].map(|axis| qkv.dims[axis]);
    let (kept, width) = (x[1].dims[1], packed / (op.heads + 2 * op.kv_heads));
    let (e, row) = (op.heads * width, op.kv_heads * width);
    let mut y = vec![0.0; samples * new * e];
    for n in 0..samples {
        let first = position.data[n] as i64;
        let at = |i: usize| (n * new + i) * packed;
        for i in 0..new {
            let to = first + i as i64;
            if (0..kept as i64).contains(&to) {
                let to = (n * kept + to as usize) * row;
                keys[to..to + row].copy_from_slice(&qkv.data[at(i) + e..][..row]);
                values[to..to + row].copy_from_slice(&qkv.data[at(i) + e + row..][..row]);
            }
        }
        for i in 0..new {
            let own = first + i as i64;
            let begin = (own + 1).saturating_sub(op.window.map_or(i64::MAX, |window| window as i64));
            let [begin, end] = [begin, own + 1].map(|at| at.clamp(0, kept as i64) as usize);
            for h in 0..op.heads {
                let q = &qkv.data[at(i) + h * width..][..width];
                let of = |all: &[f64], j: usize, c: usize| {
                    all[(n * kept + j) * row + h / (op.heads / op.kv_heads) * width + c]
                };
                let slope = if op.alibi { alibi_slope(op.heads, h) } else { 0.0 };
                let score = |j: usize| {
                    let product = (0..width).map(|c| q[c] * of(&keys, j, c)).sum::<f64>() * attention_scale(width);
                    product - slope * (own - j as i64) as f64
                };
                let scores: Vec<f64> = (begin..end).map(score).collect();
                let sum = log_sum_exp(&scores);
                for c in 0..width {
                    let y = &mut y[(n * new + i) * e + h * width + c];
                    *y = (begin..end).map(|j| (scores[j - begin] - sum).exp() * of(&values, j, c)).sum();
                    if begin >= end {
                        *y = f64::NAN;
                    }
                }
            }
        }
    }
    vec![y, keys, values]
}

pub(super) fn rotary(op: &Rotary, x: &[Tensor]) -> Vec<Vec<f64>> {
    let (of, table) = (x[0], x[1]);
    let [length, packed] = [of.dims[1], of.dims[2]];
    let width = packed / (op.heads + 2 * op.kv_heads);
    let mut y = of.data.to_vec();
    for (row, y) in y.chunks_mut(packed).enumerate() {
        let first = if op.position { x[2].data[row / length] } else { 0.0 };
        let position = first + (row % length) as f64;
        let known = (0.0..table.rows() as f64).contains(&position);
        for head in y.chunks_mut(width).take(op.heads + op.kv_heads) {
            for k in 0..width / 2 {
                let angle = |i: usize| if known { table.at([position as usize, i]) } else { f64::NAN };
                let (cos, sin) = (angle(k), angle(width / 2 + k) * if op.back { -1.0 } else { 1.0 });
                let (a, b) = (head[k], head[width / 2 + k]);
                (head[k], head[width / 2 + k]) = (a * cos - b * sin, b * cos + a * sin);
            }
        }
    }
    vec![y]
}
