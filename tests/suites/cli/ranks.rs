//! Several ranks come to what one comes to, to the bit.

use super::ranked::{TENSORS, config, tensors};
use super::support::{LAYERS, Place, assert_same_runs, digits, repository};
use runner::checkpoint::{Tensor, write_weights};

/// One rank and several, each of which divides the shards.
pub fn same_for_all(config: &str) {
    let place = Place::with(config);
    place.ok("train c.toml --quiet --out one");
    for ranks in [2, 3, 4] {
        place.ok(&format!("launch --ranks {ranks} -- train c.toml --quiet --out r{ranks}"));
        assert_same_runs((&place, "one"), (&place, &format!("r{ranks}")));
    }
}

#[test]
fn convolutions_do_not_depend_on_the_number_of_ranks() {
    same_for_all(&config("epochs = 2", ""));
}

#[test]
fn accumulation_does_not_depend_on_it() {
    same_for_all(&config("epochs = 2\naccumulate = 3", ""));
}

#[test]
fn a_transformer_does_not_depend_on_it() {
    let text = std::fs::read_to_string(repository("configs/digits_transformer.toml")).unwrap();
    let config = format!("{text}\n[distributed]\nshards = 12\n");
    let place = Place::with(&config);
    let sets = "--quiet --device cpu --set data.batch_size=48 --set train.steps=5 --set train.eval_every_steps=3 --set data.limit_val=100";
    place.ok(&format!("train c.toml {sets} --out one"));
    for ranks in [2, 4] {
        place.ok(&format!("launch --ranks {ranks} -- train c.toml {sets} --out r{ranks}"));
        assert_same_runs((&place, "one"), (&place, &format!("r{ranks}")));
    }
}

/// ResNet-18 with its batch norms, small images, and parameters that are divided unequally.
#[test]
fn a_residual_net_does_not_depend_on_it() {
    let model = repository("models/resnet18_cifar.toml");
    let config = digits(
        "train_transforms = [{ type = \"random_crop\", size = 8, padding = 1 }, \"random_horizontal_flip\"]",
        &format!(
            "[model]\nuse = {:?}\n[optimizer]\ntype = \"sgd\"\nlr = 0.05\nmomentum = 0.9\nweight_decay = 5e-4\n\
             [train]\nepochs = 1\nmax_steps = 2\nclip_grad_norm = 1.0\n[distributed]\nshards = 12\n[log]\nevery_steps = 1\n",
            model.display().to_string()
        ),
    );
    same_for_all(&config.replace("batch_size = 32", "batch_size = 24").replace("limit = 320", "limit = 40"));
}

/// Rules that look at single numbers, whole tensors, matrices, or rows and columns, with or without state on one rank alone.
#[test]
fn no_optimizer_depends_on_it() {
    for rule in [
        "type = \"sgd\"\nlr = 0.05",
        "type = \"muon\"\nlr = 0.02",
        "type = \"adafactor\"\nlr = 0.01",
        "type = \"lamb\"\nlr = 0.01",
        "type = \"lars\"\nlr = 0.1\nmomentum = 0.9",
        "type = \"rmsprop\"\nlr = 1e-3\nmomentum = 0.5",
        "type = \"adamw_schedule_free\"\nlr = 0.01",
    ] {
        let whole = config("epochs = 1", "").replace("ema = { decay = 0.9 }\n", "");
        let whole = whole.replace("[schedule]\ntype = \"cosine\"\n", "").replace("type = \"adamw\"\nlr = 3e-3", rule);
        assert!(whole.contains(rule), "{whole}");
        let place = Place::with(&whole);
        place.ok("train c.toml --quiet --out one");
        place.ok("launch --ranks 3 -- train c.toml --quiet --out three --set train.max_steps=3");
        place.ok("launch --ranks 2 -- train --resume three --quiet --set train.max_steps=1000");
        assert_same_runs((&place, "one"), (&place, "three"));
    }
}

/// Fewer gradients at first, of which the norm is that of all.
#[test]
fn parameters_that_are_thawed_do_not_depend_on_it() {
    let thawed = config("epochs = 3", "").replace("[model]", "[model]\nfreeze = [\"0\", \"1\"]\nthaw_after = 1");
    same_for_all(&thawed);
}

