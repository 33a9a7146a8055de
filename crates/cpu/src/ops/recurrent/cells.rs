//! The gates of one sample at one position.

use crate::graph::op::Cell;
use crate::run::parallel::vectorised;
use crate::simd::lanes::{get, put};
use crate::simd::math::{sigmoid, tanh};
use crate::simd::{Simd, SimdLevel};

/// What comes before a position: its state, and the cell of an LSTM, which is empty if nothing does.
#[derive(Clone, Copy)]
pub(super) struct Earlier<'a> {
    pub state: &'a [f32],
    pub cell: &'a [f32],
}

/// The parts of the gates at a position.
#[derive(Clone, Copy)]
pub(super) struct Gates<'a> {
    /// The input's.
    pub x: &'a [f32],
    /// The product of the state before with the weight.
    pub r: &'a [f32],
    /// What is added to that product; empty if nothing is.
    pub bias: &'a [f32],
}

/// The state, and the cell of an LSTM, at a position. What the gradient needs goes to `saved`, unless that is empty.
pub(super) fn forward(
    level: SimdLevel,
    of: Cell,
    gates: Gates,
    state: &mut [f32],
    cell: &mut [f32],
    saved: &mut [f32],
) {
    let Gates { x, r, bias } = gates;
    assert!(x.len() == of.gates() * state.len() && r.len() == x.len() && cell.len() == state.len());
    assert!(bias.is_empty() || bias.len() == x.len());
    match of {
        Cell::Lstm => lstm(level, gates, state, cell, saved),
        Cell::Gru => gru(level, gates, state, saved),
        Cell::Tanh => plain(level, gates, state, true),
        Cell::Relu => plain(level, gates, state, false),
    }
}

/// The gradients by the input's part of the gates, `dx`, and by the products, `product`: `dy` is that by the result `y`, `by_state` that by the
/// state from the product of the position after. `carried` goes from position to position: the gradient by the cell of an LSTM, and what the state
/// of a GRU has of that after it.
#[allow(clippy::too_many_arguments, reason = "operands and results of one step")]
pub(super) fn backward(
    level: SimdLevel,
    of: Cell,
    dy: &[f32],
    y: &[f32],
    saved: &[f32],
    earlier: Earlier,
    by_state: &[f32],
    carried: &mut [f32],
    dx: &mut [f32],
    product: &mut [f32],
) {
    match of {
        Cell::Lstm => lstm_grad(level, dy, saved, earlier.cell, by_state, carried, product),
        Cell::Gru => return gru_grad(level, dy, saved, earlier.state, by_state, carried, dx, product),
        Cell::Tanh => plain_grad(level, dy, y, by_state, product, true),
        Cell::Relu => plain_grad(level, dy, y, by_state, product, false),
    }
    dx.copy_from_slice(product);
}

/// The state's part.
#[inline(always)]
fn part<S: Simd>(s: S, of: &Gates, at: usize, n: usize) -> S::V {
    let r = get(s, of.r, at, n);
    if of.bias.is_empty() { r } else { s.add(r, get(s, of.bias, at, n)) }
}

/// The sum of all parts.
#[inline(always)]
fn gate<S: Simd>(s: S, of: &Gates, at: usize, n: usize) -> S::V {
    s.add(get(s, of.x, at, n), part(s, of, at, n))
}

/// The sum of two.
#[inline(always)]
fn sum<S: Simd>(s: S, x: &[f32], r: &[f32], at: usize, n: usize) -> S::V {
    s.add(get(s, x, at, n), get(s, r, at, n))
}

/// `y · (1 − y)`, the derivative of the logistic function.
#[inline(always)]
fn slope<S: Simd>(s: S, y: S::V) -> S::V {
    s.mul(s.sub(s.splat(1.0), y), y)
}

/// `1 − y²`, that of the hyperbolic tangent.
#[inline(always)]
fn tanh_slope<S: Simd>(s: S, y: S::V) -> S::V {
    s.sub(s.splat(1.0), s.mul(y, y))
}

