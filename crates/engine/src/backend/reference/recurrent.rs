//! Recurrent layers.

use super::Tensor;
use crate::graph::op::{Cell, Recurrent, RecurrentGrad, RecurrentGradOperands, RecurrentOperands};

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Sizes of a layer, and the order in which it goes through positions.
struct Layout<'a> {
    op: &'a Recurrent,
    lengths: Option<Tensor<'a>>,
    /// What sequences go on from.
    carried: Option<Tensor<'a>>,
    samples: usize,
    length: usize,
    hidden: usize,
}

impl<'a> Layout<'a> {
    /// Of what has N and L in front, and of the weight.
    fn new(op: &'a Recurrent, x: Tensor, w: Tensor, lengths: Option<Tensor<'a>>, carried: Option<Tensor<'a>>) -> Self {
        Layout { op, lengths, carried, samples: x.dims[0], length: x.dims[1], hidden: w.last() }
    }

    /// The rows of the positions of sample `n`, in order.
    fn rows(&self, n: usize) -> Vec<usize> {
        let most = self.length as f64;
        let length = self.lengths.map_or(most, |lengths| lengths.data[n].clamp(0.0, most)) as usize;
        let rows = (0..length).map(|t| n * self.length + t);
        if self.op.reverse { rows.rev().collect() } else { rows.collect() }
    }

    /// Number `j` of the state, or of the cell, that sample `n` goes on from.
    fn carried(&self, n: usize, cell: bool, j: usize) -> f64 {
        let at = if cell { self.hidden + j } else { j };
        self.carried.map_or(0.0, |carried| carried.data[n * carried.last() + at])
    }

    fn gates(&self) -> usize {
        self.op.cell.gates() * self.hidden
    }
}

pub(super) fn forward(op: &Recurrent, x: &[Tensor]) -> Vec<Vec<f64>> {
    let RecurrentOperands { x, w, b, lengths, carried } = op.operands(x);
    let layout = Layout::new(op, x, w, lengths, carried);
    let (h, gates, saved) = (layout.hidden, layout.gates(), op.cell.saved());
    let rows = layout.samples * layout.length;
    let (mut states, mut kept) = (vec![0.0; rows * h], vec![0.0; rows * saved * h]);
    for n in 0..layout.samples {
        let mut state: Vec<f64> = (0..h).map(|j| layout.carried(n, false, j)).collect();
        let is_lstm = op.cell == Cell::Lstm;
        let mut cell: Vec<f64> = (0..h).map(|j| if is_lstm { layout.carried(n, true, j) } else { 0.0 }).collect();
        for row in layout.rows(n) {
            let given = &x.data[row * gates..(row + 1) * gates];
            let product = |g: usize| -> f64 {
                let bias = b.map_or(0.0, |b| b.data[g]);
                bias + (0..h).map(|k| w.at([g, k]) * state[k]).sum::<f64>()
            };
            let r: Vec<f64> = (0..gates).map(product).collect();
            let sum = |gate: usize, j: usize| given[gate * h + j] + r[gate * h + j];
            let kept = &mut kept[row * saved * h..(row + 1) * saved * h];
            for j in 0..h {
                let mut keep = |values: &[f64]| values.iter().enumerate().for_each(|(i, v)| kept[i * h + j] = *v);
                state[j] = match op.cell {
                    Cell::Lstm => {
                        let (i, f) = (sigmoid(sum(0, j)), sigmoid(sum(1, j)));
                        let (g, o) = (sum(2, j).tanh(), sigmoid(sum(3, j)));
                        cell[j] = f * cell[j] + i * g;
                        keep(&[i, f, g, o, cell[j]]);
                        o * cell[j].tanh()
                    }
                    Cell::Gru => {
                        let (reset, z, product) = (sigmoid(sum(0, j)), sigmoid(sum(1, j)), r[2 * h + j]);
                        let new = (given[2 * h + j] + reset * product).tanh();
                        keep(&[reset, z, new, product]);
                        (1.0 - z) * new + z * state[j]
                    }
                    Cell::Tanh => sum(0, j).tanh(),
                    Cell::Relu => sum(0, j).max(0.0),
                };
            }
            states[row * h..(row + 1) * h].copy_from_slice(&state);
        }
    }
    if op.saves && saved > 0 { vec![states, kept] } else { vec![states] }
}

