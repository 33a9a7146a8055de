//! Parts of transformers and of other nets of blocks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::declare::bounds::MAX_SIZE;
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;
use crate::config::declare::value::values;
use crate::graph::op::Activation;

options! {
    /// Puts a learned position before all others of a sequence `[N, L, E]`. It is one parameter, `[1, 1, E]`, which has the layer's name.
    pub struct ClassToken {
        /// Standard deviation of the numbers that it starts with.
        #[option(default = 0.0, range = 0.0..)]
        pub init_std: f64,
    }

    /// Adds numbers of their own to the positions of a sequence `[N, L, E]`. If they are learned, they are one parameter, `[1, L, E]`,
    /// which has the layer's name.
    pub struct PositionEmbedding {
        /// Learned numbers, or sines and cosines of the position, which are no parameter (Vaswani et al., "Attention Is All You Need",
        /// 2017): number `2i` of position `p` is `sin(p / 10000^(2i / E))`, the next one its cosine.
        #[option(default = PositionKind::Learned)]
        pub kind: PositionKind,
        /// Standard deviation of what learned numbers start with.
        #[option(otherwise = "`0.02`", range = 0.0..)]
        pub init_std: Option<f64>,
        /// Have numbers for so many positions, of which a sequence may have fewer. Learned ones are then the parameter `weight`, `[max_length, E]`, as that of an
        /// `nn.Embedding`.
        #[option(otherwise = "as many as there are", range = 1..=MAX_SIZE, example = "1024")]
        pub max_length: Option<usize>,
    }

    /// Adds the vector of a type to all positions of a sequence `[N, L, E]`. Models such as BERT have a type for each of two texts that
    /// follow each other; a sequence is one text here, of the first type. The vectors are the parameter `weight`, `[num_embeddings, E]`, as that of an
    /// `nn.Embedding`.
    pub struct TokenTypeEmbedding {
        /// How many types there are.
        #[option(default = 2, range = 1..=MAX_SIZE)]
        pub num_embeddings: usize,
    }

    /// One vector for each sequence: `[N, L, E]` becomes `[N, E]`. Where texts differ in length, positions after the end of a text do not count.
    pub struct SequencePool {
        /// The mean or the sum over the positions, the largest number of each feature, or the vector of the last or the first position.
        #[option(default = PoolMode::Mean)]
        pub mode: PoolMode,
    }

    /// A learned vector for each token, and one vector for all tokens of a sample: tokens `[N, L]` become `[N, embedding_dim]`. Where texts differ in length,
    /// positions after the end of a text do not count. `torch.nn.EmbeddingBag`, as `embedding` and `sequence_pool`.
    pub struct EmbeddingBag {
        /// How many tokens there are.
        #[option(range = 1..=MAX_SIZE, example = "10000")]
        pub num_embeddings: usize,
        /// Numbers of a vector.
        #[option(range = 1..=MAX_SIZE, example = "64")]
        pub embedding_dim: usize,
        /// The mean of the tokens' vectors, their sum, or the largest number of each feature.
        #[option(default = BagMode::Mean)]
        pub mode: BagMode,
    }

    /// Multiplies by a learned factor for each channel of images, else for each number of the last dimension. It is one parameter,
    /// `[C, 1, 1]` or `[E]`, which has the layer's name.
    pub struct LayerScale {
        /// What the factors start with.
        #[option(default = 1e-6)]
        pub init_value: f64,
    }

    /// Sets whole samples to zero at random in training, and scales the others up: the last layer of a `residual`.
    /// `torchvision.ops.StochasticDepth`.
    pub struct StochasticDepth {
        /// Probability of zero.
        #[option(range = 0.0..1.0, example = "0.1")]
        pub p: f64,
        /// Whether each sample has a draw of its own, or the batch has one.
        #[option(default = StochasticDepthMode::Row)]
        pub mode: StochasticDepthMode,
    }

    /// One half times the sigmoid of the other. `torch.nn.GLU`.
    pub struct Glu {
        /// The dimension that is halved, in PyTorch's order; negative numbers count from the end.
        #[option(default = -1, range = -8..=7)]
        pub dim: i64,
    }

    /// The SiLU of the first half times the second half (SwiGLU, Shazeer 2020), as Phi-3 of transformers halves its `gate_up_proj`.
    pub struct Swiglu {
        /// The dimension that is halved, in PyTorch's order; negative numbers count from the end.
        #[option(default = -1, range = -8..=7)]
        pub dim: i64,
    }

    /// The first half times the GELU of the second half (GEGLU, Shazeer 2020), as `GEGLU` of diffusers.
    pub struct Geglu {
        /// The dimension that is halved, in PyTorch's order; negative numbers count from the end.
        #[option(default = -1, range = -8..=7)]
        pub dim: i64,
    }

    /// `x` where positive, else a learned factor times `x`. `torch.nn.PReLU`.
    pub struct Prelu {
        /// Number of factors: 1, or as many as there are channels.
        #[option(default = 1, range = 1..=crate::config::declare::bounds::MAX_SIZE)]
        pub num_parameters: usize,
        /// What they start with.
        #[option(default = 0.25)]
        pub init: f64,
    }
}

