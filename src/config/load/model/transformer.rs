//! The layers of a transformer, written out as the layers that each stands for.

use super::layer::{Common, node};
use super::{Context, Unroller};
use crate::config::declare::options::Options;
use crate::config::declare::part::Part;
use crate::config::declare::tagged::Tagged;
use crate::config::experiment::{LayerKind, LayerNode};
use crate::config::language::layers::{
    CommonKeys, Dropout, ENCODER_LAYER, Layer, LayerNorm, Linear, MultiheadAttention, TransformerDecoderLayer,
    TransformerEncoderLayer, TransformerLayer,
};
use crate::config::text::diagnostics::{Diagnostic, Span};
use crate::config::text::spelling::shorten;
use crate::config::text::tree::Table;

/// A name in a `from`, and its place.
type Name = (String, Span);

impl Unroller<'_> {
    /// `transformer_encoder_layer` or `transformer_decoder_layer`: a group, or one of as many groups as `repeat` says.
    pub(super) fn transformer_layer(
        &self,
        word: &str,
        span: Span,
        table: &Table,
        mut common: Common,
        context: &Context,
    ) -> Option<LayerNode> {
        let what = format!("layer `{word}`");
        let common_keys = [&[Layer::TAG], CommonKeys::KEYS].concat();
        let (arguments, bad) = context.scope.evaluate_all(table, &common_keys, self.sink);
        let part = Part { table: &arguments, span, what: &what, bad: &bad, sink: self.sink };
        let options = if word == ENCODER_LAYER {
            part.known_keys_among(&[TransformerEncoderLayer::KEYS], &common_keys);
            part.read::<TransformerEncoderLayer>().map(TransformerLayer::from)
        } else {
            part.known_keys_among(&[TransformerDecoderLayer::KEYS], &common_keys);
            part.read::<TransformerDecoderLayer>().map(TransformerLayer::from)
        };
        let memory = match word {
            ENCODER_LAYER => self.one_input(table, common.from.as_ref().map_or(1, Vec::len), &what).then_some(None)?,
            _ => Some(self.memory(&what, span, table, &mut common)?),
        };
        let options = options?;
        let copy = |path: &str| {
            let writer = Writer { unroller: self, options: &options, span, table, context, path, memory: &memory };
            self.admit(path, context, span).then(|| writer.layers())
        };
        let Some(count) = options.repeat else {
            let body = copy(&common.path)?;
            return Some(node(table, span, common, LayerKind::Group(body)));
        };
        if !self.admit(&common.path, context, span) {
            return None;
        }
        let copies = (0..count).map_while(|i| {
            let (name, path) = (i.to_string(), format!("{}.{i}", common.path));
            let body = copy(&path)?;
            Some(node(table, span, Common { name, path, from: None }, LayerKind::Group(body)))
        });
        let copies = copies.collect();
        Some(node(table, span, common, LayerKind::Group(copies)))
    }

    /// Takes the second of the two names in the `from` of a decoder's layer.
    fn memory(&self, what: &str, span: Span, table: &Table, common: &mut Common) -> Option<Name> {
        let Some([_, _]) = common.from.as_deref() else {
            let span = table.get("from").map_or(span, |from| from.span);
            self.sink.push(
                Diagnostic::error(format!("{what} needs two inputs"))
                    .at(span, "name them: `from = [\"x\", \"memory\"]`, the text so far and what the encoder has made"),
            );
            return None;
        };
        let memory = common.from.as_mut()?.pop()?;
        // Within the layer its own layers are found first, and with `repeat` the copies before it, whose names are numbers.
        if ["self_attn", "multihead_attn", "linear1", "linear2", "norm1", "norm2", "norm3"].contains(&memory.0.as_str())
            || memory.0.starts_with("dropout")
            || memory.0.parse::<usize>().is_ok() && table.get("repeat").is_some()
        {
            self.sink.push(
                Diagnostic::error(format!("{what} has a layer `{}` of its own", shorten(&memory.0)))
                    .at(memory.1, "could mean either")
                    .help("give the layer that makes the memory another `name`"),
            );
            return None;
        }
        Some(memory)
    }
}

