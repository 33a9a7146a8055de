//! How the elements of values lie: inside, the dimensions may stand in another order than PyTorch's.
//!
//! A layer that only gives dimensions another order moves nothing. What comes after it either reads the elements where they are,
//! or asks for the usual order.

use super::{Builder, Tensor};
use crate::config::language::layers::MAX_RANK;
use crate::graph::op::{Permute, Reshape};
use crate::graph::{Shape, ValueId};

/// How the elements of a value lie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Order {
    /// As PyTorch has them, but for four dimensions, which are images and have their channels last.
    Usual,
    /// It is a flattened image whose elements are still in the order (row, column, channel); the height, width and
    /// channels it had. The next layer either takes that into account or puts the elements into PyTorch's order.
    FlatImage([usize; 3]),
    /// Axis `i` is PyTorch's dimension `axes[i]`.
    Axes([u8; MAX_RANK]),
}

/// The usual order of so many dimensions.
fn usual(rank: usize) -> Vec<usize> {
    if rank == 4 { vec![0, 2, 3, 1] } else { (0..rank).collect() }
}

impl Order {
    /// The order in which axis `i` is PyTorch's dimension `axes[i]`.
    pub fn of(axes: &[usize]) -> Order {
        if *axes == usual(axes.len()) {
            return Order::Usual;
        }
        let mut all = [0; MAX_RANK];
        for (to, from) in all.iter_mut().zip(axes) {
            *to = *from as u8;
        }
        Order::Axes(all)
    }
}

impl Builder<'_> {
    /// PyTorch's dimension of each axis. The value is no flattened image in another order.
    pub(super) fn axes(&self, t: Tensor) -> Vec<usize> {
        let rank = self.shape(t).rank();
        match t.order {
            Order::Axes(axes) => axes[..rank].iter().map(|dim| usize::from(*dim)).collect(),
            Order::Usual => usual(rank),
            Order::FlatImage(_) => (0..rank).collect(),
        }
    }

    /// The axis that is PyTorch's dimension `dim`.
    pub(super) fn axis(&self, t: Tensor, dim: usize) -> usize {
        self.axes(t).iter().position(|d| *d == dim).expect("the dimension is there")
    }

    /// The shape as PyTorch has it.
    pub(super) fn dims(&self, t: Tensor) -> Shape {
        let mut dims = self.shape(t).dims().to_vec();
        for (axis, dim) in self.axes(t).into_iter().enumerate() {
            dims[dim] = self.shape(t).dims()[axis];
        }
        Shape(dims)
    }

    /// The value with PyTorch's dimension `axes[i]` as axis `i`.
    pub(super) fn arranged(&mut self, t: Tensor, axes: &[usize]) -> Tensor {
        let t = self.whole(t);
        let now = self.axes(t);
        if now == axes {
            return t;
        }
        let perm = axes.iter().map(|dim| now.iter().position(|d| d == dim).expect("a permutation")).collect();
        let value = self.plain(Permute { perm }, &[t.value]);
        Tensor { value, order: Order::of(axes), ..t }
    }

    /// The value with its elements in PyTorch's order, but for images, whose channels come last.
    pub(super) fn in_pytorch_order(&mut self, t: Tensor) -> Tensor {
        let axes = usual(self.shape(t).rank());
        self.arranged(t, &axes)
    }

    /// The value with its elements in PyTorch's order, images too.
    pub(super) fn contiguous(&mut self, t: Tensor) -> Tensor {
        let axes: Vec<usize> = (0..self.shape(t).rank()).collect();
        self.arranged(t, &axes)
    }

    /// The value with dimensions that are each an axis: a flattened image in PyTorch's order.
    pub(super) fn whole(&mut self, t: Tensor) -> Tensor {
        let Order::FlatImage([h, w, c]) = t.order else { return t };
        let n = self.shape(t).dims()[0];
        let image = self.plain(Reshape { shape: Shape::from([n, h, w, c]) }, &[t.value]);
        let first = self.plain(Permute { perm: vec![0, 3, 1, 2] }, &[image]);
        let value = self.plain(Reshape { shape: Shape::from([n, c * h * w]) }, &[first]);
        Tensor { value, order: Order::Usual, ..t }
    }

    /// The values in one order: theirs, if they have the same, or the usual one.
    pub(super) fn aligned(&mut self, list: &[Tensor]) -> Vec<Tensor> {
        let same = |t: &Tensor| matches!(t.order, Order::Axes(_)) && t.order == list[0].order;
        let one_rank = list.iter().all(|t| self.shape(*t).rank() == self.shape(list[0]).rank());
        if one_rank && list.iter().all(same) {
            return list.to_vec();
        }
        list.iter().map(|t| self.in_pytorch_order(*t)).collect()
    }

    /// `t` under the shape `shape`, whose axes are PyTorch's dimensions `axes`.
    pub(super) fn reshaped(&mut self, t: Tensor, shape: Vec<usize>, axes: &[usize]) -> (ValueId, Order) {
        (self.plain(Reshape { shape: Shape(shape) }, &[t.value]), Order::of(axes))
    }
}