impl Check for ClassToken {}

impl Check for PositionEmbedding {
    fn check(&self, part: &Part) {
        let learned = self.kind == PositionKind::Learned;
        let fits = learned || self.init_std.is_none();
        part.require("init_std", fits, "must be left out with `kind = \"sinusoidal\"`: nothing is learned");
    }
}

impl Check for TokenTypeEmbedding {}

impl Check for SequencePool {}

impl Check for EmbeddingBag {}

impl Check for LayerScale {}

impl Check for StochasticDepth {}

impl Check for Glu {}

impl Check for Swiglu {}

impl Check for Geglu {}

/// What gated linear units have in common: one half of a dimension is multiplied by a function of the other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gated {
    /// The layer's type.
    pub word: &'static str,
    /// The dimension that is halved.
    pub dim: i64,
    /// The half that goes through the function: 0 or 1.
    pub gate: usize,
    /// The function.
    pub act: Activation,
}

impl From<&Glu> for Gated {
    fn from(l: &Glu) -> Self {
        Gated { word: "glu", dim: l.dim, gate: 1, act: Activation::Sigmoid }
    }
}

impl From<&Swiglu> for Gated {
    fn from(l: &Swiglu) -> Self {
        Gated { word: "swiglu", dim: l.dim, gate: 0, act: Activation::Silu }
    }
}

impl From<&Geglu> for Gated {
    fn from(l: &Geglu) -> Self {
        Gated { word: "geglu", dim: l.dim, gate: 1, act: Activation::Gelu }
    }
}

impl Check for Prelu {}

values!(StochasticDepthMode, PositionKind, PoolMode, BagMode);

/// What becomes of the vectors of a sample's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BagMode {
    /// Their mean.
    Mean,
    /// Their sum.
    Sum,
    /// Their maximum.
    Max,
}

impl From<BagMode> for PoolMode {
    fn from(mode: BagMode) -> PoolMode {
        match mode {
            BagMode::Mean => PoolMode::Mean,
            BagMode::Sum => PoolMode::Sum,
            BagMode::Max => PoolMode::Max,
        }
    }
}

/// What becomes of the positions of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PoolMode {
    /// Their mean.
    Mean,
    /// Their sum.
    Sum,
    /// Their maximum.
    Max,
    /// The last one.
    Last,
    /// The first one.
    First,
}

/// Which numbers tell positions apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PositionKind {
    /// Parameters.
    Learned,
    /// Sines and cosines.
    Sinusoidal,
}

/// What has one draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StochasticDepthMode {
    /// Each sample.
    Row,
    /// The batch.
    Batch,
}
