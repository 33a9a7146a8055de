//! Dot products of the vectors of a sequence with one another.

use super::{Builder, Tensor};
use crate::config::LayerNode;
use crate::graph::op::{Binary, BinaryKind, Concat, Reshape, Slice, SumTo};
use crate::graph::{Shape, ValueId};

impl Builder<'_> {
    /// `[N, L, D]` to `[N, L (L - 1) / 2]`: each vector by those before it, as `interact_features` of the DLRM's authors orders them.
    pub(super) fn dot_interaction(&mut self, node: &LayerNode, x: Tensor) -> ValueId {
        let x = self.in_pytorch_order(x);
        let &[n, vectors, _] = self.graph.shape(x.value).dims() else {
            let help = "it is [N, L, D], as `feature_tokenizer` makes it";
            self.refuse(node, "`dot_interaction` takes vectors of a sequence", "takes several vectors", &[x], help);
            return self.guess(Shape::from([self.batch, 1]));
        };
        if vectors < 2 {
            let help = "`concat` puts sequences after one another, with `dim = 1`";
            self.refuse(node, "`dot_interaction` has one vector, and no pair", "takes several vectors", &[x], help);
            return self.guess(Shape::from([n, 1]));
        }
        let mut parts = Vec::with_capacity(vectors - 1);
        for at in 1..vectors {
            let own = self.plain(Slice { axis: 1, start: at, len: 1 }, &[x.value]);
            let before = self.plain(Slice { axis: 1, start: 0, len: at }, &[x.value]);
            let products = self.plain(Binary { kind: BinaryKind::Mul }, &[before, own]);
            let sums = self.plain(SumTo { shape: Shape::from([n, at, 1]) }, &[products]);
            parts.push(self.plain(Reshape { shape: Shape::from([n, at]) }, &[sums]));
        }
        match parts[..] {
            [one] => one,
            _ => self.plain(Concat { axis: 1 }, &parts),
        }
    }
}
