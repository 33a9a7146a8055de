//! Layers for which PyTorch's order of dimensions matters: flatten and its reverse, reshape, permute, softmax.

use super::order::Order;
use super::{Builder, Tensor};
use crate::config::LayerNode;
use crate::config::language::layers::{self as cfg, MAX_RANK};
use crate::graph::op::{Op, Permute};
use crate::graph::{Shape, ValueId};

impl Builder<'_> {
    /// PyTorch's dimension that `dim` means, where negative numbers count from the end. Reports one that is not there or is that of
    /// the batch; `key` is the argument that has it.
    pub(super) fn dimension(&mut self, node: &LayerNode, key: &str, dim: i64, x: Tensor) -> Option<usize> {
        let shape = self.dims(x);
        let rank = shape.rank() as i64;
        let found = if dim < 0 { dim + rank } else { dim };
        if (1..rank).contains(&found) {
            return Some(found as usize);
        }
        let at = node.fields.get(key).copied().unwrap_or(node.span);
        let message = format!("`{}` cannot work on dimension {dim} of {shape}", node.kind_name());
        let label = match found {
            0 => "this is the batch".to_string(),
            _ => format!("the input has dimensions 0 to {}", rank - 1),
        };
        let help = "dimension 0 is the batch, which stays; -1 is the last";
        self.refuse_at(node, at, &message, &label, &[x], help);
        None
    }

    pub(super) fn flatten(&mut self, node: &LayerNode, l: &cfg::Flatten, x: Tensor) -> (ValueId, Order) {
        let shape = self.dims(x);
        let rank = shape.rank() as i64;
        let index = |d: i64| if d < 0 { d + rank } else { d };
        let (start, end) = (index(l.start_dim), index(l.end_dim));
        if start < 1 || end >= rank || end < start {
            let at = ["start_dim", "end_dim"].iter().find_map(|key| node.fields.get(*key)).copied();
            let message = format!("`flatten` cannot join dimensions {} to {} of {rank}", l.start_dim, l.end_dim);
            let label = format!("the input has dimensions 0 to {}", rank - 1);
            let help = "dimension 0 is the batch, which stays; -1 is the last";
            self.refuse_at(node, at.unwrap_or(node.span), &message, &label, &[x], help);
            return (self.guess(shape), Order::Usual);
        }
        if start == end {
            return (x.value, x.order);
        }
        let (start, end) = (start as usize, end as usize);
        let join = |dims: &[usize], at: usize| {
            let mut out = dims[..at].to_vec();
            out.push(dims[at..=at + end - start].iter().product());
            out.extend_from_slice(&dims[at + end - start + 1..]);
            out
        };
        if let (Order::Usual, Some([_, h, w, c]), (1, 3)) = (x.order, self.shape(x).nhwc(), (start, end)) {
            let joined = join(self.shape(x).dims(), 1);
            let (y, _) = self.reshaped(x, joined, &[0, 1]);
            let same_order = c == 1 || h * w == 1;
            return (y, if same_order { Order::Usual } else { Order::FlatImage([h, w, c]) });
        }
        // Dimensions that lie one after the other stay where they are.
        let axes = self.axes(x);
        let at = axes.iter().position(|dim| *dim == start).expect("the dimension is there");
        let (x, at) = match axes.get(at..=at + end - start) {
            Some(run) if run.iter().copied().eq(start..=end) => (x, at),
            _ => (self.contiguous(x), start),
        };
        let axes: Vec<usize> = self.axes(x).into_iter().filter(|dim| *dim <= start || *dim > end).collect();
        let axes: Vec<usize> = axes.into_iter().map(|d| if d > end { d - (end - start) } else { d }).collect();
        let joined = join(self.shape(x).dims(), at);
        self.reshaped(x, joined, &axes)
    }

    /// The sizes with what is left in the place of -1, if they make up `total` numbers.
    fn sizes(sizes: &[i64], total: usize) -> Option<Vec<usize>> {
        let known = sizes.iter().filter(|size| **size > 0).fold(1usize, |n, size| n.saturating_mul(*size as usize));
        let open = sizes.contains(&-1);
        if known == 0 || !total.is_multiple_of(known) || (!open && known != total) {
            return None;
        }
        Some(sizes.iter().map(|size| usize::try_from(*size).unwrap_or(total / known)).collect())
    }

    pub(super) fn unflatten(&mut self, node: &LayerNode, l: &cfg::Unflatten, x: Tensor) -> (ValueId, Order) {
        let x = self.whole(x);
        let shape = self.dims(x);
        let Some(dim) = self.dimension(node, "dim", l.dim, x) else { return (self.guess(shape), Order::Usual) };
        let size = shape.dims()[dim];
        let written = &l.unflattened_size;
        let Some(sizes) = Self::sizes(written, size) else {
            let at = node.fields.get("unflattened_size").copied().unwrap_or(node.span);
            let message = format!("`unflatten` cannot make {written:?} of the {size} of dimension {dim}");
            self.refuse_at(node, at, &message, &format!("the product must be {size}"), &[x], "");
            return (self.guess(shape), Order::Usual);
        };
        let more = sizes.len() - 1;
        if self.too_many(node, shape.rank() + more, x) {
            return (self.guess(shape), Order::Usual);
        }
        let mut dims = self.shape(x).dims().to_vec();
        let axis = self.axis(x, dim);
        dims.splice(axis..=axis, sizes);
        let axes = self.axes(x).into_iter().flat_map(|d| match d {
            d if d == dim => (d..=d + more).collect::<Vec<_>>(),
            d if d > dim => vec![d + more],
            d => vec![d],
        });
        let axes: Vec<usize> = axes.collect();
        self.reshaped(x, dims, &axes)
    }

    /// Reports more dimensions than a value can have.
    fn too_many(&mut self, node: &LayerNode, rank: usize, x: Tensor) -> bool {
        if rank > MAX_RANK {
            let message = format!("`{}` would make {rank} dimensions", node.kind_name());
            self.refuse(node, &message, &format!("at most {MAX_RANK}, with the batch"), &[x], "");
        }
        rank > MAX_RANK
    }

    pub(super) fn reshape(&mut self, node: &LayerNode, l: &cfg::Reshape, x: Tensor) -> (ValueId, Order) {
        let shape = self.dims(x);
        let numbers: usize = shape.dims()[1..].iter().product();
        let Some(sizes) = Self::sizes(&l.shape, numbers) else {
            let at = node.fields.get("shape").copied().unwrap_or(node.span);
            let message =
                format!("`reshape` cannot make {:?} of samples of {}", l.shape, Shape::from(&shape.dims()[1..]));
            let help = "`shape` is that of a sample, without the batch; -1 stands for what is left";
            let label = format!("a sample has {numbers} numbers");
            self.refuse_at(node, at, &message, &label, &[x], help);
            return (self.guess(shape), Order::Usual);
        };
        let mut dims = vec![shape.dims()[0]];
        dims.extend(sizes);
        let x = self.contiguous(x);
        let axes: Vec<usize> = (0..dims.len()).collect();
        self.reshaped(x, dims, &axes)
    }

    pub(super) fn permute(&mut self, node: &LayerNode, l: &cfg::Permute, x: Tensor) -> (ValueId, Order) {
        let x = self.whole(x);
        let shape = self.dims(x);
        if l.dims.len() != shape.rank() {
            let at = node.fields.get("dims").copied().unwrap_or(node.span);
            let message = format!("`permute` has {} dimensions, but its input is {shape}", l.dims.len());
            let help = "name every dimension once, that of the batch too";
            self.refuse_at(node, at, &message, &format!("must be {}", shape.rank()), &[x], help);
            return (self.guess(shape), Order::Usual);
        }
        // What was dimension `dims[i]` is dimension `i` now: nothing moves.
        let axes = self.axes(x).into_iter().map(|d| l.dims.iter().position(|from| *from == d).expect("a permutation"));
        (x.value, Order::of(&axes.collect::<Vec<_>>()))
    }

    pub(super) fn transpose(&mut self, node: &LayerNode, l: &cfg::Transpose, x: Tensor) -> (ValueId, Order) {
        let x = self.whole(x);
        let [a, b] = [("dim0", l.dim0), ("dim1", l.dim1)].map(|(key, dim)| self.dimension(node, key, dim, x));
        let (Some(a), Some(b)) = (a, b) else {
            let shape = self.dims(x);
            return (self.guess(shape), Order::Usual);
        };
        let axes = self.axes(x).into_iter().map(|d| match d {
            d if d == a => b,
            d if d == b => a,
            d => d,
        });
        (x.value, Order::of(&axes.collect::<Vec<_>>()))
    }

    /// Calls `f` on the value with PyTorch's dimension `dim` as its last axis, and gives the result the order that it had.
    pub(super) fn with_last(
        &mut self,
        x: Tensor,
        dim: usize,
        f: impl FnOnce(&mut Self, ValueId) -> ValueId,
    ) -> (ValueId, Order) {
        let (at, rank) = (self.axis(x, dim), self.shape(x).rank());
        if at + 1 == rank {
            return (f(self, x.value), x.order);
        }
        let mut perm: Vec<usize> = (0..rank).collect();
        perm.swap(at, rank - 1);
        let swapped = self.plain(Permute { perm: perm.clone() }, &[x.value]);
        let y = f(self, swapped);
        // It swaps two axes, and so undoes itself.
        (self.plain(Permute { perm }, &[y]), x.order)
    }

    /// `op`, softmax or its logarithm, over PyTorch's dimension `dim`, which is 1 or -1.
    pub(super) fn softmax(&mut self, dim: i64, op: impl Into<Op>, x: Tensor) -> (ValueId, Order) {
        let x = self.whole(x);
        let dim = if dim < 0 { self.shape(x).rank() - 1 } else { 1 };
        self.with_last(x, dim, |builder, value| builder.plain(op, &[value]))
    }
}
