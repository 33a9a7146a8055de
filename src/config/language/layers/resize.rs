//! Images of another size.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::declare::bounds::{MAX_SIZE, above};
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;
use crate::config::declare::value::values;
use crate::config::language::lists::Factors;
use crate::config::language::values::Pair;

options! {
    /// Makes images larger, or smaller, without weights. `torch.nn.Upsample`.
    #[rules(Excludes("size", "scale_factor", "the size is given twice"), OneOf("size", "scale_factor"))]
    pub struct Upsample {
        /// Side of the output, or `[height, width]`.
        #[option(range = 1..=MAX_SIZE, otherwise = "`scale_factor` says it")]
        pub size: Option<Pair>,
        /// How many times as large a side becomes, or `[height, width]`; the size is rounded down.
        #[option(range = above(0.0).to(1024.0), otherwise = "`size` says it", example = "2")]
        pub scale_factor: Option<Factors>,
        /// What a pixel is made of: the nearest one, or the four around it.
        #[option(default = UpsampleMode::Nearest)]
        pub mode: UpsampleMode,
        /// The centres of the corners' pixels stay where they are, instead of the corners of the image; only with `"bilinear"`.
        #[option(default = false)]
        pub align_corners: bool,
    }
}

impl Check for Upsample {
    fn check(&self, part: &Part) {
        let fits = !self.align_corners || self.mode == UpsampleMode::Bilinear;
        part.require("align_corners", fits, "must be false with `mode = \"nearest\"`");
    }
}

values!(UpsampleMode);

/// What a pixel is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpsampleMode {
    /// The nearest one.
    Nearest,
    /// The four around it, the nearer ones with more weight.
    Bilinear,
}
