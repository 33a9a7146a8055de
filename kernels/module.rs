//! The list of modules: one for each source file.

macro_rules! modules {
    ($($(#[doc = $doc:literal])* $module:ident $file:literal,)*) => {
        /// The source files `cuda/*.cu`, each a module that is loaded when a program first needs it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Module {
            $($(#[doc = $doc])* $module,)*
        }

        impl Module {
            /// All modules.
            pub const ALL: [Module; [$($file),*].len()] = [$(Module::$module),*];

            /// Name of its file in `cuda/`, without `.cu`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Module::$module => $file,)*
                }
            }

            /// Its packed PTX: that for compute capability 8.0 and up, then that for 7.5.
            pub(crate) fn packed_ptx(self) -> &'static [u8] {
                match self {
                    $(Module::$module => include_bytes!(concat!("packed/ptx/", $file, ".ptx.xz")),)*
                }
            }

            /// Its packed machine code for family number `family` of [`crate::cubin::FAMILIES`]. A file has the name of its
            /// family's first architecture.
            pub(crate) fn packed_cubin(self, family: usize) -> &'static [u8] {
                match (self, family) {
                    $(
                        (Module::$module, 0) => include_bytes!(concat!("packed/cubin/", $file, ".sm_80.xz")),
                        (Module::$module, 1) => include_bytes!(concat!("packed/cubin/", $file, ".sm_90.xz")),
                        (Module::$module, _) => include_bytes!(concat!("packed/cubin/", $file, ".sm_100.xz")),
                    )*
                }
            }
        }
    };
}

modules! {
    /// Activations, binary operations, sums over stretched axes, casts.
    Elementwise "elementwise",
    /// Element-wise operations one behind the other.
    Chain "chain",
    /// Bytes or floats to normalised floats.
    Normalize "normalize",
    /// Dropout.
    Dropout "dropout",
    /// Permute, concat, slice.
    Shape "shape",
    /// Maximum and mean over windows.
    Pool "pool",
    /// Images of another size.
    Resize "resize",
    /// Batch normalisation.
    BatchNorm "batch_norm",
    /// Group normalisation, and normalisation over neighbouring channels.
    GroupNorm "group_norm",
    /// Layer normalisation.
    LayerNorm "layer_norm",
    /// Softmax over the last axis.
    Softmax "softmax",
    /// Scaled dot-product attention.
    Attention "attention",
    /// The same between two sequences, within windows and with slopes.
    AttentionFar "attention_far",
    /// Attention to kept positions.
    CachedAttention "cached_attention",
    /// Rotary positions.
    Rotary "rotary",
    /// Rows of a table.
    Embedding "embedding",
    /// Recurrent layers.
    Recurrent "recurrent",
    /// Losses.
    Loss "loss",
    /// Running sums of metrics.
    Metrics "metrics",
    /// Gradient norm, sums of gradients, optimizers.
    Optim "optim",
    /// Optimizers that look at whole tensors.
    OptimNorms "optim_norms",
    /// Adafactor, AdamW without a schedule, clipping by the norms of units.
    OptimUnits "optim_units",
    /// Sums over the shards of a step.
    Shards "shards",
    /// Matrix products.
    Matmul "matmul",
    /// Convolutions.
    Conv "conv",
    /// Depthwise convolutions.
    Depthwise "depthwise",
    /// What the executable itself launches.
    Runtime "runtime",
}