/// Each rank has its part of the optimizer's state, which is twice the parameters, and `check` reports it.
#[test]
fn the_state_of_the_optimizer_is_divided() {
    let place = Place::with(&config("epochs = 1", "").replace("out_features = 24", "out_features = 512"));
    let of = |args: &str| -> serde_json::Value {
        let report: serde_json::Value =
            serde_json::from_str(&place.ok(&format!("check c.toml --json {args}")).out).unwrap();
        report["memory"].clone()
    };
    let bytes = |memory: &serde_json::Value, of: &str| memory[of].as_u64().unwrap();
    let (one, two) = (of(""), of("--ranks 2"));
    assert_eq!(bytes(&one, "parameters"), bytes(&two, "parameters"));
    // A moving average of all weights, which evaluation reads, and two numbers for each.
    let (one_state, two_state) = (bytes(&one, "optimizer"), bytes(&two, "optimizer"));
    assert!(two_state < one_state && two_state >= one_state * 3 / 5, "{one_state} {two_state}");
    assert_eq!(two["ranks"]["count"], 2);
    // Beside what they share, processes have messages: twice half of the gradients, at least, which are as large as the parameters.
    let [threads, processes] = ["threads", "processes"].map(|of| bytes(&two["ranks"], of));
    let shared: u64 = ["data", "cache", "process"].into_iter().map(|class| bytes(&two, class)).sum();
    let messages = processes - threads - shared;
    assert!(messages >= 2 * bytes(&two, "parameters"), "{messages} {two}");
    let text = place.ok("check c.toml --ranks 3").out;
    assert!(text.contains("of each of 3 ranks") && text.contains("3 ranks on one machine: "), "{text}");
    let refused = place.fails("check c.toml --ranks 5", 2);
    assert!(refused.contains("5 ranks cannot share 12 shards equally"), "{}", refused);
}

#[test]
fn a_run_goes_on_with_another_number_of_ranks() {
    let place = Place::with(&config("epochs = 3", ""));
    place.ok("train c.toml --quiet --out whole");
    place.ok("launch --ranks 2 -- train c.toml --quiet --out r --set train.max_steps=3");
    for (ranks, steps) in [(3, 9), (1, 11), (4, 1000)] {
        place.ok(&format!("launch --ranks {ranks} -- train --resume r --quiet --set train.max_steps={steps}"));
    }
    assert_same_runs((&place, "whole"), (&place, "r"));
}

/// What decides is the same on all ranks: an improvement that is too small ends all of them.
#[test]
fn all_ranks_stop_early_together() {
    let early = "epochs = 30\nearly_stopping = { monitor = \"val_loss\", patience = 2, min_delta = 0.4 }";
    let place = Place::with(&config(early, ""));
    let one = place.ok("train c.toml --out one");
    assert!(one.err.contains("stopped early after epoch"), "{}", one.err);
    let two = place.ok("launch --ranks 2 -- train c.toml --out two");
    assert!(two.err.contains("stopped early after epoch") && two.err.contains("for each of 2 ranks"), "{}", two.err);
    assert_same_runs((&place, "one"), (&place, "two"));
    let done = place.ok("launch --ranks 2 -- train --resume two");
    assert!(done.err.contains("nothing to do: the run stopped early"), "{}", done.err);
}

#[test]
fn the_mean_of_weights_and_its_statistics_do_not_depend_on_it() {
    let config = config("epochs = 4", "").replace("ema = { decay = 0.9 }", "swa = { start = 2 }");
    same_for_all(&config);
}

