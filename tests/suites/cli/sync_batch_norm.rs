//! `sync_batch_norm`: batch normalisation takes the statistics of all shards of a step, whichever rank has them.

use super::ranked::config;
use super::ranks::same_for_all;
use super::support::{Place, assert_same_runs, digits};
use runner::checkpoint::{Checkpoint, Tensor, write_weights};

/// The configuration with the statistics of all shards together.
fn together(config: &str) -> String {
    let shards = "[distributed]\nshards = 12\n";
    assert!(config.contains(shards), "{config}");
    config.replace(shards, &format!("{shards}sync_batch_norm = true\n"))
}

/// A net with a branch, and batch norms at many places, of which one has neither parameters nor running statistics.
fn residual() -> String {
    let conv = "{ type = \"conv2d\", out_channels = 5, kernel_size = 3, padding = 1, bias = false }";
    let layers = format!(
        "[model]\nlayers = [\n  {conv}, \"batch_norm2d\", \"relu\",\n  {{ name = \"block\", type = \"residual\", layers = [{conv}, \"batch_norm2d\", \
         \"relu\", {conv}, {{ type = \"batch_norm2d\", affine = false, track_running_stats = false }}] }}, \"relu\",\n  \
         {{ type = \"group_norm\", num_groups = 5 }}, {{ type = \"max_pool2d\", kernel_size = 2 }}, \"flatten\",\n  \
         {{ type = \"linear\", out_features = 10 }},\n]"
    );
    let rest = "[optimizer]\ntype = \"sgd\"\nlr = 0.05\nmomentum = 0.9\n[train]\nepochs = 2\n[distributed]\nshards = 12\n[log]\nevery_steps = 1\n";
    // The last step has five shards, of which the last one has two samples.
    digits("", &format!("{layers}\n{rest}"))
        .replace("batch_size = 32", "batch_size = 48")
        .replace("limit = 320", "limit = 258")
}

#[test]
fn the_result_does_not_depend_on_the_number_of_ranks() {
    same_for_all(&together(&config("epochs = 2", "")));
}

#[test]
fn nor_with_branches_or_without_running_statistics() {
    same_for_all(&together(&residual()));
}

/// With as many ranks as shards each has one, or none.
#[test]
fn a_shard_for_each_rank_gives_the_same() {
    let place = Place::with(&together(&residual()));
    place.ok("train c.toml --quiet --out one");
    place.ok("launch --ranks 12 -- train c.toml --quiet --out twelve");
    assert_same_runs((&place, "one"), (&place, "twelve"));
}

#[test]
fn a_run_goes_on_with_another_number_of_ranks_and_threads() {
    let place = Place::with(&together(&config("epochs = 2", "")));
    place.ok("train c.toml --quiet --out one --threads 1");
    place.ok("launch --ranks 3 -- train c.toml --quiet --out parts --set train.max_steps=9");
    place.ok("launch --ranks 4 -- train --resume parts --quiet --set train.max_steps=1000");
    assert_same_runs((&place, "one"), (&place, "parts"));
}

/// Averages of weights have statistics of their own, and parameters that are thawed have a program of their own. Layers are computed again.
#[test]
fn averages_thawing_and_recomputation_do_not_change_that() {
    let plain = config("epochs = 3", "").replace("ema = { decay = 0.9 }", "swa = { start = 1 }");
    let plain = plain.replace("[schedule]\ntype = \"cosine\"\n", "");
    let plain = plain
        .replace("[model]", "[model]\nfreeze = [\"0\"]\nthaw_after = 2")
        .replace("[train]", "[train]\nrecompute = true");
    let place = Place::with(&together(&plain));
    place.ok("train c.toml --quiet --out one");
    place.ok("train c.toml --quiet --out kept --set train.recompute=false");
    place.ok("launch --ranks 4 -- train c.toml --quiet --out four");
    assert_same_runs((&place, "one"), (&place, "four"));
    let tensors = |run: &str| place.checkpoint(&format!("{run}/last.safetensors")).tensors;
    let (one, kept) = (tensors("one"), tensors("kept"));
    assert!(one.iter().all(|(name, tensor)| tensor.data == kept[name].data), "recomputation changes bits");
}

