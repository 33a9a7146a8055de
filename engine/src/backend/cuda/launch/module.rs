//! The modules that kernels are in: one for each source file.

/// The source files in `kernels/`, each a module that is loaded when a program first needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Module {
    /// Activations, binary operations, sums over stretched axes, casts.
    ElementwiseLoss,
    /// Element-wise operations one behind the other.
    Chain,
    /// Bytes or floats to normalised floats.
    Normalize,
    /// Dropout.
    Dropout,
    /// Permute, concat, slice.
    Shape,
    /// Maximum and mean over windows.
    Pool,
    /// Images of another size.
    Resize,
    /// Batch normalisation.
    BatchNorm,
    /// Group normalisation, and normalisation over neighbouring channels.
    GroupNorm,
    /// Layer normalisation.
    LayerNorm,
    /// Softmax over the last axis.
    Softmax,
    /// Scaled dot-product attention.
    Attention,
    /// Losses.
    Loss,
    /// Running sums of metrics.
    Metrics,
    /// Gradient norm, sums of gradients, optimizers.
    Optim,
    /// Optimizers that look at whole tensors.
    OptimNorms,
    /// Adafactor, AdamW without a schedule, clipping by the norms of units.
    OptimUnits,
    /// Sums over the shards of a step.
    Shards,
    /// Matrix products.
    Matmul,
    /// Convolutions.
    Conv,
    /// What the executable itself launches.
    Runtime,
}

impl Module {
    /// All modules.
    pub const ALL: [Module; 21] = [
        Module::ElementwiseLoss,
        Module::Chain,
        Module::Normalize,
        Module::Dropout,
        Module::Shape,
        Module::Pool,
        Module::Resize,
        Module::BatchNorm,
        Module::GroupNorm,
        Module::LayerNorm,
        Module::Softmax,
        Module::Attention,
        Module::Loss,
        Module::Metrics,
        Module::Optim,
        Module::OptimNorms,
        Module::OptimUnits,
        Module::Shards,
        Module::Matmul,
        Module::Conv,
        Module::Runtime,
    ];

    /// Name of its file in `kernels/`, without `.cu`.
    pub fn name(self) -> &'static str {
        match self {
            Module::ElementwiseLoss => "elementwise",
            Module::Chain => "chain",
            Module::Normalize => "normalize",
            Module::Dropout => "dropout",
            Module::Shape => "shape",
            Module::Pool => "pool",
            Module::Resize => "resize",
            Module::BatchNorm => "batch_norm",
            Module::GroupNorm => "group_norm",
            Module::LayerNorm => "layer_norm",
            Module::Softmax => "softmax",
            Module::Attention => "attention",
            Module::Loss => "loss",
            Module::Metrics => "metrics",
            Module::Optim => "optim",
            Module::OptimNorms => "optim_norms",
            Module::OptimUnits => "optim_units",
            Module::Shards => "shards",
            Module::Matmul => "matmul",
            Module::Conv => "conv",
            Module::Runtime => "runtime",
        }
    }
}
