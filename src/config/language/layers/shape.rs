//! Layers that reorder, cut, drop or pass on.

use crate::config::declare::bounds::MAX_SIZE;
use crate::config::declare::options::{Check, options};
use crate::config::declare::part::Part;
use crate::config::language::lists::{Integers, Sides};

/// Most dimensions of a value, that of the batch among them.
pub const MAX_RANK: usize = 8;

options! {
    /// Makes one dimension of several, in PyTorch's order (channel, row, column). `torch.nn.Flatten`.
    pub struct Flatten {
        /// First dimension to join. The batch dimension stays.
        #[option(default = 1, range = -8..=7)]
        pub start_dim: i64,
        /// Last dimension to join; negative numbers count from the end.
        #[option(default = -1, range = -8..=7)]
        pub end_dim: i64,
    }

    /// Makes several dimensions of one. `torch.nn.Unflatten`.
    pub struct Unflatten {
        /// The dimension, in PyTorch's order; negative numbers count from the end.
        #[option(default = 1, range = -8..=7)]
        pub dim: i64,
        /// What it becomes; one number may be -1, for what is left.
        #[option(range = -1..=1 << 24, length = 1..=7, example = "[2, -1]")]
        pub unflattened_size: Vec<i64>,
    }

    /// The same numbers, in PyTorch's order, under another shape. `torch.reshape`.
    pub struct Reshape {
        /// The shape of a sample, without the batch; one number may be -1, for what is left. Three numbers are an image, `[C, H, W]`.
        #[option(range = -1..=1 << 24, length = 1..=7, example = "[16, -1]")]
        pub shape: Vec<i64>,
    }

    /// The dimensions in another order. `torch.permute`.
    pub struct Permute {
        /// Which dimension comes where; that of the batch, 0, stays the first. `[0, 2, 3, 1]` puts channels last.
        #[option(range = 0..=7, length = 2..=8, example = "[0, 2, 1]")]
        pub dims: Vec<usize>,
    }

    /// Two dimensions change places. `torch.transpose`.
    pub struct Transpose {
        /// One dimension; negative numbers count from the end.
        #[option(range = -8..=7, example = "1")]
        pub dim0: i64,
        /// The other.
        #[option(range = -8..=7, example = "2")]
        pub dim1: i64,
    }

    /// One of the parts that a dimension is cut into; with `from`, another layer may take another part. `torch.chunk`.
    pub struct Chunk {
        /// Number of parts. If it does not divide the dimension, the last is smaller.
        #[option(range = 1..=MAX_SIZE, example = "2")]
        pub chunks: usize,
        /// Which part, from 0.
        #[option(range = 0..=MAX_SIZE, example = "0")]
        pub index: usize,
        /// The dimension, in PyTorch's order: 1 is an image's channels. Negative numbers count from the end.
        #[option(default = 1, range = -8..=7)]
        pub dim: i64,
    }

    /// A range of a dimension: `x[:, start:end]`.
    pub struct Slice {
        /// First index; negative numbers count from the end.
        #[option(default = 0)]
        pub start: i64,
        /// The index after the last; negative numbers count from the end.
        #[option(otherwise = "the end")]
        pub end: Option<i64>,
        /// The dimension, in PyTorch's order: 1 is an image's channels. Negative numbers count from the end.
        #[option(default = 1, range = -8..=7)]
        pub dim: i64,
    }

    /// What is at one index of a dimension, which is gone then. `torch.select`.
    pub struct Select {
        /// The dimension, in PyTorch's order: 1 is the positions of a sequence `[N, L, E]`. Negative numbers count from the end.
        #[option(default = 1, range = -8..=7)]
        pub dim: i64,
        /// The index; negative numbers count from the end.
        #[option(example = "0")]
        pub index: i64,
    }

    /// The mean over one dimension or several. `torch.mean`.
    pub struct Mean {
        /// The dimensions, in PyTorch's order; negative numbers count from the end.
        #[option(range = -8..=7, example = "1")]
        pub dim: Integers,
        /// Keep them, with length 1.
        #[option(default = false)]
        pub keepdim: bool,
    }

    /// The sum over one dimension or several. `torch.sum`.
    pub struct Sum {
        /// The dimensions, in PyTorch's order; negative numbers count from the end.
        #[option(range = -8..=7, example = "1")]
        pub dim: Integers,
        /// Keep them, with length 1.
        #[option(default = false)]
        pub keepdim: bool,
    }

    /// Moves elements along dimensions; those that leave at one end come in at the other. `torch.roll`.
    pub struct Roll {
        /// By how many places.
        #[option(example = "1")]
        pub shifts: Integers,
        /// Along which dimension, in PyTorch's order; as many as `shifts` has.
        #[option(range = -8..=7, example = "2")]
        pub dims: Integers,
    }

    /// Channels of each group one after the other: the first of all groups, the second, … `torch.nn.ChannelShuffle`.
    pub struct ChannelShuffle {
        /// Number of groups; must divide the number of channels.
        #[option(range = 1..=MAX_SIZE, example = "2")]
        pub groups: usize,
    }

    /// Makes images larger: `[N, C·r², H, W]` becomes `[N, C, H·r, W·r]`. `torch.nn.PixelShuffle`.
    pub struct PixelShuffle {
        /// How many times as large a side becomes, r.
        #[option(range = 1..=1024, example = "2")]
        pub upscale_factor: usize,
    }

    /// The reverse: `[N, C, H·r, W·r]` becomes `[N, C·r², H, W]`. `torch.nn.PixelUnshuffle`.
    pub struct PixelUnshuffle {
        /// How many times as small a side becomes, r; must divide both sides.
        #[option(range = 1..=1024, example = "2")]
        pub downscale_factor: usize,
    }

    /// Zeros around images. `torch.nn.ZeroPad2d`.
    pub struct ZeroPad2d {
        /// Pixels on each side, or `[left, right, top, bottom]`.
        #[option(range = 0..=MAX_SIZE, example = "1")]
        pub padding: Sides,
    }

    /// Images go on beyond their sides as in a mirror that stands on the last pixel. `torch.nn.ReflectionPad2d`.
    pub struct ReflectionPad2d {
        /// Pixels on each side, or `[left, right, top, bottom]`; less than the image has.
        #[option(range = 0..=64, example = "1")]
        pub padding: Sides,
    }

    /// Images go on beyond their sides with their last pixel. `torch.nn.ReplicationPad2d`.
    pub struct ReplicationPad2d {
        /// Pixels on each side, or `[left, right, top, bottom]`.
        #[option(range = 0..=64, example = "1")]
        pub padding: Sides,
    }

    /// Sets elements to zero at random in training, and scales the others up. `torch.nn.Dropout`.
    pub struct Dropout {
        /// Probability of zero.
        #[option(default = 0.5, range = 0.0..1.0)]
        pub p: f64,
    }

    /// Passes its input on; useful to give a place a name. `torch.nn.Identity`.
    pub struct Identity {}
}

