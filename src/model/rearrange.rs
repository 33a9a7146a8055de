//! Layers for which PyTorch's order of dimensions matters: flatten and softmax.

use super::{Builder, Tensor};
use crate::config::LayerNode;
use crate::config::language::layers as cfg;
use crate::graph::op::{Permute, Reshape, Softmax};
use crate::graph::{Shape, ValueId};

impl Builder<'_> {
    /// The flattened value; and, where its elements are not in PyTorch's order, what images they come from.
    pub(super) fn flatten(&mut self, node: &LayerNode, l: &cfg::Flatten, x: Tensor) -> (ValueId, Option<[usize; 3]>) {
        let shape = self.shape(x).clone();
        let rank = shape.rank() as i64;
        let index = |d: i64| if d < 0 { d + rank } else { d };
        let (start, end) = (index(l.start_dim), index(l.end_dim));
        if start < 1 || end >= rank || end < start {
            let at = ["start_dim", "end_dim"].iter().find_map(|key| node.fields.get(*key)).copied();
            let message = format!("`flatten` cannot join dimensions {} to {} of {rank}", l.start_dim, l.end_dim);
            let label = format!("the input has dimensions 0 to {}", rank - 1);
            let help = "dimension 0 is the batch, which stays; -1 is the last";
            self.refuse_at(node, at.unwrap_or(node.span), &message, &label, &[x], help);
            return (self.guess(shape), None);
        }
        if start == end {
            return (x.value, x.flat);
        }
        let (start, end) = (start as usize, end as usize);
        let join = |dims: &[usize]| {
            let mut out = dims[..start].to_vec();
            out.push(dims[start..=end].iter().product());
            out.extend_from_slice(&dims[end + 1..]);
            Reshape { shape: Shape(out) }
        };
        match shape.nhwc() {
            Some([_, h, w, c]) if (start, end) == (1, 3) => {
                let y = self.plain(join(shape.dims()), &[x.value]);
                let same_order = c == 1 || h * w == 1;
                (y, (!same_order).then_some([h, w, c]))
            }
            Some(_) => {
                let first = self.plain(Permute { perm: vec![0, 3, 1, 2] }, &[x.value]);
                (self.plain(join(shape.to_pytorch().dims()), &[first]), None)
            }
            None => (self.plain(join(shape.dims()), &[x.value]), None),
        }
    }

    pub(super) fn softmax(&mut self, l: &cfg::Softmax, x: Tensor) -> ValueId {
        let x = self.in_pytorch_order(x);
        // The operation works on the last axis inside. That is the channel of images, but PyTorch's last dimension of all
        // else.
        let perm = match (self.shape(x).rank(), l.dim) {
            (3, 1) => vec![0, 2, 1],
            (4, -1) => vec![0, 1, 3, 2],
            _ => return self.plain(Softmax {}, &[x.value]),
        };
        let swapped = self.plain(Permute { perm: perm.clone() }, &[x.value]);
        let y = self.plain(Softmax {}, &[swapped]);
        // Both swap two axes, and so undo themselves.
        self.plain(Permute { perm }, &[y])
    }
}
