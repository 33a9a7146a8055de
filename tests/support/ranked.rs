//! What several ranks train, for the test programs that start them.

use super::support::{Place, digits};
use runner::checkpoint::{Tensor, write_weights};

/// After which a rank counts as gone that gives no sign of life.
pub const SILENCE: (&str, &str) = ("RUNNER_RANK_TIMEOUT", "4");

/// A model of convolutions with batch norm and dropout, its data augmented and mixed, its gradients clipped; a last batch that is smaller, and of
/// fewer shards. Evaluation has figures of every kind.
pub fn config(train: &str, more: &str) -> String {
    let layers = r#"[model]
layers = [
  { type = "conv2d", out_channels = 6, kernel_size = 3, padding = 1 }, "batch_norm2d", "relu",
  { type = "max_pool2d", kernel_size = 2 },
  "flatten", { type = "dropout", p = 0.2 }, { type = "linear", out_features = 24 }, "batch_norm1d", { type = "linear", out_features = 10 },
]"#;
    let data = "train_transforms = [{ type = \"random_crop\", size = 8, padding = 1 }, { type = \"mixup\", alpha = 0.4, p = 0.8 }]\n\
                transforms = [{ type = \"normalize\", mean = [0.5], std = [0.5] }]\neval_batch_size = 7";
    digits(
        data,
        &format!(
            "{layers}\n[optimizer]\ntype = \"adamw\"\nlr = 3e-3\nema = {{ decay = 0.9 }}\n[schedule]\ntype = \"cosine\"\n[train]\n{train}\n\
             clip_grad_norm = 1.0\n[metrics]\nfigures = [\"auroc\", \"macro_f1\"]\n[distributed]\nshards = 12\n[log]\nevery_steps = 1\n{more}"
        ),
    )
    .replace("batch_size = 32", "batch_size = 48")
    .replace("limit = 320", "limit = 302")
}

/// The tensors that [`TENSORS`] trains on, of which one number is changed by as much.
pub fn tensors(place: &Place, changed: f32) {
    let mut inputs: Vec<f32> = (0..36).map(|i| i as f32 * 0.01).collect();
    inputs[20] += changed;
    let (x, y) = (Tensor::from_f32([12, 3], &inputs), Tensor::from_f32([12, 1], &[0.5; 12]));
    write_weights(&place.path("t.safetensors"), &[x.view("inputs"), y.view("targets")]).unwrap();
}

/// Small, of four shards.
pub const TENSORS: &str = "seed = 1\ndevice = \"cpu\"\n[data]\nsource = \"tensors\"\npath = \"/proc/self/cwd/t.safetensors\"\nbatch_size = 4\n\
    [model]\nlayers = [{ type = \"linear\", out_features = 1 }]\n[loss]\ntype = \"mse\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.01\n\
    [train]\nepochs = 2\n[distributed]\nshards = 4\n";
