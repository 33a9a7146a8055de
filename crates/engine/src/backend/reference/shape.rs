//! Operations that move elements without arithmetic.

use super::{Tensor, indices, offset};
use crate::graph::op::{Concat, Pad, Permute, Slice};

pub(super) fn permute(op: &Permute, x: &[Tensor], y: &[&[usize]]) -> Vec<Vec<f64>> {
    let one = |index: Vec<usize>| {
        let mut from = vec![0; index.len()];
        for (i, p) in op.perm.iter().enumerate() {
            from[*p] = index[i];
        }
        x[0].data[offset(x[0].dims, &from)]
    };
    vec![indices(y[0]).map(one).collect()]
}

pub(super) fn concat(op: &Concat, x: &[Tensor], y: &[&[usize]]) -> Vec<Vec<f64>> {
    let mut joined = vec![0.0; y[0].iter().product()];
    let mut start = 0;
    for part in x {
        for (mut index, v) in indices(part.dims).zip(part.data) {
            index[op.axis] += start;
            joined[offset(y[0], &index)] = *v;
        }
        start += part.dims[op.axis];
    }
    vec![joined]
}

pub(super) fn slice(op: &Slice, x: &[Tensor], y: &[&[usize]]) -> Vec<Vec<f64>> {
    let one = |mut index: Vec<usize>| {
        index[op.axis] += op.start;
        x[0].data[offset(x[0].dims, &index)]
    };
    vec![indices(y[0]).map(one).collect()]
}

pub(super) fn pad(op: &Pad, x: &[Tensor], y: &[&[usize]]) -> Vec<Vec<f64>> {
    let mut padded = vec![0.0; y[0].iter().product()];
    for (mut index, v) in indices(x[0].dims).zip(x[0].data) {
        index[op.axis] += op.before;
        padded[offset(y[0], &index)] = *v;
    }
    vec![padded]
}

/// Part number `part` of `parts` equal ones.
pub(super) fn batch_part(x: &[f64], parts: usize, part: usize) -> Vec<f64> {
    let len = x.len() / parts;
    x[part * len..(part + 1) * len].to_vec()
}

/// The parts so far, and one more after them; `before` is of no account in the first round.
pub(super) fn batch_join(before: Option<&Vec<f64>>, x: &[f64], part: usize) -> Vec<f64> {
    let before = before.filter(|_| part > 0).map_or(&[][..], |before| before);
    [before, x].concat()
}