/// The update is that of the whole batch: without batch norm, whose statistics are those of shards, and without draws it is the same but for
/// rounding.
#[test]
fn shards_make_the_update_of_the_whole_batch() {
    let plain = digits(
        "",
        &format!(
            "{LAYERS}\n[optimizer]\ntype = \"sgd\"\nlr = 0.1\nmomentum = 0.9\n[train]\nepochs = 2\n[log]\nevery_steps = 1\n"
        ),
    );
    let plain = plain.replace("\"batch_norm1d\", ", "").replace(", { type = \"dropout\", p = 0.3 }", "");
    let place = Place::with(&plain.replace("limit = 320", "limit = 300"));
    place.ok("train c.toml --quiet --out whole");
    let whole = place.metrics("whole");
    for shards in [1, 4, 32] {
        place.ok(&format!("train c.toml --quiet --out s{shards} --set distributed.shards={shards}"));
        let lines = place.metrics(&format!("s{shards}"));
        assert_eq!(lines.len(), whole.len());
        for (line, of_whole) in lines.iter().zip(&whole) {
            for figure in ["loss", "train_loss", "val_loss", "train_accuracy", "val_accuracy"] {
                let (Some(a), Some(b)) = (line[figure].as_f64(), of_whole[figure].as_f64()) else { continue };
                assert!((a - b).abs() < 2e-4 * b.abs().max(0.1), "{shards} shards: {figure} is {a}, not {b}");
            }
        }
    }
}

/// Shards are parts of the batches that are configured, and are not counted as such.
#[test]
fn messages_count_batches_and_not_their_shards() {
    let place = Place::with(&config("epochs = 1", ""));
    place.ok("train c.toml --quiet --out r --set train.max_steps=2");
    let err = place.ok("train --resume r --set train.max_steps=3").err;
    assert!(err.contains("resumed at epoch 1, batch 2, step 2"), "{err}");
    let err = place.fails("check c.toml --set data.limit=301", 2);
    let expected = "with the last shard, which has one sample: 301 samples in batches of 48, each of 12 shards of 4";
    assert!(err.contains(expected), "{err}");
    let place = Place::with(TENSORS);
    tensors(&place, 0.0);
    place.ok("train c.toml --quiet --out r --set train.max_steps=2");
    let (x, y) = (Tensor::from_f32([4, 3], &[0.5; 12]), Tensor::from_f32([4, 1], &[0.5; 4]));
    write_weights(&place.path("t.safetensors"), &[x.view("inputs"), y.view("targets")]).unwrap();
    let err = place.fails("train --resume r --set train.max_steps=3", 1);
    assert!(err.contains("is after batch 2 of an epoch, and an epoch of the data has 1 batches"), "{err}");
}

#[test]
fn a_loss_that_is_not_finite_on_one_rank_is_an_error_with_its_place() {
    let place = Place::with(
        "seed = 1\ndevice = \"cpu\"\n[data]\nsource = \"tensors\"\npath = \"t.safetensors\"\nbatch_size = 4\nshuffle = false\n\
         [model]\nlayers = [{ name = \"fc\", type = \"linear\", out_features = 1 }]\n[loss]\ntype = \"mse\"\n\
         [optimizer]\ntype = \"sgd\"\nlr = 0.01\n[train]\nepochs = 2\n[distributed]\nshards = 4\n\
         [checkpoint]\nevery_steps = 1\nmonitor = \"train_loss\"\n",
    );
    let mut inputs: Vec<f32> = (0..36).map(|i| i as f32 * 0.01).collect();
    // Of sample 10, which is in shard 2 of step 3: on two ranks that of the second, on four that of the third.
    inputs[31] = f32::NAN;
    let (x, y) = (Tensor::from_f32([12, 3], &inputs), Tensor::from_f32([12, 1], &[0.5; 12]));
    write_weights(&place.path("t.safetensors"), &[x.view("inputs"), y.view("targets")]).unwrap();
    for (ranks, of) in [(1, ""), (2, "rank 1 has failed: "), (4, "rank 2 has failed: ")] {
        let err = place.fails(&format!("launch --ranks {ranks} -- train c.toml --out r{ranks}"), 1);
        assert!(err.contains(&format!("{of}the loss is NaN at step 3 (epoch 1, batch 3)")), "{err}");
        assert!(err.contains("training sample 10 (from 0) has NaN in `inputs`"), "{err}");
        assert!(err.contains("look for such values in the data"), "{err}");
        assert_eq!(place.checkpoint(&format!("r{ranks}/last.safetensors")).meta.step, 2);
    }
}