impl Check for Flatten {}

impl Check for Unflatten {
    fn check(&self, part: &Part) {
        sizes_fit(part, "unflattened_size", &self.unflattened_size);
    }
}

impl Check for Reshape {
    fn check(&self, part: &Part) {
        sizes_fit(part, "shape", &self.shape);
    }
}

impl Check for Permute {
    fn check(&self, part: &Part) {
        let mut sorted = self.dims.clone();
        sorted.sort_unstable();
        let all = sorted.iter().copied().eq(0..self.dims.len());
        part.require("dims", all, &format!("must have each number from 0 to {} once", self.dims.len().max(1) - 1));
        part.require("dims", !all || self.dims[0] == 0, "must begin with 0: the batch stays the first dimension");
    }
}

impl Check for Transpose {}

impl Check for Chunk {
    fn check(&self, part: &Part) {
        part.require("index", self.index < self.chunks, &format!("must be below `chunks`, which is {}", self.chunks));
    }
}

impl Check for Slice {}

impl Check for Select {}

impl Check for Mean {}

impl Check for Sum {}

impl Check for Roll {
    fn check(&self, part: &Part) {
        let (shifts, dims) = (self.shifts.0.len(), self.dims.0.len());
        part.require("dims", shifts == dims, &format!("must be as many as `shifts`, {shifts}"));
    }
}

impl Check for ChannelShuffle {}

impl Check for PixelShuffle {}

impl Check for PixelUnshuffle {}

impl Check for ZeroPad2d {}

impl Check for ReflectionPad2d {}

impl Check for ReplicationPad2d {}

impl Check for Dropout {}

impl Check for Identity {}

/// Sizes of which one at most is to be found.
fn sizes_fit(part: &Part, key: &str, sizes: &[i64]) {
    part.require(key, !sizes.contains(&0), "must be at least 1, or -1 for what is left");
    part.require(key, sizes.iter().filter(|size| **size == -1).count() <= 1, "may have one -1 only");
}
