//! Each layer as operators of ONNX.

mod activation;
mod conv;
mod norm;
mod pool;
mod recurrent;
mod shape;
mod tabular;
mod transformer;
mod windows;

use super::graph::int;
use super::{Translator, Value, internal};
use crate::config::language::layers::Layer;
use crate::config::{Diagnostic, LayerNode};
use crate::graph::{Fill, VarKind};

impl Translator<'_> {
    /// Adds the operators of a layer that puts out `out`; the name of their result.
    pub(super) fn layer(
        &mut self,
        node: &LayerNode,
        layer: &Layer,
        operands: &[Value],
        out: &[usize],
    ) -> Result<String, Diagnostic> {
        let Some(x) = operands.first() else { return Err(internal(format!("`{}` has no input", node.path))) };
        Ok(match layer {
            // What acts in training alone.
            Layer::Dropout(_) | Layer::StochasticDepth(_) | Layer::Identity(_) => x.name.clone(),
            Layer::Activation(l) => self.activation(l.describe(), &x.name),
            Layer::Linear(l) => self.linear(node, l, x),
            Layer::Embedding(_) => self.embedding(node, x),
            Layer::Conv2d(l) => self.conv2d(node, l, x),
            Layer::Conv1d(l) => self.conv1d(node, l, x),
            Layer::ConvTranspose2d(l) => self.conv_transpose2d(node, l, x),
            Layer::ConvTranspose1d(l) => self.conv_transpose1d(node, l, x),
            Layer::BatchNorm1d(l) => self.batch_norm(node, l.eps, l.affine, l.track_running_stats, x),
            Layer::BatchNorm2d(l) => self.batch_norm(node, l.eps, l.affine, l.track_running_stats, x),
            Layer::GroupNorm(l) => self.group_norm(node, l, x),
            Layer::InstanceNorm2d(l) => self.instance_norm(node, l, x),
            Layer::LocalResponseNorm(l) => self.local_response_norm(l, x),
            Layer::LayerNorm(l) => self.layer_norm(node, l, x),
            Layer::RmsNorm(l) => self.rms_norm(node, l, x),
            Layer::MultiheadAttention(l) => self.multihead_attention(node, l, operands)?,
            Layer::ScaledDotProductAttention(l) => self.scaled_dot_product_attention(node, l, operands)?,
            Layer::Lstm(l) => self.recurrent(node, &l.into(), x),
            Layer::Gru(l) => self.recurrent(node, &l.into(), x),
            Layer::Rnn(l) => self.recurrent(node, &l.into(), x),
            Layer::ShiftedWindowAttention(l) => self.shifted_window_attention(node, l, x),
            Layer::MergePatches(_) => self.merge_patches(x, out),
            Layer::ClassToken(_) => self.class_token(node, x),
            Layer::PositionEmbedding(l) => self.position_embedding(node, l, x),
            Layer::TokenTypeEmbedding(l) => self.token_type_embedding(node, l, x),
            Layer::LayerScale(_) => self.layer_scale(node, x),
            Layer::MaxPool2d(l) => self.max_pool2d(l, x, out),
            Layer::AvgPool2d(l) => self.avg_pool2d(l, x, out),
            Layer::AdaptiveAvgPool2d(_) | Layer::AdaptiveAvgPool1d(_) => self.adaptive_avg_pool(x, out),
            Layer::AdaptiveMaxPool2d(_) => self.adaptive_max_pool(x, out),
            Layer::SequencePool(l) => self.sequence_pool(l.mode, x),
            Layer::EmbeddingBag(l) => {
                let name = self.embedding(node, x);
                let shape = vec![x.shape[0], x.shape[1], l.embedding_dim];
                self.sequence_pool(l.mode.into(), &Value { name, shape })
            }
            Layer::MaxPool1d(l) => self.max_pool1d(l, x, out),
            Layer::AvgPool1d(l) => self.avg_pool1d(l, x, out),
            Layer::Flatten(_) => self.flatten(x, out),
            Layer::Unflatten(_) | Layer::Reshape(_) => self.graph.reshape(&x.name, out),
            Layer::Permute(l) => self.permuted(&x.name, &l.dims),
            Layer::Transpose(l) => self.transpose(l, x),
            Layer::Chunk(l) => self.chunk(l, x),
            Layer::Slice(l) => self.sliced(l, x, out),
            Layer::Select(l) => self.select(l, x),
            Layer::Mean(l) => self.reduced("ReduceMean", &l.dim, l.keepdim, x),
            Layer::Sum(l) => self.reduced("ReduceSum", &l.dim, l.keepdim, x),
            Layer::Roll(l) => self.roll(l, x),
            Layer::ChannelShuffle(l) => self.channel_shuffle(l.groups, x),
            Layer::Upsample(l) => self.upsample(l, x, out),
            Layer::PixelShuffle(l) => self.pixel_shuffle(l.upscale_factor, x),
            Layer::PixelUnshuffle(l) => self.pixel_unshuffle(l.downscale_factor, x, out),
            Layer::ZeroPad2d(l) => self.padded("constant", l.padding.0, x),
            Layer::ReflectionPad2d(l) => self.padded("reflect", l.padding.0, x),
            Layer::ReplicationPad2d(l) => self.padded("edge", l.padding.0, x),
            Layer::Prelu(l) => self.prelu(node, l.num_parameters, x),
            Layer::Glu(l) => self.gated(l.into(), x),
            Layer::Swiglu(l) => self.gated(l.into(), x),
            Layer::Geglu(l) => self.gated(l.into(), x),
            Layer::Softmax(l) => self.graph.op("Softmax", &[&x.name], [int("axis", l.dim)]),
            Layer::LogSoftmax(l) => self.graph.op("LogSoftmax", &[&x.name], [int("axis", l.dim)]),
            Layer::Add(_) => self.combine("Add", operands),
            Layer::Multiply(_) => self.combine("Mul", operands),
            Layer::Concat(l) => self.concat(operands, dimension(l.dim, x.shape.len())),
            Layer::PiecewiseLinearEmbedding(_) => self.piecewise_linear_embedding(node, x)?,
            Layer::PeriodicEmbedding(l) => self.periodic_embedding(node, l, x)?,
            Layer::FeatureTokenizer(_) => self.feature_tokenizer(node, x)?,
            Layer::TabularInput(_) => self.tabular_input(node, x)?,
            Layer::DotInteraction(_) => self.dot_interaction(x),
            Layer::EnsembleAffine(l) => self.ensemble_affine(node, l, x),
            Layer::EnsembleLinear(l) => self.ensemble_linear(node, l, x),
            Layer::EnsembleMean(_) => self.ensemble_mean(x),
        })
    }

    /// The parameter or buffer of that name of a layer; the one that has the layer's own name, if that is empty.
    fn parameter(&mut self, node: &LayerNode, name: &str) -> String {
        let name = match (node.path.as_str(), name) {
            ("", name) => name.to_owned(),
            (path, "") => path.to_owned(),
            (path, name) => format!("{path}.{name}"),
        };
        self.used.insert(name.clone());
        name
    }

    /// The constant of the model's own graph that is filled so, and has so many elements.
    fn constant(&mut self, fill: Fill, elements: usize) -> String {
        let mut all = self.source.variables.iter().map(|(_, v)| v);
        let found = all.find(|v| v.kind == VarKind::Constant && v.init == fill && v.shape.len() == elements);
        // A constant that is not there is an error when the graph is whole.
        let name = found.map_or_else(|| format!("{fill:?}"), |v| v.name.clone());
        self.used.insert(name.clone());
        name
    }
}

/// The dimension that is meant, where negative numbers count from the end. The model has been built: it is there.
fn dimension(dim: i64, rank: usize) -> usize {
    let found = if dim < 0 { dim + rank as i64 } else { dim };
    usize::try_from(found).unwrap_or_default()
}
