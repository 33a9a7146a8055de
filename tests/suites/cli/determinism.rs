//! The same bits for any number of loader workers and compute threads.

use super::support::{LAYERS, Place, assert_same_runs, digits};

/// Everything random that there is: shuffling, augmentation, dropout; and a last batch that is smaller.
fn config(layers: &str) -> String {
    let data = "train_transforms = [{ type = \"random_crop\", size = 8, padding = 1 }, \"random_horizontal_flip\", \"rand_augment\", \
                { type = \"mixup\", alpha = 0.4, p = 0.8 }, \"cutmix\"]\n\
                transforms = [{ type = \"normalize\", mean = [0.5], std = [0.5] }]";
    digits(
        &format!("validation_split = 0.2\n{data}"),
        &format!(
            "{layers}\n[optimizer]\ntype = \"adamw\"\nlr = 3e-3\n[schedule]\ntype = \"cosine\"\nwarmup_epochs = 1\n\
             [train]\nepochs = 2\nclip_grad_norm = 1.0\n[log]\nevery_steps = 1\n"
        ),
    )
    .replace("limit = 320", "limit = 300")
}

const CONVOLUTIONS: &str = r#"
[model]
layers = [
  { type = "conv2d", out_channels = 6, kernel_size = 3, padding = 1 }, "batch_norm2d", "relu",
  { type = "max_pool2d", kernel_size = 2 },
  { type = "conv2d", out_channels = 6, kernel_size = 3, padding = 1, groups = 6 }, "relu",
  "flatten", { type = "dropout", p = 0.2 }, { type = "linear", out_features = 10 },
]
"#;

fn same_for_all(layers: &str) {
    let place = Place::with(&config(layers));
    place.ok("train c.toml --quiet --out first --threads 1 --set data.workers=1");
    let (workers, threads) = ([0, 1, 2, 7, 2], [2, 1, 5, 2, 1]);
    for (i, (w, t)) in workers.into_iter().zip(threads).enumerate() {
        place.ok(&format!("train c.toml --quiet --out r{i} --threads {t} --set data.workers={w}"));
        assert_same_runs((&place, "first"), (&place, &format!("r{i}")));
    }
}

#[test]
fn dense_layers_do_not_depend_on_workers_or_threads() {
    same_for_all(LAYERS);
}

#[test]
fn convolutions_do_not_depend_on_workers_or_threads() {
    same_for_all(CONVOLUTIONS);
}

#[test]
fn another_seed_is_another_run() {
    let place = Place::with(&config(LAYERS));
    place.ok("train c.toml --quiet --out a");
    place.ok("train c.toml --quiet --out b --set seed=4");
    assert_ne!(place.metrics("a")[0]["loss"], place.metrics("b")[0]["loss"]);
}

#[test]
fn the_configuration_of_a_run_repeats_it() {
    let place = Place::with(&config(LAYERS));
    place.ok("train c.toml --quiet --out a --set optimizer.lr=1e-3");
    place.ok("train a/config.toml --quiet --out b");
    assert_same_runs((&place, "a"), (&place, "b"));
    assert_eq!(place.read("a/config.toml"), place.read("b/config.toml"));
}