pub(super) fn grad(op: &RecurrentGrad, x: &[Tensor]) -> Vec<Vec<f64>> {
    let RecurrentGradOperands { dh, h: states, saved: kept, w, lengths, carried } = op.operands(x);
    let (op, saved) = (&op.of, op.of.cell.saved());
    let layout = Layout::new(op, dh, w, lengths, carried);
    // A cell that saves nothing asks for nothing of it.
    let kept = kept.map_or(&[][..], |kept| kept.data);
    let (h, gates, rows) = (layout.hidden, layout.gates(), layout.samples * layout.length);
    let mut dx = vec![0.0; rows * gates];
    let mut by_product = vec![0.0; rows * gates];
    let mut before = vec![0.0; rows * h];
    for n in 0..layout.samples {
        let order = layout.rows(n);
        // Gradients by the state and by the cell, from the positions after.
        let (mut state, mut cell) = (vec![0.0; h], vec![0.0; h]);
        for at in (0..order.len()).rev() {
            let (row, last) = (order[at], at.checked_sub(1).map(|at| order[at]));
            let kept_at = |row: usize, i: usize, j: usize| kept[(row * saved + i) * h + j];
            let dx = &mut dx[row * gates..(row + 1) * gates];
            let by_product = &mut by_product[row * gates..(row + 1) * gates];
            for j in 0..h {
                let d = dh.data[row * h + j] + state[j];
                let earlier = last.map_or_else(|| layout.carried(n, false, j), |last| states.data[last * h + j]);
                before[row * h + j] = earlier;
                state[j] = 0.0;
                let of = |i: usize| kept_at(row, i, j);
                match op.cell {
                    Cell::Lstm => {
                        let [i, f, g, o, c] = [of(0), of(1), of(2), of(3), of(4)];
                        let earlier = last.map_or_else(|| layout.carried(n, true, j), |last| kept_at(last, 4, j));
                        let by_cell = cell[j] + d * o * (1.0 - c.tanh().powi(2));
                        cell[j] = by_cell * f;
                        let parts = [
                            by_cell * g * i * (1.0 - i),
                            by_cell * earlier * f * (1.0 - f),
                            by_cell * i * (1.0 - g * g),
                            d * c.tanh() * o * (1.0 - o),
                        ];
                        parts.into_iter().enumerate().for_each(|(gate, part)| dx[gate * h + j] = part);
                    }
                    Cell::Gru => {
                        let [r, z, new, product] = [of(0), of(1), of(2), of(3)];
                        let by_new = d * (1.0 - z) * (1.0 - new * new);
                        let by_reset = by_new * product * r * (1.0 - r);
                        let by_update = d * (earlier - new) * z * (1.0 - z);
                        for (gate, part) in [by_reset, by_update, by_new].into_iter().enumerate() {
                            dx[gate * h + j] = part;
                            by_product[gate * h + j] = if gate == 2 { part * r } else { part };
                        }
                        state[j] = d * z;
                    }
                    Cell::Tanh => dx[j] = d * (1.0 - states.data[row * h + j].powi(2)),
                    Cell::Relu => dx[j] = if states.data[row * h + j] > 0.0 { d } else { 0.0 },
                }
            }
            let through: &[f64] = if op.cell == Cell::Gru { by_product } else { dx };
            for (g, by) in through.iter().enumerate() {
                (0..h).for_each(|k| state[k] += by * w.at([g, k]));
            }
        }
    }
    if op.cell == Cell::Gru { vec![dx, before, by_product] } else { vec![dx, before] }
}