/// Writes the layers of one copy.
struct Writer<'a> {
    unroller: &'a Unroller<'a>,
    options: &'a TransformerLayer,
    span: Span,
    table: &'a Table,
    context: &'a Context<'a>,
    path: &'a str,
    memory: &'a Option<Name>,
}

impl Writer<'_> {
    fn layers(&self) -> Vec<LayerNode> {
        let own = self.attention("self_attn", self.options.is_causal, None);
        let mut layers = self.part("norm1", vec![own, self.dropout("dropout1")]);
        let (mut norm, mut dropout) = ("norm2", "dropout2");
        if let Some(memory) = self.memory {
            // Queries are what comes before.
            let queries = if self.options.norm_first { "norm2" } else { "norm1" };
            let from = vec![(queries.to_owned(), self.span), memory.clone()];
            let cross = self.attention("multihead_attn", false, Some(from));
            layers.extend(self.part("norm2", vec![cross, self.dropout("dropout2")]));
            (norm, dropout) = ("norm3", "dropout3");
        }
        let activation = self.layer("activation", &[], Layer::Activation(self.options.activation.into()));
        let feedforward = vec![
            self.linear("linear1", "dim_feedforward", self.options.dim_feedforward),
            activation,
            self.dropout("dropout"),
            self.linear("linear2", "d_model", self.options.d_model),
            self.dropout(dropout),
        ];
        layers.extend(self.part(norm, feedforward));
        layers
    }

    /// What `body` makes of its input is added to it, with the normalisation before or after.
    fn part(&self, norm: &str, mut body: Vec<LayerNode>) -> Vec<LayerNode> {
        let options = LayerNorm {
            normalized_dims: 1,
            eps: self.options.layer_norm_eps,
            elementwise_affine: true,
            bias: self.options.bias,
        };
        let norm = self.layer(norm, &[], Layer::LayerNorm(options));
        let mut behind = Some(norm);
        if self.options.norm_first {
            body.splice(0..0, behind.take());
        }
        let sum = LayerKind::Residual { body, projection: None, if_same_shape: false };
        // Without a name of its own: its layers are named as if they stood beside it.
        let sum = self.node("", self.path.to_owned(), &[("d_model", "d_model")], None, sum);
        [sum].into_iter().chain(behind).collect()
    }

    fn attention(&self, name: &str, is_causal: bool, from: Option<Vec<Name>>) -> LayerNode {
        let options = MultiheadAttention {
            num_heads: self.options.nhead,
            num_kv_heads: None,
            bias: self.options.bias,
            dropout: self.options.dropout,
            is_causal,
            rope_theta: None,
            rope_scaling: None,
            sliding_window: None,
            alibi: false,
        };
        let kind = LayerKind::Layer(Layer::MultiheadAttention(options));
        self.node(name, self.below(name), &[("num_heads", "nhead")], from, kind)
    }

    fn linear(&self, name: &str, key: &str, out_features: usize) -> LayerNode {
        let options = Linear { out_features, bias: self.options.bias, transposed: false, tie: None };
        self.layer(name, &[("out_features", key)], Layer::Linear(options))
    }

    fn dropout(&self, name: &str) -> LayerNode {
        self.layer(name, &[("p", "dropout")], Layer::Dropout(Dropout { p: self.options.dropout }))
    }

    fn layer(&self, name: &str, keys: &[(&str, &str)], layer: Layer) -> LayerNode {
        self.node(name, self.below(name), keys, None, LayerKind::Layer(layer))
    }

    fn below(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    /// A layer that points at the options of the whole: `keys` are its own with those that they come from.
    fn node(
        &self,
        name: &str,
        path: String,
        keys: &[(&str, &str)],
        from: Option<Vec<Name>>,
        kind: LayerKind,
    ) -> LayerNode {
        // Only counted: a layer that is one too many is reported, and no further copy is made.
        self.unroller.admit(&path, self.context, self.span);
        let place = |(own, ours): &(&str, &str)| Some(((*own).to_owned(), self.table.get(ours)?.span));
        let from_names = from.iter().flatten().map(|(name, _)| name.clone()).collect();
        let fields = keys.iter().filter_map(place).collect();
        LayerNode { name: name.to_owned(), path, span: self.span, fields, from, from_names, kind, doubtful: false }
    }
}
