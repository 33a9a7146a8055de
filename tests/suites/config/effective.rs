//! The effective configuration repeats the run.

use std::path::Path;

use runner::config::{self, Loaded};

use super::examples::load;

/// Loads again what is printed, and compares what runs.
fn repeats(loaded: &Loaded) -> String {
    let text = config::to_toml(loaded);
    let again =
        config::load_str(&loaded.experiment.name, &text, &[]).unwrap_or_else(|failure| panic!("{failure}\n{text}"));
    let json = |loaded: &Loaded| serde_json::to_value(&loaded.experiment).expect("plain data");
    assert_eq!(json(loaded), json(&again), "{text}");
    assert_eq!(config::to_toml(&again), text);
    // Comments change nothing.
    let commented = config::print_with_origins(loaded);
    let commented = config::load_str("commented", &commented, &[]).unwrap_or_else(|f| panic!("{f}\n{commented}"));
    assert_eq!(json(loaded), json(&commented));
    text
}

#[test]
fn every_config_repeats() {
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("configs")).expect("there") {
        let name = entry.expect("readable").file_name();
        repeats(&load(&format!("configs/{}", name.to_string_lossy())));
    }
}

pub const KITCHEN_SINK: &str = r#"
seed = 7
device = "cuda:1"
precision = "bf16"
[data]
source = "synthetic"
shape = [3, 16, 16]
classes = 5
samples = 100
batch_size = 10
eval_batch_size = 20
validation_split = 0.1
limit = 50
train_transforms = [{ type = "random_crop", size = [16, 16], padding = 2 }, "random_horizontal_flip", { type = "color_jitter", hue = 0.1 }]
val_transforms = [{ type = "resize", size = [16, 16] }, { type = "center_crop", size = 16 }]
transforms = [{ type = "resize", size = 16 }, { type = "normalize", mean = "imagenet", std = [0.2] }]
[params]
width = 8
act = "relu"
[blocks.double]
params = { planes = 1, wide = "$planes * 2 + ($width - 8) / 2" }
layers = [
  { name = "conv_{i}", type = "conv2d", out_channels = "$wide", kernel_size = ["3", 3], padding = "same" },
  "$act",
]
[model]
weights_strict = true
weights = "start.safetensors"
freeze = ["stem.*"]
inputs = ["inputs"]
layers = [
  { name = "stem", type = "conv2d", out_channels = "$width", kernel_size = [3, 5], padding = [1, 2] },
  { name = "body", layers = [
    { name = "step_{i}", block = "double", repeat = 2, with = { planes = "$width / 2" } },
    { block = "double", repeat = 2, with = { planes = 4 }, first = { planes = 4 } },
    { name = "inner", type = "batch_norm2d", momentum = "cumulative" },
  ] },
  { type = "residual", layers = [{ name = "a", type = "conv2d", out_channels = 8, kernel_size = 1 }], projection = "identity" },
  { type = "residual", name = "r", shortcut = "if_same_shape", layers = ["relu"] },
  { type = "residual", name = "p", layers = ["relu"], projection = [{ type = "conv2d", kernel_size = 1, groups = "in_channels" }] },
  { type = "gate", layers = [{ type = "adaptive_avg_pool2d", output_size = 1 }, "sigmoid"] },
  { type = "branches", combine = "concat", branches = [
    { layers = ["identity"] },
    [{ type = "max_pool2d", kernel_size = 3, stride = 1, padding = 1 }],
    { name = "third", type = "conv2d", out_channels = 8, kernel_size = 1 },
    "relu",
  ] },
  { type = "concat", from = ["stem", "body.inner", "r"] },
  { type = "gelu", approximate = "tanh", from = "stem" },
  "flatten",
  { type = "linear", out_features = 5 },
]
[loss]
type = "cross_entropy"
[optimizer]
type = "adamw"
betas = [0.8, 0.9]
eps = 1e-12
groups = [{ match = ["*.bias", "*bn*"], weight_decay = 0 }, { match = ["body.*"], lr = 1e-4 }]
layer_decay = 0.8
no_decay = ["norm", "bias"]
ema = { decay = 0.99 }
[schedule]
type = "step"
milestones = [2, 4]
warmup_steps = 10
warmup_start_factor = 0.01
[train]
epochs = 5
clip_grad_norm = 1
early_stopping = { monitor = "val_accuracy", min_delta = 0.01 }
[checkpoint]
every_steps = 100
[metrics]
figures = ["top5_accuracy", "mean_iou"]
[sweep]
method = "random"
trials = 3
monitor = "val_loss"
stop = "median"
parameters = { "optimizer.lr" = { log = [1e-4, 1e-1] }, "params.width" = [8, 16] }
"#;

#[test]
fn everything_that_can_be_written_repeats() {
    let text = KITCHEN_SINK.replace("[\"3\", 3]", "[\"$width - 5\", 3]");
    let loaded = config::load_str("sink", &text, &[]).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let here = std::env::current_dir().expect("a folder").display().to_string();
    insta::assert_snapshot!(repeats(&loaded).replace(&here, "DIR"));
}

#[test]
fn origins_are_shown() {
    let sets = ["train.epochs=2".to_owned(), "model.layers.0.out_features = 3".to_owned()];
    let text = "[data]\nsource = \"synthetic\"\nshape = [4]\nclasses = 3\n[model]\nlayers = [{ type = \"linear\", out_features = 1 }]\n\
                [loss]\ntype = \"cross_entropy\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n";
    let loaded = config::load_str("small.toml", text, &sets).unwrap_or_else(|failure| panic!("{failure}"));
    insta::assert_snapshot!(config::print_with_origins(&loaded));
}
