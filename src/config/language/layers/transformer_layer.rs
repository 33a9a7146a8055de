//! The layers of a transformer as PyTorch has them: each stands for several layers, which `load/model/transformer.rs` writes out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::activation::{ActivationLayer, Approximate, Gelu, Relu};
use crate::config::declare::bounds::{MAX_SIZE, above};
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;
use crate::config::declare::value::values;

/// The type of [`TransformerEncoderLayer`].
pub const ENCODER_LAYER: &str = "transformer_encoder_layer";

/// The type of [`TransformerDecoderLayer`].
pub const DECODER_LAYER: &str = "transformer_decoder_layer";

/// Most layers that `repeat` makes.
const MAX_REPEAT: usize = 1000;

/// Declares both layers, which have the same options: what each is, and whether it is causal unless it says.
macro_rules! layers {
    ($($(#[doc = $doc:literal])* $name:ident, is_causal = $causal:literal;)*) => {
        options! {
            $($(#[doc = $doc])* pub struct $name {
                /// Numbers of a position: the size of the last dimension.
                #[option(range = 1..=MAX_SIZE, example = "512")]
                pub d_model: usize,
                /// Number of heads; must divide `d_model`.
                #[option(range = 1..=MAX_SIZE, example = "8")]
                pub nhead: usize,
                /// Numbers between the two `linear`.
                #[option(default = 2048, range = 1..=MAX_SIZE)]
                pub dim_feedforward: usize,
                /// Probability with which a number is set to zero in training: weights of attention, numbers between the two `linear`, and what each part adds.
                #[option(default = 0.1, range = 0.0..1.0)]
                pub dropout: f64,
                /// What is between the two `linear`.
                #[option(default = FeedforwardActivation::Relu)]
                pub activation: FeedforwardActivation,
                /// Added to the variance of the normalisations.
                #[option(default = 1e-5, range = above(0.0))]
                pub layer_norm_eps: f64,
                /// Normalise what each part is given, and not the sum after it.
                #[option(default = false)]
                pub norm_first: bool,
                /// Learn biases of all projections, and shifts of the normalisations.
                #[option(default = true)]
                pub bias: bool,
                /// A position sees none after it.
                #[option(default = $causal)]
                pub is_causal: bool,
                /// Make so many in a row, named `0`, `1`, … below this layer's name.
                #[option(range = 1..=MAX_REPEAT, example = "6")]
                pub repeat: Option<usize>,
            })*
        }

        $(impl Check for $name {
            fn check(&self, part: &Part) {
                part.require("nhead", self.d_model.is_multiple_of(self.nhead), "must divide `d_model`");
            }
        }

        impl From<$name> for TransformerLayer {
            fn from(layer: $name) -> Self {
                let $name { d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, .. } = layer;
                let $name { norm_first, bias, is_causal, repeat, .. } = layer;
                TransformerLayer {
                    d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, norm_first, bias, is_causal, repeat,
                }
            }
        })*
    };
}

layers! {
    /// The encoder layer of a transformer, `[N, L, d_model]` to the same: attention of the positions to each other, then two `linear` with an
    /// activation between them. Each of the two parts is added to what it is given, and normalised. Its parameters have the names of
    /// `torch.nn.TransformerEncoderLayer` (Vaswani et al. 2017).
    TransformerEncoderLayer, is_causal = false;
    /// The decoder layer of a transformer, `[N, L, d_model]` to the same: attention of the positions to each other, attention to what an encoder has
    /// made, `[N, S, d_model]`, then two `linear` with an activation between them. Each of the three parts is added to what it is given, and normalised.
    /// `from = ["x", "memory"]` names both inputs; with `repeat` all layers take the same memory. Unlike PyTorch's it is causal unless `is_causal` says otherwise.
    /// Its parameters have the names of `torch.nn.TransformerDecoderLayer` (Vaswani et al. 2017).
    TransformerDecoderLayer, is_causal = true;
}

/// The options of either layer.
#[expect(missing_docs, reason = "the declarations describe them")]
pub struct TransformerLayer {
    pub d_model: usize,
    pub nhead: usize,
    pub dim_feedforward: usize,
    pub dropout: f64,
    pub activation: FeedforwardActivation,
    pub layer_norm_eps: f64,
    pub norm_first: bool,
    pub bias: bool,
    pub is_causal: bool,
    pub repeat: Option<usize>,
}

values!(FeedforwardActivation);

/// The activation between the two `linear` of a transformer's layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FeedforwardActivation {
    /// As `relu`.
    Relu,
    /// As `gelu`.
    Gelu,
}

impl From<FeedforwardActivation> for ActivationLayer {
    fn from(activation: FeedforwardActivation) -> Self {
        match activation {
            FeedforwardActivation::Relu => ActivationLayer::Relu(Relu {}),
            FeedforwardActivation::Gelu => ActivationLayer::Gelu(Gelu { approximate: Approximate::None }),
        }
    }
}
