//! Optimizers with state of their own kind, and adaptive clipping, in whole runs: the same bits in any way, and what is made of them.

use super::support::{Place, assert_same_runs, digits};
use runner::checkpoint::{Tensor, load_tensors};

/// Two epochs of five steps; layer 1 is a linear one, 2 batch norm, 4 the head.
fn config(optimizer: &str, train: &str) -> String {
    let layers = "layers = [\"flatten\", { type = \"linear\", out_features = 12 }, \"batch_norm1d\", \"relu\", { type = \"linear\", out_features = 10 }]";
    let rest = format!(
        "[model]\n{layers}\n[optimizer]\n{optimizer}\n[train]\nepochs = 2\n{train}\n[log]\nevery_steps = 1\n\
         [checkpoint]\nevery_steps = 1\nkeep = 100\n"
    );
    digits("", &rest).replace("limit = 320", "limit = 160")
}

/// The run of `c.toml` on one thread is that on three, and that which was stopped after each of `stops`.
fn is_the_same_in_any_way(place: &Place, run: &str, stops: &[u64]) {
    place.ok(&format!("train c.toml --quiet --out {run} --threads 1"));
    place.ok(&format!("train c.toml --quiet --out {run}-three --threads 3"));
    assert_same_runs((place, run), (place, &format!("{run}-three")));
    for stop in stops {
        let stopped = format!("{run}-{stop}");
        place.ok(&format!("train c.toml --quiet --out {stopped} --set train.max_steps={stop}"));
        place.ok(&format!("train c.toml --quiet --out {stopped} --resume --set train.max_steps=1000"));
        assert_same_runs((place, run), (place, &stopped));
    }
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    tensor.data.as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)).collect()
}

/// What `check` says that the optimizer's state takes.
fn state_bytes(place: &Place) -> u64 {
    place.ok("check c.toml --json").json()["memory"]["optimizer"].as_u64().unwrap()
}

#[test]
fn adafactor_keeps_rows_and_columns() {
    let place = Place::with(&config("type = \"adam\"", ""));
    let of_adam = state_bytes(&place);
    for (i, train) in ["", "accumulate = 2\nclip_grad_norm = 0.5"].into_iter().enumerate() {
        place.write("c.toml", config("type = \"adafactor\"\nlr = 0.05\nweight_decay = 0.01", train));
        let run = format!("r{i}");
        is_the_same_in_any_way(&place, &run, &[2, 5]);
        let last = place.checkpoint(&format!("{run}/last.safetensors"));
        let shape = |name: &str| last.tensors.get(name).map(|tensor| tensor.shape.clone());
        assert_eq!(shape("optimizer.row_var.1.weight"), Some(vec![12, 1]));
        assert_eq!(shape("optimizer.col_var.1.weight"), Some(vec![1, 64]));
        assert_eq!(shape("optimizer.variance.1.bias"), Some(vec![12]));
        assert_eq!([shape("optimizer.variance.1.weight"), shape("optimizer.row_var.1.bias")], [None, None]);
        // Each row's mean over its columns, and each column's over its rows, come to the same mean of all.
        let mean = |name: &str| {
            let all = floats(&last.tensors[name]);
            all.iter().map(|x| f64::from(*x)).sum::<f64>() / all.len() as f64
        };
        let [rows, columns] = ["row", "col"].map(|side| mean(&format!("optimizer.{side}_var.1.weight")));
        assert!(rows > 0.0 && (rows / columns - 1.0).abs() < 1e-5, "{rows} {columns}");
    }
    let of_adafactor = state_bytes(&place);
    assert!(of_adafactor * 8 < of_adam, "{of_adafactor} and {of_adam} bytes");
}

