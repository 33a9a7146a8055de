//! Binary cross-entropy in which elements weigh differently.

use super::loss_weights::{own_weights, store_mean, weighted_factor};
use crate::graph::op::WeightedBinary;
use crate::run::frame::{Frame, NodeKernel, Scratch};
use crate::run::parallel::for_chunks;
use crate::run::threads::chunks;

/// Elements of each task: an element takes some 30 times as long as where memory is the bound.
const GRAIN: usize = 1024;

/// [`crate::graph::op::WeightedBinary`] and its gradient.
pub struct WeightedBinaryKernel {
    loss: WeightedBinary,
    len: usize,
    /// What the batch weighs where elements have no weights of their own.
    items: usize,
    weighted: bool,
    backward: bool,
}

impl WeightedBinaryKernel {
    /// For so many elements, in a batch of so many samples.
    pub fn new(loss: &WeightedBinary, [len, items]: [usize; 2], weighted: bool, backward: bool) -> Self {
        WeightedBinaryKernel { loss: loss.clone(), len, items, weighted, backward }
    }

    /// The loss of element `i`, and its derivative by the prediction.
    fn element(&self, i: usize, x: f64, t: f64) -> [f64; 2] {
        let weight = match self.loss.pos_weight.len() {
            0 => 1.0,
            n => self.loss.pos_weight[i % n] as f64,
        };
        let small = (-x.abs()).exp();
        let tail = small.ln_1p();
        let (softplus, softplus_of_minus) = (x.max(0.0) + tail, (-x).max(0.0) + tail);
        // σ(x) and σ(−x), both to the last digit however small they are.
        let (large, small) = (1.0 / (1.0 + small), small / (1.0 + small));
        let (yes, no) = if x >= 0.0 { (large, small) } else { (small, large) };
        let entropy = weight * t * softplus_of_minus + (1.0 - t) * softplus;
        let slope = (1.0 - t) * yes - weight * t * no;
        let [gamma, alpha] = self.loss.gamma_and_alpha().map(f64::from);
        let share = if alpha < 0.0 { 1.0 } else { alpha * t + (1.0 - alpha) * (1.0 - t) };
        if gamma == 0.0 {
            return [share * entropy, share * slope];
        }
        let off = t * no + (1.0 - t) * yes;
        if off == 0.0 {
            return [0.0, 0.0];
        }
        let power = off.powf(gamma);
        let bend = gamma * power / off * yes * no * (1.0 - 2.0 * t) * entropy;
        [share * power * entropy, share * (power * slope + bend)]
    }
}

impl NodeKernel for WeightedBinaryKernel {
    fn scratch_bytes(&self) -> usize {
        if self.backward { 0 } else { Scratch::size::<f64>(2 * chunks(self.len, GRAIN).count()) }
    }

    fn run(&self, frame: &Frame<'_>) {
        let (x, t) = (frame.input::<f32>(0), frame.input::<f32>(1));
        let own = own_weights(frame, self.weighted, self.backward);
        let own = |i: usize| own.get(i).map_or(1.0, |own| *own as f64);
        if self.backward {
            let factor = match self.weighted {
                true => weighted_factor(frame, self.len, self.items),
                false => frame.input::<f32>(3)[0] as f64 / self.len as f64,
            };
            for_chunks(frame.pool(), frame.output::<f32>(0), GRAIN, |start, dx| {
                for (i, dx) in (start..).zip(dx) {
                    *dx = (factor * own(i) * self.element(i, x[i] as f64, t[i] as f64)[1]) as f32;
                }
            });
            return;
        }
        let pieces = chunks(self.len, GRAIN);
        let partial = frame.scratch().take::<f64>(2 * pieces.count());
        for_chunks(frame.pool(), partial, 2, |start, sums| {
            let r = pieces.range(start / 2);
            sums[0] = r.clone().map(|i| own(i) * self.element(i, x[i] as f64, t[i] as f64)[0]).sum();
            sums[1] = r.map(own).sum();
        });
        store_mean(frame, partial, [self.len, self.items], self.weighted);
    }
}
