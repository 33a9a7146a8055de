//! Each layer type as operations.

use super::params::{Param, uniform_fan_in};
use super::{Builder, LayerRow, Mode, Tensor};
use crate::config::layers::{self as cfg, Layer};
use crate::config::tagged::Tagged as _;
use crate::config::values::{Groups, Momentum, Padding};
use crate::config::{Diagnostic, LayerKind, LayerNode};
use crate::graph::op::{
    Activation, ActivationOp, AdaptiveAvgPool2d, AvgPool2d, BatchNorm, BatchNormInfer, BinaryKind, Conv2d, Dropout,
    GroupNorm, LayerNorm, Linear, MaxPool2d, Permute, Reshape, Softmax,
};
use crate::graph::{DType, Fill, Input, Shape, Storage, ValueId};

impl Builder<'_> {
    /// One layer or container.
    pub(super) fn node(&mut self, node: &LayerNode, x: Tensor) -> Tensor {
        let y = match &node.kind {
            LayerKind::Layer(layer) => self.layer(node, layer, x),
            LayerKind::Group(list) => {
                let x = self.operands(node, x).first().copied().unwrap_or(x);
                self.sequence(list, x)
            }
            LayerKind::Residual { .. } | LayerKind::Gate(_) | LayerKind::Branches { .. } => self.container(node, x),
        };
        if !node.name.is_empty() {
            self.named.insert(node.path.clone(), y);
        }
        y
    }

    /// Adds the line of `node` to the layer table and makes `value` its result.
    pub(super) fn made(&mut self, node: &LayerNode, kind: &str, value: ValueId, flat: Option<[usize; 3]>) -> Tensor {
        self.rows.push(LayerRow {
            path: node.path.clone(),
            kind: kind.to_string(),
            output: self.graph.shape(value).to_pytorch(),
            params: 0,
            flops: 0,
            span: node.span,
        });
        Tensor { value, flat, made_by: Some(self.rows.len() - 1) }
    }

    fn layer(&mut self, node: &LayerNode, layer: &Layer, x: Tensor) -> Tensor {
        self.graph.set_origin(&node.path);
        let operands = self.operands(node, x);
        let combines = matches!(layer, Layer::Add(_) | Layer::Multiply(_) | Layer::Concat(_));
        let x = operands.first().copied().unwrap_or(x);
        let act = |a| Some(ActivationOp { act: a });
        let activation = match layer {
            Layer::Relu(_) => act(Activation::Relu),
            Layer::Relu6(_) => act(Activation::Relu6),
            Layer::LeakyRelu(l) => act(Activation::LeakyRelu { slope: l.negative_slope as f32 }),
            Layer::Elu(l) => act(Activation::Elu { alpha: l.alpha as f32 }),
            Layer::Gelu(cfg::Gelu { approximate: cfg::Approximate::None }) => act(Activation::Gelu),
            Layer::Gelu(cfg::Gelu { approximate: cfg::Approximate::Tanh }) => act(Activation::GeluTanh),
            Layer::Silu(_) => act(Activation::Silu),
            Layer::Tanh(_) => act(Activation::Tanh),
            Layer::Sigmoid(_) => act(Activation::Sigmoid),
            Layer::Hardsigmoid(_) => act(Activation::Hardsigmoid),
            Layer::Hardswish(_) => act(Activation::Hardswish),
            _ => None,
        };
        if let Some(op) = activation {
            let y = self.plain(op, &[x.value]);
            return self.made(node, layer.type_name(), y, x.flat);
        }
        match layer {
            Layer::Linear(l) => return self.linear(node, l, x),
            Layer::Flatten(l) => return self.flatten(node, l, x),
            Layer::Dropout(l) => {
                let y = self.dropout(l.p as f32, x.value);
                return self.made(node, "dropout", y, x.flat);
            }
            Layer::Identity(_) => return self.made(node, "identity", x.value, x.flat),
            _ => {}
        }
        let operands: Vec<Tensor> = operands.into_iter().map(|t| self.in_pytorch_order(t)).collect();
        let x = self.in_pytorch_order(x);
        debug_assert!(combines || operands.len() <= 1, "the configuration layer allows one name here");
        let y = match layer {
            Layer::Conv2d(l) => self.conv2d(node, l, x),
            Layer::BatchNorm1d(l) => {
                let l =
                    BatchNormArgs { eps: l.eps, momentum: l.momentum, affine: l.affine, track: l.track_running_stats };
                self.batch_norm1d(node, l, x)
            }
            Layer::BatchNorm2d(l) => {
                let l =
                    BatchNormArgs { eps: l.eps, momentum: l.momentum, affine: l.affine, track: l.track_running_stats };
                match self.wants_image(node, x) {
                    true => self.batch_norm(node, l, x.value, x),
                    false => x.value,
                }
            }
            Layer::GroupNorm(l) => {
                let op = GroupNorm { groups: l.num_groups, eps: l.eps as f32, affine: l.affine };
                let from = x;
                self.channels_innermost(x, |b, x| {
                    let shape = b.graph.shape(x).clone();
                    let mut ops = vec![x];
                    if l.affine {
                        let c = shape.last();
                        ops.extend(b.scale_and_shift(node, Shape::from([c]), Storage::plain([c]), true));
                    }
                    b.apply(node, op, &ops, &[from], shape)
                })
            }
            Layer::LayerNorm(l) => self.layer_norm(node, l, x),
            Layer::MaxPool2d(l) => {
                let op = MaxPool2d {
                    kernel: l.kernel_size.0,
                    stride: l.stride().0,
                    padding: l.padding.0,
                    dilation: l.dilation.0,
                    ceil_mode: l.ceil_mode,
                };
                let meant = self.one_pixel(x);
                self.apply(node, op, &[x.value], &[x], meant)
            }
            Layer::AvgPool2d(l) => {
                let op = AvgPool2d {
                    kernel: l.kernel_size.0,
                    stride: l.stride().0,
                    padding: l.padding.0,
                    ceil_mode: l.ceil_mode,
                    count_include_pad: l.count_include_pad,
                };
                let meant = self.one_pixel(x);
                self.apply(node, op, &[x.value], &[x], meant)
            }
            Layer::AdaptiveAvgPool2d(l) => {
                let meant = self.one_pixel(x);
                self.apply(node, AdaptiveAvgPool2d { output: l.output_size.0 }, &[x.value], &[x], meant)
            }
            Layer::Softmax(l) => {
                // The last axis inside is the channel; only of images is it not PyTorch's last.
                let last_of_image = l.dim == -1 && self.shape(x).rank() == 4;
                if l.dim == 1 {
                    self.channels_innermost(x, |b, x| b.plain(Softmax {}, &[x]))
                } else if last_of_image {
                    let swapped = self.plain(Permute { perm: vec![0, 1, 3, 2] }, &[x.value]);
                    let y = self.plain(Softmax {}, &[swapped]);
                    self.plain(Permute { perm: vec![0, 1, 3, 2] }, &[y])
                } else {
                    self.plain(Softmax {}, &[x.value])
                }
            }
            Layer::Add(_) => self.combine(node, BinaryKind::Add, &operands),
            Layer::Multiply(_) => self.combine(node, BinaryKind::Mul, &operands),
            Layer::Concat(l) => self.concat(node, l.dim, &operands),
            // Handled above; listed so that a new layer does not compile until it has its place.
            Layer::Relu(_)
            | Layer::Relu6(_)
            | Layer::LeakyRelu(_)
            | Layer::Elu(_)
            | Layer::Gelu(_)
            | Layer::Silu(_)
            | Layer::Tanh(_)
            | Layer::Sigmoid(_)
            | Layer::Hardsigmoid(_)
            | Layer::Hardswish(_)
            | Layer::Linear(_)
            | Layer::Flatten(_)
            | Layer::Dropout(_)
            | Layer::Identity(_) => unreachable!("`{}` returned above", layer.type_name()),
        };
        self.made(node, layer.type_name(), y, None)
    }

    fn dropout(&mut self, p: f32, x: ValueId) -> ValueId {
        // Counted in every mode, so that a layer's number does not depend on it.
        self.dropouts += 1;
        if self.mode != Mode::Train || p == 0.0 {
            return x;
        }
        let random = self.graph.input(Input::Random, DType::U32, Shape::from([4]));
        self.plain(Dropout { p, stream: self.dropouts - 1 }, &[x, random])
    }

    fn linear(&mut self, node: &LayerNode, l: &cfg::Linear, x: Tensor) -> Tensor {
        let shape = self.shape(x).clone();
        let (out, inp) = (l.out_features, shape.last());
        if shape.rank() == 4 {
            let help = "put \"flatten\" (or a pooling to one pixel and \"flatten\") before it";
            let label = "takes vectors, not images";
            self.mismatch(node, "`linear` cannot take images", label, Some(x), Some(help.into()));
            let value =
                self.graph.add_value(DType::F32, Shape::from([shape.dims()[0], out]), crate::graph::Role::Temporary);
            return self.made(node, "linear", value, None);
        }
        let storage = match x.flat {
            Some(hwc) => Storage::linear_after_flatten(out, hwc),
            None => Storage::plain([out, inp]),
        };
        let init = uniform_fan_in(inp);
        let w = self.param(&node.path, Param { storage, ..Param::plain("weight", [out, inp], init) });
        let mut ops = vec![x.value, w];
        if l.bias {
            ops.push(self.param(&node.path, Param::plain("bias", [out], init)));
        }
        let mut meant = shape.dims().to_vec();
        meant[shape.rank() - 1] = out;
        let y = self.apply(node, Linear { bias: l.bias, act: None }, &ops, &[x], Shape(meant));
        self.made(node, "linear", y, None)
    }

    fn conv2d(&mut self, node: &LayerNode, l: &cfg::Conv2d, x: Tensor) -> ValueId {
        let out_of = |c: usize| l.out_channels.unwrap_or(c);
        if !self.wants_image(node, x) {
            let n = self.shape(x).dims()[0];
            let shape = Shape::from([n, 1, 1, out_of(1)]);
            return self.graph.add_value(DType::F32, shape, crate::graph::Role::Temporary);
        }
        let [n, _, _, c] = self.shape(x).nhwc().expect("checked above");
        let o = out_of(c);
        let mut groups = match l.groups {
            Groups::Count(g) => g,
            Groups::InChannels => c,
        };
        if c % groups != 0 || o % groups != 0 {
            let at = node.fields.get("groups").copied().unwrap_or(node.span);
            let mut error =
                Diagnostic::error(format!("{groups} groups do not divide {c} input and {o} output channels"))
                    .at(at, "must divide both")
                    .context(node.span, "in this layer");
            if let Some(row) = x.made_by {
                error = error.context(self.rows[row].span, format!("puts out {c} channels"));
            }
            self.errors.push(error);
            groups = 1;
        }
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
        let op = Conv2d { stride: l.stride.0, padding, dilation, groups, bias: l.bias, act: None };
        let i = c / groups;
        let init = uniform_fan_in(i * kh * kw);
        let weight = Param {
            shape: Shape::from([o, kh, kw, i]),
            storage: Storage::conv_weight(o, i, kh, kw),
            ..Param::plain("weight", [o, kh, kw, i], init)
        };
        let mut ops = vec![x.value, self.param(&node.path, weight)];
        if l.bias {
            ops.push(self.param(&node.path, Param::plain("bias", [o], init)));
        }
        self.apply(node, op, &ops, &[x], Shape::from([n, 1, 1, o]))
    }

    /// Gamma (ones) and, if `shift`, beta (zeros).
    fn scale_and_shift(&mut self, node: &LayerNode, shape: Shape, storage: Storage, shift: bool) -> Vec<ValueId> {
        let start = |name, value| Param {
            storage: storage.clone(),
            ..Param::plain(name, shape.clone(), Fill::Constant(value))
        };
        let mut out = vec![self.param(&node.path, start("weight", 1.0))];
        if shift {
            out.push(self.param(&node.path, start("bias", 0.0)));
        }
        out
    }

    fn batch_norm1d(&mut self, node: &LayerNode, l: BatchNormArgs, x: Tensor) -> ValueId {
        match self.shape(x).rank() {
            4 => {
                let help = Some("use `batch_norm2d`".to_string());
                self.mismatch(node, "`batch_norm1d` cannot take images", "takes vectors", Some(x), help);
                x.value
            }
            _ => self.channels_innermost(x, |b, value| b.batch_norm(node, l, value, x)),
        }
    }

    /// What `f` makes of `x` with PyTorch's dimension 1 as the last one.
    fn channels_innermost(&mut self, x: Tensor, f: impl FnOnce(&mut Self, ValueId) -> ValueId) -> ValueId {
        if self.shape(x).rank() != 3 {
            return f(self, x.value);
        }
        // Images have their channels last inside, but [N, C, L] keeps PyTorch's order.
        let swapped = self.plain(Permute { perm: vec![0, 2, 1] }, &[x.value]);
        let y = f(self, swapped);
        self.plain(Permute { perm: vec![0, 2, 1] }, &[y])
    }

    fn batch_norm(&mut self, node: &LayerNode, l: BatchNormArgs, x: ValueId, from: Tensor) -> ValueId {
        let shape = self.graph.shape(x).clone();
        let c = shape.last();
        let mut ops = vec![x];
        if l.affine {
            ops.extend(self.scale_and_shift(node, Shape::from([c]), Storage::plain([c]), true));
        }
        if l.track {
            ops.push(self.param(&node.path, Param::buffer("running_mean", DType::F32, [c], 0.0)));
            ops.push(self.param(&node.path, Param::buffer("running_var", DType::F32, [c], 1.0)));
        }
        let (eps, affine) = (l.eps as f32, l.affine);
        // Inference does not read the counter, but a model has the same state dict in every mode.
        let counter = Param::buffer("num_batches_tracked", DType::I64, Vec::new(), 0.0);
        let counter = l.track.then(|| self.param(&node.path, counter));
        if l.track && self.mode != Mode::Train {
            return self.apply(node, BatchNormInfer { eps, affine, act: None }, &ops, &[from], shape);
        }
        ops.extend(counter);
        let momentum = match l.momentum {
            Momentum::Share(m) => Some(m as f32),
            Momentum::Cumulative => None,
        };
        let op = BatchNorm { eps, momentum, affine, track: l.track, act: None };
        self.apply(node, op, &ops, &[from], shape)
    }

    fn layer_norm(&mut self, node: &LayerNode, l: &cfg::LayerNorm, x: Tensor) -> ValueId {
        let shape = self.shape(x).clone();
        let dims = l.normalized_dims;
        if dims >= shape.rank() {
            let message = format!("`layer_norm` over {dims} dimensions, but a sample has {}", shape.rank() - 1);
            self.mismatch(node, message, "too many dimensions", Some(x), None);
            return x.value;
        }
        // Over the whole image the order of elements does not matter; over rows or columns they must be innermost.
        let permuted = shape.rank() == 4 && dims < 3;
        let (value, shape) = if permuted {
            (self.plain(Permute { perm: vec![0, 3, 1, 2] }, &[x.value]), shape.to_pytorch())
        } else {
            (x.value, shape)
        };
        let tail = Shape::from(&shape.dims()[shape.rank() - dims..]);
        let storage = match (permuted, tail.dims()) {
            (false, &[h, w, c]) => Storage::image(c, h, w),
            _ => Storage::plain(tail.clone()),
        };
        let weight = l.elementwise_affine;
        let bias = weight && l.bias;
        let mut ops = vec![value];
        if weight {
            ops.extend(self.scale_and_shift(node, tail, storage, bias));
        }
        let y = self.plain(LayerNorm { dims, eps: l.eps as f32, weight, bias }, &ops);
        if permuted { self.plain(Permute { perm: vec![0, 2, 3, 1] }, &[y]) } else { y }
    }

    fn flatten(&mut self, node: &LayerNode, l: &cfg::Flatten, x: Tensor) -> Tensor {
        let shape = self.shape(x).clone();
        let rank = shape.rank() as i64;
        let index = |d: i64| if d < 0 { d + rank } else { d };
        let (start, end) = (index(l.start_dim), index(l.end_dim));
        if start < 1 || end >= rank || end < start {
            let message = format!("`flatten` of dimensions {} to {}", l.start_dim, l.end_dim);
            let help = "dimension 0 is the batch, which stays; -1 is the last".to_string();
            self.mismatch(node, message, format!("the input has {rank} dimensions"), Some(x), Some(help));
            return x;
        }
        let (start, end) = (start as usize, end as usize);
        let join = |dims: &[usize]| {
            let mut out = dims[..start].to_vec();
            out.push(dims[start..=end].iter().product());
            out.extend_from_slice(&dims[end + 1..]);
            Shape(out)
        };
        if start == end {
            return self.made(node, "flatten", x.value, x.flat);
        }
        match shape.nhwc() {
            Some([_, h, w, c]) if (start, end) == (1, 3) => {
                let y = self.plain(Reshape { shape: join(shape.dims()) }, &[x.value]);
                let same_order = c == 1 || h * w == 1;
                self.made(node, "flatten", y, (!same_order).then_some([h, w, c]))
            }
            Some(_) => {
                let first = self.plain(Permute { perm: vec![0, 3, 1, 2] }, &[x.value]);
                let y = self.plain(Reshape { shape: join(shape.to_pytorch().dims()) }, &[first]);
                self.made(node, "flatten", y, None)
            }
            None => {
                let y = self.plain(Reshape { shape: join(shape.dims()) }, &[x.value]);
                self.made(node, "flatten", y, None)
            }
        }
    }

    /// Reports a layer for images that is given something else.
    fn wants_image(&mut self, node: &LayerNode, x: Tensor) -> bool {
        let image = self.shape(x).rank() == 4;
        if !image {
            let shape = self.shape(x).clone();
            let message = format!("this layer needs images (N, C, H, W), but its input has the shape {shape}");
            self.mismatch(node, message, "takes images", Some(x), None);
        }
        image
    }

    /// The shape of `x` shrunk to one pixel: what a pooling that does not fit is taken to put out.
    fn one_pixel(&self, x: Tensor) -> Shape {
        match self.shape(x).nhwc() {
            Some([n, _, _, c]) => Shape::from([n, 1, 1, c]),
            None => self.shape(x).clone(),
        }
    }
}

/// What both batch normalisations are told.
#[derive(Debug, Clone, Copy)]
struct BatchNormArgs {
    eps: f64,
    momentum: Momentum,
    affine: bool,
    track: bool,
}
