//! Attention.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::config::declare::bounds::{MAX_SIZE, above};
use crate::config::declare::options::{self, Check, options};
use crate::config::declare::part::Part;
use crate::config::declare::schema::Table;
use crate::config::declare::value::{Value, values};
use crate::config::language::values::Pair;
use crate::config::text::tree::Node;

/// The scores of a window are as many as the fourth power of its side.
const MAX_WINDOW: usize = 64;

options! {
    /// Attention of the positions of a sequence, `[N, L, E]`, with learned projections: to each other or, with `from = ["x", "memory"]`, to those of
    /// another sequence of as many features, whatever its length. `torch.nn.MultiheadAttention` with `batch_first=True`: queries are of the first
    /// input, keys and values of the last.
    pub struct MultiheadAttention {
        /// Number of heads; must divide the last dimension, which is `embed_dim`.
        #[option(range = 1..=MAX_SIZE, example = "4")]
        pub num_heads: usize,
        /// Number of heads of the keys and of the values, which neighbours share (Ainslie et al. 2023, *GQA*); divides `num_heads`. With fewer than those,
        /// queries, keys and values have weights of their own.
        #[option(otherwise = "`num_heads`", range = 1..=MAX_SIZE, example = "2")]
        pub num_kv_heads: Option<usize>,
        /// Learn biases of both projections.
        #[option(default = true)]
        pub bias: bool,
        /// Probability with which the weight of a position is left out in training.
        #[option(default = 0.0, range = 0.0..1.0)]
        pub dropout: f64,
        /// A position sees none after it. Not with two inputs.
        #[option(default = false)]
        pub is_causal: bool,
        /// Turn queries and keys by angles that grow with their positions, so that their products depend on distances (Su et al. 2021), halves of a head with
        /// each other, as Llama does. The angles of a head's first pair of numbers grow by 1 a position, those of the others by less, down to one part in
        /// about `rope_theta`. Without it, or `alibi`, attention knows no positions. Not with two inputs.
        #[option(range = above(1.0), example = "10000.0")]
        pub rope_theta: Option<f64>,
        /// Make the angles of `rope_theta` smaller, for longer texts than those that the model was trained on first.
        #[option(example = "{ rope_type = \"linear\", factor = 2.0 }")]
        pub rope_scaling: Option<RopeScaling>,
        /// A position sees those that are less than so many positions away, itself among them: with `is_causal` the last so many, as Mistral has it,
        /// else those of both sides, as Longformer (Beltagy et al. 2020). Not with two inputs.
        #[option(range = 1..=MAX_SIZE, example = "4096")]
        pub sliding_window: Option<usize>,
        /// Take from the score of two positions their distance times a slope, another one for each head (Press et al. 2022, *ALiBi*), so that what is near
        /// counts more. Of 8 heads the slopes are 1/2, 1/4, … 1/256; of other numbers as in transformers' BLOOM. Not with two inputs.
        #[option(default = false)]
        pub alibi: bool,
    }

    /// Attention of heads whose queries, keys and values come packed: `[N, L, (num_heads + 2 · num_kv_heads) · d]`, the queries of all heads, their keys, their
    /// values, becomes `[N, L, num_heads · d]`. Layers around it make them: a `linear`, or a `concat` of three. With two inputs the first has the queries,
    /// `[N, L, num_heads · d]`, and the second, whose length may be another one, the keys and values, `[N, S, 2 · num_kv_heads · d]`.
    /// `torch.nn.functional.scaled_dot_product_attention`.
    pub struct ScaledDotProductAttention {
        /// Number of heads of the queries.
        #[option(range = 1..=MAX_SIZE, example = "12")]
        pub num_heads: usize,
        /// Number of heads of the keys and of the values, which neighbours share (Ainslie et al. 2023, *GQA*); divides `num_heads`.
        #[option(otherwise = "`num_heads`", range = 1..=MAX_SIZE, example = "4")]
        pub num_kv_heads: Option<usize>,
        /// Probability with which the weight of a position is left out in training.
        #[option(default = 0.0, range = 0.0..1.0)]
        pub dropout: f64,
        /// A position sees none after it. Not with two inputs.
        #[option(default = false)]
        pub is_causal: bool,
        /// As of `multihead_attention`.
        #[option(range = above(1.0), example = "10000.0")]
        pub rope_theta: Option<f64>,
        /// As of `multihead_attention`.
        #[option(example = "{ rope_type = \"linear\", factor = 2.0 }")]
        pub rope_scaling: Option<RopeScaling>,
        /// As of `multihead_attention`.
        #[option(range = 1..=MAX_SIZE, example = "4096")]
        pub sliding_window: Option<usize>,
        /// As of `multihead_attention`.
        #[option(default = false)]
        pub alibi: bool,
    }

    /// How the angles of rotary positions are scaled: with transformers' names.
    pub struct RopeScaling {
        /// `"default"`: they are not. `"linear"`: all of them are divided by `factor` (Chen et al. 2023). `"llama3"`: those of pairs of numbers that turn less than
        /// `low_freq_factor` times within `original_max_position_embeddings` positions are divided by `factor`, those that turn more than `high_freq_factor`
        /// times stay as they are, and what lies between goes over from one to the other.
        #[option(example = r#""llama3""#)]
        pub rope_type: RopeType,
        /// What angles are divided by.
        #[option(otherwise = "needed but for `\"default\"`", range = 1.0..)]
        pub factor: Option<f64>,
        /// Of `"llama3"`.
        #[option(otherwise = "needed for `\"llama3\"`", range = above(0.0))]
        pub low_freq_factor: Option<f64>,
        /// Of `"llama3"`: more than `low_freq_factor`.
        #[option(otherwise = "needed for `\"llama3\"`", range = above(0.0))]
        pub high_freq_factor: Option<f64>,
        /// Of `"llama3"`: the positions of the texts that the model was trained on first.
        #[option(otherwise = "needed for `\"llama3\"`", range = 1..=MAX_SIZE)]
        pub original_max_position_embeddings: Option<usize>,
    }

    /// Self-attention within windows of images whose channels come last, `[N, H, W, C]`, with a learned bias for each distance of two
    /// pixels. Images are filled up with zeros to a whole number of windows. `ShiftedWindowAttention` of torchvision.models.swin_transformer.
    pub struct ShiftedWindowAttention {
        /// Side of the windows, or `[height, width]`.
        #[option(range = 1..=MAX_WINDOW, example = "7")]
        pub window_size: Pair,
        /// How far the windows are shifted, or `[height, width]`: half their side in every other layer, so that neighbouring windows meet. In a
        /// direction in which the image is no larger than a window they are not shifted.
        #[option(default = Pair([0, 0]), range = 0..=MAX_WINDOW)]
        pub shift_size: Pair,
        /// Number of heads; must divide the number of channels.
        #[option(range = 1..=MAX_SIZE, example = "4")]
        pub num_heads: usize,
        /// Learn a bias of the projection to queries, keys and values.
        #[option(default = true)]
        pub qkv_bias: bool,
        /// Learn a bias of the projection of the result.
        #[option(default = true)]
        pub proj_bias: bool,
        /// Probability with which the weight of a position is left out in training.
        #[option(default = 0.0, range = 0.0..1.0)]
        pub attention_dropout: f64,
        /// Probability with which a number of the result is set to zero in training.
        #[option(default = 0.0, range = 0.0..1.0)]
        pub dropout: f64,
    }

    /// Puts the channels of each 2 × 2 pixels of images whose channels come last, `[N, H, W, C]`, side by side: `[N, H/2, W/2, 4C]`, in the
    /// order upper left, lower left, upper right, lower right. Odd sides are filled up with zeros. What `PatchMerging` of
    /// torchvision.models.swin_transformer begins with.
    pub struct MergePatches {}
}

