//! Several quantiles of each target: the loss of all of them as operations, and the ones that figures go by.

use super::Builder;
use crate::config::language::sections::middle;
use crate::graph::op::{
    Activation, ActivationOp, Binary, BinaryKind, Concat, ElementwiseLoss, Loss, NewFull, Reshape, Slice,
};
use crate::graph::{Shape, ValueId};

const ADD: Binary = Binary { kind: BinaryKind::Add };
const MUL: Binary = Binary { kind: BinaryKind::Mul };

impl Builder<'_> {
    /// The pinball losses of predictions `y [N, …, targets · quantiles]` of what is learnt, `t [N, …, targets]`: what is compared with what by which loss
    /// so that its mean is theirs. As `max(t − y, 0) · q + max(y − t, 0) · (1 − q)` is not negative, that is its absolute value.
    pub(super) fn pinball(&mut self, y: ValueId, t: ValueId) -> (ValueId, ValueId, Loss) {
        let quantiles = self.experiment.loss.quantiles().to_vec();
        let whole = self.graph.shape(t).clone();
        let with = |last: usize| Shape(whole.dims().iter().copied().chain([last]).collect());
        let minus = self.filled(-1.0, t, whole.rank() + 1);
        let y = self.plain(Reshape { shape: with(quantiles.len()) }, &[y]);
        let t = self.plain(Reshape { shape: with(1) }, &[t]);
        let [less_y, less_t] = [y, t].map(|x| self.plain(MUL, &[x, minus]));
        let below = self.plain(ADD, &[t, less_y]);
        let above = self.plain(ADD, &[y, less_t]);
        let weighed = |from: &mut Self, distance: ValueId, weight: &dyn Fn(f64) -> f64| {
            let there = from.plain(ActivationOp { act: Activation::Relu }, &[distance]);
            let rank = whole.rank() + 1;
            let weights: Vec<ValueId> = quantiles.iter().map(|q| from.filled(weight(*q) as f32, t, rank)).collect();
            let weights = from.plain(Concat { axis: rank - 1 }, &weights);
            from.plain(MUL, &[there, weights])
        };
        let below = weighed(self, below, &|q| q);
        let above = weighed(self, above, &|q| 1.0 - q);
        let loss = self.plain(ADD, &[below, above]);
        let nothing = self.plain(NewFull { shape: with(quantiles.len()), value: 0.0 }, &[loss]);
        (loss, nothing, ElementwiseLoss::L1.into())
    }

    /// A number with so many axes of length 1.
    fn filled(&mut self, value: f32, beside: ValueId, rank: usize) -> ValueId {
        self.plain(NewFull { shape: Shape(vec![1; rank]), value }, &[beside])
    }

    /// Of predictions of several quantiles the one that figures go by, `[N, …, targets]`; all others as they are.
    pub(super) fn middle_quantile(&mut self, y: ValueId) -> ValueId {
        let quantiles = self.experiment.loss.quantiles();
        if quantiles.is_empty() {
            return y;
        }
        let (each, start) = (quantiles.len(), middle(quantiles));
        let mut dims = self.graph.shape(y).dims().to_vec();
        let last = dims.len() - 1;
        dims[last] /= each;
        let shape = Shape(dims.clone());
        dims.push(each);
        let apart = self.plain(Reshape { shape: Shape(dims) }, &[y]);
        let one = self.plain(Slice { axis: last + 1, start, len: 1 }, &[apart]);
        self.plain(Reshape { shape }, &[one])
    }

    /// What a sample's outputs are to be like to be compared with targets of this shape, where they are numbers.
    pub(super) fn with_quantiles(&self, target: &Shape) -> Shape {
        let each = self.experiment.loss.quantiles().len();
        match target.dims() {
            _ if each == 0 => target.clone(),
            [] => Shape::from([each]),
            [before @ .., last] => Shape(before.iter().copied().chain([last * each]).collect()),
        }
    }

    /// Whether `y` has a number for each quantile of a single target.
    pub(super) fn is_of_one_target(&self, sample: &Shape, target: &Shape) -> bool {
        let each = self.experiment.loss.quantiles().len().max(1);
        target.len() == 1 && sample.len() == each
    }
}