/// The rank whose shard they are in meets photos that cannot be read, and the first rank reports them.
#[test]
fn unreadable_samples_of_all_ranks_are_reported() {
    let place = Place::with(
        &digits("", "[optimizer]\ntype = \"sgd\"\nlr = 0.1\n[train]\nepochs = 1\n[distributed]\nshards = 4\n")
            .replace("source = \"digits\"", "source = \"image_folder\"\nroot = \"photos\"\ntransforms = [{ type = \"resize\", size = 8 }, { type = \"center_crop\", size = 8 }]\nvalidation_split = 0.2")
            .replace("limit = 320\n", "")
            .replace("limit_val = 100\n", "")
            .replace("batch_size = 32", "batch_size = 16")
            .replace("[optimizer]", "[model]\nlayers = [\"flatten\", { type = \"linear\", out_features = 2 }]\n[optimizer]"),
    );
    let photo = std::fs::read(repository("crates/jpeg/tests/data/grey.jpg")).ok();
    for i in 0..80 {
        let image = image::GrayImage::from_fn(9, 9, |x, y| image::Luma([(x * 20 + y * 3 + i) as u8]));
        let path = place.write(&format!("photos/{}/{i:02}.png", ["a", "b"][i as usize % 2]), "");
        match i {
            5 | 30 => std::fs::write(path, photo.as_deref().map_or(&b"no image"[..], |bytes| &bytes[..20])).unwrap(),
            _ => image.save(path).unwrap(),
        }
    }
    let unreadable = |command: &str| {
        let done = place.ok(command);
        done.err.lines().filter(|line| line.contains("cannot be read")).map(str::to_owned).collect::<Vec<_>>()
    };
    let one = unreadable("train c.toml --out one");
    assert!(!one.is_empty() && one.iter().any(|line| line.contains(".png")), "{one:?}");
    assert_eq!(unreadable("launch --ranks 4 -- train c.toml --out four"), one);
    assert_same_runs((&place, "one"), (&place, "four"));
}

#[test]
fn ctrl_c_stops_all_ranks_with_everything_saved() {
    let place = Place::with(&config("epochs = 3", ""));
    place.ok("train c.toml --quiet --out whole");
    let mut running = place.start("launch --ranks 2 -- train c.toml --out r --set train.epochs=2000");
    assert!(running.until(|| place.path("r/last.safetensors").exists()));
    running.signal(libc::SIGINT);
    let (_, done) = running.wait();
    assert_eq!(done.code, Some(130), "{done:?}");
    assert!(done.err.contains("saved in"), "{}", done.err);
    let step = place.checkpoint("r/last.safetensors").meta.step;
    assert!(step >= 7, "{step}");
}

#[test]
fn ranks_that_do_not_fit_are_errors() {
    let place = Place::with(&config("epochs = 1", ""));
    let err = place.fails("launch --ranks 5 -- train c.toml", 2);
    assert!(err.contains("5 ranks cannot share 12 shards equally") && err.contains("1, 2, 3, 4, 6, 12"), "{err}");
    let err = place.fails("launch --ranks 2 -- train c.toml --unset distributed", 2);
    assert!(err.contains("this configuration has none") && err.contains("shards = 2"), "{err}");
    let err = place.fails("launch --ranks 2 -- eval c.toml", 2);
    assert!(err.contains("`launch` runs `train` alone"), "{err}");
    let err = place.fails("launch --ranks 2 -- train c.toml --dry-run", 2);
    assert!(err.contains("a dry run is that of one rank"), "{err}");
    let err = place.fails("launch --ranks 2 -- train c.toml --no-such-option", 2);
    assert!(err.contains("--no-such-option"), "{err}");
    let err = place.fails("launch --ranks 0 -- train c.toml", 2);
    assert!(err.contains("--ranks"), "{err}");
    assert!(!place.path("runs").exists());
}

/// What evaluates a checkpoint later finds what the run has found.
#[test]
fn evaluation_in_shards_is_that_of_the_run() {
    let place = Place::with(&config("epochs = 1", ""));
    place.ok("launch --ranks 3 -- train c.toml --quiet --out r");
    let line = place.metrics("r").into_iter().find(|line| line["kind"] == "epoch").unwrap();
    let evaluation = place.ok("eval r/last.safetensors --device cpu --json").json();
    for figure in ["loss", "accuracy", "auroc", "macro_f1"] {
        assert_eq!(evaluation["metrics"][figure], line[format!("val_{figure}")], "{figure}: {evaluation}");
    }
}
