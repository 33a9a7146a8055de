//! Each layer type as operations.

use super::cut::Beyond;
use super::order::Order;
use super::params::{Param, uniform_fan_in};
use super::{Builder, LayerRow, Mode, Tensor};
use crate::config::declare::tagged::Tagged as _;
use crate::config::language::layers::{self as cfg, Layer};
use crate::config::language::sections::Lora;
use crate::config::{Diagnostic, LayerKind, LayerNode};
use crate::graph::op::{ActivationOp, Binary, BinaryKind, Dropout, Linear, LogSoftmax, NewFull, Softmax};
use crate::graph::{DType, Fill, Input, Shape, Storage, ValueId};

impl Builder<'_> {
    /// One layer or container.
    pub(super) fn node(&mut self, node: &LayerNode, x: Tensor) -> Tensor {
        let errors_before = self.errors.len();
        let mut y = match &node.kind {
            LayerKind::Layer(layer) => self.layer(node, layer, x),
            LayerKind::Group(list) => {
                let x = self.operands(node, x).first().copied().unwrap_or(x);
                self.sequence(list, x)
            }
            LayerKind::Residual { .. } | LayerKind::Gate(_) | LayerKind::Branches { .. } => self.container(node, x),
        };
        if node.doubtful {
            // A mistake here may follow from the one that was reported.
            let inside = self.errors.split_off(errors_before).into_iter();
            let is_leaf = matches!(node.kind, LayerKind::Layer(_));
            self.errors.extend(inside.filter(|error| !is_leaf && error.span() != Some(node.span)));
            y.value = self.guess(self.shape(y).clone());
        }
        if !node.name.is_empty() {
            self.named.insert(node.path.clone(), y);
        }
        y
    }

    /// Adds the line of `node`, which takes `from`, to the layer table and makes `value` its result.
    pub(super) fn made(
        &mut self,
        node: &LayerNode,
        kind: &str,
        from: &[Tensor],
        (value, order): (ValueId, Order),
    ) -> Tensor {
        let made_by = Some(self.rows.len());
        let made = Tensor { value, order, made_by };
        let from = from.iter().map(|t| self.operand(*t)).collect();
        self.rows.push(LayerRow {
            path: node.path.clone(),
            kind: kind.to_string(),
            output: self.dims(made),
            params: 0,
            flops: 0,
            span: node.span,
            value,
            from,
        });
        made
    }

    fn layer(&mut self, node: &LayerNode, layer: &Layer, x: Tensor) -> Tensor {
        self.graph.set_origin(&node.path);
        let operands = self.operands(node, x);
        let x = operands.first().copied().unwrap_or(x);
        if operands.iter().any(|operand| self.goes_on(operand.value)) {
            self.goes_by_position(node, layer, &operands);
        }
        // What works element by element keeps the order.
        let same = |value| (value, x.order);
        let usual = |value| (value, Order::Usual);
        let made = match layer {
            Layer::Activation(l) => same(self.plain(ActivationOp { act: l.describe() }, &[x.value])),
            Layer::Dropout(l) => same(self.dropout(l.p as f32, x)),
            Layer::StochasticDepth(l) => same(self.stochastic_depth(l, x)),
            Layer::Identity(_) => same(x.value),
            Layer::Flatten(l) => self.flatten(node, l, x),
            Layer::Unflatten(l) => self.unflatten(node, l, x),
            Layer::Reshape(l) => self.reshape(node, l, x),
            Layer::Permute(l) => self.permute(node, l, x),
            Layer::Transpose(l) => self.transpose(node, l, x),
            Layer::Chunk(l) => self.chunk(node, l, x),
            Layer::Slice(l) => self.slice(node, l, x),
            Layer::Select(l) => self.select(node, l, x),
            Layer::Mean(l) => self.reduced(node, &l.dim, l.keepdim, false, x),
            Layer::Sum(l) => self.reduced(node, &l.dim, l.keepdim, true, x),
            Layer::Roll(l) => self.roll(node, l, x),
            Layer::ChannelShuffle(l) => self.channel_shuffle(node, l, x),
            Layer::Upsample(l) => usual(self.upsample(node, l, x)),
            Layer::PixelShuffle(l) => usual(self.pixel_shuffle(node, l, x)),
            Layer::PixelUnshuffle(l) => usual(self.pixel_unshuffle(node, l, x)),
            Layer::ZeroPad2d(l) => usual(self.pad2d(node, l.padding.0, Beyond::Zeros, x)),
            Layer::ReflectionPad2d(l) => usual(self.pad2d(node, l.padding.0, Beyond::Reflection, x)),
            Layer::ReplicationPad2d(l) => usual(self.pad2d(node, l.padding.0, Beyond::Replication, x)),
            Layer::Linear(l) => self.linear(node, l, x),
            Layer::Embedding(l) => usual(self.embedding(node, l, x)),
            Layer::Conv2d(l) => usual(self.conv2d(node, l, x)),
            Layer::Conv1d(l) => self.conv1d(node, l, x),
            Layer::ConvTranspose2d(l) => usual(self.conv_transpose2d(node, l, x)),
            Layer::ConvTranspose1d(l) => self.conv_transpose1d(node, l, x),
            Layer::BatchNorm1d(l) => self.batch_norm1d(node, l, x),
            Layer::BatchNorm2d(l) => usual(self.batch_norm2d(node, l, x)),
            Layer::GroupNorm(l) => self.group_norm(node, l, x),
            Layer::InstanceNorm2d(l) => usual(self.instance_norm2d(node, l, x)),
            Layer::LocalResponseNorm(l) => self.local_response_norm(node, l, x),
            Layer::LayerNorm(l) => self.layer_norm(node, l, x),
            Layer::RmsNorm(l) => self.rms_norm(node, l, x),
            Layer::MultiheadAttention(l) => usual(self.multihead_attention(node, l, &operands)),
            Layer::ScaledDotProductAttention(l) => usual(self.scaled_dot_product_attention(node, l, &operands)),
            Layer::Lstm(l) => usual(self.recurrent(node, l.into(), x)),
            Layer::Gru(l) => usual(self.recurrent(node, l.into(), x)),
            Layer::Rnn(l) => usual(self.recurrent(node, l.into(), x)),
            Layer::ShiftedWindowAttention(l) => self.shifted_window_attention(node, l, x),
            Layer::MergePatches(_) => self.merge_patches(node, x),
            Layer::ClassToken(l) => usual(self.class_token(node, l, x)),
            Layer::PositionEmbedding(l) => usual(self.position_embedding(node, l, x)),
            Layer::TokenTypeEmbedding(l) => usual(self.token_type_embedding(node, l, x)),
            Layer::LayerScale(l) => self.layer_scale(node, l, x),
            Layer::MaxPool2d(l) => usual(self.max_pool2d(node, l, x)),
            Layer::AvgPool2d(l) => usual(self.avg_pool2d(node, l, x)),
            Layer::AdaptiveAvgPool2d(l) => usual(self.adaptive_avg_pool2d(node, l, x)),
            Layer::AdaptiveMaxPool2d(l) => usual(self.adaptive_max_pool2d(node, l, x)),
            Layer::SequencePool(l) => usual(self.sequence_pool(node, l.mode, x)),
            Layer::EmbeddingBag(l) => usual(self.embedding_bag(node, l, x)),
            Layer::MaxPool1d(l) => self.max_pool1d(node, l, x),
            Layer::AvgPool1d(l) => self.avg_pool1d(node, l, x),
            Layer::AdaptiveAvgPool1d(l) => self.adaptive_avg_pool1d(node, l, x),
            Layer::Prelu(l) => self.prelu(node, l, x),
            Layer::Glu(l) => self.gated(node, l.into(), x),
            Layer::Swiglu(l) => self.gated(node, l.into(), x),
            Layer::Geglu(l) => self.gated(node, l.into(), x),
            Layer::Softmax(l) => self.softmax(l.dim, Softmax {}, x),
            Layer::LogSoftmax(l) => self.softmax(l.dim, LogSoftmax {}, x),
            Layer::Add(_) => self.combine(node, BinaryKind::Add, &operands),
            Layer::Multiply(_) => self.combine(node, BinaryKind::Mul, &operands),
            Layer::Concat(l) => self.concat(node, l.dim, &operands),
            Layer::PiecewiseLinearEmbedding(l) => usual(self.piecewise_linear_embedding(node, l, x)),
            Layer::PeriodicEmbedding(l) => usual(self.periodic_embedding(node, l, x)),
            Layer::FeatureTokenizer(l) => usual(self.feature_tokenizer(node, l, x)),
            Layer::TabularInput(_) => usual(self.tabular_input(node, x)),
            Layer::DotInteraction(_) => usual(self.dot_interaction(node, x)),
            Layer::EnsembleAffine(l) => usual(self.ensemble_affine(node, l, x)),
            Layer::EnsembleLinear(l) => usual(self.ensemble_linear(node, l, x)),
            Layer::EnsembleMean(_) => usual(self.ensemble_mean(node, x)),
        };
        self.made(node, layer.type_name(), &operands, made)
    }

    /// The output `y` of a linear layer with what its adapter makes of `x` added. `storage` is that of the adapter's first matrix.
    fn adapted(
        &mut self,
        node: &LayerNode,
        lora: &Lora,
        x: Tensor,
        (y, meant): (ValueId, Shape),
        storage: Storage,
    ) -> ValueId {
        let (rank, out, inp) = (lora.rank, meant.last(), self.shape(x).last());
        let dropped = Tensor { value: self.dropout(lora.dropout as f32, x), ..x };
        // As PEFT starts them: the model is what it was, for B is 0.
        let a = Param { storage, ..Param::plain(Lora::A, [rank, inp], uniform_fan_in(inp)) };
        let a = self.adapter_param(node, a);
        let b = self.adapter_param(node, Param::plain(Lora::B, [out, rank], Fill::Constant(0.0)));
        let mut inside = meant.clone();
        *inside.0.last_mut().expect("a linear layer has outputs") = rank;
        let low = self.apply(node, Linear { bias: false }, &[dropped.value, a], &[x], inside, "");
        let low = match lora.scale() {
            1.0 => low,
            scale => {
                let ones = Shape(vec![1; self.graph.shape(low).rank()]);
                let factor = self.plain(NewFull { shape: ones, value: scale as f32 }, &[low]);
                let shape = self.graph.shape(low).clone();
                self.apply(node, Binary { kind: BinaryKind::Mul }, &[low, factor], &[x], shape, "")
            }
        };
        let more = self.apply(node, Linear { bias: false }, &[low, b], &[x], meant.clone(), "");
        self.apply(node, Binary { kind: BinaryKind::Add }, &[y, more], &[x], meant, "")
    }

    pub(super) fn dropout(&mut self, p: f32, x: Tensor) -> ValueId {
        match self.draws(p) {
            Some((random, stream)) => self.plain(Dropout { p, stream }, &[x.value, random]),
            None => x.value,
        }
    }

    /// The random key and the number of one more layer that drops with probability `p`, if it does so in this mode.
    pub(super) fn draws(&mut self, p: f32) -> Option<(ValueId, u32)> {
        // Counted in every mode, so that a layer's number does not depend on it.
        self.dropouts += 1;
        if self.mode != Mode::Train || p == 0.0 {
            return None;
        }
        Some((self.graph.input(Input::Random, DType::U32, Shape::from([4])), self.dropouts - 1))
    }

    fn linear(&mut self, node: &LayerNode, l: &cfg::Linear, x: Tensor) -> (ValueId, Order) {
        let (rank, out) = (self.shape(x).rank(), l.out_features);
        if rank == 4 && x.order == Order::Usual {
            let message = format!("`linear` takes vectors, but its input is images of shape {}", self.dims(x));
            let help = "put \"flatten\" before it, or \"adaptive_avg_pool2d\" with `output_size = 1` and \"flatten\"; a \
                        \"permute\" to `[0, 2, 3, 1]` lets it work on the channels of each pixel";
            self.refuse(node, &message, "cannot take images", &[x], help);
            return (self.stand_in(Shape::from([self.batch, out])), Order::Usual);
        }
        let x = if self.axes(x).last() == Some(&(rank - 1)) { x } else { self.contiguous(x) };
        let shape = self.shape(x).clone();
        let inp = shape.last();
        let flat = |rows| match x.order {
            Order::FlatImage(hwc) => Storage::linear_after_flatten(rows, hwc),
            _ => Storage::plain([rows, inp]),
        };
        let (storage, order) = match x.order {
            Order::FlatImage(_) if !l.transposed => (flat(out), Order::Usual),
            Order::FlatImage(_) => {
                let help = "leave it out: such a layer takes images, which are not flattened before it";
                self.refuse(node, "`transposed` cannot follow a \"flatten\" of images", "is transposed", &[x], help);
                (Storage::plain([out, inp]), Order::Usual)
            }
            order if l.transposed => (Storage::transposed(out, inp), order),
            order => (Storage::plain([out, inp]), order),
        };
        let init = uniform_fan_in(inp);
        let w = match l.tied() {
            Some(name) => self.tied(node, name, Shape::from([out, inp])),
            None => self.param(node, Param { storage, ..Param::plain("weight", [out, inp], init) }),
        };
        let mut ops = vec![x.value, w];
        if l.bias {
            ops.push(self.param(node, Param::plain("bias", [out], init)));
        }
        let mut meant = shape.dims().to_vec();
        meant[shape.rank() - 1] = out;
        let meant = Shape(meant);
        let y = self.apply(node, Linear { bias: l.bias }, &ops, &[x], meant.clone(), "");
        let y = match self.experiment.model.lora.as_ref().and_then(|lora| Some((lora, lora.target(&node.path)?))) {
            Some((lora, target)) if l.tied().is_some() => {
                let message = format!("`lora` cannot change `{}`, whose matrix is that of another layer", node.path);
                let error = Diagnostic::error(message)
                    .at(
                        lora.targets.iter().find(|known| *known == target).map_or(node.span, |target| target.span),
                        "names it",
                    )
                    .context(node.span, "has a `tie`")
                    .help("leave it out of `targets`");
                self.report(error);
                y
            }
            Some((lora, _)) => self.adapted(node, lora, x, (y, meant), flat(lora.rank)),
            None => y,
        };
        // The number of outputs is as written, whatever comes in: what follows can be judged again.
        // Only a value that is too large has fewer samples.
        if self.graph.shape(y).dims()[0] == self.batch {
            self.guesses.remove(&y);
        }
        (y, order)
    }
}
