//! Normalisation layers.

use super::order::Order;
use super::params::Param;
use super::{Builder, Mode, Tensor};
use crate::config::LayerNode;
use crate::config::language::layers as cfg;
use crate::config::language::values::Momentum;
use crate::graph::op::{BatchNorm, BatchNormInfer, GroupNorm, LayerNorm, LocalResponseNorm};
use crate::graph::{DType, Fill, Shape, Storage, ValueId};

/// The options that both batch normalisations have.
struct BatchNormArgs {
    eps: f32,
    momentum: Option<f32>,
    affine: bool,
    track: bool,
}

impl BatchNormArgs {
    fn new(eps: f64, momentum: Momentum, affine: bool, track: bool) -> Self {
        let momentum = match momentum {
            Momentum::Share(m) => Some(m as f32),
            Momentum::Cumulative => None,
        };
        BatchNormArgs { eps: eps as f32, momentum, affine, track }
    }
}

impl Builder<'_> {
    /// Gamma (ones) and, if `shift`, beta (zeros).
    fn scale_and_shift(&mut self, node: &LayerNode, shape: Shape, storage: Storage, shift: bool) -> Vec<ValueId> {
        let start = |name, value| Param {
            storage: storage.clone(),
            ..Param::plain(name, shape.clone(), Fill::Constant(value))
        };
        let mut out = vec![self.param(node, start("weight", 1.0))];
        if shift {
            out.push(self.param(node, start("bias", 0.0)));
        }
        out
    }

    pub(super) fn batch_norm1d(&mut self, node: &LayerNode, l: &cfg::BatchNorm1d, x: Tensor) -> (ValueId, Order) {
        let args = BatchNormArgs::new(l.eps, l.momentum, l.affine, l.track_running_stats);
        let x = self.whole(x);
        let rank = self.shape(x).rank();
        if let 2 | 3 = rank {
            // The operation wants channels last.
            return self.with_last(x, 1, |builder, value| builder.batch_norm(node, &args, value, x));
        }
        let shape = self.dims(x);
        let (found, help) = if rank == 4 { ("images", "use \"batch_norm2d\"") } else { ("a value", "") };
        let message = format!("`batch_norm1d` takes vectors, but its input is {found} of shape {shape}");
        self.refuse(node, &message, &format!("cannot take {found}"), &[x], help);
        (x.value, x.order)
    }

    pub(super) fn batch_norm2d(&mut self, node: &LayerNode, l: &cfg::BatchNorm2d, x: Tensor) -> ValueId {
        let args = BatchNormArgs::new(l.eps, l.momentum, l.affine, l.track_running_stats);
        let x = self.in_pytorch_order(x);
        let shape = self.shape(x).clone();
        if shape.nhwc().is_none() {
            let message = format!("`batch_norm2d` takes images, [N, C, H, W], but its input has the shape {shape}");
            self.refuse(node, &message, "takes images", &[x], "use \"batch_norm1d\"");
            return x.value;
        }
        self.batch_norm(node, &args, x.value, x)
    }

    /// Batch normalisation of `x`, channels last; `from` is what the layer was given.
    fn batch_norm(&mut self, node: &LayerNode, l: &BatchNormArgs, x: ValueId, from: Tensor) -> ValueId {
        let shape = self.graph.shape(x).clone();
        let c = shape.last();
        let BatchNormArgs { eps, momentum, affine, track } = *l;
        let mut ops = vec![x];
        if affine {
            ops.extend(self.scale_and_shift(node, Shape::from([c]), Storage::plain([c]), true));
        }
        if track {
            ops.push(self.param(node, Param::buffer("running_mean", DType::F32, [c], 0.0)));
            ops.push(self.param(node, Param::buffer("running_var", DType::F32, [c], 1.0)));
        }
        // Inference does not read the counter, but a model has the same state dict in every mode.
        let counter = Param::buffer("num_batches_tracked", DType::I64, Vec::new(), 0.0);
        let counter = track.then(|| self.param(node, counter));
        if track && self.mode != Mode::Train {
            return self.plain(BatchNormInfer { eps, affine }, &ops);
        }
        if shape.rows() < 2 {
            self.too_few_values(node, from);
            return x;
        }
        ops.extend(counter);
        self.plain(BatchNorm { eps, momentum, affine, track }, &ops)
    }

    /// Reports a batch of which each channel has one value: it has a mean, but no variance.
    fn too_few_values(&mut self, node: &LayerNode, from: Tensor) {
        let loading = &self.experiment.data.loading;
        let (full, key, samples) = match self.mode {
            Mode::Train => (self.experiment.micro_batch(), "batch_size", self.data.train),
            Mode::Eval | Mode::Predict | Mode::Generate | Mode::Answer => {
                (loading.eval_batch_size(), "eval_batch_size", self.data.val)
            }
        };
        let label = "needs more than one value for each channel";
        if self.batch == full {
            let message = "batch normalisation cannot work with a batch of one value for each channel";
            self.refuse(node, message, label, &[from], &format!("take a larger `{key}`"));
            return;
        }
        let (last, batches) = match (&self.mode, self.experiment.shards()) {
            (Mode::Train, 2..) => {
                let (batch, shards) = (loading.batch_size, self.experiment.shards());
                ("shard", format!("batches of {batch}, each of {shards} shards of {full}"))
            }
            _ => ("batch", format!("batches of {full}")),
        };
        let samples = samples.map_or(String::new(), |n| format!(": {n} samples in {batches}"));
        let message = format!("batch normalisation cannot work with the last {last}, which has one sample{samples}");
        let help = match self.mode {
            Mode::Train => "set `drop_last = true` in `[data]` to leave that batch out, or take another `batch_size`",
            Mode::Eval | Mode::Predict | Mode::Generate | Mode::Answer => {
                "take another `eval_batch_size`, or keep `track_running_stats`"
            }
        };
        self.refuse(node, &message, label, &[from], help);
    }

    pub(super) fn group_norm(&mut self, node: &LayerNode, l: &cfg::GroupNorm, x: Tensor) -> (ValueId, Order) {
        let x = self.whole(x);
        let c = self.dims(x).dims()[1];
        let groups = l.num_groups;
        if !c.is_multiple_of(groups) {
            let at = node.fields.get("num_groups").copied().unwrap_or(node.span);
            let s = if c == 1 { "" } else { "s" };
            let message = format!("`group_norm` cannot split {c} channel{s} into {groups} groups");
            self.refuse_at(node, at, &message, &format!("must divide {c}"), &[x], "");
            return (x.value, x.order);
        }
        // The operation wants channels last.
        self.with_last(x, 1, |builder, value| {
            let mut ops = vec![value];
            if l.affine {
                ops.extend(builder.scale_and_shift(node, Shape::from([c]), Storage::plain([c]), true));
            }
            builder.plain(GroupNorm { groups, eps: l.eps as f32, affine: l.affine }, &ops)
        })
    }

    pub(super) fn local_response_norm(
        &mut self,
        node: &LayerNode,
        l: &cfg::LocalResponseNorm,
        x: Tensor,
    ) -> (ValueId, Order) {
        let x = self.whole(x);
        let shape = self.dims(x);
        if shape.rank() < 3 {
            let message =
                format!("`local_response_norm` takes images or sequences, but its input has the shape {shape}");
            self.refuse(node, &message, "takes [N, C, …]", &[x], "put it before the \"flatten\"");
            return (x.value, x.order);
        }
        let (alpha, beta, k) = (l.alpha as f32, l.beta as f32, l.k as f32);
        // The operation wants channels last.
        self.with_last(x, 1, |builder, value| {
            builder.plain(LocalResponseNorm { size: l.size, alpha, beta, k }, &[value])
        })
    }

    pub(super) fn instance_norm2d(&mut self, node: &LayerNode, l: &cfg::InstanceNorm2d, x: Tensor) -> ValueId {
        let x = self.in_pytorch_order(x);
        let Some([_, h, w, c]) = self.image(node, "instance_norm2d", x) else { return x.value };
        if h * w == 1 {
            let message = "`instance_norm2d` cannot work on images of one pixel";
            self.refuse(node, message, "needs more than one value for each channel", &[x], "");
            return x.value;
        }
        let mut ops = vec![x.value];
        if l.affine {
            ops.extend(self.scale_and_shift(node, Shape::from([c]), Storage::plain([c]), true));
        }
        self.plain(GroupNorm { groups: c, eps: l.eps as f32, affine: l.affine }, &ops)
    }

    pub(super) fn layer_norm(&mut self, node: &LayerNode, l: &cfg::LayerNorm, x: Tensor) -> (ValueId, Order) {
        let weight = l.elementwise_affine;
        let op =
            LayerNorm { dims: l.normalized_dims, eps: l.eps as f32, weight, bias: weight && l.bias, centered: true };
        self.over_last(node, op, x)
    }

    pub(super) fn rms_norm(&mut self, node: &LayerNode, l: &cfg::RmsNorm, x: Tensor) -> (ValueId, Order) {
        let (dims, weight) = (l.normalized_dims, l.elementwise_affine);
        self.over_last(node, LayerNorm { dims, eps: l.eps as f32, weight, bias: false, centered: false }, x)
    }

    /// Normalisation over the last dimensions.
    fn over_last(&mut self, node: &LayerNode, op: LayerNorm, x: Tensor) -> (ValueId, Order) {
        let x = self.whole(x);
        let (dims, rank) = (op.dims, self.shape(x).rank());
        if dims >= rank {
            let at = node.fields.get("normalized_dims").copied().unwrap_or(node.span);
            let has = match rank - 1 {
                1 => "one dimension".to_string(),
                n => format!("{n} dimensions"),
            };
            let message = format!("`{}` over {dims} dimensions, but a sample has {has}", node.kind_name());
            let help = "`normalized_dims` counts the last dimensions, without that of the batch";
            self.refuse_at(node, at, &message, "too many", &[x], help);
            return (x.value, x.order);
        }
        // Over the whole image the order of elements does not matter; over rows or columns they must be innermost.
        let image = x.order == Order::Usual && rank == 4;
        let inner: Vec<usize> = (rank - dims..rank).collect();
        let within = image && dims == 3 || self.axes(x).ends_with(&inner);
        let y = if within { x } else { self.contiguous(x) };
        let shape = self.shape(y).clone();
        let tail = Shape::from(&shape.dims()[rank - dims..]);
        let storage = match (image && within, tail.dims()) {
            (true, &[h, w, c]) => Storage::image(c, h, w),
            _ => Storage::plain(tail.clone()),
        };
        let mut ops = vec![y.value];
        if op.weight {
            ops.extend(self.scale_and_shift(node, tail, storage, op.bias));
        }
        let value = self.plain(op, &ops);
        let y = Tensor { value, ..y };
        let y = if image { self.in_pytorch_order(y) } else { y };
        (y.value, y.order)
    }
}