vectorised! {
    fn lstm<'a, S>(s, of: Gates<'a>, state: &'a mut [f32], cell: &'a mut [f32], saved: &'a mut [f32]) {
        let h = state.len();
        for j in (0..h).step_by(S::LANES) {
            let n = (h - j).min(S::LANES);
            let i = sigmoid(s, gate(s, &of, j, n));
            let f = sigmoid(s, gate(s, &of, h + j, n));
            let g = tanh(s, gate(s, &of, 2 * h + j, n));
            let o = sigmoid(s, gate(s, &of, 3 * h + j, n));
            let c = s.fma(f, get(s, cell, j, n), s.mul(i, g));
            put(s, cell, j, n, c);
            put(s, state, j, n, s.mul(o, tanh(s, c)));
            if !saved.is_empty() {
                put(s, saved, j, n, i);
                put(s, saved, h + j, n, f);
                put(s, saved, 2 * h + j, n, g);
                put(s, saved, 3 * h + j, n, o);
                put(s, saved, 4 * h + j, n, c);
            }
        }
    }

    fn gru<'a, S>(s, of: Gates<'a>, state: &'a mut [f32], saved: &'a mut [f32]) {
        let h = state.len();
        for j in (0..h).step_by(S::LANES) {
            let n = (h - j).min(S::LANES);
            let reset = sigmoid(s, gate(s, &of, j, n));
            let z = sigmoid(s, gate(s, &of, h + j, n));
            let product = part(s, &of, 2 * h + j, n);
            let new = tanh(s, s.fma(reset, product, get(s, of.x, 2 * h + j, n)));
            put(s, state, j, n, s.fma(z, s.sub(get(s, state, j, n), new), new));
            if !saved.is_empty() {
                put(s, saved, j, n, reset);
                put(s, saved, h + j, n, z);
                put(s, saved, 2 * h + j, n, new);
                put(s, saved, 3 * h + j, n, product);
            }
        }
    }

    fn plain<'a, S>(s, of: Gates<'a>, state: &'a mut [f32], bends: bool) {
        let h = state.len();
        for j in (0..h).step_by(S::LANES) {
            let n = (h - j).min(S::LANES);
            let sum = gate(s, &of, j, n);
            // The second operand wins where one is NaN.
            put(s, state, j, n, if bends { tanh(s, sum) } else { s.max(s.zero(), sum) });
        }
    }

    fn lstm_grad<'a, S>(
        s, dy: &'a [f32], saved: &'a [f32], earlier: &'a [f32], by_state: &'a [f32], by_cell: &'a mut [f32],
        product: &'a mut [f32],
    ) {
        let h = by_cell.len();
        for j in (0..h).step_by(S::LANES) {
            let n = (h - j).min(S::LANES);
            let (i, f) = (get(s, saved, j, n), get(s, saved, h + j, n));
            let (g, o) = (get(s, saved, 2 * h + j, n), get(s, saved, 3 * h + j, n));
            let before = if earlier.is_empty() { s.zero() } else { get(s, earlier, j, n) };
            let (d, bent) = (sum(s, dy, by_state, j, n), tanh(s, get(s, saved, 4 * h + j, n)));
            let cell = s.fma(s.mul(d, o), tanh_slope(s, bent), get(s, by_cell, j, n));
            put(s, by_cell, j, n, s.mul(cell, f));
            put(s, product, j, n, s.mul(s.mul(cell, g), slope(s, i)));
            put(s, product, h + j, n, s.mul(s.mul(cell, before), slope(s, f)));
            put(s, product, 2 * h + j, n, s.mul(s.mul(cell, i), tanh_slope(s, g)));
            put(s, product, 3 * h + j, n, s.mul(s.mul(d, bent), slope(s, o)));
        }
    }

    fn gru_grad<'a, S>(
        s, dy: &'a [f32], saved: &'a [f32], earlier: &'a [f32], by_state: &'a [f32], carried: &'a mut [f32],
        dx: &'a mut [f32], product: &'a mut [f32],
    ) {
        let h = carried.len();
        for j in (0..h).step_by(S::LANES) {
            let n = (h - j).min(S::LANES);
            let (reset, z) = (get(s, saved, j, n), get(s, saved, h + j, n));
            let (new, of) = (get(s, saved, 2 * h + j, n), get(s, saved, 3 * h + j, n));
            let d = s.add(sum(s, dy, by_state, j, n), get(s, carried, j, n));
            put(s, carried, j, n, s.mul(d, z));
            let by_new = s.mul(s.mul(d, s.sub(s.splat(1.0), z)), tanh_slope(s, new));
            let by_reset = s.mul(s.mul(by_new, of), slope(s, reset));
            let by_update = s.mul(s.mul(d, s.sub(get(s, earlier, j, n), new)), slope(s, z));
            put(s, dx, j, n, by_reset);
            put(s, dx, h + j, n, by_update);
            put(s, dx, 2 * h + j, n, by_new);
            put(s, product, j, n, by_reset);
            put(s, product, h + j, n, by_update);
            put(s, product, 2 * h + j, n, s.mul(by_new, reset));
        }
    }

    fn plain_grad<'a, S>(s, dy: &'a [f32], y: &'a [f32], by_state: &'a [f32], product: &'a mut [f32], bends: bool) {
        let h = y.len();
        for j in (0..h).step_by(S::LANES) {
            let n = (h - j).min(S::LANES);
            let (d, y) = (sum(s, dy, by_state, j, n), get(s, y, j, n));
            let by = if bends { s.mul(d, tanh_slope(s, y)) } else { s.select(s.gt(y, s.zero()), d, s.zero()) };
            put(s, product, j, n, by);
        }
    }
}