/// The weights are where gradients are taken, between the point that descends and its average; the average is what is validated
/// and made of checkpoints, with statistics of batch norm of its own.
#[test]
fn schedule_free_training_is_validated_by_its_average() {
    let place = Place::with("");
    let rule = "type = \"adamw_schedule_free\"\nlr = 0.01\nweight_decay = 0.01\nwarmup_steps = 3\nbetas = [0.9, 0.99]";
    for (i, train) in ["", "accumulate = 2\nclip_grad_norm = 0.5", "eval_every_steps = 3"].into_iter().enumerate() {
        place.write("c.toml", config(rule, train));
        let run = format!("r{i}");
        is_the_same_in_any_way(&place, &run, &[1, 3, 4]);
        let last = place.checkpoint(&format!("{run}/last.safetensors"));
        for name in ["1.weight", "2.bias", "4.bias"] {
            let of = |prefix: &str| floats(&last.tensors[&format!("{prefix}{name}")]);
            let (y, z, x) = (of(""), of("optimizer.z."), of("optimizer.average."));
            assert!(z != x, "{name}");
            for ((y, z), x) in y.iter().zip(z).zip(x) {
                assert!((y - (0.1 * z + 0.9 * x)).abs() < 1e-6, "{name}: {y} between {z} and {x}");
            }
        }
        let metrics = place.metrics(&run);
        // Its own warm-up is in the rates that are reported.
        let steps: Vec<_> = metrics.iter().filter(|l| l["kind"] == "step").take(4).collect();
        let rates: Vec<f64> = steps.iter().map(|l| l["lr"].as_f64().unwrap()).collect();
        for (rate, share) in rates.iter().zip([1.0 / 3.0, 2.0 / 3.0, 1.0, 1.0]) {
            assert!((rate / (0.01 * share) - 1.0).abs() < 1e-12, "{rates:?}");
        }
        let line = metrics.iter().rfind(|l| l["kind"] == "epoch").unwrap();
        let eval = place.ok(&format!("eval {run}/last.safetensors --json")).json();
        let [reported, again] = [&line["val_loss"], &eval["metrics"]["loss"]].map(|loss| loss.as_f64().unwrap());
        assert!((reported - again).abs() < 1e-9, "{line} {eval}");
        place.ok(&format!("export {run}/last.safetensors w.safetensors"));
        let exported = load_tensors(&place.path("w.safetensors")).unwrap().tensors;
        for name in ["1.weight", "2.running_mean", "2.running_var"] {
            assert_eq!(exported[name].data, last.tensors[&format!("optimizer.average.{name}")].data);
            assert_ne!(exported[name].data, last.tensors[name].data, "{name}");
        }
    }
    let stderr = place.ok("train c.toml --out averaged").err;
    assert!(stderr.contains("validation is of the optimizer's average of the weights"), "{stderr}");
}

#[test]
fn adaptive_clipping_leaves_out_the_parameters_that_it_excepts() {
    let sgd = "type = \"sgd\"\nlr = 0.1";
    let place = Place::with(&config(sgd, "clip_grad_adaptive = 1e-3\nclip_grad_adaptive_except = [\"4\"]"));
    is_the_same_in_any_way(&place, "r", &[2, 6]);
    let moved = |run: &str| {
        let [a, b] = [1, 2].map(|step| place.checkpoint(&format!("{run}/step-{step}.safetensors")).tensors);
        ["1.weight", "4.weight"].map(|name| {
            let difference = floats(&a[name]).into_iter().zip(floats(&b[name])).map(|(a, b)| f64::from(a - b).powi(2));
            let size = floats(&a[name]).into_iter().map(|a| f64::from(a).powi(2));
            (difference.sum::<f64>() / size.sum::<f64>()).sqrt()
        })
    };
    place.write("c.toml", config(sgd, ""));
    place.ok("train c.toml --quiet --out free");
    let ([first, last], [first_free, last_free]) = (moved("r"), moved("free"));
    // A step of gradient descent is the learning rate times the gradient, which no unit has more of than 0.001 of its weights.
    assert!(first <= 1.001e-4 && first_free > 1e-3, "{first} {first_free}");
    assert!(last > 1e-3 && last_free > 1e-3, "{last} {last_free}");
    place.write("c.toml", config(sgd, "clip_grad_adaptive = 0.01\nclip_grad_adaptive_except = [\"head.*\"]"));
    let message = place.fails("check c.toml", 2);
    assert!(message.contains("`head.*` in `clip_grad_adaptive_except` fits no parameter"), "{message}");
}
