//! Transposed convolutions, of images and of sequences: the gradient of a convolution by its input.

use super::order::Order;
use super::params::{Param, uniform_fan_in};
use super::sequences::Window;
use super::{Builder, Tensor};
use crate::config::LayerNode;
use crate::config::language::layers as cfg;
use crate::config::language::values::Groups;
use crate::graph::op::{Binary, BinaryKind, Conv2d, Conv2dGradInput};
use crate::graph::{Shape, Storage, ValueId};

/// The options of both layers; rows, columns.
struct Options {
    out_channels: Option<usize>,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    output_padding: [usize; 2],
    dilation: [usize; 2],
    groups: Groups,
    bias: bool,
    /// A sequence's weight has one dimension less.
    sequence: bool,
}

impl Options {
    /// The side `i` of the output, of an input of `side`; `None` if the padding cuts all of it off.
    fn side(&self, i: usize, side: usize) -> Option<usize> {
        let reach = self.dilation[i].checked_mul(self.kernel[i] - 1)?.checked_add(1 + self.output_padding[i])?;
        let whole = (side - 1).checked_mul(self.stride[i])?.checked_add(reach)?;
        whole.checked_sub(2 * self.padding[i]).filter(|side| *side > 0)
    }
}

impl Builder<'_> {
    pub(super) fn conv_transpose2d(&mut self, node: &LayerNode, l: &cfg::ConvTranspose2d, x: Tensor) -> ValueId {
        let x = self.in_pytorch_order(x);
        if self.image(node, "conv_transpose2d", x).is_none() {
            return self.guess(Shape::from([self.batch, 1, 1, l.out_channels.unwrap_or(1)]));
        }
        let options = Options {
            out_channels: l.out_channels,
            kernel: l.kernel_size.0,
            stride: l.stride.0,
            padding: l.padding.0,
            output_padding: l.output_padding.0,
            dilation: l.dilation.0,
            groups: l.groups,
            bias: l.bias,
            sequence: false,
        };
        self.transposed(node, &options, x.value, x)
    }

    pub(super) fn conv_transpose1d(
        &mut self,
        node: &LayerNode,
        l: &cfg::ConvTranspose1d,
        x: Tensor,
    ) -> (ValueId, Order) {
        let x = self.whole(x);
        let Some((row, _)) = self.row(node, Window { covers: 1, padding: 0 }, x) else {
            return self.no_sequence(l.out_channels.unwrap_or(1));
        };
        let options = Options {
            out_channels: l.out_channels,
            kernel: [1, l.kernel_size],
            stride: [1, l.stride],
            padding: [0, l.padding],
            output_padding: [0, l.output_padding],
            dilation: [1, l.dilation],
            groups: l.groups,
            bias: l.bias,
            sequence: true,
        };
        let y = self.transposed(node, &options, row, x);
        self.sequence_of(y)
    }

    /// The transposed convolution of the images `value`, which are those of `x`.
    fn transposed(&mut self, node: &LayerNode, l: &Options, value: ValueId, x: Tensor) -> ValueId {
        let [n, h, w, c] = self.graph.shape(value).nhwc().expect("the caller has looked");
        let o = l.out_channels.unwrap_or(c);
        let (Some(height), Some(width)) = (l.side(0, h), l.side(1, w)) else {
            let at = node.fields.get("padding").copied().unwrap_or(node.span);
            let size = if l.sequence { format!("{w} long") } else { format!("{h}×{w}") };
            let message = format!("`{}` cuts off all of its output: its input is {size}", node.kind_name());
            self.refuse_at(node, at, &message, "cuts off too much", &[x], "take less `padding`");
            return self.guess(Shape::from([n, 1, 1, o]));
        };
        let groups = self.groups(node, l.groups, [c, o], x);
        // The convolution that this is the reverse of makes the `c` channels of the input of the `o` channels of the output.
        let [kh, kw] = l.kernel;
        let i = o / groups;
        let init = uniform_fan_in(i.saturating_mul(kh).saturating_mul(kw));
        let mut storage = Storage::conv_weight(c, i, kh, kw);
        if l.sequence {
            storage.outside = Shape::from([c, i, kw]);
        }
        let weight = self.param(node, Param { storage, ..Param::plain("weight", [c, kh, kw, i], init) });
        let [rows, columns] = l.padding;
        let conv = Conv2d {
            stride: l.stride,
            padding: [rows, rows, columns, columns],
            dilation: l.dilation,
            groups,
            bias: false,
        };
        let op = Conv2dGradInput { conv, input: [height, width] };
        let meant = Shape::from([n, 1, 1, o]);
        if self.guesses.contains(&weight) {
            return self.guess(meant);
        }
        let y = self.apply(node, op, &[value, weight], &[x], meant, "");
        if !l.bias {
            return y;
        }
        let storage = Storage { outside: Shape::from([o]), ..Storage::plain([1, 1, 1, o]) };
        let bias = self.param(node, Param { storage, ..Param::plain("bias", [1, 1, 1, o], init) });
        self.plain(Binary { kind: BinaryKind::Add }, &[y, bias])
    }
}
