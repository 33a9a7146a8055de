//! Normalisation layers.

use super::params::Param;
use super::{Builder, Mode, Tensor};
use crate::config::LayerNode;
use crate::config::language::layers as cfg;
use crate::config::language::values::Momentum;
use crate::graph::op::{BatchNorm, BatchNormInfer, GroupNorm, LayerNorm, Permute};
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

    pub(super) fn batch_norm1d(&mut self, node: &LayerNode, l: &cfg::BatchNorm1d, x: Tensor) -> ValueId {
        let args = BatchNormArgs::new(l.eps, l.momentum, l.affine, l.track_running_stats);
        let x = self.in_pytorch_order(x);
        match self.shape(x).rank() {
            2 => self.batch_norm(node, &args, x.value, x),
            3 => {
                // [N, C, L] keeps PyTorch's order inside; the operation wants channels last.
                let swapped = self.plain(Permute { perm: vec![0, 2, 1] }, &[x.value]);
                let y = self.batch_norm(node, &args, swapped, x);
                self.plain(Permute { perm: vec![0, 2, 1] }, &[y])
            }
            _ => {
                let shape = self.shape(x).to_pytorch();
                let message = format!("`batch_norm1d` takes vectors, but its input is images of shape {shape}");
                self.refuse(node, &message, "cannot take images", &[x], "use \"batch_norm2d\"");
                x.value
            }
        }
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
            Mode::Train => (loading.batch_size, "batch_size", self.data.train),
            Mode::Eval | Mode::Predict => (loading.eval_batch_size(), "eval_batch_size", self.data.val),
        };
        let label = "needs more than one value for each channel";
        if self.batch == full {
            let message = "batch normalisation cannot work with a batch of one value for each channel";
            self.refuse(node, message, label, &[from], &format!("take a larger `{key}`"));
            return;
        }
        let samples = samples.map_or(String::new(), |n| format!(": {n} samples in batches of {full}"));
        let message = format!("batch normalisation cannot work with the last batch, which has one sample{samples}");
        let help = match self.mode {
            Mode::Train => "set `drop_last = true` in `[data]` to leave that batch out, or take another `batch_size`",
            Mode::Eval | Mode::Predict => "take another `eval_batch_size`, or keep `track_running_stats`",
        };
        self.refuse(node, &message, label, &[from], help);
    }

    pub(super) fn group_norm(&mut self, node: &LayerNode, l: &cfg::GroupNorm, x: Tensor) -> ValueId {
        let x = self.in_pytorch_order(x);
        let shape = self.shape(x).clone();
        // Sequences keep PyTorch's order, [N, C, L], inside.
        let sequence = shape.rank() == 3;
        let c = if sequence { shape.dims()[1] } else { shape.last() };
        let groups = l.num_groups;
        if c % groups != 0 {
            let at = node.fields.get("num_groups").copied().unwrap_or(node.span);
            let message = format!("`group_norm` cannot split {c} channels into {groups} groups");
            self.refuse_at(node, at, &message, &format!("must divide {c}"), &[x], "");
            return x.value;
        }
        let value = if sequence { self.plain(Permute { perm: vec![0, 2, 1] }, &[x.value]) } else { x.value };
        let mut ops = vec![value];
        if l.affine {
            ops.extend(self.scale_and_shift(node, Shape::from([c]), Storage::plain([c]), true));
        }
        let y = self.plain(GroupNorm { groups, eps: l.eps as f32, affine: l.affine }, &ops);
        if sequence { self.plain(Permute { perm: vec![0, 2, 1] }, &[y]) } else { y }
    }

    pub(super) fn layer_norm(&mut self, node: &LayerNode, l: &cfg::LayerNorm, x: Tensor) -> ValueId {
        let x = self.in_pytorch_order(x);
        let shape = self.shape(x).clone();
        let dims = l.normalized_dims;
        if dims >= shape.rank() {
            let at = node.fields.get("normalized_dims").copied().unwrap_or(node.span);
            let has = match shape.rank() - 1 {
                1 => "one dimension".to_string(),
                n => format!("{n} dimensions"),
            };
            let message = format!("`layer_norm` over {dims} dimensions, but a sample has {has}");
            let help = "`normalized_dims` counts the last dimensions, without that of the batch";
            self.refuse_at(node, at, &message, "too many", &[x], help);
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
}
