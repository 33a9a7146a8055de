//! Adafactor's update of one parameter, and the clipping of gradients by the norms of weights.

use super::Tensor;
use crate::graph::Shape;
use crate::graph::op::{AdaptiveClip, Matrices, Moments, TensorOptions};

/// What Adafactor works with.
pub(super) struct Adafactor {
    pub beta2_decay: f64,
    pub eps: [f64; 2],
    pub d: f64,
    pub moments: Moments,
}

impl Adafactor {
    /// The `t`-th update of `p` with gradient `g` and the learning rate `lr`. `shapes` are those of the state.
    pub fn update(
        &self,
        options: &TensorOptions,
        [lr, t]: [f64; 2],
        p: &mut [f64],
        g: &[f64],
        state: &mut [Vec<f64>],
        shapes: &[&[usize]],
    ) {
        let share = t.powf(self.beta2_decay);
        let squares = match self.moments {
            Moments::Factored => self.factored(share, g, state, shapes),
            moments => {
                for (mean, g) in state[0].iter_mut().zip(g) {
                    *mean += share * (g * g - *mean);
                }
                let of_point = |mean: &f64| mean * mean / mean.max(self.eps[0]);
                match moments {
                    Moments::Points => state[0].iter().map(of_point).collect(),
                    _ => state[0].clone(),
                }
            }
        };
        let floor = self.eps[0] * self.eps[0];
        let steps: Vec<f64> = g.iter().zip(squares).map(|(g, square)| g / square.max(floor).sqrt()).collect();
        let size = |x: &[f64]| (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64).sqrt();
        let rate = size(p).max(self.eps[1]) * lr.min(t.powf(-0.5)) / (size(&steps) / self.d).max(1.0);
        for (p, step) in p.iter_mut().zip(steps) {
            *p = *p * (1.0 - lr * f64::from(options.weight_decay)) - rate * step;
        }
    }

    /// Takes squares into the means of rows and columns; what these make of each element.
    fn factored(&self, share: f64, g: &[f64], state: &mut [Vec<f64>], shapes: &[&[usize]]) -> Vec<f64> {
        let of =
            Matrices::with_shapes(&Shape::from(shapes[0]), &Shape::from(shapes[1])).expect("the rules have looked");
        let Matrices { first, second, inner, by_rows, .. } = of;
        // For an element, its places among the means of rows, those of columns, and the matrices.
        let places = |at: usize| {
            let (i, s) = (at % inner, at / inner % second);
            let (f, outer) = (at / inner / second % first, at / inner / second / first);
            let [over_second, over_first] = [(outer * first + f) * inner + i, (outer * second + s) * inner + i];
            let matrix = outer * inner + i;
            if by_rows { [over_second, over_first, matrix] } else { [over_first, over_second, matrix] }
        };
        let [rows, columns] = if by_rows { [first, second] } else { [second, first] };
        let mut sums = [vec![0.0; state[0].len()], vec![0.0; state[1].len()]];
        for (at, g) in g.iter().enumerate() {
            let [row, column, _] = places(at);
            sums[0][row] += g * g / columns as f64;
            sums[1][column] += g * g / rows as f64;
        }
        for (means, sums) in state.iter_mut().zip(sums) {
            means.iter_mut().zip(sums).for_each(|(mean, new)| *mean += share * (new - *mean));
        }
        let mut of_matrices = vec![0.0; of.outer * inner];
        for at in 0..g.len() {
            let [row, _, matrix] = places(at);
            of_matrices[matrix] += state[0][row] / (rows * columns) as f64;
        }
        let square = |at: usize| {
            let [row, column, matrix] = places(at);
            state[0][row] * state[1][column] / of_matrices[matrix].max(self.eps[0])
        };
        (0..g.len()).map(square).collect()
    }
}

/// The gradient.
pub(super) fn adaptive_clip(op: &AdaptiveClip, x: &[Tensor]) -> Vec<Vec<f64>> {
    let (schedule, gradient) = (x[0].data, op.gradient());
    let scale = schedule[1] / schedule[2] / if op.scaled { x[1].data[0] } else { 1.0 };
    let (g, p) = (x[gradient].data, x[gradient + 1].data);
    let [_, units, after] = op.units;
    let unit = |at: usize| at / after % units;
    let mut sums = vec![[0.0; 2]; units];
    for at in 0..g.len() {
        let sum = &mut sums[unit(at)];
        *sum = [sum[0] + g[at] * g[at], sum[1] + p[at] * p[at]];
    }
    let factors: Vec<f64> = sums.iter().map(|[g, p]| op.scale(g.sqrt() * scale.abs(), p.sqrt())).collect();
    vec![g.iter().enumerate().map(|(at, g)| g * factors[unit(at)]).collect()]
}