/// The largest difference of a tensor's numbers.
fn apart(a: &Checkpoint, b: &Checkpoint, name: &str) -> f32 {
    let floats = |c: &Checkpoint| -> Vec<f32> {
        c.tensors[name].data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    };
    floats(a).iter().zip(floats(b)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// The statistics are those of a batch that is not cut: losses, gradients (by the parameters after some steps), running statistics. A shard's own are others.
#[test]
fn it_is_the_same_as_without_shards_but_for_rounding() {
    let place = Place::with(&together(&residual()));
    place.ok("train c.toml --quiet --out together --set train.epochs=1");
    place.ok("train c.toml --quiet --out whole --set train.epochs=1 --unset distributed");
    place.ok("train c.toml --quiet --out alone --set train.epochs=1 --set distributed.sync_batch_norm=false");
    let [together, whole, alone] =
        ["together", "whole", "alone"].map(|run| place.checkpoint(&format!("{run}/last.safetensors")));
    let names = [
        "0.weight",
        "1.weight",
        "1.bias",
        "1.running_mean",
        "1.running_var",
        "block.0.weight",
        "block.1.running_var",
        "8.weight",
    ];
    for name in names {
        // Six steps, whose numbers are below 2: some hundred roundings of 2^-24.
        let (rounding, otherwise) = (apart(&together, &whole, name), apart(&alone, &whole, name));
        assert!(rounding < 3e-5, "{name}: {rounding}");
        assert!(otherwise > 1e-3, "{name}: the statistics of single shards would be distinguished: {otherwise}");
    }
    let counted = "1.num_batches_tracked";
    assert_eq!(together.tensors[counted].data, whole.tensors[counted].data);
    let losses = |run: &str| -> Vec<f64> {
        let of_steps = place.metrics(run).into_iter().filter_map(|line| line["loss"].as_f64());
        of_steps.collect()
    };
    let (of_together, of_whole) = (losses("together"), losses("whole"));
    assert!(of_together.len() == 6 && of_whole.len() == 6, "{of_together:?}");
    assert!(of_together.iter().zip(&of_whole).all(|(a, b)| (a - b).abs() < 3e-5), "{of_together:?} {of_whole:?}");
}

/// A sample of one rank makes the statistics of all no number. The rank that has it reports where it begins.
#[test]
fn a_loss_that_is_not_finite_is_reported_by_the_rank_that_finds_it() {
    let place = Place::with(
        "seed = 1\n[data]\nsource = \"tensors\"\npath = \"t.safetensors\"\nbatch_size = 8\nshuffle = false\n\
         [model]\nlayers = [{ name = \"fc\", type = \"linear\", out_features = 4 }, \"batch_norm1d\", { name = \"out\", type = \"linear\", \
         out_features = 1 }]\n[loss]\ntype = \"mse\"\n[optimizer]\ntype = \"sgd\"\nlr = 0.01\n[train]\nepochs = 2\n\
         [distributed]\nshards = 4\nsync_batch_norm = true\n[checkpoint]\nevery_steps = 1\nmonitor = \"train_loss\"\n",
    );
    let mut inputs: Vec<f32> = (0..60).map(|i| (i as f32).sin()).collect();
    // Sample 17, the second one of the first shard of step 3, which has two shards.
    inputs[3 * 17] = f32::NAN;
    let (x, y) = (Tensor::from_f32([20, 3], &inputs), Tensor::from_f32([20, 1], &[0.5; 20]));
    write_weights(&place.path("t.safetensors"), &[x.view("inputs"), y.view("targets")]).unwrap();
    for ranks in [1, 2, 4] {
        let err = place.fails(&format!("launch --ranks {ranks} -- train c.toml --out r{ranks}"), 1);
        assert!(err.contains("at step 3 (epoch 1), over all shards"), "{ranks}: {err}");
        assert!(err.contains("training sample 17 (from 0) has NaN in `inputs`"), "{ranks}: {err}");
        assert!(err.contains("look for such values in the data"), "{ranks}: {err}");
        // The statistics before that step are still there.
        let kept = place.checkpoint(&format!("r{ranks}/last.safetensors"));
        assert_eq!(kept.meta.step, 2, "{ranks}");
        let mean = kept.tensors["1.running_mean"].data.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b));
        assert!(mean.into_iter().all(f32::is_finite), "{ranks}");
    }
}

/// All shards of a rank are in memory at the same time, and `check` counts that.
#[test]
fn the_memory_of_all_shards_is_reported() {
    let place = Place::with(&together(&config("epochs = 1", "")));
    let activations = |args: &str| -> u64 {
        let report: serde_json::Value =
            serde_json::from_str(&place.ok(&format!("check c.toml --json {args}")).out).unwrap();
        report["memory"]["activations"].as_u64().unwrap()
    };
    let (all, of_four) = (activations(""), activations("--ranks 4"));
    let alone = activations("--set distributed.sync_batch_norm=false");
    assert!(all > 3 * of_four && of_four > 2 * alone, "{all} {of_four} {alone}");
}

#[test]
fn what_it_cannot_do_is_refused() {
    let place = Place::with(&together(&config("epochs = 1", "")));
    let refused = |args: &str| place.fails(&format!("train c.toml {args}"), 2);
    let err = refused("--unset distributed.shards");
    assert!(err.contains("`sync_batch_norm` joins the statistics of shards, and there are none"), "{err}");
    let err = refused("--set train.accumulate=2");
    assert!(err.contains("`sync_batch_norm` does not go with `accumulate`"), "{err}");
    let err = refused("--set model.layers=[\"flatten\",{type=\"linear\",out_features=10}]");
    assert!(err.contains("the model has no batch normalisation"), "{err}");
    // The statistics are a matter of the experiment.
    place.ok("train c.toml --quiet --out r");
    let err = place.fails("train --resume r --set distributed.sync_batch_norm=false --set train.epochs=2", 2);
    assert!(err.contains("sync_batch_norm"), "{err}");
}
