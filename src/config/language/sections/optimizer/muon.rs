//! `type = "muon"`: a rule for matrices, and AdamW for the rest.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::config::declare::bounds::above;
use crate::config::declare::options::{self, Check, options};
use crate::config::declare::part::Part;
use crate::config::declare::schema::Table;
use crate::config::declare::value::{Value, values};
use crate::config::language::pattern::Pattern;
use crate::config::text::tree::Node;
use crate::graph::op::{Algorithm, StepLength};

options! {
    /// Momentum whose steps are made nearly orthogonal, for matrices and convolutions; AdamW for all other parameters, embeddings and
    /// the last layer (Jordan 2024). `torch.optim.Muon`, but in single precision throughout.
    pub struct Muon {
        /// Learning rate.
        #[option(default = 1e-3, range = above(0.0), resume = Differs)]
        pub lr: f64,
        /// Share of a parameter, times the learning rate, that each step takes away.
        #[option(default = 0.1, range = 0.0.., resume = Differs)]
        pub weight_decay: f64,
        /// Share of the running mean of gradients that is kept.
        #[option(default = 0.95, range = 0.0..1.0, resume = Differs)]
        pub momentum: f64,
        /// Nesterov's momentum.
        #[option(default = true, resume = Differs)]
        pub nesterov: bool,
        /// `a`, `b` and `c` of the Newton–Schulz iteration `X ← (a · I + b · XXᵀ + c · (XXᵀ)²) · X`.
        #[option(default = [3.4445, -4.775, 2.0315], resume = Differs)]
        pub ns_coefficients: [f64; 3],
        /// Iterations.
        #[option(default = 5, range = 1..=99, resume = Differs)]
        pub ns_steps: usize,
        /// Least norm that a matrix is divided by before the first of them.
        #[option(default = 1e-7, range = above(0.0), resume = Differs)]
        pub eps: f64,
        /// How long steps are in proportion to the learning rate, for a matrix of so many rows and columns: `"original"`, √max(1, rows / columns);
        /// `"match_rms_adamw"`, 0.2 · √max(rows, columns), with which a learning rate and a weight decay that are right for AdamW are;
        /// `"spectral_unclamped"`, √(rows / columns).
        #[option(default = AdjustLr::Original, resume = Differs)]
        pub adjust_lr_fn: AdjustLr,
        /// What AdamW updates, and how.
        #[option(otherwise = "all of its defaults", example = "{ lr = 3e-4, match = [\"head.*\"] }")]
        pub adamw: Option<MuonAdamW>,
    }

    /// AdamW beside Muon.
    pub struct MuonAdamW {
        /// Names of matrices and convolutions that AdamW updates, `*` standing for any characters, or of layers. Vectors it updates in any
        /// case.
        #[option(otherwise = "embeddings and the last layer", example = r#"["head.*"]"#)]
        pub patterns as "match": Option<Vec<Pattern>>,
        /// Learning rate.
        #[option(otherwise = "the section's", range = above(0.0))]
        pub lr: Option<f64>,
        /// Decay of the running means of gradient and squared gradient.
        #[option(default = [0.9, 0.999], range = 0.0..1.0)]
        pub betas: [f64; 2],
        /// Added to the denominator.
        #[option(default = 1e-8, range = 0.0..)]
        pub eps: f64,
        /// Share of a parameter, times the learning rate, that each step takes away.
        #[option(otherwise = "the section's", range = 0.0..)]
        pub weight_decay: Option<f64>,
    }
}

impl Check for Muon {}

impl Check for MuonAdamW {}

impl Muon {
    /// The engine's rule of what Muon leaves.
    pub(super) fn describe_rest(&self) -> Algorithm {
        let (betas, eps) = self.adamw.as_ref().map_or(([0.9, 0.999], 1e-8), |adamw| (adamw.betas, adamw.eps));
        Algorithm::Adam { beta1: betas[0], beta2: betas[1], eps: eps as f32, decoupled: true, amsgrad: false }
    }

    /// Learning rate and weight decay of what AdamW updates.
    pub fn rest(&self) -> [f64; 2] {
        let adamw = self.adamw.as_ref();
        let lr = adamw.and_then(|adamw| adamw.lr).unwrap_or(self.lr);
        [lr, adamw.and_then(|adamw| adamw.weight_decay).unwrap_or(self.weight_decay)]
    }
}

values!(AdjustLr);

/// How long a step is in proportion to the learning rate. PyTorch's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdjustLr {
    /// √max(1, rows / columns).
    Original,
    /// 0.2 · √max(rows, columns).
    MatchRmsAdamw,
    /// √(rows / columns).
    SpectralUnclamped,
}

impl AdjustLr {
    /// The engine's.
    pub fn describe(self) -> StepLength {
        match self {
            Self::Original => StepLength::Original,
            Self::MatchRmsAdamw => StepLength::MatchRmsAdamw,
            Self::SpectralUnclamped => StepLength::SpectralUnclamped,
        }
    }
}

impl Value for MuonAdamW {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        options::table(part, key, node, &format!("`{key}`"))
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Self>()
    }
}

impl JsonSchema for MuonAdamW {
    fn schema_name() -> Cow<'static, str> {
        "MuonAdamW".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Table::of::<Self>(generator).whole().try_into().unwrap_or_default()
    }
}
