//! Convolution and pooling of sequences `[N, C, L]`: images of one row.

use super::order::Order;
use super::params::{Param, uniform_fan_in};
use super::{Builder, Tensor};
use crate::config::LayerNode;
use crate::config::language::layers as cfg;
use crate::config::language::lists::Padding1d;
use crate::graph::op::{AdaptiveAvgPool2d, AvgPool2d, Conv2d, MaxPool2d, Op, Reshape};
use crate::graph::{Shape, Storage, ValueId};

/// The axes of a sequence `[N, C, L]` with its channels last.
const CHANNELS_LAST: [usize; 3] = [0, 2, 1];

/// What a window covers: its length, and the zeros at both ends together.
pub(super) struct Window {
    pub covers: usize,
    pub padding: usize,
}

impl Builder<'_> {
    /// The sequence as images of one row, `[N, 1, L, C]`; reports another input, and one that is shorter than a window.
    pub(super) fn row(&mut self, node: &LayerNode, window: Window, x: Tensor) -> Option<(ValueId, [usize; 3])> {
        let name = node.kind_name();
        let shape = self.dims(x);
        let Ok([n, c, length]) = <[usize; 3]>::try_from(shape.dims()) else {
            let message = format!("`{name}` takes sequences, [N, C, L], but its input has the shape {shape}");
            let help = match shape.rank() {
                4 => format!("for images there is `{}`", name.replace("1d", "2d")),
                _ => "\"unflatten\" makes two dimensions of one".to_string(),
            };
            self.refuse(node, &message, "takes sequences", &[x], &help);
            return None;
        };
        if window.covers > length + window.padding {
            let at = node.fields.get("kernel_size").copied().unwrap_or(node.span);
            let message = format!("`{name}` has windows of {}, but its input is {length} long", window.covers);
            let help = "add `padding`, or shorten the sequence less before: every stride and pooling makes it shorter";
            self.refuse_at(node, at, &message, "longer than the input", &[x], help);
            return None;
        }
        let x = self.arranged(x, &CHANNELS_LAST);
        let image = self.plain(Reshape { shape: Shape::from([n, 1, length, c]) }, &[x.value]);
        Some((image, [n, c, length]))
    }

    /// The images of one row as sequences again.
    pub(super) fn sequence_of(&mut self, image: ValueId) -> (ValueId, Order) {
        let shape = self.graph.shape(image).dims().to_vec();
        let y = self.plain(Reshape { shape: Shape::from([shape[0], shape[2], shape[3]]) }, &[image]);
        (y, Order::of(&CHANNELS_LAST))
    }

    pub(super) fn no_sequence(&mut self, channels: usize) -> (ValueId, Order) {
        (self.guess(Shape::from([self.batch, channels, 1])), Order::Usual)
    }

    pub(super) fn conv1d(&mut self, node: &LayerNode, l: &cfg::Conv1d, x: Tensor) -> (ValueId, Order) {
        let x = self.whole(x);
        let (k, dilation) = (l.kernel_size, l.dilation);
        let covers = (k - 1).saturating_mul(dilation).saturating_add(1);
        let padding = match l.padding {
            Padding1d::Explicit(zeros) => [zeros, zeros],
            // As PyTorch: of an odd number the extra zero is at the end.
            Padding1d::Same => [(covers - 1) / 2, covers - 1 - (covers - 1) / 2],
        };
        let window = Window { covers, padding: padding[0].saturating_add(padding[1]) };
        let Some((row, [_, c, _])) = self.row(node, window, x) else {
            return self.no_sequence(l.out_channels.unwrap_or(1));
        };
        let o = l.out_channels.unwrap_or(c);
        let groups = self.groups(node, l.groups, [c, o], x);
        let i = c / groups;
        let init = uniform_fan_in(i.saturating_mul(k));
        let storage = Storage { outside: Shape::from([o, i, k]), ..Storage::conv_weight(o, i, 1, k) };
        let weight = Param { storage, ..Param::plain("weight", [o, 1, k, i], init) };
        let mut operands = vec![row, self.param(node, weight)];
        if l.bias {
            operands.push(self.param(node, Param::plain("bias", [o], init)));
        }
        let padding = [0, 0, padding[0], padding[1]];
        let op = Conv2d { stride: [1, l.stride], padding, dilation: [1, dilation], groups, bias: l.bias };
        self.of_rows(node, op, &operands, x, o)
    }

    /// `op` on images of one row, as sequences.
    fn of_rows(
        &mut self,
        node: &LayerNode,
        op: impl Into<Op>,
        operands: &[ValueId],
        x: Tensor,
        c: usize,
    ) -> (ValueId, Order) {
        let meant = Shape::from([self.batch, 1, 1, c]);
        let image = self.apply(node, op, operands, &[x], meant, "");
        self.sequence_of(image)
    }

    fn pool1d(&mut self, node: &LayerNode, window: Window, op: impl Into<Op>, x: Tensor) -> (ValueId, Order) {
        let x = self.whole(x);
        match self.row(node, window, x) {
            Some((row, [_, c, _])) => self.of_rows(node, op, &[row], x, c),
            None => self.no_sequence(1),
        }
    }

    pub(super) fn max_pool1d(&mut self, node: &LayerNode, l: &cfg::MaxPool1d, x: Tensor) -> (ValueId, Order) {
        let op = MaxPool2d {
            kernel: [1, l.kernel_size],
            stride: [1, l.stride.unwrap_or(l.kernel_size)],
            padding: [0, l.padding],
            dilation: [1, l.dilation],
            ceil_mode: l.ceil_mode,
        };
        let covers = (l.kernel_size - 1).saturating_mul(l.dilation).saturating_add(1);
        self.pool1d(node, Window { covers, padding: 2 * l.padding }, op, x)
    }

    pub(super) fn avg_pool1d(&mut self, node: &LayerNode, l: &cfg::AvgPool1d, x: Tensor) -> (ValueId, Order) {
        let op = AvgPool2d {
            kernel: [1, l.kernel_size],
            stride: [1, l.stride.unwrap_or(l.kernel_size)],
            padding: [0, l.padding],
            ceil_mode: l.ceil_mode,
            count_include_pad: l.count_include_pad,
        };
        self.pool1d(node, Window { covers: l.kernel_size, padding: 2 * l.padding }, op, x)
    }

    pub(super) fn adaptive_avg_pool1d(
        &mut self,
        node: &LayerNode,
        l: &cfg::AdaptiveAvgPool1d,
        x: Tensor,
    ) -> (ValueId, Order) {
        let op = AdaptiveAvgPool2d { output: [1, l.output_size] };
        self.pool1d(node, Window { covers: 1, padding: 0 }, op, x)
    }
}
