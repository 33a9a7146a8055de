//! Layers for the columns of tables, and several models in one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::declare::bounds::{MAX_SIZE, above};
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;
use crate::config::declare::value::values;

options! {
    /// A vector for each number column of a table (`source = "csv"`). The numbers are cut into bins at quantiles of the training rows, and of each bin it is said
    /// how much of it lies below the number: `linear` of that plus `linear0` of the number itself, each column with weights of its own.
    /// Other columns of the rows (categories, booleans, dates) stand after these vectors unchanged. It is the first layer of a model.
    /// `rtdl_num_embeddings.PiecewiseLinearEmbeddings`, version B (Gorishniy et al. 2022, "On Embeddings for Numerical Features in
    /// Tabular Deep Learning").
    pub struct PiecewiseLinearEmbedding {
        /// Bins of each column, at most: where many numbers are the same, some are left out.
        #[option(default = 48, range = 2..=1000)]
        pub bins: usize,
        /// Numbers of the vector of a column.
        #[option(default = 16, range = 1..=MAX_SIZE)]
        pub embedding_dim: usize,
    }

    /// A vector for each number column of a table: sines and cosines of multiples of the number, which are learnt, through a `linear` and a ReLU.
    /// Else as `piecewise_linear_embedding`. `rtdl_num_embeddings.PeriodicEmbeddings` (Gorishniy et al. 2022; "PLR" there, and with `lite`
    /// "PLR(lite)").
    pub struct PeriodicEmbedding {
        /// Numbers of the vector of a column.
        #[option(default = 24, range = 1..=MAX_SIZE)]
        pub embedding_dim: usize,
        /// Sines of each column, and cosines.
        #[option(default = 48, range = 1..=65536)]
        pub n_frequencies: usize,
        /// The standard deviation that frequencies are drawn with, in turns for a standard deviation of the column. It matters: values from
        /// 0.01 to 1 are worth trying.
        #[option(default = 0.01, range = above(0.0))]
        pub frequency_init_scale: f64,
        /// Whether there is a ReLU after the `linear`.
        #[option(default = true)]
        pub activation: bool,
        /// One `linear` for all columns; else each has its own.
        #[option(default = false)]
        pub lite: bool,
    }

    /// The columns of a table as a sequence of vectors, `[N, F]` to `[N, tokens, embedding_dim]`: first one for each number, a weight times the number and
    /// a bias, then one for each category, its text's own and a bias. Booleans, the parts of dates and of `scaling = "piecewise_linear"`, and
    /// what says that a cell is missing are numbers; of a category a missing cell is one more text. The words of a text are one token: the sum of their vectors. It is the first layer of a model. `LinearEmbeddings` and
    /// `CategoricalEmbeddings` of `rtdl_revisiting_models` (Gorishniy et al. 2021, "Revisiting Deep Learning Models for Tabular Data", section 3.3).
    pub struct FeatureTokenizer {
        /// Numbers of each vector.
        #[option(default = 192, range = 1..=MAX_SIZE)]
        pub embedding_dim: usize,
    }

    /// The columns of a table as one vector, `[N, F]` to `[N, numbers + vectors]`: numbers as they are encoded, then a learned vector for each category, of as many
    /// numbers as `embedding` of the column says. Booleans, the parts of dates and of `scaling = "piecewise_linear"`, and what says that a cell is missing are numbers; of a
    /// category a missing cell is one more text. The words of a text have one vector, the sum of theirs. It is the first layer of a model. A vector without `embedding` has
    /// `1.6 · n^0.56` numbers for n texts, at most 600: `emb_sz_rule` of fastai (Howard and Gugger 2020, "fastai: A Layered API for Deep Learning").
    pub struct TabularInput {}

    /// The dot products of the vectors of a sequence with one another, `[N, L, D]` to `[N, L (L − 1) / 2]`: of the second with the first, then of the third with
    /// the first and the second, and so on. `interact_features` of the DLRM (Naumov et al. 2019, "Deep Learning Recommendation Model for Personalization and
    /// Recommendation Systems").
    pub struct DotInteraction {}

    /// Several models in one, which share the layers after this one: each member has factors of its own for what comes in. `[N, F]` becomes
    /// `[N, members, F]`; what has members already keeps them. `tabm.EnsembleView` and `tabm.ElementwiseAffine` (Gorishniy et al. 2024, "TabM").
    pub struct EnsembleAffine {
        /// How many there are.
        #[option(default = 32, range = 1..=4096)]
        pub members: usize,
        /// What the factors start with.
        #[option(default = MemberInit::Normal)]
        pub init: MemberInit,
        /// Whether each member has numbers that are added, too.
        #[option(default = false)]
        pub bias: bool,
    }

    /// A `linear` of its own for each member, on `[N, members, in_features]`. `tabm.LinearEnsemble`.
    pub struct EnsembleLinear {
        /// Numbers that each member puts out.
        #[option(range = 1..=MAX_SIZE, example = "1")]
        pub out_features: usize,
        /// Whether each has a bias.
        #[option(default = true)]
        pub bias: bool,
    }

    /// The end of a model of several members: in training each has a loss of its own, and theirs is the mean of them. Else what the
    /// model says is the mean of what members predict: of probabilities for `cross_entropy`, `bce_with_logits` and their relatives, of each step's for `ordinal`, of numbers for all
    /// other losses.
    pub struct EnsembleMean {}
}

values!(MemberInit);

/// What the factors of members start with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemberInit {
    /// Draws of the standard normal distribution.
    Normal,
    /// 1 or −1.
    RandomSigns,
    /// 1.
    Ones,
}

impl Check for PiecewiseLinearEmbedding {}

impl Check for PeriodicEmbedding {
    fn check(&self, part: &Part) {
        part.require("lite", self.activation || !self.lite, "needs the ReLU: leave `activation` out");
    }
}

impl Check for FeatureTokenizer {}

impl Check for TabularInput {}

impl Check for DotInteraction {}

impl Check for EnsembleAffine {}

impl Check for EnsembleLinear {}

impl Check for EnsembleMean {}
