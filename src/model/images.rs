//! Layers for images: convolution and pooling.

use super::params::{Param, uniform_fan_in};
use super::{Builder, Tensor};
use crate::config::LayerNode;
use crate::config::language::layers::{self as cfg, UpsampleMode};
use crate::config::language::values::{Groups, Padding};
use crate::graph::op::{AdaptiveAvgPool2d, AdaptiveMaxPool2d, AvgPool2d, Conv2d, MaxPool2d, Op, Resize2d, ResizeMode};
use crate::graph::{Shape, Storage, ValueId};

/// What to do where an image has become too small.
const TOO_SMALL: &str = "add `padding`, or shrink the image less before: every stride and pooling makes it smaller";

impl Builder<'_> {
    pub(super) fn conv2d(&mut self, node: &LayerNode, l: &cfg::Conv2d, x: Tensor) -> ValueId {
        let x = self.in_pytorch_order(x);
        let out_of = |c: usize| l.out_channels.unwrap_or(c);
        let Some([n, _, _, c]) = self.image(node, "conv2d", x) else {
            return self.guess(Shape::from([self.batch, 1, 1, out_of(1)]));
        };
        let o = out_of(c);
        let groups = self.groups(node, l.groups, [c, o], x);
        let [kh, kw] = l.kernel_size.0;
        let dilation = l.dilation.0;
        let padding = match l.padding {
            Padding::Explicit(p) => [p.0[0], p.0[0], p.0[1], p.0[1]],
            Padding::Same => {
                // As PyTorch: of an odd number the extra row or column is at the end.
                let total = [dilation[0] * (kh - 1), dilation[1] * (kw - 1)];
                [total[0] / 2, total[0] - total[0] / 2, total[1] / 2, total[1] - total[1] / 2]
            }
        };
        let op = Conv2d { stride: l.stride.0, padding, dilation, groups, bias: l.bias };
        let i = c / groups;
        let init = uniform_fan_in(i.saturating_mul(kh).saturating_mul(kw));
        let weight =
            Param { storage: Storage::conv_weight(o, i, kh, kw), ..Param::plain("weight", [o, kh, kw, i], init) };
        let mut ops = vec![x.value, self.param(node, weight)];
        if l.bias {
            ops.push(self.param(node, Param::plain("bias", [o], init)));
        }
        self.apply(node, op, &ops, &[x], Shape::from([n, 1, 1, o]), TOO_SMALL)
    }

    /// The number of groups of a convolution of `[c, o]` channels; reports one that divides them not evenly.
    pub(super) fn groups(&mut self, node: &LayerNode, groups: Groups, [c, o]: [usize; 2], x: Tensor) -> usize {
        let groups = match groups {
            Groups::Count(g) => g,
            Groups::InChannels => c,
        };
        if c % groups == 0 && o % groups == 0 {
            return groups;
        }
        let at = ["groups", "out_channels"].iter().find_map(|key| node.fields.get(*key)).copied();
        let message = match (c % groups, o % groups) {
            (0, _) => format!("{groups} groups do not divide the {o} output channels"),
            (_, 0) => format!("{groups} groups do not divide the {c} input channels"),
            _ => format!("{groups} groups divide the channels of neither input nor output evenly"),
        };
        let label = format!("must divide {c} input and {o} output channels");
        self.refuse_at(node, at.unwrap_or(node.span), &message, &label, &[x], "");
        1
    }

    pub(super) fn max_pool2d(&mut self, node: &LayerNode, l: &cfg::MaxPool2d, x: Tensor) -> ValueId {
        let op = MaxPool2d {
            kernel: l.kernel_size.0,
            stride: l.stride().0,
            padding: l.padding.0,
            dilation: l.dilation.0,
            ceil_mode: l.ceil_mode,
        };
        self.pool(node, "max_pool2d", op, x)
    }

    pub(super) fn avg_pool2d(&mut self, node: &LayerNode, l: &cfg::AvgPool2d, x: Tensor) -> ValueId {
        let op = AvgPool2d {
            kernel: l.kernel_size.0,
            stride: l.stride().0,
            padding: l.padding.0,
            ceil_mode: l.ceil_mode,
            count_include_pad: l.count_include_pad,
        };
        self.pool(node, "avg_pool2d", op, x)
    }

    pub(super) fn adaptive_avg_pool2d(&mut self, node: &LayerNode, l: &cfg::AdaptiveAvgPool2d, x: Tensor) -> ValueId {
        self.pool(node, "adaptive_avg_pool2d", AdaptiveAvgPool2d { output: l.output_size.0 }, x)
    }

    pub(super) fn adaptive_max_pool2d(&mut self, node: &LayerNode, l: &cfg::AdaptiveMaxPool2d, x: Tensor) -> ValueId {
        self.pool(node, "adaptive_max_pool2d", AdaptiveMaxPool2d { output: l.output_size.0 }, x)
    }

    pub(super) fn upsample(&mut self, node: &LayerNode, l: &cfg::Upsample, x: Tensor) -> ValueId {
        let x = self.in_pytorch_order(x);
        let Some([n, h, w, c]) = self.image(node, "upsample", x) else {
            return self.guess(Shape::from([self.batch, 1, 1, 1]));
        };
        let scale = l.scale_factor.map(|factors| factors.0);
        let side = |i: usize, side: usize| match (l.size, scale) {
            (Some(size), _) => size.0[i],
            (None, Some(scale)) => (side as f64 * scale[i]) as usize,
            (None, None) => side,
        };
        let output = [side(0, h), side(1, w)];
        if output.contains(&0) {
            let at = node.fields.get("scale_factor").copied().unwrap_or(node.span);
            let message = format!("`upsample` makes images of {h}×{w} so small that no pixel is left");
            self.refuse_at(node, at, &message, "is too small", &[x], "take a larger `scale_factor`, or `size`");
            return self.guess(Shape::from([n, 1, 1, c]));
        }
        let mode = match l.mode {
            UpsampleMode::Nearest => ResizeMode::Nearest,
            UpsampleMode::Bilinear => ResizeMode::Bilinear { align_corners: l.align_corners },
        };
        self.apply(node, Resize2d { output, mode, scale }, &[x.value], &[x], Shape::from([n, 1, 1, c]), "")
    }

    fn pool(&mut self, node: &LayerNode, name: &str, op: impl Into<Op>, x: Tensor) -> ValueId {
        let x = self.in_pytorch_order(x);
        match self.image(node, name, x) {
            Some([n, _, _, c]) => self.apply(node, op, &[x.value], &[x], Shape::from([n, 1, 1, c]), TOO_SMALL),
            None => self.guess(Shape::from([self.batch, 1, 1, 1])),
        }
    }

    /// `[N, H, W, C]` of the input of a layer for images; reports one that is given something else.
    pub(super) fn image(&mut self, node: &LayerNode, name: &str, x: Tensor) -> Option<[usize; 4]> {
        let shape = self.shape(x).clone();
        if shape.nhwc().is_none() {
            let message = format!("`{name}` takes images, [N, C, H, W], but its input has the shape {shape}");
            let help = match x.made_by {
                Some(row) if self.rows[row].kind == "flatten" => "put it before the \"flatten\"",
                Some(_) => "layers for images come before \"flatten\" and `linear`",
                None => "the samples are no images: use `linear`",
            };
            self.refuse(node, &message, "takes images", &[x], help);
        }
        shape.nhwc()
    }
}
