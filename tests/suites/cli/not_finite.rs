//! A loss that is no number ends the run, and says where it began; so does an epoch in which no target counts.

use super::support::{LAYERS, Place, digits};
use runner::checkpoint::{Tensor, write_weights};
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};

#[test]
fn an_absurd_learning_rate_is_an_error_with_its_step() {
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
    assert!(
        err.contains("sample 9 (from 0) has NaN in `inputs`") && err.contains("look for such values in the data"),
        "{err}"
    );
    assert!(!err.contains("learning rate"), "{err}");
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

/// A linear model of four samples a batch, and a file of twelve with these inputs and targets.
fn regression(more: &str) -> Place {
    Place::with(&format!(
        "seed = 1\n[data]\nsource = \"tensors\"\npath = \"t.safetensors\"\nbatch_size = 4\nshuffle = false\n\
         [model]\nlayers = [{{ type = \"linear\", out_features = 1 }}]\n[loss]\ntype = \"mse\"\n\
         [optimizer]\ntype = \"sgd\"\nlr = 0.01\n[train]\nepochs = 5\n{more}"
    ))
}

fn write(place: &Place, inputs: &[f32], targets: &[f32], val_targets: &[f32]) {
    let (n, v) = (targets.len(), val_targets.len());
    let (x, y) = (Tensor::from_f32([n, 3], inputs), Tensor::from_f32([n, 1], targets));
    let (vx, vy) = (Tensor::from_f32([v, 3], &inputs[..3 * v]), Tensor::from_f32([v, 1], val_targets));
    let all = [x.view("inputs"), y.view("targets"), vx.view("val_inputs"), vy.view("val_targets")];
    write_weights(&place.path("t.safetensors"), &all).unwrap();
}

#[test]
fn targets_that_are_no_numbers_are_blamed_on_the_data() {
    let place = regression("");
    let inputs: Vec<f32> = (0..36).map(|i| i as f32 * 0.01).collect();
    let mut targets = vec![0.5; 12];
    targets[6] = f32::INFINITY;
    write(&place, &inputs, &targets, &[0.5; 4]);
    let err = place.fails("train c.toml --out r", 1);
    assert!(err.contains("at step 2 (epoch 1, batch 2): training sample 6 (from 0) has inf in `targets`"), "{err}");
    assert!(!err.contains("learning rate"), "{err}");
}

/// Figures do not depend on the size of batches, also where a sample of one is no number.
#[test]
fn samples_that_are_not_finite_are_counted_one_by_one() {
    let place =
        regression("[train.early_stopping]\nmonitor = \"val_loss\"\npatience = 2\n[metrics]\nfigures = [\"r2\"]\n");
    let inputs: Vec<f32> = (0..96).map(|i| ((i * 37 % 19) as f32 - 9.0) * 0.1).collect();
    let targets: Vec<f32> = (0..32).map(|i| (i % 5) as f32 * 0.2).collect();
    write(&place, &inputs, &targets, &targets);
    place.ok("train c.toml --out whole");
    let mut broken = targets.clone();
    (broken[7], broken[20]) = (f32::NAN, f32::INFINITY);
    // A target so far away that its square is no longer finite.
    broken[21] = 1e30;
    write(&place, &inputs, &targets, &broken);
    let eval = |batch: usize| {
        let done = place.run(&format!("eval whole --set data.eval_batch_size={batch} --json"));
        assert_eq!(done.code, Some(1), "{done:?}");
        assert!(done.err.contains("3 of 32 samples are not finite (the first is number 7, from 0)"), "{done:?}");
        done.json()
    };
    let alone = eval(1);
    assert_eq!((alone["samples"].as_u64(), alone["not_finite"].as_u64()), (Some(32), Some(3)), "{alone}");
    assert!(alone["metrics"]["loss"].is_null(), "{alone}");
    for batch in [2, 5, 8, 16, 32] {
        let together = eval(batch);
        for figure in ["mae", "rmse", "r2"] {
            let of = |evaluation: &serde_json::Value| evaluation["metrics"][figure].as_f64().unwrap();
            assert!((of(&together) - of(&alone)).abs() < 1e-5, "{batch}: {together} {alone}");
        }
        assert_eq!(together["not_finite"], alone["not_finite"]);
    }
    // What is left is what an evaluation without them has.
    let good: Vec<usize> = (0..32).filter(|i| ![7, 20, 21].contains(i)).collect();
    let of =
        |list: &[f32], each: usize| good.iter().flat_map(|i| list[i * each..][..each].to_vec()).collect::<Vec<f32>>();
    let (x, y) = (of(&inputs, 3), of(&targets, 1));
    write(&place, &x, &y, &y);
    let without = place.ok("eval whole --json").json();
    let mae = |evaluation: &serde_json::Value| evaluation["metrics"]["mae"].as_f64().unwrap();
    assert!((mae(&without) - mae(&alone)).abs() < 1e-5, "{without} {alone}");
    // Training goes on, and says what it is that early stopping watches.
    write(&place, &inputs, &targets, &broken);
    let stderr = place.ok("train c.toml --out r").err;
    for part in ["3 of 32 samples are not finite", "`val_loss` is no number: to early stopping that is no improvement"]
    {
        assert_eq!(stderr.matches(part).count(), 1, "{part}: {stderr}");
    }
    // None at all is an error.
    write(&place, &inputs, &targets, &[f32::NAN; 8]);
    assert!(place.fails("eval whole", 1).contains("the loss is not finite for any sample"));
}

#[test]
fn classes_are_counted_without_samples_that_are_not_finite() {
    let place = Place::with(
        "seed = 1\n[data]\nsource = \"tensors\"\npath = \"t.safetensors\"\nbatch_size = 8\n\
         [model]\nlayers = [{ type = \"linear\", out_features = 2 }]\n[loss]\ntype = \"cross_entropy\"\n\
         [optimizer]\ntype = \"adam\"\nlr = 0.01\n[train]\nepochs = 2\n[lint]\nallow = [\"chosen_on_test_set\"]\n",
    );
    let mut inputs: Vec<f32> = (0..64).map(|i| ((i * 29 % 17) as f32 - 8.0) * 0.2).collect();
    let labels: Vec<u8> = (0..32i32).flat_map(|i| (i * i % 2).to_le_bytes()).collect();
    let save = |inputs: &[f32]| {
        let bytes: Vec<u8> = inputs.iter().flat_map(|x| x.to_le_bytes()).collect();
        let x = TensorView::new(Dtype::F32, vec![32, 2], &bytes).unwrap();
        let y = TensorView::new(Dtype::I32, vec![32], &labels).unwrap();
        let all = [("inputs", x.clone()), ("targets", y.clone()), ("val_inputs", x), ("val_targets", y)];
        serialize_to_file(all, None, &place.path("t.safetensors")).unwrap();
    };
    save(&inputs);
    place.ok("train c.toml --out r");
    inputs[27] = f32::NAN;
    save(&inputs);
    let eval = |batch: usize| {
        let done = place.run(&format!("eval r --set data.eval_batch_size={batch} --json"));
        assert_eq!(done.code, Some(1), "{done:?}");
        done.json()
    };
    let alone = eval(1);
    for batch in [4, 8, 16, 32] {
        assert_eq!(eval(batch), alone, "{batch}");
    }
}

/// The first update of Adam without `eps` divides by zero where an input always is zero.
#[test]
fn a_state_that_is_not_finite_is_not_saved() {
    let adam = "[optimizer]\ntype = \"adam\"\neps = 0\n[train]\nepochs = 1\n[checkpoint]\nevery_steps = 1\n";
    let model = "[model]\nlayers = [\"flatten\", { type = \"linear\", out_features = 10 }]\n";
    let place = Place::with(&digits("", &format!("{model}{adam}")));
    let err = place.fails("train c.toml --out r", 1);
    assert!(err.contains("has values that are not finite after step 1") && err.contains("`eps`"), "{err}");
    let kept = std::fs::read_dir(place.path("r")).unwrap().flatten();
    let kept: Vec<String> = kept.map(|file| file.file_name().into_string().unwrap()).collect();
    assert!(!kept.iter().any(|name| name.contains("safetensors")), "{kept:?}");
    // What was saved before stays, and is good.
    place.ok("train c.toml --out r --force --set optimizer.eps=1e-8 --set train.max_steps=2");
    let before = place.checkpoint("r/last.safetensors");
    let err = place.fails("train --resume r --set optimizer.eps=0 --set train.max_steps=9", 1);
    assert!(err.contains("not finite") || err.contains("the loss is"), "{err}");
    // A run that goes on writes down what it goes on with: the state is the same.
    let after = place.checkpoint("r/last.safetensors");
    assert_eq!((after.meta.step, after.tensors.len()), (before.meta.step, before.tensors.len()));
    assert!(before.tensors.iter().all(|(name, tensor)| after.tensors[name].data == tensor.data));
}

/// A sample for which the model puts out no numbers has no answer, and the others have theirs.
#[test]
fn what_is_not_finite_is_no_prediction() {
    let place = Place::with(
        "[data]\nsource = \"tensors\"\npath = \"t.safetensors\"\n[model]\nweights = \"w.safetensors\"\n\
         layers = [{ name = \"fc\", type = \"linear\", out_features = 2 }]\n[loss]\ntype = \"cross_entropy\"\n\
         [optimizer]\ntype = \"sgd\"\nlr = 0.01\n[train]\nepochs = 1\n",
    );
    let write = |name: &str, inputs: &[f32]| {
        let x: Vec<u8> = inputs.iter().flat_map(|x| x.to_le_bytes()).collect();
        let x = TensorView::new(Dtype::F32, vec![inputs.len() / 3, 3], &x).unwrap();
        let targets: Vec<u8> = (0..inputs.len() as i32 / 3).flat_map(|i| (i % 2).to_le_bytes()).collect();
        let targets = TensorView::new(Dtype::I32, vec![inputs.len() / 3], &targets).unwrap();
        serialize_to_file([("inputs", x), ("targets", targets)], None, &place.path(name)).unwrap();
    };
    let mut inputs: Vec<f32> = (0..12).map(|i| i as f32 * 0.1).collect();
    write("t.safetensors", &inputs);
    let weights = |weight: f32| {
        let (w, b) =
            (Tensor::from_f32([2, 3], &[0.1, -0.2, 0.3, weight, weight, weight]), Tensor::from_f32([2], &[0.0; 2]));
        write_weights(&place.path("w.safetensors"), &[w.view("fc.weight"), b.view("fc.bias")]).unwrap();
    };
    weights(2.0);
    let whole = place.ok("predict c.toml t.safetensors --format csv").out;
    // What is not finite in the data, and what becomes so in the model.
    for bad in [f32::NAN, f32::INFINITY, 3e38] {
        inputs[7] = bad;
        write("x.safetensors", &inputs);
        let done = place.run("predict c.toml x.safetensors --format csv");
        assert_eq!(done.code, Some(1), "{done:?}");
        let expected: Vec<String> = whole
            .lines()
            .filter(|line| !line.starts_with("t.safetensors,2,"))
            .map(|line| line.replace("t.safetensors", "x.safetensors"))
            .collect();
        assert_eq!(done.out.lines().collect::<Vec<_>>(), expected);
        let reason =
            "error: what the model puts out for `x.safetensors, sample 2` is not finite: there is no answer to it";
        assert!(done.err.contains(reason), "{}", done.err);
    }
    weights(3e38);
    let done = place.run("predict c.toml t.safetensors --json");
    let reason = "3 samples is not finite (the first is `t.safetensors, sample 1`)";
    assert_eq!(done.json().as_array().map(Vec::len), Some(1), "{done:?}");
    assert!(done.code == Some(1) && done.err.contains(reason), "{}", done.err);
}
