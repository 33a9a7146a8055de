//! Layers that take parts of a value, move them, or put something around them; means and sums over dimensions.

use super::order::Order;
use super::{Builder, Tensor};
use crate::config::LayerNode;
use crate::config::language::layers as cfg;
use crate::config::language::lists::Integers;
use crate::graph::op::{
    ActivationOp, AdaptiveAvgPool2d, Binary, BinaryKind, Concat, Pad, Permute, Reshape, Slice, SumTo,
};
use crate::graph::{Shape, ValueId};

/// How an image goes on beyond its sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beyond {
    Zeros,
    Reflection,
    Replication,
}

impl Builder<'_> {
    /// What goes on in the place of a layer with a mistake.
    fn as_it_was(&mut self, x: Tensor) -> (ValueId, Order) {
        let shape = self.shape(x).clone();
        (self.guess(shape), x.order)
    }

    fn part(&mut self, x: Tensor, dim: usize, start: usize, len: usize) -> ValueId {
        let axis = self.axis(x, dim);
        self.plain(Slice { axis, start, len }, &[x.value])
    }

    pub(super) fn chunk(&mut self, node: &LayerNode, l: &cfg::Chunk, x: Tensor) -> (ValueId, Order) {
        let x = self.whole(x);
        let Some(dim) = self.dimension(node, "dim", l.dim, x) else { return self.as_it_was(x) };
        let size = self.dims(x).dims()[dim];
        // As PyTorch: parts of one size, of which the last may be smaller.
        let each = size.div_ceil(l.chunks);
        let start = each * l.index;
        if start >= size {
            let at = node.fields.get("index").copied().unwrap_or(node.span);
            let parts = size.div_ceil(each);
            let message = format!("`chunk` has no part {} of the {size} of dimension {dim}", l.index);
            let label = format!("there are {parts} parts of {each}");
            self.refuse_at(node, at, &message, &label, &[x], "take another number of `chunks`");
            return self.as_it_was(x);
        }
        (self.part(x, dim, start, each.min(size - start)), x.order)
    }

    pub(super) fn slice(&mut self, node: &LayerNode, l: &cfg::Slice, x: Tensor) -> (ValueId, Order) {
        let x = self.whole(x);
        let Some(dim) = self.dimension(node, "dim", l.dim, x) else { return self.as_it_was(x) };
        let size = self.dims(x).dims()[dim] as i64;
        let index = |i: i64| if i < 0 { i.saturating_add(size) } else { i };
        let (start, end) = (index(l.start), l.end.map_or(size, index));
        if start < 0 || end > size || start >= end {
            let at = ["end", "start"].iter().find_map(|key| node.fields.get(*key)).copied();
            let end = l.end.map_or(String::new(), |end| end.to_string());
            let message = format!("`slice` cannot take {}:{end} of the {size} of dimension {dim}", l.start);
            let help = "`start` is the first index, `end` the one after the last; negative numbers count from the end";
            let label = format!("the indices are 0 to {}", size - 1);
            self.refuse_at(node, at.unwrap_or(node.span), &message, &label, &[x], help);
            return self.as_it_was(x);
        }
        (self.part(x, dim, start as usize, (end - start) as usize), x.order)
    }

    pub(super) fn select(&mut self, node: &LayerNode, l: &cfg::Select, x: Tensor) -> (ValueId, Order) {
        let x = self.whole(x);
        let Some(dim) = self.dimension(node, "dim", l.dim, x) else { return self.as_it_was(x) };
        let size = self.dims(x).dims()[dim] as i64;
        let index = if l.index < 0 { l.index.saturating_add(size) } else { l.index };
        if !(0..size).contains(&index) {
            let at = node.fields.get("index").copied().unwrap_or(node.span);
            let message = format!("`select` cannot take {} of the {size} of dimension {dim}", l.index);
            let label = format!("the indices are 0 to {}", size - 1);
            self.refuse_at(node, at, &message, &label, &[x], "negative numbers count from the end");
            return self.as_it_was(x);
        }
        if self.nothing_left(node, x, &[dim], "take `slice`, which keeps the dimension") {
            return self.as_it_was(x);
        }
        let value = self.part(x, dim, index as usize, 1);
        self.without(Tensor { value, ..x }, &[dim])
    }

    /// Reports a sample of which no dimension stays.
    fn nothing_left(&mut self, node: &LayerNode, x: Tensor, gone: &[usize], help: &str) -> bool {
        let shape = self.dims(x);
        let nothing = gone.len() + 1 >= shape.rank();
        if nothing {
            let message = format!("`{}` leaves no dimension of samples of {}", node.kind_name(), shape);
            self.refuse(node, &message, "only the batch would stay", &[x], help);
        }
        nothing
    }

    /// The value without the dimensions `gone`, which have length 1.
    fn without(&mut self, x: Tensor, gone: &[usize]) -> (ValueId, Order) {
        let axes = self.axes(x);
        let stay = |dim: &usize| !gone.contains(dim);
        let sizes = axes.iter().zip(self.shape(x).dims()).filter(|(dim, _)| stay(dim)).map(|(_, size)| *size).collect();
        let left = |dim: usize| dim - gone.iter().filter(|other| **other < dim).count();
        let axes: Vec<usize> = axes.iter().filter(|dim| stay(dim)).map(|dim| left(*dim)).collect();
        self.reshaped(x, sizes, &axes)
    }

    /// The mean or the `sum` over dimensions.
    pub(super) fn reduced(
        &mut self,
        node: &LayerNode,
        dim: &Integers,
        keepdim: bool,
        sum: bool,
        x: Tensor,
    ) -> (ValueId, Order) {
        let x = self.whole(x);
        let mut dims = Vec::new();
        for dim in &dim.0 {
            match self.dimension(node, "dim", *dim, x) {
                Some(dim) if !dims.contains(&dim) => dims.push(dim),
                Some(_) => {}
                None => return self.as_it_was(x),
            }
        }
        if !keepdim && self.nothing_left(node, x, &dims, "`keepdim = true` keeps the dimensions, with length 1") {
            return self.as_it_was(x);
        }
        let over: Vec<bool> = self.axes(x).iter().map(|dim| dims.contains(dim)).collect();
        let mut shape = self.shape(x).dims().to_vec();
        let mut value = x.value;
        // One run of axes after the other, as the rows of an image.
        let mut at = 0;
        while at < shape.len() {
            let end = at + over[at..].iter().take_while(|over| **over).count();
            let [before, run, behind] = [&shape[..at], &shape[at..end], &shape[end..]].map(|s| s.iter().product());
            shape[at..end].fill(1);
            at = end.max(at + 1);
            if run == 1 {
                continue;
            }
            let image = self.plain(Reshape { shape: Shape::from([before, run, 1, behind]) }, &[value]);
            value = match sum {
                true => self.plain(SumTo { shape: Shape::from([before, 1, 1, behind]) }, &[image]),
                false => self.plain(AdaptiveAvgPool2d { output: [1, 1] }, &[image]),
            };
        }
        let value = self.plain(Reshape { shape: Shape(shape) }, &[value]);
        let y = Tensor { value, ..x };
        if keepdim { (value, x.order) } else { self.without(y, &dims) }
    }

    pub(super) fn roll(&mut self, node: &LayerNode, l: &cfg::Roll, x: Tensor) -> (ValueId, Order) {
        let mut x = self.whole(x);
        for (shift, dim) in l.shifts.0.iter().zip(&l.dims.0) {
            let Some(dim) = self.dimension(node, "dims", *dim, x) else { return self.as_it_was(x) };
            let size = self.dims(x).dims()[dim];
            let shift = shift.rem_euclid(size.max(1) as i64) as usize;
            if shift != 0 {
                let axis = self.axis(x, dim);
                let parts = [self.part(x, dim, size - shift, shift), self.part(x, dim, 0, size - shift)];
                x.value = self.plain(Concat { axis }, &parts);
            }
        }
        (x.value, x.order)
    }

    pub(super) fn gated(&mut self, node: &LayerNode, l: cfg::Gated, x: Tensor) -> (ValueId, Order) {
        let x = self.whole(x);
        let Some(dim) = self.dimension(node, "dim", l.dim, x) else { return self.as_it_was(x) };
        let size = self.dims(x).dims()[dim];
        if !size.is_multiple_of(2) {
            let at = node.fields.get("dim").copied().unwrap_or(node.span);
            let message = format!("`{}` cannot halve the {size} of dimension {dim}", l.word);
            self.refuse_at(node, at, &message, "must be even", &[x], "");
            return self.as_it_was(x);
        }
        let mut halves = [0, size / 2].map(|start| self.part(x, dim, start, size / 2));
        halves[l.gate] = self.plain(ActivationOp { act: l.act }, &[halves[l.gate]]);
        (self.plain(Binary { kind: BinaryKind::Mul }, &halves), x.order)
    }

    pub(super) fn channel_shuffle(&mut self, node: &LayerNode, l: &cfg::ChannelShuffle, x: Tensor) -> (ValueId, Order) {
        let x = self.whole(x);
        let axis = self.axis(x, 1);
        let dims = self.shape(x).dims().to_vec();
        let (c, groups) = (dims[axis], l.groups);
        if c % groups != 0 {
            let at = node.fields.get("groups").copied().unwrap_or(node.span);
            let s = if c == 1 { "" } else { "s" };
            let message = format!("`channel_shuffle` cannot split {c} channel{s} into {groups} groups");
            self.refuse_at(node, at, &message, &format!("must divide {c}"), &[x], "");
            return self.as_it_was(x);
        }
        let mut split = dims.clone();
        split.splice(axis..=axis, [groups, c / groups]);
        let mut perm: Vec<usize> = (0..split.len()).collect();
        perm.swap(axis, axis + 1);
        let groups = self.plain(Reshape { shape: Shape(split) }, &[x.value]);
        let shuffled = self.plain(Permute { perm }, &[groups]);
        (self.plain(Reshape { shape: Shape(dims) }, &[shuffled]), x.order)
    }

    pub(super) fn pixel_shuffle(&mut self, node: &LayerNode, l: &cfg::PixelShuffle, x: Tensor) -> ValueId {
        let x = self.in_pytorch_order(x);
        let Some([n, h, w, c]) = self.image(node, "pixel_shuffle", x) else { return self.as_it_was(x).0 };
        let r = l.upscale_factor;
        if c % (r * r) != 0 {
            let at = node.fields.get("upscale_factor").copied().unwrap_or(node.span);
            let s = if c == 1 { "" } else { "s" };
            let message = format!("`pixel_shuffle` cannot make {r} × {r} pixels of {c} channel{s}");
            self.refuse_at(node, at, &message, &format!("{} must divide {c}", r * r), &[x], "");
            return self.as_it_was(x).0;
        }
        let out = c / (r * r);
        let split = self.plain(Reshape { shape: Shape::from([n, h, w, out, r, r]) }, &[x.value]);
        let moved = self.plain(Permute { perm: vec![0, 1, 4, 2, 5, 3] }, &[split]);
        self.plain(Reshape { shape: Shape::from([n, h * r, w * r, out]) }, &[moved])
    }

    pub(super) fn pixel_unshuffle(&mut self, node: &LayerNode, l: &cfg::PixelUnshuffle, x: Tensor) -> ValueId {
        let x = self.in_pytorch_order(x);
        let Some([n, h, w, c]) = self.image(node, "pixel_unshuffle", x) else { return self.as_it_was(x).0 };
        let r = l.downscale_factor;
        if h % r != 0 || w % r != 0 {
            let at = node.fields.get("downscale_factor").copied().unwrap_or(node.span);
            let message = format!("`pixel_unshuffle` cannot divide {h} × {w} pixels by {r}");
            self.refuse_at(node, at, &message, "must divide both sides", &[x], "");
            return self.as_it_was(x).0;
        }
        let split = self.plain(Reshape { shape: Shape::from([n, h / r, r, w / r, r, c]) }, &[x.value]);
        let moved = self.plain(Permute { perm: vec![0, 1, 3, 5, 2, 4] }, &[split]);
        self.plain(Reshape { shape: Shape::from([n, h / r, w / r, c * r * r]) }, &[moved])
    }

    pub(super) fn pad2d(
        &mut self,
        node: &LayerNode,
        [left, right, top, bottom]: [usize; 4],
        beyond: Beyond,
        x: Tensor,
    ) -> ValueId {
        let x = self.in_pytorch_order(x);
        let Some([_, h, w, _]) = self.image(node, node.kind_name(), x) else { return self.as_it_was(x).0 };
        let mut y = x;
        for (dim, size, before, after) in [(2, h, top, bottom), (3, w, left, right)] {
            if beyond == Beyond::Reflection && before.max(after) >= size {
                let at = node.fields.get("padding").copied().unwrap_or(node.span);
                let message = format!("`reflection_pad2d` cannot mirror {} of {size} pixels", before.max(after));
                self.refuse_at(node, at, &message, &format!("must be below {size}"), &[x], "");
                return self.as_it_was(x).0;
            }
            if before + after == 0 {
                continue;
            }
            let axis = self.axis(y, dim);
            y.value = match beyond {
                Beyond::Zeros => {
                    let mut meant = self.shape(y).clone();
                    meant.0[axis] = 1;
                    self.apply(node, Pad { axis, before, after }, &[y.value], &[x], meant, "")
                }
                _ => {
                    let mirrored = beyond == Beyond::Reflection;
                    let ahead = (1..=before).rev().map(|i| if mirrored { i } else { 0 });
                    let behind = (1..=after).map(|i| if mirrored { size - 1 - i } else { size - 1 });
                    let mut parts: Vec<ValueId> = ahead.map(|i| self.part(y, dim, i, 1)).collect();
                    parts.push(y.value);
                    parts.extend(behind.map(|i| self.part(y, dim, i, 1)));
                    self.plain(Concat { axis }, &parts)
                }
            };
        }
        y.value
    }
}
