//! Classes that have an order: what a model says of the steps between them as probabilities of the classes.
//!
//! Shi, Cao and Raschka 2021, "Deep Neural Networks for Rank-Consistent Ordinal Regression Based On Conditional Probabilities" (CORN): output `k` is the logit of
//! `P(y > k | y ≥ k)`. A class `c` is above all steps before its own, and not above that one: the product of these probabilities is `P(y = c)`. Its negative logarithm
//! is the sum of the binary cross-entropies that the article has for a sample.

use super::{Builder, Tensor};
use crate::graph::op::{Binary, BinaryKind, LogSoftmax, Pad, Reshape, Slice};
use crate::graph::{Shape, ValueId};

const ADD: Binary = Binary { kind: BinaryKind::Add };

impl Builder<'_> {
    /// The logarithms of the probabilities of `K` classes, `[N, …, K]`, where the loss is for an order and the model puts out `[N, …, K − 1]`; all else as it is.
    pub(super) fn ordered_classes(&mut self, y: Tensor) -> Tensor {
        let dims = self.shape(y).dims().to_vec();
        let [before @ .., steps] = &dims[..] else { return y };
        if !self.experiment.loss.is_ordinal() || before.is_empty() || self.guesses.contains(&y.value) {
            return y;
        }
        self.graph.set_origin("loss");
        let (axis, classes) = (before.len(), steps + 1);
        // The softmax over a logit and 0 has its sigmoid and that of its opposite.
        let tall = Shape(before.iter().copied().chain([*steps, 1]).collect());
        let tall = self.plain(Reshape { shape: tall }, &[y.value]);
        let pairs = self.plain(Pad { axis: axis + 1, before: 0, after: 1 }, &[tall]);
        let pairs = self.plain(LogSoftmax {}, &[pairs]);
        let [above, not] = [0, 1].map(|start| {
            let one = self.plain(Slice { axis: axis + 1, start, len: 1 }, &[pairs]);
            self.plain(Reshape { shape: Shape(dims.clone()) }, &[one])
        });
        // The last class has no step of its own.
        let not = self.plain(Pad { axis, before: 0, after: 1 }, &[not]);
        let above = self.plain(Pad { axis, before: 1, after: 0 }, &[above]);
        let above = self.sums_so_far(above, axis, classes);
        let value = self.plain(ADD, &[above, not]);
        Tensor { value, ..y }
    }

    /// The sum of each of `len` numbers along `axis` and all before it.
    fn sums_so_far(&mut self, mut x: ValueId, axis: usize, len: usize) -> ValueId {
        let mut by = 1;
        while by < len {
            let moved = self.plain(Slice { axis, start: 0, len: len - by }, &[x]);
            let moved = self.plain(Pad { axis, before: by, after: 0 }, &[moved]);
            x = self.plain(ADD, &[x, moved]);
            by *= 2;
        }
        x
    }
}
