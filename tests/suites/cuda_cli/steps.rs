//! Evaluations within epochs, dry runs and times on a device that is not waited for at every step.

use super::support::{Place, assert_same_runs, digits};
use super::{emulator, ok_with};

fn config() -> String {
    digits(
        "eval_batch_size = 50",
        "[model]\nlayers = [\"flatten\", { type = \"linear\", out_features = 10 }]\n[optimizer]\ntype = \"adam\"\nlr = 3e-3\n\
         [train]\nsteps = 13\neval_every_steps = 4\n[log]\nevery_steps = 1\n",
    )
    .replace("device = \"cpu\"", "device = \"cuda\"")
}

#[test]
fn evaluations_within_epochs_change_nothing_and_are_repeated() {
    let Some(folder) = emulator::library_dir() else { return };
    let place = Place::with(&config());
    let ok = |args: &str| ok_with(&place, &folder, args, &[]);
    ok("train c.toml --quiet --out whole");
    let rows = place.metrics("whole");
    let steps: Vec<u64> = rows.iter().filter(|l| l["val_loss"].is_f64()).filter_map(|l| l["step"].as_u64()).collect();
    assert_eq!(steps, [4, 8, 12, 13]);
    // Within and beside evaluations, and where one is due.
    for stop in [3, 4, 9, 12] {
        let resume = if stop == 3 { "" } else { "--resume" };
        ok(&format!("train c.toml --quiet --out r {resume} --set train.max_steps={stop}"));
    }
    ok("train c.toml --quiet --out r --resume --set train.max_steps=1000");
    assert_same_runs((&place, "whole"), (&place, "r"));
    ok("train c.toml --quiet --out plain --unset train.eval_every_steps");
    let [with, without] = ["whole", "plain"].map(|run| place.checkpoint(&format!("{run}/last.safetensors")));
    assert!(with.tensors.iter().all(|(name, tensor)| tensor.data == without.tensors[name].data));
}

#[test]
fn a_dry_run_and_the_time_of_a_run() {
    let Some(folder) = emulator::library_dir() else { return };
    let place = Place::with(&config());
    let dry = ok_with(&place, &folder, "train c.toml --dry-run --json", &[]).json();
    ok_with(
        &place,
        &folder,
        "train c.toml --quiet --out r --set train.max_steps=2 --set train.eval_every_steps=2",
        &[],
    );
    let losses: Vec<f64> = place.metrics("r").iter().filter_map(|line| line["loss"].as_f64()).collect();
    let of_dry_run = [1, 5].map(|n| dry["dry_run"][n]["loss"].as_f64().unwrap());
    assert!(
        losses.len() == 2 && losses.iter().zip(of_dry_run).all(|(a, b)| *a as f32 == b as f32),
        "{losses:?} {of_dry_run:?}"
    );
    let time = ok_with(&place, &folder, "check c.toml --time --json", &[]).json()["time"].clone();
    assert_eq!((&time["steps"], &time["evaluations"]), (&13.into(), &4.into()), "{time}");
    assert!(time["step_ms"].as_f64().unwrap() > 0.0 && time["measured_steps"].as_u64().unwrap() > 0, "{time}");
}

/// In half precision the first updates are left out until the scale of the loss fits. The average that is validated takes part in that.
#[test]
fn schedule_free_training_in_half_precision_goes_on_to_the_same_bits() {
    let Some(folder) = emulator::library_dir() else { return };
    let layers = "layers = [\"flatten\", { type = \"linear\", out_features = 12 }, \"batch_norm1d\", \"relu\", { type = \"linear\", out_features = 10 }]";
    let rule = "type = \"adamw_schedule_free\"\nlr = 0.02\nwarmup_steps = 4\nbetas = [0.9, 0.99]";
    let rest = format!(
        "[model]\n{layers}\n[optimizer]\n{rule}\n[train]\nsteps = 24\neval_every_steps = 8\n[log]\nevery_steps = 1\n"
    );
    let config =
        digits("eval_batch_size = 50", &rest).replace("device = \"cpu\"", "device = \"cuda\"\nprecision = \"fp16\"");
    let place = Place::with(&config);
    let ok = |args: &str| ok_with(&place, &folder, args, &[]);
    ok("train c.toml --quiet --out whole");
    for stop in [1, 3, 8, 17] {
        let resume = if stop == 1 { "" } else { "--resume" };
        ok(&format!("train c.toml --quiet --out r {resume} --set train.max_steps={stop}"));
    }
    ok("train c.toml --quiet --out r --resume --set train.max_steps=1000");
    assert_same_runs((&place, "whole"), (&place, "r"));
    let last = place.checkpoint("whole/last.safetensors");
    let floats = |name: &str| -> Vec<f32> {
        last.tensors[name].data.as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)).collect()
    };
    let (y, z, x) = (floats("4.weight"), floats("optimizer.z.4.weight"), floats("optimizer.average.4.weight"));
    assert!(z != x);
    for ((y, z), x) in y.iter().zip(z).zip(x) {
        assert!((y - (0.1 * z + 0.9 * x)).abs() < 1e-6, "{y} between {z} and {x}");
    }
    let rows: Vec<_> = place.metrics("whole").into_iter().filter(|line| line["val_loss"].is_f64()).collect();
    let losses: Vec<f64> = rows.iter().map(|row| row["val_loss"].as_f64().unwrap()).collect();
    assert!(losses.len() == 3 && losses[2] < 0.9 * losses[0], "{losses:?}");
    let eval = ok("eval whole/last.safetensors --json").json();
    assert!((eval["metrics"]["loss"].as_f64().unwrap() - losses[2]).abs() < 1e-9, "{eval}");
}
