//! A loss that is no number ends the run, and says where it began; so does an epoch in which no target counts.

use super::support::{LAYERS, Place, digits};
use runner::checkpoint::{Tensor, write_weights};
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};

#[test]
fn an_absurd_learning_rate_is_told_with_its_step() {
    let config = digits("", &format!("{LAYERS}\n[optimizer]\ntype = \"sgd\"\nlr = 1e30\n[train]\nepochs = 2\n"));
    let place = Place::with(&config.replace("\"batch_norm1d\", ", ""));
    let err = place.fails("train c.toml --out r", 1);
    assert!(err.contains("at step 2 (epoch 1, batch 2)"), "{err}");
    assert!(err.contains("operation `") || err.contains("the parameter `"), "{err}");
    assert!(!err.contains("the checkpoints in"), "there are none yet: {err}");
    assert!(!place.path("r/last.safetensors").exists());
}

#[test]
fn values_in_the_data_are_blamed_on_the_data() {
    let place = Place::with(
        "seed = 1\n[data]\nsource = \"tensors\"\npath = \"t.safetensors\"\nbatch_size = 4\nshuffle = false\n\
         [model]\nlayers = [{ name = \"fc\", type = \"linear\", out_features = 1 }]\n[loss]\ntype = \"mse\"\n\
         [optimizer]\ntype = \"sgd\"\nlr = 0.01\n[train]\nepochs = 2\n\
         [checkpoint]\nevery_steps = 1\nmonitor = \"train_loss\"\n",
    );
    let mut inputs: Vec<f32> = (0..36).map(|i| i as f32 * 0.01).collect();
    inputs[28] = f32::NAN;
    let targets = vec![0.5; 12];
    let write = |inputs: &[f32]| {
        let (x, y) = (Tensor::from_f32([12, 3], inputs), Tensor::from_f32([12, 1], &targets));
        write_weights(&place.path("t.safetensors"), &[x.view("inputs"), y.view("targets")]).unwrap();
    };
    write(&inputs);
    let err = place.fails("train c.toml --out r", 1);
    assert!(err.contains("at step 3 (epoch 1, batch 3)"), "{err}");
    assert!(err.contains("`fc`") && err.contains("look for such values in the data"), "{err}");
    assert!(err.contains("the checkpoints in `r` are from before this step"), "{err}");
    // What was saved before is good, and with better data the run goes on from there.
    assert_eq!(place.checkpoint("r/last.safetensors").meta.step, 2);
    inputs[28] = 0.28;
    write(&inputs);
    place.ok("train c.toml --out r --resume");
    place.ok("train c.toml --out whole");
    // That the data is another is noted; but for that the runs are the same.
    let lines = place.read("r/metrics.jsonl");
    let (notes, others): (Vec<&str>, Vec<&str>) = lines.lines().partition(|line| line.contains("\"kind\":\"note\""));
    assert!(notes.len() == 1 && notes[0].contains("the training inputs differ"), "{notes:?}");
    place.write("r/metrics.jsonl", others.join("\n") + "\n");
    super::support::assert_same_runs((&place, "r"), (&place, "whole"));
}

/// A batch in which no target counts is left out of all means; an epoch in which none does is an error.
#[test]
fn targets_that_do_not_count() {
    let place = Place::with(
        "seed = 1\n[data]\nsource = \"tensors\"\npath = \"t.safetensors\"\nbatch_size = 4\nshuffle = false\n\
         [model]\nlayers = [{ type = \"linear\", out_features = 3 }]\n[loss]\ntype = \"cross_entropy\"\n\
         [optimizer]\ntype = \"sgd\"\nlr = 0.01\n[train]\nepochs = 1\n[log]\nevery_steps = 1\n",
    );
    let write = |targets: &[i32]| {
        let inputs: Vec<f32> = (0..36).map(|i| i as f32 * 0.01).collect();
        let inputs: Vec<u8> = inputs.iter().flat_map(|x| x.to_le_bytes()).collect();
        let inputs = TensorView::new(Dtype::F32, vec![12, 3], &inputs).unwrap();
        let bytes: Vec<u8> = targets.iter().flat_map(|t| t.to_le_bytes()).collect();
        let targets = TensorView::new(Dtype::I32, vec![12], &bytes).unwrap();
        serialize_to_file([("inputs", inputs), ("targets", targets)], None, &place.path("t.safetensors")).unwrap();
    };
    let mut targets = [-100; 12];
    write(&targets);
    let err = place.fails("train c.toml --out r", 1);
    assert!(err.contains("in epoch 1: no target counts") && err.contains("`ignore_index`"), "{err}");
    // Of the second batch two count; the other batches have no part in the figures.
    targets[5..7].fill(2);
    write(&targets);
    place.ok("train c.toml --out r --force");
    let lines: Vec<serde_json::Value> =
        place.read("r/metrics.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let losses: Vec<f64> = lines.iter().filter(|l| l["kind"] == "step").map(|l| l["loss"].as_f64().unwrap()).collect();
    assert!(losses.len() == 3 && losses[0] == 0.0 && losses[1] > 0.5 && losses[2] == 0.0, "{losses:?}");
    let epoch = lines.iter().find(|l| l["kind"] == "epoch").unwrap();
    assert!((epoch["train_loss"].as_f64().unwrap() - losses[1]).abs() < 1e-6, "{epoch}");
}
