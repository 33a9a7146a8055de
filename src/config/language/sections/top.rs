//! The keys that are in no section.

use super::heads::Head;
use super::model::file;
use crate::config::declare::options::{Check, options};
use crate::config::declare::value::Elsewhere;
use crate::config::language::devices::Devices;
use crate::config::language::values::{Device, Precision};

options! {
    /// The keys that are in no section.
    #[rules(Excludes("device", "devices", "both say where to run"))]
    pub struct TopKeys {
        /// Determines everything random: initial values, order of samples, augmentation, dropout and, unless `[data]` has a `seed`, the held-out split. It does not reproduce
        /// PyTorch's draws.
        #[option(default = 0)]
        pub seed: u64,
        /// Where to run: `"auto"`, `"cpu"`, `"cuda"`, `"cuda:1"`, … `"cuda"` is `"cuda:0"`; `"auto"` is that where it can be had,
        /// and else the CPU, with a message that says why. A GPU that is asked for and cannot be had ends with exit code 3.
        #[option(default = Device::Auto, resume = Harmless)]
        pub device: Device,
        /// Train on several GPUs, each of which is a rank: `"all"`, or their numbers, as `[0, 1]`. Without `distributed.shards` there are as many
        /// shards as GPUs. Other commands take the first of them.
        #[option(otherwise = "one device", example = "[0, 1]", resume = Harmless)]
        pub devices: Option<Devices>,
        /// How to compute.
        #[option(default = Precision::Fp32, resume = Differs)]
        pub precision: Precision,
        /// On a GPU: capture the step into a CUDA graph and replay it, which saves the CPU the launches. The numbers are the same
        /// without.
        #[option(default = true, resume = Harmless)]
        pub graph: bool,
        /// Further targets of a table that the same model learns beside the main one, each with an output, a loss and a weight of its own.
        #[option(default = Vec::new(), example = r#"[{ target = "sold", loss = "cross_entropy", weight = 0.5 }]"#)]
        pub heads: Vec<Head>,
    }

    /// The key that is gone when all files have been read.
    pub struct FileKeys {
        /// Another configuration that this one overrides, key by key; its path is taken from this file's folder.
        #[option(schema_by = file, example = r#""base.toml""#, resume = Harmless)]
        pub extends: Elsewhere,
    }
}

impl Check for TopKeys {}