/// How angles are scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RopeType {
    /// Not at all.
    Default,
    /// By one factor.
    Linear,
    /// By how often pairs turn.
    Llama3,
}

values!(RopeType);

impl Value for RopeScaling {
    fn read(part: &Part, key: &str, node: &Node) -> Option<Self> {
        options::table(part, key, node, &format!("`{key}`"))
    }

    fn schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<Self>()
    }
}

impl JsonSchema for RopeScaling {
    fn schema_name() -> Cow<'static, str> {
        "RopeScaling".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Table::of::<Self>(generator).whole().try_into().unwrap_or_default()
    }
}

impl Check for RopeScaling {
    fn check(&self, part: &Part) {
        let scales = self.rope_type != RopeType::Default;
        part.require("factor", self.factor.is_some() == scales, "is for `\"linear\"` and `\"llama3\"`, which need it");
        let llama3 = self.rope_type == RopeType::Llama3;
        let what = "is for `rope_type = \"llama3\"`, which needs it";
        part.require("low_freq_factor", self.low_freq_factor.is_some() == llama3, what);
        part.require("high_freq_factor", self.high_freq_factor.is_some() == llama3, what);
        let positions = self.original_max_position_embeddings;
        part.require("original_max_position_embeddings", positions.is_some() == llama3, what);
        let ascending = self.low_freq_factor.zip(self.high_freq_factor).is_none_or(|(low, high)| low < high);
        part.require("high_freq_factor", ascending, "must be more than `low_freq_factor`");
    }
}

/// Reports a scaling of angles that there are not.
fn check_scaling(part: &Part, theta: Option<f64>, scaling: Option<&RopeScaling>) {
    let scales = scaling.is_some_and(|scaling| scaling.rope_type != RopeType::Default);
    part.require("rope_scaling", theta.is_some() || !scales, "needs `rope_theta`: without it nothing is turned");
}

/// Reports heads of keys that heads of queries cannot share.
fn check_groups(part: &Part, heads: usize, kv_heads: Option<usize>) {
    let divides = kv_heads.is_none_or(|kv_heads| heads.is_multiple_of(kv_heads));
    part.require("num_kv_heads", divides, "must divide `num_heads`");
}

impl Check for MultiheadAttention {
    fn check(&self, part: &Part) {
        check_scaling(part, self.rope_theta, self.rope_scaling.as_ref());
        check_groups(part, self.num_heads, self.num_kv_heads);
    }
}

impl Check for ScaledDotProductAttention {
    fn check(&self, part: &Part) {
        check_scaling(part, self.rope_theta, self.rope_scaling.as_ref());
        check_groups(part, self.num_heads, self.num_kv_heads);
    }
}

impl Check for ShiftedWindowAttention {
    fn check(&self, part: &Part) {
        let less = (0..2).all(|i| self.shift_size.0[i] < self.window_size.0[i]);
        part.require("shift_size", less, "must be less than `window_size`");
    }
}

impl Check for MergePatches {}
